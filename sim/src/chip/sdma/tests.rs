//! What send DMA promises: packets in order, heads and interrupts when asked for, halts that are told, and an error for
//! everything that is wrong with a descriptor.

use super::super::tests::Bench;
use super::super::{FlowUpdate, Injection, PeerState};
use super::*;
use proptest::prelude::*;
use qhca_regs::Duration;
use qhca_regs::layout::{AvailWords, Pbc};
use qhca_regs::map::{area, counter, device};
use qhca_regs::status::HwErrBits;

const P: Port = Port::P0;
const RING: u64 = 0x10_0000;
const HEAD: u64 = 0x18_0000;
const DATA: u64 = 0x20_0000;
const ENTRIES: u16 = 16;
const LARGE0: usize = Buffer::SMALL;

fn reg(register: qhca_regs::access::PortReg<impl Sized, impl Sized>) -> u32 {
    register.port(P).offset()
}

/// An ACTIVE port whose engine runs, with four large buffers.
fn ready() -> Bench {
    let mut bench = Bench::new();
    bench.activate(P);
    set_up(&mut bench);
    control(&mut bench, |c| c);
    quiet(&mut bench);
    bench
}

fn set_up(bench: &mut Bench) {
    bench.host.map(RING, 0x10 * usize::from(ENTRIES));
    bench.host.map(HEAD, 8);
    bench.host.map(DATA, 0x1_0000);
    bench.write(reg(port::SEND_DMA_BASE), RING);
    let len = port::SendDmaLenGen::default().with_length(ENTRIES);
    bench.write(reg(port::SEND_DMA_LEN_GEN), len.0);
    bench.write(reg(port::SEND_DMA_LEN_GEN), len.with_generation(4).0);
    bench.write(reg(port::SEND_DMA_TAIL), 0);
    bench.write(reg(port::SEND_DMA_RELOAD_CNT), 64);
    bench.write(reg(port::SEND_DMA_HEAD_ADDR), HEAD);
    bench.write(port::SEND_DMA_BUF_MASK.port(P).index(2).offset(), 0xF);
}

/// Writes `SendCtrl_p`: enabled, with interrupts, and what `change` makes of it.
fn control(bench: &mut Bench, change: impl Fn(port::SendCtrl) -> port::SendCtrl) {
    let running =
        port::SendCtrl::default().with_send_enable(true).with_sdma_enable(true).with_sdma_int_enable(true);
    bench.write(reg(port::SEND_CTRL), change(running).0);
}

/// Forgets errors and interrupts so far.
fn quiet(bench: &mut Bench) {
    for clear in [device::ERR_CLEAR.offset(), device::HW_ERR_CLEAR.offset(), reg(port::ERR_CLEAR)] {
        bench.write(clear, u64::MAX);
    }
    bench.write(device::INT_CLEAR.offset(), u64::MAX);
}

fn port_errors(bench: &mut Bench) -> PortErrBits {
    PortErrBits::from_bits_retain(bench.read(reg(port::ERR_STATUS)))
}

fn interrupts(bench: &mut Bench) -> IntBits {
    IntBits::from_bits_retain(bench.read(device::INT_STATUS.offset()))
}

fn head(bench: &mut Bench) -> u16 {
    port::SendDmaHead(bench.read(reg(port::SEND_DMA_HEAD))).send_dma_head()
}

fn status(bench: &mut Bench) -> port::SendDmaStatus {
    port::SendDmaStatus(bench.read(reg(port::SEND_DMA_STATUS)))
}

/// Puts PBC and a UC packet of `len_dwords` to `DATA + at`; returns its bytes without the PBC.
fn packet(bench: &mut Bench, at: u64, len_dwords: u16) -> Vec<u8> {
    let mut bytes = vec![0, 2, 0, 1, (len_dwords >> 8) as u8, len_dwords as u8, 0, 2];
    bytes.extend([0x24, 0, 0xFF, 0xFF, 0, 0, 0, 7, 0, 0, 0, 0]);
    bytes.extend((bytes.len()..4 * usize::from(len_dwords - 1)).map(|n| n as u8));
    put(bench, DATA + at, &Pbc::for_port(P, len_dwords).0.to_le_bytes());
    put(bench, DATA + at + 8, &bytes);
    bytes
}

fn put(bench: &mut Bench, iova: u64, bytes: &[u8]) {
    bench.host.poke(iova, bytes);
}

