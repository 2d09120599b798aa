//! The data side: packets into the ring, and one outcome for each.
//!
//! A send takes a place in a table, and memory of its own for control word, headers and a payload that is copied. The
//! places are used in turn, so that the numbers of sends ([`SendId`]) name them:
//!
//! ```text
//!   reaped ──────► settled ──────► next
//!     | has an outcome | in flight   | free ...        place = number mod places
//! ```
//!
//! A send is settled when the head has passed its last descriptor, or when the engine was stopped before. Its outcome
//! waits to be reaped if outcomes are wanted ([`SdmaQueue::track`]); else it is only counted, and the place is free at
//! once.
//!
//! Nothing here allocates, locks or reads a register after the queue was made, but for one read when the head in
//! memory makes no sense.

use std::sync::Arc;

use qhca_regs::layout::{Pbc, SdmaDesc};
use qhca_regs::map::port as port_regs;
use qhca_regs::{Bar, GONE, Port, RegValue};

use super::ring::Ring;
use super::word::{FlushReason, Phase, SdmaShared};
use super::{SendId, SendOutcome};
use crate::dma::DmaRegion;
use crate::env::{DmaMapper, MapError};
use crate::tx::frame::{Frame, Payload};

/// Sends in flight at most, however long the ring: what bounds the memory for copied packets.
const SENDS_MAX: u32 = 256;
/// Bytes of one send's memory: the longest packet that a large buffer holds, on whole cache lines.
const STAGE_BYTES: usize = 4352;
/// Dwords that go into one send buffer of the larger kind, control word included (F-005).
pub(in crate::tx) const PACKET_MAX_DWORDS: usize = 1056;
/// Dwords above which a packet needs a large send buffer (F-232).
pub(in crate::tx) const SMALL_DWORDS: usize = 544;

/// How often what happened. All wrap at 2^64.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SdmaQueueCounts {
    /// Packets given to the engine.
    pub packets: u64,
    /// Their dwords on the wire, ICRC included.
    pub dwords: u64,
    /// Descriptors written.
    pub descriptors: u64,
    /// Sends that the chip has taken.
    pub sent: u64,
    /// Sends that were flushed.
    pub flushed: u64,
    /// Times that the ring, or the table of sends, was full.
    pub full: u64,
    /// Heads in memory that made no sense, for which the register was read.
    pub head_fallbacks: u64,
    /// Heads of the register that made none either.
    pub heads_refused: u64,
}

/// One send in the table.
#[derive(Debug)]
struct Place {
    /// Descriptors that it took.
    descriptors: u32,
    outcome: SendOutcome,
    /// The caller's memory that the chip reads in place.
    memory: Option<DmaRegion>,
}

/// The data side of one engine. It belongs to one thread at a time.
#[derive(Debug)]
pub struct SdmaQueue {
    ring: Ring,
    staging: DmaRegion,
    places: Box<[Place]>,
    shared: Arc<SdmaShared>,
    /// Number of the next send.
    next: u64,
    /// Number of the first send without an outcome.
    settled: u64,
    /// Number of the first send whose outcome was not reaped.
    reaped: u64,
    /// Descriptors passed by the head that belong to a send which is not yet whole.
    part_done: u32,
    tracking: bool,
    counts: SdmaQueueCounts,
}

/// What kept a packet out of the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tx) enum NotQueued {
    /// The engine does not run.
    NotRunning,
    /// No descriptor or no place in the table is free.
    Full,
}

impl SdmaQueue {
    /// A queue over `ring`.
    ///
    /// # Errors
    /// [`MapError`]: no memory for the packets.
    pub fn allocate(
        ring: Ring,
        shared: Arc<SdmaShared>,
        mapper: &mut impl DmaMapper,
    ) -> Result<Self, MapError> {
        // A power of two, so that a send's number finds its place by a mask.
        let places = (ring.len() / 2 + 1).next_power_of_two().min(SENDS_MAX) as usize;
        let staging = mapper.map(places * STAGE_BYTES)?;
        let place = || Place { descriptors: 0, outcome: SendOutcome::Sent, memory: None };
        Ok(Self {
            ring,
            staging,
            places: std::iter::repeat_with(place).take(places).collect(),
            shared,
            next: 0,
            settled: 0,
            reaped: 0,
            part_done: 0,
            tracking: false,
            counts: SdmaQueueCounts::default(),
        })
    }

