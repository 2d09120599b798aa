//! What comes back to a requester: acknowledges, NAKs, the data of READs, the values of atomics.
//!
//! An answer with number `p` vouches for everything before `p`, because a responder works in order. An acknowledge for
//! a number past a READ whose data never came therefore means that the data is lost: the READ is asked for again.

use qhca_regs::Instant;

use super::queue::Progress;
use super::requester::part_end;
use super::{Qp, QpState};
use crate::counters::Drop;
use crate::mem::{Access, Payload};
use crate::psn::Psn;
use crate::rnr::rnr_pause;
use crate::shared::Shared;
use crate::timers::{Due, TimerKind};
use crate::wc::WcStatus;
use crate::wire::{Aeth, Credits, Headers, NakCode, Operation, Syndrome};
use crate::wr::SendOp;

/// `rnr_retry` of a requester that never gives up.
const RNR_FOREVER: u8 = 7;

impl Qp {
    /// Takes an answer.
    #[inline]
    pub(crate) fn on_answer(
        &mut self,
        sh: &mut Shared,
        h: &Headers<'_>,
        payload: &Payload<'_>,
        now: Instant,
    ) {
        if !matches!(self.state, QpState::Rts | QpState::Sqd) {
            return sh.counters.drop_for(Drop::QpState);
        }
        // The number just before the window may come again, with news of credits.
        let under_way = self.req.max.distance_from(self.req.una) as i32;
        let place = h.bth.psn.ahead_of(self.req.una);
        if place >= under_way || place < -1 {
            return sh.counters.drop_for(Drop::Ghost);
        }
        let aeth = h.aeth();
        if let Some(Aeth { syndrome: Syndrome::Ack(credits), msn }) = aeth {
            self.take_credits(sh, credits, msn);
        }
        match (h.meaning.operation, aeth) {
            (Operation::Acknowledge, Some(aeth)) => self.on_acknowledge(sh, h.bth.psn, place, aeth, now),
            (Operation::ReadResponse, _) => self.on_read_response(sh, h, payload, place, now),
            _ => self.on_atomic_answer(sh, h, place, now),
        }
    }

    #[inline]
    fn on_acknowledge(&mut self, sh: &mut Shared, psn: Psn, place: i32, aeth: Aeth, now: Instant) {
        match aeth.syndrome {
            Syndrome::Ack(_) => {
                if place >= 0 && self.vouched(sh, psn, now) {
                    self.answer_is_missing(sh, now);
                }
            }
            Syndrome::RnrNak(timer) if place >= 0 => self.on_rnr_nak(sh, psn, timer, now),
            Syndrome::Nak(code) if place >= 0 => self.on_nak(sh, psn, code, now),
            _ => sh.counters.drop_for(Drop::Ghost),
        }
    }

    /// Everything up to `psn` was carried out. True if data that should have come before is missing.
    #[inline]
    fn vouched(&mut self, sh: &mut Shared, psn: Psn, now: Instant) -> bool {
        let before = self.req.una;
        let missing = loop {
            if psn.ahead_of(self.req.una) < 0 {
                break false;
            }
            let wqe = self.sq.at(self.sq.head);
            if self.sq.is_empty() || wqe.progress != Progress::Begun {
                break false;
            }
            if wqe.op.wants_answer() && !planted_ack_completes_read(sh) {
                break true;
            }
            let last = wqe.last();
            if psn.ahead_of(last) < 0 {
                self.req.una = psn.plus(1);
                break false;
            }
            self.req.una = last.plus(1);
            self.complete_head(sh, now);
        };
        if self.req.una != before {
            self.on_progress(sh, now);
        }
        missing
    }

    /// The request at the head is done.
    #[inline]
    fn complete_head(&mut self, sh: &mut Shared, now: Instant) {
        let wqe = *self.sq.at(self.sq.head);
        self.req.answers_open -= u32::from(wqe.op.wants_answer());
        self.sq.head = self.sq.head.wrapping_add(1);
        self.complete_send(sh, &wqe, WcStatus::Success, now);
        self.complete_done_locals(sh, now);
    }

