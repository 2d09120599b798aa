//! The in-process back end: a [`World`] behind the seam at which the driver expects a card.
//!
//! ```text
//!   driver thread ── SimBar ────┐                         ┌── pump thread (real clock only):
//!   driver thread ── SimBar ────┤   Mutex<State{World}>   │   lets happen what is due while nobody looks
//!   driver thread ── SimIrq ◀───┴── IrqLine.fire ◀────────┘
//!                     eventfd         (atomic set, one signal until it is taken)
//! ```
//!
//! Every register access takes the world, lets happen all that is due by now, and then does the access: the chip is
//! always as it would be at that moment. Two clocks turn it. With the *monotonic* clock a thread of the world's own sleeps
//! until something is due. With a [`ManualClock`] nothing moves by itself: waiting for an interrupt moves the clock to
//! the next thing that happens, so that one thread runs driver and world in virtual time, the same every time.
//!
//! It models the device, not the host: mapping memory costs nothing and interrupts have no price. The laboratory
//! charges for both.

use crate::chip::IntMode;
use crate::host::IrqLine;
use crate::world::{NodeId, World};
use qhca_driver::dma::{DmaMemory, DmaRegion};
use qhca_driver::env::{Backend, Clock, DmaMapper, MapError, MonotonicClock, ResetKind};
use qhca_driver::sys::EventFd;
use qhca_irq::plan::Mode;
use qhca_irq::{IrqSource, VectorSet, Wake};
use qhca_regs::map::area;
use qhca_regs::{Bar, Instant, Vector};
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// A clock that stands still until it is moved.
#[derive(Clone, Debug, Default)]
pub struct ManualClock(Arc<AtomicU64>);

impl ManualClock {
    /// Moves the clock to `now`; it never goes back.
    pub fn set(&self, now: Instant) {
        self.0.fetch_max(now.as_nanos(), Ordering::Relaxed);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Instant {
        Instant::from_nanos(self.0.load(Ordering::Relaxed))
    }
}

/// What turns a world.
#[derive(Clone, Debug)]
pub enum SimClock {
    /// The system's clock.
    Monotonic(MonotonicClock),
    /// Whoever moves it.
    Manual(ManualClock),
}

impl Clock for SimClock {
    fn now(&self) -> Instant {
        match self {
            Self::Monotonic(clock) => clock.now(),
            Self::Manual(clock) => clock.now(),
        }
    }
}

struct State {
    world: World,
    /// Until when the pump sleeps unless it is woken.
    pump_due: Instant,
    stop: bool,
    open: Vec<NodeId>,
}

struct Inner {
    state: Mutex<State>,
    bell: Condvar,
    clock: SimClock,
}

/// The world and, with a real clock, the thread that turns it. Everything handed out holds it.
struct Turned {
    inner: Arc<Inner>,
    pump: Option<JoinHandle<()>>,
}

/// A world that runs.
#[derive(Clone)]
pub struct SimWorld {
    turned: Arc<Turned>,
}

impl Inner {
    /// A panic of one thread does not make the chip unreadable for the others.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does `what` to the world at the present time, and wakes the pump if something is now due before it would wake.
    #[inline]
    fn touch<R>(&self, what: impl FnOnce(&mut World, Instant) -> R) -> R {
        let mut state = self.lock();
        let now = self.clock.now();
        let result = what(&mut state.world, now);
        if let SimClock::Monotonic(_) = self.clock
            && let Some(due) = state.world.next_deadline()
            && due < state.pump_due
        {
            state.pump_due = due;
            self.bell.notify_one();
        }
        result
    }

