//! The client's memory as the chip reaches it: ranges of bus addresses, each with a file, or none.
//!
//! A range that came without a file can only be reached by asking the client. Writes to it are queued and sent when
//! no register access waits for its answer, since a client that waits for one cannot serve the other; reads of it
//! are answered by [`RemoteRead`].

use super::sys::ClientRange;
use crate::chip::DmaError;
use qhca_vfu::{DmaMap, DmaUnmap};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;

/// Most ranges at a time. Each mapped one is a mapping of this process, of which Linux allows 65,530 by default.
pub(super) const RANGES_MAX: u32 = 32_768;

/// Most bytes of writes that wait to be sent to the client.
const POSTED_MAX_BYTES: usize = 16 << 20;

/// Reads the memory that only the client can reach: a message there and back.
pub(super) trait RemoteRead {
    /// Fills `bytes` from `address`.
    ///
    /// # Errors
    /// Whatever went wrong: the connection, the client's refusal, its deadline.
    fn read(&mut self, address: u64, bytes: &mut [u8]) -> io::Result<()>;
}

struct Range {
    len_bytes: u64,
    readable: bool,
    writable: bool,
    local: Option<ClientRange>,
}

/// Why a range was refused, as the `errno` of the reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MapRefusal {
    /// Part of it is mapped already.
    Overlap,
    /// Too many ranges.
    Full,
    /// The descriptor does not hold it.
    Descriptor,
}

impl MapRefusal {
    pub(super) const fn errno(self) -> u32 {
        match self {
            Self::Overlap => libc::EEXIST as u32,
            Self::Full => libc::ENOSPC as u32,
            Self::Descriptor => libc::EINVAL as u32,
        }
    }
}

/// The ranges of one client.
#[derive(Default)]
pub(super) struct ClientMemory {
    ranges: BTreeMap<u64, Range>,
    posted: Vec<(u64, Vec<u8>)>,
    posted_bytes: usize,
    /// Accesses that no range allows, or that failed; shown by the control socket.
    pub(super) refused: u64,
    /// Writes that were dropped because too much was waiting.
    pub(super) posted_lost: u64,
}

impl ClientMemory {
    /// Makes a range reachable.
    pub(super) fn map(&mut self, map: &DmaMap, fd: Option<OwnedFd>) -> Result<(), MapRefusal> {
        if self.ranges.len() >= RANGES_MAX as usize {
            return Err(MapRefusal::Full);
        }
        // `map` does not wrap: the codec refuses that.
        let last = map.address + (map.len_bytes - 1);
        let before = self.ranges.range(..=last).next_back();
        if before.is_some_and(|(address, range)| address + (range.len_bytes - 1) >= map.address) {
            return Err(MapRefusal::Overlap);
        }
        let local = match fd {
            Some(fd) => Some(
                ClientRange::new(fd, map.offset, map.len_bytes, map.writable)
                    .map_err(|error| log::warn!("DMA_MAP at {:#x} refused: {error}", map.address))
                    .map_err(|()| MapRefusal::Descriptor)?,
            ),
            None => None,
        };
        let (len_bytes, readable, writable) = (map.len_bytes, map.readable, map.writable);
        self.ranges.insert(map.address, Range { len_bytes, readable, writable, local });
        Ok(())
    }

    /// Drops every range that lies inside `unmap`; names of ranges never mapped are fine, and a range that is only
    /// touched goes too, since the client says that part of it is no longer there.
    pub(super) fn unmap(&mut self, unmap: &DmaUnmap) {
        if unmap.all() {
            self.ranges.clear();
            return;
        }
        let Some(last) = unmap.len_bytes.checked_sub(1).map(|n| unmap.address.saturating_add(n)) else {
            return;
        };
        let touched = |address: u64, range: &Range| address + (range.len_bytes - 1) >= unmap.address;
        let gone: Vec<u64> = self
            .ranges
            .range(..=last)
            .rev()
            .take_while(|(address, range)| touched(**address, range))
            .map(|(address, _)| *address)
            .collect();
        for address in gone {
            self.ranges.remove(&address);
        }
    }

