//! What sending promises: one packet a buffer, checks with their errors, the avail image, disarm.

use super::super::tests::Bench;
use super::super::{Config, PeerState, Timing};
use super::*;
use qhca_regs::layout::{AvailWords, BufferState};
use qhca_regs::map::area;
use qhca_regs::status::{IntBits, SendHdrSymptom};

const P: Port = Port::P0;
const AVAIL: u64 = 0x5000;

fn ready() -> Bench {
    ready_with(Timing::default())
}

fn ready_with(timing: Timing) -> Bench {
    let mut bench = Bench::with(Config { timing, ..Config::default() });
    bench.host.map(AVAIL, 4096);
    bench.activate(P);
    bench.write(device::SEND_BUF_AVAIL_ADDR.offset(), AVAIL);
    let port_ctrl = port::SendCtrl::default().with_send_enable(true);
    bench.write(port::SEND_CTRL.port(P).offset(), port_ctrl.0);
    for clear in [device::ERR_CLEAR.offset(), port::ERR_CLEAR.port(P).offset()] {
        bench.write(clear, u64::MAX);
    }
    bench.write(device::INT_CLEAR.offset(), u64::MAX);
    bench.write(device::INT_MASK.offset(), u64::MAX);
    bench.host.messages();
    bench
}

fn buffer(index: usize) -> Buffer {
    Buffer::new(index).expect("exists")
}

/// PBC and a UC packet of `len_dwords` on lane `vl` (15: management).
fn image(len_dwords: u16, vl: u8) -> Vec<u32> {
    let pbc = Pbc::for_port(P, len_dwords).with_vl(vl & 7).with_vl15(vl == 15);
    let mut bytes = vec![vl << 4, 2, 0, 1, (len_dwords >> 8) as u8, len_dwords as u8, 0, 2];
    bytes.extend([0x24, 0, 0xFF, 0xFF, 0, 0, 0, 7, 0, 0, 0, 0]);
    bytes.resize(4 * usize::from(len_dwords - 1), 0x5A);
    let words = bytes.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]));
    pbc.dwords().into_iter().chain(words).collect()
}

fn send(bench: &mut Bench, index: usize, words: &[u32]) {
    bench.burst(buffer(index).offset(), words);
}

fn on_chip(bench: &mut Bench, index: usize) -> BufferState {
    let words = std::array::from_fn(|n| bench.read(area::SEND_BUF_AVAIL.index(n as u32).offset()));
    AvailWords(words).state(buffer(index))
}

fn in_memory(bench: &mut Bench, index: usize) -> BufferState {
    let words = std::array::from_fn(|n| bench.host.qword(AVAIL + 8 * n as u64));
    AvailWords(words).state(buffer(index))
}

fn errors(bench: &mut Bench) -> (ErrBits, PortErrBits) {
    let device = bench.read(device::ERR_STATUS.offset());
    let port = bench.read(port::ERR_STATUS.port(P).offset());
    (ErrBits::from_bits_retain(device), PortErrBits::from_bits_retain(port))
}

fn send_ctrl(bench: &mut Bench, change: impl Fn(device::SendCtrl) -> device::SendCtrl) {
    bench.write(device::SEND_CTRL.offset(), change(device::SendCtrl::default()).0);
}

#[test]
fn complete_buffer_leaves_once_and_is_free_with_its_check_bit_toggled() {
    let mut bench = ready();
    let words = image(20, 0);
    send(&mut bench, 5, &words[..10]);
    assert_eq!(on_chip(&mut bench, 5), BufferState { check: true, busy: true });
    assert!(bench.chip.take_outgoing(P).is_none());
    bench.burst(buffer(5).offset() + 40, &words[10..]);
    let packet = bench.chip.take_outgoing(P).expect("sent");
    assert_eq!((packet.wire_dwords(), packet.vl, packet.bytes[0..2].to_vec()), (20, 0, vec![0, 2]));
    assert!(bench.chip.take_outgoing(P).is_none());
    assert_eq!(on_chip(&mut bench, 5), BufferState { check: true, busy: false });
    send(&mut bench, 5, &words);
    assert_eq!(on_chip(&mut bench, 5), BufferState { check: false, busy: false });
    assert_eq!(bench.read(counter::TX_DATA_PKT_CNT.port(P).offset()), 2);
    assert_eq!(bench.read(counter::TX_DWORD_CNT.port(P).offset()), 40);
}

