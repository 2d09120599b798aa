//! The receiving machine in virtual time: its chip and cable, its interrupts, and the one core that serves them.
//!
//! Every nanosecond passes through [`Machine::spend`]. It books the span on the core, then lets the world live through
//! it: packets arrive, moderation timers run out, errors are injected, messages reach the core. Whatever the driver
//! reads next, it reads from the chip as it is by then.

use std::cell::RefCell;

use qhca_driver::fault::Policy;
use qhca_driver::rx::Packet;
use qhca_irq::VectorSet;
use qhca_regs::map::port as port_regs;
use qhca_regs::status::{ErrBits, HwErrBits, PortErrBits};
use qhca_regs::{Bar, Ctxt, Duration, Instant, Port, RegValue, Vector};
use qhca_sim::chip::{Injection, Meta, Totals};
use qhca_sim::vtime::{Class, Core, Distribution, Engine, Label, Outcome, Rng, Sort, TaskId, Timer, Turn};
use qhca_sim::world::{NodeId, World};

use super::bringup::FreeBar;
use super::costs::Costs;
use super::node::Node;
use super::packets::Packets;
use super::rc::Reliable;
use super::run::Case;
use super::workload::{Arrivals, Injected, Injector, stall_start};

/// What happens by itself.
#[derive(Clone, Copy, Debug)]
enum Event {
    Arrival,
    Answer,
    StallBegins,
    Inject(Injected),
    HardwareFault,
    DriverTimer,
}

/// Whose account a span goes to, beside its label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Path {
    /// Entry, exit and status of an interrupt whose purpose is not known yet.
    Dispatch,
    /// Serving errors.
    Error,
    /// Serving packets.
    Receive,
    /// The stall.
    Stall,
}

/// What can be charged, as registered with the core's ledger.
#[derive(Clone, Copy, Debug)]
pub(super) struct Labels {
    pub(super) read: Label,
    pub(super) write: Label,
    pub(super) entry: Label,
    pub(super) exit: Label,
    pub(super) packet: Label,
    pub(super) dropped: Label,
    pub(super) decode: Label,
    pub(super) error: Label,
    pub(super) worker: Label,
    pub(super) stall: Label,
}

impl Labels {
    fn register(core: &mut Core) -> Self {
        Self {
            read: core.label("register read"),
            write: core.label("posted write"),
            entry: core.label("interrupt entry"),
            exit: core.label("interrupt exit"),
            packet: core.label("packet received"),
            dropped: core.label("entry of a dropped packet"),
            decode: core.label("error word decoded"),
            error: core.label("error handler"),
            worker: core.label("worker started"),
            stall: core.label("stall"),
        }
    }
}

/// What an interrupt turned out to be for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Purpose {
    /// It told of an error.
    pub(super) is_error: bool,
    /// It told of packets.
    pub(super) is_receive: bool,
}

/// What a step is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Job {
    /// The handler of a vector.
    Vector(Vector),
    /// The stall.
    Stall,
    /// The published tasklet: a soft interrupt.
    Tasklet,
    /// The deferred worker.
    Worker,
    /// The driver's timers, a soft interrupt as well.
    Timer,
}

/// The tasks of the core, each with its job.
#[derive(Clone, Debug)]
struct Tasks {
    jobs: Vec<(TaskId, Job)>,
    vectors: [Option<TaskId>; Vector::COUNT],
}

impl Tasks {
    fn add(core: &mut Core, vectors: &[(Vector, Sort)]) -> Self {
        let mut tasks = Self { jobs: Vec::new(), vectors: [None; Vector::COUNT] };
        for (vector, sort) in vectors {
            let task = core.add_task(Class::HardIrq, *sort, "vector");
            tasks.vectors[vector.index()] = Some(task);
            tasks.jobs.push((task, Job::Vector(*vector)));
        }
        for (job, class, name) in [
            (Job::Stall, Class::HardIrq, "stall"),
            (Job::Tasklet, Class::SoftIrq, "tasklet"),
            (Job::Timer, Class::SoftIrq, "timer"),
            (Job::Worker, Class::Worker, "worker"),
        ] {
            tasks.jobs.push((core.add_task(class, Sort::Other, name), job));
        }
        tasks
    }

    fn of(&self, job: Job) -> Option<TaskId> {
        self.jobs.iter().find(|(_, one)| *one == job).map(|(task, _)| *task)
    }

    fn job(&self, task: TaskId) -> Option<Job> {
        self.jobs.iter().find(|(one, _)| *one == task).map(|(_, job)| *job)
    }
}

