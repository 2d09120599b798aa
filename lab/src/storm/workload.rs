//! What happens to the receiver from outside: packets at wire rate, one stall, and errors beyond those that the
//! overflow makes by itself.
//!
//! Every time here is drawn from a source of its own, so all policies under one seed meet the same arrivals, the same
//! stall and the same errors, whatever they do about them.

use qhca_regs::time::{Duration, Instant};
use qhca_sim::vtime::{Distribution, Engine, Rng};

use super::costs::Costs;
use super::kinds::Storm;

/// When each packet reaches the receiver's port.
#[derive(Clone, Debug)]
pub(super) struct Arrivals {
    rng: Rng,
    jitter: Distribution,
    wire: Duration,
    /// Where the next packet would arrive if nothing jittered.
    place: Instant,
    last: Instant,
}

impl Arrivals {
    /// Packets from `start` on, back to back.
    pub(super) fn new<E>(engine: &Engine<E>, costs: &Costs, start: Instant) -> Self {
        Self {
            rng: engine.source("wire"),
            jitter: Distribution::Uniform(Duration::ZERO, costs.wire_jitter.doubled()),
            wire: costs.wire,
            place: start,
            last: start,
        }
    }

    /// The next arrival. Packets keep their order, and the mean rate is the wire's whatever the jitter.
    pub(super) fn next_arrival(&mut self) -> Instant {
        let arrival = (self.place + self.jitter.draw(&mut self.rng)).max(self.last);
        self.place += self.wire;
        self.last = arrival;
        arrival
    }
}

/// An error that the chip is made to report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Injected {
    /// RcvEgrFullErr in the device's error word.
    EgrFull,
    /// SendArmLaunchErr in the device's error word.
    ArmLaunch,
    /// RcvICRCErr in the port's error word.
    Icrc,
    /// RcvHdrErr in the port's error word.
    Hdr,
}

/// Which error comes next in the storms that inject any.
#[derive(Clone, Debug)]
pub(super) struct Injector {
    storm: Storm,
    gap: Duration,
    burst: u64,
    count: u64,
}

impl Injector {
    /// The injector of `storm`.
    pub(super) const fn new(storm: Storm, costs: &Costs) -> Self {
        Self { storm, gap: costs.inject, burst: costs.burst_errors, count: 0 }
    }

    /// The next error and the time from it to the one after; `None` in a storm that makes its errors by itself.
    pub(super) fn next_error(&mut self) -> Option<(Injected, Duration)> {
        let n = self.count;
        self.count += 1;
        let error = match self.storm {
            Storm::EgrFull => return None,
            Storm::Alternate if n.is_multiple_of(2) => Injected::EgrFull,
            Storm::Alternate => Injected::ArmLaunch,
            Storm::Port if (n + 1).is_multiple_of(self.burst + 1) => Injected::Hdr,
            Storm::Port => Injected::Icrc,
        };
        Some((error, self.gap))
    }
}

/// When the stall begins: after the settling time, at a moment that no timer of the driver is in step with.
pub(super) fn stall_start<E>(engine: &Engine<E>, costs: &Costs, start: Instant) -> Instant {
    let phase = engine.source("stall").below(costs.settle.halved().as_nanos().max(1));
    start + costs.settle.halved() + Duration::from_nanos(phase)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storm::parameters;
    use qhca_sim::vtime::Seed;

    fn costs() -> Costs {
        Costs::from_parameters(&parameters()).expect("the file is complete")
    }

    #[test]
    fn arrivals_keep_their_order_and_the_wire_rate() {
        let engine: Engine<()> = Engine::new(Seed(4));
        let mut arrivals = Arrivals::new(&engine, &costs(), Instant::ZERO);
        let times: Vec<Instant> = (0..100_000).map(|_| arrivals.next_arrival()).collect();
        assert!(times.is_sorted());
        let last = times[times.len() - 1].as_nanos();
        let ideal = costs().wire.as_nanos() * (times.len() as u64 - 1);
        assert!(last - ideal <= 2 * costs().wire_jitter.as_nanos());
    }

    #[test]
    fn each_storm_injects_the_errors_of_its_name() {
        let first = |storm, n: usize| -> Vec<Option<Injected>> {
            let mut injector = Injector::new(storm, &Costs { burst_errors: 2, ..costs() });
            (0..n).map(|_| injector.next_error().map(|(error, _)| error)).collect()
        };
        assert_eq!(first(Storm::EgrFull, 1), [None]);
        use Injected::{ArmLaunch, EgrFull, Hdr, Icrc};
        assert_eq!(first(Storm::Alternate, 4), [EgrFull, ArmLaunch, EgrFull, ArmLaunch].map(Some));
        assert_eq!(first(Storm::Port, 6), [Icrc, Icrc, Hdr, Icrc, Icrc, Hdr].map(Some));
    }
}
