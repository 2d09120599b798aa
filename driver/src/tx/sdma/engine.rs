//! The control side of one engine: its registers, and the states from switched off to running.
//!
//! ```text
//!   Down ──start──► StartWait ──halted, or clean──► Idle ──link ACTIVE──► Running
//!                       ▲                                                   │ link down, or halted by an error
//!                       │ set back, SDmaCleanup                             ▼
//!                   SwCleanup ◄── sends settled ◄── (halted) ◄────────── HaltWait
//! ```
//!
//! Four switches of `SendCtrl_p` make a state: enable, interrupts, halt, and for [`EngineState::HaltWait`] the drain,
//! which throws away what waits for credits that will not come. The engine says that it has halted by `SDmaHaltErr`,
//! which is no error by itself, and that it is clean by an interrupt (F-233).
//!
//! Every wait for the chip has a deadline. When one passes the status register is looked at, for an interrupt may have
//! been lost; then the step is repeated; then the engine is given up, which costs its sends and nothing else. Waiting
//! for the data side has none: until its thread comes by, nobody wants to send.
//!
//! Source: F-230 to F-236.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use qhca_regs::map::device;
use qhca_regs::map::port::{self as port_regs, SendCtrl, SendDmaStatus};
use qhca_regs::status::PortErrBits;
use qhca_regs::{Bar, Duration, GONE, Instant, Port, RegValue};

use super::word::{FlushReason, Phase, SdmaHome, SdmaShared};
use crate::control::{Controls, separate};
use crate::dma::DmaRegion;

/// How long the chip may take to halt, or to clean up.
///
/// TIMEOUT: ours; a packet of the largest size leaves in 17 µs at the slowest rate, and drained sends do not wait.
const STEP_WITHIN: Duration = Duration::from_millis(10);
/// How often a step is repeated before the engine is given up.
const STEP_ATTEMPTS: u32 = 3;
/// Restarts after errors are so far apart at least: an engine that halts on everything must not keep the host busy.
const RESTARTS_APART: Duration = Duration::from_millis(10);
/// How often a flush that the data side has not answered is looked at when nobody tells.
const FLUSH_LOOK_EVERY: Duration = Duration::from_millis(100);
/// Reload value of the idle timer (F-231).
const IDLE_RELOAD: u16 = 64;
/// Bit of `SendDmaLenGen` that makes the chip hold descriptors' generations against its own (F-231).
const CHECK_GENERATION: u8 = 1 << 2;
/// Looks at the status while an engine is switched off for good, about a microsecond each.
///
/// TIMEOUT: ours, as [`STEP_WITHIN`], counted in reads since nothing can wait there.
const QUIET_LOOKS: u32 = 2_000;
/// Changes kept for the caller; the oldest makes room.
const CHANGES_MAX: usize = 8;

/// What stops an engine, beside [`PortErrBits::SDMA_HALT_ERR`] itself (F-234).
pub const STOPPING: PortErrBits = PortErrBits::SDMA_DESC_ADDR_MISALIGN_ERR
    .union(PortErrBits::SDMA_MISSING_DW_ERR)
    .union(PortErrBits::SDMA_DW_EN_ERR)
    .union(PortErrBits::SDMA_RPY_TAG_ERR)
    .union(PortErrBits::SDMA1ST_DESC_ERR)
    .union(PortErrBits::SDMA_BASE_ERR)
    .union(PortErrBits::SDMA_TAIL_OUT_OF_BOUND_ERR)
    .union(PortErrBits::SDMA_OUT_OF_BOUND_ERR)
    .union(PortErrBits::SDMA_GEN_MISMATCH_ERR);

/// Where an engine is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EngineState {
    /// Switched off.
    Down,
    /// Halted before its first descriptor; the chip is to say so, or that it is clean.
    StartWait,
    /// Ready; the link is not.
    Idle,
    /// Fetching and sending.
    Running,
    /// Told to halt.
    HaltWait,
    /// Halted; the data side is to settle its sends.
    SwCleanup,
    /// It did not do as it was told, and was switched off. A link that comes up tries again.
    Failed,
}

impl EngineState {
    /// The switches of `SendCtrl_p` in this state.
    fn switches(self, contents: SendCtrl) -> SendCtrl {
        let (enable, interrupts, halt) = match self {
            Self::Down | Self::Failed => (false, false, false),
            Self::StartWait | Self::SwCleanup => (false, true, true),
            Self::Idle | Self::HaltWait => (true, true, true),
            Self::Running => (true, true, false),
        };
        contents.with_sdma_enable(enable).with_sdma_int_enable(interrupts).with_sdma_halt(halt)
    }
}

