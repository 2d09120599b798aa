//! Expected receive: what lands where, what is told, and what is not.

use super::super::Habits;
use super::super::tests::Bench;
use super::tests::{EAGER, ENTRIES, P, control, ctxt0, head, kd, ready, rhf};
use super::*;
use proptest::prelude::*;
use qhca_regs::layout::{ArrayEntry, BufSize, FlowPsn, KdFlags, KdTid, PacketType, RhfErrors, TidFlow};
use qhca_regs::map::{area, device, port, user};
use qhca_regs::status::PortErrBits;

const PAGE: u64 = EAGER + 0x1000;
const TID: u16 = 9;
const FLOW: u8 = 4;
const GENERATION: u8 = 0x21;

/// Context 0 with one page as TID 9 and flow 4 waiting for sequence 0 of generation 0x21.
fn expecting(change: impl Fn(TidFlow) -> TidFlow) -> Bench {
    let mut bench = ready(Habits::default());
    let page = ArrayEntry::new(PAGE, BufSize::K4).expect("aligned").build();
    bench.write(area::RCV_TID_ARRAY.ctxt(ctxt0()).index(TID.into()).offset(), page.0);
    let flow = TidFlow { valid: true, generation: GENERATION, hdr_supp: true, ..TidFlow::default() };
    bench.write(flow_offset(), change(flow).build().0);
    control(&mut bench, |control| control.with_tid_flow_enable(true));
    bench
}

fn flow_offset() -> u32 {
    user::RCV_TID_FLOW_TABLE.ctxt(ctxt0()).index(FLOW.into()).offset()
}

fn flow(bench: &mut Bench) -> TidFlow {
    TidFlow::parse(user::RcvTidFlowTable(bench.read(flow_offset())))
}

/// 64 bytes for `tid` at `offset_dwords`, as packet `seq` of `generation`.
fn expected(tid: u16, offset_dwords: u16, generation: u8, seq: u16, flags: KdFlags) -> Vec<u8> {
    let mut bytes = kd(KdTid::Tid(tid), offset_dwords, flags, 64);
    let psn = FlowPsn { flow: FLOW, generation, seq }.build();
    bytes[16..20].copy_from_slice(&psn.value().to_be_bytes());
    bytes
}

fn next(seq: u16, flags: KdFlags) -> Vec<u8> {
    expected(TID, 16 * seq, GENERATION, seq, flags)
}

fn entries(bench: &mut Bench) -> u64 {
    bench.read(user::RCV_HDR_TAIL.index(0).offset()) / 32
}

#[test]
fn packets_in_order_fill_the_page_and_suppressed_ones_leave_no_entry() {
    let mut bench = expecting(|flow| flow);
    for seq in 0..7 {
        bench.deliver(P, &next(seq, KdFlags::HDR_SUPP), Meta::GOOD);
    }
    assert_eq!(entries(&mut bench), 0);
    bench.deliver(P, &next(7, KdFlags::empty()), Meta::GOOD);
    let sent = next(0, KdFlags::empty());
    for seq in 0..8 {
        assert_eq!(bench.host.bytes(PAGE + 64 * seq, 64), sent[56..], "part {seq}");
    }
    let rhf = rhf(&mut bench, 0);
    assert_eq!((rhf.kind(), rhf.errors(), rhf.seq()), (PacketType::Expected, RhfErrors::empty(), 1));
    assert_eq!(flow(&mut bench).seq, 8);
    assert_eq!((bench.chip.account().suppressed, bench.chip.account().received), ([7, 0], [1, 0]));
}

#[test]
fn suppression_needs_the_flow_to_allow_it() {
    let mut bench = expecting(|flow| TidFlow { hdr_supp: false, ..flow });
    bench.deliver(P, &next(0, KdFlags::HDR_SUPP), Meta::GOOD);
    assert_eq!(entries(&mut bench), 1);
}

#[test]
fn urgent_packet_has_its_entry_and_interrupts() {
    let mut bench = expecting(|flow| flow);
    bench.deliver(P, &next(0, KdFlags::HDR_SUPP | KdFlags::INTR), Meta::GOOD);
    assert_eq!(entries(&mut bench), 1);
    let status = IntBits::from_bits_retain(bench.read(device::INT_STATUS.offset()));
    assert!(status.contains(IntBits::RCV_URG0));
}

