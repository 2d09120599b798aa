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

mod client;
mod config;
mod control;
mod link;
mod memory;
mod server;
mod session;
#[allow(unsafe_code)]
mod sys;
mod trace;

pub use config::ConfigOptions;
pub use server::{ServeError, Server, Stop};

/// How one chip is served.
#[derive(Clone, Debug)]
pub struct Options {
    /// What messages call it; its socket's path, usually.
    pub name: String,
    /// Optional capabilities of its configuration space.
    pub config: ConfigOptions,
    /// MSI-X vectors, 1 to 32.
    pub vectors: u16,
}

impl Default for Options {
    fn default() -> Self {
        Self { name: "sim".to_owned(), config: ConfigOptions::default(), vectors: 32 }
    }
}
