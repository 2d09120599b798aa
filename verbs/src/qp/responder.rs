//! The responder: carries requests out in order, once, and answers.
//!
//! ```text
//!   behind the expected number   carried out before: answered again, from what was kept
//!   the expected number          carried out
//!   ahead of it                  something is missing: one NAK, then silence until it comes
//! ```
//!
//! READs and atomics are kept in a small ring of resources until newer ones need the place. An atomic's resource holds
//! the value that was there before, so that a repeat gets the same answer and memory changes once; a READ's resource
//! holds where to read, and also says how far its answer has been sent. Answers leave in the order of their numbers:
//! first resources with something to send, then the one acknowledge or NAK that is due, which speaks for all before it.

mod replies;

use qhca_regs::Instant;

use super::requester::packets_of;
use super::{MESSAGE_MAX_BYTES, Qp, QpState, Step};
use crate::counters::Drop;
use crate::event::Event;
use crate::ids::Key;
use crate::mem::{Access, Payload, Sge};
use crate::out::{Spec, Wire};
use crate::psn::Psn;
use crate::scatter::{capacity, scatter};
use crate::shared::Shared;
use crate::wc::{Along, Sender, WcDetail, WcOpcode, WcStatus};
use crate::wire::{Aeth, Credits, Extra, Headers, NakCode, Opcode, Operation, Place, Service, Syndrome};

/// The receive that is being filled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Active {
    pub(crate) wr_id: u64,
    sge_count: u8,
    capacity: u64,
    got: u32,
}

/// The message that is being received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Inflow {
    None,
    Send,
    Write { rkey: Key, addr: u64, left: u32, total: u32 },
}

/// What is kept to answer a READ or an atomic again.
#[derive(Clone, Copy, Debug)]
enum Kept {
    Read { addr: u64, rkey: Key, len_bytes: u32 },
    Atomic { before: u64, is_swap: bool },
}

#[derive(Clone, Copy, Debug)]
struct Resource {
    kept: Kept,
    first: Psn,
    packets: u32,
    msn: u32,
    /// The answer is sent from packet `next` up to `stop`; there is nothing to send if they are equal.
    start: u32,
    next: u32,
    stop: u32,
    /// Bytes of the READ up to `stop`.
    stop_bytes: u32,
}

impl Resource {
    #[inline]
    fn is_done(&self) -> bool {
        self.next == self.stop
    }
}

/// What is to be said besides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reply {
    None,
    Ack(Psn),
    Sequence,
    Rnr,
    Fatal(NakCode),
}

/// The receiving half of a connection.
pub(crate) struct Responder {
    pub(crate) expected: Psn,
    pub(crate) msn: u32,
    pub(crate) active: Option<Active>,
    active_sges: Box<[Sge]>,
    inflow: Inflow,
    /// A NAK was sent for the expected number.
    nak_sent: bool,
    reply: Reply,
    resources: Box<[Resource]>,
    /// The oldest resource, and how many are valid.
    oldest: usize,
    valid: usize,
    /// Resources with something to send.
    pending: usize,
    /// For UC: the rest of this message is dropped.
    pub(crate) skipping: bool,
    pub(crate) established: bool,
}

impl Responder {
    pub(crate) fn new(max_sges: usize) -> Self {
        Self {
            expected: Psn::default(),
            msn: 0,
            active: None,
            active_sges: vec![Sge::default(); max_sges].into(),
            inflow: Inflow::None,
            nak_sent: false,
            reply: Reply::None,
            resources: Box::default(),
            oldest: 0,
            valid: 0,
            pending: 0,
            skipping: false,
            established: false,
        }
    }

    /// Starts a conversation at `psn` with so many resources.
    pub(crate) fn start(&mut self, psn: Psn, resources: u8) {
        self.reset();
        self.expected = psn;
        self.set_resources(resources);
    }

    /// Forgets everything.
    pub(crate) fn reset(&mut self) {
        let sges = std::mem::take(&mut self.active_sges);
        *self = Self { active_sges: sges, ..Self::new(0) };
    }

    /// Changes how many resources there are; those that are kept are forgotten.
    pub(crate) fn set_resources(&mut self, count: u8) {
        let empty = Resource {
            kept: Kept::Atomic { before: 0, is_swap: false },
            first: Psn::default(),
            packets: 0,
            msn: 0,
            start: 0,
            next: 0,
            stop: 0,
            stop_bytes: 0,
        };
        self.resources = vec![empty; usize::from(count)].into();
        (self.oldest, self.valid, self.pending) = (0, 0, 0);
    }

