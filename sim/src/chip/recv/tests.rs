//! What receiving promises: order of the writes, split of the packet, full queues, who is counted where.

use super::super::config::EagerFull;
use super::super::tests::Bench;
use super::super::{Config, Habits, Offer, PeerState};
use super::*;
use proptest::prelude::*;
use qhca_regs::Duration;
use qhca_regs::layout::{ArrayEntry, BufSize, KdFlags, KdHeader, KdTid, PacketType, Rhf, RhfErrors, RhfSeq};
use qhca_regs::map::{area, device, port, user};
use qhca_regs::status::{ErrBits, PortErrBits};

pub(super) const P: Port = Port::P0;
pub(super) const QUEUE: u64 = 0x10_0000;
pub(super) const EAGER: u64 = 0x20_0000;
const TAIL: u64 = 0x30_0000;
pub(super) const ENTRIES: u32 = 16;
const ENTRY_BYTES: u64 = 128;
const KD_QP: u32 = 0x65_6B78;

pub(super) fn ctxt0() -> Ctxt {
    Ctxt::new(0).expect("exists")
}

/// Context 0 of port 0 with a queue of 16 entries and 2 KiB eager buffers, the link ACTIVE.
pub(super) fn ready(habits: Habits) -> Bench {
    let mut bench = Bench::with(Config { habits, ..Config::default() });
    bench.host.map(QUEUE, (ENTRY_BYTES * u64::from(ENTRIES)) as usize);
    bench.host.map(EAGER, 1024 * 0x800);
    bench.host.map(TAIL, 8);
    bench.activate(P);
    bench.write(device::RCV_HDR_ENT_SIZE.offset(), 32);
    bench.write(device::RCV_HDR_CNT.offset(), ENTRIES.into());
    bench.write(device::RCV_HDR_SIZE.offset(), 9);
    bench.write(device::RCV_HDR_ADDR.index(0).offset(), QUEUE);
    for index in 0..1024u32 {
        let entry = ArrayEntry::new(EAGER + 0x800 * u64::from(index), BufSize::K2).expect("aligned").build();
        bench.write(area::RCV_EGR_ARRAY.index(index).offset(), entry.0);
    }
    bench.write(port::RCV_BTHQP.port(P).offset(), KD_QP.into());
    control(&mut bench, |control| control);
    bench.write(device::INT_MASK.offset(), u64::MAX);
    let enable = port::RcvCtrl::default().with_context_enable_kernel(true).with_rcv_ib_port_enable(true);
    bench.write(port::RCV_CTRL.port(P).offset(), enable.0);
    bench.host.messages();
    bench
}

pub(super) fn control(bench: &mut Bench, change: impl Fn(device::RcvCtrl) -> device::RcvCtrl) {
    let control = device::RcvCtrl::default().with_intr_avail(0x3_FFFF).with_xrc_type_code(5);
    bench.write(device::RCV_CTRL.offset(), change(control).0);
}

pub(super) fn head(bench: &mut Bench, entry: u32, counter: u16) {
    let value = user::RcvHdrHead::default().with_rcv_head_pointer(entry * 32).with_counter(counter);
    bench.write(user::RCV_HDR_HEAD.index(0).offset(), value.0);
}

/// A UC SEND-only packet for `qp` with `payload` bytes.
pub(super) fn packet(qp: u32, pkey: u16, payload: usize) -> Vec<u8> {
    let dwords = (8 + 12 + payload) / 4 + 1;
    let mut bytes = vec![0, 2, 0, 1, (dwords >> 8) as u8, dwords as u8, 0, 2];
    bytes.extend([0x24, 0]);
    bytes.extend(pkey.to_be_bytes());
    bytes.extend(qp.to_be_bytes());
    bytes.extend([0; 4]);
    bytes.extend((0..payload).map(|n| n as u8 ^ 0x5A));
    bytes
}

