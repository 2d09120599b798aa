//! Management: the agents that answer a subnet manager and a reader of counters.
//!
//! An agent is handed a MAD and gives one back, or none. It holds no queue pair: whoever owns QP 0 and QP 1 brings the
//! MADs. What the port is, and what a subnet manager may change of it, stands in [`PortAttributes`]; the owner carries
//! changes out on the link.
//!
//! The micro manager goes one hop: it brings up a cable between two ports, or a port that talks to itself. It is no
//! manager for a subnet with switches.

mod pma;
mod sm;
mod sma;

pub use pma::{Performance, PortCounts};
pub use sm::{MicroSm, SM_INFO, SmMode};
pub use sma::{Identity, PortAttributes, SubnetAgent, Wish};
