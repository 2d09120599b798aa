//! A queue pair: two queues of work requests, and the state of a conversation.
//!
//! ```text
//!   post_send ─► send queue ─► requester ─► packets ─► responder ─► receive queue ─► completion
//!                               (requester.rs)          (responder.rs)
//!                 completion ◄─ answers.rs  ◄─ acknowledges, answers
//! ```
//!
//! A queue pair holds no clock and no lock. Packets and the time are handed to it; what it wants to send is asked of it
//! one packet at a time, so that a chip without room stops it anywhere without harm.

mod answers;
mod attr;
mod datagram;
mod modify;
pub(crate) mod queue;
mod requester;
mod responder;

pub use attr::{AttrMask, ModifyError, Mtu, QpAttr, QpState, RnrTimer, allowed};
pub(crate) use requester::Requester;
pub(crate) use responder::Responder;

use qhca_regs::{Instant, Lid};

use crate::event::Event;
use crate::ids::{CqId, PdId, QpNumber, SrqId};
use crate::mem::{Access, Sge};
use crate::out::Template;
use crate::shared::Shared;
use crate::wc::{Along, Sender, Wc, WcDetail, WcOpcode, WcStatus};
use crate::wire::Service;
use crate::wr::{AddressVector, Data, PostError, RecvWr, SendFlags, SendOp, SendWr};
use queue::{RecvQueue, SendQueue, SendWqe};

/// The longest message of a connection, bytes.
pub const MESSAGE_MAX_BYTES: u32 = 1 << 31;

/// What a queue pair is made of.
#[derive(Clone, Copy, Debug)]
pub struct QpInit {
    /// The service.
    pub service: Service,
    /// Its protection domain.
    pub pd: PdId,
    /// Where sends complete.
    pub send_cq: CqId,
    /// Where receives complete.
    pub recv_cq: CqId,
    /// Where receives come from, if not from a queue of its own.
    pub srq: Option<SrqId>,
    /// Sends that may wait.
    pub max_send: u32,
    /// Receives that may wait.
    pub max_recv: u32,
    /// Stretches of one send.
    pub max_send_sges: u8,
    /// Stretches of one receive.
    pub max_recv_sges: u8,
    /// Inline bytes of one send.
    pub max_inline: u16,
    /// Whether every send completes, whether signalled or not.
    pub all_signaled: bool,
    /// Whether a multicast of ours is kept from our own attached queue pairs.
    pub block_own_multicast: bool,
}

impl QpInit {
    /// A queue pair with 128 sends and receives of up to four stretches each.
    pub fn new(service: Service, pd: PdId, cq: CqId) -> Self {
        Self {
            service,
            pd,
            send_cq: cq,
            recv_cq: cq,
            srq: None,
            max_send: 128,
            max_recv: 128,
            max_send_sges: 4,
            max_recv_sges: 4,
            max_inline: 64,
            all_signaled: false,
            block_own_multicast: false,
        }
    }
}

/// What a queue pair has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct QpCounts {
    /// Request packets that were sent again.
    pub packets_repeated: u64,
    /// Acknowledge timers that ran out.
    pub timeouts: u64,
    /// RNR NAKs that came.
    pub rnr_naks_received: u64,
    /// NAKs for a sequence error that came.
    pub sequence_naks_received: u64,
    /// RNR NAKs that went out.
    pub rnr_naks_sent: u64,
    /// Requests that had been carried out before.
    pub duplicates: u64,
}

/// The attributes that stay until they are modified.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    pub(crate) access: Access,
    pub(crate) pkey_index: u16,
    pub(crate) qkey: u32,
    pub(crate) address: AddressVector,
    pub(crate) mtu: Mtu,
    pub(crate) timeout: u8,
    pub(crate) retry_count: u8,
    pub(crate) rnr_retry: u8,
    pub(crate) max_rd_atomic: u8,
    pub(crate) max_dest_rd_atomic: u8,
    pub(crate) min_rnr_timer: u8,
    pub(crate) dest_qp: QpNumber,
}

impl Settings {
    fn new() -> Self {
        Self {
            access: Access::empty(),
            pkey_index: 0,
            qkey: 0,
            address: AddressVector::default(),
            mtu: Mtu::B256,
            timeout: 0,
            retry_count: 0,
            rnr_retry: 0,
            max_rd_atomic: 0,
            max_dest_rd_atomic: 0,
            min_rnr_timer: 10,
            dest_qp: QpNumber::new(0),
        }
    }
}

/// What came of an attempt to send one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// One went out.
    Sent,
    /// Nothing can be sent until something happens.
    Idle,
    /// There was no room.
    Full,
}

