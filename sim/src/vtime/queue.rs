//! What is still to happen, in order: a heap of (time, sequence) with timers that can be called off.
//!
//! ```text
//!   heap   (time, sequence, slot)  (time, sequence, slot)  ...      24 bytes each, smallest first
//!   slots  [sequence, event]  [free]  [sequence, event]  ...        the events themselves, unmoved, unboxed
//! ```
//!
//! Two events of one instant leave in the order in which they came, because the sequence number breaks the tie. A
//! cancelled timer gives up its slot at once; its heap entry stays until it surfaces, recognised as stale by the
//! sequence number, and is swept out when stale entries outnumber live ones. So cancelling costs a store, and memory
//! is bounded by twice the timers that are alive.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use qhca_regs::time::Instant;

/// A ticket for one scheduled event; worthless once the event has left the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timer {
    slot: u32,
    sequence: u64,
}

/// Events waiting for their time.
#[derive(Clone, Debug)]
pub struct EventQueue<E> {
    heap: BinaryHeap<Reverse<Key>>,
    slots: Vec<Slot<E>>,
    free: Vec<u32>,
    next_sequence: u64,
    live: usize,
}

/// Compared field by field: time first, then order of arrival. `slot` never decides, as sequences are unique.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    at: Instant,
    sequence: u64,
    slot: u32,
}

#[derive(Clone, Debug)]
struct Slot<E> {
    sequence: u64,
    event: Option<E>,
}

/// Below this many heap entries sweeping is not worth the trouble.
const SWEEP_FLOOR_ENTRIES: usize = 64;

impl<E> EventQueue<E> {
    /// A queue with nothing in it.
    pub fn new() -> Self {
        Self { heap: BinaryHeap::new(), slots: Vec::new(), free: Vec::new(), next_sequence: 0, live: 0 }
    }

    /// Puts `event` in for the time `at`, behind whatever is already there for that time.
    ///
    /// PANIC: more than 2^32 events waiting at once; at 40 bytes each the memory is gone long before.
    pub fn push(&mut self, at: Instant, event: E) -> Timer {
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        let filled = Slot { sequence, event: Some(event) };
        let slot = match self.free.pop() {
            Some(slot) => {
                self.slots[slot as usize] = filled;
                slot
            }
            None => {
                let slot = u32::try_from(self.slots.len()).expect("fewer than 2^32 events wait at once");
                self.slots.push(filled);
                slot
            }
        };
        self.live += 1;
        self.heap.push(Reverse(Key { at, sequence, slot }));
        Timer { slot, sequence }
    }

    /// Takes the event of `timer` out before its time; `None` if it has left already.
    pub fn cancel(&mut self, timer: Timer) -> Option<E> {
        let event = self.take(timer.slot, timer.sequence)?;
        if self.heap.len() > SWEEP_FLOOR_ENTRIES && self.heap.len() > 2 * self.live {
            let slots = &self.slots;
            self.heap.retain(|Reverse(key)| slots[key.slot as usize].holds(key.sequence));
        }
        Some(event)
    }

    /// True while the event of `timer` waits.
    pub fn is_pending(&self, timer: Timer) -> bool {
        self.slots.get(timer.slot as usize).is_some_and(|slot| slot.holds(timer.sequence))
    }

    /// When the next event is due.
    pub fn next_at(&mut self) -> Option<Instant> {
        while let Some(&Reverse(key)) = self.heap.peek() {
            if self.slots[key.slot as usize].holds(key.sequence) {
                return Some(key.at);
            }
            self.heap.pop();
        }
        None
    }

    /// Takes the next event out if it is due at `limit` or before.
    pub fn pop_until(&mut self, limit: Instant) -> Option<(Instant, E)> {
        loop {
            let &Reverse(key) = self.heap.peek()?;
            if key.at > limit {
                // A stale entry past the limit is no reason to look further: all others are later still.
                return None;
            }
            self.heap.pop();
            if let Some(event) = self.take(key.slot, key.sequence) {
                return Some((key.at, event));
            }
        }
    }

    /// Events that wait.
    pub fn len(&self) -> usize {
        self.live
    }

    /// True if nothing waits.
    pub fn is_empty(&self) -> bool {
        self.live == 0
    }

    fn take(&mut self, slot: u32, sequence: u64) -> Option<E> {
        let entry = self.slots.get_mut(slot as usize)?;
        if entry.sequence != sequence {
            return None;
        }
        let event = entry.event.take()?;
        self.free.push(slot);
        self.live -= 1;
        Some(event)
    }
}

