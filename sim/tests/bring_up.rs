//! Bring-up by the driver of cards that the chip model imitates, in virtual time: from cold to active links.

use qhca_driver::bringup::{
    BringUp, BringUpError, BringUpRequest, BroughtUp, Fault, Hook, InterruptProof, Progress, Proof, Step,
};
use qhca_driver::dma::DmaRegion;
use qhca_driver::env::{Backend, Clock, DmaMapper};
use qhca_driver::link::{
    Command, Goal, LidAssignment, LinkChange, Logical, Physical, PortChange, SocketChange, Speed,
};
use qhca_driver::options::Options;
use qhca_irq::plan::{Grant, Mode, negotiate};
use qhca_irq::{IrqSource, VectorPlan, Wake};
use qhca_regs::map::{device, port};
use qhca_regs::status::{IntBits, PortErrBits};
use qhca_regs::{Ctxt, Duration, Instant, Lid, Port};
use qhca_sim::backend::{SimBar, SimDevice, SimIrq, SimWorld};
use qhca_sim::chip::{Board, Config, Module};
use qhca_sim::fabric::CableConfig;
use qhca_sim::vtime::Seed;
use qhca_sim::world::{NodeId, World};

/// A card that is up, with what keeps it going.
struct Card {
    up: BroughtUp,
    bar: SimBar,
    irq: Option<SimIrq>,
    device: SimDevice,
    interrupts: u64,
    changes: Vec<PortChange>,
    _avail: DmaRegion,
}

fn request(list: &str, lid: u16, goal: Goal) -> BringUpRequest {
    let options = Options::parse(list).expect("good options").options;
    let lid = (lid != 0).then(|| LidAssignment::new(Lid(lid), 0).expect("a LID"));
    BringUpRequest { options, cpus: 2, goals: [Some(goal), Some(goal)], lids: [lid, None] }
}

/// Brings the card at `node` up; what bring-up says if it fails.
fn bring_up(world: &SimWorld, node: NodeId, request: BringUpRequest) -> Result<Card, BringUpError> {
    bring_up_device(world, world.open(node).expect("nobody else has it"), request)
}

fn bring_up_device(
    world: &SimWorld,
    mut device: SimDevice,
    request: BringUpRequest,
) -> Result<Card, BringUpError> {
    let (bar, clock, mut mapper) = (device.bar(), device.clock(), device.mapper());
    let mut bring_up = BringUp::new(request);
    let (mut irq, mut avail) = (None, None);
    loop {
        match bring_up.poll(&bar, clock.now()) {
            Progress::Step(_) => {}
            Progress::Wait { until } => world.advance_to(until),
            Progress::Hook(Hook::TakeVectors) => {
                let request = bring_up.plan_request().expect("the split is made");
                let grant =
                    negotiate(request.wanted(), |mode, wanted| device.grant_vectors(mode, wanted).ok());
                let plan = grant.map(|grant| VectorPlan::new(&request, grant));
                if let Some(plan) = &plan {
                    let vectors: Vec<_> = plan.vectors().iter().collect();
                    irq = Some(device.irq_source(&vectors).expect("granted vectors"));
                }
                bring_up.give_vectors(plan);
            }
            Progress::Hook(Hook::TakeMemory) => {
                let region = mapper.map(4096).expect("memory");
                bring_up.give_memory(region.iova());
                avail = Some(region);
            }
            Progress::Hook(Hook::OpenContexts) => bring_up.contexts_opened(),
            Progress::Done(up) => {
                let avail = avail.expect("bring-up asks for memory");
                return Ok(Card {
                    up: *up,
                    bar,
                    irq,
                    device,
                    interrupts: 0,
                    changes: Vec::new(),
                    _avail: avail,
                });
            }
            Progress::Failed(error) => return Err(error),
        }
    }
}

