//! The clock and what hangs on it: now, the queue of events, the seed and the fingerprint of the run.
//!
//! The engine holds no model and calls nothing. The model takes events out one at a time, and while a piece of real
//! code runs inside a step it takes out, with a limit, what the hardware does in the meantime:
//!
//! ```text
//!   main loop       while let Some(event) = engine.pop_until(end) { model.on(event) }
//!   inside a step   spend(1 us):  let to = engine.now() + 1 us;
//!                                 while let Some(event) = engine.pop_until(to) { hardware.on(event) }
//!                                 engine.advance_to(to);
//! ```

use qhca_regs::time::{Duration, Instant};

use super::{EventQueue, Rng, Seed, Timer, TraceHash};

/// Virtual time for a model whose events are of type `E`.
#[derive(Clone, Debug)]
pub struct Engine<E> {
    now: Instant,
    queue: EventQueue<E>,
    seed: Seed,
    trace: TraceHash,
    delivered: u64,
}

impl<E> Engine<E> {
    /// A clock at its origin, with nothing to come.
    pub fn new(seed: Seed) -> Self {
        Self { now: Instant::ZERO, queue: EventQueue::new(), seed, trace: TraceHash::new(), delivered: 0 }
    }

    /// The virtual time.
    pub const fn now(&self) -> Instant {
        self.now
    }

    /// The generator of the source called `name`; ask once and keep it.
    pub fn source(&self, name: &str) -> Rng {
        self.seed.source(name)
    }

    /// Schedules `event` for `at`, or for now if `at` is past: time never runs backwards.
    pub fn schedule(&mut self, at: Instant, event: E) -> Timer {
        self.queue.push(at.max(self.now), event)
    }

    /// Schedules `event` for `after` from now.
    pub fn schedule_in(&mut self, after: Duration, event: E) -> Timer {
        self.queue.push(self.now + after, event)
    }

    /// Calls an event off; `None` if it has happened already.
    pub fn cancel(&mut self, timer: Timer) -> Option<E> {
        self.queue.cancel(timer)
    }

    /// True while the event of `timer` is still to come.
    pub fn is_pending(&self, timer: Timer) -> bool {
        self.queue.is_pending(timer)
    }

    /// When the next event is due.
    pub fn next_at(&mut self) -> Option<Instant> {
        self.queue.next_at()
    }

    /// Takes out the next event due at `limit` or before and sets the clock to its time.
    ///
    /// An event that became due while the clock was moved by [`Engine::advance_to`] happens now, late.
    pub fn pop_until(&mut self, limit: Instant) -> Option<E> {
        let (at, event) = self.queue.pop_until(limit)?;
        self.now = self.now.max(at);
        self.delivered += 1;
        Some(event)
    }

    /// Sets the clock to `to`; does nothing if that is past. Events in between stay due.
    pub fn advance_to(&mut self, to: Instant) {
        self.now = self.now.max(to);
    }

    /// Adds a happening, at the present time, to the fingerprint.
    pub fn record(&mut self, label: &str, args: [u64; 2]) {
        self.trace.record(self.now, label, args);
    }

    /// The fingerprint so far.
    pub const fn trace(&self) -> TraceHash {
        self.trace
    }

    /// Events delivered since the start.
    pub const fn delivered(&self) -> u64 {
        self.delivered
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_follows_events_and_never_goes_back() {
        let mut engine = Engine::new(Seed(1));
        engine.schedule(Instant::from_nanos(10), 'a');
        engine.schedule(Instant::from_nanos(30), 'c');
        assert_eq!(engine.pop_until(Instant::from_nanos(20)), Some('a'));
        assert_eq!(engine.now(), Instant::from_nanos(10));
        assert_eq!(engine.pop_until(Instant::from_nanos(20)), None);
        engine.advance_to(Instant::from_nanos(40));
        engine.schedule(Instant::from_nanos(5), 'd');
        assert_eq!(engine.pop_until(Instant::MAX), Some('c'));
        assert_eq!(engine.pop_until(Instant::MAX), Some('d'));
        assert_eq!(engine.now(), Instant::from_nanos(40));
        assert_eq!(engine.delivered(), 3);
    }
}
