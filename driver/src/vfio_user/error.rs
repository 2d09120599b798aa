//! What can go wrong between us and the process that has the device.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use qhca_vfu::ParseError;

/// Why a device behind a socket cannot be used, or a request to it failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum VfioUserError {
    /// Nobody serves a device at that path.
    Connect {
        /// The socket's path.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The other side closed the connection.
    Closed {
        /// The command that was not answered.
        command: &'static str,
    },
    /// The connection ended earlier; nothing was sent.
    Gone {
        /// The command that could not be given.
        command: &'static str,
    },
    /// No answer came in time.
    Late {
        /// The command that was not answered.
        command: &'static str,
        /// How long it was waited for.
        waited: Duration,
    },
    /// The system refused to send or receive.
    System {
        /// The command.
        command: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// The answer cannot be read.
    Message {
        /// The command that was answered.
        command: &'static str,
        /// What is wrong with the answer.
        source: ParseError,
    },
    /// The answer belongs to something else: its id, kind or command is not that of the request.
    Stray {
        /// The command whose answer was due.
        command: &'static str,
        /// The id under which it was asked.
        id: u16,
        /// The id of what came.
        came: u16,
    },
    /// The other side said no.
    Refused {
        /// The command.
        command: &'static str,
        /// The error number it gave.
        errno: u32,
    },
    /// The card does not answer on its bus: it was pulled, or resets.
    NoAnswer,
    /// What is served is not the chip that this driver is for.
    NotThisDevice {
        /// What was looked at.
        what: &'static str,
        /// What it is.
        seen: u64,
        /// What it has to be.
        expected: u64,
    },
}

impl VfioUserError {
    /// Whether the connection is of no more use after this.
    pub(super) fn ends_connection(&self) -> bool {
        !matches!(self, Self::Refused { .. } | Self::NoAnswer | Self::NotThisDevice { .. })
    }
}

impl fmt::Display for VfioUserError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connect { path, source } => {
                let path = path.display();
                write!(
                    f,
                    "no device is served at {path}: {source}; `qhca sim serve --socket {path}` serves one"
                )
            }
            Self::Closed { command } => write!(
                f,
                "the server closed the connection instead of answering {command}: it has another client, or has ended"
            ),
            Self::Gone { command } => write!(f, "{command} was not sent: the connection had ended before"),
            Self::Late { command, waited } => {
                write!(f, "no answer to {command} within {} ms: the server hangs", waited.as_millis())
            }
            Self::System { command, source } => write!(f, "{command}: {source}"),
            Self::Message { command, source } => {
                write!(f, "the answer to {command} cannot be read: {source}")
            }
            Self::Stray { command, id, came } => {
                write!(f, "the answer to {command} {id:#06x} was due, but {came:#06x} came")
            }
            Self::Refused { command, errno } => {
                write!(f, "{command} was refused: {}", io::Error::from_raw_os_error(*errno as i32))
            }
            Self::NoAnswer => f.write_str("the card does not answer: its PCI id reads as all ones"),
            Self::NotThisDevice { what, seen, expected } => {
                write!(f, "what is served is no QLogic 7322: {what} is {seen:#x}, expected {expected:#x}")
            }
        }
    }
}

impl std::error::Error for VfioUserError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Connect { source, .. } | Self::System { source, .. } => Some(source),
            Self::Message { source, .. } => Some(source),
            _ => None,
        }
    }
}

impl From<VfioUserError> for io::Error {
    fn from(error: VfioUserError) -> Self {
        let kind = match &error {
            VfioUserError::Connect { source, .. } | VfioUserError::System { source, .. } => source.kind(),
            VfioUserError::Closed { .. } | VfioUserError::Gone { .. } => io::ErrorKind::BrokenPipe,
            VfioUserError::Late { .. } => io::ErrorKind::TimedOut,
            VfioUserError::Message { .. } | VfioUserError::Stray { .. } => io::ErrorKind::InvalidData,
            VfioUserError::Refused { errno, .. } => io::Error::from_raw_os_error(*errno as i32).kind(),
            VfioUserError::NoAnswer => io::ErrorKind::NotConnected,
            VfioUserError::NotThisDevice { .. } => io::ErrorKind::Unsupported,
        };
        Self::new(kind, error)
    }
}
