//! A register trace, read from either of its two formats.
//!
//! ```text
//!   whole    17.785569 R8 000000 0000000202010602 Revision        seconds, access, offset, value, name
//!   extract  420 R4 10 1000                                       microseconds since the line before
//!            96 R8 468 80000000 x3                                three times in a row
//!            60 W8 100100 0 +137                                  137 times, the offset 8 higher each time
//!            2727 T S a2+ 00+ S a3+ 02+ 84- P                     a transfer on the two-wire bus; + is acknowledged
//!   both     L port IBCStatusA, I bit vector, D ...               what the recording model did of itself
//! ```

/// What one line asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Read {
        bytes: u8,
        offset: u32,
        value: u64,
    },
    Write {
        offset: u32,
        value: u64,
    },
    Transfer(Vec<String>),
    /// What the recording model's port went to.
    Link {
        port: usize,
        status: u64,
    },
    /// Interrupts and DMA of the recording model.
    Other,
}

/// One access, when it happened, and where it stands in the file.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) at_ns: u64,
    pub(crate) line: usize,
    pub(crate) what: What,
}

/// Every access of a trace in either format, repeated ones one by one. A line that is neither is told by its number.
pub(crate) fn parse(text: &str) -> Result<Vec<Step>, String> {
    let mut steps = Vec::new();
    let mut now_ns = 0;
    for (n, line) in text.lines().enumerate().filter(|(_, line)| !line.starts_with('#')) {
        let bad = || format!("line {}: {line:?} is no access", n + 1);
        let words: Vec<_> = line.split_whitespace().collect();
        let [time, kind, rest @ ..] = &words[..] else { return Err(bad()) };
        now_ns = match time.split_once('.') {
            Some((seconds, micros)) => {
                let (seconds, micros): (u64, u64) =
                    (seconds.parse().map_err(|_| bad())?, micros.parse().map_err(|_| bad())?);
                seconds * 1_000_000_000 + micros * 1000
            }
            None => now_ns + time.parse::<u64>().map_err(|_| bad())? * 1000,
        };
        for what in accesses(kind, rest).ok_or_else(bad)? {
            steps.push(Step { at_ns: now_ns, line: n + 1, what });
        }
    }
    Ok(steps)
}

fn accesses(kind: &str, rest: &[&str]) -> Option<Vec<What>> {
    let hex = |n: usize| u64::from_str_radix(rest.get(n)?.trim_start_matches("0x"), 16).ok();
    let one = match kind {
        "T" => What::Transfer(rest.iter().map(|word| (*word).to_owned()).collect()),
        "L" => What::Link { port: hex(0)? as usize, status: hex(1)? },
        "I" | "D" => What::Other,
        "R4" | "R8" => {
            What::Read { bytes: if kind == "R4" { 4 } else { 8 }, offset: hex(0)? as u32, value: hex(1)? }
        }
        "W8" => What::Write { offset: hex(0)? as u32, value: hex(1)? },
        _ => return None,
    };
    let repeat = rest.get(2).filter(|_| !matches!(one, What::Transfer(_)));
    let count = |word: &str| word.parse::<usize>().ok();
    Some(match (one, repeat.and_then(|word| word.split_at_checked(1))) {
        (What::Write { offset, value }, Some(("+", n))) => {
            (0..count(n)? as u32).map(|n| What::Write { offset: offset + 8 * n, value }).collect()
        }
        (one, Some(("x", n))) => vec![one; count(n)?],
        (one, _) => vec![one],
    })
}
