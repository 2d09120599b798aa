//! When a completion queue announces what is in it: the rule in force, and the policies that set it.
//!
//! A device that can moderate is told two figures per completion queue: a period and a count. It announces when the
//! period has run out since the *last announcement* and something is there, or when that many completions wait. The
//! period is a least spacing and no hold-off: the first completion after a quiet time is announced at once (F-850).
//!
//! ```text
//!   completion ──▶ FireRule::due(state) ──▶ announce ──▶ drain, re-arm, drain ──▶ CqModeration::on_drain ×2
//!                      ▲                                                                │
//!                      └───────────── rule() after applied() ◀── Change, written later ─┘
//! ```
//!
//! A policy is pure: what a drain found and the time go in, a change or nothing comes out. Whoever owns the queue
//! carries the change out when it can, and says so with [`CqModeration::applied`]; until then the old rule is in force
//! and the policy decides nothing new. A queue may be destroyed in between, and then nobody says anything (trap 14).

use std::fmt;

use qhca_regs::{Duration, Instant};

use crate::decisions::Ring;

/// Which of the two looks at a queue a drain was: both belong to one announcement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pass {
    /// The first, before the queue is armed again.
    BeforeRearm,
    /// The second, which finds what came meanwhile.
    AfterRearm,
}

/// What one drain found, and how the operations behind the queue stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Drain {
    /// Completions taken.
    pub completions: u32,
    /// Which look it was.
    pub pass: Pass,
    /// Operations of the queue's users that are under way.
    pub in_flight: u32,
    /// Operations of the queue's users that have finished since its last drain.
    pub finished: u32,
}

/// What is in force: how completions become announcements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FireRule {
    /// The least time from one announcement to the next, unless another condition holds.
    pub period: Duration,
    /// So many waiting completions are announced at once.
    pub count: u32,
    /// A pause of this length after a completion is announced too; zero: never.
    pub gap: Duration,
    /// True if it is announced at once when nothing else can come.
    pub last_one_fires: bool,
}

/// What the rule is asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CqState {
    /// Completions that wait.
    pub pending: u32,
    /// Completions that can still come, those that wait included; `u32::MAX` if nobody knows.
    pub possible: u32,
    /// When the queue was announced last.
    pub last_event: Instant,
    /// When the newest waiting completion came.
    pub newest: Instant,
    /// True if a completion with an error, or one that its sender called urgent, waits.
    pub urgent: bool,
}

impl FireRule {
    /// No moderation: whatever comes is announced at once.
    pub const AT_ONCE: Self =
        Self { period: Duration::ZERO, count: 1, gap: Duration::ZERO, last_one_fires: false };

    /// The device's two figures.
    pub const fn spacing(period_us: u64, count: u32) -> Self {
        Self { period: Duration::from_micros(period_us), count, gap: Duration::ZERO, last_one_fires: false }
    }

    /// When an armed queue is announced if nothing more comes; `None` while nothing waits.
    ///
    /// An instant that has passed means now.
    pub fn due(&self, state: &CqState) -> Option<Instant> {
        if state.pending == 0 {
            return None;
        }
        let full = state.pending >= self.count;
        let last = self.last_one_fires && state.pending >= state.possible;
        if full || last || state.urgent {
            return Some(state.newest);
        }
        let spaced = state.last_event + self.period;
        if self.gap == Duration::ZERO {
            return Some(spaced);
        }
        Some(spaced.min(state.newest + self.gap))
    }
}

/// Why a policy changed something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The last step helped: one more in its direction.
    Better,
    /// The last step hurt: turned round, one step back.
    Worse,
    /// Few completions an announcement: back to the first profile.
    Sparse,
    /// Announcements are frequent enough that spacing them is worth a trial.
    Trial,
    /// A trial did not save what it must.
    NoSaving,
    /// A trial or a setting that was kept cost completions or latency.
    Guard,
    /// The latency that the operations see allows less spacing than is in force.
    Shorter,
}

impl Reason {
    /// The word in logs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Better => "better",
            Self::Worse => "worse",
            Self::Sparse => "sparse",
            Self::Trial => "trial",
            Self::NoSaving => "no-saving",
            Self::Guard => "guard",
            Self::Shorter => "shorter",
        }
    }
}

