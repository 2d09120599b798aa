//! Why a device did not come up.

use std::fmt;
use std::io;

use crate::bringup::BringUpError;
use crate::env::MapError;
use crate::options::OptionError;

/// Why a device did not come up. Nothing of it is left behind.
#[derive(Debug)]
#[non_exhaustive]
pub enum StartError {
    /// An option is wrong.
    Option(OptionError),
    /// A step of bring-up failed; the error names it.
    BringUp(BringUpError),
    /// There is no memory for the avail words.
    Map(MapError),
    /// The system refused something; `what` says what it was for.
    System {
        /// What was wanted.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Option(error) => error.fmt(f),
            Self::BringUp(error) => error.fmt(f),
            Self::Map(_) => f.write_str("no memory for the send buffers' availability words"),
            Self::System { what, source } => write!(f, "{what}: {source}"),
        }
    }
}

impl std::error::Error for StartError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Option(error) => Some(error),
            Self::BringUp(error) => Some(error),
            Self::Map(error) => Some(error),
            Self::System { source, .. } => Some(source),
        }
    }
}

impl From<OptionError> for StartError {
    fn from(error: OptionError) -> Self {
        Self::Option(error)
    }
}
