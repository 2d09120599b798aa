//! A receive context: follows its header queue, hands packets out in place, returns the space.
//!
//! A context belongs to one thread at a time and needs nobody else: its queue, its buffers and its user registers
//! are its own. Whether an entry is new shows in its sequence number, 1 to 13 and round again, so no register is
//! read and no tail is written to memory (F-202). Space goes back to the chip by two registers: the index of the last
//! eager buffer used, and the head of the queue with the number of packets after which to interrupt (F-208).
//!
//! ```text
//!   RcvAvailTimeOut   only if it changes
//!   RcvEgrIndexHead   only if buffers were used           at most once in 32 packets,
//!   RcvHdrHead        head, counter                       and once more to arm
//!   RcvHdrHead        the same again
//! ```
//!
//! It does not wait, knows no clock of its own, and never allocates after it was made.

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::Arc;

use qhca_irq::moderation::RcvSetting;
use qhca_regs::layout::{Rhf, RhfSeq};
use qhca_regs::map::user;
use qhca_regs::{Bar, Ctxt, GONE, Instant, Port};

use super::counts::RxCounts;
use super::entry::Limits;
use super::expected::Expected;
use super::flow::{self, Drained, Flow, Next};
use super::heads::Heads;
use super::memory::ContextMemory;
use super::packet::Arrival;
use super::reader::{Cursor, Reader};
use crate::shared::{DeviceShared, DeviceState};

/// Space is returned to the chip once in so many packets; the stock driver does so every 16 (F-208). The smallest eager
/// array of a context holds 1024, so the chip does not notice, and half the register writes are saved.
pub const RELEASE_EVERY: usize = 32;
/// A batch is no longer than this while the error worker is wanted, so that it gets its turn.
pub const BATCH_WHILE_ERRORS_PENDING: usize = 32;
/// How much larger a batch may be after the context has overflowed. Not more: whoever has one core for packets and
/// errors acts on a fatal error only when the batch has ended.
const BOOST: usize = 2;
/// Packets after which the chip interrupts, at most (F-208).
const ARM_AFTER_PACKETS: u16 = 16;

/// What a context is made from.
pub struct ContextSetup {
    /// Its number.
    pub ctxt: Ctxt,
    /// The port whose packets it gets.
    pub port: Port,
    /// Its memory, already programmed into the chip.
    pub memory: ContextMemory,
    /// What it has in common with the device's other threads.
    pub shared: Arc<DeviceShared>,
    /// Contents of `RcvAvailTimeOut` that the bring-up has written.
    pub timeout: u16,
}

/// One receive context. It may move to another thread, but only one thread can use it.
pub struct Context {
    ctxt: Ctxt,
    port: Port,
    memory: ContextMemory,
    limits: Limits,
    shared: Arc<DeviceShared>,
    heads: Heads,
    backlog: u64,
    counts: RxCounts,
    expected: Expected,
    /// The device's word as this context knows it: another one means that it was reset, or is not open.
    known: u32,
    not_sync: PhantomData<Cell<()>>,
}

impl Context {
    /// The context over memory that the chip has been told of and has not written yet.
    pub fn new(setup: ContextSetup) -> Self {
        let setting = RcvSetting { timeout_ticks: setup.timeout, count_packets: ARM_AFTER_PACKETS };
        let heads = Heads::new(setup.ctxt, setup.memory.eager_shape().count(), setting);
        Self {
            ctxt: setup.ctxt,
            port: setup.port,
            limits: Limits::new(setup.memory.queue_shape(), setup.memory.eager_shape()),
            memory: setup.memory,
            heads,
            backlog: 0,
            counts: RxCounts::default(),
            expected: Expected::new(setup.ctxt),
            known: setup.shared.word(),
            shared: setup.shared,
            not_sync: PhantomData,
        }
    }

    /// The same, with a table of bound pages that somebody else takes back from the chip.
    #[must_use]
    pub(crate) fn with_expected(self, expected: Expected) -> Self {
        // The old table bound nothing.
        let mut context = self;
        context.expected = expected;
        context
    }

    /// Pages that payload goes to directly, and the flows that it comes in.
    pub fn expected(&self) -> &Expected {
        &self.expected
    }

    /// The context's number.
    pub fn ctxt(&self) -> Ctxt {
        self.ctxt
    }

    /// The port whose packets it gets.
    pub fn port(&self) -> Port {
        self.port
    }

    /// What became of every entry so far.
    pub fn counts(&self) -> &RxCounts {
        &self.counts
    }