fn piece(at: u64, offset: u16, len_dwords: u16) -> SdmaDesc {
    let mut desc = SdmaDesc::new(DATA + at, usize::from(len_dwords)).expect("aligned and short");
    desc.word0 = desc.word0.with_buf_offset(offset);
    desc
}

fn flags(desc: SdmaDesc, first: bool, last: bool) -> SdmaDesc {
    SdmaDesc { word0: desc.word0.with_first(first).with_last(last), ..desc }
}

/// A packet of `len_dwords` at `DATA + at` in one piece.
fn whole(at: u64, len_dwords: u16) -> SdmaDesc {
    flags(piece(at, 0, len_dwords + 1), true, true)
}

fn post(bench: &mut Bench, index: u16, desc: SdmaDesc) {
    put(bench, RING + 16 * u64::from(index), &desc.build());
}

fn ring_up_to(bench: &mut Bench, tail: u16) {
    bench.write(reg(port::SEND_DMA_TAIL), tail.into());
}

fn outgoing(bench: &mut Bench) -> Option<Vec<u8>> {
    bench.chip.take_outgoing(P).map(|packet| packet.bytes)
}

#[test]
fn packet_of_three_pieces_leaves_whole_through_a_buffer_of_the_mask() {
    let mut bench = ready();
    let bytes = packet(&mut bench, 0, 40);
    post(&mut bench, 0, flags(piece(0, 0, 9), true, false));
    post(&mut bench, 1, piece(36, 9, 20));
    post(&mut bench, 2, flags(piece(116, 29, 12), false, true));
    ring_up_to(&mut bench, 2);
    assert_eq!((outgoing(&mut bench), head(&mut bench)), (None, 2), "its last piece is still to come");
    let used = bench.read(port::SEND_DMA_BUF_USED.port(P).index(2).offset());
    assert_eq!((used, status(&mut bench).scb_empty()), (1, false));
    ring_up_to(&mut bench, 3);
    assert_eq!((outgoing(&mut bench), head(&mut bench)), (Some(bytes), 3));
    let words =
        AvailWords(std::array::from_fn(|n| bench.read(area::SEND_BUF_AVAIL.index(n as u32).offset())));
    let state = words.state(Buffer::new(LARGE0).expect("exists"));
    assert_eq!((state.busy, state.check), (false, true));
    assert_eq!(status(&mut bench).0, 0x4200_0000 | 3 | 128 << 16 | 3 << 47);
    assert_eq!(bench.read(reg(counter::TX_SDMA_DESC_CNT)), 3);
    assert_eq!(bench.read(reg(counter::TX_DATA_PKT_CNT)), 1);
    assert_eq!(port_errors(&mut bench), PortErrBits::empty());
}

#[test]
fn ring_wraps_into_the_next_generation_and_a_stale_descriptor_stops_it() {
    let mut bench = ready();
    packet(&mut bench, 0, 20);
    let of = |generation| {
        let desc = whole(0, 20);
        SdmaDesc { word0: desc.word0.with_generation(generation), ..desc }
    };
    for index in 0..ENTRIES {
        post(&mut bench, index, of(0));
    }
    ring_up_to(&mut bench, ENTRIES - 1);
    ring_up_to(&mut bench, 0);
    assert_eq!(head(&mut bench), 0);
    post(&mut bench, 0, of(1));
    ring_up_to(&mut bench, 2);
    assert_eq!(head(&mut bench), 1, "the second is of the round before");
    assert_eq!(port_errors(&mut bench), PortErrBits::SDMA_GEN_MISMATCH_ERR | PortErrBits::SDMA_HALT_ERR);
    let sent = std::iter::from_fn(|| outgoing(&mut bench)).count();
    assert_eq!(sent, usize::from(ENTRIES) + 1);
    assert!(status(&mut bench).internal_sdma_halt());
    assert_eq!(bench.chip.account().sdma_faults, [1, 0]);
}

#[test]
fn head_is_written_and_interrupts_come_only_when_a_descriptor_asks() {
    let mut bench = ready();
    packet(&mut bench, 0, 20);
    let plain = whole(0, 20);
    post(&mut bench, 0, plain);
    post(&mut bench, 1, SdmaDesc { word0: plain.word0.with_dma_head(true), ..plain });
    post(&mut bench, 2, SdmaDesc { word0: plain.word0.with_intr(true), ..plain });
    ring_up_to(&mut bench, 1);
    assert_eq!((bench.host.qword(HEAD), interrupts(&mut bench)), (0, IntBits::empty()));
    ring_up_to(&mut bench, 2);
    assert_eq!((bench.host.qword(HEAD), interrupts(&mut bench)), (2, IntBits::empty()));
    ring_up_to(&mut bench, 3);
    assert_eq!((bench.host.qword(HEAD), interrupts(&mut bench)), (2, IntBits::SDMA_INT_0));
}

