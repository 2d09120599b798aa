//! Names for the things the chip counts: ports, contexts, buffers, vectors, and the fabric's LIDs, QPNs and PSNs.
//!
//! Each is a newtype that can only hold what exists, so an index taken from one never leaves its array.

use core::fmt;

/// A hardware port of the chip, 0 or 1. The IB port number is its rank among the *enabled* ports, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Port(u8);

impl Port {
    /// Hardware port 0.
    pub const P0: Self = Self(0);
    /// Hardware port 1.
    pub const P1: Self = Self(1);
    /// Both, ascending.
    pub const ALL: [Self; 2] = [Self::P0, Self::P1];

    /// The port with hardware index `index`, if there is one.
    pub const fn new(index: usize) -> Option<Self> {
        if index < 2 { Some(Self(index as u8)) } else { None }
    }

    /// 0 or 1.
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// The other port.
    pub const fn other(self) -> Self {
        Self(1 - self.0)
    }
}

/// A receive context, 0 to 17. Context 0 belongs to port 0, 1 to port 1; the rest may serve either.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ctxt(u8);

impl Ctxt {
    /// Contexts of the chip (F-004).
    pub const COUNT: usize = 18;

    /// The context with number `index`, if the chip has it.
    pub const fn new(index: usize) -> Option<Self> {
        if index < Self::COUNT { Some(Self(index as u8)) } else { None }
    }

    /// 0 to 17.
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// All contexts, ascending.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..Self::COUNT as u8).map(Self)
    }
}

/// A send buffer, 0 to 161: 128 small, 32 large, one VL15 buffer a port (F-005).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Buffer(u8);

/// What kind of packet a send buffer takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BufferKind {
    /// 0x880 bytes, PBC included.
    Small,
    /// 0x1080 bytes, PBC included.
    Large,
    /// The one buffer of a port for management packets on VL 15.
    Vl15(Port),
}

impl Buffer {
    /// Small buffers: 0 to 127.
    pub const SMALL: usize = 128;
    /// Large buffers: 128 to 159.
    pub const LARGE: usize = 32;
    /// All buffers, VL15 included.
    pub const COUNT: usize = 162;

    /// Buffer number `index`, if the chip has it.
    pub const fn new(index: usize) -> Option<Self> {
        if index < Self::COUNT { Some(Self(index as u8)) } else { None }
    }

    /// The VL15 buffer of `port`: 160 or 161.
    pub const fn vl15(port: Port) -> Self {
        Self(160 + port.index() as u8)
    }

    /// 0 to 161.
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// What the buffer is for.
    pub const fn kind(self) -> BufferKind {
        match self.0 {
            0..=127 => BufferKind::Small,
            128..=159 => BufferKind::Large,
            160 => BufferKind::Vl15(Port::P0),
            _ => BufferKind::Vl15(Port::P1),
        }
    }

    /// Where the buffer starts in BAR 0, bytes.
    pub const fn offset(self) -> u32 {
        let n = self.0 as u32;
        match self.kind() {
            BufferKind::Small => 0x10_0000 + n * 0x1000,
            BufferKind::Large => 0x18_0000 + (n - 128) * 0x2000,
            BufferKind::Vl15(_) => 0x1C_0000 + (n - 160) * 0x2000,
        }
    }

    /// How many dwords fit, the PBC's two included. VL15 buffers are taken to be as large as large ones.
    pub const fn len_dwords(self) -> usize {
        match self.kind() {
            BufferKind::Small => 0x880 / 4,
            BufferKind::Large | BufferKind::Vl15(_) => 0x1080 / 4,
        }
    }
}

/// An interrupt vector as the chip's redirect fields can name it: 0 to 31.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Vector(u8);

impl Vector {
    /// Vectors that a 5-bit redirect field can name.
    pub const COUNT: usize = 32;
    /// The default vector, which gets everything that is not redirected.
    pub const DEFAULT: Self = Self(0);

    /// Vector number `index`, if a redirect field can hold it.
    pub const fn new(index: usize) -> Option<Self> {
        if index < Self::COUNT { Some(Self(index as u8)) } else { None }
    }

    /// 0 to 31.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A local identifier of a port in its subnet, 16 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lid(pub u16);

impl Lid {
    /// The permissive LID of directed-route packets.
    pub const PERMISSIVE: Self = Self(0xFFFF);

    /// Whether it names a multicast group: 0xC000 to 0xFFFE.
    pub const fn is_multicast(self) -> bool {
        self.0 >= 0xC000 && self.0 != 0xFFFF
    }
}

/// A queue pair number, 24 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Qpn(u32);

impl Qpn {
    /// The destination QP of multicast packets.
    pub const MULTICAST: Self = Self(0xFF_FFFF);

    /// The number `value`, if it fits 24 bits.
    pub const fn new(value: u32) -> Option<Self> {
        if value <= 0xFF_FFFF { Some(Self(value)) } else { None }
    }

    /// 0 to 2^24 − 1.
    pub const fn value(self) -> u32 {
        self.0
    }
}

/// A packet sequence number, 24 bits, cyclic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Psn(u32);

impl Psn {
    /// The low 24 bits of `value`.
    pub const fn new(value: u32) -> Self {
        Self(value & 0xFF_FFFF)
    }

    /// 0 to 2^24 − 1.
    pub const fn value(self) -> u32 {
        self.0
    }

    /// The number `n` after this one, modulo 2^24.
    pub const fn plus(self, n: u32) -> Self {
        Self::new(self.0.wrapping_add(n))
    }

    /// How far this number is ahead of `base`, −2^23 to 2^23 − 1.
    pub const fn ahead_of(self, base: Self) -> i32 {
        ((self.0.wrapping_sub(base.0) << 8) as i32) >> 8
    }
}

macro_rules! display {
    ($($id:ident: $format:literal;)*) => {$(
        impl fmt::Display for $id {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, $format, self.0)
            }
        }
    )*};
}
display! { Port: "hardware port {}"; Ctxt: "context {}"; Buffer: "send buffer {}"; Vector: "vector {}"; Lid: "{:#06x}"; Qpn: "{:#08x}"; Psn: "{:#08x}"; }

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_refuse_what_the_chip_does_not_have() {
        assert!(Port::new(2).is_none() && Ctxt::new(18).is_none() && Buffer::new(162).is_none());
        assert!(Vector::new(32).is_none() && Qpn::new(1 << 24).is_none());
    }

    #[test]
    fn buffers_lie_where_the_data_sheet_puts_them() {
        let at = |n| Buffer::new(n).map(Buffer::offset);
        assert_eq!(at(0), Some(0x10_0000));
        assert_eq!(at(127), Some(0x17_F000));
        assert_eq!(at(128), Some(0x18_0000));
        assert_eq!(at(159), Some(0x1B_E000));
        assert_eq!(at(160), Some(0x1C_0000));
        assert_eq!(at(161), Some(0x1C_2000));
    }

    #[test]
    fn psn_distance_wraps_both_ways() {
        assert_eq!(Psn::new(2).ahead_of(Psn::new(0xFF_FFFF)), 3);
        assert_eq!(Psn::new(0xFF_FFFF).ahead_of(Psn::new(2)), -3);
    }
}