pub(super) fn rhf(bench: &mut Bench, entry: u64) -> Rhf {
    Rhf(bench.host.qword(QUEUE + entry * ENTRY_BYTES + 120))
}

fn plain(bench: &mut Bench) {
    bench.deliver(P, &packet(7, 0xFFFF, 256), Meta::GOOD);
}

#[test]
fn packet_is_split_and_its_rhf_comes_last() {
    let mut bench = ready(Habits::default());
    let bytes = packet(7, 0xFFFF, 256);
    bench.host.writes.clear();
    bench.deliver(P, &bytes, Meta::GOOD);
    let entry_end = QUEUE + 120;
    assert_eq!(bench.host.writes, [(EAGER, 256), (entry_end - 20, 20), (entry_end, 8)]);
    assert_eq!(bench.host.bytes(EAGER, 256), bytes[20..]);
    assert_eq!(bench.host.bytes(entry_end - 20, 20), bytes[..20]);
    let rhf = rhf(&mut bench, 0);
    assert_eq!((rhf.seq(), rhf.kind(), rhf.len_dwords()), (1, PacketType::Ib, 70));
    assert_eq!((rhf.egr_index(), rhf.uses_egr_buf(), rhf.hdrq_offset()), (0, true, 25));
    assert!(rhf.is_good());
    assert_eq!(bench.chip.account().received[0], 1);
    assert_eq!(bench.read(counter::RX_DWORD_CNT.port(P).offset()), 70);
}

#[test]
fn packet_without_payload_takes_no_buffer() {
    let mut bench = ready(Habits::default());
    bench.deliver(P, &packet(7, 0xFFFF, 0), Meta::GOOD);
    assert!(!rhf(&mut bench, 0).uses_egr_buf());
    assert_eq!(bench.read(user::RCV_EGR_INDEX_TAIL.index(0).offset()), 0);
}

#[test]
fn sequence_runs_from_1_to_13_and_the_tail_is_told_when_asked_for() {
    let mut bench = ready(Habits::default());
    control(&mut bench, |control| control.with_tail_upd(true));
    bench.write(device::RCV_HDR_TAIL_ADDR.index(0).offset(), TAIL);
    for n in 0..40u32 {
        plain(&mut bench);
        assert_eq!(u32::from(rhf(&mut bench, (n % ENTRIES).into()).seq()), n % 13 + 1);
        let tail = (n + 1) % ENTRIES * 32;
        assert_eq!(bench.host.qword(TAIL), u64::from(tail));
        assert_eq!(bench.read(user::RCV_HDR_TAIL.index(0).offset()), u64::from(tail));
        head(&mut bench, (n + 1) % ENTRIES, 0);
    }
}

#[test]
fn full_header_queue_drops_counts_and_raises_an_error() {
    let mut bench = ready(Habits::default());
    (0..ENTRIES + 4).for_each(|_| plain(&mut bench));
    let account = bench.chip.account().clone();
    assert_eq!(account.dropped(P, Drop::HeaderFull), 5);
    assert_eq!(account.overflowed(ctxt0()), 5);
    assert_eq!(bench.read(counter::RX_HDR_EGR_OVFL_CNT.index(0).offset()), 5);
    let errors = ErrBits::from_bits_retain(bench.read(device::ERR_STATUS.offset()));
    assert_eq!(errors, ErrBits::RCV_HDR_FULL_ERR);
}

#[test]
fn eager_full_reports_one_index_and_counts_each_loss() {
    let mut bench = ready(Habits::default());
    bench.write(user::RCV_EGR_INDEX_HEAD.index(0).offset(), 3);
    (0..5).for_each(|_| plain(&mut bench));
    assert!(rhf(&mut bench, 1).is_good());
    for entry in 2..5 {
        let rhf = rhf(&mut bench, entry);
        assert_eq!((rhf.errors(), rhf.egr_index(), rhf.uses_egr_buf()), (RhfErrors::TID, 2, false));
    }
    assert_eq!(bench.chip.account().dropped(P, Drop::EagerFull), 3);
    assert_eq!(bench.read(counter::RX_HDR_EGR_OVFL_CNT.index(0).offset()), 3);
    bench.write(user::RCV_EGR_INDEX_HEAD.index(0).offset(), 2);
    plain(&mut bench);
    assert!(rhf(&mut bench, 5).is_good(), "room again");
}

