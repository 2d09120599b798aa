//! One run of one cell with one pool.

use qhca_regs::{Duration, Instant};
use qhca_sim::vtime::{Engine, Rng, Seed};

use super::core::{Core, Entry, Queue, Step};
use super::figures::{Figures, Row};
use crate::policies::pool::{CqPool, PollClass, PoolError, PoolLimits, Request};

/// What happens.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// A core is done with its step.
    Stepped { core: u16 },
    /// A send has completed.
    SendDone { core: u16, qp: u16 },
    /// A read's data comes to the device.
    Answered { core: u16, qp: u16, submitted: Instant },
    /// The stage is done with the oldest read.
    Staged,
    /// The soft interrupt of a queue begins.
    Pollable { core: u16, queue: u16 },
}

/// What a run measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// Reads a second, in thousands.
    pub kiops: f64,
    /// Interrupts a second, in thousands.
    pub interrupts_k_s: f64,
    /// Mean latency in microseconds.
    pub latency_us: f64,
    /// The 99.99th percentile of latency in microseconds.
    pub p9999_us: f64,
    /// Time of the cores that was spent, as a part of all.
    pub cpu_share: f64,
    /// Fingerprint of the run.
    pub trace: u64,
    /// Events of the engine.
    pub delivered: u64,
}

struct World {
    engine: Engine<Event>,
    figures: Figures,
    cores: Vec<Core>,
    /// Reads that wait for the stage or are in it, oldest first.
    stage: std::collections::VecDeque<(u16, u16, Instant)>,
    stage_until: Instant,
    target_until: Instant,
    target: Rng,
    device: Rng,
    work: Rng,
    begin: Instant,
    reads: u64,
    interrupts: u64,
    busy: Duration,
    latencies_ns: Vec<u32>,
    latency_sum_ns: u64,
}

/// Entries of one queue pair: its reads, their sends, and those of its drain.
fn reserved(depth: u32) -> u32 {
    2 * depth + 2
}

/// Runs `row` with the pool that `make` makes.
///
/// # Errors
/// The pool refuses a place.
pub fn run(
    row: &Row,
    figures: &Figures,
    make: impl Fn(PoolLimits) -> Box<dyn CqPool>,
    seed: Seed,
) -> Result<Measured, PoolError> {
    let engine = Engine::new(seed);
    let mut world = World {
        target: engine.source("target"),
        device: engine.source("device"),
        work: engine.source("work"),
        engine,
        figures: *figures,
        cores: place(row, figures, make)?,
        stage: std::collections::VecDeque::new(),
        stage_until: Instant::ZERO,
        target_until: Instant::ZERO,
        begin: Instant::ZERO + figures.settle,
        reads: 0,
        interrupts: 0,
        busy: Duration::ZERO,
        latencies_ns: Vec::new(),
        latency_sum_ns: 0,
    };
    world.start();
    world.run_until(world.begin);
    let (interrupts, busy) = (world.interrupts, world.busy);
    world.run_until(world.begin + figures.measure);
    Ok(world.measured(interrupts, busy))
}

/// Every queue pair gets its place from the pool.
fn place(
    row: &Row,
    figures: &Figures,
    make: impl Fn(PoolLimits) -> Box<dyn CqPool>,
) -> Result<Vec<Core>, PoolError> {
    let mut pool = make(PoolLimits {
        max_cqe: 1 << 16,
        vectors: row.cores,
        vector_of_core: (0..row.cores).map(Some).collect(),
    });
    let mut cores: Vec<Core> = (0..row.cores).map(|_| Core::default()).collect();
    let mut place_of = std::collections::BTreeMap::new();
    for qp in 0..row.cores * figures.disks {
        let request = Request {
            entries: reserved(figures.depth),
            core: Some(qp / figures.disks),
            class: PollClass::SoftIrq,
        };
        let place = pool.get(request)?.place;
        let core = &mut cores[place.vector() as usize];
        let queue = *place_of.entry(place.cq()).or_insert_with(|| {
            core.queues.push(Queue::new(pool.in_rounds(), figures.disks));
            core.queues.len() as u16 - 1
        });
        core.queue_of.push(queue);
        core.in_flight.push(0);
    }
    Ok(cores)
}

