//! How receive interrupts are thinned: what to tell the chip after each drain.
//!
//! Each context of the chip interrupts when a number of packets has come since the last re-arm, or when a timer
//! runs out while a packet waits (F-606). Both are given back to the chip at every re-arm. A policy is told what a
//! drain found and answers with the next setting; it touches no register, and whoever re-arms writes what changed.
//!
//! [`HalveDouble`] is what the stock driver does, [`Fixed`] and [`Fixed::OFF`] are the two ends to compare it with.
//!
//! Completion queues are announced too, and [`cq`] has the rule and the policies for them: [`cq::Unmoved`] (`off`),
//! [`RdmaDim`] (`rdma-dim` and `rdma-dim-twice`, as published) and [`GuardedDim`] (`guarded-dim`, ours).

pub mod cq;
pub mod guarded_dim;
pub mod halve_double;
pub mod rdma_dim;

pub use cq::CqModeration;
pub use guarded_dim::GuardedDim;
pub use halve_double::HalveDouble;
pub use rdma_dim::{Defects, RdmaDim, Sampling};

use qhca_regs::Instant;

/// What the chip is told at a re-arm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RcvSetting {
    /// `RcvAvailTimeOut`'s reload value. Its unit is not known (F-607, guess).
    pub timeout_ticks: u16,
    /// Packets from the head on after which to interrupt; 0 would mean never.
    pub count_packets: u16,
}

/// A policy that sets a context's receive moderation from what its drains find.
pub trait RcvModeration {
    /// The setting in force: what the next re-arm writes.
    fn setting(&self) -> RcvSetting;

    /// A drain that an interrupt caused has handled `packets`; 0 for an interrupt that found nothing.
    ///
    /// Call it once for each interrupt, not for each pass over the queue.
    fn on_drain(&mut self, packets: u32, now: Instant) -> RcvSetting;
}

/// The same setting, whatever happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fixed(pub RcvSetting);

impl Fixed {
    /// No moderation: an interrupt for each packet, at once.
    pub const OFF: Self = Self(RcvSetting { timeout_ticks: 0, count_packets: 1 });
}

impl RcvModeration for Fixed {
    fn setting(&self) -> RcvSetting {
        self.0
    }

    fn on_drain(&mut self, _packets: u32, _now: Instant) -> RcvSetting {
        self.0
    }
}
