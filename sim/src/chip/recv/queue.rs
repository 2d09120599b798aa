//! A context's header queue: a ring of entries in host memory, a tail that the chip moves, a head that software moves.
//!
//! ```text
//!   entry of 32 dwords   | unused | header, right-aligned           | RHF (2 dwords, written last) |
//!                        0        ^ hdrq_offset                     30                             32
//! ```
//!
//! Head and tail are dwords from the queue's start. The queue is full with one entry left free (F-332). `RcvHdrHead`'s
//! counter n asks for one interrupt once n packets wait; the timer of `RcvAvailTimeOut` starts with the first waiting
//! packet and asks for it earlier; 0 asks for none (F-333). Fired once, it waits for the next write of the head (F-334).

use qhca_regs::layout::RhfSeq;
use qhca_regs::map::{device, user};
use qhca_regs::{Duration, Instant, Port};

/// What all header queues of a chip have in common.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Geometry {
    /// Entries of a queue.
    pub(super) entries: u32,
    /// Dwords of an entry.
    pub(super) entry_dwords: u32,
    /// Dwords of a KD header beyond LRH and BTH that go to the entry.
    pub(super) kd_dwords: u32,
}

/// An entry needs an RHF and at least LRH and BTH before it.
pub(super) const RHF_DWORDS: u32 = 2;

impl Geometry {
    fn is_usable(self) -> bool {
        self.entry_dwords > RHF_DWORDS && self.entries > 1
    }

    fn len_dwords(self) -> u32 {
        // Both fields are 16 bits or fewer in any sensible use; more saturates to a queue that never wraps.
        self.entries.saturating_mul(self.entry_dwords)
    }
}

/// Whether an interrupt is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// Now.
    Now,
    /// Not yet, or not asked for.
    No,
}

/// See the chapter's head.
#[derive(Clone, Copy, Debug)]
pub(super) struct Queue {
    /// The port in whose `RcvCtrl_p` the context is enabled.
    pub(super) port: Option<Port>,
    pub(super) iova: u64,
    pub(super) tail_iova: u64,
    pub(super) tail: u32,
    head: u32,
    /// Entries written and not given back.
    waiting: u32,
    pub(super) seq: RhfSeq,
    /// Packets that must wait for an interrupt; `None` while none is asked for.
    armed: Option<u32>,
    reload: u16,
    pub(super) timer: Option<Instant>,
}

impl Queue {
    pub(super) fn new() -> Self {
        Self {
            port: None,
            iova: 0,
            tail_iova: 0,
            tail: 0,
            head: 0,
            waiting: 0,
            seq: RhfSeq::FIRST,
            armed: None,
            reload: 0,
            timer: None,
        }
    }

    /// Enabling starts the ring and its sequence anew (§5.1).
    pub(super) fn enable(&mut self, port: Port) {
        *self = Self { iova: self.iova, tail_iova: self.tail_iova, reload: self.reload, ..Self::new() };
        self.port = Some(port);
    }

    pub(super) fn disable(&mut self) {
        self.port = None;
        self.armed = None;
        self.timer = None;
    }

    #[inline]
    pub(super) fn is_full(&self, geometry: Geometry) -> bool {
        !geometry.is_usable() || self.waiting >= geometry.entries - 1
    }

    /// Steps past an entry that has been written.
    #[inline]
    pub(super) fn step(&mut self, geometry: Geometry, wraps: bool, skips_seven: bool) {
        self.tail = self.tail.saturating_add(geometry.entry_dwords);
        if wraps && self.tail >= geometry.len_dwords() {
            self.tail = 0;
        }
        self.seq = self.seq.next();
        if skips_seven && self.seq.value() == 7 {
            self.seq = self.seq.next();
        }
        self.waiting = self.waiting.saturating_add(1);
    }

    /// Software moved the head and said what interrupt it wants next.
    pub(super) fn move_head(&mut self, value: user::RcvHdrHead, geometry: Geometry, counts: bool) {
        self.head = value.rcv_head_pointer();
        self.armed = match value.counter() {
            _ if !counts => Some(1),
            0 => None,
            n => Some(u32::from(n)),
        };
        self.timer = None;
        if geometry.is_usable() {
            let (entry, entries) = (geometry.entry_dwords, geometry.entries);
            let head_entry = self.head / entry % entries;
            self.waiting = (self.tail / entry % entries + entries - head_entry) % entries;
        }
    }

