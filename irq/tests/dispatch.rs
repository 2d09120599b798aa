//! Dispatch on the small chip: what is read, what is written, in which order, and what is left to do.

mod common;

use common::{Access, MiniChip};
use proptest::prelude::*;
use qhca_irq::dispatch::{FATAL, PORT_NEWS, UNKNOWN_LIMIT};
use qhca_irq::worker::{Close, TurnEnd, WORKER_DEADLINE};
use qhca_irq::{
    ContextSet, Dispatcher, ErrorPolicy, Grant, Outcome, PlanRequest, PortSet, Reasons, Source, VectorPlan,
    VectorUse, Work, WorkerCall,
};
use qhca_regs::map::{device, port as port_regs};
use qhca_regs::status::{ErrBits, IntBits, PortErrBits};
use qhca_regs::{Ctxt, Duration, Instant, Port, Vector};

const INT_STATUS: u32 = device::INT_STATUS.offset();
const INT_CLEAR: u32 = device::INT_CLEAR.offset();
const ERR_MASK: u32 = device::ERR_MASK.offset();
const T0: Instant = Instant::ZERO;

fn dispatcher_with(policy: ErrorPolicy, grant: Option<Grant>, krcvq01_no_msi: bool) -> Dispatcher {
    let request = PlanRequest::new(PortSet::ALL, 1, krcvq01_no_msi).expect("values in range");
    let grant = grant.unwrap_or(Grant::MsiX { vectors: request.wanted() });
    Dispatcher::new(VectorPlan::new(&request, grant), policy)
}

fn dispatcher() -> Dispatcher {
    dispatcher_with(ErrorPolicy::GUARDED, None, false)
}

fn work(outcome: Outcome) -> Work {
    match outcome {
        Outcome::Work(work) => work,
        other => panic!("expected work, got {other:?}"),
    }
}

fn on_default(dispatcher: &Dispatcher, chip: &MiniChip, now: Instant) -> Work {
    work(dispatcher.on_vector(Vector::DEFAULT, chip, now))
}

fn bit(source: Source) -> u64 {
    source.mask().bits()
}

fn ctxt(index: usize) -> Ctxt {
    Ctxt::new(index).expect("a context")
}

#[test]
fn a_dedicated_vector_is_served_without_a_read_and_clears_only_its_own_bits() {
    let dispatcher = dispatcher();
    let chip = MiniChip::new();
    chip.raise(u64::MAX >> 1);
    let mut served = 0;
    for vector in dispatcher.plan().vectors().iter() {
        let Some(VectorUse::Dedicated(source)) = dispatcher.plan().use_of(vector) else { continue };
        let work = work(dispatcher.on_vector(vector, &chip, T0));
        let own = match source {
            Source::RcvAvail(ctxt) => bit(source) | bit(Source::RcvUrg(ctxt)),
            _ => bit(source),
        };
        assert_eq!(chip.take_log(), [Access::Write(INT_CLEAR, own)], "{source}");
        assert_eq!(work.bits(), source.mask());
        served += 1;
    }
    assert_eq!(served, 11);
    assert_eq!(dispatcher.counters().status_reads, 0);
}

#[test]
fn the_default_vector_reads_the_status_once_and_clears_exactly_what_it_read() {
    let dispatcher = dispatcher();
    let chip = MiniChip::new();
    let raised =
        bit(Source::RcvUrg(ctxt(0))) | bit(Source::RcvAvail(ctxt(9))) | bit(Source::SendDone(Port::P1));
    chip.raise(raised);
    let work = on_default(&dispatcher, &chip, T0);
    assert_eq!(chip.take_log(), [Access::Read(INT_STATUS), Access::Write(INT_CLEAR, raised)]);
    assert_eq!(work.contexts(), ContextSet::only(ctxt(0)).with(ctxt(9)));
    assert_eq!(work.urgent_contexts(), ContextSet::only(ctxt(0)));
    assert_eq!(work.send_done(), PortSet::only(Port::P1));
    assert_eq!(work.worker(), WorkerCall::None);
}