#[test]
fn habits_on_a_full_eager_ring_differ_as_named() {
    for (eager_full, entries) in [(EagerFull::Drop, 2), (EagerFull::ReportAsUsed, 3)] {
        let mut bench = ready(Habits { eager_full, ..Habits::default() });
        bench.write(user::RCV_EGR_INDEX_HEAD.index(0).offset(), 3);
        (0..3).for_each(|_| plain(&mut bench));
        assert_eq!(bench.read(user::RCV_HDR_TAIL.index(0).offset()), entries * 32);
        let used = rhf(&mut bench, 2).uses_egr_buf();
        assert_eq!(used, eager_full == EagerFull::ReportAsUsed);
    }
}

#[test]
fn skipped_buffers_leave_gaps_in_the_indices_but_lose_nothing() {
    let mut bench = ready(Habits { skip_eager_every: 3, ..Habits::default() });
    let mut indices = Vec::new();
    for n in 0..60u32 {
        plain(&mut bench);
        indices.push(rhf(&mut bench, (n % ENTRIES).into()).egr_index());
        head(&mut bench, (n + 1) % ENTRIES, 0);
    }
    assert!(indices.windows(2).all(|pair| pair[0] < pair[1]));
    assert!(indices.windows(2).any(|pair| pair[0] + 1 < pair[1]));
    assert_eq!(bench.chip.account().total_dropped(), 0);
}

#[test]
fn context_that_must_not_drop_holds_packets_in_order_until_the_head_moves() {
    let mut bench = ready(Habits::default());
    control(&mut bench, |control| control.with_dont_drop_rhq_full(1));
    for payload in 0..u32::from(ENTRIES as u8) + 4 {
        bench.deliver(P, &packet(7, 0xFFFF, 4 * payload as usize), Meta::GOOD);
    }
    assert_eq!(bench.chip.account().total_dropped(), 0);
    head(&mut bench, 8, 0);
    assert_eq!(bench.read(user::RCV_HDR_TAIL.index(0).offset()), 4 * 32);
    let lengths: Vec<_> = [15, 0, 1, 2, 3].map(|entry| rhf(&mut bench, entry).len_dwords()).to_vec();
    // Entry 15 and 0 to 3 hold the packets that had waited.
    assert_eq!(lengths, [21, 22, 23, 24, 25]);
    assert_eq!(bench.read(counter::RX_DATA_PKT_CNT.port(P).offset()), 20, "each counted once");
}

#[test]
fn held_packets_overflow_the_internal_buffer_in_the_end() {
    let mut bench = ready(Habits::default());
    control(&mut bench, |control| control.with_dont_drop_rhq_full(1));
    (0..600).for_each(|_| plain(&mut bench));
    let overflow = bench.chip.account().dropped(P, Drop::BufferOverflow);
    assert!(overflow > 0);
    assert_eq!(bench.read(counter::RX_BUF_OVFL_CNT.port(P).offset()), overflow);
}

#[test]
fn sixteen_packets_or_the_timer_interrupt_but_only_once() {
    let mut bench = ready(Habits::default());
    bench.write(device::RCV_AVAIL_TIMEOUT.index(0).offset(), 100);
    head(&mut bench, 0, 2);
    plain(&mut bench);
    assert!(bench.host.messages().is_empty());
    plain(&mut bench);
    assert_eq!(bench.host.messages(), [0]);
    bench.write(device::INT_CLEAR.offset(), u64::MAX);
    plain(&mut bench);
    bench.pass(Duration::from_millis(1));
    assert!(bench.host.messages().is_empty(), "not armed again");
    head(&mut bench, 2, 16);
    bench.pass(Duration::from_nanos(100 * 256 - 1));
    assert!(bench.host.messages().is_empty());
    bench.pass(Duration::from_nanos(1));
    assert_eq!(bench.host.messages(), [0]);
}

