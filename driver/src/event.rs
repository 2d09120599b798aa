//! What happened to a device, for whoever owns it.
//!
//! Events wait in a queue with a bound. A device in a storm makes more of them than anybody reads; what does not fit
//! is counted, and the two that must not be missed, the end of the device and a fatal error, always fit.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use qhca_irq::arrival::NoInterrupts;
use qhca_irq::plan::Mode;

use crate::env::Notice;
use crate::fault::Report;
use crate::link::LinkEvent;
use crate::tx::sdma::SdmaChange;
use qhca_regs::{Duration, Port};

/// Events that wait at most.
pub const EVENTS_MAX: usize = 256;
/// Room beyond the bound for events that must not be missed. Each comes once in a device's life.
const RESERVE: usize = 8;

/// Something that happened.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// An error that was dealt with.
    Error(Report),
    /// An error after which the device is of no use; sends have been stopped.
    Fatal(Report),
    /// The device no longer answers.
    Gone,
    /// A link or a socket changed.
    Link(LinkEvent),
    /// A send buffer, or room in a send DMA queue, became free after somebody had found none.
    SendSpace,
    /// A send DMA engine started, stopped or failed.
    Sdma {
        /// Its port.
        port: Port,
        /// What happened.
        change: SdmaChange,
    },
    /// The device was reset and is as before. Packets that were in flight are lost.
    WasReset {
        /// How long it could not be used.
        took: Duration,
    },
    /// The system had something to say of the device, which was given back therefore.
    Notice(Notice),
    /// No interrupt came in the first mode; the interrupt line is tried.
    FellBack {
        /// The mode that was given up.
        from: Mode,
    },
    /// No interrupt comes in any mode: the device is polled.
    NoInterrupts(NoInterrupts),
}

impl Event {
    /// Whether it is the end of the device.
    pub const fn is_final(&self) -> bool {
        matches!(self, Self::Fatal(_) | Self::Gone)
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Error(report) | Self::Fatal(report) => report.fmt(f),
            Self::Gone => f.write_str("the device no longer answers: reads give all ones"),
            Self::Link(event) => write!(f, "{}: {:?}", event.port, event.change),
            Self::SendSpace => f.write_str("a send buffer is free again"),
            Self::Sdma { port, change: SdmaChange::Running } => write!(f, "{port}: send DMA runs"),
            Self::Sdma { port, change: SdmaChange::Stopped(reason) } => {
                write!(f, "{port}: send DMA was stopped and its sends were flushed: {reason}")
            }
            Self::Sdma { port, change: SdmaChange::Failed { state, waited } } => write!(
                f,
                "{port}: send DMA does not answer ({state:?} for {waited}) and is given up; sends go by programmed I/O"
            ),
            Self::Notice(notice) => write!(f, "{notice}; it was given back"),
            Self::WasReset { took } => write!(f, "the device was reset and is back after {took}"),
            Self::FellBack { from } => {
                write!(f, "no interrupt came by {from}; the interrupt line is tried")
            }
            Self::NoInterrupts(error) => error.fmt(f),
        }
    }
}

/// The events that wait, shared by the threads of a device.
#[derive(Debug, Default)]
pub struct EventQueue {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Event>,
    lost: u64,
    total: u64,
}

impl EventQueue {
    /// An empty queue.
    pub fn new() -> Self {
        Self::default()
    }

    /// Puts `event` last, or counts it as lost if the queue is full.
    pub fn push(&self, event: Event) {
        let mut state = self.lock();
        state.total += 1;
        let room = if event.is_final() { EVENTS_MAX + RESERVE } else { EVENTS_MAX };
        if state.waiting.len() < room {
            state.waiting.push_back(event);
        } else {
            state.lost += 1;
        }
    }

    /// Takes the oldest event.
    pub fn pop(&self) -> Option<Event> {
        self.lock().waiting.pop_front()
    }

    /// Events that found the queue full.
    pub fn lost(&self) -> u64 {
        self.lock().lost
    }

    /// Events that ever came, the lost ones included.
    pub fn total(&self) -> u64 {
        self.lock().total
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic while the lock was held leaves a whole queue.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_queue_counts_what_it_loses_and_keeps_room_for_the_end() {
        let events = EventQueue::new();
        (0..EVENTS_MAX + 3).for_each(|_| events.push(Event::SendSpace));
        assert_eq!((events.lost(), events.total()), (3, EVENTS_MAX as u64 + 3));
        events.push(Event::Gone);
        assert_eq!(events.lost(), 3);
        let last = std::iter::from_fn(|| events.pop()).last();
        assert!(matches!(last, Some(Event::Gone)));
    }
}
