//! Interrupt moderation on completion queues: two hosts that exchange requests and acknowledgements in a closed loop.
//!
//! Every completion that is announced costs the device's stage some 55 ns beside the bytes it carries, and the core
//! that takes the interrupt a microsecond. If announcements are spaced, the device has more time for bytes, and what
//! it costs is latency; in a closed loop that is throughput again. Which of the two wins in which cell is the question.
//!
//! ```text
//!   process ──post──▶ QP ┐                            ┌─▶ receive CQ ── armed? FireRule ── vector's core ──▶ process
//!   process ──post──▶ QP ┼▶ stage: bytes and events ──┤
//!                        ┘   round robin over QPs     └─▶ send CQ (a round trip later)
//! ```
//!
//! The policies are those of `qhca_irq::moderation`, called as a driver calls them; this model only says when
//! completions come and what time passes.

mod figures;
mod host;
mod row;
mod run;
mod stage;
mod world;

pub use self::figures::Figures;
pub use self::row::Row;
pub use self::run::{Ablation, Cell, Measured};

use crate::params::Parameters;

/// The experiment's figures as its file has them.
///
/// PANIC: the file is compiled in, and a test reads it.
pub fn parameters() -> Parameters {
    Parameters::from_toml(include_str!("../../data/dim.toml")).expect("dim.toml is tested")
}
