//! A policy driven by arrivals that were recorded elsewhere: a queue, its rule, and nothing else.
//!
//! The file has one arrival a line, in nanoseconds from any origin, in order; a first line of words is a heading. The
//! queue is announced by its rule and drained at once, so that what comes out is the policy's doing alone.

use std::fmt;

use qhca_irq::moderation::cq::{CqModeration, CqState, Decision, Drain, Pass};
use qhca_regs::{Duration, Instant};
use serde::Serialize;

/// Why a file was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReplayError {
    /// A line is no number.
    NotANumber {
        /// The line, from 1.
        line: usize,
    },
    /// A line is earlier than the one before.
    Backwards {
        /// The line, from 1.
        line: usize,
    },
    /// There is nothing in it.
    Empty,
}

impl fmt::Display for ReplayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotANumber { line } => write!(f, "line {line} is no number of nanoseconds"),
            Self::Backwards { line } => write!(f, "line {line} is earlier than the line before it"),
            Self::Empty => write!(f, "no arrivals"),
        }
    }
}

impl std::error::Error for ReplayError {}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Replayed {
    /// The policy.
    pub policy: String,
    /// Arrivals.
    pub arrivals: u64,
    /// Announcements.
    pub events: u64,
    /// Changes of the rule.
    pub changes: u64,
    /// Mean wait of an arrival in microseconds.
    pub mean_wait_us: f64,
    /// Longest wait in microseconds.
    pub longest_wait_us: f64,
}

/// Reads arrival times.
///
/// # Errors
/// A line that is not understood.
pub fn parse(text: &str) -> Result<Vec<u64>, ReplayError> {
    let mut times = Vec::new();
    for (place, line) in text.lines().enumerate() {
        let first = line.split(',').next().unwrap_or_default().trim();
        if first.is_empty() || (place == 0 && first.parse::<u64>().is_err()) {
            continue;
        }
        let time = first.parse().map_err(|_| ReplayError::NotANumber { line: place + 1 })?;
        if times.last().is_some_and(|&last| last > time) {
            return Err(ReplayError::Backwards { line: place + 1 });
        }
        times.push(time);
    }
    if times.is_empty() { Err(ReplayError::Empty) } else { Ok(times) }
}

/// Drives `policy`; returns what came of it and what it decided.
pub fn replay(policy: &mut dyn CqModeration, arrivals: &[u64]) -> (Replayed, Vec<Decision>) {
    let (mut waiting, mut last_event) = (Vec::new(), Instant::ZERO);
    let (mut events, mut changes, mut sum_ns, mut longest_ns) = (0, 0, 0_u128, 0);
    for (place, &came) in arrivals.iter().enumerate() {
        waiting.push(came);
        let state = CqState {
            pending: waiting.len() as u32,
            possible: (arrivals.len() - place) as u32 - 1 + waiting.len() as u32,
            last_event,
            newest: Instant::from_nanos(came),
            urgent: false,
        };
        let Some(due) = policy.rule().due(&state) else { continue };
        let event = due.as_nanos().max(came);
        if arrivals.get(place + 1).is_some_and(|&next| next < event) {
            continue;
        }
        events += 1;
        last_event = Instant::from_nanos(event);
        let completions = waiting.len() as u32;
        for came in waiting.drain(..) {
            sum_ns += u128::from(event - came);
            longest_ns = longest_ns.max(event - came);
        }
        let drain =
            |completions, pass, finished| Drain { completions, pass, in_flight: completions, finished };
        let first = policy.on_drain(drain(completions, Pass::BeforeRearm, 0), last_event);
        let second = policy.on_drain(drain(0, Pass::AfterRearm, completions), last_event);
        if first.or(second).is_some() {
            changes += 1;
            policy.applied(last_event + Duration::ZERO);
        }
    }
    let replayed = Replayed {
        policy: policy.name().to_owned(),
        arrivals: arrivals.len() as u64,
        events,
        changes,
        mean_wait_us: (sum_ns as f64 / arrivals.len().max(1) as f64).round() / 1e3,
        longest_wait_us: longest_ns as f64 / 1e3,
    };
    (replayed, policy.decisions().map(|ring| ring.iter().copied().collect()).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use qhca_irq::moderation::cq::{FireRule, Unmoved};

    #[test]
    fn arrivals_are_announced_by_the_rule_and_the_last_of_them_too() {
        let arrivals = parse("time_ns\n1000\n2000,x\n\n20000\n").expect("three");
        let mut off = Unmoved::OFF;
        let (at_once, _) = replay(&mut off, &arrivals);
        assert_eq!((at_once.events, at_once.longest_wait_us), (3, 0.0));
        let (spaced, _) = replay(&mut Unmoved(FireRule::spacing(16, 8)), &arrivals);
        assert_eq!((spaced.events, spaced.longest_wait_us), (2, 15.0));
    }

    #[test]
    fn a_file_that_is_not_understood_is_refused_by_line() {
        assert_eq!(parse("1\n2\nx\n"), Err(ReplayError::NotANumber { line: 3 }));
        assert_eq!(parse("5\n4\n"), Err(ReplayError::Backwards { line: 2 }));
        assert_eq!(parse("time\n"), Err(ReplayError::Empty));
    }
}
