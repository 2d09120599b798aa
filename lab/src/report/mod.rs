//! Tables of a system: what was published, what the laboratory gives with the published mechanism, and with ours.
//!
//! A table is made of the given rows and those that are asked for beside them. From it come text, CSV, one page of HTML,
//! and the targets: each a sentence that is met or missed, with the figure that decides.

mod page;
mod targets;

pub use self::page::page;
pub use self::targets::{Target, targets};

use std::fmt::Write as _;

use crate::predict::Prediction;
use crate::published::{PublishedCell, Use, mechanism, ours};

/// A row with its prediction.
#[derive(Clone, Debug)]
pub struct Line {
    /// The row, with what is given of it.
    pub published: PublishedCell,
    /// What came out.
    pub prediction: Prediction,
}

/// All rows of a system.
#[derive(Clone, Debug)]
pub struct Table {
    /// The system.
    pub system: &'static str,
    /// Its rows.
    pub lines: Vec<Line>,
}

impl Line {
    /// The base against the published one, in per cent.
    pub fn base_error_pct(&self) -> f64 {
        (self.prediction.base.value / self.published.base - 1.0) * 100.0
    }

    /// The change that a policy makes, in per cent.
    pub fn change_pct(&self, policy: &str) -> Option<f64> {
        self.prediction.policies.get(policy).map(|policy| policy.change_pct)
    }
}

fn signed(value: Option<f64>) -> String {
    value.map_or("-".to_owned(), |value| format!("{value:+.2} %"))
}

impl Table {
    /// The table as people read it.
    pub fn to_text(&self) -> String {
        let (published, own) = (mechanism(self.system), ours(self.system));
        let mut text = format!(
            "{}: base, and the change with {published} (published, laboratory) and with {own}\n\n{:<40} {:>10} {:>10} \
             {:>8} {:>5}  {:>11} {:>11} {:>11}\n",
            self.system, "row", "published", "lab", "error", "used", "published", published, own
        );
        for line in &self.lines {
            let base = &line.prediction.base;
            let used = if line.published.used == Use::Fit { "fit" } else { "check" };
            let _ = writeln!(
                text,
                "{:<40} {:>10} {:>10} {:>7.1}% {used:>5}  {:>11} {:>11} {:>11}",
                line.published.row,
                line.published.base,
                base.value,
                line.base_error_pct(),
                signed(line.published.change_pct()),
                signed(line.change_pct(published)),
                signed(line.change_pct(own)),
            );
        }
        text
    }

    /// One line a row and policy.
    pub fn to_csv(&self) -> String {
        let mut text = String::from(
            "system,row,policy,unit,published,value,change_pct,ci95_pct,published_change_pct,used\n",
        );
        let or_nothing = |value: Option<f64>| value.map_or(String::new(), |value| format!("{value:.3}"));
        for line in &self.lines {
            let (base, row) = (&line.prediction.base, &line.published.row);
            let used = if line.published.used == Use::Fit { "fit" } else { "check" };
            let _ = writeln!(
                text,
                "{},{row},{},{},{},{},0,{},,{used}",
                self.system,
                base.policy,
                base.unit,
                line.published.base,
                base.value,
                or_nothing(base.ci95_pct)
            );
            for (name, policy) in &line.prediction.policies {
                let given = if name == mechanism(self.system) { line.published.change_pct() } else { None };
                let _ = writeln!(
                    text,
                    "{},{row},{name},{},{},{},{},{},{},{used}",
                    self.system,
                    base.unit,
                    or_nothing(if given.is_some() { line.published.with } else { None }),
                    policy.value,
                    policy.change_pct,
                    or_nothing(policy.ci95_pct),
                    or_nothing(given)
                );
            }
        }
        text
    }
}