#[test]
fn packet_leaves_by_the_port_of_its_pbc() {
    let mut bench = ready();
    bench.activate(Port::P1);
    let mut words = image(20, 0);
    words[..2].copy_from_slice(&Pbc::for_port(Port::P1, 20).dwords());
    send(&mut bench, 5, &words);
    assert!(bench.chip.take_outgoing(P).is_none() && bench.chip.take_outgoing(Port::P1).is_some());
}

#[test]
fn avail_image_is_copied_when_switched_on_and_after_the_threshold() {
    let mut bench = ready();
    let words = image(20, 0);
    send(&mut bench, 0, &words);
    bench.host.writes.clear();
    send_ctrl(&mut bench, |c| c.with_send_buf_avail_upd(true).with_avail_upd_thld(3));
    assert_eq!(in_memory(&mut bench, 0), BufferState { check: true, busy: false });
    for index in 1..=3 {
        send(&mut bench, index, &words);
        assert_eq!(in_memory(&mut bench, 1).check, index == 3, "after {index}");
    }
    assert_eq!(bench.host.writes.len(), 12);
}

#[test]
fn buffer_interrupt_comes_at_once_when_one_is_free_and_then_with_each() {
    let mut bench = ready();
    send_ctrl(&mut bench, |c| c.with_send_int_buf_avail(true).with_send_buf_avail_upd(true));
    assert_eq!(bench.host.messages(), [0]);
    assert_eq!(bench.read(device::INT_STATUS.offset()), IntBits::SEND_BUF_AVAIL.bits());
    bench.write(device::INT_CLEAR.offset(), u64::MAX);
    send(&mut bench, 9, &image(20, 0));
    assert_eq!(bench.host.messages(), [0]);
    assert!(in_memory(&mut bench, 9).check);
}

#[test]
fn arm_launch_error_marks_the_buffer_until_it_is_disarmed() {
    let mut bench = ready();
    let words = image(20, 0);
    send(&mut bench, 70, &words[..10]);
    bench.burst(buffer(70).offset() + 8, &words[2..]);
    assert_eq!(errors(&mut bench).0, ErrBits::SEND_ARM_LAUNCH_ERR);
    let marks = device::SEND_BUF_ERR.index(1).offset();
    assert_eq!(bench.read(marks), 1 << 6);
    bench.write(marks, 1 << 6);
    assert_eq!(bench.read(marks), 0);
    assert!(on_chip(&mut bench, 70).busy);
    send_ctrl(&mut bench, |c| c.with_disarm(true).with_disarm_send_buf(70));
    assert!(!on_chip(&mut bench, 70).busy);
    assert_eq!(bench.read(device::SEND_CTRL.offset()), 0, "the command does not stick");
    send(&mut bench, 70, &words);
    assert!(bench.chip.take_outgoing(P).is_some());
}

/// The stock driver's "disarm all" ORs the buffer number into bits 7:0 (§6.4).
#[test]
fn junk_of_the_stock_disarm_loop_is_survived() {
    let mut bench = ready();
    for index in 0..Buffer::COUNT as u64 {
        bench.write(device::SEND_CTRL.offset(), 1 << 31 | index);
        bench.write(device::SCRATCH.offset(), 0);
    }
    send_ctrl(&mut bench, |c| c.with_send_buf_avail_upd(true));
    send(&mut bench, 3, &image(20, 0));
    assert!(bench.chip.take_outgoing(P).is_some());
    assert!(errors(&mut bench).0.is_empty());
}