/// B35: the last packet is told of too, though none follows it.
#[test]
fn idle_timer_writes_the_head_and_interrupts_once_after_the_last_descriptor() {
    let mut bench = ready();
    packet(&mut bench, 0, 20);
    post(&mut bench, 0, whole(0, 20));
    ring_up_to(&mut bench, 1);
    bench.pass(Duration::from_nanos(256));
    assert_eq!(bench.read(reg(port::SEND_DMA_IDLE_CNT)), 63);
    bench.pass(Duration::from_nanos(63 * 256));
    assert_eq!((bench.host.qword(HEAD), interrupts(&mut bench)), (1, IntBits::SDMA_IDLE_INT_0));
    bench.write(device::INT_CLEAR.offset(), u64::MAX);
    bench.settle();
    bench.pass(Duration::from_millis(1));
    assert_eq!(interrupts(&mut bench), IntBits::empty());
}

#[test]
fn progress_interrupt_comes_every_desc_count_descriptors() {
    let mut bench = ready();
    packet(&mut bench, 0, 20);
    bench.write(reg(port::SEND_DMA_DESC_CNT), 3);
    for index in 0..6 {
        post(&mut bench, index, whole(0, 20));
    }
    let mut heads = Vec::new();
    for tail in 1..=6 {
        ring_up_to(&mut bench, tail);
        if interrupts(&mut bench).contains(IntBits::SDMA_PROGRESS_INT_0) {
            heads.push(bench.host.qword(HEAD));
        }
        bench.write(device::INT_CLEAR.offset(), u64::MAX);
    }
    assert_eq!(heads, [3, 6]);
}

#[test]
fn halt_is_told_by_an_engine_that_never_ran_and_by_one_that_runs() {
    let mut bench = Bench::new();
    bench.write(reg(port::SEND_CTRL), port::SendCtrl::default().with_sdma_halt(true).0);
    bench.settle();
    assert_eq!(port_errors(&mut bench), PortErrBits::empty(), "without SDmaIntEnable nothing is told");
    let start = port::SendCtrl::default().with_sdma_halt(true).with_sdma_int_enable(true);
    bench.write(reg(port::SEND_CTRL), start.0);
    assert!(status(&mut bench).halt_in_prog());
    bench.settle();
    assert_eq!(port_errors(&mut bench), PortErrBits::SDMA_HALT_ERR);
    let done = status(&mut bench);
    assert!(done.internal_sdma_halt() && done.scb_empty() && !done.halt_in_prog());
    bench.write(reg(port::ERR_CLEAR), u64::MAX);
    control(&mut bench, |c| c.with_sdma_halt(true));
    bench.settle();
    assert_eq!(port_errors(&mut bench), PortErrBits::empty(), "it is halted already");
    control(&mut bench, |c| c);
    assert!(!status(&mut bench).internal_sdma_halt());
    control(&mut bench, |c| c.with_sdma_halt(true));
    bench.settle();
    assert_eq!(port_errors(&mut bench), PortErrBits::SDMA_HALT_ERR);
}

#[test]
fn halted_engine_takes_nothing_in_and_goes_on_where_it_stood() {
    let mut bench = ready();
    packet(&mut bench, 0, 20);
    post(&mut bench, 0, whole(0, 20));
    control(&mut bench, |c| c.with_sdma_halt(true));
    ring_up_to(&mut bench, 1);
    bench.settle();
    assert_eq!((head(&mut bench), outgoing(&mut bench)), (0, None));
    control(&mut bench, |c| c);
    assert_eq!((head(&mut bench), outgoing(&mut bench).is_some()), (1, true));
}

