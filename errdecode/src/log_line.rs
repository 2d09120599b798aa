//! Words in text: a number that a person types, or a log line that is pasted as it stands.
//!
//! A word alone does not say which register it is from; a line usually does. So the line is cut into tokens, and each
//! number is taken for the register whose name stood last before it:
//!
//! ```text
//!   qib0: ErrStatus_1|0x4, IntStatus 20000000 on cpu 3
//!         ^port        ^4  ^interrupt ^0x2000_0000    ^ not right behind a name, no 0x: no word
//! ```
//!
//! Nothing here allocates, and any text is taken: what is no word is passed over.

use crate::{Report, Scope};

/// A 64-bit number by itself: decimal, or hex behind `0x`; no sign.
#[must_use]
pub fn parse_word(text: &str) -> Option<u64> {
    match hex_digits(text) {
        Some(digits) => parse_hex(digits),
        // `parse` would take a sign.
        None if text.starts_with(|c: char| c.is_ascii_digit()) => text.parse().ok(),
        None => None,
    }
}

/// The words of a log line.
///
/// `0x` numbers count anywhere behind a register's name, or anywhere if `scope` is given. A number without `0x` counts
/// only right behind a name, and is hex then, as kernel logs print it.
pub fn words_in(line: &str, scope: Option<Scope>) -> impl Iterator<Item = Report> {
    let mut named = None;
    let mut right_behind = false;
    let tokens = line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|t| !t.is_empty());
    tokens.filter_map(move |token| {
        if let Some(register) = register_scope(token) {
            (named, right_behind) = (Some(register), true);
            return None;
        }
        let digits = hex_digits(token).or(right_behind.then_some(token));
        right_behind = false;
        let word = parse_hex(digits?)?;
        Some(Report::new(scope.or(named)?, word))
    })
}

/// The scope of a register's name as logs and drivers spell it: status, mask and clear registers share their bits.
fn register_scope(token: &str) -> Option<Scope> {
    const NAMES: [(Scope, &[&str]); 6] = [
        (Scope::Device, &["errstatus", "errmask", "errclear", "errs"]),
        (Scope::Hardware, &["hwerrstatus", "hwerrmask", "hwerrclear", "hwerr", "hwerrs"]),
        (Scope::Interrupt, &["intstatus", "intmask", "intclear", "istat"]),
        (Scope::SendHeaderSymptom, &["sendhdrerrsymptom"]),
        (Scope::Sdma, &["senddmastatus", "sdmastatus"]),
        (Scope::Rhf, &["rhf"]),
    ];
    const OF_A_PORT: [&str; 5] = ["errstatus", "errmask", "errclear", "errs", "errors"];
    let stem = match token.as_bytes() {
        // The two bytes are ASCII, so the cut is between characters.
        [.., b'_', b'0' | b'1' | b'p' | b'P'] => Some(&token[..token.len() - 2]),
        _ => None,
    };
    let is = |name: &&str| name.eq_ignore_ascii_case(stem.unwrap_or(token));
    if stem.is_some() && OF_A_PORT.iter().any(is) {
        return Some(Scope::Port);
    }
    NAMES.into_iter().find(|(_, names)| names.iter().any(is)).map(|(scope, _)| scope)
}

fn hex_digits(text: &str) -> Option<&str> {
    text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"))
}

/// Hex digits only: `from_str_radix` would take a sign.
fn parse_hex(digits: &str) -> Option<u64> {
    let all_hex = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    // A planted fault, for the proof that the fuzzer reaches this far: one long number is taken for another.
    #[cfg(canary)]
    let digits = if digits.len() == 10 { "0" } else { digits };
    all_hex.then(|| u64::from_str_radix(digits, 16).ok())?
}
