//! The storm against a sender that repeats: what the window decides, and what the guarded policy keeps.
//!
//! Nothing here asks for the published figure itself, and no cost is set for a cell.
#![allow(missing_docs)]
#![forbid(unsafe_code)]

use qhca_driver::options::Options;
use qhca_driver::rx::RELEASE_EVERY;
use qhca_lab::storm::{self, Case, Costs, Detail, Policy, Storm, Transport, run_in_detail};
use qhca_regs::Duration;
use qhca_sim::vtime::{Order, Seed};

/// Eager buffers of the receiving context: what a QLE7340's first context has.
const EAGER_BUFFERS: u32 = 2048;
const WIDE: u32 = 65_536;
/// A packet's time on the wire, which is in `storm.toml`.
fn wire_ns() -> u64 {
    storm_costs().wire.as_nanos()
}

/// How long is measured, from the stall's end.
const MEASURED: Duration = Duration::from_millis(80);

fn storm_costs() -> Costs {
    Costs::from_parameters(&storm::parameters()).expect("the file is complete")
}

fn run(policy: Policy, window_packets: u32, receive_ns: u64) -> Detail {
    let receive = Duration::from_nanos(receive_ns);
    let case = Case {
        policy,
        storm: Storm::EgrFull,
        order: Order::ErrorsFirst,
        options: Options::default(),
        transport: Transport::Rc,
        seed: Seed(1),
        costs: Costs { window_packets, receive, measure: MEASURED, ..storm_costs() },
        hardware_fault: None,
    };
    run_in_detail(&case).expect("the run can be made")
}

fn share(policy: Policy, window: u32, receive_ns: u64) -> f64 {
    let goodput = |policy| run(policy, window, receive_ns).measured.goodput_mb_s();
    goodput(policy) / goodput(Policy::Silent)
}

/// A window that the buffers hold, less those that the driver has yet to return, never overflows them: a stall delays,
/// and no storm begins. At the very number a few packets are lost, and still none begins.
#[test]
fn window_within_the_eager_buffers_gives_no_storm() {
    for policy in [Policy::Inline, Policy::Guarded] {
        let seen = run(policy, EAGER_BUFFERS - RELEASE_EVERY as u32, 645);
        assert_eq!((seen.measured.drops_model, seen.measured.error_irqs), (0, 0), "{policy:?}");
    }
    assert!(share(Policy::Inline, EAGER_BUFFERS, 645) > 0.99);
}

/// One stall, errors first, a window of 65,536 packets, over 80 ms, which is less than two windows take on the wire: more
/// than half of the goodput is lost, and what remains falls with a packet's cost. (The share does not: the control falls
/// as well, once a packet costs more than its wire time.)
#[test]
fn wide_window_loses_half_and_more_inline_and_the_rest_falls_with_a_packets_cost() {
    assert!(share(Policy::Inline, WIDE, 645) <= 0.50);
    let costs = [600, 630, 645, 680];
    let kept = costs.map(|receive_ns| run(Policy::Inline, WIDE, receive_ns).measured.goodput_mb_s());
    assert!(kept.is_sorted_by(|cheap, dear| cheap > dear), "{costs:?} ns: {kept:?} MB/s");
}

/// The storm lasts as long as the window, of which the stall has used a part already.
#[test]
fn storm_lasts_as_long_as_the_window_takes_on_the_wire() {
    let time_ns = MEASURED.as_nanos() as f64;
    for window in [WIDE / 4, WIDE / 2] {
        let lost_ns = (1.0 - share(Policy::Inline, window, 630)) * time_ns;
        let left_ns = (u64::from(window) * wire_ns() - storm_costs().stall.as_nanos()) as f64;
        assert!((0.9..1.3).contains(&(lost_ns / left_ns)), "{window}: {lost_ns} ns of {left_ns}");
    }
}

/// As long as the core keeps up with the wire, the guarded policy loses next to nothing.
#[test]
fn guarded_keeps_the_goodput_whenever_a_packet_costs_no_more_than_its_wire_time() {
    for receive_ns in [600, 630, 645, wire_ns()] {
        let kept = share(Policy::Guarded, WIDE, receive_ns);
        assert!(kept >= 0.98, "at {receive_ns} ns: {kept}");
    }
}

/// What the transport takes is what counts: every byte once, though packets are repeated.
#[test]
fn repeats_are_no_goodput_and_the_sender_does_not_give_up() {
    let seen = run(Policy::Silent, WIDE, 645);
    assert!(seen.measured.drops_model > 0, "the stall overflows the buffers");
    assert!(!seen.gave_up);
    let wire_mb_s = 2048.0 / storm::MB_BYTES * 1e9 / wire_ns() as f64;
    assert!(seen.measured.goodput_mb_s() < wire_mb_s, "{} of {wire_mb_s}", seen.measured.goodput_mb_s());
}
