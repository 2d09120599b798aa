//! What may be asked, and the run behind each question.

use std::collections::BTreeMap;
use std::fmt;

use qhca_irq::moderation::cq::{Factory, Registry};
use qhca_sim::vtime::Seed;

use super::{RowValue, Sample};
use crate::params::{ParamError, Parameters};
use crate::policies::{pool, replenish, sched};
use crate::rows::RowError;
use crate::{cq_pool, dim, rnr, spread};

/// Systems that have cells to predict; the first policy of each is its base.
pub const SYSTEMS: [&str; 4] = ["dim", "cq-pool", "spread", "rnr"];

/// What is asked.
#[derive(Clone, Debug, Default)]
pub struct Question<'a> {
    /// The system.
    pub system: &'a str,
    /// The row.
    pub row: &'a str,
    /// Figures that differ from the file's, as `NAME=VALUE`.
    pub set: &'a [String],
    /// What is left out, by name.
    pub ablation: Option<&'a str>,
    /// Policies beside the base; none for all of them.
    pub policies: &'a [String],
}

/// Why a question has no answer.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum PredictError {
    /// No such system.
    System(String),
    /// The row.
    Row(RowError),
    /// A figure.
    Figure(ParamError),
    /// No such policy.
    Policy {
        /// What was asked for.
        name: String,
        /// What there is.
        known: String,
    },
    /// No such ablation.
    Ablation {
        /// What was asked for.
        name: String,
        /// What there is.
        known: &'static str,
    },
    /// The pool refuses the load.
    Pool(pool::PoolError),
}

impl fmt::Display for PredictError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::System(name) => {
                write!(f, "no system is called '{name}'; there are: {}", SYSTEMS.join(", "))
            }
            Self::Row(error) => write!(f, "{error}"),
            Self::Figure(error) => write!(f, "{error}"),
            Self::Policy { name, known } => write!(f, "no policy is called '{name}'; there are: {known}"),
            Self::Ablation { name, known } => write!(f, "no ablation is called '{name}'; there are: {known}"),
            Self::Pool(error) => write!(f, "the pool refuses: {error}"),
        }
    }
}

impl std::error::Error for PredictError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Row(error) => Some(error),
            Self::Figure(error) => Some(error),
            Self::Pool(error) => Some(error),
            Self::System(_) | Self::Policy { .. } | Self::Ablation { .. } => None,
        }
    }
}

impl From<RowError> for PredictError {
    fn from(error: RowError) -> Self {
        Self::Row(error)
    }
}

impl From<ParamError> for PredictError {
    fn from(error: ParamError) -> Self {
        Self::Figure(error)
    }
}

/// One cell, ready to be run.
#[derive(Clone, Debug)]
pub struct Cell {
    policies: Vec<String>,
    calibration: String,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    Dim { cell: dim::Cell, registry: Registry },
    Pool { row: cq_pool::Row, figures: cq_pool::Figures },
    Spread { row: spread::Row, figures: spread::Figures },
    Rnr { row: rnr::Row, figures: rnr::Figures },
}

/// The figures of a system, as its file has them.
pub fn parameters(system: &str) -> Option<Parameters> {
    match system {
        "dim" => Some(dim::parameters()),
        "cq-pool" => Some(cq_pool::parameters()),
        "spread" => Some(spread::parameters()),
        "rnr" => Some(rnr::parameters()),
        _ => None,
    }
}

