//! How a scenario ends.

use std::fmt;

/// One scenario and how it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// The scenario's name.
    pub name: &'static str,
    /// How it ended.
    pub result: Outcome,
}

/// How a scenario ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Everything was as expected.
    Pass,
    /// Something was not: what was seen, and what was expected.
    Fail(String),
    /// It could not be run here, and why.
    Skip(String),
}

/// Why a scenario ends early.
#[derive(Clone, Debug)]
pub(crate) enum Stop {
    Fail(String),
    Skip(String),
}

/// What a scenario returns.
pub(crate) type Verdict = Result<(), Stop>;

impl Check {
    pub(crate) fn of(name: &'static str, verdict: Verdict) -> Self {
        let result = match verdict {
            Ok(()) => Outcome::Pass,
            Err(Stop::Fail(why)) => Outcome::Fail(why),
            Err(Stop::Skip(why)) => Outcome::Skip(why),
        };
        Self { name, result }
    }

    /// Whether the scenario failed.
    pub const fn failed(&self) -> bool {
        matches!(self.result, Outcome::Fail(_))
    }
}

impl Outcome {
    /// The word that tools print: `pass`, `fail`, `skip`.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail(_) => "fail",
            Self::Skip(_) => "skip",
        }
    }

    /// What was seen or is missing; nothing for a pass.
    pub fn why(&self) -> Option<&str> {
        match self {
            Self::Pass => None,
            Self::Fail(why) | Self::Skip(why) => Some(why),
        }
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:4} {}", self.result.word(), self.name)?;
        match self.result.why() {
            Some(why) => write!(f, ": {why}"),
            None => Ok(()),
        }
    }
}

/// Ends the scenario as failed, with a text, unless the condition holds.
macro_rules! ensure {
    ($condition:expr, $($text:tt)+) => {
        if !$condition {
            return Err($crate::check::Stop::Fail(format!($($text)+)));
        }
    };
}

/// Ends the scenario as failed unless two values are equal; the text says what they are.
macro_rules! ensure_eq {
    ($seen:expr, $expected:expr, $($text:tt)+) => {{
        let (seen, expected) = ($seen, $expected);
        if seen != expected {
            let what = format!($($text)+);
            return Err($crate::check::Stop::Fail(format!("{what} is {seen:#x?}, expected {expected:#x?}")));
        }
    }};
}

pub(crate) use {ensure, ensure_eq};
