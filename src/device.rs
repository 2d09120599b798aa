//! A device that is up, whatever holds it.
//!
//! Each type is an enum with one variant a back end. A call is one match into code that is generic over the back end,
//! so nothing behind it is dynamic.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use qhca_driver::bringup::Report as BringUpReport;
use qhca_driver::contexts::Split;
use qhca_driver::counters::{Counters, CountersFrozen};
use qhca_driver::dma::DmaRegion;
use qhca_driver::env::MapError;
use qhca_driver::event::Event;
use qhca_driver::fault::Policy;
use qhca_driver::identity::Identity;
use qhca_driver::link::{
    CableError, CableInfo, Command, Goal, LidAssignment, LinkError, LinkStatus, Logical,
};
use qhca_driver::runtime::{self, CloseReport, ResetError, ResetHow, ResetReport};
use qhca_driver::rx::{Arrival, Drained, FlowId, FlowSettings, FlowState, RxCounts, Tid, TidError};
use qhca_driver::shared::DeviceState;
use qhca_driver::slots::LendError;
use qhca_driver::tx::{Frame, SendId, SendOutcome, SubmitError, Submitted, TxCounts};
use qhca_driver::vfio::{PinError, VectorPlace, VfioBar, VfioDevice};
use qhca_driver::vfio_user::{VfioUserBar, VfioUserDevice};
use qhca_irq::moderation::RcvModeration;
use qhca_regs::Bar;
use qhca_regs::{Ctxt, Duration, Instant, Port};
use qhca_sim::backend::{SimBar, SimDevice};

/// One match over the back ends: `$call` with `$held` for what the variant holds.
macro_rules! each {
    ($this:expr, $held:ident => $call:expr) => {
        match $this {
            Self::Sim($held) => $call,
            Self::VfioUser($held) => $call,
            Self::Vfio($held) => $call,
        }
    };
}

/// The same where the result is again an enum: `$call` is a `Result` whose value goes into the same variant of `$into`.
macro_rules! each_into {
    ($this:expr, $into:ident, $held:ident => $call:expr) => {
        match $this {
            Self::Sim($held) => $call.map($into::Sim),
            Self::VfioUser($held) => $call.map($into::VfioUser),
            Self::Vfio($held) => $call.map($into::Vfio),
        }
    };
}

pub(crate) use {each, each_into};

/// A device that is up. Clones are handles to the same device; it closes with the last of them, receivers and
/// transmitters included, or when it is told to.
#[derive(Clone)]
#[non_exhaustive]
pub enum Device {
    /// A chip model in this process.
    Sim(runtime::Device<SimDevice>),
    /// A device in another process.
    VfioUser(runtime::Device<VfioUserDevice>),
    /// A card of this machine.
    Vfio(runtime::Device<VfioDevice>),
}

/// A receive context on the application's thread. `Send`, not `Sync`.
#[non_exhaustive]
pub enum Receiver {
    /// A chip model in this process.
    Sim(runtime::Receiver<SimDevice>),
    /// A device in another process.
    VfioUser(runtime::Receiver<VfioUserDevice>),
    /// A card of this machine.
    Vfio(runtime::Receiver<VfioDevice>),
}

/// A sender on the application's thread. `Send`, not `Sync`.
#[non_exhaustive]
pub enum Transmitter {
    /// A chip model in this process.
    Sim(runtime::Transmitter<SimDevice>),
    /// A device in another process.
    VfioUser(runtime::Transmitter<VfioUserDevice>),
    /// A card of this machine.
    Vfio(runtime::Transmitter<VfioDevice>),
}

/// The register window of a device, for whoever looks at registers and does not mind a match an access.
#[derive(Clone)]
#[non_exhaustive]
pub enum Window {
    /// A chip model in this process.
    Sim(SimBar),
    /// A device in another process.
    VfioUser(VfioUserBar),
    /// A card of this machine.
    Vfio(VfioBar),
}

impl Bar for Window {
    fn read(&self, offset: u32) -> u64 {
        each!(self, bar => bar.read(offset))
    }

    fn write(&self, offset: u32, value: u64) {
        each!(self, bar => bar.write(offset, value));
    }

