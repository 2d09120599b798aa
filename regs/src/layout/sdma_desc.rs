//! A send DMA descriptor: 16 bytes that name one piece of a packet (F-013).
//!
//! ```text
//!          63                  32 31 30 29 27 26        16  15   14    13    12    11   10               0
//! qword 0 |   address, low half  |gen  |     |  dwords    |intr|large|head |first|last | offset in buffer |
//!          63                                         16 15                                              0
//! qword 1 |                                             |              address, bits 47 to 32             |
//! ```
//!
//! A packet is one or more descriptors, the first marked `first` and the last `last`; the first piece starts with the
//! PBC. The generation counts how often the queue has wrapped, modulo 4: the chip refuses a descriptor of another
//! generation, so a stale one is never sent twice.

use crate::value::contents;
use core::fmt;

contents! {
    /// Qword 0 of a descriptor.
    pub struct SdmaWord0;
    /// Where the piece goes in the send buffer, dwords.
    buf_offset / with_buf_offset: u16 [0..=10] "Offset";
    /// Last piece of its packet.
    last / with_last: bool [11] "Last";
    /// First piece of its packet.
    first / with_first: bool [12] "First";
    /// Write the head to memory when this descriptor is done.
    dma_head / with_dma_head: bool [13] "DmaHead";
    /// The packet needs a large send buffer; set in every piece of it.
    use_large_buf / with_use_large_buf: bool [14] "UseLargeBuf";
    /// Interrupt when this descriptor is done.
    intr / with_intr: bool [15] "Intr";
    /// Length of the piece, dwords.
    len_dwords / with_len_dwords: u16 [16..=26] "DwordCount";
    /// Generation of the queue, 0 to 3.
    generation / with_generation: u8 [30..=31] "Generation";
    /// Low half of the bus address.
    address_low / with_address_low: u32 [32..=63] "AddressLow";
}

/// One send DMA descriptor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SdmaDesc {
    /// Everything but the address's high half.
    pub word0: SdmaWord0,
    /// Bits 47 to 32 of the address; bits that no source names are kept.
    pub word1: u64,
}

/// Why a piece of memory cannot be described.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SdmaDescError {
    /// The address is not a multiple of 4.
    Unaligned {
        /// The address.
        iova: u64,
    },
    /// The address is at or above 2^48.
    TooHigh {
        /// The address.
        iova: u64,
    },
    /// More dwords than the count field holds.
    TooLong {
        /// Length of the piece.
        len_dwords: usize,
    },
}

impl fmt::Display for SdmaDescError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unaligned { iova } => {
                write!(f, "send DMA piece at {iova:#x} is not dword aligned: start it at a multiple of 4")
            }
            Self::TooHigh { iova } => {
                write!(f, "send DMA piece at {iova:#x} is past the chip's 48 address bits: map it lower")
            }
            Self::TooLong { len_dwords } => {
                write!(
                    f,
                    "send DMA piece of {len_dwords} dwords: one descriptor takes at most {}",
                    SdmaDesc::MAX_LEN_DWORDS
                )
            }
        }
    }
}

impl core::error::Error for SdmaDescError {}

impl SdmaDesc {
    /// Bytes of a descriptor in its queue.
    pub const LEN_BYTES: usize = 16;
    /// The most dwords that one piece holds.
    pub const MAX_LEN_DWORDS: usize = 0x7FF;

    /// The piece of `len_dwords` at bus address `iova`, with no flag set, for offset 0 in generation 0.
    ///
    /// # Errors
    /// The address is unaligned or too high, or the piece too long.
    pub fn new(iova: u64, len_dwords: usize) -> Result<Self, SdmaDescError> {
        if !iova.is_multiple_of(4) {
            return Err(SdmaDescError::Unaligned { iova });
        }
        if iova >> 48 != 0 {
            return Err(SdmaDescError::TooHigh { iova });
        }
        if len_dwords > Self::MAX_LEN_DWORDS {
            return Err(SdmaDescError::TooLong { len_dwords });
        }
        let word0 = SdmaWord0(0).with_len_dwords(len_dwords as u16).with_address_low(iova as u32);
        Ok(Self { word0, word1: iova >> 32 })
    }

    /// Bus address of the piece, 48 bits.
    pub fn iova(self) -> u64 {
        u64::from(self.word0.address_low()) | (self.word1 & 0xFFFF) << 32
    }

    /// From the bytes in the queue.
    pub fn parse(bytes: [u8; Self::LEN_BYTES]) -> Self {
        let both = u128::from_le_bytes(bytes);
        Self { word0: SdmaWord0(both as u64), word1: (both >> 64) as u64 }
    }

    /// The bytes for the queue.
    pub fn build(self) -> [u8; Self::LEN_BYTES] {
        (u128::from(self.word0.0) | u128::from(self.word1) << 64).to_le_bytes()
    }
}
