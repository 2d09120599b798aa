//! Ports in use on two simulated HCAs: the micro manager, management, and every tool's loop.

use qhca::verbs::mgmt::SmMode;
use qhca::verbs::perf::{
    End, EndSetup, Job, Measured, Side, Verb, Verify, measure_bandwidth, measure_latency,
};
use qhca::verbs::port::{MadTo, PortSetup, Turn};
use qhca::verbs::wire::Service;
use qhca::verbs::wire::mad::{Mad, MadClass, Method};
use qhca::verbs::{Connect, Mtu, Psn, QpNumber};
use qhca::{Device, Duration, Instant, Lid, Port, Runtime, VerbsPort, sim_pair};

const PORT: Port = Port::P0;
const WITHIN: Duration = Duration::from_secs(20);

/// Two cards that nobody has given LIDs, and their ports in use.
fn pair(managers: [SmMode; 2]) -> [VerbsPort; 2] {
    let (left, right) = sim_pair().expect("two boards");
    let devices = [left, right].map(|device| device.start(Runtime::Threads).expect("it starts"));
    let mut at = 0;
    devices.map(|device: Device| {
        let setup = PortSetup { manager: managers[at], ..PortSetup::default() };
        at += 1;
        device.open_verbs(PORT, &setup).expect("a port")
    })
}

/// Turns both until `done` says so.
fn turn_until(ports: &mut [VerbsPort; 2], mut done: impl FnMut(&mut [VerbsPort; 2]) -> bool) -> bool {
    let begun = ports[0].control().now();
    loop {
        let now = ports[0].control().now();
        for port in ports.iter_mut() {
            assert!(!port.turn(now).gone, "a device is gone");
        }
        if done(ports) {
            return true;
        }
        if now.since(begun) > WITHIN {
            return false;
        }
    }
}

fn ready(ports: &mut [VerbsPort; 2]) -> bool {
    ports.iter().all(VerbsPort::is_ready)
}

fn active(managers: [SmMode; 2]) -> [VerbsPort; 2] {
    let mut ports = pair(managers);
    assert!(turn_until(&mut ports, ready), "{:?}", ports.each_ref().map(|port| port.attributes().clone()));
    ports
}

/// Ends on two ports, connected to each other.
fn sides(
    service: Service,
    setup: impl Fn(EndSetup) -> EndSetup,
    mtu: Mtu,
) -> (Side<VerbsPort>, Side<VerbsPort>) {
    let [mut left, mut right] = active([SmMode::On, SmMode::Off]);
    let plain = EndSetup {
        service,
        qps: 1,
        largest: 1 << 16,
        depth: 32,
        rx_depth: 64,
        inline: 0,
        shared_receives: false,
    };
    let setup = setup(plain);
    let mut a = End::open(left.engine(), &setup, Psn::new(0xFF_FFF0)).expect("an end");
    let mut b = End::open(right.engine(), &setup, Psn::new(77)).expect("an end");
    let with = Connect { rd_atomic: 16, ..Connect::new(Lid(0), QpNumber::new(0), mtu) };
    let now = left.control().now();
    a.connect(left.engine(), b.name(), &with, now).expect("connected");
    b.connect(right.engine(), a.name(), &with, now).expect("connected");
    a.look_at(&b);
    b.look_at(&a);
    (Side { port: left, end: a }, Side { port: right, end: b })
}

fn clock(side: &Side<VerbsPort>) -> impl Fn() -> Instant + Sync + use<> {
    let device = side.port.control().clone();
    move || device.now()
}

fn stream(sides: &mut (Side<VerbsPort>, Side<VerbsPort>), job: &Job) {
    let clock = clock(&sides.0);
    let Measured { figures, .. } = measure_bandwidth(&mut sides.0, &mut sides.1, job, &clock)
        .unwrap_or_else(|error| panic!("{job:?}: {error}"));
    let ends = u64::from(job.iterations) * sides.0.end.setup().qps as u64;
    assert_eq!(figures.iterations, ends, "{job:?}");
    assert!(figures.average_mb_s > 0.0 && figures.average_mb_s <= figures.peak_mb_s, "{figures:?}");
}

#[test]
fn cable_without_a_manager_is_brought_to_active_by_ours_and_both_ends_get_a_lid() {
    for managers in [[SmMode::On, SmMode::Off], [SmMode::Auto, SmMode::Auto]] {
        let ports = active(managers);
        let mut lids = ports.each_ref().map(|port| port.lid().0);
        lids.sort_unstable();
        assert_eq!(lids, [1, 2], "{managers:?}");
    }
}

#[test]
fn two_managers_leave_one_of_them_in_charge() {
    let mut ports = active([SmMode::Auto, SmMode::Auto]);
    let one_is_aside =
        |ports: &mut [VerbsPort; 2]| ports.iter().filter(|port| port.is_managed_by_others()).count() == 1;
    assert!(turn_until(&mut ports, one_is_aside), "both manage, or none");
}

