//! From a cold chip to open ports: the steps of bring-up, one after the other, never waiting.
//!
//! [`BringUp::poll`] does one step, or a part of one, and says what comes next. Three steps are the caller's, since
//! vectors, memory and contexts are not bring-up's to make:
//!
//! ```text
//!  poll ─▶ Step … Step ─▶ Hook(TakeVectors)   give_vectors(plan)
//!       ─▶ Step … Wait(until) … Step ─▶ Hook(TakeMemory)   give_memory(avail address)
//!       ─▶ Step … Step ─▶ Hook(OpenContexts)  program contexts with controls_mut(), disarm buffers; contexts_opened()
//!       ─▶ Step ─▶ Step ─▶ Done(BroughtUp)
//! ```
//!
//! A failure names its step. The links are switched on last; whether any interrupt arrives is checked afterwards
//! ([`proof`]).
//!
//! Not done here: SerDes tuning (F-133; a cable's own is set when it was read), the send DMA engines, which are the
//! started device's, work-arounds of the first silicon.

use crate::board::Chip;
use crate::contexts::{ChipCounts, Split};
use crate::control::Controls;
use crate::eeprom::{EepromPoll, EepromReader};
use crate::gpio::Gpio;
use crate::identity::Identity;
use crate::link::setup::{init_absent_port, init_present_port};
use crate::link::{Goal, LidAssignment, LinkError, Links, PortLink, PortSetup, Socket};
use crate::options::Options;
use core::fmt;
use qhca_irq::VectorPlan;
use qhca_irq::plan::PlanRequest;
use qhca_regs::map::{device as device_map, port};
use qhca_regs::status::PortErrBits;
use qhca_regs::{Bar, Duration, Instant, Port};

mod device;
mod error;
pub mod proof;
mod steps;

pub use device::{ErrorMasks, RCV_AVAIL_TIMEOUT};
pub use error::{BringUpError, BringUpWarning, Fault};
pub use proof::{InterruptProof, Proof};
pub use steps::Step;

/// What a device is to be brought up with.
#[derive(Clone, Debug, Default)]
pub struct BringUpRequest {
    /// The user's options.
    pub options: Options,
    /// CPUs that user contexts are to be made for.
    pub cpus: usize,
    /// What is wanted of each hardware port's link; `None` leaves it switched off.
    pub goals: [Option<Goal>; 2],
    /// LIDs of the hardware ports, where no subnet manager gives them.
    pub lids: [Option<LidAssignment>; 2],
}

/// The caller's part of bring-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    /// Ask the system for vectors ([`BringUp::plan_request`]), then [`BringUp::give_vectors`].
    TakeVectors,
    /// Map memory for the contexts of [`BringUp::split`] and a page for the availability words, then
    /// [`BringUp::give_memory`].
    TakeMemory,
    /// Program each context and disarm the send buffers, with [`BringUp::controls_mut`], then
    /// [`BringUp::contexts_opened`].
    OpenContexts,
}

/// A step that is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepDone {
    /// The step.
    pub step: Step,
    /// How long it took.
    pub took: Duration,
}

/// What [`BringUp::poll`] came to.
#[derive(Debug)]
pub enum Progress {
    /// A step is done; poll again.
    Step(StepDone),
    /// Poll again, not before the instant.
    Wait {
        /// The instant.
        until: Instant,
    },
    /// The caller's turn. Until it has answered, polling gives the same again.
    Hook(Hook),
    /// Everything is up.
    Done(Box<BroughtUp>),
    /// It cannot go on.
    Failed(BringUpError),
}

/// A device that is up.
#[derive(Debug)]
pub struct BroughtUp {
    /// Chip, board, GUIDs, serial number.
    pub identity: Identity,
    /// What the chip says it has.
    pub counts: ChipCounts,
    /// What each context has.
    pub split: Split,
    /// Vectors in use; `None` if the device is polled.
    pub plan: Option<VectorPlan>,
    /// Shadows of the control registers.
    pub controls: Controls,
    /// Links and sockets.
    pub links: Links,
    /// Errors that the chip reports.
    pub masks: ErrorMasks,
    /// What was done, and what was odd.
    pub report: Report,
}

/// The record of a bring-up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The steps done, in order.
    pub steps: Vec<StepDone>,
    /// What was odd and no reason to stop.
    pub warnings: Vec<BringUpWarning>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for StepDone { step, took } in &self.steps {
            writeln!(f, "{:2}  {:<28} {took}", step.number(), step.name())?;
        }
        self.warnings.iter().try_for_each(|warning| writeln!(f, "    warning: {warning}"))
    }
}

