//! One run: two cards from cold, the storm, and what it came to.

use std::cell::RefCell;
use std::fmt;

use qhca_driver::bringup::{BringUpError, Fault};
use qhca_driver::fault::Policy;
use qhca_driver::options::Options;
use qhca_regs::{Duration, Instant};
use qhca_sim::chip::Totals;
use qhca_sim::vtime::{Ledger, Order, Seed};

use super::bringup::bring_up;
use super::costs::Costs;
use super::kinds::Storm;
use super::machine::{Machine, Sums};
use super::node::Node;
use super::report::Measured;
use crate::params::ParamError;

/// How the sender answers loss.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    /// It sends on.
    #[default]
    Raw,
    /// RDMA writes on a reliable connection: it goes back to what was lost.
    Rc,
}

impl Transport {
    /// The word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Rc => "rc",
        }
    }
}

/// What is run.
#[derive(Clone, Debug)]
pub struct Case {
    /// How the driver serves errors.
    pub policy: Policy,
    /// What goes wrong.
    pub storm: Storm,
    /// Which pending interrupt is taken first.
    pub order: Order,
    /// The driver's options.
    pub options: Options,
    /// How the sender answers loss.
    pub transport: Transport,
    /// The seed of every source of chance.
    pub seed: Seed,
    /// Costs and load.
    pub costs: Costs,
    /// When a hardware error strikes, counted from the end of bring-up; never if `None`.
    pub hardware_fault: Option<Duration>,
}

/// A run in full, for tests and for whoever wants to know where the time went.
#[derive(Clone, Debug)]
pub struct Detail {
    /// What the tables are made of.
    pub measured: Measured,
    /// Where the core's time went, from the end of bring-up to the end of the run.
    pub ledger: Ledger,
    /// Time in which the core had nothing to do, over the same.
    pub idle: Duration,
    /// How long that was.
    pub elapsed: Duration,
    /// What the chip itself recorded over the same: reads, writes, messages.
    pub accesses: Totals,
    /// Interrupts that were served, of any kind.
    pub interrupts: u64,
    /// Messages that found their interrupt pending already, or that were pending at the end.
    pub merged_messages: u64,
    /// Turns of the error worker, and the register reads they made.
    pub turns: (u64, u64),
    /// Receive contexts in use.
    pub contexts: u64,
    /// From the hardware error to the fatal event, and to the chip's sends being off. From the stall's end if it struck
    /// in the stall: the only core does something else until then.
    pub fatal_after: Option<(Duration, Duration)>,
    /// Whether a sender that repeats has given up.
    pub gave_up: bool,
    /// Whether the hardware error struck in the stall.
    pub fault_in_stall: bool,
    /// The run's fingerprint.
    pub trace: u64,
}

/// Why a run could not be made.
#[derive(Debug)]
#[non_exhaustive]
pub enum StormError {
    /// A figure is missing or wrong.
    Figure(ParamError),
    /// The driver cannot be brought up with these options.
    Options(String),
    /// Bring-up failed, which in simulation is a fault of ours.
    BringUp(String),
    /// The system has no memory, or does not tell what threads have used of a processor.
    System(std::io::Error),
}

impl StormError {
    /// Something of bring-up that is not the options' fault.
    pub(super) fn bring_up(why: impl fmt::Debug) -> Self {
        Self::BringUp(format!("{why:?}"))
    }

    /// A step has failed: by the options, if no split of contexts fits them.
    pub(super) fn from_bring_up(error: BringUpError) -> Self {
        match error.fault {
            Fault::Split(why) => Self::Options(why.to_string()),
            _ => Self::BringUp(error.to_string()),
        }
    }
}

impl From<ParamError> for StormError {
    fn from(error: ParamError) -> Self {
        Self::Figure(error)
    }
}

impl fmt::Display for StormError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Figure(error) => write!(f, "{error}"),
            Self::Options(why) => write!(f, "the options do not fit the simulated QLE7340: {why}"),
            Self::BringUp(why) => write!(f, "bring-up of the simulated cards failed: {why}"),
            Self::System(error) => write!(
                f,
                "the system gives no memory, or no processor time of threads in /proc/self/task, which a run on threads needs: {error}"
            ),
        }
    }
}

impl std::error::Error for StormError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Figure(error) => Some(error),
            Self::System(error) => Some(error),
            Self::Options(_) | Self::BringUp(_) => None,
        }
    }
}

