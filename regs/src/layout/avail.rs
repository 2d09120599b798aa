//! The send-buffer availability image: two bits a buffer, written by the chip to host memory (F-014).
//!
//! ```text
//!          63 62 61 60          3  2  1  0
//! qword 0 |b  c |b  c | ...... |b  c |b  c |     c check: toggles each time the buffer is taken
//!          └ 31 ┘              └ 1 ┘ └ 0 ┘        b busy: the chip still holds it
//! ...
//! qword 5 | unused ............. 161 | 160 |
//! ```
//!
//! The image is always a little late. Software keeps a shadow: on taking a buffer it sets busy and flips check there;
//! when the image's check equals the shadow's, the chip has seen that taking, and the image's busy bit is the truth.

use crate::ids::Buffer;

/// What the image says of one buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct BufferState {
    /// Toggles with every use of the buffer.
    pub check: bool,
    /// The chip holds a packet in it that has not left.
    pub busy: bool,
}

/// The whole image: six qwords, 162 buffers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AvailWords(pub [u64; Self::LEN_QWORDS]);

impl AvailWords {
    /// Qwords of the image.
    pub const LEN_QWORDS: usize = 6;
    /// Bytes of the image.
    pub const LEN_BYTES: usize = Self::LEN_QWORDS * 8;

    /// The qword that holds `buffer`, and the number of its check bit there; the busy bit is the next higher.
    #[inline]
    pub const fn place(buffer: Buffer) -> (usize, u32) {
        (buffer.index() / 32, 2 * (buffer.index() % 32) as u32)
    }

    /// The state of `buffer` in `word`, the qword that [`place`](Self::place) names.
    #[inline]
    pub const fn state_in(word: u64, buffer: Buffer) -> BufferState {
        let (_, bit) = Self::place(buffer);
        BufferState { check: word >> bit & 1 != 0, busy: word >> bit & 2 != 0 }
    }

    /// The state of `buffer`.
    #[inline]
    pub const fn state(&self, buffer: Buffer) -> BufferState {
        Self::state_in(self.0[Self::place(buffer).0], buffer)
    }

    /// Sets the state of `buffer`.
    #[inline]
    pub const fn set(&mut self, buffer: Buffer, state: BufferState) {
        let (word, bit) = Self::place(buffer);
        let bits = state.check as u64 | (state.busy as u64) << 1;
        self.0[word] = self.0[word] & !(3 << bit) | bits << bit;
    }

    /// From the bytes in memory.
    pub fn parse(bytes: [u8; Self::LEN_BYTES]) -> Self {
        let (qwords, _) = bytes.as_chunks::<8>();
        Self(core::array::from_fn(|n| u64::from_le_bytes(qwords[n])))
    }

    /// The bytes in memory.
    pub fn build(&self) -> [u8; Self::LEN_BYTES] {
        core::array::from_fn(|n| self.0[n / 8].to_le_bytes()[n % 8])
    }
}