/// What the steps have found out so far.
#[derive(Debug, Default)]
struct Draft {
    chip: Option<Chip>,
    counts: Option<ChipCounts>,
    split: Option<Split>,
    vectors: Option<Option<VectorPlan>>,
    masks: Option<ErrorMasks>,
    identity: Option<Identity>,
    avail_iova: Option<u64>,
    sockets: [Option<Socket>; 2],
    links: Option<Links>,
    contexts_opened: bool,
}

/// A bring-up under way.
#[derive(Debug)]
pub struct BringUp {
    request: BringUpRequest,
    step: Step,
    since: Option<Instant>,
    draft: Draft,
    controls: Controls,
    gpio: Gpio,
    eeprom: EepromReader,
    report: Report,
}

/// How a step's turn ended.
enum Turn {
    Done,
    Wait(Instant),
    Hook(Hook),
}

impl BringUp {
    /// A bring-up that has not touched the device yet.
    pub fn new(request: BringUpRequest) -> Self {
        Self {
            request,
            step: Step::Identify,
            since: None,
            draft: Draft::default(),
            controls: Controls::new(),
            gpio: Gpio::new(),
            eeprom: EepromReader::new(),
            report: Report::default(),
        }
    }

    /// The step that comes next or is under way.
    pub const fn step(&self) -> Step {
        self.step
    }

    /// The split, once it is made.
    pub const fn split(&self) -> Option<&Split> {
        self.draft.split.as_ref()
    }

    /// What to ask the interrupt side for, once the split is made.
    pub fn plan_request(&self) -> Option<PlanRequest> {
        self.split()?.plan_request(&self.request.options).ok()
    }

    /// The control registers' shadows, for the caller's own step.
    pub const fn controls_mut(&mut self) -> &mut Controls {
        &mut self.controls
    }

    /// Answers [`Hook::TakeVectors`]; `None` if the device is to be polled.
    pub fn give_vectors(&mut self, plan: Option<VectorPlan>) {
        self.draft.vectors = Some(plan);
    }

    /// Answers [`Hook::TakeMemory`]: where the availability words go, a multiple of 64 below 2^40.
    pub fn give_memory(&mut self, avail_iova: u64) {
        self.draft.avail_iova = Some(avail_iova);
    }

    /// Answers [`Hook::OpenContexts`].
    pub fn contexts_opened(&mut self) {
        self.draft.contexts_opened = true;
    }

    /// The caller could not do its part; what bring-up then fails with.
    pub fn caller_failed(&self, why: impl fmt::Display) -> BringUpError {
        BringUpError { step: self.step, fault: Fault::Caller(why.to_string()) }
    }

    /// Does the next step, or a part of it.
    pub fn poll(&mut self, bar: &impl Bar, now: Instant) -> Progress {
        let since = *self.since.get_or_insert(now);
        let step = self.step;
        let waited = now.since(since);
        if waited > step.within() {
            return match self.on_deadline(waited) {
                Ok(()) => self.end_step(now, waited),
                Err(fault) => Progress::Failed(BringUpError { step, fault }),
            };
        }
        match self.turn(bar, now) {
            Ok(Turn::Done) => self.end_step(now, waited),
            Ok(Turn::Wait(until)) => Progress::Wait { until },
            Ok(Turn::Hook(hook)) => Progress::Hook(hook),
            Err(fault) => Progress::Failed(BringUpError { step, fault }),
        }
    }

    fn end_step(&mut self, now: Instant, took: Duration) -> Progress {
        let done = StepDone { step: self.step, took };
        // A planted fault, for the proof that the fuzzer reaches this far: a step with a remark goes unrecorded.
        #[cfg(canary)]
        if self
            .draft
            .counts
            .as_ref()
            .is_some_and(|counts| self.step == Step::Count && !counts.warnings.is_empty())
        {
            self.report.steps.pop();
        }
        self.report.steps.push(done);
        self.since = Some(now);
        match self.step.next() {
            Some(next) => {
                self.step = next;
                Progress::Step(done)
            }
            None => match self.finish() {
                Ok(up) => Progress::Done(Box::new(up)),
                Err(fault) => Progress::Failed(BringUpError { step: self.step, fault }),
            },
        }
    }

    /// A step has not ended in time. A board without a readable EEPROM works all the same.
    fn on_deadline(&mut self, waited: Duration) -> Result<(), Fault> {
        if self.step != Step::ReadEeprom {
            return Err(Fault::Deadline { waited });
        }
        self.report.warnings.push(BringUpWarning::EepromSlow { waited });
        let error = self.eeprom.give_up();
        self.draft.identity = Some(Identity { chip: self.chip()?, flash: Err(error) });
        Ok(())
    }

