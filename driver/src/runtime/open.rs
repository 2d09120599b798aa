//! From a back end and options to a device that is up.

use std::time::Duration as StdDuration;

use qhca_irq::VectorPlan;
use qhca_regs::{Buffer, Instant, Port};

use super::core::{Core, Listener, take_vectors};
use super::device::Device;
use super::error::StartError;
use super::reset::avail_region;
use crate::bringup::{
    BringUp, BringUpError, BringUpRequest, BringUpWarning, BroughtUp, ErrorMasks, Hook, Progress,
};
use crate::dma::DmaRegion;
use crate::env::{Backend, Clock};
use crate::fault::Policy;
use crate::hca::{Hca, HcaSetup, SdmaSetup};
use crate::link::{Goal, LidAssignment};
use crate::options::Options;
use crate::tx::{PioCheck, PioVerdict, sdma};

/// Bytes that are mapped for the avail words.
const AVAIL_BYTES: usize = 4096;
/// The longest sleep of a bring-up that waits: a clock that is moved by others is looked at again.
const NAP: StdDuration = StdDuration::from_millis(1);

/// Who turns the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Runtime {
    /// A control thread and a worker thread.
    #[default]
    Threads,
    /// As `Threads`, each bound to a CPU.
    Pinned {
        /// The control thread's CPU.
        control_cpu: usize,
        /// The worker's.
        worker_cpu: usize,
    },
    /// The application, by [`Device::turn`].
    Manual,
}

/// A device that was found and has not been touched.
pub struct Opening<B: Backend> {
    backend: B,
    request: BringUpRequest,
    policy: Policy,
    warnings: Vec<String>,
}

impl<B: Backend> Opening<B> {
    /// The device behind `backend`, with default options: links are switched on and left to a subnet manager.
    pub fn new(backend: B) -> Self {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let goals = [Some(Goal::Up); 2];
        let request = BringUpRequest { options: Options::default(), cpus, goals, lids: [None; 2] };
        Self { backend, request, policy: Policy::default(), warnings: Vec::new() }
    }

    /// What the device is called.
    pub fn name(&self) -> String {
        self.backend.name()
    }

    /// The back end, for whoever stands on the other side of it.
    pub fn backend(&self) -> &B {
        &self.backend
    }

    /// The back end, for settings that must be made before bring-up.
    pub fn backend_mut(&mut self) -> &mut B {
        &mut self.backend
    }

    /// The back end, for whoever wants the device without this driver.
    pub fn into_backend(self) -> B {
        self.backend
    }

    /// Sets module options from a list such as `krcvqs=2 ibmtu=4`.
    ///
    /// # Errors
    /// The option, its value and what is valid.
    pub fn options(mut self, list: &str) -> Result<Self, StartError> {
        let parsed = Options::parse(list)?;
        self.warnings.extend(parsed.warnings.iter().map(ToString::to_string));
        self.request.options = parsed.options;
        Ok(self)
    }

    /// Sets options that were parsed before.
    #[must_use]
    pub fn parsed_options(mut self, options: Options) -> Self {
        self.request.options = options;
        self
    }

    /// Sets how errors are served.
    #[must_use]
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// Sets for how many CPUs user contexts are made; default is what this process may use.
    #[must_use]
    pub fn cpus(mut self, cpus: usize) -> Self {
        self.request.cpus = cpus;
        self
    }

    /// Sets what is wanted of a port's link, `None` to leave it switched off.
    #[must_use]
    pub fn goal(mut self, port: Port, goal: Option<Goal>) -> Self {
        self.request.goals[port.index()] = goal;
        self
    }

    /// Leaves all links switched off.
    #[must_use]
    pub fn no_links(self) -> Self {
        self.goal(Port::P0, None).goal(Port::P1, None)
    }

    /// Gives a port its LID and makes its link ACTIVE without a subnet manager.
    #[must_use]
    pub fn static_lid(mut self, port: Port, lid: LidAssignment) -> Self {
        self.request.lids[port.index()] = Some(lid);
        self.goal(port, Some(Goal::Active))
    }

    /// Brings the device up and has it turned by `runtime`.
    ///
    /// # Errors
    /// [`StartError`]: the step that failed, and why.
    pub fn start(self, runtime: Runtime) -> Result<Device<B>, StartError> {
        let Self { mut backend, request, policy, warnings } = self;
        let clock = backend.clock();
        let sdma = sdma_setup(&request.options);
        if let Some(code) = request.options.read_request_code() {
            match backend.raise_read_request(code) {
                Ok(bytes) => log::debug!("{}: read requests of {bytes:?} bytes", backend.name()),
                Err(error) => log::warn!("{}: pcie_caps has no effect: {error}", backend.name()),
            }
        }
        let Raised { up, avail, request: plan_request, irq } = raise(&mut backend, request.clone(), None)?;
        for warning in warnings.iter().cloned().chain(up.report.warnings.iter().map(ToString::to_string)) {
            log::warn!("{}: {warning}", backend.name());
        }
        let up_masks = up.masks;
        let hca = Hca::new(HcaSetup {
            policy,
            request: plan_request,
            plan: up.plan,
            split: up.split,
            masks: up_masks,
            links: up.links,
            controls: up.controls,
            avail,
        });
        let slow = check_pio(&hca, &mut backend, up_masks);
        let mut core = Core::new(hca, backend, request);
        core.start(clock.now());
        if let Some(sdma) = sdma {
            core.start_sdma(sdma, clock.now());
        }
        log::info!("{}: {} is up", core.backend.name(), up.identity.chip);
        let mut report = up.report;
        report.warnings.extend(slow);
        Device::launch(core, Listener::new(irq), clock, up.identity, report, runtime)
    }
}

