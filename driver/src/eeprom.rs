//! Reading the board's EEPROM until it can be believed, or a few times.
//!
//! The EEPROM holds the board's GUID and serial number (`qhca_regs::layout::flash`). A board that has just been
//! powered may answer late, or with zeros at first, so a reading that makes no sense is repeated a bounded number of
//! times. What remains wrong is reported; the board is brought up all the same, with GUID 0, and flagged.
//!
//! Source: F-126.

use crate::gpio::{EEPROM_WRITE_N, Gpio};
use crate::twsi::{Transfer, TransferPoll, TwsiError};
use core::fmt;
use qhca_regs::layout::flash::{Flash, FlashError, LEN_BYTES};
use qhca_regs::{Bar, Duration, Instant};

/// The EEPROM's address on the bus, 8-bit form (F-124).
pub const EEPROM_DEVICE: u8 = 0xA2;
/// How often the EEPROM is read before it is given up.
pub const ATTEMPTS: u32 = 4;
/// Pause between two attempts.
///
/// TIMEOUT: ours; a serial EEPROM is ready some milliseconds after power, and a write cycle takes 10 ms at most.
pub const RETRY_PAUSE: Duration = Duration::from_millis(20);

/// Why the EEPROM was given up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EepromError {
    /// How often it was read.
    pub attempts: u32,
    /// What was wrong the last time.
    pub cause: EepromCause,
}

/// What was wrong with one reading.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EepromCause {
    /// The bytes did not come.
    Bus(TwsiError),
    /// The bytes make no sense.
    Contents(FlashError),
    /// The caller had no more time.
    GivenUp,
}

impl fmt::Display for EepromError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.cause {
            EepromCause::Bus(error) => write!(f, "{error}")?,
            EepromCause::Contents(error) => write!(f, "{error}")?,
            EepromCause::GivenUp => f.write_str("the EEPROM was not read in time")?,
        }
        write!(f, " (attempt {} of {ATTEMPTS})", self.attempts)
    }
}

impl EepromError {
    /// Whether the whole device no longer answers.
    pub fn is_gone(&self) -> bool {
        self.cause == EepromCause::Bus(TwsiError::Gone)
    }
}

impl std::error::Error for EepromError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.cause {
            EepromCause::Bus(error) => Some(error),
            EepromCause::Contents(error) => Some(error),
            EepromCause::GivenUp => None,
        }
    }
}

/// What a call of [`EepromReader::poll`] came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EepromPoll {
    /// Call again, not before the instant.
    More(Instant),
    /// The identity, or why there is none.
    Done(Result<Box<Flash>, EepromError>),
}

/// Reads and judges the EEPROM.
#[derive(Clone, Debug)]
pub struct EepromReader {
    attempts: u32,
    transfer: Transfer,
}

impl Default for EepromReader {
    fn default() -> Self {
        Self::new()
    }
}

impl EepromReader {
    /// Will read from the first byte on.
    pub fn new() -> Self {
        Self { attempts: 1, transfer: Self::transfer() }
    }

    fn transfer() -> Transfer {
        Transfer::read(EEPROM_DEVICE, 0, LEN_BYTES)
    }

    /// Ends the reading: there is no more time.
    pub fn give_up(&self) -> EepromError {
        EepromError { attempts: self.attempts, cause: EepromCause::GivenUp }
    }

    /// Goes on reading for about a byte.
    pub fn poll(&mut self, gpio: &mut Gpio, bar: &impl Bar, now: Instant) -> EepromPoll {
        if self.attempts == 1 {
            // High forbids writes, whatever noise the bus carries.
            gpio.set(EEPROM_WRITE_N, EEPROM_WRITE_N, EEPROM_WRITE_N, bar);
        }
        let reading = match self.transfer.poll(gpio, bar, now) {
            TransferPoll::More(until) => return EepromPoll::More(until),
            TransferPoll::Done(bytes) => judge(&bytes),
            TransferPoll::Failed(error) => Err(EepromCause::Bus(error)),
        };
        match reading {
            Ok(flash) => EepromPoll::Done(Ok(flash)),
            Err(cause) if self.attempts >= ATTEMPTS || cause == EepromCause::Bus(TwsiError::Gone) => {
                EepromPoll::Done(Err(EepromError { attempts: self.attempts, cause }))
            }
            Err(_) => {
                self.attempts += 1;
                self.transfer = Self::transfer();
                EepromPoll::More(now + RETRY_PAUSE)
            }
        }
    }
}