/// What happened to an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SdmaChange {
    /// It runs: packets may be given to it.
    Running,
    /// It was stopped, and its sends were flushed.
    Stopped(FlushReason),
    /// It did not do as it was told and was given up. Sends go by programmed I/O.
    Failed {
        /// What was waited in.
        state: EngineState,
        /// How long.
        waited: Duration,
    },
}

/// How often what happened. All wrap at 2^64.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SdmaEngineCounts {
    /// Times that it began to run.
    pub starts: u64,
    /// Times that it was stopped because the link went down.
    pub link_downs: u64,
    /// Times that it halted on an error.
    pub halts: u64,
    /// Notices of a halt that the status did not bear out.
    pub stale_halts: u64,
    /// Deadlines that passed.
    pub late_steps: u64,
    /// Times that it was given up.
    pub failures: u64,
}

/// What an engine is made from.
#[derive(Debug)]
pub struct EngineSetup {
    /// Where the descriptors are.
    pub ring_iova: u64,
    /// Where the chip writes its head.
    pub head_iova: u64,
    /// Descriptors in the ring.
    pub descriptors: u32,
    /// The ring's memory, which ends with the head word.
    pub ring: DmaRegion,
    /// Send buffers that the engine may use.
    pub buffers: Range<usize>,
    /// Fewest free slots of its fetch queue at which the engine gets priority: the option `sdma_fetch_prio`.
    pub fetch_priority: u8,
    /// What it shares with the data side.
    pub shared: Arc<SdmaShared>,
    /// Where the queue is while no sender has it.
    pub home: Arc<SdmaHome>,
}

/// One port's engine.
#[derive(Debug)]
pub struct Engine {
    setup: EngineSetup,
    state: EngineState,
    link_is_active: bool,
    /// Whether all registers are to be written again, not only those of a restart.
    needs_registers: bool,
    reason: FlushReason,
    since: Instant,
    attempts: u32,
    deadline: Option<Instant>,
    last_restart: Option<Instant>,
    changes: VecDeque<SdmaChange>,
    counts: SdmaEngineCounts,
}

impl Engine {
    /// An engine that was not touched yet.
    pub fn new(setup: EngineSetup) -> Self {
        Self {
            setup,
            state: EngineState::Down,
            link_is_active: false,
            needs_registers: true,
            reason: FlushReason::LinkDown,
            since: Instant::ZERO,
            attempts: 0,
            deadline: None,
            last_restart: None,
            changes: VecDeque::with_capacity(CHANGES_MAX),
            counts: SdmaEngineCounts::default(),
        }
    }

    /// The port.
    pub fn port(&self) -> Port {
        self.setup.shared.port()
    }

    /// Where it is.
    pub fn state(&self) -> EngineState {
        self.state
    }

    /// How often what happened.
    pub fn counts(&self) -> &SdmaEngineCounts {
        &self.counts
    }

    /// What it shares with the data side.
    pub fn shared(&self) -> &Arc<SdmaShared> {
        &self.setup.shared
    }

    /// Where its queue is while no sender has it.
    pub fn home(&self) -> &Arc<SdmaHome> {
        &self.setup.home
    }

    /// What has happened, oldest first, until `None`.
    pub fn poll_change(&mut self) -> Option<SdmaChange> {
        self.changes.pop_front()
    }

