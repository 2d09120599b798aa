//! Our policy: post rarely, but never launch a command whose response would find no buffer.
//!
//! There are B - 1 buffers more than can be needed, so that up to B - 1 may lie around unposted at any time. They are
//! posted as one list when B have gathered; and earlier, whenever waiting could do harm:
//!
//! ```text
//!   posted >= in flight + unsolicited      the invariant, before every launch
//!   gathered = B                           the ordinary case: one call for B responses
//!   slack <= B / 4, end of turn, sleep     nobody is there to post later
//!   slack = 0, a slot about to go up       the next command may be launched before we are asked again
//! ```
//!
//! slack = posted - in flight - unsolicited. A stall can be as long as it likes: no command was launched without its
//! buffer (trap 20).

use super::{Replenish, Session};

/// Buffers posted in one list, in the ordinary case.
pub const BATCH: u32 = 16;

/// The policy `credit-lazy`.
#[derive(Clone, Debug)]
pub struct CreditLazy {
    session: Session,
    outstanding: u32,
    gathered: u32,
}

impl CreditLazy {
    /// For one session.
    pub const fn new(session: Session) -> Self {
        let buffers = session.commands + session.unsolicited + BATCH - 1;
        Self { session, outstanding: 0, gathered: buffers }
    }

    /// Buffers that are posted beyond what may come.
    fn slack(&self, in_flight: u32) -> u32 {
        self.outstanding.saturating_sub(in_flight + self.session.unsolicited)
    }

    /// Buffers that are posted and taken by no message.
    pub const fn outstanding(&self) -> u32 {
        self.outstanding
    }

    fn all_if(&self, needed: bool) -> u32 {
        if needed { self.gathered } else { 0 }
    }
}

impl Replenish for CreditLazy {
    fn name(&self) -> &'static str {
        "credit-lazy"
    }

    fn buffers(&self) -> u32 {
        self.session.commands + self.session.unsolicited + BATCH - 1
    }

    fn posted(&mut self, buffers: u32) {
        self.outstanding += buffers;
        self.gathered = self.gathered.saturating_sub(buffers);
    }

    fn on_response(&mut self) -> u32 {
        self.outstanding = self.outstanding.saturating_sub(1);
        self.gathered += 1;
        self.all_if(self.gathered >= BATCH)
    }

    fn before_hand_up(&mut self, in_flight: u32) -> u32 {
        self.all_if(self.slack(in_flight) == 0)
    }

    fn before_launch(&mut self, in_flight: u32) -> u32 {
        self.all_if(self.outstanding < in_flight + 1 + self.session.unsolicited)
    }

    fn at_turn_end(&mut self) -> u32 {
        self.gathered
    }

    fn gathered(&self) -> u32 {
        self.gathered
    }
}