#[test]
fn peer_answers_who_it_is_and_what_it_has_counted() {
    let mut ports = active([SmMode::On, SmMode::Off]);
    let now = ports[0].control().now();
    let mut node = Mad::new(MadClass::SubnetDirected, Method::Get, 0x11, 0, 0);
    node.direct(&[1]);
    let node = ports[0].ask(&node, MadTo::Path, now);
    let mut counters = Mad::new(MadClass::Performance, Method::Get, 0x12, 0, 0);
    counters.0[65] = 1;
    let counters = ports[0].ask(&counters, MadTo::General(Lid(2)), now);
    let mut answers = [None, None];
    assert!(turn_until(&mut ports, |ports| {
        for (answer, transaction) in answers.iter_mut().zip([node, counters]) {
            if answer.is_none() {
                *answer = ports[0].take_answer(transaction);
            }
        }
        answers.iter().all(Option::is_some)
    }));
    let [node, counters] = answers.map(|answer| answer.expect("it is there"));
    let guid = ports[1].control().identity().port_guid(1).0;
    assert_eq!(node.data()[20..28], guid.to_be_bytes(), "the peer's GUID");
    assert_eq!(counters.status(), 0);
    // Packets that it received, at byte 36 of the attribute: the managers' own.
    let received = u32::from_be_bytes([counters.0[100], counters.0[101], counters.0[102], counters.0[103]]);
    assert!(received > 0, "{:?}", &counters.0[64..110]);
}

#[test]
fn writes_and_reads_of_every_size_arrive_whole_and_give_figures() {
    let mut sides = sides(Service::Rc, |setup| EndSetup { largest: 1 << 18, ..setup }, Mtu::B4096);
    let sizes = (1..=18).map(|power| 1 << power).chain([3, 2047, 2049, 100_001]);
    for bytes in sizes {
        stream(&mut sides, &Job { depth: 16, ..Job::new(Verb::Write, bytes, 20) });
        stream(&mut sides, &Job { depth: 16, ..Job::new(Verb::Read, bytes, 20) });
    }
}

#[test]
fn every_service_verb_and_habit_delivers_what_was_sent() {
    for (service, bytes) in [(Service::Rc, 9000), (Service::Uc, 9000), (Service::Ud, 2048)] {
        let mut sides = sides(service, |setup| EndSetup { qps: 3, inline: 64, ..setup }, Mtu::B2048);
        let send = Job { depth: 16, ..Job::new(Verb::Send, bytes, 100) };
        stream(&mut sides, &send);
        stream(&mut sides, &Job { moderation: 10, list: 4, ..send });
        stream(&mut sides, &Job { verify: Verify::Each, ..send });
        stream(&mut sides, &Job { bytes: 32, inline: 64, ..send });
        stream(&mut sides, &Job { both: true, ..send });
        if service != Service::Ud {
            stream(&mut sides, &Job { verb: Verb::Write, verify: Verify::Each, moderation: 7, ..send });
        }
        if service == Service::Rc {
            stream(&mut sides, &Job { verb: Verb::Read, verify: Verify::Each, ..send });
            stream(&mut sides, &Job { verb: Verb::FetchAdd, bytes: 8, ..send });
            stream(&mut sides, &Job { verb: Verb::CompareSwap, bytes: 8, ..send });
        }
    }
}

/// B64: bandwidth in event mode, sixteen queue pairs on one queue, more completions in a burst than one poll takes: each
/// wake-up empties the queue.
#[test]
fn sixteen_queue_pairs_in_event_mode_finish() {
    let mut sides = sides(Service::Rc, |setup| EndSetup { qps: 16, largest: 4096, ..setup }, Mtu::B2048);
    stream(&mut sides, &Job { events: true, ..Job::new(Verb::Send, 1024, 100) });
    stream(&mut sides, &Job { events: true, ..Job::new(Verb::Write, 64, 100) });
}

/// B171: ninety-six queue pairs whose receives are fewer than what the sender has under way.
#[test]
fn ninety_six_queue_pairs_with_few_receives_finish() {
    let few = |setup| EndSetup { qps: 96, largest: 256, depth: 16, rx_depth: 4, ..setup };
    let mut sides = sides(Service::Rc, few, Mtu::B2048);
    stream(&mut sides, &Job { depth: 16, ..Job::new(Verb::Send, 256, 100) });
}

#[test]
fn ping_pong_of_every_service_and_verb_gives_figures_in_order() {
    for (service, verbs) in [
        (Service::Rc, &[Verb::Send, Verb::Write, Verb::Read, Verb::FetchAdd][..]),
        (Service::Uc, &[Verb::Send, Verb::Write][..]),
        (Service::Ud, &[Verb::Send][..]),
    ] {
        let mut sides = sides(service, |setup| setup, Mtu::B2048);
        let clock = clock(&sides.0);
        for (verb, bytes) in verbs.iter().flat_map(|verb| [8, 1000].map(|bytes| (*verb, bytes))) {
            let bytes = if verb.is_atomic() { 8 } else { bytes };
            let job = Job { depth: 1, verify: Verify::Each, ..Job::new(verb, bytes, 300) };
            let seen = measure_latency(&mut sides.0, &mut sides.1, &job, &clock)
                .unwrap_or_else(|error| panic!("{service:?} {verb:?} {bytes}: {error}"))
                .figures;
            let order = [seen.t_min_us, seen.t_typical_us, seen.p99_us, seen.p999_us, seen.t_max_us];
            assert!(order.is_sorted() && seen.t_min_us > 0.0, "{service:?} {verb:?}: {order:?}");
            assert_eq!((seen.iterations, seen.samples_us.len()), (300, 299));
        }
    }
}
