//! **The HCA as a state machine**: interrupts, errors, links, and who has which context.
//!
//! An [`Hca`] is what bring-up makes of a chip. It holds no bar, no descriptor and no clock: whoever turns it brings
//! them. Its methods are of four kinds.
//!
//! * *It happened:* [`on_interrupt`](Hca::on_interrupt), [`on_timeout`](Hca::on_timeout),
//!   [`on_news`](Hca::on_news). Time must not go back from one call to the next.
//! * *What next:* [`poll_deferred`](Hca::poll_deferred) until `None`, [`poll_event`](Hca::poll_event) until `None`,
//!   [`poll_timeout`](Hca::poll_timeout) for the next `on_timeout`.
//! * *Commands:* open a context or a sender, set a link's goal, close.
//! * *Getters.*
//!
//! ```text
//!   vector ─► on_interrupt ─► Interrupt { contexts to drain, call the worker? }     any thread's Context: drain
//!                 └─► hand-over ─► poll_deferred ─► Report ─► one Event
//!   time ───► on_timeout ─► links, proof of interrupts, dropped contexts
//! ```
//!
//! Contexts and senders move to threads of their own, and so does the worker ([`Hca::take_worker`]); what they have
//! in common with the rest is [`DeviceShared`].

use std::sync::Arc;

use qhca_irq::arrival::NoInterrupts;
use qhca_irq::worker::Close;
use qhca_irq::{ContextSet, Grant, Outcome, PlanRequest, PortSet, VectorPlan, Work, WorkerCall};
use qhca_regs::map::device::{self, SendBufAvailAddr, SendCtrl};
use qhca_regs::map::port as port_regs;
use qhca_regs::status::{ErrBits, IntBits, PortErrBits};
use qhca_regs::{Bar, Instant, Port, Vector};

use crate::bringup::{BroughtUp, ErrorMasks, InterruptProof, Proof};
use crate::contexts::Split;
use crate::control::Controls;
use crate::dma::DmaRegion;
use crate::env::{DmaMapper, MapError};
use crate::event::Event;
use crate::fault::{Policy, Report, Worker, WorkerSetup};
use crate::link::{LinkChange, LinkError, LinkEvent, Links, PortChange};
use crate::rx::Context;
use crate::shared::{DeviceShared, DeviceState};
use crate::slots::{LendError, Slots, Wanted};
use crate::tx::sdma::{self, Engine, EngineSetup, Ring, SdmaHome, SdmaQueue, SdmaShared, flush};
use crate::tx::{SendControl, Sender};

/// What bring-up leaves behind: a chip that is set up, silent, with its links switched off.
pub struct HcaSetup {
    /// How errors are served.
    pub policy: Policy,
    /// What the vector plan was asked for.
    pub request: PlanRequest,
    /// The vectors that were granted, as written to the redirect registers; `None` if the device is polled.
    pub plan: Option<VectorPlan>,
    /// The split of contexts and buffers.
    pub split: Split,
    /// The errors that the chip reports.
    pub masks: ErrorMasks,
    /// The links, set up and switched off.
    pub links: Links,
    /// The control registers as they stand.
    pub controls: Controls,
    /// Where the chip writes its avail words.
    pub avail: DmaRegion,
}

/// What an interrupt leaves for its thread to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use = "contexts that are not drained stay silent"]
pub struct Interrupt {
    /// The contexts to drain: none if the device can no longer be used.
    pub contexts: ContextSet,
    /// Whether to call the worker, and how soon.
    pub worker: WorkerCall,
    /// Whether anything was found at all. On a shared line: whether it was ours.
    pub ours: bool,
    /// Whether the device can still be used.
    pub alive: bool,
}

/// A device that is up.
pub struct Hca {
    shared: Arc<DeviceShared>,
    worker: Option<Worker>,
    links: Links,
    controls: Controls,
    send: Arc<SendControl>,
    slots: Slots,
    request: PlanRequest,
    /// Whether interrupts arrive is being proved.
    proof: Option<InterruptProof>,
    is_polled: bool,
    fallback_wanted: bool,
    ports: PortSet,
    sdma: [Option<Engine>; 2],
    closed: bool,
}

/// How the send DMA engines are set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SdmaSetup {
    /// Descriptors of each ring, [`DESCRIPTORS_MIN`](crate::tx::sdma::DESCRIPTORS_MIN) to
    /// [`DESCRIPTORS_MAX`](crate::tx::sdma::DESCRIPTORS_MAX); what lies outside is cut.
    pub descriptors: u32,
    /// The option `sdma_fetch_prio`.
    pub fetch_priority: u8,
}