fn judge(bytes: &[u8]) -> Result<Box<Flash>, EepromCause> {
    let length = FlashError::Length { found: bytes.len().min(255) as u8 };
    let bytes: &[u8; LEN_BYTES] = bytes.try_into().map_err(|_| EepromCause::Contents(length))?;
    Flash::parse(bytes).map(Box::new).map_err(EepromCause::Contents)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::scriptbar::ScriptBar;
    use crate::twsi::tests::BusMemory;
    use qhca_regs::layout::flash::{FlashNotes, Text};

    /// The bytes of a board that left the factory tested.
    pub(crate) fn good_flash() -> [u8; LEN_BYTES] {
        Flash {
            version: 2,
            base_guid: 0x0011_7500_005A_0001,
            guid_count: 2,
            serial: Text::new(*b"AIB0925A12345"),
            made_on: Text::new(*b"20091201"),
            tested_on: Text::new(*b"20091202"),
            error_counts: [0; 4],
            hours_on: 17,
            comment: Text::new(*b"Tested successfully"),
            notes: FlashNotes::empty(),
        }
        .build()
    }

    fn read(memory: BusMemory) -> (Result<Box<Flash>, EepromError>, Instant, usize) {
        let bar = ScriptBar::reset();
        let memory = memory.attach(&bar);
        let (mut gpio, mut now, mut reader) = (Gpio::new(), Instant::ZERO, EepromReader::new());
        loop {
            match reader.poll(&mut gpio, &bar, now) {
                EepromPoll::More(until) => now = now.max(until),
                EepromPoll::Done(result) => return (result, now, memory.borrow().reads),
            }
        }
    }

    #[test]
    fn good_eeprom_gives_guid_and_serial_at_once() {
        let (flash, now, reads) = read(BusMemory { contents: good_flash().to_vec(), ..BusMemory::default() });
        let flash = flash.expect("a good board");
        assert_eq!(flash.base_guid, 0x0011_7500_005A_0001);
        assert_eq!(flash.serial.as_str(), "AIB0925A12345");
        assert_eq!(reads, 1);
        assert!(now < Instant::ZERO + RETRY_PAUSE);
    }

    /// B07: zeros for the first reads, then a good GUID.
    #[test]
    fn zeros_at_first_are_read_again_until_the_guid_is_there() {
        let memory = BusMemory { contents: good_flash().to_vec(), zeros_for: 2, ..BusMemory::default() };
        let (flash, now, reads) = read(memory);
        assert_eq!(flash.map(|flash| flash.base_guid), Ok(0x0011_7500_005A_0001));
        assert_eq!(reads, 3);
        assert!(now >= Instant::ZERO + RETRY_PAUSE.doubled());
    }

    /// B07: all ones are refused, and the refusal comes after a bounded time.
    #[test]
    fn all_ones_are_refused_after_the_last_attempt() {
        let (flash, now, reads) = read(BusMemory { contents: vec![0xFF; 128], ..BusMemory::default() });
        let error = flash.expect_err("a blank board");
        assert_eq!((error.attempts, reads), (ATTEMPTS, ATTEMPTS as usize));
        assert!(matches!(error.cause, EepromCause::Contents(FlashError::Length { found: 255 })));
        assert!(now < Instant::ZERO + RETRY_PAUSE.times(u64::from(ATTEMPTS) + 1));
    }

    /// B07: a GUID of all ones under a fitting checksum is no GUID either.
    #[test]
    fn guid_of_all_ones_with_a_good_checksum_is_refused() {
        let mut bytes = good_flash();
        let change = bytes[3..11].iter().fold(0u8, |sum, byte| sum.wrapping_add(0xFF - byte));
        bytes[3..11].fill(0xFF);
        bytes[1] = bytes[1].wrapping_sub(change);
        let (flash, ..) = read(BusMemory { contents: bytes.to_vec(), ..BusMemory::default() });
        let error = flash.expect_err("no GUID");
        assert_eq!(error.cause, EepromCause::Contents(FlashError::Guid { found: u64::MAX }));
    }

    #[test]
    fn device_that_answers_late_is_asked_again() {
        let memory = BusMemory { contents: good_flash().to_vec(), deaf_for: 3, ..BusMemory::default() };
        assert!(read(memory).0.is_ok());
        let memory = BusMemory { contents: good_flash().to_vec(), deaf_for: 4, ..BusMemory::default() };
        let error = read(memory).0.expect_err("too late");
        assert!(matches!(error.cause, EepromCause::Bus(TwsiError::NoAck { device: 0xA2, .. })));
    }
}
