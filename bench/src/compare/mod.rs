//! The comparisons of `qhca-compare`: what is run beside what, and the bar for the ratio.
//!
//! Ratios only: no figure in nanoseconds decides anything.

mod copy;
mod crc;
mod decode;
mod handover;
mod socket;
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
}

impl Limit {
    const fn new(of: &'static str, to: &'static str, at_most: f64) -> Self {
        Self { of, to, at_most, known_miss: "" }
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
    /// Demands that are not met and not known to be out of reach.
    pub fn missed(&self) -> impl Iterator<Item = &Limit> {
        self.limits.iter().filter(|limit| limit.known_miss.is_empty() && !self.holds(limit))
    }

    fn holds(&self, limit: &Limit) -> bool {
        self.comparison
            .ratio(limit.of, limit.to)
            .is_some_and(|ratio| ratio.median <= limit.at_most * (1.0 + NOISE))
    }
}

impl fmt::Display for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n{}", self.title, self.comparison)?;
        for limit in &self.limits {
            let Limit { of, to, at_most, known_miss } = limit;
            let verdict = match self.holds(limit) {
                true => "holds",
                false if known_miss.is_empty() => "MISSED",
                false => known_miss,
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
pub const ALL: [Compare; 6] = [
    ("decode", decode::sections),
    ("copy", copy::sections),
    ("crc", crc::sections),
    ("wake", wake::sections),
    ("handover", handover::sections),
    ("socket", socket::sections),
];
