//! Receiving and sending on the application's own threads.
//!
//! A [`Receiver`] is a context with what its thread needs: a bar, a clock, and a bell that the control side rings
//! when the context's interrupt came. It can be polled without ever waiting, or waited for, alone or in a set of
//! descriptors of the application. Both it and a [`Transmitter`] keep the device alive.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use qhca_irq::moderation::{HalveDouble, RcvModeration};
use qhca_irq::watchdog::{CHECK_PERIOD, Verdict, Watchdog};
use qhca_regs::{Duration, Instant, Port};

use super::device::Inner;
use crate::dma::DmaRegion;
use crate::env::{Backend, Clock};
use crate::rx::{Arrival, Context, Drained, FlowId, FlowSettings, FlowState, Next, Tid, TidError};
use crate::shared::DeviceState;
use crate::sys::EventFd;
use crate::tx::{Frame, SendId, SendOutcome, Sender, SubmitError, Submitted};

/// Looks at a silent queue between two looks at its tail register.
const LOOKS_PER_RESYNC: u32 = 100;

/// A receive context on the application's thread. `Send`, not `Sync`.
pub struct Receiver<B: Backend> {
    context: Context,
    bar: B::Bar,
    clock: B::Clock,
    bell: Arc<EventFd>,
    watchdog: Watchdog,
    silent_looks: u32,
    moderation: Box<dyn RcvModeration + Send>,
    /// Packets taken since the last interrupt, once there was one.
    since_interrupt: Option<u32>,
    inner: Arc<Inner<B>>,
}

impl<B: Backend> Receiver<B> {
    pub(super) fn new(context: Context, bar: B::Bar, bell: Arc<EventFd>, inner: Arc<Inner<B>>) -> Self {
        let clock = inner.clock().clone();
        Self {
            context,
            bar,
            clock,
            bell,
            watchdog: Watchdog::new(),
            silent_looks: 0,
            moderation: Box::new(HalveDouble::new()),
            since_interrupt: None,
            inner,
        }
    }

