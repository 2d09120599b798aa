//! The machine of the experiment: events, and what each does.

use qhca_irq::moderation::cq::{CqModeration, Drain, Factory, Pass};
use qhca_regs::{Duration, Instant};
use qhca_sim::vtime::{Engine, Rng, Seed};

use super::figures::Figures;
use super::host::{Cq, Entry, Host, Process, VectorCore};
use super::row::Row;
use super::run::Ablation;
use super::stage::{Kind, Left, Message, Stage};

/// What happens.
#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    /// A work request has left the stage.
    Left { host: u8 },
    /// An armed queue is announced.
    Fires { host: u8, cq: u16 },
    /// A vector's core looks at the queue that waits longest.
    Drains { host: u8, core: u16 },
    /// A message reaches a process.
    Delivered { host: u8, message: Message },
    /// A process is done with its oldest message.
    Answered { host: u8, process: u16 },
    /// A policy's change is written.
    Applies { host: u8, policy: u16 },
    /// A request that starts the loop.
    Starts { host: u8, message: Message },
}

/// What is counted.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) exchanges: u64,
    pub(super) events: u64,
    pub(super) empty_events: u64,
    pub(super) changes: u64,
    pub(super) completions: u64,
}

pub(super) struct World {
    pub(super) engine: Engine<Event>,
    pub(super) hosts: [Host; 2],
    pub(super) policies: [Vec<Box<dyn CqModeration>>; 2],
    pub(super) counts: Counts,
    figures: Figures,
    row: Row,
    wire: [Rng; 2],
    work: [Rng; 2],
}

/// A drain looks no further ahead than a message takes at least: what is sent meanwhile cannot have arrived.
const LOOK_AHEAD_SHARE: u64 = 2;
/// Requests of the start are spread over this time.
const START_SPREAD: Duration = Duration::from_micros(200);

impl World {
    pub(super) fn new(row: Row, figures: Figures, make: Factory, ablation: Ablation, seed: Seed) -> Self {
        let engine = Engine::new(seed);
        let mut world = Self {
            hosts: ["stage 0", "stage 1"]
                .map(|name| Self::host(&row, &figures, ablation, engine.source(name))),
            policies: [Vec::new(), Vec::new()],
            counts: Counts::default(),
            wire: [engine.source("wire 0"), engine.source("wire 1")],
            work: [engine.source("work 0"), engine.source("work 1")],
            engine,
            figures,
            row,
        };
        if ablation == Ablation::Regular {
            world.figures.jitter = Duration::ZERO;
            world.figures.app_spread = Duration::ZERO;
            world.figures.stage_spread_per_mille = 0;
        }
        world.add_policies(make);
        world.start(ablation);
        world
    }

    fn host(row: &Row, figures: &Figures, ablation: Ablation, chance: Rng) -> Host {
        let qps = row.qps as usize;
        let cq = |place: usize| Cq::new((place % figures.vectors as usize) as u16, 0);
        Host {
            stage: Stage::new(row.qps, ablation == Ablation::FifoLink, chance),
            // The queues of one queue pair take neighbouring vectors, as they are made one after the other.
            cqs: (0..qps).map(|qp| cq(2 * qp)).chain((0..qps).map(|qp| cq(2 * qp + 1))).collect(),
            cores: (0..figures.vectors).map(|_| VectorCore::default()).collect(),
            processes: (0..row.threads).map(|_| Process::default()).collect(),
            requests: vec![0; qps],
            sends: vec![0; qps],
            last_arrival: vec![Instant::ZERO; qps],
            last_ack: vec![Instant::ZERO; qps],
        }
    }

    /// One policy a queue, or one a vector for those that share.
    fn add_policies(&mut self, make: Factory) {
        let shares = make().shared_by_vector();
        for (host, policies) in self.hosts.iter_mut().zip(&mut self.policies) {
            let mut queues_of = vec![0; host.cores.len()];
            let mut place_of = vec![None; host.cores.len()];
            for cq in &mut host.cqs {
                let vector = usize::from(cq.vector);
                let known = if shares { place_of[vector] } else { None };
                let place = known.unwrap_or_else(|| {
                    policies.push(make());
                    policies.len() - 1
                });
                place_of[vector] = Some(place);
                queues_of[vector] += 1;
                cq.policy = place as u16;
                cq.rule = policies[place].rule();
            }
            if shares {
                for (place, queues) in place_of.iter().zip(queues_of) {
                    if let Some(place) = place {
                        policies[*place].serve_queues(queues);
                    }
                }
            }
        }
    }

    fn start(&mut self, ablation: Ablation) {
        let mut when = self.engine.source("start");
        for host in 0..2_u8 {
            for process in 0..self.row.threads as u16 {
                for qp in 0..self.row.qps as u16 {
                    for _ in 0..self.row.depth {
                        let at = match ablation {
                            Ablation::Regular => Duration::ZERO,
                            _ => Duration::from_nanos(when.below(START_SPREAD.as_nanos())),
                        };
                        let message = Message { kind: Kind::Request, process, qp };
                        self.engine.schedule_in(at, Event::Starts { host, message });
                    }
                }
            }
        }
    }

