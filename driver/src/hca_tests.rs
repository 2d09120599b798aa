//! A device against a recording bar: who is told what, and what is touched when.

use qhca_regs::Duration;

use super::*;
use crate::contexts::{ContextCfg, ContextShare, Owner};
use crate::gpio::Gpio;
use crate::ports::Ports;
use crate::testing::{Access, PlainMapper, RecordingBar};
use qhca_irq::plan::Mode;
use qhca_regs::Ctxt;

struct Bench {
    hca: Hca,
    bar: RecordingBar,
    mapper: PlainMapper,
}

fn bench(policy: Policy, vectors: usize) -> Bench {
    let ports = Ports::from_speed_mask(0x3F);
    let share = |port: Port| {
        let first = port.index() as u32 * 16;
        let ctxt = Ctxt::new(port.index()).expect("a context");
        ContextShare { ctxt, owner: Owner::Kernel(port), eager: first..first + 16, buffers: 0..0 }
    };
    let split = Split {
        ports,
        cfg: ContextCfg::Six,
        kernel_queues: 1,
        first_user: 2,
        contexts: Port::ALL.map(share).into(),
        hdr_entries: 64,
        hdr_entry_dwords: 32,
        hdr_dwords: 9,
        eager_buffer_bytes: 2048,
        large_buffers: [128..144, 144..160],
        avail_update_threshold: 8,
    };
    let mut mapper = PlainMapper::default();
    let request = PlanRequest::new(PortSet::ALL, 1, false).expect("a plan");
    let setup = HcaSetup {
        policy,
        request,
        plan: Some(VectorPlan::new(&request, Grant::MsiX { vectors })),
        split,
        masks: ErrorMasks {
            device: ErrBits::NAMED,
            hardware: qhca_regs::status::HwErrBits::NAMED,
            port: PortErrBits::all(),
        },
        links: Links::new(ports, Gpio::default()),
        controls: Controls::new(),
        avail: mapper.map(64).expect("memory"),
    };
    let mut bench = Bench { hca: Hca::new(setup), bar: RecordingBar::default(), mapper };
    bench.hca.start(&bench.bar, Instant::ZERO);
    bench.bar.take_log();
    bench
}

impl Bench {
    fn interrupt(&mut self, vector: usize, status: IntBits) -> Interrupt {
        self.bar.set(device::INT_STATUS.offset(), status.bits());
        self.hca.on_interrupt(Vector::new(vector).expect("a vector"), &self.bar, ms(1))
    }

    fn events(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.hca.poll_event()).collect()
    }

    fn close(&mut self) {
        assert_eq!(self.hca.begin_close(), Close::Quiet);
        self.hca.finish_close(&self.bar);
    }
}

fn ms(ms: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(ms)
}

#[test]
fn dedicated_vector_names_its_context_without_a_read() {
    let mut bench = bench(Policy::Guarded, 32);
    let interrupt = bench.interrupt(11, IntBits::empty());
    assert_eq!(interrupt.contexts, ContextSet::only(Ctxt::new(1).expect("a context")));
    assert_eq!(bench.bar.reads(), 0);
}

/// B38 and B39: with one vector every cause, alone and together, reaches its handler once.
#[test]
fn one_vector_serves_every_cause() {
    let mut bench = bench(Policy::Guarded, 1);
    let ctxt = |n| Ctxt::new(n).expect("a context");
    let status =
        IntBits::rcv_avail(ctxt(0)) | IntBits::rcv_urg(ctxt(1)) | IntBits::ERR | IntBits::SEND_BUF_AVAIL;
    bench.bar.set(device::ERR_STATUS.offset(), ErrBits::RCV_EGR_FULL_ERR.bits());
    let interrupt = bench.interrupt(0, status);
    assert_eq!(interrupt.contexts.len(), 2);
    assert_eq!(interrupt.worker, WorkerCall::Wake);
    assert!(matches!(bench.events()[..], [Event::SendSpace]));
    let reports: Vec<Report> = std::iter::from_fn(|| bench.hca.poll_deferred(&bench.bar, ms(2))).collect();
    assert_eq!(reports.len(), 1);
    assert!(matches!(&bench.events()[..], [Event::Error(report)] if *report == reports[0]));
}

/// B41: an interrupt without a cause is counted and nothing else.
#[test]
fn interrupt_without_a_cause_is_counted_and_ignored() {
    let mut bench = bench(Policy::Guarded, 32);
    let interrupt = bench.interrupt(0, IntBits::empty());
    assert!(!interrupt.ours && interrupt.alive);
    assert_eq!(bench.hca.shared().dispatcher().counters().spurious, 1);
    assert!(bench.events().is_empty());
}

/// B04: one event, and nothing touches the bar afterwards, whoever comes.
#[test]
fn all_ones_in_the_interrupt_status_make_one_gone_event_and_nothing_touches_the_bar_again() {
    let mut bench = bench(Policy::Guarded, 32);
    let mut sender = bench.hca.open_sender().expect("free");
    bench.bar.take_log();
    assert!(!bench.interrupt(0, IntBits::from_bits_retain(u64::MAX)).alive);
    assert_eq!(bench.bar.take_log().len(), 1, "the read and nothing else");
    let _ = bench.interrupt(0, IntBits::ERR);
    let _ = bench.interrupt(10, IntBits::empty());
    bench.hca.on_timeout(&bench.bar, ms(5000));
    assert!(bench.hca.poll_deferred(&bench.bar, ms(5001)).is_none());
    let frame = crate::tx::Frame::new(Port::P0, &[0; 5], crate::tx::Payload::None);
    assert!(sender.submit(&bench.bar, &frame).is_err());
    let wanted = Wanted::Kernel(Ctxt::new(0).expect("a context"));
    assert!(bench.hca.open_context(wanted, &mut bench.mapper, &bench.bar).is_err());
    bench.hca.begin_close();
    bench.hca.finish_close(&bench.bar);
    assert_eq!(bench.bar.take_log(), []);
    assert!(matches!(bench.events()[..], [Event::Gone]));
    assert_eq!(bench.hca.poll_timeout(), None);
}

