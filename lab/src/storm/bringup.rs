//! Two cards from cold, a cable between them, and a link that carries data: the machine before the storm.
//!
//! Both cards are brought up by the driver's own steps, and both links are made ACTIVE by static LIDs. Accesses take time
//! here too, since bring-up waits for the chip, but nobody pays for them: the measurement begins later.
//!
//! The receiver's overflow counters start close to their end, so that every run sees one of them wrap.

use std::cell::RefCell;
use std::sync::Arc;

use qhca_driver::bringup::{BringUp, BringUpRequest, BroughtUp, Hook, Progress};
use qhca_driver::dma::{DmaMemory, DmaRegion, PAGE_BYTES};
use qhca_driver::env::{DmaMapper, MapError};
use qhca_driver::fault::Policy;
use qhca_driver::hca::{Hca, HcaSetup};
use qhca_driver::link::{Goal, LidAssignment, Logical};
use qhca_driver::rx::Context;
use qhca_driver::slots::Wanted;
use qhca_driver::tx::SendControl;
use qhca_irq::plan::PlanRequest;
use qhca_irq::source::Source as IrqSource;
use qhca_irq::{Grant, VectorPlan, VectorUse};
use qhca_regs::map::{counter, device};
use qhca_regs::{Bar, Buffer, Ctxt, Duration, Lid, Port, Vector};
use qhca_sim::chip::{Board, Config};
use qhca_sim::fabric::CableConfig;
use qhca_sim::vtime::Sort;
use qhca_sim::world::{NodeId, World};

use super::machine::{Setup, Source};
use super::node::Node;
use super::packets::Packets;
use super::rc::Reliable;
use super::run::{Case, StormError, Transport};

/// The port that the board has.
const PORT: Port = Port::P0;
const SENDER_LID: Lid = Lid(1);
const RECEIVER_LID: Lid = Lid(2);
/// An access before the measurement.
const ACCESS: Duration = Duration::from_nanos(500);
/// Where the overflow counters start: 256 drops before they wrap.
const COUNTER_START: u64 = 0xFFFF_FF00;
/// How often the links are looked at while they train.
const LINK_LOOK: Duration = Duration::from_micros(100);
/// TIMEOUT: links of the model train in some milliseconds; ten times the longest wait of the driver.
const LINK_LOOKS_MAX: u32 = 10_000;

/// The bar of one card while nothing is measured.
#[derive(Clone, Copy)]
pub(super) struct FreeBar<'a> {
    world: &'a RefCell<World>,
    node: NodeId,
}

impl<'a> FreeBar<'a> {
    pub(super) fn new(world: &'a RefCell<World>, node: NodeId) -> Self {
        Self { world, node }
    }
}

impl Bar for FreeBar<'_> {
    fn read(&self, offset: u32) -> u64 {
        let world = &mut *self.world.borrow_mut();
        let now = world.now() + ACCESS;
        world.read(self.node, offset, now)
    }

    fn write(&self, offset: u32, value: u64) {
        let world = &mut *self.world.borrow_mut();
        let now = world.now() + ACCESS;
        world.write(self.node, offset, value, now);
    }

    fn doorbell(&self, offset: u32, value: u64) {
        self.write(offset, value);
    }

    fn burst(&self, offset: u32, dwords: &[u32]) {
        let world = &mut *self.world.borrow_mut();
        let now = world.now() + ACCESS;
        world.burst(self.node, offset, dwords, now);
    }
}

/// Memory of one card's machine.
struct Mapper<'a> {
    world: &'a RefCell<World>,
    node: NodeId,
}

impl DmaMapper for Mapper<'_> {
    fn map(&mut self, len_bytes: usize) -> Result<DmaRegion, MapError> {
        let memory = DmaMemory::new(len_bytes).map_err(|source| MapError::NoMemory { len_bytes, source })?;
        let memory = Arc::new(memory);
        let iova = self.world.borrow_mut().host_mut(self.node).map(Arc::clone(&memory));
        iova.map(|iova| DmaRegion::new(memory, iova, None)).ok_or(MapError::NoAddress { len_bytes })
    }
}

