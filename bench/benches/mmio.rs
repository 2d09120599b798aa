//! Instructions of one register access through the mapped window, and of a send-buffer copy.
//!
//! `cargo bench -p qhca-bench --bench mmio`; needs valgrind and gungraun-runner of the version in `Cargo.lock`. An access
//! is the load or store and one compare with the window's length; a count over its limit fails the run. The window is
//! ordinary memory here: what a real card adds is time on the bus, not instructions.

#![allow(missing_docs, reason = "gungraun's macros make public items")]

use gungraun::prelude::*;
use gungraun::{Callgrind, EventKind, LibraryBenchmarkConfig};
use qhca_regs::map::{device, user};
use qhca_regs::mmio::{MemoryWindow, MmioBar};
use qhca_regs::{BAR_LEN_BYTES, Bar, Buffer, Ctxt};
use std::hint::black_box;

type Window = &'static MmioBar;

/// A window as large as the chip's, and `dwords` to copy to it; nothing of either is made or freed in the count.
fn window(dwords: usize) -> (Window, &'static [u32]) {
    let memory = vec![0_u64; BAR_LEN_BYTES as usize / 8].leak();
    (Box::leak(Box::new(MemoryWindow::new(memory))), vec![0x5A; dwords].leak())
}

/// Fails the run above `instructions`.
fn at_most(instructions: u64) -> LibraryBenchmarkConfig {
    let mut config = LibraryBenchmarkConfig::default();
    config.tool(Callgrind::default().hard_limits([(EventKind::Ir, instructions)]));
    config
}

#[library_benchmark]
#[bench::scratch(args = (0), setup = window, config = at_most(8))]
fn read((bar, _): (Window, &'static [u32])) -> u64 {
    device::SCRATCH.read(bar)
}

#[library_benchmark]
#[bench::scratch(args = (0), setup = window, config = at_most(8))]
fn write((bar, _): (Window, &'static [u32])) {
    device::SCRATCH.write(bar, 7);
}

// A register of a context that is known at run time only: one shift more.
#[library_benchmark]
#[bench::head(args = (0), setup = window, config = at_most(20))]
fn doorbell((bar, _): (Window, &'static [u32])) {
    let ctxt = black_box(Ctxt::new(5)).unwrap_or_else(|| unreachable!("context 5 exists"));
    user::RCV_HDR_HEAD.ctxt(ctxt).doorbell(bar, user::RcvHdrHead(1));
}

#[library_benchmark]
#[bench::packet_of_64_bytes(args = (23), setup = window, config = at_most(96))]
#[bench::packet_of_2_kib(args = (519), setup = window, config = at_most(1140))]
fn burst((bar, dwords): (Window, &'static [u32])) {
    bar.burst(Buffer::new(3).map_or(0, Buffer::offset), dwords);
}

library_benchmark_group!(name = accesses, benchmarks = [read, write, doorbell, burst]);

main!(library_benchmark_groups = accesses);
