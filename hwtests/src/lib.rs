//! The same checks for a simulated card, a guest's and a real one.
//!
//! [`run`] takes any [`Backend`], resets the card before each scenario, touches registers and memory as the data
//! sheet says, and compares what comes back. Nothing of the driver's packet path is used: a scenario that borrowed
//! the driver's idea of the chip would agree with its mistakes. Packets go from a port to itself, through the chip's
//! own loopback, so no cable and no peer is needed; two scenarios want a cable from one port of the card to the other.
//!
//! Each scenario is known by a name and ends as passed, failed with what was seen and what was expected, or skipped
//! with a reason. What a card cannot do to itself (send itself a packet with a wrong check sum) is asked of its
//! [`Surroundings`]; a card that has none skips those scenarios.
//!
//! ```text
//! identity  identify, eager-partitions, scratch, eeprom, avail-address
//! link      link-up, link-change-interrupts, active-needs-armed, link-width, link-speed
//! pair      heartbeat, credits
//! cable     qsfp, qsfp-insert
//! send      avail-image, disarm, launch-rule, port-selection, vl-arbitration
//! sdma      sdma-head, sdma-halt, sdma-generation, sdma-interrupt, sdma-errors
//! expected  expected-receive, flow-generation, flow-sequence, header-suppression, kd-checksum
//! receive   loopback-packets, queue-wraps, queue-full, eager-full, qp-map, partition-keys, wrong-icrc, counters
//! interrupt every-vector, every-cause, mask-and-reraise, count-and-timer
//! error     clear-is-exact, hardware-error
//! special   freeze, reset, tail-dma, special-trigger, samples
//! ```

#![forbid(unsafe_code)]

mod around;
mod bench;
mod check;
mod context;
mod packet;
pub mod qemu;
mod ring;
mod scenarios;
mod wrong;

pub use around::{ByControl, InWorld, run_opened};
pub use check::{Check, Outcome};
pub use wrong::noticed_by;

use bench::Bench;
use qhca_driver::env::Backend;
use qhca_regs::Port;

/// What lies around a card and can do to it what it cannot do itself.
pub trait Surroundings {
    /// Lets `port` receive `packet` (LRH to last pad byte) with a wrong invariant CRC. `false`: cannot be done.
    fn deliver_with_wrong_icrc(&mut self, port: Port, packet: &[u8]) -> bool;

    /// Makes the hardware report a parity error between its blocks. `false`: cannot be done.
    fn raise_parity_error(&mut self) -> bool;

    /// Pushes the cable module of `port` into its cage, or pulls it out. `false`: cannot be done.
    fn plug_module(&mut self, port: Port, is_in: bool) -> bool;

    /// Lays a cable from the card's first port to its second, or puts back what was there before. Whoever cannot do that
    /// leaves it: the scenarios see how the ports are cabled.
    fn join_ports(&mut self, joined: bool);
}

/// Nothing: the card is alone.
#[derive(Clone, Copy, Debug)]
pub struct Alone;

impl Surroundings for Alone {
    fn deliver_with_wrong_icrc(&mut self, _: Port, _: &[u8]) -> bool {
        false
    }

    fn raise_parity_error(&mut self) -> bool {
        false
    }

    fn plug_module(&mut self, _: Port, _: bool) -> bool {
        false
    }

    fn join_ports(&mut self, _: bool) {}
}

/// How many scenarios there are; [`run`] gives as many checks.
pub fn count() -> usize {
    scenarios::names().count()
}

/// The names of the scenarios, in the order in which they run.
pub fn names() -> impl Iterator<Item = &'static str> {
    scenarios::names()
}

/// Runs every scenario on `device`. The card is reset before each and at the end.
pub fn run(device: impl Backend, surroundings: &mut dyn Surroundings) -> Vec<Check> {
    run_some(device, surroundings, |_| true)
}

/// Runs the scenarios of these names on `device`, as [`run`] does all.
pub fn run_some(
    device: impl Backend,
    surroundings: &mut dyn Surroundings,
    wanted: impl Fn(&str) -> bool,
) -> Vec<Check> {
    let mut bench = Bench::new(device, surroundings);
    let wanted = scenarios::all().into_iter().filter(|(name, _)| wanted(name));
    let checks = wanted.map(|(name, scenario)| Check::of(name, scenario(&mut bench))).collect();
    // The card must not write to memory that goes away with the bench. If it does not even reset, every check failed.
    let _ = bench.reset();
    checks
}
