//! Which send buffers of one owner are free.
//!
//! The chip writes two bits a buffer to host memory: *check*, which toggles each time the buffer is taken, and
//! *busy*. The image is always a little late, so a busy bit of 0 may be from before the buffer was taken. The pool
//! keeps its own copy of both bits; it believes the image's busy bit only where the check bits agree, for then the
//! chip has seen the last taking (F-014).
//!
//! ```text
//!           pool        image
//!   take    busy 1 check 1    busy 0 check 0   late: not believed
//!           busy 1 check 1    busy 1 check 1   taken
//!   sent    busy 0 check 1 ◄─ busy 0 check 1   believed: free again
//! ```
//!
//! Pure arithmetic over six words; whoever owns the pool brings the image.

use std::fmt;

use qhca_regs::layout::AvailWords;
use qhca_regs::{Buffer, BufferKind, Port};

/// The check bits of a word; the busy bit of a buffer is one higher.
const CHECK_BITS: u64 = 0x5555_5555_5555_5555;
/// Words of the image.
const WORDS: usize = AvailWords::LEN_QWORDS;
/// The words that hold the small buffers.
const SMALL_WORDS: std::ops::Range<usize> = 0..4;
/// The word that holds the large buffers.
const LARGE_WORD: usize = 4;
/// The word that holds the VL15 buffers.
const VL15_WORD: usize = 5;

/// The buffers of one owner. Bits stand at the buffer's check position in each word.
#[derive(Clone, Debug)]
pub struct Pool {
    owned: [u64; WORDS],
    busy: [u64; WORDS],
    check: [u64; WORDS],
}

/// Why a pool cannot be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PoolError {
    /// The chip has no buffer of that number.
    NoSuchBuffer {
        /// The number.
        index: usize,
    },
}

impl fmt::Display for PoolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSuchBuffer { index } => {
                write!(f, "send buffer {index} for a pool: the chip has 0 to {}", Buffer::COUNT - 1)
            }
        }
    }
}

impl std::error::Error for PoolError {}

impl Pool {
    /// A pool of `buffers`, whose state the chip has written to `image`: what is busy there is waited for.
    pub fn new(buffers: impl IntoIterator<Item = Buffer>, image: &AvailWords) -> Self {
        let mut owned = [0; WORDS];
        for buffer in buffers {
            let (word, bit) = AvailWords::place(buffer);
            owned[word] |= 1 << bit;
        }
        let mut pool = Self { owned, busy: [0; WORDS], check: [0; WORDS] };
        for (word, image) in image.0.into_iter().enumerate() {
            pool.busy[word] = image >> 1 & CHECK_BITS & owned[word];
            pool.check[word] = image & CHECK_BITS & owned[word];
        }
        pool
    }

    /// A pool of the buffers with these numbers.
    ///
    /// # Errors
    /// [`PoolError::NoSuchBuffer`] names the first number that the chip does not have.
    pub fn of_indices(
        indices: impl IntoIterator<Item = usize>,
        image: &AvailWords,
    ) -> Result<Self, PoolError> {
        let buffers: Result<Vec<Buffer>, PoolError> = indices
            .into_iter()
            .map(|index| Buffer::new(index).ok_or(PoolError::NoSuchBuffer { index }))
            .collect();
        Ok(Self::new(buffers?, image))
    }

    /// Believes `image` in everything: the chip was reset and knows of no packet any more.
    pub fn restart(&mut self, image: &AvailWords) {
        for (word, image) in image.0.into_iter().enumerate() {
            self.busy[word] = image >> 1 & CHECK_BITS & self.owned[word];
            self.check[word] = image & CHECK_BITS & self.owned[word];
        }
    }

    /// The buffers of the pool, ascending.
    pub fn owned(&self) -> impl Iterator<Item = Buffer> + use<> {
        buffers_in(self.owned)
    }

    /// The buffers that are taken, as far as the pool knows, ascending.
    pub fn taken(&self) -> impl Iterator<Item = Buffer> + use<> {
        buffers_in(self.busy)
    }

