//! The decoder: from a word to names in a buffer, a few instructions a name.
//!
//! The chip's handlers decode while errors arrive, perhaps hundreds of thousands a second, so the walk
//! must cost by the bits that are set and not by the table's length, and must never run the formatting
//! machinery. [`Table::decode`] is that walk; everything rare (the end of a short buffer, bits without
//! a name, a device that is gone) leaves it for the cold functions below.
//!
//! The text, for any buffer:
//!
//! ```text
//!   RcvEgrFullErr,HardwareErr              names in table order
//!   PCIeBusParityErr_0,PCIeBusParityErr_2  a row of several bits: which of them, from its lowest
//!   SendPktLenErr,MORE:800000              bits without a name, upper-case hex, last
//!   RcvEgrFullErr,...                      it did not all fit: whole items, then the mark
//!   device not responding                  a register read as all ones
//! ```

use crate::Table;
use crate::table::{CAREFUL_RANK, CELL_LEN};

/// Ends a text that did not fit; clipped itself when the buffer is shorter than the mark.
pub const TRUNCATION_MARK: &str = "...";

/// The text for a register that was read as all ones.
pub const GONE_TEXT: &str = "device not responding";

/// Goes before bits that have no name.
const MORE: &[u8; 5] = b"MORE:";

/// What [`Table::decode`] wrote.
#[derive(Clone, Copy, Debug)]
pub struct Decoded<'b> {
    buf: &'b [u8],
    written: Written,
}

/// The decoder's answer without the buffer: two machine words, which come back in registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Written {
    /// Bits that no name stands for.
    unknown: u64,
    /// Bytes of text, and [`Self::TRUNCATED`].
    len_and_mark: u64,
}

impl Written {
    /// Set when the buffer was too short. No length reaches this bit.
    const TRUNCATED: u64 = 1 << 63;
}

impl<'b> Decoded<'b> {
    /// The text. Checked as UTF-8 here and not in the decoder, which writes ASCII only.
    #[must_use]
    pub fn as_str(&self) -> &'b str {
        // ASCII by construction (tables assert it), so the fallback is never taken.
        core::str::from_utf8(self.as_bytes()).unwrap_or_default()
    }

    /// The text's bytes: the start of the buffer given to the decoder.
    #[must_use]
    pub fn as_bytes(&self) -> &'b [u8] {
        &self.buf[..self.len()]
    }

    /// Length of the text in bytes.
    #[must_use]
    pub const fn len(&self) -> usize {
        (self.written.len_and_mark & !Written::TRUNCATED) as usize
    }

    /// Whether nothing was written: no bit was set, or there was no room at all.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bits that have no name, whether or not their hex fitted the buffer.
    #[must_use]
    pub const fn unknown(&self) -> u64 {
        self.written.unknown
    }

    /// Whether the buffer was too short for the whole text.
    #[must_use]
    pub const fn is_truncated(&self) -> bool {
        self.written.len_and_mark & Written::TRUNCATED != 0
    }
}

impl core::fmt::Display for Decoded<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.pad(self.as_str())
    }
}

impl Table {
    /// Writes the names of the bits set in `word` into `buf`, in table order, comma separated.
    ///
    /// `buf` may have any length; when the text does not fit, it holds as many whole names as leave
    /// room for [`TRUNCATION_MARK`], then the mark. Bytes of `buf` behind the text are not meaningful
    /// afterwards.
    #[inline]
    pub fn decode<'b>(&self, word: u64, buf: &'b mut [u8]) -> Decoded<'b> {
        let written = self.write_names(word, buf);
        Decoded { buf, written }
    }

    /// The hot walk: whole cells, lowest rank first, until no rank is left.
    #[inline(never)]
    fn write_names(&self, word: u64, buf: &mut [u8]) -> Written {
        let mut ranks = self.ranks(word);
        // No name at all, or the rank of what needs care, which is the sign bit.
        if ranks.cast_signed() <= 0 {
            return self.write_carefully(word, buf, 0);
        }
        let capacity = buf.len();
        let mut room = &mut *buf;
        loop {
            let Some(window) = room.first_chunk_mut::<CELL_LEN>() else {
                let done = capacity - room.len();
                return self.write_carefully(word, buf, done);
            };
            let rank = first(ranks);
            *window = self.cells[rank].0;
            room = &mut room[usize::from(self.lens[rank]) % CELL_LEN..];
            ranks &= ranks - 1;
            if ranks == 0 {
                break;
            }
        }
        // Each name brought a comma; the last one's is cut off again.
        let len = capacity - room.len() - 1;
        Written { unknown: 0, len_and_mark: len as u64 }
    }

    /// Everything rare: no name to write, bits without one, a device that is gone, less than a cell of
    /// room. The first `done` bytes hold names and commas already.
    ///
    /// Takes what the hot walk has in registers anyway and finds the rest again, so that the walk needs
    /// to save nothing for this call.
    #[cold]
    #[inline(never)]
    fn write_carefully(&self, word: u64, buf: &mut [u8], done: usize) -> Written {
        if self.is_gone(word) {
            let mut tail = Tail::new(buf, 0, GONE_TEXT.len() + 1);
            tail.push(GONE_TEXT.as_bytes());
            return tail.finish(0);
        }
        let unknown = self.unknown(word);
        let more = More::new(unknown);
        let mut ranks = self.ranks(word) & !CAREFUL_RANK;
        let mut skipped = 0;
        while skipped < done {
            skipped += usize::from(self.lens[first(ranks)]);
            ranks &= ranks - 1;
        }
        let mut needed = done + more.len();
        let mut left = ranks;
        while left != 0 && needed <= buf.len() + 1 {
            needed += usize::from(self.lens[first(left)]);
            left &= left - 1;
        }
        let mut tail = Tail::new(buf, done, needed);
        while ranks != 0 && tail.push(self.name(first(ranks)).as_bytes()) {
            ranks &= ranks - 1;
        }
        if ranks == 0 && unknown != 0 {
            tail.push(more.as_bytes());
        }
        tail.finish(unknown)
    }
}

