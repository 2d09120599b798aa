//! The copy into a send buffer: `Bar::burst` of the mapped window, on ordinary memory, beside plain copies.
//!
//! The window stores 64 bits at a time, volatile, since a device sees each store (F-001, F-011). `memcpy` may store 512
//! bits at a time, which scalar stores cannot follow.

use std::hint::black_box;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use qhca_regs::{Bar, MemoryWindow};

use super::{Limit, Section};
use crate::interleave::{Candidate, interleave};

const SCALAR: &str = "out of reach of 64-bit scalar stores";
/// A memcpy of 2 KiB that lies in the nearest cache stores eight times as much at once; a tenth of the rate is the least that a busy machine shows.
const MEMCPY_HELD_AT: f64 = 10.0;

/// One section for each length.
pub(super) fn sections(rounds: usize) -> Vec<Section> {
    [64, 256, 2048, 4096].into_iter().map(|len_bytes| section(rounds, len_bytes)).collect()
}

fn section(rounds: usize, len_bytes: usize) -> Section {
    let dwords: Vec<u32> = (0..len_bytes as u32 / 4).collect();
    let qwords: Vec<u64> = dwords.chunks_exact(2).map(|p| u64::from(p[0]) | u64::from(p[1]) << 32).collect();
    let mut memory = vec![0; len_bytes / 8];
    let window = MemoryWindow::new(&mut memory);
    let to_64: Vec<AtomicU64> = qwords.iter().map(|_| AtomicU64::new(0)).collect();
    let to_32: Vec<AtomicU32> = dwords.iter().map(|_| AtomicU32::new(0)).collect();
    let mut to_any = vec![0_u32; dwords.len()];
    let repeats = 4_000_000 / (len_bytes as u32 + 64);
    let candidates = vec![
        Candidate::timed("u64 loop", repeats, || u64_loop(&to_64, black_box(&qwords))),
        Candidate::timed("burst", repeats, || window.burst(black_box(0), black_box(&dwords))),
        Candidate::timed("u32 loop", repeats, || u32_loop(&to_32, black_box(&dwords))),
        Candidate::timed("memcpy", repeats, || {
            to_any.copy_from_slice(black_box(&dwords));
            black_box(&mut to_any);
        }),
    ];
    let to_memcpy = Limit::new("burst", "memcpy", 1.1).missed(SCALAR, MEMCPY_HELD_AT);
    Section {
        title: format!("copy of {len_bytes} bytes into a send buffer"),
        comparison: interleave(rounds, candidates),
        limits: vec![Limit::new("burst", "u64 loop", 1.0), to_memcpy],
    }
}

/// A loop of single 64-bit stores that the compiler may not join.
#[inline(never)]
fn u64_loop(to: &[AtomicU64], from: &[u64]) {
    for (to, from) in to.iter().zip(from) {
        to.store(*from, Relaxed);
    }
}

/// The same with 32-bit stores.
#[inline(never)]
fn u32_loop(to: &[AtomicU32], from: &[u32]) {
    for (to, from) in to.iter().zip(from) {
        to.store(*from, Relaxed);
    }
}