    /// Looks whether the interrupt that was asked for is due, and starts the timer if packets wait.
    #[inline]
    pub(super) fn check(&mut self, now: Instant, unit: Duration) -> Due {
        let Some(count) = self.armed else { return Due::No };
        let due = self.waiting >= count
            || self.waiting > 0 && (self.reload == 0 || self.timer.is_some_and(|at| at <= now));
        if due {
            self.armed = None;
            self.timer = None;
            return Due::Now;
        }
        if self.waiting > 0 && self.timer.is_none() {
            self.timer = Some(now + unit.times(u64::from(self.reload)));
        }
        Due::No
    }

    pub(super) fn set_timeout(&mut self, value: device::RcvAvailTimeout) {
        self.reload = value.rcv_avail_to_reload();
    }

    /// `RcvAvailTimeOut` as it reads: the reload value, and what is left of the running count.
    pub(super) fn timeout(&self, now: Instant, unit: Duration) -> device::RcvAvailTimeout {
        let left = self.timer.map_or(0, |at| at.since(now).as_nanos() / unit.as_nanos().max(1));
        device::RcvAvailTimeout::default()
            .with_rcv_avail_to_reload(self.reload)
            .with_rcv_avail_to_count(left.min(0xFFFF) as u16)
    }

    /// `RcvHdrHead` as it reads: the head, and how many packets an interrupt still needs.
    pub(super) fn head_register(&self) -> user::RcvHdrHead {
        let left = self.armed.map_or(0, |count| count.saturating_sub(self.waiting));
        user::RcvHdrHead::default().with_rcv_head_pointer(self.head).with_counter(left.min(0xFFFF) as u16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GEOMETRY: Geometry = Geometry { entries: 8, entry_dwords: 32, kd_dwords: 9 };
    const UNIT: Duration = Duration::from_nanos(100);

    fn head(entry: u32, counter: u16) -> user::RcvHdrHead {
        user::RcvHdrHead::default().with_rcv_head_pointer(entry * 32).with_counter(counter)
    }

    fn filled(entries: u32) -> Queue {
        let mut queue = Queue::new();
        (0..entries).for_each(|_| queue.step(GEOMETRY, true, false));
        queue
    }

    #[test]
    fn one_entry_stays_free_and_the_tail_wraps() {
        let mut queue = filled(7);
        assert!(queue.is_full(GEOMETRY));
        queue.move_head(head(7, 0), GEOMETRY, true);
        assert!(!queue.is_full(GEOMETRY) && queue.waiting == 0);
        queue.step(GEOMETRY, true, false);
        assert_eq!((queue.tail, queue.seq.value()), (0, 9));
    }

    #[test]
    fn counter_asks_for_one_interrupt_after_that_many_packets() {
        let mut queue = Queue::new();
        queue.set_timeout(device::RcvAvailTimeout(50));
        queue.move_head(head(0, 3), GEOMETRY, true);
        for expected in [Due::No, Due::No, Due::Now, Due::No] {
            queue.step(GEOMETRY, true, false);
            assert_eq!(queue.check(Instant::ZERO, UNIT), expected);
        }
    }

    #[test]
    fn timer_asks_earlier_and_counter_zero_never() {
        let mut queue = filled(1);
        queue.set_timeout(device::RcvAvailTimeout(50));
        queue.move_head(head(0, 16), GEOMETRY, true);
        assert_eq!(queue.check(Instant::ZERO, UNIT), Due::No);
        assert_eq!(queue.timer, Some(Instant::from_nanos(5000)));
        assert_eq!(queue.check(Instant::from_nanos(5000), UNIT), Due::Now);
        queue.move_head(head(0, 0), GEOMETRY, true);
        assert_eq!(queue.check(Instant::MAX, UNIT), Due::No);
    }

    #[test]
    fn packets_already_waiting_when_armed_interrupt_promptly() {
        let mut queue = filled(4);
        queue.set_timeout(device::RcvAvailTimeout(375));
        queue.move_head(head(0, 4), GEOMETRY, true);
        assert_eq!(queue.check(Instant::ZERO, UNIT), Due::Now);
    }

    #[test]
    fn head_outside_the_queue_is_taken_modulo_its_length() {
        let mut queue = filled(3);
        queue.move_head(head(9, 0), GEOMETRY, true);
        assert_eq!(queue.waiting, 2);
        queue.move_head(user::RcvHdrHead(u64::MAX), Geometry::default(), true);
        assert!(queue.is_full(Geometry::default()), "a queue without geometry takes nothing");
    }
}
