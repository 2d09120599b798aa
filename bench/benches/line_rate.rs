//! How many packets of 2 KiB a second go through both modelled cards and the cable, on one core.
//!
//! `cargo bench -p qhca-bench --bench line_rate`. Time on the processor is measured. A driver's least work is included: a burst for each packet, the receive
//! queue followed by sequence number, heads returned every 16 packets. Three copies are made of a packet: into the send
//! buffer, from there onto the wire, from the wire to the receiver's memory.

#[path = "../../sim/tests/common/mod.rs"]
mod common;

use common::{Card, P, activate, packet, pair};
use qhca_driver::env::Clock;
use qhca_regs::layout::Pbc;
use qhca_regs::{Bar, Buffer, Duration, Instant};
use qhca_sim::backend::SimWorld;
use qhca_sim::chip::Config;
use qhca_sim::fabric::CableConfig;
use qhca_sim::vtime::Seed;
use qhca_sim::world::{NodeId, World};

const PACKETS: u32 = 400_000;
const PAYLOAD_BYTES: usize = 2048;
const ROUNDS: usize = 5;
/// One packet of 2 KiB on a 4X QDR link.
const GAP: Duration = Duration::from_nanos(653);

/// Time that this thread has spent on a processor, seconds: what others do on the machine does not count.
fn processor_time_s() -> f64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").expect("a Linux kernel with schedstat");
    let ns: u64 =
        stat.split(' ').next().and_then(|ns| ns.parse().ok()).expect("nanoseconds on the processor");
    ns as f64 / 1e9
}

/// What a burst is made of: PBC and packet.
fn image() -> Vec<u32> {
    let bytes = packet(1, PAYLOAD_BYTES);
    let pbc = Pbc::for_port(P, (bytes.len() / 4 + 1) as u16);
    let words = bytes.chunks_exact(4).map(|chunk| u32::from_le_bytes(chunk.try_into().expect("four bytes")));
    pbc.dwords().into_iter().chain(words).collect()
}

fn cards(crc: bool) -> (SimWorld, [NodeId; 2], [Card; 2]) {
    let (world, nodes, _) = pair(Seed(1), crc, CableConfig::default(), &Config::default());
    let world = SimWorld::manual(world);
    let cards = nodes.map(|node| Card::open(&world, node));
    activate(&world, [&cards[0], &cards[1]]);
    (world, nodes, cards)
}

fn small(n: u32) -> u32 {
    Buffer::new(n as usize % Buffer::SMALL).map_or(0, Buffer::offset)
}

/// The world alone, as the laboratory turns it.
fn in_the_world(crc: bool) -> f64 {
    let (world, nodes, mut cards) = cards(crc);
    let image = image();
    let mut now = world.clock().now();
    let start = processor_time_s();
    for n in 0..PACKETS {
        world.with(|world: &mut World| world.burst(nodes[0], small(n), &image, now));
        now += GAP;
        world.advance_to(now);
        if n % 16 == 15 {
            let received = drain(&mut cards[1]);
            assert_eq!(received, 16, "packet {n}");
        }
    }
    f64::from(PACKETS) / (processor_time_s() - start)
}

/// Looks at what came as a driver must, without copying it out.
fn drain(card: &mut Card) -> u32 {
    let mut received = 0;
    while card.take() {
        received += 1;
    }
    card.return_heads();
    received
}

/// Through the register windows, as a driver on the system's clock does.
fn through_the_bars() -> f64 {
    let (world, _, mut cards) = cards(false);
    let image = image();
    let mut now: Instant = world.clock().now();
    let start = processor_time_s();
    for n in 0..PACKETS {
        cards[0].bar.burst(small(n), &image);
        now += GAP;
        world.advance_to(now);
        if n % 16 == 15 {
            assert_eq!(drain(&mut cards[1]), 16, "packet {n}");
        }
    }
    f64::from(PACKETS) / (processor_time_s() - start)
}

fn report(what: &str, run: impl Fn() -> f64) {
    let mut rates: Vec<f64> = (0..ROUNDS).map(|_| run()).collect();
    rates.sort_by(f64::total_cmp);
    let median = rates[ROUNDS / 2];
    let gigabytes = median * PAYLOAD_BYTES as f64 / 1e9;
    println!(
        "{what:<34} {:>6.0} ns a packet  {:>5.2} M packets/s  {gigabytes:>5.2} GB/s",
        1e9 / median,
        median / 1e6
    );
}

fn main() {
    println!("packets of {PAYLOAD_BYTES} bytes through two modelled cards, one core, median of {ROUNDS}");
    report("world, check sums off", || in_the_world(false));
    report("world, check sums computed", || in_the_world(true));
    report("register windows, check sums off", through_the_bars);
}
