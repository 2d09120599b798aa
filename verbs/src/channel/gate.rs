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
//! in vain; neither cannot, as both change the count of news, and of two changes of one word one is the first.

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
        // ORDER: both are changes, not loads: see `arm`.
        self.news.fetch_add(1, Ordering::SeqCst);
        self.armed.swap(false, Ordering::SeqCst)
    }

    /// The sleeper is about to sleep and has seen news up to `seen`. True if there are more, so that it must not.
    pub fn arm(&self, seen: u64) -> bool {
        self.armed.swap(true, Ordering::SeqCst);
        // ORDER: a change that changes nothing, where a load would do in one order that all agree on: whoever notes news
        // after it has read from it, and so sees that it is armed; whoever noted before is counted. Loom can follow it.
        let more = self.news.fetch_add(0, Ordering::SeqCst) != seen;
        if more {
            self.armed.swap(false, Ordering::SeqCst);
        }
        more
    }

    /// How many news there have been: look at them after this call.
    pub fn news(&self) -> u64 {
        self.news.load(Ordering::SeqCst)
    }
}
