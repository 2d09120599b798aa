//! Where choices are made that can be made better: traits that the engine asks at the points where they matter, with
//! the plain choice beside each.
//!
//! | choice | asked | plain |
//! |---|---|---|
//! | [`CqModeration`] | with each completion of an armed queue, and when it is armed | [`Immediately`] |
//! | [`AckPolicy`] | with each request packet that is sent | [`EndOfMessage`] |
//! | [`Replenish`] | when a receive was used up, and at the end of a poll turn | [`OneByOne`] |
//! | [`CqPlacement`] | when a queue pair asks for a completion queue of a pool | [`Private`] |
//! | [`Spreading`] | when a packet's work could be done here or on another core | [`Inline`] |

use qhca_regs::Instant;

/// When an armed completion queue tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// With this completion.
    Now,
    /// Not before this time, unless asked again.
    Later(Instant),
}

/// Thins the events of an armed completion queue.
pub trait CqModeration {
    /// A completion came; `pending` wait with it. An urgent one is solicited or failed.
    fn on_completion(&mut self, pending: u32, urgent: bool, now: Instant) -> Notice;

    /// The queue was armed.
    fn on_arm(&mut self, now: Instant);
}

/// An event with the first completion.
#[derive(Clone, Copy, Debug, Default)]
pub struct Immediately;

impl CqModeration for Immediately {
    fn on_completion(&mut self, _pending: u32, _urgent: bool, _now: Instant) -> Notice {
        Notice::Now
    }

    fn on_arm(&mut self, _now: Instant) {}
}

/// Whether a request packet asks to be acknowledged.
pub trait AckPolicy {
    /// `since` packets went without asking; `ends` says that the packet ends its message.
    fn asks(&self, since: u32, ends: bool) -> bool;
}

/// The last packet of each message asks, and of a long message one in so many.
#[derive(Clone, Copy, Debug)]
pub struct EndOfMessage {
    /// Packets after which one asks in any case.
    pub every: u32,
}

impl Default for EndOfMessage {
    fn default() -> Self {
        Self { every: 64 }
    }
}

impl AckPolicy for EndOfMessage {
    #[inline]
    fn asks(&self, since: u32, ends: bool) -> bool {
        ends || since + 1 >= self.every
    }
}

/// When receives that were used up are posted again.
pub trait Replenish {
    /// `missing` receives are to be posted, `posted` are; how many to post now. `turn_ends` at the end of a poll turn.
    fn post_now(&mut self, missing: u32, posted: u32, turn_ends: bool) -> u32;
}

/// Each as soon as it was used.
#[derive(Clone, Copy, Debug, Default)]
pub struct OneByOne;

impl Replenish for OneByOne {
    fn post_now(&mut self, missing: u32, _posted: u32, _turn_ends: bool) -> u32 {
        missing
    }
}

/// Which completion queue of a pool a queue pair gets.
pub trait CqPlacement {
    /// `loads` are the entries that the pool's queues have left, for a queue pair that needs `entries` and would like
    /// core `hint`; `None` makes a new queue.
    fn place(&mut self, loads: &[u32], entries: u32, hint: Option<u32>) -> Option<usize>;
}

/// A queue for everybody.
#[derive(Clone, Copy, Debug, Default)]
pub struct Private;

impl CqPlacement for Private {
    fn place(&mut self, _loads: &[u32], _entries: u32, _hint: Option<u32>) -> Option<usize> {
        None
    }
}

/// Where a packet's transport work is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Where {
    /// By whoever received it.
    Here,
    /// By core so-and-so.
    Core(u32),
}

/// Spreads transport work over cores.
pub trait Spreading {
    /// A packet for a queue pair came; `backlog` packets wait here.
    fn place(&mut self, qp: crate::ids::QpNumber, backlog: u32, now: Instant) -> Where;
}

/// Always here.
#[derive(Clone, Copy, Debug, Default)]
pub struct Inline;

impl Spreading for Inline {
    fn place(&mut self, _qp: crate::ids::QpNumber, _backlog: u32, _now: Instant) -> Where {
        Where::Here
    }
}