#[test]
fn suppressed_packets_need_no_room_in_the_header_queue() {
    let mut bench = expecting(|flow| flow);
    for seq in 0..ENTRIES as u16 + 2 {
        bench.deliver(P, &next(seq % 8, KdFlags::empty()), Meta::GOOD);
        let at = TidFlow { seq: (seq + 1) % 8, ..flow(&mut bench) };
        bench.write(flow_offset(), at.build().0);
    }
    let before = entries(&mut bench);
    let at = flow(&mut bench).seq;
    bench.deliver(P, &next(at, KdFlags::HDR_SUPP), Meta::GOOD);
    assert_eq!((entries(&mut bench), bench.chip.account().suppressed[0]), (before, 1));
}

#[test]
fn packet_that_finds_no_room_for_its_entry_leaves_its_flow_where_it_was() {
    let mut bench = expecting(|flow| flow);
    (0..ENTRIES).for_each(|_| bench.deliver(P, &kd(KdTid::Eager, 0, KdFlags::empty(), 0), Meta::GOOD));
    bench.deliver(P, &next(0, KdFlags::empty()), Meta::GOOD);
    assert_eq!(flow(&mut bench).seq, 0);
    head(&mut bench, 8, 0);
    bench.deliver(P, &next(0, KdFlags::empty()), Meta::GOOD);
    assert_eq!(flow(&mut bench).seq, 1);
}

#[test]
fn gap_and_old_generation_are_told_apart_and_neither_reaches_the_page() {
    let mut bench = expecting(|flow| flow);
    bench.deliver(P, &next(1, KdFlags::HDR_SUPP), Meta::GOOD);
    bench.deliver(P, &expected(TID, 0, GENERATION - 1, 0, KdFlags::HDR_SUPP), Meta::GOOD);
    assert_eq!(rhf(&mut bench, 0).errors(), RhfErrors::TF_SEQ);
    assert_eq!(rhf(&mut bench, 1).errors(), RhfErrors::TF_GEN);
    assert!(rhf(&mut bench, 1).is_good(), "no error bit of the packet's own");
    assert_eq!(bench.host.bytes(PAGE, 128), [0; 128]);
    assert_eq!(bench.read(counter::RX_TID_FLOW_DROP_CNT.offset()), 2);
    assert_eq!(bench.chip.account().dropped(P, Drop::FlowMismatch), 2);
    let flow = flow(&mut bench);
    assert!(flow.seq_mismatch && flow.gen_mismatch && flow.seq == 0);
}

#[test]
fn flow_that_keeps_writes_the_payload_and_still_tells() {
    let mut bench = expecting(|flow| TidFlow { keep_after_seq_err: true, keep_on_gen_err: true, ..flow });
    bench.deliver(P, &next(1, KdFlags::HDR_SUPP), Meta::GOOD);
    bench.deliver(P, &expected(TID, 0, GENERATION - 1, 0, KdFlags::HDR_SUPP), Meta::GOOD);
    assert_eq!(rhf(&mut bench, 0).errors(), RhfErrors::TF_SEQ);
    assert_eq!(rhf(&mut bench, 1).errors(), RhfErrors::TF_GEN);
    let sent = next(0, KdFlags::empty());
    assert_eq!(bench.host.bytes(PAGE, 128), [&sent[56..], &sent[56..]].concat());
    assert_eq!(bench.read(counter::RX_TID_FLOW_DROP_CNT.offset()), 0);
    assert_eq!(flow(&mut bench).seq, 2);
}

#[test]
fn wrong_icrc_is_never_suppressed_and_the_packet_can_come_again() {
    let mut bench = expecting(|flow| flow);
    bench.deliver(P, &next(0, KdFlags::HDR_SUPP), Meta { icrc_ok: false, ..Meta::GOOD });
    assert_eq!(rhf(&mut bench, 0).errors(), RhfErrors::ICRC);
    bench.deliver(P, &next(0, KdFlags::HDR_SUPP), Meta::GOOD);
    assert_eq!((entries(&mut bench), flow(&mut bench).seq), (1, 1));
}

