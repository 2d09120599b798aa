//! Sample counters: five counters of a port over one stretch of time, as performance management asks for them.
//!
//! ```text
//!   PSInterval := n   PSStart := w          PSStat
//!        |-------- w ticks --------|-------- n ticks --------|
//!        1 waiting                 2 sampling                0 done, PS...Count hold the difference
//! ```
//!
//! A write to `PSStart` starts a sample, also over one that runs (F-430). `PSXmitWait` counts what `TxFlowStallCnt`
//! counts.

use super::wrong::WrongChip;
use super::{Chip, counter};
use qhca_regs::access::PortReg;
use qhca_regs::map::counter as row;
use qhca_regs::{Duration, Instant, Port, Rw};

/// The clock of 250 MHz that the management ticks are derived from.
const TICK: Duration = Duration::from_nanos(4);
const KINDS: usize = 5;

/// What is sampled, in the order of the sample counters.
const SOURCES: [PortReg<u64, Rw>; KINDS] = [
    row::RX_DWORD_CNT,
    row::RX_DATA_PKT_CNT,
    row::TX_DWORD_CNT,
    row::TX_DATA_PKT_CNT,
    row::TX_FLOW_STALL_CNT,
];
const FIRST: u32 = row::PS_RCV_DATA_COUNT.port(Port::P0).offset();
const LAST: u32 = row::PS_XMIT_WAIT_COUNT.port(Port::P0).offset();

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Done,
    Waiting {
        from: Instant,
        to: Instant,
    },
    Sampling {
        to: Instant,
    },
}

/// One port's sampling.
#[derive(Clone, Copy, Default)]
pub(super) struct Sampler {
    interval_ticks: u32,
    phase: Phase,
    /// The sources when sampling began, and what came of it.
    base: [u64; KINDS],
    held: [u64; KINDS],
}

impl Sampler {
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        match self.phase {
            Phase::Done => None,
            Phase::Waiting { from, .. } => Some(from),
            Phase::Sampling { to } => Some(to),
        }
    }

    /// `PSStat`.
    fn status(&self) -> u64 {
        match self.phase {
            Phase::Done => 0,
            Phase::Waiting { .. } => 1,
            Phase::Sampling { .. } => 2,
        }
    }
}

impl Chip {
    pub(super) fn write_ps_interval(&mut self, port: Port, value: u64) {
        self.samplers[port.index()].interval_ticks = value as u32;
    }

    pub(super) fn write_ps_start(&mut self, port: Port, value: u64, now: Instant) {
        let sampler = &mut self.samplers[port.index()];
        let from = now + TICK.times(u64::from(value as u32));
        let to = from + TICK.times(u64::from(sampler.interval_ticks));
        sampler.phase = Phase::Waiting { from, to };
        sampler.held = [0; KINDS];
        self.advance_samples(port, now);
    }

    /// Begins and ends the sample of `port` as is due.
    pub(super) fn advance_samples(&mut self, port: Port, now: Instant) {
        if let Phase::Waiting { from, to } = self.samplers[port.index()].phase
            && from <= now
        {
            self.samplers[port.index()].base = self.sources(port);
            self.samplers[port.index()].phase = Phase::Sampling { to };
        }
        if let Phase::Sampling { to } = self.samplers[port.index()].phase
            && to <= now
        {
            self.samplers[port.index()].held = self.sampled(port);
            self.samplers[port.index()].phase = Phase::Done;
        }
    }

    fn sources(&self, port: Port) -> [u64; KINDS] {
        SOURCES.map(|source| self.counters.get(source, port))
    }

    fn sampled(&self, port: Port) -> [u64; KINDS] {
        let sampler = &self.samplers[port.index()];
        match sampler.phase {
            _ if self.config.wrong.has(WrongChip::SamplesStandStill) => [0; KINDS],
            Phase::Sampling { .. } => {
                let now = self.sources(port);
                std::array::from_fn(|kind| now[kind].wrapping_sub(sampler.base[kind]))
            }
            Phase::Done | Phase::Waiting { .. } => sampler.held,
        }
    }

    pub(super) fn read_ps_stat(&mut self, port: Port, now: Instant) -> u64 {
        self.advance_samples(port, now);
        self.samplers[port.index()].status()
    }

    /// A counter, or a sample counter, as it reads.
    pub(super) fn read_counter(&mut self, offset: u32, now: Instant) -> u64 {
        for port in Port::ALL {
            let place = offset.wrapping_sub(qhca_regs::access::PORT_STRIDE_BYTES * port.index() as u32);
            if (FIRST..=LAST).contains(&place) {
                self.advance_samples(port, now);
                return self.sampled(port)[((place - FIRST) / 8) as usize] & 0xFFFF_FFFF;
            }
        }
        debug_assert!((counter::START..counter::END).contains(&offset));
        self.counters.read(offset, self.config.wrong)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::Bench;
    use super::*;
    use qhca_regs::map::port;

    const P: Port = Port::P1;

    fn counts(bench: &mut Bench) -> Vec<u64> {
        (FIRST..=LAST)
            .step_by(8)
            .map(|offset| bench.read(offset + qhca_regs::access::PORT_STRIDE_BYTES))
            .collect()
    }

    fn move_on(bench: &mut Bench) {
        for (n, source) in SOURCES.into_iter().enumerate() {
            bench.chip.counters.bump_port(source, P, n as u64 + 1);
        }
    }

    #[test]
    fn sample_waits_then_counts_then_holds() {
        let mut bench = Bench::new();
        let stat = port::PS_STAT.port(P).offset();
        bench.write(port::PS_INTERVAL.port(P).offset(), 100);
        bench.write(port::PS_START.port(P).offset(), 50);
        move_on(&mut bench);
        assert_eq!((bench.read(stat), counts(&mut bench)), (1, vec![0; KINDS]));
        bench.pass(Duration::from_nanos(200));
        move_on(&mut bench);
        assert_eq!((bench.read(stat), counts(&mut bench)), (2, vec![1, 2, 3, 4, 5]));
        assert_eq!(bench.chip.next_deadline(), Some(bench.now + Duration::from_nanos(400)));
        bench.pass(Duration::from_nanos(400));
        move_on(&mut bench);
        assert_eq!((bench.read(stat), counts(&mut bench)), (0, vec![1, 2, 3, 4, 5]));
    }

    #[test]
    fn other_port_is_not_sampled_and_a_new_start_begins_anew() {
        let mut bench = Bench::new();
        bench.write(port::PS_INTERVAL.port(P).offset(), 1000);
        bench.write(port::PS_START.port(P).offset(), 0);
        move_on(&mut bench);
        assert_eq!(bench.read(port::PS_STAT.port(Port::P0).offset()), 0);
        assert_eq!(bench.read(FIRST), 0);
        bench.write(port::PS_START.port(P).offset(), 0);
        assert_eq!(counts(&mut bench), [0; KINDS]);
    }
}