#[test]
fn clean_up_after_an_error_lets_the_ring_start_anew() {
    let mut bench = ready();
    packet(&mut bench, 0, 20);
    post(&mut bench, 0, flags(piece(0, 0, 9), true, false));
    post(&mut bench, 1, piece(36, 10, 4));
    ring_up_to(&mut bench, 2);
    assert_eq!(port_errors(&mut bench), PortErrBits::SDMA_MISSING_DW_ERR | PortErrBits::SDMA_HALT_ERR);
    control(&mut bench, |c| c.with_sdma_halt(true));
    control(&mut bench, |c| c);
    assert!(status(&mut bench).internal_sdma_halt(), "the error outlasts SDmaHalt");
    control(&mut bench, |c| c.with_sdma_halt(true).with_sdma_cleanup(true));
    let kept = port::SendCtrl(bench.read(reg(port::SEND_CTRL)));
    assert!(kept.sdma_halt() && !kept.sdma_cleanup(), "the command does not stick");
    bench.settle();
    assert!(interrupts(&mut bench).contains(IntBits::SDMA_CLEANUP_DONE_0));
    let used = bench.read(port::SEND_DMA_BUF_USED.port(P).index(2).offset());
    assert_eq!((head(&mut bench), used), (0, 0));
    assert_eq!(bench.chip.account().dropped(P, Drop::SendDescriptor), 1);
    let bytes = packet(&mut bench, 0, 20);
    post(&mut bench, 0, whole(0, 20));
    control(&mut bench, |c| c);
    ring_up_to(&mut bench, 1);
    assert_eq!(outgoing(&mut bench), Some(bytes));
}

/// What the engine says to one descriptor, or to a begun packet and one descriptor.
fn said_to(begun: bool, desc: SdmaDesc) -> PortErrBits {
    let mut bench = ready();
    packet(&mut bench, 0, 20);
    let tail = u16::from(begun);
    if begun {
        post(&mut bench, 0, flags(piece(0, 0, 9), true, false));
    }
    post(&mut bench, tail, desc);
    ring_up_to(&mut bench, tail + 1);
    assert_eq!(head(&mut bench), tail, "the head stays at the descriptor that is wrong");
    assert_eq!(outgoing(&mut bench), None);
    assert_eq!(bench.chip.account().sdma_faults, [1, 0]);
    port_errors(&mut bench) - PortErrBits::SDMA_HALT_ERR
}

#[test]
fn every_fault_of_a_descriptor_has_its_error() {
    let unaligned = SdmaDesc { word0: whole(0, 20).word0.with_address_low(DATA as u32 | 2), word1: 0 };
    let next = |offset, len, last| flags(piece(36, offset, len), false, last);
    let large = |desc: SdmaDesc| SdmaDesc { word0: desc.word0.with_use_large_buf(true), ..desc };
    let cases = [
        (false, next(0, 4, true), PortErrBits::SDMA1ST_DESC_ERR),
        (true, whole(0, 20), PortErrBits::SDMA1ST_DESC_ERR),
        (false, flags(piece(0, 1, 21), true, true), PortErrBits::SDMA1ST_DESC_ERR),
        (false, flags(piece(0, 0, 1), true, true), PortErrBits::SDMA1ST_DESC_ERR),
        (false, unaligned, PortErrBits::SDMA_DESC_ADDR_MISALIGN_ERR),
        (true, next(9, 0, false), PortErrBits::SDMA_DW_EN_ERR),
        (true, next(9, 536, false), PortErrBits::SDMA_OUT_OF_BOUND_ERR),
        (true, large(next(9, 1048, false)), PortErrBits::SDMA_OUT_OF_BOUND_ERR),
        (false, large(flags(piece(0, 0, 1057), true, false)), PortErrBits::SDMA_OUT_OF_BOUND_ERR),
        (true, next(10, 4, false), PortErrBits::SDMA_MISSING_DW_ERR),
        (true, next(8, 4, false), PortErrBits::SDMA_MISSING_DW_ERR),
        (true, next(9, 11, true), PortErrBits::SDMA_MISSING_DW_ERR),
        (true, next(9, 13, true), PortErrBits::SDMA_UNEXP_DATA_ERR),
    ];
    for (n, (begun, desc, expected)) in cases.into_iter().enumerate() {
        assert_eq!(said_to(begun, desc), expected, "case {n}");
    }
}

