//! Local route header: the first two words of every packet, which switches look at.
//!
//! ```text
//!   word 0  VL 4 │ LVer 4 │ SL 4 │ reserved 2 │ LNH 2 │ destination LID 16
//!   word 1  reserved 5 │ length 11, dwords from here through ICRC │ source LID 16
//! ```

use std::fmt;

use qhca_regs::Lid;

use super::WireError;

/// What follows the LRH.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextHeader {
    /// A raw packet with an ether type.
    RawEther,
    /// A raw IPv6 packet.
    RawIpv6,
    /// A BTH.
    Bth,
    /// A GRH, then a BTH.
    Grh,
}

impl NextHeader {
    const fn from_bits(bits: u32) -> Self {
        match bits & 3 {
            0 => Self::RawEther,
            1 => Self::RawIpv6,
            2 => Self::Bth,
            _ => Self::Grh,
        }
    }
}

impl fmt::Display for NextHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::RawEther => "raw ether type",
            Self::RawIpv6 => "raw IPv6",
            Self::Bth => "BTH",
            Self::Grh => "GRH",
        })
    }
}

/// A local route header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lrh {
    /// Virtual lane, 0 to 15.
    pub vl: u8,
    /// Service level, 0 to 15.
    pub sl: u8,
    /// What follows.
    pub next: NextHeader,
    /// Destination.
    pub dlid: Lid,
    /// Length of the packet from the LRH through the ICRC, dwords, below 2048.
    pub len_dwords: u16,
    /// Source.
    pub slid: Lid,
}

impl Lrh {
    /// Words of an LRH.
    pub const WORDS: usize = 2;

    /// Reads an LRH.
    ///
    /// # Errors
    /// [`WireError::LinkVersion`].
    #[inline]
    pub const fn parse([first, second]: [u32; 2]) -> Result<Self, WireError> {
        let version = (first >> 24 & 0xF) as u8;
        if version != 0 {
            return Err(WireError::LinkVersion(version));
        }
        Ok(Self {
            vl: (first >> 28) as u8,
            sl: (first >> 20 & 0xF) as u8,
            next: NextHeader::from_bits(first >> 16),
            dlid: Lid(first as u16),
            len_dwords: (second >> 16 & 0x7FF) as u16,
            slid: Lid(second as u16),
        })
    }

    /// The words of this LRH.
    #[inline]
    pub const fn build(self) -> [u32; 2] {
        let next = match self.next {
            NextHeader::RawEther => 0,
            NextHeader::RawIpv6 => 1,
            NextHeader::Bth => 2,
            NextHeader::Grh => 3,
        };
        let first =
            (self.vl as u32 & 0xF) << 28 | (self.sl as u32 & 0xF) << 20 | next << 16 | self.dlid.0 as u32;
        [first, (self.len_dwords as u32 & 0x7FF) << 16 | self.slid.0 as u32]
    }
}

impl fmt::Display for Lrh {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "LRH {:#06x} -> {:#06x} VL {} SL {} {} dwords",
            self.slid.0, self.dlid.0, self.vl, self.sl, self.len_dwords
        )
    }
}
