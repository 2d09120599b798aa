//! The scenarios on a host that grants fewer vectors, or the interrupt line alone.

use std::io;

use qhca::{Opening, SimSetup};
use qhca_driver::env::{Backend, ResetKind};
use qhca_hwtests::{Check, InWorld, Outcome, count, run};
use qhca_irq::plan::Mode;
use qhca_regs::Vector;
use qhca_sim::backend::SimDevice;
use qhca_sim::chip::Config;

/// A simulated card on a host that grants so many vectors of this kind, and no other.
struct Narrow {
    device: SimDevice,
    mode: Mode,
    vectors: usize,
}

impl Backend for Narrow {
    type Bar = <SimDevice as Backend>::Bar;
    type Mapper = <SimDevice as Backend>::Mapper;
    type Irq = <SimDevice as Backend>::Irq;
    type Clock = <SimDevice as Backend>::Clock;

    fn bar(&self) -> Self::Bar {
        self.device.bar()
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
        match mode == self.mode {
            true => self.device.grant_vectors(mode, wanted.min(self.vectors)),
            false => Err(io::Error::new(io::ErrorKind::Unsupported, "this host has no such interrupts")),
        }
    }

    fn unmask_line(&mut self) {
        self.device.unmask_line();
    }

    fn irq_source(&mut self, vectors: &[Vector]) -> io::Result<Self::Irq> {
        self.device.irq_source(vectors)
    }

    fn reset(&mut self) -> io::Result<ResetKind> {
        self.device.reset()
    }

    fn restore_after_chip_reset(&mut self) -> io::Result<()> {
        self.device.restore_after_chip_reset()
    }
}

fn run_on(mode: Mode, vectors: usize) -> Vec<Check> {
    let cards =
        SimSetup::new(Config::default()).on_manual_clock().open().expect("a card that nobody has open");
    let Opening::Sim(opening) = cards.card else { unreachable!("a simulated card was set up") };
    let device = opening.into_backend();
    let mut around = InWorld::of(&device);
    run(Narrow { device, mode, vectors }, &mut around)
}

/// All pass but those named, which are skipped with this word in their reason.
fn check(checks: &[Check], skipped: &[&str], why: &str) {
    assert_eq!(checks.len(), count());
    for check in checks {
        match &check.result {
            Outcome::Pass => assert!(!skipped.contains(&check.name), "{check}"),
            Outcome::Skip(reason) => {
                assert!(skipped.contains(&check.name) && reason.contains(why), "{check}")
            }
            Outcome::Fail(_) => panic!("{check}"),
        }
    }
}

#[test]
fn fewer_vectors_than_the_chip_has_are_enough_for_every_check() {
    check(&run_on(Mode::MsiX, 3), &[], "");
}

#[test]
fn on_the_interrupt_line_everything_passes_but_what_needs_vectors() {
    check(&run_on(Mode::Intx, 1), &["every-cause"], "one vector only");
}

#[test]
fn host_without_interrupts_skips_every_check_and_says_why() {
    let names: Vec<&str> = qhca_hwtests::names().collect();
    check(&run_on(Mode::Msi, 0), &names, "no interrupts; MSI-X: ");
}
