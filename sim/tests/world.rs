//! Two cards, a cable, one time: what a world promises, seen through the back end that the driver uses.

mod common;

use common::{Card, P, activate, at, number, packet, pair, pass};
use qhca_driver::env::{Backend, Clock, DmaMapper};
use qhca_irq::plan::Mode;
use qhca_irq::{IrqSource, VectorSet, Wake};
use qhca_regs::map::device;
use qhca_regs::status::{ErrBits, IntBits};
use qhca_regs::{Bar, Duration, GONE, Instant, Vector};
use qhca_sim::backend::SimWorld;
use qhca_sim::chip::{Config, Drop, Injection};
use qhca_sim::fabric::{CableConfig, LineFaults, Side};
use qhca_sim::faults::{Fault, FaultPlan, IrqFaults};
use qhca_sim::vtime::{Distribution, Seed, TraceHash};
use std::io::ErrorKind;

fn quiet() -> (SimWorld, [Card; 2]) {
    let (world, nodes, _) = pair(Seed(1), true, CableConfig::default(), &Config::default());
    let world = SimWorld::manual(world);
    let cards = nodes.map(|node| Card::open(&world, node));
    (world, cards)
}

/// The cards with MSI-X on vector 0 and every interrupt let through.
fn irq(card: &mut Card, vectors: usize) -> <qhca_sim::backend::SimDevice as Backend>::Irq {
    assert_eq!(card.device.grant_vectors(Mode::MsiX, vectors).expect("granted"), vectors);
    let all: Vec<_> = (0..vectors).filter_map(Vector::new).collect();
    device::INT_MASK.write(&card.bar, IntBits::from_bits_retain(u64::MAX));
    card.device.irq_source(&all).expect("a source")
}

#[test]
fn a_packet_crosses_the_cable_byte_for_byte_and_interrupts() {
    let (world, mut cards) = quiet();
    let [sender, receiver] = &mut cards;
    activate(&world, [sender, receiver]);
    let mut irq = irq(receiver, 1);
    device::INT_CLEAR.clear(&receiver.bar, IntBits::from_bits_retain(u64::MAX));
    while let Wake::Vectors(_) = irq.wait(Some(world.clock().now())) {}
    let bytes = packet(7, 2048);
    sender.send(&bytes);
    assert!(receiver.receive().is_none(), "nothing is faster than the cable");
    let woken = irq.wait(Some(world.clock().now() + Duration::from_millis(1)));
    assert_eq!(woken, Wake::Vectors(VectorSet::only(Vector::DEFAULT)));
    let received = receiver.receive().expect("a packet");
    assert!(received.rhf.is_good());
    assert_eq!(received.bytes, bytes);
    assert_eq!(world.with(|world| world.host(receiver.device.node()).refused()), 0);
}

#[test]
fn every_packet_of_a_stream_arrives_once_and_in_order() {
    let (world, mut cards) = quiet();
    let [sender, receiver] = &mut cards;
    activate(&world, [sender, receiver]);
    let mut seen = Vec::new();
    for n in 0..1000 {
        sender.send(&packet(n, 4 + 4 * (n as usize % 500)));
        pass(&world, Duration::from_micros(1));
        seen.extend(receiver.receive_all().iter().map(|received| number(&received.bytes)));
        receiver.write_head(0);
    }
    assert!(
        seen.iter().copied().eq(0..1000),
        "{} packets came, the first out of place: {:?}",
        seen.len(),
        (0..).zip(&seen).find(|(n, seen)| n != *seen)
    );
}

#[test]
fn bent_packets_are_caught_by_the_receiver_and_by_nobody_else() {
    let faults = LineFaults { flip_one_in: 3, ..LineFaults::default() };
    let cable = CableConfig { faults: [faults, LineFaults::default()], ..CableConfig::default() };
    let (world, nodes, cable) = pair(Seed(3), true, cable, &Config::default());
    let world = SimWorld::manual(world);
    let mut cards = nodes.map(|node| Card::open(&world, node));
    let [sender, receiver] = &mut cards;
    activate(&world, [sender, receiver]);
    let mut good = 0;
    for n in 0..300 {
        sender.send(&packet(n, 512));
        pass(&world, Duration::from_micros(1));
        good +=
            receiver.receive_all().iter().filter(|r| r.rhf.is_good() && r.bytes == packet(n, 512)).count();
        receiver.write_head(0);
    }
    let (stats, bad) = world.with(|world| {
        let bad = world.chip(nodes[1]).account().dropped(P, Drop::Vcrc);
        (world.cable(cable).stats(Side::A), bad)
    });
    assert!(stats.flipped > 50, "{stats:?}");
    assert_eq!((good as u64, bad), (300 - stats.flipped, stats.flipped));
}

