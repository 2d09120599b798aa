//! The one seam through which registers are touched.
//!
//! A [`Bar`] is handed to a function, never kept by it: the state machines stay plain data, and the simulator, the
//! laboratory's cost meter and the mapped window of a real card serve them alike.

/// Base address register 0 of the chip: 4 MiB of registers, counters, receive arrays, send buffers and user pages.
///
/// Offsets are bytes from the start of the window. Registers are 64 bits wide, 8-byte aligned, little-endian, and
/// are accessed whole: 32-bit accesses are not dependable on this chip (F-001).
///
/// None of the calls can fail. A card that has gone answers reads with all ones and swallows writes, which is why
/// whoever reads a status compares it with [`GONE`] before believing it.
pub trait Bar {
    /// Reads the register at `offset`. Costs about a microsecond on a real card.
    fn read(&self, offset: u32) -> u64;

    /// Writes the register at `offset`; posted, so it returns before the chip has seen it.
    fn write(&self, offset: u32, value: u64);

    /// Writes the register at `offset` after every earlier store to DMA memory has become visible to the chip.
    fn doorbell(&self, offset: u32, value: u64);

    /// Copies `dwords` to a send buffer, ascending from `offset` (8-byte aligned): 64-bit stores, and one 32-bit
    /// store for an odd last word.
    fn burst(&self, offset: u32, dwords: &[u32]);
}

/// What every register reads as when the card no longer answers.
pub const GONE: u64 = u64::MAX;

/// Bytes in the window that the chip decodes (F-002).
pub const BAR_LEN_BYTES: u32 = 0x40_0000;

impl<B: Bar + ?Sized> Bar for &B {
    fn read(&self, offset: u32) -> u64 {
        (**self).read(offset)
    }
    fn write(&self, offset: u32, value: u64) {
        (**self).write(offset, value);
    }
    fn doorbell(&self, offset: u32, value: u64) {
        (**self).doorbell(offset, value);
    }
    fn burst(&self, offset: u32, dwords: &[u32]) {
        (**self).burst(offset, dwords);
    }
}
