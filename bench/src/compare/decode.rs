//! The shipped decoder beside three other ways, on the table of sixty names.

use std::hint::black_box;

use super::{Limit, Section};
use crate::decode::{SIXTY, bitflags_walk, early_exit_walk, formatted_walk, spread};
use crate::interleave::{Candidate, interleave};

const REPEATS: u32 = 20_000;

/// One section for each number of bits. The limits are those of the instruction counts (`benches/decode.rs`).
pub(super) fn sections(rounds: usize) -> Vec<Section> {
    [(1, 0.75), (3, 0.16), (60, 0.35)].into_iter().map(|(bits, limit)| section(rounds, bits, limit)).collect()
}

fn section(rounds: usize, bits: usize, at_most: f64) -> Section {
    let word = spread(&SIXTY, bits);
    let rows = SIXTY.rows();
    let [mut a, mut b, mut c, mut d] = [[0; 1100]; 4];
    let candidates = vec![
        Candidate::timed("early exit", REPEATS, || {
            black_box(early_exit_walk(rows, black_box(word), &mut a));
        }),
        Candidate::timed("shipped", REPEATS, || {
            black_box(SIXTY.decode(black_box(word), &mut b).len());
        }),
        Candidate::timed("bitflags", REPEATS, || {
            black_box(bitflags_walk(black_box(word), &mut c));
        }),
        Candidate::timed("formatted", REPEATS / 10, || {
            black_box(formatted_walk(rows, black_box(word), &mut d));
        }),
    ];
    Section {
        title: format!("decode {bits} of 60 bits"),
        comparison: interleave(rounds, candidates),
        limits: vec![Limit::new("shipped", "early exit", at_most)],
    }
}