    fn turn(&mut self, bar: &impl Bar, now: Instant) -> Result<Turn, Fault> {
        match self.step {
            Step::Identify => self.identify(bar)?,
            Step::Count => self.count(bar)?,
            Step::Split => self.make_split()?,
            Step::InitPorts => self.init_ports(bar)?,
            Step::ConfigureContexts => {
                let split = self.draft.split.as_ref().ok_or(Fault::OutOfOrder)?;
                let counts = self.draft.counts.as_mut().ok_or(Fault::OutOfOrder)?;
                device::configure_contexts(split, counts, &mut self.controls, bar)?;
            }
            Step::MapQueuePairs => {
                let split = self.draft.split.as_ref().ok_or(Fault::OutOfOrder)?;
                device::map_queue_pairs(split, &mut self.controls, bar);
            }
            Step::TakeVectors if self.draft.vectors.is_none() => return Ok(Turn::Hook(Hook::TakeVectors)),
            Step::TakeVectors => {}
            Step::QuietErrors => {
                let split = self.draft.split.as_ref().ok_or(Fault::OutOfOrder)?;
                self.draft.masks = Some(device::quiet_errors(split, &mut self.report.warnings, bar)?);
            }
            Step::RedirectInterrupts => device::redirect_interrupts(self.plan(), bar),
            Step::ReadEeprom => return self.read_eeprom(bar, now),
            Step::TakeMemory if self.draft.avail_iova.is_none() => return Ok(Turn::Hook(Hook::TakeMemory)),
            Step::TakeMemory => {}
            Step::SizeQueues => device::size_queues(self.need_split()?, bar),
            Step::PlaceAvail => device::place_avail(self.draft.avail_iova.ok_or(Fault::OutOfOrder)?, bar)?,
            Step::SetSendChecks => device::set_send_checks(bar),
            Step::SetUpSockets => self.set_up_sockets(bar)?,
            Step::SetUpPorts => self.set_up_ports(bar)?,
            Step::EnableSending => {
                let split = self.draft.split.as_ref().ok_or(Fault::OutOfOrder)?;
                device::enable_sending(split, &mut self.controls, bar);
            }
            Step::OpenContexts if !self.draft.contexts_opened => return Ok(Turn::Hook(Hook::OpenContexts)),
            Step::OpenContexts => {}
            Step::EnableInterrupts => device::enable_interrupts(self.plan(), bar)?,
            Step::EnableLinks => self.enable_links(bar, now)?,
        }
        Ok(Turn::Done)
    }

    /// Source: F-111 (qib_init_7322_variables).
    fn identify(&mut self, bar: &impl Bar) -> Result<(), Fault> {
        let chip = Chip::from_revision(device_map::REVISION.read(bar)).map_err(Fault::Identify)?;
        self.draft.chip = Some(chip);
        Ok(())
    }

    /// Source: F-114.
    fn count(&mut self, bar: &impl Bar) -> Result<(), Fault> {
        self.draft.counts = Some(ChipCounts::read(bar).map_err(Fault::Counts)?);
        Ok(())
    }

    fn make_split(&mut self) -> Result<(), Fault> {
        let counts = self.draft.counts.as_ref().ok_or(Fault::OutOfOrder)?;
        let board = self.chip()?.board;
        let (split, warnings) =
            Split::new(&board, &self.request.options, self.request.cpus, counts).map_err(Fault::Split)?;
        self.report.warnings.extend(warnings.into_iter().map(BringUpWarning::Split));
        self.draft.split = Some(split);
        Ok(())
    }

    /// Source: F-134 (write_7322_init_portregs).
    fn init_ports(&mut self, bar: &impl Bar) -> Result<(), Fault> {
        let ports = self.need_split()?.ports;
        for port in Port::ALL {
            match ports.has(port) {
                true => init_present_port(&self.port_setup(port)?, bar),
                false => init_absent_port(port, bar),
            }
        }
        Ok(())
    }

    /// Source: F-126 (qib_get_eeprom_info). Failure is a warning.
    fn read_eeprom(&mut self, bar: &impl Bar, now: Instant) -> Result<Turn, Fault> {
        let flash = match self.eeprom.poll(&mut self.gpio, bar, now) {
            EepromPoll::More(until) => return Ok(Turn::Wait(until)),
            EepromPoll::Done(flash) => flash,
        };
        if flash.as_ref().is_err_and(|error| error.is_gone()) {
            return Err(Fault::Gone { register: "EXTStatus" });
        }
        self.draft.identity = Some(Identity { chip: self.chip()?, flash });
        Ok(Turn::Done)
    }

