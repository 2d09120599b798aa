//! The KD header: what the chip itself reads in a packet of the PSM protocol, to find context and buffer (F-015).
//!
//! It follows LRH (8 bytes) and BTH (12 bytes), and unlike them is little-endian:
//!
//! ```text
//!          31     28 27      24 23                  13 12                  0
//! dword 0 | version | ctxt 3:0 | TID, 0x7FF is eager  |  offset, dwords     |
//!          31                          16 15                               0
//! dword 1 |            flags             |             checksum             |
//! ```
//!
//! The context's fifth bit is bit 0 of the destination QP. The checksum makes the 16-bit sum of the LRH's length, both
//! halves of dword 0, the flags and itself come out as it should; the chip drops a packet whose sum is wrong.

use core::fmt;

/// The version that the 7322 knows.
pub const VERSION: u8 = 2;

/// Where the payload of a KD packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KdTid {
    /// To the next eager buffer.
    Eager,
    /// To the page of this TID, below [`KdTid::EAGER_CODE`].
    Tid(u16),
}

impl KdTid {
    /// The TID field's value for eager packets.
    pub const EAGER_CODE: u16 = 0x7FF;
}

bitflags::bitflags! {
    /// Flags of a KD header.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct KdFlags: u16 {
        /// Raise the context's `RcvUrg` interrupt.
        const INTR = 1;
        /// Write no header-queue entry for this packet if it is in order.
        const HDR_SUPP = 2;
        // Bits that no source names are kept as they are.
        const _ = !0;
    }
}

/// What a KD header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KdHeader {
    /// Low four bits of the destination context.
    pub ctxt_low: u8,
    /// Where the payload goes.
    pub tid: KdTid,
    /// Where in the TID's page the payload starts, dwords, 13 bits.
    pub offset_dwords: u16,
    /// What else the sender asks for.
    pub flags: KdFlags,
}

/// Why eight bytes are not a KD header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KdError {
    /// Another version than [`VERSION`].
    Version {
        /// The version found.
        found: u8,
    },
    /// The checksum does not fit.
    Checksum {
        /// The one in the packet.
        found: u16,
        /// The one that would fit.
        expected: u16,
    },
}

impl fmt::Display for KdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version { found } => write!(f, "KD header version {found}; the 7322 knows {VERSION} only"),
            Self::Checksum { found, expected } => {
                write!(
                    f,
                    "KD header checksum {found:#06x} where {expected:#06x} fits: corrupt, or not a KD packet"
                )
            }
        }
    }
}

impl core::error::Error for KdError {}

impl KdHeader {
    /// Bytes of the part that the chip reads.
    pub const LEN_BYTES: usize = 8;
    /// Where it starts in a packet without GRH, bytes: after LRH and BTH.
    pub const START_BYTES: usize = 20;
    /// A PSM packet's whole header, LRH to the last word that is PSM's own, bytes.
    pub const FULL_LEN_BYTES: usize = 56;

    /// Reads the header of a packet whose LRH gives `lrh_len_dwords`.
    ///
    /// # Errors
    /// Unknown version, or a checksum that does not fit; the chip raises `RcvHdrErr` on either.
    pub fn parse(bytes: [u8; Self::LEN_BYTES], lrh_len_dwords: u16) -> Result<Self, KdError> {
        let word = u64::from_le_bytes(bytes);
        let (dword0, found, flags) = (word as u32, (word >> 32) as u16, (word >> 48) as u16);
        let version = (dword0 >> 28) as u8;
        if version != VERSION {
            return Err(KdError::Version { found: version });
        }
        let expected = checksum(lrh_len_dwords, dword0, flags);
        if found != expected {
            return Err(KdError::Checksum { found, expected });
        }
        let tid = match (dword0 >> 13 & 0x7FF) as u16 {
            KdTid::EAGER_CODE => KdTid::Eager,
            tid => KdTid::Tid(tid),
        };
        Ok(Self {
            ctxt_low: (dword0 >> 24 & 0xF) as u8,
            tid,
            offset_dwords: (dword0 & 0x1FFF) as u16,
            flags: KdFlags::from_bits_retain(flags),
        })
    }

    /// The header's bytes in a packet whose LRH gives `lrh_len_dwords`. What does not fit its field is cut off.
    pub fn build(self, lrh_len_dwords: u16) -> [u8; Self::LEN_BYTES] {
        let tid = match self.tid {
            KdTid::Eager => KdTid::EAGER_CODE,
            KdTid::Tid(tid) => tid,
        };
        let dword0 = u32::from(VERSION) << 28
            | u32::from(self.ctxt_low & 0xF) << 24
            | u32::from(tid & 0x7FF) << 13
            | u32::from(self.offset_dwords & 0x1FFF);
        let flags = self.flags.bits();
        let sum = checksum(lrh_len_dwords, dword0, flags);
        (u64::from(dword0) | u64::from(sum) << 32 | u64::from(flags) << 48).to_le_bytes()
    }
}

/// The checksum that fits: 2 + length − both halves of dword 0 − flags, in 16 bits (F-015).
fn checksum(lrh_len_dwords: u16, dword0: u32, flags: u16) -> u16 {
    2u16.wrapping_add(lrh_len_dwords)
        .wrapping_sub((dword0 >> 16) as u16)
        .wrapping_sub(dword0 as u16)
        .wrapping_sub(flags)
}
