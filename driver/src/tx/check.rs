//! How fast the copy into a send buffer is, measured once after the device came up.
//!
//! Stores to a send buffer are fast if the processor combines them into bursts, which needs a mapping that allows
//! it. A mapping without costs most of the bandwidth and shows nowhere but in a slow job, so it is measured and said
//! once. The chip takes words at any place of an armed buffer; after the measurement the buffer is disarmed, and the
//! launch error that the words may raise is masked meanwhile (F-213).

use std::fmt;

use qhca_regs::map::device;
use qhca_regs::status::ErrBits;
use qhca_regs::{Bar, Buffer, Duration, Instant};

use super::control::SendControl;
use crate::env::Clock;

/// Below this rate, MiB a second, the copy is called slow: a combining mapping gives well over a gibibyte, one
/// without a few hundred mebibytes (F-213).
pub const PIO_SLOW_BELOW_MIB_S: u64 = 1024;
/// How long is measured.
///
/// TIMEOUT: the stock driver's (F-213).
const MEASURE_FOR: Duration = Duration::from_millis(5);
/// Blocks after which the measurement ends whatever the clock says: a clock may stand still.
const BLOCKS_MAX: u64 = 100_000;
/// Dwords of one block.
const BLOCK_DWORDS: usize = 256;
/// Where in the buffer the blocks go, bytes.
const BLOCK_AT: u32 = 0x100;

/// A rate that was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyRate {
    /// Bytes that were copied.
    pub bytes: u64,
    /// How long that took.
    pub took: Duration,
}

/// What the measurement says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PioVerdict {
    /// Fast enough to need no word.
    Fast(CopyRate),
    /// Slow: worth one warning.
    Slow(CopyRate),
    /// No time passed on the clock, so there is no rate.
    Unknown,
}

impl CopyRate {
    /// The rate in MiB a second, rounded down; `None` if no time passed.
    pub fn mib_per_s(self) -> Option<u64> {
        let ns = u128::from(self.took.as_nanos());
        let mib_per_s = (u128::from(self.bytes) * 1_000_000_000).checked_div(ns)? >> 20;
        Some(u64::try_from(mib_per_s).unwrap_or(u64::MAX))
    }

    /// What the rate means.
    pub fn verdict(self) -> PioVerdict {
        match self.mib_per_s() {
            None => PioVerdict::Unknown,
            Some(rate) if rate < PIO_SLOW_BELOW_MIB_S => PioVerdict::Slow(self),
            Some(_) => PioVerdict::Fast(self),
        }
    }
}

impl fmt::Display for PioVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fast(rate) | Self::Slow(rate) => {
                write!(f, "copies into send buffers run at {} MiB/s", rate.mib_per_s().unwrap_or(0))
            }
            Self::Unknown => f.write_str("the speed of copies into send buffers could not be measured"),
        }
    }
}

/// The measurement: which buffer it may use, and what the error mask holds outside it.
pub struct PioCheck<'a> {
    /// A small buffer that nobody sends from meanwhile.
    pub buffer: Buffer,
    /// The register that disarms it.
    pub control: &'a SendControl,
    /// What `ErrMask` holds.
    pub err_mask: ErrBits,
}

impl PioCheck<'_> {
    /// Measures for 5 ms.
    pub fn run(&self, bar: &impl Bar, clock: &impl Clock) -> CopyRate {
        device::ERR_MASK.write(bar, self.err_mask.difference(ErrBits::SEND_ARM_LAUNCH_ERR));
        // A control word of length 0: the buffer is armed and never full (F-213).
        bar.burst(self.buffer.offset(), &[0, 0]);
        let rate = measure(|block| bar.burst(self.buffer.offset() + BLOCK_AT, block), || clock.now());
        self.control.disarm(bar, self.buffer);
        device::ERR_CLEAR.clear(bar, ErrBits::SEND_ARM_LAUNCH_ERR);
        device::ERR_MASK.write(bar, self.err_mask);
        rate
    }
}

/// Copies blocks until the time is up.
fn measure(mut copy: impl FnMut(&[u32]), mut now: impl FnMut() -> Instant) -> CopyRate {
    let block = [0xA5A5_A5A5; BLOCK_DWORDS];
    let start = now();
    let mut blocks = 0;
    let mut took = Duration::ZERO;
    while took < MEASURE_FOR && blocks < BLOCKS_MAX {
        copy(&block);
        blocks += 1;
        took = now().since(start);
    }
    CopyRate { bytes: blocks * BLOCK_DWORDS as u64 * 4, took }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Access, RecordingBar};
    use qhca_regs::map::device::SendCtrl;
    use std::cell::Cell;

    /// A clock that goes on by the same step whenever it is asked.
    struct Ticking {
        step_ns: u64,
        now_ns: Cell<u64>,
    }

    impl Clock for Ticking {
        fn now(&self) -> Instant {
            self.now_ns.set(self.now_ns.get() + self.step_ns);
            Instant::from_nanos(self.now_ns.get())
        }
    }

    fn run(step_ns: u64) -> (CopyRate, RecordingBar) {
        let bar = RecordingBar::default();
        let control = SendControl::new(SendCtrl::default());
        let buffer = Buffer::new(120).expect("a buffer");
        let check = PioCheck { buffer, control: &control, err_mask: ErrBits::NAMED };
        (check.run(&bar, &Ticking { step_ns, now_ns: Cell::new(0) }), bar)
    }

    /// B02: slow, fast, and a clock that stands still.
    #[test]
    fn slow_copy_is_called_slow_fast_one_fast_and_zero_time_is_no_rate() {
        // 1 KiB in 5 µs is 195 MiB/s; in 500 ns it is 1953 MiB/s.
        assert!(matches!(run(5_000).0.verdict(), PioVerdict::Slow(rate) if rate.mib_per_s() == Some(195)));
        assert!(matches!(run(500).0.verdict(), PioVerdict::Fast(rate) if rate.mib_per_s() == Some(1953)));
        let (still, _) = run(0);
        assert_eq!((still.verdict(), still.mib_per_s()), (PioVerdict::Unknown, None));
    }

    /// B01: the measurement leaves nothing behind: the buffer is disarmed, the mask is as before.
    #[test]
    fn check_masks_its_own_error_and_leaves_the_buffer_disarmed() {
        let (_, bar) = run(1_000_000);
        let launch = ErrBits::SEND_ARM_LAUNCH_ERR;
        let masks = bar.writes_to(device::ERR_MASK.offset());
        assert_eq!(masks, [ErrBits::NAMED.difference(launch).bits(), ErrBits::NAMED.bits()]);
        assert_eq!(bar.writes_to(device::SEND_CTRL.offset()), [1 << 31 | 120 << 16]);
        let bursts = bar.log.borrow().iter().filter(|access| matches!(access, Access::Burst(..))).count();
        assert_eq!(bursts, 1 + 5, "a control word and a block a millisecond");
    }

    #[test]
    fn rate_of_a_long_copy_does_not_overflow() {
        let rate = CopyRate { bytes: u64::MAX, took: Duration::from_nanos(1) };
        assert_eq!(rate.mib_per_s(), Some(u64::MAX));
    }
}