/// One decision with what it was made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Decision {
    /// When.
    pub at: Instant,
    /// Announcements in the window.
    pub events: u64,
    /// Completions in the window.
    pub completions: u64,
    /// The window's length.
    pub elapsed: Duration,
    /// What was in force.
    pub old: FireRule,
    /// What is wanted.
    pub new: FireRule,
    /// Why.
    pub reason: Reason,
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {}: {} events, {} completions in {}: ({}, {}) -> ({}, {})",
            self.at,
            self.reason.name(),
            self.events,
            self.completions,
            self.elapsed,
            self.old.period,
            self.old.count,
            self.new.period,
            self.new.count
        )
    }
}

/// A policy for completion queues.
pub trait CqModeration: Send {
    /// The name on command lines and in results.
    fn name(&self) -> &'static str;

    /// The rule in force.
    fn rule(&self) -> FireRule;

    /// A drain is over; returns the rule that is to be put in force, if it is another.
    ///
    /// Call it after both looks of every announcement, the second one also when it found nothing.
    fn on_drain(&mut self, drain: Drain, now: Instant) -> Option<FireRule>;

    /// The rule returned last is about to be put in force.
    fn applied(&mut self, now: Instant);

    /// The rule returned last will never be put in force: the queue is suspended, or was refused the change.
    fn abandoned(&mut self) {}

    /// True if one instance serves all queues of a vector, rather than one queue.
    fn shared_by_vector(&self) -> bool {
        false
    }

    /// How many queues this instance serves; one unless told otherwise.
    fn serve_queues(&mut self, _queues: u32) {}

    /// Its last decisions, if it keeps them.
    fn decisions(&self) -> Option<&Ring<Decision>> {
        None
    }
}

/// The same rule, whatever happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unmoved(pub FireRule);

impl Unmoved {
    /// The policy `off`.
    pub const OFF: Self = Self(FireRule::AT_ONCE);
}

impl CqModeration for Unmoved {
    fn name(&self) -> &'static str {
        if self.0 == FireRule::AT_ONCE { "off" } else { "fixed" }
    }

    fn rule(&self) -> FireRule {
        self.0
    }

    fn on_drain(&mut self, _drain: Drain, _now: Instant) -> Option<FireRule> {
        None
    }

    fn applied(&mut self, _now: Instant) {}
}

/// Makes a fresh instance of a policy.
pub type Factory = fn() -> Box<dyn CqModeration>;

/// The policies that may be asked for by name.
#[derive(Clone, Debug)]
pub struct Registry {
    rows: Vec<(&'static str, Factory)>,
}

/// No policy of that name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownPolicy {
    /// What was asked for.
    pub name: String,
    /// What there is.
    pub known: String,
}

impl fmt::Display for UnknownPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no moderation policy is called '{}'; there are: {}", self.name, self.known)
    }
}

impl std::error::Error for UnknownPolicy {}

impl Registry {
    /// The policies of this crate.
    pub fn builtin() -> Self {
        use super::{Defects, GuardedDim, RdmaDim, Sampling};
        Self {
            rows: vec![
                ("off", || Box::new(Unmoved::OFF)),
                ("rdma-dim", || Box::new(RdmaDim::new(Sampling::PerEvent, Defects::Fixed))),
                ("rdma-dim-twice", || Box::new(RdmaDim::new(Sampling::PerDrain, Defects::Fixed))),
                ("guarded-dim", || Box::new(GuardedDim::new())),
            ],
        }
    }

    /// Adds a policy, or replaces the one of that name.
    pub fn register(&mut self, name: &'static str, make: Factory) {
        self.rows.retain(|&(known, _)| known != name);
        self.rows.push((name, make));
    }

    /// The names, in order of registration.
    pub fn names(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.rows.iter().map(|&(name, _)| name)
    }

    /// What makes the policy `name`.
    ///
    /// # Errors
    /// No such policy.
    pub fn factory(&self, name: &str) -> Result<Factory, UnknownPolicy> {
        self.rows.iter().find(|&&(known, _)| known == name).map(|&(_, make)| make).ok_or_else(|| {
            UnknownPolicy { name: name.into(), known: self.names().collect::<Vec<_>>().join(", ") }
        })
    }
}
