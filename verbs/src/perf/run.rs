//! Turning two ends, or one whose peer is elsewhere, until the work is done.

use qhca_regs::{Duration, Instant};

use super::bandwidth::Streamer;
use super::end::End;
use super::latency::PingPong;
use super::{Bandwidth, Job, Latency, PerfError};
use crate::engine::Engine;
use crate::port::Turn;

/// Turns that found nothing, after which the clock is looked at for the deadline alone.
const LOOK_EVERY: u32 = 64;
/// How long a sleep of an end that waits for events is at most: a deadline may be due before a packet comes.
const NAP: Duration = Duration::from_millis(1);
/// How long messages are sent to learn how many fit a time.
const PROBE: Duration = Duration::from_millis(20);
/// Probe messages at first; twice as many each time until the probe is long enough.
const PROBE_MESSAGES: u32 = 2;

/// One end's work.
pub trait Worker {
    /// Polls what is done and posts what can be. Whether anything was done.
    ///
    /// # Errors
    /// [`PerfError`].
    fn step(&mut self, engine: &mut Engine, now: Instant) -> Result<bool, PerfError>;
    /// Whether everything is done.
    fn is_done(&self) -> bool;
    /// What is done, and of how much.
    fn progress(&self) -> (u64, u64);
    /// Asks for an event with the next completion; true if one waits already.
    fn arm(&self, engine: &mut Engine, now: Instant) -> bool;
}

/// A port and the end that is measured on it.
pub struct Side<T> {
    /// What turns the engine.
    pub port: T,
    /// The end.
    pub end: End,
}

/// What came of a measurement.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured<F> {
    /// The figures.
    pub figures: F,
    /// Messages on each queue pair.
    pub iterations: u32,
}

/// Steps `worker` and turns `port` until the worker is done and `until` says so, or nothing happens for too long.
/// `until` is asked now and then whether the other end is done.
///
/// # Errors
/// [`PerfError`].
pub fn drive<T: Turn>(
    port: &mut T,
    worker: &mut impl Worker,
    job: &Job,
    clock: &impl Fn() -> Instant,
    mut until: impl FnMut() -> Result<bool, PerfError>,
) -> Result<(), PerfError> {
    let mut quiet = Quiet::new(clock());
    loop {
        let now = clock();
        let any = worker.step(port.engine(), now)?;
        let turned = port.turn(now);
        if turned.gone {
            return Err(PerfError::Gone);
        }
        let busy = any || !turned.is_idle();
        // Asking the other end may cost a system call: only when there is nothing else to do.
        let is_quiet = !busy && (job.events || quiet.looks.is_multiple_of(LOOK_EVERY));
        let is_over = is_quiet && until()?;
        if is_over && worker.is_done() && !port.engine().has_output() {
            return Ok(());
        }
        // Whoever is done waits for the other end, which says so itself if it fails.
        if worker.is_done() {
            quiet.since = now;
        }
        quiet.note(busy, now, worker, job)?;
        // Arm, look again, sleep: a completion that came in between is seen, and one that comes later wakes.
        if job.events && !busy && !worker.arm(port.engine(), now) && !worker.step(port.engine(), clock())? {
            port.rest(NAP);
            while port.engine().poll_event().is_some() {}
        }
    }
}

/// Both ends in one thread, by turns.
fn drive_both<T: Turn>(
    (a, work_a): (&mut T, &mut impl Worker),
    (b, work_b): (&mut T, &mut impl Worker),
    job: &Job,
    clock: &impl Fn() -> Instant,
) -> Result<(), PerfError> {
    let mut quiet = Quiet::new(clock());
    loop {
        let now = clock();
        let mut busy = work_a.step(a.engine(), now)?;
        busy |= work_b.step(b.engine(), now)?;
        let (turned_a, turned_b) = (a.turn(now), b.turn(now));
        if turned_a.gone || turned_b.gone {
            return Err(PerfError::Gone);
        }
        busy |= !turned_a.is_idle() || !turned_b.is_idle();
        if work_a.is_done() && work_b.is_done() {
            return Ok(());
        }
        quiet.note(busy, now, work_a, job)?;
    }
}

/// For how long nothing has happened.
struct Quiet {
    since: Instant,
    looks: u32,
}

impl Quiet {
    fn new(now: Instant) -> Self {
        Self { since: now, looks: 0 }
    }