#[test]
fn ring_out_of_bounds_is_told() {
    let mut bench = ready();
    ring_up_to(&mut bench, ENTRIES);
    assert_eq!(port_errors(&mut bench), PortErrBits::SDMA_TAIL_OUT_OF_BOUND_ERR | PortErrBits::SDMA_HALT_ERR);
    for (base, length, expected) in [
        (RING + 8, ENTRIES, PortErrBits::SDMA_BASE_ERR),
        ((1 << 48) - 0x100, ENTRIES + 1, PortErrBits::SDMA_BASE_ERR),
        (RING, 0, PortErrBits::SDMA_OUT_OF_BOUND_ERR),
    ] {
        let mut bench = ready();
        control(&mut bench, |c| c.with_sdma_halt(true));
        ring_up_to(&mut bench, 1);
        bench.write(reg(port::SEND_DMA_BASE), base);
        bench.write(reg(port::SEND_DMA_LEN_GEN), port::SendDmaLenGen::default().with_length(length).0);
        control(&mut bench, |c| c);
        assert_eq!(port_errors(&mut bench), expected | PortErrBits::SDMA_HALT_ERR);
    }
}

#[test]
fn memory_that_the_host_refuses_is_a_hardware_error() {
    let mut bench = ready();
    let desc = flags(piece(0x10_0000, 0, 21), true, true);
    post(&mut bench, 0, desc);
    ring_up_to(&mut bench, 1);
    assert_eq!(bench.read(device::HW_ERR_STATUS.offset()), HwErrBits::SDMA_MEM_READ_ERR_0.bits());
    assert_eq!(port_errors(&mut bench), PortErrBits::SDMA_HALT_ERR);
    assert_eq!(bench.chip.account().dma_refused, 1);
}

#[test]
fn pbc_for_the_other_port_or_for_management_stops_the_engine() {
    for (pbc, expected) in [
        (Pbc::for_port(Port::P1, 20), ErrBits::SDMA_WRONG_PORT_ERR),
        (Pbc::for_port(P, 20).with_vl15(true), ErrBits::SDMA_VL15_ERR),
    ] {
        let mut bench = ready();
        packet(&mut bench, 0, 20);
        put(&mut bench, DATA, &pbc.0.to_le_bytes());
        post(&mut bench, 0, whole(0, 20));
        ring_up_to(&mut bench, 1);
        assert_eq!(bench.read(device::ERR_STATUS.offset()), expected.bits());
        assert_eq!(port_errors(&mut bench), PortErrBits::SDMA_HALT_ERR);
    }
}

#[test]
fn buffer_in_both_masks_stops_both_engines() {
    let mut bench = ready();
    bench.write(port::SEND_DMA_BUF_MASK.port(Port::P1).index(2).offset(), 0x18);
    assert_eq!(bench.read(device::ERR_STATUS.offset()), ErrBits::SDMA_BUF_MASK_DUPLICATE_ERR.bits());
    assert_eq!(bench.chip.account().sdma_faults, [1, 1]);
}

#[test]
fn refused_packet_marks_its_buffer_and_the_engine_goes_on_until_all_are_marked() {
    let mut bench = ready();
    packet(&mut bench, 0, 20);
    let other_vl = Pbc::for_port(P, 20).with_vl(1);
    put(&mut bench, DATA, &other_vl.0.to_le_bytes());
    for index in 0..6 {
        post(&mut bench, index, whole(0, 20));
    }
    ring_up_to(&mut bench, 6);
    let marked = bench.read(device::SEND_BUF_ERR.index(2).offset());
    assert_eq!((marked, head(&mut bench)), (0xF, 4), "it waits for one of its four buffers");
    assert!(status(&mut bench).scb_entry_valid());
    let disarm = device::SendCtrl::default().with_disarm(true).with_disarm_send_buf(LARGE0 as u8);
    bench.write(device::SEND_CTRL.offset(), disarm.0);
    assert_eq!(head(&mut bench), 5);
}

#[test]
fn packets_wait_for_credits_in_buffers_and_descriptors_behind_them() {
    let mut bench = ready();
    packet(&mut bench, 0, 20);
    for index in 0..8 {
        post(&mut bench, index, whole(0, 20));
    }
    let none = FlowUpdate::default();
    bench.chip.take_flow_update(P, none, bench.now, &mut bench.host);
    ring_up_to(&mut bench, 8);
    assert_eq!((head(&mut bench), outgoing(&mut bench)), (4, None));
    let some = FlowUpdate { limit: [12; 8], ..none };
    bench.chip.take_flow_update(P, some, bench.now, &mut bench.host);
    let sent = std::iter::from_fn(|| outgoing(&mut bench)).count();
    assert_eq!((sent, head(&mut bench)), (6, 8), "two credits each; the rest follows into free buffers");
}

