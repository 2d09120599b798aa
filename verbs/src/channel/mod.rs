//! Events for a thread that sleeps: an engine's events, handed to another thread by a queue and an eventfd.
//!
//! ```text
//!   thread that turns the port                      thread that waits
//!   turn ─► Publisher::publish ── queue ──────────► Channel::poll
//!                              └─ bell, if armed ─► Channel::wait, or an epoll set of its own (AsFd)
//! ```
//!
//! A publisher rings only if somebody sleeps, so a port that nobody waits for makes no system call. The only way to sleep
//! is [`Channel::wait`]; whoever has a loop of its own calls [`Channel::arm`] before it sleeps on the descriptor. What
//! finds the queue full is counted, and the two that must not be missed, the death of a completion queue and of a queue
//! pair, always fit.

mod gate;

pub use gate::Gate;

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use qhca_driver::sys::EventFd;
use qhca_regs::Duration;

use crate::engine::Engine;
use crate::event::Event;

/// Events that wait at most.
pub const CHANNEL_MAX: usize = 4096;

struct Shared {
    gate: Gate,
    bell: EventFd,
    queue: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    events: VecDeque<Event>,
    lost: u64,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        // A thread that panicked in one push or pop has left the queue whole.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The end of the thread that turns the port.
pub struct Publisher {
    shared: Arc<Shared>,
}

/// The end of the thread that waits.
pub struct Channel {
    shared: Arc<Shared>,
    seen: u64,
}

/// The two ends of a channel.
///
/// # Errors
/// The system has no descriptor left.
pub fn channel() -> io::Result<(Publisher, Channel)> {
    let shared =
        Arc::new(Shared { gate: Gate::new(), bell: EventFd::new()?, queue: Mutex::new(Waiting::default()) });
    Ok((Publisher { shared: shared.clone() }, Channel { shared, seen: 0 }))
}

/// Whether an event must not be lost.
fn is_vital(event: &Event) -> bool {
    matches!(event, Event::CqOverflow(_) | Event::QpFatal(_))
}

impl Publisher {
    /// Hands over what `engine` has to tell; says how many events that were.
    pub fn publish(&self, engine: &mut Engine) -> usize {
        let Some(first) = engine.poll_event() else { return 0 };
        let mut count = 0;
        {
            let waiting = &mut *self.shared.lock();
            let mut next = Some(first);
            while let Some(event) = next {
                match waiting.events.len() < CHANNEL_MAX || is_vital(&event) {
                    true => waiting.events.push_back(event),
                    false => waiting.lost += 1,
                }
                count += 1;
                next = engine.poll_event();
            }
        }
        if self.shared.gate.note() {
            self.shared.bell.signal();
        }
        count
    }
}

impl Channel {
    /// The oldest event; `None` if none waits.
    pub fn poll(&mut self) -> Option<Event> {
        // What is noted after this is news for the next arming.
        self.seen = self.shared.gate.news();
        self.shared.lock().events.pop_front()
    }

    /// Events that found no room.
    pub fn lost(&self) -> u64 {
        self.shared.lock().lost
    }

    /// Before a sleep on the descriptor: true if something has come since the last [`poll`](Self::poll), so that one
    /// must not sleep.
    pub fn arm(&mut self) -> bool {
        let more = self.shared.gate.arm(self.seen);
        if !more {
            self.shared.bell.drain();
            // A bell that rang between the two belongs to news that the gate has counted.
            return self.shared.gate.news() != self.seen;
        }
        more
    }

    /// The oldest event; sleeps until there is one or `timeout` has passed.
    pub fn wait(&mut self, timeout: Duration) -> Option<Event> {
        if let Some(event) = self.poll() {
            return Some(event);
        }
        if !self.arm() {
            self.shared.bell.wait(Some(timeout.as_nanos()));
        }
        self.poll()
    }
}

impl AsFd for Channel {
    /// Readable when something came after [`arm`](Self::arm).
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.bell.as_fd()
    }
}