/// The small send buffer from which the speed of copies is measured: one of the kernel's, before anybody sends.
const MEASURED_BUFFER: usize = 127;

/// Measures the speed of copies into send buffers, if they are mapped. Says one warning if it is low.
fn check_pio<B: Backend>(hca: &Hca, backend: &mut B, masks: ErrorMasks) -> Option<BringUpWarning> {
    let (mapping, buffer) = (backend.pio_mapping()?, Buffer::new(MEASURED_BUFFER)?);
    let check = PioCheck { buffer, control: hca.send_control(), err_mask: masks.device };
    let rate = check.run(&backend.bar(), &backend.clock());
    match rate.verdict() {
        PioVerdict::Slow(rate) => {
            let warning = BringUpWarning::PioSlow { mapping, rate };
            log::warn!("{}: {warning}", backend.name());
            Some(warning)
        }
        PioVerdict::Fast(_) | PioVerdict::Unknown => None,
    }
}

/// What the options say of send DMA: nothing if the special trigger is on, which leaves it no buffers (F-230).
fn sdma_setup(options: &Options) -> Option<SdmaSetup> {
    let descriptors = match options.sdma_descq_cnt {
        0 => sdma::DESCRIPTORS_DEFAULT,
        count => count,
    };
    // PANIC: none; the option is at most 15.
    let fetch_priority = u8::try_from(options.sdma_fetch_prio).unwrap_or(u8::MAX);
    (!options.special_trigger).then_some(SdmaSetup { descriptors, fetch_priority })
}

/// What bring-up leaves, with what the caller made for it.
pub(super) struct Raised<B: Backend> {
    pub(super) up: BroughtUp,
    avail: DmaRegion,
    request: qhca_irq::PlanRequest,
    pub(super) irq: Option<B::Irq>,
}

/// Runs a bring-up to its end; waits where it says so. The avail words go to `avail_before`, or to new memory.
pub(super) fn raise<B: Backend>(
    backend: &mut B,
    request: BringUpRequest,
    avail_before: Option<DmaRegion>,
) -> Result<Raised<B>, StartError> {
    let (bar, clock, mut mapper) = (backend.bar(), backend.clock(), backend.mapper());
    let mut bring_up = BringUp::new(request);
    let (mut avail, mut avail_before) = (None, avail_before);
    let (mut plan_request, mut irq) = (None, None);
    loop {
        match bring_up.poll(&bar, clock.now()) {
            Progress::Step(_) => {}
            Progress::Wait { until } => nap_until(&clock, until),
            Progress::Hook(Hook::TakeVectors) => {
                let request = bring_up.plan_request();
                let plan = request.and_then(|request| plan_vectors(backend, &request));
                plan_request = request;
                // Before interrupts go on: a message that nobody listens to is lost.
                irq = plan.as_ref().map(|plan| listen(backend, plan)).transpose()?;
                bring_up.give_vectors(plan);
            }
            Progress::Hook(Hook::TakeMemory) => {
                let region = avail_region(avail_before.take(), AVAIL_BYTES, &mut mapper)?;
                bring_up.give_memory(region.iova());
                avail = Some(region);
            }
            // Contexts are opened when somebody wants to receive from them: until then the chip drops what comes.
            Progress::Hook(Hook::OpenContexts) => bring_up.contexts_opened(),
            Progress::Done(up) => {
                let fault = || StartError::BringUp(bring_up.caller_failed("the hooks were not called"));
                let (avail, request) = (avail.ok_or_else(fault)?, plan_request.ok_or_else(fault)?);
                return Ok(Raised { up: *up, avail, request, irq });
            }
            Progress::Failed(error) => return Err(failed(error)),
        }
    }
}

fn listen<B: Backend>(backend: &mut B, plan: &VectorPlan) -> Result<B::Irq, StartError> {
    let vectors: Vec<_> = plan.vectors().iter().collect();
    let source = backend.irq_source(&vectors);
    source.map_err(|source| StartError::System { what: "listening to interrupts", source })
}

fn failed(error: BringUpError) -> StartError {
    StartError::BringUp(error)
}

fn plan_vectors<B: Backend>(backend: &mut B, request: &qhca_irq::PlanRequest) -> Option<VectorPlan> {
    let grant = take_vectors(backend, request.wanted())?;
    Some(VectorPlan::new(request, grant))
}

/// Sleeps until `until` on `clock`, unless the clock stands still: one that others move is theirs to wait for.
pub(super) fn nap_until(clock: &impl Clock, until: Instant) {
    loop {
        let before = clock.now();
        let left = until.since(before).as_nanos();
        if left == 0 {
            return;
        }
        std::thread::sleep(StdDuration::from_nanos(left).min(NAP));
        if clock.now() == before {
            return;
        }
    }
}

/// A name for threads of a device.
pub(super) fn thread_name(what: &str) -> String {
    format!("qhca-{what}")
}