    /// Source: F-123, F-141 (qib_qsfp_init).
    fn set_up_sockets(&mut self, bar: &impl Bar) -> Result<(), Fault> {
        if self.chip()?.board.has_qsfp {
            for port in self.need_split()?.ports.iter() {
                self.draft.sockets[port.index()] = Some(Socket::set_up(port, &mut self.gpio, bar));
            }
        }
        Ok(())
    }

    /// Source: F-135 to F-138, F-156 (qib_7322_bringup_serdes).
    fn set_up_ports(&mut self, bar: &impl Bar) -> Result<(), Fault> {
        let ports = self.need_split()?.ports;
        // PANIC: none; the option is at most 255.
        let long_attenuation = u8::try_from(self.request.options.long_attenuation).unwrap_or(u8::MAX);
        let mut links = Links::new(ports, self.gpio).with_long_attenuation(long_attenuation);
        for p in ports.iter() {
            let setup = self.port_setup(p)?;
            let mut link = PortLink::new(&setup);
            if !link.bring_up(&setup, bar).map_err(link_fault)? {
                self.report.warnings.push(BringUpWarning::Credits { port: p });
            }
            self.controls.update_rcv_port(p, bar, |rcv| rcv.with_rcv_ib_port_enable(true));
            let mask = port::ERR_MASK.port(p);
            mask.write(bar, mask.read(bar) | PortErrBits::IB_STATUS_CHANGED);
            links.add(link, self.draft.sockets[p.index()].take());
        }
        self.draft.links = Some(links);
        Ok(())
    }

    /// Source: F-132, F-141.
    fn enable_links(&mut self, bar: &impl Bar, now: Instant) -> Result<(), Fault> {
        let ports = self.need_split()?.ports;
        let links = self.draft.links.as_mut().ok_or(Fault::OutOfOrder)?;
        for p in ports.iter() {
            if let Some(lid) = self.request.lids[p.index()] {
                links.set_lid(p, lid, bar).map_err(link_fault)?;
            }
            if let Some(goal) = self.request.goals[p.index()] {
                links.set_goal(p, goal, bar, now).map_err(link_fault)?;
            }
        }
        // A link whose cable module is read first has asked the card nothing yet, and no step comes after this one.
        device::answered("Revision", device_map::REVISION.read(bar), bar).map(drop)
    }

    fn finish(&mut self) -> Result<BroughtUp, Fault> {
        let draft = core::mem::take(&mut self.draft);
        let identity = draft.identity.ok_or(Fault::OutOfOrder)?;
        let counts = draft.counts.ok_or(Fault::OutOfOrder)?;
        let mut report = core::mem::take(&mut self.report);
        report.warnings.extend(counts.warnings.iter().copied().map(BringUpWarning::Count));
        report.warnings.extend(identity.remarks().into_iter().map(BringUpWarning::Remark));
        Ok(BroughtUp {
            identity,
            counts,
            split: draft.split.ok_or(Fault::OutOfOrder)?,
            plan: draft.vectors.ok_or(Fault::OutOfOrder)?,
            controls: self.controls.clone(),
            links: draft.links.ok_or(Fault::OutOfOrder)?,
            masks: draft.masks.ok_or(Fault::OutOfOrder)?,
            report,
        })
    }

    fn chip(&self) -> Result<Chip, Fault> {
        self.draft.chip.ok_or(Fault::OutOfOrder)
    }

    fn need_split(&self) -> Result<&Split, Fault> {
        self.draft.split.as_ref().ok_or(Fault::OutOfOrder)
    }

    fn plan(&self) -> Option<&VectorPlan> {
        self.draft.vectors.as_ref()?.as_ref()
    }

    fn port_setup(&self, port: Port) -> Result<PortSetup, Fault> {
        let split = self.need_split()?;
        let options = &self.request.options;
        let ib_port = split.ports.ib_number(port).ok_or(Fault::OutOfOrder)?;
        let guid = self.draft.identity.as_ref().map(|identity| identity.port_guid(ib_port));
        let lanes = options.num_vls as u8;
        Ok(PortSetup::new(port, split, options.mtu_bytes(), lanes, guid.unwrap_or_default()))
    }
}

fn link_fault(error: LinkError) -> Fault {
    match error {
        LinkError::Gone { .. } => Fault::Gone { register: "IBCStatusA" },
        error => Fault::Link(error),
    }
}

#[cfg(test)]
mod tests;
