//! Decoders to compare the shipped one with, and the words they are given.

mod peers;
mod sixty;

pub use peers::{bitflags_walk, early_exit_walk, formatted_walk};
pub use sixty::{SIXTY, SixtyFlags};

use qhca_errdecode::Table;

/// `count` bits of a table, spread over it from its first row on. 1 is the first row alone.
#[must_use]
pub fn spread(table: &Table, count: usize) -> u64 {
    let rows = table.rows();
    (0..count).map(|n| rows[n * rows.len() / count].mask).fold(0, |word, mask| word | mask)
}

/// The last row of a table.
#[must_use]
pub fn last(table: &Table) -> u64 {
    table.rows().last().map_or(0, |row| row.mask)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(word: u64) -> [String; 4] {
        let text = |decode: &dyn Fn(&mut [u8]) -> usize| {
            let mut buf = [0; 1100];
            let len = decode(&mut buf);
            String::from_utf8(buf[..len].to_vec()).expect("names are ASCII")
        };
        [
            text(&|buf| SIXTY.decode(word, buf).len()),
            text(&|buf| formatted_walk(SIXTY.rows(), word, buf)),
            text(&|buf| early_exit_walk(SIXTY.rows(), word, buf)),
            text(&|buf| bitflags_walk(word, buf)),
        ]
    }

    #[test]
    fn all_decoders_write_the_same_text() {
        for word in [1, 3, 16, 60].map(|count| spread(&SIXTY, count)).into_iter().chain([last(&SIXTY), 0]) {
            let [shipped, peers @ ..] = texts(word);
            for peer in peers {
                assert_eq!(peer, shipped, "{word:#x}");
            }
        }
    }

    #[test]
    fn spread_sets_as_many_bits_as_asked() {
        for count in [1, 3, 16, 60] {
            assert_eq!(spread(&SIXTY, count).count_ones() as usize, count);
        }
        assert_eq!(spread(&SIXTY, 1), 1 << 12);
    }
}
