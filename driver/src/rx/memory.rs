//! The memory of one context: its header queue and its eager buffers, in the shape that the chip is told.
//!
//! The chip takes the number and size of queue entries for all contexts alike, and a bus address for each. Eager
//! buffers stand in an array of the chip, one 64-bit entry each: address and size (F-203).
//!
//! This chapter allocates and describes; writing the registers is the bring-up's business.

use std::fmt;

use qhca_regs::layout::{ArrayEntry, ArrayEntryError, BufSize};

use crate::dma::DmaRegion;
use crate::env::{DmaMapper, MapError};

/// Dwords that the RHF takes at the end of an entry.
const RHF_DWORDS: u32 = 2;
/// Entries that the chip counts at most: the largest queue that `rcvhdrcnt` may ask for stays far below.
const MAX_ENTRIES: u32 = 1 << 16;
/// Dwords in the largest entry: a whole packet of headers needs 32.
const MAX_ENTRY_DWORDS: u32 = 256;
/// Dwords in the smallest entry: LRH, BTH and the RHF.
const MIN_ENTRY_DWORDS: u32 = 8;
/// Entries of the eager array.
const MAX_EAGER: u32 = 18_432;
/// Eager indices in an RHF have twelve bits, so no context can use more buffers (F-203).
const MAX_EAGER_OF_CONTEXT: u32 = 4096;

/// The shape of a header queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueShape {
    entries: u32,
    entry_dwords: u32,
}

/// The shape of a context's eager buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EagerShape {
    first: u32,
    count: u32,
    size: BufSize,
}

/// Why a shape cannot be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ShapeError {
    /// Too few or too many entries in the header queue.
    Entries(u32),
    /// Entries too small for headers and RHF, too large, or of an odd number of dwords: the RHF would straddle two
    /// words of memory and could be read half written.
    EntryDwords(u32),
    /// No eager buffers, or more than an index can name.
    EagerCount(u32),
    /// The context's part of the eager array goes past its end.
    EagerRange {
        /// First entry of the part.
        first: u32,
        /// Entries in it.
        count: u32,
    },
    /// Buffers that are not 2 or 4 KiB.
    EagerSize(u32),
}

impl fmt::Display for ShapeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Entries(n) => write!(f, "a header queue of {n} entries: 2 to {MAX_ENTRIES} are possible"),
            Self::EntryDwords(n) => write!(
                f,
                "header queue entries of {n} dwords: an even number from {MIN_ENTRY_DWORDS} to {MAX_ENTRY_DWORDS} is possible"
            ),
            Self::EagerCount(n) => {
                write!(f, "{n} eager buffers for a context: 2 to {MAX_EAGER_OF_CONTEXT} are possible")
            }
            Self::EagerRange { first, count } => {
                write!(f, "eager entries {first} to {} are past the array's {MAX_EAGER}", first + count)
            }
            Self::EagerSize(n) => write!(f, "eager buffers of {n} bytes: 2048 and 4096 are possible"),
        }
    }
}

impl std::error::Error for ShapeError {}

impl QueueShape {
    /// A queue of `entries`, each of `entry_dwords`.
    ///
    /// # Errors
    /// [`ShapeError`] names the number and its range.
    pub const fn new(entries: u32, entry_dwords: u32) -> Result<Self, ShapeError> {
        if entries < 2 || entries > MAX_ENTRIES {
            return Err(ShapeError::Entries(entries));
        }
        if entry_dwords < MIN_ENTRY_DWORDS
            || entry_dwords > MAX_ENTRY_DWORDS
            || !entry_dwords.is_multiple_of(2)
        {
            return Err(ShapeError::EntryDwords(entry_dwords));
        }
        Ok(Self { entries, entry_dwords })
    }

    /// Entries in the queue.
    pub const fn entries(self) -> u32 {
        self.entries
    }

    /// Dwords in an entry.
    pub const fn entry_dwords(self) -> u32 {
        self.entry_dwords
    }