    /// How many buffers are free, as far as the pool knows.
    pub fn free_count(&self) -> usize {
        (0..WORDS).map(|word| self.free_in(word).count_ones() as usize).sum()
    }

    /// Whether the pool has a buffer of the kind that `kind` asks for, free or not.
    pub fn has_kind(&self, kind: BufferKind) -> bool {
        self.owned().any(|buffer| buffer.kind() == kind)
    }

    /// Takes a free buffer that holds `dwords`, PBC included: the smallest kind that does, a large one if no small
    /// one is free.
    #[inline]
    pub fn take(&mut self, dwords: usize) -> Option<Buffer> {
        if dwords <= BufferKind::Small.len_dwords() {
            for word in SMALL_WORDS {
                let free = self.free_in(word);
                if free != 0 {
                    return self.take_bit(word, free);
                }
            }
        }
        self.take_bit(LARGE_WORD, self.free_in(LARGE_WORD))
    }

    /// Takes the VL15 buffer of `port` if it is free.
    #[inline]
    pub fn take_vl15(&mut self, port: Port) -> Option<Buffer> {
        let (_, bit) = AvailWords::place(Buffer::vl15(port));
        self.take_bit(VL15_WORD, self.free_in(VL15_WORD) & 1 << bit)
    }

    /// Learns from the chip's words which buffers are free again; says how many there were.
    #[inline]
    pub fn refresh(&mut self, mut image_word: impl FnMut(usize) -> u64) -> u32 {
        let mut freed = 0;
        for word in 0..WORDS {
            if self.busy[word] != 0 {
                let image = image_word(word);
                let agree = !(image ^ self.check[word]);
                // A planted fault: one large buffer is believed to be free under the check bit of before.
                #[cfg(canary)]
                let agree = agree | u64::from(word == LARGE_WORD) << 4;
                let now_free = self.busy[word] & agree & !(image >> 1);
                self.busy[word] &= !now_free;
                freed += now_free.count_ones();
            }
        }
        freed
    }

    #[inline]
    fn free_in(&self, word: usize) -> u64 {
        self.owned[word] & !self.busy[word]
    }

    /// Takes the lowest buffer of `free`, a part of the free ones of `word`.
    #[inline]
    fn take_bit(&mut self, word: usize, free: u64) -> Option<Buffer> {
        let lowest = free & free.wrapping_neg();
        // With nothing free the bit number is 64, and the buffer's number may even exist: so look at `free` first.
        let buffer = Buffer::new(word * 32 + lowest.trailing_zeros() as usize / 2).filter(|_| free != 0)?;
        self.busy[word] |= lowest;
        self.check[word] ^= lowest;
        Some(buffer)
    }
}

/// Dwords that a kind of buffer holds; kept beside the pool, whose choice it makes.
trait Room {
    fn len_dwords(self) -> usize;
}

impl Room for BufferKind {
    #[inline]
    fn len_dwords(self) -> usize {
        // PANIC: buffers 0, 128 and 160 exist.
        let index = match self {
            Self::Small => 0,
            Self::Large => Buffer::SMALL,
            Self::Vl15(_) => Buffer::SMALL + Buffer::LARGE,
        };
        Buffer::new(index).expect("a buffer of each kind").len_dwords()
    }
}

