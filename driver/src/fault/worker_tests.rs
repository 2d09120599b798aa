//! Turns against a recording bar: stories by situation.

use qhca_irq::Outcome;
use qhca_regs::map::counter;
use qhca_regs::map::device::SendCtrl;
use qhca_regs::{Ctxt, Duration, Vector};

use super::*;
use crate::testing::{Access, RecordingBar, shared};

struct Bench {
    worker: Worker,
    bar: RecordingBar,
    shared: Arc<DeviceShared>,
}

fn contexts() -> ContextSet {
    ContextSet::from_bits(0b11)
}

fn bench(policy: Policy) -> Bench {
    let shared = shared(policy);
    let setup = WorkerSetup {
        shared: shared.clone(),
        send: Arc::new(SendControl::new(SendCtrl::default())),
        policy,
        ports: PortSet::ALL,
        contexts: contexts(),
        err_mask: ErrBits::NAMED,
        port_err_mask: PortErrBits::all(),
    };
    let mut bench = Bench { worker: Worker::new(setup), bar: RecordingBar::default(), shared };
    bench.worker.start(&bench.bar, Instant::ZERO);
    bench.bar.take_log();
    bench
}

impl Bench {
    /// An interrupt on the default vector with `status` in `IntStatus`.
    fn interrupt(&self, status: IntBits, now: Instant) -> Outcome {
        self.bar.set(device::INT_STATUS.offset(), status.bits());
        let outcome = self.shared.dispatcher().on_vector(Vector::DEFAULT, &self.bar, now);
        self.bar.set(device::INT_STATUS.offset(), 0);
        outcome
    }

    /// An interrupt for a device error with `word` in `ErrStatus`.
    fn device_error(&self, word: ErrBits, now: Instant) {
        self.bar.set(device::ERR_STATUS.offset(), word.bits());
        assert!(matches!(self.interrupt(IntBits::ERR, now), Outcome::Work(_)));
    }

    /// All reports of the turns that are wanted.
    fn reports(&mut self, now: Instant) -> Vec<Report> {
        std::iter::from_fn(|| self.worker.poll(&self.bar, now)).collect()
    }

    fn err_masks(&self) -> Vec<u64> {
        self.bar.writes_to(device::ERR_MASK.offset())
    }
}

fn us(us: u64) -> Instant {
    Instant::ZERO + Duration::from_micros(us)
}

#[test]
fn overflow_is_served_by_one_read_cleared_as_read_and_reported_once() {
    let mut bench = bench(Policy::Guarded);
    let word = ErrBits::RCV_EGR_FULL_ERR | ErrBits::RCV_HDR_FULL_ERR;
    bench.device_error(word, us(1));
    assert_eq!(
        bench.err_masks(),
        [qhca_irq::dispatch::FATAL.bits()],
        "the interrupt masks all but the fatal bits"
    );
    bench.bar.take_log();
    let reports = bench.reports(us(2));
    assert_eq!(reports.len(), 1);
    assert_eq!((reports[0].scope, reports[0].word), (Scope::Device, word.bits()));
    assert_eq!(reports[0].text.as_deref(), Some("RcvEgrFullErr,RcvHdrFullErr"));
    // Trap 11, second half: both bits are counted.
    assert_eq!((bench.worker.counts().eager_full, bench.worker.counts().header_full), (1, 1));
    let log = bench.bar.take_log();
    assert_eq!(log[0], Access::Read(device::ERR_STATUS.offset()));
    assert_eq!(log[1], Access::Write(device::ERR_CLEAR.offset(), word.bits()));
    assert_eq!(log.iter().filter(|access| matches!(access, Access::Read(_))).count(), 1);
}

#[test]
fn storm_is_masked_and_its_account_is_read_once_before_it_may_interrupt_again() {
    let mut bench = bench(Policy::Guarded);
    let counter_of = |n| counter::RX_HDR_EGR_OVFL_CNT.index(n).offset();
    bench.device_error(ErrBits::RCV_EGR_FULL_ERR, us(10));
    bench.reports(us(11));
    let overflow = ErrBits::RCV_EGR_FULL_ERR.bits();
    assert_eq!(bench.err_masks().last().map(|mask| mask & overflow), Some(0), "masked while it pauses");
    let at = bench.worker.poll_timeout().expect("a re-arm");
    assert!(at > us(11) && at <= us(200), "{at}");
    bench.bar.take_log();
    bench.bar.set(counter_of(1), 500);
    assert_eq!(bench.reports(at), []);
    assert_eq!(bench.err_masks().last().map(|mask| mask & overflow), Some(overflow));
    assert_eq!(bench.bar.reads(), contexts().len(), "one counter a context and nothing else");
    assert_eq!(bench.worker.overflow().lost_in_all(), 500);
    let boosted = Ctxt::new(1).expect("a context");
    assert!(bench.shared.has_overflowed(boosted), "the context that lost packets takes more");
    assert!(!bench.shared.has_overflowed(Ctxt::new(0).expect("a context")));
}

