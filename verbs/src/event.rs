//! What happens without being asked for: completions that were waited for, and asynchronous events.

use std::collections::VecDeque;
use std::fmt;

use crate::ids::{CqId, QpNumber, SrqId};

/// Events that wait at most; what comes then is counted.
const EVENTS_MAX: usize = 4096;

/// An event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// An armed completion queue has what it was armed for.
    Completion(CqId),
    /// A completion found no room. The queue and the queue pairs that use it are dead.
    CqOverflow(CqId),
    /// A queue pair went to the error state for a reason of its own.
    QpFatal(QpNumber),
    /// The peer made a request that makes no sense; the queue pair is in the error state.
    QpRequestError(QpNumber),
    /// The peer reached for memory that it was not given; the queue pair is in the error state.
    QpAccessError(QpNumber),
    /// The first packet came while the queue pair was ready to receive and not yet to send.
    CommunicationEstablished(QpNumber),
    /// The send queue has finished what it had begun.
    SendQueueDrained(QpNumber),
    /// A queue pair in the error state will take nothing more from its shared receive queue.
    LastWqeReached(QpNumber),
    /// A shared receive queue has fewer receives than its limit.
    SrqLimitReached(SrqId),
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Completion(cq) => write!(f, "{cq}: completions wait"),
            Self::CqOverflow(cq) => write!(f, "{cq}: a completion found no room"),
            Self::QpFatal(qp) => write!(f, "{qp}: in the error state"),
            Self::QpRequestError(qp) => write!(f, "{qp}: the peer made an invalid request"),
            Self::QpAccessError(qp) => write!(f, "{qp}: the peer reached for memory that it was not given"),
            Self::CommunicationEstablished(qp) => write!(f, "{qp}: the first packet came"),
            Self::SendQueueDrained(qp) => write!(f, "{qp}: the send queue is drained"),
            Self::LastWqeReached(qp) => write!(f, "{qp}: takes nothing more from its shared receive queue"),
            Self::SrqLimitReached(srq) => write!(f, "{srq}: fewer receives than its limit"),
        }
    }
}

/// Events in the order in which they happened.
#[derive(Default)]
pub(crate) struct Events {
    queue: VecDeque<Event>,
    lost: u64,
}

impl Events {
    pub(crate) fn push(&mut self, event: Event) {
        if self.queue.len() < EVENTS_MAX {
            self.queue.push_back(event);
        } else {
            self.lost += 1;
        }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub(crate) fn pop(&mut self) -> Option<Event> {
        self.queue.pop_front()
    }

    pub(crate) fn lost(&self) -> u64 {
        self.lost
    }

    /// Takes out events of what is gone.
    pub(crate) fn forget(&mut self, is_gone: impl Fn(&Event) -> bool) {
        self.queue.retain(|event| !is_gone(event));
    }
}
