//! A table: the rows of one word, and what the decoder needs, computed at compile time.
//!
//! The decoder names bits in *table* order, which is not bit order (the overflows come first, F-700),
//! and it should not walk rows whose bit is clear. So each table carries a permutation: bit `b` of
//! the word becomes bit `rank(b)` of another word, whose lowest set bit is then always the next name.
//! The permutation is a sum over bytes, one lookup each:
//!
//! ```text
//!   word   [ byte 7 | byte 6 | ... | byte 0 ]
//!              |        |              |
//!          rank[7][.] rank[6][.] .. rank[0][.]     8 x 256 words, 16 KiB of constants
//!              '--------+---- or ------'
//!                       v
//!   ranks  bit 0 = first row, bit 1 = second row, ..., bit 63 = look closer
//!
//!   cell   [ name, comma, zeros .............. ]       32 bytes, one per rank
//!   len    [ bytes of name and comma ]                 one byte, one per rank
//! ```
//!
//! A cell is copied whole, two vector registers' worth, whatever the name's length; the write position
//! then moves by `len` only. A row of several bits owns several ranks and cells, `name_0`, `name_1`, …,
//! so that it costs nothing extra.
//!
//! Bits without a name all have the last rank, 63, which no name can have. So one look at the sign of
//! the permuted word tells the decoder that there is anything unusual, and all ones is always unusual.

use crate::{Row, entries::Entries};

/// Longest name that fits a cell and still leaves room for the truncation mark behind it.
pub const MAX_NAME_LEN: usize = CELL_LEN - 1 - 1 - crate::TRUNCATION_MARK.len();

/// Bytes in a cell: name, comma, zeros.
pub(crate) const CELL_LEN: usize = 32;

/// The rank of bits that have no name, and so of words that the hot walk leaves alone.
pub(crate) const CAREFUL_RANK: u64 = 1 << 63;

/// Where words of a table come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Origin {
    /// Read from a register: all ones then means that nobody answered.
    Register,
    /// Read from host memory: all ones is just a word.
    Memory,
}

/// A part of a word that is a number and not a set of flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValueField {
    /// The field's name.
    pub name: &'static str,
    /// Highest bit.
    pub msb: u32,
    /// Lowest bit.
    pub lsb: u32,
}

impl ValueField {
    /// The bits of the field.
    #[must_use]
    pub const fn mask(&self) -> u64 {
        (u64::MAX >> (63 - self.msb)) & (u64::MAX << self.lsb)
    }

    /// The field's number in `word`.
    #[must_use]
    pub const fn get(&self, word: u64) -> u64 {
        (word & self.mask()) >> self.lsb
    }
}

/// One name ready to be copied: see the module's drawing.
#[derive(Clone, Copy)]
#[repr(align(32))]
pub(crate) struct Cell(pub(crate) [u8; CELL_LEN]);

impl Cell {
    const EMPTY: Self = Self([0; CELL_LEN]);

    /// The cell, and how many of its bytes name and comma use.
    const fn new(row: &Row, index: u32) -> (Self, u8) {
        let mut text = [0; CELL_LEN];
        let name = row.name.as_bytes();
        let mut len = 0;
        while len < name.len() {
            text[len] = name[len];
            len += 1;
        }
        if row.width() > 1 {
            text[len] = b'_';
            len += 1;
            if index >= 10 {
                text[len] = b'0' + (index / 10) as u8;
                len += 1;
            }
            text[len] = b'0' + (index % 10) as u8;
            len += 1;
        }
        assert!(len <= MAX_NAME_LEN, "a name with its suffix fits its cell");
        text[len] = b',';
        (Self(text), len as u8 + 1)
    }
}

/// All rows of one word, with the decoder's tables. Built by [`table!`](macro@crate::table) only.
pub struct Table {
    pub(crate) rank: [[u64; 256]; 8],
    pub(crate) cells: [Cell; 64],
    pub(crate) lens: [u8; 64],
    bit_of: [u8; 64],
    row_of: [u8; 64],
    flags: u64,
    undefined: u64,
    origin: Origin,
    word_name: &'static str,
    rows: &'static [Row],
    values: &'static [ValueField],
}