impl Question<'_> {
    /// The cell that is asked about.
    ///
    /// # Errors
    /// Any part of the question is not understood.
    pub fn cell(&self) -> Result<Cell, PredictError> {
        self.cell_with(Registry::builtin())
    }

    /// The same, with moderation policies of one's own.
    ///
    /// # Errors
    /// Any part of the question is not understood.
    pub fn cell_with(&self, registry: Registry) -> Result<Cell, PredictError> {
        let mut figures =
            parameters(self.system).ok_or_else(|| PredictError::System(self.system.to_owned()))?;
        for text in self.set {
            figures.set_from_text(text)?;
        }
        let known: Vec<&str> = match self.system {
            "dim" => registry.names().collect(),
            "cq-pool" => pool::NAMES.to_vec(),
            "spread" => sched::NAMES.to_vec(),
            _ => replenish::NAMES.to_vec(),
        };
        Ok(Cell {
            policies: self.chosen(&known)?,
            calibration: figures.calibration().to_owned(),
            kind: self.kind(&figures, registry)?,
        })
    }

    /// The base, then what was asked for.
    fn chosen(&self, known: &[&str]) -> Result<Vec<String>, PredictError> {
        for name in self.policies {
            if !known.contains(&name.as_str()) {
                return Err(PredictError::Policy { name: name.clone(), known: known.join(", ") });
            }
        }
        let wanted = |name: &str| self.policies.is_empty() || self.policies.iter().any(|one| one == name);
        let others = known[1..].iter().filter(|name| wanted(name));
        Ok(known[..1].iter().chain(others).map(|&name| name.to_owned()).collect())
    }

    fn kind(&self, figures: &Parameters, registry: Registry) -> Result<Kind, PredictError> {
        let unknown =
            |known| PredictError::Ablation { name: self.ablation.unwrap_or_default().to_owned(), known };
        match (self.system, self.ablation) {
            ("dim", ablation) => {
                let ablation = match ablation {
                    None => dim::Ablation::None,
                    Some("fifo") => dim::Ablation::FifoLink,
                    Some("regular") => dim::Ablation::Regular,
                    Some(_) => return Err(unknown("fifo, regular")),
                };
                let row = dim::Row::parse(self.row)?;
                let figures = dim::Figures::from_parameters(figures)?;
                Ok(Kind::Dim { cell: dim::Cell { row, figures, ablation }, registry })
            }
            ("cq-pool", ablation) => {
                let ablation = match ablation {
                    None => cq_pool::Ablation::None,
                    Some("cpu-only") => cq_pool::Ablation::CpuOnly,
                    Some(_) => return Err(unknown("cpu-only")),
                };
                let row = cq_pool::Row::parse(self.row)?;
                Ok(Kind::Pool { row, figures: cq_pool::Figures::from_parameters(figures, &row, ablation)? })
            }
            (_, Some(_)) => Err(unknown("none for this system")),
            ("spread", None) => {
                let row = spread::Row::parse(self.row)?;
                Ok(Kind::Spread { row, figures: spread::Figures::from_parameters(figures, &row)? })
            }
            (_, None) => {
                let row = rnr::Row::parse(self.row)?;
                Ok(Kind::Rnr { row, figures: rnr::Figures::from_parameters(figures, &row)? })
            }
        }
    }
}

fn number_or_word(text: String) -> RowValue {
    text.parse().map_or(RowValue::Word(text), RowValue::Number)
}