/// The stock driver streams blocks into one buffer after a PBC of 0, then disarms it (§2.2, step 22).
#[test]
fn bandwidth_test_neither_launches_nor_harms_anything() {
    let mut bench = ready();
    bench.write(buffer(4).offset(), 0);
    (0..50).for_each(|_| bench.burst(buffer(4).offset() + 0x100, &[0xA5A5_A5A5; 256]));
    assert!(bench.chip.take_outgoing(P).is_none());
    assert_eq!(errors(&mut bench), (ErrBits::SEND_ARM_LAUNCH_ERR, PortErrBits::empty()));
    send_ctrl(&mut bench, |c| c.with_disarm(true).with_disarm_send_buf(4));
    send(&mut bench, 4, &image(20, 0));
    assert!(bench.chip.take_outgoing(P).is_some());
}

#[test]
fn each_mismatch_raises_its_error_and_sends_nothing() {
    let with = |change: fn(Pbc) -> Pbc| {
        let mut words = image(20, 0);
        let pbc = Pbc::from_dwords(words[0], words[1]);
        words[..2].copy_from_slice(&change(pbc).dwords());
        words
    };
    let mut wrong_length = image(20, 0);
    wrong_length[3] = u32::from_le_bytes([0, 19, 0, 2]);
    let none = (ErrBits::empty(), PortErrBits::empty());
    let cases = [
        (5, with(|pbc| pbc.with_vl(1)), (ErrBits::SEND_VL_MISMATCH_ERR, none.1)),
        (5, image(20, 5), (none.0, PortErrBits::SEND_UNSUPPORTED_VL_ERR)),
        (5, image(20, 15), (none.0, PortErrBits::VL15_BUF_MISUSE_ERR)),
        (160, image(20, 0), (ErrBits::SBUF_VL15_MISUSE_ERR, none.1)),
        (161, image(20, 15), (ErrBits::SBUF_VL15_MISUSE_ERR, none.1)),
        (5, wrong_length, (none.0, PortErrBits::SEND_PKT_LEN_ERR)),
        (5, image(5, 0), (none.0, PortErrBits::SEND_MIN_PKT_LEN_ERR)),
    ];
    for (index, words, expected) in cases {
        let mut bench = ready();
        send(&mut bench, index, &words);
        assert_eq!(errors(&mut bench), expected);
        assert!(bench.chip.take_outgoing(P).is_none());
        let marks = bench.read(device::SEND_BUF_ERR.index(index as u32 / 64).offset());
        assert_eq!(marks, 1 << (index % 64));
        assert_eq!(bench.chip.account().dropped(P, Drop::SendRefused), 1);
    }
}

#[test]
fn longer_than_max_pkt_len_is_refused() {
    let mut bench = ready();
    let control = port::IBC_CTRL_A.port(P).offset();
    let short = port::IbcCtrlA(bench.read(control)).with_max_pkt_len(30);
    bench.write(control, short.0);
    send(&mut bench, 5, &image(31, 0));
    assert_eq!(errors(&mut bench).1, PortErrBits::SEND_MAX_PKT_LEN_ERR);
    send(&mut bench, 6, &image(30, 0));
    assert!(bench.chip.take_outgoing(P).is_some());
}

