//! Send: programmed I/O through the chip's send buffers, and send DMA for what does not fit them or finds none free.
//!
//! A packet is sent by writing it into one of the chip's own buffers, a control word (PBC) first. The chip sends it
//! when the last word has arrived, and says by two bits a buffer, written to host memory, which buffers are free
//! again. So a send is a few stores and no read.
//!
//! ```text
//!   Sender (one thread)                                   chip
//!   ├─ Pool: which of my buffers are free  ◄── avail words, by DMA ──┐
//!   └─ submit: claim ─► PBC, headers, payload by Bar::burst ──► send buffer ──► wire
//!   SendControl (shared): disarm, ask for the avail words, ask for an interrupt
//! ```
//!
//! | file | what |
//! |---|---|
//! | `pool` | which buffers are free, from the avail words |
//! | `frame` | what is sent: headers, payload, port, lane |
//! | `pio` | submit |
//! | `control` | the register that all senders share |
//! | `route` | which of the two ways a packet takes, and what its outcome is |
//! | `sdma` | the other way: rings of descriptors that the chip fetches |
//! | `check` | how fast the copy into a buffer is, measured once |
//!
//! It knows no transport: headers come ready made.

mod check;
mod control;
mod frame;
mod pio;
mod pool;
mod route;
pub mod sdma;

pub use check::{CopyRate, PIO_SLOW_BELOW_MIB_S, PioCheck, PioVerdict};
pub use control::{SendControl, SendErrors};
pub use frame::{Frame, HEADER_MAX_DWORDS, Lane, Path, Payload};
pub use pio::{Sender, SubmitError, TxCounts, avail_image};
pub use pool::{Pool, PoolError};
pub use route::Submitted;
pub use sdma::{FlushReason, SendId, SendOutcome};
