//! One run of one cell under one policy, and what came out.

use qhca_irq::moderation::cq::{Decision, Factory};
use qhca_regs::Instant;
use qhca_sim::vtime::Seed;

use super::figures::Figures;
use super::row::Row;
use super::world::{Counts, World};

/// What is left out to show that it matters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ablation {
    /// Nothing.
    #[default]
    None,
    /// The stage serves messages in the order of their posting.
    FifoLink,
    /// No jitter anywhere, and everything starts at once.
    Regular,
}

/// One cell with one policy.
#[derive(Clone, Copy, Debug)]
pub struct Cell {
    /// The cell.
    pub row: Row,
    /// What is assumed.
    pub figures: Figures,
    /// What is left out.
    pub ablation: Ablation,
}

/// What a run measured; sums over both hosts are halved, so that all figures are one host's.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// Exchanges a second.
    pub iops: f64,
    /// Completion events a second.
    pub events_per_s: f64,
    /// Events an exchange.
    pub events_per_io: f64,
    /// Events that found nothing, as a part of all.
    pub empty_share: f64,
    /// Mean latency of an exchange in microseconds, by Little's law.
    pub latency_us: f64,
    /// Part of the time in which receive queues, and send queues, were spaced by 16 µs or more.
    pub spaced_shares: [f64; 2],
    /// Changes of moderation a second and queue.
    pub changes_per_s_cq: f64,
    /// Fingerprint of the run.
    pub trace: u64,
    /// Events of the engine.
    pub delivered: u64,
    /// The decisions that policies keep: host, policy, decision.
    pub decisions: Vec<(u8, u16, Decision)>,
}

impl Cell {
    /// Runs it.
    pub fn run(&self, make: Factory, seed: Seed) -> Measured {
        let mut world = World::new(self.row, self.figures, make, self.ablation, seed);
        let begin = Instant::ZERO + self.figures.settle;
        world.run_until(begin);
        let before = world.counts;
        let _ = world.spaced_shares(begin);
        world.run_until(begin + self.figures.measure);
        let spaced_shares = world.spaced_shares(begin);
        Measured { spaced_shares, ..self.measured(&world, before) }
    }

    fn measured(&self, world: &World, before: Counts) -> Measured {
        let seconds = self.figures.measure.as_secs_f64();
        let counts = world.counts;
        let a_second = |now: u64, then: u64| (now - then) as f64 / 2.0 / seconds;
        let iops = a_second(counts.exchanges, before.exchanges);
        let events = a_second(counts.events, before.events);
        let under_way = f64::from(self.row.qps) * f64::from(self.row.threads) * f64::from(self.row.depth);
        let logs = world.policies.iter().zip(0_u8..).flat_map(|(policies, host)| {
            policies.iter().zip(0_u16..).filter_map(move |(policy, n)| Some((host, n, policy.decisions()?)))
        });
        Measured {
            iops,
            events_per_s: events,
            events_per_io: events / iops,
            empty_share: (counts.empty_events - before.empty_events) as f64
                / (counts.events - before.events).max(1) as f64,
            spaced_shares: [0.0; 2],
            latency_us: under_way / iops * 1e6,
            changes_per_s_cq: a_second(counts.changes, before.changes) / (2.0 * f64::from(self.row.qps)),
            trace: world.engine.trace().value(),
            delivered: world.engine.delivered(),
            decisions: logs.flat_map(|(host, n, log)| log.iter().map(move |one| (host, n, *one))).collect(),
        }
    }
}