    /// Its memory.
    pub fn memory(&self) -> &ContextMemory {
        &self.memory
    }

    /// Whether a packet is waiting. Reads memory only.
    #[inline]
    pub fn has_packet(&self) -> bool {
        self.heads.cursor.is_at(self.rhf_at(self.heads.cursor.at_bytes))
    }

    /// Takes up to `budget` packets and hands each to `sink`, in the order they came.
    ///
    /// Returns the space, and arms the interrupt if the queue was emptied. While the error worker is wanted a call
    /// takes at most [`BATCH_WHILE_ERRORS_PENDING`]; after an overflow it takes more than asked for, until the queue
    /// is less than a quarter full. Call it again when it says [`Next::More`].
    ///
    /// Source: F-202 to F-208.
    #[inline]
    pub fn drain(
        &mut self,
        budget: usize,
        bar: &impl Bar,
        now: Instant,
        sink: impl FnMut(Arrival<'_>),
    ) -> Drained {
        // The order of a drain does not depend on the time; it is taken all the same, as everything in the core takes it.
        let _ = now;
        if self.shared.word() != self.known
            && let Some(next) = self.look_what_changed()
        {
            return Drained { entries: 0, next };
        }
        self.counts.drains += 1;
        let budget = self.allowance(budget);
        let Self { memory, limits, heads, counts, .. } = self;
        let mut taking = Taking { reader: Reader::new(memory, limits), heads, counts, bar, sink };
        let drained = flow::drain(&mut taking, budget, RELEASE_EVERY);
        self.account(drained);
        drained
    }

    /// Whether the device was reset and is usable again: the next drain begins with an empty queue.
    pub fn was_reset(&self) -> bool {
        self.shared.word() != self.known && self.shared.is_open()
    }

    /// The device was reset, is being reset, or is no more. What a drain comes to if it cannot go on.
    #[cold]
    fn look_what_changed(&mut self) -> Option<Next> {
        let word = self.shared.word();
        match self.shared.state() {
            DeviceState::Open => {
                // The chip was told of the queue anew, which begins with its first entry and the first sequence number.
                let setting = self.heads.setting;
                self.heads = Heads::new(self.ctxt, self.memory.eager_shape().count(), setting);
                self.heads.forget_timeout();
                (self.known, self.backlog) = (word, 0);
                self.counts.restarts += 1;
                None
            }
            DeviceState::Resetting => Some(Next::Wait),
            _ => Some(Next::Gone),
        }
    }

    /// How many entries this drain may take.
    #[inline]
    fn allowance(&self, budget: usize) -> usize {
        let budget = budget.max(1);
        if self.shared.wants_short_batches() {
            budget.min(BATCH_WHILE_ERRORS_PENDING)
        } else if self.shared.has_overflowed(self.ctxt) {
            budget.saturating_mul(BOOST)
        } else {
            budget
        }
    }

    /// Keeps the books of one drain.
    #[inline]
    fn account(&mut self, drained: Drained) {
        self.backlog += drained.entries as u64;
        if drained.entries == 0 {
            self.counts.drains_empty += 1;
        }
        if self.shared.has_overflowed(self.ctxt) && !self.is_quarter_full() {
            self.shared.clear_overflow(self.ctxt);
            self.counts.boosts += 1;
        }
        if drained.next == Next::Wait {
            self.account_backlog();
        }
    }

    /// Closes the account of a row of entries that was taken before the queue was found empty.
    #[inline]
    fn account_backlog(&mut self) {
        let scarce = u64::from(self.memory.eager_shape().count()) * 3 / 4;
        self.counts.low_water += u64::from(self.backlog > scarce);
        self.counts.deepest_backlog = self.counts.deepest_backlog.max(self.backlog);
        self.backlog = 0;
    }

    /// Whether a quarter of the queue or more is waiting: whether the entry so far ahead is new.
    pub fn is_quarter_full(&self) -> bool {
        let shape = self.memory.queue_shape();
        let ahead = shape.entries() / 4;
        let at = (self.heads.cursor.at_bytes + ahead as usize * shape.entry_bytes()) % shape.len_bytes();
        let steps = ahead % u32::from(RhfSeq::LAST.value());
        let seq = (0..steps).fold(self.heads.cursor.seq(), |seq, _| seq.next());
        self.has_packet() && seq.matches(self.rhf_at(at))
    }

    /// Sets the moderation of interrupts from the next arming on: what `RcvAvailTimeOut` is to hold, and after how
    /// many packets to interrupt (0, which the chip takes for never, counts as 1).
    pub fn moderate(&mut self, setting: RcvSetting) {
        self.heads.setting = RcvSetting { count_packets: setting.count_packets.max(1), ..setting };
    }

    /// The moderation that is in force, or will be from the next arming on.
    pub fn moderation(&self) -> RcvSetting {
        self.heads.setting
    }

    /// Finds the queue again if the chip has gone on without us. Reads one register; for a watchdog, not for a drain.
    ///
    /// If the chip's tail is ahead of us but the next entry never becomes new, a sequence number was lost or the
    /// entry was overwritten. The entries up to the tail are given up and counted, and reading goes on at the tail.
    /// Returns how many entries were given up.
    pub fn resync(&mut self, bar: &impl Bar) -> usize {
        if self.shared.word() != self.known || self.has_packet() {
            return 0;
        }
        let tail = user::RCV_HDR_TAIL.ctxt(self.ctxt).read(bar);
        let shape = self.memory.queue_shape();
        let tail_bytes = usize::try_from(tail).unwrap_or(usize::MAX).saturating_mul(4);
        let plausible = tail_bytes < shape.len_bytes() && tail_bytes.is_multiple_of(shape.entry_bytes());
        // A packet may have come between the look and the read: then there is nothing to find.
        if tail == GONE || !plausible || tail_bytes == self.heads.cursor.at_bytes || self.has_packet() {
            return 0;
        }
        let lost = (tail_bytes + shape.len_bytes() - self.heads.cursor.at_bytes) % shape.len_bytes()
            / shape.entry_bytes();
        let last = (tail_bytes + shape.len_bytes() - shape.entry_bytes()) % shape.len_bytes();
        self.heads.cursor =
            Cursor::new(tail_bytes, seq_after(self.rhf_at(last), self.heads.cursor.seq(), lost));
        self.counts.resyncs += 1;
        self.counts.lost_in_resync += lost as u64;
        self.counts.releases += 1;
        self.heads.write(bar, 0);
        lost
    }

    /// Arms the interrupt without a drain: after the chip was set up, or when a poller goes to sleep. Look at the
    /// queue afterwards.
    pub fn arm(&mut self, bar: &impl Bar) {
        if self.shared.word() == self.known {
            self.counts.releases += 1;
            self.counts.rearms += 1;
            self.heads.write(bar, self.heads.setting.count_packets);
        }
    }

    /// The RHF of the entry that starts at `at_bytes`.
    #[inline]
    fn rhf_at(&self, at_bytes: usize) -> Rhf {
        let shape = self.memory.queue_shape();
        let rhf_at = at_bytes + shape.rhf_dword() as usize * 4;
        Rhf(self.memory.queue().memory().load_u64(rhf_at))
    }
}

impl Drop for Context {
    /// The device's owner takes the memory from the chip before anybody frees it.
    fn drop(&mut self) {
        self.shared.note_context_returned(self.ctxt);
    }
}

/// The sequence number after a gap of `lost` entries: by what the last of them bears, or by counting if that is
/// no sequence number.
fn seq_after(last: Rhf, expected: RhfSeq, lost: usize) -> RhfSeq {
    let cycle = usize::from(RhfSeq::LAST.value());
    let known = (0..cycle).scan(RhfSeq::FIRST, |seq, _| Some(std::mem::replace(seq, seq.next())));
    match known.into_iter().find(|seq| seq.matches(last)) {
        Some(seq) => seq.next(),
        None => (0..lost % cycle).fold(expected, |seq, _| seq.next()),
    }
}

/// A context in the middle of a drain.
struct Taking<'a, B, S> {
    reader: Reader<'a>,
    heads: &'a mut Heads,
    counts: &'a mut RxCounts,
    bar: &'a B,
    sink: S,
}

impl<B: Bar, S: FnMut(Arrival<'_>)> Flow for Taking<'_, B, S> {
    #[inline]
    fn take(&mut self, limit: usize) -> usize {
        let Heads { cursor, eager, .. } = &mut *self.heads;
        self.reader.take(limit, cursor, eager, self.counts, &mut self.sink)
    }

    #[inline]
    fn has_new(&self) -> bool {
        self.reader.has_new(&self.heads.cursor)
    }

    fn release(&mut self) {
        self.counts.releases += 1;
        self.heads.write(self.bar, 0);
    }

    fn release_and_arm(&mut self) {
        self.counts.releases += 1;
        self.counts.rearms += 1;
        self.heads.write(self.bar, self.heads.setting.count_packets);
    }
}

#[cfg(test)]
#[path = "context_tests.rs"]
mod tests;