    /// Says nothing more.
    pub(crate) fn silence(&mut self) {
        self.reply = Reply::None;
        (self.valid, self.pending) = (0, 0);
    }

    #[inline]
    pub(crate) fn has_output(&self) -> bool {
        self.pending > 0 || self.reply != Reply::None
    }

    #[inline]
    fn place(&self, nth: usize) -> usize {
        (self.oldest + nth) % self.resources.len()
    }

    /// A place for a new resource; `None` if the peer has more under way than it may.
    fn claim(&mut self, resource: Resource) -> Option<()> {
        if self.resources.is_empty() {
            return None;
        }
        if self.valid == self.resources.len() {
            if !self.resources[self.oldest].is_done() {
                return None;
            }
            self.oldest = self.place(1);
            self.valid -= 1;
        }
        let at = self.place(self.valid);
        self.resources[at] = resource;
        self.valid += 1;
        self.pending += 1;
        // What it answers is vouched for by the answer.
        if matches!(self.reply, Reply::Ack(_)) {
            self.reply = Reply::None;
        }
        Some(())
    }

    /// The resource that answers number `psn`.
    fn find(&self, psn: Psn) -> Option<usize> {
        (0..self.valid).map(|nth| self.place(nth)).find(|at| {
            let resource = &self.resources[*at];
            psn.distance_from(resource.first) < resource.packets
        })
    }
}

impl Qp {
    /// Takes a request of a reliable connection.
    #[inline]
    pub(crate) fn on_request(
        &mut self,
        sh: &mut Shared,
        h: &Headers<'_>,
        payload: &Payload<'_>,
        now: Instant,
    ) {
        if self.state == QpState::Rtr && !std::mem::replace(&mut self.resp.established, true) {
            sh.events.push(Event::CommunicationEstablished(self.number));
        }
        #[cfg(test)]
        self.plant_in_request(sh, h, payload, now);
        match h.bth.psn.ahead_of(self.resp.expected) {
            0 => {}
            1.. => return self.on_gap(sh),
            _ => return self.on_duplicate(sh, h),
        }
        let verdict = match h.meaning.operation {
            Operation::Send => self.on_send(sh, h, payload, now),
            Operation::Write => self.on_write(sh, h, payload, now),
            Operation::ReadRequest => self.on_read(sh, h),
            _ => self.on_atomic(sh, h),
        };
        match verdict {
            Ok(numbers) => {
                self.resp.nak_sent = false;
                self.resp.expected = self.resp.expected.plus(numbers);
                self.owe_ack(sh, h);
            }
            Err(Refusal::NotReady) => {
                self.counts.rnr_naks_sent += 1;
                self.resp.nak_sent = true;
                self.resp.reply = Reply::Rnr;
                sh.schedule(self.index, &mut self.scheduled);
            }
            Err(Refusal::Fatal(code)) => self.refuse(sh, code, now),
        }
    }

    /// Notes the acknowledge that a request asks for.
    #[inline]
    fn owe_ack(&mut self, sh: &mut Shared, h: &Headers<'_>) {
        let answers_itself = !matches!(h.meaning.operation, Operation::Send | Operation::Write);
        if answers_itself {
            sh.schedule(self.index, &mut self.scheduled);
        } else if h.bth.ack_request || self.resp.reply != Reply::None {
            // One that is due already speaks for this request too; a NAK for what has now come is not needed any more.
            self.resp.reply = Reply::Ack(h.bth.psn);
            sh.schedule(self.index, &mut self.scheduled);
        }
    }

    /// A request is missing before this one.
    #[cold]
    fn on_gap(&mut self, sh: &mut Shared) {
        sh.counters.drop_for(Drop::OutOfSequence);
        if !std::mem::replace(&mut self.resp.nak_sent, true) {
            self.resp.reply = Reply::Sequence;
            sh.schedule(self.index, &mut self.scheduled);
        }
    }

    /// Refuses for good: the NAK goes out, the connection is at its end.
    #[cold]
    fn refuse(&mut self, sh: &mut Shared, code: NakCode, now: Instant) {
        self.resp.reply = Reply::Fatal(code);
        let event = match code {
            NakCode::RemoteAccess => Event::QpAccessError(self.number),
            NakCode::InvalidRequest => Event::QpRequestError(self.number),
            _ => Event::QpFatal(self.number),
        };
        self.fail(sh, Some(event), now);
    }

