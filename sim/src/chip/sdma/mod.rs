//! Send DMA: one engine a port that takes packets from a ring of descriptors in host memory to its send buffers.
//!
//! ```text
//!   host memory                         chip
//!   SendDmaBase --> | desc | <- Head    engine: one descriptor after the other
//!                   | desc |              First: a free buffer of SendDmaBufMask, PBC, headers
//!                   | desc |              ...    payload, in order
//!                   |      | <- Tail      Last:  buffer complete --> checks, lanes, credits: as a PIO buffer
//!   SendDmaHeadAddr --> | head |  <- written by DmaHead descriptors, idle timer and progress count
//! ```
//!
//! The engine runs while `SDmaEnable` is 1, `SDmaHalt` is 0 and no error has stopped it. `SDmaHalt` with
//! `SDmaIntEnable`, also on an engine that stands still, ends in `SDmaHaltErr`: the word software waits for (F-400). `SDmaCleanup` acts once: ring
//! indices to 0, a packet half taken in dropped, an error's stop lifted, then `SDmaCleanupDone` (F-401).
//!
//! This chapter holds the registers and states; [`engine`] takes in descriptors and says what is wrong with them.

mod engine;
#[cfg(test)]
mod tests;

use super::account::Drop;
use super::wrong::WrongChip;
use super::{Chip, Host};
use engine::Assembly;
use qhca_regs::layout::SdmaDesc;
use qhca_regs::map::port;
use qhca_regs::status::{ErrBits, IntBits, PortErrBits};
use qhca_regs::{Buffer, Instant, Port};

/// Words of a mask with one bit a buffer.
const MASK_WORDS: usize = 3;

/// How `SDmaHalt` is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    /// Nothing was asked, or `SDmaIntEnable` is 0.
    None,
    /// `SDmaHaltErr` comes at this time.
    Due(Instant),
    /// It has come.
    Given,
}

/// One port's engine.
pub(super) struct Engine {
    base: u64,
    /// Descriptors in the ring.
    length: u16,
    /// The generation that the next descriptor must have, while it is checked.
    generation: u8,
    checks_generation: bool,
    head: u16,
    tail: u16,
    head_iova: u64,
    enabled: bool,
    interrupts: bool,
    halt: bool,
    answer: Answer,
    /// An error has stopped the engine; a clean-up lifts that.
    stopped: bool,
    cleanup_at: Option<Instant>,
    /// A packet of which the last descriptor is still to come.
    packet: Option<Assembly>,
    /// Buffers the engine may use, and those it has in use.
    mask: [u64; MASK_WORDS],
    used: [u64; MASK_WORDS],
    last_buffer: u8,
    /// `SendDmaReloadCnt`, and when the idle timer that it started runs out.
    reload: u16,
    idle_at: Option<Instant>,
    /// `SendDmaDescCnt`, and descriptors left until it is reached.
    progress: u16,
    until_progress: u16,
}

/// Both engines.
pub(super) struct Sdma {
    engines: [Engine; 2],
    /// A buffer has become free that an engine may be waiting for.
    wake: bool,
}

impl Engine {
    fn new() -> Self {
        Self {
            base: 0,
            length: 0,
            generation: 0,
            checks_generation: false,
            head: 0,
            tail: 0,
            head_iova: 0,
            enabled: false,
            interrupts: false,
            halt: false,
            answer: Answer::None,
            stopped: false,
            cleanup_at: None,
            packet: None,
            mask: [0; MASK_WORDS],
            used: [0; MASK_WORDS],
            last_buffer: 0,
            reload: 0,
            idle_at: None,
            progress: 0,
            until_progress: 0,
        }
    }

    /// Whether there is a descriptor that may be taken in.
    fn has_work(&self) -> bool {
        self.head != self.tail && self.runs()
    }

    fn runs(&self) -> bool {
        self.enabled && !self.halt && !self.stopped && self.cleanup_at.is_none()
    }

    /// `InternalSDmaHalt`: the engine stands still for good.
    fn is_halted(&self) -> bool {
        self.stopped || self.halt && !self.is_halting()
    }