/// Runs `case`.
///
/// # Errors
/// [`StormError`] says what could not be set up.
pub fn run(case: &Case) -> Result<Measured, StormError> {
    run_in_detail(case).map(|detail| detail.measured)
}

/// Runs `case` and gives everything that is known about the run.
///
/// # Errors
/// [`StormError`] says what could not be set up.
pub fn run_in_detail(case: &Case) -> Result<Detail, StormError> {
    let (setup, mut node) = bring_up(case)?;
    let machine = RefCell::new(Machine::new(setup, case));
    let start = Snapshot::take(&machine);
    while machine.borrow().stalled_until().is_none() && turn(&mut node, &machine, Instant::MAX) {}
    let before = Snapshot::take(&machine);
    let end = before.at + case.costs.measure;
    while turn(&mut node, &machine, end) {}
    let after = Snapshot::take(&machine);
    let machine = machine.into_inner();
    let gave_up = machine.is_broken();
    let fault_in_stall = machine.fault_at().is_some_and(|at| machine.is_in_stall(at));
    let served_from = if fault_in_stall { machine.stalled_until() } else { machine.fault_at() };
    let fatal_after = served_from.map(|at| {
        let until = |happened: Option<Instant>| happened.unwrap_or(Instant::MAX) - at;
        (until(node.fatal_at()), until(machine.sends_off_at()))
    });
    let (turns, contexts, trace) = (*machine.sums(), node.contexts() as u64, machine.trace());
    let mut measured = before.measure(&after, case);
    let dropped = machine.into_drops(&mut node);
    (measured.drops_driver, measured.drops_model) = dropped;
    Ok(Detail {
        measured,
        ledger: after.ledger.since(&start.ledger),
        idle: after.idle - start.idle,
        elapsed: after.at - start.at,
        accesses: difference(after.accesses, start.accesses),
        interrupts: after.sums.interrupts() - start.sums.interrupts(),
        merged_messages: after.sums.merged_messages + after.pending_messages,
        turns: (turns.turns, turns.turn_reads),
        contexts,
        fatal_after,
        gave_up,
        fault_in_stall,
        trace,
    })
}

/// Lets the core make one step; false once `end` is reached.
fn turn(node: &mut Node, machine: &RefCell<Machine>, end: Instant) -> bool {
    let job = machine.borrow_mut().next_job(end);
    let Some(job) = job else { return false };
    let outcome = node.step(job, machine);
    machine.borrow_mut().end_job(outcome);
    machine.borrow_mut().set_driver_timer(node.next_deadline());
    true
}

/// Everything that is summed up, at one moment.
struct Snapshot {
    at: Instant,
    sums: Sums,
    ledger: Ledger,
    idle: Duration,
    accesses: Totals,
    pending_messages: u64,
}

impl Snapshot {
    fn take(machine: &RefCell<Machine>) -> Self {
        let machine = machine.borrow();
        Self {
            at: machine.now(),
            sums: *machine.sums(),
            ledger: machine.core().ledger().clone(),
            idle: machine.idle(),
            accesses: machine.accesses(),
            pending_messages: machine.pending_messages(),
        }
    }

    /// What happened from here to `after`.
    fn measure(&self, after: &Self, case: &Case) -> Measured {
        let (from, to) = (&self.sums, &after.sums);
        Measured {
            policy: case.policy,
            storm: case.storm,
            order: case.order,
            seconds: (after.at - self.at).as_secs_f64(),
            payload_bytes: to.payload_bytes - from.payload_bytes,
            error_irqs: to.error_irqs - from.error_irqs,
            receive_irqs: to.receive_irqs - from.receive_irqs,
            register_reads: to.reads - from.reads,
            error_seconds: (to.error_time - from.error_time).as_secs_f64(),
            idle_seconds: (after.idle - self.idle).as_secs_f64(),
            drops_driver: 0,
            drops_model: 0,
        }
    }
}

fn difference(after: Totals, before: Totals) -> Totals {
    Totals {
        reads: after.reads - before.reads,
        writes: after.writes - before.writes,
        bursts: after.bursts - before.bursts,
        burst_dwords: after.burst_dwords - before.burst_dwords,
        messages: after.messages - before.messages,
        line_changes: after.line_changes - before.line_changes,
    }
}
