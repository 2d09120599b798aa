//! Expected receive: payload to the page that it names, flows that must come in order, headers that need not come.

use super::send::{buffer, ready};
use crate::bench::Bench;
use crate::check::{Stop, Verdict, ensure, ensure_eq};
use crate::context::{Context, Received};
use crate::packet::Packet;
use qhca_driver::dma::DmaRegion;
use qhca_driver::env::Backend;
use qhca_regs::layout::tid_flow::FlowPsn;
use qhca_regs::layout::{ArrayEntry, BufSize, KdFlags, PacketType, RhfErrors, TidFlow};
use qhca_regs::map::{area, counter, device, port as port_regs, user};
use qhca_regs::status::PortErrBits;
use qhca_regs::{Port, Psn};

/// The TID that the scenarios bind, and the flow that they use.
const TID: u16 = 3;
const FLOW: u8 = 2;
const GENERATION: u8 = 5;
const PAGE_BYTES: usize = 4096;

/// A context with a page bound to [`TID`] and [`FLOW`] open.
struct Table {
    port: Port,
    context: Context,
    page: DmaRegion,
}

fn open<B: Backend>(bench: &mut Bench<'_, B>, suppress: bool) -> Result<Table, Stop> {
    let (port, context) = ready(bench, 64)?;
    let page = bench.map(PAGE_BYTES)?;
    let entry = ArrayEntry::new(page.iova(), BufSize::K4).map_err(|error| Stop::Fail(error.to_string()))?;
    bench.write(area::RCV_TID_ARRAY.ctxt(context.ctxt).index(TID.into()), entry.build());
    let common = bench.read(device::RCV_CTRL);
    bench.write(device::RCV_CTRL, common.with_tid_flow_enable(true));
    let table = Table { port, context, page };
    table.set_flow(bench, suppress);
    Ok(table)
}

impl Table {
    fn set_flow<B: Backend>(&self, bench: &Bench<'_, B>, suppress: bool) {
        let flow = TidFlow {
            generation: GENERATION,
            valid: true,
            hdr_supp: suppress,
            seq_mismatch: true,
            gen_mismatch: true,
            ..TidFlow::default()
        };
        bench.write(user::RCV_TID_FLOW_TABLE.ctxt(self.context.ctxt).index(FLOW.into()), flow.build());
        // Two writes of flows are kept apart.
        qhca_regs::Bar::write(bench.bar(), user::RCV_EGR_INDEX_TAIL.ctxt(self.context.ctxt).offset(), 0);
    }

    fn flow<B: Backend>(&self, bench: &Bench<'_, B>) -> TidFlow {
        TidFlow::parse(bench.read(user::RCV_TID_FLOW_TABLE.ctxt(self.context.ctxt).index(FLOW.into())))
    }

    /// An expected packet of this flow.
    fn packet(&self, seq: u16, generation: u8, offset_dwords: u16, flags: KdFlags) -> Packet {
        let psn: Psn = FlowPsn { flow: FLOW, generation, seq }.build();
        Packet::new(self.port, 20, u32::from(seq) + 1).into_expected(TID, offset_dwords, psn, flags)
    }

    fn page_dword(&self, dword: usize) -> u32 {
        self.page.memory().load_u32(4 * dword)
    }

    /// Whether the page holds the payload of `packet` where it is meant for.
    fn holds(&self, packet: &Packet) -> bool {
        let at = usize::from(packet.offset_dwords);
        packet.payload.iter().enumerate().all(|(n, dword)| self.page_dword(at + n) == *dword)
    }

    /// Sends `packet` and takes its entry, if it has one.
    fn send<B: Backend>(
        &mut self,
        bench: &mut Bench<'_, B>,
        packet: &Packet,
    ) -> Result<Option<Received>, Stop> {
        bench.send(buffer(4)?, packet);
        let received = self.context.next();
        if let Some(received) = &received {
            self.context.give_back(bench, received, 0);
        }
        Ok(received)
    }
}

fn entry(received: Option<Received>, what: &str) -> Result<Received, Stop> {
    received.ok_or_else(|| Stop::Fail(format!("{what}: no entry in the header queue")))
}

/// Payload goes to the page and the offset that its header names, and nowhere else; a TID without a page is told.
pub(super) fn expected_receive<B: Backend>(bench: &mut Bench<'_, B>) -> Verdict {
    let mut table = open(bench, false)?;
    for (seq, offset) in [(0, 0), (1, 64), (2, 1004)] {
        let packet = table.packet(seq, GENERATION, offset, KdFlags::empty());
        let received = entry(table.send(bench, &packet)?, "an expected packet")?;
        ensure_eq!(received.rhf.kind(), PacketType::Expected, "the type of an expected packet");
        ensure!(
            received.rhf.errors().is_empty(),
            "an expected packet in order has {:?}",
            received.rhf.errors()
        );
        ensure!(!received.rhf.uses_egr_buf(), "an expected packet used an eager buffer");
        ensure!(received.header == packet.header(), "the header of an expected packet differs");
        ensure!(table.holds(&packet), "the payload is not at dword {offset} of its page");
    }
    for dword in [20, 63, 84, 1003] {
        ensure_eq!(table.page_dword(dword), 0, "dword {dword} of the page, which nobody sent");
    }
    ensure_eq!(table.flow(bench).seq, 3, "the sequence number of the flow after three packets");
    let mut stray = table.packet(3, GENERATION, 0, KdFlags::empty());
    stray.tid = qhca_regs::layout::KdTid::Tid(TID + 1);
    let received = entry(table.send(bench, &stray)?, "a packet for a TID without a page")?;
    ensure!(
        received.rhf.errors().contains(RhfErrors::TID),
        "a TID without a page gives {:?}",
        received.rhf.errors()
    );
    Ok(())
}

