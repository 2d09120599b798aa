//! The overflow storm: what each error policy does to the goodput of a receiver whose eager buffers run over.
//!
//! The chip raises one error for each packet that it drops. If errors are served before receives, and each costs
//! more than the time from packet to packet, the core serves nothing but errors, the buffers stay full, and every
//! further packet is another error. A stall of two milliseconds is enough to begin it, and nothing ends it.
//!
//! ```text
//!   sender HCA ── cable ──▶ receiver HCA ── MSI-X ──▶ one core: hard irqs > tasklet > worker
//!   653 ns a packet         chip model                real bring-up, dispatch, receive, fault and worker code
//!                                                     through a bar that charges 1 us a read, 80 ns a write
//! ```
//!
//! The sending card trains the link and stands for the wire: its packets are made at the receiver's end of the cable. They
//! could be sent by PIO through the second card, at about half again the time of a run. But then their arrivals would
//! hang on that card's buffers and on the credits which the receiver grants, thus on the policy under test, and a row
//! could no longer be told against one control: a share compares what was made of the same arrivals.
//!
//! The experiment adds costs and nothing else: what happens on an error is decided by the driver's policy, what the
//! chip does by the chip model, and every figure in the table comes out of the run.

mod band;
mod bringup;
mod costs;
mod cpu;
mod kinds;
mod machine;
mod node;
mod packets;
mod rc;
mod realtime;
mod report;
mod run;
mod study;
mod sweep;
mod workload;

pub use self::band::{BandReport, BandRow};
pub use self::costs::Costs;
pub use self::kinds::Storm;
pub use self::realtime::{RealTime, RealTimeReport, RealTimeRow};
pub use self::report::{MB_BYTES, Measured, Report, Row};
pub use self::run::{Case, Detail, StormError, Transport, run, run_in_detail};
pub use self::study::Study;
pub use self::sweep::{SweepReport, SweepRow};
pub use qhca_driver::fault::Policy;

use crate::params::Parameters;

/// The experiment's figures as its file has them.
///
/// PANIC: the file is compiled in, and a test reads it.
pub fn parameters() -> Parameters {
    Parameters::from_toml(include_str!("../../data/storm.toml")).expect("storm.toml is tested")
}
