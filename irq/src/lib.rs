//! From an interrupt status word of the QLogic 7322 to ordered work.
//!
//! The chip has one word of 64 interrupt causes and up to 32 MSI-X vectors to announce them with. This crate says
//! what each cause is ([`source`]), which vector announces it ([`plan`]), what is done when a vector fires
//! ([`dispatch`]: the place where an interrupt is handled), who does the slow part ([`worker`]), how often errors
//! may interrupt at all ([`storm`]), how receive interrupts are thinned ([`moderation`]), and what is done about an
//! interrupt that never came ([`watchdog`], [`arrival`]).
//!
//! Everything is a pure value or an atomic word: `now` and the [`Bar`](qhca_regs::Bar) are arguments, there is no
//! thread, clock or system call. Whoever waits for vectors does so through [`wait::IrqSource`].
//!
//! ```text
//! vector fires -> dispatch: clear, mask, hand over -> Work: contexts, send, SDMA, GPIO -> caller drains
//!                              |
//!                              +-> worker (later, within 1 ms): read, clear, decode -> storm: when to unmask
//! ```

#![forbid(unsafe_code)]

pub mod arrival;
pub mod decisions;
pub mod dispatch;
pub mod moderation;
pub mod plan;
pub mod sets;
pub mod source;
pub mod storm;
mod sync;
pub mod wait;
pub mod watchdog;
pub mod worker;

pub use dispatch::{Dispatcher, ErrorPolicy, Outcome, Work, WorkerCall};
pub use plan::{Grant, PlanRequest, VectorPlan, VectorUse};
pub use sets::{ContextSet, PortSet, VectorSet};
pub use source::Source;
pub use storm::StormLimiter;
pub use wait::{IrqSource, Wake};
pub use worker::{Handover, Reasons, Turn};