/// A queue pair.
pub(crate) struct Qp {
    pub(crate) number: QpNumber,
    pub(crate) index: u32,
    pub(crate) generation: u32,
    pub(crate) service: Service,
    pub(crate) state: QpState,
    pub(crate) pd: PdId,
    pub(crate) send_cq: CqId,
    pub(crate) recv_cq: CqId,
    pub(crate) srq: Option<SrqId>,
    pub(crate) all_signaled: bool,
    pub(crate) block_own_multicast: bool,
    /// An event is due when the send queue is drained.
    pub(crate) drained_event: bool,
    pub(crate) scheduled: bool,
    pub(crate) set: Settings,
    pub(crate) template: Template,
    pub(crate) pkey: u16,
    pub(crate) sq: SendQueue,
    pub(crate) rq: RecvQueue,
    pub(crate) req: Requester,
    pub(crate) resp: Responder,
    /// When the heap's entries for this queue pair come due: acknowledge timer, RNR timer.
    pub(crate) queued: [Option<Instant>; 2],
    pub(crate) counts: QpCounts,
}

impl Qp {
    pub(crate) fn new(number: QpNumber, index: u32, generation: u32, init: &QpInit, srq_sges: usize) -> Self {
        let recv_sges = usize::from(init.max_recv_sges);
        let (recv_depth, recv_sges) =
            if init.srq.is_some() { (0, srq_sges) } else { (init.max_recv, recv_sges) };
        Self {
            number,
            index,
            generation,
            service: init.service,
            state: QpState::Reset,
            pd: init.pd,
            send_cq: init.send_cq,
            recv_cq: init.recv_cq,
            srq: init.srq,
            all_signaled: init.all_signaled,
            block_own_multicast: init.block_own_multicast,
            drained_event: false,
            scheduled: false,
            set: Settings::new(),
            template: Template::default(),
            pkey: 0,
            sq: SendQueue::new(
                init.max_send,
                usize::from(init.max_send_sges),
                usize::from(init.max_inline),
                init.service == Service::Ud,
            ),
            rq: RecvQueue::new(recv_depth, recv_sges),
            req: Requester::default(),
            resp: Responder::new(recv_sges),
            queued: [None; 2],
            counts: QpCounts::default(),
        }
    }

    /// Takes a request to send.
    #[inline]
    pub(crate) fn post_send(
        &mut self,
        sh: &mut Shared,
        wr: &SendWr<'_>,
        now: Instant,
    ) -> Result<(), PostError> {
        if !matches!(self.state, QpState::Rts) {
            self.may_post_send()?;
        }
        self.check_shape(wr)?;
        let max_len = if self.service == Service::Ud { sh.port.mtu.bytes() } else { MESSAGE_MAX_BYTES };
        self.sq.push(wr, max_len)?;
        match self.state {
            QpState::Error | QpState::Sqe => self.flush_sends(sh, now),
            _ => sh.schedule(self.index, &mut self.scheduled),
        }
        Ok(())
    }

    #[cold]
    fn may_post_send(&self) -> Result<(), PostError> {
        match self.state {
            QpState::Reset | QpState::Init | QpState::Rtr => Err(PostError::State(self.state)),
            QpState::Rts | QpState::Sqd | QpState::Sqe | QpState::Error => Ok(()),
        }
    }

    /// Whether the service knows the operation, and the request has its shape.
    #[inline]
    fn check_shape(&self, wr: &SendWr<'_>) -> Result<(), PostError> {
        let reliable = self.service == Service::Rc;
        if (self.service == Service::Ud) != wr.to.is_some() {
            return Err(PostError::Destination);
        }
        match wr.op {
            SendOp::Send | SendOp::SendImmediate(_) => Ok(()),
            SendOp::Write { .. } | SendOp::WriteImmediate { .. } if self.service != Service::Ud => Ok(()),
            SendOp::SendInvalidate(_) if reliable => Ok(()),
            _ if !reliable => Err(PostError::NotSupported),
            _ => self.check_rare_shape(wr),
        }
    }

    fn check_rare_shape(&self, wr: &SendWr<'_>) -> Result<(), PostError> {
        let Data::Sges(sges) = wr.data else { return Err(PostError::InlineNotAllowed) };
        if wr.op.wants_answer() && self.set.max_rd_atomic == 0 {
            return Err(PostError::NoInitiatorDepth);
        }
        match wr.op {
            SendOp::CompareSwap { addr, .. } | SendOp::FetchAdd { addr, .. } => {
                let bytes: u64 = sges.iter().map(|sge| u64::from(sge.len_bytes)).sum();
                if bytes == 8 && addr.is_multiple_of(8) { Ok(()) } else { Err(PostError::AtomicShape) }
            }
            SendOp::BindWindow { .. } if sges.len() != 1 => Err(PostError::BindShape),
            SendOp::LocalInvalidate(_) if !sges.is_empty() => Err(PostError::BindShape),
            _ => Ok(()),
        }
    }

