//! A reset of the device while it is in use, and everything as before afterwards.
//!
//! ```text
//!   Open ─► Resetting: nobody touches a register ─► turn of the worker over, data threads out of their calls
//!        ─► reset, wait until the chip answers ─► bring-up ─► contexts, TIDs, engines, links told again
//!        ─► Open, one reset later: each thread finds its queue or its buffers begun afresh
//! ```
//!
//! The device's lock is held from beginning to end, so the control side stands still. Data threads are not waited for
//! one by one: they read no register on their paths, and a store that one of them makes into a chip under reset is lost
//! without harm; the grace at the beginning lets all that were inside a call come out of it, so that none is made into
//! the chip that comes back.
//!
//! Packets that were in a queue or in flight are lost, as packets may be; sends by DMA have their outcome. Source: F-260.

use std::fmt;
use std::io;
use std::time::Duration as StdDuration;

use qhca_regs::map::device::{self, Control};
use qhca_regs::status::IntBits;
use qhca_regs::{Duration, GONE, Instant, Port, RegValue};

use super::core::{Core, Listener};
use super::error::StartError;
use super::open::{Raised, nap_until, raise};
use crate::bringup::BringUpRequest;
use crate::env::{Backend, Clock, DmaMapper, ResetKind};
use crate::event::Event;
use crate::link::{Choices, Goal, LidAssignment, LinkError, Links};
use crate::shared::{DeviceShared, DeviceState};

/// How long calls of data threads are given to end before the chip is reset.
///
/// TIMEOUT: ours; a call takes microseconds, and a thread that was interrupted in the middle gets its turn in a few
/// milliseconds on a host that is not overloaded.
const GRACE: StdDuration = StdDuration::from_millis(5);
/// How long a turn of the worker is waited for.
///
/// TIMEOUT: as for a close.
const WORKER_WITHIN: Duration = Duration::from_millis(100);
/// How long a chip that was reset by its own register is left alone.
///
/// TIMEOUT: iPXE waits as long (F-260).
const CHIP_REST: Duration = Duration::from_secs(1);
/// How long a device may take to answer again.
///
/// TIMEOUT: the stock driver's five tries, 7 to 19 seconds each (F-260).
const RETURNS_WITHIN: Duration = Duration::from_secs(65);
/// Rest between two looks whether it answers.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Looks at most, for a clock that stands still.
const LOOKS_MAX: u32 = 10_000;

/// How a device is reset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ResetHow {
    /// As the back end does it: the function, or what is around it.
    #[default]
    Backend,
    /// By the chip's own register. It drops off the bus meanwhile.
    Chip,
}

/// What a reset came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResetReport {
    /// How far it reached.
    pub kind: ResetKind,
    /// How long the device could not be used.
    pub took: Duration,
}

/// Why a device was not reset, or did not come back.
#[derive(Debug)]
#[non_exhaustive]
pub enum ResetError {
    /// The device is closed, has failed or is gone; nothing was done.
    NotOpen {
        /// What it is.
        state: DeviceState,
    },
    /// The system refused. The device is as before.
    Refused {
        /// What the system said.
        source: io::Error,
    },
    /// The device does not answer any more.
    DidNotReturn {
        /// For how long it was looked for.
        waited: Duration,
    },
    /// It answers and cannot be brought up again.
    Start(StartError),
    /// It came back with other interrupt vectors than before.
    OtherVectors,
    /// It went again while it was told what is wanted of it.
    Link(LinkError),
}

impl fmt::Display for ResetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotOpen { state } => {
                write!(f, "the device is {state:?} and cannot be reset: open it anew")
            }
            Self::Refused { .. } => f.write_str("the reset was refused; the device is as before"),
            Self::DidNotReturn { waited } => {
                write!(f, "the device was reset and does not answer after {waited}: it is gone")
            }
            Self::Start(_) => f.write_str("the device was reset and cannot be brought up again: it is gone"),
            Self::OtherVectors => {
                f.write_str("the device came back with other interrupt vectors than before: open it anew")
            }
            Self::Link(_) => f.write_str("the device went while its links were switched on again"),
        }
    }
}

impl std::error::Error for ResetError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Refused { source } => Some(source),
            Self::Start(error) => Some(error),
            Self::Link(error) => Some(error),
            _ => None,
        }
    }
}

/// What was wanted of a port.
#[derive(Clone, Copy)]
struct Wish {
    port: Port,
    goal: Goal,
    lid: LidAssignment,
    loopback: bool,
    choices: Choices,
}

fn wishes(links: &Links) -> Vec<Wish> {
    let of = |port| {
        let link = links.link(port)?;
        let goal = links.wanted(port)?;
        let (lid, loopback, choices) = (link.lid(), link.is_loopback(), link.choices());
        Some(Wish { port, goal, lid, loopback, choices })
    };
    Port::ALL.into_iter().filter_map(of).collect()
}

