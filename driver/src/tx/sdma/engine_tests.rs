//! The control side against a script that halts and cleans up, or does not.

use super::*;
use crate::env::DmaMapper;
use crate::scriptbar::ScriptBar;
use crate::testing::PlainMapper;
use crate::tx::sdma::{Ring, SdmaQueue};

const PORT: Port = Port::P0;
/// A status of an engine that has halted and holds nothing: ScbEmpty and InternalSDmaHalt.
const HALTED: u64 = 1 << 30 | 1 << 61;

struct Bench {
    engine: Engine,
    controls: Controls,
    bar: ScriptBar,
    now: Instant,
}

fn bench() -> Bench {
    let mut mapper = PlainMapper::default();
    let ring = Ring::allocate(256, &mut mapper).expect("memory");
    let shared = Arc::new(SdmaShared::new(PORT));
    let setup = EngineSetup {
        ring_iova: ring.iova(),
        head_iova: ring.head_iova(),
        descriptors: ring.len(),
        ring: ring.region().clone(),
        buffers: 128..144,
        fetch_priority: 8,
        shared: shared.clone(),
        home: Arc::new(SdmaHome::with(SdmaQueue::allocate(ring, shared, &mut mapper).expect("memory"))),
    };
    let bar = ScriptBar::reset();
    let mut controls = Controls::new();
    controls.update_send_port(PORT, &bar, |send| send.with_send_enable(true));
    bar.writes.borrow_mut().clear();
    Bench { engine: Engine::new(setup), controls, bar, now: Instant::ZERO }
}

impl Bench {
    fn start(&mut self) {
        self.engine.start(&mut self.controls, &self.bar, self.now);
    }

    fn error(&mut self, bits: PortErrBits) {
        self.engine.on_error(bits, &mut self.controls, &self.bar, self.now);
    }

    fn link(&mut self, active: bool) {
        self.engine.on_link(active, &mut self.controls, &self.bar, self.now);
    }

    /// Lets the engine's next deadline pass.
    fn late(&mut self) {
        self.now = self.engine.poll_timeout().expect("a deadline");
        self.engine.on_timeout(&mut self.controls, &self.bar, self.now);
    }

    fn running() -> Self {
        let mut bench = bench();
        bench.start();
        bench.link(true);
        bench.error(PortErrBits::SDMA_HALT_ERR);
        assert_eq!(bench.engine.state(), EngineState::Running);
        bench.changes();
        bench.now += Duration::from_secs(1);
        bench
    }

    fn changes(&mut self) -> Vec<SdmaChange> {
        std::iter::from_fn(|| self.engine.poll_change()).collect()
    }

    fn send_ctrl(&self) -> SendCtrl {
        SendCtrl(self.bar.peek(port_regs::SEND_CTRL.port(PORT).offset()))
    }

    fn phase(&self) -> Phase {
        self.engine.shared().phase()
    }
}

#[test]
fn registers_are_written_in_the_data_sheets_order_and_the_engine_waits_halted() {
    let mut bench = bench();
    bench.start();
    let offset = |reg: u32| reg;
    let first: Vec<u32> = bench.bar.writes.borrow().iter().map(|(at, _)| *at).collect();
    let expected = [
        port_regs::SEND_DMA_BASE.port(PORT).offset(),
        port_regs::SEND_DMA_LEN_GEN.port(PORT).offset(),
        port_regs::SEND_DMA_LEN_GEN.port(PORT).offset(),
        port_regs::SEND_DMA_TAIL.port(PORT).offset(),
        port_regs::SEND_DMA_RELOAD_CNT.port(PORT).offset(),
        port_regs::SEND_DMA_DESC_CNT.port(PORT).offset(),
        port_regs::SEND_DMA_HEAD_ADDR.port(PORT).offset(),
    ]
    .map(offset);
    assert_eq!(first[..7], expected);
    // Length 256; then generation 0 with its check, bit 18.
    assert_eq!(bench.bar.written(expected[1]), [256, 256 | 1 << 18]);
    assert_eq!(bench.bar.written(expected[4]), [64]);
    let mask = |word| bench.bar.peek(port_regs::SEND_DMA_BUF_MASK.port(PORT).index(word).offset());
    assert_eq!([mask(0), mask(1), mask(2)], [0, 0, 0xFFFF], "buffers 128 to 143");
    let ctrl = bench.send_ctrl();
    assert!(ctrl.send_enable() && ctrl.sdma_int_enable() && ctrl.sdma_halt() && !ctrl.sdma_enable());
    assert_eq!((bench.engine.state(), bench.phase()), (EngineState::StartWait, Phase::Stopped));
}