/// B04: found by fuzzing: the interrupt status still answered, the error word behind it did not, and the packets' contexts
/// were named all the same.
#[test]
fn card_that_vanishes_while_an_interrupt_is_served_names_no_context_to_drain() {
    let mut bench = bench(Policy::Inline, 1);
    bench.bar.set(device::ERR_STATUS.offset(), u64::MAX);
    let status = IntBits::rcv_avail(Ctxt::new(0).expect("a context")) | IntBits::ERR;
    let interrupt = bench.interrupt(0, status);
    assert!(!interrupt.alive && interrupt.ours);
    assert!(interrupt.contexts.is_empty(), "{:?}", interrupt.contexts);
    assert!(matches!(bench.events()[..], [Event::Gone]));
}

/// B19 and trap 4: closed in every order and twice; in every state of the worker; nothing is touched afterwards.
#[test]
fn close_at_any_moment_silences_the_chip_once_and_nothing_comes_back() {
    for moment in 0..4 {
        let mut bench = bench(Policy::Guarded, 32);
        let context = (moment % 2 == 0).then(|| {
            let wanted = Wanted::Kernel(Ctxt::new(0).expect("a context"));
            bench.hca.open_context(wanted, &mut bench.mapper, &bench.bar).expect("free")
        });
        if moment >= 1 {
            // The worker is wanted and has not come.
            bench.bar.set(device::ERR_STATUS.offset(), ErrBits::RCV_EGR_FULL_ERR.bits());
            let _ = bench.interrupt(0, IntBits::ERR);
        }
        if moment >= 2 {
            // The worker has come, and waits for its class to be unmasked.
            while bench.hca.poll_deferred(&bench.bar, ms(2)).is_some() {}
        }
        bench.bar.take_log();
        bench.close();
        assert_eq!(bench.bar.writes_to(device::INT_MASK.offset()), [0], "moment {moment}");
        assert_eq!(bench.bar.writes_to(device::ERR_MASK.offset()), [0]);
        let last = bench.bar.take_log().pop();
        assert_eq!(last, Some(Access::Read(device::SCRATCH.offset())));
        bench.close();
        assert!(bench.hca.poll_deferred(&bench.bar, ms(100)).is_none());
        bench.hca.on_timeout(&bench.bar, ms(100));
        let _ = bench.interrupt(0, IntBits::ERR);
        drop(context);
        bench.hca.on_timeout(&bench.bar, ms(200));
        assert_eq!(bench.bar.take_log(), [], "moment {moment}");
    }
}

/// B36: no interrupt in half a second: the line is tried once, then the silence is said, once.
#[test]
fn messages_that_never_come_fall_back_once_and_then_are_reported() {
    let mut bench = bench(Policy::Guarded, 32);
    bench.hca.on_timeout(&bench.bar, ms(400));
    assert!(!bench.hca.take_fallback_wanted());
    bench.hca.on_timeout(&bench.bar, ms(500));
    assert!(bench.hca.take_fallback_wanted() && !bench.hca.take_fallback_wanted());
    bench.bar.take_log();
    bench.hca.fall_back(Some(Grant::Intx), &bench.bar, ms(500));
    assert_eq!(bench.hca.shared().dispatcher().plan().mode(), Mode::Intx);
    let redirects = (0..6).flat_map(|n| bench.bar.writes_to(device::INT_REDIRECT.index(n).offset()));
    assert_eq!(redirects.collect::<Vec<_>>(), [0; 6]);
    assert_eq!(bench.bar.writes_to(device::INT_MASK.offset()).len(), 2, "off while the plan is half written");
    bench.hca.on_timeout(&bench.bar, ms(1000));
    bench.hca.on_timeout(&bench.bar, ms(9000));
    let events = bench.events();
    assert!(
        matches!(&events[..], [Event::FellBack { from: Mode::MsiX }, Event::NoInterrupts(_)]),
        "{events:?}"
    );
}

/// B36: one interrupt ends the check; silence after it is no alarm.
#[test]
fn first_interrupt_ends_the_check_for_good() {
    let mut bench = bench(Policy::Guarded, 32);
    let _ = bench.interrupt(10, IntBits::empty());
    bench.hca.on_timeout(&bench.bar, ms(500));
    bench.hca.on_timeout(&bench.bar, ms(60_000));
    assert!(bench.events().is_empty() && !bench.hca.take_fallback_wanted());
}

#[test]
fn cancelled_sends_end_with_the_register_as_it_was_and_fresh_avail_words() {
    let mut bench = bench(Policy::Guarded, 32);
    bench.hca.cancel_sends(Port::P1, &bench.bar);
    let at = port_regs::SEND_CTRL.port(Port::P1).offset();
    // Drain both FIFOs (14, 13), bypass (1), then as before.
    assert_eq!(bench.bar.writes_to(at), [1 << 14 | 1 << 13 | 1 << 1, 0]);
    assert_eq!(bench.bar.reads(), 3, "F-227: three reads of Scratch");
}
