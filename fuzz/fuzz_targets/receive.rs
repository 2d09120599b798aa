//! A header queue full of what a dying chip might write: every view stays inside its memory, every entry is counted
//! once, the queue is followed to its end, and no register is read on the way.
//!
//! Input: steps. A step is one byte that says how the next entry is written, the entry's RHF, and its LRH's length.

#![no_main]

use std::cell::Cell;
use std::sync::{Arc, LazyLock};

use libfuzzer_sys::fuzz_target;
use qhca_driver::dma::{DmaMemory, DmaRegion, DmaSlice};
use qhca_driver::env::{DmaMapper, MapError};
use qhca_driver::fault::Policy;
use qhca_driver::rx::{Arrival, Context, ContextMemory, ContextSetup, EagerShape, Next, QueueShape};
use qhca_driver::shared::DeviceShared;
use qhca_fuzz::Bytes;
use qhca_irq::{Grant, PlanRequest, PortSet, VectorPlan};
use qhca_regs::layout::{PacketType, Rhf, RhfSeq};
use qhca_regs::map::{device, user};
use qhca_regs::{Bar, Ctxt, Instant, Port};

const ENTRIES: u32 = 24;
const EAGER: u32 = 16;
const CTXT: u32 = 3;

/// Bits of a step's first byte.
const WITH_RIGHT_SEQ: u8 = 1;
const WITH_LRH_LEN_OF_RHF: u8 = 2;
const PLAUSIBLE: u8 = 4;
const DRAIN_AFTER: u8 = 8;
const RESYNC_AFTER: u8 = 16;
const LONG_BUDGET: u8 = 32;

static MEMORY: LazyLock<ContextMemory> = LazyLock::new(|| {
    let queue = QueueShape::new(ENTRIES, 32).expect("a shape");
    let eager = EagerShape::new(0, EAGER, 2048).expect("a shape");
    ContextMemory::allocate(&mut Mapper(0), queue, eager).expect("memory for the queues")
});

static SHARED: LazyLock<Arc<DeviceShared>> = LazyLock::new(|| {
    let request = PlanRequest::new(PortSet::ALL, 1, false).expect("a plan for two ports");
    let plan = VectorPlan::new(&request, Grant::MsiX { vectors: 32 });
    Arc::new(DeviceShared::new(plan, Policy::Guarded))
});

fuzz_target!(|input: &[u8]| {
    let memory = &*MEMORY;
    let queue = memory.queue().memory();
    queue.zero(0, memory.queue_shape().len_bytes());
    let mut context = Context::new(ContextSetup {
        ctxt: Ctxt::new(CTXT as usize).expect("a context"),
        port: Port::P0,
        memory: memory.clone(),
        shared: SHARED.clone(),
        timeout: 375,
    });
    let mut bytes = Bytes::new(input);
    let (mut entry, mut seq) = (0, RhfSeq::FIRST);
    while !bytes.is_empty() {
        let step = bytes.u8();
        write_entry(memory, entry, seq, step, &mut bytes);
        (entry, seq) = ((entry + 1) % ENTRIES, seq.next());
        if step & RESYNC_AFTER != 0 {
            context.resync(&TailBar(bytes.u64()));
        }
        if step & DRAIN_AFTER != 0 {
            drain(&mut context, if step & LONG_BUDGET != 0 { 64 } else { 3 });
        }
    }
    drain(&mut context, 64);
});

/// Writes one entry as the step says.
fn write_entry(memory: &ContextMemory, entry: u32, seq: RhfSeq, step: u8, bytes: &mut Bytes) {
    let (shape, queue) = (memory.queue_shape(), memory.queue().memory());
    let mut rhf = Rhf(bytes.u64());
    let lrh_len = bytes.u16();
    if step & WITH_RIGHT_SEQ != 0 {
        rhf = rhf.with_seq(seq.value());
    }
    if step & PLAUSIBLE != 0 {
        // Header of 7 dwords, no error: the payload's length, the index and the type stay the input's.
        rhf = Rhf(rhf.0 & 0x001F_FFFF_FFFF_FFFF).with_hdrq_offset(shape.rhf_dword() as u16 - 7);
    }
    let at = entry as usize * shape.entry_bytes();
    let header_at = usize::from(rhf.hdrq_offset()) * 4;
    if header_at + 8 <= shape.entry_bytes() {
        let len = if step & WITH_LRH_LEN_OF_RHF != 0 { rhf.len_dwords() } else { lrh_len };
        queue.copy_in(at + header_at + 4, &len.to_be_bytes());
    }
    queue.store_u64(at + shape.rhf_dword() as usize * 4, rhf.0);
}

