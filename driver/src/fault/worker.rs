//! The error worker's turn.
//!
//! ```text
//!   handover.begin ─► device word? port words? ─► masks ─► handover.end
//!         ▲                                          │
//!         └────────── came meanwhile: Again ◄────────┘
//! ```
//!
//! A worker is plain data that belongs to one thread; the hand-over in [`DeviceShared`] sees to it that turns do not
//! overlap and that none begins once the device is closed. Under the inline policies there are no turns: the same
//! functions are called from the interrupt.

use std::collections::VecDeque;
use std::sync::Arc;

use qhca_errdecode::Scope;
use qhca_irq::storm::TokenBucket;
use qhca_irq::worker::TurnEnd;
use qhca_irq::{ContextSet, PortSet, Reasons, StormLimiter, Work};
use qhca_regs::map::{device, port as port_regs};
use qhca_regs::status::{ErrBits, HwErrBits, IntBits, PortErrBits, SendHdrSymptom};
use qhca_regs::{Bar, GONE, Instant, Port, RegValue};

use super::overflow::{OverflowAccount, Sample};
use super::policy::Policy;
use super::report::Report;
use super::table::{
    Actions, EXPECTED_WHILE_LINK_IS_NOT_ACTIVE, Response, device_actions, hardware_actions, port_actions,
};
use super::thaw;
use crate::shared::{DeviceShared, DeviceState};
use crate::tx::{SendControl, sdma};

/// Error reports a second that are decoded for a log line, and how many at once.
const LOG_RATE_PER_S: u64 = 10;
/// Reports that wait to be taken: a turn makes at most four, and the caller takes them all before the next.
const REPORTS_MAX: usize = 16;
/// Bytes of decoded text that are kept: the longest real word takes less.
const TEXT_BYTES: usize = 512;

/// What a worker is made from.
pub struct WorkerSetup {
    /// What the device's threads have in common.
    pub shared: Arc<DeviceShared>,
    /// The send control register.
    pub send: Arc<SendControl>,
    /// How errors are served.
    pub policy: Policy,
    /// The ports in use.
    pub ports: PortSet,
    /// The receive contexts in use.
    pub contexts: ContextSet,
    /// What `ErrMask` kept of all ones.
    pub err_mask: ErrBits,
    /// What `ErrMask_p` is to hold.
    pub port_err_mask: PortErrBits,
}

/// How often what was found. All wrap at 2^64.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FaultCounts {
    /// Turns that were taken.
    pub turns: u64,
    /// Words that were served, by scope: device, hardware, port 0, port 1.
    pub served: [u64; 4],
    /// Words that read as zero although they had interrupted.
    pub unexplained: u64,
    /// Reports with `RcvEgrFullErr`.
    pub eager_full: u64,
    /// Reports with `RcvHdrFullErr`.
    pub header_full: u64,
    /// Send buffers that were disarmed.
    pub disarmed: u64,
    /// Words that had a send DMA engine halted or in error.
    pub sdma_stops: u64,
    /// Port errors that a link which is not up makes by itself.
    pub expected_while_link_down: u64,
    /// Times that masks were raised again.
    pub rearms: u64,
    /// Register reads of the error path, all together.
    pub reads: u64,
    /// Reports that were decoded.
    pub decoded: u64,
    /// Reports that found their queue full and were dropped.
    pub reports_lost: u64,
}

/// Serves the errors of one device.
pub struct Worker {
    setup: WorkerSetup,
    storm: StormLimiter,
    written: WrittenMasks,
    log: TokenBucket,
    overflow: OverflowAccount,
    overflow_seen: bool,
    counts: FaultCounts,
    reports: VecDeque<Report>,
    /// The device's word as this worker knows it: another one means that it was reset, or is not open.
    known: u32,
}

/// What the worker last wrote to the mask registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct WrittenMasks {
    device: ErrBits,
    ports: [PortErrBits; 2],
}

