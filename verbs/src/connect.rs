//! From RESET to ready: the changes of state that every connection makes, in one call.
//!
//! ```text
//!   RESET ─► INIT ─► RTR ─► RTS      connect: a queue pair and its peer's;   open_datagrams: one that talks to anybody
//! ```
//!
//! What the two ends must agree on is in [`Connect::new`]; the rest has values that suit most, and can be changed. How
//! the peer's LID, queue pair and first sequence number came here is the application's business.

use qhca_regs::{Instant, Lid};

use crate::engine::Engine;
use crate::ids::QpNumber;
use crate::mem::Access;
use crate::psn::Psn;
use crate::qp::{ModifyError, Mtu, QpAttr, QpState, RnrTimer};
use crate::wire::Service;
use crate::wr::AddressVector;

/// What a connection is made with.
#[derive(Clone, Copy, Debug)]
pub struct Connect {
    /// The way to the peer.
    pub address: AddressVector,
    /// The peer's queue pair.
    pub qp: QpNumber,
    /// The largest packet.
    pub mtu: Mtu,
    /// Our first sequence number.
    pub psn: Psn,
    /// The peer's.
    pub peer_psn: Psn,
    /// What the peer may do with our memory.
    pub access: Access,
    /// READs and atomics under way at most, in either direction.
    pub rd_atomic: u8,
    /// Local ack timeout, as a code: 14 is 67 ms.
    pub timeout: u8,
    /// Repeats without progress, 0 to 7.
    pub retry_count: u8,
    /// Repeats for want of a receive; 7 is "for ever".
    pub rnr_retry: u8,
    /// The pause that the peer is asked for when no receive is posted: code 12 is 0.64 ms.
    pub rnr_timer: RnrTimer,
    /// Which P_Key.
    pub pkey_index: u16,
}

impl Connect {
    /// A connection to `qp` at `lid`: full rights for the peer, both sequences from 0, seven repeats.
    pub fn new(lid: Lid, qp: QpNumber, mtu: Mtu) -> Self {
        Self {
            address: AddressVector { dlid: lid, ..AddressVector::default() },
            qp,
            mtu,
            psn: Psn::new(0),
            peer_psn: Psn::new(0),
            access: Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC,
            rd_atomic: 4,
            timeout: 14,
            retry_count: 7,
            rnr_retry: 7,
            rnr_timer: RnrTimer::Code(12),
            pkey_index: 0,
        }
    }

    fn steps(&self, service: Service) -> [QpAttr; 3] {
        let reliable = service == Service::Rc;
        let init = QpAttr {
            state: Some(QpState::Init),
            access: Some(self.access),
            pkey_index: Some(self.pkey_index),
            port: Some(1),
            ..QpAttr::default()
        };
        let rtr = QpAttr {
            state: Some(QpState::Rtr),
            address: Some(self.address),
            path_mtu: Some(self.mtu),
            dest_qp: Some(self.qp),
            rq_psn: Some(self.peer_psn),
            max_dest_rd_atomic: reliable.then_some(self.rd_atomic),
            min_rnr_timer: reliable.then_some(self.rnr_timer),
            ..QpAttr::default()
        };
        let rts = QpAttr {
            state: Some(QpState::Rts),
            sq_psn: Some(self.psn),
            timeout: reliable.then_some(self.timeout),
            retry_count: reliable.then_some(self.retry_count),
            rnr_retry: reliable.then_some(self.rnr_retry),
            max_rd_atomic: reliable.then_some(self.rd_atomic),
            ..QpAttr::default()
        };
        [init, rtr, rts]
    }
}

impl Engine {
    /// Takes a connected queue pair from RESET to RTS.
    ///
    /// # Errors
    /// [`ModifyError`] of the change that was refused; those before it were made.
    pub fn connect(&mut self, qp: QpNumber, with: &Connect, now: Instant) -> Result<(), ModifyError> {
        let service = self.service_of(qp).ok_or(ModifyError::NoSuchQp(qp))?;
        with.steps(service).iter().try_for_each(|attr| self.modify_qp(qp, attr, now))
    }

    /// Takes a datagram queue pair from RESET to RTS, open to packets with `qkey`.
    ///
    /// # Errors
    /// [`ModifyError`].
    pub fn open_datagrams(
        &mut self,
        qp: QpNumber,
        qkey: u32,
        psn: Psn,
        now: Instant,
    ) -> Result<(), ModifyError> {
        let init =
            QpAttr { pkey_index: Some(0), port: Some(1), qkey: Some(qkey), ..QpAttr::to(QpState::Init) };
        let rts = QpAttr { sq_psn: Some(psn), ..QpAttr::to(QpState::Rts) };
        [init, QpAttr::to(QpState::Rtr), rts].iter().try_for_each(|attr| self.modify_qp(qp, attr, now))
    }
}