impl Hca {
    /// The device that bring-up has set up. It is silent until [`start`](Self::start).
    pub fn new(setup: HcaSetup) -> Self {
        let is_polled = setup.plan.is_none();
        // A plan is needed to serve a vector; of a polled device none ever fires.
        let plan = setup.plan.unwrap_or_else(|| VectorPlan::new(&setup.request, Grant::Intx));
        let shared = Arc::new(DeviceShared::new(plan, setup.policy));
        let send = Arc::new(SendControl::new(setup.controls.send()));
        let ports: PortSet = setup.split.ports.iter().collect();
        let worker = Worker::new(WorkerSetup {
            shared: shared.clone(),
            send: send.clone(),
            policy: setup.policy,
            ports,
            contexts: setup.split.contexts.iter().map(|share| share.ctxt).collect(),
            err_mask: setup.masks.device,
            port_err_mask: setup.masks.port,
        });
        let slots = Slots::new(setup.split, setup.avail, send.clone(), shared.clone());
        Self {
            shared,
            worker: Some(worker),
            links: setup.links,
            controls: setup.controls,
            send,
            slots,
            request: setup.request,
            proof: None,
            is_polled,
            fallback_wanted: false,
            ports,
            sdma: [None, None],
            closed: false,
        }
    }

    /// Sets up the send DMA engine of each port. Call it after [`start`](Self::start) and before a sender is lent: the
    /// large send buffers become the engines'. Each engine says by an event when it runs, which takes an ACTIVE link.
    ///
    /// # Errors
    /// [`MapError`]: no memory; engines that were set up before stay.
    ///
    /// Source: F-235.
    pub fn set_up_sdma(
        &mut self,
        setup: SdmaSetup,
        mapper: &mut impl DmaMapper,
        bar: &impl Bar,
        now: Instant,
    ) -> Result<(), MapError> {
        let control = device::CONTROL.read(bar);
        device::CONTROL.write(bar, control.with_sdma_desc_fetch_priority_en(false));
        for port in self.ports.iter() {
            let engine = self.make_engine(port, setup, mapper)?;
            self.slots.add_sdma(port, engine.home().clone());
            self.sdma[port.index()].insert(engine).start(&mut self.controls, bar, now);
        }
        device::CONTROL.write(bar, control.with_sdma_desc_fetch_priority_en(true));
        Ok(())
    }

    fn make_engine(
        &self,
        port: Port,
        setup: SdmaSetup,
        mapper: &mut impl DmaMapper,
    ) -> Result<Engine, MapError> {
        let descriptors = setup.descriptors.clamp(sdma::DESCRIPTORS_MIN, sdma::DESCRIPTORS_MAX);
        let ring = Ring::allocate(descriptors, mapper)?;
        let shared = Arc::new(SdmaShared::new(port));
        let buffers = self.slots.split().large_buffers[port.index()].clone();
        self.send.give_to_sdma(port, buffers.clone());
        let engine = EngineSetup {
            ring_iova: ring.iova(),
            head_iova: ring.head_iova(),
            descriptors,
            ring: ring.region().clone(),
            buffers,
            fetch_priority: setup.fetch_priority,
            shared: shared.clone(),
            home: Arc::new(SdmaHome::with(SdmaQueue::allocate(ring, shared, mapper)?)),
        };
        Ok(Engine::new(engine))
    }

    /// Takes over a chip that was reset and brought up again as `up` says. Contexts that are lent are told to it, the
    /// send DMA engines start anew; whoever holds a context or a sender finds out by the device's word.
    pub fn rebuild(&mut self, up: BroughtUp, bar: &impl Bar, now: Instant) {
        (self.links, self.controls) = (up.links, up.controls);
        self.send.restart(self.controls.send());
        (self.proof, self.fallback_wanted) = (None, false);
        for port in Port::ALL {
            self.shared.set_link_active(port, false);
            self.shared.take_sdma_errors(port);
        }
        let _before_the_reset = self.shared.take_link_changes();
        self.slots.reclaim(&mut self.controls, bar);
        if self.slots.reprogram(&mut self.controls, bar).is_err() {
            self.shared.worsen(DeviceState::Gone);
            return;
        }
        let control = device::CONTROL.read(bar);
        device::CONTROL.write(bar, control.with_sdma_desc_fetch_priority_en(true));
        let Self { sdma, controls, .. } = self;
        sdma.iter_mut().flatten().for_each(|engine| engine.on_reset(controls, bar, now));
    }

    /// Where the chip writes its avail words.
    pub fn avail(&self) -> &DmaRegion {
        self.slots.avail()
    }