    fn doorbell(&self, offset: u32, value: u64) {
        each!(self, bar => bar.doorbell(offset, value));
    }

    fn burst(&self, offset: u32, dwords: &[u32]) {
        each!(self, bar => bar.burst(offset, dwords));
    }
}

impl Device {
    /// What the device is called.
    pub fn name(&self) -> String {
        each!(self, device => device.name())
    }

    /// Chip, board, GUIDs, serial number.
    pub fn identity(&self) -> &Identity {
        each!(self, device => device.identity())
    }

    /// The steps of its bring-up, and what was odd.
    pub fn bring_up_report(&self) -> &BringUpReport {
        each!(self, device => device.bring_up_report())
    }

    /// Whether the device can be used.
    pub fn state(&self) -> DeviceState {
        each!(self, device => device.state())
    }

    /// The time on the device's clock.
    pub fn now(&self) -> Instant {
        each!(self, device => device.now())
    }

    /// How contexts and buffers are split.
    pub fn split(&self) -> Split {
        each!(self, device => device.split())
    }

    /// Opens the kernel context of `port`: the one that gets packets to queue pairs which nobody has mapped.
    ///
    /// # Errors
    /// [`LendError`]: it is open, or the port is not in use.
    pub fn open_port(&self, port: Port) -> Result<Receiver, LendError> {
        each_into!(self, Receiver, device => device.open_port(port))
    }

    /// Opens a user context on `port`.
    ///
    /// # Errors
    /// [`LendError::AllInUse`] says how many there are.
    pub fn open_user(&self, port: Port) -> Result<Receiver, LendError> {
        each_into!(self, Receiver, device => device.open_user(port))
    }

    /// Opens the device's own send buffers.
    ///
    /// # Errors
    /// [`LendError::SenderInUse`].
    pub fn open_sender(&self) -> Result<Transmitter, LendError> {
        each_into!(self, Transmitter, device => device.open_sender())
    }

    /// Memory that the chip can reach, zeroed: for payloads that are sent or received in place.
    ///
    /// # Errors
    /// [`MapError`].
    pub fn map(&self, len_bytes: usize) -> Result<DmaRegion, MapError> {
        each!(self, device => device.map(len_bytes))
    }

    /// What the cable module of `port` says of itself; `None` if there is none, or as long as it is being read.
    pub fn cable(&self, port: Port) -> Option<Result<CableInfo, CableError>> {
        each!(self, device => device.cable(port))
    }

    /// What happened, oldest first; `None` when nothing waits.
    pub fn poll_event(&self) -> Option<Event> {
        each!(self, device => device.poll_event())
    }

    /// How its errors are served.
    pub fn policy(&self) -> Policy {
        each!(self, device => device.shared().policy())
    }

    /// Events that ever came, and those of them that found the queue full.
    pub fn events_counted(&self) -> (u64, u64) {
        each!(self, device => (device.shared().events().total(), device.shared().events().lost()))
    }

    /// Whether the device is polled, having no interrupts.
    pub fn is_polled(&self) -> bool {
        each!(self, device => device.is_polled())
    }

    /// The state of a port's link as it was last seen; `None` for a port that is not in use.
    pub fn link_status(&self, port: Port) -> Option<LinkStatus> {
        each!(self, device => device.link_status(port))
    }

