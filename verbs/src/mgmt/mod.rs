//! Management: the agents that answer a subnet manager and a reader of counters.
//!
//! An agent is handed a MAD and gives one back, or none. It holds no queue pair: whoever owns QP 0 and QP 1 brings the
//! MADs. What the port is, and what a subnet manager may change of it, stands in [`PortAttributes`]; the owner carries
//! changes out on the link.
//!
//! It does not manage anybody else's port.

mod pma;
mod sma;

pub use pma::{Performance, PortCounts};
pub use sma::{Identity, PortAttributes, SubnetAgent, Wish};
