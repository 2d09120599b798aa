//! Receive replenishment: what a policy's posts cost an initiator, and whether its target ever finds no buffer.
//!
//! ```text
//!   jobs ──512 commands──▶ target ──responses──▶ posted buffer? ── yes ──▶ completion queue ──▶ core: turns of 16
//!                             ▲                      └── no: RNR NAK, the target waits and tries again     │
//!                             └──────────────────── next command ◀── upper layer ◀── post ────────────────┘
//! ```
//!
//! The core is the bottleneck: an operation costs it a fixed time, its bytes, and what the policy posts.

mod figures;
mod run;

pub use self::figures::{Figures, Op, Row};
pub use self::run::{Measured, run};

use crate::params::Parameters;

/// The experiment's figures as its file has them.
///
/// PANIC: the file is compiled in, and a test reads it.
pub fn parameters() -> Parameters {
    Parameters::from_toml(include_str!("../../data/rnr.toml")).expect("rnr.toml is tested")
}