#[test]
fn unknown_tid_bad_offset_and_cleared_entry_are_tid_errors() {
    let mut bench = expecting(|flow| flow);
    let packets = [(8, 0), (512, 0), (0x7FE, 0), (TID, 1024), (TID, 0x1FFF)];
    for (n, (tid, offset)) in packets.into_iter().enumerate() {
        bench.deliver(P, &expected(tid, offset, GENERATION, 0, KdFlags::HDR_SUPP), Meta::GOOD);
        assert_eq!(rhf(&mut bench, n as u64).errors(), RhfErrors::TID, "{tid} {offset}");
    }
    bench.write(area::RCV_TID_ARRAY.ctxt(ctxt0()).index(TID.into()).offset(), 0);
    bench.deliver(P, &next(0, KdFlags::HDR_SUPP), Meta::GOOD);
    assert_eq!(rhf(&mut bench, 5).errors(), RhfErrors::TID);
    assert_eq!(bench.read(counter::RX_TID_VALID_ERR_CNT.offset()), 6);
    let errors = PortErrBits::from_bits_retain(bench.read(port::ERR_STATUS.port(P).offset()));
    assert!(errors.contains(PortErrBits::RCV_BAD_TID_ERR));
    assert_eq!((flow(&mut bench).seq, bench.chip.account().dropped(P, Drop::InvalidTid)), (0, 6));
}

#[test]
fn payload_over_the_end_of_its_page_is_cut_and_told() {
    let mut bench = expecting(|flow| flow);
    bench.deliver(P, &expected(TID, 1024 - 8, GENERATION, 0, KdFlags::HDR_SUPP), Meta::GOOD);
    assert_eq!(rhf(&mut bench, 0).errors(), RhfErrors::LEN);
    let sent = next(0, KdFlags::empty());
    assert_eq!(bench.host.bytes(PAGE + 0x1000 - 32, 32), sent[56..88]);
    assert_eq!(bench.host.bytes(PAGE + 0x1000, 32), [0; 32]);
}

#[test]
fn flows_are_not_asked_while_they_are_switched_off() {
    let mut bench = expecting(|flow| flow);
    control(&mut bench, |control| control);
    bench.deliver(P, &next(5, KdFlags::HDR_SUPP), Meta::GOOD);
    assert_eq!((rhf(&mut bench, 0).errors(), flow(&mut bench).seq), (RhfErrors::empty(), 0));
    let sent = next(5, KdFlags::empty());
    assert_eq!(bench.host.bytes(PAGE + 5 * 64, 64), sent[56..]);
}

proptest! {
    /// Any entry in the TID array and any packet for it: payload lands inside the buffer that the entry names, or nowhere.
    #[test]
    fn payload_lands_inside_the_named_buffer_or_nowhere(
        entry: u64, offset in 0..0x2000u16, payload in 0..300usize, flows: bool, flags in 0..4u16,
    ) {
        let mut bench = expecting(|flow| flow);
        control(&mut bench, |control| control.with_tid_flow_enable(flows));
        bench.write(area::RCV_TID_ARRAY.ctxt(ctxt0()).index(TID.into()).offset(), entry);
        let mut bytes = kd(KdTid::Tid(TID), offset, KdFlags::from_bits_retain(flags), 4 * payload);
        let psn = FlowPsn { flow: FLOW, generation: GENERATION, seq: 0 }.build();
        bytes[16..20].copy_from_slice(&psn.value().to_be_bytes());
        bench.host.writes.clear();
        bench.deliver(P, &bytes, Meta::GOOD);
        let named = match qhca_regs::layout::Slot::parse(area::RcvArrayEntry(entry)) {
            qhca_regs::layout::Slot::Buffer(buffer) => buffer.iova()..buffer.iova() + buffer.size().bytes() as u64,
            _ => 0..0,
        };
        let queue = super::tests::QUEUE..super::tests::QUEUE + 128 * u64::from(ENTRIES);
        for &(iova, len) in &bench.host.writes {
            let end = iova + len as u64;
            let inside = |range: &std::ops::Range<u64>| range.start <= iova && end <= range.end;
            prop_assert!(inside(&named) || inside(&queue), "{iova:#x} {len}");
        }
    }
}
