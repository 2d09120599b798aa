//! Memory for the card: pinned by the kernel, at a bus address from the ranges that there are.
//!
//! Three limits stand in the way, and each has an error of its own instead of a number: the addresses, the memory that
//! this process may lock (asked for before the kernel is, B111), and the mappings that the kernel allows a container
//! (B112). A mapping that fails leaves nothing behind: the address is free again, the memory is nobody's (B113, B115).

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::error::VfioError;
use super::iova::IovaSpace;
use super::kernel::{Calls, Kernel};
use super::open::Iommu;
use super::session::Session;
use crate::dma::{DmaMemory, DmaRegion};
use crate::env::{DmaMapper, MapError};

/// `CAP_IPC_LOCK` among a process's rights: whoever has it locks as much as he likes.
const CAP_IPC_LOCK: u32 = 14;

/// The addresses and the account of one card.
struct Book {
    space: IovaSpace,
    locked_bytes: u64,
    maps: u32,
}

/// What one card's mapper and its leases share.
struct Shared<K: Kernel> {
    session: Arc<Session<K>>,
    book: Mutex<Book>,
    /// Bytes that may be locked in all; `None` is without limit.
    limit_bytes: Option<u64>,
    maps_max: Option<u32>,
}

impl<K: Kernel> Shared<K> {
    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Gives the card memory. Clones share its addresses.
pub struct VfioMapper<K: Kernel = super::kernel::Linux> {
    shared: Arc<Shared<K>>,
}

impl<K: Kernel> Clone for VfioMapper<K> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone() }
    }
}

impl<K: Kernel> VfioMapper<K> {
    pub(super) fn new(session: Arc<Session<K>>, iommu: &Iommu) -> Self {
        let space = IovaSpace::new(iommu.ranges.as_deref(), iommu.page_bytes);
        let limit_bytes = lock_limit(&session.calls);
        let book = Mutex::new(Book { space, locked_bytes: 0, maps: 0 });
        Self { shared: Arc::new(Shared { session, book, limit_bytes, maps_max: iommu.maps_left }) }
    }

    /// Bytes that this process may lock; `None` is without limit.
    pub fn limit_bytes(&self) -> Option<u64> {
        self.shared.limit_bytes
    }

    /// Bytes and mappings that the card has now.
    pub fn in_use(&self) -> (u64, usize) {
        let book = self.shared.book();
        (book.locked_bytes, book.maps as usize)
    }

    /// Takes an address, a mapping and some of the limit, or none of them.
    fn reserve(&self, len_bytes: usize) -> Result<Reserved<K>, MapError> {
        let shared = &self.shared;
        let mut book = shared.book();
        let len = len_bytes as u64;
        if let Some(limit_bytes) = shared.limit_bytes
            && book.locked_bytes.saturating_add(len) > limit_bytes
        {
            return Err(MapError::MemlockLimit { len_bytes, locked_bytes: book.locked_bytes, limit_bytes });
        }
        if let Some(limit) = shared.maps_max
            && book.maps >= limit
        {
            return Err(MapError::TooManyMaps { limit });
        }
        let iova = book.space.take(len).ok_or(MapError::NoAddress { len_bytes })?;
        book.locked_bytes += len;
        book.maps += 1;
        Ok(Reserved { shared: shared.clone(), iova, len, mapped: false })
    }
}

/// What this process may lock; without limit if it has the right to pass it.
fn lock_limit<K: Kernel>(calls: &Calls<K>) -> Option<u64> {
    let status = calls.read_text(Path::new("/proc/self/status")).unwrap_or_default();
    let rights = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let rights = rights.and_then(|rights| u64::from_str_radix(rights.trim(), 16).ok()).unwrap_or(0);
    if rights >> CAP_IPC_LOCK & 1 == 1 {
        return None;
    }
    calls.memlock_limit_bytes().ok().flatten()
}

impl<K: Kernel> DmaMapper for VfioMapper<K> {
    fn map(&mut self, len_bytes: usize) -> Result<DmaRegion, MapError> {
        let session = &self.shared.session;
        if session.is_noiommu() {
            return Err(MapError::NoIommu { len_bytes });
        }
        let memory = DmaMemory::new(len_bytes).map_err(|source| MapError::NoMemory { len_bytes, source })?;
        let memory = Arc::new(memory);
        let mut lease = self.reserve(memory.len_bytes())?;
        let iova = lease.iova;
        session.map(&memory, iova).map_err(|error| {
            let short = matches!(&error, VfioError::Call { source, .. } if is_short_of_memory(source));
            match self.shared.limit_bytes {
                Some(limit_bytes) if short => {
                    let locked_bytes = self.in_use().0 - lease.len;
                    MapError::MemlockLimit { len_bytes, locked_bytes, limit_bytes }
                }
                _ => MapError::Refused { len_bytes, iova, source: io::Error::from(error) },
            }
        })?;
        lease.mapped = true;
        Ok(DmaRegion::new(memory, iova, Some(Arc::new(lease))))
    }
}

fn is_short_of_memory(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ENOMEM)
}

impl<K: Kernel> fmt::Debug for VfioMapper<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (bytes, maps) = self.in_use();
        write!(f, "VfioMapper({maps} mappings, {bytes} bytes)")
    }
}

/// An address that is taken, and the mapping there. Dropping it takes the memory from the card, before the memory goes.
struct Reserved<K: Kernel> {
    shared: Arc<Shared<K>>,
    iova: u64,
    len: u64,
    mapped: bool,
}

impl<K: Kernel> Drop for Reserved<K> {
    fn drop(&mut self) {
        let unmapped = if self.mapped { self.shared.session.unmap(self.iova) } else { Ok(()) };
        let mut book = self.shared.book();
        book.maps = book.maps.saturating_sub(1);
        book.locked_bytes = book.locked_bytes.saturating_sub(self.len);
        match unmapped {
            Ok(()) => book.space.release(self.iova, self.len),
            // The address stays taken: nobody else may be told of it while the card reaches what was there. The kernel
            // holds the pages as long.
            Err(error) => log::warn!("bus address {:#x} stays in use: {error}", self.iova),
        }
    }
}
