//! The started driver on the simulated card: send DMA with its outcomes, expected receive, cable modules, and errors that
//! the card is made to have.

use qhca_driver::env::{Backend, Clock, MonotonicClock, PioMapping, ResetKind};
use qhca_driver::event::Event;
use qhca_driver::link::{Goal, LidAssignment, LinkEvent, Logical, PortChange, SocketChange};
use qhca_driver::runtime::{Device, Opening, Receiver, ResetError, ResetHow, Runtime, Transmitter};
use qhca_driver::rx::{Arrival, FlowError, FlowId, FlowSettings, Tid};
use qhca_driver::shared::DeviceState;
use qhca_driver::tx::sdma::{EngineState, SdmaChange};
use qhca_driver::tx::{FlushReason, Frame, Payload, SendId, SendOutcome, SubmitError, Submitted};
use qhca_irq::plan::Mode;
use qhca_regs::layout::tid_flow::FlowPsn;
use qhca_regs::layout::{KdFlags, KdHeader, KdTid};
use qhca_regs::map::device as registers;
use qhca_regs::status::{HwErrBits, PortErrBits};
use qhca_regs::{Duration, Instant, Lid, Port, Vector};
use qhca_sim::backend::{SimDevice, SimWorld};
use qhca_sim::chip::{Board, Config, Injection, Module};
use qhca_sim::vtime::Seed;
use qhca_sim::world::World;

const PORT: Port = Port::P0;
const PATIENCE: Duration = Duration::from_secs(20);
/// Payload of a packet that no small send buffer holds.
const LONG_BYTES: usize = 4096;

struct Card {
    device: Device<SimDevice>,
    sender: Transmitter<SimDevice>,
    /// Outcomes of sends by DMA that were reaped and not asked for yet.
    settled: Vec<(SendId, SendOutcome)>,
}

/// A card whose first port talks to itself.
fn card(options: &str) -> Card {
    let mut world = World::new(Seed(1), false);
    let node = world.add(Config::default());
    let world = SimWorld::start(world).expect("a thread");
    let backend = world.open(node).expect("a card that nobody has open");
    let opening = Opening::new(backend).no_links().options(options).expect("good options");
    let device = opening.start(Runtime::Threads).expect("up");
    device.set_lid(PORT, LidAssignment::new(Lid(1), 0).expect("a unicast LID")).expect("a port");
    device.set_loopback(PORT, true).expect("a port");
    device.set_goal(PORT, Goal::Active).expect("a port");
    let card = Card { sender: device.open_sender().expect("free"), device, settled: Vec::new() };
    card.await_active();
    card
}

impl Card {
    fn await_active(&self) {
        let active = self.device.wait_for_link(PORT, PATIENCE, |status| status.logical() == Logical::Active);
        assert!(active, "{:?}", self.device.link_status(PORT));
    }

    fn engine(&self) -> EngineState {
        self.device.with_hca(|hca, _| hca.sdma_engine(PORT).map(|engine| engine.state())).expect("an engine")
    }

    /// Waits until `done`.
    fn until(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> bool) {
        let until = self.device.now() + PATIENCE;
        while !done(self) {
            assert!(self.device.now() < until, "{what} did not come; the engine is {:?}", self.engine());
            std::thread::yield_now();
        }
    }

    fn await_engine(&mut self) {
        self.until("a running engine", |card| {
            card.reap();
            card.engine() == EngineState::Running
        });
    }

    fn inject(&self, injection: Injection) {
        let (world, node) = self.device.with_backend(|backend| (backend.world(), backend.node()));
        world.with(|world| world.inject(node, injection, world.now()));
    }

    fn plug(&self, module: Option<Module>) {
        let (world, node) = self.device.with_backend(|backend| (backend.world(), backend.node()));
        world.with(|world| {
            let now = world.now();
            let (chip, host) = world.chip_mut(node);
            chip.plug_module(PORT, module, now, host);
        });
    }

    /// Sends `payload` to the port itself, by whichever way, once there is room.
    fn send(&mut self, payload: Payload<'_>) -> Submitted {
        let header = header(payload.len_dwords());
        loop {
            match self.sender.submit(&Frame::new(PORT, &header, payload)) {
                Ok(submitted) => return submitted,
                Err(SubmitError::WouldBlock) => std::thread::yield_now(),
                Err(error) => panic!("{error}"),
            }
        }
    }

