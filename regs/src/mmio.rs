//! The mapped window of a real card: [`MmioBar`], the one place where a BAR is dereferenced.
//!
//! Each access makes a `&RW<u64>` (volatile-register) for the address, uses it once, and lets it go: none is stored,
//! returned or alive across another access. `RW` is a cell, so the compiler may neither assume that the memory behind
//! the reference keeps its value nor read it on its own; ADR 0002 has the argument in full.
//!
//! An offset outside the window, or not a multiple of 8, never reaches the bus: it is a broken invariant of ours
//! (offsets come from the register tables and bounded ids) and stops the program. A tool that lets people type offsets
//! looks them up in [`map::at`](crate::map::at) first.
//!
//! What this does not do: map anything, know a register, or reorder. On a mapping without write combining, which is
//! what VFIO hands out, every store is one posted write in program order.

use crate::bar::Bar;
use core::marker::PhantomData;
use core::ops::Deref;
use core::ptr::NonNull;
use core::sync::atomic::{Ordering, fence};
use volatile_register::RW;

/// A window of device registers mapped into this process.
#[derive(Debug)]
pub struct MmioBar {
    base: NonNull<u8>,
    len_bytes: u32,
}

// SAFETY: the window is not tied to a thread: `new` demands that it stays mapped, whatever thread uses it.
unsafe impl Send for MmioBar {}
// SAFETY: all access is by single volatile loads and stores of at most 64 bits on memory that no Rust object owns; the
// device orders what several threads do, as it does for several processors. `burst` from two threads to one send
// buffer mixes their packets, which is a fault of the caller's book-keeping and not of memory.
unsafe impl Sync for MmioBar {}

impl MmioBar {
    /// The window of `len_bytes` at `base`.
    ///
    /// # Panics
    /// If `base` is not 8-byte aligned: no mapping of a BAR is.
    ///
    /// # Safety
    /// For as long as the value lives, every byte of `base .. base + len_bytes` must be mapped readable and writable
    /// in this process, and no Rust reference to any of it may exist outside this value (raw pointers may). It need
    /// not be initialised in Rust's sense: it may be a device's registers, whose reads and writes have effects, or
    /// ordinary memory for a test. A device that is taken away must leave a mapping that answers, as VFIO does: all
    /// ones, or a signal that the process has chosen to die from.
    pub unsafe fn new(base: NonNull<u8>, len_bytes: u32) -> Self {
        assert!(base.addr().get().is_multiple_of(8), "a BAR is mapped at a multiple of 8");
        Self { base, len_bytes: len_bytes & !7 }
    }

    /// Bytes of the window, rounded down to whole registers.
    pub fn len_bytes(&self) -> u32 {
        self.len_bytes
    }

    /// Whether `len_bytes` from `offset` on lie in the window and start at a whole register.
    #[inline]
    fn holds(&self, offset: u32, len_bytes: usize) -> bool {
        offset.is_multiple_of(8) && u64::from(offset) + len_bytes as u64 <= u64::from(self.len_bytes)
    }

    /// Loads one register.
    #[inline]
    fn load(&self, offset: u32) -> u64 {
        if !self.holds(offset, 8) {
            refuse(offset, self.len_bytes);
        }
        // SAFETY: `holds` has shown that the eight bytes are inside the window, so the sum stays in one mapping.
        let address = unsafe { self.base.add(offset as usize) };
        // SAFETY: mapped and readable by the contract of `new`, 8-byte aligned because base and offset are, and the
        // reference is to a cell and gone at the end of this statement.
        unsafe { address.cast::<RW<u64>>().as_ref() }.read()
    }

    /// Stores one register whose place is known to be in the window.
    ///
    /// # Safety
    /// `offset` is one that `self.holds(offset, 8)`.
    #[inline]
    unsafe fn store(&self, offset: usize, value: u64) {
        // SAFETY: inside the window by this function's contract.
        let address = unsafe { self.base.add(offset) };
        // SAFETY: as in `load`; the volatile write is legal on any mapped word.
        let register = unsafe { address.cast::<RW<u64>>().as_ref() };
        // SAFETY: a write can at most have an effect on the device, which is what the caller asks for: no Rust object
        // lives in the window.
        unsafe { register.write(value) };
    }

    /// Stores `N` dwords, an even number, two by two from `at` on; where they end.
    ///
    /// # Safety
    /// `at` is one that `self.holds(at, N * 4)`.
    #[inline(always)]
    unsafe fn store_pairs<const N: usize>(&self, mut at: usize, dwords: &[u32; N]) -> usize {
        for [low, high] in dwords.as_chunks::<2>().0 {
            // SAFETY: two of the dwords that the window holds by this function's contract.
            unsafe { self.store(at, u64::from(*low) | u64::from(*high) << 32) };
            at += 8;
        }
        at
    }

