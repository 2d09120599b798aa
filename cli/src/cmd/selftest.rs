//! `qhca selftest`: the scenarios that any card must pass, one result a line.
//!
//! The device is reset before each scenario, so nothing else may use it. On a simulated one the world around it can
//! also be asked for what a card cannot do to itself, and `--wrong` builds a chip that deviates from its data sheet in
//! one point: at least one check must then fail, which is how the checks themselves are proven.

use crate::args::DeviceArg;
use crate::fail::{Failure, Status};
use crate::target::Target;
use crate::ui::Ui;
use qhca_hwtests::Check;
use qhca_sim::chip::{WrongChip, WrongSet};
use serde::Serialize;
use std::fmt::Write;
use std::path::PathBuf;

/// Arguments of `qhca selftest`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    device: DeviceArg,
    /// Control socket of the server behind `-d vfio-user:PATH`, for checks that need more than the card
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
    /// Test a simulated chip that is wrong in this point; the check that notices it fails
    #[arg(long, value_name = "POINT")]
    wrong: Option<String>,
    /// Run this check only; may be given several times
    #[arg(long, value_name = "CHECK")]
    only: Vec<String>,
}

#[derive(Serialize)]
struct Json<'a> {
    checks: Vec<JsonCheck<'a>>,
}

#[derive(Serialize)]
struct JsonCheck<'a> {
    name: &'a str,
    result: &'a str,
    why: Option<&'a str>,
}

/// Runs `qhca selftest`.
pub(crate) fn run(args: &Args, ui: &Ui) -> Result<Status, Failure> {
    let wrong = args.wrong.as_deref().map(parse_wrong).transpose()?.unwrap_or(WrongSet::NONE);
    if let Some(unknown) = args.only.iter().find(|only| !qhca_hwtests::names().any(|name| name == **only)) {
        let names: Vec<&str> = qhca_hwtests::names().collect();
        return Err(Failure::bad_input(format!("--only {unknown}: there is no such check"))
            .remedy(format!("valid: {}", names.join(", "))));
    }
    let wanted = |name: &str| args.only.is_empty() || args.only.iter().any(|only| only == name);
    let count = qhca_hwtests::names().filter(|name| wanted(name)).count();
    let target = Target::open_wrong(&args.device, wrong, ui)?;
    let name = target.name.clone();
    ui.progress(&format!("{name}: running {count} checks, the device is reset before each"));
    let checks = target.selftest(args.control.as_deref(), wanted)?;
    match ui.json {
        true => ui.json(&Json { checks: checks.iter().map(to_json).collect() })?,
        false => ui.text(&to_text(&checks))?,
    }
    let failed = checks.iter().filter(|check| check.failed()).count();
    // A run that left checks out proves nothing, whatever the rest says.
    match failed == 0 && checks.len() == count {
        true => Ok(Status::Done),
        false => Ok(Status::CheckFailed),
    }
}

fn parse_wrong(text: &str) -> Result<WrongSet, Failure> {
    let found = WrongChip::from_name(text).map(WrongSet::from);
    found.ok_or_else(|| {
        let names: Vec<&str> = WrongChip::ALL.iter().map(|wrong| wrong.name()).collect();
        Failure::bad_input(format!("--wrong {text}: a chip cannot be wrong in this"))
            .remedy(format!("valid: {}", names.join(", ")))
    })
}

fn to_json(check: &Check) -> JsonCheck<'_> {
    JsonCheck { name: check.name, result: check.result.word(), why: check.result.why() }
}

fn to_text(checks: &[Check]) -> String {
    let mut text = String::new();
    for check in checks {
        let _ = writeln!(text, "{check}");
    }
    let [passed, failed, skipped] = ["pass", "fail", "skip"]
        .map(|word| checks.iter().filter(|check| check.result.word() == word).count());
    let _ = writeln!(text, "{} checks: {passed} passed, {failed} failed, {skipped} skipped", checks.len());
    text
}