impl Cell {
    /// The system.
    pub fn system(&self) -> &'static str {
        match self.kind {
            Kind::Dim { .. } => SYSTEMS[0],
            Kind::Pool { .. } => SYSTEMS[1],
            Kind::Spread { .. } => SYSTEMS[2],
            Kind::Rnr { .. } => SYSTEMS[3],
        }
    }

    /// The base first.
    pub fn policies(&self) -> &[String] {
        &self.policies
    }

    /// What the figures were calibrated on.
    pub fn calibration(&self) -> &str {
        &self.calibration
    }

    /// The unit of its values.
    pub fn unit(&self) -> &'static str {
        match &self.kind {
            Kind::Dim { .. } | Kind::Rnr { .. } => "iops",
            Kind::Pool { .. } => "kiops",
            Kind::Spread { row, .. } => row.test.unit(),
        }
    }

    /// The row, as understood.
    pub fn row(&self) -> BTreeMap<&'static str, RowValue> {
        let worded = |fields: BTreeMap<&'static str, String>| {
            fields.into_iter().map(|(key, value)| (key, number_or_word(value))).collect()
        };
        match &self.kind {
            Kind::Dim { cell, .. } => cell
                .row
                .fields()
                .into_iter()
                .map(|(key, value)| (key, RowValue::Number(value.into())))
                .collect(),
            Kind::Pool { row, .. } => worded(row.fields()),
            Kind::Spread { row, .. } => worded(row.fields()),
            Kind::Rnr { row, .. } => worded(row.fields()),
        }
    }

    /// Runs one policy under one seed.
    ///
    /// # Errors
    /// The policy is not one of the cell's, or refuses the load.
    pub fn run(&self, policy: &str, seed: Seed) -> Result<Sample, PredictError> {
        let unknown = || PredictError::Policy { name: policy.to_owned(), known: self.policies.join(", ") };
        match &self.kind {
            Kind::Dim { cell, registry } => {
                let make = registry.factory(policy).map_err(|_| unknown())?;
                Ok(dim_sample(cell, make, seed))
            }
            Kind::Pool { row, figures } => {
                if !self.policies.iter().any(|known| known == policy) {
                    return Err(unknown());
                }
                let make = |limits: pool::PoolLimits| {
                    pool::by_name(policy, limits.clone())
                        .unwrap_or_else(|| Box::new(pool::Private::new(limits)))
                };
                let got = cq_pool::run(row, figures, make, seed).map_err(PredictError::Pool)?;
                let extra = BTreeMap::from([
                    ("interrupts_k_s", got.interrupts_k_s),
                    ("p9999_us", got.p9999_us),
                    ("latency_us", got.latency_us),
                    ("cpu_share", got.cpu_share),
                ]);
                Ok(Sample {
                    value: got.kiops,
                    extra,
                    trace: got.trace,
                    delivered: got.delivered,
                    decisions: vec![],
                })
            }
            Kind::Spread { row, figures } => {
                let made = sched::by_name(policy, figures.cores).ok_or_else(unknown)?;
                let got = spread::run(row, figures, made, seed);
                let extra = BTreeMap::from([
                    ("calls_per_io", got.calls_per_io),
                    ("reordered", got.reordered as f64),
                    ("iops", got.iops),
                ]);
                Ok(Sample {
                    value: got.value,
                    extra,
                    trace: got.trace,
                    delivered: got.delivered,
                    decisions: vec![],
                })
            }
            Kind::Rnr { row, figures } => {
                if !self.policies.iter().any(|known| known == policy) {
                    return Err(unknown());
                }
                let make = |session| {
                    replenish::by_name(policy, session)
                        .unwrap_or_else(|| Box::new(replenish::OneByOne::new(session)))
                };
                let got = rnr::run(row, figures, make, seed);
                let extra = BTreeMap::from([
                    ("posts_per_io", got.posts_per_io),
                    ("rnr_naks", got.rnr_naks as f64),
                    ("latency_us", got.latency_us),
                    ("buffers", f64::from(got.buffers)),
                ]);
                Ok(Sample {
                    value: got.iops,
                    extra,
                    trace: got.trace,
                    delivered: got.delivered,
                    decisions: vec![],
                })
            }
        }
    }
}

fn dim_sample(cell: &dim::Cell, make: Factory, seed: Seed) -> Sample {
    let got = cell.run(make, seed);
    let extra = BTreeMap::from([
        ("events_per_io", got.events_per_io),
        ("events_per_s", got.events_per_s),
        ("latency_us", got.latency_us),
        ("changes_per_s_cq", got.changes_per_s_cq),
        ("spaced_receive_share", got.spaced_shares[0]),
        ("spaced_send_share", got.spaced_shares[1]),
    ]);
    let decisions = got
        .decisions
        .iter()
        .map(|(host, policy, one)| format!("host {host} policy {policy}: {one}"))
        .collect();
    Sample { value: got.iops, extra, trace: got.trace, delivered: got.delivered, decisions }
}