/// A happening's argument in the fingerprint.
fn job_number(job: Job) -> u64 {
    match job {
        Job::Vector(vector) => vector.index() as u64,
        Job::Stall => 100,
        Job::Tasklet => 101,
        Job::Worker => 102,
        Job::Timer => 103,
    }
}

/// What the chip is told for `error`.
pub(super) fn injection(error: Injected, port: Port) -> Injection {
    match error {
        Injected::EgrFull => Injection::Device(ErrBits::RCV_EGR_FULL_ERR),
        Injected::ArmLaunch => Injection::Device(ErrBits::SEND_ARM_LAUNCH_ERR),
        Injected::Icrc => Injection::Port(port, PortErrBits::RCV_ICRC_ERR),
        Injected::Hdr => Injection::Port(port, PortErrBits::RCV_HDR_ERR),
    }
}

/// Sums since the world began; a measurement is the difference of two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sums {
    pub(super) packets: u64,
    pub(super) payload_bytes: u64,
    pub(super) error_irqs: u64,
    pub(super) receive_irqs: u64,
    pub(super) other_irqs: u64,
    pub(super) error_and_receive_irqs: u64,
    /// Messages whose interrupt was pending already.
    pub(super) merged_messages: u64,
    pub(super) reads: u64,
    pub(super) writes: u64,
    pub(super) turns: u64,
    pub(super) turn_reads: u64,
    pub(super) error_time: Duration,
    pub(super) receive_time: Duration,
}

impl Sums {
    /// Interrupts of any kind.
    pub(super) fn interrupts(&self) -> u64 {
        self.error_irqs + self.receive_irqs - self.error_and_receive_irqs + self.other_irqs
    }
}

/// See the module.
pub(super) struct Machine {
    engine: Engine<Event>,
    core: Core,
    world: World,
    node: NodeId,
    port: Port,
    costs: Costs,
    labels: Labels,
    tasks: Tasks,
    path: Path,
    /// Time of the interrupt under way that is on no path yet.
    undecided: Duration,
    sums: Sums,
    arrivals: Arrivals,
    injector: Injector,
    source: Source,
    packet_cost: Distribution,
    packet_rng: Rng,
    /// Vectors whose message has come and whose handler has not begun.
    signalled: VectorSet,
    driver_timer: Option<(Instant, Timer)>,
    /// When the stall began and ended, once it has.
    stalled: Option<(Instant, Instant)>,
    fault_at: Option<Instant>,
    sends_off_at: Option<Instant>,
}

/// Where packets come from.
pub(super) enum Source {
    /// A sender that knows nothing of loss.
    Raw(Packets),
    /// One that repeats.
    Rc(Box<Reliable>),
}

/// What the machine is made of.
pub(super) struct Setup {
    /// Both cards, brought up, their link ACTIVE.
    pub(super) world: World,
    /// The receiver's card.
    pub(super) node: NodeId,
    /// The port that the packets come to.
    pub(super) port: Port,
    /// The packets.
    pub(super) source: Source,
    /// The vectors in use, each with what it is about.
    pub(super) vectors: Vec<(Vector, Sort)>,
}

impl Machine {
    /// The machine at the end of bring-up, with everything scheduled that the storm brings.
    pub(super) fn new(setup: Setup, case: &Case) -> Self {
        let (start, costs) = (setup.world.now(), case.costs);
        let mut engine = Engine::new(case.seed);
        engine.advance_to(start);
        let mut core = Core::starting_at(case.order, start);
        let labels = Labels::register(&mut core);
        let tasks = Tasks::add(&mut core, &setup.vectors);
        let mut arrivals = Arrivals::new(&engine, &costs, start);
        engine.schedule(arrivals.next_arrival(), Event::Arrival);
        let stall = stall_start(&engine, &costs, start);
        engine.schedule(stall, Event::StallBegins);
        let injector = Injector::new(case.storm, &costs);
        if let Some(after) = case.hardware_fault {
            engine.schedule(start + after, Event::HardwareFault);
        }
        Self {
            packet_cost: Distribution::Jitter(costs.receive, costs.receive_jitter),
            packet_rng: engine.source("receive"),
            engine,
            core,
            world: setup.world,
            node: setup.node,
            port: setup.port,
            costs,
            labels,
            tasks,
            path: Path::Dispatch,
            undecided: Duration::ZERO,
            sums: Sums::default(),
            arrivals,
            injector,
            source: setup.source,
            signalled: VectorSet::EMPTY,
            driver_timer: None,
            stalled: None,
            fault_at: None,
            sends_off_at: None,
        }
    }

    /// The virtual time.
    pub(super) fn now(&self) -> Instant {
        self.engine.now()
    }