    fn outcomes(&mut self, count: usize) -> Vec<(SendId, SendOutcome)> {
        self.until("an outcome", |card| {
            card.reap();
            card.settled.len() >= count
        });
        std::mem::take(&mut self.settled)
    }

    fn reap(&mut self) {
        let settled = &mut self.settled;
        self.sender.reap(|port, id, outcome| {
            assert_eq!(port, PORT);
            settled.push((id, outcome));
        });
    }

    fn events(&self) -> Vec<Event> {
        std::iter::from_fn(|| self.device.poll_event()).collect()
    }
}

/// LRH, BTH and DETH of an unreliable datagram from the port to itself.
fn header(payload_dwords: usize) -> [u32; 7] {
    let length = (7 + payload_dwords + 1) as u32;
    [0x0002_0001, length << 16 | 1, 0x6400_FFFF, 2, 0, 0x1234_5678, 2].map(u32::swap_bytes)
}

/// Takes `count` packets; the first payload dword of each.
fn receive(receiver: &mut Receiver<SimDevice>, count: usize) -> Vec<u32> {
    let mut seen = Vec::new();
    while seen.len() < count {
        let drained = receiver.receive(Some(PATIENCE), 64, |arrival| match arrival {
            Arrival::Packet(packet) => {
                seen.push(packet.payload.be_u32(0).map_or(u32::MAX, u32::swap_bytes));
            }
            other => panic!("not a packet: {other:?}"),
        });
        assert!(drained.entries > 0, "{} of {count} came", seen.len());
    }
    seen
}

#[test]
fn long_packets_go_by_send_dma_in_order_and_each_has_one_outcome() {
    const SENDS: u32 = 600;
    let mut card = card("sdma_descq_cnt=64");
    let mut receiver = card.device.open_port(PORT).expect("free");
    card.await_engine();
    card.sender.sender().track_outcomes(true);
    let memory = card.device.map(LONG_BYTES * 64).expect("memory");
    let (mut outcomes, mut seen) = (Vec::new(), Vec::new());
    for n in 0..SENDS {
        // Copied and in place by turns; the place is used again after its outcome is long known.
        let submitted = if n % 2 == 0 {
            let mut bytes = vec![0; LONG_BYTES];
            bytes[..4].copy_from_slice(&n.to_le_bytes());
            card.send(Payload::Bytes(&bytes))
        } else {
            let offset = n as usize % 64 * LONG_BYTES;
            memory.memory().store_u32(offset, n);
            card.send(Payload::InPlace { region: &memory, offset, len_bytes: LONG_BYTES })
        };
        assert_eq!(submitted, Submitted::Sdma(SendId(u64::from(n))));
        if n % 16 == 15 {
            outcomes.extend(card.outcomes(16));
            seen.extend(receive(&mut receiver, 16));
        }
    }
    outcomes.extend(card.outcomes(SENDS as usize - outcomes.len()));
    seen.extend(receive(&mut receiver, SENDS as usize - seen.len()));
    let expected: Vec<_> = (0..u64::from(SENDS)).map(|n| (SendId(n), SendOutcome::Sent)).collect();
    assert_eq!(outcomes, expected);
    assert_eq!(seen, (0..SENDS).collect::<Vec<_>>());
    let queue = *card.sender.sender().sdma_queue(PORT).expect("an engine").counts();
    assert_eq!((queue.head_fallbacks, queue.flushed), (0, 0));
}

/// B27: one sender, both ways, one order.
#[test]
fn short_packets_go_by_programmed_io_and_follow_long_ones_in_order() {
    let mut card = card("");
    let mut receiver = card.device.open_port(PORT).expect("free");
    card.await_engine();
    assert!(matches!(card.send(Payload::Dwords(&[0])), Submitted::Pio(_)));
    let mut long = vec![0; LONG_BYTES];
    long[0] = 1;
    assert!(matches!(card.send(Payload::Bytes(&long)), Submitted::Sdma(_)));
    card.send(Payload::Dwords(&[2]));
    assert_eq!(receive(&mut receiver, 3), [0, 1, 2]);
    card.until("programmed I/O again", |card| matches!(card.send(Payload::Dwords(&[3])), Submitted::Pio(_)));
}

