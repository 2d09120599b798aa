//! A world's remote control: what a person or a test does to the hardware while it runs.
//!
//! An [`Order`] is a line of words, such as `cable a:1 out` or `inject a ErrStatus RcvEgrFullErr`: typed after
//! `qhca sim ctl`, planned by `--faults`, or sent over a socket as JSON lines. One grammar and one meaning serve all of
//! them, and a world in this process as well as one that another process serves.
//!
//! ```text
//!   words ──▶ Order ──▶ apply(World) ──▶ JSON
//!     ▲                                    │
//!     └── {"do": "cable a:1 out"}          └──▶ {"ok": true, "result": …}
//! ```
//!
//! Whoever sends orders is not trusted with more than the grammar says: lines and answers are bounded, and nothing that
//! an order names is used before it is found to be there.
//!
//! Not here: the server's side of the socket (`vfio_user/control.rs`), which adds what only it knows.

mod apply;
mod client;
mod order;
pub(crate) mod report;

pub use apply::Refusal;
pub use client::{Client, ControlError};
pub use order::{Deliver, Hca, Order, OrderError, Place};
pub use report::register_named;

/// Longest line that is read, bytes: room for the largest packet in hex.
pub const LINE_MAX_BYTES: usize = 16 * 1024;

/// Longest answer that a client reads, bytes.
pub const ANSWER_MAX_BYTES: usize = 1 << 20;

/// One line of grammar each, for help texts and error messages.
pub const GRAMMAR: &[(&str, &str)] = &[
    ("cable a:1 out", "pull the cable of a port; `in` puts it back"),
    ("cable a:1=b:1", "lay a new cable between two ports"),
    ("line a:1 lose=10", "one in 10 packets from this port is lost; also duplicate=N, flip=N, delay-ns=N"),
    ("module a:1 out", "pull the QSFP module of a port; `in` puts it back"),
    ("alarm a:1 3 0x80", "the module sets bits of an alarm byte (3 to 21)"),
    (
        "inject a ErrStatus RcvEgrFullErr",
        "raise error bits: ErrStatus, HwErrStatus, ErrStatus_0, ErrStatus_1; names joined by +, or hex",
    ),
    ("remove a", "pull the card out of its slot; reads give all ones"),
    ("return a", "put the card back"),
    (
        "deliver a:1 00ff bad-icrc",
        "let a port receive a packet: LRH to last pad byte in hex, bad-icrc and bad-vcrc optional",
    ),
    ("read a IBCStatusA_0", "read a register by name or offset"),
    ("state", "everything that can be seen of cards, ports and cables"),
    ("stats", "what the server did: processor time, wake-ups, messages, packets"),
];
