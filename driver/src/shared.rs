//! The few words that the control thread, the error worker and the contexts' threads have in common.
//!
//! Control and data are split: a context is followed by its own thread, errors by another. What they have to tell
//! each other fits in a handful of atomics, so that no packet ever waits for a lock: whether the device is still
//! there, whether the worker is wanted, which contexts have overflowed, which links changed.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use qhca_irq::{ContextSet, Dispatcher, Handover, PortSet, VectorPlan};
use qhca_regs::status::PortErrBits;
use qhca_regs::{Ctxt, Port};

use crate::event::{Event, EventQueue};
use crate::fault::Policy;

/// Whether registers may be touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceState {
    /// The device is up.
    Open,
    /// The device is being reset, and will be open again.
    Resetting,
    /// The device was closed by its owner.
    Closed,
    /// The device reported an error that it cannot be used after.
    Failed,
    /// The device no longer answers: a register read as all ones.
    Gone,
}

impl DeviceState {
    const fn from_code(code: u8) -> Self {
        match code {
            0 => Self::Open,
            1 => Self::Resetting,
            2 => Self::Closed,
            3 => Self::Failed,
            _ => Self::Gone,
        }
    }

    const fn code(self) -> u8 {
        match self {
            Self::Open => 0,
            Self::Resetting => 1,
            Self::Closed => 2,
            Self::Failed => 3,
            Self::Gone => 4,
        }
    }

    /// Whether it never becomes usable again.
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Closed | Self::Failed | Self::Gone)
    }
}

/// Where the state stands in the word.
const STATE_MASK: u32 = 0xFF;
/// One reset in the word.
const RESET: u32 = 1 << 8;

/// What one device's threads have in common.
#[derive(Debug)]
pub struct DeviceShared {
    dispatcher: Dispatcher,
    /// The dispatcher after the first mode of interrupts proved silent.
    fallback: OnceLock<Dispatcher>,
    policy: Policy,
    events: EventQueue,
    /// The state's code in the lowest byte, and above it how often the device was reset.
    state: AtomicU32,
    contexts_returned: AtomicU32,
    senders_returned: AtomicU32,
    overflowed: AtomicU32,
    links_changed: AtomicU8,
    links_active: AtomicU8,
    /// Error bits of each port's send DMA engine that its control side has not looked at.
    sdma_errors: [AtomicU64; 2],
    /// Ports whose engine has a send buffer in error.
    sdma_buffers_stuck: AtomicU8,
}

impl DeviceShared {
    /// The words of a device that is up: its vectors, and how its errors are served.
    pub fn new(plan: VectorPlan, policy: Policy) -> Self {
        Self {
            dispatcher: Dispatcher::new(plan, policy.dispatch()),
            fallback: OnceLock::new(),
            policy,
            events: EventQueue::new(),
            state: AtomicU32::new(DeviceState::Open.code().into()),
            contexts_returned: AtomicU32::new(0),
            senders_returned: AtomicU32::new(0),
            overflowed: AtomicU32::new(0),
            links_changed: AtomicU8::new(0),
            links_active: AtomicU8::new(0),
            sdma_errors: Default::default(),
            sdma_buffers_stuck: AtomicU8::new(0),
        }
    }

    /// Turns vectors into work.
    #[inline]
    pub fn dispatcher(&self) -> &Dispatcher {
        self.fallback.get().unwrap_or(&self.dispatcher)
    }

    /// Serves the vectors of `plan` from now on: the first plan's never fired. Done at most once; a second call
    /// changes nothing.
    pub fn fall_back(&self, plan: VectorPlan) {
        self.fallback.get_or_init(|| Dispatcher::new(plan, self.policy.dispatch()));
    }

    /// How errors are served.
    pub fn policy(&self) -> Policy {
        self.policy
    }

    /// What happened, for the device's owner.
    pub fn events(&self) -> &EventQueue {
        &self.events
    }

    /// The hand-over from interrupts to the worker.
    #[inline]
    pub fn handover(&self) -> &Handover {
        self.dispatcher.handover()
    }

    /// Whether registers may be touched.
    #[inline]
    pub fn state(&self) -> DeviceState {
        DeviceState::from_code(self.word() as u8)
    }