#[test]
fn with_the_special_trigger_long_packets_go_by_programmed_io() {
    let mut card = card("special_trigger=1");
    let mut receiver = card.device.open_port(PORT).expect("free");
    let mut long = vec![0; LONG_BYTES];
    long[0] = 9;
    assert!(matches!(card.send(Payload::Bytes(&long)), Submitted::Pio(_)));
    assert_eq!(receive(&mut receiver, 1), [9]);
}

/// Every error that stops an engine: it starts anew, what was in flight has an outcome, and sends go on.
#[test]
fn engine_that_halts_on_an_error_starts_anew_and_goes_on() {
    let mut card = card("");
    let mut receiver = card.device.open_port(PORT).expect("free");
    card.await_engine();
    card.sender.sender().track_outcomes(true);
    for (sent, bit) in (0..).zip(qhca_driver::tx::sdma::STOPPING.iter()) {
        card.events();
        card.inject(Injection::Port(PORT, bit | PortErrBits::SDMA_HALT_ERR));
        let mut seen = Vec::new();
        card.until("a restart", |card| {
            card.reap();
            seen.extend(card.events());
            seen.iter().any(|event| matches!(event, Event::Sdma { change: SdmaChange::Running, .. }))
        });
        let stopped = |event: &Event| {
            matches!(event, Event::Sdma { change: SdmaChange::Stopped(FlushReason::Halted), .. })
        };
        assert_eq!(seen.iter().filter(|event| stopped(event)).count(), 1, "{bit:?}: {seen:?}");
        let report = |event: &Event| matches!(event, Event::Error(report) if report.word & bit.bits() != 0);
        assert_eq!(seen.iter().filter(|event| report(event)).count(), 1, "{bit:?}: {seen:?}");
        let mut long = vec![0; LONG_BYTES];
        long[0] = bit.bits().trailing_zeros() as u8;
        assert_eq!(card.send(Payload::Bytes(&long)), Submitted::Sdma(SendId(sent)));
        assert_eq!(card.outcomes(1).last().map(|(_, outcome)| *outcome), Some(SendOutcome::Sent));
        assert_eq!(receive(&mut receiver, 1), [u32::from(long[0])]);
    }
}

/// B30, B32: a link that goes down settles every send exactly once, and sends go on when it is back.
#[test]
fn link_that_goes_down_settles_every_send_once() {
    let mut card = card("");
    card.await_engine();
    card.sender.sender().track_outcomes(true);
    let mut next = 0;
    for _ in 0..3 {
        let long = vec![7; LONG_BYTES];
        let mut submitted = 0;
        for n in 0..40 {
            let header = header(LONG_BYTES / 4);
            if n == 20 {
                card.device.set_goal(PORT, Goal::Disabled).expect("a port");
            }
            match card.sender.submit(&Frame::new(PORT, &header, Payload::Bytes(&long))) {
                Ok(Submitted::Sdma(id)) => {
                    assert_eq!(id.0, next + submitted);
                    submitted += 1;
                }
                Ok(Submitted::Pio(buffer)) => panic!("4 KiB in {buffer}"),
                Err(SubmitError::SdmaStopped { .. } | SubmitError::WouldBlock) => {}
                Err(error) => panic!("{error}"),
            }
        }
        let outcomes = card.outcomes(submitted as usize);
        assert!(outcomes.iter().zip(next..).all(|((id, _), n)| id.0 == n), "{outcomes:?}");
        assert_eq!(outcomes.len() as u64, submitted, "one outcome each");
        next += submitted;
        card.device.set_goal(PORT, Goal::Active).expect("a port");
        card.await_active();
        card.await_engine();
    }
    assert!(next >= 60, "{next} sends");
}

