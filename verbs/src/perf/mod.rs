//! Measuring a connection: what the bandwidth and latency tools do between two ends.
//!
//! ```text
//!   bandwidth   post until `depth` are under way ─► turn ─► poll ─► note when each was posted and done ─► again
//!   latency     post one ─► wait for its answer: the peer's own message, or the data asked for ─► again
//! ```
//!
//! An end is a state machine like everything here: [`Worker::step`] posts and polls what can be, and whoever owns the
//! port turns it in between. Both ends in one process are stepped by turns; two processes step one each.

mod bandwidth;
mod end;
mod exchange;
mod figures;
mod latency;
mod run;

pub use bandwidth::Streamer;
pub use end::{End, EndName, EndSetup, QKEY};
pub use exchange::{Exchange, Exchanged, RTT_STEPS, Stress};
pub use figures::{Bandwidth, Latency, MEGABYTE};
pub use latency::PingPong;
pub use run::{Measured, Side, Worker, drive, iterations_within, measure_bandwidth, measure_latency};

use std::fmt;

use qhca_regs::Duration;

use crate::cq::CqError;
use crate::engine::QpError;
use crate::mem::MemoryError;
use crate::qp::ModifyError;
use crate::wr::PostError;

/// What is done to the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// RDMA WRITE.
    Write,
    /// RDMA READ.
    Read,
    /// SEND.
    Send,
    /// Fetch and add.
    FetchAdd,
    /// Compare and swap.
    CompareSwap,
}

impl Verb {
    /// Whether it is an atomic.
    pub const fn is_atomic(self) -> bool {
        matches!(self, Self::FetchAdd | Self::CompareSwap)
    }

    /// Whether the one who asks gets the data: the other end has nothing to do.
    pub const fn is_one_sided(self) -> bool {
        matches!(self, Self::Read) || self.is_atomic()
    }
}

/// Which payloads are looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verify {
    /// None.
    None,
    /// The last message into every slot, when all are done.
    #[default]
    Last,
    /// Each, as it is done. A slot has one message under way at most then.
    Each,
}

/// What is measured.
#[derive(Clone, Copy, Debug)]
pub struct Job {
    /// What is done.
    pub verb: Verb,
    /// Bytes of a message.
    pub bytes: u32,
    /// Messages of each queue pair.
    pub iterations: u32,
    /// Instead of so many messages: for so long.
    pub duration: Option<Duration>,
    /// Messages under way on a queue pair at most.
    pub depth: u32,
    /// Messages that are posted together.
    pub list: u32,
    /// One signalled message in so many.
    pub moderation: u32,
    /// Messages of so many bytes or less go inline.
    pub inline: u32,
    /// Whether both ends send.
    pub both: bool,
    /// Whether to sleep when nothing is to be done.
    pub events: bool,
    /// What is checked.
    pub verify: Verify,
    /// Without progress for so long, it is given up.
    pub patience: Duration,
}

impl Job {
    /// `iterations` messages of `bytes`, 128 under way, all signalled, the last of each slot checked.
    pub fn new(verb: Verb, bytes: u32, iterations: u32) -> Self {
        Self {
            verb,
            bytes,
            iterations,
            duration: None,
            depth: 128,
            list: 1,
            moderation: 1,
            inline: 0,
            both: false,
            events: false,
            verify: Verify::Last,
            patience: Duration::from_secs(20),
        }
    }
}

/// Why a measurement came to nothing.
#[derive(Debug)]
#[non_exhaustive]
pub enum PerfError {
    /// The system has no memory.
    Memory(std::io::Error),
    /// Memory could not be registered.
    Register(MemoryError),
    /// A completion queue could not be made.
    Cq(CqError),
    /// A queue pair could not be made.
    Qp(QpError),
    /// The connection could not be made.
    Connect(ModifyError),
    /// The peer does not fit.
    Peer(&'static str),
    /// A request was refused.
    Post(PostError),
    /// A request failed.
    Failed(String),
    /// Nothing more came before the deadline.
    Late {
        /// Messages that were done.
        done: u64,
        /// Messages that were to be done.
        of: u64,
        /// For how long nothing came.
        waited: Duration,
    },
    /// The device is gone.
    Gone,
    /// Memory does not hold what was sent.
    Content {
        /// Bytes of the message.
        bytes: u32,
        /// Its number, if each is checked.
        message: u64,
        /// The first byte that is wrong.
        at: usize,
        /// What it should be.
        wanted: u8,
        /// What it is.
        seen: u8,
    },
    /// An atomic gave another result than the one before it left.
    Atomic {
        /// What was found.
        seen: u64,
        /// What should have been.
        wanted: u64,
    },
    /// Whoever waits for the peer has heard that it ended, or why it failed.
    Told(String),
}

impl fmt::Display for PerfError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory(error) => write!(f, "there is no memory for the buffers: {error}"),
            Self::Register(error) => write!(f, "the buffer could not be registered: {error}"),
            Self::Cq(error) => write!(f, "the completion queue could not be made: {error}"),
            Self::Qp(error) => write!(f, "the queue pair could not be made: {error}"),
            Self::Connect(error) => write!(f, "the queue pair could not be connected: {error}"),
            Self::Peer(why) => write!(f, "the other end does not fit: {why}"),
            Self::Post(error) => write!(f, "a request was refused: {error}"),
            Self::Failed(text) => write!(f, "a request failed: {text}"),
            Self::Late { done, of, waited } => {
                write!(f, "{done} of {of} messages were done, and nothing more in {waited}")
            }
            Self::Gone => f.write_str("the device no longer answers"),
            Self::Content { bytes, message, at, wanted, seen } => write!(
                f,
                "message {message} of {bytes} bytes: byte {at} is {seen:#04x} and should be {wanted:#04x}"
            ),
            Self::Atomic { seen, wanted } => {
                write!(f, "the peer's counter is {seen} and should be {wanted}")
            }
            Self::Told(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for PerfError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Memory(error) => Some(error),
            Self::Register(error) => Some(error),
            Self::Cq(error) => Some(error),
            Self::Qp(error) => Some(error),
            Self::Connect(error) => Some(error),
            Self::Post(error) => Some(error),
            _ => None,
        }
    }
}
