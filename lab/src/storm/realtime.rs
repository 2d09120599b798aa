//! The storm on threads: the same driver, turned by its own threads and the system's clock.
//!
//! Nothing is charged here and nothing repeats to the bit. The chip model is made to report errors at a given rate, packets
//! come beside them, and the driver's control thread, worker and one receiving thread do what they can on this
//! machine's processors. It shows that the limits of the guarded policy hold when time is real: how often errors
//! interrupt depends on the mask registers alone, not on who is fast.
//!
//! The model shares the processors with the driver, so goodput says as much about the model as about the driver. The
//! error path's share of a core is the processor time of the receiver's control and worker threads, as the system counts
//! it. Dispatch of receive interrupts is in it, since the same thread does both: it is an upper bound.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use qhca_driver::fault::Policy;
use qhca_driver::link::{Goal, LidAssignment, Logical};
use qhca_driver::options::Options;
use qhca_driver::runtime::{Device, Opening, Runtime};
use qhca_driver::rx::Arrival;
use qhca_regs::{Ctxt, Duration, Instant, Lid, Port, Vector};
use qhca_sim::backend::{SimDevice, SimWorld};
use qhca_sim::chip::{Board, Config, Meta};
use qhca_sim::fabric::CableConfig;
use qhca_sim::vtime::{Order, Seed};
use qhca_sim::world::{NodeId, World};
use serde::Serialize;

use super::costs::Costs;
use super::cpu::Threads;
use super::kinds::Storm;
use super::machine::injection;
use super::packets::Packets;
use super::report::{Measured, Row, rounded};
use super::run::StormError;
use super::workload::{Injected, Injector};

const PORT: Port = Port::P0;
/// Errors that are raised while the world is held; the driver's threads get in between.
const ERRORS_AT_ONCE: u64 = 32;
/// One packet comes with so many errors: enough to keep the receiving thread at work, few enough for any machine.
const ERRORS_PER_PACKET: u64 = 64;
/// TIMEOUT: links of the model train within some milliseconds; a busy machine may take a hundred times as long.
const LINK_WITHIN: Duration = Duration::from_secs(10);
const RECEIVE_WAIT: Duration = Duration::from_millis(5);
const RECEIVE_BUDGET: usize = 64;

/// In place of an order of pending interrupts: the system decides which thread runs.
const ARBITRATION: &str = "scheduler";

/// What is run.
#[derive(Clone, Debug)]
pub struct RealTime {
    /// The policies, one after the other; the control is run before them, named or not.
    pub policies: Vec<Policy>,
    /// Which errors come.
    pub storm: Storm,
    /// The driver's options.
    pub options: Options,
    /// How the options were given, for the report.
    pub options_text: String,
    /// The seed of the world; the threads' timing has none.
    pub seed: Seed,
    /// `measure` is how long, `inject` how far apart the errors are; see [`RealTime::FIGURES`].
    pub costs: Costs,
}

/// What one policy came to.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RealTimeRow {
    /// What a run in virtual time says as well.
    #[serde(flatten)]
    pub row: Row,
    /// Seconds that the storm lasted.
    pub seconds: f64,
    /// Errors that the chip reported in its words.
    pub errors_per_s: f64,
    /// Packets that came to the port.
    pub packets_per_s: f64,
}

/// The result.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RealTimeReport {
    /// Always true: the chip is a model, though the time is real.
    pub simulated: bool,
    /// What turned the run.
    pub calibration: &'static str,
    /// The seed of the world.
    pub seed: u64,
    /// Driver options and figures that differ from the file's.
    pub options: String,
    /// How the sender answers loss: `raw` sends on.
    pub transport: &'static str,
    /// One row a policy.
    pub rows: Vec<RealTimeRow>,
}

/// What the chip and its host have counted.
#[derive(Clone, Copy)]
struct Counted {
    at: Instant,
    default_messages: u64,
    other_messages: u64,
    reads: u64,
    error_time: Duration,
}

/// A run, and what a [`Measured`] has no place for.
struct Timed {
    measured: Measured,
    errors: u64,
    packets: u64,
}

/// Two cards that are up, on threads of their own.
struct Pair {
    world: SimWorld,
    sender: Device<SimDevice>,
    receiver: Device<SimDevice>,
    node: NodeId,
    /// The receiver's control and worker threads; packets are taken on a thread of ours.
    error_threads: Threads,
}

impl RealTime {
    /// The figures that mean something here; the others are costs of virtual time, and nothing is charged.
    pub const FIGURES: [&str; 3] = ["measure_ms", "inject_ns", "burst_errors"];