    /// Takes a receive.
    #[inline]
    pub(crate) fn post_recv(
        &mut self,
        sh: &mut Shared,
        wr: &RecvWr<'_>,
        now: Instant,
    ) -> Result<(), PostError> {
        if self.srq.is_some() {
            return Err(PostError::HasSrq);
        }
        if self.state == QpState::Reset {
            return Err(PostError::State(self.state));
        }
        self.rq.push(wr)?;
        if self.state == QpState::Error {
            self.flush_receives(sh, now);
        }
        Ok(())
    }

    /// Completes a send that was taken off the queue.
    #[inline]
    fn complete_send(&self, sh: &mut Shared, wqe: &SendWqe, status: WcStatus, now: Instant) {
        let signaled = self.all_signaled || wqe.flags.contains(SendFlags::SIGNALED);
        if !signaled && status == WcStatus::Success {
            return;
        }
        let opcode = match wqe.op {
            SendOp::Send | SendOp::SendImmediate(_) | SendOp::SendInvalidate(_) => WcOpcode::Send,
            SendOp::Write { .. } | SendOp::WriteImmediate { .. } => WcOpcode::Write,
            SendOp::Read { .. } => WcOpcode::Read,
            SendOp::CompareSwap { .. } => WcOpcode::CompareSwap,
            SendOp::FetchAdd { .. } => WcOpcode::FetchAdd,
            SendOp::BindWindow { .. } => WcOpcode::BindWindow,
            SendOp::LocalInvalidate(_) => WcOpcode::LocalInvalidate,
        };
        let detail =
            WcDetail { opcode, len_bytes: wqe.len_bytes, along: Along::None, sender: Sender::default() };
        sh.complete(self.send_cq, Wc { wr_id: wqe.wr_id, status, qp: self.number, detail }, false, now);
    }

    /// Completes a receive.
    #[inline]
    fn complete_recv(
        &self,
        sh: &mut Shared,
        wr_id: u64,
        status: WcStatus,
        detail: WcDetail,
        solicited: bool,
        now: Instant,
    ) {
        sh.complete(self.recv_cq, Wc { wr_id, status, qp: self.number, detail }, solicited, now);
    }

    /// Flushes every send that waits, in order.
    pub(crate) fn flush_sends(&mut self, sh: &mut Shared, now: Instant) {
        while !self.sq.is_empty() {
            let wqe = *self.sq.at(self.sq.head);
            self.sq.head = self.sq.head.wrapping_add(1);
            #[cfg(test)]
            if sh.planted(crate::harness::Planted::FlushForgetsLast) && self.sq.is_empty() {
                break;
            }
            self.complete_send(sh, &wqe, WcStatus::Flushed, now);
        }
        self.req.stop(self.sq.head);
    }

    /// Flushes the receive that is being filled, then every one that waits, in order.
    pub(crate) fn flush_receives(&mut self, sh: &mut Shared, now: Instant) {
        let detail =
            WcDetail { opcode: WcOpcode::Recv, len_bytes: 0, along: Along::None, sender: Sender::default() };
        if let Some(active) = self.resp.active.take() {
            self.complete_recv(sh, active.wr_id, WcStatus::Flushed, detail, false, now);
        }
        let mut sges = [Sge::default(); u8::MAX as usize];
        while let Some(wqe) = self.rq.pop(&mut sges) {
            self.complete_recv(sh, wqe.wr_id, WcStatus::Flushed, detail, false, now);
        }
    }

    /// Goes to the error state: everything that was posted is flushed. What the responder still has to answer with
    /// stays, a NAK above all.
    pub(crate) fn fail(&mut self, sh: &mut Shared, event: Option<Event>, now: Instant) {
        if self.state == QpState::Error {
            return;
        }
        self.state = QpState::Error;
        if let Some(event) = event {
            sh.events.push(event);
        }
        self.flush_sends(sh, now);
        self.flush_receives(sh, now);
        if self.srq.is_some() {
            sh.events.push(Event::LastWqeReached(self.number));
        }
        sh.schedule(self.index, &mut self.scheduled);
    }

    /// Whether a packet from `slid` can be from the queue pair that this one is connected to.
    #[inline]
    pub(crate) fn is_peer(&self, slid: Lid) -> bool {
        self.set.address.dlid == slid
    }
}
