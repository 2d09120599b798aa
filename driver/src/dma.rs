//! Memory that the chip reads and writes by itself: allocated here, and touched through 64-bit atomics only.
//!
//! The chip stores packets, queue entries and availability words into host memory at any time, whether the program
//! looks or not. A Rust reference to plain bytes promises that nobody else writes them, so none may cover such
//! memory. [`DmaMemory`] therefore gives out no `&[u8]`: it loads, stores and copies, and every access to the
//! memory, of the driver or of a model that stands in for the chip, is one aligned 64-bit atomic. One width for all
//! means that two accesses which overlap are always the same access, the only kind of race that Rust defines.
//!
//! ```text
//!   DmaMemory (one shared mapping, whole pages)
//!   ├─ word 0 ─┬─ word 1 ─┬─ ...      each an AtomicU64, little-endian
//!   │ dw0  dw1 │ dw2  dw3 │           load_u32 takes half a word, store_u32 replaces half a word
//!   DmaSlice<'_>: a borrowed stretch of it, to read a packet in place or copy it out
//! ```
//!
//! Ordering: what the chip writes *last* (a sequence number, an availability word) is read with Acquire by
//! [`load_u64`](DmaMemory::load_u64), and whatever was copied out after it is at least as new. Towards the chip the
//! order is made by [`Bar::doorbell`](qhca_regs::Bar::doorbell).
//!
//! It does not map anything into an IOMMU: a back end's [`DmaMapper`](crate::env::DmaMapper) does, and hands out a
//! [`DmaRegion`], memory with an address that the chip can use.

use std::fmt;
use std::fs::File;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use memmap2::{MmapOptions, MmapRaw};

use crate::sys;

/// The unit in which memory is mapped, bytes.
pub const PAGE_BYTES: usize = 4096;

/// Bytes of one atomic access.
const WORD_BYTES: usize = 8;

/// A shared mapping of whole pages that the chip may write at any time.
pub struct DmaMemory {
    mapping: ManuallyDrop<MmapRaw>,
    file: File,
    device_may_write: AtomicBool,
}

impl DmaMemory {
    /// Allocates `len_bytes` of zeroed memory, rounded up to whole pages.
    ///
    /// The memory is shared and has a file descriptor ([`as_fd`](AsFd::as_fd)), so that a chip in another process
    /// can map the same pages.
    ///
    /// # Errors
    /// What the system says when it has no memory or no descriptor left, or `InvalidInput` for zero bytes.
    pub fn new(len_bytes: usize) -> io::Result<Self> {
        let invalid = || io::Error::new(io::ErrorKind::InvalidInput, "a DMA mapping has at least one byte");
        let len =
            len_bytes.checked_next_multiple_of(PAGE_BYTES).filter(|&len| len > 0).ok_or_else(invalid)?;
        let file = sys::shared_memory_file(len)?;
        let mapping = MmapOptions::new().len(len).map_raw(&file)?;
        Ok(Self { mapping: ManuallyDrop::new(mapping), file, device_may_write: AtomicBool::new(false) })
    }

    /// Bytes in the mapping, a multiple of [`PAGE_BYTES`].
    #[inline]
    pub fn len_bytes(&self) -> usize {
        self.mapping.len()
    }

    /// The mapping's address in this process, for the system calls that pin it. Nothing may be read through it.
    pub fn address(&self) -> usize {
        self.mapping.as_mut_ptr() as usize
    }

    /// Says that the chip may go on writing, whatever the program does: the pages are then never given back.
    ///
    /// Call it when a device could not be stopped. Memory that is lost is a nuisance; memory that belongs to
    /// somebody else and is written by a card is not.
    pub fn leak_because_device_may_write(&self) {
        self.device_may_write.store(true, Ordering::Relaxed);
    }

    /// All of the memory, as the words that both sides access.
    #[inline]
    pub(crate) fn words(&self) -> &[AtomicU64] {
        let base = self.mapping.as_mut_ptr().cast::<AtomicU64>();
        // SAFETY: `mapping` covers `len()` bytes from `base`, page aligned and zeroed, until `self` is dropped, and
        // the slice borrows `self`. Every access in this process goes through these atomics, and what the device
        // writes it writes in whole aligned words or less, which an atomic load tolerates like any other writer.
        unsafe { std::slice::from_raw_parts(base, self.mapping.len() / WORD_BYTES) }
    }

