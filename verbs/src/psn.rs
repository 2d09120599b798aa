//! Packet sequence numbers: 24 bits that wrap, compared by the shorter way round.

use std::fmt;

/// A packet sequence number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Psn(u32);

impl Psn {
    const MASK: u32 = 0xFF_FFFF;
    /// Packets that may be under way at a time: more, and old could not be told from new.
    pub const WINDOW: u32 = (1 << 23) - 1;

    /// The lower 24 bits of `number`.
    #[inline]
    pub const fn new(number: u32) -> Self {
        Self(number & Self::MASK)
    }

    /// The number.
    #[inline]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The number `count` packets on.
    #[inline]
    #[must_use]
    pub const fn plus(self, count: u32) -> Self {
        Self::new(self.0.wrapping_add(count))
    }

    /// The number before.
    #[inline]
    #[must_use]
    pub const fn before(self) -> Self {
        Self::new(self.0.wrapping_sub(1))
    }

    /// How far ahead of `other` it is, from -2^23 to 2^23 - 1.
    #[inline]
    pub const fn ahead_of(self, other: Self) -> i32 {
        ((self.0.wrapping_sub(other.0) << 8) as i32) >> 8
    }

    /// Packets from `other` up to here, 0 to 2^24 - 1: for numbers that are known not to be behind.
    #[inline]
    pub const fn distance_from(self, other: Self) -> u32 {
        self.0.wrapping_sub(other.0) & Self::MASK
    }
}

impl fmt::Display for Psn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PSN {}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_compared_by_the_shorter_way_round() {
        let last = Psn::new(0xFF_FFFF);
        assert_eq!(last.plus(1), Psn::new(0));
        assert_eq!(Psn::new(0).before(), last);
        assert_eq!(Psn::new(2).ahead_of(last), 3);
        assert_eq!(last.ahead_of(Psn::new(2)), -3);
        assert_eq!(Psn::new(1 << 23).ahead_of(Psn::new(0)), -(1 << 23));
        assert_eq!(Psn::new((1 << 23) - 1).ahead_of(Psn::new(0)), (1 << 23) - 1);
        assert_eq!(Psn::new(5).distance_from(last), 6);
    }
}
