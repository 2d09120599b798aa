//! One turn of a device: what fired, what is due, what was asked for.
//!
//! A [`Core`] is the device with its edges: the back end that holds the card, the descriptor that says which vectors
//! fired, the bells that wake contexts. The control thread turns it, or the application does.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use qhca_irq::plan::{Mode, negotiate};
use qhca_irq::{ContextSet, Grant, IrqSource, VectorSet, Wake};
use qhca_regs::{Ctxt, Instant};

use crate::bringup::BringUpRequest;
use crate::counters::Counters;
use crate::env::{Backend, Notice};
use crate::event::Event;
use crate::hca::{Hca, SdmaSetup};
use crate::shared::DeviceState;
use crate::sys::EventFd;

/// The device and its edges.
pub(super) struct Core<B: Backend> {
    pub(super) hca: Hca,
    pub(super) backend: B,
    pub(super) bar: B::Bar,
    pub(super) mapper: B::Mapper,
    pub(super) counters: Option<Counters>,
    /// What it was brought up with.
    pub(super) request: BringUpRequest,
    /// A source to listen to instead of the one before.
    pub(super) new_irq: Option<B::Irq>,
    bells: [Option<Arc<EventFd>>; Ctxt::COUNT],
    worker_bell: Option<Arc<EventFd>>,
}

impl<B: Backend> Core<B> {
    pub(super) fn new(hca: Hca, backend: B, request: BringUpRequest) -> Self {
        let (bar, mapper) = (backend.bar(), backend.mapper());
        Self {
            hca,
            backend,
            bar,
            mapper,
            counters: None,
            request,
            new_irq: None,
            bells: Default::default(),
            worker_bell: None,
        }
    }

    /// Starts the errors' and the counters' accounts and the proof that interrupts arrive.
    pub(super) fn start(&mut self, now: Instant) {
        let ports = self.hca.split().ports;
        self.counters = Counters::start(ports, &self.bar, now).ok();
        self.hca.start(&self.bar, now);
    }

    /// Starts the send DMA engines. Without memory for them the device sends by programmed I/O alone.
    pub(super) fn start_sdma(&mut self, setup: SdmaSetup, now: Instant) {
        let Self { hca, mapper, bar, .. } = self;
        if let Err(error) = hca.set_up_sdma(setup, mapper, bar, now) {
            log::warn!("{}: no send DMA: {error}", self.backend.name());
        }
    }

    /// The worker has moved to a thread of its own, which this bell wakes.
    pub(super) fn set_worker_bell(&mut self, bell: Arc<EventFd>) {
        self.worker_bell = Some(bell);
    }

    /// The bell that wakes the owner of `ctxt`.
    pub(super) fn bell_of(&mut self, ctxt: Ctxt) -> io::Result<Arc<EventFd>> {
        let bell = Arc::new(EventFd::new()?);
        self.bells[ctxt.index()] = Some(bell.clone());
        Ok(bell)
    }

    /// Does everything that `fired` and the time call for.
    pub(super) fn turn(&mut self, fired: VectorSet, now: Instant) {
        for vector in fired.iter() {
            let interrupt = self.hca.on_interrupt(vector, &self.bar, now);
            self.ring(interrupt.contexts);
            if interrupt.worker != qhca_irq::WorkerCall::None
                && let Some(bell) = &self.worker_bell
            {
                bell.signal();
            }
            if self.hca.shared().dispatcher().unmask_after_interrupt() {
                self.backend.unmask_line();
            }
        }
        if let Some(notice) = self.backend.notice() {
            self.heed(notice);
        }
        self.hca.on_news(&self.bar, now);
        if self.hca.poll_timeout().is_some_and(|at| at <= now) {
            self.hca.on_timeout(&self.bar, now);
        }
        while self.hca.poll_deferred(&self.bar, now).is_some() {}
        self.sample_if_due(now);
        if !self.hca.shared().is_open() {
            self.ring(ContextSet::ALL);
        }
    }

    /// The system takes precedence: the device goes back at once, and everybody who uses it finds it gone.
    fn heed(&mut self, notice: Notice) {
        let shared = self.hca.shared();
        if shared.is_over() {
            return;
        }
        log::warn!("{}: {notice}", self.backend.name());
        shared.events().push(Event::Notice(notice));
        shared.worsen(DeviceState::Gone);
        self.backend.give_back();
    }

    fn sample_if_due(&mut self, now: Instant) {
        let open = self.hca.shared().is_open();
        if let Some(counters) = &mut self.counters
            && open
            && counters.poll_timeout().is_some_and(|at| at <= now)
        {
            // A failure freezes the totals, which whoever asks for them is told.
            if counters.sample(&self.bar, now).is_err() {
                self.hca.shared().worsen(DeviceState::Gone);
            }
        }
    }

    /// Wakes the worker and every context's owner: the device was reset.
    pub(super) fn wake_everybody(&self) {
        if let Some(bell) = &self.worker_bell {
            bell.signal();
        }
        self.ring(ContextSet::ALL);
    }

    /// Wakes the owners of `contexts`.
    fn ring(&self, contexts: ContextSet) {
        for ctxt in contexts.iter() {
            if let Some(bell) = &self.bells[ctxt.index()] {
                bell.signal();
            }
        }
    }

    /// When the next turn is due, whatever fires.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        if !self.hca.shared().is_open() {
            return None;
        }
        let counters = self.counters.as_ref().and_then(Counters::poll_timeout);
        [self.hca.poll_timeout(), counters].into_iter().flatten().min()
    }

    /// Uses the interrupt line if no message has come. Gives the source that is to be listened to from now on.
    pub(super) fn fall_back(&mut self, now: Instant) -> Option<B::Irq> {
        if !self.hca.take_fallback_wanted() {
            return None;
        }
        let granted = self.backend.grant_vectors(Mode::Intx, 1).ok().filter(|granted| *granted > 0);
        let line = VectorSet::only(qhca_regs::Vector::DEFAULT);
        let vectors: Vec<_> = line.iter().collect();
        let source = granted.and_then(|_| self.backend.irq_source(&vectors).ok());
        // Listen first, then let it fire.
        if source.is_some() {
            self.backend.unmask_line();
        }
        self.hca.fall_back(source.as_ref().map(|_| Grant::Intx), &self.bar, now);
        source
    }
}

/// Asks the back end for `wanted` vectors, best mode first.
pub(super) fn take_vectors<B: Backend>(backend: &mut B, wanted: usize) -> Option<Grant> {
    negotiate(wanted, |mode, wanted| match backend.grant_vectors(mode, wanted) {
        Ok(granted) => Some(granted),
        Err(error) => {
            log::info!("{}: no {mode} interrupts: {error}", backend.name());
            None
        }
    })
}

/// Where the vectors of a device that has interrupts are listened to.
pub(super) struct Listener<B: Backend> {
    irq: Option<B::Irq>,
}

impl<B: Backend> Listener<B> {
    pub(super) fn new(irq: Option<B::Irq>) -> Self {
        Self { irq }
    }

    /// What has fired until `until`; does not wait if that is not in the future.
    pub(super) fn listen(&mut self, until: Instant) -> VectorSet {
        match self.irq.as_mut().map(|irq| irq.wait(Some(until))) {
            Some(Wake::Vectors(fired)) => fired,
            _ => VectorSet::EMPTY,
        }
    }

    pub(super) fn replace(&mut self, irq: B::Irq) {
        self.irq = Some(irq);
    }

    /// What to wait for; nothing if the device is polled.
    pub(super) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.irq.as_ref().map(AsFd::as_fd)
    }
}