impl Card {
    /// Serves interrupts and deadlines of links until `until`.
    fn run_until(&mut self, world: &SimWorld, until: Instant) {
        let clock = self.device.clock();
        while clock.now() < until {
            let due = self.up.links.poll_timeout().unwrap_or(until).min(until);
            let wake = self.irq.as_mut().map(|irq| irq.wait(Some(due)));
            match wake {
                Some(Wake::Vectors(vectors)) if !vectors.is_empty() => self.on_interrupt(clock.now()),
                Some(_) => {}
                None => world.advance_to(due),
            }
            self.up.links.on_timeout(&self.bar, clock.now()).expect("a device");
            self.collect();
        }
    }

    fn on_interrupt(&mut self, now: Instant) {
        self.interrupts += 1;
        let status = device::INT_STATUS.read(&self.bar);
        device::INT_CLEAR.clear(&self.bar, status);
        if status.contains(IntBits::ASSERT_GPIO) {
            self.up.links.on_gpio(&self.bar, now);
        }
        for p in self.up.split.ports.iter() {
            if status.contains(IntBits::err_port(p)) {
                let errors = port::ERR_STATUS.port(p).read(&self.bar);
                port::ERR_CLEAR.port(p).clear(&self.bar, errors);
                if errors.contains(PortErrBits::IB_STATUS_CHANGED) {
                    self.up.links.on_port_status(p, &self.bar, now).expect("a device");
                }
            }
        }
        if self.up.plan.as_ref().is_some_and(|plan| plan.mode() == Mode::Intx) {
            self.device.unmask_line();
        }
        self.collect();
    }

    fn collect(&mut self) {
        while let Some(event) = self.up.links.poll_event() {
            self.changes.push(event.change);
        }
    }

    fn state(&self, p: Port) -> (Logical, Physical) {
        let status = self.up.links.link(p).expect("a port in use").status();
        (status.logical(), status.physical())
    }
}

