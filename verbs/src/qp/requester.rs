//! The requester: turns work requests into packets, in order, and goes back when something is missing.
//!
//! ```text
//!        una             next            max
//!   ──────┬───────────────┬───────────────┬──────►  sequence numbers
//!   done  │ under way     │ to be sent    │ never sent
//!                           again
//! ```
//!
//! `una` is the oldest number without an answer, and always lies in the request at the head of the send queue. Going
//! back sets `next` to `una`; packets are built again from the request and its memory, never kept.
//!
//! A READ asks for no more packets than the configuration's split at a time, so that one long READ neither closes the
//! window nor floods this side's own receive buffers; each part takes one of the responder's resources.

use qhca_regs::Instant;

use super::queue::Progress;
use super::{Qp, QpState, Step};
use crate::event::Event;
use crate::ids::Key;
use crate::mem::KeyError;
use crate::out::{Spec, Wire};
use crate::policy::AckPolicy;
use crate::psn::Psn;
use crate::rnr::ack_timeout;
use crate::shared::Shared;
use crate::timers::{Due, TimerKind};
use crate::wc::WcStatus;
use crate::wire::{AtomicEth, Extra, Opcode, Place, Reth, Service};
use crate::wr::{SendFlags, SendOp};

/// The sending half of a connection.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Requester {
    pub(crate) una: Psn,
    pub(crate) next: Psn,
    pub(crate) max: Psn,
    /// Index of the request that `next` belongs to.
    pub(crate) cur: u32,
    pub(crate) retry_left: u8,
    pub(crate) rnr_left: u8,
    /// READs and atomics that have begun and are not done.
    pub(crate) answers_open: u32,
    /// READ and atomic requests that were sent since the last going back and are not answered.
    pub(crate) slots: u32,
    /// The number of the next message, 24 bits.
    pub(crate) ssn: u32,
    /// The last message that the responder has a receive for, 24 bits.
    pub(crate) limit: u32,
    pub(crate) credits_counted: bool,
    /// Packets since one asked for an acknowledge.
    pub(crate) since_ack: u32,
    pub(crate) ack_due: Option<Instant>,
    pub(crate) rnr_until: Option<Instant>,
    /// Went back because an answer was missing; not again until there is progress.
    pub(crate) went_back: bool,
    /// The request at this index cannot be done by this side, and fails with this once all before it are done.
    pub(crate) halt: Option<(u32, WcStatus)>,
}

impl Requester {
    /// Starts a conversation with `psn`.
    pub(crate) fn start(psn: Psn, head: u32, retry_left: u8, rnr_left: u8) -> Self {
        Self {
            una: psn,
            next: psn,
            max: psn,
            cur: head,
            retry_left,
            rnr_left,
            ssn: 1,
            limit: 0,
            ..Self::default()
        }
    }

    /// Nothing more is sent: the queue is empty.
    pub(crate) fn stop(&mut self, head: u32) {
        self.cur = head;
        self.una = self.max;
        self.next = self.max;
        (self.answers_open, self.slots) = (0, 0);
        (self.ack_due, self.rnr_until, self.halt) = (None, None, None);
    }
}

/// The data packet that is next.
struct DataPacket {
    opcode: Opcode,
    ends: bool,
    offset: u32,
    len_bytes: usize,
    ext: [u32; 5],
    ext_words: usize,
}

impl Qp {
    /// Sends one packet, if one can be sent.
    #[inline]
    pub(crate) fn send_one(&mut self, sh: &mut Shared, wire: &mut impl Wire, now: Instant) -> Step {
        if self.resp.has_output() {
            return self.send_answer(sh, wire, now);
        }
        match self.service {
            Service::Ud => self.send_datagram(sh, wire, now),
            _ => self.send_request(sh, wire, now),
        }
    }

