//! What an application holds: a device that is up.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use qhca_irq::ContextSet;
use qhca_irq::worker::Close;
use qhca_regs::{Ctxt, Duration, Instant, Port};

use super::core::{Core, Listener};
use super::data::{Receiver, Transmitter};
use super::error::StartError;
use super::open::Runtime;
use super::reset::{ResetError, ResetHow, ResetReport, replace_source};
use super::threads::{Threads, lock, new_bell};
use crate::bringup::Report as BringUpReport;
use crate::contexts::Split;
use crate::counters::{Counters, CountersFrozen};
use crate::dma::DmaRegion;
use crate::env::{Backend, Clock};
use crate::event::Event;
use crate::identity::Identity;
use crate::link::{
    CableError, CableInfo, Command, Goal, Heartbeat, LidAssignment, LinkError, LinkStatus, Width,
};
use crate::ports::Speeds;
use crate::shared::{DeviceShared, DeviceState};
use crate::slots::{LendError, Wanted};
use crate::sys::EventFd;

/// How long a close waits for a turn of the worker that runs.
///
/// TIMEOUT: a turn takes a few register accesses; a hundred times that, on a host that is busy.
const CLOSE_WAITS: Duration = Duration::from_millis(100);

/// What a close came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "what was still in use is worth a look"]
pub struct CloseReport {
    /// Contexts that were still open. Their owners find them gone.
    pub contexts_open: ContextSet,
    /// Whether the device had been closed before; then nothing was done.
    pub was_closed: bool,
    /// Whether a turn of the worker had to be left running.
    pub forced: bool,
    /// What the device was before.
    pub state: DeviceState,
}

/// What a device and all that was made from it hold together.
pub(super) struct Inner<B: Backend> {
    core: Arc<Mutex<Core<B>>>,
    shared: Arc<DeviceShared>,
    clock: B::Clock,
    bell: Arc<EventFd>,
    threads: Mutex<Threads>,
    closed: AtomicBool,
}

impl<B: Backend> Inner<B> {
    pub(super) fn shared(&self) -> &DeviceShared {
        &self.shared
    }

    pub(super) fn clock(&self) -> &B::Clock {
        &self.clock
    }

    /// Has the control side look around.
    pub(super) fn wake(&self) {
        self.bell.signal();
    }

    fn close(&self) -> CloseReport {
        let state = self.shared.state();
        if self.closed.swap(true, Ordering::AcqRel) {
            return CloseReport { contexts_open: ContextSet::EMPTY, was_closed: true, forced: false, state };
        }
        let (contexts_open, closing) = {
            let mut core = lock(&self.core);
            (core.hca.open_contexts(), core.hca.begin_close())
        };
        // The worker's turn ends by itself; its thread is waited for with the others.
        let forced = closing == Close::TurnRunning && !self.wait_for_turn();
        lock(&self.threads).join();
        let mut core = lock(&self.core);
        let bar = core.bar.clone();
        core.hca.finish_close(&bar);
        core.turn(qhca_irq::VectorSet::EMPTY, self.clock.now());
        core.backend.give_back();
        CloseReport { contexts_open, was_closed: false, forced, state }
    }

    /// Waits for the turn that runs; false if it did not end in time.
    fn wait_for_turn(&self) -> bool {
        let until = self.clock.now() + CLOSE_WAITS;
        while self.shared.handover().is_running() {
            if self.clock.now() >= until {
                return false;
            }
            std::thread::yield_now();
        }
        true
    }
}

impl<B: Backend> Drop for Inner<B> {
    fn drop(&mut self) {
        let _report = self.close();
    }
}

/// A device that is up. Handles can be cloned; the device closes with the last of them, receivers and transmitters
/// included, or when it is told to.
pub struct Device<B: Backend> {
    inner: Arc<Inner<B>>,
    manual: Option<Arc<Mutex<Listener<B>>>>,
    identity: Arc<Identity>,
    bring_up: Arc<BringUpReport>,
}

impl<B: Backend> Clone for Device<B> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            manual: self.manual.clone(),
            identity: self.identity.clone(),
            bring_up: self.bring_up.clone(),
        }
    }
}

