//! Deadlines of queue pairs: one heap, at most a few entries for each queue pair, renewed only when they come due.
//!
//! A queue pair moves its deadline with every acknowledge. The heap is not told: an entry that comes due too early is
//! put back at the deadline that holds by then. So a message costs no heap operation.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use qhca_regs::Instant;

/// What a deadline is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum TimerKind {
    Ack,
    Rnr,
}

/// An entry that came due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Due {
    pub(crate) at: Instant,
    pub(crate) index: u32,
    pub(crate) generation: u32,
    pub(crate) kind: TimerKind,
}

#[derive(Default)]
pub(crate) struct Timers {
    heap: BinaryHeap<Reverse<Due>>,
}

impl Timers {
    /// Sees to it that an entry comes due at `due.at` or before; `queued` is when the next one of this kind does.
    #[inline]
    pub(crate) fn arm(&mut self, due: Due, queued: &mut Option<Instant>) {
        if queued.is_none_or(|queued| due.at < queued) {
            *queued = Some(due.at);
            self.heap.push(Reverse(due));
        }
    }

    pub(crate) fn next(&self) -> Option<Instant> {
        self.heap.peek().map(|Reverse(due)| due.at)
    }

    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<Due> {
        let Reverse(due) = *self.heap.peek()?;
        if due.at > now {
            return None;
        }
        self.heap.pop();
        Some(due)
    }

    /// Room for the entries of one more queue pair, so that arming need not allocate.
    pub(crate) fn reserve(&mut self, queue_pairs: usize) {
        let wanted = queue_pairs * 4;
        self.heap.reserve(wanted.saturating_sub(self.heap.len()));
    }

    pub(crate) fn len(&self) -> usize {
        self.heap.len()
    }
}
