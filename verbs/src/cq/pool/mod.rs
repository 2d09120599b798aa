//! Who shares a completion queue with whom: a pool that hands out places in queues, near the core that asks.
//!
//! A device has fewer interrupts to give than users want, and a queue shared by several users on one core is announced
//! once where private queues are announced several times. Sharing is by reservation: a user says how many entries it
//! may have outstanding, and a queue never promises more than it holds, so it cannot overflow.
//!
//! ```text
//!   get(entries, hint: cpu) ──▶ vector of that cpu ──▶ a queue there that has room ──▶ Place { queue, entries }
//!                                                 └──▶ none: create first, then look again
//!   put(place) ──▶ the room is free again; an empty queue of `balanced` is retired, then freed once pollers passed
//! ```
//!
//! The pool keeps books and creates nothing. What it wants created it says in the answer ([`Grant::created`]), under
//! the lock that the caller holds around [`CqPool::get`], so that two users who miss at once create once (trap 18).
//!
//! [`Private`] gives everybody a queue. [`FirstFit`] is the published pool (F-853). [`Balanced`] is ours.

mod balanced;
mod first_fit;
pub mod rounds;

pub use balanced::Balanced;
pub use first_fit::{FirstFit, Private};

use std::fmt;
use std::marker::PhantomData;
use std::rc::Rc;

/// A completion queue of the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CqId(pub u32);

/// What the device and the machine have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolLimits {
    /// Entries of the largest queue that the device makes.
    pub max_cqe: u32,
    /// Completion vectors.
    pub vectors: u32,
    /// The vector of each core; `None` for a core that is offline.
    pub vector_of_core: Vec<Option<u32>>,
}

/// What users of one queue must have in common beside the vector: how the queue is polled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PollClass {
    /// From a soft interrupt, by budget.
    #[default]
    SoftIrq,
    /// By a thread of its own.
    Thread,
    /// By the user itself.
    Direct,
}

/// What a user asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// Entries that it may have outstanding, those of its drain included.
    pub entries: u32,
    /// The core it runs on; none if it does not care.
    pub core: Option<u32>,
    /// How it polls.
    pub class: PollClass,
}

/// A queue to be created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewCq {
    /// Its name in the pool.
    pub cq: CqId,
    /// Its vector.
    pub vector: u32,
    /// Its size.
    pub entries: u32,
}

/// A reserved place. It belongs to the core that got it, so it cannot be sent to another thread.
#[derive(Debug, PartialEq, Eq)]
pub struct Place {
    cq: CqId,
    vector: u32,
    entries: u32,
    _stays: PhantomData<Rc<()>>,
}

impl Place {
    fn new(cq: CqId, vector: u32, entries: u32) -> Self {
        Self { cq, vector, entries, _stays: PhantomData }
    }

    /// The queue.
    pub fn cq(&self) -> CqId {
        self.cq
    }

    /// The vector that announces it.
    pub fn vector(&self) -> u32 {
        self.vector
    }

    /// Entries reserved.
    pub fn entries(&self) -> u32 {
        self.entries
    }
}

/// The answer to a request.
#[derive(Debug, PartialEq, Eq)]
pub struct Grant {
    /// The place.
    pub place: Place,
    /// Queues that must exist before the place is used.
    pub created: Vec<NewCq>,
}

/// Why there is no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PoolError {
    /// A request for nothing.
    NoEntries,
    /// More than the device's largest queue holds.
    TooMany {
        /// Asked for.
        entries: u32,
        /// The most there can be.
        max_cqe: u32,
    },
    /// The device has no completion vector.
    NoVector,
    /// The queue is not one of the pool's, or has no such place left to give back.
    NotHeld {
        /// The queue.
        cq: CqId,
    },
}

impl fmt::Display for PoolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoEntries => write!(f, "a request for 0 entries; ask for what may be outstanding at once"),
            Self::TooMany { entries, max_cqe } => {
                write!(f, "{entries} entries asked for; the device's largest queue has {max_cqe}")
            }
            Self::NoVector => write!(f, "the device has no completion vector; poll a queue of your own"),
            Self::NotHeld { cq } => write!(f, "queue {} has no such place to give back", cq.0),
        }
    }
}

impl std::error::Error for PoolError {}

/// A pool.
pub trait CqPool {
    /// The name on command lines and in results.
    fn name(&self) -> &'static str;

    /// Reserves a place.
    ///
    /// # Errors
    /// The request can never be met.
    fn get(&mut self, request: Request) -> Result<Grant, PoolError>;

    /// Gives a place back. Completions that still come belong to nobody; the queue stays until pollers have passed.
    ///
    /// # Errors
    /// The place is not one of this pool's.
    fn put(&mut self, place: Place) -> Result<(), PoolError>;

    /// What a queue has to do: completions a second, as its poller measured them.
    fn measured(&mut self, _cq: CqId, _completions_per_s: u64) {}

    /// A poller has left the queue; returns it if nobody can reach it any more and it may be freed.
    fn poller_passed(&mut self, _cq: CqId) -> Option<CqId> {
        None
    }

    /// True if completions of one queue are handled in rounds over its users ([`rounds::Rounds`]), not by age.
    fn in_rounds(&self) -> bool {
        false
    }
}

impl PoolLimits {
    /// Refuses what no queue can hold.
    fn check(&self, entries: u32) -> Result<(), PoolError> {
        match entries {
            0 => Err(PoolError::NoEntries),
            _ if self.vectors == 0 => Err(PoolError::NoVector),
            _ if entries > self.max_cqe => Err(PoolError::TooMany { entries, max_cqe: self.max_cqe }),
            _ => Ok(()),
        }
    }

    /// Cores that are online, at least one.
    fn online(&self) -> u32 {
        self.vector_of_core.iter().flatten().count().max(1) as u32
    }
}

/// The pool called `name`.
pub fn by_name(name: &str, limits: PoolLimits) -> Option<Box<dyn CqPool>> {
    match name {
        "private" => Some(Box::new(Private::new(limits))),
        "first-fit" => Some(Box::new(FirstFit::new(limits))),
        "balanced" => Some(Box::new(Balanced::new(limits))),
        _ => None,
    }
}

/// The names that [`by_name`] knows.
pub const NAMES: [&str; 3] = ["private", "first-fit", "balanced"];
