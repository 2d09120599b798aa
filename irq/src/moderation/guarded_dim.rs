//! Our moderation: no spacing unless it is known to save announcements and known not to cost latency.
//!
//! The published climb asks whether more completions came than in the window before, which at a steady load is noise.
//! This one asks two things that can be told apart from noise: would a spacing that an operation does not notice (an
//! eighth of its latency, 16 µs at most) save a third of the announcements, and, once tried, did it?
//!
//! ```text
//!   BASE at once ── worth it, 2 of 3 windows ──▶ TRIAL spaced by D ── saved 1.5x, guard holds ──▶ KEPT
//!     ▲                                            │                                              │
//!     └──── it did not: longer and longer back-off ┘◀──── saves no more, or latency fell: shorter ─┘
//! ```
//!
//! A window is 256 announcements and a millisecond at least, a difference is ten per cent and three deviations, and
//! between two changes lie ten milliseconds. So a steady load sees a handful of changes and then none.
//!
//! One instance serves all queues of a vector: their announcements share the vector's core.

use qhca_regs::{Duration, Instant};

use super::cq::{CqModeration, Decision, Drain, FireRule, Pass, Reason};
use crate::decisions::Ring;

/// Announcements in a window, at least.
pub const WINDOW_EVENTS: u64 = 256;
/// A window's length, at least.
pub const WINDOW_MIN: Duration = Duration::from_millis(1);
/// Time between two changes, at least.
pub const DWELL: Duration = Duration::from_millis(10);
/// The longest spacing.
pub const PERIOD_MAX: Duration = Duration::from_micros(16);
/// The shortest spacing that is worth a trial.
pub const PERIOD_MIN: Duration = Duration::from_micros(2);
/// An operation's latency over the spacing that it does not notice.
pub const LATENCY_SHARE: u64 = 8;
/// Waiting completions that are announced at once, whatever the spacing.
pub const COUNT: u32 = 64;
/// After a trial that failed, the next one waits so long; doubled each time.
pub const BACK_OFF_MIN: Duration = Duration::from_millis(200);
/// The longest wait for the next trial.
pub const BACK_OFF_MAX: Duration = Duration::from_millis(3_200);
/// Announcements per completion must fall to two thirds.
const SAVING_NUMERATOR: u64 = 3;
const SAVING_DENOMINATOR: u64 = 2;
/// Announcements that a spacing must be expected to swallow, in hundredths of those that stay.
const WORTH_PERCENT: u64 = 50;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Base,
    Trial,
    Kept,
}

/// What is being counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Window {
    since: Instant,
    events: u64,
    completions: u64,
    in_flight: u64,
    finished: u64,
}

/// What a window came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Figures {
    events: u64,
    completions: u64,
    elapsed: Duration,
    /// Latency of the operations by Little's law; zero if none finished.
    latency: Duration,
}

/// Two of the last three windows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Votes(u8);

/// The policy `guarded-dim`.
#[derive(Clone, Debug)]
pub struct GuardedDim {
    queues: u64,
    phase: Phase,
    rule: FireRule,
    wanted: Option<FireRule>,
    window: Option<Window>,
    first_look: u32,
    votes: Votes,
    against: Votes,
    base: Figures,
    changed_at: Instant,
    retry_at: Instant,
    back_off: Duration,
    log: Ring<Decision>,
}

impl Votes {
    fn cast(&mut self, vote: bool) {
        self.0 = (self.0 << 1 | u8::from(vote)) & 0b111;
    }

    fn carried(self) -> bool {
        self.0.count_ones() >= 2
    }
}

impl Figures {
    fn of(window: &Window, queues: u64, now: Instant) -> Self {
        let elapsed = now - window.since;
        // Little's law: operations under way = rate x latency. `in_flight` was added up once an event, one queue
        // at a time.
        let under_way = window.in_flight * queues;
        let latency = match window.finished {
            0 => Duration::ZERO,
            finished => {
                let numerator = u128::from(under_way) * u128::from(elapsed.as_nanos());
                let denominator = u128::from(window.events) * u128::from(finished);
                Duration::from_nanos((numerator / denominator.max(1)) as u64)
            }
        };
        Self { events: window.events, completions: window.completions, elapsed, latency }
    }

