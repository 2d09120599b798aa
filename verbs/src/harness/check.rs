//! What can be found wrong, and the contents that messages should have.

use std::fmt;

/// A rule that was broken, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The seed that shows it.
    pub seed: u64,
    /// The rule.
    pub rule: &'static str,
    /// What was seen.
    pub seen: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed {}: {}: {}", self.seed, self.rule, self.seen)
    }
}

impl std::error::Error for Violation {}

/// A violation that does not know its seed yet.
pub(super) type Broken = (&'static str, String);

/// Memory that nobody should have touched holds this.
pub(super) const UNTOUCHED: u8 = 0xEE;

/// Byte `at` of the data of request `index` of `side`. Never [`UNTOUCHED`].
#[inline]
fn byte(side: usize, index: usize, at: usize) -> u8 {
    let mixed = (at as u8).wrapping_mul(7)
        ^ ((at >> 8) as u8).wrapping_mul(31)
        ^ (index as u8).wrapping_mul(13).wrapping_add(side as u8 * 101);
    if mixed == UNTOUCHED { 0x11 } else { mixed }
}

/// The data of request `index` of `side`.
pub(super) fn fill(bytes: &mut [u8], side: usize, index: usize) {
    for (at, to) in bytes.iter_mut().enumerate() {
        *to = byte(side, index, at);
    }
}

/// Whether `bytes` are the data of request `index` of `side`; else where they are not.
pub(super) fn compare(bytes: &[u8], side: usize, index: usize) -> Result<(), String> {
    match bytes.iter().enumerate().find(|(at, seen)| **seen != byte(side, index, *at)) {
        None => Ok(()),
        Some((at, seen)) => Err(format!(
            "side {side} request {index}: byte {at} of {} is {seen:#04x}, not {:#04x}",
            bytes.len(),
            byte(side, index, at)
        )),
    }
}

/// What an atomic does to a cell; returns what was there before.
pub(super) fn atomic(cell: &mut u64, is_swap: bool, (first, second): (u64, u64)) -> u64 {
    let before = *cell;
    if !is_swap {
        *cell = before.wrapping_add(second);
    } else if before == first {
        *cell = second;
    }
    before
}
