//! The EEPROM read through two pins from a device that fails as it likes: the reading ends in bounded steps, with a
//! board or a reason, and a card that is gone is left alone.
//!
//! Input: one byte that may ask for length and checksum to be mended, 128 bytes of EEPROM, then the faults of the bus.

#![no_main]

use libfuzzer_sys::fuzz_target;
use qhca_driver::eeprom::{ATTEMPTS, EepromCause, EepromPoll, EepromReader, RETRY_PAUSE};
use qhca_driver::gpio::Gpio;
use qhca_driver::twsi::TwsiError;
use qhca_fuzz::Bytes;
use qhca_fuzz::wire::Wire;
use qhca_regs::layout::flash::LEN_BYTES;
use qhca_regs::layout::{Flash, FlashError};
use qhca_regs::{Duration, Instant};

/// Polls of one attempt: 132 bytes of some forty edges, and a clock that is held for a millisecond before each edge.
const POLLS_MAX: usize = 400_000;
/// Longest attempt: the clock is held to its limit at every edge that raises it.
const ATTEMPT_MAX: Duration = Duration::from_secs(2);

fuzz_target!(|input: &[u8]| {
    let mut bytes = Bytes::new(input);
    let mend = bytes.u8() & 1 == 1;
    let mut eeprom: [u8; LEN_BYTES] = bytes.array();
    if mend {
        eeprom[2] = LEN_BYTES as u8;
        if let Err(FlashError::Checksum { expected, .. }) = Flash::parse(&eeprom) {
            eeprom[1] = expected;
        }
    }
    let mut contents = [0xFF; 256];
    contents[..LEN_BYTES].copy_from_slice(&eeprom);
    let wire = Wire::new(contents, bytes);
    let (mut gpio, mut reader, mut now) = (Gpio::new(), EepromReader::new(), Instant::ZERO);
    for _ in 0..POLLS_MAX {
        match reader.poll(&mut gpio, &wire, now) {
            EepromPoll::More(until) => now = now.max(until),
            EepromPoll::Done(result) => return check(&wire, &eeprom, result, now),
        }
    }
    panic!("the reading does not end");
});

fn check(
    wire: &Wire<'_>,
    eeprom: &[u8; LEN_BYTES],
    result: Result<Box<Flash>, qhca_driver::eeprom::EepromError>,
    now: Instant,
) {
    let longest = (ATTEMPT_MAX + RETRY_PAUSE).times(u64::from(ATTEMPTS));
    assert!(now <= Instant::ZERO + longest, "it took {now:?}");
    assert!(wire.after_gone() <= 1, "{} accesses to a card that is gone", wire.after_gone() - 1);
    match result {
        Ok(flash) => {
            assert!(!wire.refused(), "read from a device that did not acknowledge");
            // A line held low makes zeros of what is left, and a sum of eight bits cannot always tell.
            if !wire.data_was_held() {
                assert_eq!(Flash::parse(eeprom).as_ref(), Ok(&*flash));
            }
        }
        Err(error) => {
            assert!((1..=ATTEMPTS).contains(&error.attempts) && !error.to_string().is_empty());
            let no_ack = matches!(error.cause, EepromCause::Bus(TwsiError::NoAck { .. }));
            let held = matches!(error.cause, EepromCause::Bus(_)) && !no_ack;
            assert!(no_ack == wire.refused() || held, "{error}, and the device {}", wire.refused());
        }
    }
}