    /// The oldest number without an answer moved on.
    #[inline]
    fn on_progress(&mut self, sh: &mut Shared, now: Instant) {
        let req = &mut self.req;
        req.retry_left = self.set.retry_count;
        req.rnr_left = self.set.rnr_retry;
        req.went_back = false;
        // A late answer to what was about to be sent again: no need any more.
        if req.next.ahead_of(req.una) < 0 {
            req.next = req.una;
            req.cur = self.sq.head;
        }
        if req.una == req.max || req.rnr_until.is_some() {
            req.ack_due = None;
        } else {
            self.start_ack_timer(sh, now);
        }
        if self.req.cur != self.sq.tail {
            sh.schedule(self.index, &mut self.scheduled);
        }
        if self.req.halt.is_some() {
            self.fail_if_halted(sh, now);
        }
        self.look_if_drained(sh);
    }

    /// How many messages the responder can take.
    #[inline]
    fn take_credits(&mut self, sh: &mut Shared, credits: Credits, msn: u32) {
        let Some(count) = credits.count() else {
            if std::mem::replace(&mut self.req.credits_counted, false) {
                sh.schedule(self.index, &mut self.scheduled);
            }
            return;
        };
        let limit = Psn::new(msn.wrapping_add(count));
        let is_first = !std::mem::replace(&mut self.req.credits_counted, true);
        if is_first || limit.ahead_of(Psn::new(self.req.limit)) > 0 {
            self.req.limit = limit.get();
            if self.req.cur != self.sq.tail {
                sh.schedule(self.index, &mut self.scheduled);
            }
        }
    }

    /// Data is missing that was sent: an implied NAK.
    #[cold]
    fn answer_is_missing(&mut self, sh: &mut Shared, now: Instant) {
        let pauses = self.req.rnr_until.is_some();
        if !pauses && !std::mem::replace(&mut self.req.went_back, true) {
            self.go_back(sh, now);
        }
    }

    #[cold]
    fn on_rnr_nak(&mut self, sh: &mut Shared, psn: Psn, timer: u8, now: Instant) {
        self.counts.rnr_naks_received += 1;
        sh.counters.rnr_naks_received += 1;
        let missing = self.vouched(sh, psn.before(), now);
        // While it waits the answer to an earlier attempt may come once more.
        if self.req.rnr_until.is_some() || self.state == QpState::Error || self.sq.is_empty() {
            return;
        }
        // What must be asked for again first is not to blame on the receives.
        let (left, exceeded) = match missing {
            true => (&mut self.req.retry_left, WcStatus::RetryExceeded),
            false => (&mut self.req.rnr_left, WcStatus::RnrRetryExceeded),
        };
        if missing || self.set.rnr_retry != RNR_FOREVER {
            let Some(less) = left.checked_sub(1) else { return self.fail_head(sh, exceeded, now) };
            *left = less;
        }
        self.rewind(sh);
        self.req.ack_due = None;
        let at = now + planted_rnr_pause(sh, timer);
        self.req.rnr_until = Some(at);
        let due = Due { at, index: self.index, generation: self.generation, kind: TimerKind::Rnr };
        sh.timers.arm(due, &mut self.queued[1]);
    }

    #[cold]
    fn on_nak(&mut self, sh: &mut Shared, psn: Psn, code: NakCode, now: Instant) {
        let status = match code {
            NakCode::SequenceError => {
                self.counts.sequence_naks_received += 1;
                sh.counters.sequence_naks_received += 1;
                self.vouched(sh, psn.before(), now);
                if self.state != QpState::Error && self.req.next != self.req.una {
                    self.go_back(sh, now);
                }
                return;
            }
            NakCode::InvalidRequest | NakCode::InvalidRd => WcStatus::RemoteInvalidRequest,
            NakCode::RemoteAccess => WcStatus::RemoteAccess,
            NakCode::RemoteOperational => WcStatus::RemoteOperation,
            NakCode::Reserved(_) => WcStatus::BadResponse,
        };
        // The request that it names is the head once all before it is complete. If data before it is missing, that is
        // asked for again; a peer that has refused does not answer, and the READ ends by its retry count.
        if self.vouched(sh, psn.before(), now) {
            return self.answer_is_missing(sh, now);
        }
        self.fail_head(sh, status, now);
    }

