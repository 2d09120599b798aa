//! A context against a chip's pen: stories first, then garbage.

use proptest::prelude::*;
use qhca_regs::layout::{PacketType, RhfErrors};

use super::*;
use crate::rx::{EagerShape, Malformed, QueueShape};
use crate::shared::DeviceState;
use crate::testing::{Access, ChipPen, PEN_HEADER_DWORDS, PlainMapper, RecordingBar};
use qhca_regs::map::device;

const ENTRIES: u32 = 64;
const EAGER: u32 = 48;
const CTXT: usize = 1;

fn context() -> (Context, ChipPen, Arc<DeviceShared>) {
    let queue = QueueShape::new(ENTRIES, 32).expect("a shape");
    let eager = EagerShape::new(0, EAGER, 2048).expect("a shape");
    let memory = ContextMemory::allocate(&mut PlainMapper::default(), queue, eager).expect("memory");
    let shared = crate::testing::shared(crate::fault::Policy::Guarded);
    let ctxt = Ctxt::new(CTXT).expect("a context");
    let pen = ChipPen::new(memory.clone());
    let setup = ContextSetup { ctxt, port: Port::P1, memory, shared: shared.clone(), timeout: 375 };
    (Context::new(setup), pen, shared)
}

fn drain(context: &mut Context, budget: usize, bar: &RecordingBar) -> (Drained, Vec<u32>) {
    let mut fills = Vec::new();
    let drained = context.drain(budget, bar, Instant::ZERO, |arrival| {
        if let Arrival::Packet(packet) = arrival {
            fills.push(packet.payload.be_u32(0).map_or(0, u32::swap_bytes));
        }
    });
    (drained, fills)
}

fn head_offset() -> u32 {
    user::RCV_HDR_HEAD.index(CTXT as u32).offset()
}

fn egr_head_offset() -> u32 {
    user::RCV_EGR_INDEX_HEAD.index(CTXT as u32).offset()
}

#[test]
fn packets_are_handed_out_in_order_with_header_and_payload_in_place() {
    let (mut context, mut pen, _) = context();
    let bar = RecordingBar::default();
    pen.packet(8, 0xA1);
    pen.packet(0, 0);
    pen.packet(512, 0xA2);
    let mut seen = Vec::new();
    context.drain(64, &bar, Instant::ZERO, |arrival| match arrival {
        Arrival::Packet(packet) => {
            seen.push((
                packet.header.len(),
                packet.payload.len(),
                packet.payload.byte(0),
                packet.wire_dwords(),
            ));
        }
        other => panic!("not a packet: {other:?}"),
    });
    let header = PEN_HEADER_DWORDS as usize * 4;
    assert_eq!(seen, [(header, 32, Some(0xA1), 16), (header, 0, None, 8), (header, 2048, Some(0xA2), 520)]);
    assert_eq!((context.counts().packets, context.counts().dwords), (3, 544));
}

#[test]
fn emptied_queue_returns_space_in_the_chips_order_and_arms_once_without_a_read() {
    let (mut context, mut pen, _) = context();
    let bar = RecordingBar::default();
    pen.packet(8, 1);
    pen.packet(8, 2);
    context.moderate(RcvSetting { timeout_ticks: 187, count_packets: 16 });
    let (drained, fills) = drain(&mut context, 64, &bar);
    assert_eq!(drained, Drained { entries: 2, next: Next::Wait });
    assert_eq!(fills, [1, 2]);
    let head = (2 * 32) | (16 << 32);
    let timeout = device::RCV_AVAIL_TIMEOUT.index(CTXT as u32).offset();
    assert_eq!(
        bar.take_log(),
        [
            Access::Write(timeout, 187),
            Access::Write(egr_head_offset(), 1),
            Access::Write(head_offset(), head),
            Access::Write(head_offset(), head),
        ]
    );
    // Nothing new: the timer does not change again, no buffer was used.
    drain(&mut context, 64, &bar);
    assert_eq!(bar.take_log(), [Access::Write(head_offset(), head), Access::Write(head_offset(), head)]);
}