impl<E> Default for EventQueue<E> {
    fn default() -> Self {
        Self::new()
    }
}

impl<E> Slot<E> {
    fn holds(&self, sequence: u64) -> bool {
        self.sequence == sequence && self.event.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(ns: u64) -> Instant {
        Instant::from_nanos(ns)
    }

    #[test]
    fn events_of_one_instant_leave_in_order_of_arrival() {
        let mut queue = EventQueue::new();
        for name in ["a", "b", "c"] {
            queue.push(at(5), name);
        }
        queue.push(at(4), "first");
        let order: Vec<_> =
            std::iter::from_fn(|| queue.pop_until(Instant::MAX)).map(|(_, name)| name).collect();
        assert_eq!(order, ["first", "a", "b", "c"]);
    }

    #[test]
    fn a_cancelled_timer_never_fires_and_its_ticket_is_worthless() {
        let mut queue = EventQueue::new();
        let gone = queue.push(at(1), 'x');
        let kept = queue.push(at(2), 'y');
        assert_eq!(queue.cancel(gone), Some('x'));
        assert_eq!(queue.cancel(gone), None);
        // The slot is used again; the old ticket must not reach the new tenant.
        let tenant = queue.push(at(3), 'z');
        assert!(!queue.is_pending(gone) && queue.is_pending(kept) && queue.is_pending(tenant));
        assert_eq!(queue.cancel(gone), None);
        assert_eq!(queue.pop_until(at(10)), Some((at(2), 'y')));
        assert_eq!(queue.pop_until(at(10)), Some((at(3), 'z')));
        assert_eq!(queue.pop_until(at(10)), None);
    }

    #[test]
    fn an_event_past_the_limit_stays() {
        let mut queue = EventQueue::new();
        queue.push(at(100), ());
        assert_eq!(queue.pop_until(at(99)), None);
        assert_eq!(queue.next_at(), Some(at(100)));
        assert_eq!(queue.pop_until(at(100)), Some((at(100), ())));
        assert!(queue.is_empty());
    }

    #[test]
    fn a_timer_pushed_back_for_ever_does_not_grow_the_heap() {
        let mut queue = EventQueue::new();
        let mut timer = queue.push(at(0), 0_u32);
        for round in 1..100_000_u64 {
            queue.cancel(timer);
            timer = queue.push(at(round), 0);
        }
        assert_eq!(queue.len(), 1);
        assert!(queue.heap.len() <= SWEEP_FLOOR_ENTRIES + 2 && queue.slots.len() <= 2);
    }

    #[derive(Clone, Debug)]
    enum Deed {
        Push(u64),
        Cancel(usize),
        PopUntil(u64),
    }

    fn deeds() -> impl Strategy<Value = Vec<Deed>> {
        let deed = prop_oneof![
            4 => (0_u64..50).prop_map(Deed::Push),
            2 => (0_usize..200).prop_map(Deed::Cancel),
            2 => (0_u64..60).prop_map(Deed::PopUntil),
        ];
        prop::collection::vec(deed, 0..200)
    }

    proptest! {
        /// Against a sorted list, which is too slow to use and too plain to be wrong.
        #[test]
        fn the_queue_does_what_a_sorted_list_would_do(deeds in deeds()) {
            let mut queue = EventQueue::new();
            let mut list: Vec<(u64, usize)> = Vec::new();
            let mut tickets = Vec::new();
            for deed in deeds {
                match deed {
                    Deed::Push(time) => {
                        list.push((time, tickets.len()));
                        tickets.push(queue.push(at(time), tickets.len()));
                    }
                    Deed::Cancel(n) if n < tickets.len() => {
                        let known = list.iter().position(|&(_, id)| id == n);
                        prop_assert_eq!(queue.is_pending(tickets[n]), known.is_some());
                        prop_assert_eq!(queue.cancel(tickets[n]), known.map(|place| list.remove(place).1));
                    }
                    Deed::Cancel(_) => {}
                    Deed::PopUntil(limit) => {
                        let first = list.iter().copied().min().filter(|&(time, _)| time <= limit);
                        list.retain(|&entry| Some(entry) != first);
                        prop_assert_eq!(queue.pop_until(at(limit)), first.map(|(time, id)| (at(time), id)));
                    }
                }
                prop_assert_eq!(queue.len(), list.len());
                prop_assert_eq!(queue.next_at(), list.iter().min().map(|&(time, _)| at(time)));
            }
        }
    }
}