    /// The spacing that an operation does not notice.
    fn spacing(&self) -> Duration {
        let eighth = Duration::from_nanos(self.latency.as_nanos() / LATENCY_SHARE);
        if self.finished_none() { Duration::ZERO } else { eighth.min(PERIOD_MAX) }
    }

    fn finished_none(&self) -> bool {
        self.latency == Duration::ZERO
    }

    /// True if `spacing` would swallow enough of a queue's announcements.
    fn is_worth(&self, spacing: Duration, queues: u64) -> bool {
        // Expected within one spacing: events / queues / elapsed * spacing.
        let within = u128::from(self.events) * u128::from(spacing.as_nanos()) * 100;
        let all = u128::from(queues) * u128::from(self.elapsed.as_nanos());
        spacing >= PERIOD_MIN && within >= all * u128::from(WORTH_PERCENT)
    }

    /// True if an announcement brings at least 1.5 times as many completions as in `base`.
    fn saves_against(&self, base: &Self) -> bool {
        let now = u128::from(self.events) * u128::from(base.completions);
        let then = u128::from(base.events) * u128::from(self.completions);
        now * u128::from(SAVING_NUMERATOR) <= then * u128::from(SAVING_DENOMINATOR)
    }

    /// True if completions came significantly slower than in `base`.
    fn is_slower_than(&self, base: &Self) -> bool {
        let now = u128::from(self.completions) * u128::from(base.elapsed.as_nanos());
        let then = u128::from(base.completions) * u128::from(self.elapsed.as_nanos());
        now * 100 < then * u128::from(100 - significant_percent(self.events.min(base.events)))
    }

    /// True if the operations take significantly longer than in `base`, beyond the spacing itself.
    fn is_later_than(&self, base: &Self, spacing: Duration) -> bool {
        let allowed =
            base.latency.as_nanos() / 100 * (100 + significant_percent(self.events.min(base.events)));
        self.latency.as_nanos() > allowed + spacing.as_nanos()
    }
}

/// Ten per cent, or three standard deviations of `n` happenings if that is more.
fn significant_percent(n: u64) -> u64 {
    (300 / n.isqrt().max(3)).max(10)
}

impl GuardedDim {
    /// A policy that serves one queue.
    pub const fn new() -> Self {
        Self {
            queues: 1,
            phase: Phase::Base,
            rule: FireRule::AT_ONCE,
            wanted: None,
            window: None,
            first_look: 0,
            votes: Votes(0),
            against: Votes(0),
            base: Figures { events: 0, completions: 0, elapsed: Duration::ZERO, latency: Duration::ZERO },
            changed_at: Instant::ZERO,
            retry_at: Instant::ZERO,
            back_off: BACK_OFF_MIN,
            log: Ring::new(),
        }
    }

    /// The rule that spaces announcements by `spacing`.
    fn spaced(spacing: Duration) -> FireRule {
        FireRule { period: spacing, count: COUNT, gap: spacing, last_one_fires: true }
    }

    #[cold]
    fn end_window(&mut self, now: Instant) -> Option<FireRule> {
        let window = self.window.take()?;
        let figures = Figures::of(&window, self.queues, now);
        self.window = Some(Window { since: now, events: 0, completions: 0, in_flight: 0, finished: 0 });
        if self.wanted.is_some() {
            return None;
        }
        let (reason, new) = match self.phase {
            Phase::Base => self.consider(&figures, now)?,
            Phase::Trial => self.judge(&figures, now)?,
            Phase::Kept => self.watch(&figures, now)?,
        };
        self.log.record(Decision {
            at: now,
            events: figures.events,
            completions: figures.completions,
            elapsed: figures.elapsed,
            old: self.rule,
            new,
            reason,
        });
        self.wanted = Some(new);
        Some(new)
    }

