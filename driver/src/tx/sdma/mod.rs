//! Send DMA: the chip fetches packets from host memory by itself.
//!
//! Each port has one engine. Software writes descriptors to a ring in host memory, each naming a piece of a packet,
//! and tells the engine how far they reach (the tail). The engine fetches the pieces into one of its own send buffers,
//! sends the packet, and writes to host memory how far it has come (the head).
//!
//! ```text
//!            ring of 16-byte descriptors                  memory of one send
//!   head ──► | first: control word + headers ──────────► | PBC | LRH ... headers | copied payload |
//!            | last:  payload ──────────────┐
//!   tail ──► | free                         └──────────► memory of the caller's, read in place
//! ```
//!
//! Two sides share an engine without a lock. The data side ([`SdmaQueue`]) belongs to the thread of a sender; it
//! writes descriptors, rings the doorbell, and pairs each send with one [`SendOutcome`]. The control side ([`Engine`])
//! starts the engine, stops it when the link goes down or the engine halts, and sets it up anew. When the ring must
//! begin afresh, a word that both see ([`SdmaShared`]) goes back and forth:
//!
//! ```text
//!   control: Halting ─► (engine has halted) Flush ──►  data: settles every send, ring empty ─► Flushed
//!   control: registers set back, engine cleaned up ─► Stopped ─► (link ACTIVE) Running
//! ```
//!
//! The last doorbell of the old run may come while the engine halts. It does no harm: the tail register is set back
//! after the data side has answered, and the data side is one thread.
//!
//! | file | what |
//! |---|---|
//! | `ring` | descriptors, generation, head and tail |
//! | `queue` | the data side: submit, settle, reap |
//! | `word` | what both sides share |
//! | `engine` | the control side: registers and states |
//!
//! It does not choose between programmed I/O and send DMA: [`Sender`](super::Sender) does.

mod engine;
mod queue;
mod ring;
mod word;

use std::fmt;

pub(crate) use engine::flush;
pub use engine::{Engine, EngineSetup, EngineState, STOPPING, SdmaChange, SdmaEngineCounts};
pub(super) use queue::{NotQueued, PACKET_MAX_DWORDS, SMALL_DWORDS};
pub use queue::{SdmaQueue, SdmaQueueCounts};
pub use ring::{BadHead, Ring};
pub use word::{FlushReason, Phase, SdmaHome, SdmaShared};

/// Descriptors of a queue at least: two packets of two pieces, and the one that stays free.
pub const DESCRIPTORS_MIN: u32 = 16;
/// Descriptors of a queue at most: the tail has 16 bits (F-231).
pub const DESCRIPTORS_MAX: u32 = 65_535;
/// Descriptors of a queue unless an option says otherwise (F-231).
pub const DESCRIPTORS_DEFAULT: u32 = 256;

/// The number of a send by DMA, counted from 0 on each port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SendId(pub u64);

impl fmt::Display for SendId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "send {}", self.0)
    }
}

/// What became of one send by DMA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendOutcome {
    /// The chip has taken it whole. Whether it arrives is the fabric's affair.
    Sent,
    /// The chip was stopped before it had taken it: it was not sent, or sent in part with a bad end.
    Flushed(FlushReason),
}