    fn is_halting(&self) -> bool {
        matches!(self.answer, Answer::Due(_))
    }

    fn next_deadline(&self) -> Option<Instant> {
        let halting = match self.answer {
            Answer::Due(at) => Some(at),
            Answer::None | Answer::Given => None,
        };
        [halting, self.cleanup_at, self.idle_at].into_iter().flatten().min()
    }

    /// `SendDmaStatus`.
    fn status(&self) -> port::SendDmaStatus {
        let launched = self.used.iter().any(|&word| word != 0);
        port::SendDmaStatus::default()
            .with_spl_fifo_desc_index(self.head)
            .with_spl_fifo_buf_num(self.last_buffer)
            .with_spl_fifo_empty(!launched)
            .with_scb_empty(self.packet.is_none() && !self.has_work())
            .with_scb_entry_valid(self.has_work())
            .with_scb_desc_index_13_0(self.head & 0x3FFF)
            .with_internal_sdma_halt(self.is_halted())
            .with_halt_in_prog(self.is_halting())
            .with_score_board_drain_in_prog(self.cleanup_at.is_some())
    }
}

impl Sdma {
    pub(super) fn new() -> Self {
        Self { engines: [Engine::new(), Engine::new()], wake: false }
    }

    /// When an engine has something to do next.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.engines.iter().filter_map(Engine::next_deadline).min()
    }

    /// Whether a buffer has become free that an engine may want.
    #[inline]
    pub(super) fn wants_turn(&self) -> bool {
        self.wake
    }

    /// `buffer` holds no packet any more.
    #[inline]
    pub(super) fn buffer_freed(&mut self, buffer: Buffer) {
        for engine in &mut self.engines {
            engine.used[buffer.index() / 64] &= !(1 << (buffer.index() % 64));
            self.wake |= engine.head != engine.tail;
        }
    }

    /// Whether an engine is filling `buffer`: nobody can take it away.
    pub(super) fn fills(&self, buffer: Buffer) -> bool {
        let fills = |engine: &Engine| engine.packet.as_ref().is_some_and(|packet| packet.buffer == buffer);
        self.engines.iter().any(fills)
    }
}

/// Port 1's bit of an interrupt is the one above port 0's.
fn of_port(port: Port, port0: IntBits) -> IntBits {
    IntBits::from_bits_retain(port0.bits() << port.index())
}

impl Chip {
    fn engine(&mut self, port: Port) -> &mut Engine {
        &mut self.sdma.engines[port.index()]
    }

    pub(super) fn sdma_status(&self, port: Port) -> u64 {
        self.sdma.engines[port.index()].status().0
    }

    pub(super) fn sdma_head(&self, port: Port) -> u64 {
        let head = self.sdma.engines[port.index()].head;
        port::SendDmaHead::default().with_send_dma_head(head).with_internal_send_dma_head(head).0
    }

    /// `SendDmaIdleCnt`: what is left of the idle timer, in units of `SendDmaReloadCnt`.
    pub(super) fn sdma_idle_count(&self, port: Port, now: Instant) -> u64 {
        let Some(at) = self.sdma.engines[port.index()].idle_at else { return 0 };
        let unit = self.config.timing.sdma_idle_unit.as_nanos().max(1);
        at.since(now).as_nanos().div_ceil(unit).min(0xFFFF)
    }

    pub(super) fn sdma_used(&self, port: Port, word: u32) -> u64 {
        self.sdma.engines[port.index()].used.get(word as usize).copied().unwrap_or(0)
    }

    pub(super) fn write_sdma_base(&mut self, port: Port, value: u64) {
        self.engine(port).base = value;
    }

    /// `SendDmaLenGen`: bit 2 of the generation loads the lower two and switches the check on (F-402).
    pub(super) fn write_sdma_len_gen(&mut self, port: Port, value: u64) {
        let value = port::SendDmaLenGen(value);
        let engine = self.engine(port);
        engine.length = value.length();
        engine.checks_generation = value.generation() & 4 != 0;
        engine.generation = value.generation() & 3;
    }