/// A card that is up.
struct Card {
    hca: Hca,
    contexts: Vec<Context>,
    plan: VectorPlan,
}

/// Brings both cards up and waits for the link.
pub(super) fn bring_up(case: &Case) -> Result<(Setup, Node), StormError> {
    let world = RefCell::new(World::new(case.seed, false));
    let sender = add_board(&world, case, 0x0011_7500_0000_1000);
    let receiver = add_board(&world, case, 0x0011_7500_0000_2000);
    world.borrow_mut().connect((sender, PORT), (receiver, PORT), CableConfig::default());
    let mut from = bring_up_card(&world, sender, case, Policy::Guarded, SENDER_LID)?;
    let mut to = bring_up_card(&world, receiver, case, case.policy, RECEIVER_LID)?;
    train(&world, &mut [(sender, &mut from), (receiver, &mut to)])?;
    for context in &mut to.contexts {
        context.arm(&FreeBar::new(&world, receiver));
    }
    let Card { hca, contexts, plan } = to;
    let mut world = world.into_inner();
    // What came during bring-up was served by looking.
    let _ = world.host_mut(receiver).irqs_mut().take_pending();
    let setup = Setup {
        world,
        node: receiver,
        port: PORT,
        source: match case.transport {
            Transport::Raw => Source::Raw(Packets::new(SENDER_LID, RECEIVER_LID)),
            Transport::Rc => {
                let window = case.costs.window_packets;
                Source::Rc(Box::new(Reliable::new(SENDER_LID, RECEIVER_LID, window)?))
            }
        },
        vectors: plan.vectors().iter().map(|vector| (vector, sort(&plan, vector))).collect(),
    };
    Ok((setup, Node::new(case.policy, hca, contexts)))
}

fn add_board(world: &RefCell<World>, case: &Case, guid: u64) -> NodeId {
    let config = Config { board: Board::Qle7340, guid, seed: case.seed.0, ..Config::default() };
    world.borrow_mut().add(config)
}

/// The driver's steps, with the caller's three parts.
fn bring_up_card(
    world: &RefCell<World>,
    node: NodeId,
    case: &Case,
    policy: Policy,
    lid: Lid,
) -> Result<Card, StormError> {
    let bar = FreeBar::new(world, node);
    let lid = LidAssignment::new(lid, 0).map_err(StormError::bring_up)?;
    let mut steps = BringUp::new(BringUpRequest {
        options: case.options.clone(),
        cpus: 0,
        goals: [Some(Goal::Active), None],
        lids: [Some(lid), None],
    });
    let mut request = None;
    let mut avail = None;
    let up = loop {
        let now = world.borrow().now();
        match steps.poll(&bar, now) {
            Progress::Step(_) => {}
            Progress::Wait { until } => world.borrow_mut().advance_to(until),
            Progress::Hook(Hook::TakeVectors) => {
                let wanted = steps.plan_request().ok_or_else(|| StormError::bring_up("no vector plan"))?;
                steps.give_vectors(Some(VectorPlan::new(&wanted, Grant::MsiX { vectors: wanted.wanted() })));
                request = Some(wanted);
            }
            Progress::Hook(Hook::TakeMemory) => {
                let page = Mapper { world, node }.map(PAGE_BYTES).map_err(StormError::bring_up)?;
                steps.give_memory(page.iova());
                avail = Some(page);
            }
            Progress::Hook(Hook::OpenContexts) => {
                let send = SendControl::new(steps.controls_mut().send());
                (0..Buffer::COUNT).filter_map(Buffer::new).for_each(|buffer| send.disarm(&bar, buffer));
                steps.contexts_opened();
            }
            Progress::Done(up) => break *up,
            Progress::Failed(error) => return Err(StormError::from_bring_up(error)),
        }
    };
    match (request, avail) {
        (Some(request), Some(avail)) => start(world, node, policy, up, request, avail),
        _ => Err(StormError::bring_up("bring-up asked for neither vectors nor memory")),
    }
}

