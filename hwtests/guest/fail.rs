//! How a step ends early: a check that does not hold, a guest that is gone, or something that this machine lacks.

use std::fmt;
use std::io;
use std::path::Path;

/// Why a step could not go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// What was seen is not what the model or the data sheet says.
    Failed(String),
    /// A guest or a server ended, hung, or could not be talked to: nothing after it can be checked.
    Lost(String),
    /// Something needed is not on this machine; the text says how to get it.
    Missing {
        /// What is not there.
        what: String,
        /// How to get it.
        remedy: String,
    },
}

/// What a step returns: what it saw, in a few words, for the line that is printed.
pub(crate) type Verdict = Result<String, Stop>;

impl Stop {
    /// Something needed is not here, and how to get it.
    pub(crate) fn missing(what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::Missing { what: what.into(), remedy: remedy.into() }
    }

    /// A file or folder that could not be read or written.
    pub(crate) fn file(path: &Path, error: &io::Error) -> Self {
        Self::missing(
            format!("{}: {error}", path.display()),
            "check the permissions and the space of that folder; QHCA_GUEST_CACHE names another one",
        )
    }
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(why) | Self::Lost(why) => f.write_str(why),
            Self::Missing { what, remedy } => write!(f, "{what}\n  remedy: {remedy}"),
        }
    }
}

impl std::error::Error for Stop {}

/// Ends the step as failed, with a text, unless the condition holds.
macro_rules! ensure {
    ($condition:expr, $($text:tt)+) => {
        if !$condition {
            return Err($crate::fail::Stop::Failed(format!($($text)+)));
        }
    };
}

/// Ends the step as failed unless two values are equal; the text says what they are.
macro_rules! ensure_eq {
    ($seen:expr, $expected:expr, $($text:tt)+) => {{
        let (seen, expected) = (&$seen, &$expected);
        if *seen != *expected {
            let what = format!($($text)+);
            return Err($crate::fail::Stop::Failed(format!("{what} is {seen:?}, expected {expected:?}")));
        }
    }};
}

pub(crate) use {ensure, ensure_eq};
