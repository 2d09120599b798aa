//! One core: interrupts first, polls and the thread by turns; and the queues that it polls.
//!
//! A soft interrupt that keeps finding work is moved to a thread of ordinary priority, so neither starves the other.

use std::collections::VecDeque;

use qhca_regs::Instant;

use crate::policies::pool::rounds::Rounds;

/// A completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// The queue pair, by its number on the core.
    pub(super) qp: u16,
    /// When the read was submitted; nothing for a send.
    pub(super) submitted: Option<Instant>,
}

/// A completion queue as its core sees it.
#[derive(Debug)]
pub(super) struct Queue {
    /// By age; empty if handled in rounds.
    line: VecDeque<Entry>,
    /// By user, for rounds.
    by_user: Vec<VecDeque<Entry>>,
    rounds: Option<Rounds>,
    /// The user whose turn it is, and what is left of the turn.
    turn: Option<(u32, u32)>,
    waiting: u32,
    pub(super) armed: bool,
}

impl Queue {
    pub(super) fn new(in_rounds: bool, users: u32) -> Self {
        Self {
            line: VecDeque::new(),
            by_user: (0..if in_rounds { users } else { 0 }).map(|_| VecDeque::new()).collect(),
            rounds: in_rounds.then(Rounds::new),
            turn: None,
            waiting: 0,
            armed: true,
        }
    }

    pub(super) fn push(&mut self, entry: Entry, in_flight: u32) {
        self.waiting += 1;
        match &mut self.rounds {
            Some(rounds) => {
                rounds.came(u32::from(entry.qp), in_flight);
                self.by_user[usize::from(entry.qp)].push_back(entry);
            }
            None => self.line.push_back(entry),
        }
    }

    /// The entry that is handled next.
    pub(super) fn pop(&mut self) -> Option<Entry> {
        let entry = match &mut self.rounds {
            Some(rounds) => {
                let (user, left) = match self.turn.take() {
                    Some((user, left)) if left > 0 => (user, left),
                    _ => rounds.next_turn()?,
                };
                self.turn = Some((user, left - 1));
                self.by_user[user as usize].pop_front()
            }
            None => self.line.pop_front(),
        }?;
        self.waiting -= 1;
        Some(entry)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting == 0
    }
}

/// What a core is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The interrupt of a queue.
    Interrupt { queue: u16 },
    /// A poll of a queue; so many entries were taken.
    Poll { queue: u16, last: bool },
    /// One submission.
    Submit { qp: u16 },
}

/// A core.
#[derive(Debug, Default)]
pub(super) struct Core {
    pub(super) queues: Vec<Queue>,
    /// Queues whose interrupt is pending.
    pub(super) raised: VecDeque<u16>,
    /// Queues in the poll list.
    pub(super) polling: VecDeque<u16>,
    /// Queue pairs with a read to submit.
    pub(super) to_submit: VecDeque<u16>,
    /// The queue of each queue pair.
    pub(super) queue_of: Vec<u16>,
    pub(super) in_flight: Vec<u32>,
    /// The thread has the core, until it has nothing to submit.
    pub(super) thread_runs: bool,
    pub(super) step: Option<Step>,
    /// Entries of the poll under way.
    pub(super) taken: Vec<Entry>,
}
