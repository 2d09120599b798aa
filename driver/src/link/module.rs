//! Reading a cable module's memory over the two-wire bus.
//!
//! A module listens while its select pin is low. It is selected once, left alone for a while, read in short pieces,
//! and released again; both sockets share the bus, so one is read at a time.
//!
//! ```text
//!   select ─► 20 ms ─► bytes 0 to 2 ─► flat? no: page select 127 := 0 ─► bytes 128 to 255, 16 a piece ─► release ─► 20 ms
//! ```
//!
//! After a write a module may be busy and leave its address unacknowledged; it is asked until it answers, a bounded
//! number of times. A module that does not answer is tried once more and then left: its link comes up with default tuning.
//!
//! Source: F-123, F-240. The stock driver selects the module anew for each piece; that one selection serves for all
//! of them is a **guess** (F-242).

use core::fmt;

use qhca_regs::{Bar, Duration, Instant};

use super::cable::{CableInfo, MODULE_BYTES, is_flat};
use crate::gpio::{Gpio, SocketPins};
use crate::twsi::{Transfer, TransferPoll, TwsiError};

/// Address of a module, in the 8-bit form.
const MODULE: u8 = 0xA0;
/// How long a module is left alone after it was selected or released.
///
/// TIMEOUT: the stock driver's (F-240).
const SELECT_REST: Duration = Duration::from_millis(20);
/// Bytes of one read: no field of a module is longer.
const PIECE_BYTES: usize = 16;
/// The byte that selects a page.
const PAGE_SELECT: u8 = 127;
/// First byte of the page.
const PAGE_START: usize = 128;
/// How often a module that was written to is asked before it counts as not answering (F-125).
const POLLS_AFTER_WRITE: u32 = 100;
/// Rest between two of these.
///
/// TIMEOUT: ours; together they outlast the 40 ms that a module may take over a write.
const POLL_AFTER: Duration = Duration::from_micros(500);
/// How often a module is tried.
const ATTEMPTS: u32 = 2;
/// Rest before another try.
///
/// TIMEOUT: ours; longer than a module's longest internal turn-around of some 40 ms after a write.
const RETRY_AFTER: Duration = Duration::from_millis(100);

/// Why a module could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CableError {
    /// Bytes that were read before.
    pub bytes_read: usize,
    /// What went wrong on the bus.
    pub cause: TwsiError,
}

impl fmt::Display for CableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the cable module cannot be read (after {} bytes); default tuning is used", self.bytes_read)
    }
}

impl std::error::Error for CableError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.cause)
    }
}

/// What a call of [`ModuleReader::poll`] came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModulePoll {
    /// There is more to do: call again, not before the instant.
    More(Instant),
    /// The module was read, or not.
    Done(Result<CableInfo, CableError>),
}

/// What the reader is doing.
#[derive(Clone, Debug)]
enum Step {
    /// Select the module.
    Select,
    /// Begin the transfer of the next piece.
    Next,
    /// A transfer is under way.
    Transfer(Box<Transfer>),
    /// The page was selected.
    PageSelect(Box<Transfer>),
    /// Released; the result is given when it has had its rest.
    Release,
}

/// One reading of one socket's module.
#[derive(Clone, Debug)]
pub struct ModuleReader {
    pins: SocketPins,
    step: Step,
    bytes: Box<[u8; MODULE_BYTES]>,
    /// First byte that was not read yet.
    at: usize,
    attempts: u32,
    /// How often it may still leave its address unacknowledged, being busy with what was written.
    polls_left: u32,
    not_before: Instant,
    result: Option<Result<CableInfo, CableError>>,
}

impl ModuleReader {
    /// Will read the module in the socket with `pins`.
    pub fn new(pins: SocketPins) -> Self {
        Self {
            pins,
            step: Step::Select,
            bytes: Box::new([0; MODULE_BYTES]),
            at: 0,
            attempts: 0,
            polls_left: 0,
            not_before: Instant::ZERO,
            result: None,
        }
    }

    /// When [`poll`](Self::poll) wants to be called.
    pub fn poll_timeout(&self) -> Instant {
        self.not_before
    }

