//! Our pool: by measured load, one queue at a time, and nothing kept that nobody uses.
//!
//! A queue is looked for among those of the same vector and poll class: of those with room, the one with the fewest
//! completions a second, then the one with the fewest reserved entries. Who asks for more than a quarter of a queue
//! gets one of its own, so that one big user does not make the pool degenerate. When the last place is given back the
//! queue is retired: it gets no new users, and is freed once its poller has passed.
//!
//! ```text
//!   Open ── last put ──▶ Retired ── poller passed ──▶ Freed
//!     ▲                     │
//!     └──── never back ─────┘   a get that races the last put opens another queue
//! ```

use super::{CqId, CqPool, Grant, NewCq, Place, PollClass, PoolError, PoolLimits, Request};

/// Entries of a shared queue, if the device can.
const QUEUE_ENTRIES: u32 = 4096;
/// A request above this part of a queue is served by a queue of its own.
const OWN_ABOVE_PART: u32 = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    Retired,
    Freed,
}

#[derive(Clone, Copy, Debug)]
struct Queue {
    vector: u32,
    class: PollClass,
    size: u32,
    used: u32,
    users: u32,
    own: bool,
    load_per_s: u64,
    state: State,
}

/// The pool `balanced`.
#[derive(Clone, Debug)]
pub struct Balanced {
    limits: PoolLimits,
    queues: Vec<Queue>,
    turn: u32,
}

impl Balanced {
    /// A pool for a device with these limits.
    pub fn new(limits: PoolLimits) -> Self {
        Self { limits, queues: Vec::new(), turn: 0 }
    }

    /// The vector that interrupts the core; an unknown core or one that is offline gets vectors in turn.
    fn vector(&mut self, core: Option<u32>) -> u32 {
        let known = core.and_then(|core| self.limits.vector_of_core.get(core as usize).copied().flatten());
        match known {
            Some(vector) if vector < self.limits.vectors => vector,
            _ => {
                self.turn = self.turn.wrapping_add(1);
                self.turn.wrapping_sub(1) % self.limits.vectors.max(1)
            }
        }
    }

    /// The queue with the least to do that has room.
    fn find(&self, vector: u32, request: &Request) -> Option<usize> {
        let fits = |queue: &Queue| {
            queue.state == State::Open
                && !queue.own
                && (queue.vector, queue.class) == (vector, request.class)
                && queue.size - queue.used >= request.entries
        };
        let candidates = self.queues.iter().enumerate().filter(|(_, queue)| fits(queue));
        candidates.min_by_key(|(_, queue)| (queue.load_per_s, queue.used)).map(|(place, _)| place)
    }

    fn open(&mut self, vector: u32, request: &Request, own: bool) -> NewCq {
        let entries = if own { request.entries } else { QUEUE_ENTRIES.min(self.limits.max_cqe) };
        let cq = CqId(self.queues.len() as u32);
        self.queues.push(Queue {
            vector,
            class: request.class,
            size: entries,
            used: 0,
            users: 0,
            own,
            load_per_s: 0,
            state: State::Open,
        });
        NewCq { cq, vector, entries }
    }

    fn held(&mut self, cq: CqId) -> Result<&mut Queue, PoolError> {
        self.queues.get_mut(cq.0 as usize).filter(|queue| queue.users > 0).ok_or(PoolError::NotHeld { cq })
    }
}

impl CqPool for Balanced {
    fn name(&self) -> &'static str {
        "balanced"
    }

    fn get(&mut self, request: Request) -> Result<Grant, PoolError> {
        self.limits.check(request.entries)?;
        let vector = self.vector(request.core);
        let own = request.entries > QUEUE_ENTRIES.min(self.limits.max_cqe) / OWN_ABOVE_PART;
        let found = if own { None } else { self.find(vector, &request) };
        let mut created = Vec::new();
        let place = found.unwrap_or_else(|| {
            let new = self.open(vector, &request, own);
            created.push(new);
            new.cq.0 as usize
        });
        let queue = &mut self.queues[place];
        queue.used += request.entries;
        queue.users += 1;
        Ok(Grant { place: Place::new(CqId(place as u32), vector, request.entries), created })
    }

    fn put(&mut self, place: Place) -> Result<(), PoolError> {
        let queue = self.held(place.cq)?;
        queue.used = queue.used.saturating_sub(place.entries);
        queue.users -= 1;
        if queue.users == 0 {
            queue.state = State::Retired;
        }
        Ok(())
    }

    fn measured(&mut self, cq: CqId, completions_per_s: u64) {
        if let Some(queue) = self.queues.get_mut(cq.0 as usize) {
            queue.load_per_s = completions_per_s;
        }
    }

    fn poller_passed(&mut self, cq: CqId) -> Option<CqId> {
        let queue = self.queues.get_mut(cq.0 as usize)?;
        if queue.state != State::Retired {
            return None;
        }
        queue.state = State::Freed;
        Some(cq)
    }

    fn in_rounds(&self) -> bool {
        true
    }
}