#[test]
fn counter_zero_and_a_cleared_avail_bit_do_not_interrupt() {
    let mut bench = ready(Habits::default());
    head(&mut bench, 0, 0);
    plain(&mut bench);
    bench.settle();
    assert!(bench.host.messages().is_empty());
    control(&mut bench, |control| control.with_intr_avail(0));
    head(&mut bench, 0, 1);
    bench.settle();
    assert!(bench.host.messages().is_empty());
    control(&mut bench, |control| control);
    assert_eq!(bench.host.messages(), [0], "armed and waiting: at once");
}

#[test]
fn avail_bit_cleared_while_the_timer_runs_stops_the_timer() {
    let mut bench = ready(Habits::default());
    bench.write(device::RCV_AVAIL_TIMEOUT.index(0).offset(), 100);
    head(&mut bench, 0, 16);
    plain(&mut bench);
    assert!(bench.chip.next_deadline().is_some());
    control(&mut bench, |control| control.with_intr_avail(0));
    assert_eq!(bench.chip.next_deadline(), None);
    control(&mut bench, |control| control);
    bench.settle();
    assert_eq!(bench.host.messages(), [0], "still armed");
}

#[test]
fn pkey_is_checked_unless_switched_off() {
    let mut bench = ready(Habits::default());
    bench.deliver(P, &packet(7, 0x8123, 8), Meta::GOOD);
    assert_eq!(bench.chip.account().dropped(P, Drop::Pkey), 1);
    assert_eq!(bench.read(counter::RX_P_KEY_MISMATCH_CNT.port(P).offset()), 1);
    bench.write(port::RCV_PARTITION_KEY.port(P).offset(), 0x8123 << 16);
    bench.deliver(P, &packet(7, 0x8123, 8), Meta::GOOD);
    let off = port::RcvCtrl::default()
        .with_context_enable_kernel(true)
        .with_rcv_ib_port_enable(true)
        .with_rcv_partition_key_disable(true);
    bench.write(port::RCV_CTRL.port(P).offset(), off.0);
    bench.deliver(P, &packet(7, 0x8999, 8), Meta::GOOD);
    assert_eq!(bench.chip.account().received[0], 2);
}

#[test]
fn qp_mapped_to_a_context_that_is_not_enabled_is_counted() {
    let mut bench = ready(Habits::default());
    let map = port::RcvQpMapTable::default().with_rcv_qp_map_context3(5);
    bench.write(port::RCV_QP_MAP_TABLE_A.port(P).offset(), map.0);
    let enable = port::RcvCtrl::default()
        .with_context_enable_kernel(true)
        .with_rcv_ib_port_enable(true)
        .with_rcv_qp_map_enable(true);
    bench.write(port::RCV_CTRL.port(P).offset(), enable.0);
    plain(&mut bench);
    assert_eq!(bench.chip.account().dropped(P, Drop::InvalidContext), 1);
    assert_eq!(bench.read(counter::RX_QP_INVALID_CONTEXT_CNT.port(P).offset()), 1);
    bench.deliver(P, &packet(0, 0xFFFF, 8), Meta::GOOD);
    assert_eq!(bench.chip.account().received[0], 1, "QP 0 follows entry 0");
}