    /// Uses `span` of the core, and lets the world live through it.
    pub(super) fn spend(&mut self, label: Label, span: Duration) {
        self.core.spend(label, span);
        match self.path {
            Path::Dispatch => self.undecided += span,
            Path::Error => self.sums.error_time += span,
            Path::Receive => self.sums.receive_time += span,
            Path::Stall => {}
        }
        self.live_until(self.engine.now() + span);
    }

    /// Lets everything happen that is due up to `to`; the clock ends there.
    fn live_until(&mut self, to: Instant) {
        loop {
            let world_at = self.world.next_deadline().filter(|&at| at <= to);
            match (self.engine.pop_until(world_at.unwrap_or(to)), world_at) {
                (Some(event), _) => self.on_event(event),
                (None, Some(at)) => {
                    self.engine.advance_to(at);
                    self.world.advance_to(at);
                    self.take_messages();
                }
                (None, None) => break,
            }
        }
        self.engine.advance_to(to);
    }

    fn on_event(&mut self, event: Event) {
        let now = self.engine.now();
        match event {
            Event::Arrival => {
                self.world.advance_to(now);
                let packet = match &mut self.source {
                    Source::Raw(packets) => Some(packets.next_packet()),
                    Source::Rc(rc) => rc.next_packet(now),
                };
                if let Some(packet) = packet {
                    let (chip, host) = self.world.chip_mut(self.node);
                    chip.deliver(self.port, packet, Meta::GOOD, now, host);
                }
                let next = self.arrivals.next_arrival();
                self.engine.schedule(next, Event::Arrival);
            }
            Event::Answer => {
                if let Source::Rc(rc) = &mut self.source {
                    rc.on_answer(now);
                }
            }
            Event::StallBegins => self.wake(Job::Stall),
            Event::Inject(error) => {
                self.world.inject(self.node, injection(error, self.port), now);
                if let Some((next, gap)) = self.injector.next_error() {
                    self.engine.schedule_in(gap, Event::Inject(next));
                }
            }
            Event::HardwareFault => {
                self.engine.record("hardware fault", [0, 0]);
                self.fault_at = Some(now);
                self.world.inject(self.node, Injection::Hardware(HwErrBits::MEMORY_ERR), now);
            }
            Event::DriverTimer => {
                self.driver_timer = None;
                self.wake(Job::Timer);
            }
        }
        self.take_messages();
    }

    /// Notes the moment in which the driver switches sends off.
    fn watch_sends(&mut self, offset: u32, value: u64) {
        let register = port_regs::SEND_CTRL.port(self.port);
        if offset == register.offset() && !port_regs::SendCtrl::from_raw(value).send_enable() {
            self.sends_off_at.get_or_insert(self.engine.now());
        }
    }

    /// Hands the chip's messages to the core.
    fn take_messages(&mut self) {
        let now = self.engine.now();
        for vector in self.world.host_mut(self.node).irqs_mut().take_pending().iter() {
            self.engine.record("message", [vector.index() as u64, 0]);
            self.sums.merged_messages += u64::from(self.signalled.contains(vector));
            self.signalled = self.signalled.with(vector);
            if let Some(task) = self.tasks.vectors[vector.index()] {
                self.core.wake(task, now);
            }
        }
    }

    /// What the core does next; while it has nothing to do, time passes. `None` once `end` is reached.
    pub(super) fn next_job(&mut self, end: Instant) -> Option<Job> {
        loop {
            let now = self.engine.now();
            if now >= end {
                return None;
            }
            match self.core.turn(now) {
                Turn::Run(task) => return self.begin(task),
                Turn::Busy(_) => unreachable!("every step here is live"),
                Turn::Idle => self.live_to_next(end),
            }
        }
    }

    /// Lets the next thing happen, or the clock reach `end`.
    fn live_to_next(&mut self, end: Instant) {
        let next = [self.engine.next_at(), self.world.next_deadline(), Some(end)].into_iter().flatten().min();
        self.live_until(next.unwrap_or(end));
    }

    fn begin(&mut self, task: TaskId) -> Option<Job> {
        self.path = Path::Dispatch;
        self.undecided = Duration::ZERO;
        let job = self.tasks.job(task)?;
        self.engine.record("step", [job_number(job), 0]);
        Some(job)
    }

    /// Ends the step of the job that [`Machine::next_job`] gave.
    pub(super) fn end_job(&mut self, outcome: Outcome) {
        let now = self.engine.now();
        self.core.finish_live(outcome, now);
    }

    /// From here on time goes to `path`; returns where it went before.
    pub(super) fn enter(&mut self, path: Path) -> Path {
        std::mem::replace(&mut self.path, path)
    }

