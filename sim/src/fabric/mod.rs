//! The fabric: cables between ports, with their delay, their speed and their faults.
//!
//! A cable has two ends and carries packets and the light of the link both ways, each way in order:
//!
//! ```text
//!   chip A ── take_outgoing ──▶ │ line (one packet at a time, at its rate) │ flight (delay) │ ──▶ deliver ── chip B
//!                                 loss · duplication · bit flips, by seed
//! ```
//!
//! With [check sums](crc) on, ICRC and VCRC are computed when a packet enters the cable and checked when it leaves,
//! over the bytes as they then are. Off, the verdict follows from which bits were flipped: the same verdict, without
//! the work.
//!
//! What it is not: a switch or a subnet manager. Credits are the chips' business: a cable only carries what they tell
//! each other, and has a bound on what is in flight, whose excess it counts.

mod cable;
pub mod crc;
mod rate;

pub use cable::{Arrival, Cable, CableConfig, LineFaults, LineStats, Side};
pub use rate::{LineRate, Speed, Width};