    /// The pump's whole life: let happen what is due, sleep until the next thing is.
    fn pump(&self) {
        let mut state = self.lock();
        while !state.stop {
            let now = self.clock.now();
            state.world.advance_to(now);
            state.pump_due = state.world.next_deadline().unwrap_or(Instant::MAX);
            let sleep = std::time::Duration::from_nanos(state.pump_due.since(now).as_nanos());
            let waited = self.bell.wait_timeout(state, sleep);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Drop for Turned {
    fn drop(&mut self) {
        self.inner.lock().stop = true;
        self.inner.bell.notify_one();
        if let Some(pump) = self.pump.take() {
            // A pump that panicked has told so on standard error; there is nothing left to do about it.
            let (Ok(()) | Err(_)) = pump.join();
        }
    }
}

impl SimWorld {
    /// Runs `world` on the system's clock, with a thread that turns it while nobody looks.
    ///
    /// # Errors
    /// The system has no thread left.
    pub fn start(world: World) -> io::Result<Self> {
        let inner = Arc::new(Inner::new(world, SimClock::Monotonic(MonotonicClock::new())));
        let pumped = inner.clone();
        let pump =
            std::thread::Builder::new().name("qhca-sim-world".to_owned()).spawn(move || pumped.pump())?;
        Ok(Self { turned: Arc::new(Turned { inner, pump: Some(pump) }) })
    }

    /// Lets `world` stand still until its clock is moved.
    pub fn manual(world: World) -> Self {
        let inner = Arc::new(Inner::new(world, SimClock::Manual(ManualClock::default())));
        Self { turned: Arc::new(Turned { inner, pump: None }) }
    }

    /// What turns the world.
    pub fn clock(&self) -> SimClock {
        self.turned.inner.clock.clone()
    }

    /// Moves a manual clock to `now` and lets happen what is due; on the system's clock only the latter.
    pub fn advance_to(&self, now: Instant) {
        if let SimClock::Manual(clock) = &self.turned.inner.clock {
            clock.set(now);
        }
        self.turned.inner.touch(World::advance_to);
    }

    /// Looks at the world, or does something to it from outside, at the present time.
    pub fn with<R>(&self, look: impl FnOnce(&mut World) -> R) -> R {
        self.turned.inner.touch(|world, now| {
            world.advance_to(now);
            look(world)
        })
    }

    /// Opens the card at `node` for a driver.
    ///
    /// # Errors
    /// Somebody has it open.
    pub fn open(&self, node: NodeId) -> io::Result<SimDevice> {
        let mut state = self.turned.inner.lock();
        if state.open.contains(&node) {
            let busy = format!("simulated card {} is open already: close it first", node.index());
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, busy));
        }
        state.open.push(node);
        let name = format!("sim:{}", state.world.chip(node).config().board.name().to_ascii_lowercase());
        Ok(SimDevice { turned: self.turned.clone(), node, name, max_vectors: Vector::COUNT, granted: 0 })
    }
}

impl Inner {
    fn new(world: World, clock: SimClock) -> Self {
        let state = State { world, pump_due: Instant::MAX, stop: false, open: Vec::new() };
        Self { state: Mutex::new(state), bell: Condvar::new(), clock }
    }
}

impl fmt::Debug for SimWorld {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimWorld").field("clock", &self.turned.inner.clock).finish_non_exhaustive()
    }
}

/// A simulated card, opened.
pub struct SimDevice {
    turned: Arc<Turned>,
    node: NodeId,
    name: String,
    max_vectors: usize,
    granted: usize,
}

impl SimDevice {
    /// Grants at most `vectors` vectors from now on: for a host that is short of them.
    pub fn limit_vectors(&mut self, vectors: usize) {
        self.max_vectors = vectors.min(Vector::COUNT);
    }

    /// The world that the card stands in.
    pub fn world(&self) -> SimWorld {
        SimWorld { turned: self.turned.clone() }
    }

    /// The card's place in its world.
    pub fn node(&self) -> NodeId {
        self.node
    }