    /// Begins an interrupt; returns the time at the handler's first instruction.
    pub(super) fn enter_interrupt(&mut self) -> Instant {
        self.path = Path::Dispatch;
        self.undecided = Duration::ZERO;
        self.spend(self.labels.entry, self.costs.entry);
        self.engine.now()
    }

    /// Ends an interrupt whose dispatch `took` so long.
    ///
    /// What dispatch did about errors is the error path's. The rest, entry and exit included, is the packets' if the
    /// interrupt served any, else the errors'.
    pub(super) fn leave_interrupt(&mut self, purpose: Purpose, took: Duration) {
        self.path = Path::Dispatch;
        self.spend(self.labels.exit, self.costs.exit);
        self.sums.error_irqs += u64::from(purpose.is_error);
        self.sums.receive_irqs += u64::from(purpose.is_receive);
        self.sums.error_and_receive_irqs += u64::from(purpose.is_error && purpose.is_receive);
        self.sums.other_irqs += u64::from(!purpose.is_error && !purpose.is_receive);
        let plain = self.costs.read + self.costs.write;
        let errors = if purpose.is_error { took - plain } else { Duration::ZERO };
        self.sums.error_time += errors;
        let rest = std::mem::take(&mut self.undecided) - errors;
        match purpose {
            Purpose { is_receive: true, .. } => self.sums.receive_time += rest,
            Purpose { is_error: true, .. } => self.sums.error_time += rest,
            _ => {}
        }
    }

    /// Whether a message for `vector` has come since its handler began last.
    pub(super) fn take_message(&mut self, vector: Vector) -> bool {
        let came = self.signalled.contains(vector);
        self.signalled = self.signalled.without(vector);
        came
    }

    /// How many packets one batch may take.
    pub(super) fn batch_packets(&self, policy: Policy) -> usize {
        match policy {
            Policy::Guarded => self.costs.guarded_batch_packets,
            _ => self.costs.batch_packets,
        }
    }

    /// Uses the core for one received packet, which a transport may take or not.
    pub(super) fn spend_packet(&mut self, packet: &Packet<'_>) {
        let now = self.engine.now();
        let taken_bytes = match &mut self.source {
            Source::Raw(_) => packet.payload.len(),
            Source::Rc(rc) => rc.take(packet, now),
        };
        self.sums.packets += 1;
        let span = match taken_bytes {
            0 => self.costs.refused,
            _ => self.packet_cost.draw(&mut self.packet_rng),
        };
        self.sums.payload_bytes += taken_bytes as u64;
        self.spend(self.labels.packet, span);
    }

    /// Sends what the transport has to say: programmed I/O of so many dwords an answer, control word included.
    pub(super) fn send_answers(&mut self) {
        const CONTROL_DWORDS: usize = 2;
        let Source::Rc(rc) = &mut self.source else { return };
        let mut qwords = Vec::new();
        rc.send_answers(self.engine.now(), |dwords| {
            qwords.push((dwords + CONTROL_DWORDS).div_ceil(2) as u64)
        });
        for count in qwords {
            self.sums.writes += count;
            self.spend(self.labels.write, self.costs.write.times(count));
            self.engine.schedule_in(self.costs.answer, Event::Answer);
        }
    }

    /// Whether the sender repeats, and has given up.
    pub(super) fn is_broken(&self) -> bool {
        matches!(&self.source, Source::Rc(rc) if rc.is_broken())
    }

    /// Uses the core for an entry that tells of a packet without payload.
    pub(super) fn spend_dropped(&mut self) {
        self.spend(self.labels.dropped, self.costs.dropped);
    }

    /// Uses the core for the start of a worker's turn.
    pub(super) fn spend_worker(&mut self) {
        self.spend(self.labels.worker, self.costs.worker);
    }

    /// Uses the core for error words that were served and decoded.
    pub(super) fn spend_service(&mut self, served: u64, decoded: u64, old_decoder: bool) {
        let decode = if old_decoder { self.costs.decode_old } else { self.costs.decode_new };
        for _ in 0..served {
            self.spend(self.labels.error, self.costs.error);
        }
        for _ in 0..decoded {
            self.spend(self.labels.decode, decode);
        }
    }

    /// The stall: the core is busy with something else.
    pub(super) fn stall(&mut self) {
        self.path = Path::Stall;
        let from = self.engine.now();
        // Errors that are injected begin with the stall: earlier, a policy that serves them all where they interrupt would
        // never let it begin.
        if let Some((error, _)) = self.injector.next_error() {
            self.engine.schedule(from, Event::Inject(error));
        }
        self.spend(self.labels.stall, self.costs.stall);
        self.stalled = Some((from, self.engine.now()));
    }