/// Runs both cards by turns, in slices short against any deadline.
fn run_both(world: &SimWorld, a: &mut Card, b: &mut Card, span: Duration) {
    let mut now = a.device.clock().now();
    let end = now + span;
    while now < end {
        now += Duration::from_micros(100);
        a.run_until(world, now);
        b.run_until(world, now);
        // The first card has moved the clock; the second finds its interrupts waiting.
        b.run_until(world, now + Duration::from_nanos(1));
    }
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn config(board: Board, guid: u64) -> Config {
    Config { board, guid, ..Config::default() }
}

fn lone_card(config: Config) -> (SimWorld, NodeId) {
    let mut world = World::new(Seed(7), false);
    let node = world.add(config);
    (SimWorld::manual(world), node)
}

fn cabled() -> (SimWorld, NodeId, NodeId) {
    let mut world = World::new(Seed(7), false);
    let a = world.add(config(Board::Qle7342, 0x0011_7500_00AA_0001));
    let b = world.add(config(Board::Qle7340, 0x0011_7500_00BB_0001));
    world.connect((a, Port::P0), (b, Port::P0), CableConfig::default());
    (SimWorld::manual(world), a, b)
}

#[test]
fn both_boards_come_up_from_cold_with_guid_and_serial() {
    for (board, ports) in [(Board::Qle7340, 1), (Board::Qle7342, 2)] {
        let (world, node) = lone_card(config(board, 0x0011_7500_005A_0001));
        let card = bring_up(&world, node, request("", 0, Goal::Up)).expect("a right chip");
        let BroughtUp { identity, split, report, .. } = &card.up;
        assert_eq!(identity.node_guid().to_string(), "0x00117500005a0001");
        assert!(identity.serial().starts_with("QHCASIM"), "{}", identity.serial());
        assert_eq!(split.ports.count(), ports);
        assert_eq!(report.steps.len(), Step::ALL.len());
        assert_eq!(report.warnings, [], "{report}");
        assert_eq!(split.kernel_contexts().count(), ports);
    }
}

#[test]
fn bring_up_has_no_effect_that_the_model_lacks_beyond_those_known() {
    let (world, node) = lone_card(Config::default());
    let card = bring_up(&world, node, request("krcvqs=3", 5, Goal::Active)).expect("a right chip");
    // The queue pair map, read back: entry i of port 1 is (i mod 3) * 2 + 1.
    let map = port::RCV_QP_MAP_TABLE_A.port(Port::P1).read(&card.bar);
    assert_eq!((map.rcv_qp_map_context0(), map.rcv_qp_map_context1(), map.rcv_qp_map_context2()), (1, 3, 5));
    assert!(port::RCV_CTRL.port(Port::P1).read(&card.bar).rcv_qp_map_enable());
    let timeout = device::RCV_AVAIL_TIMEOUT.ctxt(Ctxt::new(5).expect("a context")).read(&card.bar);
    assert_eq!(timeout.rcv_avail_to_reload(), 375);
}

/// Two cabled ports go active without a subnet manager, with LIDs given by hand.
#[test]
fn two_cabled_ports_go_active_without_a_subnet_manager() {
    let (world, a, b) = cabled();
    let mut a = bring_up(&world, a, request("", 1, Goal::Active)).expect("a right chip");
    let mut b = bring_up(&world, b, request("", 2, Goal::Active)).expect("a right chip");
    run_both(&world, &mut a, &mut b, ms(200));
    for card in [&a, &b] {
        assert_eq!(card.state(Port::P0), (Logical::Active, Physical::LinkUp), "{:?}", card.changes);
        let up = PortChange::Link(LinkChange::Up { speed: Speed::Qdr, lanes: 4 });
        assert!(card.changes.contains(&up), "{:?}", card.changes);
        assert!(card.changes.contains(&PortChange::Link(LinkChange::Active)), "{:?}", card.changes);
    }
    assert_eq!(a.up.links.link(Port::P0).map(|link| link.lid().base()), Some(Lid(1)));
    // The second port has no cable.
    assert_eq!(a.state(Port::P1), (Logical::Down, Physical::Polling));
}

/// B15: a disabled port with LID 0 is enabled again, and comes back.
#[test]
fn disabled_port_is_enabled_again_without_a_lid() {
    let (world, a, b) = cabled();
    let mut a = bring_up(&world, a, request("", 0, Goal::Active)).expect("a right chip");
    let mut b = bring_up(&world, b, request("", 0, Goal::Active)).expect("a right chip");
    run_both(&world, &mut a, &mut b, ms(200));
    let now = a.device.clock().now();
    a.up.links.give_now(Port::P0, Command::Disable, &a.bar, now).expect("possible in every state");
    run_both(&world, &mut a, &mut b, ms(50));
    assert_eq!(a.state(Port::P0), (Logical::Down, Physical::Disabled));
    assert_eq!(b.state(Port::P0).0, Logical::Down);
    assert!(b.changes.contains(&PortChange::Link(LinkChange::Down)));
    let now = a.device.clock().now();
    a.up.links.set_goal(Port::P0, Goal::Active, &a.bar, now).expect("a port");
    run_both(&world, &mut a, &mut b, ms(300));
    assert_eq!(a.state(Port::P0), (Logical::Active, Physical::LinkUp), "{:?}", a.changes);
    assert_eq!(b.state(Port::P0), (Logical::Active, Physical::LinkUp), "{:?}", b.changes);
}

#[test]
fn port_without_a_module_stays_disabled_and_says_why() {
    let (world, node) = lone_card(Config { modules: [None, Some(Module::default())], ..Config::default() });
    let mut card = bring_up(&world, node, request("", 0, Goal::Active)).expect("a right chip");
    let end = card.device.clock().now() + ms(50);
    card.run_until(&world, end);
    assert_eq!(card.state(Port::P0), (Logical::Down, Physical::Disabled));
    assert_eq!(card.up.links.module_present(Port::P0), Some(false));
    assert!(card.up.links.advice(Port::P0).is_some_and(|text| text.contains("no cable module")));
    assert_eq!(card.state(Port::P1).1, Physical::Polling);
    assert!(!card.changes.contains(&PortChange::Socket(SocketChange::Removed)));
}

/// Plugs a module into the first port, or pulls it.
fn plug(world: &SimWorld, node: NodeId, present: bool) {
    let now = world.clock().now();
    world.with(|world| {
        let (chip, host) = world.chip_mut(node);
        chip.set_module(Port::P0, present, now, host);
    });
}

#[test]
fn module_plugged_in_later_enables_its_port_after_the_settling_time() {
    let (world, node) = lone_card(Config { modules: [None, None], ..Config::default() });
    let mut card = bring_up(&world, node, request("", 0, Goal::Active)).expect("a right chip");
    let start = card.device.clock().now();
    card.run_until(&world, start + ms(10));
    plug(&world, node, true);
    card.run_until(&world, start + ms(1500));
    assert_eq!(card.state(Port::P0).1, Physical::Disabled, "the module is given 2 s");
    card.run_until(&world, start + ms(2200));
    assert_eq!(card.changes, [PortChange::Socket(SocketChange::Inserted)]);
    assert_eq!(card.state(Port::P0).1, Physical::Polling);

    plug(&world, node, false);
    card.run_until(&world, start + ms(2300));
    assert_eq!(card.changes.last(), Some(&PortChange::Socket(SocketChange::Removed)));
    assert_eq!(card.state(Port::P0).1, Physical::Disabled);
    assert!(card.interrupts < 20, "{} interrupts for two changes", card.interrupts);
}

#[test]
fn cable_that_is_pulled_and_put_back_brings_the_link_back() {
    let mut world = World::new(Seed(7), false);
    let a = world.add(config(Board::Qle7340, 0x0011_7500_00AA_0001));
    let b = world.add(config(Board::Qle7340, 0x0011_7500_00BB_0001));
    let cable = world.connect((a, Port::P0), (b, Port::P0), CableConfig::default());
    let world = SimWorld::manual(world);
    let mut a = bring_up(&world, a, request("", 1, Goal::Active)).expect("a right chip");
    let mut b = bring_up(&world, b, request("", 2, Goal::Active)).expect("a right chip");
    for round in 1..=3 {
        run_both(&world, &mut a, &mut b, ms(300));
        assert_eq!(a.state(Port::P0), (Logical::Active, Physical::LinkUp), "round {round}");
        assert_eq!(b.state(Port::P0), (Logical::Active, Physical::LinkUp), "round {round}");
        world.with(|world| world.unplug(cable));
        run_both(&world, &mut a, &mut b, ms(50));
        assert_eq!((a.state(Port::P0).0, b.state(Port::P0).0), (Logical::Down, Logical::Down));
        world.with(|world| world.replug(cable));
    }
    let downs = |card: &Card| {
        card.changes.iter().filter(|change| **change == PortChange::Link(LinkChange::Down)).count()
    };
    assert_eq!((downs(&a), downs(&b)), (3, 3));
}

/// B36: the chip is made to interrupt, and the interrupt is seen; a card without any cable is no false alarm.
#[test]
fn interrupts_are_proven_on_a_card_without_cables() {
    let (world, node) = lone_card(Config { modules: [None, None], ..Config::default() });
    let mut card = bring_up(&world, node, request("", 0, Goal::Active)).expect("a right chip");
    let plan = card.up.plan.clone().expect("vectors");
    assert_eq!(plan.mode(), Mode::MsiX);
    let start = card.device.clock().now();
    let mut proof = InterruptProof::start(&plan, &mut card.up.links, 0, &card.bar, start);
    card.run_until(&world, start + ms(10));
    let now = card.device.clock().now();
    let seen = card.interrupts;
    assert_eq!(proof.poll(seen, &mut card.up.links, &card.bar, now), Proof::Proven);
    // And it does not go on interrupting.
    card.run_until(&world, now + ms(100));
    assert!(card.interrupts <= seen + 1, "{} interrupts after the proof", card.interrupts - seen);
}

/// B36: MSI-X that never arrives falls back once to the interrupt line, which is then proven.
#[test]
fn silent_messages_fall_back_to_the_line() {
    let (world, node) = lone_card(Config { modules: [None, None], ..Config::default() });
    let mut card = bring_up(&world, node, request("", 0, Goal::Active)).expect("a right chip");
    let mut plan = card.up.plan.clone().expect("vectors");
    // Nobody listens: messages are lost on their way.
    card.irq = None;
    let start = card.device.clock().now();
    let mut proof = InterruptProof::start(&plan, &mut card.up.links, 0, &card.bar, start);
    let Proof::Waiting(until) = proof.poll(0, &mut card.up.links, &card.bar, start) else {
        panic!("nothing can be known yet");
    };
    world.advance_to(until);
    assert_eq!(proof.poll(0, &mut card.up.links, &card.bar, until), Proof::FallBack);

    let request = card.up.split.plan_request(&Options::default()).expect("a plan");
    card.device.grant_vectors(Mode::Intx, 1).expect("the line");
    plan = VectorPlan::new(&request, Grant::Intx);
    card.irq = Some(card.device.irq_source(&plan.vectors().iter().collect::<Vec<_>>()).expect("one vector"));
    card.up.plan = Some(plan.clone());
    // The line may have fired before anybody listened, and waits to be unmasked since.
    card.device.unmask_line();
    proof.fall_back(&plan, 0, &mut card.up.links, &card.bar, until).expect("a device");
    card.run_until(&world, until + ms(20));
    let now = card.device.clock().now();
    assert_eq!(proof.poll(card.interrupts, &mut card.up.links, &card.bar, now), Proof::Proven);
}

#[test]
fn card_that_vanishes_is_gone_in_the_step_where_it_vanished() {
    for stop_after in [0, 1, 4, 8, 12, 16] {
        let (world, node) = lone_card(Config::default());
        let device = world.open(node).expect("nobody else has it");
        let (bar, clock) = (device.bar(), device.clock());
        let mut bring_up = BringUp::new(request("", 0, Goal::Up));
        let mut steps = 0;
        let error = loop {
            if steps == stop_after {
                world.with(|world| world.set_present(node, false, clock.now()));
            }
            match bring_up.poll(&bar, clock.now()) {
                Progress::Step(_) => steps += 1,
                Progress::Wait { until } => world.advance_to(until),
                Progress::Hook(Hook::TakeVectors) => bring_up.give_vectors(None),
                Progress::Hook(Hook::TakeMemory) => bring_up.give_memory(0x1_0000),
                Progress::Hook(_) => bring_up.contexts_opened(),
                Progress::Failed(error) => break error,
                Progress::Done(_) => panic!("the card is not there"),
            }
        };
        let text = error.to_string();
        assert!(text.contains("no device answers") || text.contains("no longer answers"), "{text}");
        assert!(error.step.number() > stop_after, "{text}");
        assert!(!matches!(error.fault, Fault::OutOfOrder | Fault::Deadline { .. }), "{text}");
    }
}

/// B38, B39: with vectors short of the wish, down to one, every cause still reaches its handler once.
#[test]
fn few_vectors_still_bring_the_card_up_and_its_links_too() {
    for vectors in [1, 2, 3, 11] {
        let (world, a, b) = cabled();
        let mut device = world.open(a).expect("nobody else has it");
        device.limit_vectors(vectors);
        let mut a = bring_up_device(&world, device, request("", 1, Goal::Active)).expect("a right chip");
        let mut b = bring_up(&world, b, request("", 2, Goal::Active)).expect("a right chip");
        assert_eq!(a.up.plan.as_ref().map(VectorPlan::len), Some(vectors));
        run_both(&world, &mut a, &mut b, ms(200));
        assert_eq!(
            a.state(Port::P0),
            (Logical::Active, Physical::LinkUp),
            "{vectors} vectors: {:?}",
            a.changes
        );
        let ups = a.changes.iter().filter(|change| matches!(change, PortChange::Link(LinkChange::Up { .. })));
        assert_eq!(ups.count(), 1, "{:?}", a.changes);
    }
}