#[test]
fn wrong_checksums_are_flagged_or_dropped_as_the_layer_says() {
    let mut bench = ready(Habits::default());
    bench.deliver(P, &packet(7, 0xFFFF, 8), Meta { icrc_ok: false, ..Meta::GOOD });
    assert_eq!(rhf(&mut bench, 0).errors(), RhfErrors::ICRC);
    bench.deliver(P, &packet(7, 0xFFFF, 8), Meta { vcrc_ok: false, ..Meta::GOOD });
    bench.deliver(P, &packet(7, 0xFFFF, 8), Meta { ends_bad: true, ..Meta::GOOD });
    let errors = PortErrBits::from_bits_retain(bench.read(port::ERR_STATUS.port(P).offset()));
    let expected = PortErrBits::RCV_ICRC_ERR | PortErrBits::RCV_VCRC_ERR | PortErrBits::RCV_EBP_ERR;
    assert!(errors.contains(expected));
    let counts = [counter::RX_ICRC_ERR_CNT, counter::RX_VCRC_ERR_CNT, counter::RX_EBP_CNT];
    assert_eq!(counts.map(|count| bench.read(count.port(P).offset())), [1, 1, 1]);
    assert_eq!(bench.read(user::RCV_HDR_TAIL.index(0).offset()), 32);
}

#[test]
fn malformed_packets_are_counted_by_kind() {
    let mut bench = ready(Habits::default());
    let good = packet(7, 0xFFFF, 8);
    let with = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        bytes
    };
    let cases = [
        (with(0, 0x01), Drop::Version, counter::RX_VERSION_ERR_CNT),
        (with(5, 0x20), Drop::Length, counter::RX_LEN_ERR_CNT),
        (with(0, 0x70), Drop::Vl, counter::RX_VL_ERR_CNT),
        (good[..6].to_vec(), Drop::Format, counter::RX_MAX_MIN_LEN_ERR_CNT),
        (packet(7, 0xFFFF, 4300), Drop::TooLong, counter::RX_MAX_MIN_LEN_ERR_CNT),
    ];
    for (bytes, why, register) in cases {
        let before = bench.read(register.port(P).offset());
        bench.deliver(P, &bytes, Meta::GOOD);
        assert_eq!(bench.chip.account().dropped(P, why), 1, "{}", why.name());
        assert_eq!(bench.read(register.port(P).offset()), before + 1, "{}", why.name());
    }
    bench.deliver(P, &with(1, 0), Meta::GOOD);
    assert_eq!(bench.chip.account().dropped(P, Drop::Format), 2, "raw");
}

#[test]
fn nothing_is_received_while_the_link_is_down_and_only_vl15_in_init() {
    let mut bench = ready(Habits::default());
    bench.peer(P, PeerState::Silent);
    plain(&mut bench);
    assert_eq!(bench.chip.account().dropped(P, Drop::PortDown), 1);
    bench.peer(P, PeerState::Training(Offer::of_speeds(4)));
    bench.settle();
    plain(&mut bench);
    assert_eq!(bench.chip.account().dropped(P, Drop::PortDown), 2);
    let mut smp = packet(0, 0xFFFF, 256);
    smp[0] = 0xF0;
    bench.deliver(P, &smp, Meta::GOOD);
    assert_eq!(bench.chip.account().received[0], 1);
}

/// A KD packet for `tid` with `payload` bytes after its full header.
pub(super) fn kd(tid: KdTid, offset_dwords: u16, flags: KdFlags, payload: usize) -> Vec<u8> {
    let mut bytes = packet(KD_QP, 0xFFFF, 36 + payload);
    let dwords = (bytes.len() / 4 + 1) as u16;
    let header = KdHeader { ctxt_low: 0, tid, offset_dwords, flags }.build(dwords);
    bytes[20..28].copy_from_slice(&header);
    bytes
}

