//! The client's side of a control socket.

use super::order::Order;
use super::{ANSWER_MAX_BYTES, LINE_MAX_BYTES};
use serde_json::{Value, json};
use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long an answer may take. TIMEOUT: a server answers at once; one that does not is busy with a client that hangs,
/// which it gives up on sooner than this.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// Why an order over a socket came to nothing.
#[derive(Debug)]
#[non_exhaustive]
pub enum ControlError {
    /// Nobody listens there.
    Connect {
        /// The socket's path.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The connection broke, or the answer did not come in time.
    Io {
        /// The order.
        order: String,
        /// What the system said.
        source: io::Error,
    },
    /// The answer is not what the protocol says.
    Answer {
        /// The order.
        order: String,
        /// What is wrong with it.
        why: String,
    },
    /// The server refused the order.
    Refused {
        /// Its words.
        why: String,
    },
}

impl fmt::Display for ControlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connect { path, source } => write!(
                f,
                "no server listens at {}: {source}; start one with `qhca sim serve … --control PATH`",
                path.display()
            ),
            Self::Io { order, source } => write!(f, "{order}: {source}"),
            Self::Answer { order, why } => write!(f, "{order}: the answer cannot be read: {why}"),
            Self::Refused { why } => f.write_str(why),
        }
    }
}

impl std::error::Error for ControlError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Connect { source, .. } | Self::Io { source, .. } => Some(source),
            Self::Answer { .. } | Self::Refused { .. } => None,
        }
    }
}

/// A connection to a server's control socket.
#[derive(Debug)]
pub struct Client {
    socket: BufReader<UnixStream>,
}

impl Client {
    /// Connects to the control socket at `path`.
    ///
    /// # Errors
    /// [`ControlError::Connect`].
    pub fn connect(path: &Path) -> Result<Self, ControlError> {
        let refused = |source| ControlError::Connect { path: path.to_owned(), source };
        let socket = UnixStream::connect(path).map_err(refused)?;
        socket.set_read_timeout(Some(ANSWER_WITHIN)).map_err(refused)?;
        socket.set_write_timeout(Some(ANSWER_WITHIN)).map_err(refused)?;
        Ok(Self { socket: BufReader::new(socket) })
    }

    /// Gives an order and waits for its result.
    ///
    /// # Errors
    /// [`ControlError`]: after any but [`Refused`](ControlError::Refused) the connection is of no more use.
    pub fn ask(&mut self, order: &Order) -> Result<Value, ControlError> {
        let text = order.to_string();
        // What is shown of a packet's hex in a message need not be all of it.
        let shown = || text.chars().take(60).collect::<String>();
        let failed = |source| ControlError::Io { order: shown(), source };
        let mut line = json!({ "do": text }).to_string();
        line.push('\n');
        debug_assert!(line.len() <= LINE_MAX_BYTES, "an order is shorter than a line may be");
        self.socket.get_mut().write_all(line.as_bytes()).map_err(failed)?;
        let mut answer = Vec::new();
        self.socket.by_ref().take(ANSWER_MAX_BYTES as u64).read_until(b'\n', &mut answer).map_err(failed)?;
        let unreadable = |why: String| ControlError::Answer { order: shown(), why };
        if answer.last() != Some(&b'\n') {
            return Err(unreadable(format!("it ends after {} bytes without a line's end", answer.len())));
        }
        let mut value: Value =
            serde_json::from_slice(&answer).map_err(|error| unreadable(error.to_string()))?;
        match (&value["ok"], &value["error"]) {
            (Value::Bool(true), _) => Ok(value["result"].take()),
            (Value::Bool(false), Value::String(why)) => Err(ControlError::Refused { why: why.clone() }),
            _ => Err(unreadable("it says neither that the order was carried out nor why not".to_owned())),
        }
    }
}