    /// When [`on_timeout`](Self::on_timeout) wants to be called.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.deadline
    }

    /// Writes the engine's registers and has it halt before its first descriptor.
    ///
    /// Source: F-231, F-235.
    pub fn start(&mut self, controls: &mut Controls, bar: &impl Bar, now: Instant) {
        let (port, setup) = (self.port(), &self.setup);
        self.needs_registers = false;
        let base = port_regs::SendDmaBase(0).with_send_dma_base(setup.ring_iova);
        port_regs::SEND_DMA_BASE.port(port).write(bar, base);
        self.set_back(bar);
        let reload = port_regs::SendDmaReloadCnt(0).with_send_dma_reload_cnt(IDLE_RELOAD);
        port_regs::SEND_DMA_RELOAD_CNT.port(port).write(bar, reload);
        port_regs::SEND_DMA_DESC_CNT.port(port).write(bar, port_regs::SendDmaDescCnt(0));
        let head = port_regs::SendDmaHeadAddr(0).with_send_dma_head_addr(self.setup.head_iova);
        port_regs::SEND_DMA_HEAD_ADDR.port(port).write(bar, head);
        for (word, mask) in (0..).zip(buffer_mask(&self.setup.buffers)) {
            port_regs::SEND_DMA_BUF_MASK.port(port).index(word).write(bar, mask);
        }
        let priority = port_regs::SendDmaPriorityThld(0).with_priority_threshold(self.setup.fetch_priority);
        port_regs::SEND_DMA_PRIORITY_THLD.port(port).write(bar, priority);
        self.enter(EngineState::StartWait, controls, bar, now);
    }

    /// Ring length, generation and tail as at first.
    fn set_back(&self, bar: &impl Bar) {
        let port = self.port();
        let len_gen = port_regs::SendDmaLenGen(0).with_length(self.setup.descriptors as u16);
        // The first write sets the length; the second loads generation 0 and turns its check on (F-231).
        port_regs::SEND_DMA_LEN_GEN.port(port).write(bar, len_gen);
        port_regs::SEND_DMA_LEN_GEN.port(port).write(bar, len_gen.with_generation(CHECK_GENERATION));
        port_regs::SEND_DMA_TAIL.port(port).write(bar, port_regs::SendDmaTail(0));
    }

    /// `ErrStatus_p` had `bits` of the engine: it has halted, or met an error that makes it.
    pub fn on_error(&mut self, bits: PortErrBits, controls: &mut Controls, bar: &impl Bar, now: Instant) {
        let halted = bits.contains(PortErrBits::SDMA_HALT_ERR);
        match self.state {
            EngineState::StartWait if halted => self.on_ready(controls, bar, now),
            EngineState::HaltWait if halted => self.on_halted(controls, bar, now),
            EngineState::Running if bits.intersects(STOPPING) || self.stands_still(bar) => {
                self.counts.halts += 1;
                self.reason = FlushReason::Halted;
                self.setup.shared.set_phase(Phase::Halting);
                match halted {
                    true => self.on_halted(controls, bar, now),
                    false => self.enter(EngineState::HaltWait, controls, bar, now),
                }
            }
            // The notice of a halt that was served while it was still news.
            EngineState::Running => self.counts.stale_halts += 1,
            _ => {}
        }
    }

    /// A send buffer of the engine is in error: it would never be free again, so the engine is started anew.
    pub fn on_buffer_error(&mut self, controls: &mut Controls, bar: &impl Bar, now: Instant) {
        if self.state == EngineState::Running {
            self.counts.halts += 1;
            self.stop(FlushReason::Halted, controls, bar, now);
        }
    }

    /// Has a running engine halt, and throws away what waits to be sent.
    fn stop(&mut self, reason: FlushReason, controls: &mut Controls, bar: &impl Bar, now: Instant) {
        self.reason = reason;
        self.setup.shared.set_phase(Phase::Halting);
        self.enter(EngineState::HaltWait, controls, bar, now);
        drain(self.port(), controls, bar);
    }

    /// The chip says that the clean-up is done.
    pub fn on_cleanup_done(&mut self, controls: &mut Controls, bar: &impl Bar, now: Instant) {
        if self.state == EngineState::StartWait {
            self.on_ready(controls, bar, now);
        }
    }

    /// The link carries data, or no longer.
    pub fn on_link(&mut self, active: bool, controls: &mut Controls, bar: &impl Bar, now: Instant) {
        self.link_is_active = active;
        match self.state {
            EngineState::Idle if active => self.run(controls, bar, now),
            EngineState::Failed if active => self.start_when_settled(controls, bar, now),
            EngineState::Running if !active => {
                self.counts.link_downs += 1;
                self.stop(FlushReason::LinkDown, controls, bar, now);
            }
            _ => {}
        }
    }

    /// Looks whether the data side has answered.
    pub fn on_news(&mut self, controls: &mut Controls, bar: &impl Bar, now: Instant) {
        if self.state != EngineState::SwCleanup {
            return;
        }
        if self.setup.shared.phase() == Phase::Flush {
            self.setup.home.settle();
        }
        let phase = self.setup.shared.phase();
        if !matches!(phase, Phase::Flushed | Phase::Stopped) {
            return;
        }
        let too_early = self.last_restart.map(|last| last + RESTARTS_APART).filter(|at| *at > now);
        if let Some(at) = too_early {
            self.deadline = Some(at);
            return;
        }
        self.last_restart = Some(now);
        if phase == Phase::Flushed {
            self.note(SdmaChange::Stopped(self.reason));
        }
        match self.needs_registers {
            true => self.start(controls, bar, now),
            false => self.clean_up(controls, bar, now),
        }
    }

    /// Writes all registers again once the data side has settled what it had.
    fn start_when_settled(&mut self, controls: &mut Controls, bar: &impl Bar, now: Instant) {
        self.needs_registers = true;
        self.enter(EngineState::SwCleanup, controls, bar, now);
        self.on_news(controls, bar, now);
    }

    /// A deadline of [`poll_timeout`](Self::poll_timeout) has passed.
    pub fn on_timeout(&mut self, controls: &mut Controls, bar: &impl Bar, now: Instant) {
        if self.deadline.is_none_or(|at| now < at) {
            return;
        }
        match self.state {
            EngineState::SwCleanup => {
                self.deadline = Some(now + FLUSH_LOOK_EVERY);
                self.on_news(controls, bar, now);
            }
            EngineState::StartWait | EngineState::HaltWait => self.on_late(controls, bar, now),
            _ => self.deadline = None,
        }
    }

    /// The chip has not said that it halted, or is clean: looks, tries again, or gives up.
    fn on_late(&mut self, controls: &mut Controls, bar: &impl Bar, now: Instant) {
        self.counts.late_steps += 1;
        let still = self.stands_still(bar);
        match (self.state, still) {
            (EngineState::StartWait, true) => self.on_ready(controls, bar, now),
            (EngineState::HaltWait, true) => self.on_halted(controls, bar, now),
            (EngineState::StartWait, false) if self.attempts < STEP_ATTEMPTS => {
                self.clean_up(controls, bar, now);
            }
            (EngineState::HaltWait, false) if self.attempts < STEP_ATTEMPTS => {
                self.enter(EngineState::HaltWait, controls, bar, now);
                drain(self.port(), controls, bar);
            }
            _ => self.give_up(controls, bar, now),
        }
    }

    fn give_up(&mut self, controls: &mut Controls, bar: &impl Bar, now: Instant) {
        let (state, waited) = (self.state, now.since(self.since));
        self.counts.failures += 1;
        self.enter(EngineState::Failed, controls, bar, now);
        if state == EngineState::HaltWait {
            self.reason = FlushReason::Stuck;
            self.setup.shared.ask_flush(self.head(bar), self.reason);
            self.setup.home.settle();
        }
        self.note(SdmaChange::Failed { state, waited });
    }

    /// It stands before its first descriptor.
    fn on_ready(&mut self, controls: &mut Controls, bar: &impl Bar, now: Instant) {
        // A head of the last run may have been written late.
        let head_at = self.setup.head_iova - self.setup.ring_iova;
        self.setup.ring.memory().store_u64(head_at as usize, 0);
        self.setup.shared.set_phase(Phase::Stopped);
        self.enter(EngineState::Idle, controls, bar, now);
        if self.link_is_active {
            self.run(controls, bar, now);
        }
    }

    fn run(&mut self, controls: &mut Controls, bar: &impl Bar, now: Instant) {
        self.enter(EngineState::Running, controls, bar, now);
        self.counts.starts += 1;
        self.note(SdmaChange::Running);
        // ORDER: the engine is on before anybody rings its doorbell.
        self.setup.shared.set_phase(Phase::Running);
    }

    /// It stands still somewhere: the data side is to settle what it sent.
    fn on_halted(&mut self, controls: &mut Controls, bar: &impl Bar, now: Instant) {
        let head = self.head(bar);
        self.enter(EngineState::SwCleanup, controls, bar, now);
        self.setup.shared.ask_flush(head, self.reason);
        self.on_news(controls, bar, now);
    }

    /// Sets the engine's registers back and has it forget what it had fetched.
    ///
    /// Source: F-233.
    fn clean_up(&mut self, controls: &mut Controls, bar: &impl Bar, now: Instant) {
        flush(self.port(), controls, bar);
        self.set_back(bar);
        self.enter(EngineState::StartWait, controls, bar, now);
        let register = port_regs::SEND_CTRL.port(self.port());
        register.write(bar, controls.send_port(self.port()).with_sdma_cleanup(true));
        separate(bar);
    }

    fn head(&self, bar: &impl Bar) -> u32 {
        u32::from(port_regs::SEND_DMA_HEAD.port(self.port()).read(bar).send_dma_head())
    }

    /// Whether the status shows an engine that has halted and holds nothing.
    fn stands_still(&self, bar: &impl Bar) -> bool {
        let status = port_regs::SEND_DMA_STATUS.port(self.port()).read(bar);
        status.raw() != GONE && !is_busy(status)
    }

    fn enter(&mut self, state: EngineState, controls: &mut Controls, bar: &impl Bar, now: Instant) {
        if state != self.state {
            (self.since, self.attempts) = (now, 0);
        }
        self.attempts += 1;
        self.state = state;
        controls.update_send_port(self.port(), bar, |contents| state.switches(contents));
        self.deadline = match state {
            EngineState::StartWait | EngineState::HaltWait => Some(now + STEP_WITHIN),
            EngineState::SwCleanup => Some(now + FLUSH_LOOK_EVERY),
            _ => None,
        };
    }

    /// Switches the engine off for good. Its memory is lost if the engine cannot be seen to stand still.
    pub fn switch_off(&mut self, controls: &mut Controls, bar: &impl Bar) {
        let mut reason = FlushReason::Closed;
        if self.state != EngineState::Down {
            let halt = EngineState::HaltWait;
            controls.update_send_port(self.port(), bar, |contents| halt.switches(contents));
            let was_used = matches!(self.state, EngineState::Running | EngineState::HaltWait);
            if was_used && !(0..QUIET_LOOKS).any(|_| self.stands_still(bar)) {
                log::warn!("{}: send DMA does not come to a halt; its memory is given up", self.port());
                reason = FlushReason::Stuck;
            }
            controls.update_send_port(self.port(), bar, |contents| EngineState::Down.switches(contents));
        }
        (self.state, self.deadline) = (EngineState::Down, None);
        self.setup.shared.switch_off(reason);
        if let Some(mut queue) = self.setup.home.take() {
            queue.look(bar);
            self.setup.home.put(queue);
        }
    }

    /// The chip was reset under the engine: it has forgotten everything. Its sends are flushed, and it starts anew.
    pub fn on_reset(&mut self, controls: &mut Controls, bar: &impl Bar, now: Instant) {
        if self.state == EngineState::Down {
            return;
        }
        self.link_is_active = false;
        if matches!(self.state, EngineState::Running | EngineState::HaltWait) {
            self.reason = FlushReason::Reset;
            // What the chip had done is not known any more: nothing that is not known to be sent was sent.
            self.setup.shared.ask_flush(0, FlushReason::Reset);
        }
        self.start_when_settled(controls, bar, now);
    }

    fn note(&mut self, change: SdmaChange) {
        if self.changes.len() == CHANGES_MAX {
            self.changes.pop_front();
        }
        self.changes.push_back(change);
    }
}