    pub(super) fn write_sdma_tail(&mut self, port: Port, value: u64, now: Instant, host: &mut impl Host) {
        let tail = port::SendDmaTail(value).send_dma_tail();
        let engine = self.engine(port);
        if tail != 0 && tail >= engine.length {
            return self.stop_engine(port, PortErrBits::SDMA_TAIL_OUT_OF_BOUND_ERR.into(), now, host);
        }
        engine.tail = tail;
        self.run_engine(port, now, host);
    }

    pub(super) fn write_sdma_head_addr(&mut self, port: Port, value: u64) {
        self.engine(port).head_iova = value & !7;
    }

    pub(super) fn write_sdma_reload(&mut self, port: Port, value: u64) {
        let engine = self.engine(port);
        engine.reload = port::SendDmaReloadCnt(value).send_dma_reload_cnt();
        if engine.reload == 0 {
            engine.idle_at = None;
        }
    }

    pub(super) fn write_sdma_desc_cnt(&mut self, port: Port, value: u64) {
        let engine = self.engine(port);
        engine.progress = port::SendDmaDescCnt(value).send_dma_desc_cnt();
        engine.until_progress = engine.progress;
    }

    /// `SendDmaBufMask`: a buffer in both ports' masks stops both engines (F-403).
    pub(super) fn write_sdma_buf_mask(
        &mut self,
        port: Port,
        word: u32,
        value: u64,
        now: Instant,
        host: &mut impl Host,
    ) {
        if let Some(mask) = self.engine(port).mask.get_mut(word as usize) {
            *mask = value;
        }
        let [one, two] = &self.sdma.engines;
        if one.mask.iter().zip(two.mask).any(|(one, two)| one & two != 0) {
            for port in Port::ALL {
                self.stop_engine(port, ErrBits::SDMA_BUF_MASK_DUPLICATE_ERR.into(), now, host);
            }
            return;
        }
        self.run_engine(port, now, host);
    }

    /// The part of `SendCtrl_p` that concerns the engine.
    pub(super) fn control_engine(
        &mut self,
        port: Port,
        control: port::SendCtrl,
        now: Instant,
        host: &mut impl Host,
    ) {
        let (halt, cleanup) = (self.config.timing.sdma_halt, self.config.timing.sdma_cleanup);
        let engine = self.engine(port);
        engine.enabled = control.sdma_enable();
        engine.interrupts = control.sdma_int_enable();
        engine.halt = control.sdma_halt();
        if !engine.halt {
            engine.answer = Answer::None;
        } else if engine.interrupts && engine.answer == Answer::None {
            engine.answer = Answer::Due(now + halt);
        }
        if control.sdma_cleanup() {
            engine.cleanup_at = Some(now + cleanup);
        }
        self.run_engine(port, now, host);
    }

    /// Lets the engines that wait for a buffer look again.
    pub(super) fn turn_engines(&mut self, now: Instant, host: &mut impl Host) {
        self.sdma.wake = false;
        for port in Port::ALL {
            self.run_engine(port, now, host);
        }
    }

    /// Takes in descriptors for as long as there is one and a buffer to put it in.
    pub(super) fn run_engine(&mut self, port: Port, now: Instant, host: &mut impl Host) {
        while !self.frozen && self.sdma.engines[port.index()].has_work() {
            match self.take_descriptor(port, now, host) {
                Ok(true) => {}
                Ok(false) => return,
                Err(fault) => return self.stop_engine(port, fault, now, host),
            }
        }
    }

    /// An error stops the engine of `port`, where it stands (F-404).
    fn stop_engine(&mut self, port: Port, fault: engine::Fault, now: Instant, host: &mut impl Host) {
        let engine = self.engine(port);
        engine.stopped = true;
        self.account.sdma_faults[port.index()] += 1;
        self.raise_err(fault.device, now, host);
        self.raise_hw_err(fault.hardware, now, host);
        let halted = match self.config.wrong.has(WrongChip::SdmaHaltSilent) {
            true => PortErrBits::empty(),
            false => PortErrBits::SDMA_HALT_ERR,
        };
        self.raise_port_err(port, fault.port | halted, now, host);
    }

