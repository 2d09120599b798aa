//! stdout and stderr: results on the one, everything said about them on the other.
//!
//! A reader that closes its end early (`qhca regs --all | head`) has seen enough: that is no error, and the command
//! keeps the exit code that it would have had.

use crate::args::Global;
use crate::fail::{self, Failure, Status};
use serde::Serialize;
use std::io::{self, ErrorKind, Write};

/// What a command prints with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ui {
    /// Whether the result is wanted as JSON.
    pub(crate) json: bool,
    quiet: bool,
    verbose: u8,
}

impl Ui {
    /// By the options that every command has.
    pub(crate) fn new(global: &Global) -> Self {
        Self { json: global.json, quiet: global.quiet, verbose: global.verbose }
    }

    /// How often `-v` was given.
    pub(crate) fn verbosity(&self) -> u8 {
        self.verbose
    }

    /// Writes a command's whole text result.
    pub(crate) fn text(&self, result: &str) -> Result<(), Failure> {
        write_all(result.as_bytes())
    }

    /// Writes one line of a text result that comes bit by bit.
    pub(crate) fn line(&self, line: &str) -> Result<(), Failure> {
        write_all(format!("{line}\n").as_bytes())
    }

    /// Writes one JSON value and a line end.
    pub(crate) fn json(&self, result: &impl Serialize) -> Result<(), Failure> {
        let mut line = serde_json::to_vec(result)
            .map_err(|e| Failure::new(Status::Output, format!("the result has no JSON form: {e}")))?;
        line.push(b'\n');
        write_all(&line)
    }

    /// Says on stderr what is going on; not with `-q`.
    pub(crate) fn progress(&self, what: &str) {
        if !self.quiet {
            say(what);
        }
    }

    /// Says on stderr what only a curious reader wants; with `-v`.
    pub(crate) fn detail(&self, what: &str) {
        if self.verbose > 0 {
            say(what);
        }
    }

    /// Says on stderr that something was coped with; also with `-q`.
    pub(crate) fn warning(&self, what: &str) {
        say(&format!("warning: {what}"));
    }

    /// Says on stderr why the command failed.
    pub(crate) fn failure(&self, failure: &Failure) {
        say(&fail::shortened(&format!("error: {failure}"), fail::typed()));
    }
}

/// One remark on stderr; a closed stderr is nobody's error.
fn say(what: &str) {
    let _ = writeln!(io::stderr(), "qhca: {what}");
}

fn write_all(bytes: &[u8]) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(e) if e.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::new(Status::Output, format!("cannot write to stdout: {e}"))
                .remedy("the result is lost; free the disk or the terminal and run the command again"))
        }
        _ => Ok(()),
    }
}
