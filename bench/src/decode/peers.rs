//! Three other ways to write the names of set bits, for comparison.
//!
//! All have the same result for one-bit rows and a buffer that is long enough.

use std::fmt::Write;

use qhca_errdecode::Row;

use super::SixtyFlags;

/// A place to write to, that drops what does not fit.
struct Cursor<'b> {
    buf: &'b mut [u8],
    at: usize,
}

impl Cursor<'_> {
    fn push(&mut self, bytes: &[u8]) {
        let len = bytes.len().min(self.buf.len() - self.at);
        self.buf[self.at..self.at + len].copy_from_slice(&bytes[..len]);
        self.at += len;
    }
}

impl Write for Cursor<'_> {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.push(text.as_bytes());
        Ok(())
    }
}

/// The old way: the whole table, each name through the formatting machinery. Returns the length.
#[inline(never)]
pub fn formatted_walk(rows: &[Row], word: u64, buf: &mut [u8]) -> usize {
    let mut out = Cursor { buf, at: 0 };
    for row in rows {
        if word & row.mask != 0 {
            let comma = if out.at > 0 { "," } else { "" };
            // The cursor drops what does not fit and never fails.
            let _ = write!(out, "{comma}{}", row.name);
        }
    }
    out.at
}

/// The walk with lengths known beforehand, that leaves when no bit is left. Returns the length.
#[inline(never)]
pub fn early_exit_walk(rows: &[Row], mut word: u64, buf: &mut [u8]) -> usize {
    let mut out = Cursor { buf, at: 0 };
    for row in rows {
        if word == 0 {
            break;
        }
        if word & row.mask != 0 {
            if out.at > 0 {
                out.push(b",");
            }
            out.push(&row.name.as_bytes()[..usize::from(row.name_len)]);
            word &= !row.mask;
        }
    }
    out.at
}

/// `bitflags`' own iterator over names. Returns the length.
#[inline(never)]
pub fn bitflags_walk(word: u64, buf: &mut [u8]) -> usize {
    let mut out = Cursor { buf, at: 0 };
    for (name, _) in SixtyFlags::from_bits_retain(word).iter_names() {
        if out.at > 0 {
            out.push(b",");
        }
        out.push(name.as_bytes());
    }
    out.at
}