impl<B: Backend> Device<B> {
    pub(super) fn launch(
        core: Core<B>,
        listener: Listener<B>,
        clock: B::Clock,
        identity: Identity,
        bring_up: BringUpReport,
        runtime: Runtime,
    ) -> Result<Self, StartError> {
        let shared = core.hca.shared().clone();
        let core = Arc::new(Mutex::new(core));
        let bell = Arc::new(new_bell()?);
        let inner = Arc::new(Inner {
            core: core.clone(),
            shared,
            clock: clock.clone(),
            bell: bell.clone(),
            threads: Mutex::new(Threads::none()),
            closed: AtomicBool::new(false),
        });
        let manual = match runtime {
            Runtime::Manual => Some(Arc::new(Mutex::new(listener))),
            Runtime::Threads | Runtime::Pinned { .. } => {
                *lock(&inner.threads) = Threads::start(&core, listener, &clock, bell, runtime)?;
                None
            }
        };
        Ok(Self { inner, manual, identity: Arc::new(identity), bring_up: Arc::new(bring_up) })
    }

    /// Chip, board, GUIDs, serial number.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// The steps of its bring-up, and what was odd.
    pub fn bring_up_report(&self) -> &BringUpReport {
        &self.bring_up
    }

    /// What the device is called.
    pub fn name(&self) -> String {
        self.core().backend.name()
    }

    /// A view of the registers, for tools. What is written through it is nobody's business but the writer's.
    pub fn bar(&self) -> B::Bar {
        self.core().bar.clone()
    }

    /// The time on the device's clock.
    pub fn now(&self) -> Instant {
        self.inner.clock.now()
    }

    /// Whether the device can be used.
    pub fn state(&self) -> DeviceState {
        self.inner.shared.state()
    }

    /// The words that the device's threads have in common: dispatch counters, the hand-over, events.
    pub fn shared(&self) -> &DeviceShared {
        &self.inner.shared
    }

    /// How contexts and buffers are split.
    pub fn split(&self) -> Split {
        self.core().hca.split().clone()
    }

    /// Opens the kernel context of `port`: the one that gets packets to queue pairs which nobody has mapped.
    ///
    /// # Errors
    /// [`LendError`]: it is open, or the port is not in use.
    pub fn open_port(&self, port: Port) -> Result<Receiver<B>, LendError> {
        let wanted = self.split().kernel_contexts().find(|(_, of)| *of == port);
        let (ctxt, _) = wanted.ok_or(LendError::NoSuchPort { port })?;
        self.open(Wanted::Kernel(ctxt))
    }

    /// Opens kernel context `ctxt`.
    ///
    /// # Errors
    /// [`LendError`].
    pub fn open_context(&self, ctxt: Ctxt) -> Result<Receiver<B>, LendError> {
        self.open(Wanted::Kernel(ctxt))
    }

    /// Opens a user context on `port`.
    ///
    /// # Errors
    /// [`LendError::AllInUse`] says how many there are.
    pub fn open_user(&self, port: Port) -> Result<Receiver<B>, LendError> {
        self.open(Wanted::User(port))
    }

    fn open(&self, wanted: Wanted) -> Result<Receiver<B>, LendError> {
        let mut core = self.core();
        let Core { hca, mapper, bar, .. } = &mut *core;
        let context = hca.open_context(wanted, mapper, bar)?;
        let bell = core.bell_of(context.ctxt()).map_err(LendError::System)?;
        let bar = core.bar.clone();
        Ok(Receiver::new(context, bar, bell, self.inner.clone()))
    }

    /// Opens the device's own send buffers.
    ///
    /// # Errors
    /// [`LendError::SenderInUse`].
    pub fn open_sender(&self) -> Result<Transmitter<B>, LendError> {
        let mut core = self.core();
        let sender = core.hca.open_sender()?;
        Ok(Transmitter::new(sender, core.bar.clone(), self.inner.clone()))
    }

    /// Opens the send buffers that belong to a user context.
    ///
    /// # Errors
    /// [`LendError`].
    pub fn open_user_sender(&self, receiver: &Receiver<B>) -> Result<Transmitter<B>, LendError> {
        let mut core = self.core();
        let sender = core.hca.open_user_sender(receiver.context())?;
        Ok(Transmitter::new(sender, core.bar.clone(), self.inner.clone()))
    }

    /// Memory that the chip can reach, zeroed: for payloads that are sent or received in place. It is given back when
    /// the last clone is dropped.
    ///
    /// # Errors
    /// [`MapError`](crate::env::MapError).
    pub fn map(&self, len_bytes: usize) -> Result<DmaRegion, crate::env::MapError> {
        crate::env::DmaMapper::map(&mut self.core().mapper, len_bytes)
    }

