//! A receive context on the bench: header queue, eager buffers, and their heads.
//!
//! ```text
//! header queue: entries of 128 bytes;  header right-aligned | RHF in the last 8 bytes, written last
//! eager buffers: 2 KiB each, entry i of the array at the context's base + i
//! ```

use crate::bench::{Bench, ENTRY_DWORDS};
use crate::check::{Stop, ensure, ensure_eq};
use crate::packet::Packet;
use qhca_driver::dma::DmaRegion;
use qhca_driver::env::Backend;
use qhca_regs::layout::{ArrayEntry, BufSize, Rhf, RhfSeq};
use qhca_regs::map::{area, device, port as port_regs, user};
use qhca_regs::{Ctxt, Port};

/// Bytes of an eager buffer here.
const EAGER_BYTES: usize = 2048;
const ENTRY_BYTES: usize = ENTRY_DWORDS as usize * 4;
/// Eager entries of all kernel contexts together.
const KERNEL_EAGER: usize = 2048;

/// A context that is enabled.
pub(crate) struct Context {
    pub(crate) ctxt: Ctxt,
    pub(crate) eager_entries: usize,
    entries: usize,
    queue: DmaRegion,
    eager: DmaRegion,
    next: usize,
    seq: RhfSeq,
}

/// An entry of the header queue.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    pub(crate) rhf: Rhf,
    pub(crate) header: Vec<u32>,
    pub(crate) payload: Vec<u32>,
}

/// Where the eager entries of `ctxt` begin, and how many there are.
fn eager_range<B: Backend>(bench: &Bench<'_, B>, ctxt: Ctxt) -> (usize, usize) {
    let per_context = bench.read(device::RCV_EGR_CNT) as usize;
    let ports = bench.ports().len();
    match ctxt.index() {
        index @ (0 | 1) => (index * KERNEL_EAGER / ports, KERNEL_EAGER / ports),
        index => (KERNEL_EAGER + (index - 2) * per_context, per_context),
    }
}

impl Context {
    /// Enables `ctxt` on `port`, with a queue of as many entries as the bench was set up for.
    pub(crate) fn open<B: Backend>(bench: &mut Bench<'_, B>, ctxt: Ctxt, port: Port) -> Result<Self, Stop> {
        let entries = bench.read(device::RCV_HDR_CNT) as usize;
        let (base, eager_entries) = eager_range(bench, ctxt);
        // Room for one entry more than there are: a queue that does not wrap must not hit foreign memory here.
        let queue = bench.map((entries + 1) * ENTRY_BYTES)?;
        let eager = bench.map((eager_entries + 1) * EAGER_BYTES)?;
        for entry in 0..eager_entries {
            let iova = eager.iova() + (entry * EAGER_BYTES) as u64;
            let built = ArrayEntry::new(iova, BufSize::K2)
                .map_err(|error| Stop::Fail(format!("eager buffer at {iova:#x}: {error}")))?;
            bench.write(area::RCV_EGR_ARRAY.index((base + entry) as u32), built.build());
        }
        bench.write(device::RCV_HDR_TAIL_ADDR.ctxt(ctxt), device::RcvHdrTailAddr(0));
        bench.write(device::RCV_HDR_ADDR.ctxt(ctxt), device::RcvHdrAddr(queue.iova()));
        bench.write(device::RCV_AVAIL_TIMEOUT.ctxt(ctxt), device::RcvAvailTimeout(0));
        let common = bench.read(device::RCV_CTRL);
        bench.write(device::RCV_CTRL, common.with_intr_avail(common.intr_avail() | 1 << ctxt.index()));
        let mut control = bench.read(port_regs::RCV_CTRL.port(port));
        control.0 |= 1 << ctxt.index();
        bench.write(port_regs::RCV_CTRL.port(port), control);
        let context = Self { ctxt, eager_entries, entries, queue, eager, next: 0, seq: RhfSeq::FIRST };
        let eager_tail = bench.read(user::RCV_EGR_INDEX_TAIL.ctxt(ctxt));
        bench.write(user::RCV_EGR_INDEX_HEAD.ctxt(ctxt), eager_tail);
        context.arm(bench, 0);
        Ok(context)
    }

