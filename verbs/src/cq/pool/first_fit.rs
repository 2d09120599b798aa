//! The pools to compare with: everybody a queue, and the published one.

use super::{CqId, CqPool, Grant, NewCq, Place, PollClass, PoolError, PoolLimits, Request};

/// Everybody gets a queue of exactly what was asked for.
#[derive(Clone, Debug)]
pub struct Private {
    limits: PoolLimits,
    held: Vec<bool>,
    turn: u32,
}

impl Private {
    /// A pool for a device with these limits.
    pub fn new(limits: PoolLimits) -> Self {
        Self { limits, held: Vec::new(), turn: 0 }
    }
}

/// The published rule for a hint: modulo what there is; without one, vectors in turn. Source: F-853.
fn vector_by_modulo(limits: &PoolLimits, core: Option<u32>, turn: &mut u32) -> u32 {
    let vectors = limits.vectors.min(limits.online()).max(1);
    let number = core.unwrap_or_else(|| {
        *turn = turn.wrapping_add(1);
        turn.wrapping_sub(1)
    });
    number % vectors
}

impl CqPool for Private {
    fn name(&self) -> &'static str {
        "private"
    }

    fn get(&mut self, request: Request) -> Result<Grant, PoolError> {
        self.limits.check(request.entries)?;
        let vector = vector_by_modulo(&self.limits, request.core, &mut self.turn);
        let cq = CqId(self.held.len() as u32);
        self.held.push(true);
        let created = vec![NewCq { cq, vector, entries: request.entries }];
        Ok(Grant { place: Place::new(cq, vector, request.entries), created })
    }

    fn put(&mut self, place: Place) -> Result<(), PoolError> {
        match self.held.get_mut(place.cq.0 as usize) {
            Some(held) if *held => {
                *held = false;
                Ok(())
            }
            _ => Err(PoolError::NotHeld { cq: place.cq }),
        }
    }
}

/// Least size of a queue of the published pool. Source: F-853.
const QUEUE_ENTRIES: u32 = 4096;

#[derive(Clone, Copy, Debug)]
struct Queue {
    vector: u32,
    class: PollClass,
    size: u32,
    used: u32,
}

/// The published pool: the first queue on the vector that has room; none: one more queue on *every* vector.
///
/// Queues are never freed. Requests that no queue can hold are refused here; the published code looks for ever.
#[derive(Clone, Debug)]
pub struct FirstFit {
    limits: PoolLimits,
    queues: Vec<Queue>,
    turn: u32,
}

impl FirstFit {
    /// A pool for a device with these limits.
    pub fn new(limits: PoolLimits) -> Self {
        Self { limits, queues: Vec::new(), turn: 0 }
    }

    fn find(&self, vector: u32, request: &Request) -> Option<usize> {
        self.queues.iter().position(|queue| {
            queue.vector == vector
                && queue.class == request.class
                && queue.size - queue.used >= request.entries
        })
    }

    fn grow(&mut self, request: &Request) -> Vec<NewCq> {
        let size = request.entries.max(QUEUE_ENTRIES).min(self.limits.max_cqe);
        let vectors = self.limits.vectors.min(self.limits.online()).max(1);
        let first = self.queues.len() as u32;
        let class = request.class;
        self.queues.extend((0..vectors).map(|vector| Queue { vector, class, size, used: 0 }));
        (0..vectors).map(|vector| NewCq { cq: CqId(first + vector), vector, entries: size }).collect()
    }
}

impl CqPool for FirstFit {
    fn name(&self) -> &'static str {
        "first-fit"
    }

    fn get(&mut self, request: Request) -> Result<Grant, PoolError> {
        self.limits.check(request.entries)?;
        let vector = vector_by_modulo(&self.limits, request.core, &mut self.turn);
        let mut created = Vec::new();
        let place = match self.find(vector, &request) {
            Some(place) => place,
            None => {
                created = self.grow(&request);
                created[vector as usize].cq.0 as usize
            }
        };
        self.queues[place].used += request.entries;
        Ok(Grant { place: Place::new(CqId(place as u32), vector, request.entries), created })
    }

    fn put(&mut self, place: Place) -> Result<(), PoolError> {
        let queue = self.queues.get_mut(place.cq.0 as usize).ok_or(PoolError::NotHeld { cq: place.cq })?;
        queue.used = queue.used.checked_sub(place.entries).ok_or(PoolError::NotHeld { cq: place.cq })?;
        Ok(())
    }
}