impl Worker {
    /// The worker of a device that has just come up and whose error masks are still 0.
    pub fn new(setup: WorkerSetup) -> Self {
        let mut port_bases = [PortErrBits::empty(); 2];
        for port in setup.ports.iter() {
            port_bases[port.index()] = setup.port_err_mask;
        }
        let overflow = OverflowAccount::new(setup.contexts);
        Self {
            storm: StormLimiter::new(setup.err_mask, port_bases),
            written: WrittenMasks { device: ErrBits::empty(), ports: [PortErrBits::empty(); 2] },
            log: TokenBucket::new(LOG_RATE_PER_S, LOG_RATE_PER_S),
            overflow,
            overflow_seen: false,
            counts: FaultCounts::default(),
            reports: VecDeque::with_capacity(REPORTS_MAX),
            known: setup.shared.word(),
            setup,
        }
    }

    /// How often what was found.
    pub fn counts(&self) -> &FaultCounts {
        &self.counts
    }

    /// How many packets each context lost.
    pub fn overflow(&self) -> &OverflowAccount {
        &self.overflow
    }

    /// The limiter, for its counters.
    pub fn storm(&self) -> &StormLimiter {
        &self.storm
    }

    /// The hand-over's owner, for whoever waits for it.
    pub fn shared(&self) -> &Arc<DeviceShared> {
        &self.setup.shared
    }

    /// Sets the mark from which lost packets are counted, and raises the error masks for the first time. Call it once,
    /// before interrupts are switched on.
    pub fn start(&mut self, bar: &impl Bar, now: Instant) {
        self.sample_overflow(bar);
        if self.setup.shared.is_open() {
            self.raise_masks(Reasons::DEVICE.and(both_ports()), bar, now);
        }
    }

    /// Takes the turn that is wanted, if there is one, and gives the next report. Call it until it gives `None`.
    pub fn poll(&mut self, bar: &impl Bar, now: Instant) -> Option<Report> {
        if self.setup.shared.word() != self.known && self.setup.shared.is_open() {
            self.after_reset(bar, now);
        }
        if self.reports.is_empty() && self.setup.shared.state() != DeviceState::Resetting {
            self.turn(bar, now);
        }
        self.reports.pop_front()
    }

    /// The device was reset: its masks are as bring-up has left them, its counters begin anew.
    fn after_reset(&mut self, bar: &impl Bar, now: Instant) {
        self.known = self.setup.shared.word();
        self.overflow.rebase();
        self.overflow_seen = false;
        self.written = WrittenMasks { device: ErrBits::empty(), ports: [PortErrBits::empty(); 2] };
        self.start(bar, now);
    }

    /// When [`poll`](Self::poll) is to be called next although nobody asks for it: a masked class may come back.
    pub fn poll_timeout(&self) -> Option<Instant> {
        if self.setup.shared.state() == DeviceState::Resetting {
            return None;
        }
        let limited = self.setup.policy == Policy::Guarded && self.setup.shared.is_open();
        let rearm = if limited { self.storm.poll_timeout() } else { None };
        let turn = self.setup.shared.handover().deadline();
        [rearm, turn].into_iter().flatten().min()
    }

    /// Looks at the overflow registers once more: for a final account, and often enough that none wraps unseen.
    pub fn sample_overflow(&mut self, bar: &impl Bar) {
        if !self.setup.shared.is_open() {
            return;
        }
        self.counts.reads += self.overflow.contexts().len() as u64;
        match self.overflow.sample(bar) {
            Sample::Gone => self.gone(),
            Sample::Lost { contexts, .. } if self.setup.policy.guards_receive() => {
                contexts.iter().for_each(|ctxt| self.setup.shared.note_overflow(ctxt));
            }
            Sample::Lost { .. } => {}
        }
    }

