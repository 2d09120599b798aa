//! Names of things: numbers that must not be mixed up.

use std::fmt;

/// A queue pair's number, 24 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QpNumber(u32);

impl QpNumber {
    /// QP 0: subnet management.
    pub const SUBNET_MANAGEMENT: Self = Self(0);
    /// QP 1: general services.
    pub const GENERAL_SERVICES: Self = Self(1);
    /// The destination of every multicast packet.
    pub const MULTICAST: Self = Self(0xFF_FFFF);

    /// The lower 24 bits of `number`.
    #[inline]
    pub const fn new(number: u32) -> Self {
        Self(number & 0xFF_FFFF)
    }

    /// The number.
    #[inline]
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl fmt::Display for QpNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "QP {}", self.0)
    }
}

/// A memory key, local or remote: 24 bits of index, 8 bits that change whenever the index is used anew.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(pub u32);

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "key {:#x}", self.0)
    }
}

/// A protection domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PdId(pub(crate) u32);

/// A completion queue, with the generation of its slot: a name that was kept too long names nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CqId(pub(crate) SlotId);

/// A shared receive queue, with the generation of its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SrqId(pub(crate) SlotId);

/// A place in a [`Slab`](crate::slab::Slab).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SlotId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

impl fmt::Display for PdId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PD {}", self.0)
    }
}

impl fmt::Display for CqId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CQ {}", self.0.index)
    }
}

impl fmt::Display for SrqId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SRQ {}", self.0.index)
    }
}
