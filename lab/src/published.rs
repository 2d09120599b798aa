//! The published tables, as far as they are given, and how a prediction stands to them.
//!
//! A cell says whether the figures were fitted to it. What was not given has no value here: a laboratory that has seen
//! the answer proves nothing by finding it.

use serde::{Deserialize, Serialize};

use crate::params::ParamError;

/// What a cell was used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Use {
    /// Figures were fitted to its base.
    Fit,
    /// It is held against what comes out.
    Check,
}

/// A cell of a published table.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedCell {
    /// The system.
    pub system: String,
    /// The row, as it is typed.
    pub row: String,
    /// The result without the change.
    pub base: f64,
    /// The result with it, where that is given.
    pub with: Option<f64>,
    /// What the base was used for.
    #[serde(rename = "use")]
    pub used: Use,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    cell: Vec<PublishedCell>,
}

impl PublishedCell {
    /// The published change in per cent, where it is given.
    pub fn change_pct(&self) -> Option<f64> {
        self.with.map(|with| (with / self.base - 1.0) * 100.0)
    }
}

/// The policy of each system that is the published mechanism.
pub fn mechanism(system: &str) -> &'static str {
    match system {
        "dim" => "rdma-dim",
        "cq-pool" => "first-fit",
        "spread" => "always-schedule",
        _ => "one-by-one",
    }
}

/// The policy of each system that is ours.
pub fn ours(system: &str) -> &'static str {
    match system {
        "dim" => "guarded-dim",
        "cq-pool" => "balanced",
        "spread" => "hybrid",
        _ => "credit-lazy",
    }
}

/// All given cells.
///
/// # Errors
/// The file does not parse.
pub fn cells() -> Result<Vec<PublishedCell>, ParamError> {
    let text = include_str!("../data/published.toml");
    let file: File = toml::from_str(text).map_err(|error| ParamError::File { why: error.to_string() })?;
    Ok(file.cell)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::predict::{Question, SYSTEMS};

    #[test]
    fn every_published_row_is_one_that_can_be_asked_for() {
        let cells = cells().expect("the file parses");
        for cell in &cells {
            let question = Question { system: &cell.system, row: &cell.row, ..Question::default() };
            let asked = question.cell().expect(&cell.row);
            let policies = asked.policies();
            for policy in [mechanism(&cell.system), ours(&cell.system)] {
                assert!(policies.iter().any(|known| known == policy), "{}: {policy}", cell.system);
            }
        }
        assert!(SYSTEMS.iter().all(|system| cells.iter().any(|cell| cell.system == *system)));
    }
}
