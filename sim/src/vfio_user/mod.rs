//! The chip served to other programs: a vfio-user server, so that QEMU gives a guest a virtual HCA.
//!
//! ```text
//!   QEMU ── unix socket ──▶ link ─▶ session ─▶ World<ClientHost> ─▶ chip
//!     ▲                                              │
//!     │ guest memory, mapped from its descriptors ◀──┤ memory
//!     └ eventfds ◀───────────────────────────────────┘ client
//! ```
//!
//! One thread, one event loop (`server`), any number of chips and cables; register accesses are served as they come
//! and the chips' own time is the monotonic clock. A client is not trusted: every length is checked, memory that was
//! not offered is not reached, a client that vanishes leaves nothing behind and its chip waits for the next.
//!
//! Not here: the message format (crate `qhca-vfu`), the client (crate `qhca-driver`), live migration.

#![deny(unsafe_code)]

mod alone;
mod client;
mod config;
mod control;
mod linger;
mod link;
mod memory;
mod server;
mod session;
#[allow(unsafe_code)]
mod sys;
mod trace;

pub use alone::Alone;
pub use config::{ConfigOptions, ConfigSpace, Effect};
pub use server::{ServeError, Server, Stop};

use qhca_vfu::XFER_MAX_BYTES;
use std::time::Duration;

/// How one chip is served.
#[derive(Clone, Debug)]
pub struct Options {
    /// What messages call it; its socket's path, usually.
    pub name: String,
    /// Optional capabilities of its configuration space.
    pub config: ConfigOptions,
    /// MSI-X vectors, 1 to 32.
    pub vectors: u16,
    /// Longest transfer that is offered, 8 bytes to 1 MiB.
    pub transfer_max_bytes: u32,
    /// How long the client has to answer when it is asked for its memory; one that does not is closed.
    pub answer_within: Duration,
}

/// TIMEOUT: QEMU gives us 5 s before it drops the connection; less than half of that leaves room for the messages in
/// between.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

impl Default for Options {
    fn default() -> Self {
        Self {
            name: "sim".to_owned(),
            config: ConfigOptions::default(),
            vectors: 32,
            transfer_max_bytes: XFER_MAX_BYTES,
            answer_within: ANSWER_WITHIN,
        }
    }
}
