//! One end of a measured connection: its memory, queues and queue pairs.
//!
//! ```text
//!   memory │ out: slot 0 │ slot 1 │ … │ in: slot 0 │ slot 1 │ … │      a slot holds the longest message and a GRH
//! ```
//!
//! Message `m` of all goes from and to slot `m mod slots`. What a slot holds is a pattern of its number, of the length
//! of the message and, if every payload is checked, of the message's number: nothing stale can pass for it.

use std::sync::Arc;

use qhca_driver::dma::DmaMemory;
use qhca_regs::{Instant, Lid};

use super::PerfError;
use crate::connect::Connect;
use crate::engine::Engine;
use crate::ids::{CqId, PdId, QpNumber, SrqId};
use crate::mem::{Access, MemoryRegion};
use crate::psn::Psn;
use crate::qp::QpInit;
use crate::wire::{Grh, Service};
use crate::wr::{AddressVector, Destination, RecvWr};

/// The Q_Key of the perftest tools.
pub const QKEY: u32 = 0x1111_1111;
/// Bytes of all slots of one direction at most, unless one message is longer.
const AREA_MAX_BYTES: usize = 64 << 20;
/// Room for a GRH before a datagram, on a line of the cache.
const SLOT_EXTRA: usize = 64;

/// What an end is made for.
#[derive(Clone, Copy, Debug)]
pub struct EndSetup {
    /// The service.
    pub service: Service,
    /// Queue pairs.
    pub qps: u32,
    /// Bytes of the longest message.
    pub largest: u32,
    /// Messages under way on a queue pair at most.
    pub depth: u32,
    /// Receives posted on a queue pair; 0 if none are needed.
    pub rx_depth: u32,
    /// Bytes that go inline at most.
    pub inline: u16,
    /// Whether the queue pairs share a receive queue.
    pub shared_receives: bool,
}

/// Where a peer finds one end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndName {
    /// The port.
    pub lid: Lid,
    /// The queue pairs, each with its first sequence number.
    pub qps: Vec<(QpNumber, Psn)>,
    /// The memory.
    pub region: MemoryRegion,
    /// Bytes of a slot.
    pub slot_bytes: u64,
    /// Slots of each direction.
    pub slots: u32,
}

/// One end.
pub struct End {
    pub(super) memory: Arc<DmaMemory>,
    pub(super) region: MemoryRegion,
    pub(super) send_cq: CqId,
    pub(super) recv_cq: CqId,
    pub(super) srq: Option<SrqId>,
    pub(super) name: EndName,
    pub(super) setup: EndSetup,
    pub(super) peer: Option<EndName>,
    /// The peer's memory, if it is in this process.
    pub(super) peer_memory: Option<Arc<DmaMemory>>,
    pd: PdId,
    address: AddressVector,
}

impl End {
    /// Makes an end on `engine`.
    ///
    /// # Errors
    /// [`PerfError`].
    pub fn open(engine: &mut Engine, setup: &EndSetup, psn: Psn) -> Result<Self, PerfError> {
        let pd = engine.allocate_pd();
        let slot_bytes = (setup.largest as usize + SLOT_EXTRA).next_multiple_of(64);
        let wanted = setup.depth.max(setup.rx_depth).max(1) as usize * setup.qps.max(1) as usize;
        let slots = wanted.min(AREA_MAX_BYTES / slot_bytes).max(1);
        let bytes = (2 * slots * slot_bytes).next_multiple_of(qhca_driver::dma::PAGE_BYTES);
        let memory = Arc::new(DmaMemory::new(bytes).map_err(PerfError::Memory)?);
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
        let region = engine.register(pd, &memory, 0, bytes, access).map_err(PerfError::Register)?;
        let cq_depth = |each: u32| each.max(1).saturating_mul(setup.qps.max(1));
        let send_cq = engine.create_cq(cq_depth(setup.depth)).map_err(PerfError::Cq)?;
        let recv_cq = engine.create_cq(cq_depth(setup.rx_depth)).map_err(PerfError::Cq)?;
        let srq = match setup.shared_receives && setup.rx_depth > 0 {
            true => Some(engine.create_srq(pd, cq_depth(setup.rx_depth), 1).map_err(PerfError::Qp)?),
            false => None,
        };
        let mut end = Self {
            name: EndName {
                lid: engine.port().lid,
                qps: Vec::new(),
                region,
                slot_bytes: slot_bytes as u64,
                slots: slots as u32,
            },
            memory,
            region,
            send_cq,
            recv_cq,
            srq,
            setup: *setup,
            peer: None,
            peer_memory: None,
            pd,
            address: AddressVector::default(),
        };
        for at in 0..setup.qps.max(1) {
            let qp = end.open_qp(engine)?;
            end.name.qps.push((qp, psn.plus(at)));
        }
        Ok(end)
    }