/// B19, B35: outcomes of sends in flight when the device closes, told once, and memory that stays until then.
#[test]
fn device_that_closes_settles_what_was_in_flight() {
    let mut card = card("");
    card.await_engine();
    card.sender.sender().track_outcomes(true);
    let memory = card.device.map(LONG_BYTES).expect("memory");
    for _ in 0..5 {
        card.send(Payload::InPlace { region: &memory, offset: 0, len_bytes: LONG_BYTES });
    }
    let report = card.device.close();
    assert!(!report.forced);
    let mut outcomes = Vec::new();
    card.sender.reap(|_, id, outcome| outcomes.push((id.0, outcome)));
    assert!(outcomes.iter().map(|(id, _)| *id).eq(0..5), "{outcomes:?}");
    assert_eq!(card.sender.reap(|_, _, _| ()), 0);
    let header = header(1);
    let gone = card.sender.submit(&Frame::new(PORT, &header, Payload::Dwords(&[1])));
    assert_eq!(gone, Err(SubmitError::Gone));
}

/// B138: receivers, senders, bound pages and links are to their owners after a reset what they were before.
#[test]
fn traffic_goes_on_after_a_reset_with_the_same_receiver_and_sender() {
    let mut card = card("cfgctxts=4");
    let mut receiver = card.device.open_port(PORT).expect("free");
    let mut user = card.device.open_user(PORT).expect("free");
    let memory = card.device.map(4096).expect("memory");
    let tids = user.bind(&memory, 0, 4096).expect("free");
    card.await_engine();
    card.sender.sender().track_outcomes(true);
    let mut long = vec![0; LONG_BYTES];
    let mut sends = 0;
    for round in 0..3_u8 {
        // An odd number of uses of each buffer, so that one that was forgotten would be taken for busy.
        for n in 0..7 {
            card.send(Payload::Dwords(&[u32::from(round) * 100 + n]));
        }
        assert_eq!(receive(&mut receiver, 7).last(), Some(&(u32::from(round) * 100 + 6)));
        long[0] = round;
        assert!(matches!(card.send(Payload::Bytes(&long)), Submitted::Sdma(_)));
        sends += 1;
        assert_eq!(receive(&mut receiver, 1), [u32::from(round)]);
        // One that nobody takes before the reset.
        card.send(Payload::Dwords(&[0xDEAD]));
        card.events();
        let report = card.device.reset(ResetHow::Backend).expect("it returns");
        assert!(report.took < PATIENCE);
        assert!(card.events().iter().any(|event| matches!(event, Event::WasReset { .. })));
        card.await_active();
        card.await_engine();
        let flow = FlowId::new(0).expect("a flow");
        assert_eq!(user.flow(flow), None, "flows are forgotten");
        user.open_flow(flow, FlowSettings::default()).expect("a device");
        let header = expected_header(
            user.context().ctxt().index(),
            tids[0],
            u16::from(round) * 16,
            FlowPsn { flow: 0, generation: 0, seq: 0 },
        );
        card.sender.submit(&Frame::new(PORT, &header, Payload::Dwords(&[7; 16]))).expect("a free buffer");
        let mut came = 0;
        user.receive(Some(PATIENCE), 4, |arrival| came += usize::from(matches!(arrival, Arrival::Packet(_))));
        assert_eq!((came, memory.memory().load_u32(64 * usize::from(round))), (1, 7));
    }
    let outcomes = card.outcomes(sends);
    assert!(outcomes.len() >= sends, "{outcomes:?}");
    assert!(outcomes.iter().map(|(id, _)| id.0).eq(0..outcomes.len() as u64), "one each: {outcomes:?}");
    receiver.poll(1, |_| ());
    assert_eq!(receiver.context().counts().restarts, 3);
    assert_eq!(receiver.context().counts().malformed, 0);
    assert_eq!(card.device.state(), DeviceState::Open);
    let rx = card.device.counters().expect("a device").port_total(PORT, "RxPkt").expect("a counter");
    assert!((20..1000).contains(&rx), "{rx} packets counted over three resets");
}

