//! Interrupts: a descriptor a vector, which the other side raises.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use qhca_irq::{IrqSource, VectorSet, Wake};
use qhca_regs::{Instant, Vector};

use crate::env::{Clock, MonotonicClock};
use crate::sys::{Epoll, EventFd};

/// Where a thread waits for some vectors.
pub struct VfioUserIrq {
    epoll: Epoll,
    lines: Vec<(Vector, Arc<EventFd>)>,
    clock: MonotonicClock,
    ready: Vec<u64>,
}

impl VfioUserIrq {
    pub(super) fn new(lines: Vec<(Vector, Arc<EventFd>)>, clock: MonotonicClock) -> std::io::Result<Self> {
        let epoll = Epoll::new()?;
        for (n, (_, event)) in lines.iter().enumerate() {
            epoll.add(event.as_fd(), n as u64)?;
        }
        Ok(Self { epoll, lines, clock, ready: Vec::new() })
    }

    /// What fired, after at most `timeout_ns`.
    fn take(&mut self, timeout_ns: Option<u64>) -> VectorSet {
        // An open set gives no error; if it did, whoever waits looks at the clock and comes again.
        let (Ok(()) | Err(_)) = self.epoll.wait_ns(timeout_ns, &mut self.ready);
        let lines = self.ready.iter().filter_map(|n| self.lines.get(*n as usize));
        lines.filter(|(_, event)| event.drain() > 0).map(|(vector, _)| *vector).collect()
    }
}

impl AsFd for VfioUserIrq {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

impl IrqSource for VfioUserIrq {
    fn wait(&mut self, deadline: Option<Instant>) -> Wake {
        loop {
            let left_ns = deadline.map(|deadline| deadline.since(self.clock.now()).as_nanos());
            let fired = self.take(left_ns);
            if !fired.is_empty() {
                return Wake::Vectors(fired);
            }
            if left_ns == Some(0) {
                return Wake::Deadline;
            }
        }
    }
}

impl fmt::Debug for VfioUserIrq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VfioUserIrq").field("vectors", &self.lines.len()).finish_non_exhaustive()
    }
}
