//! What people paste into `qhca decode`: words and log lines.
//!
//! Input: one byte for the scope, then text. Every word found stands in the text as hex digits, and can be explained;
//! a number alone is read as Rust reads it.

#![no_main]

use libfuzzer_sys::fuzz_target;
use qhca_errdecode::Scope;
use qhca_errdecode::log_line::{parse_word, words_in};
use qhca_fuzz::Bytes;

fuzz_target!(|input: &[u8]| {
    let mut bytes = Bytes::new(input);
    let given = Scope::ALL.get(usize::from(bytes.u8()) % (Scope::ALL.len() + 1)).copied();
    let text = String::from_utf8_lossy(bytes.rest());
    check_word(&text);
    for line in text.lines() {
        check_line(line, given);
    }
});

fn check_word(text: &str) {
    let expected = match text.get(..2) {
        Some("0x" | "0X") => u64::from_str_radix(&text[2..], 16).ok().filter(|_| !text[2..].starts_with('+')),
        _ => text.parse().ok().filter(|_| !text.starts_with('+')),
    };
    assert_eq!(parse_word(text), expected, "{text:?}");
}

fn check_line(line: &str, given: Option<Scope>) {
    let lower = line.to_ascii_lowercase();
    for report in words_in(line, given) {
        let (scope, word) = (report.scope(), report.word());
        assert!(given.is_none_or(|given| given == scope), "{line:?}");
        assert!(lower.contains(&format!("{word:x}")), "{word:#x} is not in {line:?}");
        assert!(!report.to_string().is_empty());
    }
}
