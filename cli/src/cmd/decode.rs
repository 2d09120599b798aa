//! `qhca decode`: error words explained, from the command line or out of a log.
//!
//! A word alone is a number. A log line is searched for register names and the numbers behind them, so that a line can
//! be pasted as it stands; the name says which word it is.

use crate::fail::{Failure, Status};
use crate::ui::Ui;
use qhca_errdecode::log_line::{parse_word, words_in};
use qhca_errdecode::{Report, Scope};
use std::fmt::Write;
use std::io::{self, Read};

/// Longest input taken from stdin, bytes: a day's log, not a disk.
const STDIN_LIMIT_BYTES: u64 = 64 << 20;

/// Arguments of `qhca decode`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Which word it is: device, hardware, port, send-header-symptom, interrupt, rhf, sdma, or the register's name.
    /// Without it, the register named in the line; `device` for a number alone
    #[arg(long)]
    scope: Option<String>,
    /// A number (`0x1000`, `4096`), a log line in quotes, or `-` for lines from stdin
    #[arg(value_name = "WORD", required = true)]
    words: Vec<String>,
}

/// Runs `qhca decode`.
pub(crate) fn run(args: &Args, ui: &Ui) -> Result<Status, Failure> {
    let scope = match &args.scope {
        Some(text) => {
            Some(text.parse::<Scope>().map_err(|e| Failure::bad_input(format!("--scope {text}: {e}")))?)
        }
        None => None,
    };
    let mut reports = Vec::new();
    for word in &args.words {
        match word.as_str() {
            "-" => reports.extend(from_stdin(scope)?),
            _ => reports.extend(from_argument(word, scope)?),
        }
    }
    ui.text(&if ui.json { to_json(&reports) } else { to_text(&reports) })?;
    Ok(Status::Done)
}

/// One report after the other, a blank line between two.
fn to_text(reports: &[Report]) -> String {
    reports.iter().map(Report::to_string).collect::<Vec<_>>().join("\n")
}

/// One JSON object a line.
fn to_json(reports: &[Report]) -> String {
    let mut text = String::new();
    for report in reports {
        // A String takes whatever is written to it.
        let _ = report.write_json(&mut text);
        let _ = text.write_char('\n');
    }
    text
}

/// A number, or a line with at least one word in it.
fn from_argument(text: &str, scope: Option<Scope>) -> Result<Vec<Report>, Failure> {
    let trimmed = text.trim();
    if trimmed.starts_with(|c: char| c.is_ascii_digit()) && !trimmed.contains(char::is_whitespace) {
        let word = parse_word(trimmed).ok_or_else(|| bad_word(trimmed, "is no 64-bit number"))?;
        return Ok(vec![Report::new(scope.unwrap_or(Scope::Device), word)]);
    }
    let found = from_line(trimmed, scope);
    match found.is_empty() {
        true => Err(bad_word(trimmed, "holds no number behind a register's name")),
        false => Ok(found),
    }
}

fn bad_word(text: &str, why: &str) -> Failure {
    let shown: String = text.chars().take(80).collect();
    Failure::bad_input(format!("{shown:?} {why}")).remedy(
        "valid: 0x0 to 0xffffffffffffffff, the same in decimal, or a log line such as \"ErrStatus_1 = 0x4\"\n\
         in a line without a register's name, --scope says which word a 0x number is",
    )
}

/// All words in the lines of stdin; lines without one are passed over.
fn from_stdin(scope: Option<Scope>) -> Result<Vec<Report>, Failure> {
    let mut bytes = Vec::new();
    io::stdin().lock().take(STDIN_LIMIT_BYTES).read_to_end(&mut bytes).map_err(|e| {
        Failure::new(Status::Missing, format!("cannot read stdin: {e}"))
            .remedy("pass the line as an argument")
    })?;
    let text = String::from_utf8_lossy(&bytes);
    let found: Vec<Report> = text
        .lines()
        .flat_map(|line| match parse_word(line.trim()) {
            Some(word) => vec![Report::new(scope.unwrap_or(Scope::Device), word)],
            None => from_line(line, scope),
        })
        .collect();
    match found.is_empty() {
        true => Err(bad_word("-", "(stdin) holds no number behind a register's name")),
        false => Ok(found),
    }
}

/// The words of a log line.
fn from_line(line: &str, scope: Option<Scope>) -> Vec<Report> {
    words_in(line, scope).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<(Scope, u64)> {
        from_line(line, None).iter().map(|r| (r.scope(), r.word())).collect()
    }

    #[test]
    fn register_in_a_line_gives_the_scope_of_the_number_behind_it() {
        assert_eq!(words("qib0: ErrStatus = 0x1000"), [(Scope::Device, 0x1000)]);
        assert_eq!(words("port 1: ErrStatus_1|0x4, ErrMask_1|0x8"), [(Scope::Port, 4), (Scope::Port, 8)]);
        assert_eq!(words("Hardware error: hwerr=0x200 (cleared)"), [(Scope::Hardware, 0x200)]);
    }

    #[test]
    fn number_without_0x_counts_right_behind_a_name_only_and_is_hex() {
        assert_eq!(words("IntStatus 20000000 on cpu 3"), [(Scope::Interrupt, 0x2000_0000)]);
        assert_eq!(words("ErrStatus of card 12 is bad"), []);
    }

    #[test]
    fn pci_address_is_no_word() {
        assert_eq!(words("ib_qib 0000:04:00.0: qib0: RHF 0x80000000"), [(Scope::Rhf, 0x8000_0000)]);
    }

    #[test]
    fn given_scope_takes_every_0x_number_of_a_line() {
        let found = from_line("unexpected 0x4 at 12 and 0x8", Some(Scope::Port));
        assert_eq!(found, [Report::new(Scope::Port, 4), Report::new(Scope::Port, 8)]);
    }

    #[test]
    fn signs_and_overlong_numbers_are_no_words() {
        for text in ["0x", "0x+5", "+5", "-5", "18446744073709551616", "0x10000000000000000", "1e3", ""] {
            assert_eq!(parse_word(text), None, "{text:?}");
        }
        assert_eq!(parse_word("18446744073709551615"), Some(u64::MAX));
    }
}