    /// Runs until `end`.
    pub(super) fn run_until(&mut self, end: Instant) {
        while let Some(event) = self.engine.pop_until(end) {
            match event {
                Event::Left { host } => self.left(host),
                Event::Fires { host, cq } => self.fires(host, cq),
                Event::Drains { host, core } => self.drains(host, core),
                Event::Delivered { host, message } => self.delivered(host, message),
                Event::Answered { host, process } => self.answered(host, process),
                Event::Applies { host, policy } => self.applies(host, policy),
                Event::Starts { host, message } => self.post(host, message),
            }
        }
        self.engine.advance_to(end);
    }

    fn post(&mut self, host: u8, message: Message) {
        let now = self.engine.now();
        let one = &mut self.hosts[usize::from(host)];
        let qp = usize::from(message.qp);
        one.sends[qp] += 1;
        let bytes = match message.kind {
            Kind::Request => {
                one.requests[qp] += 1;
                self.row.req
            }
            Kind::Ack => self.row.ack,
        };
        if let Some(at) = one.stage.post(message, bytes, &self.figures, now) {
            self.engine.schedule(at, Event::Left { host });
        }
    }

    /// A work request left: if it was a message's last, completions come at both ends.
    fn left(&mut self, host: u8) {
        let now = self.engine.now();
        let (left, next) = self.hosts[usize::from(host)].stage.left(&self.figures, now);
        if let Some(at) = next {
            self.engine.schedule(at, Event::Left { host });
        }
        let Left::Whole(message) = left else { return };
        let qp = usize::from(message.qp);
        let extra = match self.figures.jitter {
            Duration::ZERO => Duration::ZERO,
            mean => self.wire[usize::from(host)].exponential(mean),
        };
        let one = &mut self.hosts[usize::from(host)];
        let arrival = (now + self.figures.one_way + extra).max(one.last_arrival[qp]);
        one.last_arrival[qp] = arrival;
        let acked = (arrival + self.figures.one_way).max(one.last_ack[qp]);
        one.last_ack[qp] = acked;
        let bytes = if message.kind == Kind::Request { self.row.req } else { self.row.ack };
        let cqes = self.figures.fragments(bytes);
        self.push(1 - host, qp, Entry { at: arrival, cqes, message: Some(message) });
        self.push(host, self.row.qps as usize + qp, Entry { at: acked, cqes: 1, message: None });
    }

    fn push(&mut self, host: u8, cq: usize, entry: Entry) {
        let queue = &mut self.hosts[usize::from(host)].cqs[cq];
        queue.entries.push_back(entry);
        if queue.armed.is_some() && queue.timer.is_none_or(|(_, at)| at > entry.at) {
            self.set_timer(host, cq);
        }
    }

    /// Schedules the announcement of a queue, by what is known now.
    fn set_timer(&mut self, host: u8, cq: usize) {
        let qps = self.row.qps as usize;
        let one = &mut self.hosts[usize::from(host)];
        let possible = if cq < qps { u32::MAX } else { one.sends[cq - qps] };
        let queue = &mut one.cqs[cq];
        let due = queue.fires_at(possible);
        match (queue.timer, due) {
            (Some((_, set)), Some(at)) if set == at => return,
            (Some((timer, _)), _) => {
                self.engine.cancel(timer);
            }
            (None, _) => {}
        }
        queue.timer = due.map(|at| (self.engine.schedule(at, Event::Fires { host, cq: cq as u16 }), at));
    }

    fn fires(&mut self, host: u8, cq: u16) {
        let now = self.engine.now();
        let one = &mut self.hosts[usize::from(host)];
        let queue = &mut one.cqs[usize::from(cq)];
        queue.timer = None;
        queue.armed = None;
        queue.last_event = now;
        one.stage.take(self.figures.event, now);
        self.counts.events += 1;
        let core = &mut one.cores[usize::from(queue.vector)];
        core.waiting.push_back(cq);
        let core_number = queue.vector;
        self.run_core(host, core_number);
    }

    fn run_core(&mut self, host: u8, number: u16) {
        let core = &mut self.hosts[usize::from(host)].cores[usize::from(number)];
        if core.scheduled || core.waiting.is_empty() {
            return;
        }
        core.scheduled = true;
        let at = core.free_at.max(self.engine.now()) + self.figures.interrupt;
        self.engine.schedule(at, Event::Drains { host, core: number });
    }

    /// Drain, arm, drain again, and tell the policy after each.
    fn drains(&mut self, host: u8, number: u16) {
        let begun = self.engine.now();
        let place = usize::from(host);
        let core = &mut self.hosts[place].cores[usize::from(number)];
        core.scheduled = false;
        let Some(cq) = core.waiting.pop_front() else { return };
        let cq = usize::from(cq);
        let (first, at) = self.look(host, cq, begun, begun);
        self.tell(host, cq, first, Pass::BeforeRearm, at);
        let armed_at = at + self.figures.rearm;
        self.hosts[place].cqs[cq].arm(armed_at);
        let (second, end) = self.look(host, cq, armed_at, begun);
        self.tell(host, cq, second, Pass::AfterRearm, end);
        self.counts.empty_events += u64::from(first + second == 0);
        self.counts.completions += u64::from(first + second);
        self.engine
            .record("drain", [u64::from(host) << 32 | cq as u64, u64::from(first) << 32 | u64::from(second)]);
        self.set_timer(host, cq);
        let core = &mut self.hosts[place].cores[usize::from(number)];
        core.free_at = end;
        core.busy += end - begun + self.figures.interrupt;
        self.run_core(host, number);
    }