    fn open_qp(&self, engine: &mut Engine) -> Result<QpNumber, PerfError> {
        let init = QpInit {
            recv_cq: self.recv_cq,
            srq: self.srq,
            max_send: self.setup.depth.max(1),
            max_recv: if self.srq.is_some() { 0 } else { self.setup.rx_depth },
            max_send_sges: 1,
            max_recv_sges: 1,
            max_inline: self.setup.inline,
            ..QpInit::new(self.setup.service, self.pd, self.send_cq)
        };
        engine.create_qp(&init).map_err(PerfError::Qp)
    }

    /// Where its peer finds it.
    pub fn name(&self) -> &EndName {
        &self.name
    }

    /// What it was made for.
    pub fn setup(&self) -> &EndSetup {
        &self.setup
    }

    /// Whether every message that can be under way has a slot of its own.
    pub fn has_a_slot_for_each(&self) -> bool {
        let most = self.setup.depth.max(self.setup.rx_depth).max(1);
        self.name.slots >= most.saturating_mul(self.setup.qps.max(1))
    }

    /// Lets the end look at its peer's memory, which is in the same process, to check it.
    pub fn look_at(&mut self, peer: &End) {
        self.peer_memory = Some(peer.memory.clone());
    }

    /// Connects it to its peer, queue pair by queue pair, as `with` says beyond names.
    ///
    /// # Errors
    /// [`PerfError::Connect`], [`PerfError::Peer`] if the peer has fewer queue pairs.
    pub fn connect(
        &mut self,
        engine: &mut Engine,
        peer: &EndName,
        with: &Connect,
        now: Instant,
    ) -> Result<(), PerfError> {
        if peer.qps.len() < self.name.qps.len() || peer.slots == 0 || peer.slot_bytes < 64 {
            return Err(PerfError::Peer("it has fewer queue pairs, or no memory"));
        }
        for ((qp, psn), (peer_qp, peer_psn)) in self.name.qps.iter().zip(&peer.qps) {
            let address = AddressVector { dlid: peer.lid, ..with.address };
            let with = Connect { address, qp: *peer_qp, psn: *psn, peer_psn: *peer_psn, ..*with };
            match self.setup.service {
                Service::Ud => engine.open_datagrams(*qp, QKEY, *psn, now),
                _ => engine.connect(*qp, &with, now),
            }
            .map_err(PerfError::Connect)?;
        }
        self.address = AddressVector { dlid: peer.lid, ..with.address };
        self.peer = Some(peer.clone());
        Ok(())
    }

    /// For datagrams: where queue pair number `at` sends to.
    pub(super) fn destination(&self, at: usize) -> Option<Destination> {
        if self.setup.service != Service::Ud {
            return None;
        }
        let qp = self.peer.as_ref()?.qps.get(at)?.0;
        Some(Destination { address: self.address, qp, qkey: QKEY })
    }

    /// Slots that both ends have.
    pub(super) fn slots(&self) -> u64 {
        let peer = self.peer.as_ref().map_or(u32::MAX, |peer| peer.slots);
        u64::from(self.name.slots.min(peer).max(1))
    }

    /// Where a slot to send from begins.
    pub(super) fn out_at(&self, slot: u64) -> u64 {
        slot * self.name.slot_bytes
    }

    /// Where a slot to receive into begins.
    pub(super) fn in_at(&self, slot: u64) -> u64 {
        (u64::from(self.name.slots) + slot) * self.name.slot_bytes
    }