    /// Serves errors in the interrupt, for the policies that do. Reports are taken by [`poll`](Self::poll).
    pub fn serve_inline(&mut self, work: Work, bar: &impl Bar, now: Instant) {
        if work.device_error() {
            self.serve_device(bar, now);
        }
        for port in work.port_errors().iter() {
            // The published handler begins with this read: bits of a port that is switched off are no news (F-223).
            let features = device::ACTIVE_FEATURE_MASK.read(bar);
            self.counts.reads += 1;
            if features.raw() != GONE && features.raw() != 0 {
                self.serve_port(port, bar, now);
            }
        }
    }

    fn turn(&mut self, bar: &impl Bar, now: Instant) {
        let shared = self.setup.shared.clone();
        let handover = shared.handover();
        if self.rearm_is_due(now) {
            // An account that closes meanwhile wins: then no turn begins.
            let _ = handover.schedule(Reasons::REARM, false, now);
        }
        while let Some(turn) = handover.begin(now) {
            self.counts.turns += 1;
            self.serve(turn.reasons, bar, now);
            if shared.is_open() {
                self.raise_masks(turn.reasons, bar, now);
            }
            // Reports first: a turn for what came meanwhile follows when they are taken.
            if handover.end(turn) != TurnEnd::Again || !self.reports.is_empty() {
                break;
            }
        }
    }

    fn rearm_is_due(&self, now: Instant) -> bool {
        self.setup.policy == Policy::Guarded && self.storm.poll_timeout().is_some_and(|at| at <= now)
    }

    fn serve(&mut self, reasons: Reasons, bar: &impl Bar, now: Instant) {
        if reasons.contains(Reasons::DEVICE) && self.setup.shared.is_open() {
            self.serve_device(bar, now);
        }
        for port in Port::ALL {
            if reasons.contains(Reasons::port(port)) && self.setup.shared.is_open() {
                self.serve_port(port, bar, now);
            }
        }
    }

    /// Reads the device's word once and does what it calls for.
    fn serve_device(&mut self, bar: &impl Bar, now: Instant) {
        let word = device::ERR_STATUS.read(bar);
        self.counts.reads += 1;
        if word.bits() == GONE {
            return self.gone();
        }
        self.counts.served[0] += 1;
        self.storm.observe_device(word, now);
        if word.is_empty() {
            self.counts.unexplained += 1;
            return;
        }
        // ORDER: the hardware's word before this one is cleared, since the bit here only sums it up.
        if word.contains(ErrBits::HARDWARE_ERR) {
            self.serve_hardware(bar, now);
        }
        let actions = device_actions(word);
        self.counts.eager_full += u64::from(word.contains(ErrBits::RCV_EGR_FULL_ERR));
        self.counts.header_full += u64::from(word.contains(ErrBits::RCV_HDR_FULL_ERR));
        self.overflow_seen |= actions.has(Response::CountDrops);
        if !self.act(actions, bar) {
            return;
        }
        device::ERR_CLEAR.clear(bar, word);
        self.report(Scope::Device, None, word.bits(), 0, actions, false, now);
        if actions.has(Response::Fatal) {
            self.stop(bar);
        }
    }

    /// Reads the hardware's word once and does what it calls for.
    fn serve_hardware(&mut self, bar: &impl Bar, now: Instant) {
        let word = device::HW_ERR_STATUS.read(bar);
        self.counts.reads += 1;
        if word.bits() == GONE {
            return self.gone();
        }
        self.counts.served[1] += 1;
        if word.is_empty() {
            self.counts.unexplained += 1;
            return;
        }
        // A failed self-test stays to be seen: its bit is never cleared (F-222).
        device::HW_ERR_CLEAR.clear(bar, word.difference(HwErrBits::POWER_ON_BIST_FAILED));
        let control = device::CONTROL.read(bar);
        self.counts.reads += 1;
        if control.raw() == GONE {
            return self.gone();
        }
        let frozen = control.freeze_mode();
        let actions = hardware_actions(word, frozen);
        self.report(Scope::Hardware, None, word.bits(), 0, actions, frozen, now);
        if actions.has(Response::Fatal) {
            self.stop(bar);
        } else if frozen {
            let masks = thaw::Masks {
                device: self.written.device,
                port: self.setup.port_err_mask,
                interrupts: self.setup.shared.dispatcher().enabled_bits(),
                ports: self.setup.ports,
            };
            thaw::thaw(bar, control, masks);
        }
    }

