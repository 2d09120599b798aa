//! When receive buffers are posted again: a price of one post call each, against the risk of having none.
//!
//! A sender whose message finds no receive buffer gets an RNR NAK and waits for the time that the receiver's timer
//! code names, 655.36 ms for code 0. Posting each buffer as soon as it is free avoids that at a post call an
//! operation; posting many at once is cheap and leaves a hole that a stalled host falls into.
//!
//! ```text
//!   launch a command ──▶ before_launch: may it? (a buffer must be there for its response)
//!   response ──▶ on_response ──▶ before_hand_up ──▶ upper layer may reuse the slot
//!   end of a poll turn, before sleeping ──▶ publish
//! ```
//!
//! A policy says how many buffers to post *now*, as one list; whoever owns the queue posts them and answers with
//! [`Replenish::posted`], also when fewer could be posted than wanted.

pub mod baseline;
pub mod credit_lazy;

pub use baseline::{ChunkQuarter, OneByOne};
pub use credit_lazy::CreditLazy;

/// How a session is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Session {
    /// Commands that may be under way: each brings one response.
    pub commands: u32,
    /// Messages that may come unasked.
    pub unsolicited: u32,
}

/// A policy for one receive queue.
pub trait Replenish: Send {
    /// The name on command lines and in results.
    fn name(&self) -> &'static str;

    /// Buffers of the whole session; all are posted at login.
    fn buffers(&self) -> u32;

    /// So many buffers have been posted.
    fn posted(&mut self, buffers: u32);

    /// A message took a buffer, and its contents have been consumed; returns what to post now.
    fn on_response(&mut self) -> u32;

    /// The slot of the response is about to be given up, so the next command may be launched; returns what to post first.
    fn before_hand_up(&mut self, _in_flight: u32) -> u32 {
        0
    }

    /// A command is about to be launched beside `in_flight` others; returns what to post first.
    fn before_launch(&mut self, _in_flight: u32) -> u32 {
        0
    }

    /// The poll turn ends, or the host is about to sleep; returns what to post now.
    fn at_turn_end(&mut self) -> u32 {
        0
    }

    /// Buffers that are free and not posted.
    fn gathered(&self) -> u32;
}

/// The policy called `name`.
pub fn by_name(name: &str, session: Session) -> Option<Box<dyn Replenish>> {
    match name {
        "chunk-quarter" => Some(Box::new(ChunkQuarter::new(session))),
        "one-by-one" => Some(Box::new(OneByOne::new(session))),
        "credit-lazy" => Some(Box::new(CreditLazy::new(session))),
        _ => None,
    }
}

/// The names that [`by_name`] knows.
pub const NAMES: [&str; 3] = ["chunk-quarter", "one-by-one", "credit-lazy"];
