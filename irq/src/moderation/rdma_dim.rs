//! Dynamic interrupt moderation as it was published for completion queues: a hill climb over nine profiles.
//!
//! Each drain is a sample. After 64 of them the rates of the window are compared with those of the window before, in
//! whole numbers a millisecond; more than ten per cent is a difference, and the climb goes on or turns round
//! (F-851, F-852). It is a random walk at low rates, since 64 samples scatter by an eighth on their own, and sticks at
//! the long end at high ones. It stands here to be compared with, decision for decision.
//!
//! ```text
//!   START ──first drain──▶ MEASURE ──64 drains──▶ decide ── same profile ──▶ MEASURE
//!     ▲                                              └────── another ──▶ APPLY, until it is written ──┐
//!     └───────────────────────────────────────────────────────────────────────────────────────────────┘
//! ```

use qhca_regs::{Duration, Instant};

use super::cq::{CqModeration, Decision, Drain, FireRule, Pass, Reason};
use crate::decisions::Ring;

/// The profiles: least spacing in microseconds, completions. Source: F-851.
pub const PROFILES: [(u64, u32); 9] =
    [(1, 1), (1, 4), (2, 4), (2, 8), (4, 8), (16, 8), (16, 16), (32, 16), (32, 32)];
/// Samples in a window. Source: F-852.
pub const WINDOW_EVENTS: u32 = 64;
/// A difference of so many per cent is none yet. Source: F-852.
pub const SIGNIFICANT_PERCENT: u32 = 10;
const LAST: u8 = PROFILES.len() as u8 - 1;

/// What counts as a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Sampling {
    /// Both drains of an announcement together: `rdma-dim`.
    PerEvent,
    /// Each drain by itself, so that half of the samples are near zero: `rdma-dim-twice`.
    PerDrain,
}

/// Whether the published code's counting errors are made too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Defects {
    /// No: counters are wide.
    Fixed,
    /// Yes: samples are counted in 16 bits and subtracted in 32, so that the window in which they wrap ends early;
    /// the elapsed time is kept in 32 bits of microseconds.
    Reproduced,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Start,
    Measuring,
    Applying,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Right,
    Left,
}

/// Rates of a window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Rates {
    /// Completions a millisecond, rounded up.
    completions: u64,
    /// A hundred times the completions an event, rounded down.
    ratio: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Same,
    Better,
    Worse,
}

/// The published policy.
#[derive(Clone, Debug)]
pub struct RdmaDim {
    sampling: Sampling,
    defects: Defects,
    state: State,
    direction: Direction,
    /// The profile decided on.
    profile: u8,
    /// The profile that the queue has.
    in_force: u8,
    previous: Rates,
    events: u64,
    completions: u64,
    start_events: u64,
    start_completions: u64,
    start_at: Instant,
    /// Completions of the first look, until the second is over.
    first_look: u32,
    log: Ring<Decision>,
}

impl RdmaDim {
    /// A queue's policy at its start: the first profile, ready to climb.
    pub const fn new(sampling: Sampling, defects: Defects) -> Self {
        Self {
            sampling,
            defects,
            state: State::Start,
            direction: Direction::Right,
            profile: 0,
            in_force: 0,
            previous: Rates { completions: 0, ratio: 0 },
            events: 0,
            completions: 0,
            start_events: 0,
            start_completions: 0,
            start_at: Instant::ZERO,
            first_look: 0,
            log: Ring::new(),
        }
    }

    /// The profile decided on, 0 to 8.
    pub const fn profile(&self) -> u8 {
        self.profile
    }

    /// One sample; returns the profile to put in force, if it is another.
    #[inline]
    pub fn sample(&mut self, completions: u64, now: Instant) -> Option<u8> {
        self.events += 1;
        self.completions += completions;
        match self.state {
            State::Measuring if !self.window_is_full() => None,
            State::Measuring => self.end_window(now),
            State::Start => {
                self.state = State::Measuring;
                self.begin_window(now);
                None
            }
            State::Applying => None,
        }
    }

    fn window_is_full(&self) -> bool {
        match self.defects {
            Defects::Fixed => self.events - self.start_events >= u64::from(WINDOW_EVENTS),
            Defects::Reproduced => {
                let (now, start) = (self.events as u16, self.start_events as u16);
                u32::from(now).wrapping_sub(u32::from(start)) >= WINDOW_EVENTS
            }
        }
    }

