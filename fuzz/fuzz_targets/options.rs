//! Option lists and modprobe.d files: never a panic, and what is accepted is in range and reads back.
//!
//! Input: one byte that says list or file, then its text.

#![no_main]

use libfuzzer_sys::fuzz_target;
use qhca_driver::options::{Options, Parsed, modprobe, table};
use qhca_fuzz::Bytes;

fuzz_target!(|input: &[u8]| {
    let mut bytes = Bytes::new(input);
    let is_list = bytes.u8() % 2 == 0;
    let parsed = match is_list {
        true => Options::parse(&String::from_utf8_lossy(bytes.rest())),
        false => modprobe::parse_file(bytes.rest()),
    };
    match parsed {
        Ok(parsed) => check(&parsed),
        // An error is one message that a terminal can show.
        Err(error) => {
            let text = error.to_string();
            assert!(!text.is_empty() && !text.contains(|c: char| c.is_control() && c != '\n'), "{text:?}");
        }
    }
});

fn check(parsed: &Parsed) {
    let options = &parsed.options;
    for info in table::all() {
        if let Some(number) = options.number(info.name) {
            // A default may stand outside the range that can be typed.
            let is_default = Options::default().number(info.name) == Some(number);
            assert!(is_default || info.range.holds(number), "{} = {number}", info.name);
        }
    }
    assert!(options.hdr_dwords() + 7 <= options.hdr_entry_dwords());
    let list = options.to_string();
    let again = Options::parse(&list).unwrap_or_else(|error| panic!("{list:?}: {error}"));
    assert_eq!(&again.options, options, "{list:?}");
    for warning in &parsed.warnings {
        assert!(!warning.to_string().is_empty());
    }
}