/// B39: with one vector each cause reaches its place in the work, alone and together with all the others.
#[test]
fn with_a_single_vector_each_cause_is_served_alone_and_together() {
    type Served = fn(&Work) -> bool;
    let causes: [(Source, Served); 9] = [
        (Source::RcvAvail(ctxt(0)), |work| work.contexts().contains(ctxt(0))),
        (Source::RcvUrg(ctxt(1)), |work| work.contexts().contains(ctxt(1))),
        (Source::Err, Work::device_error),
        (Source::ErrPort(Port::P1), |work| work.port_errors() == PortSet::only(Port::P1)),
        (Source::AssertGpio, Work::gpio),
        (Source::Sdma(Port::P0), |work| work.sdma().contains(Port::P0)),
        (Source::SdmaCleanupDone(Port::P1), |work| work.sdma_cleanup_done() == PortSet::only(Port::P1)),
        (Source::SendBufAvail, Work::send_buffer_free),
        (Source::SendDone(Port::P0), |work| work.send_done() == PortSet::only(Port::P0)),
    ];
    for grant in [Grant::MsiX { vectors: 1 }, Grant::Msi, Grant::Intx] {
        let dispatcher = dispatcher_with(ErrorPolicy::GUARDED, Some(grant), false);
        let chip = MiniChip::new();
        for (source, served) in causes {
            chip.raise(bit(source));
            let work = on_default(&dispatcher, &chip, T0);
            assert!(served(&work), "{source} alone");
            assert_eq!(work.bits(), source.mask());
        }
        chip.raise(causes.iter().map(|(source, _)| bit(*source)).sum());
        let work = on_default(&dispatcher, &chip, T0);
        for (source, served) in causes {
            assert!(served(&work), "{source} together");
        }
        assert_eq!(dispatcher.on_vector(Vector::DEFAULT, &chip, T0), Outcome::Spurious);
    }
}

/// Trap 10: without vectors of their own, one interrupt with an error and packets for both contexts serves all three.
#[test]
fn with_krcvq01_no_msi_one_interrupt_serves_the_error_and_both_contexts() {
    let dispatcher = dispatcher_with(ErrorPolicy::GUARDED, None, true);
    let chip = MiniChip::new();
    chip.fail(0, ErrBits::RCV_EGR_FULL_ERR.bits());
    chip.raise(bit(Source::RcvAvail(ctxt(0))) | bit(Source::RcvAvail(ctxt(1))));
    let work = on_default(&dispatcher, &chip, T0);
    assert_eq!(work.contexts(), ContextSet::from_bits(0b11));
    assert_eq!(work.worker(), WorkerCall::Wake);
    assert!(!chip.fires());
}

/// Trap 2: the clear comes after the mask and before the hand-over, so that no late clear can erase a new error.
#[test]
fn an_error_is_masked_then_cleared_then_handed_over_and_nothing_is_read() {
    let dispatcher = dispatcher();
    let chip = MiniChip::new();
    chip.fail(0, ErrBits::RCV_EGR_FULL_ERR.bits());
    let work = on_default(&dispatcher, &chip, T0);
    assert_eq!(
        chip.take_log(),
        [
            Access::Read(INT_STATUS),
            Access::Write(ERR_MASK, FATAL.bits()),
            Access::Write(INT_CLEAR, bit(Source::Err)),
        ]
    );
    assert_eq!(work.worker(), WorkerCall::Wake);
    assert_eq!(dispatcher.handover().pending(), Reasons::DEVICE);
    // The worker serves it, unmasks, and the next error interrupts again.
    let turn = dispatcher.handover().begin(T0).expect("a turn");
    chip.serve(0);
    chip.unmask(0, u64::MAX);
    assert_eq!(dispatcher.handover().end(turn), TurnEnd::Idle);
    assert!(!chip.fires());
    chip.fail(0, ErrBits::RCV_EGR_FULL_ERR.bits());
    assert!(chip.fires());
}