    /// A request that was carried out before: answered again.
    #[cold]
    fn on_duplicate(&mut self, sh: &mut Shared, h: &Headers<'_>) {
        sh.counters.drop_for(Drop::Duplicate);
        self.counts.duplicates += 1;
        let answered = match h.meaning.operation {
            Operation::Send | Operation::Write => {
                // It speaks for its own number and not for the newest, which may be a READ's whose data was lost.
                if h.bth.ack_request && self.resp.reply == Reply::None {
                    self.resp.reply = Reply::Ack(h.bth.psn);
                }
                true
            }
            Operation::ReadRequest => self.replay_read(h),
            _ => self.replay_atomic(h),
        };
        if answered {
            sh.schedule(self.index, &mut self.scheduled);
        }
    }

    /// The faults that tests plant in the responder.
    #[cfg(test)]
    fn plant_in_request(&mut self, sh: &mut Shared, h: &Headers<'_>, payload: &Payload<'_>, now: Instant) {
        use crate::harness::Planted;
        let ahead = h.bth.psn.ahead_of(self.resp.expected);
        if sh.planted(Planted::GapIgnored) && ahead > 0 {
            self.resp.expected = h.bth.psn;
        }
        let is_only = h.meaning.place == Place::Only && self.resp.inflow == Inflow::None;
        if sh.planted(Planted::DuplicateSendTaken)
            && ahead < 0
            && is_only
            && h.meaning.operation == Operation::Send
        {
            self.on_send(sh, h, payload, now).ok();
        }
        if sh.planted(Planted::AtomicReplayed)
            && ahead < 0
            && let (Some(eth), Some(at)) = (h.atomic(), self.resp.find(h.bth.psn))
            && let Ok(value) = self.do_atomic(sh, h.meaning.operation, &eth)
            && let Kept::Atomic { before, .. } = &mut self.resp.resources[at].kept
        {
            *before = value;
        }
    }

    /// Has (a part of) a READ answered again; false if it is not one that is kept.
    fn replay_read(&mut self, h: &Headers<'_>) -> bool {
        let shift = self.set.mtu.shift();
        let (Some(reth), Some(at)) = (h.reth(), self.resp.find(h.bth.psn)) else { return false };
        let resource = &mut self.resp.resources[at];
        let Kept::Read { addr, rkey, len_bytes } = resource.kept else { return false };
        let from = h.bth.psn.distance_from(resource.first);
        let skipped = from << shift;
        let is_part = reth.rkey == rkey
            && reth.addr == addr.wrapping_add(u64::from(skipped))
            && reth.len_bytes <= len_bytes - skipped;
        if !is_part {
            return false;
        }
        self.resp.pending += usize::from(resource.is_done());
        (resource.start, resource.next) = (from, from);
        resource.stop = from + packets_of(reth.len_bytes, shift);
        resource.stop_bytes = skipped + reth.len_bytes;
        true
    }

    /// Has the answer to an atomic sent again; false if it is not kept.
    fn replay_atomic(&mut self, h: &Headers<'_>) -> bool {
        let Some(at) = self.resp.find(h.bth.psn) else { return false };
        let resource = &mut self.resp.resources[at];
        let Kept::Atomic { is_swap, .. } = resource.kept else { return false };
        if is_swap != (h.meaning.operation == Operation::CompareSwap) {
            return false;
        }
        self.resp.pending += usize::from(resource.is_done());
        resource.next = 0;
        true
    }

    /// Whether the packet's length suits its place in the message.
    #[inline]
    fn has_right_length(&self, h: &Headers<'_>) -> bool {
        let mtu = self.set.mtu.bytes() as usize;
        let bytes = h.payload_bytes();
        match h.meaning.place {
            Place::First | Place::Middle => bytes == mtu,
            Place::Last => bytes >= 1 && bytes <= mtu,
            Place::Only => bytes <= mtu,
        }
    }

