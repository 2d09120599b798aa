//! What the two sides of an engine share: whose turn it is, and where the engine stopped.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use qhca_regs::Port;

use super::queue::SdmaQueue;

/// Whose turn it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Phase {
    /// The engine is stopped and the ring is empty.
    Stopped = 0,
    /// The engine runs: descriptors may be written.
    Running = 1,
    /// The engine is coming to a halt: no new descriptor, the head may still move.
    Halting = 2,
    /// The engine stands still. The data side is to settle every send and to empty the ring.
    Flush = 3,
    /// The data side has done so. The control side may set the engine's registers back.
    Flushed = 4,
    /// The engine is off for good.
    Off = 5,
}

impl Phase {
    const fn of_code(code: u8) -> Self {
        match code {
            0 => Self::Stopped,
            1 => Self::Running,
            2 => Self::Halting,
            3 => Self::Flush,
            4 => Self::Flushed,
            _ => Self::Off,
        }
    }
}

/// Why sends were flushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FlushReason {
    /// The link went down.
    LinkDown = 0,
    /// The engine halted on an error; a report names it.
    Halted = 1,
    /// The device was reset.
    Reset = 2,
    /// The device was closed or has failed.
    Closed = 3,
    /// The device no longer answers.
    Gone = 4,
    /// The engine did not come to a halt in time. Memory that it may still read is never given back.
    Stuck = 5,
}

impl FlushReason {
    /// All reasons.
    pub const ALL: [Self; 6] =
        [Self::LinkDown, Self::Halted, Self::Reset, Self::Closed, Self::Gone, Self::Stuck];

    fn of_code(code: u8) -> Self {
        Self::ALL.into_iter().find(|reason| *reason as u8 == code).unwrap_or(Self::Gone)
    }
}

impl fmt::Display for FlushReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::LinkDown => "the link went down",
            Self::Halted => "the send DMA engine halted on an error",
            Self::Reset => "the device was reset",
            Self::Closed => "the device was closed or has failed",
            Self::Gone => "the device no longer answers",
            Self::Stuck => "the send DMA engine did not come to a halt",
        })
    }
}

/// The words that both sides of one engine see.
#[derive(Debug)]
pub struct SdmaShared {
    port: Port,
    phase: AtomicU8,
    /// Where the engine stood when it had halted.
    final_head: AtomicU32,
    reason: AtomicU8,
    /// Somebody found the ring full and wants to hear of space.
    blocked: AtomicBool,
}

impl SdmaShared {
    /// The words of a stopped engine.
    pub fn new(port: Port) -> Self {
        Self {
            port,
            phase: AtomicU8::new(Phase::Stopped as u8),
            final_head: AtomicU32::new(0),
            reason: AtomicU8::new(FlushReason::LinkDown as u8),
            blocked: AtomicBool::new(false),
        }
    }

    /// The engine's port.
    pub fn port(&self) -> Port {
        self.port
    }

    /// Whose turn it is.
    #[inline]
    pub fn phase(&self) -> Phase {
        Phase::of_code(self.phase.load(Ordering::Acquire))
    }

    /// Whether descriptors may be written, as the fast path asks it.
    #[inline]
    pub fn is_running(&self) -> bool {
        self.phase.load(Ordering::Acquire) == Phase::Running as u8
    }

    /// Control side: sets the phase.
    pub(super) fn set_phase(&self, phase: Phase) {
        self.phase.store(phase as u8, Ordering::Release);
    }

    /// Control side: the engine stands still at `head`; the data side is to settle its sends.
    pub(super) fn ask_flush(&self, head: u32, reason: FlushReason) {
        self.final_head.store(head, Ordering::Relaxed);
        self.reason.store(reason as u8, Ordering::Relaxed);
        self.set_phase(Phase::Flush);
    }

    /// Control side: the engine is off for good.
    pub(super) fn switch_off(&self, reason: FlushReason) {
        self.reason.store(reason as u8, Ordering::Relaxed);
        self.set_phase(Phase::Off);
    }

    /// Data side: where the engine stopped, and why.
    pub(super) fn final_head(&self) -> (u32, FlushReason) {
        let reason = FlushReason::of_code(self.reason.load(Ordering::Relaxed));
        (self.final_head.load(Ordering::Relaxed), reason)
    }

    /// Data side: every send is settled and the ring is empty.
    pub(super) fn answer_flush(&self) {
        // If the engine was switched off meanwhile, that stands.
        let (from, to) = (Phase::Flush as u8, Phase::Flushed as u8);
        let (Ok(_) | Err(_)) = self.phase.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire);
    }

    /// Data side: the ring was found full. True the first time since space was last announced.
    pub(super) fn note_blocked(&self) -> bool {
        !self.blocked.swap(true, Ordering::AcqRel)
    }

    /// Control side: whether somebody waits for space. Asked once.
    pub fn take_blocked(&self) -> bool {
        self.blocked.swap(false, Ordering::AcqRel)
    }
}

/// Where a queue is while no sender has it.
#[derive(Debug, Default)]
pub struct SdmaHome {
    queue: Mutex<Option<SdmaQueue>>,
}

impl SdmaHome {
    /// A home with `queue` in it.
    pub fn with(queue: SdmaQueue) -> Self {
        Self { queue: Mutex::new(Some(queue)) }
    }

    /// Takes the queue.
    pub fn take(&self) -> Option<SdmaQueue> {
        self.lock().take()
    }

    /// Brings the queue back.
    pub fn put(&self, queue: SdmaQueue) {
        *self.lock() = Some(queue);
    }

    /// Answers a flush for a queue that nobody has. False if somebody has it.
    pub(super) fn settle(&self) -> bool {
        match &mut *self.lock() {
            Some(queue) => {
                queue.settle_at_home();
                true
            }
            None => false,
        }
    }

    /// Answers a flush that was asked for while the queue was on its way home.
    pub(in crate::tx) fn answer_if_asked(&self) {
        self.settle();
    }

    fn lock(&self) -> MutexGuard<'_, Option<SdmaQueue>> {
        // A panic while the lock was held leaves the queue in or out, never half.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