#[test]
fn header_checks_name_their_symptom() {
    let symptom_reg = port::SEND_HDR_ERR_SYMPTOM.port(P).offset();
    let checks = port::SendCheckControl(0x1F);
    let cases: [(u64, u64, u64, SendHdrSymptom); 3] = [
        // IB allowed, checked, SLID mask: SLID 2 is not the assigned 3
        (u64::MAX, 0, 3, SendHdrSymptom::SLID_FAIL),
        // no IB allowed: a plain packet is not a KD packet, and its QP not the KD one
        (0, 0, 2, SendHdrSymptom::NON_KEY_PACKET.union(SendHdrSymptom::QP_FAIL)),
        (u64::MAX, u64::MAX, 2, SendHdrSymptom::empty()),
    ];
    for (ib, grh, slid, expected) in cases {
        let mut bench = ready();
        bench.write(port::SEND_CHECK_CONTROL.port(P).offset(), checks.0);
        bench.write(device::SEND_CHECK_MASK.index(0).offset(), u64::MAX);
        bench.write(device::SEND_IB_PACKET_MASK.index(0).offset(), ib);
        bench.write(device::SEND_GRH_CHECK_MASK.index(0).offset(), grh);
        bench.write(port::SEND_IBSLID_MASK.port(P).offset(), 0xFFFF);
        bench.write(port::SEND_IBSLID_ASSIGN.port(P).offset(), slid);
        send(&mut bench, 5, &image(20, 0));
        assert_eq!(bench.read(symptom_reg), expected.bits());
        assert_eq!(bench.chip.take_outgoing(P).is_none(), !expected.is_empty());
        assert_eq!(errors(&mut bench).1.contains(PortErrBits::S_HEADERS_ERR), !expected.is_empty());
        bench.write(symptom_reg, 0);
        assert_eq!(bench.read(symptom_reg), 0);
    }
}

#[test]
fn packets_wait_for_send_enable_and_are_dropped_without_a_link() {
    let mut bench = ready();
    bench.write(port::SEND_CTRL.port(P).offset(), 0);
    send(&mut bench, 5, &image(20, 0));
    assert!(bench.chip.take_outgoing(P).is_none() && on_chip(&mut bench, 5).busy);
    bench.write(port::SEND_CTRL.port(P).offset(), port::SendCtrl::default().with_send_enable(true).0);
    assert!(bench.chip.take_outgoing(P).is_some());
    bench.peer(P, PeerState::Silent);
    send(&mut bench, 5, &image(20, 0));
    send(&mut bench, 160, &image(72, 15));
    let expected = PortErrBits::SEND_DROPPED_DATA_PKT_ERR | PortErrBits::SEND_DROPPED_SMP_PKT_ERR;
    assert!(errors(&mut bench).1.contains(expected));
    assert_eq!(bench.read(counter::TX_DROPPED_PKT_CNT.port(P).offset()), 2);
    assert!(!on_chip(&mut bench, 5).busy);
}

#[test]
fn drained_and_disarmed_packets_are_cancelled() {
    let mut bench = ready();
    bench.write(port::SEND_CTRL.port(P).offset(), 0);
    (0..3).for_each(|index| send(&mut bench, index, &image(20, 0)));
    send_ctrl(&mut bench, |c| c.with_disarm(true).with_disarm_send_buf(1));
    assert_eq!(bench.chip.account().dropped(P, Drop::SendCancelled), 1);
    let drain = port::SendCtrl::default().with_txe_drain_la_fifo(true).with_send_enable(true);
    bench.write(port::SEND_CTRL.port(P).offset(), drain.0);
    assert_eq!(bench.chip.account().dropped(P, Drop::SendCancelled), 3);
    assert!(bench.chip.take_outgoing(P).is_none());
}

#[test]
fn send_done_is_raised_for_packets_that_ask_for_it() {
    let mut bench = ready();
    let mut words = image(20, 0);
    words[..2].copy_from_slice(&Pbc::for_port(P, 20).with_intr(true).dwords());
    send(&mut bench, 5, &words);
    assert_eq!(bench.read(device::INT_STATUS.offset()), IntBits::SEND_DONE_0.bits());
}

#[test]
fn paced_line_keeps_the_buffer_for_as_long_as_its_bytes_take() {
    let mut bench = ready_with(Timing { pace_line: true, ..Timing::default() });
    let start = bench.now;
    (0..3).for_each(|index| send(&mut bench, index, &image(100, 0)));
    assert!(on_chip(&mut bench, 0).busy);
    bench.pass(Duration::from_nanos(250));
    let sent: Vec<_> =
        std::iter::from_fn(|| bench.chip.take_outgoing(P)).map(|packet| packet.sent_at).collect();
    // QDR 4X: 4 bytes a nanosecond, 100 dwords a packet.
    assert_eq!(sent, [0, 100, 200].map(|ns| start + Duration::from_nanos(ns)));
    assert!(on_chip(&mut bench, 2).busy && !on_chip(&mut bench, 1).busy);
    bench.settle();
    assert!(!on_chip(&mut bench, 2).busy);
}

