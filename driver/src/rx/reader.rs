//! Entries of a header queue, one after the other.
//!
//! The chip's word at the end of an entry is compared with the word that an ordinary packet would have there, in
//! the bits that matter: one comparison tells that the entry is new, has no flaw, is a plain packet and has its
//! payload in a buffer. Whatever differs goes the long way round, which is right for everything.
//!
//! ```text
//!   RHF xor expected, masked:  0 ──────────► bound lengths and index ─► compare the LRH's length ─► packet
//!                              sequence ───► not new: stop                       │
//!                              rest ───────► judge ◄─────────────────────────────┘ out of bounds
//! ```

use std::sync::atomic::{AtomicU64, Ordering};

use qhca_regs::layout::{Rhf, RhfSeq};

use super::counts::RxCounts;
use super::entry::{
    Bounded, Limits, Malformed, ORDINARY, ORDINARY_MASK, Ordinary, Verdict, bound_ordinary, judge, lrh_len,
};
use super::memory::ContextMemory;
use super::packet::{Arrival, Packet};
use crate::dma::DmaSlice;

/// Words of an entry as the options leave it: 32 dwords.
const USUAL_ENTRY_WORDS: usize = 16;
/// Where the sequence number stands in an RHF.
const SEQ_SHIFT: u32 = 32;
const SEQ_MASK: u64 = 0xF << SEQ_SHIFT;
const SEQ_ONE: u64 = 1 << SEQ_SHIFT;
/// What an ordinary packet with the first and with the last sequence number is compared with.
const EXPECT_FIRST: u64 = ORDINARY | (RhfSeq::FIRST.value() as u64) << SEQ_SHIFT;
const EXPECT_LAST: u64 = ORDINARY | (RhfSeq::LAST.value() as u64) << SEQ_SHIFT;

/// Where the next entry is expected, and by which sequence number it will be known.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor {
    pub(super) at_bytes: usize,
    /// The bits of an ordinary packet with the next sequence number.
    expect: u64,
}

impl Cursor {
    pub(super) const fn new(at_bytes: usize, seq: RhfSeq) -> Self {
        Self { at_bytes, expect: ORDINARY | (seq.value() as u64) << SEQ_SHIFT }
    }

    /// The next sequence number.
    pub(super) fn seq(&self) -> RhfSeq {
        let value = (self.expect & SEQ_MASK) >> SEQ_SHIFT;
        (1..value).fold(RhfSeq::FIRST, |seq, _| seq.next())
    }

    /// Whether `rhf`, read where the cursor stands, is new.
    #[inline]
    pub(super) const fn is_at(&self, rhf: Rhf) -> bool {
        (rhf.0 ^ self.expect) & SEQ_MASK == 0
    }
}

/// Which eager buffers were used since space was last returned.
#[derive(Clone, Copy, Debug)]
pub(super) struct EagerCursor {
    last: u32,
    returned: u32,
    /// Whether the indices were out of line since: then equal ones do not mean that nothing was used.
    out_of_line: bool,
}

impl EagerCursor {
    pub(super) const fn new(last: u32) -> Self {
        Self { last, returned: last, out_of_line: false }
    }

    /// The index to return, if buffers were used since the last time.
    #[inline]
    pub(super) fn take_unreturned(&mut self) -> Option<u32> {
        let used = self.last != self.returned || self.out_of_line;
        self.returned = self.last;
        self.out_of_line = false;
        used.then_some(self.last)
    }

    /// Notes that buffer `index`, below `count`, was used. Whatever lies between it and the last one was passed
    /// over, and goes back to the chip with it (F-207).
    fn used(&mut self, index: u32, count: u32, counts: &mut RxCounts) {
        if index != self.last + 1 {
            self.not_the_next(index, count, counts);
        }
        self.last = index;
    }

    /// The index is not one more than the last: the array begins anew, or the chip passed buffers over or repeats one.
    #[cold]
    fn not_the_next(&mut self, index: u32, count: u32, counts: &mut RxCounts) {
        self.out_of_line = true;
        let next = if self.last + 1 == count { 0 } else { self.last + 1 };
        if index == self.last {
            counts.eager_repeated += 1;
        } else if index != next {
            counts.eager_skipped += u64::from((index + count - next) % count);
        }
    }
}

/// A context's memory while entries are taken from it.
pub(super) struct Reader<'a> {
    memory: &'a ContextMemory,
    limits: &'a Limits,
    /// The queue's words: each look at them is a compare and a load.
    words: &'a [AtomicU64],
}

impl<'a> Reader<'a> {
    /// `limits` are those of `memory`.
    #[inline]
    pub(super) fn new(memory: &'a ContextMemory, limits: &'a Limits) -> Self {
        // PANIC: `ContextMemory` made the region at least as long as the queue.
        let words = &memory.queue().memory().words()[..limits.queue_bytes / 8];
        Self { memory, limits, words }
    }