    /// Loads the word at byte `offset` (8-byte aligned); later loads are not older.
    ///
    /// PANIC: past the end or unaligned. Offsets are the driver's own arithmetic, bounded before they get here.
    #[inline]
    #[track_caller]
    pub fn load_u64(&self, offset: usize) -> u64 {
        debug_assert!(offset.is_multiple_of(WORD_BYTES), "DMA words are 8-byte aligned");
        u64::from_le(self.words()[offset / WORD_BYTES].load(Ordering::Acquire))
    }

    /// Loads the dword at byte `offset` (4-byte aligned); later loads are not older.
    ///
    /// PANIC: as [`load_u64`](Self::load_u64).
    #[inline]
    #[track_caller]
    pub fn load_u32(&self, offset: usize) -> u32 {
        debug_assert!(offset.is_multiple_of(4), "DMA dwords are 4-byte aligned");
        let word = self.load_u64(offset & !(WORD_BYTES - 1));
        (word >> (8 * (offset % WORD_BYTES))) as u32
    }

    /// Stores the word at byte `offset` (8-byte aligned) after everything that was stored before it.
    ///
    /// PANIC: as [`load_u64`](Self::load_u64).
    #[inline]
    #[track_caller]
    pub fn store_u64(&self, offset: usize, value: u64) {
        debug_assert!(offset.is_multiple_of(WORD_BYTES), "DMA words are 8-byte aligned");
        self.words()[offset / WORD_BYTES].store(value.to_le(), Ordering::Release);
    }

    /// Stores the dword at byte `offset` (4-byte aligned) after everything that was stored before it.
    ///
    /// PANIC: as [`load_u64`](Self::load_u64).
    #[inline]
    #[track_caller]
    pub fn store_u32(&self, offset: usize, value: u32) {
        debug_assert!(offset.is_multiple_of(4), "DMA dwords are 4-byte aligned");
        self.merge(offset / WORD_BYTES, offset % WORD_BYTES, &value.to_le_bytes());
    }

    /// Adds `value` to the word at byte `offset` (8-byte aligned), wrapping, as one step; returns what was there before.
    ///
    /// PANIC: as [`load_u64`](Self::load_u64).
    #[track_caller]
    pub fn fetch_add_u64(&self, offset: usize, value: u64) -> u64 {
        self.update_u64(offset, |before| Some(before.wrapping_add(value)))
    }

    /// Stores `value` in the word at byte `offset` (8-byte aligned) if it holds `expected`, as one step; returns what was
    /// there before.
    ///
    /// PANIC: as [`load_u64`](Self::load_u64).
    #[track_caller]
    pub fn compare_swap_u64(&self, offset: usize, expected: u64, value: u64) -> u64 {
        self.update_u64(offset, |before| (before == expected).then_some(value))
    }

    #[track_caller]
    fn update_u64(&self, offset: usize, mut change: impl FnMut(u64) -> Option<u64>) -> u64 {
        debug_assert!(offset.is_multiple_of(WORD_BYTES), "DMA words are 8-byte aligned");
        let word = &self.words()[offset / WORD_BYTES];
        let change = |raw: u64| change(u64::from_le(raw)).map(u64::to_le);
        let (Ok(before) | Err(before)) = word.fetch_update(Ordering::AcqRel, Ordering::Acquire, change);
        u64::from_le(before)
    }

