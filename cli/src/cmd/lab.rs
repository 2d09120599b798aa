//! `qhca lab`: the experiments of the laboratory, in virtual time.

use super::lab_tables::{self, TableArgs, write_file};
use super::lab_tools::{self, CalibrateArgs, ReplayArgs};
use crate::cmd::storm;
use crate::fail::{Failure, Status};
use crate::ui::Ui;
use qhca_lab::predict::{Cell, PredictError, Prediction, Question, SYSTEMS, Trial};
use std::fmt::Write as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Arguments of `qhca lab`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Error storms: what `qhca storm` shows
    Storm(storm::Args),
    /// Interrupt moderation on completion queues
    Dim(TableArgs),
    /// Completion queues shared on a core
    CqPool(TableArgs),
    /// Transport work spread over cores
    Spread(TableArgs),
    /// Receive buffers posted again
    Rnr(TableArgs),
    /// The four tables and their targets
    All(TableArgs),
    /// One cell of one system: its base and every policy
    Predict(PredictArgs),
    /// Fit a system's figures again on the cells that may be used for it, and show the split
    Calibrate(CalibrateArgs),
    /// Drive a moderation policy with recorded arrivals
    Replay(ReplayArgs),
}

/// Arguments of `qhca lab predict`.
#[derive(Debug, clap::Args)]
pub(crate) struct PredictArgs {
    /// The system: dim, cq-pool, spread or rnr
    #[arg(long, value_name = "NAME")]
    system: String,
    /// The row, e.g. "req=8448 qps=8 threads=4", "cores=20", "test=pingpong_4k", "block=4K op=read"
    #[arg(long, value_name = "WORDS")]
    row: String,
    #[command(flatten)]
    run: RunArgs,
}

/// How a cell is run.
#[derive(Debug, clap::Args)]
pub(crate) struct RunArgs {
    /// Only these policies beside the base; may be repeated
    #[arg(long, value_name = "NAME")]
    pub(crate) policy: Vec<String>,
    /// Seeds to run; without it as many as fit in the time, three at least
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub(crate) seeds: Option<u64>,
    /// The first seed
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Set a figure, e.g. `event_ns=80`; may be repeated
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) set: Vec<String>,
    /// Leave something out, to show that it matters: fifo, regular (dim), cpu-only (cq-pool)
    #[arg(long, value_name = "NAME")]
    pub(crate) ablation: Option<String>,
    /// Write every decision that policies remember to this file
    #[arg(long, value_name = "FILE")]
    pub(crate) decisions: Option<std::path::PathBuf>,
}

/// TIMEOUT: a cell is answered within 20 seconds; no seed is begun that may not end before.
const ANSWER_WITHIN: Duration = Duration::from_secs(18);
/// Seeds at least, whatever they take.
const SEEDS_MIN: u64 = 3;
/// Seeds at most, if time decides.
const SEEDS_MAX: u64 = 10;

/// Runs `qhca lab`.
pub(crate) fn run(args: &Args, ui: &Ui) -> Result<Status, Failure> {
    match &args.what {
        What::Storm(args) => storm::run(args, ui),
        What::Dim(args) => lab_tables::run(&["dim"], args, ui),
        What::CqPool(args) => lab_tables::run(&["cq-pool"], args, ui),
        What::Spread(args) => lab_tables::run(&["spread"], args, ui),
        What::Rnr(args) => lab_tables::run(&["rnr"], args, ui),
        What::All(args) => lab_tables::run(&SYSTEMS, args, ui),
        What::Predict(args) => predict(args, ui),
        What::Calibrate(args) => lab_tools::run_calibrate(args, ui),
        What::Replay(args) => lab_tools::run_replay(args, ui),
    }
}

fn predict(args: &PredictArgs, ui: &Ui) -> Result<Status, Failure> {
    let question = Question {
        system: &args.system,
        row: &args.row,
        set: &args.run.set,
        ablation: args.run.ablation.as_deref(),
        policies: &args.run.policy,
    };
    let cell = question.cell().map_err(|error| refused(&error))?;
    let trials = trials(&cell, &args.run, ui)?;
    write_decisions(&cell, &trials, &args.run)?;
    let prediction = Prediction::of(&cell, &trials);
    if ui.json {
        ui.json(&prediction)?
    } else {
        ui.text(&to_text(&prediction))?
    }
    Ok(Status::Done)
}

pub(crate) fn refused(error: &PredictError) -> Failure {
    Failure::bad_input(error)
        .remedy(format!("systems: {}; see docs/lab.md for their rows", SYSTEMS.join(", ")))
}

/// Runs the seeds, on as many threads as there are processors.
///
/// The clock decides only how many seeds there are; what each gives depends on nothing but itself.
pub(crate) fn trials(cell: &Cell, args: &RunArgs, ui: &Ui) -> Result<Vec<Trial>, Failure> {
    let began = Instant::now();
    let threads = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    let next = AtomicU64::new(0);
    let slowest_ms = AtomicU64::new(0);
    let done = Mutex::new(Vec::new());
    let wanted = |n: u64| match args.seeds {
        Some(seeds) => n < seeds,
        None => {
            let slowest = Duration::from_millis(slowest_ms.load(Ordering::Relaxed));
            n < SEEDS_MIN || (n < SEEDS_MAX && began.elapsed() + slowest < ANSWER_WITHIN)
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    if !wanted(n) {
                        return;
                    }
                    let begun = Instant::now();
                    let trial = Trial::run(cell, args.seed.wrapping_add(n));
                    let took = begun.elapsed();
                    slowest_ms.fetch_max(took.as_millis() as u64, Ordering::Relaxed);
                    ui.detail(&format!(
                        "seed {} took {:.1} s",
                        args.seed.wrapping_add(n),
                        took.as_secs_f64()
                    ));
                    if let Ok(mut done) = done.lock() {
                        done.push((n, trial));
                    }
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_default();
    done.sort_by_key(|&(n, _)| n);
    done.into_iter().map(|(_, trial)| trial.map_err(|error| refused(&error))).collect()
}

fn write_decisions(cell: &Cell, trials: &[Trial], args: &RunArgs) -> Result<(), Failure> {
    let Some(path) = &args.decisions else { return Ok(()) };
    let mut text = String::new();
    for trial in trials {
        for (policy, sample) in cell.policies().iter().zip(&trial.samples) {
            for decision in &sample.decisions {
                let _ = writeln!(text, "seed {} {policy} {decision}", trial.seed);
            }
        }
    }
    write_file("--decisions", path, &text)
}

/// The prediction as a table.
fn to_text(prediction: &Prediction) -> String {
    let mut text = String::new();
    let base = &prediction.base;
    let _ = writeln!(text, "{} {:?}, {} seeds\n", prediction.system, prediction.row, prediction.seeds);
    let _ = writeln!(text, "{:<18} {:>12} {:>6} {:>9} {:>8}", "policy", "value", "unit", "change", "± 95 %");
    let _ = writeln!(text, "{:<18} {:>12} {:>6}", base.policy, base.value, base.unit);
    for (name, policy) in &prediction.policies {
        let interval = policy.ci95_pct.map_or("-".to_owned(), |half| format!("{half:.2} %"));
        let _ = writeln!(
            text,
            "{name:<18} {:>12} {:>6} {:>+8.2}% {interval:>8}",
            policy.value, base.unit, policy.change_pct
        );
    }
    let _ = writeln!(text, "\nSimulated, not measured.");
    text
}