#[test]
fn memory_that_was_taken_away_is_refused_and_recorded() {
    let (world, mut cards) = quiet();
    let [sender, receiver] = &mut cards;
    activate(&world, [sender, receiver]);
    let node = receiver.device.node();
    let (eager, mapped) = (receiver.eager.iova(), world.with(|world| world.host(node).mapped_bytes()));
    let other = receiver.device.mapper().map(4096).expect("memory for a test");
    receiver.eager = other;
    assert_eq!(world.with(|world| world.host(node).mapped_bytes()), mapped + 4096 - 1024 * 2048);
    sender.send(&packet(1, 256));
    pass(&world, Duration::from_micros(10));
    let refusal = world.with(|world| world.host(node).refusals().next()).expect("a refusal");
    assert_eq!((refusal.iova, refusal.len_bytes, refusal.is_write), (eager, 256, true));
}

#[test]
fn a_pulled_cable_takes_both_ends_down_and_a_replugged_one_brings_them_up() {
    let (world, nodes, cable) = pair(Seed(1), true, CableConfig::default(), &Config::default());
    let world = SimWorld::manual(world);
    let cards = nodes.map(|node| Card::open(&world, node));
    activate(&world, [&cards[0], &cards[1]]);
    world.with(|world| world.unplug(cable));
    pass(&world, Duration::from_millis(1));
    assert_eq!(cards.each_ref().map(Card::link_state), [0, 0]);
    world.with(|world| world.replug(cable));
    pass(&world, Duration::from_millis(20));
    assert_eq!(cards.each_ref().map(Card::link_state), [1, 1]);
}

#[test]
fn one_port_with_a_loopback_plug_talks_to_itself() {
    let (mut world, nodes, _) = pair(Seed(1), true, CableConfig::default(), &Config::default());
    world.connect((nodes[0], P), (nodes[0], P), CableConfig::default());
    let world = SimWorld::manual(world);
    let mut card = Card::open(&world, nodes[0]);
    card.enable_link();
    pass(&world, Duration::from_millis(20));
    for command in [2, 3] {
        card.command(command);
        pass(&world, Duration::from_millis(1));
    }
    card.send(&packet(5, 64));
    pass(&world, Duration::from_micros(10));
    assert_eq!(number(&card.receive().expect("its own packet").bytes), 5);
}

#[test]
fn a_planned_error_interrupts_at_its_time_to_the_nanosecond() {
    let (world, mut cards) = quiet();
    let card = &mut cards[0];
    let mut irq = irq(card, 1);
    device::ERR_MASK.write(&card.bar, ErrBits::from_bits_retain(u64::MAX));
    let fault = Fault::Inject(card.device.node(), Injection::Device(ErrBits::RCV_EGR_FULL_ERR));
    let (from, gap) = (at(1_000_000), Distribution::Fixed(Duration::from_micros(500)));
    world.with(|world| world.set_faults(FaultPlan::new(Seed(1)).every(from, gap, 3, fault)));
    for strike in 0..3 {
        let woken = irq.wait(Some(at(1_000_000_000)));
        assert_eq!(woken, Wake::Vectors(VectorSet::only(Vector::DEFAULT)));
        assert_eq!(world.clock().now(), at(1_000_000 + strike * 500_000));
        let found = device::ERR_STATUS.read(&card.bar);
        assert_eq!(found, ErrBits::RCV_EGR_FULL_ERR);
        device::ERR_CLEAR.clear(&card.bar, found);
        device::INT_CLEAR.clear(&card.bar, IntBits::ERR);
    }
    assert_eq!(irq.wait(Some(at(1_000_000_000))), Wake::Deadline);
}