    /// Lets halts, clean-ups and idle timers that are due take place.
    pub(super) fn advance_sdma(&mut self, now: Instant, host: &mut impl Host) {
        for port in Port::ALL {
            while let Some(at) = self.engine(port).next_deadline().filter(|&at| at <= now) {
                self.expire(port, at, host);
            }
        }
        if self.sdma.wake {
            self.turn_engines(now, host);
        }
    }

    fn expire(&mut self, port: Port, at: Instant, host: &mut impl Host) {
        let engine = self.engine(port);
        if engine.answer == Answer::Due(at) {
            engine.answer = Answer::Given;
            if !self.config.wrong.has(WrongChip::SdmaHaltSilent) {
                self.raise_port_err(port, PortErrBits::SDMA_HALT_ERR, at, host);
            }
        }
        if self.engine(port).cleanup_at == Some(at) {
            self.clean_up(port, at, host);
        }
        if self.engine(port).idle_at == Some(at) {
            self.engine(port).idle_at = None;
            self.copy_head(port, host);
            self.raise_sdma(port, IntBits::SDMA_IDLE_INT_0, at, host);
        }
    }

    fn clean_up(&mut self, port: Port, now: Instant, host: &mut impl Host) {
        let engine = self.engine(port);
        (engine.head, engine.tail) = (0, 0);
        engine.stopped = false;
        engine.cleanup_at = None;
        engine.idle_at = None;
        engine.until_progress = engine.progress;
        if let Some(packet) = engine.packet.take() {
            self.account.drop(port, Drop::SendDescriptor);
            self.pool.give(packet.body);
            self.release_buffer(packet.buffer, now, host);
        }
        if !self.config.wrong.has(WrongChip::SdmaCleanupSilent) {
            self.raise_sdma(port, IntBits::SDMA_CLEANUP_DONE_0, now, host);
        }
        self.run_engine(port, now, host);
    }

    /// Raises an engine's interrupt, while `SDmaIntEnable` lets it (F-405).
    fn raise_sdma(&mut self, port: Port, port0: IntBits, now: Instant, host: &mut impl Host) {
        if self.engine(port).interrupts {
            self.raise(of_port(port, port0), now, host);
        }
    }

    /// Writes the head to host memory.
    fn copy_head(&mut self, port: Port, host: &mut impl Host) {
        let engine = self.engine(port);
        let (iova, head) = (engine.head_iova, u64::from(engine.head));
        // No address was ever given: there is nothing to write to (F-406).
        if iova == 0 || self.config.wrong.has(WrongChip::SdmaHeadNotWritten) {
            return;
        }
        if host.dma_publish(iova, head).is_err() {
            self.account.dma_refused += 1;
        }
    }

    /// A descriptor is done: its data has been read and its memory may be used again (F-407).
    fn retire(&mut self, port: Port, desc: SdmaDesc, now: Instant, host: &mut impl Host) {
        let unit = self.config.timing.sdma_idle_unit;
        let engine = self.engine(port);
        engine.head += 1;
        if engine.head >= engine.length {
            engine.head = 0;
            engine.generation = (engine.generation + 1) & 3;
        }
        engine.idle_at = (engine.reload != 0).then(|| now + unit.times(u64::from(engine.reload)));
        let reached = engine.until_progress == 1;
        engine.until_progress =
            if reached { engine.progress } else { engine.until_progress.saturating_sub(1) };
        self.counters.bump_port(qhca_regs::map::counter::TX_SDMA_DESC_CNT, port, 1);
        if desc.word0.dma_head() || reached {
            self.copy_head(port, host);
        }
        if desc.word0.intr() && !self.config.wrong.has(WrongChip::SdmaIntrIgnored) {
            self.raise_sdma(port, IntBits::SDMA_INT_0, now, host);
        }
        if reached {
            self.raise_sdma(port, IntBits::SDMA_PROGRESS_INT_0, now, host);
        }
    }
}
