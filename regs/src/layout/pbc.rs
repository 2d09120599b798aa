//! The packet buffer control word (PBC): the first 64 bits of every packet in a send buffer.
//!
//! It tells the chip how long the packet is and how to send it. Software writes it before header and payload (F-011):
//!
//! ```text
//!  63  62  61 59  58   57     46 45                32
//! |V15|   |  VL  |port|         | static rate count  |
//!  31   30   29   28   26 25                15 14 11 10             0
//! |intr|test|EBP |       | trigger (old chips) |     | length, dwords |
//! ```
//!
//! The length counts header, payload and the ICRC that the chip appends, as the packet's LRH does; the PBC's own two
//! dwords are not in it.

use crate::ids::Port;
use crate::value::contents;

contents! {
    /// A packet buffer control word.
    pub struct Pbc;
    /// Length of the packet, dwords: header, payload, and one for the ICRC.
    len_dwords / with_len_dwords: u16 [0..=10] "Length";
    /// Ends the packet with a bad-packet delimiter: a test of the receiver's error path.
    test_ebp / with_test_ebp: bool [29] "TestEbp";
    /// Marks a test packet; what that does no source tells.
    test / with_test: bool [30] "Test";
    /// Asks for a `SendDone` interrupt when the packet has left.
    intr / with_intr: bool [31] "Intr";
    /// Ticks of pause before the port's next packet; 0 sends at full rate.
    static_rate / with_static_rate: u16 [32..=45] "StaticRate";
    /// The hardware port's index as the chip counts, 0 or 1; see [`for_port`](Self::for_port).
    port_index / with_port_index: u8 [58] "Port";
    /// The virtual lane, 0 to 7; must agree with the packet's LRH.
    vl / with_vl: u8 [59..=61] "VL";
    /// Sends on VL 15 without a credit check.
    vl15 / with_vl15: bool [63] "VL15";
}

impl Pbc {
    /// Dwords that a PBC takes at the start of a send buffer.
    pub const LEN_DWORDS: usize = 2;
    /// The largest length that the field holds, dwords.
    pub const MAX_LEN_DWORDS: u16 = 0x7FF;

    /// A packet of `len_dwords` (ICRC included, at most [`MAX_LEN_DWORDS`](Self::MAX_LEN_DWORDS)) for `port` on VL 0.
    #[inline]
    pub fn for_port(port: Port, len_dwords: u16) -> Self {
        Self(0).with_len_dwords(len_dwords).with_port_index(port.index() as u8)
    }

    /// The port that the packet leaves by.
    #[inline]
    pub fn port(self) -> Port {
        if self.port_index() == 0 { Port::P0 } else { Port::P1 }
    }

    /// Dwords that software writes to the buffer for this packet, the PBC's two included: the ICRC is the chip's.
    #[inline]
    pub fn written_dwords(self) -> usize {
        usize::from(self.len_dwords()) + Self::LEN_DWORDS - 1
    }

    /// The two dwords in the order they are written.
    #[inline]
    pub const fn dwords(self) -> [u32; 2] {
        [self.0 as u32, (self.0 >> 32) as u32]
    }

    /// From the first two dwords of a buffer.
    #[inline]
    pub const fn from_dwords(dword0: u32, dword1: u32) -> Self {
        Self(dword0 as u64 | (dword1 as u64) << 32)
    }

    /// From the first eight bytes of a buffer.
    #[inline]
    pub const fn parse(bytes: [u8; 8]) -> Self {
        Self(u64::from_le_bytes(bytes))
    }

    /// The eight bytes that start a buffer.
    #[inline]
    pub const fn build(self) -> [u8; 8] {
        self.0.to_le_bytes()
    }
}