    /// Takes what has come while it looks; returns the completions and when it was done.
    fn look(&mut self, host: u8, cq: usize, from: Instant, begun: Instant) -> (u32, Instant) {
        let mut at = from;
        let mut taken = 0;
        let limit = begun + Duration::from_nanos(self.figures.one_way.as_nanos() / LOOK_AHEAD_SHARE);
        let qps = self.row.qps as usize;
        // What comes later than a message takes at least is left to the next event.
        while at <= limit {
            let one = &mut self.hosts[usize::from(host)];
            let queue = &mut one.cqs[cq];
            let Some(entry) = queue.take(at) else { break };
            taken += entry.cqes;
            match entry.message {
                None => {
                    at += self.figures.send;
                    one.sends[cq - qps] -= 1;
                    queue.finished += 1;
                }
                Some(message) => {
                    at += self.figures.receive.times(u64::from(entry.cqes));
                    if message.kind == Kind::Ack {
                        one.requests[cq] -= 1;
                        queue.finished += 1;
                    }
                    self.engine.schedule(at, Event::Delivered { host, message });
                }
            }
        }
        (taken, at)
    }

    /// Tells the queue's policy what a drain found, and sees to its answer.
    fn tell(&mut self, host: u8, cq: usize, completions: u32, pass: Pass, at: Instant) {
        let qps = self.row.qps as usize;
        let one = &mut self.hosts[usize::from(host)];
        let in_flight = if cq < qps { one.requests[cq] } else { one.sends[cq - qps] };
        let queue = &mut one.cqs[cq];
        let finished = match pass {
            Pass::BeforeRearm => 0,
            Pass::AfterRearm => std::mem::take(&mut queue.finished),
        };
        let policy = queue.policy;
        let drain = Drain { completions, pass, in_flight, finished };
        let wanted = self.policies[usize::from(host)][usize::from(policy)].on_drain(drain, at);
        if wanted.is_some() {
            self.engine.schedule(at + self.figures.apply, Event::Applies { host, policy });
        }
    }

    fn applies(&mut self, host: u8, policy: u16) {
        let now = self.engine.now();
        let place = usize::from(host);
        let controller = &mut self.policies[place][usize::from(policy)];
        controller.applied(now);
        let rule = controller.rule();
        for cq in 0..self.hosts[place].cqs.len() {
            let one = &mut self.hosts[place];
            if one.cqs[cq].policy != policy {
                continue;
            }
            one.cqs[cq].set_rule(rule, now);
            one.stage.take(self.figures.change, now);
            self.counts.changes += 1;
            self.set_timer(host, cq);
        }
    }

    /// Parts of the time since `since` in which receive queues and send queues were widely spaced.
    pub(super) fn spaced_shares(&mut self, since: Instant) -> [f64; 2] {
        let now = self.engine.now();
        let qps = self.row.qps as usize;
        let mut spaced = [Duration::ZERO; 2];
        for host in &mut self.hosts {
            for (place, cq) in host.cqs.iter_mut().enumerate() {
                cq.set_rule(cq.rule, now);
                spaced[usize::from(place >= qps)] += std::mem::take(&mut cq.spaced);
            }
        }
        let all = (now - since).as_secs_f64() * 2.0 * f64::from(self.row.qps);
        spaced.map(|span| span.as_secs_f64() / all.max(f64::MIN_POSITIVE))
    }

    fn delivered(&mut self, host: u8, message: Message) {
        // A request goes to the process of the same number at the other end.
        let process = message.process;
        let one = &mut self.hosts[usize::from(host)].processes[usize::from(process)];
        one.inbox.push_back(message);
        if !one.awake {
            one.awake = true;
            let cost = self.figures.wake + self.cost(host);
            self.engine.schedule_in(cost, Event::Answered { host, process });
        }
    }

    fn cost(&mut self, host: u8) -> Duration {
        let spread = self.figures.app_spread.as_nanos();
        let drawn = self.work[usize::from(host)].between(0, 2 * spread);
        Duration::from_nanos(self.figures.app.as_nanos() + drawn - spread)
    }

    fn answered(&mut self, host: u8, process: u16) {
        let one = &mut self.hosts[usize::from(host)].processes[usize::from(process)];
        let Some(message) = one.inbox.pop_front() else { return };
        one.awake = !one.inbox.is_empty();
        if one.awake {
            let cost = self.cost(host);
            self.engine.schedule_in(cost, Event::Answered { host, process });
        }
        let answer = match message.kind {
            Kind::Request => Kind::Ack,
            Kind::Ack => {
                self.counts.exchanges += 1;
                Kind::Request
            }
        };
        self.post(host, Message { kind: answer, ..message });
    }
}
