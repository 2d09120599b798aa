//! The hand-over from the interrupt to the deferred worker: one word that both sides change without a lock.
//!
//! An error is served later, by a worker, so that a storm of errors cannot keep packets waiting. The interrupt side
//! says *why* a turn is wanted ([`Reasons`]); the worker takes all reasons at once when its turn begins. Four rules
//! hold in every interleaving, and are checked by searching all of them (`irq/tests/handover_loom.rs`):
//!
//! 1. No reason is lost: one that comes while a turn runs makes that turn's end say [`TurnEnd::Again`].
//! 2. Urgency is never hidden: once set it shows in [`Handover::is_urgent`] until a turn has begun that knows of it.
//! 3. Turns never overlap.
//! 4. After [`Handover::close`] no turn begins, and close tells whether one is still running.
//!
//! ```text
//! word:  63 ................ 8 | 6 closed | 5 urgent | 4 running | 3 re-arm | 2 port 1 | 1 port 0 | 0 device
//!        when the oldest reason came, in units of 16 ns
//! ```
//!
//! The hand-over does not wake anybody: whoever is told [`Scheduled::Wake`] signals the worker's thread.

use crate::sync::{AtomicU64, Ordering};
use qhca_regs::{Duration, Instant, Port};

/// The worker begins its turn at most this long after it was asked for, even if receive work never ends.
///
/// TIMEOUT: at 1.5 million packets a second this is a delay that no error report suffers from, and long enough for
/// some hundred batches of packets to go first.
pub const WORKER_DEADLINE: Duration = Duration::from_millis(1);

const RUNNING: u64 = 1 << 4;
const URGENT: u64 = 1 << 5;
const CLOSED: u64 = 1 << 6;
const STAMP_SHIFT: u32 = 8;
/// The stamp counts 16 ns, so that 56 bits last for 36 years of uptime.
const STAMP_UNIT_SHIFT: u32 = 4;

/// Why the worker is wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Reasons(u8);

impl Reasons {
    /// Nothing.
    pub const NONE: Self = Self(0);
    /// An error of the whole chip.
    pub const DEVICE: Self = Self(1);
    /// A masked class of errors may be unmasked.
    pub const REARM: Self = Self(1 << 3);
    const ALL: u64 = 0b1111;

    /// An error of `port`.
    pub const fn port(port: Port) -> Self {
        Self(2 << port.index())
    }

    /// Both sets of reasons.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether all of `other` is among these reasons.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether any of `other` is among these reasons.
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Whether there is no reason.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    const fn of(word: u64) -> Self {
        Self((word & Self::ALL) as u8)
    }
}

/// What became of a request for a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheduled {
    /// A turn is newly wanted, or has become urgent: wake the worker.
    Wake,
    /// A turn was wanted already, with at least this urgency: the worker has been woken.
    AlreadyPending,
    /// The device is closing: there will be no turn.
    Closed,
}

/// A turn of the worker that has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a turn that is not ended blocks all later ones"]
pub struct Turn {
    /// Why it was wanted.
    pub reasons: Reasons,
    /// Whether a fatal error may be the reason.
    pub urgent: bool,
    /// How long the oldest reason has waited.
    pub waited: Duration,
}

/// How a turn ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TurnEnd {
    /// Nothing more is wanted.
    Idle,
    /// Something came while the turn ran: begin another.
    Again,
    /// The device was closed while the turn ran: there will be no other.
    Closed,
}

/// Whether a close is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Close {
    /// No turn runs and none will begin.
    Quiet,
    /// A turn still runs: wait for its end before the registers go away.
    TurnRunning,
}

/// The word that interrupt side and worker share. See the module for its rules.
#[derive(Debug, Default)]
pub struct Handover {
    word: AtomicU64,
}