    /// The send DMA engine of `port`, if it has one.
    pub fn sdma_engine(&self, port: Port) -> Option<&Engine> {
        self.sdma[port.index()].as_ref()
    }

    /// Raises the error masks, and makes the chip interrupt to see whether that arrives.
    pub fn start(&mut self, bar: &impl Bar, now: Instant) {
        if let Some(worker) = &mut self.worker {
            worker.start(bar, now);
        }
        if self.shared.is_open() && !self.is_polled {
            let interrupts = self.interrupts();
            let plan = self.shared.dispatcher().plan();
            self.proof = Some(InterruptProof::start(plan, &mut self.links, interrupts, bar, now));
        }
    }

    /// What this device's threads have in common.
    pub fn shared(&self) -> &Arc<DeviceShared> {
        &self.shared
    }

    /// Takes the worker away to a thread of its own. `None` if it is there already, or if the policy serves errors in
    /// the interrupt, where it is needed here.
    pub fn take_worker(&mut self) -> Option<Worker> {
        let inline = self.shared.policy().dispatch().port == qhca_irq::dispatch::OnError::Inline;
        if inline { None } else { self.worker.take() }
    }

    /// Serves one wake-up of `vector`. Drain the contexts it names, on whatever threads they live.
    ///
    /// Reads at most `IntStatus`, and nothing on a dedicated vector, unless the policy serves errors here.
    pub fn on_interrupt(&mut self, vector: Vector, bar: &impl Bar, now: Instant) -> Interrupt {
        let Self { shared, worker, .. } = self;
        let outcome = shared.dispatcher().on_vector_serving(vector, bar, now, |work| {
            if let Some(worker) = worker {
                worker.serve_inline(work, bar, now);
            }
        });
        match outcome {
            Outcome::Work(work) => self.on_work(work, bar, now),
            Outcome::Spurious => Interrupt { alive: true, ..Interrupt::default() },
            Outcome::Gone => {
                self.shared.worsen(DeviceState::Gone);
                Interrupt::default()
            }
            Outcome::Closed => Interrupt::default(),
        }
    }

    fn on_work(&mut self, work: Work, bar: &impl Bar, now: Instant) -> Interrupt {
        if work.gpio() {
            self.links.on_gpio(bar, now);
        }
        if work.send_buffer_free() {
            self.send.set_interrupt_when_free(bar, false);
            self.shared.events().push(Event::SendSpace);
        }
        self.on_sdma_work(&work, bar, now);
        self.on_news(bar, now);
        // What was served may have shown that the card is gone, or has failed.
        let alive = self.shared.is_open();
        let contexts = if alive { work.contexts() } else { ContextSet::EMPTY };
        Interrupt { contexts, worker: work.worker(), ours: true, alive }
    }

    /// What the interrupts of the send DMA engines call for. Finished sends are found by whoever submitted them.
    fn on_sdma_work(&mut self, work: &Work, bar: &impl Bar, now: Instant) {
        let Self { sdma, controls, shared, .. } = self;
        for engine in sdma.iter_mut().flatten() {
            if work.sdma().contains(engine.port()) && engine.shared().take_blocked() {
                shared.events().push(Event::SendSpace);
            }
            if work.sdma_cleanup_done().contains(engine.port()) {
                engine.on_cleanup_done(controls, bar, now);
            }
        }
    }

    /// Tells the engines what the worker and the data side have left for them, and their owner what became of it.
    fn tend_sdma(&mut self, bar: &impl Bar, now: Instant) {
        let Self { sdma, controls, shared, .. } = self;
        let stuck = shared.take_sdma_buffers_stuck();
        for engine in sdma.iter_mut().flatten() {
            let port = engine.port();
            let errors = shared.take_sdma_errors(port);
            if !errors.is_empty() {
                engine.on_error(errors, controls, bar, now);
            }
            if stuck.contains(port) {
                engine.on_buffer_error(controls, bar, now);
            }
            engine.on_news(controls, bar, now);
            while let Some(change) = engine.poll_change() {
                shared.events().push(Event::Sdma { port, change });
            }
        }
    }

    /// Looks at the links and engines that the worker has found changed. Call it after turns of a worker on another thread;
    /// [`poll_deferred`](Self::poll_deferred) does so by itself.
    pub fn on_news(&mut self, bar: &impl Bar, now: Instant) {
        for port in self.shared.take_link_changes().iter() {
            if self.shared.is_open() {
                let result = self.links.on_port_status(port, bar, now);
                self.heed(result);
            }
        }
        self.collect_link_events(bar, now);
        if self.shared.is_open() {
            self.tend_sdma(bar, now);
        }
    }