    fn begin_window(&mut self, now: Instant) {
        self.start_events = self.events;
        self.start_completions = self.completions;
        self.start_at = now;
    }

    #[cold]
    fn end_window(&mut self, now: Instant) -> Option<u8> {
        let elapsed_us = match self.defects {
            Defects::Fixed => (now - self.start_at).as_micros(),
            Defects::Reproduced => u64::from((now - self.start_at).as_micros() as u32),
        };
        if elapsed_us == 0 {
            return None;
        }
        let completions = self.completions - self.start_completions;
        let rates = Rates::of(completions, elapsed_us);
        let (old, reason) = (self.profile, self.decide(rates));
        self.previous = rates;
        if self.profile == old {
            self.begin_window(now);
            return None;
        }
        self.state = State::Applying;
        self.log.record(Decision {
            at: now,
            events: self.events - self.start_events,
            completions,
            elapsed: now - self.start_at,
            old: rule_of(old),
            new: rule_of(self.profile),
            reason,
        });
        Some(self.profile)
    }

    fn decide(&mut self, rates: Rates) -> Reason {
        match rates.against(self.previous) {
            Verdict::Same => {
                if rates.ratio <= 50 * u64::from(self.profile) {
                    self.profile = 0;
                }
                Reason::Sparse
            }
            Verdict::Worse => {
                self.turn();
                self.step();
                Reason::Worse
            }
            Verdict::Better => {
                self.step();
                Reason::Better
            }
        }
    }

    fn turn(&mut self) {
        self.direction = match self.direction {
            Direction::Right => Direction::Left,
            Direction::Left => Direction::Right,
        };
    }

    /// One profile on; past an end the direction turns and nothing else happens.
    fn step(&mut self) {
        match self.direction {
            Direction::Right if self.profile < LAST => self.profile += 1,
            Direction::Left if self.profile > 0 => self.profile -= 1,
            _ => self.turn(),
        }
    }
}

impl Rates {
    /// Announcements are taken to be 64, as the published code does; the time is not zero.
    fn of(completions: u64, elapsed_us: u64) -> Self {
        let a_millisecond = |count: u64| (count * 1_000).div_ceil(elapsed_us);
        let events = a_millisecond(u64::from(WINDOW_EVENTS));
        let completions = a_millisecond(completions);
        Self { completions, ratio: completions * 100 / events }
    }

    fn against(self, previous: Self) -> Verdict {
        if previous.completions == 0 {
            return Verdict::Same;
        }
        if differs(self.completions, previous.completions) {
            return if self.completions > previous.completions { Verdict::Better } else { Verdict::Worse };
        }
        if differs(self.ratio, previous.ratio) {
            return if self.ratio > previous.ratio { Verdict::Better } else { Verdict::Worse };
        }
        Verdict::Same
    }
}

fn differs(value: u64, reference: u64) -> bool {
    reference != 0 && 100 * value.abs_diff(reference) / reference > u64::from(SIGNIFICANT_PERCENT)
}

fn rule_of(profile: u8) -> FireRule {
    let (period_us, count) = PROFILES[usize::from(profile)];
    FireRule { period: Duration::from_micros(period_us), ..FireRule::spacing(0, count) }
}

impl CqModeration for RdmaDim {
    fn name(&self) -> &'static str {
        match self.sampling {
            Sampling::PerEvent => "rdma-dim",
            Sampling::PerDrain => "rdma-dim-twice",
        }
    }

    fn rule(&self) -> FireRule {
        rule_of(self.in_force)
    }

    fn on_drain(&mut self, drain: Drain, now: Instant) -> Option<FireRule> {
        if self.sampling == Sampling::PerEvent && drain.pass == Pass::BeforeRearm {
            self.first_look = drain.completions;
            return None;
        }
        let both = u64::from(drain.completions) + u64::from(std::mem::take(&mut self.first_look));
        self.sample(both, now).map(rule_of)
    }

    fn applied(&mut self, _now: Instant) {
        if self.state == State::Applying {
            self.state = State::Start;
            self.in_force = self.profile;
        }
    }

    fn abandoned(&mut self) {
        if self.state == State::Applying {
            self.state = State::Start;
            self.profile = self.in_force;
        }
    }

    fn decisions(&self) -> Option<&Ring<Decision>> {
        Some(&self.log)
    }
}