impl World {
    fn start(&mut self) {
        for core in 0..self.cores.len() as u16 {
            for _ in 0..self.figures.depth {
                self.cores[usize::from(core)].to_submit.extend(0..self.figures.disks as u16);
            }
            self.turn(core);
        }
    }

    fn run_until(&mut self, end: Instant) {
        while let Some(event) = self.engine.pop_until(end) {
            match event {
                Event::Stepped { core } => self.stepped(core),
                Event::SendDone { core, qp } => self.complete(core, qp, None),
                Event::Answered { core, qp, submitted } => self.answered(core, qp, submitted),
                Event::Staged => self.staged(),
                Event::Pollable { core, queue } => {
                    self.cores[usize::from(core)].polling.push_back(queue);
                    self.turn(core);
                }
            }
        }
        self.engine.advance_to(end);
    }

    fn measured(&mut self, interrupts: u64, busy: Duration) -> Measured {
        let seconds = self.figures.measure.as_secs_f64();
        let reads = self.latencies_ns.len();
        let rank = (reads * 9_999).div_ceil(10_000).saturating_sub(1);
        let p9999 = match self.latencies_ns.is_empty() {
            true => 0,
            false => *self.latencies_ns.select_nth_unstable(rank).1,
        };
        Measured {
            kiops: reads as f64 / seconds / 1e3,
            interrupts_k_s: (self.interrupts - interrupts) as f64 / seconds / 1e3,
            latency_us: self.latency_sum_ns as f64 / reads.max(1) as f64 / 1e3,
            p9999_us: f64::from(p9999) / 1e3,
            cpu_share: (self.busy - busy).as_secs_f64() / seconds / self.cores.len() as f64,
            trace: self.engine.trace().value(),
            delivered: self.engine.delivered(),
        }
    }

    fn varied(&mut self, span: Duration) -> Duration {
        let spread = (span.as_nanos() as f64 * self.figures.jitter) as u64;
        Duration::from_nanos(span.as_nanos() - spread + self.work.between(0, 2 * spread))
    }

    /// What a core does next: interrupts first; polls and the thread by turns, each until it has nothing left.
    fn turn(&mut self, number: u16) {
        let place = usize::from(number);
        if self.cores[place].step.is_some() {
            return;
        }
        let core = &mut self.cores[place];
        core.thread_runs = !core.to_submit.is_empty() && (core.thread_runs || core.polling.is_empty());
        let (step, cost) = if let Some(queue) = core.raised.pop_front() {
            (Step::Interrupt { queue }, self.figures.interrupt)
        } else if core.thread_runs {
            let qp = core.to_submit.pop_front().unwrap_or_default();
            (Step::Submit { qp }, self.varied(self.figures.submit))
        } else if let Some(queue) = core.polling.pop_front() {
            let (last, cost) = self.poll(number, queue);
            (Step::Poll { queue, last }, cost)
        } else {
            return;
        };
        self.cores[place].step = Some(step);
        self.busy += cost;
        self.engine.schedule_in(cost, Event::Stepped { core: number });
    }

    /// Takes a batch; the queue is left if the batch was not full.
    fn poll(&mut self, number: u16, queue: u16) -> (bool, Duration) {
        let batch = self.figures.batch;
        let mut cost = Duration::ZERO;
        let mut taken = std::mem::take(&mut self.cores[usize::from(number)].taken);
        while taken.len() < batch as usize {
            let Some(entry) = self.cores[usize::from(number)].queues[usize::from(queue)].pop() else { break };
            cost += match entry.submitted {
                Some(_) => self.varied(self.figures.complete),
                None => self.figures.send_complete,
            };
            taken.push(entry);
        }
        let last = taken.len() < batch as usize;
        self.cores[usize::from(number)].taken = taken;
        (last, if last { cost + self.figures.rearm } else { cost })
    }