    /// Does what is due: links, the proof that interrupts arrive, contexts that were dropped.
    pub fn on_timeout(&mut self, bar: &impl Bar, now: Instant) {
        if !self.shared.is_open() {
            return;
        }
        self.slots.reclaim(&mut self.controls, bar);
        let result = self.links.on_timeout(bar, now);
        self.heed(result);
        self.collect_link_events(bar, now);
        let Self { sdma, controls, .. } = self;
        sdma.iter_mut().flatten().for_each(|engine| engine.on_timeout(controls, bar, now));
        self.tend_sdma(bar, now);
        self.prove_interrupts(bar, now);
    }

    /// Takes the turn of the worker that is due, if it is here, and gives the next report. Each report has made one
    /// event. Call it until it gives `None`.
    pub fn poll_deferred(&mut self, bar: &impl Bar, now: Instant) -> Option<Report> {
        let report = self.worker.as_mut()?.poll(bar, now);
        if let Some(report) = &report {
            self.shared.events().push(event_of(report.clone()));
        }
        self.on_news(bar, now);
        report
    }

    /// When [`on_timeout`](Self::on_timeout) or, with the worker here, [`poll_deferred`](Self::poll_deferred) is to
    /// be called next.
    pub fn poll_timeout(&self) -> Option<Instant> {
        if !self.shared.is_open() {
            return None;
        }
        let worker = self.worker.as_ref().and_then(Worker::poll_timeout);
        let proof = self.proof.as_ref().and_then(InterruptProof::poll_timeout);
        let engines = self.sdma.iter().flatten().filter_map(Engine::poll_timeout).min();
        [worker, proof, engines, self.links.poll_timeout()].into_iter().flatten().min()
    }

