//! A queue pair's task: run by one core at a time, and once more if somebody came while it looked away.
//!
//! ```text
//!   Start ──first caller──▶ Busy ──second caller──▶ Armed        the second returns at once
//!     ▲                      ▲  │                     │
//!     └───── nothing left ───┼──┘◀──── one more pass ─┘
//!                            └─ a pass is at most STEPS_MAX steps, then it yields
//! ```
//!
//! What makes "a caller just after the last look" safe is that it finds Busy and arms: whoever runs the task sees that
//! when it tries to leave, and looks again (F-855). The sleeper's hand-shake is the same idea: say that one sleeps,
//! look once more, then sleep; who brings something puts it down first and asks afterwards (trap 16).

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

/// Steps of one pass, at most. Source: F-855.
pub const STEPS_MAX: u32 = 1024;

const START: u8 = 0;
const BUSY: u8 = 1;
const ARMED: u8 = 2;

/// The state of a task.
#[derive(Debug, Default)]
pub struct Task(AtomicU8);

/// What a pass of a task ended with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passed {
    /// Nothing is left; the task is at its start again.
    Done,
    /// Somebody came meanwhile: one more pass.
    Again,
}

impl Task {
    /// A task that does not run.
    pub const fn new() -> Self {
        Self(AtomicU8::new(START))
    }

    /// Asks for the task to be run; true if the caller is the one to run it.
    pub fn begin(&self) -> bool {
        // ORDER: acquire pairs with the release of `pass_ends`, so the runner sees what the one before it did; release
        // makes what the caller put down visible to the runner that finds Armed.
        let update = self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, |state| match state {
            START => Some(BUSY),
            BUSY => Some(ARMED),
            _ => None,
        });
        update == Ok(START)
    }

    /// The runner found nothing more to do.
    pub fn pass_ends(&self) -> Passed {
        let update = self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, |state| match state {
            ARMED => Some(BUSY),
            _ => Some(START),
        });
        if update == Ok(ARMED) { Passed::Again } else { Passed::Done }
    }

    /// True if nobody runs it.
    pub fn is_idle(&self) -> bool {
        self.0.load(Ordering::Acquire) == START
    }
}

/// A core's promise: "I sleep; who brings something wakes me".
#[derive(Debug, Default)]
pub struct Sleeper(AtomicBool);

impl Sleeper {
    /// A core that is awake.
    pub const fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    /// The core is about to sleep. It must look at its inbox once more now, and stay awake if something is there.
    pub fn announce(&self) {
        // ORDER: this store comes before the core's next look at its inbox; the producer's push comes before its look
        // at the flag. Sequential consistency rules out that both miss the other.
        self.0.store(true, Ordering::SeqCst);
    }

    /// The core is awake again.
    pub fn awake(&self) {
        self.0.store(false, Ordering::SeqCst);
    }

    /// Something was put into the inbox; true if the core must be woken, by this caller and no other.
    pub fn must_wake(&self) -> bool {
        self.0.swap(false, Ordering::SeqCst)
    }
}
