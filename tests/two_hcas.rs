//! Two devices, a cable, packets, through the door only.

use qhca::regs::Lid;
use qhca::{
    Arrival, Device, Duration, Event, Frame, LendError, LidAssignment, Next, Payload, Port, Runtime, sim_pair,
};

/// Plain InfiniBand headers: LRH to `dlid`, BTH of an unreliable datagram, DETH.
fn headers(slid: u16, dlid: u16, payload_dwords: u16) -> [u32; 7] {
    const HEADER_DWORDS: u16 = 7;
    let words = [
        // VL 0, version 0, SL 0, next header BTH (2).
        0x0002_0000 | u32::from(dlid),
        u32::from(HEADER_DWORDS + payload_dwords + 1) << 16 | u32::from(slid),
        // UD send only, default P_Key.
        0x6400_FFFF,
        // Destination queue pair 2, PSN 1.
        2,
        1,
        // Q_Key, source queue pair.
        0x1234_5678,
        3,
    ];
    words.map(u32::swap_bytes)
}

fn lid(n: u16) -> LidAssignment {
    LidAssignment::new(Lid(n), 0).expect("a unicast LID")
}

const PATIENCE: Duration = Duration::from_secs(10);

fn pair(runtime: Runtime) -> (Device, Device) {
    let (a, b) = sim_pair().expect("a world");
    let a = a.static_lid(Port::P0, lid(1)).start(runtime).expect("device a comes up");
    let b = b.static_lid(Port::P0, lid(2)).start(runtime).expect("device b comes up");
    (a, b)
}

#[test]
fn packets_cross_the_cable_in_order_with_interrupts_waking_the_receiver() {
    let (a, b) = pair(Runtime::Threads);
    for device in [&a, &b] {
        let active = device.wait_for_link(Port::P0, PATIENCE, |status| {
            status.logical() == qhca::driver::link::Logical::Active
        });
        assert!(active, "{:?}: {:?}", device.link_status(Port::P0), device.link_advice(Port::P0));
    }
    let mut receiver = b.open_port(Port::P0).expect("free");
    let mut sender = a.open_sender().expect("free");
    let sending = std::thread::spawn(move || {
        for n in 0..200_u32 {
            let payload = [n; 64];
            let header = headers(1, 2, 64);
            let frame = Frame::new(Port::P0, &header, Payload::Dwords(&payload));
            while sender.submit(&frame) == Err(qhca::SubmitError::WouldBlock) {
                std::thread::yield_now();
            }
        }
        sender
    });
    let mut seen = Vec::new();
    while seen.len() < 200 {
        let drained = receiver.receive(Some(PATIENCE), 64, |arrival| match arrival {
            Arrival::Packet(packet) => seen.push(packet.payload.be_u32(0).map(u32::swap_bytes)),
            other => panic!("not a packet: {other:?}"),
        });
        assert!(drained.entries > 0, "{} of 200 came", seen.len());
    }
    assert_eq!(seen, (0..200).map(Some).collect::<Vec<_>>());
    let mut sender = sending.join().expect("the sending thread");
    assert_eq!(sender.counts().packets, 200);
    assert_eq!(a.close().contexts_open.len(), 0);
    assert_eq!(b.close().contexts_open.len(), 1, "the receiver is still there");
    assert_eq!(receiver.receive(None, 1, |_| ()).next, Next::Gone);
}

