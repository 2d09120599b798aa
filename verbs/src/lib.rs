//! The InfiniBand transport and its verbs, on top of the driver's contexts.
//!
//! The 7322 has no queue pairs: it sends what it is given, and puts what comes into memory. Everything between a work
//! request and a packet is here: headers, sequence numbers, acknowledges, repeats, memory keys, completions.
//!
//! Nothing here waits, reads a clock or takes a lock. An [`Engine`] is handed packets, the time and something that
//! takes packets; threads turn it on a card, and a virtual clock turns it in the tests, with the same result for the
//! same input.
//!
//! | where is ... | it is in |
//! |---|---|
//! | a header's bits | [`wire`] |
//! | a packet built and sent, gone back over | `qp/requester.rs` |
//! | an acknowledge taken | `qp/answers.rs` |
//! | a request carried out | `qp/responder.rs` |
//! | a change of state refused | `qp/attr.rs` |
//! | a key checked | `mem/table.rs` |
//! | a completion put in its queue | `cq.rs` |
//! | packets exchanged with the chip | `bind.rs` |
//! | a port with its agents and micro manager | [`port`] |
//! | a queue pair connected | `connect.rs` |
//! | a thread that sleeps on events | [`channel`] |
//! | a queue shared | [`cq::pool`] |
//! | a core chosen for a packet's work | [`sched`] |
//! | receive buffers posted again | [`replenish`] |
//! | loss, delay and a checker for it all | [`harness`] |

#![forbid(unsafe_code)]

mod bind;
pub mod channel;
mod connect;
mod counters;
pub mod cq;
mod engine;
mod event;
pub mod harness;
mod ids;
pub mod mem;
pub mod mgmt;
mod out;
pub mod perf;
pub mod policy;
pub mod port;
mod psn;
mod qp;
pub mod replenish;
mod rnr;
mod scatter;
pub mod sched;
mod shared;
mod slab;
mod sync;
mod timers;
mod wc;
pub mod wire;
mod wr;

pub use bind::{Arrivals, Bound, BoundCounts, Departures, TURN_PACKETS, Turned, hand_over};
pub use connect::Connect;
pub use counters::{Counters, Drop as DropReason};
pub use cq::{Arm, Cq, CqError};
pub use engine::{Engine, QUEUE_DEPTH_MAX, QpError};
pub use event::Event;
pub use ids::{CqId, Key, PdId, QpNumber, SrqId};
pub use mem::{Access, MemoryError, MemoryRegion, Payload, Sge, Window};
pub use out::{Full, Outgoing, Wire};
pub use psn::Psn;
pub use qp::{
    AttrMask, MESSAGE_MAX_BYTES, ModifyError, Mtu, QpAttr, QpCounts, QpInit, QpState, RnrTimer, allowed,
};
pub use rnr::{ack_timeout, rnr_pause};
pub use shared::{Config, Port, pkeys_match};
pub use wc::{Along, Sender, Wc, WcDetail, WcOpcode, WcStatus};
pub use wr::{
    AddressVector, BadRequest, Data, Destination, GlobalRoute, PostError, RecvWr, SendFlags, SendOp, SendWr,
};
