//! Cables: delay, order, loss, duplication, bit flips, check sums.

use proptest::prelude::*;
use qhca_regs::{Duration, Instant, Port};
use qhca_sim::chip::{Meta, Packet, PeerState};
use qhca_sim::fabric::crc::Crcs;
use qhca_sim::fabric::{Arrival, Cable, CableConfig, LineFaults, LineRate, Side, Speed, Width};
use qhca_sim::vtime::{Distribution, Seed};

fn at(ns: u64) -> Instant {
    Instant::from_nanos(ns)
}

fn packet(number: u32, len_bytes: usize, sent_at: Instant) -> Packet {
    let mut bytes: Vec<u8> = (0..len_bytes).map(|n| (n as u32 * 31 + number) as u8).collect();
    bytes[1] = 2;
    bytes[len_bytes - 4..].copy_from_slice(&number.to_le_bytes());
    Packet { bytes, vl: 0, sent_at, port: Port::P0, meta: Meta::GOOD }
}

fn number(packet: &Packet) -> u32 {
    u32::from_le_bytes(*packet.bytes.last_chunk().expect("a packet of the test"))
}

/// Everything that arrives from side A, with its time.
fn drain(cable: &mut Cable, crcs: Option<&Crcs>) -> Vec<(Instant, Packet)> {
    let mut arrived = Vec::new();
    while cable.next_arrival() != Instant::MAX {
        let now = cable.next_arrival();
        while let Some(arrival) = cable.receive(Side::A, now, crcs) {
            if let Arrival::Packet(packet) = arrival {
                arrived.push((now, packet));
            }
        }
    }
    arrived
}

fn qdr(delay_ns: u64) -> CableConfig {
    CableConfig {
        delay: Distribution::Fixed(Duration::from_nanos(delay_ns)),
        rate: LineRate::of(Speed::Qdr, Width::X4),
        ..CableConfig::default()
    }
}

#[test]
fn packets_sent_at_once_arrive_one_line_time_apart() {
    let mut cable = Cable::new(qdr(100), Seed(1), "test");
    for n in 0..3 {
        assert!(cable.send(Side::A, packet(n, 392, at(1000)), None).is_none());
    }
    // 392 bytes and 8 of framing and sums at 4 bytes a nanosecond: 100 ns each.
    let times: Vec<_> =
        drain(&mut cable, None).into_iter().map(|(now, packet)| (now, number(&packet))).collect();
    assert_eq!(times, [(at(1200), 0), (at(1300), 1), (at(1400), 2)]);
    assert_eq!((cable.stats(Side::A).entered, cable.stats(Side::A).arrived), (3, 3));
}

#[test]
fn nothing_arrives_before_its_time_nor_at_the_wrong_end() {
    let mut cable = Cable::new(CableConfig::default(), Seed(1), "test");
    cable.show(Side::B, Arrival::Light(PeerState::Up), at(10));
    assert_eq!(cable.next_arrival(), at(35));
    assert!(cable.receive(Side::B, at(34), None).is_none());
    assert!(cable.receive(Side::A, at(35), None).is_none());
    assert!(matches!(cable.receive(Side::B, at(35), None), Some(Arrival::Light(PeerState::Up))));
}

#[test]
fn a_pulled_cable_loses_what_is_in_flight_and_what_comes_after() {
    let mut cable = Cable::new(qdr(1000), Seed(1), "test");
    cable.send(Side::A, packet(0, 64, at(0)), None);
    cable.show(Side::A, Arrival::Light(PeerState::Up), at(0));
    assert_eq!(cable.disconnect().len(), 1);
    assert!(cable.send(Side::A, packet(1, 64, at(10)), None).is_some());
    cable.connect();
    assert!(cable.send(Side::A, packet(2, 64, at(20)), None).is_none());
    assert_eq!(
        drain(&mut cable, None).into_iter().map(|(_, packet)| number(&packet)).collect::<Vec<_>>(),
        [2]
    );
    assert_eq!((cable.stats(Side::A).cut, cable.stats(Side::A).arrived), (2, 1));
}