    /// The same of the peer, as an address in its terms.
    pub(super) fn peer_at(&self, slot: u64, is_in: bool) -> (u64, crate::ids::Key) {
        match &self.peer {
            Some(peer) => {
                // The peer's words may be anything: a wrong address is refused by the peer itself.
                let slot = if is_in { u64::from(peer.slots) + slot } else { slot };
                let start = slot.wrapping_mul(peer.slot_bytes);
                (peer.region.addr.wrapping_add(start), peer.region.rkey)
            }
            None => (0, crate::ids::Key(0)),
        }
    }

    /// Posts a receive of queue pair number `at` into a slot.
    pub(super) fn post_receive(
        &self,
        engine: &mut Engine,
        at: usize,
        slot: u64,
        now: Instant,
    ) -> Result<(), PerfError> {
        let room = self.setup.largest + if self.setup.service == Service::Ud { Grh::BYTES as u32 } else { 0 };
        let list = [self.region.sge(self.in_at(slot), room)];
        let wr = RecvWr { wr_id: (at as u64) << 32 | slot, sges: &list };
        match self.srq {
            Some(srq) => engine.post_srq_recv(srq, &wr),
            None => engine.post_recv(self.name.qps[at].0, &wr, now),
        }
        .map_err(PerfError::Post)
    }

    /// Where in a slot a message begins that was received.
    pub(super) fn received_at(&self, slot: u64) -> u64 {
        self.in_at(slot) + if self.setup.service == Service::Ud { Grh::BYTES as u64 } else { 0 }
    }

    /// Gives back what the end was made of.
    pub fn close(self, engine: &mut Engine) {
        let forget = |result: bool| debug_assert!(result, "an end gives back what it made");
        for (qp, _) in &self.name.qps {
            forget(engine.destroy_qp(*qp).is_ok());
        }
        for cq in [self.send_cq, self.recv_cq] {
            forget(engine.destroy_cq(cq).is_ok());
        }
        if let Some(srq) = self.srq {
            forget(engine.destroy_srq(srq).is_ok());
        }
        forget(engine.deregister(self.region.lkey).is_ok());
    }
}

/// What tells one message's bytes from another's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tag {
    pub(super) bytes: u32,
    pub(super) slot: u64,
    /// The message's number if every payload is checked, else 0.
    pub(super) message: u64,
}

const CHUNK: usize = 4096;

impl Tag {
    /// The eight bytes from byte `at`, a multiple of eight.
    fn word(self, at: usize) -> u64 {
        let seed = u64::from(self.bytes) << 40 ^ self.slot << 20 ^ self.message << 3 ^ 0x5DEE_CE66_D1A4_F087;
        (seed ^ at as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29)
    }

    fn chunk(self, start: usize, chunk: &mut [u8]) {
        for (at, part) in chunk.chunks_mut(8).enumerate() {
            part.copy_from_slice(&self.word(start + at * 8).to_le_bytes()[..part.len()]);
        }
    }

    /// Writes the message to `memory` at `offset`.
    pub(super) fn fill(self, memory: &DmaMemory, offset: u64) {
        let mut chunk = [0; CHUNK];
        for start in (0..self.bytes as usize).step_by(CHUNK) {
            let len = CHUNK.min(self.bytes as usize - start);
            self.chunk(start, &mut chunk[..len]);
            memory.copy_in(offset as usize + start, &chunk[..len]);
        }
    }

    /// Looks whether `memory` holds the message at `offset`, but for its last `spare` bytes.
    pub(super) fn check(self, memory: &DmaMemory, offset: u64, spare: usize) -> Result<(), PerfError> {
        let (mut wanted, mut seen) = ([0; CHUNK], [0; CHUNK]);
        let end = (self.bytes as usize).saturating_sub(spare);
        for start in (0..end).step_by(CHUNK) {
            let len = CHUNK.min(end - start);
            self.chunk(start, &mut wanted[..len]);
            memory.copy_out(offset as usize + start, &mut seen[..len]);
            if let Some(at) = (0..len).find(|at| wanted[*at] != seen[*at]) {
                return Err(PerfError::Content {
                    bytes: self.bytes,
                    message: self.message,
                    at: start + at,
                    wanted: wanted[at],
                    seen: seen[at],
                });
            }
        }
        Ok(())
    }
}
