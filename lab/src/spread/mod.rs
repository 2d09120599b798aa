//! Spreading transport work over cores: what a hop costs where latency counts, and gains where a core is full.
//!
//! ```text
//!   card ──▶ core 0, or the queue pair's own if the policy steers ── receive stack ──▶ Spread::place
//!                                                                     ├─ inline: transport work at once
//!                                                                     └─ handed: owner's queue, a hop later if it slept
//! ```
//!
//! An operation is two messages to the initiator (data, then response), so a depth of one sees two hops. A large
//! message is as many packets as its 4 KiB parts, and in a ping-pong each is handled before the next one comes.

mod figures;
mod run;

pub use self::figures::{Figures, Row, Test};
pub use self::run::{Measured, run};

use crate::params::Parameters;

/// The experiment's figures as its file has them.
///
/// PANIC: the file is compiled in, and a test reads it.
pub fn parameters() -> Parameters {
    Parameters::from_toml(include_str!("../../data/spread.toml")).expect("spread.toml is tested")
}