    /// What the cable module of `port` says of itself; `None` if there is none, or as long as it is being read.
    pub fn cable(&self, port: Port) -> Option<Result<CableInfo, CableError>> {
        self.core().hca.links().cable(port).cloned()
    }

    /// Whether the cable module of `port` is still being read.
    pub fn is_reading_cable(&self, port: Port) -> bool {
        self.core().hca.links().is_reading_cable(port)
    }

    /// What happened, oldest first; `None` when nothing waits.
    pub fn poll_event(&self) -> Option<Event> {
        self.inner.shared.events().pop()
    }

    /// Whether the device has no interrupts.
    pub fn is_polled(&self) -> bool {
        self.core().hca.is_polled()
    }

    /// The state of a port's link as it was last seen; `None` for a port that is not in use.
    pub fn link_status(&self, port: Port) -> Option<LinkStatus> {
        self.core().hca.links().link(port).map(|link| link.status())
    }

    /// What a port's states mean and what to do about them; `None` for a port that is not in use.
    pub fn link_advice(&self, port: Port) -> Option<&'static str> {
        self.core().hca.links().advice(port)
    }

    /// The hardware port behind an IB port number.
    ///
    /// # Errors
    /// [`LinkError::NoPort`].
    pub fn port_by_ib_number(&self, ib_port: u8) -> Result<Port, LinkError> {
        self.core().hca.links().by_ib_number(ib_port)
    }

    /// Sets what is wanted of a port's link.
    ///
    /// # Errors
    /// [`LinkError`].
    pub fn set_goal(&self, port: Port, goal: Goal) -> Result<(), LinkError> {
        self.command(|core, now| core.hca.links_mut().set_goal(port, goal, &core.bar, now))
    }

    /// Gives one command to a port's link now.
    ///
    /// # Errors
    /// [`LinkError::Forbidden`] says why not in this state.
    pub fn link_command(&self, port: Port, command: Command) -> Result<(), LinkError> {
        self.command(|core, now| core.hca.links_mut().give_now(port, command, &core.bar, now))
    }

    /// Gives a port its LID.
    ///
    /// # Errors
    /// [`LinkError`].
    pub fn set_lid(&self, port: Port, lid: LidAssignment) -> Result<(), LinkError> {
        self.command(|core, _| core.hca.links_mut().set_lid(port, lid, &core.bar))
    }

    /// Makes a port talk to itself, without a cable, or stops that. Do it while the port is switched off, then set its
    /// goal.
    ///
    /// # Errors
    /// [`LinkError`].
    pub fn set_loopback(&self, port: Port, on: bool) -> Result<(), LinkError> {
        self.command(|core, _| core.hca.links_mut().set_loopback(port, on, &core.bar))
    }

    /// Sets which widths and speeds a port's link may have. Do it while the port is switched off, then set its goal.
    ///
    /// # Errors
    /// [`LinkError`].
    pub fn set_rates(&self, port: Port, speeds: Speeds, width: Width) -> Result<(), LinkError> {
        self.command(|core, _| core.hca.links_mut().set_rates(port, speeds, width, &core.bar))
    }

    /// Sets whether a port sends heartbeats, whose loss takes the link down.
    ///
    /// # Errors
    /// [`LinkError`].
    pub fn set_heartbeat(&self, port: Port, heartbeat: Heartbeat) -> Result<(), LinkError> {
        self.command(|core, _| core.hca.links_mut().set_heartbeat(port, heartbeat, &core.bar))
    }

    fn command(
        &self,
        command: impl FnOnce(&mut Core<B>, Instant) -> Result<(), LinkError>,
    ) -> Result<(), LinkError> {
        if self.inner.shared.is_over() {
            return Err(LinkError::Gone { port: Port::P0 });
        }
        let result = command(&mut self.core(), self.inner.clock.now());
        // It may have set a deadline that the control thread does not know of.
        self.inner.bell.signal();
        result
    }

    /// Waits until the link of `port` satisfies `done`, at most `timeout`. With [`Runtime::Manual`] it turns the device
    /// meanwhile.
    pub fn wait_for_link(&self, port: Port, timeout: Duration, done: impl Fn(LinkStatus) -> bool) -> bool {
        const LOOK_EVERY: Duration = Duration::from_millis(1);
        let until = self.now() + timeout;
        loop {
            if self.link_status(port).is_some_and(&done) {
                return true;
            }
            if self.now() >= until || self.inner.shared.is_over() {
                return false;
            }
            match self.manual {
                Some(_) => self.turn(self.now() + LOOK_EVERY),
                None => std::thread::sleep(std::time::Duration::from_nanos(LOOK_EVERY.as_nanos())),
            }
        }
    }

    /// Reads every counter and gives the totals since bring-up.
    ///
    /// # Errors
    /// [`CountersFrozen`]: the device no longer answers; the totals would be what they were.
    pub fn counters(&self) -> Result<Counters, CountersFrozen> {
        let mut core = self.core();
        let now = self.inner.clock.now();
        let Core { counters, bar, hca, .. } = &mut *core;
        let counters = match counters {
            Some(counters) => counters,
            None => counters.insert(Counters::start(hca.split().ports, bar, now)?),
        };
        if hca.shared().is_open() {
            counters.sample(bar, now).inspect_err(|_frozen| {
                hca.shared().worsen(DeviceState::Gone);
            })?;
        }
        for link in hca.split().ports.iter().filter_map(|port| hca.links().link(port)) {
            counters.set_downs_missed(link.port(), link.downs_missed());
        }
        Ok(counters.clone())
    }

    /// Looks into the device, with everything stopped meanwhile.
    pub fn with_hca<R>(&self, look: impl FnOnce(&mut crate::hca::Hca, &B::Bar) -> R) -> R {
        let mut core = self.core();
        let Core { hca, bar, .. } = &mut *core;
        look(hca, bar)
    }

    /// The back end, for whoever stands on the other side of it.
    pub fn with_backend<R>(&self, look: impl FnOnce(&mut B) -> R) -> R {
        look(&mut self.core().backend)
    }

    /// The descriptor whose readiness calls for a [`turn`](Self::turn): an interrupt came. A copy of it, to be put into
    /// a set; `None` if the device is polled or has threads of its own.
    ///
    /// # Errors
    /// What the system says: no descriptor left.
    pub fn interrupt_fd(&self) -> std::io::Result<Option<std::os::fd::OwnedFd>> {
        let Some(listener) = &self.manual else { return Ok(None) };
        lock(listener).fd().map(|fd: BorrowedFd<'_>| fd.try_clone_to_owned()).transpose()
    }

    /// The descriptors whose readiness calls for a [`turn`](Self::turn): interrupts, and commands from other threads.
    ///
    /// # Errors
    /// What the system says: no descriptor left.
    pub fn fds(&self) -> std::io::Result<Vec<std::os::fd::OwnedFd>> {
        let mut fds = vec![self.inner.bell.as_fd().try_clone_to_owned()?];
        fds.extend(self.interrupt_fd()?);
        Ok(fds)
    }

    /// When a [`turn`](Self::turn) is due, whatever fires; `None` if nothing is ever due.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.core().next_deadline()
    }

    /// Does what has fired and what is due by `now`; waits for interrupts until then if it lies ahead. With
    /// [`Runtime::Manual`] this is the whole runtime; with threads it does nothing.
    pub fn turn(&self, now: Instant) {
        let Some(listener) = &self.manual else { return };
        let mut listener = lock(listener);
        self.inner.bell.drain();
        let fired = listener.listen(now);
        let now = self.inner.clock.now().max(now);
        let mut core = self.core();
        core.turn(fired, now);
        replace_source(&mut core, &mut listener, now);
    }

    /// Resets the device and brings it back as it was: contexts, bound pages, senders and links stay what they are to
    /// their owners. Packets that were in flight are lost; sends by DMA have their outcome. With
    /// [`Runtime::Manual`] call [`turn`](Self::turn) afterwards.
    ///
    /// # Errors
    /// [`ResetError`]. Unless it was refused, the device is gone then.
    pub fn reset(&self, how: ResetHow) -> Result<ResetReport, ResetError> {
        let clock = self.inner.clock.clone();
        let report = self.core().reset(how, &clock);
        self.inner.bell.signal();
        report
    }

    /// Closes the device: the chip is made silent, its memory taken from it, its threads end. Receivers and
    /// transmitters that are still around find it gone. A second close does nothing.
    pub fn close(&self) -> CloseReport {
        self.inner.close()
    }

    fn core(&self) -> MutexGuard<'_, Core<B>> {
        lock(&self.inner.core)
    }
}
