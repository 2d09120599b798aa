//! What can be wrong with bytes from the other side.

use std::fmt;

/// A message that cannot be read. The connection can go on: the sender is told, by [`errno`](Self::errno).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ParseError {
    /// The header's size is below the header itself or above [`MESSAGE_MAX_BYTES`](crate::MESSAGE_MAX_BYTES).
    /// Where the next message starts is unknown, so this one ends the connection.
    Size {
        /// The size that the header gave, bytes.
        size_bytes: u32,
    },
    /// The payload ends before its struct does.
    Short {
        /// What was being read.
        what: &'static str,
        /// Bytes that it needs.
        needed_bytes: usize,
        /// Bytes that were there.
        had_bytes: usize,
    },
    /// No such command.
    Command {
        /// The number in the header.
        command: u16,
    },
    /// A reply where a command was due, or the other way round.
    Kind {
        /// The low four flag bits.
        kind: u8,
    },
    /// A field holds what it must not.
    Field {
        /// Struct and field.
        what: &'static str,
        /// What it held.
        value: u64,
        /// What it may hold.
        allowed: &'static str,
    },
    /// The capability text of a version message is no JSON object in UTF-8, ended by a zero byte.
    Capabilities {
        /// What the reader of it said.
        reason: String,
    },
}

impl ParseError {
    /// The `errno` that goes into the error reply.
    pub const fn errno(&self) -> u32 {
        const EINVAL: u32 = 22;
        const ENOTSUP: u32 = 95;
        const E2BIG: u32 = 7;
        match self {
            Self::Size { .. } => E2BIG,
            Self::Command { .. } => ENOTSUP,
            _ => EINVAL,
        }
    }

    /// Whether the place of the next message in the stream is lost, so that the connection has to end.
    pub const fn ends_connection(&self) -> bool {
        matches!(self, Self::Size { .. })
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Size { size_bytes } => write!(
                f,
                "message size {size_bytes} is not from {} to {} bytes",
                crate::HEADER_LEN_BYTES,
                crate::MESSAGE_MAX_BYTES
            ),
            Self::Short { what, needed_bytes, had_bytes } => {
                write!(f, "{what} needs {needed_bytes} bytes, the message holds {had_bytes}")
            }
            Self::Command { command } => write!(f, "no command has the number {command}"),
            Self::Kind { kind } => {
                write!(f, "message kind {kind} is not what was due here (0 command, 1 reply)")
            }
            Self::Field { what, value, allowed } => write!(f, "{what} is {value:#x}; allowed: {allowed}"),
            Self::Capabilities { reason } => write!(f, "version capabilities cannot be read: {reason}"),
        }
    }
}

impl std::error::Error for ParseError {}
