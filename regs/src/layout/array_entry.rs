//! An entry of the eager array or of a context's expected-TID array: where the chip may put payload (F-012).
//!
//! ```text
//!  63    40 39  37 36                                    0
//! |        | size |  bus address of the buffer, 2 KiB units |
//!
//! size   0 no buffer   1 2 KiB   2 4 KiB   3 8   4 16   5 32   6 64 KiB   7 reserved
//! ```
//!
//! Addresses are multiples of 2 KiB below 2^48.

use crate::map::area::RcvArrayEntry;
use core::fmt;

/// How large a receive buffer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BufSize {
    /// 2 KiB.
    K2 = 1,
    /// 4 KiB.
    K4 = 2,
    /// 8 KiB.
    K8 = 3,
    /// 16 KiB.
    K16 = 4,
    /// 32 KiB.
    K32 = 5,
    /// 64 KiB.
    K64 = 6,
}

impl BufSize {
    /// All sizes, ascending.
    pub const ALL: [Self; 6] = [Self::K2, Self::K4, Self::K8, Self::K16, Self::K32, Self::K64];

    /// Bytes of the buffer.
    pub const fn bytes(self) -> usize {
        1024 << self as usize
    }

    /// The size whose buffers have exactly `bytes`.
    pub fn of_bytes(bytes: usize) -> Option<Self> {
        Self::ALL.into_iter().find(|size| size.bytes() == bytes)
    }

    fn of_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|size| *size as u8 == code)
    }
}

/// A buffer that the chip may fill.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ArrayEntry {
    iova: u64,
    size: BufSize,
}

/// What an array entry says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Slot {
    /// No buffer: size code 0.
    Empty,
    /// A buffer.
    Buffer(ArrayEntry),
    /// The reserved size code 7; the whole word is kept.
    Reserved(RcvArrayEntry),
}

/// Why an address cannot stand in the array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ArrayEntryError {
    /// Not a multiple of 2 KiB.
    Unaligned {
        /// The address.
        iova: u64,
    },
    /// At or above 2^48.
    TooHigh {
        /// The address.
        iova: u64,
    },
}

impl fmt::Display for ArrayEntryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unaligned { iova } => {
                write!(f, "receive buffer at {iova:#x} is not 2 KiB aligned: map it at a multiple of 0x800")
            }
            Self::TooHigh { iova } => {
                write!(f, "receive buffer at {iova:#x} is past the chip's 48 address bits: map it lower")
            }
        }
    }
}

impl core::error::Error for ArrayEntryError {}

impl ArrayEntry {
    /// Bus addresses of receive buffers are multiples of this.
    pub const ALIGN_BYTES: u64 = 0x800;

    /// The buffer of `size` at bus address `iova`.
    ///
    /// # Errors
    /// The address is not a multiple of 2 KiB, or needs more than 48 bits.
    pub const fn new(iova: u64, size: BufSize) -> Result<Self, ArrayEntryError> {
        if !iova.is_multiple_of(Self::ALIGN_BYTES) {
            return Err(ArrayEntryError::Unaligned { iova });
        }
        if iova >> 48 != 0 {
            return Err(ArrayEntryError::TooHigh { iova });
        }
        Ok(Self { iova, size })
    }

    /// Bus address of the buffer's first byte.
    pub const fn iova(self) -> u64 {
        self.iova
    }

    /// How large it is.
    pub const fn size(self) -> BufSize {
        self.size
    }

    /// The word for the array.
    pub fn build(self) -> RcvArrayEntry {
        RcvArrayEntry(0).with_rt_addr(self.iova / Self::ALIGN_BYTES).with_rt_buf_size(self.size as u8)
    }
}

impl Slot {
    /// What `word` of the array says; bits above the size are ignored.
    pub fn parse(word: RcvArrayEntry) -> Self {
        match (word.rt_buf_size(), BufSize::of_code(word.rt_buf_size())) {
            (0, _) => Self::Empty,
            (_, Some(size)) => {
                Self::Buffer(ArrayEntry { iova: word.rt_addr() * ArrayEntry::ALIGN_BYTES, size })
            }
            (_, None) => Self::Reserved(word),
        }
    }

    /// The word for the array.
    pub fn build(self) -> RcvArrayEntry {
        match self {
            Self::Empty => RcvArrayEntry(0),
            Self::Buffer(entry) => entry.build(),
            Self::Reserved(word) => word,
        }
    }
}
