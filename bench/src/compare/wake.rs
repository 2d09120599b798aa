//! From an interrupt's eventfd to the handler: the driver's own calls beside bare system calls.

use std::time::Duration;

use qhca_driver::sys::{Epoll, EventFd};
use rustix::event::{EventfdFlags, epoll};
use rustix::fd::OwnedFd;

use super::turns::{Bell, median_ns};
use super::{Limit, Section};
use crate::interleave::{Candidate, interleave};
use std::os::fd::AsFd;
use std::sync::Mutex;

/// One section: the waiter sleeps for 50 us before each interrupt.
pub(super) fn sections(rounds: usize) -> Vec<Section> {
    let pause = Duration::from_micros(50);
    let (bare, driver, parked) = (BareEpoll::new(), DriverEpoll::new(), Parked::default());
    let candidates = vec![
        Candidate::figure("eventfd and epoll, bare", || median_ns(&bare, pause)),
        Candidate::figure("the driver's", || median_ns(&driver, pause)),
        Candidate::figure("std park", || median_ns(&parked, pause)),
    ];
    vec![Section {
        title: "interrupt to handler, waiter asleep".to_owned(),
        comparison: interleave(rounds, candidates),
        limits: vec![Limit::new("the driver's", "eventfd and epoll, bare", 1.1)],
    }]
}

/// What a program in C would do: epoll_wait, then read.
struct BareEpoll {
    set: OwnedFd,
    event: OwnedFd,
}

impl BareEpoll {
    fn new() -> Self {
        let event = rustix::event::eventfd(0, EventfdFlags::NONBLOCK).expect("an eventfd");
        let set = epoll::create(epoll::CreateFlags::CLOEXEC).expect("an epoll set");
        epoll::add(&set, &event, epoll::EventData::new_u64(0), epoll::EventFlags::IN)
            .expect("one more descriptor");
        Self { set, event }
    }
}

impl Bell for BareEpoll {
    fn ring(&self) {
        rustix::io::write(&self.event, &1_u64.to_ne_bytes()).expect("an eventfd takes eight bytes");
    }

    fn wait(&self) {
        let mut ready =
            [epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) }; 32];
        epoll::wait(&self.set, &mut ready, None).expect("a wait on an open set");
        let mut count = [0; 8];
        rustix::io::read(&self.event, &mut count).expect("a count, since it was ready");
    }
}

/// The driver's own: the same two descriptors behind its types.
struct DriverEpoll {
    set: Epoll,
    event: EventFd,
    tokens: Mutex<Vec<u64>>,
}

impl DriverEpoll {
    fn new() -> Self {
        let (set, event) = (Epoll::new().expect("an epoll set"), EventFd::new().expect("an eventfd"));
        set.add(event.as_fd(), 0).expect("one more descriptor");
        Self { set, event, tokens: Mutex::default() }
    }
}

impl Bell for DriverEpoll {
    fn ring(&self) {
        self.event.signal();
    }

    fn wait(&self) {
        // Taken by the one thread that waits; uncontended, it is two instructions beside three system calls.
        let mut tokens = self.tokens.lock().expect("no waiter has panicked");
        self.set.wait(-1, &mut tokens).expect("a wait on an open set");
        self.event.drain();
    }
}

/// std's park and unpark.
#[derive(Default)]
struct Parked {
    waiter: Mutex<Option<std::thread::Thread>>,
    rung: std::sync::atomic::AtomicBool,
}

impl Bell for Parked {
    fn ring(&self) {
        self.rung.store(true, std::sync::atomic::Ordering::Release);
        if let Some(waiter) = &*self.waiter.lock().expect("no thread has panicked") {
            waiter.unpark();
        }
    }

    fn wait(&self) {
        *self.waiter.lock().expect("no thread has panicked") = Some(std::thread::current());
        while !self.rung.swap(false, std::sync::atomic::Ordering::AcqRel) {
            std::thread::park();
        }
    }
}