    fn send_request(&mut self, sh: &mut Shared, wire: &mut impl Wire, now: Instant) -> Step {
        if !matches!(self.state, QpState::Rts | QpState::Sqd) || self.req.rnr_until.is_some() {
            return Step::Idle;
        }
        while self.req.cur != self.sq.tail {
            if self.req.halt.is_some_and(|(index, _)| index == self.req.cur) {
                return Step::Idle;
            }
            let wqe = self.sq.at(self.req.cur);
            let is_new = wqe.progress == Progress::Posted;
            let before = (self.req.ssn, self.req.answers_open);
            match wqe.progress {
                Progress::Done => {
                    self.req.cur = self.req.cur.wrapping_add(1);
                    continue;
                }
                Progress::Posted => {
                    if !self.may_begin(sh) {
                        return Step::Idle;
                    }
                    if wqe.op.is_local() {
                        if !self.carry_out_local(sh, now) {
                            return Step::Idle;
                        }
                        continue;
                    }
                    self.begin(sh);
                }
                Progress::Begun => {}
            }
            let step = match self.sq.at(self.req.cur).op {
                SendOp::Read { addr, rkey } => self.send_read(sh, wire, addr, rkey, now),
                SendOp::CompareSwap { addr, rkey, compare, swap } => {
                    let eth = AtomicEth { addr, rkey, swap_or_add: swap, compare };
                    self.send_atomic(sh, wire, Opcode::COMPARE_SWAP, eth, now)
                }
                SendOp::FetchAdd { addr, rkey, add } => {
                    let eth = AtomicEth { addr, rkey, swap_or_add: add, compare: 0 };
                    self.send_atomic(sh, wire, Opcode::FETCH_ADD, eth, now)
                }
                _ => self.send_data(sh, wire, now),
            };
            if is_new && step != Step::Sent {
                self.take_back_begin(before);
            }
            return step;
        }
        Step::Idle
    }

    /// Whether the request at `cur`, which has not begun, may begin.
    #[inline]
    #[cfg_attr(not(test), allow(unused_variables, reason = "only the tests plant faults"))]
    fn may_begin(&self, sh: &Shared) -> bool {
        let wqe = self.sq.at(self.req.cur);
        if self.state == QpState::Sqd {
            return false;
        }
        if wqe.flags.contains(SendFlags::FENCE) && self.req.answers_open > 0 {
            return false;
        }
        #[cfg(test)]
        if sh.planted(crate::harness::Planted::CreditsIgnored) {
            return true;
        }
        // One message more than there are receives may go: its answer brings the new count, or an RNR NAK.
        let ahead = Psn::new(self.req.ssn).ahead_of(Psn::new(self.req.limit));
        !self.req.credits_counted || !wqe.op.takes_receive() || ahead <= 1
    }

