//! On which core the transport work of a packet is done: here, at once, or on the queue pair's own core.
//!
//! Work of one queue pair must not run twice at once, and its packets must not overtake each other. Running it where the
//! packet came in costs nothing and puts all work on one core; handing it to the queue pair's core costs a hop of
//! some microseconds and spreads the load.
//!
//! ```text
//!   packet ──▶ receive context's core ──▶ Spread::place ──┬─ Inline            run the task here
//!                                                         ├─ Hand { wake }     into the owner's inbox
//!                                                         └─ Hand { no wake }  the owner is at it already
//! ```
//!
//! [`Inline`] is what was, [`AlwaysSchedule`] the published change (F-854, F-855), [`Hybrid`] ours: steer packets by the
//! chip's queue-pair map first, so that here and the owner are mostly the same, and run inline when they are.

pub mod hybrid;
pub mod steer;
pub mod task;

pub use hybrid::{Hybrid, Move};

/// A core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CoreId(pub u16);

/// What a decision is made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// The queue pair's number.
    pub qpn: u32,
    /// The core that has the packet.
    pub here: CoreId,
    /// The core that owns the queue pair.
    pub owner: CoreId,
    /// Packets of the queue pair that wait already.
    pub backlog: u32,
    /// True if the queue pair's task is not running anywhere.
    pub task_idle: bool,
    /// True if the owner sleeps: it has said so, and its inbox was empty then.
    pub owner_asleep: bool,
    /// True for a read request, which is long work.
    pub is_read_request: bool,
    /// Packets run inline in this turn of the core.
    pub inline_packets: u32,
    /// Time of this turn that went into them.
    pub inline_ns: u64,
}

/// Where the work goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Placed {
    /// Run it here and now.
    Inline,
    /// Put it in a core's queue.
    Hand {
        /// The core.
        to: CoreId,
        /// Whether the core has to be woken, which is the hop that costs.
        wake: bool,
    },
}

/// A policy.
pub trait Spread: Send {
    /// The name on command lines and in results.
    fn name(&self) -> &'static str;

    /// The core that owns a queue pair.
    fn owner(&self, qpn: u32) -> CoreId;

    /// Decides about one packet.
    fn place(&mut self, arrival: &Arrival) -> Placed;

    /// True if the chip is told to deliver a queue pair's packets to its owner.
    fn steers(&self) -> bool {
        false
    }
}

/// As it was: run here if at most one packet waits, else have this core do it soon; reads always wait their turn.
#[derive(Clone, Copy, Debug)]
pub struct Inline;

impl Spread for Inline {
    fn name(&self) -> &'static str {
        "inline"
    }

    fn owner(&self, _qpn: u32) -> CoreId {
        CoreId(0)
    }

    fn place(&mut self, arrival: &Arrival) -> Placed {
        if arrival.backlog <= 1 && arrival.task_idle && !arrival.is_read_request {
            return Placed::Inline;
        }
        Placed::Hand { to: arrival.here, wake: false }
    }
}

/// As published: always the core that the queue pair's number names, by an interrupt if that is another.
#[derive(Clone, Copy, Debug)]
pub struct AlwaysSchedule {
    cores: u16,
}

impl AlwaysSchedule {
    /// For a machine with so many cores online.
    pub fn new(cores: u16) -> Self {
        Self { cores: cores.max(1) }
    }
}

impl Spread for AlwaysSchedule {
    fn name(&self) -> &'static str {
        "always-schedule"
    }

    fn owner(&self, qpn: u32) -> CoreId {
        CoreId((qpn % u32::from(self.cores)) as u16)
    }

    fn place(&mut self, arrival: &Arrival) -> Placed {
        // A task that runs, or is about to, takes the packet in its next pass: only an idle one is woken.
        Placed::Hand { to: arrival.owner, wake: arrival.task_idle && arrival.backlog == 0 }
    }
}

/// The policy called `name`, for so many cores.
pub fn by_name(name: &str, cores: u16) -> Option<Box<dyn Spread>> {
    match name {
        "inline" => Some(Box::new(Inline)),
        "always-schedule" => Some(Box::new(AlwaysSchedule::new(cores))),
        "hybrid" => Some(Box::new(Hybrid::new(cores))),
        _ => None,
    }
}

/// The names that [`by_name`] knows.
pub const NAMES: [&str; 3] = ["inline", "always-schedule", "hybrid"];