    /// The port whose engine it feeds.
    pub fn port(&self) -> Port {
        self.shared.port()
    }

    /// What both sides share.
    pub fn shared(&self) -> &Arc<SdmaShared> {
        &self.shared
    }

    /// How often what happened.
    pub fn counts(&self) -> &SdmaQueueCounts {
        &self.counts
    }

    /// Sends without an outcome so far.
    pub fn in_flight(&self) -> usize {
        (self.next - self.settled) as usize
    }

    /// Keeps outcomes until they are reaped, or no longer. While they are kept, a send whose outcome was not reaped
    /// takes up room.
    pub fn track(&mut self, on: bool) {
        self.tracking = on;
        if !on {
            self.reaped = self.settled;
        }
    }

    /// Puts a packet into the ring and tells the chip. `frame` was checked: its headers and lane are possible, and it
    /// has at most [`PACKET_MAX_DWORDS`] with its control word `pbc`.
    #[inline]
    pub(in crate::tx) fn try_submit(
        &mut self,
        bar: &impl Bar,
        pbc: Pbc,
        frame: &Frame<'_>,
    ) -> Result<SendId, NotQueued> {
        if !self.shared.is_running() {
            return Err(NotQueued::NotRunning);
        }
        if !self.has_room() {
            self.make_room(bar)?;
        }
        let (descriptors, memory) = self.write(pbc, frame);
        let id = SendId(self.next);
        *self.place(id.0) = Place { descriptors, outcome: SendOutcome::Sent, memory };
        self.next += 1;
        let tail = port_regs::SendDmaTail(0).with_send_dma_tail(self.ring.tail());
        // ORDER: the doorbell is rung after all that was written to memory.
        bar.doorbell(port_regs::SEND_DMA_TAIL.port(self.port()).offset(), tail.raw());
        self.counts.packets += 1;
        self.counts.dwords += u64::from(pbc.len_dwords());
        self.counts.descriptors += u64::from(descriptors);
        Ok(id)
    }

    /// A packet takes two descriptors at most.
    #[inline]
    fn has_room(&self) -> bool {
        self.ring.free() >= 2 && ((self.next - self.reaped) as usize) < self.places.len()
    }

    /// Looks how far the chip has come; if that does not help, asks to be told.
    #[cold]
    fn make_room(&mut self, bar: &impl Bar) -> Result<(), NotQueued> {
        self.look(bar);
        if self.has_room() {
            return Ok(());
        }
        self.counts.full += 1;
        if self.shared.note_blocked() {
            // Half of what is in flight: then there is room that is worth a wake-up (F-231).
            let count = (self.ring.used() / 2).max(1) as u16;
            let count = port_regs::SendDmaDescCnt(0).with_send_dma_desc_cnt(count);
            port_regs::SEND_DMA_DESC_CNT.port(self.port()).write(bar, count);
        }
        Err(NotQueued::Full)
    }

    /// Writes a packet's bytes and descriptors; says how many descriptors, and which memory the chip reads in place.
    #[inline]
    fn write(&mut self, pbc: Pbc, frame: &Frame<'_>) -> (u32, Option<DmaRegion>) {
        let stage = (self.next as usize & (self.places.len() - 1)) * STAGE_BYTES;
        let mut pen = Pen::new(&self.staging, stage);
        pen.dwords(&pbc.dwords());
        pen.dwords(frame.header);
        let in_place = in_place(frame);
        if in_place.is_none() {
            pen.payload(&frame.payload);
        }
        let first_dwords = pen.finish();
        let large = usize::from(pbc.len_dwords()) + Pbc::LEN_DWORDS - 1 > SMALL_DWORDS;
        let first = piece(self.staging.iova() + stage as u64, 0, first_dwords, large);
        let first = SdmaDesc { word0: first.word0.with_first(true), ..first };
        let last = |desc: SdmaDesc| SdmaDesc {
            word0: desc.word0.with_last(true).with_dma_head(true).with_intr(frame.notify()),
            ..desc
        };
        match in_place {
            Some((region, offset, dwords)) => {
                self.ring.push(first);
                self.ring.push(last(piece(region.iova() + offset as u64, first_dwords, dwords, large)));
                (2, Some(region.clone()))
            }
            None => {
                self.ring.push(last(first));
                (1, None)
            }
        }
    }