/// Whether an engine with this status is at work, or has work in it (F-236).
fn is_busy(status: SendDmaStatus) -> bool {
    status.score_board_drain_in_prog()
        || status.halt_in_prog()
        || !status.internal_sdma_halt()
        || !status.scb_empty()
}

/// One bit for each send buffer in `buffers`, over three words.
fn buffer_mask(buffers: &Range<usize>) -> [u64; 3] {
    let mut mask = [0; 3];
    buffers.clone().for_each(|buffer| mask[buffer / 64] |= 1 << (buffer % 64));
    mask
}

/// Throws away what the port was about to send while its link is down (F-233).
fn drain(port: Port, controls: &mut Controls, bar: &impl Bar) {
    let normal = controls.send_port(port);
    controls.update_send_port(port, bar, |contents| contents.with_send_enable(false));
    controls.update_send_port(port, bar, |contents| {
        contents.with_txe_bypass_ibc(true).with_txe_abort_ibc(true).with_txe_drain_rm_fifo(true)
    });
    controls.update_send_port(port, bar, |_| normal);
}

/// Empties the port's send FIFOs (F-227). The reads let what the chip writes to memory arrive.
pub(crate) fn flush(port: Port, controls: &mut Controls, bar: &impl Bar) {
    let normal = controls.send_port(port);
    controls.update_send_port(port, bar, |contents| {
        contents.with_txe_drain_la_fifo(true).with_txe_drain_rm_fifo(true).with_txe_bypass_ibc(true)
    });
    controls.update_send_port(port, bar, |_| normal);
    (0..FLUSH_READS).for_each(|_| {
        device::SCRATCH.read(bar);
    });
}

/// Reads that a flush waits for (F-227).
const FLUSH_READS: usize = 3;

#[cfg(test)]
#[path = "engine_tests.rs"]
mod tests;
