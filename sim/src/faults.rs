//! What is broken on purpose: faults that strike at planned times, and chips that are wrong.
//!
//! Three kinds of trouble, each reproducible from a seed:
//!
//! - *chance on the way*: packets lost, doubled or bent on a cable ([`LineFaults`]), interrupt messages lost or
//!   doubled ([`IrqFaults`]);
//! - *planned events*: a [`FaultPlan`] raises error bits, pulls and plugs cables, takes a card out, at fixed or drawn
//!   times, once or over and over;
//! - *wrong chips*: a chip that deviates from its data sheet in one named way ([`WrongChip`]), for its whole life. A
//!   scenario that does not notice a wrong chip proves nothing about a right one.

use crate::chip::Injection;
pub use crate::chip::{WrongChip, WrongSet};
pub use crate::fabric::LineFaults;
use crate::fabric::Side;
pub use crate::host::IrqFaults;
use crate::vtime::{Distribution, EventQueue, Rng, Seed};
use crate::world::{CableId, NodeId};
use qhca_regs::Instant;

/// One thing that goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Error bits are raised.
    Inject(NodeId, Injection),
    /// A cable is pulled.
    Pull(CableId),
    /// A pulled cable is plugged in again.
    Replug(CableId),
    /// A direction of a cable gets better or worse.
    Line(CableId, Side, LineFaults),
    /// The way of a node's interrupts gets better or worse.
    Irq(NodeId, IrqFaults),
    /// The card leaves its slot: reads give all ones.
    Remove(NodeId),
    /// The card comes back.
    Return(NodeId),
}

#[derive(Clone, Copy, Debug)]
struct Planned {
    fault: Fault,
    /// Gap to the next time, and how many times are left after this one.
    again: Option<(Distribution, u64)>,
}

/// When what goes wrong.
#[derive(Clone, Debug)]
pub struct FaultPlan {
    queue: EventQueue<Planned>,
    next: Option<Instant>,
    rng: Rng,
}

impl FaultPlan {
    /// Nothing goes wrong.
    pub fn none() -> Self {
        Self::new(Seed(0))
    }

    /// An empty plan whose drawn times come from `seed`.
    pub fn new(seed: Seed) -> Self {
        Self { queue: EventQueue::new(), next: None, rng: seed.source("fault plan") }
    }

    /// `fault` strikes at `at`.
    #[must_use]
    pub fn at(mut self, at: Instant, fault: Fault) -> Self {
        self.push(at, Planned { fault, again: None });
        self
    }

    /// `fault` strikes once, at any time from `from` to `to`.
    #[must_use]
    pub fn once_between(mut self, from: Instant, to: Instant, fault: Fault) -> Self {
        let at = Instant::from_nanos(self.rng.between(from.as_nanos(), to.as_nanos()));
        self.at(at, fault)
    }

    /// `fault` strikes `times` times, the first time at `from`, then after gaps drawn from `gap`.
    #[must_use]
    pub fn every(mut self, from: Instant, gap: Distribution, times: u64, fault: Fault) -> Self {
        if let Some(left) = times.checked_sub(1) {
            self.push(from, Planned { fault, again: Some((gap, left)) });
        }
        self
    }

    /// When the next fault strikes.
    #[inline]
    pub fn next_at(&self) -> Option<Instant> {
        self.next
    }

    /// The next fault that has struck by `now`.
    pub fn pop_due(&mut self, now: Instant) -> Option<Fault> {
        if self.next? > now {
            return None;
        }
        let (at, planned) = self.queue.pop_until(now)?;
        if let Some((gap, left)) = planned.again.filter(|(_, left)| *left > 0) {
            let at = at + gap.draw(&mut self.rng);
            self.queue.push(at, Planned { again: Some((gap, left - 1)), ..planned });
        }
        self.next = self.queue.next_at();
        Some(planned.fault)
    }

    fn push(&mut self, at: Instant, planned: Planned) {
        self.queue.push(at, planned);
        self.next = self.queue.next_at();
    }
}

impl Default for FaultPlan {
    fn default() -> Self {
        Self::none()
    }
}