/// The state machine on top of what bring-up has left, its contexts open.
fn start(
    world: &RefCell<World>,
    node: NodeId,
    policy: Policy,
    up: BroughtUp,
    request: PlanRequest,
    avail: DmaRegion,
) -> Result<Card, StormError> {
    let bar = FreeBar::new(world, node);
    let plan = up.plan.ok_or_else(|| StormError::bring_up("no vectors"))?;
    let kernel: Vec<Ctxt> = up.split.kernel_contexts().map(|(ctxt, _)| ctxt).collect();
    preset_overflow_counters(&kernel, &bar);
    let mut hca = Hca::new(HcaSetup {
        policy,
        request,
        plan: Some(plan.clone()),
        split: up.split,
        masks: up.masks,
        links: up.links,
        controls: up.controls,
        avail,
    });
    let now = world.borrow().now();
    hca.start(&bar, now);
    let mut contexts = Vec::with_capacity(kernel.len());
    for ctxt in kernel {
        let opened = hca.open_context(Wanted::Kernel(ctxt), &mut Mapper { world, node }, &bar);
        contexts.push(opened.map_err(StormError::bring_up)?);
    }
    Ok(Card { hca, contexts, plan })
}

/// Sets the counters near their end, through the diagnostics that make them writable.
fn preset_overflow_counters(contexts: &[Ctxt], bar: &impl Bar) {
    let diagnostics = device::HwDiagCtrl::default();
    device::HW_DIAG_CTRL.write(bar, diagnostics.with_counter_wr_enable(true));
    for &ctxt in contexts {
        counter::RX_HDR_EGR_OVFL_CNT.ctxt(ctxt).write(bar, COUNTER_START);
    }
    device::HW_DIAG_CTRL.write(bar, diagnostics);
}

/// Lets both links train, looked after by their drivers, until both are ACTIVE.
fn train(world: &RefCell<World>, cards: &mut [(NodeId, &mut Card); 2]) -> Result<(), StormError> {
    for _ in 0..LINK_LOOKS_MAX {
        let next = world.borrow().now() + LINK_LOOK;
        world.borrow_mut().advance_to(next);
        let mut active = true;
        for (node, card) in cards.iter_mut() {
            active &= look_after(world, *node, card)?;
        }
        if active {
            return Ok(());
        }
    }
    Err(StormError::bring_up("the link between the simulated cards does not become ACTIVE"))
}

/// One turn of a card's driver while its link trains; tells whether the link is ACTIVE.
fn look_after(world: &RefCell<World>, node: NodeId, card: &mut Card) -> Result<bool, StormError> {
    let bar = FreeBar::new(world, node);
    let now = world.borrow().now();
    let pending = world.borrow_mut().host_mut(node).irqs_mut().take_pending();
    for vector in pending.iter() {
        let _ = card.hca.on_interrupt(vector, &bar, now);
    }
    while card.hca.poll_deferred(&bar, now).is_some() {}
    // Under a policy that masks all errors no change of a link interrupts, so it is looked at as well.
    card.hca.links_mut().on_port_status(PORT, &bar, now).map_err(StormError::bring_up)?;
    card.hca.on_timeout(&bar, now);
    while card.hca.poll_event().is_some() {}
    Ok(card.hca.links().link(PORT).is_some_and(|link| link.status().logical() == Logical::Active))
}

/// What a vector is about.
fn sort(plan: &VectorPlan, vector: Vector) -> Sort {
    match plan.use_of(vector) {
        Some(VectorUse::Default) => Sort::Error,
        Some(VectorUse::Dedicated(IrqSource::RcvAvail(_))) => Sort::Receive,
        _ => Sort::Other,
    }
}