/// The same device turned by hand, in one thread.
#[test]
fn device_turned_by_hand_brings_its_link_up_and_receives() {
    let (a, b) = pair(Runtime::Manual);
    let mut receiver = b.open_port(Port::P0).expect("free");
    let mut sender = a.open_sender().expect("free");
    let until = a.now() + PATIENCE;
    let is_active = |device: &Device| {
        device
            .link_status(Port::P0)
            .is_some_and(|status| status.logical() == qhca::driver::link::Logical::Active)
    };
    while !(is_active(&a) && is_active(&b)) {
        assert!(a.now() < until, "{:?} {:?}", a.link_advice(Port::P0), b.link_advice(Port::P0));
        a.turn(a.now());
        b.turn(b.now());
    }
    let header = headers(1, 2, 1);
    sender.submit(&Frame::new(Port::P0, &header, Payload::Bytes(b"hand"))).expect("a free buffer");
    let mut text = Vec::new();
    while text.is_empty() {
        assert!(a.now() < until, "the packet did not come");
        b.turn(b.now());
        receiver.poll(8, |arrival| {
            if let Arrival::Packet(packet) = arrival {
                text = packet.payload.to_vec();
            }
        });
    }
    assert_eq!(text, b"hand");
}

/// B17: every user context, one more, and one again after a close.
#[test]
fn one_user_context_too_many_is_refused_and_the_others_stay() {
    let device = Device::open("sim").expect("found").options("cfgctxts=6").expect("options").no_links();
    let device = device.start(Runtime::Threads).expect("up");
    let mut open = Vec::new();
    let refused = loop {
        match device.open_user(Port::P0) {
            Ok(receiver) => open.push(receiver),
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, LendError::AllInUse { in_use: 4, total: 4 }), "{refused}");
    open.pop();
    assert!(device.open_user(Port::P1).is_ok());
}

/// B19: device, receiver and sender are dropped in every order, and closed before, between or after, twice.
#[test]
fn handles_are_dropped_in_every_order_and_closed_twice() {
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        for close_at in 0..4 {
            let opening = Device::open("sim:qle7340").expect("found").no_links();
            let device = opening.start(Runtime::Threads).expect("up");
            let another = device.clone();
            let mut receiver = Some(device.open_port(Port::P0).expect("free"));
            let mut sender = Some(device.open_sender().expect("free"));
            let mut device = Some(device);
            for (step, which) in order.into_iter().enumerate() {
                if step == close_at {
                    assert!(!another.close().was_closed);
                    assert!(another.close().was_closed);
                }
                match which {
                    0 => drop(device.take()),
                    1 => drop(receiver.take()),
                    _ => drop(sender.take()),
                }
            }
        }
    }
}

#[test]
fn second_open_of_a_card_is_refused_and_a_card_that_was_closed_can_be_had_again() {
    let (a, _b) = sim_pair().expect("a world");
    let qhca::Opening::Sim(opening) = &a else { panic!("a simulated device") };
    let (world, node) = (opening.backend().world(), opening.backend().node());
    let busy = world.open(node).expect_err("it is open");
    assert_eq!(busy.kind(), std::io::ErrorKind::ResourceBusy);
    let device = a.no_links().start(Runtime::Threads).expect("up");
    drop(device);
    assert!(world.open(node).is_ok(), "closed with its last handle");
}

/// B04: the card is pulled while everything runs: one Gone event, receivers end, close is quick.
#[test]
fn card_that_is_pulled_makes_one_gone_event_and_everything_ends() {
    let (a, _b) = sim_pair().expect("a world");
    let qhca::Opening::Sim(opening) = &a else { panic!("a simulated device") };
    let (world, node) = (opening.backend().world(), opening.backend().node());
    let device = a.start(Runtime::Threads).expect("up");
    let mut receiver = device.open_port(Port::P0).expect("free");
    while device.poll_event().is_some() {}
    world.with(|world| {
        let now = world.now();
        world.set_present(node, false, now);
    });
    // Somebody reads a register: here the counters.
    assert!(device.counters().is_err());
    assert!(!receiver.wait(Some(Duration::from_millis(100))));
    let report = device.close();
    assert!(!report.forced);
    let events: Vec<Event> = std::iter::from_fn(|| device.poll_event()).collect();
    let gone = events.iter().filter(|event| matches!(event, Event::Gone)).count();
    assert_eq!(gone, 1, "{events:?}");
}