    /// Carries out a packet of a SEND; says how many numbers that takes.
    #[inline]
    pub(crate) fn on_send(
        &mut self,
        sh: &mut Shared,
        h: &Headers<'_>,
        payload: &Payload<'_>,
        now: Instant,
    ) -> Result<u32, Refusal> {
        let begins = h.meaning.place.begins();
        let in_order = self.resp.inflow == if begins { Inflow::None } else { Inflow::Send };
        if !in_order || !self.has_right_length(h) {
            return Err(Refusal::Fatal(NakCode::InvalidRequest));
        }
        if begins && self.resp.active.is_none() {
            self.take_receive(sh)?;
        }
        let len = h.payload_bytes();
        let Some(active) = &mut self.resp.active else { return Err(Refusal::NotReady) };
        let got = u64::from(active.got) + len as u64;
        if got > active.capacity.min(u64::from(MESSAGE_MAX_BYTES)) {
            self.fail_receive(sh, WcStatus::LocalLength, now);
            return Err(Refusal::Fatal(NakCode::InvalidRequest));
        }
        let (offset, count) = (active.got, usize::from(active.sge_count));
        active.got = got as u32;
        let sges = &self.resp.active_sges[..count];
        let part = payload.part(0, len);
        if scatter(&sh.memory, self.pd, sges, offset, &part, Access::LOCAL_WRITE).is_err() {
            self.fail_receive(sh, WcStatus::LocalProtection, now);
            return Err(Refusal::Fatal(NakCode::RemoteOperational));
        }
        if !h.meaning.place.ends() {
            self.resp.inflow = Inflow::Send;
            return Ok(1);
        }
        if let Some(key) = h.invalidate()
            && sh.memory.invalidate(key, self.number, self.pd).is_err()
        {
            self.fail_receive(sh, WcStatus::LocalAccess, now);
            return Err(Refusal::Fatal(NakCode::RemoteAccess));
        }
        self.resp.inflow = Inflow::None;
        self.resp.msn = self.resp.msn.wrapping_add(1) & 0xFF_FFFF;
        self.finish_receive(sh, h, WcOpcode::Recv, got as u32, now);
        Ok(1)
    }

    /// Takes the next receive off its queue.
    #[inline]
    pub(crate) fn take_receive(&mut self, sh: &mut Shared) -> Result<(), Refusal> {
        let sges = &mut self.resp.active_sges;
        let wqe = match self.srq {
            None => self.rq.pop(sges),
            Some(srq) => {
                let Some(queue) = sh.srqs.get_mut(srq.0) else { return Err(Refusal::NotReady) };
                let wqe = queue.queue.pop(sges);
                if queue.queue.len() < queue.limit {
                    queue.limit = 0;
                    sh.events.push(Event::SrqLimitReached(srq));
                }
                wqe
            }
        };
        let Some(wqe) = wqe else { return Err(Refusal::NotReady) };
        let capacity = capacity(&sges[..usize::from(wqe.sge_count)]);
        self.resp.active = Some(Active { wr_id: wqe.wr_id, sge_count: wqe.sge_count, capacity, got: 0 });
        Ok(())
    }

    /// Completes the receive that was being filled.
    #[inline]
    pub(crate) fn finish_receive(
        &mut self,
        sh: &mut Shared,
        h: &Headers<'_>,
        opcode: WcOpcode,
        len_bytes: u32,
        now: Instant,
    ) {
        let Some(active) = self.resp.active.take() else { return };
        let along = match h.meaning.extra {
            Extra::None => Along::None,
            Extra::Immediate => h.immediate().map_or(Along::None, Along::Immediate),
            Extra::Invalidate => h.invalidate().map_or(Along::None, Along::Invalidated),
        };
        let sender = match h.deth() {
            None => Sender::default(),
            Some(deth) => Sender {
                qp: deth.src_qp,
                lid: h.lrh.slid,
                sl: h.lrh.sl,
                has_grh: h.grh_words().is_some(),
                pkey_index: self.set.pkey_index,
            },
        };
        let detail = WcDetail { opcode, len_bytes, along, sender };
        self.complete_recv(sh, active.wr_id, WcStatus::Success, detail, h.bth.solicited, now);
    }

    /// The receive that was being filled fails.
    #[cold]
    pub(crate) fn fail_receive(&mut self, sh: &mut Shared, status: WcStatus, now: Instant) {
        let Some(active) = self.resp.active.take() else { return };
        let detail = WcDetail {
            opcode: WcOpcode::Recv,
            len_bytes: active.got,
            along: Along::None,
            sender: Sender::default(),
        };
        self.complete_recv(sh, active.wr_id, status, detail, false, now);
    }