impl Table {
    /// Computes the decoder's tables from rows.
    ///
    /// Meant for a `static`: overlapping or repeated bits and repeated names then fail the build.
    #[must_use]
    pub const fn new(
        word_name: &'static str,
        origin: Origin,
        rows: &'static [Row],
        values: &'static [ValueField],
    ) -> Self {
        let mut table = Self {
            rank: [[0; 256]; 8],
            cells: [Cell::EMPTY; 64],
            lens: [0; 64],
            bit_of: [0; 64],
            row_of: [0; 64],
            flags: 0,
            undefined: 0,
            origin,
            word_name,
            rows,
            values,
        };
        let rank_of_bit = table.place_rows();
        let careful = table.place_values();
        table.fill_ranks(&rank_of_bit, careful);
        table
    }

    /// Gives each bit of each row the next rank and a cell; returns the rank of every bit.
    const fn place_rows(&mut self) -> [u8; 64] {
        let mut rank_of_bit = [0; 64];
        let mut rank = 0;
        let mut n = 0;
        while n < self.rows.len() {
            let row = &self.rows[n];
            assert!(self.flags & row.mask == 0, "each bit belongs to one row");
            self.flags |= row.mask;
            let lsb = row.mask.trailing_zeros();
            let mut index = 0;
            while index < row.width() {
                let bit = lsb + index;
                rank_of_bit[bit as usize] = rank as u8;
                self.bit_of[rank] = bit as u8;
                self.row_of[rank] = n as u8;
                (self.cells[rank], self.lens[rank]) = Cell::new(row, index);
                rank += 1;
                index += 1;
            }
            n += 1;
        }
        rank_of_bit
    }

    /// Checks the value fields, leaves in `undefined` the bits that nothing names, and returns the bits
    /// that need care: those, or where there are none, the values, so that all ones always needs care.
    const fn place_values(&mut self) -> u64 {
        let mut defined = self.flags;
        let mut n = 0;
        while n < self.values.len() {
            let mask = self.values[n].mask();
            assert!(defined & mask == 0, "a value field overlaps nothing");
            defined |= mask;
            n += 1;
        }
        self.undefined = !defined;
        let careful = if self.undefined != 0 { self.undefined } else { !self.flags };
        assert!(careful != 0, "a word has 63 flags at most: the last rank is taken");
        careful
    }

    /// Fills the permutation.
    const fn fill_ranks(&mut self, rank_of_bit: &[u8; 64], careful: u64) {
        let mut byte = 0;
        while byte < 8 {
            let mut value = 1;
            while value < 256_usize {
                let low = value.trailing_zeros() as usize;
                let bit = byte * 8 + low;
                let own = if self.flags >> bit & 1 == 1 {
                    1 << rank_of_bit[bit]
                } else if careful >> bit & 1 == 1 {
                    CAREFUL_RANK
                } else {
                    0
                };
                // The value without its lowest bit was filled before this one.
                self.rank[byte][value] = self.rank[byte][value & (value - 1)] | own;
                value += 1;
            }
            byte += 1;
        }
    }