#[test]
fn a_full_direction_drops_and_counts() {
    let config = CableConfig { max_in_flight: 2, ..qdr(1000) };
    let mut cable = Cable::new(config, Seed(1), "test");
    let refused = (0..5).filter(|n| cable.send(Side::A, packet(*n, 64, at(0)), None).is_some()).count();
    assert_eq!((refused, cable.stats(Side::A).overrun, drain(&mut cable, None).len()), (3, 3, 2));
}

#[test]
fn faults_strike_about_as_often_as_they_were_asked_to() {
    let faults = LineFaults { lose_one_in: 10, duplicate_one_in: 20, flip_one_in: 40 };
    let mut cable = Cable::new(CableConfig { faults: [faults; 2], ..qdr(10) }, Seed(7), "test");
    for n in 0..20_000 {
        cable.send(Side::A, packet(n, 64, at(0)), None);
    }
    let arrived = drain(&mut cable, None);
    let stats = cable.stats(Side::A);
    assert_eq!(stats.arrived, stats.entered - stats.lost + stats.duplicated);
    assert_eq!(arrived.len() as u64, stats.arrived);
    let near = |seen: u64, expected: u64| seen.abs_diff(expected) < expected / 5;
    assert!(near(stats.lost, 2000) && near(stats.duplicated, 900) && near(stats.flipped, 470), "{stats:?}");
    let bad = arrived.iter().filter(|(_, packet)| !packet.meta.vcrc_ok).count();
    assert_eq!(bad as u64, stats.flipped);
}

proptest! {
    /// Whatever the delay's distribution and the faults: no packet overtakes another, time does not run backwards.
    #[test]
    fn order_is_kept_under_any_jitter(
        seed: u64, spread in 0u64..10_000, gaps in prop::collection::vec(0u64..500, 1..60),
        lose in 0u64..6, duplicate in 0u64..6,
    ) {
        let faults = LineFaults { lose_one_in: lose * 2, duplicate_one_in: duplicate * 2, flip_one_in: 0 };
        let jitter = Distribution::Uniform(Duration::ZERO, Duration::from_nanos(spread));
        let mut cable = Cable::new(CableConfig { delay: jitter, faults: [faults; 2], ..qdr(0) }, Seed(seed), "test");
        let mut now = 0;
        for (n, gap) in gaps.iter().enumerate() {
            now += gap;
            cable.send(Side::A, packet(n as u32, 64, at(now)), None);
        }
        let arrived = drain(&mut cable, None);
        prop_assert!(arrived.is_sorted_by_key(|(now, packet)| (*now, number(packet))));
        for (now, packet) in &arrived {
            prop_assert!(*now >= packet.sent_at);
        }
    }

    /// Check sums that are computed and verdicts that are foretold agree, packet for packet.
    #[test]
    fn computed_and_foretold_verdicts_agree(seed: u64, len in 6usize..100) {
        let run = |crcs: Option<&Crcs>| {
            let faults = LineFaults { flip_one_in: 2, ..LineFaults::default() };
            let mut cable = Cable::new(CableConfig { faults: [faults; 2], ..qdr(10) }, Seed(seed), "test");
            for n in 0..40 {
                cable.send(Side::A, packet(n, len * 4, at(0)), crcs);
            }
            drain(&mut cable, crcs).into_iter().map(|(now, packet)| (now, packet.bytes, packet.meta)).collect::<Vec<_>>()
        };
        prop_assert_eq!(run(Some(&Crcs::new())), run(None));
    }

    #[test]
    fn one_seed_gives_one_run_and_two_seeds_two(seed: u64) {
        let run = |seed| {
            let faults = LineFaults { lose_one_in: 3, duplicate_one_in: 3, flip_one_in: 3 };
            let mut cable = Cable::new(CableConfig { faults: [faults; 2], ..qdr(10) }, Seed(seed), "test");
            for n in 0..50 {
                cable.send(Side::A, packet(n, 64, at(0)), None);
            }
            drain(&mut cable, None).into_iter().map(|(_, packet)| packet.bytes).collect::<Vec<_>>()
        };
        prop_assert_eq!(run(seed), run(seed));
        prop_assert_ne!(run(seed), run(seed ^ 1));
    }
}
