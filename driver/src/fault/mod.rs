//! What happens on an error: from an error word to a response, on the worker.
//!
//! The interrupt only masks and asks for a turn ([`qhca_irq::dispatch`]). Here is the rest. A turn reads each error
//! word once, clears exactly what it read, looks up what is to be done in one table, does it, and reports. Then the
//! masks go back up: at once under the published policies, when the storm limiter allows under ours.
//!
//! ```text
//!   Worker::poll ─► read ErrStatus ─► HardwareErr? ─► read HwErrStatus
//!                      │                                  │
//!                      ▼                                  ▼
//!                 table: word ─► Actions      Count · CancelSends · RestartSdma · LinkChanged · Thaw · Fatal
//!                      │
//!                      ▼
//!                 clear what was read ─► Report (one event) ─► masks
//! ```
//!
//! | file | what |
//! |---|---|
//! | `policy` | the five ways to serve errors, by name |
//! | `table` | from bits to responses, one table |
//! | `report` | what a turn found |
//! | `overflow` | how many packets each context lost, exactly |
//! | `worker` | the turn |
//! | `thaw` | how a frozen chip is set going again |
//!
//! It does not wake anybody and does not know why a word has its bits: `qhca-errdecode` explains them.

mod overflow;
mod policy;
mod report;
mod table;
mod thaw;
mod worker;

pub use overflow::{OverflowAccount, Sample};
pub use policy::{Policy, UnknownPolicy};
pub use report::Report;
pub use table::{Actions, Response, device_actions, hardware_actions, port_actions};
pub use worker::{FaultCounts, Worker, WorkerSetup};