fn buffers_in(words: [u64; WORDS]) -> impl Iterator<Item = Buffer> + use<> {
    let set = move |buffer: &Buffer| {
        let (word, bit) = AvailWords::place(*buffer);
        words[word] >> bit & 1 != 0
    };
    (0..Buffer::COUNT).filter_map(Buffer::new).filter(set)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use qhca_regs::layout::BufferState;

    use super::*;

    /// A chip that takes and frees buffers, and whose image is as late as the test likes.
    #[derive(Default)]
    struct LateChip {
        now: AvailWords,
        image: AvailWords,
    }

    impl LateChip {
        fn on_taken(&mut self, buffer: Buffer) {
            let check = !self.now.state(buffer).check;
            self.now.set(buffer, BufferState { check, busy: true });
        }
        fn on_sent(&mut self, buffer: Buffer) {
            let check = self.now.state(buffer).check;
            self.now.set(buffer, BufferState { check, busy: false });
        }
        fn write_image(&mut self) {
            self.image = self.now;
        }
    }

    #[test]
    fn free_bit_from_before_the_taking_is_not_believed() {
        let mut chip = LateChip::default();
        let mut pool = Pool::of_indices([3], &chip.image).expect("a pool");
        let buffer = pool.take(10).expect("free");
        // The image is from before: busy 0, check 0.
        assert_eq!(pool.refresh(|word| chip.image.0[word]), 0);
        assert_eq!(pool.take(10), None);
        chip.on_taken(buffer);
        chip.write_image();
        assert_eq!(pool.refresh(|word| chip.image.0[word]), 0, "taken, not sent");
        chip.on_sent(buffer);
        chip.write_image();
        assert_eq!(pool.refresh(|word| chip.image.0[word]), 1);
        assert_eq!(pool.take(10), Some(buffer));
    }

    #[test]
    fn size_chooses_the_kind_and_small_packets_may_overflow_into_large_buffers() {
        let image = AvailWords::default();
        let mut pool = Pool::of_indices([7, 130, 160], &image).expect("a pool");
        assert_eq!(pool.take(545).map(Buffer::index), Some(130));
        assert_eq!(pool.take(545), None);
        assert_eq!(pool.take(544).map(Buffer::index), Some(7));
        assert_eq!(pool.take(2), None, "the VL15 buffer is for VL15 alone");
        assert_eq!(pool.take_vl15(Port::P1), None);
        assert_eq!(pool.take_vl15(Port::P0).map(Buffer::index), Some(160));
        let mut pool = Pool::of_indices([128], &image).expect("a pool");
        assert_eq!(pool.take(4).map(Buffer::index), Some(128));
        assert!(Pool::of_indices([162], &image).is_err());
    }

    #[test]
    fn buffer_that_was_busy_before_is_waited_for() {
        let mut chip = LateChip::default();
        let busy = Buffer::new(9).expect("a buffer");
        chip.on_taken(busy);
        chip.write_image();
        let mut pool = Pool::of_indices([9], &chip.image).expect("a pool");
        assert_eq!(pool.take(4), None);
        chip.on_sent(busy);
        chip.write_image();
        pool.refresh(|word| chip.image.0[word]);
        assert_eq!(pool.take(4), Some(busy));
    }

    proptest! {
        /// However late the image is, no buffer is lent twice, and none is lost once the image is up to date.
        #[test]
        fn buffers_are_never_lent_twice(steps in prop::collection::vec((0_u8..5, 0_usize..600, any::<prop::sample::Index>()), 1..400)) {
            let mut chip = LateChip::default();
            let indices: Vec<usize> = (118..132).collect();
            let mut pool = Pool::of_indices(indices.clone(), &chip.image).expect("a pool");
            let mut lent: Vec<Buffer> = Vec::new();
            let mut unseen: Vec<Buffer> = Vec::new();
            for (what, dwords, pick) in steps {
                match what {
                    0 | 1 => if let Some(buffer) = pool.take(dwords) {
                        prop_assert!(!lent.contains(&buffer) && !unseen.contains(&buffer), "lent twice: {buffer}");
                        prop_assert!(buffer.len_dwords() >= dwords);
                        unseen.push(buffer);
                    },
                    2 => if let Some(buffer) = unseen.pop() {
                        chip.on_taken(buffer);
                        lent.push(buffer);
                    },
                    3 if !lent.is_empty() => chip.on_sent(lent.swap_remove(pick.index(lent.len()))),
                    _ => {
                        chip.write_image();
                        pool.refresh(|word| chip.image.0[word]);
                    }
                }
            }
            for buffer in unseen.drain(..) {
                chip.on_taken(buffer);
                lent.push(buffer);
            }
            lent.drain(..).for_each(|buffer| chip.on_sent(buffer));
            chip.write_image();
            pool.refresh(|word| chip.image.0[word]);
            prop_assert_eq!(pool.free_count(), indices.len());
        }
    }
}