/// A packet of another generation is told, and its payload is not written.
pub(super) fn flow_generation<B: Backend>(bench: &mut Bench<'_, B>) -> Verdict {
    let mut table = open(bench, false)?;
    let stray = table.packet(0, GENERATION + 1, 8, KdFlags::empty());
    turned_away(bench, &mut table, &stray, RhfErrors::TF_GEN)?;
    ensure!(table.flow(bench).gen_mismatch, "GenMismatch missing in the flow table");
    goes_on(bench, &mut table)
}

/// A packet out of order is told, and its payload is not written.
pub(super) fn flow_sequence<B: Backend>(bench: &mut Bench<'_, B>) -> Verdict {
    let mut table = open(bench, false)?;
    let stray = table.packet(2, GENERATION, 8, KdFlags::empty());
    turned_away(bench, &mut table, &stray, RhfErrors::TF_SEQ)?;
    ensure!(table.flow(bench).seq_mismatch, "SeqMismatch missing in the flow table");
    goes_on(bench, &mut table)
}

fn turned_away<B: Backend>(
    bench: &mut Bench<'_, B>,
    table: &mut Table,
    stray: &Packet,
    error: RhfErrors,
) -> Verdict {
    let dropped = counter::RX_TID_FLOW_DROP_CNT;
    let before = bench.read(dropped);
    let received = entry(table.send(bench, stray)?, "a packet that breaks its flow")?;
    ensure!(received.rhf.errors().contains(error), "{error:?} missing in {:?}", received.rhf.errors());
    ensure!(!table.holds(stray), "the payload of a packet that breaks its flow was written");
    ensure_eq!(bench.read(dropped).wrapping_sub(before), 1, "RxTidFlowDropCnt");
    Ok(())
}

/// A flow that is opened anew has forgotten its errors.
fn goes_on<B: Backend>(bench: &mut Bench<'_, B>, table: &mut Table) -> Verdict {
    table.set_flow(bench, false);
    let flow = table.flow(bench);
    ensure!(!flow.seq_mismatch && !flow.gen_mismatch, "a flow that was opened anew still has {flow:?}");
    let packet = table.packet(0, GENERATION, 40, KdFlags::empty());
    let received = entry(table.send(bench, &packet)?, "a packet of a flow that was opened anew")?;
    ensure!(
        received.rhf.errors().is_empty() && table.holds(&packet),
        "a flow that was opened anew does not work"
    );
    Ok(())
}

/// Packets in order that ask for it have no entry; those that do not ask, and those out of order, have one.
pub(super) fn header_suppression<B: Backend>(bench: &mut Bench<'_, B>) -> Verdict {
    let mut table = open(bench, true)?;
    for seq in 0..3 {
        let packet = table.packet(seq, GENERATION, 20 * seq, KdFlags::HDR_SUPP);
        ensure!(
            table.send(bench, &packet)?.is_none(),
            "packet {seq} has an entry, though in order and asked not to"
        );
        ensure!(table.holds(&packet), "the payload of packet {seq} is not in its page");
    }
    let asks = table.packet(3, GENERATION, 60, KdFlags::empty());
    entry(table.send(bench, &asks)?, "a packet that does not ask for suppression")?;
    let late = table.packet(9, GENERATION, 80, KdFlags::HDR_SUPP);
    let received = entry(table.send(bench, &late)?, "a packet out of order that asks for suppression")?;
    ensure!(received.rhf.errors().contains(RhfErrors::TF_SEQ), "it has {:?}", received.rhf.errors());
    Ok(())
}

/// A header whose checksum does not fit is not believed: its payload goes nowhere, and the error is told.
pub(super) fn kd_checksum<B: Backend>(bench: &mut Bench<'_, B>) -> Verdict {
    let mut table = open(bench, false)?;
    port_regs::ERR_CLEAR.port(table.port).clear(bench.bar(), PortErrBits::all());
    let mut packet = table.packet(0, GENERATION, 8, KdFlags::empty());
    packet.checksum_off = 1;
    let received = table.send(bench, &packet)?;
    let told = received.is_some_and(|received| received.rhf.errors().contains(RhfErrors::KHDR));
    let errors = bench.read(port_regs::ERR_STATUS.port(table.port));
    ensure!(
        told || errors.contains(PortErrBits::RCV_HDR_ERR),
        "a wrong checksum is told by nothing, {errors:?}"
    );
    ensure!(!table.holds(&packet), "the payload of a header with a wrong checksum was written");
    Ok(())
}
