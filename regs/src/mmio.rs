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
    /// `self.holds(offset, 8)`.
    #[inline]
    unsafe fn store(&self, offset: u32, value: u64) {
        // SAFETY: inside the window by this function's contract.
        let address = unsafe { self.base.add(offset as usize) };
        // SAFETY: as in `load`; the volatile write is legal on any mapped word.
        let register = unsafe { address.cast::<RW<u64>>().as_ref() };
        // SAFETY: a write can at most have an effect on the device, which is what the caller asks for: no Rust object
        // lives in the window.
        unsafe { register.write(value) };
    }

    /// Stores the lower half of a register whose place is known to be in the window.
    ///
    /// # Safety
    /// `self.holds(offset, 4)`.
    #[inline]
    unsafe fn store_half(&self, offset: u32, value: u32) {
        // SAFETY: inside the window by this function's contract.
        let address = unsafe { self.base.add(offset as usize) };
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
        unsafe { self.store(offset, value) };
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
        let (pairs, odd) = dwords.as_chunks::<2>();
        let mut at = offset;
        for [low, high] in pairs {
            // SAFETY: the whole copy is in the window, and this pair is part of it.
            unsafe { self.store(at, u64::from(*low) | u64::from(*high) << 32) };
            at += 8;
        }
        if let [last] = odd {
            // SAFETY: as above.
            unsafe { self.store_half(at, *last) };
        }
    }
}
