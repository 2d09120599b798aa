//! How a command ends: the exit codes, and the error that carries one.
//!
//! An error says what happened and where, and then what to do about it. There is no backtrace and no error chain to
//! read backwards: whoever turns a library's error into a [`Failure`] adds the device, the option or the file.

use std::fmt;
use std::process::ExitCode;

/// The exit codes, stable; the README and `qhca --help` list them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    /// Everything asked for was done.
    Done = 0,
    /// The command ran, and a check that it made failed.
    CheckFailed = 1,
    /// An argument, option, word or file was refused; nothing was done. Also clap's code.
    BadInput = 2,
    /// What the command needs is not on this machine: the device, a driver binding, a permission.
    Missing = 3,
    /// The device stopped answering, or answered what it must not.
    Device = 4,
    /// The result could not be written.
    Output = 5,
}

impl From<Status> for ExitCode {
    fn from(status: Status) -> Self {
        Self::from(status as u8)
    }
}

/// Why a command did not do what it was asked to.
#[derive(Debug)]
pub(crate) struct Failure {
    /// The exit code.
    pub(crate) status: Status,
    what: String,
    remedy: Option<String>,
}

impl Failure {
    /// A failure with exit code `status`; `what` names the cause and the place.
    pub(crate) fn new(status: Status, what: impl fmt::Display) -> Self {
        Self { status, what: what.to_string(), remedy: None }
    }

    /// A refused argument, option, word or file.
    pub(crate) fn bad_input(what: impl fmt::Display) -> Self {
        Self::new(Status::BadInput, what)
    }

    /// The same failure with the way out: a valid range, a command to type.
    #[must_use]
    pub(crate) fn remedy(mut self, remedy: impl fmt::Display) -> Self {
        self.remedy = Some(remedy.to_string());
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        match &self.remedy {
            Some(remedy) => write!(f, "\n  {}", remedy.trim_end().replace('\n', "\n  ")),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Failure {}