    /// State and number of resets in one word. Whoever keeps it and finds it changed looks why: a path that does so
    /// asks for closing and for resets by one comparison.
    #[inline]
    pub fn word(&self) -> u32 {
        self.state.load(Ordering::Acquire)
    }

    /// Forbids everything because the device will be reset. False if it is not open.
    pub(crate) fn begin_reset(&self) -> bool {
        self.step(DeviceState::Open, DeviceState::Resetting, 0)
    }

    /// The device is as before, and was not reset.
    pub(crate) fn cancel_reset(&self) -> bool {
        self.step(DeviceState::Resetting, DeviceState::Open, 0)
    }

    /// The device is usable again; its queues and buffers begin afresh. False if it was closed or has gone meanwhile.
    pub(crate) fn end_reset(&self) -> bool {
        self.step(DeviceState::Resetting, DeviceState::Open, RESET)
    }

    fn step(&self, from: DeviceState, to: DeviceState, resets: u32) -> bool {
        let change = |word: u32| {
            let count = (word & !STATE_MASK).wrapping_add(resets);
            (DeviceState::from_code(word as u8) == from).then_some(count | u32::from(to.code()))
        };
        self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, change).is_ok()
    }

    /// Whether the device will never be usable again.
    pub fn is_over(&self) -> bool {
        self.state().is_final()
    }

    /// Whether registers may be touched, as the fast paths ask it.
    #[inline]
    pub fn is_open(&self) -> bool {
        self.word() & STATE_MASK == u32::from(DeviceState::Open.code())
    }

    /// Takes the device one way: a state that is worse than the present one replaces it, and no later interrupt or
    /// turn touches a register. Returns what it was before.
    pub fn worsen(&self, state: DeviceState) -> DeviceState {
        let worse = |word: u32| Some(word & !STATE_MASK | (word & STATE_MASK).max(state.code().into()));
        // The closure never declines, so both arms hold the word as it was.
        let (Ok(word) | Err(word)) = self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, worse);
        let before = DeviceState::from_code(word as u8);
        match state {
            DeviceState::Open | DeviceState::Resetting => {}
            DeviceState::Gone => {
                self.dispatcher().mark_gone();
                if before != DeviceState::Gone {
                    self.events.push(Event::Gone);
                }
            }
            // Whoever closes asks the hand-over itself whether a turn still runs.
            DeviceState::Closed | DeviceState::Failed => {
                self.dispatcher().close();
            }
        }
        before
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

    /// Whether receive batches are to stay short because the error worker is wanted.
    #[inline]
    pub fn wants_short_batches(&self) -> bool {
        self.policy.guards_receive() && !self.handover().pending().is_empty()
    }

    /// Notes that the owner of `ctxt` has dropped it.
    pub(crate) fn note_context_returned(&self, ctxt: Ctxt) {
        self.contexts_returned.fetch_or(1 << ctxt.index(), Ordering::AcqRel);
    }

    /// The contexts that were dropped by their owners, once.
    pub(crate) fn take_contexts_returned(&self) -> ContextSet {
        ContextSet::from_bits(self.contexts_returned.swap(0, Ordering::AcqRel))
    }

    /// Notes that the owner of sender `slot` (0 to 31) has dropped it.
    pub(crate) fn note_sender_returned(&self, slot: u32) {
        self.senders_returned.fetch_or(1 << slot, Ordering::AcqRel);
    }

    /// The senders that were dropped by their owners, one bit each, once.
    pub(crate) fn take_senders_returned(&self) -> u32 {
        self.senders_returned.swap(0, Ordering::AcqRel)
    }

    /// Notes that the link of `port` is to be looked at.
    pub fn note_link_change(&self, port: Port) {
        self.links_changed.fetch_or(1 << port.index(), Ordering::AcqRel);
    }

    /// The ports whose links are to be looked at, once.
    pub fn take_link_changes(&self) -> PortSet {
        PortSet::from_bits(u32::from(self.links_changed.swap(0, Ordering::AcqRel)))
    }

    /// Whether the control side has something to look at: a link, or a send DMA engine.
    pub fn has_news(&self) -> bool {
        self.links_changed.load(Ordering::Acquire) != 0
            || self.sdma_buffers_stuck.load(Ordering::Acquire) != 0
            || self.sdma_errors.iter().any(|bits| bits.load(Ordering::Acquire) != 0)
    }

    /// Notes that the send DMA engine of `port` has halted, or met an error: `bits` of its error word, already
    /// cleared there.
    pub fn note_sdma_error(&self, port: Port, bits: PortErrBits) {
        self.sdma_errors[port.index()].fetch_or(bits.bits(), Ordering::AcqRel);
    }

    /// The error bits of the send DMA engine of `port`, once.
    pub fn take_sdma_errors(&self, port: Port) -> PortErrBits {
        PortErrBits::from_bits_retain(self.sdma_errors[port.index()].swap(0, Ordering::AcqRel))
    }

    /// Notes that a send buffer of the send DMA engines of `ports` is in error.
    pub fn note_sdma_buffers_stuck(&self, ports: PortSet) {
        let bits = ports.iter().fold(0, |bits, port| bits | 1 << port.index());
        self.sdma_buffers_stuck.fetch_or(bits, Ordering::AcqRel);
    }

    /// The ports whose send DMA engine has a send buffer in error, once.
    pub fn take_sdma_buffers_stuck(&self) -> PortSet {
        PortSet::from_bits(u32::from(self.sdma_buffers_stuck.swap(0, Ordering::AcqRel)))
    }

    /// Notes whether the link of `port` is ACTIVE.
    pub fn set_link_active(&self, port: Port, active: bool) {
        let bit = 1 << port.index();
        match active {
            true => self.links_active.fetch_or(bit, Ordering::Relaxed),
            false => self.links_active.fetch_and(!bit, Ordering::Relaxed),
        };
    }

    /// Whether the link of `port` is ACTIVE.
    pub fn link_is_active(&self, port: Port) -> bool {
        self.links_active.load(Ordering::Relaxed) & 1 << port.index() != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::shared;
    use qhca_regs::{Instant, Vector};

    #[test]
    fn a_device_that_is_gone_is_not_closed_back_to_life() {
        let shared = shared(Policy::Guarded);
        assert!(shared.is_open());
        assert_eq!(shared.worsen(DeviceState::Gone), DeviceState::Open);
        assert_eq!(shared.worsen(DeviceState::Closed), DeviceState::Gone);
        assert_eq!(shared.state(), DeviceState::Gone);
    }

    /// Trap 4: an interrupt of a closed device touches nothing.
    #[test]
    fn interrupt_of_a_closed_device_touches_no_register() {
        let shared = shared(Policy::Guarded);
        shared.worsen(DeviceState::Closed);
        let bar = crate::testing::RecordingBar::default();
        let outcome = shared.dispatcher().on_vector(Vector::DEFAULT, &bar, Instant::ZERO);
        assert_eq!(outcome, qhca_irq::Outcome::Closed);
        assert_eq!(bar.take_log(), []);
    }

    #[test]
    fn an_overflow_is_noted_for_its_context_alone() {
        let shared = shared(Policy::Guarded);
        let (a, b) = (Ctxt::new(3).expect("a context"), Ctxt::new(17).expect("a context"));
        shared.note_overflow(a);
        assert!(shared.has_overflowed(a) && !shared.has_overflowed(b));
        shared.clear_overflow(a);
        assert!(!shared.has_overflowed(a));
    }

    #[test]
    fn reset_ends_in_another_word_unless_the_device_was_closed_meanwhile() {
        let shared = shared(Policy::Guarded);
        let before = shared.word();
        assert!(shared.begin_reset() && !shared.begin_reset());
        assert!(!shared.is_open() && !shared.is_over());
        assert!(shared.cancel_reset() && shared.word() == before);
        assert!(shared.begin_reset() && shared.end_reset());
        assert!(shared.is_open() && shared.word() != before);
        assert!(shared.begin_reset());
        assert_eq!(shared.worsen(DeviceState::Closed), DeviceState::Resetting);
        assert!(!shared.end_reset() && shared.state() == DeviceState::Closed);
    }

    #[test]
    fn link_change_is_taken_once() {
        let shared = shared(Policy::Guarded);
        shared.note_link_change(Port::P1);
        assert_eq!(shared.take_link_changes(), PortSet::only(Port::P1));
        assert!(shared.take_link_changes().is_empty());
    }
}