/// Trap 2: an error that comes after the worker unmasked, and before the clear of an interrupt that was under way,
/// is erased from `IntStatus`; since its cause stands, the summary comes back.
#[test]
fn an_error_that_a_late_clear_erased_comes_back_because_its_cause_stands() {
    let chip = MiniChip::new();
    chip.fail(0, ErrBits::SEND_ARM_LAUNCH_ERR.bits());
    device::INT_CLEAR.clear(&chip, Source::Err.mask());
    assert!(chip.fires());
}

/// Trap 3, B43: a bit that is set between the read of the status and the clear is not cleared, and raises again.
#[test]
fn a_bit_that_is_set_between_read_and_clear_survives_the_clear() {
    let dispatcher = dispatcher();
    let chip = MiniChip::new();
    let late = bit(Source::SendDone(Port::P0)) | bit(Source::RcvUrg(ctxt(1)));
    chip.raise(bit(Source::AssertGpio));
    chip.raise_after_status_read(late);
    assert_eq!(on_default(&dispatcher, &chip, T0).bits(), Source::AssertGpio.mask());
    assert_eq!(chip.int_status(), late);
    assert!(chip.fires());
    assert_eq!(on_default(&dispatcher, &chip, T0).bits().bits(), late);
}

/// Trap 8: a fatal bit behind the storm mask interrupts at once, is urgent, and then silences the scope.
#[test]
fn a_fatal_error_while_the_worker_is_pending_makes_it_urgent() {
    for fatal in [ErrBits::HARDWARE_ERR, ErrBits::RESET_NEGATED, ErrBits::INVALID_ADDR_ERR] {
        let dispatcher = dispatcher();
        let chip = MiniChip::new();
        chip.fail(0, ErrBits::RCV_EGR_FULL_ERR.bits());
        assert_eq!(on_default(&dispatcher, &chip, T0).worker(), WorkerCall::Wake);
        chip.fail(0, ErrBits::RCV_EGR_FULL_ERR.bits());
        assert!(!chip.fires(), "a masked class does not interrupt");
        assert!(!dispatcher.handover().is_urgent());

        chip.fail(0, fatal.bits());
        assert!(chip.fires(), "{fatal:?} is not hidden");
        assert_eq!(on_default(&dispatcher, &chip, T0).worker(), WorkerCall::WakeUrgent);
        assert_eq!(chip.error_mask(0), 0);
        assert!(dispatcher.handover().is_urgent() && dispatcher.handover().is_due(T0));
        assert!(!chip.fires(), "it interrupts once, not until it is served");
    }
}

/// A fatal error that comes first costs two interrupts: it is still enabled after the first, and then urgent.
#[test]
fn a_fatal_error_that_comes_first_is_urgent_at_its_second_interrupt() {
    let dispatcher = dispatcher();
    let chip = MiniChip::new();
    chip.fail(0, ErrBits::HARDWARE_ERR.bits());
    assert_eq!(on_default(&dispatcher, &chip, T0).worker(), WorkerCall::Wake);
    assert!(chip.fires());
    assert_eq!(on_default(&dispatcher, &chip, T0).worker(), WorkerCall::WakeUrgent);
    assert!(!chip.fires());
}