    /// Gives the chip the queue's head and asks for an interrupt after `count` more packets; 0 asks for none.
    pub(crate) fn arm<B: Backend>(&self, bench: &Bench<'_, B>, count: u16) {
        let head = user::RcvHdrHead(0)
            .with_rcv_head_pointer((self.next as u64 * ENTRY_DWORDS) as u32)
            .with_counter(count);
        bench.write(user::RCV_HDR_HEAD.ctxt(self.ctxt), head);
        bench.write(user::RCV_HDR_HEAD.ctxt(self.ctxt), head);
    }

    /// Whether the chip has written another entry.
    pub(crate) fn has_next(&self) -> bool {
        let rhf = Rhf(self.queue.memory().load_u64((self.next + 1) * ENTRY_BYTES - 8));
        self.seq.matches(rhf)
    }

    /// The virtual lane of the next entry's packet, which the chip has written.
    pub(crate) fn peek_vl(&self) -> usize {
        let start = self.next * ENTRY_BYTES;
        let rhf = Rhf(self.queue.memory().load_u64(start + ENTRY_BYTES - 8));
        let first = rhf.header_span(ENTRY_DWORDS as usize).map_or(0, |span| span.start);
        (self.queue.memory().load_u32(start + 4 * first).swap_bytes() >> 28) as usize
    }

    /// The next entry, if the chip has written one. Its place stays taken until [`arm`](Self::arm).
    pub(crate) fn next(&mut self) -> Option<Received> {
        let memory = self.queue.memory();
        let start = self.next * ENTRY_BYTES;
        let rhf = Rhf(memory.load_u64(start + ENTRY_BYTES - 8));
        if !self.seq.matches(rhf) {
            return None;
        }
        self.seq = self.seq.next();
        self.next = (self.next + 1) % self.entries;
        let span = rhf.header_span(ENTRY_DWORDS as usize).unwrap_or(0..0);
        let header: Vec<u32> = span.map(|dword| memory.load_u32(start + 4 * dword)).collect();
        let payload = self.payload(rhf, header.len());
        Some(Received { rhf, header, payload })
    }

    fn payload(&self, rhf: Rhf, header_dwords: usize) -> Vec<u32> {
        let index = usize::from(rhf.egr_index());
        if !rhf.uses_egr_buf() || index > self.eager_entries {
            return Vec::new();
        }
        let dwords = rhf.payload_dwords(header_dwords).unwrap_or(0).min(EAGER_BYTES / 4);
        (0..dwords).map(|dword| self.eager.memory().load_u32(index * EAGER_BYTES + 4 * dword)).collect()
    }

    /// Gives back the eager buffers up to `received`'s, and all entries that were taken.
    pub(crate) fn give_back<B: Backend>(&self, bench: &Bench<'_, B>, received: &Received, count: u16) {
        if received.rhf.uses_egr_buf() {
            let index = u64::from(received.rhf.egr_index());
            bench.write(user::RCV_EGR_INDEX_HEAD.ctxt(self.ctxt), index);
        }
        self.arm(bench, count);
    }

    /// Takes the next entry and holds it against `packet`, which must have come whole.
    pub(crate) fn expect(&mut self, packet: &Packet) -> Result<Received, Stop> {
        let ctxt = self.ctxt;
        let got = self.next().ok_or_else(|| Stop::Fail(format!("{ctxt}: a packet did not arrive")))?;
        ensure!(got.rhf.is_good(), "{ctxt}: a good packet is marked bad, RHF {:#x}", got.rhf.0);
        ensure_eq!(got.rhf.len_dwords(), packet.len_dwords(), "{ctxt}: RHF length");
        ensure_eq!(got.header.len(), packet.header_dwords(), "{ctxt}: dwords of header");
        ensure!(
            got.header == packet.header(),
            "{ctxt}: header {:x?}, sent {:x?}",
            got.header,
            packet.header()
        );
        ensure_eq!(got.rhf.uses_egr_buf(), !packet.payload.is_empty(), "{ctxt}: use of an eager buffer");
        if let Some(at) = (0..packet.payload.len()).find(|at| got.payload.get(*at) != packet.payload.get(*at))
        {
            let (seen, sent) = (got.payload.get(at), packet.payload[at]);
            return Err(Stop::Fail(format!("{ctxt}: payload dword {at} is {seen:x?}, sent {sent:x}")));
        }
        Ok(got)
    }
}
