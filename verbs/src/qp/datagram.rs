//! Unreliable datagrams: one packet, one message, each to wherever its request says.
//!
//! ```text
//!   the receive    0 ──── GRH, or left as it was ──── 40 ──── payload ────
//! ```
//!
//! The first 40 bytes of every receive are the GRH's, whether there is one or not. A datagram that does not fit leaves
//! the receive where it is, for the next one, and is counted; the queue pair goes on.

use qhca_regs::Instant;

use super::queue::Progress;
use super::{Qp, QpState, Step};
use crate::counters::Drop;
use crate::event::Event;
use crate::ids::QpNumber;
use crate::mem::{Access, Payload};
use crate::out::{Spec, Template, Wire};
use crate::scatter::scatter;
use crate::shared::Shared;
use crate::wc::{WcOpcode, WcStatus};
use crate::wire::{Deth, Extra, Grh, Headers, Opcode, Place, Service};
use crate::wr::{SendFlags, SendOp};

/// With this bit a request says that the queue pair's own Q_Key is to be used.
const QKEY_OF_QP: u32 = 1 << 31;

impl Qp {
    /// Sends the next datagram.
    pub(crate) fn send_datagram(&mut self, sh: &mut Shared, wire: &mut impl Wire, now: Instant) -> Step {
        if self.state != QpState::Rts || self.req.cur == self.sq.tail {
            return Step::Idle;
        }
        let index = self.req.cur;
        let wqe = *self.sq.at(index);
        debug_assert_eq!(wqe.progress, Progress::Posted, "a datagram is sent whole");
        let to = self.sq.destination(index).copied().unwrap_or_default();
        if let Err(status) = self.gather(sh, 0, wqe.len_bytes as usize) {
            self.fail_head(sh, status, now);
            return Step::Idle;
        }
        let mut template = Template::new(&sh.port, &to.address, self.pkey, to.qp);
        if self.number == QpNumber::SUBNET_MANAGEMENT {
            template.use_management_lane();
        }
        let qkey = if to.qkey & QKEY_OF_QP != 0 { self.set.qkey } else { to.qkey };
        let [qkey, source] = Deth { qkey, src_qp: self.number }.build();
        let (extra, ext) = match wqe.op {
            SendOp::SendImmediate(immediate) => (Extra::Immediate, [qkey, source, immediate]),
            _ => (Extra::None, [qkey, source, 0]),
        };
        let ext = &ext[..if extra == Extra::None { 2 } else { 3 }];
        let spec = Spec {
            opcode: Opcode::send(Service::Ud, Place::Only, extra),
            solicited: wqe.flags.contains(SendFlags::SOLICITED),
            ack_request: false,
            psn: self.req.max,
        };
        let len = wqe.len_bytes as usize;
        if sh.emit(wire, &template, spec, ext, len).is_err() {
            return Step::Full;
        }
        if to.address.dlid.is_multicast() {
            sh.loop_multicast(&template, spec, ext, len);
        }
        self.req.max = self.req.max.plus(1);
        self.req.next = self.req.max;
        self.req.una = self.req.max;
        self.req.cur = index.wrapping_add(1);
        self.sq.head = self.req.cur;
        self.complete_send(sh, &wqe, WcStatus::Success, now);
        self.look_if_drained(sh);
        Step::Sent
    }

    /// Takes a datagram.
    pub(crate) fn on_datagram(
        &mut self,
        sh: &mut Shared,
        h: &Headers<'_>,
        payload: &Payload<'_>,
        now: Instant,
    ) {
        let Some(deth) = h.deth() else { return };
        if self.number != QpNumber::SUBNET_MANAGEMENT && deth.qkey != self.set.qkey {
            return sh.counters.drop_for(Drop::QKey);
        }
        if self.resp.active.is_none() && self.take_receive(sh).is_err() {
            return sh.counters.drop_for(Drop::NoReceive);
        }
        let len = h.payload_bytes();
        let Some((sges, capacity)) = self.active_list() else { return };
        let needs = (Grh::BYTES + len) as u64;
        if needs > capacity {
            return sh.counters.drop_for(Drop::TooLong);
        }
        let grh = h.grh_words().map(|words| {
            let mut bytes = [0; Grh::BYTES];
            for (to, word) in bytes.chunks_exact_mut(4).zip(words) {
                to.copy_from_slice(&word.to_be_bytes());
            }
            bytes
        });
        let memory = &sh.memory;
        let write =
            |offset, part: &Payload<'_>| scatter(memory, self.pd, sges, offset, part, Access::LOCAL_WRITE);
        let written = grh
            .map_or(Ok(()), |grh| write(0, &Payload::Bytes(&grh)))
            .and_then(|()| write(Grh::BYTES as u32, &payload.part(0, len)));
        if written.is_err() {
            self.fail_receive(sh, WcStatus::LocalProtection, now);
            return self.fail(sh, Some(Event::QpFatal(self.number)), now);
        }
        self.finish_receive(sh, h, WcOpcode::Recv, needs as u32, now);
    }
}