    /// What happened, oldest first.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.shared.events().pop()
    }

    /// Interrupts counted so far, all vectors.
    fn interrupts(&self) -> u64 {
        self.shared.dispatcher().counters().vectors.iter().sum()
    }

    fn prove_interrupts(&mut self, bar: &impl Bar, now: Instant) {
        let interrupts = self.interrupts();
        let Some(proof) = &mut self.proof else { return };
        match proof.poll(interrupts, &mut self.links, bar, now) {
            Proof::Waiting(_) => {}
            Proof::Proven => self.proof = None,
            Proof::FallBack => {
                self.fallback_wanted = true;
                let from = self.shared.dispatcher().plan().mode();
                self.shared.events().push(Event::FellBack { from });
            }
            Proof::Failed(error) => {
                self.proof = None;
                self.shared.events().push(Event::NoInterrupts(error));
            }
        }
    }

    /// Whether the interrupt line is to be tried because no message came: asked once. Whoever turns the device then
    /// asks its back end for the line and calls [`fall_back`](Self::fall_back).
    pub fn take_fallback_wanted(&mut self) -> bool {
        std::mem::take(&mut self.fallback_wanted)
    }

    /// Serves the interrupt line from now on, for everything. With a grant of none an event says that nothing comes.
    pub fn fall_back(&mut self, grant: Option<Grant>, bar: &impl Bar, now: Instant) {
        if !self.shared.is_open() {
            return;
        }
        let interrupts = self.interrupts();
        let Some(grant) = grant else {
            let first = self.shared.dispatcher().plan().mode();
            self.proof = None;
            return self.shared.events().push(Event::NoInterrupts(NoInterrupts { first }));
        };
        let plan = VectorPlan::new(&self.request, grant);
        let Some(proof) = &mut self.proof else { return };
        if proof.fall_back(&plan, interrupts, &mut self.links, bar, now).is_err() {
            self.shared.worsen(DeviceState::Gone);
        }
        self.shared.fall_back(plan);
    }

    /// Whether the device has no interrupts and is to be looked at by whoever wants something of it.
    pub fn is_polled(&self) -> bool {
        self.is_polled
    }

    fn collect_link_events(&mut self, bar: &impl Bar, now: Instant) {
        while let Some(event) = self.links.poll_event() {
            self.on_link_event(event, bar, now);
            self.shared.events().push(Event::Link(event));
        }
    }

    fn on_link_event(&mut self, event: LinkEvent, bar: &impl Bar, now: Instant) {
        match event.change {
            PortChange::Link(LinkChange::Active) => {
                self.shared.set_link_active(event.port, true);
                self.tell_engine(event.port, true, bar, now);
            }
            PortChange::Link(LinkChange::Down) => {
                self.shared.set_link_active(event.port, false);
                self.cancel_sends(event.port, bar);
                self.tell_engine(event.port, false, bar, now);
            }
            _ => {}
        }
    }

    fn tell_engine(&mut self, port: Port, active: bool, bar: &impl Bar, now: Instant) {
        if let Some(engine) = &mut self.sdma[port.index()]
            && self.shared.is_open()
        {
            engine.on_link(active, &mut self.controls, bar, now);
        }
    }

    /// Drops what `port` was about to send: nothing that waits for a dead link may hold a buffer (F-227).
    pub fn cancel_sends(&mut self, port: Port, bar: &impl Bar) {
        if !self.shared.is_open() {
            return;
        }
        // ORDER: the flush lets the chip finish writing the avail words before anybody looks at them.
        flush(port, &mut self.controls, bar);
        self.send.request_update(bar);
    }

    fn heed(&self, result: Result<(), LinkError>) {
        // Forbidden commands are the link machine's own affair: it tells by events. Gone is ours.
        if let Err(LinkError::Gone { .. }) = result {
            self.shared.worsen(DeviceState::Gone);
        }
    }

    /// The links.
    pub fn links(&self) -> &Links {
        &self.links
    }

    /// The links, for commands.
    pub fn links_mut(&mut self) -> &mut Links {
        &mut self.links
    }

    /// The split of contexts and buffers.
    pub fn split(&self) -> &Split {
        self.slots.split()
    }

    /// The contexts that are open.
    pub fn open_contexts(&self) -> ContextSet {
        self.slots.lent()
    }

    /// The worker, while it is here.
    pub fn worker(&self) -> Option<&Worker> {
        self.worker.as_ref()
    }

    /// The worker, while it is here.
    pub fn worker_mut(&mut self) -> Option<&mut Worker> {
        self.worker.as_mut()
    }

    /// The send control register, for the copy-rate check.
    pub fn send_control(&self) -> &Arc<SendControl> {
        &self.send
    }

    /// Opens a context.
    ///
    /// # Errors
    /// [`LendError`]; all others go on.
    pub fn open_context(
        &mut self,
        wanted: Wanted,
        mapper: &mut impl DmaMapper,
        bar: &impl Bar,
    ) -> Result<Context, LendError> {
        self.slots.lend_context(wanted, mapper, &mut self.controls, bar)
    }

    /// Opens a sender over the device's own buffers.
    ///
    /// # Errors
    /// [`LendError`]: it is open already, or the device is not.
    pub fn open_sender(&mut self) -> Result<Sender, LendError> {
        self.slots.lend_sender()
    }

    /// Opens a sender over the buffers of an open user context.
    ///
    /// # Errors
    /// [`LendError`]: the context is not open, or its buffers are in use.
    pub fn open_user_sender(&mut self, context: &Context) -> Result<Sender, LendError> {
        self.slots.lend_user_sender(context.ctxt())
    }

    /// Forbids everything from now on: interrupts, turns, drains and sends touch nothing any more. Says whether a
    /// turn of the worker still runs; [`finish_close`](Self::finish_close) must wait for it.
    pub fn begin_close(&mut self) -> Close {
        self.shared.worsen(DeviceState::Closed);
        self.shared.dispatcher().close()
    }

    /// Makes the chip silent and takes all memory from it. Does nothing to a device that is gone, nor a second time.
    pub fn finish_close(&mut self, bar: &impl Bar) {
        if std::mem::replace(&mut self.closed, true) || self.shared.state() == DeviceState::Gone {
            return;
        }
        device::INT_MASK.write(bar, IntBits::empty());
        device::ERR_MASK.write(bar, ErrBits::empty());
        let Self { sdma, controls, .. } = self;
        sdma.iter_mut().flatten().for_each(|engine| engine.switch_off(controls, bar));
        for port in self.ports.iter() {
            port_regs::ERR_MASK.port(port).write(bar, PortErrBits::empty());
            self.controls.update_send_port(port, bar, |_| port_regs::SendCtrl::default());
        }
        self.slots.withdraw_all(&mut self.controls, bar);
        self.controls.update_send(bar, |_| SendCtrl::default());
        device::SEND_BUF_AVAIL_ADDR.write(bar, SendBufAvailAddr::default());
        // ORDER: what the chip was writing to memory has arrived when this read comes back.
        device::SCRATCH.read(bar);
    }
}

/// The event of a report.
pub fn event_of(report: Report) -> Event {
    if report.is_fatal() { Event::Fatal(report) } else { Event::Error(report) }
}

#[cfg(test)]
#[path = "hca_tests.rs"]
mod tests;
