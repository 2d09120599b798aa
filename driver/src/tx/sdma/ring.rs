//! The ring of descriptors in host memory, and the word that tells how far the chip has come.
//!
//! ```text
//!   byte 0                       16 · len            next multiple of 64
//!   | desc 0 | desc 1 | ... |    | unused            | head, a 64-bit word that the chip writes |
//! ```
//!
//! One descriptor always stays free, for a tail that equals the head means an empty ring. Each round of the ring
//! has a generation, modulo 4, which the chip holds against its own: a stale descriptor stops it instead of being sent
//! twice (F-231).

use std::fmt;

use qhca_regs::layout::SdmaDesc;

use crate::dma::DmaRegion;
use crate::env::{DmaMapper, MapError};

/// Where the head word may stand: a cache line of its own.
const HEAD_ALIGN_BYTES: usize = 64;
/// Generations, which wrap (F-013).
const GENERATIONS: u8 = 4;

/// The ring, as its writer sees it.
#[derive(Debug)]
pub struct Ring {
    region: DmaRegion,
    len: u32,
    head: u32,
    tail: u32,
    used: u32,
    generation: u8,
}

/// A head that is no place between the last head and the tail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadHead {
    /// What was read.
    pub head: u64,
    /// Where the head was.
    pub from: u32,
    /// Where the tail is.
    pub to: u32,
}

impl fmt::Display for BadHead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { head, from, to } = self;
        write!(f, "send DMA head {head:#x} is not between descriptor {from} and {to}")
    }
}

impl std::error::Error for BadHead {}

impl Ring {
    /// A ring of `len` descriptors.
    ///
    /// # Errors
    /// [`MapError`]: there is no memory for it.
    ///
    /// PANIC: fewer than 2 or more than 65535 descriptors; options are bounded before they get here.
    pub fn allocate(len: u32, mapper: &mut impl DmaMapper) -> Result<Self, MapError> {
        assert!((2..=super::DESCRIPTORS_MAX).contains(&len), "a ring of {len} descriptors");
        let region = mapper.map(head_at(len) + 8)?;
        Ok(Self { region, len, head: 0, tail: 0, used: 0, generation: 0 })
    }

    /// Descriptors in the ring.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Whether the chip has come to the end of what it was given.
    pub fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// Where the chip finds the first descriptor.
    pub fn iova(&self) -> u64 {
        self.region.iova()
    }

    /// Where the chip writes its head.
    pub fn head_iova(&self) -> u64 {
        self.region.iova() + head_at(self.len) as u64
    }

    /// The memory, for whoever must keep it.
    pub fn region(&self) -> &DmaRegion {
        &self.region
    }

    /// Descriptors that may be written.
    #[inline]
    pub fn free(&self) -> u32 {
        self.len - 1 - self.used
    }

    /// The index after the last descriptor written: what the tail register is to hold.
    #[inline]
    pub fn tail(&self) -> u16 {
        self.tail as u16
    }

    /// Descriptors that the chip has not yet done, as far as is known.
    #[inline]
    pub fn used(&self) -> u32 {
        self.used
    }

    /// Writes the next descriptor, in the ring's present generation. The chip sees it when it is told of the tail.
    ///
    /// PANIC: none is free; look at [`free`](Self::free) first.
    #[inline]
    pub fn push(&mut self, desc: SdmaDesc) {
        assert!(self.free() > 0, "a full ring of send DMA descriptors");
        let at = self.tail as usize * SdmaDesc::LEN_BYTES;
        let memory = self.region.memory();
        memory.store_u64(at + 8, desc.word1);
        memory.store_u64(at, desc.word0.with_generation(self.generation).0);
        self.used += 1;
        self.tail += 1;
        if self.tail == self.len {
            self.tail = 0;
            self.generation = (self.generation + 1) % GENERATIONS;
        }
    }

    /// The head as the chip last wrote it to memory.
    #[inline]
    pub fn head_word(&self) -> u64 {
        self.region.memory().load_u64(head_at(self.len))
    }