/// Trap 8, for ports: a link change behind a masked storm of packet errors still interrupts, and another scope's
/// pending turn does not make an ordinary error urgent.
#[test]
fn a_link_change_behind_a_port_storm_still_interrupts_and_scopes_are_judged_apart() {
    let dispatcher = dispatcher();
    let chip = MiniChip::new();
    chip.fail(1, PortErrBits::RCV_ICRC_ERR.bits());
    assert_eq!(on_default(&dispatcher, &chip, T0).worker(), WorkerCall::Wake);
    assert_eq!(chip.error_mask(1), PORT_NEWS.bits());

    chip.fail(2, PortErrBits::RCV_ICRC_ERR.bits());
    assert_eq!(on_default(&dispatcher, &chip, T0).worker(), WorkerCall::None, "already awake");
    assert!(!dispatcher.handover().is_urgent());

    chip.fail(1, PortErrBits::IB_STATUS_CHANGED.bits());
    assert!(chip.fires());
    assert_eq!(on_default(&dispatcher, &chip, T0).worker(), WorkerCall::WakeUrgent);
    assert_eq!((chip.error_mask(1), chip.error_mask(2)), (0, PORT_NEWS.bits()));
}

/// The published policies, for comparison: `inline` leaves everything to the caller, `deferred` masks the device
/// altogether and leaves ports to the caller.
#[test]
fn the_published_policies_mask_what_they_masked() {
    for (policy, device_mask, worker) in [
        (ErrorPolicy::INLINE, u64::MAX, WorkerCall::None),
        (ErrorPolicy::DEFERRED, 0, WorkerCall::Wake),
        (ErrorPolicy::GUARDED, FATAL.bits(), WorkerCall::Wake),
    ] {
        let dispatcher = dispatcher_with(policy, None, false);
        let chip = MiniChip::new();
        chip.fail(0, ErrBits::RCV_EGR_FULL_ERR.bits());
        let work = on_default(&dispatcher, &chip, T0);
        assert!(work.device_error());
        assert_eq!((chip.error_mask(0), work.worker()), (device_mask, worker));

        chip.fail(1, PortErrBits::RCV_HDR_ERR.bits());
        let work = on_default(&dispatcher, &chip, T0);
        let guarded = policy == ErrorPolicy::GUARDED;
        assert_eq!(work.port_errors(), PortSet::only(Port::P0));
        assert_eq!(chip.error_mask(1), if guarded { PORT_NEWS.bits() } else { u64::MAX });
    }
}

/// Trap 6, B04: all ones is a device that has gone, not 64 causes; nothing touches the bar after it.
#[test]
fn an_all_ones_status_is_gone_and_nothing_touches_the_bar_after_it() {
    let dispatcher = dispatcher();
    let chip = MiniChip::new();
    chip.vanish();
    assert_eq!(dispatcher.on_vector(Vector::DEFAULT, &chip, T0), Outcome::Gone);
    assert_eq!(chip.take_log(), [Access::Read(INT_STATUS)]);
    for vector in dispatcher.plan().vectors().iter() {
        assert_eq!(dispatcher.on_vector(vector, &chip, T0), Outcome::Gone);
    }
    assert_eq!(chip.take_log(), []);
    assert!(dispatcher.is_gone() && dispatcher.handover().is_closed());
}

/// Trap 6: an unknown bit is counted and cleared, and masked for good after a bound; known bits go on.
#[test]
fn an_unknown_bit_is_counted_cleared_and_masked_after_the_bound() {
    let dispatcher = dispatcher();
    let chip = MiniChip::new();
    let unknown = 1 << 18 | 1 << 55;
    for seen in 1..=UNKNOWN_LIMIT {
        chip.raise(unknown | bit(Source::AssertGpio));
        let work = on_default(&dispatcher, &chip, T0);
        assert_eq!(work.bits(), Source::AssertGpio.mask(), "unknown bits are no work");
        assert_eq!(chip.int_status(), 0, "cleared");
        let masked = if seen == UNKNOWN_LIMIT { unknown } else { 0 };
        assert_eq!(dispatcher.counters().unknown_masked.bits(), masked);
    }
    assert_eq!(dispatcher.counters().unknown_bits, 2 * UNKNOWN_LIMIT);
    assert_eq!(chip.int_mask(), IntBits::NAMED.bits());
    // It no longer counts, nor is it cleared: it cannot interrupt any more.
    chip.raise(unknown);
    assert_eq!(dispatcher.on_vector(Vector::DEFAULT, &chip, T0), Outcome::Spurious);
    assert!(!chip.fires());
}