    /// Copies a stretch of other DMA memory in, from byte `offset`. Not ordered by itself, as [`copy_in`](Self::copy_in).
    ///
    /// PANIC: as [`load_u64`](Self::load_u64).
    #[track_caller]
    pub fn copy_from(&self, offset: usize, from: DmaSlice<'_>) {
        let both = offset | from.offset;
        let whole = if both.is_multiple_of(WORD_BYTES) { from.len_bytes / WORD_BYTES } else { 0 };
        let (to, source) = (offset / WORD_BYTES, from.offset / WORD_BYTES);
        let words = &from.memory.words()[source..source + whole];
        for (to, word) in self.words()[to..to + whole].iter().zip(words) {
            to.store(word.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        let mut done = whole * WORD_BYTES;
        let mut some = [0; 256];
        while done < from.len_bytes {
            let step = (from.len_bytes - done).min(some.len());
            from.memory.copy_out(from.offset + done, &mut some[..step]);
            self.copy_in(offset + done, &some[..step]);
            done += step;
        }
    }

    /// Copies `bytes` in, from byte `offset`. Not ordered by itself: store a word afterwards to publish the copy.
    ///
    /// PANIC: as [`load_u64`](Self::load_u64).
    #[track_caller]
    pub fn copy_in(&self, offset: usize, bytes: &[u8]) {
        let (head, words, tail) = split(offset, bytes.len());
        let index = offset / WORD_BYTES;
        if head > 0 {
            self.merge(index, offset % WORD_BYTES, &bytes[..head]);
        }
        let first = offset.div_ceil(WORD_BYTES);
        let whole = bytes[head..].chunks_exact(WORD_BYTES);
        for (word, chunk) in self.words()[first..first + words].iter().zip(whole) {
            // PANIC: `chunks_exact` yields chunks of eight bytes.
            word.store(u64::from_ne_bytes(chunk.try_into().expect("eight bytes")), Ordering::Relaxed);
        }
        if tail > 0 {
            self.merge(first + words, 0, &bytes[bytes.len() - tail..]);
        }
    }

    /// Copies out from byte `offset` until `bytes` is full.
    ///
    /// PANIC: as [`load_u64`](Self::load_u64).
    #[track_caller]
    pub fn copy_out(&self, offset: usize, bytes: &mut [u8]) {
        let (head, words, _tail) = split(offset, bytes.len());
        let (head_bytes, rest) = bytes.split_at_mut(head);
        self.extract(offset / WORD_BYTES, offset % WORD_BYTES, head_bytes);
        let first = offset.div_ceil(WORD_BYTES);
        let (whole, tail_bytes) = rest.split_at_mut(words * WORD_BYTES);
        for (word, chunk) in self.words()[first..first + words].iter().zip(whole.chunks_exact_mut(WORD_BYTES))
        {
            chunk.copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes());
        }
        self.extract(first + words, 0, tail_bytes);
    }

    /// Sets `len_bytes` from byte `offset` to zero.
    ///
    /// PANIC: as [`load_u64`](Self::load_u64).
    #[track_caller]
    pub fn zero(&self, offset: usize, len_bytes: usize) {
        const NOTHING: [u8; 512] = [0; 512];
        let mut done = 0;
        while done < len_bytes {
            let step = (len_bytes - done).min(NOTHING.len());
            self.copy_in(offset + done, &NOTHING[..step]);
            done += step;
        }
    }

    /// The stretch of `len_bytes` from byte `offset`, if it lies inside.
    #[inline]
    pub fn slice(&self, offset: usize, len_bytes: usize) -> Option<DmaSlice<'_>> {
        let end = offset.checked_add(len_bytes)?;
        (end <= self.len_bytes()).then_some(DmaSlice { memory: self, offset, len_bytes })
    }

    /// Replaces some bytes of one word and leaves the others as whoever writes them leaves them.
    #[track_caller]
    fn merge(&self, index: usize, first_byte: usize, bytes: &[u8]) {
        let change = |word: u64| {
            let mut all = word.to_ne_bytes();
            all[first_byte..first_byte + bytes.len()].copy_from_slice(bytes);
            Some(u64::from_ne_bytes(all))
        };
        let word = &self.words()[index];
        // The closure never declines, so both arms hold the word as it was.
        let (Ok(_) | Err(_)) = word.fetch_update(Ordering::Release, Ordering::Relaxed, change);
    }

    /// Copies some bytes of one word out; nothing is read when `bytes` is empty.
    #[track_caller]
    fn extract(&self, index: usize, first_byte: usize, bytes: &mut [u8]) {
        if !bytes.is_empty() {
            let all = self.words()[index].load(Ordering::Relaxed).to_ne_bytes();
            bytes.copy_from_slice(&all[first_byte..first_byte + bytes.len()]);
        }
    }
}

/// How a copy of `len` bytes from `offset` falls on words: bytes before the first whole word, whole words, bytes
/// after the last.
fn split(offset: usize, len: usize) -> (usize, usize, usize) {
    let head = (offset.wrapping_neg() % WORD_BYTES).min(len);
    let rest = len - head;
    (head, rest / WORD_BYTES, rest % WORD_BYTES)
}

impl Drop for DmaMemory {
    fn drop(&mut self) {
        if !self.device_may_write.load(Ordering::Relaxed) {
            // SAFETY: `self.mapping` is dropped here and nowhere else, and `self` is not used afterwards.
            unsafe { ManuallyDrop::drop(&mut self.mapping) }
        }
    }
}

impl AsFd for DmaMemory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl fmt::Debug for DmaMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DmaMemory").field("len_bytes", &self.len_bytes()).finish_non_exhaustive()
    }
}

