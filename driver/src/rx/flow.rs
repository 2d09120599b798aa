//! The order of one drain: take, release, arm, look again.
//!
//! The chip interrupts when a packet comes *after* the interrupt was armed. A packet that comes between the last
//! look at the queue and the arming may raise nothing, and would lie there until the next one. So the arming is
//! followed by a second look, and whoever finds something there comes back. The order is a small function over a
//! trait, so that the context and the model check of all interleavings run the same lines.
//!
//! ```text
//!   take ≤ 16 ──► release ──► take ... ──► queue empty ──► release and arm ──► second look ──► armed
//!                                     └──► budget spent, more there ──► release ──► more     └─► more
//! ```

/// What a drain came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drained {
    /// Entries taken from the queue.
    pub entries: usize,
    /// What the caller does next.
    pub next: Next,
}

/// What the caller of a drain does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The queue is empty and the interrupt is armed: wait for it.
    Wait,
    /// There is more: drain again, after whatever is more urgent.
    More,
    /// The device is closed or gone: no register was touched, and none may be.
    Gone,
}

/// A queue as the order sees it.
pub trait Flow {
    /// Takes up to `limit` entries; fewer only if the queue was found empty.
    fn take(&mut self, limit: usize) -> usize;
    /// Whether an entry is there to be taken.
    fn has_new(&self) -> bool;
    /// Returns the space of what was taken.
    fn release(&mut self);
    /// Returns the space of what was taken, and asks for an interrupt when the next entry comes.
    fn release_and_arm(&mut self);
}

/// Takes up to `budget` entries, releases every `chunk`, and arms if that emptied the queue.
#[inline]
pub fn drain(queue: &mut impl Flow, budget: usize, chunk: usize) -> Drained {
    let mut entries = 0;
    let mut unreleased = 0;
    loop {
        let limit = chunk.min(budget - entries);
        let taken = queue.take(limit);
        entries += taken;
        unreleased += taken;
        if taken < limit || entries >= budget {
            break;
        }
        queue.release();
        unreleased = 0;
    }
    if entries >= budget && queue.has_new() {
        if unreleased > 0 {
            queue.release();
        }
        return Drained { entries, next: Next::More };
    }
    queue.release_and_arm();
    // The second look.
    let next = if queue.has_new() { Next::More } else { Next::Wait };
    Drained { entries, next }
}
