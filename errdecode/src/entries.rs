//! Iteration over the flags of a word, for code that wants rows and not text.

use crate::{Row, Table};

/// One set flag.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// The bit's number in the word.
    pub bit: u8,
    /// The bit's name; a row of several bits adds `_n`, counted from its lowest.
    pub name: &'static str,
    /// What is known about it.
    pub row: &'static Row,
}

/// The flags set in a word, in table order. Made by [`Table::entries`].
#[derive(Clone, Debug)]
pub struct Entries {
    table: &'static Table,
    ranks: u64,
}

impl Entries {
    pub(crate) const fn new(table: &'static Table, ranks: u64) -> Self {
        Self { table, ranks }
    }
}

impl Iterator for Entries {
    type Item = Entry;

    fn next(&mut self) -> Option<Entry> {
        if self.ranks == 0 {
            return None;
        }
        let rank = self.ranks.trailing_zeros() as usize;
        self.ranks &= self.ranks - 1;
        let (bit, row, name) = self.table.at_rank(rank);
        Some(Entry { bit, name, row })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.ranks.count_ones() as usize;
        (left, Some(left))
    }
}

impl ExactSizeIterator for Entries {}
impl core::iter::FusedIterator for Entries {}