    /// Whether the entry at `cursor` is new.
    #[inline]
    pub(super) fn has_new(&self, cursor: &Cursor) -> bool {
        let rhf_at = cursor.at_bytes / 8 + self.limits.entry_words - 1;
        cursor.is_at(Rhf(u64::from_le(self.words[rhf_at].load(Ordering::Acquire))))
    }

    /// Takes up to `limit` entries from `cursor` on and hands each to `sink`; fewer only if the next is not new.
    #[inline]
    pub(super) fn take(
        &self,
        limit: usize,
        cursor: &mut Cursor,
        eager: &mut EagerCursor,
        counts: &mut RxCounts,
        sink: &mut impl FnMut(Arrival<'_>),
    ) -> usize {
        let mut taken = 0;
        while taken < limit {
            let ahead = &self.words[cursor.at_bytes / 8..];
            let mut run = Run::new(cursor, eager, counts);
            self.run(ahead, limit - taken, &mut run, sink);
            taken += run.taken;
            drop(run);
            if cursor.at_bytes != self.limits.queue_bytes {
                break;
            }
            cursor.at_bytes = 0;
        }
        taken
    }

    /// The part of [`take`](Self::take) up to the queue's end: up to `limit` entries of the words `ahead`.
    #[inline]
    fn run(&self, ahead: &[AtomicU64], limit: usize, run: &mut Run<'_>, sink: &mut impl FnMut(Arrival<'_>)) {
        let entry_words = self.limits.entry_words;
        let (usual, _) = match entry_words {
            USUAL_ENTRY_WORDS => ahead.as_chunks::<USUAL_ENTRY_WORDS>(),
            _ => Default::default(),
        };
        let count = if usual.is_empty() { ahead.len() / entry_words } else { usual.len() }.min(limit);
        while run.taken < count {
            // Entries of the usual size, which is a constant there, have a loop of their own.
            if !usual.is_empty() {
                self.ordinary(&usual[run.taken..count], run, sink);
            }
            if run.taken == count || run.wrap() {
                continue;
            }
            // PANIC: `count` entries lie ahead, and each holds its RHF.
            let entry = &ahead[run.taken * entry_words..][..entry_words];
            let (rhf, headers) = entry.split_last().expect("an entry of a word at least");
            let rhf = Rhf(u64::from_le(rhf.load(Ordering::Acquire)));
            if (rhf.0 ^ run.expect) & SEQ_MASK != 0 {
                break;
            }
            let at_bytes = run.at_bytes;
            run.advance(1, entry_words * 8, run.expect + SEQ_ONE);
            sink(self.long_way(at_bytes, headers, rhf, run.eager, run.counts));
        }
    }

    /// Takes ordinary packets from the start of `entries` on, until one is something else.
    #[inline(never)]
    fn ordinary(
        &self,
        entries: &[[AtomicU64; USUAL_ENTRY_WORDS]],
        run: &mut Run<'_>,
        sink: &mut impl FnMut(Arrival<'_>),
    ) {
        // In registers until the row ends. A sink that panics finds the row's packets again.
        let (mut expect, mut next, mut dwords) = (run.expect, run.eager.last + 1, 0);
        let limits = *self.limits;
        let mut rest = entries;
        while let Some((entry, behind)) = rest.split_first() {
            let (headers, rhf) = (&entry[..USUAL_ENTRY_WORDS - 1], &entry[USUAL_ENTRY_WORDS - 1]);
            let rhf = Rhf(u64::from_le(rhf.load(Ordering::Acquire)));
            let mut differs = rhf.0 ^ expect;
            if differs & (ORDINARY_MASK | SEQ_MASK) != 0 {
                // The number after the last is the first.
                differs = rhf.0 ^ EXPECT_FIRST;
                if expect != EXPECT_LAST + SEQ_ONE || differs & (ORDINARY_MASK | SEQ_MASK) != 0 {
                    break;
                }
                expect = EXPECT_FIRST;
            }
            let Some(claims) = bound_ordinary(rhf, differs, headers, &limits) else { break };
            if claims.index != next {
                note_out_of_line(run, next - 1, claims.index, self.limits);
            }
            next = claims.index + 1;
            dwords += u64::from(claims.len_dwords);
            let at_bytes = run.at_bytes + (entries.len() - rest.len()) * size_of_val(entry);
            sink(Arrival::Packet(self.packet(at_bytes, rhf, claims)));
            expect += SEQ_ONE;
            rest = behind;
        }
        let taken = entries.len() - rest.len();
        run.advance(taken, USUAL_ENTRY_WORDS * 8, expect);
        run.eager.last = next - 1;
        run.counts.packets += taken as u64;
        run.counts.dwords += dwords;
    }

    #[inline]
    fn packet(&self, at_bytes: usize, rhf: Rhf, claims: Ordinary) -> Packet<'a> {
        let header_at = at_bytes + claims.header_dword as usize * 4;
        let buffer_at = (claims.index as usize) << self.limits.buffer_shift;
        let header =
            DmaSlice::bounded(self.memory.queue().memory(), header_at, claims.header_dwords as usize * 4);
        let payload =
            DmaSlice::bounded(self.memory.eager().memory(), buffer_at, claims.payload_dwords as usize * 4);
        Packet { header, payload, rhf }
    }