/// Trap 5: A, B, A, B and a port's bits in turn, each back at once; the sum over all stays under the bound, and a
/// re-arm costs at most a read a context and one for the word.
#[test]
fn alternating_storm_stays_under_two_hundred_interrupts_a_second() {
    let mut bench = bench(Policy::Guarded);
    let words = [ErrBits::RCV_EGR_FULL_ERR, ErrBits::SEND_ARM_LAUNCH_ERR, ErrBits::RCV_HDR_FULL_ERR];
    let port_word = PortErrBits::RCV_ICRC_ERR | PortErrBits::RCV_HDR_ERR;
    bench.bar.set(port_regs::ERR_STATUS.port(Port::P0).offset(), port_word.bits());
    let mut interrupts = 0;
    for step in 0..100_000_u64 {
        let now = us(step * 10);
        let word = words[step as usize % words.len()];
        bench.bar.set(device::ERR_STATUS.offset(), word.bits());
        let mut status = IntBits::empty();
        if bench.worker.written.device.intersects(word) {
            status |= IntBits::ERR;
        }
        if bench.worker.written.ports[0].intersects(port_word) {
            status |= IntBits::ERR_0;
        }
        if !status.is_empty() {
            interrupts += 1;
            bench.interrupt(status, now);
        }
        bench.reports(now);
        bench.bar.take_log();
    }
    assert!(interrupts <= 200 + 20, "{interrupts} in a second");
    assert!(interrupts > 50, "the errors are still seen: {interrupts}");
    let counts = bench.worker.counts();
    let bound = counts.turns * (1 + contexts().len() as u64);
    assert!(counts.reads <= bound, "{} reads, {} turns", counts.reads, counts.turns);
}

/// Trap 8: while a storm is masked a hardware error still interrupts, is urgent, and stops the device.
#[test]
fn fatal_error_behind_a_storm_mask_stops_sends_and_is_reported_once() {
    let mut bench = bench(Policy::Guarded);
    bench.device_error(ErrBits::RCV_EGR_FULL_ERR, us(1));
    bench.bar.set(device::HW_ERR_STATUS.offset(), HwErrBits::MEMORY_ERR.bits());
    bench.device_error(ErrBits::HARDWARE_ERR | ErrBits::RCV_EGR_FULL_ERR, us(3));
    assert!(bench.shared.handover().is_urgent());
    bench.bar.take_log();
    let reports = bench.reports(us(4));
    let fatal: Vec<&Report> = reports.iter().filter(|report| report.is_fatal()).collect();
    assert_eq!(fatal.len(), 1);
    assert_eq!((fatal[0].scope, fatal[0].text.as_deref()), (Scope::Hardware, Some("MemoryErr")));
    assert_eq!(bench.shared.state(), DeviceState::Failed);
    for port in Port::ALL {
        assert_eq!(bench.bar.writes_to(port_regs::SEND_CTRL.port(port).offset()), [0]);
    }
    assert_eq!(bench.bar.writes_to(device::INT_MASK.offset()), [0]);
    bench.bar.take_log();
    // Trap 4: nothing comes back afterwards.
    assert!(matches!(bench.interrupt(IntBits::ERR, us(5)), Outcome::Closed));
    assert_eq!(bench.reports(us(100_000)), []);
    assert_eq!(bench.bar.take_log(), []);
}

