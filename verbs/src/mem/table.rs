//! The table of keys.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use bitflags::bitflags;
use qhca_driver::dma::DmaMemory;

use super::MemoryRegion;
use crate::ids::{Key, PdId, QpNumber};

bitflags! {
    /// What a key allows.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Access: u8 {
        /// This side's requests may write.
        const LOCAL_WRITE = 1;
        /// The peer may write.
        const REMOTE_WRITE = 2;
        /// The peer may read.
        const REMOTE_READ = 4;
        /// The peer may do atomics.
        const REMOTE_ATOMIC = 8;
        /// Windows may be bound to it.
        const WINDOW_BIND = 16;
        /// Addresses count from 0 and not from the memory's address.
        const ZERO_BASED = 32;
    }
}

/// Keys of which the lower eight bits change with every use of an index.
const GENERATION_BITS: u32 = 8;
/// Indices that are kept unused before the oldest of them is given out again.
const KEPT_FREE: usize = 256;

/// A window's key as it is before it is bound, and after each bind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The key. A bind replaces its lower eight bits by those of the work request.
    pub rkey: Key,
}

/// Why memory could not be registered, or a key not be given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MemoryError {
    /// There are no more keys.
    TableFull {
        /// Keys that the table can hold.
        keys: usize,
    },
    /// The stretch is empty or leaves the memory.
    OutOfBounds {
        /// First byte.
        offset: usize,
        /// Bytes.
        len_bytes: usize,
        /// Bytes of the memory.
        memory_bytes: usize,
    },
    /// Rights of a peer to write without the right to write at all.
    RemoteWithoutLocalWrite(Access),
    /// Addresses and memory would not agree on what is a multiple of eight.
    Misaligned {
        /// First byte in the memory.
        offset: usize,
    },
    /// There is no such protection domain.
    NoSuchPd(PdId),
    /// The key opens nothing.
    NoSuchKey(Key),
    /// Windows are bound to the region.
    Busy {
        /// The region.
        key: Key,
        /// How many windows.
        windows: u32,
    },
}

impl fmt::Display for MemoryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TableFull { keys } => write!(f, "all {keys} memory keys are in use: deregister something"),
            Self::OutOfBounds { offset, len_bytes, memory_bytes } => write!(
                f,
                "{len_bytes} bytes from byte {offset}: not one to all of a memory of {memory_bytes} bytes"
            ),
            Self::RemoteWithoutLocalWrite(access) => {
                write!(f, "rights {access:?}: a peer can only be let write where LOCAL_WRITE is given")
            }
            Self::Misaligned { offset } => {
                write!(f, "a zero-based region begins at byte {offset}: choose a multiple of eight")
            }
            Self::NoSuchPd(pd) => write!(f, "there is no {pd}"),
            Self::NoSuchKey(key) => {
                write!(f, "{key} opens nothing: it was never given out or was given back")
            }
            Self::Busy { key, windows } => {
                write!(f, "{windows} windows are bound to the region of {key}: invalidate them first")
            }
        }
    }
}

impl std::error::Error for MemoryError {}

/// Why a key does not let a request in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyError {
    /// It opens nothing, or no longer.
    Stale,
    /// It belongs to another protection domain, or is bound to another queue pair.
    NotYours,
    /// It does not allow this.
    Forbidden,
    /// Some of the bytes lie outside.
    OutOfBounds,
}

enum Kind {
    Free,
    Region { windows: u32 },
    Unbound,
    Bound { region: u32, qp: QpNumber },
}

struct Entry {
    key: Key,
    kind: Kind,
    pd: PdId,
    access: Access,
    addr: u64,
    len_bytes: u64,
    offset: usize,
    memory: Option<Arc<DmaMemory>>,
}

/// A stretch of memory that a check let through.
#[derive(Clone, Copy)]
pub(crate) struct Span<'a> {
    pub(crate) memory: &'a DmaMemory,
    pub(crate) offset: usize,
}

/// All keys of one engine.
pub(crate) struct MemoryTable {
    entries: Vec<Entry>,
    free: VecDeque<u32>,
    max: usize,
}

impl MemoryTable {
    pub(crate) fn new(max: usize) -> Self {
        Self { entries: Vec::new(), free: VecDeque::new(), max: max.min(1 << 24) }
    }

