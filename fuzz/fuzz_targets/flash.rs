//! The board's EEPROM: any 128 bytes are either refused with a reason or describe a board.
//!
//! Input: one byte that may ask for length and checksum to be mended, then the EEPROM's bytes. Without mending, nearly
//! every input ends at the checksum.

#![no_main]

use libfuzzer_sys::fuzz_target;
use qhca_fuzz::Bytes;
use qhca_regs::layout::flash::LEN_BYTES;
use qhca_regs::layout::{Flash, FlashError};

/// The structure's own places for length and checksum.
const LEN_AT: usize = 2;
const CHECKSUM_AT: usize = 1;

fuzz_target!(|input: &[u8]| {
    let mut bytes = Bytes::new(input);
    let mend = bytes.u8() & 1 == 1;
    let mut eeprom: [u8; LEN_BYTES] = bytes.array();
    if mend {
        eeprom[LEN_AT] = LEN_BYTES as u8;
        if let Err(FlashError::Checksum { expected, .. }) = Flash::parse(&eeprom) {
            eeprom[CHECKSUM_AT] = expected;
        }
    }
    match Flash::parse(&eeprom) {
        Ok(flash) => check(&flash),
        Err(error) => {
            assert!(!(mend && matches!(error, FlashError::Checksum { .. })), "the sum it asked for: {error}");
            assert!(!error.to_string().is_empty());
        }
    }
});

fn check(flash: &Flash) {
    assert!(flash.base_guid != 0 && flash.base_guid != u64::MAX);
    for text in [flash.serial.as_str(), flash.made_on.as_str(), flash.comment.as_str()] {
        assert!(text.chars().all(|c| !c.is_control()), "{text:?}");
    }
    for ib_port in 0..=2 {
        let expected = match ib_port {
            0 => None,
            _ => flash.base_guid.checked_add(u64::from(ib_port - 1)),
        };
        assert_eq!(flash.port_guid(ib_port), expected);
    }
    let again = Flash::parse(&flash.build()).expect("what was built is read");
    assert_eq!((again.base_guid, again.guid_count), (flash.base_guid, flash.guid_count));
    assert_eq!(again.comment, flash.comment);
    // Blanks between a short prefix and the number are not kept.
    assert!(again.serial == flash.serial || flash.serial.as_str().contains(' '), "{:?}", flash.serial);
}
