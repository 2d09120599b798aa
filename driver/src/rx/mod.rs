//! Receive: header queues, eager buffers, and the packets they hold.
//!
//! The chip sorts what comes from the wire into *contexts*. For each packet it puts the payload into one of the
//! context's eager buffers and an entry into its header queue: the packet's headers, and behind them two dwords of
//! verdict (the RHF), which it writes last. A [`Context`] follows the queue, hands the packets out without copying
//! them, and gives the space back.
//!
//! ```text
//!   header queue (one DMA region)                eager buffers (one DMA region)
//!   ┌────────────┬────────────┬────────────┐     ┌────────┬────────┬────────┐
//!   │ hdr... RHF │ hdr... RHF │ old or zero│     │ 0      │ 1      │ 2 ...  │   each 2 or 4 KiB
//!   └────────────┴────────────┴────────────┘     └────────┴────────┴────────┘
//!     seq 7        seq 8  │                            ▲
//!                         └── eager index ─────────────┘
//! ```
//!
//! | file | what |
//! |---|---|
//! | `memory` | the two regions, and the shape the chip is told |
//! | `program` | the registers that tell the chip of them |
//! | `packet` | one arrival as it is handed out |
//! | `entry` | from an RHF that may be garbage to a bounded arrival |
//! | `reader` | entries, one after the other, in the fewest instructions |
//! | `flow` | the order of take, release, re-arm and second look |
//! | `heads` | the registers that give space back |
//! | `context` | a context: all of it together |
//! | `counts` | what became of every entry |
//! | `expected` | payload that goes straight to the page it is meant for |
//!
//! It does not decide which packet reaches which context (the chip's QP map does) and knows no transport.

mod context;
mod counts;
mod entry;
pub mod expected;
pub mod flow;
mod heads;
mod memory;
mod packet;
mod program;
mod reader;

pub use context::{BATCH_WHILE_ERRORS_PENDING, Context, ContextSetup, RELEASE_EVERY};
pub use counts::RxCounts;
pub use entry::Malformed;
pub use expected::{Expected, FlowId, FlowSettings, FlowState, Tid, TidError};
pub use flow::{Drained, Next};
pub use memory::{ContextMemory, EagerShape, QueueShape, ShapeError};
pub use packet::{Arrival, FlowError, Packet};
pub use program::{ProgramError, program, withdraw};
