//! Completion queues: a ring of work completions, and who wants to be told.
//!
//! ```text
//!   tail ─► next to poll                 arm(Next)       an event with the next completion
//!   head ─► next to fill                 arm(Solicited)  an event with the next solicited or failed one
//! ```
//!
//! One armed queue raises one event. Arming is idempotent; arming for less never takes a stronger wish back. The only
//! safe way to sleep is: arm, poll once more, sleep if that found nothing.
//!
//! A completion that finds the ring full is never dropped silently: the queue fails once and for all, which is an
//! event, and the queue pairs that use it go to the error state.

pub mod pool;

use std::fmt;

use qhca_regs::Instant;

use crate::policy::{CqModeration, Immediately, Notice};
use crate::wc::{Wc, WcStatus};

/// The deepest completion queue, entries.
pub const CQ_DEPTH_MAX: u32 = 1 << 22;

/// What an armed queue waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Arm {
    /// A completion with a solicited event, or one that failed.
    Solicited,
    /// Any completion.
    Next,
}

/// Why a queue could not be made or changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CqError {
    /// The depth is 0 or beyond what is possible.
    Depth {
        /// What was asked for.
        asked: u32,
        /// What is possible.
        max: u32,
    },
    /// More completions wait than the new ring would hold.
    HoldsMore {
        /// Completions that wait.
        waiting: u32,
        /// What was asked for.
        asked: u32,
    },
    /// Queue pairs use it.
    Busy {
        /// How many.
        users: u32,
    },
    /// There is no such queue.
    NoSuchCq,
    /// There are as many as there can be.
    TooMany,
}

impl fmt::Display for CqError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Depth { asked, max } => {
                write!(f, "a completion queue of {asked} entries: 1 to {max} are possible")
            }
            Self::HoldsMore { waiting, asked } => {
                write!(f, "{waiting} completions wait, which {asked} entries do not hold: poll first")
            }
            Self::Busy { users } => {
                write!(f, "{users} queues of queue pairs complete to it: destroy them first")
            }
            Self::NoSuchCq => f.write_str("there is no such completion queue"),
            Self::TooMany => f.write_str("there are no more completion queues: destroy one"),
        }
    }
}

impl std::error::Error for CqError {}

/// What a push did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pushed {
    Quiet,
    Event,
    /// There was no room, for the first time.
    Overflow,
    Lost,
}

/// A completion queue.
pub struct Cq {
    ring: Box<[Wc]>,
    mask: u32,
    depth: u32,
    head: u32,
    tail: u32,
    armed: Option<Arm>,
    failed: bool,
    lost: u64,
    moderation: Box<dyn CqModeration + Send>,
    pub(crate) users: u32,
}

impl Cq {
    pub(crate) fn new(depth: u32) -> Result<Self, CqError> {
        if depth == 0 || depth > CQ_DEPTH_MAX {
            return Err(CqError::Depth { asked: depth, max: CQ_DEPTH_MAX });
        }
        let places = depth.next_power_of_two();
        Ok(Self {
            ring: vec![Wc::EMPTY; places as usize].into(),
            mask: places - 1,
            depth,
            head: 0,
            tail: 0,
            armed: None,
            failed: false,
            lost: 0,
            moderation: Box::new(Immediately),
            users: 0,
        })
    }

    /// Completions that it holds at most.
    pub fn depth(&self) -> u32 {
        self.depth
    }

    /// Completions that wait.
    #[inline]
    pub fn len(&self) -> u32 {
        self.head.wrapping_sub(self.tail)
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.head == self.tail
    }

    /// Completions that found no room.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Sets when an armed queue tells: at once, unless a policy says otherwise.
    pub fn moderate_by(&mut self, policy: impl CqModeration + Send + 'static) {
        self.moderation = Box::new(policy);
    }

    #[inline]
    pub(crate) fn push(&mut self, wc: Wc, solicited: bool, now: Instant) -> Pushed {
        if self.len() >= self.depth {
            self.lost += 1;
            return if std::mem::replace(&mut self.failed, true) { Pushed::Lost } else { Pushed::Overflow };
        }
        self.ring[(self.head & self.mask) as usize] = wc;
        self.head = self.head.wrapping_add(1);
        match self.armed {
            None => Pushed::Quiet,
            Some(arm) => self.judge(arm, solicited || wc.status != WcStatus::Success, now),
        }
    }

    #[cold]
    fn judge(&mut self, arm: Arm, urgent: bool, now: Instant) -> Pushed {
        if arm == Arm::Solicited && !urgent {
            return Pushed::Quiet;
        }
        match self.moderation.on_completion(self.len(), urgent, now) {
            Notice::Now => {
                self.armed = None;
                Pushed::Event
            }
            Notice::Later(_) => Pushed::Quiet,
        }
    }

    /// Takes completions, oldest first, until `into` is full or none waits; returns how many it were.
    #[inline]
    pub fn poll(&mut self, into: &mut [Wc]) -> usize {
        let count = into.len().min(self.len() as usize);
        for place in &mut into[..count] {
            *place = self.ring[(self.tail & self.mask) as usize];
            self.tail = self.tail.wrapping_add(1);
        }
        count
    }

    /// Asks for an event.
    ///
    /// True if completions wait already: poll them before going to sleep, for they raise no event.
    pub fn arm(&mut self, arm: Arm, now: Instant) -> bool {
        self.armed = self.armed.max(Some(arm));
        self.moderation.on_arm(now);
        !self.is_empty()
    }

    pub(crate) fn resize(&mut self, depth: u32) -> Result<(), CqError> {
        let waiting = self.len();
        if depth == 0 || depth > CQ_DEPTH_MAX {
            return Err(CqError::Depth { asked: depth, max: CQ_DEPTH_MAX });
        }
        if waiting > depth {
            return Err(CqError::HoldsMore { waiting, asked: depth });
        }
        let places = depth.next_power_of_two();
        let mut ring = vec![Wc::EMPTY; places as usize];
        self.poll(&mut ring[..waiting as usize]);
        self.ring = ring.into();
        (self.mask, self.depth, self.tail, self.head) = (places - 1, depth, 0, waiting);
        Ok(())
    }

    /// Takes out the completions of queue pairs for which `is_gone` holds; the rest keep their order.
    pub(crate) fn forget(&mut self, mut is_gone: impl FnMut(&Wc) -> bool) {
        let mut kept = self.tail;
        let mut at = self.tail;
        while at != self.head {
            let wc = self.ring[(at & self.mask) as usize];
            if !is_gone(&wc) {
                self.ring[(kept & self.mask) as usize] = wc;
                kept = kept.wrapping_add(1);
            }
            at = at.wrapping_add(1);
        }
        self.head = kept;
    }

    #[cfg(test)]
    pub(crate) fn start_at(&mut self, index: u32) {
        (self.head, self.tail) = (index, index);
    }
}

#[cfg(test)]
#[path = "cq_tests.rs"]
mod tests;