#[test]
fn a_lost_message_leaves_the_status_and_wakes_nobody() {
    let (world, mut cards) = quiet();
    let card = &mut cards[0];
    let mut irq = irq(card, 1);
    device::ERR_MASK.write(&card.bar, ErrBits::from_bits_retain(u64::MAX));
    let node = card.device.node();
    world.with(|world| {
        world.host_mut(node).irqs_mut().set_faults(IrqFaults { lose_one_in: 1, duplicate_one_in: 0 });
        let now = world.now();
        world.inject(node, Injection::Device(ErrBits::INVALID_ADDR_ERR), now);
    });
    assert_eq!(irq.wait(Some(at(1_000_000))), Wake::Deadline);
    assert!(device::INT_STATUS.read(&card.bar).contains(IntBits::ERR));
    assert_eq!(world.with(|world| world.host(node).irqs().lost()), 1);
}

#[test]
fn a_card_that_is_gone_answers_all_ones_and_a_card_that_returns_answers_again() {
    let (world, cards) = quiet();
    let node = cards[0].device.node();
    device::SCRATCH.write(&cards[0].bar, 5);
    let plan = FaultPlan::new(Seed(1)).at(at(10), Fault::Remove(node)).at(at(20), Fault::Return(node));
    world.with(|world| world.set_faults(plan));
    world.advance_to(at(15));
    assert_eq!(device::SCRATCH.read(&cards[0].bar), GONE);
    device::SCRATCH.write(&cards[0].bar, 6);
    world.advance_to(at(25));
    assert_eq!(device::SCRATCH.read(&cards[0].bar), 5);
}

#[test]
fn a_card_is_opened_once_at_a_time() {
    let (world, cards) = quiet();
    let node = cards[0].device.node();
    assert_eq!(world.open(node).map(|_| ()).map_err(|error| error.kind()), Err(ErrorKind::ResourceBusy));
    drop(cards);
    assert!(world.open(node).is_ok());
}

#[test]
fn fewer_vectors_than_wanted_are_granted_and_what_was_not_granted_is_refused() {
    let (_world, mut cards) = quiet();
    let device = &mut cards[0].device;
    device.limit_vectors(3);
    assert_eq!(device.grant_vectors(Mode::MsiX, 12).expect("granted"), 3);
    let third = Vector::new(3).expect("exists");
    assert_eq!(device.irq_source(&[third]).map(|_| ()).map_err(|e| e.kind()), Err(ErrorKind::InvalidInput));
    assert_eq!(device.grant_vectors(Mode::Msi, 1).map_err(|e| e.kind()), Err(ErrorKind::Unsupported));
    device.limit_vectors(0);
    assert!(device.grant_vectors(Mode::MsiX, 12).is_err());
    assert_eq!(device.grant_vectors(Mode::Intx, 12).expect("granted"), 1);
}

#[test]
fn the_legacy_line_fires_once_until_it_is_unmasked_and_again_while_it_is_asserted() {
    let (world, mut cards) = quiet();
    let card = &mut cards[0];
    card.device.grant_vectors(Mode::Intx, 1).expect("granted");
    let mut irq = card.device.irq_source(&[Vector::DEFAULT]).expect("a source");
    device::INT_MASK.write(&card.bar, IntBits::ERR);
    device::ERR_MASK.write(&card.bar, ErrBits::from_bits_retain(u64::MAX));
    let node = card.device.node();
    world.with(|world| {
        let now = world.now();
        world.inject(node, Injection::Device(ErrBits::INVALID_ADDR_ERR), now);
    });
    let soon = || Some(world.clock().now() + Duration::from_micros(1));
    let fired = Wake::Vectors(VectorSet::only(Vector::DEFAULT));
    assert_eq!((irq.wait(soon()), irq.wait(soon())), (fired, Wake::Deadline));
    card.device.unmask_line();
    assert_eq!(irq.wait(soon()), fired, "the level is still there");
    device::ERR_CLEAR.clear(&card.bar, ErrBits::INVALID_ADDR_ERR);
    device::INT_CLEAR.clear(&card.bar, IntBits::ERR);
    card.device.unmask_line();
    assert_eq!(irq.wait(soon()), Wake::Deadline);
}