/// B134: resets from two threads with traffic in between are done one after the other, and nothing is left of them.
#[test]
fn resets_back_to_back_from_two_threads_leave_a_device_that_works() {
    let mut card = card("");
    let mut receiver = card.device.open_port(PORT).expect("free");
    card.await_engine();
    let (world, node) = card.device.with_backend(|backend| (backend.world(), backend.node()));
    let mapped = || world.with(|world| world.host(node).mapped_bytes());
    let before = mapped();
    let threads: Vec<_> = (0..2)
        .map(|_| {
            let device = card.device.clone();
            std::thread::spawn(move || (0..10).filter(|_| device.reset(ResetHow::Backend).is_ok()).count())
        })
        .collect();
    while threads.iter().any(|thread| !thread.is_finished()) {
        let header = header(1);
        match card.sender.submit(&Frame::new(PORT, &header, Payload::Dwords(&[1]))) {
            Ok(_) | Err(SubmitError::WouldBlock | SubmitError::SdmaStopped { .. }) => {}
            Err(error) => panic!("{error}"),
        }
        receiver.receive(Some(Duration::from_millis(1)), 64, |_| ());
        card.reap();
    }
    let resets: usize = threads.into_iter().map(|thread| thread.join().expect("a thread")).sum();
    assert_eq!(resets, 20);
    card.await_active();
    card.await_engine();
    card.until("silence", |card| {
        card.reap();
        receiver.receive(Some(Duration::from_millis(50)), 64, |_| ()).entries == 0
    });
    card.send(Payload::Dwords(&[77]));
    assert_eq!(receive(&mut receiver, 1), [77]);
    assert_eq!(mapped(), before, "no memory is left over");
    assert_eq!(receiver.context().counts().malformed, 0);
}

/// B143: opened and closed again and again, with contexts, engines and bound pages in use, nothing stays behind.
#[test]
fn opened_and_closed_again_and_again_nothing_stays_behind() {
    let mut world = World::new(Seed(1), false);
    let node = world.add(Config::default());
    let world = SimWorld::manual(world);
    for _ in 0..20 {
        let backend = world.open(node).expect("a card that was given back");
        let device = Opening::new(backend).no_links().start(Runtime::Manual).expect("up");
        let mut receiver = device.open_user(PORT).expect("free");
        let sender = device.open_sender().expect("free");
        let memory = device.map(4096).expect("memory");
        receiver.bind(&memory, 0, 4096).expect("free");
        let report = device.close();
        assert_eq!(report.contexts_open.len(), 1);
        drop((receiver, sender, memory, device));
        let (refused, mapped) =
            world.with(|world| (world.host(node).refused(), world.host(node).mapped_bytes()));
        assert_eq!((refused, mapped), (0, 0), "accesses to foreign memory, bytes still mapped");
    }
}

#[test]
fn device_that_does_not_return_from_its_reset_is_gone_and_says_so() {
    let mut world = World::new(Seed(1), false);
    let node = world.add(Config::default());
    let world = SimWorld::manual(world);
    let backend = world.open(node).expect("a card that nobody has open");
    let device = Opening::new(backend).no_links().start(Runtime::Manual).expect("up");
    world.with(|world| {
        let now = world.now();
        world.set_present(node, false, now);
    });
    let error = device.reset(ResetHow::Chip).expect_err("it does not answer");
    assert!(matches!(error, ResetError::DidNotReturn { .. }), "{error}");
    assert_eq!(device.state(), DeviceState::Gone);
    assert!(matches!(device.reset(ResetHow::Backend), Err(ResetError::NotOpen { state: DeviceState::Gone })));
}

/// B05 (b): a chip that its logic analyser alone has frozen is set going again, and traffic goes on.
#[test]
fn chip_frozen_by_its_analyser_alone_is_thawed_and_goes_on() {
    let mut card = card("");
    let mut receiver = card.device.open_port(PORT).expect("free");
    card.await_engine();
    let bar = card.device.bar();
    let mask = registers::HW_ERR_MASK.read(&bar);
    registers::HW_ERR_MASK.write(&bar, mask | HwErrBits::LA_TRIGGERED);
    card.events();
    card.inject(Injection::Hardware(HwErrBits::LA_TRIGGERED));
    let mut seen = Vec::new();
    card.until("the thaw", |card| {
        seen.extend(card.events());
        let told = |event: &Event| matches!(event, Event::Error(report) if report.frozen);
        seen.iter().any(told) && !registers::CONTROL.read(&bar).freeze_mode()
    });
    assert_eq!(card.device.state(), DeviceState::Open);
    card.await_engine();
    card.send(Payload::Dwords(&[5]));
    assert_eq!(receive(&mut receiver, 1), [5]);
}