    /// Writes the MSI-X table as a host's kernel does: address and data for what is granted, a mask on the rest.
    fn program_table(&self, granted: usize) {
        const DOORBELL_ADDRESS: u64 = 0xFEE0_0000;
        const MASKED: u64 = 1 << 32;
        let bar = self.bar();
        for vector in 0..Vector::COUNT {
            let masked = if vector < granted { 0 } else { MASKED };
            let entry = 2 * vector as u32;
            area::MSIX_TABLE.index(entry).write(&bar, DOORBELL_ADDRESS);
            area::MSIX_TABLE.index(entry + 1).write(&bar, vector as u64 | masked);
        }
    }
}

impl Drop for SimDevice {
    fn drop(&mut self) {
        let mut state = self.turned.inner.lock();
        state.open.retain(|node| *node != self.node);
        state.world.host_mut(self.node).irqs_mut().disconnect_all();
    }
}

impl fmt::Debug for SimDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimDevice({}, node {})", self.name, self.node.index())
    }
}

impl Backend for SimDevice {
    type Bar = SimBar;
    type Mapper = SimMapper;
    type Irq = SimIrq;
    type Clock = SimClock;

    fn bar(&self) -> SimBar {
        SimBar { turned: self.turned.clone(), node: self.node }
    }

    fn mapper(&self) -> SimMapper {
        SimMapper { turned: self.turned.clone(), node: self.node }
    }

    fn clock(&self) -> SimClock {
        self.turned.inner.clock.clone()
    }

    fn name(&self) -> String {
        self.name.clone()
    }

    fn grant_vectors(&mut self, mode: Mode, wanted: usize) -> io::Result<usize> {
        let (int_mode, granted) = match mode {
            Mode::MsiX => (IntMode::Msix, wanted.min(self.max_vectors)),
            Mode::Intx => (IntMode::Intx, wanted.min(1)),
            Mode::Msi => (IntMode::Intx, 0),
        };
        if granted == 0 {
            let refused = format!("{}: no {mode} interrupt can be had from this card", self.name);
            return Err(io::Error::new(io::ErrorKind::Unsupported, refused));
        }
        if mode == Mode::MsiX {
            self.program_table(granted);
        }
        self.granted = granted;
        self.turned.inner.touch(|world, now| {
            world.advance_to(now);
            world.host_mut(self.node).irqs_mut().disconnect_all();
            let (chip, host) = world.chip_mut(self.node);
            chip.set_int_mode(int_mode, now, host);
        });
        Ok(granted)
    }

    fn unmask_line(&mut self) {
        self.turned.inner.touch(|world, _| world.host_mut(self.node).irqs_mut().unmask_intx());
    }

    fn irq_source(&mut self, vectors: &[Vector]) -> io::Result<SimIrq> {
        if let Some(vector) = vectors.iter().find(|vector| vector.index() >= self.granted) {
            let refused = format!("{}: {vector} was not granted, {} were", self.name, self.granted);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, refused));
        }
        let line = Arc::new(Line { fired: AtomicU32::new(0), event: EventFd::new()? });
        let mut state = self.turned.inner.lock();
        for vector in vectors {
            state.world.host_mut(self.node).irqs_mut().connect(*vector, line.clone());
        }
        Ok(SimIrq { turned: self.turned.clone(), line })
    }

    fn reset(&mut self) -> io::Result<ResetKind> {
        self.turned.inner.touch(|world, now| world.reset(self.node, now));
        Ok(ResetKind::Function)
    }
}

/// The register window of a simulated card.
#[derive(Clone)]
pub struct SimBar {
    turned: Arc<Turned>,
    node: NodeId,
}

impl Bar for SimBar {
    fn read(&self, offset: u32) -> u64 {
        self.turned.inner.touch(|world, now| world.read(self.node, offset, now))
    }

    fn write(&self, offset: u32, value: u64) {
        self.turned.inner.touch(|world, now| world.write(self.node, offset, value, now));
    }

    fn doorbell(&self, offset: u32, value: u64) {
        // ORDER: the world's lock: stores of this thread before it are seen by the chip, which runs under it.
        self.write(offset, value);
    }

    fn burst(&self, offset: u32, dwords: &[u32]) {
        self.turned.inner.touch(|world, now| world.burst(self.node, offset, dwords, now));
    }
}