/// Bits of a port that the board does not have are unknown bits there.
#[test]
fn bits_of_a_port_that_is_not_there_are_treated_as_unknown() {
    let request = PlanRequest::new(PortSet::only(Port::P0), 1, false).expect("values in range");
    let plan = VectorPlan::new(&request, Grant::MsiX { vectors: request.wanted() });
    let dispatcher = Dispatcher::new(plan, ErrorPolicy::GUARDED);
    let chip = MiniChip::new();
    chip.raise(bit(Source::ErrPort(Port::P1)));
    let work = on_default(&dispatcher, &chip, T0);
    assert!(work.bits().is_empty() && work.worker() == WorkerCall::None);
    assert_eq!(chip.take_log().last(), Some(&Access::Write(INT_CLEAR, bit(Source::ErrPort(Port::P1)))));
    assert_eq!(dispatcher.counters().unknown_bits, 1);
}

/// B41: an interrupt without a cause is counted and ignored; nothing is written.
#[test]
fn an_interrupt_without_a_cause_is_counted_and_writes_nothing() {
    let dispatcher = dispatcher();
    let chip = MiniChip::new();
    // Bits of dedicated vectors are not the default vector's business.
    chip.raise(bit(Source::SendBufAvail));
    assert_eq!(dispatcher.on_vector(Vector::DEFAULT, &chip, T0), Outcome::Spurious);
    let unused = Vector::new(31).expect("a vector");
    assert_eq!(dispatcher.on_vector(unused, &chip, T0), Outcome::Spurious);
    assert_eq!(chip.take_log(), [Access::Read(INT_STATUS)]);
    assert_eq!(dispatcher.counters().spurious, 2);
    assert_eq!(dispatcher.counters().vectors[31], 1);
}

/// Trap 4: close in every state of the worker, with messages and with the line: no register is touched after it.
#[test]
fn after_close_no_vector_touches_a_register_whatever_the_worker_was_doing() {
    for grant in [None, Some(Grant::Intx)] {
        for state in ["idle", "pending", "urgent", "running", "running and asked again"] {
            let dispatcher = dispatcher_with(ErrorPolicy::GUARDED, grant, false);
            let chip = MiniChip::new();
            let handover = dispatcher.handover();
            let mut turn = None;
            if state != "idle" {
                chip.fail(0, ErrBits::RCV_EGR_FULL_ERR.bits());
                let _ = on_default(&dispatcher, &chip, T0);
            }
            if state == "urgent" {
                chip.fail(0, ErrBits::HARDWARE_ERR.bits());
                let _ = on_default(&dispatcher, &chip, T0);
            }
            if state.starts_with("running") {
                turn = handover.begin(T0);
            }
            if state.ends_with("again") {
                chip.fail(0, ErrBits::HARDWARE_ERR.bits());
                let _ = on_default(&dispatcher, &chip, T0);
            }
            chip.take_log();
            let running = turn.is_some();
            assert_eq!(
                dispatcher.close(),
                if running { Close::TurnRunning } else { Close::Quiet },
                "{state}"
            );
            if let Some(turn) = turn {
                assert_eq!(handover.end(turn), TurnEnd::Closed);
            }
            assert!(!handover.is_running() && !handover.is_urgent() && handover.begin(T0).is_none());
            assert_eq!(handover.deadline(), None);
            chip.fail(0, ErrBits::HARDWARE_ERR.bits());
            for vector in dispatcher.plan().vectors().iter() {
                assert_eq!(dispatcher.on_vector(vector, &chip, T0), Outcome::Closed, "{state}");
            }
            assert_eq!(chip.take_log(), [], "{state}");
        }
    }
}