/// B05 (a): a parity error is fatal: one event, and nothing is sent any more.
#[test]
fn parity_error_is_fatal_once() {
    let mut card = card("");
    card.events();
    card.inject(Injection::Hardware(HwErrBits::IBC_BUS_FROM_SPC_PARITY_ERR_0));
    let mut seen = Vec::new();
    card.until("the end", |card| {
        seen.extend(card.events());
        card.device.state() == DeviceState::Failed
    });
    let header = header(1);
    let refused = card.sender.submit(&Frame::new(PORT, &header, Payload::Dwords(&[1])));
    assert_eq!(refused, Err(SubmitError::Gone));
    let _report = card.device.close();
    seen.extend(card.events());
    assert_eq!(seen.iter().filter(|event| event.is_final()).count(), 1, "{seen:?}");
}

/// A clock on which everything takes longer: stores into the model are faster than those over a bus.
#[derive(Clone, Copy)]
struct Hasty(MonotonicClock);

impl Clock for Hasty {
    fn now(&self) -> Instant {
        Instant::from_nanos(self.0.now().as_nanos() * 20)
    }
}

/// A card whose send buffers are mapped so that each store goes to the bus by itself.
struct Uncached(SimDevice);

impl Backend for Uncached {
    type Bar = <SimDevice as Backend>::Bar;
    type Mapper = <SimDevice as Backend>::Mapper;
    type Irq = <SimDevice as Backend>::Irq;
    type Clock = Hasty;

    fn bar(&self) -> Self::Bar {
        self.0.bar()
    }
    fn mapper(&self) -> Self::Mapper {
        self.0.mapper()
    }
    fn clock(&self) -> Self::Clock {
        Hasty(MonotonicClock::new())
    }
    fn name(&self) -> String {
        self.0.name()
    }
    fn grant_vectors(&mut self, mode: Mode, wanted: usize) -> std::io::Result<usize> {
        self.0.grant_vectors(mode, wanted)
    }
    fn irq_source(&mut self, vectors: &[Vector]) -> std::io::Result<Self::Irq> {
        self.0.irq_source(vectors)
    }
    fn reset(&mut self) -> std::io::Result<ResetKind> {
        self.0.reset()
    }
    fn pio_mapping(&self) -> Option<PioMapping> {
        Some(PioMapping::Uncached)
    }
}

/// B01, B02: slow copies are told once, with the mapping and the rate, and packets stay right.
#[test]
fn slow_send_buffers_are_told_once_with_mapping_and_rate() {
    let mut world = World::new(Seed(1), false);
    let node = world.add(Config::default());
    let world = SimWorld::start(world).expect("a thread");
    let backend = Uncached(world.open(node).expect("a card that nobody has open"));
    let device = Opening::new(backend).no_links().start(Runtime::Threads).expect("up");
    let told: Vec<String> = device
        .bring_up_report()
        .warnings
        .iter()
        .map(ToString::to_string)
        .filter(|text| text.contains("MiB/s"))
        .collect();
    let [told] = told.as_slice() else { panic!("{told:?}") };
    assert!(told.starts_with("send buffers are mapped uncached and take "), "{told}");
    assert!(!told.contains("combining"), "{told}");
    let mut sender = device.open_sender().expect("free");
    assert_eq!(sender.sender().free_buffers(), 130, "128 small ones and two for management");
}

/// A packet of PSM's kind for `ctxt`, with 64 bytes of payload.
fn expected_header(ctxt: usize, tid: Tid, offset_dwords: u16, psn: FlowPsn) -> [u32; 14] {
    const LENGTH: u16 = 14 + 16 + 1;
    let qpn = 0x65_6B78 | (ctxt as u32 >> 4);
    let words = [0x0002_0001, u32::from(LENGTH) << 16 | 1, 0xC000_FFFF, qpn, psn.build().value()];
    let kd = KdHeader {
        ctxt_low: ctxt as u8 & 0xF,
        tid: KdTid::Tid(tid.index() as u16),
        offset_dwords,
        flags: KdFlags::empty(),
    };
    let kd = u64::from_le_bytes(kd.build(LENGTH));
    let mut header = [0; 14];
    header[..5].copy_from_slice(&words.map(u32::swap_bytes));
    (header[5], header[6]) = (kd as u32, (kd >> 32) as u32);
    header
}