    fn stepped(&mut self, number: u16) {
        let now = self.engine.now();
        match self.cores[usize::from(number)].step.take() {
            Some(Step::Interrupt { queue }) => {
                self.engine.schedule_in(self.figures.poll_delay, Event::Pollable { core: number, queue });
            }
            Some(Step::Poll { queue, last }) => self.polled(number, queue, last, now),
            Some(Step::Submit { qp }) => self.submitted(number, qp, now),
            None => {}
        }
        self.turn(number);
    }

    fn polled(&mut self, number: u16, queue: u16, last: bool, now: Instant) {
        let mut taken = std::mem::take(&mut self.cores[usize::from(number)].taken);
        self.engine.record("poll", [u64::from(number) << 16 | u64::from(queue), taken.len() as u64]);
        let core = &mut self.cores[usize::from(number)];
        for entry in taken.drain(..) {
            let Some(submitted) = entry.submitted else { continue };
            core.in_flight[usize::from(entry.qp)] -= 1;
            core.to_submit.push_back(entry.qp);
            self.reads += 1;
            if now >= self.begin {
                let latency = (now - submitted).as_nanos();
                self.latencies_ns.push(u32::try_from(latency).unwrap_or(u32::MAX));
                self.latency_sum_ns += latency;
            }
        }
        core.taken = taken;
        let one = &mut core.queues[usize::from(queue)];
        // Armed, and looked at once more: what came meanwhile is taken without an event.
        if last && one.is_empty() {
            one.armed = true;
        } else {
            core.polling.push_back(queue);
        }
    }

    fn submitted(&mut self, number: u16, qp: u16, now: Instant) {
        self.cores[usize::from(number)].in_flight[usize::from(qp)] += 1;
        self.engine.schedule_in(self.figures.send_done, Event::SendDone { core: number, qp });
        let (min, max) = (self.figures.target_min.as_nanos(), self.figures.target_max.as_nanos());
        let away = Duration::from_nanos(self.target.between(min, max));
        self.target_until = self.target_until.max(now) + self.figures.target_server;
        let at = self.target_until + away;
        self.engine.schedule(at, Event::Answered { core: number, qp, submitted: now });
    }

    /// Data comes and goes through the stage, in the order of its coming.
    fn answered(&mut self, core: u16, qp: u16, submitted: Instant) {
        self.stage.push_back((core, qp, submitted));
        if self.stage.len() == 1 {
            self.serve();
        }
    }

    fn serve(&mut self) {
        let uneven = match self.figures.io_uneven {
            Duration::ZERO => Duration::ZERO,
            mean => self.device.exponential(mean),
        };
        let now = self.engine.now();
        self.stage_until = self.stage_until.max(now) + self.figures.io_even + uneven;
        self.engine.schedule(self.stage_until, Event::Staged);
    }

    fn staged(&mut self) {
        let Some((core, qp, submitted)) = self.stage.pop_front() else { return };
        self.complete(core, qp, Some(submitted));
        if !self.stage.is_empty() {
            self.serve();
        }
    }

    /// A completion is written; an armed queue is announced, which costs the stage.
    fn complete(&mut self, number: u16, qp: u16, submitted: Option<Instant>) {
        let now = self.engine.now();
        let core = &mut self.cores[usize::from(number)];
        let place = core.queue_of[usize::from(qp)];
        let in_flight = core.in_flight[usize::from(qp)];
        let queue = &mut core.queues[usize::from(place)];
        queue.push(Entry { qp, submitted }, in_flight);
        if !queue.armed {
            return;
        }
        queue.armed = false;
        core.raised.push_back(place);
        self.interrupts += 1;
        self.stage_until = self.stage_until.max(now) + self.figures.event;
        self.turn(number);
    }
}