#[test]
fn static_rate_delays_the_next_packet_only() {
    let mut bench = ready();
    let start = bench.now;
    let mut words = image(20, 0);
    words[..2].copy_from_slice(&Pbc::for_port(P, 20).with_static_rate(50).dwords());
    send(&mut bench, 0, &words);
    send(&mut bench, 1, &image(20, 0));
    assert_eq!(bench.chip.take_outgoing(P).map(|packet| packet.sent_at), Some(start));
    assert!(bench.chip.take_outgoing(P).is_none());
    bench.settle();
    let second = bench.chip.take_outgoing(P).map(|packet| packet.sent_at);
    assert_eq!(second, Some(start + RATE_TICK.times(50)));
}

#[test]
fn data_waits_for_credits_and_vl15_does_not() {
    let mut bench = ready();
    let update = |limit| super::super::FlowUpdate { sent: [0; 8], limit: [limit; 8] };
    bench.chip.take_flow_update(P, update(1), bench.now, &mut bench.host);
    send(&mut bench, 0, &image(40, 0)); // 160 bytes: 3 credits
    send(&mut bench, 160, &image(72, 15));
    assert_eq!(bench.chip.take_outgoing(P).map(|packet| packet.vl), Some(15));
    assert!(bench.chip.take_outgoing(P).is_none());
    assert_eq!(bench.chip.next_deadline(), None, "waiting for credits is not waiting for time");
    bench.chip.take_flow_update(P, update(3), bench.now, &mut bench.host);
    assert!(bench.chip.take_outgoing(P).is_some());
}

/// Grants `credits` on lane `lane`, with or without telling the chip of the change.
fn grant(bench: &mut Bench, lane: u32, credits: u16, change: bool) {
    let register = port::RX_CREDIT_VL.port(P).index(lane).offset();
    bench.write(register, port::RxCreditVl::default().with_rx_max_credit_vl(credits).0);
    for raised in [change, false] {
        let test = port::IbSdtestIfTx::default().with_credit_change(raised);
        bench.write(port::IB_SDTEST_IF_TX.port(P).offset(), test.0);
    }
}

fn granted(bench: &mut Bench) -> [u32; 8] {
    bench.pass(Duration::from_millis(1));
    bench.chip.flow_update(P, bench.now).map_or([0; 8], |update| update.limit)
}

#[test]
fn credits_are_granted_when_the_change_is_announced() {
    let mut bench = ready();
    grant(&mut bench, 0, 100, false);
    assert_eq!(granted(&mut bench)[0], 0);
    grant(&mut bench, 0, 100, true);
    grant(&mut bench, 3, 7, true);
    assert_eq!(granted(&mut bench), [100, 0, 0, 7, 0, 0, 0, 0]);
}

#[test]
fn credit_bits_show_the_lanes_that_may_send() {
    let mut bench = ready();
    let bits = |bench: &mut Bench| bench.read(port::IBC_STATUS_A.port(P).offset()) >> 32 & 0xFF;
    assert_eq!(bits(&mut bench), 0b11, "two lanes, and no word from the peer yet");
    let mut limit = [0; 8];
    limit[1] = 5;
    bench.chip.take_flow_update(
        P,
        super::super::FlowUpdate { sent: [0; 8], limit },
        bench.now,
        &mut bench.host,
    );
    assert_eq!(bits(&mut bench), 0b10);
}