    /// Ends a turn that began when `reads` registers had been read.
    pub(super) fn note_turn(&mut self, reads: u64) {
        self.sums.turns += 1;
        self.sums.turn_reads += self.sums.reads - reads;
    }

    /// Adds a report to the fingerprint.
    pub(super) fn record_report(&mut self, word: u64) {
        self.engine.record("report", [word, 0]);
    }

    /// When the stall ended, which is when the measurement begins.
    pub(super) fn stalled_until(&self) -> Option<Instant> {
        self.stalled.map(|(_, until)| until)
    }

    /// Whether `at` lies in the stall, in which the core runs no driver.
    pub(super) fn is_in_stall(&self, at: Instant) -> bool {
        self.stalled.is_some_and(|(from, until)| (from..until).contains(&at))
    }

    /// The sums so far.
    pub(super) fn sums(&self) -> &Sums {
        &self.sums
    }

    /// The core, for its ledger.
    pub(super) fn core(&self) -> &Core {
        &self.core
    }

    /// Time in which the core had nothing to do.
    pub(super) fn idle(&self) -> Duration {
        self.core.idle_time() + (self.engine.now() - self.core.booked_to())
    }

    /// What the receiver's chip has recorded.
    pub(super) fn accesses(&self) -> Totals {
        self.world.chip(self.node).log().totals()
    }

    /// Messages that have come and whose handler has not begun.
    pub(super) fn pending_messages(&self) -> u64 {
        self.signalled.len() as u64
    }

    /// When the hardware error struck.
    pub(super) fn fault_at(&self) -> Option<Instant> {
        self.fault_at
    }

    /// When the driver switched the port's sends off.
    pub(super) fn sends_off_at(&self) -> Option<Instant> {
        self.sends_off_at
    }

    /// Dropped packets, as `node` counts them after a last look and as the chip does.
    pub(super) fn into_drops(self, node: &mut Node) -> (u64, u64) {
        let receiver = self.node;
        let world = RefCell::new(self.world);
        node.final_sample(&FreeBar::new(&world, receiver));
        let world = world.into_inner();
        let account = world.chip(receiver).account();
        (node.drops(), Ctxt::all().map(|ctxt| account.overflowed(ctxt)).sum())
    }

    /// The fingerprint of the run so far.
    pub(super) fn trace(&self) -> u64 {
        self.engine.trace().value()
    }

    /// Wakes a task of the core.
    pub(super) fn wake(&mut self, job: Job) {
        let now = self.engine.now();
        if let Some(task) = self.tasks.of(job) {
            self.core.wake(task, now);
        }
    }

    /// The driver wants to be called at `at`; a later wish replaces an earlier one.
    pub(super) fn set_driver_timer(&mut self, at: Option<Instant>) {
        if self.driver_timer.map(|(when, _)| when) == at {
            return;
        }
        if let Some((_, timer)) = self.driver_timer.take() {
            self.engine.cancel(timer);
        }
        self.driver_timer = at.map(|when| (when, self.engine.schedule(when, Event::DriverTimer)));
    }
}

/// A bar whose every access costs time and sees the world as it is by then.
#[derive(Clone, Copy)]
pub(super) struct CostBar<'a> {
    machine: &'a RefCell<Machine>,
}

impl<'a> CostBar<'a> {
    pub(super) fn new(machine: &'a RefCell<Machine>) -> Self {
        Self { machine }
    }
}

impl Bar for CostBar<'_> {
    fn read(&self, offset: u32) -> u64 {
        let machine = &mut *self.machine.borrow_mut();
        machine.sums.reads += 1;
        machine.spend(machine.labels.read, machine.costs.read);
        let value = machine.world.read(machine.node, offset, machine.engine.now());
        machine.take_messages();
        value
    }

    fn write(&self, offset: u32, value: u64) {
        let machine = &mut *self.machine.borrow_mut();
        machine.sums.writes += 1;
        machine.spend(machine.labels.write, machine.costs.write);
        machine.world.write(machine.node, offset, value, machine.engine.now());
        machine.watch_sends(offset, value);
        machine.take_messages();
    }

    fn doorbell(&self, offset: u32, value: u64) {
        self.write(offset, value);
    }

    fn burst(&self, offset: u32, dwords: &[u32]) {
        let machine = &mut *self.machine.borrow_mut();
        let qwords = dwords.len().div_ceil(2) as u64;
        machine.sums.writes += qwords;
        machine.spend(machine.labels.write, machine.costs.write.times(qwords));
        machine.world.burst(machine.node, offset, dwords, machine.engine.now());
        machine.take_messages();
    }
}