    /// What the entry at `at_bytes` is, counted: for everything that [`bound_ordinary`] does not take.
    #[inline(never)]
    fn long_way(
        &self,
        at_bytes: usize,
        headers: &[AtomicU64],
        rhf: Rhf,
        eager: &mut EagerCursor,
        counts: &mut RxCounts,
    ) -> Arrival<'a> {
        let count = self.limits.eager_count;
        match judge(rhf, self.memory.queue_shape(), self.memory.eager_shape()) {
            Verdict::Whole(bounded) => self.whole(at_bytes, headers, rhf, bounded, eager, counts),
            Verdict::NoBuffer { header_at, header_bytes } => {
                counts.no_buffer += 1;
                Arrival::NoBuffer {
                    header: DmaSlice::bounded(
                        self.memory.queue().memory(),
                        at_bytes + header_at,
                        header_bytes,
                    ),
                }
            }
            Verdict::Damaged { header_at, header_bytes, eager: used } => {
                used.into_iter().for_each(|index| eager.used(index, count, counts));
                counts.count_damaged(rhf.errors());
                let header =
                    DmaSlice::bounded(self.memory.queue().memory(), at_bytes + header_at, header_bytes);
                Arrival::Damaged { errors: rhf.errors(), header }
            }
            Verdict::Malformed(why) => {
                counts.count_malformed(why);
                Arrival::Malformed { why, rhf }
            }
        }
    }

    fn whole(
        &self,
        at_bytes: usize,
        headers: &[AtomicU64],
        rhf: Rhf,
        bounded: Bounded,
        eager: &mut EagerCursor,
        counts: &mut RxCounts,
    ) -> Arrival<'a> {
        bounded.eager.into_iter().for_each(|index| eager.used(index, self.limits.eager_count, counts));
        if lrh_len(headers, bounded.header_at / 4) != Some(rhf.len_dwords()) {
            counts.count_malformed(Malformed::LengthMismatch);
            return Arrival::Malformed { why: Malformed::LengthMismatch, rhf };
        }
        counts.packets += 1;
        counts.dwords += u64::from(rhf.len_dwords());
        let buffer_at = (bounded.eager.unwrap_or(0) as usize) << self.limits.buffer_shift;
        let header = DmaSlice::bounded(
            self.memory.queue().memory(),
            at_bytes + bounded.header_at,
            bounded.header_bytes,
        );
        let payload = DmaSlice::bounded(self.memory.eager().memory(), buffer_at, bounded.payload_bytes);
        Arrival::Packet(Packet { header, payload, rhf })
    }
}

/// Where a run stands. It goes back to the context when the run ends, also when a sink panics.
struct Run<'a> {
    at_bytes: usize,
    expect: u64,
    taken: usize,
    cursor: &'a mut Cursor,
    eager: &'a mut EagerCursor,
    counts: &'a mut RxCounts,
}

impl<'a> Run<'a> {
    #[inline]
    fn new(cursor: &'a mut Cursor, eager: &'a mut EagerCursor, counts: &'a mut RxCounts) -> Self {
        Self { at_bytes: cursor.at_bytes, expect: cursor.expect, taken: 0, cursor, eager, counts }
    }

    /// `entries` of `entry_bytes` were taken; the next bears the sequence number in `expect`.
    #[inline]
    fn advance(&mut self, entries: usize, entry_bytes: usize, expect: u64) {
        self.taken += entries;
        self.at_bytes += entries * entry_bytes;
        self.expect = expect;
    }

    /// The number after the last is the first. Says whether this was so.
    #[inline]
    fn wrap(&mut self) -> bool {
        let wraps = self.expect == EXPECT_LAST + SEQ_ONE;
        if wraps {
            self.expect = EXPECT_FIRST;
        }
        wraps
    }
}

impl Drop for Run<'_> {
    #[inline]
    fn drop(&mut self) {
        let _wrapped = self.wrap();
        *self.cursor = Cursor { at_bytes: self.at_bytes, expect: self.expect };
    }
}

/// As [`EagerCursor::not_the_next`], with the last index still in a register.
#[cold]
#[inline(never)]
fn note_out_of_line(run: &mut Run<'_>, last: u32, index: u32, limits: &Limits) {
    run.eager.last = last;
    run.eager.not_the_next(index, limits.eager_count, run.counts);
}
