//! The storm on threads: the same driver, turned by its own threads and the system's clock.
//!
//! Nothing is charged here and nothing repeats to the bit. The chip model is made to report errors at a given rate, packets
//! come beside them, and the driver's control thread, worker and one receiving thread do what they can on this
//! machine's processors. It shows that the limits of the guarded policy hold when time is real: how often errors
//! interrupt depends on the mask registers alone, not on who is fast.
//!
//! The model shares the processors with the driver, so goodput says as much about the model as about the driver.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use qhca_driver::fault::Policy;
use qhca_driver::link::{Goal, LidAssignment, Logical};
use qhca_driver::options::Options;
use qhca_driver::runtime::{Device, Opening, Runtime};
use qhca_driver::rx::Arrival;
use qhca_regs::{Duration, Instant, Lid, Port, Vector};
use qhca_sim::backend::{SimDevice, SimWorld};
use qhca_sim::chip::{Board, Config, Meta};
use qhca_sim::fabric::CableConfig;
use qhca_sim::vtime::Seed;
use qhca_sim::world::{NodeId, World};
use serde::Serialize;

use super::costs::Costs;
use super::kinds::Storm;
use super::machine::injection;
use super::packets::Packets;
use super::report::MB_BYTES;
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

/// What is run.
#[derive(Clone, Debug)]
pub struct RealTime {
    /// The policies, one after the other.
    pub policies: Vec<Policy>,
    /// Which errors come.
    pub storm: Storm,
    /// The driver's options.
    pub options: Options,
    /// The seed of the world; the threads' timing has none.
    pub seed: Seed,
    /// `measure` is how long, `inject` how far apart the errors are.
    pub costs: Costs,
}

/// What one policy came to.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RealTimeRow {
    /// The policy's name.
    pub policy: &'static str,
    /// The storm's name.
    pub storm: &'static str,
    /// Seconds that the storm lasted.
    pub seconds: f64,
    /// Errors that the chip reported in its words.
    pub errors_per_s: f64,
    /// Packets that came to the port.
    pub packets_per_s: f64,
    /// Payload that the receiving thread took.
    pub goodput_mb_s: f64,
    /// Messages on the default vector.
    pub error_irqs_per_s: f64,
    /// Messages on the other vectors.
    pub receive_irqs_per_s: f64,
    /// Register reads of the driver.
    pub register_reads_per_s: f64,
}

/// The result.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RealTimeReport {
    /// Always true: the chip is a model, though the time is real.
    pub simulated: bool,
    /// What turned the run.
    pub calibration: &'static str,
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
}

/// Two cards that are up, on threads of their own.
struct Pair {
    world: SimWorld,
    sender: Device<SimDevice>,
    receiver: Device<SimDevice>,
    node: NodeId,
}

impl RealTime {
    /// Runs all policies.
    ///
    /// # Errors
    /// The first that cannot be brought up.
    pub fn run(&self) -> Result<RealTimeReport, StormError> {
        let rows = self.policies.iter().map(|&policy| self.run_policy(policy)).collect::<Result<_, _>>()?;
        Ok(RealTimeReport { simulated: true, calibration: "threads of this machine, system clock", rows })
    }

    fn run_policy(&self, policy: Policy) -> Result<RealTimeRow, StormError> {
        let pair = self.bring_up(policy)?;
        let mut receiver = pair.receiver.open_port(PORT).map_err(StormError::bring_up)?;
        let (stop, payload) = (AtomicBool::new(false), AtomicU64::new(0));
        let before = pair.counted();
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
        let after = pair.counted();
        let seconds = (after.at - before.at).as_secs_f64();
        let per_s = |count: u64| (count as f64 / seconds * 10.0).round() / 10.0;
        drop(receiver);
        // Nothing is lent any more, so the reports have nothing to tell.
        let _ = (pair.sender.close(), pair.receiver.close());
        Ok(RealTimeRow {
            policy: policy.name(),
            storm: self.storm.name(),
            seconds,
            errors_per_s: per_s(errors),
            packets_per_s: per_s(packets),
            goodput_mb_s: per_s(payload.load(Ordering::Relaxed)) / MB_BYTES,
            error_irqs_per_s: per_s(after.default_messages - before.default_messages),
            receive_irqs_per_s: per_s(after.other_messages - before.other_messages),
            register_reads_per_s: per_s(after.reads - before.reads),
        })
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
        let (sender, receiver) = (open(nodes[0], Policy::Guarded, 1)?, open(nodes[1], policy, 2)?);
        // Under `silent` nothing tells of a link that changes, and packets are put on the receiver's port all the same.
        let active = |device: &Device<SimDevice>| {
            device.wait_for_link(PORT, LINK_WITHIN, |status| status.logical() == Logical::Active)
        };
        if policy != Policy::Silent && !(active(&sender) && active(&receiver)) {
            return Err(StormError::bring_up("the link between the simulated cards does not become ACTIVE"));
        }
        Ok(Pair { world, sender, receiver, node: nodes[1] })
    }
}

impl Pair {
    fn counted(&self) -> Counted {
        let at = self.receiver.now();
        self.world.with(|world| {
            let irqs = world.host(self.node).irqs();
            let others =
                (0..Vector::COUNT).filter_map(Vector::new).filter(|vector| *vector != Vector::DEFAULT);
            Counted {
                at,
                default_messages: irqs.count(Vector::DEFAULT),
                other_messages: others.map(|vector| irqs.count(vector)).sum(),
                reads: world.chip(self.node).log().totals().reads,
            }
        })
    }
}

impl RealTimeReport {
    /// The table and what has to be said under it.
    pub fn to_text(&self) -> String {
        let mut text = String::from("overflow storm on threads, real time\n\n");
        let _ = writeln!(
            text,
            "{:<10} {:<13} {:>12} {:>12} {:>12} {:>12} {:>12} {:>12}",
            "storm",
            "policy",
            "errors/s",
            "packets/s",
            "goodput MB/s",
            "error irq/s",
            "other irq/s",
            "reads/s"
        );
        for row in &self.rows {
            let _ = writeln!(
                text,
                "{:<10} {:<13} {:>12.0} {:>12.0} {:>12.2} {:>12.1} {:>12.1} {:>12.0}",
                row.storm,
                row.policy,
                row.errors_per_s,
                row.packets_per_s,
                row.goodput_mb_s,
                row.error_irqs_per_s,
                row.receive_irqs_per_s,
                row.register_reads_per_s
            );
        }
        text.push_str(REMARKS);
        text
    }
}

const REMARKS: &str = "
The chip is simulated and shares this machine's processors with the driver; time is real and nothing is charged, so
the figures are not those of a card and differ from run to run. What holds is how often errors interrupt.
";