    /// Reads a port's word once and does what it calls for.
    fn serve_port(&mut self, port: Port, bar: &impl Bar, now: Instant) {
        let word = port_regs::ERR_STATUS.port(port).read(bar);
        self.counts.reads += 1;
        if word.bits() == GONE {
            return self.gone();
        }
        self.counts.served[2 + port.index()] += 1;
        self.storm.observe_port(port, word, now);
        if word.is_empty() {
            self.counts.unexplained += 1;
            return;
        }
        let symptom =
            if word.contains(PortErrBits::S_HEADERS_ERR) { self.read_symptom(port, bar) } else { 0 };
        let news = self.without_expected(port, word);
        let actions = port_actions(news);
        if !self.act(actions, bar) {
            return;
        }
        port_regs::ERR_CLEAR.port(port).clear(bar, word);
        if actions.has(Response::LinkChanged) {
            self.setup.shared.note_link_change(port);
        }
        // ORDER: after the clear. The engine's control side may make the chip halt again at once, and that notice must
        // not be erased.
        if actions.has(Response::RestartSdma) {
            self.setup.shared.note_sdma_error(port, news.intersection(SDMA_WORD));
        }
        if !news.difference(NO_ERRORS).is_empty() {
            self.report(Scope::Port, Some(port), news.bits(), symptom, actions, false, now);
        }
    }

    /// Why a header was refused; the register is set back to 0 for the next.
    fn read_symptom(&mut self, port: Port, bar: &impl Bar) -> u64 {
        let register = port_regs::SEND_HDR_ERR_SYMPTOM.port(port);
        let symptom = register.read(bar);
        self.counts.reads += 1;
        register.write(bar, SendHdrSymptom::empty());
        symptom.bits()
    }

    /// The bits of `word` that are news: what a link that is not up makes by itself is left out, counted.
    fn without_expected(&mut self, port: Port, word: PortErrBits) -> PortErrBits {
        let expected = word.intersection(EXPECTED_WHILE_LINK_IS_NOT_ACTIVE);
        if expected.is_empty() || self.setup.shared.link_is_active(port) {
            return word;
        }
        self.counts.expected_while_link_down += u64::from(expected.bits().count_ones());
        word.difference(expected)
    }

    /// Does what `actions` call for, but for what only one word can call for. False if the device turned out gone.
    fn act(&mut self, actions: Actions, bar: &impl Bar) -> bool {
        self.counts.sdma_stops += u64::from(actions.has(Response::RestartSdma));
        if actions.has(Response::CancelSends) {
            let errors = self.setup.send.collect_errors(bar);
            self.counts.reads += u64::from(errors.reads);
            self.counts.disarmed += errors.buffers().count() as u64;
            self.setup.shared.note_sdma_buffers_stuck(errors.sdma_ports);
            if errors.gone {
                self.gone();
            }
        }
        self.setup.shared.state() != DeviceState::Gone
    }

    /// Raises the masks again after a turn for `reasons`.
    fn raise_masks(&mut self, reasons: Reasons, bar: &impl Bar, now: Instant) {
        let wanted = match self.setup.policy {
            Policy::Silent => WrittenMasks { device: ErrBits::empty(), ports: [PortErrBits::empty(); 2] },
            Policy::Guarded => self.limited_masks(bar, now),
            Policy::Inline | Policy::DecoderOnly | Policy::Deferred => self.full_masks(),
        };
        // The interrupt has written a mask of its own for each reason, so those are written whatever they were.
        if reasons.contains(Reasons::DEVICE) || wanted.device != self.written.device {
            device::ERR_MASK.write(bar, wanted.device);
        }
        for port in self.setup.ports.iter() {
            let (mask, before) = (wanted.ports[port.index()], self.written.ports[port.index()]);
            if reasons.contains(Reasons::port(port)) || mask != before {
                port_regs::ERR_MASK.port(port).write(bar, mask);
            }
        }
        self.counts.rearms += u64::from(wanted != self.written || !reasons.contains(Reasons::REARM));
        self.written = wanted;
    }