    /// Runs all policies, each against the control.
    ///
    /// # Errors
    /// The first that cannot be brought up.
    pub fn run(&self) -> Result<RealTimeReport, StormError> {
        let control = self.run_policy(Policy::Silent)?;
        let silent_mb_s = control.measured.goodput_mb_s();
        let mut rows = Vec::with_capacity(self.policies.len());
        for &policy in &self.policies {
            rows.push(match policy {
                Policy::Silent => control.row(silent_mb_s),
                _ => self.run_policy(policy)?.row(silent_mb_s),
            });
        }
        Ok(RealTimeReport {
            simulated: true,
            calibration: "threads of this machine, system clock",
            seed: self.seed.0,
            options: self.options_text.clone(),
            transport: "raw",
            rows,
        })
    }

    /// Runs `policy` without a control beside it; its share is then 0.
    ///
    /// # Errors
    /// It cannot be brought up.
    pub fn run_alone(&self, policy: Policy) -> Result<RealTimeRow, StormError> {
        Ok(self.run_policy(policy)?.row(0.0))
    }

    fn run_policy(&self, policy: Policy) -> Result<Timed, StormError> {
        let pair = self.bring_up(policy)?;
        let mut receiver = pair.receiver.open_port(PORT).map_err(StormError::bring_up)?;
        let (stop, payload) = (AtomicBool::new(false), AtomicU64::new(0));
        let before = pair.counted()?;
        let (errors, packets) = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let _ = receiver.receive(Some(RECEIVE_WAIT), RECEIVE_BUDGET, |arrival| {
                        if let Arrival::Packet(packet) = arrival {
                            payload.fetch_add(packet.payload.len() as u64, Ordering::Relaxed);
                        }
                    });
                }
            });
            let came = self.storm_on(&pair, before.at + self.costs.measure);
            stop.store(true, Ordering::Relaxed);
            came
        });
        let after = pair.counted()?;
        let (drops_driver, drops_model) = pair.drops()?;
        drop(receiver);
        // Nothing is lent any more, so the reports have nothing to tell.
        let _ = (pair.sender.close(), pair.receiver.close());
        let measured = Measured {
            policy,
            storm: self.storm,
            // Written over in the row: no order was imposed.
            order: Order::Arrival,
            seconds: (after.at - before.at).as_secs_f64(),
            payload_bytes: payload.load(Ordering::Relaxed),
            error_irqs: after.default_messages - before.default_messages,
            receive_irqs: after.other_messages - before.other_messages,
            register_reads: after.reads - before.reads,
            error_seconds: (after.error_time - before.error_time).as_secs_f64(),
            idle_seconds: 0.0,
            drops_driver,
            drops_model,
        };
        Ok(Timed { measured, errors, packets })
    }

    /// Raises errors and delivers packets until `end`, at their rates as far as this machine can; says how many came.
    fn storm_on(&self, pair: &Pair, end: Instant) -> (u64, u64) {
        let mut injector = Injector::new(self.storm, &self.costs);
        let mut packets = Packets::new(Lid(1), Lid(2));
        let start = pair.receiver.now();
        let (mut errors, mut delivered) = (0, 0);
        loop {
            let now = pair.receiver.now();
            if now >= end {
                return (errors, delivered);
            }
            let due = (now - start).as_nanos() / self.costs.inject.as_nanos().max(1);
            let batch = due.saturating_sub(errors).min(ERRORS_AT_ONCE);
            if batch == 0 {
                std::hint::spin_loop();
                continue;
            }
            pair.world.with(|world| {
                let at = world.now();
                for _ in 0..batch {
                    let error = injector.next_error().map_or(Injected::EgrFull, |(error, _)| error);
                    world.inject(pair.node, injection(error, PORT), at);
                    errors += 1;
                    if errors.is_multiple_of(ERRORS_PER_PACKET) {
                        let (chip, host) = world.chip_mut(pair.node);
                        chip.deliver(PORT, packets.next_packet(), Meta::GOOD, at, host);
                        delivered += 1;
                    }
                }
            });
        }
    }

    /// Both cards from cold, on threads, their link ACTIVE.
    fn bring_up(&self, policy: Policy) -> Result<Pair, StormError> {
        let mut world = World::new(self.seed, false);
        let board = |guid| Config { board: Board::Qle7340, guid, seed: self.seed.0, ..Config::default() };
        let nodes = [world.add(board(0x0011_7500_0000_1000)), world.add(board(0x0011_7500_0000_2000))];
        world.connect((nodes[0], PORT), (nodes[1], PORT), CableConfig::default());
        let world = SimWorld::start(world).map_err(StormError::bring_up)?;
        let open = |node, policy, lid| {
            let lid = LidAssignment::new(Lid(lid), 0).map_err(StormError::bring_up)?;
            Opening::new(world.open(node).map_err(StormError::bring_up)?)
                .parsed_options(self.options.clone())
                .policy(policy)
                .cpus(0)
                .goal(PORT, Some(Goal::Active))
                .static_lid(PORT, lid)
                .start(Runtime::Threads)
                .map_err(StormError::bring_up)
        };
        let threads = || Threads::all().map_err(StormError::System);
        let sender = open(nodes[0], Policy::Guarded, 1)?;
        let before = threads()?;
        let receiver = open(nodes[1], policy, 2)?;
        let error_threads = threads()?.without(&before);
        // Under `silent` nothing tells of a link that changes, and packets are put on the receiver's port all the same.
        let active = |device: &Device<SimDevice>| {
            device.wait_for_link(PORT, LINK_WITHIN, |status| status.logical() == Logical::Active)
        };
        if policy != Policy::Silent && !(active(&sender) && active(&receiver)) {
            return Err(StormError::bring_up("the link between the simulated cards does not become ACTIVE"));
        }
        Ok(Pair { world, sender, receiver, node: nodes[1], error_threads })
    }
}

