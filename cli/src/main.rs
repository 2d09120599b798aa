//! The `qhca` command: a person's and a script's way to a QLogic 7322 HCA, or to the simulated one.
//!
//! [`args`] says what may be typed, `cmd/` holds one file a command, [`ui`] owns stdout and stderr, [`fail`] the exit
//! codes. A command computes first and prints last, so a refused one leaves stdout empty. Text and JSON of one command
//! stand beside each other in its file and are made from the same values.

#![forbid(unsafe_code)]

mod args;
mod cmd;
mod fail;
mod logger;
mod target;
mod ui;
mod up;

use clap::Parser;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;

fn main() -> ExitCode {
    let args = match args::Args::try_parse() {
        Ok(args) => args,
        Err(refusal) => return refused(&refusal),
    };
    let ui = ui::Ui::new(&args.global);
    logger::listen(ui.verbosity());
    match cmd::run(&args, &ui) {
        Ok(status) => status.into(),
        Err(failure) => {
            ui.failure(&failure);
            failure.status.into()
        }
    }
}

/// Says what clap says, with what was typed cut to a readable length; help and version go to stdout as they are.
fn refused(refusal: &clap::Error) -> ExitCode {
    if !refusal.use_stderr() {
        refusal.exit();
    }
    let rendered = refusal.render();
    let text = match std::io::stderr().is_terminal() {
        true => rendered.ansi().to_string(),
        false => rendered.to_string(),
    };
    // A closed stderr is nobody's error.
    let _ = write!(std::io::stderr(), "{}", fail::shortened(&text, fail::typed()));
    fail::Status::BadInput.into()
}