/// A borrowed stretch of DMA memory: a packet's header or payload, read in place or copied out.
///
/// The chip may overwrite it once its space has been returned; the lifetime ends before that can happen.
#[derive(Clone, Copy)]
pub struct DmaSlice<'a> {
    memory: &'a DmaMemory,
    offset: usize,
    len_bytes: usize,
}

impl<'a> DmaSlice<'a> {
    /// A stretch whose bounds the caller has checked. If it did not, reading past the memory's end panics.
    #[inline]
    pub(crate) fn bounded(memory: &'a DmaMemory, offset: usize, len_bytes: usize) -> Self {
        Self { memory, offset, len_bytes }
    }

    /// Bytes in the stretch.
    #[inline]
    pub fn len(&self) -> usize {
        self.len_bytes
    }

    /// Whether there is nothing in it.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len_bytes == 0
    }

    /// The byte at `index`, if there is one.
    #[inline]
    pub fn byte(&self, index: usize) -> Option<u8> {
        let at = self.offset + index;
        let word = (index < self.len_bytes).then(|| self.memory.load_u64(at & !(WORD_BYTES - 1)))?;
        Some((word >> (8 * (at % WORD_BYTES))) as u8)
    }

    /// The four bytes from `index` as the wire counts them, big-endian, if the stretch holds them. Stretches start
    /// on a dword, and so must `index`.
    #[inline]
    pub fn be_u32(&self, index: usize) -> Option<u32> {
        let inside = index.checked_add(4).is_some_and(|end| end <= self.len_bytes);
        let at = self.offset + index;
        (inside && at.is_multiple_of(4)).then(|| self.memory.load_u32(at).swap_bytes())
    }

    /// The part of `len_bytes` from `start`, if the stretch holds it.
    #[inline]
    pub fn part(&self, start: usize, len_bytes: usize) -> Option<DmaSlice<'a>> {
        let end = start.checked_add(len_bytes)?;
        (end <= self.len_bytes).then_some(DmaSlice {
            memory: self.memory,
            offset: self.offset + start,
            len_bytes,
        })
    }

    /// Copies as much as fits into `bytes`; returns how much that was.
    pub fn copy_to(&self, bytes: &mut [u8]) -> usize {
        let len = self.len_bytes.min(bytes.len());
        self.memory.copy_out(self.offset, &mut bytes[..len]);
        len
    }

    /// A copy of the whole stretch.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len_bytes];
        self.copy_to(&mut bytes);
        bytes
    }
}

impl fmt::Debug for DmaSlice<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DmaSlice({} bytes)", self.len_bytes)
    }
}

/// Memory with an address that the chip can use.
///
/// Clones share the memory; when the last one is dropped the back end's lease is dropped too, which takes the
/// mapping out of the IOMMU before the pages go.
#[derive(Clone)]
pub struct DmaRegion {
    // Dropped in this order: first the address is taken from the chip, then the memory goes.
    _lease: Option<Arc<dyn Send + Sync>>,
    memory: Arc<DmaMemory>,
    iova: u64,
}

impl DmaRegion {
    /// `memory` as the chip sees it, from address `iova`. `lease` is what the back end has to undo afterwards: it
    /// is dropped after the last use of the region.
    pub fn new(memory: Arc<DmaMemory>, iova: u64, lease: Option<Arc<dyn Send + Sync>>) -> Self {
        Self { _lease: lease, memory, iova }
    }

    /// The memory.
    #[inline]
    pub fn memory(&self) -> &Arc<DmaMemory> {
        &self.memory
    }

    /// Where the chip finds its first byte.
    #[inline]
    pub fn iova(&self) -> u64 {
        self.iova
    }

    /// Bytes in the region.
    #[inline]
    pub fn len_bytes(&self) -> usize {
        self.memory.len_bytes()
    }
}

