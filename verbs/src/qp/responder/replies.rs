//! What a responder sends: the data of READs, the values of atomics, and the one acknowledge or NAK that is due.

use super::{
    Access, Aeth, Credits, Instant, Kept, NakCode, Opcode, Place, Qp, Reply, Shared, Spec, Step, Syndrome,
    Wire,
};

impl Qp {
    /// Sends what the responder owes, one packet of it.
    #[inline]
    pub(crate) fn send_answer(&mut self, sh: &mut Shared, wire: &mut impl Wire, now: Instant) -> Step {
        if self.resp.pending > 0 {
            return self.send_resource(sh, wire, now);
        }
        let (psn, syndrome) = match self.resp.reply {
            Reply::None => return Step::Idle,
            Reply::Ack(psn) => (psn, Syndrome::Ack(self.credits(sh))),
            Reply::Sequence => (self.resp.expected, Syndrome::Nak(NakCode::SequenceError)),
            Reply::Rnr => (self.resp.expected, Syndrome::RnrNak(self.set.min_rnr_timer)),
            Reply::Fatal(code) => (self.resp.expected, Syndrome::Nak(code)),
        };
        let aeth = Aeth { syndrome, msn: self.resp.msn }.build();
        let spec = Spec { opcode: Opcode::ACKNOWLEDGE, solicited: false, ack_request: false, psn };
        if sh.emit(wire, &self.template, spec, &[aeth], 0).is_err() {
            return Step::Full;
        }
        match self.resp.reply {
            Reply::Ack(_) | Reply::None => sh.counters.acks_sent += 1,
            Reply::Sequence => sh.counters.sequence_naks_sent += 1,
            Reply::Rnr => sh.counters.rnr_naks_sent += 1,
            Reply::Fatal(_) => sh.counters.fatal_naks_sent += 1,
        }
        self.resp.reply = Reply::None;
        Step::Sent
    }

    /// What the peer may send more, as far as we say.
    #[inline]
    fn credits(&self, _sh: &Shared) -> Credits {
        if self.srq.is_some() { Credits::UNLIMITED } else { Credits::for_receives(self.rq.len()) }
    }

    /// Sends the next packet of the oldest READ or atomic that has something to send.
    fn send_resource(&mut self, sh: &mut Shared, wire: &mut impl Wire, now: Instant) -> Step {
        let resp = &self.resp;
        let Some(at) = (0..resp.valid).map(|nth| resp.place(nth)).find(|at| !resp.resources[*at].is_done())
        else {
            self.resp.pending = 0;
            return Step::Idle;
        };
        let resource = resp.resources[at];
        let aeth = Aeth { syndrome: Syndrome::Ack(self.credits(sh)), msn: resource.msn }.build();
        let psn = resource.first.plus(resource.next);
        let spec = |opcode| Spec { opcode, solicited: false, ack_request: false, psn };
        let sent = match resource.kept {
            Kept::Atomic { before, .. } => {
                let ext = [aeth, (before >> 32) as u32, before as u32];
                sh.emit(wire, &self.template, spec(Opcode::ATOMIC_ACKNOWLEDGE), &ext, 0)
            }
            Kept::Read { addr, rkey, .. } => {
                let place = match (resource.next == resource.start, resource.next + 1 == resource.stop) {
                    (true, true) => Place::Only,
                    (true, false) => Place::First,
                    (false, false) => Place::Middle,
                    (false, true) => Place::Last,
                };
                let offset = resource.next << self.set.mtu.shift();
                let len = (resource.stop_bytes - offset).min(self.set.mtu.bytes());
                if len > 0 {
                    let range = (addr.wrapping_add(u64::from(offset)), len);
                    let span = sh.memory.check(rkey, self.pd, self.number, range, Access::REMOTE_READ);
                    let Ok(span) = span else {
                        // The key was good when the request came, and was taken away since.
                        self.resp.silence();
                        self.resp.expected = psn;
                        self.refuse(sh, NakCode::RemoteAccess, now);
                        return self.send_answer(sh, wire, now);
                    };
                    Shared::gather_span(&mut sh.scratch, span, len as usize);
                }
                let ext = if place == Place::Middle { &[][..] } else { &[aeth][..] };
                sh.emit(wire, &self.template, spec(Opcode::read_response(place)), ext, len as usize)
            }
        };
        if sent.is_err() {
            return Step::Full;
        }
        let resource = &mut self.resp.resources[at];
        resource.next += 1;
        if resource.is_done() {
            self.resp.pending -= 1;
        }
        Step::Sent
    }
}