/// Drains and checks everything that can be checked from outside.
fn drain(context: &mut Context, budget: usize) {
    let before = *context.counts();
    let bar = WriteBar::default();
    let mut handed = 0;
    let drained = context.drain(budget, &bar, Instant::ZERO, |arrival| {
        handed += 1;
        check(&arrival);
    });
    let after = *context.counts();
    assert!(drained.entries <= budget, "{} of {budget}", drained.entries);
    assert_eq!(handed, drained.entries);
    assert_eq!(after.entries() - before.entries(), handed as u64);
    match drained.next {
        Next::Wait => assert!(!context.has_packet(), "it waits although a packet is there"),
        Next::More => assert!(drained.entries > 0),
        other => panic!("{other:?} from a device that is open"),
    }
}

fn check(arrival: &Arrival<'_>) {
    match arrival {
        Arrival::Packet(packet) => {
            whole(&packet.header, 128);
            whole(&packet.payload, 2048);
            let dwords = (packet.header.len() + packet.payload.len()) / 4 + 1;
            let elsewhere = packet.kind() == PacketType::Expected && packet.payload.is_empty();
            let index = u32::from(packet.rhf.egr_index());
            assert!(packet.payload.is_empty() || index < EAGER, "payload of buffer {index} of {EAGER}");
            assert!(elsewhere || dwords == packet.wire_dwords() as usize, "{:?}", packet.rhf);
        }
        Arrival::NoBuffer { header } | Arrival::Damaged { header, .. } => whole(header, 128),
        Arrival::Malformed { .. } => {}
    }
}

/// Reads every byte of a view.
fn whole(view: &DmaSlice<'_>, at_most: usize) {
    assert!(view.len() <= at_most);
    assert_eq!(view.to_vec().len(), view.len());
    assert_eq!(view.byte(view.len()), None);
}

/// A bar that knows the three registers a drain may write, and refuses reads.
#[derive(Default)]
struct WriteBar {
    writes: Cell<usize>,
}

impl Bar for WriteBar {
    fn read(&self, offset: u32) -> u64 {
        panic!("a drain read {offset:#x}");
    }
    fn write(&self, offset: u32, value: u64) {
        self.writes.set(self.writes.get() + 1);
        assert!(self.writes.get() < 1000, "a drain that does not end");
        check_write(offset, value);
    }
    fn doorbell(&self, offset: u32, value: u64) {
        self.write(offset, value);
    }
    fn burst(&self, offset: u32, _dwords: &[u32]) {
        panic!("a drain sent from {offset:#x}");
    }
}

fn check_write(offset: u32, value: u64) {
    if offset == user::RCV_HDR_HEAD.index(CTXT).offset() {
        let head = value & 0xFFFF_FFFF;
        assert!(head.is_multiple_of(32) && head < u64::from(ENTRIES) * 32, "head {value:#x}");
    } else if offset == user::RCV_EGR_INDEX_HEAD.index(CTXT).offset() {
        assert!(value < u64::from(EAGER), "eager index {value}");
    } else {
        assert_eq!(offset, device::RCV_AVAIL_TIMEOUT.index(CTXT).offset());
    }
}

/// A bar whose tail register holds anything.
struct TailBar(u64);

impl Bar for TailBar {
    fn read(&self, _offset: u32) -> u64 {
        self.0
    }
    fn write(&self, offset: u32, value: u64) {
        check_write(offset, value);
    }
    fn doorbell(&self, offset: u32, value: u64) {
        check_write(offset, value);
    }
    fn burst(&self, offset: u32, _dwords: &[u32]) {
        panic!("a resync sent from {offset:#x}");
    }
}

/// Ordinary memory at made-up addresses.
struct Mapper(u64);

impl DmaMapper for Mapper {
    fn map(&mut self, len_bytes: usize) -> Result<DmaRegion, MapError> {
        let memory = DmaMemory::new(len_bytes).map_err(|source| MapError::NoMemory { len_bytes, source })?;
        self.0 += 1 << 30;
        Ok(DmaRegion::new(Arc::new(memory), self.0, None))
    }
}
