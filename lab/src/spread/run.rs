//! One run of one row under one policy.

use std::collections::VecDeque;

use qhca_regs::{Duration, Instant};
use qhca_sim::vtime::{Distribution, Engine, Rng, Seed};

use super::figures::{Figures, Row, Test};
use crate::policies::sched::hybrid::{INLINE_NS_MAX, INLINE_PACKETS_MAX};
use crate::policies::sched::steer::SteerMap;
use crate::policies::sched::{Arrival, CoreId, Placed, Spread};

/// What happens.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// A packet reaches the receive queue of its context's core.
    Arrives(Packet),
    /// A core has finished what it was at.
    Done { core: u16 },
    /// A core that was called begins.
    Called { core: u16 },
    /// The back end gives one more packet of a stream.
    Streams { qp: u16 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Packet {
    qp: u16,
    /// Its place in the order of arrival, of its queue pair.
    number: u64,
    /// Packets of the same operation after this one.
    left: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    Receive(Packet),
    Transport(Packet),
}

#[derive(Debug, Default)]
struct Core {
    /// Packets from the card.
    received: VecDeque<Packet>,
    /// Packets for queue pairs that live here, or are done here later.
    inbox: VecDeque<Packet>,
    at: Option<Work>,
    /// Called, and not there yet.
    coming: bool,
    inline_packets: u32,
    inline_ns: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Qp {
    waiting: u32,
    running: bool,
    next_number: u64,
    last_done: Option<u64>,
    begun: Instant,
}

/// What a run measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// In the row's own unit.
    pub value: f64,
    /// Operations a second.
    pub iops: f64,
    /// Mean latency of an operation in microseconds.
    pub latency_us: f64,
    /// Calls of other cores, an operation.
    pub calls_per_io: f64,
    /// Packets of a queue pair that were done out of order, in the whole run.
    pub reordered: u64,
    /// Fingerprint of the run.
    pub trace: u64,
    /// Events of the engine.
    pub delivered: u64,
}

struct World {
    engine: Engine<Event>,
    figures: Figures,
    test: Test,
    policy: Box<dyn Spread>,
    map: Option<SteerMap>,
    cores: Vec<Core>,
    qps: Vec<Qp>,
    chance: Rng,
    operations: u64,
    latency_ns: u64,
    calls: u64,
    reordered: u64,
}

/// The first number that a driver gives to a queue pair of a user: 0 and 1 are the management ones, 16 follow.
const FIRST_QPN: u32 = 17;

/// Runs `row` under `policy`.
pub fn run(row: &Row, figures: &Figures, policy: Box<dyn Spread>, seed: Seed) -> Measured {
    let engine = Engine::new(seed);
    let (qps, _) = row.test.load();
    let contexts: Vec<u8> = (0..figures.cores.min(32) as u8).collect();
    let mut world = World {
        chance: engine.source("cost"),
        engine,
        figures: *figures,
        test: row.test,
        map: policy.steers().then(|| SteerMap::spread(&contexts)),
        policy,
        cores: (0..figures.cores).map(|_| Core::default()).collect(),
        qps: vec![Qp::default(); qps as usize],
        operations: 0,
        latency_ns: 0,
        calls: 0,
        reordered: 0,
    };
    world.start();
    let begin = Instant::ZERO + figures.settle;
    world.run_until(begin);
    let before = (world.operations, world.latency_ns, world.calls);
    world.run_until(begin + figures.measure);
    world.measured(before)
}

impl World {
    fn start(&mut self) {
        let (qps, depth) = self.test.load();
        for qp in 0..qps as u16 {
            if self.test == Test::Seq {
                self.engine.schedule_in(Duration::ZERO, Event::Streams { qp });
                continue;
            }
            for _ in 0..depth {
                self.begin_operation(qp);
            }
        }
    }

    fn run_until(&mut self, end: Instant) {
        while let Some(event) = self.engine.pop_until(end) {
            match event {
                Event::Arrives(packet) => self.arrives(packet),
                Event::Done { core } => self.done(core),
                Event::Called { core } => {
                    self.cores[usize::from(core)].coming = false;
                    self.turn(core);
                }
                Event::Streams { qp } => self.streams(qp),
            }
        }
        self.engine.advance_to(end);
    }

    fn measured(&self, (operations, latency_ns, calls): (u64, u64, u64)) -> Measured {
        let done = (self.operations - operations) as f64;
        let iops = done / self.figures.measure.as_secs_f64();
        let latency_us = (self.latency_ns - latency_ns) as f64 / done.max(1.0) / 1e3;
        Measured {
            value: match self.test {
                Test::RandreadQd64Jobs4 => iops,
                Test::Seq => iops * self.test.bytes() as f64 / 1e6,
                Test::RandreadQd1 | Test::Pingpong4k | Test::Pingpong1m => latency_us,
            },
            iops,
            latency_us,
            calls_per_io: (self.calls - calls) as f64 / done.max(1.0),
            reordered: self.reordered,
            trace: self.engine.trace().value(),
            delivered: self.engine.delivered(),
        }
    }

    fn varied(&mut self, span: Duration) -> Duration {
        let spread = Duration::from_nanos((span.as_nanos() as f64 * self.figures.jitter) as u64);
        Distribution::Jitter(span, spread).draw(&mut self.chance)
    }

    /// The next operation of a queue pair: its first packet comes after the time away.
    fn begin_operation(&mut self, qp: u16) {
        let after = self.varied(self.figures.away) + self.figures.between;
        let left = self.test.packets() - 1;
        self.send(qp, left, after);
    }

    fn send(&mut self, qp: u16, left: u32, after: Duration) {
        let number = 0;
        self.engine.schedule_in(after, Event::Arrives(Packet { qp, number, left }));
    }

    /// The back end gives packets at its own pace, shared by all streams, as long as few wait.
    fn streams(&mut self, qp: u16) {
        let (qps, depth) = self.test.load();
        let pace = self.varied(self.figures.between.times(u64::from(qps)));
        self.engine.schedule_in(pace, Event::Streams { qp });
        let one = self.qps[usize::from(qp)];
        let behind = one.next_number - one.last_done.map_or(0, |done| done + 1);
        if behind < u64::from(depth * self.test.packets()) {
            let left = self.test.packets() - 1 - (one.next_number % u64::from(self.test.packets())) as u32;
            self.send(qp, left, Duration::ZERO);
        }
    }

    fn qpn(qp: u16) -> u32 {
        FIRST_QPN + u32::from(qp)
    }

    fn arrives(&mut self, mut packet: Packet) {
        let one = &mut self.qps[usize::from(packet.qp)];
        packet.number = one.next_number;
        one.next_number += 1;
        let context = self.map.map_or(0, |map| map.context(Self::qpn(packet.qp)));
        let core = u16::from(context) % self.figures.cores;
        self.cores[usize::from(core)].received.push_back(packet);
        self.wake(core, Duration::ZERO);
    }

    /// Lets a core begin if it is idle.
    fn wake(&mut self, core: u16, after: Duration) {
        let one = &mut self.cores[usize::from(core)];
        if one.at.is_some() || one.coming {
            return;
        }
        one.coming = true;
        self.engine.schedule_in(after, Event::Called { core });
    }

    /// What a core does next: the card's packets before its inbox, as soft interrupts come in that order.
    fn turn(&mut self, core: u16) {
        let one = &mut self.cores[usize::from(core)];
        if one.at.is_some() {
            return;
        }
        if let Some(packet) = one.received.pop_front() {
            let cost = self.varied(self.figures.receive);
            return self.begin(core, Work::Receive(packet), cost);
        }
        one.inline_packets = 0;
        one.inline_ns = 0;
        if let Some(packet) = one.inbox.pop_front() {
            self.qps[usize::from(packet.qp)].running = true;
            let cost = self.varied(self.figures.transport) + self.figures.inbox;
            self.begin(core, Work::Transport(packet), cost);
        }
    }

    fn begin(&mut self, core: u16, work: Work, cost: Duration) {
        self.cores[usize::from(core)].at = Some(work);
        self.engine.schedule_in(cost, Event::Done { core });
    }

    fn done(&mut self, core: u16) {
        match self.cores[usize::from(core)].at.take() {
            Some(Work::Receive(packet)) => self.place(core, packet),
            Some(Work::Transport(packet)) => {
                self.finish(core, packet);
                self.turn(core);
            }
            None => self.turn(core),
        }
    }

    /// The policy's decision for one packet.
    fn place(&mut self, core: u16, packet: Packet) {
        let qpn = Self::qpn(packet.qp);
        let owner = self.policy.owner(qpn);
        let here = &self.cores[usize::from(core)];
        let there = &self.cores[usize::from(owner.0)];
        let one = self.qps[usize::from(packet.qp)];
        let arrival = Arrival {
            qpn,
            here: CoreId(core),
            owner,
            backlog: one.waiting,
            task_idle: !one.running && one.waiting == 0,
            owner_asleep: there.at.is_none() && there.inbox.is_empty() && !there.coming,
            is_read_request: false,
            inline_packets: here.inline_packets,
            inline_ns: here.inline_ns,
        };
        self.qps[usize::from(packet.qp)].waiting += 1;
        match self.policy.place(&arrival) {
            Placed::Inline => {
                let cost = self.varied(self.figures.transport) + self.figures.inline;
                let here = &mut self.cores[usize::from(core)];
                here.inline_packets = (here.inline_packets + 1).min(INLINE_PACKETS_MAX);
                here.inline_ns = (here.inline_ns + cost.as_nanos()).min(INLINE_NS_MAX);
                self.qps[usize::from(packet.qp)].running = true;
                self.begin(core, Work::Transport(packet), cost);
            }
            Placed::Hand { to, wake } => self.hand(core, to, wake, packet),
        }
    }

    fn hand(&mut self, core: u16, to: CoreId, wake: bool, packet: Packet) {
        self.cores[usize::from(to.0)].inbox.push_back(packet);
        self.engine.record("hand", [u64::from(packet.qp) << 32 | u64::from(to.0), packet.number]);
        if to.0 == core || !wake {
            if to.0 != core {
                // Whoever runs the task, or is called already, takes it in the same turn.
                self.wake(to.0, self.figures.hop);
            }
            return self.turn(core);
        }
        self.calls += 1;
        self.wake(to.0, self.figures.hop);
        // The calling core spends its part of the hop before it goes on.
        let one = &mut self.cores[usize::from(core)];
        one.coming = true;
        self.engine.schedule_in(self.figures.call, Event::Called { core });
    }

    fn finish(&mut self, _core: u16, packet: Packet) {
        let now = self.engine.now();
        let one = &mut self.qps[usize::from(packet.qp)];
        one.waiting -= 1;
        one.running = false;
        if one.last_done.is_some_and(|last| last > packet.number) {
            self.reordered += 1;
        }
        one.last_done = Some(one.last_done.map_or(packet.number, |last| last.max(packet.number)));
        self.engine.record("done", [u64::from(packet.qp), packet.number]);
        if packet.left == 0 {
            self.operations += 1;
            let (begun, _) = (one.begun, one.begun = now);
            self.latency_ns += (now - begun).as_nanos();
        }
        if self.test == Test::Seq {
            return;
        }
        match packet.left {
            0 => self.begin_operation(packet.qp),
            left => {
                let after = self.varied(self.figures.between);
                self.send(packet.qp, left - 1, after);
            }
        }
    }
}