    /// Stores the lower half of a register whose place is known to be in the window.
    ///
    /// # Safety
    /// `offset` is one that `self.holds(offset, 4)`.
    #[inline]
    unsafe fn store_half(&self, offset: usize, value: u32) {
        // SAFETY: inside the window by this function's contract.
        let address = unsafe { self.base.add(offset) };
        // SAFETY: as in `load`, for the four bytes at the start of a register.
        let half = unsafe { address.cast::<RW<u32>>().as_ref() };
        // SAFETY: as in `store`.
        unsafe { half.write(value) };
    }
}

/// Stops the program: an offset that no register has.
///
/// PANIC: offsets come from the register tables and from newtypes that hold only what exists. One outside the window
/// is a fault of this program; going on would hit a neighbouring mapping or split an access that the chip needs whole.
#[cold]
#[inline(never)]
fn refuse(offset: u32, len_bytes: u32) -> ! {
    panic!(
        "register access at {offset:#x} refused: not 8-byte aligned, or past the window of {len_bytes:#x} bytes"
    )
}

impl Bar for MmioBar {
    #[inline]
    fn read(&self, offset: u32) -> u64 {
        self.load(offset)
    }

    #[inline]
    fn write(&self, offset: u32, value: u64) {
        if !self.holds(offset, 8) {
            refuse(offset, self.len_bytes);
        }
        // SAFETY: `holds` has just said so.
        unsafe { self.store(offset as usize, value) };
    }

    #[inline]
    fn doorbell(&self, offset: u32, value: u64) {
        // ORDER: every earlier store to DMA memory (descriptors, buffers) before the store to the register. The fence
        // keeps the compiler from sinking one below the volatile store. On x86-64 it emits no instruction and needs
        // none: stores to write-back memory and to an uncached mapping become visible in program order, and PCIe does
        // not let a device's read overtake the posted write that caused it. Other processors need a barrier that
        // reaches the device, which a release fence between processors is not known to be; the ADR says so.
        fence(Ordering::Release);
        self.write(offset, value);
    }

    #[inline]
    fn burst(&self, offset: u32, dwords: &[u32]) {
        if !self.holds(offset, dwords.len() * 4) {
            refuse(offset, self.len_bytes);
        }
        let mut at = offset as usize;
        let (eights, rest) = dwords.as_chunks::<8>();
        for eight in eights {
            // SAFETY: the whole copy is in the window, and these eight dwords are part of it.
            at = unsafe { self.store_pairs(at, eight) };
        }
        // What is left is shorter than eight: headers are, and a loop would cost more than its stores.
        let (four, rest) = rest.as_chunks::<4>();
        if let [four] = four {
            // SAFETY: as above, for these four.
            at = unsafe { self.store_pairs(at, four) };
        }
        let (pair, odd) = rest.as_chunks::<2>();
        if let [pair] = pair {
            // SAFETY: as above, for these two.
            at = unsafe { self.store_pairs(at, pair) };
        }
        if let [last] = odd {
            // SAFETY: as above, for the last one.
            unsafe { self.store_half(at, *last) };
        }
    }
}

/// Memory of this process in the place of a card: for measuring and testing the mapped path itself, without `unsafe`.
///
/// The memory is borrowed for as long as the window lives, so nothing else can reach it meanwhile.
#[derive(Debug)]
pub struct MemoryWindow<'m> {
    bar: MmioBar,
    memory: PhantomData<&'m mut [u64]>,
}

impl<'m> MemoryWindow<'m> {
    /// A window on `memory`.
    pub fn new(memory: &'m mut [u64]) -> Self {
        let len_bytes = u32::try_from(memory.len() * 8).unwrap_or(u32::MAX);
        let base = NonNull::from(memory).cast();
        // SAFETY: the words are valid for reads and writes for `'m`, which the window does not outlive; they are borrowed
        // mutably for as long, so no other reference to them is used; `len_bytes` is theirs or less.
        let bar = unsafe { MmioBar::new(base, len_bytes) };
        Self { bar, memory: PhantomData }
    }
}