    /// Gives the request at `cur` its sequence numbers.
    #[inline]
    fn begin(&mut self, sh: &Shared) {
        let shift = self.set.mtu.shift();
        let split = read_split(sh, shift);
        let wqe = self.sq.at_mut(self.req.cur);
        wqe.first = self.req.max;
        wqe.packets = match wqe.op {
            SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. } => 1,
            _ => packets_of(wqe.len_bytes, shift),
        };
        wqe.progress = Progress::Begun;
        // The responder counts each part of a READ as a message.
        let messages = match wqe.op {
            SendOp::Read { .. } => wqe.packets.div_ceil(split),
            _ => 1,
        };
        self.req.ssn = (self.req.ssn + messages) & 0xFF_FFFF;
        self.req.answers_open += u32::from(wqe.op.wants_answer());
    }

    /// Nothing of the request at `cur` could be sent: it has not begun, and what holds a request back is looked at anew.
    #[cold]
    fn take_back_begin(&mut self, (ssn, answers_open): (u32, u32)) {
        if self.req.halt.is_none() && matches!(self.state, QpState::Rts | QpState::Sqd) {
            self.sq.at_mut(self.req.cur).progress = Progress::Posted;
            (self.req.ssn, self.req.answers_open) = (ssn, answers_open);
        }
    }

    /// Carries out a bind or invalidate; false if that ended the connection.
    #[cold]
    fn carry_out_local(&mut self, sh: &mut Shared, now: Instant) -> bool {
        let index = self.req.cur;
        let done = match self.sq.at(index).op {
            SendOp::BindWindow { rkey, key_part, access } => {
                let part = self.sq.sges(index).first().copied().unwrap_or_default();
                sh.memory.bind(rkey, key_part, self.number, self.pd, &part, access)
            }
            SendOp::LocalInvalidate(key) => sh.memory.invalidate(key, self.number, self.pd),
            _ => Ok(()),
        };
        if done.is_err() {
            self.fail_local(sh, WcStatus::MemoryWindowBind, now);
            return false;
        }
        self.sq.at_mut(index).progress = Progress::Done;
        self.req.cur = index.wrapping_add(1);
        self.complete_done_locals(sh, now);
        true
    }

    /// The request at `cur` cannot be done by this side. It fails once all before it are done, so that completions keep
    /// their order.
    #[cold]
    pub(crate) fn fail_local(&mut self, sh: &mut Shared, status: WcStatus, now: Instant) {
        self.req.halt = Some((self.req.cur, status));
        self.fail_if_halted(sh, now);
    }

    /// Fails the request at the head if that is the one that cannot be done.
    pub(crate) fn fail_if_halted(&mut self, sh: &mut Shared, now: Instant) {
        if let Some((index, status)) = self.req.halt
            && index == self.sq.head
        {
            self.fail_head(sh, status, now);
        }
    }

    /// The request at the head fails, and with it the connection.
    #[cold]
    pub(crate) fn fail_head(&mut self, sh: &mut Shared, status: WcStatus, now: Instant) {
        if !self.sq.is_empty() {
            let wqe = *self.sq.at(self.sq.head);
            self.sq.head = self.sq.head.wrapping_add(1);
            self.complete_send(sh, &wqe, status, now);
        }
        if self.service == Service::Rc {
            self.fail(sh, Some(Event::QpFatal(self.number)), now);
        } else {
            self.state = QpState::Sqe;
            self.flush_sends(sh, now);
        }
    }

    /// Completes local requests at the head that were carried out.
    #[inline]
    pub(crate) fn complete_done_locals(&mut self, sh: &mut Shared, now: Instant) {
        while !self.sq.is_empty() && self.sq.at(self.sq.head).progress == Progress::Done {
            let wqe = *self.sq.at(self.sq.head);
            self.sq.head = self.sq.head.wrapping_add(1);
            self.complete_send(sh, &wqe, WcStatus::Success, now);
        }
    }

    /// Whether `count` more packets fit the window.
    #[inline]
    fn fits_window(&self, sh: &Shared, count: u32) -> bool {
        #[cfg(test)]
        if sh.planted(crate::harness::Planted::WindowIgnored) {
            return true;
        }
        self.req.next.distance_from(self.req.una) + count <= sh.config.window_packets.clamp(1, Psn::WINDOW)
    }

    fn send_data(&mut self, sh: &mut Shared, wire: &mut impl Wire, now: Instant) -> Step {
        if self.service == Service::Rc && !self.fits_window(sh, 1) {
            return Step::Idle;
        }
        let packet = self.data_packet();
        if packet.len_bytes > 0
            && let Err(status) = self.gather(sh, packet.offset, packet.len_bytes)
        {
            self.fail_local(sh, status, now);
            return Step::Idle;
        }
        let closes_window = !self.fits_window(sh, 2);
        let ack_request = self.service == Service::Rc
            && (closes_window || sh.config.acks.asks(self.req.since_ack, packet.ends));
        let flags = self.sq.at(self.req.cur).flags;
        let spec = Spec {
            opcode: packet.opcode,
            solicited: packet.ends && flags.contains(SendFlags::SOLICITED),
            ack_request,
            psn: self.req.next,
        };
        let ext = &packet.ext[..packet.ext_words];
        if sh.emit(wire, &self.template, spec, ext, packet.len_bytes).is_err() {
            return Step::Full;
        }
        self.req.since_ack = if ack_request { 0 } else { self.req.since_ack + 1 };
        self.sent(sh, 1, now);
        Step::Sent
    }

    /// What the next packet of the SEND or WRITE at `cur` is.
    #[inline]
    fn data_packet(&self) -> DataPacket {
        let wqe = self.sq.at(self.req.cur);
        let at = self.req.next.distance_from(wqe.first);
        let ends = at + 1 == wqe.packets;
        let offset = at << self.set.mtu.shift();
        let len = if ends { wqe.len_bytes - offset } else { self.set.mtu.bytes() };
        let place = match (at == 0, ends) {
            (true, true) => Place::Only,
            (true, false) => Place::First,
            (false, false) => Place::Middle,
            (false, true) => Place::Last,
        };
        let (reth, extra) = match wqe.op {
            SendOp::SendImmediate(immediate) => (None, (Extra::Immediate, immediate)),
            SendOp::SendInvalidate(key) => (None, (Extra::Invalidate, key.0)),
            SendOp::Write { addr, rkey } => (Some((addr, rkey)), (Extra::None, 0)),
            SendOp::WriteImmediate { addr, rkey, immediate } => {
                (Some((addr, rkey)), (Extra::Immediate, immediate))
            }
            _ => (None, (Extra::None, 0)),
        };
        let mut ext = [0; 5];
        let mut ext_words = 0;
        let opcode = match reth {
            None => Opcode::send(self.service, place, extra.0),
            Some((addr, rkey)) => {
                if place.begins() {
                    ext[..4].copy_from_slice(&Reth { addr, rkey, len_bytes: wqe.len_bytes }.build());
                    ext_words = 4;
                }
                Opcode::write(self.service, place, extra.0)
            }
        };
        if ends && extra.0 != Extra::None {
            ext[ext_words] = extra.1;
            ext_words += 1;
        }
        DataPacket { opcode, ends, offset, len_bytes: len as usize, ext, ext_words }
    }

    /// Copies `len_bytes` of the request at `cur` from `offset` to the scratch payload.
    #[inline]
    pub(crate) fn gather(&self, sh: &mut Shared, offset: u32, len_bytes: usize) -> Result<(), WcStatus> {
        let index = self.req.cur;
        if self.sq.at(index).is_inline {
            let start = offset as usize;
            sh.gather_bytes(&self.sq.inline(index)[start..start + len_bytes]);
            return Ok(());
        }
        let wrong = |_: KeyError| WcStatus::LocalProtection;
        sh.gather(self, self.sq.sges(index), offset, len_bytes).map_err(wrong)
    }

    fn send_read(
        &mut self,
        sh: &mut Shared,
        wire: &mut impl Wire,
        addr: u64,
        rkey: Key,
        now: Instant,
    ) -> Step {
        let shift = self.set.mtu.shift();
        let wqe = self.sq.at(self.req.cur);
        let at = self.req.next.distance_from(wqe.first);
        let split = read_split(sh, shift);
        let end = (at / split + 1).saturating_mul(split).min(wqe.packets);
        let offset = at << shift;
        let len_bytes = if end == wqe.packets { wqe.len_bytes - offset } else { (end - at) << shift };
        if self.req.slots >= u32::from(self.set.max_rd_atomic) || !self.fits_window(sh, end - at) {
            return Step::Idle;
        }
        let reth = Reth { addr: addr.wrapping_add(u64::from(offset)), rkey, len_bytes };
        let spec =
            Spec { opcode: Opcode::READ_REQUEST, solicited: false, ack_request: false, psn: self.req.next };
        if sh.emit(wire, &self.template, spec, &reth.build(), 0).is_err() {
            return Step::Full;
        }
        self.req.slots += 1;
        self.sent(sh, end - at, now);
        Step::Sent
    }

    fn send_atomic(
        &mut self,
        sh: &mut Shared,
        wire: &mut impl Wire,
        opcode: Opcode,
        eth: AtomicEth,
        now: Instant,
    ) -> Step {
        if self.req.slots >= u32::from(self.set.max_rd_atomic) || !self.fits_window(sh, 1) {
            return Step::Idle;
        }
        let spec = Spec { opcode, solicited: false, ack_request: true, psn: self.req.next };
        if sh.emit(wire, &self.template, spec, &eth.build(), 0).is_err() {
            return Step::Full;
        }
        self.req.slots += 1;
        self.sent(sh, 1, now);
        Step::Sent
    }

    /// A packet that takes `count` numbers went out.
    #[inline]
    fn sent(&mut self, sh: &mut Shared, count: u32, now: Instant) {
        let wqe = self.sq.at(self.req.cur);
        let is_whole = self.req.next.distance_from(wqe.first) + count >= wqe.packets;
        if self.req.next.ahead_of(self.req.max) < 0 {
            self.counts.packets_repeated += 1;
        }
        self.req.next = self.req.next.plus(count);
        if self.req.next.ahead_of(self.req.max) > 0 {
            self.req.max = self.req.next;
        }
        if is_whole {
            self.req.cur = self.req.cur.wrapping_add(1);
        }
        if self.service == Service::Rc {
            if self.req.ack_due.is_none() {
                self.start_ack_timer(sh, now);
            }
        } else if is_whole {
            self.req.una = self.req.next;
            let wqe = *self.sq.at(self.sq.head);
            self.sq.head = self.sq.head.wrapping_add(1);
            self.complete_send(sh, &wqe, WcStatus::Success, now);
            self.look_if_drained(sh);
        }
    }

    /// Waits for an acknowledge from now on.
    #[inline]
    pub(crate) fn start_ack_timer(&mut self, sh: &mut Shared, now: Instant) {
        let Some(timeout) = ack_timeout(self.set.timeout) else { return };
        let at = now + timeout;
        self.req.ack_due = Some(at);
        let due = Due { at, index: self.index, generation: self.generation, kind: TimerKind::Ack };
        sh.timers.arm(due, &mut self.queued[0]);
    }

    /// An entry of the heap came due.
    pub(crate) fn on_timer(&mut self, sh: &mut Shared, kind: TimerKind, now: Instant) {
        let (slot, due) = match kind {
            TimerKind::Ack => (0, self.req.ack_due),
            TimerKind::Rnr => (1, self.req.rnr_until),
        };
        self.queued[slot] = None;
        match due {
            None => {}
            Some(at) if at > now => {
                let due = Due { at, index: self.index, generation: self.generation, kind };
                sh.timers.arm(due, &mut self.queued[slot]);
            }
            Some(_) if kind == TimerKind::Ack => self.on_ack_timeout(sh, now),
            Some(_) => {
                self.req.rnr_until = None;
                sh.schedule(self.index, &mut self.scheduled);
            }
        }
    }

    #[cold]
    fn on_ack_timeout(&mut self, sh: &mut Shared, now: Instant) {
        self.req.ack_due = None;
        self.counts.timeouts += 1;
        sh.counters.timeouts += 1;
        self.go_back(sh, now);
    }

    /// Sends everything again from the oldest number without an answer, or gives up.
    #[cold]
    pub(crate) fn go_back(&mut self, sh: &mut Shared, now: Instant) {
        if !matches!(self.state, QpState::Rts | QpState::Sqd) {
            return;
        }
        if self.req.retry_left == 0 {
            return self.fail_head(sh, WcStatus::RetryExceeded, now);
        }
        self.req.retry_left -= 1;
        #[cfg(test)]
        if sh.planted(crate::harness::Planted::RetryForever) {
            self.req.retry_left += 1;
        }
        self.rewind(sh);
        self.start_ack_timer(sh, now);
    }

    /// Sets the next packet to the oldest without an answer.
    #[cold]
    pub(crate) fn rewind(&mut self, sh: &mut Shared) {
        sh.counters.rewinds += 1;
        self.req.next = self.req.una;
        self.req.cur = self.sq.head;
        self.req.slots = 0;
        #[cfg(test)]
        if sh.planted(crate::harness::Planted::RepeatSkipsOne)
            && self.req.cur != self.sq.tail
            && self.sq.at(self.req.cur).last().ahead_of(self.req.una) > 0
        {
            self.req.next = self.req.una.plus(1);
        }
        sh.schedule(self.index, &mut self.scheduled);
    }

    /// Tells when a draining send queue has nothing under way any more.
    #[inline]
    pub(crate) fn look_if_drained(&mut self, sh: &mut Shared) {
        if self.drained_event && self.state == QpState::Sqd && self.is_drained() {
            self.drained_event = false;
            sh.events.push(Event::SendQueueDrained(self.number));
        }
    }

    /// Whether nothing that was begun is unfinished.
    pub(crate) fn is_drained(&self) -> bool {
        self.sq.is_empty() || self.sq.at(self.sq.head).progress == Progress::Posted
    }
}

/// Packets that `len_bytes` take, one at least.
#[inline]
pub(crate) fn packets_of(len_bytes: u32, mtu_shift: u32) -> u32 {
    // 2^31 rounded up does not leave 32 bits.
    ((len_bytes + (1 << mtu_shift) - 1) >> mtu_shift).max(1)
}

/// Packets that one READ request asks for at most: as configured, inside the window, and 2^31 bytes.
fn read_split(sh: &Shared, mtu_shift: u32) -> u32 {
    let window = sh.config.window_packets.clamp(1, Psn::WINDOW);
    sh.config.read_split_packets.min(window).min(super::MESSAGE_MAX_BYTES >> mtu_shift).max(1)
}

/// Where the end of the READ part lies that packet `at` belongs to.
pub(crate) fn part_end(sh: &Shared, mtu_shift: u32, at: u32, packets: u32) -> u32 {
    let split = read_split(sh, mtu_shift);
    (at / split + 1).saturating_mul(split).min(packets)
}