#[test]
fn kd_packet_keeps_nine_dwords_beyond_the_bth_and_its_urgent_flag_interrupts() {
    let mut bench = ready(Habits::default());
    let bytes = kd(KdTid::Eager, 0, KdFlags::INTR, 64);
    bench.deliver(P, &bytes, Meta::GOOD);
    let rhf = rhf(&mut bench, 0);
    assert_eq!((rhf.kind(), rhf.hdrq_offset(), rhf.uses_egr_buf()), (PacketType::Eager, 16, true));
    assert_eq!(bench.host.bytes(EAGER, 64), bytes[56..]);
    let status = IntBits::from_bits_retain(bench.read(device::INT_STATUS.offset()));
    assert!(status.contains(IntBits::RCV_URG0));
}

#[test]
fn kd_header_with_a_wrong_checksum_is_an_error_entry() {
    let mut bench = ready(Habits::default());
    let mut bytes = kd(KdTid::Eager, 0, KdFlags::empty(), 64);
    bytes[24] ^= 1;
    bench.deliver(P, &bytes, Meta::GOOD);
    let rhf = rhf(&mut bench, 0);
    assert_eq!((rhf.kind(), rhf.errors()), (PacketType::Error, RhfErrors::KHDR));
    let errors = PortErrBits::from_bits_retain(bench.read(port::ERR_STATUS.port(P).offset()));
    assert!(errors.contains(PortErrBits::RCV_HDR_ERR));
}

#[test]
fn expected_packet_lands_in_its_page_and_an_invalid_tid_is_reported() {
    let mut bench = ready(Habits::default());
    let page = ArrayEntry::new(EAGER + 0x1000, BufSize::K4).expect("aligned").build();
    bench.write(area::RCV_TID_ARRAY.ctxt(ctxt0()).index(9).offset(), page.0);
    let bytes = kd(KdTid::Tid(9), 16, KdFlags::empty(), 64);
    bench.deliver(P, &bytes, Meta::GOOD);
    assert_eq!(bench.host.bytes(EAGER + 0x1000 + 64, 64), bytes[56..]);
    assert_eq!(rhf(&mut bench, 0).kind(), PacketType::Expected);
    bench.deliver(P, &kd(KdTid::Tid(10), 0, KdFlags::empty(), 64), Meta::GOOD);
    assert_eq!(rhf(&mut bench, 1).errors(), RhfErrors::TID);
    assert_eq!(bench.read(counter::RX_TID_VALID_ERR_CNT.offset()), 1);
}

#[test]
fn enabling_a_context_starts_its_ring_anew_and_sharing_it_is_an_error() {
    let mut bench = ready(Habits::default());
    plain(&mut bench);
    let on = port::RcvCtrl::default().with_context_enable_kernel(true).with_rcv_ib_port_enable(true);
    bench.write(port::RCV_CTRL.port(Port::P1).offset(), on.0);
    let errors = ErrBits::from_bits_retain(bench.read(device::ERR_STATUS.offset()));
    assert_eq!(errors, ErrBits::RCV_CONTEXT_SHARE_ERR);
    for value in [on.with_context_enable_kernel(false), on] {
        bench.write(port::RCV_CTRL.port(P).offset(), value.0);
    }
    assert_eq!(bench.read(user::RCV_HDR_TAIL.index(0).offset()), 0);
    plain(&mut bench);
    assert_eq!((rhf(&mut bench, 0).seq(), rhf(&mut bench, 0).egr_index()), (1, 0));
}

#[test]
fn refused_dma_is_counted_and_harms_nothing() {
    let mut bench = ready(Habits::default());
    bench.host.ranges.clear();
    plain(&mut bench);
    let account = bench.chip.account();
    assert_eq!((account.dma_refused, account.dropped(P, Drop::DmaRefused), account.received[0]), (3, 1, 0));
}

#[test]
fn eager_count_follows_the_context_configuration() {
    let mut bench = Bench::new();
    for (code, entries) in [(0, 4096), (1, 2048), (2, 1024)] {
        control(&mut bench, |control| control.with_context_cfg(code));
        assert_eq!(bench.read(device::RCV_EGR_CNT.offset()), entries);
    }
}

