//! The comparisons of `qhca-compare`: what is run beside what, and the bar for the ratio.
//!
//! Ratios only: no figure in nanoseconds decides anything.

mod copy;
mod crc;
mod decode;
mod handover;
mod socket;
mod storm;
mod turns;
mod wake;

use std::fmt;

use crate::interleave::Comparison;

/// Two runs of one comparison differ by about this much; a bar is missed when it is exceeded by more.
const NOISE: f64 = 0.05;

/// A demand on a ratio.
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    /// The candidate that is to be fast.
    pub of: &'static str,
    /// The candidate it is measured against.
    pub to: &'static str,
    /// The median ratio may not be above this, give or take the noise of a run.
    pub at_most: f64,
    /// Why a miss is known and where it comes from; empty for a limit that holds.
    pub known_miss: &'static str,
    /// What a limit that is known to be missed is held at, so that it gets no worse.
    pub held_at: f64,
}

impl Limit {
    const fn new(of: &'static str, to: &'static str, at_most: f64) -> Self {
        Self { of, to, at_most, known_miss: "", held_at: at_most }
    }

    /// A limit that is not reached, for a reason that is known; `held_at` is what is, with the margin of a noisy machine.
    const fn missed(self, why: &'static str, held_at: f64) -> Self {
        Self { known_miss: why, held_at, ..self }
    }
}

/// One comparison with its demands.
#[derive(Debug)]
pub struct Section {
    /// What is compared.
    pub title: String,
    /// The figures.
    pub comparison: Comparison,
    /// What they should be.
    pub limits: Vec<Limit>,
}

impl Section {
    /// Demands that fail a gate: those that are not met, or, if they are known to be out of reach, got worse than they
    /// are held at.
    pub fn missed(&self) -> impl Iterator<Item = &Limit> {
        self.limits.iter().filter(|limit| !self.is_within(limit, limit.held_at))
    }

    fn is_within(&self, limit: &Limit, at_most: f64) -> bool {
        self.comparison.ratio(limit.of, limit.to).is_some_and(|ratio| ratio.median <= at_most * (1.0 + NOISE))
    }
}

impl fmt::Display for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n{}", self.title, self.comparison)?;
        for limit in &self.limits {
            let Limit { of, to, at_most, known_miss, held_at } = limit;
            let verdict = match self.is_within(limit, *at_most) {
                true => "holds".to_owned(),
                false if known_miss.is_empty() => "MISSED".to_owned(),
                false if self.is_within(limit, *held_at) => {
                    format!("missed: {known_miss}; held at {held_at}")
                }
                false => format!("MISSED and worse than the {held_at} it is held at: {known_miss}"),
            };
            match self.comparison.ratio(of, to) {
                Some(ratio) => writeln!(f, "  bar: {of} <= {at_most} x {to}: {ratio}: {verdict}")?,
                None => writeln!(f, "  bar: {of} <= {at_most} x {to}: not measured")?,
            }
        }
        Ok(())
    }
}

/// A comparison: its name, and what makes its sections from a number of rounds.
pub type Compare = (&'static str, fn(usize) -> Vec<Section>);

/// All comparisons.
pub const ALL: [Compare; 7] = [
    ("decode", decode::sections),
    ("copy", copy::sections),
    ("crc", crc::sections),
    ("wake", wake::sections),
    ("handover", handover::sections),
    ("socket", socket::sections),
    ("storm", storm::sections),
];