    /// What a port's states mean and what to do about them; `None` for a port that is not in use.
    pub fn link_advice(&self, port: Port) -> Option<&'static str> {
        each!(self, device => device.link_advice(port))
    }

    /// Sets what is wanted of a port's link.
    ///
    /// # Errors
    /// [`LinkError`].
    pub fn set_goal(&self, port: Port, goal: Goal) -> Result<(), LinkError> {
        each!(self, device => device.set_goal(port, goal))
    }

    /// Gives one command to a port's link now.
    ///
    /// # Errors
    /// [`LinkError::Forbidden`] says why not in this state.
    pub fn link_command(&self, port: Port, command: Command) -> Result<(), LinkError> {
        each!(self, device => device.link_command(port, command))
    }

    /// Gives a port its LID.
    ///
    /// # Errors
    /// [`LinkError`].
    pub fn set_lid(&self, port: Port, lid: LidAssignment) -> Result<(), LinkError> {
        each!(self, device => device.set_lid(port, lid))
    }

    /// Makes a port talk to itself, without a cable, or stops that. Do it while the port is switched off, then set its
    /// goal.
    ///
    /// # Errors
    /// [`LinkError`].
    pub fn set_loopback(&self, port: Port, on: bool) -> Result<(), LinkError> {
        each!(self, device => device.set_loopback(port, on))
    }

    /// Waits until the link of `port` is ACTIVE, at most `timeout`.
    pub fn wait_active(&self, port: Port, timeout: Duration) -> bool {
        self.wait_for_link(port, timeout, |status| status.logical() == Logical::Active)
    }

    /// Waits until the link of `port` satisfies `done`, at most `timeout`.
    pub fn wait_for_link(&self, port: Port, timeout: Duration, done: impl Fn(LinkStatus) -> bool) -> bool {
        each!(self, device => device.wait_for_link(port, timeout, done))
    }

    /// Reads every counter and gives the totals since bring-up.
    ///
    /// # Errors
    /// [`CountersFrozen`]: the device no longer answers.
    pub fn counters(&self) -> Result<Counters, CountersFrozen> {
        each!(self, device => device.counters())
    }

    /// The descriptors whose readiness calls for a [`turn`](Self::turn).
    ///
    /// # Errors
    /// What the system says: no descriptor left.
    pub fn fds(&self) -> io::Result<Vec<OwnedFd>> {
        each!(self, device => device.fds())
    }

    /// When a [`turn`](Self::turn) is due, whatever fires; `None` if nothing is ever due.
    pub fn next_deadline(&self) -> Option<Instant> {
        each!(self, device => device.next_deadline())
    }

    /// Does what has fired and what is due by `now`. With [`Runtime::Manual`](crate::Runtime::Manual) this is the whole
    /// runtime; with threads it does nothing.
    pub fn turn(&self, now: Instant) {
        each!(self, device => device.turn(now));
    }

    /// The register window, to look at registers beside the driver.
    pub fn window(&self) -> Window {
        match self {
            Self::Sim(device) => Window::Sim(device.bar()),
            Self::VfioUser(device) => Window::VfioUser(device.bar()),
            Self::Vfio(device) => Window::Vfio(device.bar()),
        }
    }

    /// Where the interrupt vectors of a card of this machine go; nothing for other devices.
    pub fn vector_places(&self) -> Vec<VectorPlace> {
        match self {
            Self::Vfio(device) => device.with_backend(|card| card.vector_places()),
            _ => Vec::new(),
        }
    }

    /// Sends the interrupt vectors of a card of this machine to the CPUs `cpus` in turn. Nothing to do for other
    /// devices.
    ///
    /// # Errors
    /// [`PinError`]: not allowed, or no such CPU.
    pub fn pin_vectors(&self, cpus: &[usize]) -> Result<(), PinError> {
        match self {
            Self::Vfio(device) => device.with_backend(|card| card.pin_vectors(cpus)),
            _ => Ok(()),
        }
    }

    /// Resets the device and brings it back as it was: receivers, bound pages, transmitters and links stay what they are
    /// to their owners. Packets that were in flight are lost.
    ///
    /// # Errors
    /// [`ResetError`]. Unless it was refused, the device is gone then.
    pub fn reset(&self, how: ResetHow) -> Result<ResetReport, ResetError> {
        each!(self, device => device.reset(how))
    }

    /// Closes the device. A second close does nothing.
    pub fn close(&self) -> CloseReport {
        each!(self, device => device.close())
    }
}

impl Receiver {
    /// The context's number.
    pub fn ctxt(&self) -> Ctxt {
        each!(self, receiver => receiver.context().ctxt())
    }

    /// What became of every entry so far.
    pub fn counts(&self) -> RxCounts {
        each!(self, receiver => *receiver.context().counts())
    }

