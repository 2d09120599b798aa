//! Memory that a peer may reach: regions, windows, and the keys that open them.
//!
//! A region is a stretch of [`DmaMemory`], owned jointly by the table and the application: it cannot go while a key
//! opens it, and nobody holds a Rust reference to its bytes, which a peer may write at any time.
//!
//! ```text
//!   key    index 24 │ generation 8       a key that was given back opens nothing, until its index went round 256 times
//!   region [addr, addr + len) in the peer's terms  ─►  [offset, offset + len) of one DmaMemory
//!   window a part of a region, with its own key and rights, bound and revoked by work requests
//! ```
//!
//! A check cannot wrap: the distance from the region's start is taken first, and the length is held against what is
//! left from there.
//!
//! Nobody can hold a reference to bytes that a peer may write, and nothing of a packet outlives the call that hands it
//! out. Neither compiles:
//!
//! ```compile_fail,E0624
//! # use qhca_driver::dma::DmaMemory;
//! fn as_bytes(memory: &DmaMemory) -> &mut [u8] {
//!     memory.words()
//! }
//! ```
//!
//! ```compile_fail,E0521
//! # use qhca_driver::{dma::DmaSlice, rx::Arrival};
//! # use qhca_verbs::Arrivals;
//! fn keep<'a>(receiver: &mut impl Arrivals, kept: &mut Vec<DmaSlice<'a>>) {
//!     receiver.drain(16, |arrival| {
//!         if let Arrival::Packet(packet) = arrival {
//!             kept.push(packet.payload);
//!         }
//!     });
//! }
//! ```
//!
//! An engine's owner may change, but it has one at a time:
//!
//! ```compile_fail,E0277
//! # use qhca_driver::{env::Backend, runtime::Receiver};
//! fn share<B: Backend>(receiver: &Receiver<B>) {
//!     fn wants_sync<T: Sync>(_: &T) {}
//!     wants_sync(receiver);
//! }
//! ```
//!
//! It does not map the memory for the chip: payloads pass through the processor on this hardware.

mod table;

pub use table::{Access, KeyError, MemoryError, Window};
pub(crate) use table::{MemoryTable, Span};

use qhca_driver::dma::{DmaMemory, DmaSlice};

use crate::ids::Key;

/// A stretch of registered memory that a work request reads or fills.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sge {
    /// Address in the region's terms.
    pub addr: u64,
    /// Bytes.
    pub len_bytes: u32,
    /// The region's key.
    pub lkey: Key,
}

/// A region's keys and place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryRegion {
    /// For work requests of this side.
    pub lkey: Key,
    /// For the peer's.
    pub rkey: Key,
    /// Where it begins, in the terms of both.
    pub addr: u64,
    /// Bytes.
    pub len_bytes: u64,
}

impl MemoryRegion {
    /// The stretch of `len_bytes` from byte `start`.
    pub fn sge(&self, start: u64, len_bytes: u32) -> Sge {
        Sge { addr: self.addr.wrapping_add(start), len_bytes, lkey: self.lkey }
    }
}

/// A packet's payload, where it was received.
#[derive(Clone, Copy, Debug)]
pub enum Payload<'a> {
    /// Bytes of this process.
    Bytes(&'a [u8]),
    /// Memory that the chip wrote.
    Dma(DmaSlice<'a>),
}

impl<'a> Payload<'a> {
    /// Nothing.
    pub const EMPTY: Self = Self::Bytes(&[]);

    /// Bytes, pad included.
    #[inline]
    pub fn len(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Dma(slice) => slice.len(),
        }
    }

    /// Whether there is nothing.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The `len` bytes from `start`; less if there are less.
    #[inline]
    pub(crate) fn part(&self, start: usize, len: usize) -> Payload<'a> {
        match self {
            Self::Bytes(bytes) => {
                let start = start.min(bytes.len());
                Payload::Bytes(&bytes[start..bytes.len().min(start.saturating_add(len))])
            }
            Self::Dma(slice) => slice.part(start, len).map_or(Payload::EMPTY, Payload::Dma),
        }
    }

    /// Copies everything to `memory`, from byte `offset`.
    #[inline]
    pub(crate) fn copy_to(&self, memory: &DmaMemory, offset: usize) {
        match self {
            Self::Bytes(bytes) => memory.copy_in(offset, bytes),
            Self::Dma(slice) => memory.copy_from(offset, *slice),
        }
    }

    /// Copies as much as fits to `bytes`; returns how much that was.
    pub fn copy_out(&self, bytes: &mut [u8]) -> usize {
        match self {
            Self::Bytes(from) => {
                let len = from.len().min(bytes.len());
                bytes[..len].copy_from_slice(&from[..len]);
                len
            }
            Self::Dma(slice) => slice.copy_to(bytes),
        }
    }
}
