//! Do interrupts arrive at all?
//!
//! Some platforms route messages nowhere: everything comes up, and then nothing ever interrupts. A device without a
//! cable has nothing to say by itself, so the chip is made to interrupt: it is told to watch a pin that is known to
//! be high (the released clock of the two-wire bus), which raises AssertGPIO at once. The handler of that interrupt
//! finds a pin that nobody asked for and stops watching it.
//!
//! If nothing has arrived within half a second, the caller falls back to the interrupt line, once, and the proof is
//! repeated. A device that is polled needs none and raises no alarm.
//!
//! Source: F-158, F-608.

use super::device::{enable_interrupts, redirect_interrupts};
use super::error::Fault;
use crate::gpio::SCL;
use crate::link::Links;
use qhca_irq::VectorPlan;
use qhca_irq::arrival::{Arrival, ArrivalCheck, NoInterrupts};
use qhca_regs::map::device;
use qhca_regs::status::IntBits;
use qhca_regs::{Bar, Instant};

/// What is known of the device's interrupts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// Not yet known; ask again at the instant, or when one has come.
    Waiting(Instant),
    /// They arrive.
    Proven,
    /// None came: ask the system for the interrupt line, then [`InterruptProof::fall_back`].
    FallBack,
    /// None came in any mode. The device can still be polled.
    Failed(NoInterrupts),
}

/// The check under way.
#[derive(Clone, Copy, Debug)]
pub struct InterruptProof {
    check: ArrivalCheck,
}

impl InterruptProof {
    /// Makes the chip interrupt. `interrupts` is how many have been served so far.
    pub fn start(
        plan: &VectorPlan,
        links: &mut Links,
        interrupts: u64,
        bar: &impl Bar,
        now: Instant,
    ) -> Self {
        links.watch_pin(SCL, bar);
        Self { check: ArrivalCheck::new(plan.mode(), interrupts, now) }
    }

    /// What `interrupts` served so far say.
    pub fn poll(&mut self, interrupts: u64, links: &mut Links, bar: &impl Bar, now: Instant) -> Proof {
        match self.check.check(interrupts, now) {
            Arrival::Waiting => Proof::Waiting(self.check.poll_timeout().unwrap_or(now)),
            Arrival::FallBack => Proof::FallBack,
            Arrival::Proven(_) => {
                links.unwatch_pin(SCL, bar);
                Proof::Proven
            }
            Arrival::Silent => {
                links.unwatch_pin(SCL, bar);
                Proof::Failed(self.check.error())
            }
        }
    }

    /// When [`poll`](Self::poll) wants to be called; `None` once the answer is final.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.check.poll_timeout()
    }

    /// Goes on with the interrupt line, whose plan is `plan`: all causes to the one vector, and once more.
    ///
    /// Listen to the line, and unmask it, before: it may have fired while nobody did.
    ///
    /// # Errors
    /// [`Fault::Gone`].
    pub fn fall_back(
        &mut self,
        plan: &VectorPlan,
        interrupts: u64,
        links: &mut Links,
        bar: &impl Bar,
        now: Instant,
    ) -> Result<(), Fault> {
        device::INT_MASK.write(bar, IntBits::empty());
        redirect_interrupts(Some(plan), bar);
        links.watch_pin(SCL, bar);
        enable_interrupts(Some(plan), bar)?;
        self.check.fell_back(interrupts, now);
        Ok(())
    }
}
