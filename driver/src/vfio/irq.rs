//! Where a thread waits for vectors, and hears what else the kernel has to say.
//!
//! A vector is a descriptor that the kernel raises. Two more tell of the card itself: the bus reported an error, or the
//! kernel wants the card back. Every source listens to those, too, so whoever waits for interrupts is woken by them;
//! what they mean is asked of the back end afterwards.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use qhca_irq::{IrqSource, VectorSet, Wake};
use qhca_regs::{Instant, Vector};

use crate::env::{Clock, MonotonicClock, Notice};
use crate::sys::{Epoll, EventFd};

/// What the kernel said of the card, heard and not yet acted upon.
#[derive(Debug, Default)]
pub(super) struct Notices {
    lines: Vec<(Notice, Arc<EventFd>)>,
    heard: AtomicU8,
}

const fn bit(notice: Notice) -> u8 {
    match notice {
        Notice::WantedBack => 1,
        Notice::BusError => 2,
    }
}

impl Notices {
    pub(super) fn new(lines: Vec<(Notice, Arc<EventFd>)>) -> Self {
        Self { lines, heard: AtomicU8::new(0) }
    }

    /// Looks at every line without waiting.
    pub(super) fn look(&self) {
        for (notice, event) in &self.lines {
            if event.drain() > 0 {
                self.heard.fetch_or(bit(*notice), Ordering::Relaxed);
            }
        }
    }

    /// Takes the weightiest that was heard.
    pub(super) fn take(&self) -> Option<Notice> {
        let heard = self.heard.swap(0, Ordering::Relaxed);
        [Notice::WantedBack, Notice::BusError].into_iter().find(|notice| heard & bit(*notice) != 0)
    }
}

/// Where a thread waits for some vectors.
pub struct VfioIrq {
    epoll: Epoll,
    lines: Vec<(Vector, Arc<EventFd>)>,
    notices: Arc<Notices>,
    clock: MonotonicClock,
    ready: Vec<u64>,
}

/// The token of what is no vector.
const NOTICE: u64 = u64::MAX;

impl VfioIrq {
    pub(super) fn new(
        lines: Vec<(Vector, Arc<EventFd>)>,
        notices: Arc<Notices>,
        clock: MonotonicClock,
    ) -> std::io::Result<Self> {
        let epoll = Epoll::new()?;
        for (n, (_, event)) in lines.iter().enumerate() {
            epoll.add(event.as_fd(), n as u64)?;
        }
        for (_, event) in &notices.lines {
            epoll.add(event.as_fd(), NOTICE)?;
        }
        Ok(Self { epoll, lines, notices, clock, ready: Vec::new() })
    }

    /// What fired, after at most `timeout_ns`; and whether there is news of the card.
    fn take(&mut self, timeout_ns: Option<u64>) -> (VectorSet, bool) {
        // An open set gives no error; if it did, whoever waits looks at the clock and comes again.
        let (Ok(()) | Err(_)) = self.epoll.wait_ns(timeout_ns, &mut self.ready);
        let news = self.ready.contains(&NOTICE);
        if news {
            self.notices.look();
        }
        let lines = self.ready.iter().filter_map(|n| self.lines.get(usize::try_from(*n).ok()?));
        (lines.filter(|(_, event)| event.drain() > 0).map(|(vector, _)| *vector).collect(), news)
    }
}

impl AsFd for VfioIrq {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

impl IrqSource for VfioIrq {
    fn wait(&mut self, deadline: Option<Instant>) -> Wake {
        loop {
            let left_ns = deadline.map(|deadline| deadline.since(self.clock.now()).as_nanos());
            let (fired, news) = self.take(left_ns);
            if news || !fired.is_empty() {
                return Wake::Vectors(fired);
            }
            if left_ns == Some(0) {
                return Wake::Deadline;
            }
        }
    }
}

impl fmt::Debug for VfioIrq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VfioIrq").field("vectors", &self.lines.len()).finish_non_exhaustive()
    }
}
