//! One run of one cell under one policy.

use qhca_regs::{Duration, Instant};
use qhca_sim::vtime::{Distribution, Engine, Rng, Seed};

use super::figures::{Figures, Row};
use crate::policies::replenish::{Replenish, Session};

/// What happens.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// The target has a response.
    Ready,
    /// The target's wait after an RNR NAK is over.
    Retry,
    /// The core is done with a response.
    Handled,
    /// The core stands still from here on.
    Stall,
}

/// What a run measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// Operations a second.
    pub iops: f64,
    /// Post calls an operation.
    pub posts_per_io: f64,
    /// RNR NAKs in the whole run.
    pub rnr_naks: u64,
    /// Mean latency in microseconds, by Little's law.
    pub latency_us: f64,
    /// Buffers that the policy needs.
    pub buffers: u32,
    /// Fingerprint of the run.
    pub trace: u64,
    /// Events of the engine.
    pub delivered: u64,
}

struct World {
    engine: Engine<Event>,
    figures: Figures,
    policy: Box<dyn Replenish>,
    cost: (Distribution, Rng),
    target: (Distribution, Rng),
    stalls: Rng,
    /// Responses that the target wants to send.
    ready: u32,
    waiting_to_retry: bool,
    /// Buffers that the device holds.
    posted: u32,
    /// Responses in the completion queue.
    arrived: u32,
    in_flight: u32,
    handled_in_turn: u32,
    busy: bool,
    stalled_until: Instant,
    handled: u64,
    posts: u64,
    rnr_naks: u64,
}

/// Runs `row` under the policy that `make` makes for a session.
pub fn run(
    row: &Row,
    figures: &Figures,
    make: impl Fn(Session) -> Box<dyn Replenish>,
    seed: Seed,
) -> Measured {
    let session = Session { commands: row.outstanding, unsolicited: figures.unsolicited };
    let engine = Engine::new(seed);
    let mut world = World {
        cost: (Distribution::Jitter(figures.cost, figures.spread), engine.source("cost")),
        target: (Distribution::Jitter(figures.target, figures.target_spread), engine.source("target")),
        stalls: engine.source("stalls"),
        engine,
        figures: *figures,
        policy: make(session),
        ready: 0,
        waiting_to_retry: false,
        posted: 0,
        arrived: 0,
        in_flight: 0,
        handled_in_turn: 0,
        busy: false,
        stalled_until: Instant::ZERO,
        handled: 0,
        posts: 0,
        rnr_naks: 0,
    };
    world.login(row.outstanding);
    let begin = Instant::ZERO + figures.settle;
    world.run_until(begin);
    let (handled, posts) = (world.handled, world.posts);
    world.run_until(begin + figures.measure);
    let operations = (world.handled - handled) as f64;
    let iops = operations / figures.measure.as_secs_f64();
    Measured {
        iops,
        posts_per_io: (world.posts - posts) as f64 / operations.max(1.0),
        rnr_naks: world.rnr_naks,
        latency_us: f64::from(row.outstanding) / iops * 1e6,
        buffers: world.policy.buffers(),
        trace: world.engine.trace().value(),
        delivered: world.engine.delivered(),
    }
}

impl World {
    /// All buffers are posted, then all commands launched.
    fn login(&mut self, commands: u32) {
        let buffers = self.policy.buffers();
        self.policy.posted(buffers);
        self.posted = buffers;
        for _ in 0..commands {
            self.launch();
        }
        self.next_stall();
    }

    fn run_until(&mut self, end: Instant) {
        while let Some(event) = self.engine.pop_until(end) {
            match event {
                Event::Ready => {
                    self.ready += 1;
                    self.send();
                }
                Event::Retry => {
                    self.waiting_to_retry = false;
                    self.send();
                }
                Event::Handled => self.handled(),
                Event::Stall => self.stall(),
            }
        }
        self.engine.advance_to(end);
    }

    fn launch(&mut self) {
        self.in_flight += 1;
        let after = self.target.0.draw(&mut self.target.1);
        self.engine.schedule_in(after, Event::Ready);
    }

    /// The target sends what it has, in order; without a buffer it is told to wait.
    fn send(&mut self) {
        while self.ready > 0 && !self.waiting_to_retry {
            if self.posted == 0 {
                self.rnr_naks += 1;
                self.waiting_to_retry = true;
                self.engine.record("rnr", [u64::from(self.ready), 0]);
                self.engine.schedule_in(self.figures.rnr_wait, Event::Retry);
                return;
            }
            self.posted -= 1;
            self.ready -= 1;
            self.arrived += 1;
        }
        if !self.busy && self.arrived > 0 {
            self.handled_in_turn = 0;
            self.begin(Duration::ZERO);
        }
    }

    /// The core begins with the next response, after what it still owes.
    fn begin(&mut self, owed: Duration) {
        self.busy = true;
        self.arrived -= 1;
        let from = self.engine.now().max(self.stalled_until) + owed;
        let cost = self.cost.0.draw(&mut self.cost.1);
        self.engine.schedule(from + cost, Event::Handled);
    }

    /// A response was consumed: post, hand its slot up, launch the next command.
    fn handled(&mut self) {
        self.handled += 1;
        self.handled_in_turn += 1;
        self.engine.record("handled", [u64::from(self.posted), u64::from(self.arrived)]);
        let mut owed = Duration::ZERO;
        let post = self.policy.on_response();
        owed += self.post(post);
        self.in_flight -= 1;
        let post = self.policy.before_hand_up(self.in_flight);
        owed += self.post(post);
        let post = self.policy.before_launch(self.in_flight);
        owed += self.post(post);
        self.launch();
        if self.handled_in_turn == self.figures.batch || self.arrived == 0 {
            self.handled_in_turn = 0;
            let post = self.policy.at_turn_end();
            owed += self.post(post);
        }
        self.busy = false;
        if self.arrived > 0 {
            self.begin(owed);
        }
    }

    fn post(&mut self, buffers: u32) -> Duration {
        if buffers == 0 {
            return Duration::ZERO;
        }
        self.posts += 1;
        self.posted += buffers;
        self.policy.posted(buffers);
        self.figures.post + self.figures.wr.times(u64::from(buffers))
    }

    fn next_stall(&mut self) {
        if self.figures.stall_gap > Duration::ZERO {
            let after = self.stalls.exponential(self.figures.stall_gap);
            self.engine.schedule_in(after, Event::Stall);
        }
    }

    fn stall(&mut self) {
        let span = self.stalls.between(self.figures.stall_min.as_nanos(), self.figures.stall_max.as_nanos());
        self.stalled_until = self.engine.now() + Duration::from_nanos(span);
        self.next_stall();
    }
}