impl fmt::Debug for DmaRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DmaRegion({:#x}, {} bytes)", self.iova, self.len_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(len_bytes: usize) -> DmaMemory {
        DmaMemory::new(len_bytes).expect("memory for a test")
    }

    #[test]
    fn odd_length_is_rounded_up_to_whole_zeroed_pages() {
        let memory = memory(5000);
        assert_eq!(memory.len_bytes(), 2 * PAGE_BYTES);
        assert!((0..1024).all(|word| memory.load_u64(word * 8) == 0));
        assert!(DmaMemory::new(0).is_err());
        assert!(DmaMemory::new(usize::MAX).is_err());
    }

    #[test]
    fn bytes_copied_in_at_any_alignment_come_out_again_and_nothing_else_changes() {
        let memory = memory(PAGE_BYTES);
        let pattern: Vec<u8> = (1..=200).collect();
        for offset in 0..17 {
            for len in 0..40 {
                memory.zero(0, 256);
                memory.copy_in(64 + offset, &pattern[..len]);
                let mut seen = [0xEE; 256];
                memory.copy_out(0, &mut seen);
                let mut wanted = [0; 256];
                wanted[64 + offset..64 + offset + len].copy_from_slice(&pattern[..len]);
                assert_eq!(seen, wanted, "offset {offset}, length {len}");
                let mut part = vec![0; len];
                memory.copy_out(64 + offset, &mut part);
                assert_eq!(part, pattern[..len]);
            }
        }
    }

    #[test]
    fn stretch_copied_between_memories_at_any_alignment_arrives_whole_and_alone() {
        let (from, to) = (memory(PAGE_BYTES), memory(PAGE_BYTES));
        let pattern: Vec<u8> = (0..=255).cycle().skip(1).take(700).collect();
        from.copy_in(0, &pattern);
        for (start, offset, len) in [(0, 8, 64), (8, 16, 61), (3, 8, 600), (8, 5, 7), (1, 2, 0), (5, 13, 300)]
        {
            to.zero(0, 1024);
            to.copy_from(offset, from.slice(start, len).expect("inside"));
            let mut seen = [0; 1024];
            to.copy_out(0, &mut seen);
            let mut wanted = [0; 1024];
            wanted[offset..offset + len].copy_from_slice(&pattern[start..start + len]);
            assert_eq!(seen, wanted, "from {start} to {offset}, {len} bytes");
        }
    }

    #[test]
    fn atomic_update_returns_what_was_there_and_a_failed_swap_changes_nothing() {
        let memory = memory(PAGE_BYTES);
        memory.store_u64(8, u64::MAX);
        assert_eq!(memory.fetch_add_u64(8, 3), u64::MAX);
        assert_eq!(memory.compare_swap_u64(8, 1, 9), 2, "not what was expected");
        assert_eq!(memory.compare_swap_u64(8, 2, 9), 2);
        assert_eq!(memory.load_u64(8), 9);
    }

    #[test]
    fn words_are_little_endian_in_memory() {
        let memory = memory(PAGE_BYTES);
        memory.store_u64(8, 0x1122_3344_5566_7788);
        memory.store_u32(12, 0xAABB_CCDD);
        assert_eq!(memory.load_u32(8), 0x5566_7788);
        assert_eq!(memory.load_u64(8), 0xAABB_CCDD_5566_7788);
        let mut bytes = [0; 2];
        memory.copy_out(8, &mut bytes);
        assert_eq!(bytes, [0x88, 0x77]);
    }

    #[test]
    fn slice_past_the_end_is_refused() {
        let memory = memory(PAGE_BYTES);
        assert!(memory.slice(PAGE_BYTES - 4, 8).is_none());
        assert!(memory.slice(usize::MAX, 2).is_none());
        let slice = memory.slice(PAGE_BYTES - 8, 8).expect("inside");
        assert_eq!((slice.byte(7), slice.byte(8)), (Some(0), None));
        assert!(slice.part(4, 5).is_none() && slice.be_u32(5).is_none());
    }

    #[test]
    fn slice_reads_what_the_wire_sent() {
        let memory = memory(PAGE_BYTES);
        memory.copy_in(100, &[0xDE, 0xAD, 0xBE, 0xEF, 1, 2, 3]);
        let slice = memory.slice(100, 7).expect("inside");
        assert_eq!(slice.be_u32(0), Some(0xDEAD_BEEF));
        assert_eq!(slice.byte(6), Some(3));
        assert_eq!(slice.part(4, 3).expect("inside").to_vec(), [1, 2, 3]);
    }

    #[test]
    fn region_drops_its_lease_once_after_the_last_clone() {
        let lease = Arc::new(());
        let region = DmaRegion::new(Arc::new(memory(1)), 0x1000, Some(lease.clone()));
        let clone = region.clone();
        drop(region);
        assert_eq!(Arc::strong_count(&lease), 2, "the clone still holds it");
        drop(clone);
        assert_eq!(Arc::strong_count(&lease), 1);
    }
}
