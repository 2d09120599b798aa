//! Arm, poll again, sleep: the one protocol by which a sleeper misses nothing.
//!
//! ```text
//!   sleeper                                  whoever has news
//!     arm()                                    note()  the news is there
//!     anything there? ── yes: do not sleep       was armed ── yes: ring the bell
//!     sleep until the bell rings
//! ```
//!
//! Either the sleeper sees the news, or whoever has them sees that it is armed. Both could happen, which costs one bell
//! in vain; neither cannot, as both sides write first and read then, in one order that all agree on.

use crate::sync::{AtomicBool, AtomicU64, Ordering};

/// What the two sides share.
#[derive(Debug)]
pub struct Gate {
    armed: AtomicBool,
    /// Counts news; the sleeper knows up to where it has looked.
    news: AtomicU64,
}

impl Default for Gate {
    fn default() -> Self {
        Self::new()
    }
}

impl Gate {
    /// Nobody sleeps, and there are no news.
    pub fn new() -> Self {
        Self { armed: AtomicBool::new(false), news: AtomicU64::new(0) }
    }

    /// There are news. True if the bell must be rung.
    pub fn note(&self) -> bool {
        // ORDER: sequentially consistent, with `arm`: of two sides that each write and then read the other's word, one at
        // least reads what the other wrote.
        self.news.fetch_add(1, Ordering::SeqCst);
        self.armed.swap(false, Ordering::SeqCst)
    }

    /// The sleeper is about to sleep and has seen news up to `seen`. True if there are more, so that it must not.
    pub fn arm(&self, seen: u64) -> bool {
        // ORDER: see `note`.
        self.armed.store(true, Ordering::SeqCst);
        let more = self.news.load(Ordering::SeqCst) != seen;
        if more {
            self.armed.store(false, Ordering::SeqCst);
        }
        more
    }

    /// How many news there have been: look at them after this call.
    pub fn news(&self) -> u64 {
        self.news.load(Ordering::SeqCst)
    }
}
