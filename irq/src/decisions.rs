//! What a policy decided lately: a ring of its last decisions, each with its inputs, so that a person can read them and
//! a test can replay them.
//!
//! A policy that cannot say why it did something cannot be argued with. So each decision point that changed something
//! leaves a record; the newest [`Ring::CAPACITY`] are kept and the rest are counted.

/// The last decisions of one policy, oldest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ring<T> {
    kept: Vec<T>,
    /// Where the next record goes once the ring is full.
    next: usize,
    recorded: u64,
}

impl<T> Ring<T> {
    /// Records that are kept; the memory of one policy's past is bounded by it.
    pub const CAPACITY: usize = 256;

    /// A ring in which nothing stands. It allocates with its first record.
    pub const fn new() -> Self {
        Self { kept: Vec::new(), next: 0, recorded: 0 }
    }

    /// Adds a record, in place of the oldest if the ring is full.
    pub fn record(&mut self, decision: T) {
        self.recorded += 1;
        if self.kept.len() < Self::CAPACITY {
            self.kept.push(decision);
            return;
        }
        self.kept[self.next] = decision;
        self.next = (self.next + 1) % Self::CAPACITY;
    }

    /// The records that are kept, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        let (newer, older) = self.kept.split_at(self.next);
        older.iter().chain(newer)
    }

    /// Decisions made so far, those no longer kept included.
    pub const fn recorded(&self) -> u64 {
        self.recorded
    }

    /// Decisions that are no longer kept.
    pub fn forgotten(&self) -> u64 {
        self.recorded - self.kept.len() as u64
    }
}

impl<T> Default for Ring<T> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_ring_keeps_the_newest_in_order_and_counts_the_rest() {
        let mut ring = Ring::new();
        for n in 0..Ring::<usize>::CAPACITY + 10 {
            ring.record(n);
        }
        let kept: Vec<usize> = ring.iter().copied().collect();
        assert_eq!(kept, (10..Ring::<usize>::CAPACITY + 10).collect::<Vec<_>>());
        assert_eq!((ring.recorded(), ring.forgotten()), (Ring::<usize>::CAPACITY as u64 + 10, 10));
    }
}