impl Handover {
    /// A hand-over with nothing to do.
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks for a turn because of `reasons`. `urgent` asks for it before the next receive batch.
    ///
    /// ORDER: call this after the interrupt was cleared. A worker that was woken first could unmask, and the late
    /// clear would erase what comes next (trap 2).
    pub fn schedule(&self, reasons: Reasons, urgent: bool, now: Instant) -> Scheduled {
        let asked = u64::from(reasons.0) | if urgent { URGENT } else { 0 };
        let before = self.update(|word| match word {
            word if word & CLOSED != 0 => word,
            word if word & Reasons::ALL != 0 => word | asked,
            word => word & (RUNNING | URGENT) | asked | stamp(now),
        });
        if before & CLOSED != 0 {
            Scheduled::Closed
        } else if before & Reasons::ALL == 0 || asked & URGENT & !before != 0 {
            Scheduled::Wake
        } else {
            Scheduled::AlreadyPending
        }
    }

    /// The reasons of the turn that is wanted and has not begun.
    pub fn pending(&self) -> Reasons {
        Reasons::of(self.word.load(Ordering::Acquire))
    }

    /// Whether a turn is wanted before the next receive batch.
    #[inline]
    pub fn is_urgent(&self) -> bool {
        self.word.load(Ordering::Acquire) & URGENT != 0
    }

    /// Whether [`close`](Self::close) was called.
    pub fn is_closed(&self) -> bool {
        self.word.load(Ordering::Acquire) & CLOSED != 0
    }

    /// Until when the turn that is wanted must begin: at once if it is urgent. `None` if none is wanted.
    pub fn deadline(&self) -> Option<Instant> {
        let word = self.word.load(Ordering::Acquire);
        if word & Reasons::ALL == 0 || word & CLOSED != 0 {
            None
        } else if word & URGENT != 0 {
            Some(stamped(word))
        } else {
            Some(stamped(word) + WORKER_DEADLINE)
        }
    }

    /// Whether the turn that is wanted can wait no longer, whatever else there is to do.
    pub fn is_due(&self, now: Instant) -> bool {
        self.deadline().is_some_and(|deadline| deadline <= now)
    }

    /// Begins the turn that is wanted, if there is one and none runs.
    pub fn begin(&self, now: Instant) -> Option<Turn> {
        let ready = |word: u64| word & Reasons::ALL != 0 && word & (RUNNING | CLOSED) == 0;
        let before = self.update(|word| if ready(word) { RUNNING } else { word });
        ready(before).then(|| Turn {
            reasons: Reasons::of(before),
            urgent: before & URGENT != 0,
            waited: now.since(stamped(before)),
        })
    }

    /// Ends the turn. Masks are restored *before* this, so that [`Close::Quiet`] means that no register is touched.
    pub fn end(&self, turn: Turn) -> TurnEnd {
        let _ = turn;
        let before = self.update(|word| word & !RUNNING);
        if before & CLOSED != 0 {
            TurnEnd::Closed
        } else if before & Reasons::ALL != 0 {
            TurnEnd::Again
        } else {
            TurnEnd::Idle
        }
    }

    /// Forbids all further turns and drops the one that is wanted.
    pub fn close(&self) -> Close {
        let before = self.update(|word| word & RUNNING | CLOSED);
        if before & RUNNING != 0 { Close::TurnRunning } else { Close::Quiet }
    }

    /// Whether a turn runs now: what to look at while a close waits.
    pub fn is_running(&self) -> bool {
        self.word.load(Ordering::Acquire) & RUNNING != 0
    }

    /// Replaces the word by `change` of it, in one atomic step, and gives what it was.
    fn update(&self, change: impl Fn(u64) -> u64) -> u64 {
        let mut seen = self.word.load(Ordering::Acquire);
        loop {
            // ORDER: release publishes what the caller did before (mask, clear) to whoever acquires the word.
            match self.word.compare_exchange_weak(seen, change(seen), Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return seen,
                Err(now) => seen = now,
            }
        }
    }
}

const fn stamp(now: Instant) -> u64 {
    now.as_nanos() >> STAMP_UNIT_SHIFT << STAMP_SHIFT
}

const fn stamped(word: u64) -> Instant {
    Instant::from_nanos(word >> STAMP_SHIFT << STAMP_UNIT_SHIFT)
}
