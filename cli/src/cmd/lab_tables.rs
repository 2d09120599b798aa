//! `qhca lab dim|cq-pool|spread|rnr|all`: whole tables, their targets, CSV and the page.

use super::lab::{RunArgs, refused};
use crate::fail::{Failure, Status};
use crate::ui::Ui;
use qhca_lab::predict::{Cell, Prediction, Question, SYSTEMS, Trial};
use qhca_lab::published::{PublishedCell, cells};
use qhca_lab::report::{Line, Table, Target, page, targets};
use serde::Serialize;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Arguments of a table.
#[derive(Debug, clap::Args)]
pub(crate) struct TableArgs {
    #[command(flatten)]
    run: RunArgs,
    /// One seed, given cells only
    #[arg(long)]
    quick: bool,
    /// Run a figure through a range instead, on the system's first row, e.g. `event_ns=20..100`
    #[arg(long, value_name = "NAME=LOW..HIGH")]
    sweep: Option<String>,
    /// Write the table as CSV to this file
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Write one self-contained page with plots to this file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// Seeds of a table, unless told otherwise.
const SEEDS: u64 = 3;

/// A result of `lab all`: a prediction or a target.
#[derive(Serialize)]
#[serde(untagged)]
enum Item<'a> {
    Prediction(&'a Prediction),
    Target(&'a Target),
}

/// Runs the tables of `systems`.
pub(crate) fn run(systems: &[&'static str], args: &TableArgs, ui: &Ui) -> Result<Status, Failure> {
    if let Some(text) = &args.sweep {
        return sweep(systems, text, args, ui);
    }
    let given = cells().map_err(Failure::bad_input)?;
    let mut tables = Vec::new();
    for &system in systems {
        let rows: Vec<_> = given.iter().filter(|cell| cell.system == system).cloned().collect();
        ui.progress(&format!("{system}: {} rows", rows.len()));
        tables.push(Table { system, lines: lines(rows, args, ui)? });
    }
    let met: Vec<Target> = tables.iter().flat_map(targets).collect();
    write_files(&tables, &met, args)?;
    if ui.json {
        let predictions =
            tables.iter().flat_map(|table| &table.lines).map(|line| Item::Prediction(&line.prediction));
        ui.json(&predictions.chain(met.iter().map(Item::Target)).collect::<Vec<_>>())?;
    } else {
        ui.text(&to_text(&tables, &met))?;
    }
    Ok(Status::Done)
}

fn seeds(args: &TableArgs) -> u64 {
    if args.quick { 1 } else { args.run.seeds.unwrap_or(SEEDS) }
}

fn question<'a>(row: &'a PublishedCell, args: &'a TableArgs) -> Question<'a> {
    Question {
        system: &row.system,
        row: &row.row,
        set: &args.run.set,
        ablation: args.run.ablation.as_deref(),
        policies: &args.run.policy,
    }
}

/// Runs every row under every seed, on as many threads as there are processors.
fn lines(rows: Vec<PublishedCell>, args: &TableArgs, ui: &Ui) -> Result<Vec<Line>, Failure> {
    let asked: Vec<Cell> = rows
        .iter()
        .map(|row| question(row, args).cell().map_err(|error| refused(&error)))
        .collect::<Result<_, _>>()?;
    let seeds = seeds(args) as usize;
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    let task = next.fetch_add(1, Ordering::Relaxed);
                    let (row, seed) = (task / seeds, task % seeds);
                    let Some(cell) = asked.get(row) else { return };
                    let trial = Trial::run(cell, args.run.seed.wrapping_add(seed as u64));
                    ui.detail(&format!("{}, seed {} done", rows[row].row, seed));
                    if let Ok(mut done) = done.lock() {
                        done.push((task, trial));
                    }
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_default();
    done.sort_by_key(|&(task, _)| task);
    let trials: Vec<Trial> = done
        .into_iter()
        .map(|(_, trial)| trial.map_err(|error| refused(&error)))
        .collect::<Result<_, _>>()?;
    let of = |(published, (cell, trials)): (PublishedCell, (&Cell, &[Trial]))| Line {
        published,
        prediction: Prediction::of(cell, trials),
    };
    Ok(rows.into_iter().zip(asked.iter().zip(trials.chunks(seeds))).map(of).collect())
}

fn to_text(tables: &[Table], met: &[Target]) -> String {
    let mut text = String::new();
    for table in tables {
        let _ = writeln!(text, "{}", table.to_text());
    }
    for target in met {
        let _ = writeln!(
            text,
            "{:<6} {:>10}  {}",
            if target.met { "met" } else { "MISSED" },
            target.value,
            target.target
        );
    }
    text.push_str("\nAll figures are simulated, calibrated on the rows marked fit.\n");
    text
}

fn write_files(tables: &[Table], met: &[Target], args: &TableArgs) -> Result<(), Failure> {
    if let Some(path) = &args.csv {
        // One heading for all tables.
        let mut text = String::new();
        for table in tables {
            let csv = table.to_csv();
            text.push_str(if text.is_empty() {
                &csv
            } else {
                csv.split_once('\n').map_or("", |(_, rows)| rows)
            });
        }
        write_file("--csv", path, &text)?;
    }
    if let Some(path) = &args.html {
        write_file("--html", path, &page(tables, met))?;
        for table in tables {
            write_file("--html", &path.with_extension(format!("{}.csv", table.system)), &table.to_csv())?;
        }
    }
    Ok(())
}

pub(crate) fn write_file(option: &str, path: &Path, text: &str) -> Result<(), Failure> {
    std::fs::write(path, text).map_err(|error| {
        Failure::new(Status::Output, format!("{option}: cannot write {}: {error}", path.display()))
    })
}

/// One figure through its range, everything else as it is.
fn sweep(systems: &[&'static str], text: &str, args: &TableArgs, ui: &Ui) -> Result<Status, Failure> {
    let &[system] = systems else {
        return Err(Failure::bad_input("--sweep wants one system").remedy(SYSTEMS.join(", ")));
    };
    let figures = qhca_lab::predict::parameters(system)
        .ok_or_else(|| Failure::bad_input(format!("no figures for {system}")))?;
    let range = figures.sweep(text).map_err(|error| Failure::bad_input(format!("--sweep: {error}")))?;
    let given = cells().map_err(Failure::bad_input)?;
    let row = given.into_iter().find(|cell| cell.system == system);
    let row = row.ok_or_else(|| Failure::bad_input(format!("no rows for {system}")))?;
    let mut out = format!("{},policy,value,change_pct\n", range.name);
    let mut all = Vec::new();
    for value in range.values {
        ui.progress(&format!("{}={value}", range.name));
        let mut set = args.run.set.clone();
        set.push(format!("{}={value}", range.name));
        let asked = Question { set: &set, ..question(&row, args) }.cell().map_err(|error| refused(&error))?;
        let trials = (0..args.run.seeds.unwrap_or(1))
            .map(|n| Trial::run(&asked, args.run.seed.wrapping_add(n)).map_err(|error| refused(&error)))
            .collect::<Result<Vec<_>, _>>()?;
        let prediction = Prediction::of(&asked, &trials);
        let _ = writeln!(out, "{value},{},{},0", prediction.base.policy, prediction.base.value);
        for (name, policy) in &prediction.policies {
            let _ = writeln!(out, "{value},{name},{},{}", policy.value, policy.change_pct);
        }
        all.push(prediction);
    }
    if let Some(path) = &args.csv {
        write_file("--csv", path, &out)?;
    }
    if ui.json {
        ui.json(&all)?
    } else {
        ui.text(&out)?
    }
    Ok(Status::Done)
}
