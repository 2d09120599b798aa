//! Virtual time: one clock, one queue of events, seeded chance, and processor cores that cost time.
//!
//! An experiment is a model that owns an [`Engine`] and interprets its events. Nothing here knows what an event means:
//! the chip, the wire and the driver stand outside, and the same parts serve every experiment of the laboratory.
//!
//! ```text
//!    Engine<E>   now ──▶ EventQueue<E>   (time, sequence) ──▶ event of the model's own type
//!       │                                                        │ wakes a task, raises an interrupt
//!       ├── Seed ──▶ one Rng per named source                    ▼
//!       └── TraceHash over (time, label, arguments)           Core   hard irq > soft irq > thread > worker
//!                                                                │ one step = one call of real code
//!                                                                └── Ledger: virtual nanoseconds by label
//! ```
//!
//! Four rules make a run repeatable to the bit: events of one instant come out in the order in which they were put in;
//! every source of chance has its own generator, so that one more draw in one place moves nothing elsewhere; no wall
//! clock and no hash-map order is ever consulted; floating point is used in draws only, through operations that every
//! machine rounds alike.
//!
//! A step of a core consumes time in one of two ways. *Charged afterwards*: the step's call returns its [`Charges`],
//! the core plays them, and a higher class may cut in between two of them. *Live*: the call itself moves the clock
//! while it runs ([`Engine::pop_until`] delivers what the hardware does meanwhile), so that a register read sees the
//! chip as it is when the read happens; such a step is never cut.
//!
//! Not here: threads, costs (each experiment brings its own), and anything about the 7322.

#![forbid(unsafe_code)]

mod core;
mod engine;
mod ledger;
mod order;
mod queue;
mod rng;
mod trace;

pub use self::core::{Class, Core, Outcome, TaskId, Turn, Woken};
pub use self::engine::Engine;
pub use self::ledger::{Charges, Label, Ledger};
pub use self::order::{Arbitrate, Order, Pending, Sort};
pub use self::queue::{EventQueue, Timer};
pub use self::rng::{Distribution, Rng, Seed};
pub use self::trace::TraceHash;