/// B04: all ones in a status are no errors; nothing is cleared, nothing is touched again.
#[test]
fn all_ones_mean_gone_in_every_word() {
    let cases: [(u32, ErrBits); 3] = [
        (device::ERR_STATUS.offset(), ErrBits::empty()),
        (device::HW_ERR_STATUS.offset(), ErrBits::HARDWARE_ERR),
        (port_regs::ERR_STATUS.port(Port::P1).offset(), ErrBits::empty()),
    ];
    for (offset, word) in cases {
        let mut bench = bench(Policy::Guarded);
        bench.bar.set(device::ERR_STATUS.offset(), word.bits());
        bench.bar.set(offset, u64::MAX);
        bench.interrupt(IntBits::ERR | IntBits::ERR_1, us(1));
        bench.bar.take_log();
        let reports = bench.reports(us(2));
        assert!(reports.iter().all(|report| report.word != u64::MAX));
        assert_eq!(bench.shared.state(), DeviceState::Gone);
        let cleared: Vec<u64> = [device::HW_ERR_CLEAR.offset(), port_regs::ERR_CLEAR.port(Port::P1).offset()]
            .into_iter()
            .flat_map(|offset| bench.bar.writes_to(offset))
            .collect();
        assert_eq!(cleared, [] as [u64; 0]);
        bench.bar.take_log();
        bench.reports(us(1_000_000));
        bench.worker.sample_overflow(&bench.bar);
        assert_eq!(bench.bar.take_log(), [], "touched after gone");
    }
}

/// B05: (b) the trigger alone is thawed, (c) a failed self-test is fatal and its bit stays.
#[test]
fn frozen_chip_is_thawed_after_a_trigger_and_lost_after_a_failed_self_test() {
    let mut bench = bench(Policy::Guarded);
    bench.bar.set(device::CONTROL.offset(), device::Control::default().with_freeze_mode(true).raw());
    bench.bar.set(device::HW_ERR_STATUS.offset(), HwErrBits::LA_TRIGGERED.bits());
    bench.device_error(ErrBits::HARDWARE_ERR, us(1));
    bench.bar.take_log();
    let reports = bench.reports(us(2));
    assert_eq!(reports.len(), 2, "one for each word");
    assert!(reports.iter().all(|report| !report.is_fatal()));
    assert_eq!(bench.bar.writes_to(device::CONTROL.offset()), [0]);
    assert!(bench.shared.is_open());

    let mut bench = self::bench(Policy::Guarded);
    let bist = HwErrBits::POWER_ON_BIST_FAILED;
    bench.bar.set(device::HW_ERR_STATUS.offset(), (bist | HwErrBits::MEMORY_ERR).bits());
    bench.device_error(ErrBits::HARDWARE_ERR, us(1));
    bench.reports(us(2));
    let cleared = bench.bar.writes_to(device::HW_ERR_CLEAR.offset());
    assert_eq!(cleared, [HwErrBits::MEMORY_ERR.bits()], "the self-test's bit is left to be seen");
    assert_eq!(bench.shared.state(), DeviceState::Failed);
}

/// Trap 3 and B43: a bit that comes up between the read and the clear is not cleared.
#[test]
fn clear_is_exactly_what_was_read() {
    let mut bench = bench(Policy::Guarded);
    let unknown = ErrBits::from_bits_retain(1 << 40);
    bench.device_error(ErrBits::INVALID_EEP_CMD_ERR | unknown, us(1));
    bench.bar.take_log();
    bench.reports(us(2));
    let cleared = bench.bar.writes_to(device::ERR_CLEAR.offset());
    assert_eq!(cleared, [(ErrBits::INVALID_EEP_CMD_ERR | unknown).bits()]);
}

/// Trap 6: an unknown bit that keeps coming is masked for good after twenty times.
#[test]
fn unknown_bit_is_masked_for_good_after_twenty_times() {
    let mut bench = bench(Policy::Guarded);
    let unknown = ErrBits::from_bits_retain(1 << 20);
    let mut now = us(1);
    for _ in 0..20 {
        bench.device_error(unknown, now);
        bench.reports(now);
        now += Duration::from_millis(20);
        bench.reports(now);
    }
    assert_eq!(bench.worker.storm().counters().masked_for_good[0], unknown.bits());
}

#[test]
fn port_error_with_a_refused_header_reads_its_symptom_and_sets_it_back() {
    let mut bench = bench(Policy::Guarded);
    let word = PortErrBits::S_HEADERS_ERR | PortErrBits::RCV_ICRC_ERR;
    bench.bar.set(port_regs::ERR_STATUS.port(Port::P1).offset(), word.bits());
    let symptom = port_regs::SEND_HDR_ERR_SYMPTOM.port(Port::P1).offset();
    bench.bar.set(symptom, SendHdrSymptom::PKEY_FAIL.bits());
    bench.interrupt(IntBits::ERR_1, us(1));
    let reports = bench.reports(us(2));
    assert_eq!((reports.len(), reports[0].port), (1, Some(Port::P1)));
    assert_eq!(reports[0].symptom, SendHdrSymptom::PKEY_FAIL.bits());
    assert_eq!(bench.bar.writes_to(symptom), [0]);
    assert_eq!(bench.bar.writes_to(port_regs::ERR_CLEAR.port(Port::P1).offset()), [word.bits()]);
}

