//! The stock driver's moderation: halve the timer after a small drain, double it after a large one.
//!
//! It is a hill climb that never rests: at a steady load it moves at every interrupt. Source: F-606.

use super::{RcvModeration, RcvSetting};
use qhca_regs::Instant;

/// The timer at the start, and its ceiling.
pub const TIMEOUT_MAX_TICKS: u16 = 375;
/// The timer is not halved from here on.
pub const TIMEOUT_MIN_TICKS: u16 = 2;
/// Packets after which the chip interrupts, and what counts as a large drain.
pub const COUNT_PACKETS: u16 = 16;

/// Halves and doubles the timer between 2 and 375 ticks; the count stays 16.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HalveDouble {
    timeout_ticks: u16,
}

impl HalveDouble {
    /// The state after bring-up: the longest timer.
    pub const fn new() -> Self {
        Self { timeout_ticks: TIMEOUT_MAX_TICKS }
    }
}

impl Default for HalveDouble {
    fn default() -> Self {
        Self::new()
    }
}

impl RcvModeration for HalveDouble {
    fn setting(&self) -> RcvSetting {
        RcvSetting { timeout_ticks: self.timeout_ticks, count_packets: COUNT_PACKETS }
    }

    fn on_drain(&mut self, packets: u32, _now: Instant) -> RcvSetting {
        if packets >= u32::from(COUNT_PACKETS) {
            self.timeout_ticks = (self.timeout_ticks * 2).min(TIMEOUT_MAX_TICKS);
        } else if self.timeout_ticks > TIMEOUT_MIN_TICKS {
            self.timeout_ticks /= 2;
        }
        self.setting()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticks_after(drains: impl IntoIterator<Item = u32>) -> Vec<u16> {
        let mut policy = HalveDouble::new();
        drains.into_iter().map(|packets| policy.on_drain(packets, Instant::ZERO).timeout_ticks).collect()
    }

    #[test]
    fn small_drains_halve_the_timer_down_to_two() {
        assert_eq!(ticks_after([15, 0, 1, 1, 1, 1, 1, 1, 1]), [187, 93, 46, 23, 11, 5, 2, 2, 2]);
    }

    #[test]
    fn large_drains_double_the_timer_up_to_the_ceiling() {
        assert_eq!(ticks_after([1, 16, 64, 16]), [187, 374, 375, 375]);
    }

    #[test]
    fn the_count_is_never_the_zero_that_means_never() {
        let mut policy = HalveDouble::new();
        for packets in [0, u32::MAX, 0, 16] {
            assert_eq!(policy.on_drain(packets, Instant::ZERO).count_packets, COUNT_PACKETS);
        }
    }
}