    /// Keys that are in use.
    pub(crate) fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// An index with a key that it did not have before.
    fn claim(&mut self, pd: PdId) -> Result<u32, MemoryError> {
        if self.free.len() < KEPT_FREE && self.entries.len() < self.max {
            let index = self.entries.len() as u32;
            self.entries.push(Entry {
                // Key 0 is never given out: it is what forgotten fields hold.
                key: Key(index << GENERATION_BITS | 1),
                kind: Kind::Free,
                pd,
                access: Access::empty(),
                addr: 0,
                len_bytes: 0,
                offset: 0,
                memory: None,
            });
            return Ok(index);
        }
        let index = self.free.pop_front().ok_or(MemoryError::TableFull { keys: self.max })?;
        let entry = &mut self.entries[index as usize];
        let generation = (entry.key.0 as u8).wrapping_add(1).max(1);
        entry.key = Key(entry.key.0 & !0xFF | u32::from(generation));
        entry.pd = pd;
        Ok(index)
    }

    pub(crate) fn register(
        &mut self,
        pd: PdId,
        memory: &Arc<DmaMemory>,
        offset: usize,
        len_bytes: usize,
        access: Access,
    ) -> Result<MemoryRegion, MemoryError> {
        let writes = Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
        if access.intersects(writes) && !access.contains(Access::LOCAL_WRITE) {
            return Err(MemoryError::RemoteWithoutLocalWrite(access));
        }
        if len_bytes == 0 || memory.slice(offset, len_bytes).is_none() {
            let memory_bytes = memory.len_bytes();
            return Err(MemoryError::OutOfBounds { offset, len_bytes, memory_bytes });
        }
        let zero_based = access.contains(Access::ZERO_BASED);
        if zero_based && !offset.is_multiple_of(8) {
            return Err(MemoryError::Misaligned { offset });
        }
        let index = self.claim(pd)?;
        let entry = &mut self.entries[index as usize];
        entry.kind = Kind::Region { windows: 0 };
        entry.access = access;
        entry.addr = if zero_based { 0 } else { (memory.address() + offset) as u64 };
        entry.len_bytes = len_bytes as u64;
        entry.offset = offset;
        entry.memory = Some(memory.clone());
        Ok(MemoryRegion { lkey: entry.key, rkey: entry.key, addr: entry.addr, len_bytes: entry.len_bytes })
    }

    /// Gives a region's or a window's key back.
    pub(crate) fn release(&mut self, key: Key) -> Result<(), MemoryError> {
        let entry = self.entry(key).ok_or(MemoryError::NoSuchKey(key))?;
        match entry.kind {
            Kind::Region { windows } if windows > 0 => return Err(MemoryError::Busy { key, windows }),
            Kind::Bound { .. } => self.unbind(key),
            _ => {}
        }
        let index = key.0 >> GENERATION_BITS;
        let entry = &mut self.entries[index as usize];
        entry.kind = Kind::Free;
        entry.memory = None;
        self.free.push_back(index);
        Ok(())
    }

    pub(crate) fn allocate_window(&mut self, pd: PdId) -> Result<Window, MemoryError> {
        let index = self.claim(pd)?;
        let entry = &mut self.entries[index as usize];
        entry.kind = Kind::Unbound;
        Ok(Window { rkey: entry.key })
    }

    /// Binds the window `rkey` to a part of a region; the window's key gets `key_part` as its lower eight bits.
    pub(crate) fn bind(
        &mut self,
        rkey: Key,
        key_part: u8,
        qp: QpNumber,
        pd: PdId,
        part: &super::Sge,
        access: Access,
    ) -> Result<(), KeyError> {
        let window = self.entry(rkey).ok_or(KeyError::Stale)?;
        if window.pd != pd {
            return Err(KeyError::NotYours);
        }
        if !matches!(window.kind, Kind::Unbound) {
            return Err(KeyError::Forbidden);
        }
        let region = self.entry(part.lkey).ok_or(KeyError::Stale)?;
        if !matches!(region.kind, Kind::Region { .. }) || region.pd != pd {
            return Err(KeyError::NotYours);
        }
        let writes = Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
        let lacks_write = access.intersects(writes) && !region.access.contains(Access::LOCAL_WRITE);
        if !region.access.contains(Access::WINDOW_BIND) || lacks_write {
            return Err(KeyError::Forbidden);
        }
        let start = inside(region, part.addr, u64::from(part.len_bytes)).ok_or(KeyError::OutOfBounds)?;
        let (memory, offset) = (region.memory.clone(), region.offset + start as usize);
        let region = part.lkey.0 >> GENERATION_BITS;
        if let Kind::Region { windows } = &mut self.entries[region as usize].kind {
            *windows += 1;
        }
        let window = &mut self.entries[(rkey.0 >> GENERATION_BITS) as usize];
        window.key = Key(rkey.0 & !0xFF | u32::from(key_part));
        window.kind = Kind::Bound { region, qp };
        window.access = access & (writes | Access::REMOTE_READ);
        window.addr = if access.contains(Access::ZERO_BASED) { 0 } else { part.addr };
        window.len_bytes = u64::from(part.len_bytes);
        window.offset = offset;
        window.memory = memory;
        Ok(())
    }