#[test]
fn long_drain_returns_space_every_thirty_two_packets_and_says_that_there_is_more() {
    let (mut context, mut pen, _) = context();
    let bar = RecordingBar::default();
    (0..46).for_each(|n| pen.packet(4, n));
    let (drained, fills) = drain(&mut context, 40, &bar);
    assert_eq!(drained, Drained { entries: 40, next: Next::More });
    assert_eq!(fills, (0..40).collect::<Vec<_>>());
    let unarmed = |packets: u64| packets * 32;
    assert_eq!(bar.writes_to(head_offset()), [unarmed(32), unarmed(32), unarmed(40), unarmed(40)]);
    assert_eq!(bar.writes_to(egr_head_offset()), [31, 39]);
    bar.take_log();
    let (drained, _) = drain(&mut context, 40, &bar);
    assert_eq!(drained, Drained { entries: 6, next: Next::Wait });
    assert_eq!(bar.writes_to(head_offset()), [(46 * 32) | (16 << 32); 2]);
    assert_eq!(context.counts().deepest_backlog, 46);
    assert_eq!(context.counts().low_water, 1, "46 of 48 buffers in a row");
}

#[test]
fn queue_and_sequence_wrap_together() {
    let (mut context, mut pen, _) = context();
    let bar = RecordingBar::default();
    for round in 0..20 {
        (0..30).for_each(|n| pen.packet(1, round * 100 + n));
        let (_, fills) = drain(&mut context, 64, &bar);
        assert_eq!(fills, (0..30).map(|n| round * 100 + n).collect::<Vec<_>>());
    }
    assert_eq!(context.counts().eager_skipped, 0);
    assert_eq!(bar.reads(), 0);
}

/// A bar on which a packet arrives at the moment the interrupt is armed.
struct ArrivesOnArm(std::cell::RefCell<Option<ChipPen>>);

impl Bar for ArrivesOnArm {
    fn read(&self, _offset: u32) -> u64 {
        panic!("a drain reads no register");
    }
    fn write(&self, _offset: u32, value: u64) {
        if value >> 32 != 0
            && let Some(mut pen) = self.0.take()
        {
            pen.packet(1, 77);
        }
    }
    fn doorbell(&self, offset: u32, value: u64) {
        self.write(offset, value);
    }
    fn burst(&self, _offset: u32, _dwords: &[u32]) {}
}

/// Trap 1, the context's half: what comes between the last look and the arming is found by the second look.
#[test]
fn packet_that_comes_while_arming_is_not_left_behind() {
    let (mut context, pen, _) = context();
    let bar = ArrivesOnArm(std::cell::RefCell::new(Some(pen)));
    let mut nothing = |_: Arrival<'_>| ();
    let drained = context.drain(64, &bar, Instant::ZERO, &mut nothing);
    assert_eq!(drained, Drained { entries: 0, next: Next::More });
    let drained = context.drain(64, &bar, Instant::ZERO, &mut nothing);
    assert_eq!(drained, Drained { entries: 1, next: Next::Wait });
}

/// B22: the same index comes again and again with a TID error, then buffers are passed over; nothing is lost count of.
#[test]
fn overflow_repeats_an_index_and_skips_buffers_and_the_context_goes_on() {
    let (mut context, mut pen, _) = context();
    let bar = RecordingBar::default();
    (0..EAGER).for_each(|n| pen.packet(4, n));
    let full = pen.good_rhf(4, 0).with_errors(RhfErrors::TID);
    (0..5).for_each(|_| pen.entry(full));
    let (_, fills) = drain(&mut context, 64, &bar);
    assert_eq!(fills.len(), EAGER as usize);
    assert_eq!(context.counts().no_buffer, 5);
    assert_eq!(
        bar.writes_to(egr_head_offset()).last(),
        Some(&u64::from(EAGER - 1)),
        "a refused packet used no buffer"
    );
    // The chip goes on with buffer 3: 0 to 2 were passed over.
    pen.next_eager = 3;
    pen.packet(4, 99);
    let (_, fills) = drain(&mut context, 64, &bar);
    assert_eq!(fills, [99]);
    assert_eq!(context.counts().eager_skipped, 3);
    assert_eq!(bar.writes_to(egr_head_offset()).last(), Some(&3), "the skipped ones go back with it");
    assert_eq!(context.counts().entries(), u64::from(EAGER) + 6);
}