    /// Takes up to `budget` packets without waiting.
    #[inline]
    pub fn poll(&mut self, budget: usize, sink: impl FnMut(Arrival<'_>)) -> Drained {
        each!(self, receiver => receiver.poll(budget, sink))
    }

    /// Waits until a packet is there or `timeout` has passed; `None` waits for ever. True if one is there.
    pub fn wait(&mut self, timeout: Option<Duration>) -> bool {
        each!(self, receiver => receiver.wait(timeout))
    }

    /// Waits for packets and takes up to `budget` of them; an empty drain if `timeout` has passed first.
    pub fn receive(
        &mut self,
        timeout: Option<Duration>,
        budget: usize,
        sink: impl FnMut(Arrival<'_>),
    ) -> Drained {
        each!(self, receiver => receiver.receive(timeout, budget, sink))
    }

    /// Notes what a wait on the receiver's descriptor came to. Call it before [`poll`](Self::poll).
    pub fn after_wait(&mut self) {
        each!(self, receiver => receiver.after_wait());
    }

    /// Thins this receiver's interrupts by `policy`, in place of the stock driver's halving and doubling.
    pub fn moderate_by(&mut self, policy: impl RcvModeration + Send + 'static) {
        each!(self, receiver => receiver.moderate_by(policy));
    }

    /// Lets payload come straight to the pages of `len_bytes` from byte `offset` of `region`, one TID a page.
    ///
    /// # Errors
    /// [`TidError`]; nothing is bound then.
    pub fn bind(
        &mut self,
        region: &DmaRegion,
        offset: usize,
        len_bytes: usize,
    ) -> Result<Vec<Tid>, TidError> {
        each!(self, receiver => receiver.bind(region, offset, len_bytes))
    }

    /// Takes bound pages from the chip again.
    ///
    /// # Errors
    /// [`TidError`].
    pub fn release(&mut self, tids: &[Tid]) -> Result<(), TidError> {
        each!(self, receiver => receiver.release(tids))
    }

    /// Has the chip check a flow of expected packets from now on.
    ///
    /// # Errors
    /// [`TidError::Gone`].
    pub fn open_flow(&mut self, flow: FlowId, settings: FlowSettings) -> Result<(), TidError> {
        each!(self, receiver => receiver.open_flow(flow, settings))
    }

    /// What the chip says of a flow; `None` if it is not open.
    pub fn flow(&self, flow: FlowId) -> Option<FlowState> {
        each!(self, receiver => receiver.flow(flow))
    }

    /// Has the chip forget a flow.
    pub fn close_flow(&mut self, flow: FlowId) {
        each!(self, receiver => receiver.close_flow(flow));
    }

    /// Asks for an interrupt on the next packet.
    pub fn arm(&mut self) {
        each!(self, receiver => receiver.arm());
    }
}

impl AsFd for Receiver {
    /// Readable when the context's interrupt came.
    fn as_fd(&self) -> BorrowedFd<'_> {
        each!(self, receiver => receiver.as_fd())
    }
}

impl Transmitter {
    /// Gives `frame` to the chip.
    ///
    /// # Errors
    /// [`SubmitError::WouldBlock`] if no buffer is free; an event tells when one is.
    #[inline]
    pub fn submit(&mut self, frame: &Frame<'_>) -> Result<Submitted, SubmitError> {
        each!(self, transmitter => transmitter.submit(frame))
    }

    /// Keeps the outcome of every send by DMA until it is reaped, or no longer.
    pub fn track_outcomes(&mut self, on: bool) {
        each!(self, transmitter => transmitter.sender().track_outcomes(on));
    }

    /// Hands out the outcomes of sends by DMA that have one, oldest first for each port; says how many.
    pub fn reap(&mut self, sink: impl FnMut(Port, SendId, SendOutcome)) -> usize {
        each!(self, transmitter => transmitter.reap(sink))
    }

    /// What became of what was submitted.
    pub fn counts(&mut self) -> TxCounts {
        each!(self, transmitter => *transmitter.sender().counts())
    }
}

impl qhca_verbs::Arrivals for Receiver {
    #[inline]
    fn drain(&mut self, budget: usize, sink: impl FnMut(Arrival<'_>)) -> Drained {
        self.poll(budget, sink)
    }

    fn sleep(&mut self, timeout: Duration) -> bool {
        self.wait(Some(timeout))
    }
}

impl qhca_verbs::Departures for Transmitter {
    #[inline]
    fn submit(&mut self, frame: &Frame<'_>) -> Result<(), SubmitError> {
        Transmitter::submit(self, frame).map(|_buffer| ())
    }
}