#[test]
fn a_reset_chip_is_as_after_power_on_and_its_memory_stays_mapped() {
    let (world, mut cards) = quiet();
    activate(&world, [&cards[0], &cards[1]]);
    let (node, bar) = (cards[0].device.node(), cards[0].bar.clone());
    let mapped = world.with(|world| world.host(node).mapped_bytes());
    device::SCRATCH.write(&bar, 5);
    cards[0].device.reset().expect("reset");
    pass(&world, Duration::from_millis(1));
    assert_eq!((device::SCRATCH.read(&bar), cards[0].link_state(), cards[1].link_state()), (0, 0, 0));
    assert_eq!(world.with(|world| world.host(node).mapped_bytes()), mapped);
}

/// Everything that a run did, in one number.
fn run(seed: u64) -> u64 {
    let faults = LineFaults { lose_one_in: 7, duplicate_one_in: 9, flip_one_in: 11 };
    let jitter = Distribution::Uniform(Duration::from_nanos(20), Duration::from_nanos(900));
    let cable = CableConfig { faults: [faults; 2], delay: jitter, ..CableConfig::default() };
    let (world, nodes, _) = pair(Seed(seed), true, cable, &Config::default());
    let world = SimWorld::manual(world);
    let mut cards = nodes.map(|node| Card::open(&world, node));
    let mut irq = irq(&mut cards[1], 1);
    activate(&world, [&cards[0], &cards[1]]);
    let mut trace = TraceHash::new();
    for n in 0..200 {
        cards[0].send(&packet(n, 256));
        let deadline = world.clock().now() + Duration::from_nanos(700);
        if let Wake::Vectors(fired) = irq.wait(Some(deadline)) {
            trace.record(world.clock().now(), "vectors", [fired.bits().into(), 0]);
        }
        device::INT_CLEAR.clear(&cards[1].bar, IntBits::from_bits_retain(u64::MAX));
        for received in cards[1].receive_all() {
            trace.record(world.clock().now(), "packet", [received.rhf.0, number(&received.bytes).into()]);
        }
        cards[1].write_head(1);
    }
    trace.value()
}

#[test]
fn one_seed_gives_one_run_and_two_seeds_give_two() {
    assert_eq!(run(42), run(42));
    assert_ne!(run(42), run(43));
}

#[test]
fn on_the_systems_clock_the_world_turns_by_itself() {
    let (world, nodes, _) = pair(Seed(1), true, CableConfig::default(), &Config::default());
    let world = SimWorld::start(world).expect("a thread");
    let mut cards = nodes.map(|node| Card::open(&world, node));
    let clock = world.clock();
    let patience = clock.now() + Duration::from_secs(10);
    let until = |what: &str, done: &dyn Fn() -> bool| {
        while !done() {
            assert!(clock.now() < patience, "{what} takes too long");
            std::thread::yield_now();
        }
    };
    for card in &cards {
        card.enable_link();
    }
    until("INIT", &|| cards.iter().all(|card| card.link_state() == 1));
    for (command, state) in [(2, 2), (3, 3)] {
        for card in &cards {
            card.command(command);
        }
        until("the link", &|| cards.iter().all(|card| card.link_state() == state));
    }
    let mut irq = irq(&mut cards[1], 1);
    device::INT_CLEAR.clear(&cards[1].bar, IntBits::from_bits_retain(u64::MAX));
    while let Wake::Vectors(_) = irq.wait(Some(Instant::ZERO)) {}
    let [sender, receiver] = &mut cards;
    // Nobody touches the receiver's registers until its interrupt has come: the world's own thread carries the packet.
    sender.send(&packet(9, 128));
    assert!(matches!(irq.wait(Some(patience)), Wake::Vectors(_)));
    assert_eq!(number(&receiver.receive().expect("a packet").bytes), 9);
    let soon = clock.now() + Duration::from_micros(300);
    assert_eq!(irq.wait(Some(soon)), Wake::Deadline);
    assert!(clock.now() >= soon);
}

#[test]
fn a_write_that_is_refused_by_a_gone_card_harms_nobody() {
    let (world, cards) = quiet();
    let node = cards[0].device.node();
    world.with(|world| world.set_faults(FaultPlan::new(Seed(1)).at(world.now(), Fault::Remove(node))));
    cards[0].bar.burst(0x10_0000, &[1, 2, 3]);
    assert_eq!(cards[0].bar.read(0), GONE);
}