#[test]
fn faulty_packets_are_counted_by_kind_and_their_buffer_goes_back() {
    let (mut context, mut pen, _) = context();
    let bar = RecordingBar::default();
    pen.entry(pen.good_rhf(4, 0).with_errors(RhfErrors::ICRC | RhfErrors::LEN));
    pen.entry(pen.good_rhf(4, 1).with_kind(PacketType::Error));
    let (drained, fills) = drain(&mut context, 64, &bar);
    assert_eq!((drained.entries, fills.len()), (2, 0));
    let by_kind = context.counts().damaged_by_kind;
    assert_eq!((by_kind[31 - 21], by_kind[28 - 21], by_kind.iter().sum::<u64>()), (1, 1, 2));
    assert_eq!(context.counts().damaged, 2);
    assert_eq!(bar.writes_to(egr_head_offset()), [1]);
}

#[test]
fn entries_that_contradict_themselves_are_named_and_passed_over() {
    let (mut context, mut pen, _) = context();
    let bar = RecordingBar::default();
    let good = pen.good_rhf(4, 0);
    pen.entry(good.with_hdrq_offset(29));
    pen.entry(good.with_len_dwords(7));
    pen.entry(good.with_len_dwords(7 + 512 + 1 + 1));
    pen.entry(good.with_egr_index(EAGER as u16));
    pen.entry(good.with_uses_egr_buf(false));
    pen.entry(good.with_kind(PacketType::Unknown(5)));
    pen.entry_with_lrh(good, (13_u32 << 16).swap_bytes());
    let mut why = Vec::new();
    context.drain(64, &bar, Instant::ZERO, |arrival| match arrival {
        Arrival::Malformed { why: reason, .. } => why.push(reason),
        other => panic!("taken for good: {other:?}"),
    });
    let wanted = [
        Malformed::HeaderOffset,
        Malformed::TooShort,
        Malformed::TooLong,
        Malformed::EagerIndex,
        Malformed::TooLong,
        Malformed::Kind,
        Malformed::LengthMismatch,
    ];
    assert_eq!(why, wanted);
    assert_eq!(context.counts().malformed, 7);
}

#[test]
fn batch_is_short_while_the_error_worker_is_wanted() {
    let (mut context, mut pen, shared) = context();
    let bar = RecordingBar::default();
    (0..50).for_each(|n| pen.packet(0, n));
    let _ = shared.handover().schedule(qhca_irq::Reasons::DEVICE, false, Instant::ZERO);
    let (drained, _) = drain(&mut context, 64, &bar);
    assert_eq!(drained, Drained { entries: BATCH_WHILE_ERRORS_PENDING, next: Next::More });
    let turn = shared.handover().begin(Instant::ZERO).expect("a turn");
    shared.handover().end(turn);
    assert_eq!(drain(&mut context, 64, &bar).0, Drained { entries: 18, next: Next::Wait });
}

#[test]
fn context_that_overflowed_takes_more_until_its_queue_is_under_a_quarter_full() {
    let (mut context, mut pen, shared) = context();
    let bar = RecordingBar::default();
    (0..ENTRIES - 1).for_each(|n| pen.packet(0, n));
    shared.note_overflow(context.ctxt());
    let (drained, _) = drain(&mut context, 16, &bar);
    assert_eq!(drained, Drained { entries: 32, next: Next::More });
    assert!(context.is_quarter_full() && shared.has_overflowed(context.ctxt()));
    let (drained, _) = drain(&mut context, 16, &bar);
    assert_eq!(drained.entries, 31);
    assert!(!shared.has_overflowed(context.ctxt()));
    assert_eq!(context.counts().boosts, 1);
}