    /// The context: its number, port and counts.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Takes up to `budget` packets without waiting. See [`Context::drain`].
    #[inline]
    pub fn poll(&mut self, budget: usize, sink: impl FnMut(Arrival<'_>)) -> Drained {
        let now = self.clock.now();
        let drained = self.context.drain(budget, &self.bar, now, sink);
        if let Some(packets) = &mut self.since_interrupt {
            *packets = packets.saturating_add(drained.entries as u32);
            if drained.next == Next::Wait {
                let setting = self.moderation.on_drain(*packets, now);
                self.context.moderate(setting);
                self.since_interrupt = None;
            }
        }
        drained
    }

    /// Thins this receiver's interrupts by `policy` from the next arming on. At first it is the stock driver's,
    /// [`HalveDouble`].
    ///
    /// A policy judges what an interrupt was worth: it is asked once the queue that the interrupt announced has been
    /// emptied, however many calls that takes. A receiver that is only polled never asks it.
    pub fn moderate_by(&mut self, policy: impl RcvModeration + Send + 'static) {
        self.context.moderate(policy.setting());
        self.moderation = Box::new(policy);
        self.since_interrupt = None;
    }

    /// Waits until a packet is there or `timeout` has passed; `None` waits for ever. True if one is there.
    ///
    /// Ends early, with false, when the device is closed, fails or goes.
    pub fn wait(&mut self, timeout: Option<Duration>) -> bool {
        let until = timeout.map(|timeout| self.clock.now() + timeout);
        loop {
            if self.context.has_packet() || self.context.was_reset() {
                return true;
            }
            let now = self.clock.now();
            if self.inner.shared().is_over() || until.is_some_and(|until| until <= now) {
                return false;
            }
            let slice = until.map_or(CHECK_PERIOD, |until| until.since(now).min(CHECK_PERIOD));
            self.bell.wait(Some(slice.as_nanos()));
            self.after_wait();
        }
    }

    /// Notes what a wait on the receiver's descriptor came to. Call it before [`poll`](Self::poll) if the descriptor
    /// is in a set of the application's own; also without it being ready, every few milliseconds, so that an interrupt
    /// which got lost is made up for.
    pub fn after_wait(&mut self) {
        let now = self.clock.now();
        let ctxt = self.context.ctxt();
        if self.bell.drain() > 0 {
            self.watchdog.on_interrupt(ctxt, u32::from(self.context.has_packet()));
            self.silent_looks = 0;
            self.since_interrupt.get_or_insert(0);
            return;
        }
        let waiting = self.context.has_packet();
        if self.watchdog.check(ctxt, waiting, now) == Verdict::Lost {
            log::debug!("{ctxt}: an interrupt got lost; its packets are taken all the same");
        }
        self.silent_looks += u32::from(!waiting);
        if self.silent_looks >= LOOKS_PER_RESYNC {
            self.silent_looks = 0;
            let lost = self.context.resync(&self.bar);
            if lost > 0 {
                log::warn!("{ctxt}: the queue was out of step; {lost} entries are given up");
            }
        }
    }

    /// Waits for packets and takes up to `budget` of them; an empty drain if `timeout` has passed first.
    pub fn receive(
        &mut self,
        timeout: Option<Duration>,
        budget: usize,
        sink: impl FnMut(Arrival<'_>),
    ) -> Drained {
        if self.wait(timeout) {
            return self.poll(budget, sink);
        }
        let next = if self.inner.shared().is_over() { Next::Gone } else { Next::Wait };
        Drained { entries: 0, next }
    }

    /// Asks for an interrupt on the next packet: before a wait on the descriptor if the last drain did not empty the
    /// queue, or after polling for a while.
    pub fn arm(&mut self) {
        self.context.arm(&self.bar);
    }

    /// Lets payload come straight to the pages of `len_bytes` from byte `offset` of `region`. See
    /// [`Expected::bind`](crate::rx::Expected::bind).
    ///
    /// # Errors
    /// [`TidError`]; nothing is bound then.
    pub fn bind(
        &mut self,
        region: &DmaRegion,
        offset: usize,
        len_bytes: usize,
    ) -> Result<Vec<Tid>, TidError> {
        self.still_open()?;
        self.context.expected().bind(region, offset, len_bytes, &self.bar)
    }

    /// Takes bound pages from the chip again.
    ///
    /// # Errors
    /// [`TidError`].
    pub fn release(&mut self, tids: &[Tid]) -> Result<(), TidError> {
        self.still_open()?;
        self.context.expected().release(tids, &self.bar)
    }

    /// Has the chip check a flow from now on.
    ///
    /// # Errors
    /// [`TidError::Gone`].
    pub fn open_flow(&mut self, flow: FlowId, settings: FlowSettings) -> Result<(), TidError> {
        self.still_open()?;
        self.context.expected().open_flow(flow, settings, &self.bar)
    }

    /// What the chip says of a flow; `None` if it is not open.
    pub fn flow(&self, flow: FlowId) -> Option<FlowState> {
        self.still_open().ok()?;
        self.context.expected().flow(flow, &self.bar)
    }

    /// Has the chip forget a flow.
    pub fn close_flow(&mut self, flow: FlowId) {
        if self.still_open().is_ok() {
            self.context.expected().close_flow(flow, &self.bar);
        }
    }

    fn still_open(&self) -> Result<(), TidError> {
        match self.inner.shared().state() {
            DeviceState::Open => Ok(()),
            DeviceState::Resetting => Err(TidError::Resetting),
            _ => Err(TidError::Gone),
        }
    }

    /// Interrupts that got lost and were made up for.
    pub fn lost_interrupts(&self) -> u64 {
        self.watchdog.counters(self.context.ctxt()).lost
    }

    /// The time on the device's clock.
    pub fn now(&self) -> Instant {
        self.clock.now()
    }
}

impl<B: Backend> AsFd for Receiver<B> {
    /// Readable when the context's interrupt came.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

/// A sender on the application's thread. `Send`, not `Sync`.
pub struct Transmitter<B: Backend> {
    sender: Sender,
    bar: B::Bar,
    inner: Arc<Inner<B>>,
}

impl<B: Backend> Transmitter<B> {
    pub(super) fn new(sender: Sender, bar: B::Bar, inner: Arc<Inner<B>>) -> Self {
        Self { sender, bar, inner }
    }

    /// Gives `frame` to the chip. See [`Sender::submit`].
    ///
    /// # Errors
    /// [`SubmitError::WouldBlock`] if no buffer is free; an event tells when one is.
    #[inline]
    pub fn submit(&mut self, frame: &Frame<'_>) -> Result<Submitted, SubmitError> {
        let submitted = self.sender.submit(&self.bar, frame);
        if submitted.is_err() {
            self.wake_control();
        }
        submitted
    }

    /// Hands out the outcomes of sends by DMA. See [`Sender::reap`].
    pub fn reap(&mut self, sink: impl FnMut(Port, SendId, SendOutcome)) -> usize {
        let reaped = self.sender.reap(&self.bar, sink);
        self.wake_control();
        reaped
    }

    /// The control side may wait for an answer that was just given.
    #[cold]
    fn wake_control(&mut self) {
        if self.sender.take_answered() {
            self.inner.wake();
        }
    }

    /// The sender: its counts and buffers.
    pub fn sender(&mut self) -> &mut Sender {
        &mut self.sender
    }
}