impl Deref for MemoryWindow<'_> {
    type Target = MmioBar;

    fn deref(&self) -> &MmioBar {
        &self.bar
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::vec::Vec;

    /// Ordinary memory in the place of a card.
    struct Window {
        words: Vec<AtomicU64>,
    }

    impl Window {
        fn of(words: usize) -> Self {
            Self { words: (0..words).map(|_| AtomicU64::new(0)).collect() }
        }

        fn bar(&self) -> MmioBar {
            let base = NonNull::from(self.words.as_slice()).cast();
            // SAFETY: the words outlive the bar in every test below; they are cells, so the shared slice they are reached
            // through lets them be written, and nothing else refers to their contents.
            unsafe { MmioBar::new(base, self.words.len() as u32 * 8) }
        }

        fn bytes(&self, word: usize) -> [u8; 8] {
            self.words[word].load(Relaxed).to_ne_bytes()
        }
    }

    #[test]
    fn memory_window_gives_its_words_back_with_what_was_stored() {
        let mut words = [0; 4];
        let window = MemoryWindow::new(&mut words);
        window.write(8, 0x11);
        window.burst(16, &[2, 3, 4]);
        assert_eq!((window.read(8), window.len_bytes()), (0x11, 32));
        assert!(catch_unwind(AssertUnwindSafe(|| window.read(32))).is_err());
        assert_eq!(words, [0, 0x11, 3 << 32 | 2, 4]);
    }

    /// B158: each byte lands where the data sheet says, by every width that there is.
    #[test]
    fn every_byte_lands_in_its_place_by_every_width() {
        const VALUE: u64 = 0x1122_3344_5566_7788;
        const BYTES: [u8; 8] = [0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11];
        let window = Window::of(8);
        let bar = window.bar();
        bar.write(0, VALUE);
        bar.doorbell(8, VALUE);
        bar.burst(16, &[VALUE as u32, (VALUE >> 32) as u32, VALUE as u32]);
        assert_eq!([window.bytes(0), window.bytes(1), window.bytes(2)], [BYTES; 3]);
        assert_eq!(
            window.bytes(3),
            [0x88, 0x77, 0x66, 0x55, 0, 0, 0, 0],
            "an odd last word is one 32-bit store"
        );
        assert_eq!([bar.read(0), bar.read(8), bar.read(16)], [VALUE; 3]);
    }

    /// B159: an access at 4 mod 8, or one that reaches past the window, never gets to the bus.
    #[test]
    fn misaligned_and_outlying_accesses_are_refused() {
        let window = Window::of(4);
        let bar = window.bar();
        for offset in [1, 4, 12, 28, 32, 40, u32::MAX, u32::MAX - 7] {
            assert!(catch_unwind(AssertUnwindSafe(|| bar.read(offset))).is_err(), "read at {offset:#x}");
            assert!(catch_unwind(AssertUnwindSafe(|| bar.write(offset, 1))).is_err(), "write at {offset:#x}");
            assert!(
                catch_unwind(AssertUnwindSafe(|| bar.doorbell(offset, 1))).is_err(),
                "bell at {offset:#x}"
            );
            assert!(
                catch_unwind(AssertUnwindSafe(|| bar.burst(offset, &[1]))).is_err(),
                "burst at {offset:#x}"
            );
        }
        assert!(catch_unwind(AssertUnwindSafe(|| bar.burst(16, &[1; 5]))).is_err(), "a burst over the end");
        assert!(window.words.iter().all(|word| word.load(Relaxed) == 0), "a refused access stored something");
    }

    #[test]
    fn a_burst_may_end_with_the_window_and_may_be_empty() {
        let window = Window::of(2);
        let bar = window.bar();
        bar.burst(16, &[]);
        bar.burst(0, &[1, 2, 3, 4]);
        assert_eq!(window.words[1].load(Relaxed), 3 | 4 << 32);
    }

    /// B156: a counter whose low word rolls over between two reads is never seen torn, since there is one read.
    ///
    /// Not for Miri: the thread stands in for a device, and to Rust's memory model a volatile load that meets another
    /// thread's store is a race.
    #[cfg(not(miri))]
    #[test]
    fn a_counter_that_rolls_over_is_never_torn() {
        const BEFORE: u64 = 0xFFFF_FFFF;
        const AFTER: u64 = 0x1_0000_0000;
        let window = Window::of(1);
        let bar = window.bar();
        window.words[0].store(BEFORE, Relaxed);
        std::thread::scope(|scope| {
            let card = scope.spawn(|| {
                for turn in 0..200_000 {
                    window.words[0].store(if turn % 2 == 0 { AFTER } else { BEFORE }, Relaxed);
                }
            });
            while !card.is_finished() {
                let seen = bar.read(0);
                assert!(seen == BEFORE || seen == AFTER, "torn: {seen:#x}");
            }
        });
    }

    /// B155: no reference into the BAR is stored or handed out, so the compiler has nothing to read on its own.
    #[test]
    fn no_reference_into_the_bar_outlives_its_access() {
        let source = include_str!("mmio.rs");
        // The window on memory borrows memory, which is no BAR.
        let code = source.split("/// Memory of this process").next().unwrap_or_default();
        let uses: Vec<&str> = code
            .lines()
            .filter(|line| line.contains("as_ref()") && !line.trim_start().starts_with("//"))
            .collect();
        assert_eq!(uses.len(), 3, "one for each of load, store and half store: {uses:?}");
        for pattern in ["-> &", "&'", "&mut ", "RW<u64>>,", ": &RW"] {
            let found =
                code.lines().find(|line| line.contains(pattern) && !line.trim_start().starts_with("//"));
            assert_eq!(found, None, "a reference leaves its access");
        }
    }
}
