//! `qhca sim ctl`: orders to a server that was started with `--control`.

use crate::fail::{Failure, Status};
use crate::ui::Ui;
use qhca_sim::control::{Client, ControlError, GRAMMAR, Order, OrderError};
use serde_json::Value;
use std::fmt::Write;
use std::path::PathBuf;

/// Arguments of `qhca sim ctl`.
#[derive(Debug, clap::Args)]
#[command(after_help = orders())]
pub(super) struct Args {
    /// The server's control socket
    #[arg(long, value_name = "PATH")]
    control: PathBuf,
    /// The order, in words
    #[arg(required = true, value_name = "WORD")]
    words: Vec<String>,
}

/// The orders, for the help text.
fn orders() -> String {
    let mut text = String::from("Orders (cards are a, b, … in the order of --socket; ports are 1 and 2):\n");
    for (example, what) in GRAMMAR {
        let _ = writeln!(text, "  {example:<34} {what}");
    }
    text
}

pub(super) fn run(args: &Args, ui: &Ui) -> Result<Status, Failure> {
    let text = args.words.join(" ");
    let order: Order = text.parse().map_err(|error: OrderError| {
        Failure::bad_input(format!("{text}: {error}")).remedy("`qhca sim ctl --help` lists the orders")
    })?;
    let result = Client::connect(&args.control).and_then(|mut client| client.ask(&order)).map_err(failed)?;
    match result {
        result if ui.json => ui.json(&result)?,
        Value::Null => {}
        result => ui.text(&format!("{result:#}\n"))?,
    }
    Ok(Status::Done)
}

fn failed(error: ControlError) -> Failure {
    let status = match &error {
        ControlError::Connect { .. } => Status::Missing,
        ControlError::Refused { .. } => Status::BadInput,
        _ => Status::Device,
    };
    Failure::new(status, error)
}
