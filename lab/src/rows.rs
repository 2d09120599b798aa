//! Rows as they are typed: `qps=8 threads=4`, and what is wrong with them.

use std::fmt;

/// Why a row was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RowError {
    /// A word that is not `KEY=NUMBER`.
    Malformed {
        /// The word.
        word: String,
    },
    /// A key that the system does not have.
    Unknown {
        /// The key.
        key: String,
        /// The keys that it has.
        known: &'static str,
    },
    /// A value outside what the model covers.
    OutOfRange {
        /// The key.
        key: &'static str,
        /// The value.
        value: u64,
        /// The least.
        low: u64,
        /// The most.
        high: u64,
    },
    /// A word where one of a list was wanted.
    NotOneOf {
        /// The key.
        key: &'static str,
        /// The value.
        value: String,
        /// The list.
        known: String,
    },
    /// A key that must be given.
    Missing {
        /// The key.
        key: &'static str,
    },
}

impl fmt::Display for RowError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed { word } => write!(f, "'{word}' is not understood; wanted KEY=VALUE"),
            Self::Unknown { key, known } => write!(f, "a row has no '{key}'; it has: {known}"),
            Self::OutOfRange { key, value, low, high } => {
                write!(f, "{key}={value} is out of range; valid: {low} to {high}")
            }
            Self::NotOneOf { key, value, known } => write!(f, "{key}={value} is not known; valid: {known}"),
            Self::Missing { key } => write!(f, "the row lacks {key}="),
        }
    }
}

impl std::error::Error for RowError {}

/// `KEY=VALUE` words, in order.
pub(crate) fn words(text: &str) -> Result<Vec<(&str, &str)>, RowError> {
    text.split([' ', ',', '\t'])
        .filter(|word| !word.is_empty())
        .map(|word| word.split_once('=').ok_or_else(|| RowError::Malformed { word: word.into() }))
        .collect()
}

/// A whole number of a word, in its range.
pub(crate) fn number(key: &'static str, text: &str, low: u64, high: u64) -> Result<u32, RowError> {
    let value: u64 = text.parse().map_err(|_| RowError::Malformed { word: format!("{key}={text}") })?;
    if (low..=high).contains(&value) {
        return Ok(value as u32);
    }
    Err(RowError::OutOfRange { key, value, low, high })
}