    /// Takes everything before `head` as done; says how many descriptors that is.
    ///
    /// # Errors
    /// [`BadHead`]: the chip cannot be there. Nothing was changed.
    #[inline]
    pub fn advance(&mut self, head: u64) -> Result<u32, BadHead> {
        let bad = BadHead { head, from: self.head, to: self.tail };
        if head >= u64::from(self.len) {
            return Err(bad);
        }
        let head = head as u32;
        let done = if head >= self.head { head - self.head } else { head + self.len - self.head };
        if done > self.used {
            return Err(bad);
        }
        self.head = head;
        self.used -= done;
        Ok(done)
    }

    /// The ring as it was at first: empty, generation 0. Only while the chip reads none of it.
    pub fn reset(&mut self) {
        (self.head, self.tail, self.used, self.generation) = (0, 0, 0, 0);
        self.region.memory().store_u64(head_at(self.len), 0);
    }
}

/// Where the head word stands, bytes.
fn head_at(len: u32) -> usize {
    (len as usize * SdmaDesc::LEN_BYTES).next_multiple_of(HEAD_ALIGN_BYTES)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::PlainMapper;

    fn ring(len: u32) -> Ring {
        Ring::allocate(len, &mut PlainMapper::default()).expect("memory")
    }

    fn desc_at(ring: &Ring, index: u32) -> SdmaDesc {
        let mut bytes = [0; SdmaDesc::LEN_BYTES];
        ring.region.memory().copy_out(index as usize * SdmaDesc::LEN_BYTES, &mut bytes);
        SdmaDesc::parse(bytes)
    }

    #[test]
    fn descriptors_carry_the_generation_of_their_round() {
        let mut ring = ring(3);
        let desc = SdmaDesc::new(0x1_2345_6788, 7).expect("a descriptor");
        for n in 0..15_u32 {
            ring.push(desc);
            let written = desc_at(&ring, n % 3);
            assert_eq!(u32::from(written.word0.generation()), n / 3 % 4);
            assert_eq!((written.iova(), written.word0.len_dwords()), (0x1_2345_6788, 7));
            assert_eq!(ring.advance(u64::from((n + 1) % 3)), Ok(1));
        }
    }

    #[test]
    fn head_word_stands_behind_the_descriptors_on_a_line_of_its_own() {
        let ring = ring(5);
        assert_eq!(ring.head_iova() - ring.iova(), 128);
        ring.region.memory().store_u64(128, 4);
        assert_eq!(ring.head_word(), 4);
    }

    #[test]
    fn head_outside_of_what_is_in_flight_is_refused_and_changes_nothing() {
        let mut ring = ring(8);
        let desc = SdmaDesc::new(0, 1).expect("a descriptor");
        (0..3).for_each(|_| ring.push(desc));
        for head in [4, 7, 8, 0xFFFF, u64::MAX] {
            assert_eq!(ring.advance(head), Err(BadHead { head, from: 0, to: 3 }));
            assert_eq!((ring.used(), ring.free()), (3, 4));
        }
        assert_eq!(ring.advance(3), Ok(3));
    }

    proptest! {
        /// Whatever the chip writes, descriptors that are in flight plus free ones are all but one, and the head moves
        /// forward over written descriptors only.
        #[test]
        fn head_of_any_value_never_frees_more_than_was_written(
            len in 2_u32..20,
            steps in prop::collection::vec((any::<bool>(), prop_oneof![0_u64..24, any::<u64>()]), 1..200),
        ) {
            let mut ring = ring(len);
            let desc = SdmaDesc::new(0x1000, 1).expect("a descriptor");
            let (mut written, mut done) = (0_u64, 0_u64);
            for (push, head) in steps {
                if push && ring.free() > 0 {
                    ring.push(desc);
                    written += 1;
                } else if let Ok(step) = ring.advance(head) {
                    done += u64::from(step);
                    prop_assert_eq!(head, done % u64::from(len));
                }
                prop_assert!(done <= written);
                prop_assert_eq!(u64::from(ring.used()), written - done);
                prop_assert_eq!(ring.used() + ring.free(), len - 1);
                prop_assert_eq!(u64::from(ring.tail()), written % u64::from(len));
            }
        }
    }
}
