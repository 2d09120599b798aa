//! What one open HCA takes of the host's memory: the chip's own queues and buffers, and little beside them.
//!
//! ```text
//!   /proc/self/smaps   mappings named memfd:qhca-dma   what the chip reads and writes: whole size, used or not
//!                      all others                      what is resident: heap, stacks, the model's growth as well
//! ```
//!
//! One test in this file, since every thread of the process counts.
#![allow(missing_docs)]
#![forbid(unsafe_code)]

use std::collections::BTreeMap;

use qhca_driver::dma::PAGE_BYTES;
use qhca_driver::runtime::{Opening, Receiver, Runtime};
use qhca_regs::Ctxt;
use qhca_sim::backend::{SimDevice, SimWorld};
use qhca_sim::chip::Config;
use qhca_sim::vtime::Seed;
use qhca_sim::world::{NodeId, World};

/// Beside queues and buffers.
const REST_MAX_BYTES: u64 = 4 << 20;

/// Rings and staging buffers of the send-DMA engines, one a port.
const SENDS_MAX_BYTES: u64 = 4 << 20;

/// Memory of this process, bytes.
#[derive(Clone, Copy, Debug)]
struct Usage {
    queues: u64,
    rest: u64,
}

impl Usage {
    fn now() -> Self {
        let smaps = std::fs::read_to_string("/proc/self/smaps").expect("proc is mounted");
        let (mut usage, mut of_chip) = (Self { queues: 0, rest: 0 }, false);
        for line in smaps.lines() {
            let kib = |name: &str| -> Option<u64> {
                line.strip_prefix(name)?.trim().strip_suffix(" kB")?.trim().parse().ok()
            };
            if let Some(kib) = kib("Size:") {
                usage.queues += if of_chip { kib << 10 } else { 0 };
            } else if let Some(kib) = kib("Rss:") {
                usage.rest += if of_chip { 0 } else { kib << 10 };
            } else if line.split(' ').next().is_some_and(|range| range.contains('-')) {
                of_chip = line.contains("memfd:qhca-dma");
            }
        }
        usage
    }
}

/// A device on threads, all its kernel contexts open.
struct Open {
    /// Held, so that the card stays open.
    _device: qhca_driver::runtime::Device<SimDevice>,
    receivers: BTreeMap<Ctxt, Receiver<SimDevice>>,
}

fn open(world: &SimWorld, node: NodeId) -> Open {
    let card = world.open(node).expect("nobody has it open");
    let device = Opening::new(card).cpus(0).no_links().start(Runtime::Threads).expect("it comes up");
    let kernel: Vec<Ctxt> = device.split().kernel_contexts().map(|(ctxt, _)| ctxt).collect();
    let receivers = kernel.into_iter().map(|ctxt| (ctxt, device.open_context(ctxt).expect("it is free")));
    Open { receivers: receivers.collect(), _device: device }
}

/// What the receive contexts' queues and buffers need: each in whole pages, and a page of availability words.
fn own_bytes(open: &Open) -> u64 {
    let pages = |len_bytes: usize| len_bytes.next_multiple_of(PAGE_BYTES) as u64;
    let of_context = |receiver: &Receiver<SimDevice>| {
        let memory = receiver.context().memory();
        pages(memory.queue_shape().len_bytes()) + pages(memory.eager_shape().len_bytes())
    };
    open.receivers.values().map(of_context).sum::<u64>() + PAGE_BYTES as u64
}

#[test]
fn open_hca_takes_its_queues_and_four_mebibytes_at_most() {
    let mut world = World::new(Seed(1), false);
    let nodes = [
        world.add(Config::default()),
        world.add(Config { guid: 0x0011_7500_0000_2000, ..Config::default() }),
    ];
    let world = SimWorld::start(world).expect("one more thread");
    let before = Usage::now();
    let first = open(&world, nodes[0]);
    let one = Usage::now();
    let second = open(&world, nodes[1]);
    let two = Usage::now();
    for (open, from, to) in [(&first, before, one), (&second, one, two)] {
        let (queues, own) = (to.queues - from.queues, own_bytes(open));
        assert!(own > 1 << 20 && queues >= own, "{queues} bytes are mapped, {own} are the contexts'");
        let (sends, rest) = (queues - own, to.rest.saturating_sub(from.rest));
        println!("receive {} KiB, send DMA {} KiB, beside them {} KiB", own >> 10, sends >> 10, rest >> 10);
        assert!(sends <= SENDS_MAX_BYTES, "{sends} bytes that no receive queue explains");
        assert!(rest <= REST_MAX_BYTES, "{rest} bytes beside the queues; {REST_MAX_BYTES} are allowed");
    }
}