    /// The name of the register or memory word.
    #[must_use]
    pub const fn word_name(&self) -> &'static str {
        self.word_name
    }

    /// Where words of this table come from.
    #[must_use]
    pub const fn origin(&self) -> Origin {
        self.origin
    }

    /// The rows in decoder order.
    #[must_use]
    pub const fn rows(&self) -> &'static [Row] {
        self.rows
    }

    /// The parts of the word that are numbers.
    #[must_use]
    pub const fn values(&self) -> &'static [ValueField] {
        self.values
    }

    /// The bits that have a row.
    #[must_use]
    pub const fn flags(&self) -> u64 {
        self.flags
    }

    /// The bits of `word` that neither a row nor a value field names.
    #[must_use]
    pub const fn unknown(&self, word: u64) -> u64 {
        word & self.undefined
    }

    /// Whether `word` says that the device did not answer: all ones, read from a register.
    #[must_use]
    pub const fn is_gone(&self, word: u64) -> bool {
        crate::is_gone(word) && matches!(self.origin, Origin::Register)
    }

    /// Iterates over the flags set in `word`, in table order; none for a device that is gone.
    #[must_use]
    pub fn entries(&'static self, word: u64) -> Entries {
        let ranks = if self.is_gone(word) { 0 } else { self.ranks(word) & !CAREFUL_RANK };
        Entries::new(self, ranks)
    }

    /// The word with bit `b` moved to bit `rank(b)`.
    #[inline(always)]
    pub(crate) fn ranks(&self, word: u64) -> u64 {
        let [b0, b1, b2, b3, b4, b5, b6, b7] = word.to_le_bytes();
        let [r0, r1, r2, r3, r4, r5, r6, r7] = &self.rank;
        r0[b0 as usize]
            | r1[b1 as usize]
            | r2[b2 as usize]
            | r3[b3 as usize]
            | r4[b4 as usize]
            | r5[b5 as usize]
            | r6[b6 as usize]
            | r7[b7 as usize]
    }

    /// The bit, row and name at a rank below 64.
    pub(crate) fn at_rank(&'static self, rank: usize) -> (u8, &'static Row, &'static str) {
        (self.bit_of[rank], &self.rows[self.row_of[rank] as usize], self.name(rank))
    }

    /// The name at a rank below 64, without its comma. Empty for a rank that no row owns.
    pub(crate) fn name(&self, rank: usize) -> &str {
        let used = usize::from(self.lens[rank]);
        let bytes = &self.cells[rank].0[..used.saturating_sub(1)];
        // Names are ASCII (asserted when the table is built), so the fallback is never taken.
        core::str::from_utf8(bytes).unwrap_or_default()
    }
}

impl core::fmt::Debug for Table {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Table")
            .field("word_name", &self.word_name)
            .field("origin", &self.origin)
            .field("rows", &self.rows.len())
            .finish_non_exhaustive()
    }
}

/// Builds a `static` [`Table`] from rows in decoder order.
///
/// ```
/// use qhca_errdecode::{Groups, Severity, Text};
///
/// const PLAIN: Text = Text {
///     groups: Groups::CHIP,
///     severity: Severity::Info,
///     meaning: "shown here",
///     cause: "an example",
///     action: "read on",
///     source: "F-700",
/// };
///
/// qhca_errdecode::table! {
///     /// A word with three flags in two rows and one number.
///     pub static EXAMPLE: "Example", Register, values { Level @ 7:0 };
///     Later @ 63 => PLAIN;
///     Pair @ 31:30 => PLAIN;
/// }
///
/// let mut buf = [0; 64];
/// assert_eq!(EXAMPLE.decode(0xFFFF << 48 | 1 << 31 | 5, &mut buf).as_str(), "Later,Pair_1,MORE:7FFF000000000000");
/// ```
#[macro_export]
macro_rules! table {
    (
        $(#[$attribute:meta])*
        $vis:vis static $table:ident: $word_name:literal, $origin:ident
        $(, values { $($field:ident @ $field_msb:literal $(: $field_lsb:literal)?),+ $(,)? })?;
        $($name:ident @ $msb:literal $(: $lsb:literal)? => $text:expr;)+
    ) => {
        $(#[$attribute])*
        $vis static $table: $crate::Table = {
            static ROWS: &[$crate::Row] = &[
                $($crate::Row::new(stringify!($name), $msb, $crate::table!(@lsb $msb $($lsb)?), $text)),+
            ];
            static VALUES: &[$crate::ValueField] = &[
                $($($crate::ValueField {
                    name: stringify!($field),
                    msb: $field_msb,
                    lsb: $crate::table!(@lsb $field_msb $($field_lsb)?),
                }),+)?
            ];
            $crate::Table::new($word_name, $crate::Origin::$origin, ROWS, VALUES)
        };
    };
    (@lsb $msb:literal $lsb:literal) => { $lsb };
    (@lsb $msb:literal) => { $msb };
}