    fn on_read_response(
        &mut self,
        sh: &mut Shared,
        h: &Headers<'_>,
        payload: &Payload<'_>,
        place: i32,
        now: Instant,
    ) {
        let psn = h.bth.psn;
        if place < 0 {
            return sh.counters.drop_for(Drop::Ghost);
        }
        // Everything before the READ is vouched for; data of the READ itself comes in order.
        let missing = self.vouched(sh, psn.before(), now) || psn != self.req.una;
        let wqe = *self.sq.at(self.sq.head);
        let is_read = !self.sq.is_empty() && matches!(wqe.op, SendOp::Read { .. });
        if missing {
            return self.answer_is_missing(sh, now);
        }
        if !is_read || wqe.progress != Progress::Begun {
            return self.fail_head(sh, WcStatus::BadResponse, now);
        }
        let shift = self.set.mtu.shift();
        let at = psn.distance_from(wqe.first);
        let ends_part = at + 1 == part_end(sh, shift, at, wqe.packets);
        let offset = at << shift;
        #[cfg(test)]
        let to = if sh.planted(crate::harness::Planted::ReadOffsetLost) { 0 } else { offset };
        #[cfg(not(test))]
        let to = offset;
        let wanted = (wqe.len_bytes - offset).min(self.set.mtu.bytes()) as usize;
        if h.meaning.place.ends() != ends_part || h.payload_bytes() != wanted {
            return self.fail_head(sh, WcStatus::BadResponse, now);
        }
        if self.scatter_answer(sh, to, payload, wanted).is_err() {
            return self.fail_head(sh, WcStatus::LocalProtection, now);
        }
        self.req.una = psn.plus(1);
        if ends_part {
            self.req.slots = self.req.slots.saturating_sub(1);
        }
        if at + 1 == wqe.packets {
            self.complete_head(sh, now);
        }
        self.on_progress(sh, now);
    }

    fn on_atomic_answer(&mut self, sh: &mut Shared, h: &Headers<'_>, place: i32, now: Instant) {
        let psn = h.bth.psn;
        if place < 0 {
            return sh.counters.drop_for(Drop::Ghost);
        }
        if self.vouched(sh, psn.before(), now) || psn != self.req.una {
            return self.answer_is_missing(sh, now);
        }
        let wqe = *self.sq.at(self.sq.head);
        let is_atomic = matches!(wqe.op, SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. });
        let (true, Some(value)) = (is_atomic && wqe.progress == Progress::Begun, h.atomic_ack()) else {
            return self.fail_head(sh, WcStatus::BadResponse, now);
        };
        // Memory holds numbers in the processor's order, headers in the network's.
        if self.scatter_answer(sh, 0, &Payload::Bytes(&value.0.to_le_bytes()), 8).is_err() {
            return self.fail_head(sh, WcStatus::LocalProtection, now);
        }
        self.req.una = psn.plus(1);
        self.req.slots = self.req.slots.saturating_sub(1);
        self.complete_head(sh, now);
        self.on_progress(sh, now);
    }

    /// Copies `len_bytes` of an answer to the list of the request at the head, from `offset`.
    fn scatter_answer(
        &self,
        sh: &Shared,
        offset: u32,
        payload: &Payload<'_>,
        len_bytes: usize,
    ) -> Result<(), crate::mem::KeyError> {
        crate::scatter::scatter(
            &sh.memory,
            self.pd,
            self.sq.sges(self.sq.head),
            offset,
            &payload.part(0, len_bytes),
            Access::LOCAL_WRITE,
        )
    }
}

#[inline]
#[allow(unused_variables, reason = "only the tests plant faults")]
fn planted_ack_completes_read(sh: &Shared) -> bool {
    #[cfg(test)]
    return sh.planted(crate::harness::Planted::AckCompletesRead);
    #[cfg(not(test))]
    false
}

#[allow(unused_variables, reason = "only the tests plant faults")]
fn planted_rnr_pause(sh: &Shared, timer: u8) -> qhca_regs::Duration {
    #[cfg(test)]
    if sh.planted(crate::harness::Planted::RnrTimerIgnored) {
        return qhca_regs::Duration::from_nanos(1);
    }
    rnr_pause(timer)
}
