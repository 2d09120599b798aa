//! The two threads of a device: control and worker.
//!
//! ```text
//!   control: sleep on {vectors, bell} until the next deadline ─► Core::turn ─► again
//!   worker:  sleep on its bell until the next deadline ─► Worker::poll until nothing is left ─► again
//! ```
//!
//! Both end when the device is closed, has failed or is gone. Neither keeps the device alive.

use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use qhca_regs::Instant;

use super::core::{Core, Listener};
use super::error::StartError;
use super::open::{Runtime, thread_name};
use super::reset::replace_source;
use crate::env::{Backend, Clock};
use crate::fault::Worker;
use crate::hca::event_of;
use crate::sys::{Epoll, EventFd, pin_current_thread};

/// A control thread without any deadline looks around so often all the same.
const IDLE_LOOK_MS: i32 = 1000;

/// The threads, and the bells that wake them.
pub(super) struct Threads {
    handles: Vec<JoinHandle<()>>,
    bells: Vec<Arc<EventFd>>,
}

impl Threads {
    /// No threads: the application turns the device.
    pub(super) fn none() -> Self {
        Self { handles: Vec::new(), bells: Vec::new() }
    }

    /// Starts the threads of a device.
    pub(super) fn start<B: Backend>(
        core: &Arc<Mutex<Core<B>>>,
        listener: Listener<B>,
        clock: &B::Clock,
        bell: Arc<EventFd>,
        runtime: Runtime,
    ) -> Result<Self, StartError> {
        let (control_cpu, worker_cpu) = match runtime {
            Runtime::Pinned { control_cpu, worker_cpu } => (Some(control_cpu), Some(worker_cpu)),
            Runtime::Threads | Runtime::Manual => (None, None),
        };
        let mut threads = Self { handles: Vec::new(), bells: vec![bell.clone()] };
        let worker = lock(core).hca.take_worker();
        if let Some(worker) = worker {
            let worker_bell = Arc::new(new_bell()?);
            threads.bells.push(worker_bell.clone());
            let bar = {
                let mut core = lock(core);
                core.set_worker_bell(worker_bell.clone());
                core.bar.clone()
            };
            let (clock, control_bell) = (clock.clone(), bell.clone());
            let body = move || work::<B>(worker, &bar, &clock, &worker_bell, &control_bell);
            threads.handles.push(spawn("worker", worker_cpu, body)?);
        }
        let (core, clock) = (core.clone(), clock.clone());
        let epoll = waiting_set(&listener, &bell)?;
        threads.handles.push(spawn("control", control_cpu, move || {
            control(&core, listener, &clock, &bell, epoll);
        })?);
        Ok(threads)
    }

    /// Wakes every thread: there is something to look at.
    pub(super) fn wake(&self) {
        self.bells.iter().for_each(|bell| bell.signal());
    }

    /// Waits for the threads to end. Only after the device was closed; each ends within one turn.
    pub(super) fn join(&mut self) {
        self.wake();
        for handle in self.handles.drain(..) {
            if handle.join().is_err() {
                log::error!("a thread of the device panicked; the device is closed");
            }
        }
    }
}

/// A panic in one turn leaves the state machines whole as far as anybody can tell; closing must still be possible.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn new_bell() -> Result<EventFd, StartError> {
    EventFd::new().map_err(|source| StartError::System { what: "making an eventfd", source })
}

fn spawn(
    what: &str,
    cpu: Option<usize>,
    body: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>, StartError> {
    let name = thread_name(what);
    let pinned = move || {
        if let Some(cpu) = cpu
            && let Err(error) = pin_current_thread(cpu)
        {
            log::warn!("a device's thread cannot be bound to CPU {cpu}: {error}");
        }
        body();
    };
    let spawned = std::thread::Builder::new().name(name).spawn(pinned);
    spawned.map_err(|source| StartError::System { what: "starting a thread", source })
}

fn waiting_set<B: Backend>(listener: &Listener<B>, bell: &EventFd) -> Result<Epoll, StartError> {
    let system = |source| StartError::System { what: "making an epoll set", source };
    let epoll = Epoll::new().map_err(system)?;
    epoll.add(bell.as_fd(), 0).map_err(system)?;
    if let Some(fd) = listener.fd() {
        epoll.add(fd, 1).map_err(system)?;
    }
    Ok(epoll)
}

/// The control thread.
fn control<B: Backend>(
    core: &Mutex<Core<B>>,
    mut listener: Listener<B>,
    clock: &B::Clock,
    bell: &EventFd,
    mut epoll: Epoll,
) {
    let mut ready = Vec::new();
    loop {
        let now = clock.now();
        let deadline = {
            let core = lock(core);
            if core.hca.shared().is_over() {
                return;
            }
            core.next_deadline()
        };
        if epoll.wait(wait_ms(deadline, now), &mut ready).is_err() {
            // A set of open descriptors gives no error; without one this thread could only spin.
            return log::error!("the control thread cannot wait for its descriptors and ends");
        }
        bell.drain();
        let now = clock.now();
        let fired = listener.listen(now);
        let mut core = lock(core);
        core.turn(fired, now);
        if replace_source(&mut core, &mut listener, now) {
            match waiting_set(&listener, bell) {
                Ok(set) => epoll = set,
                Err(error) => log::error!("the interrupt line cannot be waited for: {error}"),
            }
        }
    }
}

/// Milliseconds to wait, rounded up so that the deadline has passed afterwards.
fn wait_ms(deadline: Option<Instant>, now: Instant) -> i32 {
    let until = deadline.map(|deadline| deadline.since(now).as_nanos().div_ceil(1_000_000));
    until.map_or(IDLE_LOOK_MS, |ms| i32::try_from(ms).unwrap_or(i32::MAX).min(IDLE_LOOK_MS))
}

/// The worker thread.
fn work<B: Backend>(
    mut worker: Worker,
    bar: &B::Bar,
    clock: &B::Clock,
    bell: &EventFd,
    control_bell: &EventFd,
) {
    let shared = worker.shared().clone();
    while !shared.is_over() {
        let now = clock.now();
        let timeout = worker.poll_timeout().map(|at| at.since(now).as_nanos());
        bell.wait(timeout);
        bell.drain();
        let mut reported = false;
        while let Some(report) = worker.poll(bar, clock.now()) {
            shared.events().push(event_of(report));
            reported = true;
        }
        if reported || shared.has_news() || shared.is_over() {
            control_bell.signal();
        }
    }
    control_bell.signal();
}
