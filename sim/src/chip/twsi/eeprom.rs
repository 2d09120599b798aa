//! The board's EEPROM: 256 bytes at 0xA2, what the maker wrote into the first 128 of them, and a write enable.

use super::super::config::Config;
use super::super::wrong::WrongChip;
use super::slave::Memory;
use qhca_regs::layout::Flash;
use qhca_regs::layout::flash::{LEN_BYTES, Text};

pub(super) const ADDRESS: u8 = 0xA2;
const LAYOUT_VERSION: u8 = 2;

/// See the chapter's head.
pub(super) struct Eeprom {
    bytes: [u8; 256],
    /// Pin 14 low; what is written while it is high is acknowledged and lost (F-352).
    pub(super) writable: bool,
}

impl Eeprom {
    pub(super) fn new(config: &Config) -> Self {
        let mut bytes = [0xFF; 256];
        let mut image = flash_image(config);
        if config.wrong.has(WrongChip::EepromChecksumBad) {
            image[1] ^= 1;
        }
        bytes[..LEN_BYTES].copy_from_slice(&image);
        Self { bytes, writable: false }
    }
}

impl Memory for Eeprom {
    fn read(&mut self, at: u8) -> u8 {
        self.bytes[usize::from(at)]
    }

    fn keep(&mut self, written: &[(u8, u8)]) {
        if self.writable {
            written.iter().for_each(|&(at, byte)| self.bytes[usize::from(at)] = byte);
        }
    }
}

/// What the maker of the board wrote into the EEPROM.
fn flash_image(config: &Config) -> [u8; LEN_BYTES] {
    let guid_count = qhca_regs::Port::ALL.into_iter().filter(|&port| config.board.speeds(port) != 0).count();
    let text = |words: &'static str| words.bytes();
    Flash {
        version: LAYOUT_VERSION,
        base_guid: config.guid,
        guid_count: guid_count as u8,
        serial: Text::new(config.serial.bytes()),
        made_on: Text::new(text("20100104")),
        tested_on: Text::new(text("20100105")),
        error_counts: [0; 4],
        hours_on: 0,
        comment: Text::new(text("Tested successfully")),
        notes: Default::default(),
    }
    .build()
}