/// Gives a simulated card memory.
#[derive(Clone)]
pub struct SimMapper {
    turned: Arc<Turned>,
    node: NodeId,
}

impl DmaMapper for SimMapper {
    fn map(&mut self, len_bytes: usize) -> Result<DmaRegion, MapError> {
        let memory = DmaMemory::new(len_bytes).map_err(|source| MapError::NoMemory { len_bytes, source })?;
        let memory = Arc::new(memory);
        let mut state = self.turned.inner.lock();
        let iova =
            state.world.host_mut(self.node).map(memory.clone()).ok_or(MapError::NoAddress { len_bytes })?;
        drop(state);
        let lease = Lease { turned: self.turned.clone(), node: self.node, iova };
        Ok(DmaRegion::new(memory, iova, Some(Arc::new(lease))))
    }
}

/// Takes a mapping away from the card when it is dropped.
struct Lease {
    turned: Arc<Turned>,
    node: NodeId,
    iova: u64,
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut state = self.turned.inner.lock();
        let was_mapped = state.world.host_mut(self.node).unmap(self.iova);
        debug_assert!(was_mapped, "a lease is dropped once");
    }
}

/// The vectors that fired for one waiting thread, and the descriptor that wakes it.
struct Line {
    fired: AtomicU32,
    event: EventFd,
}

impl IrqLine for Line {
    fn fire(&self, vector: Vector) {
        let before = self.fired.fetch_or(VectorSet::only(vector).bits(), Ordering::AcqRel);
        // A set that was not empty has a signal on its way already.
        if before == 0 {
            self.event.signal();
        }
    }
}

impl Line {
    /// What fired since the last time.
    ///
    /// ORDER: the signal is taken before the set. A vector that comes in between is in the set that is taken now, and
    /// one that comes later finds the set empty and signals again.
    fn take(&self) -> VectorSet {
        self.event.drain();
        VectorSet::from_bits(self.fired.swap(0, Ordering::AcqRel))
    }
}

/// Where a thread waits for interrupts of a simulated card.
pub struct SimIrq {
    turned: Arc<Turned>,
    line: Arc<Line>,
}

impl AsFd for SimIrq {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.line.event.as_fd()
    }
}

impl IrqSource for SimIrq {
    /// On a manual clock a wait without a deadline ends with no vector if nothing is ever going to happen.
    fn wait(&mut self, deadline: Option<Instant>) -> Wake {
        loop {
            let fired = self.line.take();
            if !fired.is_empty() {
                return Wake::Vectors(fired);
            }
            let ended = match &self.turned.inner.clock {
                SimClock::Monotonic(clock) => self.sleep(clock.now(), deadline),
                SimClock::Manual(clock) => self.turn(clock, deadline),
            };
            if let Some(wake) = ended {
                return wake;
            }
        }
    }
}

impl SimIrq {
    /// Sleeps until the line is signalled or the deadline comes.
    fn sleep(&self, now: Instant, deadline: Option<Instant>) -> Option<Wake> {
        if deadline.is_some_and(|deadline| deadline <= now) {
            return Some(Wake::Deadline);
        }
        self.line.event.wait(deadline.map(|deadline| deadline.since(now).as_nanos()));
        None
    }

    /// Moves the clock to the next thing that happens, at most to the deadline.
    fn turn(&self, clock: &ManualClock, deadline: Option<Instant>) -> Option<Wake> {
        let mut state = self.turned.inner.lock();
        state.world.advance_to(clock.now());
        let next = state.world.next_deadline();
        let until = match (next, deadline) {
            (None, None) => return Some(Wake::Vectors(self.line.take())),
            (next, deadline) => next.unwrap_or(Instant::MAX).min(deadline.unwrap_or(Instant::MAX)),
        };
        clock.set(until);
        state.world.advance_to(until);
        let fired = self.line.take();
        if !fired.is_empty() {
            return Some(Wake::Vectors(fired));
        }
        deadline.is_some_and(|deadline| deadline <= until).then_some(Wake::Deadline)
    }
}
