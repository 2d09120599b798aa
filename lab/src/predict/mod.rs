//! One cell of one system, as anybody may ask for it: base, every policy, and how sure it is.
//!
//! ```text
//!   Question { system, row, … } ──cell()──▶ Cell ──run(policy, seed)──▶ Sample   … seed by seed …
//!                                             └────── Prediction::of(cell, samples) ──▶ JSON
//! ```
//!
//! Every policy meets the same chance under one seed, so changes are taken seed by seed and their scatter is that of the
//! change, not of the load. Nothing here looks at a published result.

mod cells;
mod statistics;

pub use self::cells::{Cell, PredictError, Question, SYSTEMS, parameters};
pub use self::statistics::{half_width_95, mean};

use std::collections::BTreeMap;

use qhca_sim::vtime::Seed;
use serde::Serialize;

/// What one run gave.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// The result, in the cell's unit.
    pub value: f64,
    /// Further results by name.
    pub extra: BTreeMap<&'static str, f64>,
    /// Fingerprint of the run.
    pub trace: u64,
    /// Events of the engine.
    pub delivered: u64,
    /// Decisions of the policies, one a line.
    pub decisions: Vec<String>,
}

/// All policies of a cell under one seed; the base is the first.
#[derive(Clone, Debug, PartialEq)]
pub struct Trial {
    /// The seed.
    pub seed: u64,
    /// By policy, in the cell's order.
    pub samples: Vec<Sample>,
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Prediction {
    /// The system.
    pub system: &'static str,
    /// The row, as understood.
    pub row: BTreeMap<&'static str, RowValue>,
    /// Seeds that were run.
    pub seeds: usize,
    /// Without the system's change.
    pub base: Base,
    /// With each policy.
    pub policies: BTreeMap<String, Policy>,
    /// What else is worth knowing of the base, and of the run.
    pub extra: BTreeMap<String, Extra>,
}

/// A figure or a word of a row.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum RowValue {
    /// A number.
    Number(u64),
    /// A word.
    Word(String),
}

/// A further result.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Extra {
    /// A number.
    Number(f64),
    /// A word.
    Word(String),
}

/// The base.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Base {
    /// The policy that is the base.
    pub policy: String,
    /// The result.
    pub value: f64,
    /// Its unit.
    pub unit: &'static str,
    /// Half of the 95 % interval, in per cent of the value; none from one seed.
    pub ci95_pct: Option<f64>,
    /// Further results, by name.
    #[serde(flatten)]
    pub extra: BTreeMap<&'static str, f64>,
}

/// A policy.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Policy {
    /// The result, in the base's unit.
    pub value: f64,
    /// The change against the base, in per cent.
    pub change_pct: f64,
    /// Half of the change's 95 % interval, in percentage points; none from one seed.
    pub ci95_pct: Option<f64>,
    /// Further results, by name.
    #[serde(flatten)]
    pub extra: BTreeMap<&'static str, f64>,
}

impl Trial {
    /// Runs every policy of `cell` under `seed`.
    ///
    /// # Errors
    /// A policy cannot be run.
    pub fn run(cell: &Cell, seed: u64) -> Result<Self, PredictError> {
        let samples =
            cell.policies().iter().map(|policy| cell.run(policy, Seed(seed))).collect::<Result<_, _>>()?;
        Ok(Self { seed, samples })
    }
}

/// Enough digits to compare, few enough that the last one means something.
pub(crate) fn rounded(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return 0.0;
    }
    let digits = 6 - value.abs().log10().floor() as i32 - 1;
    let scale = 10_f64.powi(digits.clamp(0, 12));
    (value * scale).round() / scale
}

fn to_two(value: f64) -> f64 {
    (value * 100.0).round() / 100.0 + 0.0
}

impl Prediction {
    /// Sums up trials of `cell`, at least one.
    pub fn of(cell: &Cell, trials: &[Trial]) -> Self {
        let column = |place: usize| trials.iter().map(move |trial| &trial.samples[place]);
        let extras = |place: usize| {
            let names = trials.first().map(|trial| trial.samples[place].extra.keys()).into_iter().flatten();
            names
                .map(|&name| {
                    let values: Vec<f64> =
                        column(place).filter_map(|sample| sample.extra.get(name)).copied().collect();
                    (name, rounded(mean(&values)))
                })
                .collect::<BTreeMap<_, _>>()
        };
        let values = |place: usize| column(place).map(|sample| sample.value).collect::<Vec<f64>>();
        let bases = values(0);
        let base = Base {
            policy: cell.policies()[0].clone(),
            value: rounded(mean(&bases)),
            unit: cell.unit(),
            ci95_pct: half_width_95(&bases).map(|half| to_two(half / mean(&bases) * 100.0)),
            extra: extras(0),
        };
        let policy = |place: usize| {
            let own = values(place);
            let changes: Vec<f64> =
                own.iter().zip(&bases).map(|(value, base)| (value / base - 1.0) * 100.0).collect();
            Policy {
                value: rounded(mean(&own)),
                change_pct: to_two(mean(&changes)),
                ci95_pct: half_width_95(&changes).map(to_two),
                extra: extras(place),
            }
        };
        let names = cell.policies();
        let samples = || trials.iter().flat_map(|trial| &trial.samples);
        let trace = samples().fold(0_u64, |hash, sample| hash.rotate_left(7) ^ sample.trace);
        Self {
            system: cell.system(),
            row: cell.row(),
            seeds: trials.len(),
            base,
            policies: (1..names.len()).map(|place| (names[place].clone(), policy(place))).collect(),
            extra: BTreeMap::from([
                ("calibration".to_owned(), Extra::Word(cell.calibration().to_owned())),
                ("result".to_owned(), Extra::Word("simulated".to_owned())),
                ("trace".to_owned(), Extra::Word(format!("{trace:#018x}"))),
                (
                    "engine_events".to_owned(),
                    Extra::Number(samples().map(|sample| sample.delivered as f64).sum()),
                ),
            ]),
        }
    }
}
