//! Instructions of one decode: the shipped decoder with its limits, and its peers.
//!
//! `cargo bench -p qhca-bench --bench decode`; needs valgrind and gungraun-runner of the version in
//! `Cargo.lock`. A count over its limit fails the run.

#![allow(missing_docs, reason = "gungraun's macros make public items")]

use gungraun::prelude::*;
use gungraun::{Callgrind, EventKind, LibraryBenchmarkConfig};
use qhca_bench::decode::{SIXTY, bitflags_walk, early_exit_walk, formatted_walk, last, spread};
use qhca_errdecode::{Scope, decode};

/// A word and a buffer that lives as long as the run, so that neither is built or freed in the count.
type Input = (u64, &'static mut [u8]);

fn with_buffer(word: u64) -> Input {
    (word, vec![0; 1100].leak())
}

fn sixty(count: usize) -> Input {
    with_buffer(spread(&SIXTY, count))
}

fn sixty_last(_: ()) -> Input {
    with_buffer(last(&SIXTY))
}

fn sixty_short(len: usize) -> Input {
    (spread(&SIXTY, 60), vec![0; len].leak())
}

fn real(scope: Scope, count: usize) -> (Scope, u64, &'static mut [u8]) {
    let (word, buf) = with_buffer(spread(scope.table(), count));
    (scope, word, buf)
}

/// Fails the run above `instructions`.
fn at_most(instructions: u64) -> LibraryBenchmarkConfig {
    let mut config = LibraryBenchmarkConfig::default();
    config.tool(Callgrind::default().hard_limits([(EventKind::Ir, instructions)]));
    config
}

#[library_benchmark]
#[bench::one_first(args = (1), setup = sixty, config = at_most(68))]
#[bench::one_last(args = (()), setup = sixty_last, config = at_most(68))]
#[bench::three(args = (3), setup = sixty, config = at_most(112))]
#[bench::sixteen(args = (16), setup = sixty, config = at_most(400))]
#[bench::all_sixty(args = (60), setup = sixty, config = at_most(1370))]
#[bench::all_sixty_into_128(args = (128), setup = sixty_short)]
fn shipped((word, buf): Input) -> usize {
    SIXTY.decode(word, buf).len()
}

#[library_benchmark]
#[bench::device_first(args = (Scope::Device, 1), setup = real, config = at_most(80))]
#[bench::device_all(args = (Scope::Device, 14), setup = real)]
#[bench::hardware_all(args = (Scope::Hardware, 17), setup = real)]
#[bench::port_first(args = (Scope::Port, 1), setup = real, config = at_most(80))]
#[bench::port_three(args = (Scope::Port, 3), setup = real)]
#[bench::port_all(args = (Scope::Port, 39), setup = real)]
#[bench::interrupt_all(args = (Scope::Interrupt, 50), setup = real)]
fn shipped_by_scope((scope, word, buf): (Scope, u64, &'static mut [u8])) -> usize {
    decode(scope, word, buf).len()
}

#[library_benchmark]
#[bench::one_first(args = (1), setup = sixty)]
#[bench::one_last(args = (()), setup = sixty_last)]
#[bench::three(args = (3), setup = sixty)]
#[bench::sixteen(args = (16), setup = sixty)]
#[bench::all_sixty(args = (60), setup = sixty)]
fn peer_formatted((word, buf): Input) -> usize {
    formatted_walk(SIXTY.rows(), word, buf)
}

#[library_benchmark]
#[bench::one_first(args = (1), setup = sixty)]
#[bench::one_last(args = (()), setup = sixty_last)]
#[bench::three(args = (3), setup = sixty)]
#[bench::sixteen(args = (16), setup = sixty)]
#[bench::all_sixty(args = (60), setup = sixty)]
fn peer_early_exit((word, buf): Input) -> usize {
    early_exit_walk(SIXTY.rows(), word, buf)
}

#[library_benchmark]
#[bench::one_first(args = (1), setup = sixty)]
#[bench::one_last(args = (()), setup = sixty_last)]
#[bench::three(args = (3), setup = sixty)]
#[bench::sixteen(args = (16), setup = sixty)]
#[bench::all_sixty(args = (60), setup = sixty)]
fn peer_bitflags((word, buf): Input) -> usize {
    bitflags_walk(word, buf)
}

library_benchmark_group!(
    name = decoders,
    benchmarks = [shipped, shipped_by_scope, peer_formatted, peer_early_exit, peer_bitflags]
);

main!(library_benchmark_groups = decoders);