#[test]
fn engine_runs_once_it_has_halted_and_the_link_is_active_in_either_order() {
    for link_first in [true, false] {
        let mut bench = bench();
        bench.start();
        if link_first {
            bench.link(true);
            assert_eq!(bench.engine.state(), EngineState::StartWait);
            bench.error(PortErrBits::SDMA_HALT_ERR);
        } else {
            bench.engine.on_cleanup_done(&mut bench.controls, &bench.bar, bench.now);
            assert_eq!(bench.engine.state(), EngineState::Idle);
            bench.link(true);
        }
        let ctrl = bench.send_ctrl();
        assert!(ctrl.sdma_enable() && ctrl.sdma_int_enable() && !ctrl.sdma_halt());
        assert_eq!((bench.phase(), bench.changes()), (Phase::Running, vec![SdmaChange::Running]));
        assert_eq!(bench.engine.poll_timeout(), None, "nothing is waited for");
    }
}

/// A link that flaps while the engine restarts leaves it running in the end, with one stop told for each.
#[test]
fn link_down_halts_drains_and_cleans_up_and_link_up_runs_again() {
    let mut bench = Bench::running();
    bench.bar.writes.borrow_mut().clear();
    bench.link(false);
    assert_eq!((bench.engine.state(), bench.phase()), (EngineState::HaltWait, Phase::Halting));
    let written = bench.bar.written(port_regs::SEND_CTRL.port(PORT).offset());
    let enables: Vec<bool> = written.iter().map(|value| SendCtrl(*value).send_enable()).collect();
    assert_eq!(enables, [true, false, false, true], "the drain, between switching sending off and on");
    assert!(SendCtrl(written[2]).txe_abort_ibc() && SendCtrl(written[2]).txe_drain_rm_fifo());
    bench.error(PortErrBits::SDMA_HALT_ERR);
    // Nobody has the queue, so it was settled at home and the clean-up began at once.
    assert_eq!(bench.engine.state(), EngineState::StartWait);
    assert_eq!(bench.changes(), [SdmaChange::Stopped(FlushReason::LinkDown)]);
    assert!(bench.send_ctrl().sdma_cleanup());
    bench.link(true);
    bench.engine.on_cleanup_done(&mut bench.controls, &bench.bar, bench.now);
    assert_eq!((bench.phase(), bench.changes()), (Phase::Running, vec![SdmaChange::Running]));
    assert!(!bench.send_ctrl().sdma_cleanup(), "the command is not kept");
}

#[test]
fn every_error_that_stops_the_engine_restarts_it() {
    for bit in STOPPING.iter() {
        for halted in [PortErrBits::SDMA_HALT_ERR, PortErrBits::empty()] {
            let mut bench = Bench::running();
            bench.error(bit | halted);
            if halted.is_empty() {
                assert_eq!(bench.engine.state(), EngineState::HaltWait, "{bit:?}");
                bench.error(PortErrBits::SDMA_HALT_ERR);
            }
            assert_eq!(bench.engine.state(), EngineState::StartWait, "{bit:?}");
            bench.engine.on_cleanup_done(&mut bench.controls, &bench.bar, bench.now);
            assert_eq!(bench.engine.state(), EngineState::Running, "{bit:?}");
            assert_eq!(
                bench.changes(),
                [SdmaChange::Stopped(FlushReason::Halted), SdmaChange::Running],
                "{bit:?}"
            );
        }
    }
}

#[test]
fn notice_of_a_halt_that_is_over_does_not_stop_a_running_engine() {
    let mut bench = Bench::running();
    bench.error(PortErrBits::SDMA_HALT_ERR);
    assert_eq!((bench.engine.state(), bench.engine.counts().stale_halts), (EngineState::Running, 1));
    bench.bar.set(port_regs::SEND_DMA_STATUS.port(PORT).offset(), HALTED);
    bench.error(PortErrBits::SDMA_HALT_ERR);
    assert_eq!(bench.engine.state(), EngineState::StartWait);
}

/// An interrupt that got lost is made up for by a look at the status.
#[test]
fn lost_notice_is_made_up_for_at_the_deadline() {
    let mut bench = bench();
    bench.start();
    bench.bar.set(port_regs::SEND_DMA_STATUS.port(PORT).offset(), HALTED);
    bench.late();
    assert_eq!(bench.engine.state(), EngineState::Idle);
    let mut bench = Bench::running();
    bench.link(false);
    bench.bar.set(port_regs::SEND_DMA_STATUS.port(PORT).offset(), HALTED);
    bench.late();
    assert_eq!(bench.engine.state(), EngineState::StartWait);
}

#[test]
fn engine_that_never_answers_is_given_up_and_a_new_link_tries_again() {
    let mut bench = bench();
    bench.start();
    (0..STEP_ATTEMPTS).for_each(|_| bench.late());
    let waited = Duration::from_nanos(STEP_WITHIN.as_nanos() * u64::from(STEP_ATTEMPTS));
    let failed = SdmaChange::Failed { state: EngineState::StartWait, waited };
    assert_eq!((bench.engine.state(), bench.changes()), (EngineState::Failed, vec![failed]));
    assert_eq!(bench.engine.poll_timeout(), None);
    let ctrl = bench.send_ctrl();
    assert!(ctrl.send_enable() && !ctrl.sdma_enable() && !ctrl.sdma_halt(), "PIO goes on");
    bench.link(true);
    bench.error(PortErrBits::SDMA_HALT_ERR);
    assert_eq!(bench.engine.state(), EngineState::Running);
}