#[test]
fn expected_payload_lands_in_the_bound_page_and_a_packet_out_of_order_is_told() {
    let mut card = card("cfgctxts=4");
    let mut receiver = card.device.open_user(PORT).expect("free");
    let ctxt = receiver.context().ctxt().index();
    let memory = card.device.map(3 * 4096).expect("memory");
    let tids = receiver.bind(&memory, 4096, 8192).expect("free");
    let flow = FlowId::new(1).expect("a flow");
    receiver.open_flow(flow, FlowSettings { generation: 3, ..FlowSettings::default() }).expect("a device");
    for (seq, tid, offset, error) in
        [(0, 0, 0, None), (1, 1, 32, None), (7, 1, 64, Some(FlowError::Sequence))]
    {
        let psn = FlowPsn { flow: 1, generation: 3, seq };
        let header = expected_header(ctxt, tids[tid], offset, psn);
        let payload: Vec<u32> = (0..16).map(|n| u32::from(seq) << 8 | n | 0x8000_0000).collect();
        let frame = Frame::new(PORT, &header, Payload::Dwords(&payload));
        card.sender.submit(&frame).expect("a free buffer");
        let mut told = Vec::new();
        receiver.receive(Some(PATIENCE), 1, |arrival| match arrival {
            Arrival::Packet(packet) => told.push(packet.flow_error()),
            other => panic!("{other:?}"),
        });
        assert_eq!(told, [error]);
        let at = 4096 * (1 + tid) + 4 * usize::from(offset);
        let landed = (0..16).all(|n| memory.memory().load_u32(at + 4 * n) == payload[n]);
        assert_eq!(landed, error.is_none(), "packet {seq}");
    }
    let state = receiver.flow(flow).expect("open");
    assert!(state.seq_mismatch && !state.gen_mismatch);
    receiver.close_flow(flow);
    receiver.release(&tids).expect("bound");
    assert_eq!(receiver.flow(flow), None);
}

/// B03, B11: the module is read before the link trains; pulled, the link goes down and is held; pushed in again, another
/// one is read first.
#[test]
fn module_that_is_pulled_takes_its_link_down_and_the_next_one_is_read_before_it_comes_back() {
    let mut card = card("");
    let first = card.device.cable(PORT).expect("a module").expect("that answers");
    assert!(first.oddities().is_empty() && first.length_m > 0, "{first}");
    card.events();
    card.plug(None);
    let mut seen = Vec::new();
    let socket = |event: &Event| match event {
        Event::Link(LinkEvent { port: PORT, change: PortChange::Socket(change) }) => Some(*change),
        _ => None,
    };
    card.until("the removal", |card| {
        seen.extend(card.events().iter().filter_map(socket));
        seen == [SocketChange::Removed]
    });
    assert!(card.device.cable(PORT).is_none());
    card.until("the end of the link", |card| !card.device.link_status(PORT).expect("a port").is_up());
    card.plug(Some(Module::default().with_serial("SECOND")));
    card.until("the second module", |card| {
        seen.extend(card.events().iter().filter_map(socket));
        seen == [SocketChange::Removed, SocketChange::Inserted]
    });
    let second = card.device.cable(PORT).expect("a module").expect("that answers");
    assert_eq!(second.serial, "SECOND");
    card.await_active();
}

#[test]
fn boards_without_cages_come_up_and_say_who_they_are() {
    for board in Board::ALL.into_iter().filter(|board| !board.has_qsfp()) {
        let mut world = World::new(Seed(1), false);
        let node = world.add(Config { board, ..Config::default() });
        let world = SimWorld::manual(world);
        let backend = world.open(node).expect("a card that nobody has open");
        let started = Opening::new(backend).no_links().start(Runtime::Manual);
        let ports = Port::ALL.into_iter().filter(|port| board.speeds(*port) != 0).count();
        match started {
            Ok(device) => {
                assert_eq!(device.identity().chip.board.ports.count(), ports, "{}", board.name());
                assert!(device.cable(PORT).is_none() && !device.is_reading_cable(PORT));
            }
            Err(error) => assert_eq!(ports, 0, "{}: {error}", board.name()),
        }
    }
}
