//! Memory for the device: a memory file each, handed over with the address at which the device finds it.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use qhca_vfu::{DmaMap, DmaUnmap, Request};

use super::connection::Connection;
use crate::dma::{DmaMemory, DmaRegion};
use crate::env::{DmaMapper, IOVA_LIMIT, MapError};

/// The first address that is given out. What lies below is left free, so that an address which is no more than a small
/// number by mistake hits nothing.
const FIRST_IOVA: u64 = 1 << 32;

/// Addresses in use: start and length.
type Taken = Arc<Mutex<BTreeMap<u64, u64>>>;

fn locked(taken: &Taken) -> MutexGuard<'_, BTreeMap<u64, u64>> {
    taken.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Gives the device memory. Clones share its addresses.
#[derive(Clone)]
pub struct VfioUserMapper {
    connection: Arc<Connection>,
    taken: Taken,
}

impl VfioUserMapper {
    pub(super) fn new(connection: Arc<Connection>) -> Self {
        Self { connection, taken: Taken::default() }
    }
}

/// The lowest gap of `len` addresses.
fn find_gap(taken: &BTreeMap<u64, u64>, len: u64) -> Option<u64> {
    let mut start = FIRST_IOVA;
    for (&used, &used_len) in taken {
        if used - start >= len {
            break;
        }
        start = used + used_len;
    }
    (start.checked_add(len)? <= IOVA_LIMIT).then_some(start)
}

impl DmaMapper for VfioUserMapper {
    fn map(&mut self, len_bytes: usize) -> Result<DmaRegion, MapError> {
        let memory = DmaMemory::new(len_bytes).map_err(|source| MapError::NoMemory { len_bytes, source })?;
        let memory = Arc::new(memory);
        let len = memory.len_bytes() as u64;
        let mut taken = locked(&self.taken);
        let iova = find_gap(&taken, len).ok_or(MapError::NoAddress { len_bytes })?;
        taken.insert(iova, len);
        drop(taken);
        // From here on the lease gives the address back, whatever happens.
        let lease = Lease { connection: self.connection.clone(), taken: self.taken.clone(), iova, len };
        let map = DmaMap { readable: true, writable: true, offset: 0, address: iova, len_bytes: len };
        self.connection.note_map(iova, memory.clone());
        let mapped = self.connection.ask(&Request::DmaMap(map), &[memory.as_fd()], |_| Ok(()));
        mapped.map_err(|error| MapError::Refused { len_bytes, iova, source: io::Error::from(error) })?;
        Ok(DmaRegion::new(memory, iova, Some(Arc::new(lease))))
    }
}

impl fmt::Debug for VfioUserMapper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VfioUserMapper").field("regions", &locked(&self.taken).len()).finish_non_exhaustive()
    }
}

/// Takes a mapping away from the device when it is dropped.
struct Lease {
    connection: Arc<Connection>,
    taken: Taken,
    iova: u64,
    len: u64,
}

impl Drop for Lease {
    fn drop(&mut self) {
        let unmap = DmaUnmap { flags: 0, address: self.iova, len_bytes: self.len };
        // If the other side is gone it reaches the file's pages at most, which live as long as it holds the file, and
        // never this process's.
        let (Ok(()) | Err(_)) = self.connection.ask(&Request::DmaUnmap(unmap), &[], |_| Ok(()));
        self.connection.forget_map(self.iova);
        locked(&self.taken).remove(&self.iova);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Addresses never overlap and never pass what the chip's queue registers hold (F-201).
        #[test]
        fn gaps_are_free_and_below_the_limit(steps in prop::collection::vec((1_u64..64, any::<bool>()), 1..100)) {
            let mut taken = BTreeMap::new();
            for (pages, release) in steps {
                let len = pages * 4096;
                let start = find_gap(&taken, len).expect("there is room");
                prop_assert!(start >= FIRST_IOVA && start + len <= IOVA_LIMIT);
                let apart = |(&used, &used_len): (&u64, &u64)| used + used_len <= start || start + len <= used;
                prop_assert!(taken.iter().all(apart));
                taken.insert(start, len);
                if release {
                    let first = *taken.keys().next().expect("one was put in");
                    taken.remove(&first);
                }
            }
        }
    }

    #[test]
    fn memory_past_the_last_address_is_refused() {
        let taken = BTreeMap::from([(FIRST_IOVA, IOVA_LIMIT - FIRST_IOVA - 4096)]);
        assert_eq!(find_gap(&taken, 4096), Some(IOVA_LIMIT - 4096));
        assert_eq!(find_gap(&taken, 8192), None);
        assert_eq!(find_gap(&BTreeMap::new(), u64::MAX), None);
    }
}