/// Trap 4 and B04: nothing touches the bar of a device that is gone or closed.
#[test]
fn drain_of_a_device_that_is_gone_touches_nothing() {
    let (mut context, mut pen, shared) = context();
    let bar = RecordingBar::default();
    pen.packet(4, 1);
    shared.worsen(DeviceState::Gone);
    assert_eq!(drain(&mut context, 64, &bar).0, Drained { entries: 0, next: Next::Gone });
    context.arm(&bar);
    assert_eq!(context.resync(&bar), 0);
    assert_eq!(bar.take_log(), []);
}

#[test]
fn lost_sequence_number_is_found_again_by_the_tail() {
    let (mut context, mut pen, _) = context();
    let bar = RecordingBar::default();
    pen.packet(0, 1);
    drain(&mut context, 64, &bar);
    pen.seq = pen.seq.next();
    (0..3).for_each(|n| pen.packet(0, n));
    assert_eq!(drain(&mut context, 64, &bar).0.entries, 0);
    let tail = user::RCV_HDR_TAIL.index(CTXT as u32).offset();
    bar.set(tail, 4 * 32);
    assert_eq!(context.resync(&bar), 3);
    assert_eq!((context.counts().resyncs, context.counts().lost_in_resync), (1, 3));
    pen.packet(0, 9);
    assert_eq!(drain(&mut context, 64, &bar).0.entries, 1);
    // In step again: there is nothing to find.
    bar.set(tail, 5 * 32);
    assert_eq!(context.resync(&bar), 0);
}

#[test]
fn tail_that_points_nowhere_is_ignored() {
    let (mut context, _, _) = context();
    let bar = RecordingBar::default();
    let tail = user::RCV_HDR_TAIL.index(CTXT as u32).offset();
    for garbage in [u64::MAX, u64::MAX - 1, 33, 64 * 32, 1 << 40] {
        bar.set(tail, garbage);
        assert_eq!(context.resync(&bar), 0, "tail {garbage:#x}");
    }
    assert_eq!(context.counts().resyncs, 0);
}

proptest! {
    /// Every word that the chip can write is survived, counted once, and leaves the queue in step.
    #[test]
    fn any_rhf_is_counted_once_and_the_next_packet_is_read(words in prop::collection::vec(any::<u64>(), 1..40), lrh in any::<u32>()) {
        let (mut context, mut pen, _) = context();
        let bar = RecordingBar::default();
        for &word in &words {
            pen.entry_with_lrh(Rhf(word), lrh);
        }
        let mut handed = 0_u64;
        let mut drained = 0;
        while context.has_packet() {
            drained += context.drain(64, &bar, Instant::ZERO, |arrival| {
                handed += 1;
                // Every view can be read to its end.
                match arrival {
                    Arrival::Packet(packet) => {
                        packet.header.to_vec();
                        packet.payload.to_vec();
                    }
                    Arrival::NoBuffer { header } | Arrival::Damaged { header, .. } => { header.to_vec(); }
                    Arrival::Malformed { .. } => {}
                }
            }).entries;
        }
        prop_assert_eq!(drained, words.len());
        prop_assert_eq!(handed, words.len() as u64);
        prop_assert_eq!(context.counts().entries(), words.len() as u64);
        for head in bar.writes_to(egr_head_offset()) {
            prop_assert!(head < u64::from(EAGER));
        }
        pen.next_eager = 0;
        pen.packet(4, 5);
        let (_, fills) = drain(&mut context, 64, &bar);
        prop_assert_eq!(fills, [5]);
    }

    /// Memory full of garbage, not in step with anything: no panic, and no more entries than the queue can hold in a call.
    #[test]
    fn queue_overwritten_with_garbage_never_panics(seed in any::<u64>(), budget in 0_usize..200) {
        let (mut context, _, _) = context();
        let bar = RecordingBar::default();
        let mut state = seed | 1;
        for word in 0..context.memory().queue_shape().len_bytes() / 8 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            context.memory().queue().memory().store_u64(word * 8, state ^ state >> 29);
        }
        for tail in [seed, seed % 2048] {
            let (drained, _) = drain(&mut context, budget, &bar);
            prop_assert!(drained.entries <= budget.max(1));
            bar.set(user::RCV_HDR_TAIL.index(CTXT as u32).offset(), tail);
            context.resync(&bar);
        }
    }
}