impl Pair {
    fn counted(&self) -> Result<Counted, StormError> {
        let at = self.receiver.now();
        let error_time = self.error_threads.processor_time().map_err(StormError::System)?;
        Ok(self.world.with(|world| {
            let irqs = world.host(self.node).irqs();
            let others =
                (0..Vector::COUNT).filter_map(Vector::new).filter(|vector| *vector != Vector::DEFAULT);
            Counted {
                at,
                default_messages: irqs.count(Vector::DEFAULT),
                other_messages: others.map(|vector| irqs.count(vector)).sum(),
                reads: world.chip(self.node).log().totals().reads,
                error_time,
            }
        }))
    }

    /// Dropped packets since bring-up, as the driver's counters have them after a last look and as the chip does.
    fn drops(&self) -> Result<(u64, u64), StormError> {
        let counters = self.receiver.counters().map_err(StormError::bring_up)?;
        let driver = Ctxt::all().map(|ctxt| counters.overflow(ctxt)).sum();
        let model = self.world.with(|world| {
            let account = world.chip(self.node).account();
            Ctxt::all().map(|ctxt| account.overflowed(ctxt)).sum()
        });
        Ok((driver, model))
    }
}

impl Timed {
    fn row(&self, silent_mb_s: f64) -> RealTimeRow {
        let Self { measured, errors, packets } = self;
        let per_s = |count: u64| rounded(count as f64 / measured.seconds, 1);
        RealTimeRow {
            row: Row { arbitration: ARBITRATION, ..measured.row(silent_mb_s) },
            seconds: measured.seconds,
            errors_per_s: per_s(*errors),
            packets_per_s: per_s(*packets),
        }
    }
}

impl RealTimeReport {
    /// The table and what has to be said under it.
    pub fn to_text(&self) -> String {
        let mut text = format!(
            "overflow storm on threads, real time, seed {}, transport {}, options: {}\n\n",
            self.seed,
            self.transport,
            if self.options.is_empty() { "(defaults)" } else { &self.options }
        );
        for line in HEAD {
            let _ = writeln!(
                text,
                "{:<10} {:<13} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>8} {:>9} {:>9}",
                line[0],
                line[1],
                line[2],
                line[3],
                line[4],
                line[5],
                line[6],
                line[7],
                line[8],
                line[9],
                line[10],
                line[11]
            );
        }
        for timed in &self.rows {
            let row = &timed.row;
            let _ = writeln!(
                text,
                "{:<10} {:<13} {:>9.0} {:>9.0} {:>9.2} {:>8.2}% {:>9.1} {:>9.1} {:>9.0} {:>8.3} {:>9} {:>9}",
                row.storm,
                row.policy,
                timed.errors_per_s,
                timed.packets_per_s,
                row.goodput_mb_s,
                row.goodput_ratio * 100.0,
                row.error_irqs_per_s,
                row.receive_irqs_per_s,
                row.register_reads_per_s,
                row.error_core_share * 100.0,
                row.drops_driver,
                row.drops_model
            );
        }
        text.push_str(REMARKS);
        text
    }
}

/// The two lines over the table.
const HEAD: [[&str; 12]; 2] = [
    [
        "storm", "policy", "errors", "packets", "goodput", "of", "error", "receive", "register", "error",
        "dropped", "dropped",
    ],
    ["", "", "/s", "/s", "MB/s", "silent", "irqs/s", "irqs/s", "reads/s", "path %", "(driver)", "(model)"],
];

const REMARKS: &str = "
The chip is simulated and shares this machine's processors with the driver; time is real and nothing is charged, so
the figures are not those of a card and differ from run to run. What holds is how often errors interrupt.
'error path' is the processor time of the driver's control and worker threads in hundredths of a core, dispatch of
receive interrupts included. A register read of the simulated chip costs what the model needs, not a PCIe read.
";