/// Packets of two lanes wait for credits; the tables decide in which order they go.
#[test]
fn tables_decide_whose_packets_leave_first() {
    let order = |enabled: bool| {
        let mut bench = ready();
        let tables =
            [(port::LOW_PRIORITY.port(P).index(0).offset(), port::LowPriority::default().with_weight(9).0)];
        let high = port::HighPriority::default().with_virtual_lane(1).with_weight(255).0;
        bench.write(port::HIGH_PRIORITY.port(P).index(0).offset(), high);
        tables.into_iter().for_each(|(offset, value)| bench.write(offset, value));
        bench.write(port::HIGH_PRIORITY_LIMIT.port(P).offset(), 255);
        let control = port::SendCtrl::default().with_ibvl_arbiter_en(enabled);
        bench.write(port::SEND_CTRL.port(P).offset(), control.0);
        (0..6).for_each(|n| send(&mut bench, n, &image(40, (n % 2) as u8)));
        bench.write(port::SEND_CTRL.port(P).offset(), control.with_send_enable(true).0);
        std::iter::from_fn(|| bench.chip.take_outgoing(P).map(|packet| packet.vl)).collect::<Vec<_>>()
    };
    assert_eq!(order(true), [1, 1, 1, 0, 0, 0]);
    assert_eq!(order(false), [0, 1, 0, 1, 0, 1]);
}

#[test]
fn looped_port_receives_what_it_sends() {
    let mut bench = Bench::new();
    bench.write(port::IBPCS_CONFIG.port(P).offset(), 0);
    let control = port::IbcCtrlA::default().with_ib_link_en(true).with_loopback(true);
    let control_a = port::IBC_CTRL_A.port(P).offset();
    bench.write(control_a, control.0);
    bench.settle();
    for command in [2, 3] {
        bench.write(control_a, control.with_link_cmd(command).0);
        bench.settle();
    }
    bench.write(device::SEND_IB_PACKET_MASK.index(0).offset(), u64::MAX);
    bench.write(port::SEND_CTRL.port(P).offset(), port::SendCtrl::default().with_send_enable(true).0);
    send(&mut bench, 0, &image(20, 0));
    assert!(bench.chip.take_outgoing(P).is_none());
    assert_eq!(bench.chip.account().dropped(P, Drop::PortDown), 1, "came back, to a receiver that is off");
}

#[test]
fn special_trigger_launches_what_is_complete_and_nothing_else() {
    let mut bench = ready();
    send_ctrl(&mut bench, |c| c.with_special_trigger_en(true));
    let words = image(20, 0);
    let trigger = |bench: &mut Bench, index: usize, value: u32| {
        let dword = if index < Buffer::SMALL { 1023 } else { 2047 };
        bench.burst(buffer(index).offset() + 4 * dword, &[value]);
    };
    for index in [5, Buffer::SMALL] {
        send(&mut bench, index, &words);
        assert!(bench.chip.take_outgoing(P).is_none(), "its count launches nothing");
        trigger(&mut bench, index, 0xAEBE_CEDE);
        assert!(bench.chip.take_outgoing(P).is_some());
    }
    assert_eq!(errors(&mut bench), (ErrBits::empty(), PortErrBits::empty()));
    send(&mut bench, 6, &words[..words.len() - 1]);
    trigger(&mut bench, 6, 0xAEBE_CEDE);
    send(&mut bench, 7, &words);
    trigger(&mut bench, 7, 0xAEBE_CEDF);
    assert!(bench.chip.take_outgoing(P).is_none());
    assert_eq!(errors(&mut bench), (ErrBits::SEND_SPECIAL_TRIGGER_ERR, PortErrBits::empty()));
    assert_eq!(bench.read(device::SEND_BUF_ERR.index(0).offset()), 0b1100_0000);
}

#[test]
fn trigger_word_is_past_the_buffer_while_packets_launch_by_count() {
    let mut bench = ready();
    bench.burst(buffer(5).offset() + 4 * 1023, &[0xAEBE_CEDE]);
    assert_eq!(errors(&mut bench).0, ErrBits::SEND_ARM_LAUNCH_ERR);
}