/// The lowest set rank. `ranks` is not 0; the remainder only drops bounds checks.
#[inline(always)]
fn first(ranks: u64) -> usize {
    ranks.trailing_zeros() as usize % 64
}

/// Appends whole items near the end of a buffer.
struct Tail<'b> {
    buf: &'b mut [u8],
    /// Where the next item starts: behind the comma of the one before.
    at: usize,
    /// An item and its comma must end at or before this place.
    limit: usize,
    truncated: bool,
}

impl<'b> Tail<'b> {
    /// `needed` is the length of the whole text with a comma behind each item, the last one included.
    ///
    /// When everything fits, that last comma may fall off the end. When not, the mark needs room
    /// behind whatever is kept; names written before have left it (`MAX_NAME_LEN`).
    fn new(buf: &'b mut [u8], at: usize, needed: usize) -> Self {
        let truncated = needed > buf.len() + 1;
        let limit = if truncated { buf.len().saturating_sub(TRUNCATION_MARK.len()) } else { buf.len() + 1 };
        Self { buf, at, limit, truncated }
    }

    /// Appends an item and a comma if there is room for both; says whether there was.
    fn push(&mut self, item: &[u8]) -> bool {
        let comma = self.at + item.len();
        if comma >= self.limit {
            return false;
        }
        self.buf[self.at..comma].copy_from_slice(item);
        if let Some(byte) = self.buf.get_mut(comma) {
            *byte = b',';
        }
        self.at = comma + 1;
        true
    }

    /// Cuts the last comma off, or appends the mark.
    fn finish(self, unknown: u64) -> Written {
        let Self { buf, at, truncated, .. } = self;
        if !truncated {
            return Written { unknown, len_and_mark: at.saturating_sub(1) as u64 };
        }
        let end = buf.len().min(at + TRUNCATION_MARK.len());
        buf[at..end].copy_from_slice(&TRUNCATION_MARK.as_bytes()[..end - at]);
        Written { unknown, len_and_mark: end as u64 | Written::TRUNCATED }
    }
}

/// `MORE:` and the bits without a name in upper-case hex, without leading zeros.
struct More {
    text: [u8; MORE.len() + 16],
    used: usize,
}

impl More {
    fn new(unknown: u64) -> Self {
        let mut text = [0; MORE.len() + 16];
        text[..MORE.len()].copy_from_slice(MORE);
        let digits = (64 - unknown.leading_zeros()).div_ceil(4);
        let mut used = MORE.len();
        for digit in (0..digits).rev() {
            let nibble = (unknown >> (4 * digit) & 0xF) as usize;
            // A planted fault, for the proof that the fuzzer reaches this far: one digit of one place is wrong.
            #[cfg(canary)]
            let nibble = if digit == 11 && nibble == 0xD { 0xC } else { nibble };
            text[used] = b"0123456789ABCDEF"[nibble];
            used += 1;
        }
        Self { text, used: if unknown == 0 { 0 } else { used } }
    }

    /// Length with its comma; 0 when there are no such bits.
    fn len(&self) -> usize {
        if self.used == 0 { 0 } else { self.used + 1 }
    }

    fn as_bytes(&self) -> &[u8] {
        &self.text[..self.used]
    }
}