    /// How many ranges there are.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.ranges.len()
    }

    /// The range that holds `address`, its start, and how many of `len` bytes it holds.
    fn find(&self, address: u64, len: usize) -> Option<(u64, &Range, usize)> {
        let (start, range) = self.ranges.range(..=address).next_back()?;
        let left = range.len_bytes.checked_sub(address - start).filter(|left| *left > 0)?;
        Some((*start, range, left.min(len as u64) as usize))
    }

    /// Whether all of `len` bytes from `address` may be reached that way.
    fn allows(&self, address: u64, len: usize, write: bool) -> bool {
        let (mut at, mut left) = (address, len);
        while left > 0 {
            let Some((_, range, part)) = self.find(at, left) else { return false };
            if !(if write { range.writable } else { range.readable }) {
                return false;
            }
            left -= part;
            match at.checked_add(part as u64) {
                Some(next) => at = next,
                None => return left == 0,
            }
        }
        true
    }

    fn refuse(&mut self, iova: u64, len_bytes: usize) -> DmaError {
        self.refused += 1;
        DmaError { iova, len_bytes }
    }

    /// Writes `bytes` at `iova`: all of them or, if any byte may not be written, none.
    pub(super) fn write(&mut self, iova: u64, bytes: &[u8]) -> Result<(), DmaError> {
        if !self.allows(iova, bytes.len(), true) {
            return Err(self.refuse(iova, bytes.len()));
        }
        let (mut at, mut rest) = (iova, bytes);
        while let Some((start, range, part)) = self.find(at, rest.len()).filter(|_| !rest.is_empty()) {
            let (now, later) = rest.split_at(part);
            let done = range.local.as_ref().map(|local| local.write(at - start, now));
            match done {
                Some(Ok(())) => {}
                Some(Err(_)) => return Err(self.refuse(iova, bytes.len())),
                None => self.post(at, now),
            }
            (at, rest) = (at.wrapping_add(part as u64), later);
        }
        Ok(())
    }

    /// Writes the qword that completes an entry; everything written earlier is seen before it.
    pub(super) fn publish(&mut self, iova: u64, qword: u64) -> Result<(), DmaError> {
        if let Some((start, Range { writable: true, local: Some(local), .. }, 8)) = self.find(iova, 8) {
            return local.publish(iova - start, qword).map_err(|_| self.refuse(iova, 8));
        }
        self.write(iova, &qword.to_le_bytes())
    }

    /// Reads `bytes.len()` bytes from `iova`; ranges without a file by `remote`.
    pub(super) fn read(
        &mut self,
        iova: u64,
        bytes: &mut [u8],
        remote: &mut dyn RemoteRead,
    ) -> Result<(), DmaError> {
        let len = bytes.len();
        if !self.allows(iova, len, false) {
            return Err(self.refuse(iova, len));
        }
        let (mut at, mut rest) = (iova, bytes);
        while !rest.is_empty() {
            let Some((start, range, part)) = self.find(at, rest.len()) else { break };
            let (now, later) = rest.split_at_mut(part);
            let done = match &range.local {
                Some(local) => local.read(at - start, now),
                None => remote.read(at, now),
            };
            if done.is_err() {
                return Err(self.refuse(iova, len));
            }
            (at, rest) = (at.wrapping_add(part as u64), later);
        }
        Ok(())
    }

    fn post(&mut self, address: u64, bytes: &[u8]) {
        if self.posted_bytes + bytes.len() > POSTED_MAX_BYTES {
            self.posted_lost += 1;
            return;
        }
        self.posted_bytes += bytes.len();
        self.posted.push((address, bytes.to_vec()));
    }

    /// Whether writes wait to be sent.
    pub(super) fn has_posted(&self) -> bool {
        !self.posted.is_empty()
    }

    /// The writes to ranges without a file that wait to be sent, in order.
    pub(super) fn take_posted(&mut self) -> Vec<(u64, Vec<u8>)> {
        self.posted_bytes = 0;
        std::mem::take(&mut self.posted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use qhca_driver::sys::shared_memory_file;

    struct NoRemote;
    impl RemoteRead for NoRemote {
        fn read(&mut self, _: u64, _: &mut [u8]) -> io::Result<()> {
            Err(io::ErrorKind::NotConnected.into())
        }
    }

    fn range(address: u64, len_bytes: u64) -> DmaMap {
        DmaMap { readable: true, writable: true, offset: 0, address, len_bytes }
    }

    fn file(len: usize) -> Option<OwnedFd> {
        Some(shared_memory_file(len).expect("memory").into())
    }

    #[test]
    fn overlapping_maps_are_refused_whatever_side_they_overlap() {
        let mut memory = ClientMemory::default();
        memory.map(&range(0x2000, 0x1000), file(0x1000)).expect("free");
        for (address, len) in [(0x2000, 1), (0x2FFF, 1), (0x1FFF, 2), (0x1000, 0x4000), (0, u64::MAX)] {
            assert_eq!(memory.map(&range(address, len), None), Err(MapRefusal::Overlap), "{address:#x}");
        }
        memory.map(&range(0x1000, 0x1000), None).expect("free");
        memory.map(&range(0x3000, 0x1000), None).expect("free");
    }

    #[test]
    fn a_write_over_two_ranges_lands_in_both_and_one_over_a_hole_in_none() {
        let mut memory = ClientMemory::default();
        memory.map(&range(0x1000, 0x1000), file(0x1000)).expect("free");
        memory.map(&range(0x2000, 0x1000), file(0x1000)).expect("free");
        memory.write(0x1FFE, &[1, 2, 3, 4]).expect("mapped");
        let mut back = [0; 4];
        memory.read(0x1FFE, &mut back, &mut NoRemote).expect("mapped");
        assert_eq!(back, [1, 2, 3, 4]);
        assert!(memory.write(0x2FFE, &[9; 4]).is_err());
        memory.read(0x2FFC, &mut back, &mut NoRemote).expect("mapped");
        assert_eq!((back, memory.refused), ([0; 4], 1));
    }

    #[test]
    fn unmap_takes_all_inside_and_succeeds_on_nothing() {
        let mut memory = ClientMemory::default();
        for page in 0..8 {
            memory.map(&range(page * 0x1000, 0x1000), None).expect("free");
        }
        memory.unmap(&DmaUnmap { flags: 0, address: 0x10_0000, len_bytes: 0x1000 });
        memory.unmap(&DmaUnmap { flags: 0, address: 0, len_bytes: 0 });
        assert_eq!(memory.len(), 8);
        memory.unmap(&DmaUnmap { flags: 0, address: 0x2000, len_bytes: 0x3000 });
        assert_eq!(memory.len(), 5);
        memory.unmap(&DmaUnmap { flags: 2, address: 0, len_bytes: 0 });
        assert_eq!(memory.len(), 0);
    }

    #[test]
    fn read_only_ranges_are_not_written_and_remote_writes_keep_their_order() {
        let mut memory = ClientMemory::default();
        memory.map(&DmaMap { writable: false, ..range(0, 0x1000) }, None).expect("free");
        memory.map(&range(0x1000, 0x1000), None).expect("free");
        assert!(memory.write(0, &[1]).is_err());
        memory.write(0x1000, &[1]).expect("mapped");
        memory.publish(0x1008, 2).expect("mapped");
        let posted = memory.take_posted();
        assert_eq!(posted, [(0x1000, vec![1]), (0x1008, vec![2, 0, 0, 0, 0, 0, 0, 0])]);
        assert!(memory.read(0x1000, &mut [0; 4], &mut NoRemote).is_err());
    }

    /// What a client does to its table: a range, taken away or given.
    fn steps() -> impl Strategy<Value = Vec<(bool, u64, u64)>> {
        prop::collection::vec((any::<bool>(), 0..60u64, 1..9u64), 1..60)
    }

    proptest! {
        /// B147: any list of maps and unmaps, whole, overlapping, partial, leaves the table that a list of bytes leaves.
        #[test]
        fn any_maps_and_unmaps_leave_what_a_list_of_bytes_leaves(steps in steps()) {
            let mut memory = ClientMemory::default();
            // Which range each of 70 bytes belongs to, by the number of its step.
            let mut bytes = [None; 70];
            for (n, (is_map, start, len)) in steps.into_iter().enumerate() {
                let span = start as usize..(start + len) as usize;
                if is_map {
                    let is_free = bytes[span.clone()].iter().all(Option::is_none);
                    let mapped = memory.map(&range(start, len), None);
                    prop_assert_eq!(mapped, if is_free { Ok(()) } else { Err(MapRefusal::Overlap) });
                    if is_free {
                        bytes[span].fill(Some(n));
                    }
                } else {
                    let gone: Vec<Option<usize>> = bytes[span].to_vec();
                    memory.unmap(&DmaUnmap { flags: 0, address: start, len_bytes: len });
                    bytes.iter_mut().filter(|owner| gone.contains(owner)).for_each(|owner| *owner = None);
                }
                for (at, owner) in bytes.iter().enumerate() {
                    prop_assert_eq!(memory.write(at as u64, &[0]).is_ok(), owner.is_some(), "byte {}", at);
                }
            }
        }
    }
}
