//! `qhca completions`: the script that lets a shell complete commands and options.

use crate::fail::{Failure, Status};
use crate::ui::Ui;
use clap::CommandFactory;
use clap_complete::Shell;

/// Arguments of `qhca completions`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The shell; for bash: `qhca completions bash > ~/.local/share/bash-completion/completions/qhca`
    shell: Shell,
}

/// Runs `qhca completions`. The script is what it is: `--json` is refused rather than ignored.
pub(crate) fn run(args: &Args, ui: &Ui) -> Result<Status, Failure> {
    if ui.json {
        return Err(Failure::bad_input("a completion script has no JSON form").remedy("leave --json out"));
    }
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut crate::args::Args::command(), "qhca", &mut script);
    ui.text(&String::from_utf8_lossy(&script))?;
    Ok(Status::Done)
}
