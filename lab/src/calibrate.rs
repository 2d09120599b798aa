//! Fitting again: the few fitted figures of a system, on the cells that may be used for it, and nothing else.
//!
//! One figure after the other is moved a step either way as long as the sum of squared relative errors of the base
//! falls; then the step is halved. That is slow and plain, and it cannot tune a cell: there are fewer figures than
//! cells, and each figure serves all of them.

use qhca_sim::vtime::Seed;
use serde::Serialize;

use crate::predict::{PredictError, Question, parameters};
use crate::published::{PublishedCell, Use, cells};

/// Rounds over all figures; the step is halved after each.
const ROUNDS: u32 = 3;
/// The first step, as a part of the figure.
const FIRST_STEP: f64 = 0.04;

/// A fitted figure.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Fitted {
    /// Its name.
    pub name: &'static str,
    /// As the file has it.
    pub file: f64,
    /// As it was fitted now.
    pub refit: f64,
}

/// A given cell and how its base is met.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Met {
    /// The row.
    pub row: String,
    /// Whether the figures were fitted to it.
    #[serde(rename = "use")]
    pub used: Use,
    /// The published base.
    pub published: f64,
    /// The error with the file's figures, in per cent.
    pub file_error_pct: f64,
    /// The error with the refitted ones.
    pub refit_error_pct: f64,
}

/// What calibration came to.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Calibration {
    /// The system.
    pub system: String,
    /// The figures.
    pub figures: Vec<Fitted>,
    /// The split, and how each cell is met.
    pub cells: Vec<Met>,
}

/// The figures of a system that are fitted to published cells.
pub fn fitted(system: &str) -> &'static [&'static str] {
    match system {
        "dim" => &["rate_gb_s", "one_way_us"],
        "cq-pool" => &["io_ns", "poll_delay_us"],
        "spread" => &["io_us"],
        _ => &["cpu_read_us", "read_gb_s", "cpu_write_us", "write_gb_s"],
    }
}

/// The base of a cell with some figures set, under one seed.
fn base(cell: &PublishedCell, set: &[String]) -> Result<f64, PredictError> {
    let question = Question { system: &cell.system, row: &cell.row, set, ..Question::default() };
    let asked = question.cell()?;
    let policy = asked.policies()[0].clone();
    Ok(asked.run(&policy, Seed(1))?.value)
}

fn errors(cells: &[PublishedCell], set: &[String]) -> Result<Vec<f64>, PredictError> {
    cells.iter().map(|cell| Ok(base(cell, set)? / cell.base - 1.0)).collect()
}

/// Fits `system` again; `say` is told of each step.
///
/// # Errors
/// No such system, or a run cannot be made.
pub fn calibrate(system: &str, mut say: impl FnMut(&str)) -> Result<Calibration, PredictError> {
    let file = parameters(system).ok_or_else(|| PredictError::System(system.to_owned()))?;
    let given: Vec<_> = cells()?.into_iter().filter(|cell| cell.system == system).collect();
    let fit: Vec<_> = given.iter().filter(|cell| cell.used == Use::Fit).cloned().collect();
    let names = fitted(system);
    let before = names.iter().map(|name| file.value(name)).collect::<Result<Vec<_>, _>>()?;
    let mut values = before.clone();
    let set = |values: &[f64]| -> Vec<String> {
        names.iter().zip(values).map(|(name, value)| format!("{name}={value}")).collect()
    };
    let cost = |values: &[f64]| -> Result<f64, PredictError> {
        Ok(errors(&fit, &set(values))?.iter().map(|error| error * error).sum())
    };
    let mut best = cost(&values)?;
    let mut step = FIRST_STEP;
    for _ in 0..ROUNDS {
        for place in 0..names.len() {
            for factor in [1.0 + step, 1.0 - step] {
                let mut moved = values.clone();
                moved[place] *= factor;
                let Ok(now) = cost(&moved) else { continue };
                if now < best {
                    (best, values) = (now, moved);
                    say(&format!("{}={:.4}: squared errors {best:.6}", names[place], values[place]));
                    break;
                }
            }
        }
        step /= 2.0;
    }
    let (old, new) = (errors(&given, &set(&before))?, errors(&given, &set(&values))?);
    let met = given.iter().zip(old.iter().zip(&new)).map(|(cell, (old, new))| Met {
        row: cell.row.clone(),
        used: cell.used,
        published: cell.base,
        file_error_pct: (old * 1e4).round() / 100.0,
        refit_error_pct: (new * 1e4).round() / 100.0,
    });
    Ok(Calibration {
        system: system.to_owned(),
        cells: met.collect(),
        figures: names
            .iter()
            .zip(before.iter().zip(&values))
            .map(|(&name, (&file, &refit))| Fitted { name, file, refit: (refit * 1e4).round() / 1e4 })
            .collect(),
    })
}