    /// Carries out a packet of an RDMA WRITE.
    #[inline]
    pub(crate) fn on_write(
        &mut self,
        sh: &mut Shared,
        h: &Headers<'_>,
        payload: &Payload<'_>,
        now: Instant,
    ) -> Result<u32, Refusal> {
        let invalid = Refusal::Fatal(NakCode::InvalidRequest);
        let (rkey, addr, left, total) = self.write_target(sh, h)?;
        let len = h.payload_bytes() as u32;
        let ends = h.meaning.place.ends();
        if !self.has_right_length(h) || len > left || (ends && len != left) {
            return Err(invalid);
        }
        // Before anything is written: the packet will come again if there is no receive.
        let takes_receive = h.meaning.extra == Extra::Immediate;
        if takes_receive && self.resp.active.is_none() {
            self.take_receive(sh)?;
        }
        if len > 0 {
            let range = (addr, len);
            let span = sh.memory.check(rkey, self.pd, self.number, range, Access::REMOTE_WRITE);
            let Ok(span) = span else { return Err(Refusal::Fatal(NakCode::RemoteAccess)) };
            payload.part(0, len as usize).copy_to(span.memory, span.offset);
        }
        if !ends {
            let addr = addr.wrapping_add(u64::from(len));
            self.resp.inflow = Inflow::Write { rkey, addr, left: left - len, total };
            return Ok(1);
        }
        self.resp.inflow = Inflow::None;
        self.resp.msn = self.resp.msn.wrapping_add(1) & 0xFF_FFFF;
        if takes_receive {
            self.finish_receive(sh, h, WcOpcode::RecvWriteImmediate, total, now);
        }
        Ok(1)
    }

    /// Where the packet of a WRITE goes: key, address, bytes that are still to come, bytes of the message.
    #[inline]
    fn write_target(&self, sh: &Shared, h: &Headers<'_>) -> Result<(Key, u64, u32, u32), Refusal> {
        let invalid = Refusal::Fatal(NakCode::InvalidRequest);
        match (self.resp.inflow, h.reth()) {
            (Inflow::None, Some(reth)) => {
                if !self.set.access.contains(Access::REMOTE_WRITE) || reth.len_bytes > MESSAGE_MAX_BYTES {
                    return Err(invalid);
                }
                let range = (reth.addr, reth.len_bytes);
                // A message of no bytes needs no key.
                let fits = reth.len_bytes == 0
                    || sh.memory.check(reth.rkey, self.pd, self.number, range, Access::REMOTE_WRITE).is_ok();
                let target = (reth.rkey, reth.addr, reth.len_bytes, reth.len_bytes);
                if fits { Ok(target) } else { Err(Refusal::Fatal(NakCode::RemoteAccess)) }
            }
            (Inflow::Write { rkey, addr, left, total }, None) => Ok((rkey, addr, left, total)),
            _ => Err(invalid),
        }
    }

    /// Takes an RDMA READ; its data is sent packet by packet.
    fn on_read(&mut self, sh: &mut Shared, h: &Headers<'_>) -> Result<u32, Refusal> {
        let invalid = Refusal::Fatal(NakCode::InvalidRequest);
        let Some(reth) = h.reth() else { return Err(invalid) };
        let allowed = self.set.access.contains(Access::REMOTE_READ) && self.resp.inflow == Inflow::None;
        if !allowed || reth.len_bytes > MESSAGE_MAX_BYTES || h.payload_bytes() > 0 {
            return Err(invalid);
        }
        let range = (reth.addr, reth.len_bytes);
        if reth.len_bytes > 0
            && sh.memory.check(reth.rkey, self.pd, self.number, range, Access::REMOTE_READ).is_err()
        {
            return Err(Refusal::Fatal(NakCode::RemoteAccess));
        }
        let packets = packets_of(reth.len_bytes, self.set.mtu.shift());
        let msn = self.resp.msn.wrapping_add(1) & 0xFF_FFFF;
        let resource = Resource {
            kept: Kept::Read { addr: reth.addr, rkey: reth.rkey, len_bytes: reth.len_bytes },
            first: h.bth.psn,
            packets,
            msn,
            start: 0,
            next: 0,
            stop: packets,
            stop_bytes: reth.len_bytes,
        };
        self.resp.claim(resource).ok_or(invalid)?;
        self.resp.msn = msn;
        Ok(packets)
    }

