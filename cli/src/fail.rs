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
    Done,
    /// The command ran, and a check that it made failed.
    CheckFailed,
    /// An argument, option, word or file was refused; nothing was done. Also clap's code.
    BadInput,
    /// What the command needs is not on this machine: the device, a driver binding, a permission.
    Missing,
    /// The device stopped answering, or answered what it must not.
    Device,
    /// The result could not be written.
    Output,
    /// `qhca doctor` found something in the way, which has a code of its own.
    Cause(u8),
}

impl Status {
    /// The exit code.
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::CheckFailed => 1,
            Self::BadInput => 2,
            Self::Missing => 3,
            Self::Device => 4,
            Self::Output => 5,
            Self::Cause(code) => code,
        }
    }
}

impl From<Status> for ExitCode {
    fn from(status: Status) -> Self {
        Self::from(status.code())
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

/// The words of the command line, as far as they are text.
pub(crate) fn typed() -> impl Iterator<Item = String> {
    std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned())
}

/// Most characters of one word that a message repeats.
const SHOWN_CHARS: usize = 64;

/// A message with what was typed cut to a length that leaves the message readable: the words of the command line, and
/// whatever else has no blank for so long. Paths stay as they are.
pub(crate) fn shortened(message: &str, typed: impl IntoIterator<Item = String>) -> String {
    let mut text = message.to_owned();
    for word in typed {
        for part in [word.as_str(), word.split_once('=').map_or("", |(_, value)| value)] {
            if part.chars().count() > SHOWN_CHARS && !is_path(part) {
                text = text.replace(part, &cut(part));
            }
        }
    }
    text.split_inclusive(char::is_whitespace).map(cut_run).collect()
}

/// One run of characters without blanks, with the blank behind it.
fn cut_run(run: &str) -> String {
    let word = run.trim_end();
    // A word that was cut already has its mark, and some quotes around it.
    if word.chars().count() <= SHOWN_CHARS + MARK.len() + 8 || is_path(word) {
        return run.to_owned();
    }
    format!("{}{}", cut(word), &run[word.len()..])
}

/// Stands where something was cut.
const MARK: &str = "...";

fn cut(word: &str) -> String {
    word.chars().take(SHOWN_CHARS).chain(MARK.chars()).collect()
}

fn is_path(word: &str) -> bool {
    word.contains('/') && word.len() <= 4096
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_long_is_cut_and_the_rest_of_the_message_stays() {
        let long = "x".repeat(5000);
        let blanks = "no such word ".repeat(400);
        for (typed, message) in [
            (long.clone(), format!("--seed: '{long}' is no seed; valid: 0 to 9")),
            (format!("--seed={long}"), format!("--seed: '{long}' is no seed; valid: 0 to 9")),
            (blanks.clone(), format!("\"{blanks}\" is no word; valid: 0 to 9")),
            (String::new(), format!("{long} came from a file; valid: 0 to 9")),
        ] {
            let text = shortened(&message, [typed]);
            assert!(text.len() < 150 && text.contains("...") && text.ends_with("valid: 0 to 9"), "{text}");
        }
    }

    #[test]
    fn short_words_and_paths_stay_whole() {
        let path = format!("/{}/{}", "d".repeat(100), "f".repeat(100));
        let message = format!("--modprobe-conf {path}: no such file\n  valid: one that exists");
        assert_eq!(shortened(&message, [path, "storm".to_owned()]), message);
    }
}
