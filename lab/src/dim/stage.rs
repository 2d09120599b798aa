//! The device's stage: one server for bytes and events, fed by the queue pairs in turn.
//!
//! A work request of one queue pair is served, then one of the next: with all in one line instead (the ablation `fifo`)
//! a host's messages leave in convoys, arrive in convoys, and are announced together without any moderation.

use std::collections::VecDeque;

use qhca_regs::{Duration, Instant};
use qhca_sim::vtime::Rng;

use super::figures::Figures;

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Request,
    Ack,
}

/// A message on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) kind: Kind,
    /// The process that sent the request; the acknowledgement comes back to it.
    pub(super) process: u16,
    pub(super) qp: u16,
}

#[derive(Clone, Copy, Debug)]
struct Job {
    message: Message,
    left_bytes: u32,
}

/// The stage of one host.
#[derive(Debug)]
pub(super) struct Stage {
    queues: Vec<VecDeque<Job>>,
    /// Queue pairs with work, in the order of their turns.
    turns: VecDeque<u16>,
    in_one_line: bool,
    serving: bool,
    chance: Rng,
    /// Up to when the stage is taken, by the job in service and by events.
    taken_until: Instant,
}

/// What left the stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Left {
    /// A part of a message.
    Part,
    /// The last part.
    Whole(Message),
}

impl Stage {
    pub(super) fn new(qps: u32, in_one_line: bool, chance: Rng) -> Self {
        Self {
            queues: (0..qps).map(|_| VecDeque::new()).collect(),
            turns: VecDeque::new(),
            in_one_line,
            serving: false,
            chance,
            taken_until: Instant::ZERO,
        }
    }

    /// Takes stage time for an event or a command.
    pub(super) fn take(&mut self, span: Duration, now: Instant) {
        self.taken_until = self.taken_until.max(now) + span;
    }

    /// Puts a message in its queue pair's queue; returns when the stage is to be asked for [`Stage::left`], if it was idle.
    pub(super) fn post(
        &mut self,
        message: Message,
        bytes: u32,
        figures: &Figures,
        now: Instant,
    ) -> Option<Instant> {
        let line = if self.in_one_line { 0 } else { usize::from(message.qp) };
        let queue = &mut self.queues[line];
        queue.push_back(Job { message, left_bytes: bytes });
        if queue.len() == 1 {
            self.turns.push_back(line as u16);
        }
        if self.serving { None } else { self.serve(figures, now) }
    }

    /// The work request in service has left; returns what it was and when the next one leaves.
    pub(super) fn left(&mut self, figures: &Figures, now: Instant) -> (Left, Option<Instant>) {
        let line = self.turns.pop_front().unwrap_or_default();
        let queue = &mut self.queues[usize::from(line)];
        let mut left = Left::Part;
        if let Some(job) = queue.front_mut() {
            job.left_bytes = job.left_bytes.saturating_sub(figures.fragment_bytes);
            if job.left_bytes == 0 {
                left = Left::Whole(job.message);
                queue.pop_front();
            }
        }
        if !queue.is_empty() {
            self.turns.push_back(line);
        }
        (left, self.serve(figures, now))
    }

    fn serve(&mut self, figures: &Figures, now: Instant) -> Option<Instant> {
        let job = self.turns.front().and_then(|&line| self.queues[usize::from(line)].front());
        self.serving = job.is_some();
        let bytes = job?.left_bytes.min(figures.fragment_bytes) + figures.header_bytes;
        let even = u64::from(bytes) * figures.byte_ps / 1_000;
        let uneven = even * figures.stage_spread_per_mille / 1_000;
        let drawn = match uneven {
            0 => Duration::ZERO,
            mean => self.chance.exponential(Duration::from_nanos(mean)),
        };
        self.take(Duration::from_nanos(even - uneven) + drawn, now);
        Some(self.taken_until)
    }
}
