//! Hosts that grant fewer vectors, or the interrupt line alone, and one that wants the card back.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration as StdDuration, Instant as StdInstant};

use qhca::{Opening, SimSetup};
use qhca_driver::env::{Backend, Notice, ResetKind};
use qhca_driver::event::Event;
use qhca_driver::runtime::{Opening as Bringing, Runtime};
use qhca_driver::shared::DeviceState;
use qhca_hwtests::{Check, InWorld, Outcome, count, run};
use qhca_irq::plan::Mode;
use qhca_regs::{Port, Vector};
use qhca_sim::backend::SimDevice;
use qhca_sim::chip::Config;

/// A simulated card on a host that grants so many vectors of this kind, and no other.
struct Narrow {
    device: SimDevice,
    mode: Mode,
    vectors: usize,
    wish: Arc<Wish>,
}

/// What the host has to say, once, and how often it got the card back.
#[derive(Default)]
struct Wish {
    /// 0 nothing, 1 that it wants the card back, 2 that the bus reported an error.
    says: AtomicUsize,
    given_back: AtomicUsize,
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

    fn notice(&mut self) -> Option<Notice> {
        match self.wish.says.swap(0, Ordering::Relaxed) {
            0 => None,
            1 => Some(Notice::WantedBack),
            _ => Some(Notice::BusError),
        }
    }

    fn give_back(&mut self) {
        self.wish.given_back.fetch_add(1, Ordering::Relaxed);
    }

    fn restore_after_chip_reset(&mut self) -> io::Result<()> {
        self.device.restore_after_chip_reset()
    }
}

fn device(setup: SimSetup) -> SimDevice {
    let cards = setup.open().expect("a card that nobody has open");
    let Opening::Sim(opening) = cards.card else { unreachable!("a simulated card was set up") };
    opening.into_backend()
}

fn run_on(mode: Mode, vectors: usize) -> Vec<Check> {
    let device = device(SimSetup::new(Config::default()).on_manual_clock());
    let mut around = InWorld::of(&device);
    run(Narrow { device, mode, vectors, wish: Arc::default() }, &mut around)
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

/// How long the host waits at most: the control thread looks around once a second, whatever fires.
const WITHIN: StdDuration = StdDuration::from_secs(3);

/// B132, B141: a host that wants its card back gets it within a bound, with everything still in use, and once.
#[test]
fn card_that_the_host_wants_back_is_given_back_whoever_uses_it() {
    for (says, notice) in [(1, Notice::WantedBack), (2, Notice::BusError)] {
        let wish = Arc::<Wish>::default();
        let card = device(SimSetup::new(Config::default()));
        let backend = Narrow { device: card, mode: Mode::MsiX, vectors: 32, wish: wish.clone() };
        let device = Bringing::new(backend).start(Runtime::Threads).expect("a device");
        let mut receiver = device.open_port(Port::P0).expect("a receiver");
        let memory = device.map(8192).expect("memory");
        wish.says.store(says, Ordering::Relaxed);
        let begun = StdInstant::now();
        while wish.given_back.load(Ordering::Relaxed) == 0 {
            assert!(begun.elapsed() < WITHIN, "still {:?}", device.state());
            std::thread::sleep(StdDuration::from_millis(5));
        }
        assert_eq!(device.state(), DeviceState::Gone);
        let events: Vec<Event> = std::iter::from_fn(|| device.poll_event()).collect();
        let place = |wanted: fn(&Event) -> bool| events.iter().position(wanted);
        let told = place(|event| matches!(event, Event::Notice(_))).expect("a notice");
        let gone = place(|event| matches!(event, Event::Gone)).expect("the end");
        assert!(told < gone && matches!(&events[told], Event::Notice(seen) if *seen == notice));
        assert!(!receiver.wait(Some(qhca_regs::Duration::from_millis(1))), "nothing comes any more");
        drop((receiver, memory));
        assert_eq!(wish.given_back.load(Ordering::Relaxed), 1, "{notice}");
        assert_eq!(device.close().state, DeviceState::Gone);
    }
}
