//! Instructions of a receive drain: RHF parse, bounds, hand-out and release of each packet included, no copy.
//!
//! The limit is 60 instructions a packet over a drain of 64, from entry to return. A drain of one and an empty drain
//! show what a drain costs by itself. The bar counts reads; there must be none.

#![allow(missing_docs, reason = "gungraun's macros make public items")]

use std::hint::black_box;

use gungraun::prelude::*;
use gungraun::{Callgrind, EventKind, LibraryBenchmarkConfig};
use qhca_bench::device::{StoreBar, context, fill};
use qhca_driver::rx::{Arrival, Context};
use qhca_regs::Instant;

/// A context with packets waiting and its bar, where they stay: neither is built or moved in the count.
type Input = (&'static mut Context, &'static StoreBar);

fn waiting(packets: u32) -> Input {
    let context = Box::leak(Box::new(context()));
    fill(context.memory(), packets);
    (context, Box::leak(Box::new(StoreBar::new())))
}

/// Fails the run above `per_packet` for a drain of 64.
fn at_most(per_packet: u64) -> LibraryBenchmarkConfig {
    let mut config = LibraryBenchmarkConfig::default();
    config.tool(Callgrind::default().hard_limits([(EventKind::Ir, per_packet * 64)]));
    config
}

/// Outside the count: everything was handed out and no register was read.
fn check(((context, bar), seen): (Input, usize)) {
    let counts = context.counts();
    assert_eq!((counts.entries(), counts.packets), (seen as u64, seen as u64));
    assert_eq!(bar.reads(), 0);
}

#[library_benchmark]
#[bench::sixty_four(args = (64), setup = waiting, teardown = check, config = at_most(60))]
#[bench::sixty_four_of_more(args = (200), setup = waiting, teardown = check, config = at_most(60))]
#[bench::one(args = (1), setup = waiting, teardown = check)]
#[bench::none(args = (0), setup = waiting, teardown = check)]
fn drain((context, bar): Input) -> (Input, usize) {
    let mut seen = 0;
    context.drain(64, bar, Instant::ZERO, |arrival| {
        if let Arrival::Packet(packet) = arrival {
            black_box(packet.payload.len());
            seen += 1;
        }
    });
    ((context, bar), seen)
}

library_benchmark_group!(name = receive, benchmarks = [drain]);

main!(library_benchmark_groups = receive);