    fn place(&mut self, number: u64) -> &mut Place {
        let mask = self.places.len() - 1;
        &mut self.places[number as usize & mask]
    }

    /// Hands out the outcomes of sends that are settled, oldest first; says how many. They are there to be handed out
    /// if they are tracked.
    pub(in crate::tx) fn reap(&mut self, mut sink: impl FnMut(SendId, SendOutcome)) -> usize {
        let first = self.reaped;
        while self.reaped < self.settled {
            let number = self.reaped;
            let outcome = self.place(number).outcome;
            self.reaped += 1;
            sink(SendId(number), outcome);
        }
        (self.reaped - first) as usize
    }

    /// Learns from the head word what the chip has done, or settles everything if the engine was stopped. Says whether
    /// the control side waits for what was done here.
    pub fn look(&mut self, bar: &impl Bar) -> bool {
        match self.shared.phase() {
            Phase::Running | Phase::Halting => {
                self.follow_head(bar);
                false
            }
            Phase::Flush => {
                self.answer_flush();
                true
            }
            Phase::Off => {
                let (_, reason) = self.shared.final_head();
                self.flush_all(reason, reason == FlushReason::Stuck);
                false
            }
            Phase::Stopped | Phase::Flushed => false,
        }
    }

    /// Settles everything because the device is no more. Memory that a chip which was not stopped may still read is
    /// never given back.
    pub(in crate::tx) fn abandon(&mut self, reason: FlushReason) {
        self.flush_all(reason, self.shared.phase() != Phase::Off);
    }

    /// Its owner has gone: nobody asks for outcomes any more.
    pub(in crate::tx) fn disown(&mut self) {
        self.track(false);
    }

    /// Answers a flush while nobody has the queue.
    pub(super) fn settle_at_home(&mut self) {
        if self.shared.phase() == Phase::Flush {
            self.answer_flush();
        }
    }

    fn follow_head(&mut self, bar: &impl Bar) {
        if self.ring.is_empty() {
            return;
        }
        let done = match self.ring.advance(self.ring.head_word()) {
            Ok(done) => done,
            Err(_) => self.head_from_register(bar),
        };
        self.retire(done);
    }

    /// The head in memory makes no sense: the register is the fallback, and if that makes none nothing has moved.
    #[cold]
    fn head_from_register(&mut self, bar: &impl Bar) -> u32 {
        self.counts.head_fallbacks += 1;
        let head = port_regs::SEND_DMA_HEAD.port(self.port()).read(bar);
        let moved =
            if head.raw() == GONE { None } else { self.ring.advance(head.send_dma_head().into()).ok() };
        self.counts.heads_refused += u64::from(moved.is_none());
        moved.unwrap_or(0)
    }

    /// `done` more descriptors were passed by the head: settles the sends that are whole.
    #[inline]
    fn retire(&mut self, done: u32) {
        self.part_done += done;
        while self.settled < self.next {
            let number = self.settled;
            let descriptors = self.place(number).descriptors;
            if self.part_done < descriptors {
                break;
            }
            self.part_done -= descriptors;
            self.settle(number, SendOutcome::Sent);
        }
    }

    #[inline]
    fn settle(&mut self, number: u64, outcome: SendOutcome) {
        let place = self.place(number);
        place.outcome = outcome;
        place.memory = None;
        self.settled = number + 1;
        if !self.tracking {
            self.reaped = self.settled;
        }
        match outcome {
            SendOutcome::Sent => self.counts.sent += 1,
            SendOutcome::Flushed(_) => self.counts.flushed += 1,
        }
    }

    /// The engine stands still: what it has passed was sent, the rest is flushed, and the ring begins afresh.
    #[cold]
    fn answer_flush(&mut self) {
        let (head, reason) = self.shared.final_head();
        // A chip that was reset has forgotten how far it had come.
        if reason != FlushReason::Reset {
            let done = self.ring.advance(head.into());
            self.counts.heads_refused += u64::from(done.is_err());
            self.retire(done.unwrap_or(0));
        }
        self.flush_all(reason, reason == FlushReason::Stuck);
        self.ring.reset();
        self.shared.answer_flush();
    }

