//! Completion queues alone.

use super::*;
use crate::harness::Rng;

const NOW: Instant = Instant::ZERO;

fn wc(wr_id: u64) -> Wc {
    Wc { wr_id, status: WcStatus::Success, ..Wc::EMPTY }
}

/// B59: polling never passes what was filled, and sees each completion once, whatever the order of calls.
#[test]
fn any_order_of_push_and_poll_sees_each_completion_once() {
    let mut rng = Rng::new(59);
    for start in [0, u32::MAX - 5, (1 << 31) - 3] {
        let mut cq = Cq::new(7).expect("a queue");
        cq.start_at(start);
        let (mut pushed, mut seen) = (0, 0);
        for _ in 0..10_000 {
            if rng.chance(500) && cq.len() < cq.depth() {
                assert_eq!(cq.push(wc(pushed), false, NOW), Pushed::Quiet);
                pushed += 1;
            } else {
                let mut some = [Wc::EMPTY; 3];
                let count = cq.poll(&mut some[..rng.below(4) as usize]);
                for wc in &some[..count] {
                    assert_eq!(wc.wr_id, seen, "in order, once");
                    seen += 1;
                }
            }
            assert_eq!(u64::from(cq.len()), pushed - seen);
        }
    }
}

/// B60: arming again and again without a poll asks for one event, and gets one.
#[test]
fn queue_armed_three_times_raises_one_event() {
    let mut cq = Cq::new(4).expect("a queue");
    for _ in 0..3 {
        assert!(!cq.arm(Arm::Next, NOW), "nothing waits");
    }
    assert_eq!(cq.push(wc(1), false, NOW), Pushed::Event);
    assert_eq!(cq.push(wc(2), false, NOW), Pushed::Quiet, "not armed any more");
    assert!(cq.arm(Arm::Next, NOW), "what waits must be polled: it raises no event");
}

/// Trap 1 of completion queues: arming for solicited ones neither strands nor weakens a stronger wish.
#[test]
fn solicited_arm_waits_for_solicited_or_failed_and_never_weakens_next() {
    let mut cq = Cq::new(8).expect("a queue");
    cq.arm(Arm::Solicited, NOW);
    assert_eq!(cq.push(wc(1), false, NOW), Pushed::Quiet);
    assert_eq!(cq.push(wc(2), true, NOW), Pushed::Event);
    cq.arm(Arm::Solicited, NOW);
    let failed = Wc { status: WcStatus::Flushed, ..wc(3) };
    assert_eq!(cq.push(failed, false, NOW), Pushed::Event, "a failure is always urgent");
    cq.arm(Arm::Next, NOW);
    cq.arm(Arm::Solicited, NOW);
    assert_eq!(cq.push(wc(4), false, NOW), Pushed::Event, "the stronger wish holds");
}

/// B63: a queue of the largest size is made, one larger or of none is refused; to the brim is fine, one more fails once.
#[test]
fn queue_filled_to_its_depth_is_fine_and_one_more_fails_it_once() {
    for depth in [0, CQ_DEPTH_MAX + 1] {
        assert_eq!(Cq::new(depth).err(), Some(CqError::Depth { asked: depth, max: CQ_DEPTH_MAX }));
    }
    for depth in [1, 2, 3, 8] {
        let mut cq = Cq::new(depth).expect("a queue");
        for n in 0..depth {
            assert_eq!(cq.push(wc(u64::from(n)), false, NOW), Pushed::Quiet, "{n} of {depth}");
        }
        assert_eq!(cq.push(wc(99), false, NOW), Pushed::Overflow);
        assert_eq!(cq.push(wc(99), false, NOW), Pushed::Lost);
        assert_eq!(cq.lost(), 2);
    }
    assert!(Cq::new(CQ_DEPTH_MAX).is_ok());
}

/// B62: completions of a queue pair that is gone vanish, the rest keeps its order, also where the indices wrap.
#[test]
fn forgotten_queue_pair_leaves_the_others_in_order_across_the_wrap() {
    use crate::ids::QpNumber;
    for start in [u32::MAX - 2, (1 << 31) - 2, 0] {
        let mut cq = Cq::new(8).expect("a queue");
        cq.start_at(start);
        for n in 0..8 {
            let qp = QpNumber::new(n as u32 % 3);
            cq.push(Wc { qp, ..wc(n) }, false, NOW);
        }
        cq.forget(|wc| wc.qp == QpNumber::new(1));
        let mut left = [Wc::EMPTY; 8];
        let count = cq.poll(&mut left);
        let ids: Vec<u64> = left[..count].iter().map(|wc| wc.wr_id).collect();
        assert_eq!(ids, [0, 2, 3, 5, 6], "start {start}");
    }
}

#[test]
fn resize_keeps_what_waits_and_refuses_to_lose_it() {
    let mut cq = Cq::new(4).expect("a queue");
    (0..4).for_each(|n| assert_eq!(cq.push(wc(n), false, NOW), Pushed::Quiet));
    assert_eq!(cq.resize(3), Err(CqError::HoldsMore { waiting: 4, asked: 3 }));
    cq.resize(9).expect("more room");
    assert_eq!(cq.push(wc(4), false, NOW), Pushed::Quiet);
    let mut all = [Wc::EMPTY; 9];
    assert_eq!(cq.poll(&mut all), 5);
    assert!(all[..5].iter().enumerate().all(|(n, wc)| wc.wr_id == n as u64));
}