    fn note(&mut self, busy: bool, now: Instant, worker: &impl Worker, job: &Job) -> Result<(), PerfError> {
        if busy {
            (self.since, self.looks) = (now, 0);
            return Ok(());
        }
        self.looks = self.looks.wrapping_add(1);
        let waited = now.since(self.since);
        if waited < job.patience {
            return Ok(());
        }
        let (done, of) = worker.progress();
        Err(PerfError::Late { done, of, waited })
    }
}

/// How many messages fit `within`, at most `most`: as many as a probe of some milliseconds says. `run` sends so many.
///
/// # Errors
/// [`PerfError`] of the probe.
pub fn iterations_within(
    within: Duration,
    most: u32,
    clock: &impl Fn() -> Instant,
    mut run: impl FnMut(u32) -> Result<(), PerfError>,
) -> Result<u32, PerfError> {
    let mut messages = PROBE_MESSAGES.min(most.max(1));
    loop {
        let begun = clock();
        run(messages)?;
        let took = clock().since(begun);
        if took >= PROBE || messages >= most {
            let each = (took.as_nanos() / u64::from(messages)).max(1);
            return Ok((within.as_nanos() / each).clamp(1, u64::from(most.max(1))) as u32);
        }
        messages = messages.saturating_mul(2).min(most);
    }
}

/// A stream from one end to the other, both in this process. Payloads are checked as the job says.
///
/// # Errors
/// [`PerfError`].
pub fn measure_bandwidth<T: Turn + Send>(
    from: &mut Side<T>,
    to: &mut Side<T>,
    job: &Job,
    clock: &(impl Fn() -> Instant + Sync),
) -> Result<Measured<Bandwidth>, PerfError> {
    let now = clock();
    let mut taker = Streamer::new(&mut to.end, to.port.engine(), job, false, now)?;
    let mut poster = Streamer::new(&mut from.end, from.port.engine(), job, true, now)?;
    drive_pair((&mut from.port, &mut poster), (&mut to.port, &mut taker), job, clock)?;
    poster.verify_last()?;
    taker.verify_taken()?;
    if job.both {
        taker.verify_last()?;
        poster.verify_taken()?;
    }
    let mut figures = poster.figures();
    if job.both {
        let other = taker.figures();
        figures.average_mb_s += other.average_mb_s;
        figures.peak_mb_s += other.peak_mb_s;
        figures.msg_rate_mpps += other.msg_rate_mpps;
    }
    Ok(Measured { figures, iterations: job.iterations })
}

/// A ping-pong, or questions and answers, of two ends in this process.
///
/// # Errors
/// [`PerfError`].
pub fn measure_latency<T: Turn + Send>(
    from: &mut Side<T>,
    to: &mut Side<T>,
    job: &Job,
    clock: &(impl Fn() -> Instant + Sync),
) -> Result<Measured<Latency>, PerfError> {
    let now = clock();
    let mut second = PingPong::new(&mut to.end, to.port.engine(), job, false, now)?;
    let mut first = PingPong::new(&mut from.end, from.port.engine(), job, true, now)?;
    drive_pair((&mut from.port, &mut first), (&mut to.port, &mut second), job, clock)?;
    let ended = clock();
    first.verify_last()?;
    second.verify_last()?;
    Ok(Measured { figures: first.figures(ended), iterations: job.iterations })
}

/// One thread for both if they poll; a thread for each if they sleep.
fn drive_pair<T: Turn + Send, A: Worker + Send, B: Worker + Send>(
    (a, work_a): (&mut T, &mut A),
    (b, work_b): (&mut T, &mut B),
    job: &Job,
    clock: &(impl Fn() -> Instant + Sync),
) -> Result<(), PerfError> {
    use std::sync::atomic::{AtomicBool, Ordering};
    if !job.events {
        return drive_both((a, work_a), (b, work_b), job, clock);
    }
    let a_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // It goes on answering until the first has everything, or has given up.
        let other = scope.spawn(|| drive(b, work_b, job, clock, || Ok(a_done.load(Ordering::Acquire))));
        let result = drive(a, work_a, job, clock, || Ok(true));
        a_done.store(true, Ordering::Release);
        let other =
            other.join().unwrap_or_else(|_| Err(PerfError::Told("the other end panicked".to_owned())));
        result.and(other)
    })
}