    fn full_masks(&self) -> WrittenMasks {
        let mut ports = [PortErrBits::empty(); 2];
        for port in self.setup.ports.iter() {
            ports[port.index()] = self.setup.port_err_mask;
        }
        WrittenMasks { device: self.setup.err_mask, ports }
    }

    /// What the limiter allows. When packets were lost the account is brought up to date before their class may
    /// interrupt again, once.
    fn limited_masks(&mut self, bar: &impl Bar, now: Instant) -> WrittenMasks {
        let masks = self.storm.rearm(now);
        let overflow = ErrBits::RCV_EGR_FULL_ERR | ErrBits::RCV_HDR_FULL_ERR;
        if self.overflow_seen && masks.device.intersects(overflow) {
            self.overflow_seen = false;
            self.sample_overflow(bar);
        }
        WrittenMasks { device: masks.device, ports: masks.ports }
    }

    /// Puts a report into the queue, decoded if that is worth it.
    #[expect(clippy::too_many_arguments, reason = "the fields of one report, which stands right below")]
    fn report(
        &mut self,
        scope: Scope,
        port: Option<Port>,
        word: u64,
        symptom: u64,
        actions: Actions,
        frozen: bool,
        now: Instant,
    ) {
        if self.reports.len() >= REPORTS_MAX {
            self.counts.reports_lost += 1;
            return;
        }
        let text = self.decode(scope, word, actions.has(Response::Fatal), now);
        self.reports.push_back(Report { scope, port, word, symptom, actions, frozen, at: now, text });
    }

    fn decode(&mut self, scope: Scope, word: u64, fatal: bool, now: Instant) -> Option<Box<str>> {
        let worth_a_line = fatal || self.log.try_take(now);
        if !worth_a_line && !self.setup.policy.decodes_every_report() {
            return None;
        }
        let mut buffer = [0; TEXT_BYTES];
        let decoded = qhca_errdecode::decode(scope, word, &mut buffer);
        self.counts.decoded += 1;
        worth_a_line.then(|| decoded.as_str().into())
    }

    /// Stops the device after an error that it cannot be used after: no more sends, no more interrupts.
    fn stop(&mut self, bar: &impl Bar) {
        if !self.setup.shared.is_open() {
            return;
        }
        for port in self.setup.ports.iter() {
            port_regs::SEND_CTRL.port(port).write(bar, port_regs::SendCtrl::default());
            device::SCRATCH.write(bar, 0);
        }
        device::INT_MASK.write(bar, IntBits::empty());
        self.setup.shared.worsen(DeviceState::Failed);
    }

    /// A register read as all ones: nothing is touched from here on.
    fn gone(&self) {
        self.setup.shared.worsen(DeviceState::Gone);
    }
}

/// Port bits that are news, not errors: a link has changed, an engine has halted as it was told to or because of an
/// error beside it.
const NO_ERRORS: PortErrBits = PortErrBits::IB_STATUS_CHANGED.union(PortErrBits::SDMA_HALT_ERR);

/// What the control side of a send DMA engine wants to know.
const SDMA_WORD: PortErrBits = sdma::STOPPING.union(PortErrBits::SDMA_HALT_ERR);

/// The reasons of both ports.
const fn both_ports() -> Reasons {
    Reasons::port(Port::P0).and(Reasons::port(Port::P1))
}

#[cfg(test)]
#[path = "worker_tests.rs"]
mod tests;
