//! A host that is held up: what it writes reaches the card late, and what the card interrupts reaches it late. So it is in
//! an emulated machine on busy cores, and with a card behind another process. Nothing is wrong with such a card.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, PoisonError};

use qhca::{Opening, SimSetup};
use qhca_driver::env::{Backend, Clock, ResetKind};
use qhca_hwtests::{InWorld, Outcome, count, run};
use qhca_irq::plan::Mode;
use qhca_irq::{IrqSource, VectorSet, Wake};
use qhca_regs::{Bar, Duration, Instant, Vector};
use qhca_sim::backend::SimDevice;
use qhca_sim::chip::Config;

/// How long a write is on its way, unless a read pushes it.
const WRITES_LATE: Duration = Duration::from_micros(700);
/// How long an interrupt is on its way, whatever is read meanwhile: more than anything that the chip does takes.
const INTERRUPTS_LATE: Duration = Duration::from_millis(7);

/// The card's bar, and the clock by which writes are late.
type Inner = (<SimDevice as Backend>::Bar, <SimDevice as Backend>::Clock);

/// A write that is on its way.
enum Posted {
    Write(u32, u64),
    Doorbell(u32, u64),
    Burst(u32, Vec<u32>),
}

/// Registers behind a queue of writes.
#[derive(Clone)]
struct LateBar {
    inner: Inner,
    posted: Arc<Mutex<Vec<(Instant, Posted)>>>,
}

impl LateBar {
    fn post(&self, write: Posted) {
        let due = self.inner.1.now() + WRITES_LATE;
        self.posted.lock().unwrap_or_else(PoisonError::into_inner).push((due, write));
    }

    /// Lets the writes arrive, all of them: they never overtake each other.
    fn arrive(&self) {
        let writes = std::mem::take(&mut *self.posted.lock().unwrap_or_else(PoisonError::into_inner));
        for (_, write) in writes {
            match write {
                Posted::Write(offset, value) => self.inner.0.write(offset, value),
                Posted::Doorbell(offset, value) => self.inner.0.doorbell(offset, value),
                Posted::Burst(offset, dwords) => self.inner.0.burst(offset, &dwords),
            }
        }
    }

    /// When the first of them arrives by itself.
    fn due(&self) -> Option<Instant> {
        self.posted.lock().unwrap_or_else(PoisonError::into_inner).first().map(|(due, _)| *due)
    }
}

impl Bar for LateBar {
    fn read(&self, offset: u32) -> u64 {
        self.arrive();
        self.inner.0.read(offset)
    }

    fn write(&self, offset: u32, value: u64) {
        self.post(Posted::Write(offset, value));
    }

    fn doorbell(&self, offset: u32, value: u64) {
        self.post(Posted::Doorbell(offset, value));
    }

    fn burst(&self, offset: u32, dwords: &[u32]) {
        self.post(Posted::Burst(offset, dwords.to_vec()));
    }
}

/// Interrupts that come late.
struct LateIrq {
    inner: <SimDevice as Backend>::Irq,
    bar: LateBar,
    clock: <SimDevice as Backend>::Clock,
    coming: Vec<(Instant, VectorSet)>,
}

impl IrqSource for LateIrq {
    fn wait(&mut self, deadline: Option<Instant>) -> Wake {
        loop {
            let now = self.clock.now();
            if self.bar.due().is_some_and(|due| due <= now) {
                self.bar.arrive();
            }
            if let Some((due, vectors)) = self.coming.first().copied()
                && due <= now
            {
                self.coming.remove(0);
                return Wake::Vectors(vectors);
            }
            if deadline.is_some_and(|deadline| deadline <= now) {
                return Wake::Deadline;
            }
            let next = self.coming.first().map(|(due, _)| *due);
            let until = [deadline, next, self.bar.due()].into_iter().flatten().min();
            if let Wake::Vectors(vectors) = self.inner.wait(until)
                && !vectors.is_empty()
            {
                self.coming.push((self.clock.now() + INTERRUPTS_LATE, vectors));
            }
        }
    }
}

impl AsFd for LateIrq {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.as_fd()
    }
}

/// The card behind both.
struct Late {
    device: SimDevice,
    bar: LateBar,
}

impl Backend for Late {
    type Bar = LateBar;
    type Mapper = <SimDevice as Backend>::Mapper;
    type Irq = LateIrq;
    type Clock = <SimDevice as Backend>::Clock;

    fn bar(&self) -> LateBar {
        self.bar.clone()
    }

    fn mapper(&self) -> Self::Mapper {
        self.device.mapper()
    }

    fn clock(&self) -> Self::Clock {
        self.device.clock()
    }

    fn name(&self) -> String {
        self.device.name()
    }

    fn grant_vectors(&mut self, mode: Mode, wanted: usize) -> io::Result<usize> {
        self.device.grant_vectors(mode, wanted)
    }

    fn unmask_line(&mut self) {
        self.device.unmask_line();
    }

    fn irq_source(&mut self, vectors: &[Vector]) -> io::Result<LateIrq> {
        let inner = self.device.irq_source(vectors)?;
        Ok(LateIrq { inner, bar: self.bar.clone(), clock: self.device.clock(), coming: Vec::new() })
    }

    fn reset(&mut self) -> io::Result<ResetKind> {
        self.bar.arrive();
        self.device.reset()
    }

    fn restore_after_chip_reset(&mut self) -> io::Result<()> {
        self.device.restore_after_chip_reset()
    }
}

/// Found in emulated guests on busy cores: `sdma-halt` missed its interrupt and `sdma-errors` its packet.
#[test]
fn everything_late_and_nothing_wrong_then_every_check_passes() {
    let cards =
        SimSetup::new(Config::default()).on_manual_clock().open().expect("a card that nobody has open");
    let Opening::Sim(opening) = cards.card else { unreachable!("a simulated card was set up") };
    let device = opening.into_backend();
    let mut around = InWorld::of(&device);
    let bar = LateBar { inner: (device.bar(), device.clock()), posted: Arc::default() };
    let checks = run(Late { device, bar }, &mut around);
    assert_eq!(checks.len(), count());
    let not_passed: Vec<_> = checks.iter().filter(|check| check.result != Outcome::Pass).collect();
    assert!(not_passed.is_empty(), "{not_passed:#?}");
}