impl<B: Backend> Core<B> {
    /// Resets the device and brings it back. See the module.
    pub(super) fn reset(&mut self, how: ResetHow, clock: &B::Clock) -> Result<ResetReport, ResetError> {
        let shared = self.hca.shared().clone();
        let begun = clock.now();
        if !shared.begin_reset() {
            return Err(ResetError::NotOpen { state: shared.state() });
        }
        wait_for_worker(&shared, clock);
        std::thread::sleep(GRACE);
        // What was counted since the last look goes with the reset otherwise; a device that does not answer shows below.
        if let Some(counters) = &mut self.counters {
            let (Ok(()) | Err(_)) = counters.sample(&self.bar, clock.now());
        }
        let wishes = wishes(self.hca.links());
        device::INT_MASK.write(&self.bar, IntBits::empty());
        let kind = match self.pull(how, clock) {
            Ok(kind) => kind,
            Err(source) => {
                // Nothing was reset: interrupts go on, and everybody finds things as they were.
                device::INT_MASK.write(&self.bar, shared.dispatcher().enabled_bits());
                shared.cancel_reset();
                return Err(ResetError::Refused { source });
            }
        };
        let raised = self.bring_back(clock).inspect_err(|_| {
            shared.worsen(DeviceState::Gone);
        })?;
        self.hca.rebuild(raised.up, &self.bar, clock.now());
        self.new_irq = raised.irq;
        if let Some(counters) = &mut self.counters
            && counters.rebase(&self.bar, clock.now()).is_err()
        {
            shared.worsen(DeviceState::Gone);
        }
        shared.end_reset();
        self.grant_wishes(&wishes, clock.now()).map_err(ResetError::Link)?;
        self.wake_everybody();
        let took = clock.now().since(begun);
        shared.events().push(Event::WasReset { took });
        // Whoever found no buffer before may find one now.
        shared.events().push(Event::SendSpace);
        Ok(ResetReport { kind, took })
    }

    /// Resets the chip.
    fn pull(&mut self, how: ResetHow, clock: &B::Clock) -> io::Result<ResetKind> {
        if how == ResetHow::Backend {
            return self.backend.reset();
        }
        self.backend.before_chip_reset()?;
        device::CONTROL.write(&self.bar, Control(0).with_sync_reset(true));
        nap_until(clock, clock.now() + CHIP_REST);
        self.backend.restore_after_chip_reset()?;
        Ok(ResetKind::Chip)
    }

    /// Waits until the chip answers and brings it up.
    fn bring_back(&mut self, clock: &B::Clock) -> Result<Raised<B>, ResetError> {
        let from = clock.now();
        let mut looks = 0;
        while device::REVISION.read(&self.bar).raw() == GONE {
            looks += 1;
            let waited = clock.now().since(from);
            if waited >= RETURNS_WITHIN || looks >= LOOKS_MAX {
                return Err(ResetError::DidNotReturn { waited });
            }
            nap_until(clock, clock.now() + LOOK_EVERY);
        }
        // Links are switched on when the rest is as before.
        let request = BringUpRequest { goals: [None; 2], lids: [None; 2], ..self.request.clone() };
        let avail = self.hca.avail().clone();
        avail.memory().zero(0, avail.len_bytes());
        let raised = raise(&mut self.backend, request, Some(avail)).map_err(ResetError::Start)?;
        let plan = self.hca.shared().dispatcher().plan();
        match &raised.up.plan {
            Some(new) if !self.hca.is_polled() && new != plan => Err(ResetError::OtherVectors),
            None if !self.hca.is_polled() => Err(ResetError::OtherVectors),
            _ => Ok(raised),
        }
    }

    /// Tells the links again what is wanted of them.
    fn grant_wishes(&mut self, wishes: &[Wish], now: Instant) -> Result<(), LinkError> {
        let (links, bar) = (self.hca.links_mut(), &self.bar);
        for wish in wishes {
            links.choose(wish.port, wish.choices, bar)?;
            if wish.loopback {
                links.set_loopback(wish.port, true, bar)?;
            }
            if wish.lid != LidAssignment::NONE {
                links.set_lid(wish.port, wish.lid, bar)?;
            }
            if wish.goal != Goal::Disabled {
                links.set_goal(wish.port, wish.goal, bar, now)?;
            }
        }
        Ok(())
    }
}

/// Waits for a turn of the worker that runs. None begins while the device is being reset.
fn wait_for_worker(shared: &DeviceShared, clock: &impl Clock) {
    let until = clock.now() + WORKER_WITHIN;
    let mut looks = 0;
    while shared.handover().is_running() && clock.now() < until && looks < LOOKS_MAX {
        looks += 1;
        std::thread::yield_now();
    }
}

/// The source to listen to from now on, after a reset or a change to the interrupt line.
pub(super) fn replace_source<B: Backend>(
    core: &mut Core<B>,
    listener: &mut Listener<B>,
    now: Instant,
) -> bool {
    let source = core.new_irq.take().or_else(|| core.fall_back(now));
    let changed = source.is_some();
    if let Some(irq) = source {
        listener.replace(irq);
    }
    changed
}

/// Memory for the avail words: what was mapped before, or new.
pub(super) fn avail_region(
    before: Option<crate::dma::DmaRegion>,
    len_bytes: usize,
    mapper: &mut impl DmaMapper,
) -> Result<crate::dma::DmaRegion, StartError> {
    match before {
        Some(region) => Ok(region),
        None => mapper.map(len_bytes).map_err(StartError::Map),
    }
}
