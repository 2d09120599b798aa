//! One figure run through a range: where sharing a vector between errors and packets pays.
//!
//! With `krcvq01_no_msi=1` the kernel contexts have no vector of their own. One interrupt then serves the error and the
//! packets behind it, which saves an entry and an exit; and every receive interrupt has to ask what it is for, which
//! costs a register read. Which of the two weighs more depends on the machine, so the sweep runs both ways at
//! each value.

use std::fmt::Write as _;

use serde::Serialize;

use super::costs::Costs;
use super::kinds::Storm;
use super::report::Measured;
use super::run::{Case, StormError};
use super::study::{Study, run_all};
use crate::params::Sweep;

/// What one value of the swept figure does.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SweepRow {
    /// The swept figure's value.
    pub value: f64,
    /// The policy's name.
    pub policy: &'static str,
    /// The order in which pending interrupts are taken.
    pub arbitration: &'static str,
    /// Goodput with a vector for each context.
    pub dedicated_mb_s: f64,
    /// Goodput with `krcvq01_no_msi=1`.
    pub shared_mb_s: f64,
    /// Seconds of the core a second that remain idle, with a vector for each context.
    pub dedicated_idle: f64,
    /// The same with `krcvq01_no_msi=1`.
    pub shared_idle: f64,
    /// Whether `krcvq01_no_msi=1` pays: more goodput or, where goodput is equal, more idle time.
    pub pays: bool,
}

/// A sweep's result.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SweepReport {
    /// Always true: nothing here was measured on a card.
    pub simulated: bool,
    /// What the cost model was calibrated on.
    pub calibration: String,
    /// The seed of every source of chance.
    pub seed: u64,
    /// Driver options and figures that differ from the file's.
    pub options: String,
    /// The swept figure.
    pub swept: String,
    /// One row for each value, policy and order.
    pub rows: Vec<SweepRow>,
}

/// Goodputs closer than this, in parts of the larger, count as equal, and so do idle shares.
const EQUAL_WITHIN: f64 = 0.001;

/// Goodput and idle share of one run.
#[derive(Clone, Copy)]
struct Outcome {
    mb_s: f64,
    idle: f64,
}

impl Outcome {
    fn of(run: &Measured) -> Self {
        Self { mb_s: run.goodput_mb_s(), idle: run.idle_seconds / run.seconds }
    }
}

impl Study {
    /// Runs every policy at each value of `sweep`, with a vector for each context and with `krcvq01_no_msi=1`.
    ///
    /// # Errors
    /// The first run that cannot be made.
    pub fn sweep(&self, sweep: &Sweep, progress: impl Fn(&Case) + Sync) -> Result<SweepReport, StormError> {
        let storm = self.storms.first().copied().unwrap_or(Storm::EgrFull);
        let (mut cases, mut values) = (Vec::new(), Vec::new());
        for &value in &sweep.values {
            let mut parameters = self.parameters.clone();
            parameters.set(&sweep.name, value)?;
            let costs = Costs::from_parameters(&parameters)?;
            for &order in &self.orders {
                for &policy in &self.policies {
                    values.push(value);
                    for shared in [false, true] {
                        let mut case = self.case(policy, storm, order, &costs);
                        case.options.krcvq01_no_msi = shared;
                        cases.push(case);
                    }
                }
            }
        }
        let runs = run_all(&cases, progress)?;
        let rows = values
            .iter()
            .zip(runs.chunks_exact(2))
            .map(|(&value, pair)| SweepRow::new(value, pair[0], pair[1]));
        let rows = rows.collect();
        Ok(SweepReport {
            simulated: true,
            calibration: self.parameters.calibration().into(),
            seed: self.seed.0,
            options: self.options_text.clone(),
            swept: sweep.name.clone(),
            rows,
        })
    }
}

impl SweepRow {
    /// The row of two runs that differ in the option alone.
    fn new(value: f64, dedicated: Measured, shared: Measured) -> Self {
        let (policy, order) = (dedicated.policy, dedicated.order);
        let (dedicated, shared) = (Outcome::of(&dedicated), Outcome::of(&shared));
        let larger = dedicated.mb_s.max(shared.mb_s);
        let equal = (dedicated.mb_s - shared.mb_s).abs() <= larger * EQUAL_WITHIN;
        let pays = match equal {
            true => shared.idle > dedicated.idle + EQUAL_WITHIN,
            false => shared.mb_s > dedicated.mb_s,
        };
        let rounded = |value: f64, scale: f64| (value * scale).round() / scale;
        Self {
            value: rounded(value, 1e4),
            policy: policy.name(),
            arbitration: order.name(),
            dedicated_mb_s: rounded(dedicated.mb_s, 100.0),
            shared_mb_s: rounded(shared.mb_s, 100.0),
            dedicated_idle: rounded(dedicated.idle, 1e4),
            shared_idle: rounded(shared.idle, 1e4),
            pays,
        }
    }
}

impl SweepReport {
    /// The table and what has to be said under it.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        let _ = writeln!(text, "where krcvq01_no_msi=1 pays, by {}, seed {}\n", self.swept, self.seed);
        let _ = writeln!(
            text,
            "{:>12} {:<13} {:<13} {:>15} {:>15} {:>7} {:>7}  pays",
            self.swept, "arbitration", "policy", "dedicated MB/s", "no_msi=1 MB/s", "idle %", "idle %"
        );
        for row in &self.rows {
            let _ = writeln!(
                text,
                "{:>12} {:<13} {:<13} {:>15.2} {:>15.2} {:>7.2} {:>7.2}  {}",
                row.value,
                row.arbitration,
                row.policy,
                row.dedicated_mb_s,
                row.shared_mb_s,
                row.dedicated_idle * 100.0,
                row.shared_idle * 100.0,
                if row.pays { "yes" } else { "no" }
            );
        }
        let _ = writeln!(text, "\nAll figures are simulated, calibrated on: {}.", self.calibration);
        text.push_str(REMARKS);
        text
    }
}

const REMARKS: &str = "\
Nothing here was measured on a card, and no figure was ever published for this option.
It pays when error and packets often wait together: one entry and exit are saved then, and a read is lost whenever
packets come alone. A core at its limit goes from batch to batch without interrupts and shows no difference; below
the limit idle time does, e.g. with --storm port --set wire_ns=1000 --set stall_ms=0 --set inject_ns=16000.
";