    /// Carries out an atomic and keeps what was there before.
    fn on_atomic(&mut self, sh: &mut Shared, h: &Headers<'_>) -> Result<u32, Refusal> {
        let invalid = Refusal::Fatal(NakCode::InvalidRequest);
        let Some(eth) = h.atomic() else { return Err(invalid) };
        let allowed = self.set.access.contains(Access::REMOTE_ATOMIC) && self.resp.inflow == Inflow::None;
        if !allowed || !eth.addr.is_multiple_of(8) || h.payload_bytes() > 0 {
            return Err(invalid);
        }
        let oldest_is_busy = self.resp.valid == self.resp.resources.len()
            && self.resp.resources.get(self.resp.oldest).is_none_or(|oldest| !oldest.is_done());
        if oldest_is_busy {
            return Err(invalid);
        }
        let before = self.do_atomic(sh, h.meaning.operation, &eth)?;
        let msn = self.resp.msn.wrapping_add(1) & 0xFF_FFFF;
        let is_swap = h.meaning.operation == Operation::CompareSwap;
        let resource = Resource {
            kept: Kept::Atomic { before, is_swap },
            first: h.bth.psn,
            packets: 1,
            msn,
            start: 0,
            next: 0,
            stop: 1,
            stop_bytes: 0,
        };
        self.resp.claim(resource).ok_or(invalid)?;
        self.resp.msn = msn;
        Ok(1)
    }

    fn do_atomic(
        &self,
        sh: &Shared,
        operation: Operation,
        eth: &crate::wire::AtomicEth,
    ) -> Result<u64, Refusal> {
        let span = sh.memory.check(eth.rkey, self.pd, self.number, (eth.addr, 8), Access::REMOTE_ATOMIC);
        let Ok(span) = span else { return Err(Refusal::Fatal(NakCode::RemoteAccess)) };
        Ok(match operation {
            Operation::CompareSwap => span.memory.compare_swap_u64(span.offset, eth.compare, eth.swap_or_add),
            _ => span.memory.fetch_add_u64(span.offset, eth.swap_or_add),
        })
    }

    /// Takes a packet of an unreliable connection: a gap loses the message, nothing is answered.
    pub(crate) fn on_unreliable(
        &mut self,
        sh: &mut Shared,
        h: &Headers<'_>,
        payload: &Payload<'_>,
        now: Instant,
    ) {
        debug_assert_eq!(self.service, Service::Uc, "only UC comes here");
        if self.state == QpState::Rtr && !std::mem::replace(&mut self.resp.established, true) {
            sh.events.push(Event::CommunicationEstablished(self.number));
        }
        let begins = h.meaning.place.begins();
        let in_sequence = h.bth.psn == self.resp.expected;
        self.resp.expected = h.bth.psn.plus(1);
        if !in_sequence || begins {
            // What was being received is lost; its receive is used for the next message.
            if self.resp.inflow != Inflow::None {
                sh.counters.drop_for(Drop::Incomplete);
            }
            self.resp.inflow = Inflow::None;
            if let Some(active) = &mut self.resp.active {
                active.got = 0;
            }
            self.resp.skipping = !begins;
        }
        if self.resp.skipping {
            return sh.counters.drop_for(Drop::Incomplete);
        }
        let verdict = match h.meaning.operation {
            Operation::Send => self.on_send(sh, h, payload, now),
            _ => self.on_write(sh, h, payload, now),
        };
        if let Err(refusal) = verdict {
            self.drop_message(sh, refusal, now);
        }
    }

    /// An unreliable message cannot be taken. A receive that failed takes the queue pair with it.
    #[cold]
    fn drop_message(&mut self, sh: &mut Shared, refusal: Refusal, now: Instant) {
        self.resp.inflow = Inflow::None;
        self.resp.skipping = true;
        match refusal {
            Refusal::NotReady => sh.counters.drop_for(Drop::NoReceive),
            Refusal::Fatal(NakCode::RemoteOperational) => {
                self.fail(sh, Some(Event::QpFatal(self.number)), now);
            }
            Refusal::Fatal(_) => sh.counters.drop_for(Drop::Incomplete),
        }
    }

    /// The list of the receive that is being filled, and how much it holds.
    pub(crate) fn active_list(&self) -> Option<(&[Sge], u64)> {
        let active = self.resp.active?;
        Some((&self.resp.active_sges[..usize::from(active.sge_count)], active.capacity))
    }
}

/// Why a request was not carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// There is no receive.
    NotReady,
    /// It cannot be, now or later.
    Fatal(NakCode),
}