    /// Takes a window's binding away, for a request of `qp`, its own or its peer's.
    pub(crate) fn invalidate(&mut self, key: Key, qp: QpNumber, pd: PdId) -> Result<(), KeyError> {
        let entry = self.entry(key).ok_or(KeyError::Stale)?;
        match entry.kind {
            Kind::Bound { qp: owner, .. } if owner == qp && entry.pd == pd => {
                self.unbind(key);
                Ok(())
            }
            Kind::Bound { .. } => Err(KeyError::NotYours),
            _ => Err(KeyError::Forbidden),
        }
    }

    fn unbind(&mut self, key: Key) {
        let window = &mut self.entries[(key.0 >> GENERATION_BITS) as usize];
        window.memory = None;
        let kind = std::mem::replace(&mut window.kind, Kind::Unbound);
        if let Kind::Bound { region, .. } = kind
            && let Kind::Region { windows } = &mut self.entries[region as usize].kind
        {
            *windows -= 1;
        }
    }

    #[inline]
    fn entry(&self, key: Key) -> Option<&Entry> {
        let entry = self.entries.get((key.0 >> GENERATION_BITS) as usize)?;
        (entry.key == key && !matches!(entry.kind, Kind::Free)).then_some(entry)
    }

    /// Whether `key` opens `len_bytes` from `addr` for a request of `qp` that needs the rights `need`.
    #[inline]
    pub(crate) fn check(
        &self,
        key: Key,
        pd: PdId,
        qp: QpNumber,
        (addr, len_bytes): (u64, u32),
        need: Access,
    ) -> Result<Span<'_>, KeyError> {
        let entry = self.entry(key).ok_or(KeyError::Stale)?;
        if entry.pd != pd {
            return Err(KeyError::NotYours);
        }
        if let Kind::Bound { qp: owner, .. } = entry.kind
            && owner != qp
        {
            return Err(KeyError::NotYours);
        }
        if !entry.access.contains(need) {
            return Err(KeyError::Forbidden);
        }
        let start = inside(entry, addr, u64::from(len_bytes)).ok_or(KeyError::OutOfBounds)?;
        let memory = entry.memory.as_deref().ok_or(KeyError::Stale)?;
        Ok(Span { memory, offset: entry.offset + start as usize })
    }

    /// As [`check`](Self::check), for a request of this side, which names regions only.
    #[inline]
    pub(crate) fn check_local(
        &self,
        key: Key,
        pd: PdId,
        (addr, len_bytes): (u64, u32),
        need: Access,
    ) -> Result<Span<'_>, KeyError> {
        let entry = self.entry(key).ok_or(KeyError::Stale)?;
        if !matches!(entry.kind, Kind::Region { .. }) || !entry.access.contains(need) {
            return Err(KeyError::Forbidden);
        }
        if entry.pd != pd {
            return Err(KeyError::NotYours);
        }
        let start = inside(entry, addr, u64::from(len_bytes)).ok_or(KeyError::OutOfBounds)?;
        let memory = entry.memory.as_deref().ok_or(KeyError::Stale)?;
        Ok(Span { memory, offset: entry.offset + start as usize })
    }
}

/// How far from the entry's start `addr` is, if `len_bytes` from there lie inside.
#[inline]
fn inside(entry: &Entry, addr: u64, len_bytes: u64) -> Option<u64> {
    let start = addr.checked_sub(entry.addr)?;
    let left = entry.len_bytes.checked_sub(start)?;
    (len_bytes <= left).then_some(start)
}