#[test]
fn link_change_is_handed_on_and_is_no_error_report() {
    let mut bench = bench(Policy::Guarded);
    bench.bar.set(port_regs::ERR_STATUS.port(Port::P0).offset(), PortErrBits::IB_STATUS_CHANGED.bits());
    bench.interrupt(IntBits::ERR_0, us(1));
    assert_eq!(bench.reports(us(2)), []);
    assert_eq!(bench.shared.take_link_changes(), PortSet::only(Port::P0));
}

#[test]
fn errors_that_a_dead_link_makes_are_counted_and_not_reported() {
    let mut bench = bench(Policy::Guarded);
    let word = PortErrBits::RCV_UNEXPECTED_CHAR_ERR;
    bench.bar.set(port_regs::ERR_STATUS.port(Port::P0).offset(), word.bits());
    bench.interrupt(IntBits::ERR_0, us(1));
    assert_eq!(bench.reports(us(2)), []);
    assert_eq!(bench.worker.counts().expected_while_link_down, 1);
    bench.shared.set_link_active(Port::P0, true);
    bench.interrupt(IntBits::ERR_0, us(50_000));
    bench.interrupt(IntBits::ERR_0, us(100_000));
    assert_eq!(bench.reports(us(100_001)).len(), 1);
}

/// The published policy: everything masked, the whole mask back at the end of the turn, at once.
#[test]
fn deferred_turn_restores_the_whole_mask_at_its_end() {
    let mut bench = bench(Policy::Deferred);
    bench.device_error(ErrBits::RCV_EGR_FULL_ERR, us(1));
    assert_eq!(bench.err_masks(), [0]);
    assert_eq!(bench.reports(us(2)).len(), 1);
    assert_eq!(bench.err_masks(), [0, ErrBits::NAMED.bits()]);
    assert_eq!(bench.worker.poll_timeout(), None);
}

/// The older policy: read, cleared and decoded in the interrupt, nothing masked.
#[test]
fn inline_policy_serves_in_the_interrupt_before_the_clear_and_masks_nothing() {
    let mut bench = bench(Policy::Inline);
    bench.bar.set(device::ERR_STATUS.offset(), ErrBits::RCV_EGR_FULL_ERR.bits());
    bench.bar.set(device::INT_STATUS.offset(), IntBits::ERR.bits());
    let Bench { worker, bar, shared } = &mut bench;
    let outcome = shared
        .dispatcher()
        .on_vector_serving(Vector::DEFAULT, bar, us(1), |work| worker.serve_inline(work, bar, us(1)));
    assert!(matches!(outcome, Outcome::Work(_)));
    let order: Vec<u32> = bar
        .take_log()
        .into_iter()
        .map(|access| match access {
            Access::Read(at) | Access::Write(at, _) | Access::Burst(at, _) => at,
        })
        .collect();
    let wanted = [
        device::INT_STATUS.offset(),
        device::ERR_STATUS.offset(),
        device::ERR_CLEAR.offset(),
        device::INT_CLEAR.offset(),
    ];
    assert_eq!(order, wanted);
    assert_eq!(bench.reports(us(2)).len(), 1);
}

#[test]
fn silent_policy_leaves_all_masks_at_zero() {
    let shared = shared(Policy::Silent);
    let setup = WorkerSetup {
        shared: shared.clone(),
        send: Arc::new(SendControl::new(SendCtrl::default())),
        policy: Policy::Silent,
        ports: PortSet::ALL,
        contexts: contexts(),
        err_mask: ErrBits::NAMED,
        port_err_mask: PortErrBits::all(),
    };
    let bar = RecordingBar::default();
    Worker::new(setup).start(&bar, Instant::ZERO);
    assert_eq!(bar.writes_to(device::ERR_MASK.offset()), [0]);
    assert_eq!(bar.writes_to(port_regs::ERR_MASK.port(Port::P1).offset()), [0]);
}