#[test]
fn engine_that_does_not_halt_is_given_up_and_its_sends_are_settled() {
    let mut bench = Bench::running();
    bench.link(false);
    (0..STEP_ATTEMPTS).for_each(|_| bench.late());
    assert_eq!((bench.engine.state(), bench.phase()), (EngineState::Failed, Phase::Flushed));
    assert!(matches!(bench.changes()[..], [SdmaChange::Failed { state: EngineState::HaltWait, .. }]));
}

#[test]
fn restart_waits_for_the_data_side_and_not_for_ever_without_a_look() {
    let mut bench = Bench::running();
    let queue = bench.engine.home().take().expect("at home");
    bench.error(PortErrBits::SDMA_GEN_MISMATCH_ERR | PortErrBits::SDMA_HALT_ERR);
    assert_eq!((bench.engine.state(), bench.phase()), (EngineState::SwCleanup, Phase::Flush));
    bench.late();
    assert_eq!(bench.engine.state(), EngineState::SwCleanup, "its owner has not looked");
    bench.engine.home().put(queue);
    bench.late();
    assert_eq!(bench.engine.state(), EngineState::StartWait);
}

#[test]
fn engine_that_halts_on_everything_restarts_no_faster_than_it_may() {
    let mut bench = Bench::running();
    let mut restarts = 0;
    for _ in 0..50 {
        bench.error(PortErrBits::SDMA_HALT_ERR | PortErrBits::SDMA_BASE_ERR);
        bench.engine.on_timeout(&mut bench.controls, &bench.bar, bench.now);
        bench.engine.on_cleanup_done(&mut bench.controls, &bench.bar, bench.now);
        restarts += bench.changes().iter().filter(|change| **change == SdmaChange::Running).count();
        bench.now += Duration::from_millis(1);
    }
    // 50 ms at one restart every 10 ms.
    assert!((4..=6).contains(&restarts), "{restarts} restarts");
}

#[test]
fn reset_flushes_what_was_in_flight_and_writes_every_register_again() {
    let mut bench = Bench::running();
    bench.bar.writes.borrow_mut().clear();
    bench.engine.on_reset(&mut bench.controls, &bench.bar, bench.now);
    assert_eq!(bench.engine.state(), EngineState::StartWait);
    assert_eq!(bench.bar.written(port_regs::SEND_DMA_BASE.port(PORT).offset()).len(), 1);
    assert_eq!(bench.changes(), [SdmaChange::Stopped(FlushReason::Reset)]);
}

#[test]
fn engine_that_is_switched_off_is_seen_to_stand_still_before_its_memory_goes() {
    let mut bench = Bench::running();
    let status = port_regs::SEND_DMA_STATUS.port(PORT).offset();
    bench.bar.on_write(move |bar, at, value| {
        if at == port_regs::SEND_CTRL.port(PORT).offset() && SendCtrl(value).sdma_halt() {
            bar.set(status, HALTED);
        }
    });
    bench.engine.switch_off(&mut bench.controls, &bench.bar);
    assert_eq!((bench.phase(), bench.engine.poll_timeout()), (Phase::Off, None));
    assert!(!bench.send_ctrl().sdma_enable());
    assert!(bench.bar.reads.borrow().iter().filter(|at| **at == status).count() <= 2);
    // One that stays busy is waited for a bounded number of looks.
    let mut bench = Bench::running();
    bench.engine.switch_off(&mut bench.controls, &bench.bar);
    let looks = bench.bar.reads.borrow().iter().filter(|at| **at == status).count();
    assert_eq!(looks, QUIET_LOOKS as usize);
}

#[test]
fn buffer_in_error_has_a_running_engine_start_anew() {
    let mut bench = Bench::running();
    bench.engine.on_buffer_error(&mut bench.controls, &bench.bar, bench.now);
    assert_eq!(bench.engine.state(), EngineState::HaltWait);
    bench.error(PortErrBits::SDMA_HALT_ERR);
    bench.engine.on_cleanup_done(&mut bench.controls, &bench.bar, bench.now);
    assert_eq!(bench.engine.state(), EngineState::Running);
}

/// B33: whichever allocation fails, nothing is left allocated.
#[test]
fn memory_for_an_engine_that_is_short_is_an_error_and_nothing_is_left_of_it() {
    let mut mapper = PlainMapper::default();
    mapper.left = 1;
    let ring = Ring::allocate(256, &mut mapper).expect("the first");
    let memory = Arc::downgrade(ring.region().memory());
    assert!(SdmaQueue::allocate(ring, Arc::new(SdmaShared::new(PORT)), &mut mapper).is_err());
    assert!(memory.upgrade().is_none(), "the ring went with the error");
    assert!(Ring::allocate(256, &mut mapper).is_err());
    assert!(mapper.map(1).is_err());
}