#[test]
fn link_that_goes_down_drops_what_waits_and_what_follows() {
    let mut bench = ready();
    packet(&mut bench, 0, 20);
    for index in 0..6 {
        post(&mut bench, index, whole(0, 20));
    }
    bench.chip.take_flow_update(P, FlowUpdate::default(), bench.now, &mut bench.host);
    ring_up_to(&mut bench, 6);
    assert_eq!(head(&mut bench), 4);
    bench.peer(P, PeerState::Silent);
    assert_eq!(head(&mut bench), 6);
    assert!(port_errors(&mut bench).contains(PortErrBits::SEND_DROPPED_DATA_PKT_ERR));
    assert_eq!(bench.chip.account().dropped(P, Drop::SendLinkDown), 6);
}

#[test]
fn drain_with_halt_empties_the_buffers() {
    let mut bench = ready();
    packet(&mut bench, 0, 20);
    for index in 0..6 {
        post(&mut bench, index, whole(0, 20));
    }
    bench.chip.take_flow_update(P, FlowUpdate::default(), bench.now, &mut bench.host);
    ring_up_to(&mut bench, 6);
    control(&mut bench, |c| {
        c.with_sdma_halt(true).with_txe_abort_ibc(true).with_txe_bypass_ibc(true).with_txe_drain_rm_fifo(true)
    });
    bench.settle();
    assert_eq!(head(&mut bench), 4, "nothing new was taken in");
    assert!(status(&mut bench).spl_fifo_empty());
    assert_eq!(bench.chip.account().dropped(P, Drop::SendCancelled), 4);
    assert!(port_errors(&mut bench).contains(PortErrBits::SDMA_HALT_ERR));
}

#[test]
fn injected_error_is_seen_as_one_of_the_hardware() {
    let mut bench = ready();
    bench.inject(Injection::Port(P, PortErrBits::SDMA_RPY_TAG_ERR));
    assert_eq!(port_errors(&mut bench), PortErrBits::SDMA_RPY_TAG_ERR);
}

fn descriptors() -> impl Strategy<Value = (u64, u64)> {
    let near = (0u16..1200, any::<u8>(), 0u16..1200, 0u8..4, 0u64..0x300).prop_map(
        |(offset, flags, len, generation, at)| {
            let word = SdmaDesc::default().word0.with_buf_offset(offset).with_len_dwords(len);
            let word = word.with_generation(generation).with_address_low((DATA + 4 * at) as u32);
            (word.0 | u64::from(flags & 0x1F) << 11, 0)
        },
    );
    let sound = Just((whole(0, 20).word0.0, 0));
    prop_oneof![4 => near, 2 => sound, 1 => (any::<u64>(), any::<u64>())]
}

proptest! {
    /// Whatever is in the ring: no panic, and a descriptor that is not taken in has stopped the engine with an error that
    /// the account has counted, or waits for a buffer.
    #[test]
    fn garbage_in_the_ring_halts_with_an_error_and_a_count(
        ring in prop::collection::vec(descriptors(), 1..usize::from(ENTRIES)),
        pbc in prop_oneof![Just(20u64), any::<u64>(), (0u64..0x800)],
    ) {
        let mut bench = ready();
        packet(&mut bench, 0, 20);
        put(&mut bench, DATA, &pbc.to_le_bytes());
        for (index, &(word0, word1)) in ring.iter().enumerate() {
            let both = u128::from(word0) | u128::from(word1) << 64;
            put(&mut bench, RING + 16 * index as u64, &both.to_le_bytes());
        }
        ring_up_to(&mut bench, ring.len() as u16);
        bench.settle();
        let stuck = usize::from(head(&mut bench)) != ring.len();
        let faults = bench.chip.account().sdma_faults[0];
        let halted = port_errors(&mut bench).contains(PortErrBits::SDMA_HALT_ERR);
        prop_assert_eq!(halted, faults == 1);
        let full = bench.read(port::SEND_DMA_BUF_USED.port(P).index(2).offset()) == 0xF;
        prop_assert_eq!(stuck, halted || full);
        prop_assert_eq!(bench.chip.account().dma_refused, bench.host.refused);
        control(&mut bench, |c| c.with_sdma_halt(true).with_sdma_cleanup(true));
        bench.settle();
        let done = status(&mut bench);
        prop_assert!(done.scb_empty() && done.internal_sdma_halt() && head(&mut bench) == 0);
    }
}
