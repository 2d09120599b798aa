//! Parts of a device over ordinary memory: what the driver's hot paths need to run without a chip.
//!
//! The bar is the mapped window itself, which only adds up how often it was read: the paths that are measured must not
//! read it at all.

use std::cell::Cell;
use std::sync::Arc;

use qhca_driver::dma::{DmaMemory, DmaRegion};
use qhca_driver::env::{DmaMapper, MapError};
use qhca_driver::fault::Policy;
use qhca_driver::rx::{Context, ContextMemory, ContextSetup, EagerShape, QueueShape};
use qhca_driver::shared::DeviceShared;
use qhca_driver::tx::{Pool, SendControl, Sender, avail_image};
use qhca_irq::{Grant, PlanRequest, PortSet, VectorPlan};
use qhca_regs::layout::{PacketType, Rhf, RhfSeq};
use qhca_regs::map::device::SendCtrl;
use qhca_regs::{BAR_LEN_BYTES, Bar, Ctxt, MemoryWindow, Port};

/// Entries in the header queue of [`context`].
pub const QUEUE_ENTRIES: u32 = 256;
/// Eager buffers of [`context`].
pub const EAGER_BUFFERS: u32 = 128;
/// Dwords of header of the packets that [`fill`] writes: LRH, BTH and a DETH.
pub const HEADER_DWORDS: u32 = 7;

/// The mapped window over ordinary memory, counting reads.
pub struct StoreBar {
    window: MemoryWindow<'static>,
    reads: Cell<usize>,
}

impl StoreBar {
    /// A bar as large as the chip's, all zeros. Its memory is never given back.
    #[must_use]
    pub fn new() -> Self {
        let memory = vec![0; BAR_LEN_BYTES as usize / 8].leak();
        Self { window: MemoryWindow::new(memory), reads: Cell::new(0) }
    }

    /// How often a register was read.
    #[must_use]
    pub fn reads(&self) -> usize {
        self.reads.get()
    }
}

impl Default for StoreBar {
    fn default() -> Self {
        Self::new()
    }
}

impl Bar for StoreBar {
    fn read(&self, offset: u32) -> u64 {
        self.reads.set(self.reads.get() + 1);
        self.window.read(offset)
    }

    #[inline]
    fn write(&self, offset: u32, value: u64) {
        self.window.write(offset, value);
    }

    #[inline]
    fn doorbell(&self, offset: u32, value: u64) {
        self.window.doorbell(offset, value);
    }

    #[inline]
    fn burst(&self, offset: u32, dwords: &[u32]) {
        self.window.burst(offset, dwords);
    }
}

/// What the device's threads share, under the policy that ships.
#[must_use]
pub fn shared() -> Arc<DeviceShared> {
    let request = PlanRequest::new(PortSet::ALL, 1, false).expect("a plan for two ports");
    let plan = VectorPlan::new(&request, Grant::MsiX { vectors: 32 });
    Arc::new(DeviceShared::new(plan, Policy::Guarded))
}

/// A receive context over memory that nobody else writes.
///
/// # Panics
/// If the host has no memory for its queues.
#[must_use]
pub fn context() -> Context {
    let queue = QueueShape::new(QUEUE_ENTRIES, 32).expect("a shape");
    let eager = EagerShape::new(0, EAGER_BUFFERS, 2048).expect("a shape");
    let memory =
        ContextMemory::allocate(&mut Mapper::default(), queue, eager).expect("memory for the queues");
    let ctxt = Ctxt::new(0).expect("context 0");
    Context::new(ContextSetup { ctxt, port: Port::P0, memory, shared: shared(), timeout: 375 })
}

/// Writes `packets` with full payloads to the start of a context's queue, as a chip would.
pub fn fill(memory: &ContextMemory, packets: u32) {
    let (shape, queue) = (memory.queue_shape(), memory.queue().memory());
    let payload_dwords = memory.eager_shape().buffer_bytes() as u32 / 4;
    let header_at = shape.rhf_dword() - HEADER_DWORDS;
    let len_dwords = (HEADER_DWORDS + payload_dwords + 1) as u16;
    let mut seq = RhfSeq::FIRST;
    for entry in 0..packets {
        let at = entry as usize * shape.entry_bytes();
        queue.copy_in(at + header_at as usize * 4 + 4, &len_dwords.to_be_bytes());
        let rhf = Rhf(0)
            .with_len_dwords(len_dwords)
            .with_kind(PacketType::Ib)
            .with_egr_index((entry % EAGER_BUFFERS) as u16)
            .with_uses_egr_buf(true)
            .with_hdrq_offset(header_at as u16)
            .with_seq(seq.value());
        queue.store_u64(at + shape.rhf_dword() as usize * 4, rhf.0);
        seq = seq.next();
    }
}

/// A sender that owns send buffers 0 to `buffers - 1`, all free.
///
/// # Panics
/// If the chip has not so many small buffers.
#[must_use]
pub fn sender(buffers: usize) -> Sender {
    let avail = Mapper::default().map(64).expect("memory for the avail words");
    let pool = Pool::of_indices(0..buffers, &avail_image(&avail)).expect("buffers that exist");
    let control = Arc::new(SendControl::new(SendCtrl::default().with_send_buf_avail_upd(true)));
    Sender::new(pool, avail, control, shared())
}

/// Gives out memory at made-up addresses.
#[derive(Default)]
struct Mapper {
    regions: u64,
}

impl DmaMapper for Mapper {
    fn map(&mut self, len_bytes: usize) -> Result<DmaRegion, MapError> {
        let memory = DmaMemory::new(len_bytes).map_err(|source| MapError::NoMemory { len_bytes, source })?;
        self.regions += 1;
        Ok(DmaRegion::new(Arc::new(memory), self.regions << 30, None))
    }
}
