//! What the unit tests of this crate share: a bar that records, a mapper over ordinary memory, a chip's pen.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use qhca_irq::{Grant, PlanRequest, PortSet, VectorPlan};
use qhca_regs::Bar;
use qhca_regs::layout::{PacketType, Rhf, RhfSeq};

use crate::dma::{DmaMemory, DmaRegion};
use crate::env::{DmaMapper, MapError};
use crate::fault::Policy;
use crate::rx::ContextMemory;
use crate::shared::DeviceShared;

/// What the threads of a device with two ports and all its vectors have in common.
pub(crate) fn shared(policy: Policy) -> Arc<DeviceShared> {
    let request = PlanRequest::new(PortSet::ALL, 1, false).expect("a plan");
    let plan = VectorPlan::new(&request, Grant::MsiX { vectors: 32 });
    Arc::new(DeviceShared::new(plan, policy))
}

/// One access of a [`RecordingBar`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read(u32),
    Write(u32, u64),
    Burst(u32, Vec<u32>),
}

/// A bar that answers from a table and remembers every access.
#[derive(Debug, Default)]
pub(crate) struct RecordingBar {
    pub(crate) values: RefCell<BTreeMap<u32, u64>>,
    pub(crate) log: RefCell<Vec<Access>>,
}

impl RecordingBar {
    pub(crate) fn set(&self, offset: u32, value: u64) {
        self.values.borrow_mut().insert(offset, value);
    }

    pub(crate) fn take_log(&self) -> Vec<Access> {
        self.log.take()
    }

    pub(crate) fn reads(&self) -> usize {
        self.log.borrow().iter().filter(|access| matches!(access, Access::Read(_))).count()
    }

    /// What was written to `offset`, in order.
    pub(crate) fn writes_to(&self, offset: u32) -> Vec<u64> {
        let written = |access: &Access| match *access {
            Access::Write(at, value) if at == offset => Some(value),
            _ => None,
        };
        self.log.borrow().iter().filter_map(written).collect()
    }
}

impl Bar for RecordingBar {
    fn read(&self, offset: u32) -> u64 {
        self.log.borrow_mut().push(Access::Read(offset));
        self.values.borrow().get(&offset).copied().unwrap_or(0)
    }
    fn write(&self, offset: u32, value: u64) {
        self.log.borrow_mut().push(Access::Write(offset, value));
    }
    fn doorbell(&self, offset: u32, value: u64) {
        self.write(offset, value);
    }
    fn burst(&self, offset: u32, dwords: &[u32]) {
        self.log.borrow_mut().push(Access::Burst(offset, dwords.to_vec()));
    }
}

/// A mapper that numbers regions upward from 2 MiB.
#[derive(Debug)]
pub(crate) struct PlainMapper {
    next_iova: u64,
    /// Maps that may still succeed.
    pub(crate) left: usize,
}

impl Default for PlainMapper {
    fn default() -> Self {
        Self { next_iova: 0x20_0000, left: usize::MAX }
    }
}

impl DmaMapper for PlainMapper {
    fn map(&mut self, len_bytes: usize) -> Result<DmaRegion, MapError> {
        self.left = self.left.checked_sub(1).ok_or(MapError::NoAddress { len_bytes })?;
        let memory = DmaMemory::new(len_bytes).map_err(|source| MapError::NoMemory { len_bytes, source })?;
        let iova = self.next_iova;
        self.next_iova += memory.len_bytes() as u64;
        Ok(DmaRegion::new(Arc::new(memory), iova, None))
    }
}

/// Writes header queue entries as a chip would.
pub(crate) struct ChipPen {
    memory: ContextMemory,
    pub(crate) at_entry: u32,
    pub(crate) seq: RhfSeq,
    pub(crate) next_eager: u32,
}

/// Dwords of the header that the pen writes: LRH, BTH and two more.
pub(crate) const PEN_HEADER_DWORDS: u32 = 7;

impl ChipPen {
    pub(crate) fn new(memory: ContextMemory) -> Self {
        Self { memory, at_entry: 0, seq: RhfSeq::FIRST, next_eager: 0 }
    }

    /// An RHF of a plain packet without a flaw that carries `payload_dwords` in eager buffer `index`.
    pub(crate) fn good_rhf(&self, payload_dwords: u32, index: u32) -> Rhf {
        let offset = self.memory.queue_shape().rhf_dword() - PEN_HEADER_DWORDS;
        Rhf(0)
            .with_len_dwords((PEN_HEADER_DWORDS + payload_dwords + 1) as u16)
            .with_kind(PacketType::Ib)
            .with_egr_index(index as u16)
            .with_uses_egr_buf(payload_dwords > 0)
            .with_hdrq_offset(offset as u16)
    }

    /// Delivers a packet whose payload dwords are all `fill`.
    pub(crate) fn packet(&mut self, payload_dwords: u32, fill: u32) {
        let rhf = self.good_rhf(payload_dwords, self.next_eager);
        if payload_dwords > 0 {
            let shape = self.memory.eager_shape();
            let payload: Vec<u8> = (0..payload_dwords).flat_map(|_| fill.to_le_bytes()).collect();
            let at = self.next_eager as usize * shape.buffer_bytes();
            self.memory.eager().memory().copy_in(at, &payload);
            self.next_eager = (self.next_eager + 1) % shape.count();
        }
        self.entry(rhf);
    }

    /// Writes an entry with `rhf`, with an LRH that agrees with it and the next sequence number.
    pub(crate) fn entry(&mut self, rhf: Rhf) {
        let lrh = (u32::from(rhf.len_dwords()) << 16 | 0x1234).swap_bytes();
        self.entry_with_lrh(rhf, lrh);
    }

    /// Writes an entry with `rhf` and the given second dword of the LRH.
    pub(crate) fn entry_with_lrh(&mut self, rhf: Rhf, lrh: u32) {
        let shape = self.memory.queue_shape();
        let at = self.at_entry as usize * shape.entry_bytes();
        let lrh_at = usize::from(rhf.hdrq_offset()) + 1;
        let queue = self.memory.queue().memory();
        if lrh_at < shape.rhf_dword() as usize {
            queue.store_u32(at + lrh_at * 4, lrh);
        }
        queue.store_u64(at + shape.rhf_dword() as usize * 4, rhf.with_seq(self.seq.value()).0);
        self.seq = self.seq.next();
        self.at_entry = (self.at_entry + 1) % shape.entries();
    }
}