    /// Not spaced: is a trial worth it?
    fn consider(&mut self, figures: &Figures, now: Instant) -> Option<(Reason, FireRule)> {
        self.base = *figures;
        let spacing = figures.spacing();
        self.votes.cast(figures.is_worth(spacing, self.queues));
        let may = self.votes.carried() && now >= self.retry_at && self.has_dwelt(now);
        (may && spacing >= PERIOD_MIN).then(|| {
            self.phase = Phase::Trial;
            (Reason::Trial, Self::spaced(spacing))
        })
    }

    /// Spaced on trial: did it save what it must, at no cost?
    fn judge(&mut self, figures: &Figures, now: Instant) -> Option<(Reason, FireRule)> {
        let harms = figures.is_slower_than(&self.base)
            || figures.is_later_than(&self.base, self.rule.period.doubled());
        let saves = figures.saves_against(&self.base);
        self.votes.cast(saves && !harms);
        self.against.cast(!saves || harms);
        if self.votes.carried() {
            self.phase = Phase::Kept;
            self.clear_votes();
            return None;
        }
        if !(self.against.carried() && self.has_dwelt(now)) {
            return None;
        }
        self.retry_at = now + self.back_off;
        self.back_off = self.back_off.doubled().min(BACK_OFF_MAX);
        self.phase = Phase::Base;
        Some((if harms { Reason::Guard } else { Reason::NoSaving }, FireRule::AT_ONCE))
    }

    /// Spaced for good, as long as it goes on saving and nobody notices.
    fn watch(&mut self, figures: &Figures, now: Instant) -> Option<(Reason, FireRule)> {
        let spacing = figures.spacing();
        let too_long = spacing.as_nanos() * 4 < self.rule.period.as_nanos() * 3;
        self.votes.cast(!figures.saves_against(&self.base));
        self.against.cast(too_long);
        if !self.has_dwelt(now) {
            return None;
        }
        if self.votes.carried() || (self.against.carried() && spacing < PERIOD_MIN) {
            self.retry_at = now + self.back_off;
            self.phase = Phase::Base;
            return Some((Reason::NoSaving, FireRule::AT_ONCE));
        }
        if self.against.carried() {
            self.phase = Phase::Trial;
            return Some((Reason::Shorter, Self::spaced(spacing)));
        }
        None
    }

    fn has_dwelt(&self, now: Instant) -> bool {
        now - self.changed_at >= DWELL
    }

    fn clear_votes(&mut self) {
        self.votes = Votes(0);
        self.against = Votes(0);
    }
}

impl Default for GuardedDim {
    fn default() -> Self {
        Self::new()
    }
}

impl CqModeration for GuardedDim {
    fn name(&self) -> &'static str {
        "guarded-dim"
    }

    fn rule(&self) -> FireRule {
        self.rule
    }

    fn on_drain(&mut self, drain: Drain, now: Instant) -> Option<FireRule> {
        if drain.pass == Pass::BeforeRearm {
            self.first_look = drain.completions;
            return None;
        }
        let completions = u64::from(drain.completions) + u64::from(self.first_look);
        let Some(window) = &mut self.window else {
            self.window = Some(Window { since: now, events: 0, completions: 0, in_flight: 0, finished: 0 });
            self.changed_at = now;
            return None;
        };
        window.events += 1;
        window.completions += completions;
        window.in_flight += u64::from(drain.in_flight);
        window.finished += u64::from(drain.finished);
        if window.events >= WINDOW_EVENTS && now - window.since >= WINDOW_MIN {
            return self.end_window(now);
        }
        None
    }

    fn applied(&mut self, now: Instant) {
        if let Some(rule) = self.wanted.take() {
            self.rule = rule;
            self.changed_at = now;
            self.clear_votes();
            self.window = Some(Window { since: now, events: 0, completions: 0, in_flight: 0, finished: 0 });
        }
    }

    fn abandoned(&mut self) {
        if self.wanted.take().is_some() {
            self.phase = if self.rule == FireRule::AT_ONCE { Phase::Base } else { Phase::Kept };
            self.clear_votes();
        }
    }

    fn shared_by_vector(&self) -> bool {
        true
    }

    fn serve_queues(&mut self, queues: u32) {
        self.queues = u64::from(queues.max(1));
    }

    fn decisions(&self) -> Option<&Ring<Decision>> {
        Some(&self.log)
    }
}
