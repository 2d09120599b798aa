//! Compares candidates in turn, within one run, as ratios.
//!
//! On a shared machine the same code takes half as long again from one minute to the next, and everything drifts
//! together. So candidates take turns: each round runs every one of them once, and a ratio is taken within a round.
//! The median over the rounds is what counts, and the range says how much to believe it.
//!
//! ```text
//!   round 1   a b c     a/b = 0.9
//!   round 2   b c a     a/b = 0.8     the first of a round changes, so that none is always the one
//!   round 3   c a b     a/b = 0.9     that finds a cold cache
//!                       median 0.9 [0.8..0.9]
//! ```

use std::fmt;
use std::process::Command;
use std::time::Instant;

/// Fewer rounds than this say nothing here.
pub const MIN_ROUNDS: usize = 9;

/// Batches of a timed turn.
const BATCHES: u32 = 16;

/// One thing to compare: yields a figure each time it is its turn, and less is better.
pub struct Candidate<'a> {
    name: String,
    turn: Box<dyn FnMut() -> f64 + 'a>,
}

impl<'a> Candidate<'a> {
    /// A candidate that measures itself.
    pub fn figure(name: impl Into<String>, turn: impl FnMut() -> f64 + 'a) -> Self {
        Self { name: name.into(), turn: Box::new(turn) }
    }

    /// `repeats` calls of `body` a turn, in batches; the figure is nanoseconds a call in the fastest batch, since what
    /// interrupts a batch only ever makes it slower.
    pub fn timed(name: impl Into<String>, repeats: u32, mut body: impl FnMut() + 'a) -> Self {
        let batch = (repeats / BATCHES).max(1);
        let mut one_batch = move || {
            let begun = Instant::now();
            for _ in 0..batch {
                body();
            }
            begun.elapsed().as_nanos() as f64 / f64::from(batch)
        };
        Self::figure(name, move || (0..BATCHES).map(|_| one_batch()).fold(f64::INFINITY, f64::min))
    }

    /// One run of a program a turn; the figure is nanoseconds from start to end.
    ///
    /// # Panics
    /// A turn panics if the program cannot be started or fails: its time would mean nothing.
    pub fn command(name: impl Into<String>, mut command: Command) -> Self {
        Self::figure(name, move || {
            let begun = Instant::now();
            let status = command.status().unwrap_or_else(|error| panic!("{command:?}: {error}"));
            let took = begun.elapsed().as_nanos() as f64;
            assert!(status.success(), "{command:?}: {status}");
            took
        })
    }
}

/// The figures of all candidates, round by round.
#[derive(Clone, Debug)]
pub struct Comparison {
    names: Vec<String>,
    /// For each candidate its figures, one a round.
    figures: Vec<Vec<f64>>,
}

/// A ratio over all rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio {
    /// Median of the rounds' ratios.
    pub median: f64,
    /// The lowest.
    pub min: f64,
    /// The highest.
    pub max: f64,
}

/// Runs every candidate once a round, `rounds` times, at least [`MIN_ROUNDS`], after one round that is not counted.
pub fn interleave(rounds: usize, mut candidates: Vec<Candidate<'_>>) -> Comparison {
    for candidate in &mut candidates {
        (candidate.turn)();
    }
    let mut figures = vec![Vec::new(); candidates.len()];
    for round in 0..rounds.max(MIN_ROUNDS) {
        for turn in 0..candidates.len() {
            let which = (round + turn) % candidates.len();
            figures[which].push((candidates[which].turn)());
        }
    }
    Comparison { names: candidates.into_iter().map(|candidate| candidate.name).collect(), figures }
}

impl Comparison {
    /// The candidates' names, in the order they were given.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(String::as_str)
    }

    /// The median of a candidate's figures.
    #[must_use]
    pub fn median(&self, name: &str) -> Option<f64> {
        self.of(name).map(|figures| spread(figures.to_vec()).median)
    }

    /// How a candidate's figures relate to another's, round by round.
    #[must_use]
    pub fn ratio(&self, name: &str, to: &str) -> Option<Ratio> {
        let (of, to) = (self.of(name)?, self.of(to)?);
        Some(spread(of.iter().zip(to).map(|(a, b)| a / b).collect()))
    }

    fn of(&self, name: &str) -> Option<&[f64]> {
        let place = self.names.iter().position(|known| known == name)?;
        Some(&self.figures[place])
    }
}

/// Median and range; the middle of a non-empty list.
fn spread(mut figures: Vec<f64>) -> Ratio {
    figures.sort_by(f64::total_cmp);
    let (Some(&min), Some(&max)) = (figures.first(), figures.last()) else {
        return Ratio { median: f64::NAN, min: f64::NAN, max: f64::NAN };
    };
    Ratio { median: figures[figures.len() / 2], min, max }
}

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2} [{:.2}..{:.2}]", self.median, self.min, self.max)
    }
}

impl fmt::Display for Comparison {
    /// A table: each candidate's median, and its ratio to the first.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for name in &self.names {
            let median = self.median(name).unwrap_or(f64::NAN);
            let ratio = self.names.first().and_then(|first| self.ratio(name, first));
            write!(f, "  {name:<32} {median:>12.1} ns")?;
            match ratio {
                Some(ratio) => writeln!(f, "   {ratio} of the first")?,
                None => writeln!(f)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steady(name: &'static str, figures: &'static [f64]) -> Candidate<'static> {
        let mut turns = figures.iter().cycle();
        Candidate::figure(name, move || *turns.next().expect("a cycle has no end"))
    }

    #[test]
    fn ratios_are_taken_within_a_round_so_that_common_drift_cancels() {
        // Both double in every second round.
        let drift = interleave(9, vec![steady("a", &[2.0, 4.0]), steady("b", &[1.0, 2.0])]);
        assert_eq!(drift.ratio("a", "b"), Some(Ratio { median: 2.0, min: 2.0, max: 2.0 }));
    }

    #[test]
    fn one_wild_round_moves_the_range_and_not_the_median() {
        let wild = &[1.0, 1.0, 1.0, 50.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];
        let comparison = interleave(9, vec![steady("a", wild), steady("b", &[1.0])]);
        assert_eq!(comparison.ratio("a", "b"), Some(Ratio { median: 1.0, min: 1.0, max: 50.0 }));
    }

    #[test]
    fn every_candidate_has_its_turn_in_every_round_and_each_is_first_at_times() {
        let order = std::cell::RefCell::new(Vec::new());
        let noted = &order;
        let candidates = ["a", "b", "c"].map(|name| {
            Candidate::figure(name, move || {
                noted.borrow_mut().push(name);
                1.0
            })
        });
        let comparison = interleave(1, candidates.into());
        assert_eq!(comparison.names().collect::<Vec<_>>(), ["a", "b", "c"]);
        let order = order.take();
        assert_eq!(order.len(), 3 * (1 + MIN_ROUNDS));
        let firsts: Vec<_> = order[3..].chunks(3).map(|round| round[0]).take(3).collect();
        assert_eq!(firsts, ["a", "b", "c"]);
    }

    #[test]
    fn command_that_fails_is_no_figure() {
        let failing = || interleave(1, vec![Candidate::command("false", Command::new("false"))]);
        assert!(std::panic::catch_unwind(failing).is_err());
    }

    #[test]
    fn unknown_candidate_has_no_ratio() {
        let comparison = interleave(9, vec![steady("a", &[1.0])]);
        assert_eq!((comparison.ratio("a", "b"), comparison.median("b")), (None, None));
    }
}
