//! Instructions of one PIO send: claim, control word and header copy included, payload copy excluded.
//!
//! The aim is [`AIM`] instructions from `submit`'s entry to its return, and is **missed**; the gate is [`REACHED`], so
//! that what has been reached is not lost again. The bar counts reads; there must be none.
//!
//! Tried so far: a flag for plain frames and no copy of the headers (205 to 164), a burst without a loop (133), and a list
//! of reserved buffers (120 for a send, but 160 with the reserving shared among its sixteen, so it was left).

#![allow(missing_docs, reason = "gungraun's macros make public items")]

use std::hint::black_box;

use gungraun::prelude::*;
use gungraun::{Callgrind, EventKind, LibraryBenchmarkConfig};
use qhca_bench::device::{HEADER_DWORDS, StoreBar, sender};
use qhca_driver::tx::{Frame, Payload, Sender};
use qhca_regs::Port;

/// What a send should cost.
#[allow(dead_code, reason = "named by the chapter's head; the gate falls to it when it is met")]
const AIM: u64 = 80;
/// What a send may cost at present: 133 were counted, of them some ten of the harness.
const REACHED: u64 = 140;

/// A sender with free buffers, its bar and a packet, where they stay: none is built or moved in the count.
struct Input {
    sender: Sender,
    bar: StoreBar,
    frame: Frame<'static>,
}

/// LRH, BTH and DETH of no particular packet.
static HEADER: [u32; HEADER_DWORDS as usize] = [0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77];

/// After `sent` packets.
fn ready(sent: usize) -> &'static mut Input {
    let frame = Frame::new(Port::P0, &HEADER, Payload::None);
    let input = Box::leak(Box::new(Input { sender: sender(32), bar: StoreBar::new(), frame }));
    for _ in 0..sent {
        input.sender.submit(&input.bar, &input.frame).expect("a free buffer");
    }
    input
}

/// Fails the run above `instructions`.
fn at_most(instructions: u64) -> LibraryBenchmarkConfig {
    let mut config = LibraryBenchmarkConfig::default();
    config.tool(Callgrind::default().hard_limits([(EventKind::Ir, instructions)]));
    config
}

/// Outside the count: the packet was sent and no register was read.
fn check(Input { sender, bar, .. }: &'static mut Input) {
    assert!(sender.counts().packets >= 1 && sender.counts().would_block == 0);
    assert_eq!(bar.reads(), 0);
}

#[library_benchmark]
#[bench::first(args = (0), setup = ready, teardown = check, config = at_most(REACHED))]
#[bench::after_twenty(args = (20), setup = ready, teardown = check, config = at_most(REACHED))]
fn submit(input: &'static mut Input) -> &'static mut Input {
    // The verdict is looked at, and not copied about: the copy would be counted.
    black_box(input.sender.submit(&input.bar, &input.frame).is_ok());
    input
}

library_benchmark_group!(name = send, benchmarks = [submit]);

main!(library_benchmark_groups = send);
