//! The seam between whoever announces interrupts and whoever serves them.
//!
//! On a real card this is a set of eventfds behind one epoll descriptor, in the laboratory a heap of events. Both
//! coalesce: an eventfd that was signalled three times before it was read gives one wake-up, so a wake-up says
//! *that* a vector fired, never how often. Whoever is woken has to look for all there is.

use crate::sets::VectorSet;
use qhca_regs::{Instant, Vector};

/// What ended a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// These vectors fired since the last wait. A vector that fired twice is named once. May be empty: descriptors
    /// may be reported ready without cause, and the caller then looks at its own state and waits again.
    Vectors(VectorSet),
    /// The deadline came first.
    Deadline,
}

/// A source of interrupts, for one thread.
pub trait IrqSource {
    /// Waits until a vector fires or the time is `deadline`; `None` waits for interrupts alone, and a deadline that
    /// has passed only looks.
    ///
    /// What fired is consumed *before* this returns. A vector that fires while the caller is still at work is
    /// therefore kept for the next wait, and never lost.
    fn wait(&mut self, deadline: Option<Instant>) -> Wake;
}

/// A source that plays a script on a clock of its own, for tests.
#[derive(Clone, Debug, Default)]
pub struct FakeIrq {
    now: Instant,
    pending: VectorSet,
    script: Vec<(Instant, Vector)>,
}

impl FakeIrq {
    /// A source that never fires by itself, at time zero.
    pub fn new() -> Self {
        Self::default()
    }

    /// The time up to which waits have come.
    pub const fn now(&self) -> Instant {
        self.now
    }

    /// Fires `vector` now.
    pub fn fire(&mut self, vector: Vector) {
        self.pending = self.pending.with(vector);
    }

    /// Fires `vector` when a wait reaches `at`.
    pub fn fire_at(&mut self, at: Instant, vector: Vector) {
        self.script.push((at, vector));
        self.script.sort_by_key(|(at, _)| *at);
    }

    /// Moves the script's events that are due into the pending set.
    fn collect_due(&mut self) {
        let due = self.script.partition_point(|(at, _)| *at <= self.now);
        for (_, vector) in self.script.drain(..due) {
            self.pending = self.pending.with(vector);
        }
    }
}

impl IrqSource for FakeIrq {
    /// A wait without a deadline ends early, with no vector, if the script is played out: it would last for ever.
    fn wait(&mut self, deadline: Option<Instant>) -> Wake {
        self.collect_due();
        if self.pending.is_empty() {
            let next = self.script.first().map(|(at, _)| *at);
            match (next, deadline) {
                (Some(at), limit) if limit.is_none_or(|limit| at <= limit) => self.now = at,
                (_, Some(limit)) => {
                    self.now = self.now.max(limit);
                    return Wake::Deadline;
                }
                _ => return Wake::Vectors(VectorSet::EMPTY),
            }
            self.collect_due();
        }
        Wake::Vectors(core::mem::take(&mut self.pending))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ns: u64) -> Instant {
        Instant::from_nanos(ns)
    }

    /// Trap 22: the counter coalesces, and what fires during the work is kept for the next wait.
    #[test]
    fn a_vector_that_fires_thrice_before_the_wait_wakes_once_and_one_that_fires_later_wakes_again() {
        let mut irq = FakeIrq::new();
        for _ in 0..3 {
            irq.fire(Vector::DEFAULT);
        }
        assert_eq!(irq.wait(None), Wake::Vectors(VectorSet::only(Vector::DEFAULT)));
        irq.fire(Vector::DEFAULT);
        assert_eq!(irq.wait(Some(at(5))), Wake::Vectors(VectorSet::only(Vector::DEFAULT)));
        assert_eq!(irq.wait(Some(at(5))), Wake::Deadline);
    }

    #[test]
    fn a_wait_ends_at_the_earlier_of_event_and_deadline() {
        let mut irq = FakeIrq::new();
        let vector = Vector::new(7).unwrap();
        irq.fire_at(at(100), vector);
        assert_eq!(irq.wait(Some(at(40))), Wake::Deadline);
        assert_eq!(irq.now(), at(40));
        assert_eq!(irq.wait(Some(at(400))), Wake::Vectors(VectorSet::only(vector)));
        assert_eq!(irq.now(), at(100));
        assert_eq!(irq.wait(None), Wake::Vectors(VectorSet::EMPTY));
    }
}