    #[cold]
    fn flush_all(&mut self, reason: FlushReason, chip_may_read: bool) {
        if chip_may_read && self.settled < self.next {
            self.staging.memory().leak_because_device_may_write();
            self.ring.region().memory().leak_because_device_may_write();
        }
        while self.settled < self.next {
            let number = self.settled;
            if chip_may_read && let Some(region) = &self.place(number).memory {
                region.memory().leak_because_device_may_write();
            }
            self.settle(number, SendOutcome::Flushed(reason));
        }
        self.part_done = 0;
    }
}

/// A descriptor of `dwords` at `iova` for dword `at` of the send buffer.
///
/// PANIC: staging memory and checked regions are dword aligned and below 2^40, and no packet has 2047 dwords.
#[inline]
fn piece(iova: u64, at: usize, dwords: usize, large: bool) -> SdmaDesc {
    let desc = SdmaDesc::new(iova, dwords).expect("a piece of a packet in mapped memory");
    SdmaDesc { word0: desc.word0.with_buf_offset(at as u16).with_use_large_buf(large), ..desc }
}

/// Where the payload of `frame` lies, if the chip can read it there: region, byte offset, dwords.
#[inline]
fn in_place<'a>(frame: &Frame<'a>) -> Option<(&'a DmaRegion, usize, usize)> {
    let Payload::InPlace { region, offset, len_bytes } = frame.payload else { return None };
    let dwords = len_bytes.div_ceil(4);
    let inside = offset.checked_add(dwords * 4).is_some_and(|end| end <= region.len_bytes());
    // A stretch that does not begin and end on a dword is copied: the pad on the wire is zeros, not what lies behind.
    let whole = offset.is_multiple_of(4) && len_bytes.is_multiple_of(4);
    (inside && whole && dwords > 0).then_some((region, offset, dwords))
}

/// Writes dwords to DMA memory in order, two a store.
struct Pen<'a> {
    region: &'a DmaRegion,
    start: usize,
    at: usize,
    half: Option<u32>,
}

impl<'a> Pen<'a> {
    /// A pen at byte `start` (8-byte aligned) of `region`.
    #[inline]
    fn new(region: &'a DmaRegion, start: usize) -> Self {
        Self { region, start, at: start, half: None }
    }

    #[inline]
    fn dword(&mut self, dword: u32) {
        match self.half.take() {
            None => self.half = Some(dword),
            Some(low) => {
                self.region.memory().store_u64(self.at, u64::from(low) | u64::from(dword) << 32);
                self.at += 8;
            }
        }
    }

    #[inline]
    fn dwords(&mut self, dwords: &[u32]) {
        dwords.iter().for_each(|dword| self.dword(*dword));
    }

    fn bytes(&mut self, bytes: &[u8]) {
        for four in bytes.chunks(4) {
            self.dword(super::super::pio::dword(four));
        }
    }

    fn payload(&mut self, payload: &Payload<'_>) {
        match *payload {
            Payload::None => {}
            Payload::Dwords(dwords) => self.dwords(dwords),
            Payload::Bytes(bytes) => self.bytes(bytes),
            Payload::InPlace { region, offset, len_bytes } => {
                let mut step = [0; 256];
                for done in (0..len_bytes).step_by(step.len()) {
                    let count = step.len().min(len_bytes - done);
                    region.memory().copy_out(offset + done, &mut step[..count]);
                    self.bytes(&step[..count]);
                }
            }
        }
    }

    /// Stores a last half word; says how many dwords were written.
    #[inline]
    fn finish(self) -> usize {
        let dwords = (self.at - self.start) / 4;
        match self.half {
            None => dwords,
            Some(low) => {
                self.region.memory().store_u64(self.at, u64::from(low));
                dwords + 1
            }
        }
    }
}

/// Dwords of the larger kind of buffer, held against the map.
const _: () = assert!(STAGE_BYTES >= PACKET_MAX_DWORDS * 4 && SMALL_DWORDS < PACKET_MAX_DWORDS);

#[cfg(test)]
#[path = "queue_tests.rs"]
mod tests;
