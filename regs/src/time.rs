//! Time as the core knows it: nanoseconds in a `u64`, from an origin that the caller's clock chooses.
//!
//! The standard library's clocks appear in the driver's runtime only. Everything else is handed an [`Instant`],
//! so that a monotonic clock, the laboratory's virtual clock and a fuzzer turn the same code.

use core::fmt;
use core::ops::{Add, AddAssign, Sub};

/// A point in time: nanoseconds since the origin of the clock that turns the core. 584 years fit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

/// A span of time in nanoseconds. Arithmetic saturates: a deadline past the end of time never comes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Duration(u64);

impl Instant {
    /// The clock's origin.
    pub const ZERO: Self = Self(0);
    /// Never, as a deadline.
    pub const MAX: Self = Self(u64::MAX);

    /// The instant `ns` nanoseconds after the origin.
    pub const fn from_nanos(ns: u64) -> Self {
        Self(ns)
    }

    /// Nanoseconds since the origin.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The time from `earlier` to `self`; zero if `earlier` is later.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration(self.0.saturating_sub(earlier.0))
    }
}

impl Duration {
    /// No time at all.
    pub const ZERO: Self = Self(0);
    /// Longer than any clock runs.
    pub const MAX: Self = Self(u64::MAX);

    /// A span of `ns` nanoseconds.
    pub const fn from_nanos(ns: u64) -> Self {
        Self(ns)
    }

    /// A span of `us` microseconds, saturating.
    pub const fn from_micros(us: u64) -> Self {
        Self(us.saturating_mul(1_000))
    }

    /// A span of `ms` milliseconds, saturating.
    pub const fn from_millis(ms: u64) -> Self {
        Self(ms.saturating_mul(1_000_000))
    }

    /// A span of `s` seconds, saturating.
    pub const fn from_secs(s: u64) -> Self {
        Self(s.saturating_mul(1_000_000_000))
    }

    /// The span in nanoseconds.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The span in whole microseconds, rounded down.
    pub const fn as_micros(self) -> u64 {
        self.0 / 1_000
    }

    /// The span in seconds, for figures that people read.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// Twice the span, saturating.
    pub const fn doubled(self) -> Self {
        Self(self.0.saturating_mul(2))
    }

    /// Half the span, rounded down.
    pub const fn halved(self) -> Self {
        Self(self.0 / 2)
    }

    /// The span `n` times over, saturating.
    pub const fn times(self, n: u64) -> Self {
        Self(self.0.saturating_mul(n))
    }
}

impl Add<Duration> for Instant {
    type Output = Self;
    fn add(self, span: Duration) -> Self {
        Self(self.0.saturating_add(span.0))
    }
}

impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, span: Duration) {
        *self = *self + span;
    }
}

impl Sub<Instant> for Instant {
    type Output = Duration;
    fn sub(self, earlier: Instant) -> Duration {
        self.since(earlier)
    }
}

impl Add for Duration {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Duration {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sub for Duration {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl fmt::Display for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09} s", self.0 / 1_000_000_000, self.0 % 1_000_000_000)
    }
}

impl fmt::Display for Duration {
    /// The largest unit in which the span is at least one, with up to three decimals.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit_ns, name) = match self.0 {
            0..1_000 => return write!(f, "{} ns", self.0),
            1_000..1_000_000 => (1_000, "µs"),
            1_000_000..1_000_000_000 => (1_000_000, "ms"),
            _ => (1_000_000_000, "s"),
        };
        let (whole, thousandths) = (self.0 / unit_ns, self.0 % unit_ns / (unit_ns / 1_000));
        match thousandths {
            0 => write!(f, "{whole} {name}"),
            t => write!(f, "{whole}.{t:03} {name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::string::ToString;

    #[test]
    fn arithmetic_saturates_at_both_ends() {
        assert_eq!(Instant::MAX + Duration::from_nanos(1), Instant::MAX);
        assert_eq!(Instant::ZERO - Instant::from_nanos(5), Duration::ZERO);
        assert_eq!(Duration::from_secs(u64::MAX), Duration::MAX);
    }

    #[test]
    fn durations_print_in_the_unit_that_people_would_choose() {
        for (ns, text) in
            [(999, "999 ns"), (1_500, "1.500 µs"), (2_000_000, "2 ms"), (1_250_000_000, "1.250 s")]
        {
            assert_eq!(Duration::from_nanos(ns).to_string(), text);
        }
    }
}
