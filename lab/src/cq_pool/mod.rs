//! Shared completion queues: what private queues cost the device in events, and what sharing costs a neighbour.
//!
//! ```text
//!   thread ──submit──▶ target (20-50 µs, one server) ──▶ device's stage: reads, events, queue pair contexts
//!     ▲                                                       │
//!     └── complete ◀── soft interrupt: polls of 16 ◀── interrupt ◀── armed queue? one event
//! ```
//!
//! Private queues: four a core, so a read that comes alone is an event of its own. One queue a core: the poll of one
//! read's completion finds the others'. How many interrupts there are comes out of arming, polling and arming again.

mod core;
mod figures;
mod run;

pub use self::figures::{Ablation, Figures, Row};
pub use self::run::{Measured, run};

use crate::params::Parameters;

/// The experiment's figures as its file has them.
///
/// PANIC: the file is compiled in, and a test reads it.
pub fn parameters() -> Parameters {
    Parameters::from_toml(include_str!("../../data/cq_pool.toml")).expect("cq_pool.toml is tested")
}