/// Software that reads the queue by sequence number and checks every byte against what was sent.
#[derive(Default)]
struct Reader {
    entry: u32,
    seq: RhfSeq,
    sent: VecDeque<Vec<u8>>,
    good: u64,
    lost: u64,
    last_index: Option<u64>,
}

impl Reader {
    /// Reads what is there and gives it back.
    fn drain(&mut self, bench: &mut Bench) -> Result<(), TestCaseError> {
        loop {
            let rhf = rhf(bench, self.entry.into());
            if !self.seq.matches(rhf) {
                break;
            }
            self.entry_is_right(bench, rhf)?;
            self.seq = self.seq.next();
            self.entry = (self.entry + 1) % ENTRIES;
        }
        if let Some(index) = self.last_index {
            bench.write(user::RCV_EGR_INDEX_HEAD.index(0).offset(), index);
        }
        head(bench, self.entry, 0);
        Ok(())
    }

    fn entry_is_right(&mut self, bench: &mut Bench, rhf: Rhf) -> Result<(), TestCaseError> {
        let header_at = QUEUE + ENTRY_BYTES * u64::from(self.entry) + 4 * u64::from(rhf.hdrq_offset());
        let header = bench.host.bytes(header_at, 20);
        // Packets that found the queue full are missing: go on to the one whose number this entry has.
        while self.sent.front().is_some_and(|bytes| bytes[16..20] != header[16..20]) {
            self.sent.pop_front();
            self.lost += 1;
        }
        let bytes = self.sent.pop_front().ok_or_else(|| TestCaseError::fail("a packet that nobody sent"))?;
        prop_assert_eq!(&header[..], &bytes[..20]);
        prop_assert_eq!(usize::from(rhf.len_dwords()), bytes.len() / 4 + 1);
        if rhf.errors() == RhfErrors::TID {
            self.lost += 1;
            return Ok(());
        }
        prop_assert!(rhf.is_good());
        self.good += 1;
        if rhf.uses_egr_buf() {
            let index = u64::from(rhf.egr_index());
            prop_assert_eq!(&bench.host.bytes(EAGER + 0x800 * index, bytes.len() - 20)[..], &bytes[20..]);
            self.last_index = Some(index);
        }
        Ok(())
    }
}

proptest! {
    /// Whatever the sizes and however late software looks: what it reads is what was sent, in order, and what is
    /// missing is in the account and, modulo 2^32, in the register.
    #[test]
    fn every_packet_is_read_as_sent_or_counted_as_lost(
        steps in prop::collection::vec((0usize..12, 0usize..512), 1..120),
        skip in 0u32..4,
        start in prop_oneof![Just(0u64), Just(0xFFFF_FFF0)],
    ) {
        let mut bench = ready(Habits { skip_eager_every: skip, ..Habits::default() });
        let open = device::HwDiagCtrl::default().with_counter_wr_enable(true);
        bench.write(device::HW_DIAG_CTRL.offset(), open.0);
        let register = counter::RX_HDR_EGR_OVFL_CNT.index(0).offset();
        bench.write(register, start);
        let mut reader = Reader::default();
        let mut number = 0u32;
        for (burst, dwords) in steps {
            for _ in 0..burst {
                let mut bytes = packet(7, 0xFFFF, 4 * dwords);
                bytes[16..20].copy_from_slice(&number.to_be_bytes());
                number += 1;
                bench.deliver(P, &bytes, Meta::GOOD);
                reader.sent.push_back(bytes);
            }
            reader.drain(&mut bench)?;
        }
        let lost = reader.lost + reader.sent.len() as u64;
        let account = bench.chip.account();
        prop_assert_eq!(account.overflowed(ctxt0()), lost);
        prop_assert_eq!(account.received[0], reader.good);
        prop_assert_eq!(bench.read(register), (start + lost) & 0xFFFF_FFFF);
    }
}
