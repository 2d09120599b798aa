//! Finds out whether interrupts arrive at all, after start-up.
//!
//! On some platforms messages are routed nowhere: everything comes up, and then nothing ever interrupts. A device
//! that has been started must interrupt within half a second, if only because a link changes state. If none came,
//! the interrupt line is tried once, and checked in the same way; if that is silent too, it is an error that names
//! both attempts. Packets that were found by polling are no alarm by themselves: the check is about interrupts.

use crate::plan::Mode;
use core::fmt;
use qhca_regs::{Duration, Instant};

/// How long the first interrupt may take.
///
/// TIMEOUT: the stock driver's (F-608).
pub const FIRST_INTERRUPT_WITHIN: Duration = Duration::from_millis(500);

/// What to do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// Interrupts arrive, in this mode. There is nothing more to check.
    Proven(Mode),
    /// Not yet known.
    Waiting,
    /// None came: free the vectors, use the interrupt line, then call [`ArrivalCheck::fell_back`].
    FallBack,
    /// None came in either mode: report it. The device can still be polled.
    Silent,
}

/// Neither messages nor the interrupt line brought an interrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoInterrupts {
    /// The mode that was tried first.
    pub first: Mode,
}

impl fmt::Display for NoInterrupts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tried: &[Mode] = if self.first == Mode::Intx { &[Mode::Intx] } else { &[self.first, Mode::Intx] };
        f.write_str("no interrupts arrive: tried ")?;
        for (n, mode) in tried.iter().enumerate() {
            let comma = if n == 0 { "" } else { ", then " };
            write!(f, "{comma}{mode} for {FIRST_INTERRUPT_WITHIN}")?;
        }
        f.write_str("; check the slot, the platform's interrupt remapping and the IOMMU, or poll")
    }
}

impl core::error::Error for NoInterrupts {}

/// Watches for the first interrupt.
#[derive(Clone, Copy, Debug)]
pub struct ArrivalCheck {
    first: Mode,
    mode: Mode,
    since: Instant,
    baseline: u64,
    result: Option<Arrival>,
}

impl ArrivalCheck {
    /// Interrupts were switched on in `mode` at `now`, when `interrupts` had been counted.
    pub const fn new(mode: Mode, interrupts: u64, now: Instant) -> Self {
        Self { first: mode, mode, since: now, baseline: interrupts, result: None }
    }

    /// What the number of interrupts counted so far says at `now`. A final answer stays.
    pub fn check(&mut self, interrupts: u64, now: Instant) -> Arrival {
        if let Some(result) = self.result {
            return result;
        }
        let answer = if interrupts != self.baseline {
            Arrival::Proven(self.mode)
        } else if now.since(self.since) < FIRST_INTERRUPT_WITHIN {
            return Arrival::Waiting;
        } else if self.mode != Mode::Intx {
            return Arrival::FallBack;
        } else {
            Arrival::Silent
        };
        *self.result.insert(answer)
    }

    /// The interrupt line is in use since `now`.
    pub const fn fell_back(&mut self, interrupts: u64, now: Instant) {
        self.mode = Mode::Intx;
        self.since = now;
        self.baseline = interrupts;
    }

    /// When to check next; `None` once the answer is final.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.result.is_none().then(|| self.since + FIRST_INTERRUPT_WITHIN)
    }

    /// The error to report after [`Arrival::Silent`].
    pub const fn error(&self) -> NoInterrupts {
        NoInterrupts { first: self.first }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    /// B36: the fallback is tried once, re-checked, and if still silent a clear error comes.
    #[test]
    fn messages_that_never_arrive_fall_back_once_and_then_become_an_error() {
        let mut check = ArrivalCheck::new(Mode::MsiX, 0, ms(0));
        assert_eq!(check.check(0, ms(499)), Arrival::Waiting);
        assert_eq!(check.check(0, ms(500)), Arrival::FallBack);
        check.fell_back(0, ms(500));
        assert_eq!(check.check(0, ms(999)), Arrival::Waiting);
        assert_eq!(check.check(0, ms(1000)), Arrival::Silent);
        assert_eq!(check.check(0, ms(5000)), Arrival::Silent);
        assert_eq!(check.poll_timeout(), None);
        let text = check.error().to_string();
        assert!(text.contains("MSI-X for 500 ms, then INTx for 500 ms"), "{text}");
    }

    /// B36: one interrupt ends the check for good; a long silence after it is no alarm.
    #[test]
    fn one_interrupt_proves_the_mode_and_later_silence_is_no_alarm() {
        let mut check = ArrivalCheck::new(Mode::MsiX, 7, ms(0));
        assert_eq!(check.check(8, ms(500)), Arrival::Proven(Mode::MsiX));
        assert_eq!(check.check(8, ms(60_000)), Arrival::Proven(Mode::MsiX));
        let mut line = ArrivalCheck::new(Mode::MsiX, 0, ms(0));
        line.fell_back(0, ms(500));
        assert_eq!(line.check(1, ms(600)), Arrival::Proven(Mode::Intx));
    }
}