/// B44: the line is unmasked after each interrupt, messages never are.
#[test]
fn only_the_interrupt_line_is_unmasked_after_an_interrupt() {
    for (grant, unmask) in [(Grant::Intx, true), (Grant::Msi, false), (Grant::MsiX { vectors: 12 }, false)] {
        let dispatcher = dispatcher_with(ErrorPolicy::GUARDED, Some(grant), false);
        assert_eq!(dispatcher.unmask_after_interrupt(), unmask);
    }
}

/// Trap 9: receive work that never ends still lets the worker run by its deadline, and at once if it is urgent.
#[test]
fn under_endless_receive_work_the_worker_runs_by_its_deadline() {
    const BATCH: Duration = Duration::from_micros(20); // 32 packets of 630 ns
    let dispatcher = dispatcher();
    let chip = MiniChip::new();
    let mut now = Instant::from_nanos(12_345);
    for urgent in [false, true] {
        chip.fail(0, ErrBits::RCV_HDR_FULL_ERR.bits());
        let asked_at = now;
        let _ = on_default(&dispatcher, &chip, now);
        if urgent {
            chip.fail(0, ErrBits::HARDWARE_ERR.bits());
            let _ = on_default(&dispatcher, &chip, now);
        }
        let mut batches = 0;
        while !dispatcher.handover().is_due(now) {
            now += BATCH;
            batches += 1;
        }
        let turn = dispatcher.handover().begin(now).expect("a turn");
        let limit = if urgent { Duration::ZERO } else { WORKER_DEADLINE };
        assert!(now.since(asked_at) <= limit + BATCH, "waited {}", now.since(asked_at));
        assert_eq!((turn.urgent, batches == 0), (urgent, urgent));
        chip.serve(0);
        chip.unmask(0, u64::MAX);
        assert_eq!(dispatcher.handover().end(turn), TurnEnd::Idle);
    }
}

proptest! {
    /// B43, trap 3: for every status word, with bits appearing at any time, the ones written to `IntClear` are a
    /// subset of the ones that were read, and no bit of the word is lost: it is work, or unknown, or still set.
    #[test]
    fn what_is_cleared_was_read_and_nothing_is_lost(status in any::<u64>(), late in any::<u64>(), no_msi in any::<bool>()) {
        prop_assume!(status != u64::MAX);
        let dispatcher = dispatcher_with(ErrorPolicy::GUARDED, None, no_msi);
        let chip = MiniChip::new();
        chip.raise(status);
        chip.raise_after_status_read(late);
        let outcome = dispatcher.on_vector(Vector::DEFAULT, &chip, T0);
        let cleared = chip
            .take_log()
            .into_iter()
            .filter_map(|access| match access {
                Access::Write(INT_CLEAR, bits) => Some(bits),
                _ => None,
            })
            .fold(0, |all, bits| all | bits);
        prop_assert_eq!(cleared & !status, 0);
        let done = match outcome {
            Outcome::Work(work) => work.bits().bits(),
            _ => 0,
        };
        let unknown = !IntBits::NAMED.bits();
        prop_assert_eq!(status & !(done | unknown | chip.int_status()), 0);
    }

    /// Error words are silenced without a read of any error register, whatever they hold (the small chip refuses it).
    #[test]
    fn errors_of_any_content_cost_one_read_and_at_most_four_writes(device in any::<u64>(), p0 in any::<u64>(), p1 in any::<u64>()) {
        let dispatcher = dispatcher();
        let chip = MiniChip::new();
        for (scope, bits) in [device, p0, p1].into_iter().enumerate() {
            chip.fail(scope, bits);
        }
        let _ = dispatcher.on_vector(Vector::DEFAULT, &chip, T0);
        let log = chip.take_log();
        prop_assert_eq!(log.iter().filter(|access| matches!(access, Access::Read(_))).count(), 1);
        prop_assert!(log.len() <= 5, "{log:?}");
        let _ = port_regs::ERR_MASK;
    }
}
