//! One host: completion queues, the cores of their vectors, and processes.
//!
//! Completions are put into a queue ahead of their time, since everything that decides when they come is known when
//! the message leaves; a queue pair's messages arrive in order, so each queue is sorted. A drain takes what has come by
//! the time it looks.

use std::collections::VecDeque;

use qhca_irq::moderation::cq::{CqState, FireRule};
use qhca_regs::{Duration, Instant};
use qhca_sim::vtime::Timer;

use super::stage::{Message, Stage};

/// A spacing that an operation notices.
const WIDE: Duration = Duration::from_micros(16);

/// A completion, or those of one message's fragments.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) at: Instant,
    pub(super) cqes: u32,
    /// What the host's process gets; nothing for a send.
    pub(super) message: Option<Message>,
}

/// A completion queue.
#[derive(Debug)]
pub(super) struct Cq {
    pub(super) entries: VecDeque<Entry>,
    pub(super) rule: FireRule,
    pub(super) vector: u16,
    pub(super) policy: u16,
    /// Since when the queue is armed.
    pub(super) armed: Option<Instant>,
    /// Taken since it was armed, without an event.
    taken: u32,
    newest_taken: Instant,
    pub(super) last_event: Instant,
    pub(super) timer: Option<(Timer, Instant)>,
    /// Operations finished since the last drain that said so.
    pub(super) finished: u32,
    /// Since when the rule is in force.
    pub(super) rule_since: Instant,
    /// Time with a rule that spaces by 16 µs or more.
    pub(super) spaced: Duration,
}

impl Cq {
    pub(super) fn new(vector: u16, policy: u16) -> Self {
        Self {
            entries: VecDeque::new(),
            rule: FireRule::AT_ONCE,
            vector,
            policy,
            armed: Some(Instant::ZERO),
            taken: 0,
            newest_taken: Instant::ZERO,
            last_event: Instant::ZERO,
            timer: None,
            finished: 0,
            rule_since: Instant::ZERO,
            spaced: Duration::ZERO,
        }
    }

    /// Puts a rule in force, and books the time of the old one.
    pub(super) fn set_rule(&mut self, rule: FireRule, now: Instant) {
        if self.rule.period >= WIDE {
            self.spaced += now - self.rule_since;
        }
        self.rule_since = now;
        self.rule = rule;
    }

    pub(super) fn arm(&mut self, now: Instant) {
        self.armed = Some(now);
        self.taken = 0;
    }

    /// Takes the oldest entry if it has come by `now`.
    pub(super) fn take(&mut self, now: Instant) -> Option<Entry> {
        if self.entries.front()?.at > now {
            return None;
        }
        let entry = self.entries.pop_front()?;
        if self.armed.is_some_and(|since| entry.at > since) {
            self.taken += entry.cqes;
            self.newest_taken = entry.at;
        }
        Some(entry)
    }

    /// When the armed queue is announced, by its rule and by what is known to come; `possible` is what can come at all.
    pub(super) fn fires_at(&self, possible: u32) -> Option<Instant> {
        let since = self.armed?;
        let mut state = CqState {
            pending: self.taken,
            possible,
            last_event: self.last_event,
            newest: self.newest_taken,
            urgent: false,
        };
        let mut due = self.rule.due(&state);
        for entry in self.entries.iter().filter(|entry| entry.at > since) {
            if due.is_some_and(|at| at <= entry.at) {
                break;
            }
            state.pending += entry.cqes;
            state.newest = entry.at;
            due = self.rule.due(&state).map(|at| at.max(entry.at));
        }
        due
    }
}

/// A core that takes the interrupts of one vector.
#[derive(Debug, Default)]
pub(super) struct VectorCore {
    pub(super) waiting: VecDeque<u16>,
    /// True while an event that runs the core is under way.
    pub(super) scheduled: bool,
    pub(super) free_at: Instant,
    pub(super) busy: Duration,
}

/// A process: it takes a message, answers it, and sleeps when there is none.
#[derive(Debug, Default)]
pub(super) struct Process {
    pub(super) inbox: VecDeque<Message>,
    pub(super) awake: bool,
}

/// One host.
#[derive(Debug)]
pub(super) struct Host {
    pub(super) stage: Stage,
    /// Receive queues of all queue pairs, then their send queues.
    pub(super) cqs: Vec<Cq>,
    pub(super) cores: Vec<VectorCore>,
    pub(super) processes: Vec<Process>,
    /// Requests under way, by queue pair.
    pub(super) requests: Vec<u32>,
    /// Messages sent and not yet completed, by queue pair.
    pub(super) sends: Vec<u32>,
    /// When the last message of each queue pair arrives at the other host.
    pub(super) last_arrival: Vec<Instant>,
    pub(super) last_ack: Vec<Instant>,
}
