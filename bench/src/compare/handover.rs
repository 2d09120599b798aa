//! Handing work to the error worker, asleep and awake: the driver's word and bell beside a futex and two channels.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, unbounded};
use qhca_driver::sys::EventFd;
use qhca_irq::{Handover, Reasons};
use qhca_regs::Instant;
use rustix::thread::futex;

use super::turns::{Bell, median_ns};
use super::{Limit, Section};
use crate::interleave::{Candidate, interleave};

/// Two sections: the worker asleep for 50 us, and a worker that looks without sleeping.
pub(super) fn sections(rounds: usize) -> Vec<Section> {
    vec![asleep(rounds), awake(rounds)]
}

fn asleep(rounds: usize) -> Section {
    let pause = Duration::from_micros(50);
    let (futex, driver, std) = (Futex::default(), Driver::new(true), StdChannel::new());
    let candidates = vec![
        Candidate::figure("futex", || median_ns(&futex, pause)),
        Candidate::figure("the driver's", || median_ns(&driver, pause)),
        Candidate::figure("std mpsc", || median_ns(&std, pause)),
    ];
    Section {
        title: "worker hand-over, worker asleep".to_owned(),
        comparison: interleave(rounds, candidates),
        limits: vec![Limit::new("the driver's", "futex", 1.1)],
    }
}

fn awake(rounds: usize) -> Section {
    let pause = Duration::from_micros(1);
    let (crossbeam, driver) = (Crossbeam::new(), Driver::new(false));
    let candidates = vec![
        Candidate::figure("crossbeam", || median_ns(&crossbeam, pause)),
        Candidate::figure("the driver's", || median_ns(&driver, pause)),
    ];
    Section {
        title: "worker hand-over, worker looking".to_owned(),
        comparison: interleave(rounds, candidates),
        limits: vec![Limit::new("the driver's", "crossbeam", 1.0)],
    }
}

/// The hand-over word, and the bell that wakes a worker which sleeps.
struct Driver {
    word: Handover,
    bell: EventFd,
    sleeps: bool,
}

impl Driver {
    fn new(sleeps: bool) -> Self {
        Self { word: Handover::new(), bell: EventFd::new().expect("an eventfd"), sleeps }
    }
}

impl Bell for Driver {
    fn ring(&self) {
        self.word.schedule(Reasons::DEVICE, false, Instant::ZERO);
        if self.sleeps {
            self.bell.signal();
        }
    }

    fn wait(&self) {
        loop {
            if let Some(turn) = self.word.begin(Instant::ZERO) {
                self.word.end(turn);
                return;
            }
            if self.sleeps {
                self.bell.wait(None);
                self.bell.drain();
            } else {
                std::hint::spin_loop();
            }
        }
    }
}

/// A bare futex.
#[derive(Default)]
struct Futex {
    word: AtomicU32,
}

impl Bell for Futex {
    fn ring(&self) {
        self.word.store(1, Ordering::Release);
        futex::wake(&self.word, futex::Flags::PRIVATE, 1).expect("a wake of a word of ours");
    }

    fn wait(&self) {
        while self.word.swap(0, Ordering::AcqRel) == 0 {
            // Fails at once when the word has changed, which is what the loop looks at.
            let _ = futex::wait(&self.word, futex::Flags::PRIVATE, 0, None);
        }
    }
}

/// std's channel, which parks.
struct StdChannel {
    to: std::sync::mpsc::Sender<()>,
    from: Mutex<std::sync::mpsc::Receiver<()>>,
}

impl StdChannel {
    fn new() -> Self {
        let (to, from) = std::sync::mpsc::channel();
        Self { to, from: Mutex::new(from) }
    }
}

impl Bell for StdChannel {
    fn ring(&self) {
        self.to.send(()).expect("the other end lives");
    }

    fn wait(&self) {
        let from = self.from.lock().expect("no waiter has panicked");
        from.recv().expect("the other end lives");
    }
}

/// Crossbeam's channel, which spins for a while before it parks.
struct Crossbeam {
    to: Sender<()>,
    from: Receiver<()>,
}

impl Crossbeam {
    fn new() -> Self {
        let (to, from) = unbounded();
        Self { to, from }
    }
}

impl Bell for Crossbeam {
    fn ring(&self) {
        self.to.send(()).expect("the other end lives");
    }

    fn wait(&self) {
        self.from.recv().expect("the other end lives");
    }
}