    /// Gives the bus free for another reader: the module may have been pulled.
    pub fn abandon(&mut self, gpio: &mut Gpio, bar: &impl Bar) {
        gpio.set(self.pins.modsel_n, self.pins.modsel_n, self.pins.modsel_n, bar);
    }

    /// Goes on with the reading for about a byte.
    pub fn poll(&mut self, gpio: &mut Gpio, bar: &impl Bar, now: Instant) -> ModulePoll {
        if now < self.not_before {
            return ModulePoll::More(self.not_before);
        }
        match core::mem::replace(&mut self.step, Step::Next) {
            Step::Select => {
                gpio.set(self.pins.modsel_n, self.pins.modsel_n, 0, bar);
                self.attempts += 1;
                (self.at, self.polls_left) = (0, 0);
                self.rest(now, SELECT_REST)
            }
            Step::Next => self.begin_piece(now),
            Step::Transfer(transfer) => self.transfer(transfer, false, gpio, bar, now),
            Step::PageSelect(transfer) => self.transfer(transfer, true, gpio, bar, now),
            Step::Release => match self.result.take() {
                Some(result) => ModulePoll::Done(result),
                None => {
                    self.step = Step::Select;
                    self.rest(now, RETRY_AFTER)
                }
            },
        }
    }

    fn rest(&mut self, now: Instant, span: Duration) -> ModulePoll {
        self.not_before = now + span;
        ModulePoll::More(self.not_before)
    }

    /// The next piece: the first three bytes, then the page.
    fn begin_piece(&mut self, now: Instant) -> ModulePoll {
        let len = if self.at == 0 { 3 } else { PIECE_BYTES };
        self.step = Step::Transfer(Box::new(Transfer::read(MODULE, self.at as u8, len)));
        self.rest(now, Duration::ZERO)
    }

    fn transfer(
        &mut self,
        mut transfer: Box<Transfer>,
        selects: bool,
        gpio: &mut Gpio,
        bar: &impl Bar,
        now: Instant,
    ) -> ModulePoll {
        match transfer.poll(gpio, bar, now) {
            TransferPoll::More(until) => {
                self.step = if selects { Step::PageSelect(transfer) } else { Step::Transfer(transfer) };
                self.not_before = until;
                ModulePoll::More(until)
            }
            TransferPoll::Done(bytes) => {
                self.polls_left = if selects { POLLS_AFTER_WRITE } else { 0 };
                self.take(&bytes);
                match self.at {
                    MODULE_BYTES.. => self.release(Some(Ok(CableInfo::parse(&self.bytes))), gpio, bar, now),
                    _ => self.rest(now, Duration::ZERO),
                }
            }
            TransferPoll::Failed(TwsiError::NoAck { .. }) if self.polls_left > 0 => {
                self.polls_left -= 1;
                self.rest(now, POLL_AFTER)
            }
            TransferPoll::Failed(cause) => {
                let error = CableError { bytes_read: self.at, cause };
                let is_last = self.attempts >= ATTEMPTS || cause == TwsiError::Gone;
                self.release(is_last.then_some(Err(error)), gpio, bar, now)
            }
        }
    }

    /// Takes what a piece has brought. After the first, a module with several pages is told which to show.
    fn take(&mut self, bytes: &[u8]) {
        let end = (self.at + bytes.len()).min(MODULE_BYTES);
        self.bytes[self.at..end].copy_from_slice(&bytes[..end - self.at]);
        if self.at == 0 && end > 0 {
            self.at = PAGE_START;
            if !is_flat(self.bytes[2]) {
                self.step = Step::PageSelect(Box::new(Transfer::write(MODULE, PAGE_SELECT, &[0])));
            }
        } else {
            self.at = end;
        }
    }

    fn release(
        &mut self,
        result: Option<Result<CableInfo, CableError>>,
        gpio: &mut Gpio,
        bar: &impl Bar,
        now: Instant,
    ) -> ModulePoll {
        self.abandon(gpio, bar);
        self.result = result;
        self.step = Step::Release;
        self.rest(now, SELECT_REST)
    }
}

#[cfg(test)]
#[path = "module_tests.rs"]
mod tests;