    /// Where in an entry the RHF stands, dwords; headers end here.
    pub const fn rhf_dword(self) -> u32 {
        self.entry_dwords - RHF_DWORDS
    }

    /// Bytes of the whole queue.
    pub const fn len_bytes(self) -> usize {
        self.entries as usize * self.entry_bytes()
    }

    /// Bytes of an entry.
    pub const fn entry_bytes(self) -> usize {
        self.entry_dwords as usize * 4
    }
}

impl EagerShape {
    /// `count` buffers of `buffer_bytes`, whose entries in the chip's array begin at `first`.
    ///
    /// # Errors
    /// [`ShapeError`] names the number and its range.
    pub fn new(first: u32, count: u32, buffer_bytes: u32) -> Result<Self, ShapeError> {
        if !(2..=MAX_EAGER_OF_CONTEXT).contains(&count) {
            return Err(ShapeError::EagerCount(count));
        }
        if first.checked_add(count).is_none_or(|end| end > MAX_EAGER) {
            return Err(ShapeError::EagerRange { first, count });
        }
        let size = BufSize::of_bytes(buffer_bytes as usize)
            .filter(|size| matches!(size, BufSize::K2 | BufSize::K4))
            .ok_or(ShapeError::EagerSize(buffer_bytes))?;
        Ok(Self { first, count, size })
    }

    /// First entry of the chip's array that belongs to the context.
    pub const fn first(self) -> u32 {
        self.first
    }

    /// Buffers of the context.
    pub const fn count(self) -> u32 {
        self.count
    }

    /// Bytes of a buffer.
    pub const fn buffer_bytes(self) -> usize {
        self.size.bytes()
    }

    /// Bytes of all buffers.
    pub const fn len_bytes(self) -> usize {
        self.count as usize * self.buffer_bytes()
    }
}

/// A context's memory. Clones share it: the control side keeps one until the chip has been told to stop writing.
#[derive(Clone, Debug)]
pub struct ContextMemory {
    queue: DmaRegion,
    queue_shape: QueueShape,
    eager: DmaRegion,
    eager_shape: EagerShape,
}

impl ContextMemory {
    /// Allocates both regions, zeroed: in a zeroed queue no entry looks new (F-202).
    ///
    /// # Errors
    /// The mapper's, if memory or addresses run out.
    pub fn allocate(
        mapper: &mut impl DmaMapper,
        queue_shape: QueueShape,
        eager_shape: EagerShape,
    ) -> Result<Self, MapError> {
        let queue = mapper.map(queue_shape.len_bytes())?;
        let eager = mapper.map(eager_shape.len_bytes())?;
        Ok(Self { queue, queue_shape, eager, eager_shape })
    }

    /// The header queue.
    pub fn queue(&self) -> &DmaRegion {
        &self.queue
    }

    /// Its shape.
    pub fn queue_shape(&self) -> QueueShape {
        self.queue_shape
    }

    /// The eager buffers.
    pub fn eager(&self) -> &DmaRegion {
        &self.eager
    }

    /// Their shape.
    pub fn eager_shape(&self) -> EagerShape {
        self.eager_shape
    }

    /// What stands in the chip's eager array for this context: the number of the entry, and its contents.
    ///
    /// # Errors
    /// The address of a buffer, if the chip cannot hold it. A [`DmaMapper`] that keeps its promise gives none such.
    pub fn eager_entries(&self) -> impl Iterator<Item = Result<(u32, ArrayEntry), ArrayEntryError>> + use<> {
        let (shape, base) = (self.eager_shape, self.eager.iova());
        (0..shape.count).map(move |n| {
            let iova = base + u64::from(n) * shape.buffer_bytes() as u64;
            ArrayEntry::new(iova, shape.size).map(|entry| (shape.first + n, entry))
        })
    }

    /// Forgets what the queue held, for a context that is opened anew.
    pub fn clear_queue(&self) {
        self.queue.memory().zero(0, self.queue_shape.len_bytes());
    }
}
