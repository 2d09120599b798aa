//! `qhca lab calibrate` and `qhca lab replay`.

use super::lab::refused;
use super::lab_tables::write_file;
use crate::fail::{Failure, Status};
use crate::ui::Ui;
use qhca_irq::moderation::cq::Registry;
use qhca_lab::calibrate::calibrate;
use qhca_lab::replay::{parse, replay};
use std::fmt::Write as _;
use std::path::PathBuf;

/// Arguments of `qhca lab calibrate`.
#[derive(Debug, clap::Args)]
pub(crate) struct CalibrateArgs {
    /// The system: dim, cq-pool, spread or rnr
    #[arg(long, value_name = "NAME")]
    system: String,
}

/// Arguments of `qhca lab replay`.
#[derive(Debug, clap::Args)]
pub(crate) struct ReplayArgs {
    /// Arrival times in nanoseconds, one a line
    #[arg(long, value_name = "FILE")]
    arrivals: PathBuf,
    /// The moderation policy
    #[arg(long, value_name = "NAME")]
    policy: String,
    /// Write every decision that the policy remembers to this file
    #[arg(long, value_name = "FILE")]
    decisions: Option<PathBuf>,
}

/// Fits again and shows the split.
pub(crate) fn run_calibrate(args: &CalibrateArgs, ui: &Ui) -> Result<Status, Failure> {
    let result = calibrate(&args.system, |step| ui.progress(step)).map_err(|error| refused(&error))?;
    if ui.json {
        ui.json(&result)?;
        return Ok(Status::Done);
    }
    let mut text = format!("{}\n\n{:<16} {:>10} {:>10}\n", result.system, "figure", "file", "refit");
    for figure in &result.figures {
        let _ = writeln!(text, "{:<16} {:>10} {:>10}", figure.name, figure.file, figure.refit);
    }
    let _ = writeln!(text, "\n{:<42} {:>6} {:>10} {:>8} {:>8}", "row", "used", "published", "file", "refit");
    for cell in &result.cells {
        let used = format!("{:?}", cell.used).to_lowercase();
        let _ = writeln!(
            text,
            "{:<42} {used:>6} {:>10} {:>+7.1}% {:>+7.1}%",
            cell.row, cell.published, cell.file_error_pct, cell.refit_error_pct
        );
    }
    ui.text(&text)?;
    Ok(Status::Done)
}

/// Drives a policy with recorded arrivals.
pub(crate) fn run_replay(args: &ReplayArgs, ui: &Ui) -> Result<Status, Failure> {
    let make = Registry::builtin()
        .factory(&args.policy)
        .map_err(|error| Failure::bad_input(format!("--policy: {error}")))?;
    let text = std::fs::read_to_string(&args.arrivals).map_err(|error| {
        Failure::bad_input(format!("--arrivals: cannot read {}: {error}", args.arrivals.display()))
    })?;
    let arrivals = parse(&text)
        .map_err(|error| Failure::bad_input(format!("--arrivals {}: {error}", args.arrivals.display())))?;
    let (result, decisions) = replay(make().as_mut(), &arrivals);
    if let Some(path) = &args.decisions {
        let lines: String = decisions.iter().map(|decision| format!("{decision}\n")).collect();
        write_file("--decisions", path, &lines)?;
    }
    if ui.json {
        ui.json(&result)?;
    } else {
        ui.text(&format!(
            "{}: {} arrivals, {} announcements, {} changes; waits {} µs on average, {} µs at most\n",
            result.policy,
            result.arrivals,
            result.events,
            result.changes,
            result.mean_wait_us,
            result.longest_wait_us
        ))?;
    }
    Ok(Status::Done)
}
