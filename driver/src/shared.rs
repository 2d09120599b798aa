//! The few words that the control thread, the error worker and the contexts' threads have in common.
//!
//! Control and data are split: a context is followed by its own thread, errors by another. What they have to tell
//! each other fits in a handful of atomics, so that no packet ever waits for a lock: whether the device is still
//! there, whether the worker is wanted, which contexts have overflowed.

use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use qhca_regs::Ctxt;

/// Whether registers may be touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceState {
    /// The device is up.
    Open,
    /// The device was closed by its owner.
    Closed,
    /// The device no longer answers: a register read as all ones.
    Gone,
    /// The device reported an error that it cannot be used after.
    Failed,
}

impl DeviceState {
    const fn from_code(code: u8) -> Self {
        match code {
            0 => Self::Open,
            1 => Self::Closed,
            2 => Self::Failed,
            _ => Self::Gone,
        }
    }

    const fn code(self) -> u8 {
        match self {
            Self::Open => 0,
            Self::Closed => 1,
            Self::Failed => 2,
            Self::Gone => 3,
        }
    }
}

/// What one device's threads have in common.
#[derive(Debug, Default)]
pub struct DeviceShared {
    state: AtomicU8,
    overflowed: AtomicU32,
    errors_pending: AtomicU8,
}

impl DeviceShared {
    /// The words of a device that is up.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether registers may be touched.
    #[inline]
    pub fn state(&self) -> DeviceState {
        DeviceState::from_code(self.state.load(Ordering::Acquire))
    }

    /// Whether registers may be touched, as the fast paths ask it.
    #[inline]
    pub fn is_open(&self) -> bool {
        self.state.load(Ordering::Acquire) == DeviceState::Open.code()
    }

    /// Takes the device one way: a state that is worse than the present one replaces it. Returns what it was before.
    pub fn worsen(&self, state: DeviceState) -> DeviceState {
        DeviceState::from_code(self.state.fetch_max(state.code(), Ordering::AcqRel))
    }

    /// Notes that packets of `ctxt` were dropped: its next drain takes more at a time.
    pub fn note_overflow(&self, ctxt: Ctxt) {
        self.overflowed.fetch_or(1 << ctxt.index(), Ordering::Relaxed);
    }

    /// Whether packets of `ctxt` were dropped since [`clear_overflow`](Self::clear_overflow).
    #[inline]
    pub fn has_overflowed(&self, ctxt: Ctxt) -> bool {
        self.overflowed.load(Ordering::Relaxed) & 1 << ctxt.index() != 0
    }

    /// Forgets that packets of `ctxt` were dropped.
    pub fn clear_overflow(&self, ctxt: Ctxt) {
        self.overflowed.fetch_and(!(1 << ctxt.index()), Ordering::Relaxed);
    }

    /// Says whether the error worker is wanted: while it is, receive batches stay short.
    pub fn set_errors_pending(&self, pending: bool) {
        self.errors_pending.store(u8::from(pending), Ordering::Relaxed);
    }

    /// Whether the error worker is wanted.
    #[inline]
    pub fn errors_pending(&self) -> bool {
        self.errors_pending.load(Ordering::Relaxed) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_is_gone_is_not_closed_back_to_life() {
        let shared = DeviceShared::new();
        assert!(shared.is_open());
        assert_eq!(shared.worsen(DeviceState::Gone), DeviceState::Open);
        assert_eq!(shared.worsen(DeviceState::Closed), DeviceState::Gone);
        assert_eq!(shared.state(), DeviceState::Gone);
    }

    #[test]
    fn an_overflow_is_noted_for_its_context_alone() {
        let shared = DeviceShared::new();
        let (a, b) = (Ctxt::new(3).expect("a context"), Ctxt::new(17).expect("a context"));
        shared.note_overflow(a);
        assert!(shared.has_overflowed(a) && !shared.has_overflowed(b));
        shared.clear_overflow(a);
        assert!(!shared.has_overflowed(a));
    }
}
