//! Which registers a person means: by name, by a row's name, by offset.

use crate::fail::Failure;
use qhca_regs::info::{Placed, RegInfo, Shape};
use qhca_regs::{BAR_LEN_BYTES, map};

/// The registers chosen.
#[derive(Debug)]
pub(crate) enum Choice {
    /// Every register of the map, tables by their first word.
    All,
    /// These.
    These(Vec<(Placed, u32)>),
}

impl Choice {
    /// The chosen registers, each with the word that is meant.
    pub(crate) fn registers(self) -> Vec<(Placed, u32)> {
        match self {
            Self::All => map::all().map(|placed| (placed, 0)).collect(),
            Self::These(these) => these,
        }
    }
}

/// Bytes from one word of a register's table to the next.
pub(crate) fn word_stride(info: &RegInfo) -> u32 {
    match info.shape {
        Shape::Area { stride, .. } | Shape::CtxtArea { stride, .. } => stride,
        _ => 8,
    }
}

/// Understands `IntStatus`, `RcvHdrAddr` (all copies), `RcvEgrArray[17]`, `0x70` and `112`.
pub(crate) fn parse(text: &str) -> Result<Choice, Failure> {
    match parse_number(text) {
        Some(offset) => by_offset(text, offset?),
        None => by_name(text),
    }
}

/// A number if `text` looks like one: decimal, or hex behind `0x`.
fn parse_number(text: &str) -> Option<Result<u64, Failure>> {
    let hex = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    let parsed = match hex {
        Some(digits) => u64::from_str_radix(digits, 16),
        None if text.starts_with(|c: char| c.is_ascii_digit()) => text.parse(),
        None => return None,
    };
    Some(parsed.map_err(|_| bad_offset(text, "is no offset")))
}

fn bad_offset(text: &str, why: &str) -> Failure {
    Failure::bad_input(format!("{text}: {why}")).remedy(format!(
        "valid: 0x0 to {:#x} in steps of 8, decimal or hex behind 0x; `qhca regs --map` lists them",
        BAR_LEN_BYTES - 8
    ))
}

/// The register at a byte offset. A register is read whole or not at all: this chip's neighbours crash on less (B159).
fn by_offset(text: &str, offset: u64) -> Result<Choice, Failure> {
    if offset >= u64::from(BAR_LEN_BYTES) {
        return Err(bad_offset(text, "lies behind the end of the device's window"));
    }
    let offset = offset as u32;
    if !offset.is_multiple_of(8) {
        let below = offset & !7;
        return Err(bad_offset(text, "is not aligned: registers are 8 bytes wide and are read whole")
            .remedy(format!("the register that holds this byte: `qhca regs {below:#x}`")));
    }
    let Some(placed) = map::at(offset) else {
        return Err(bad_offset(text, "has no register in the map").remedy(neighbours(offset)));
    };
    let word = (offset - placed.offset) / word_stride(placed.info);
    Ok(Choice::These(vec![(placed, word)]))
}

/// The registers next to an offset that has none.
fn neighbours(offset: u32) -> String {
    let show = |placed: Placed| format!("{placed} at {:#x}", placed.offset);
    let below = map::all().filter(|p| p.offset < offset).max_by_key(|p| p.offset).map(show);
    let above = map::all().filter(|p| p.offset > offset).min_by_key(|p| p.offset).map(show);
    let near: Vec<String> = [below, above].into_iter().flatten().collect();
    format!("nearest: {}", near.join(", "))
}

/// Registers by name in any case: one copy's full name, or a row's name for all copies.
fn by_name(text: &str) -> Result<Choice, Failure> {
    let (name, index) = split_index(text)?;
    let exact = map::all().filter(|placed| placed.to_string().eq_ignore_ascii_case(name));
    let mut found: Vec<Placed> = exact.collect();
    if found.is_empty() {
        let rows = map::rows().filter(|row| stem(row).eq_ignore_ascii_case(name));
        found = rows.flat_map(RegInfo::placed).collect();
    }
    if found.is_empty() {
        return Err(unknown_name(name));
    }
    let mut chosen = Vec::new();
    for placed in found {
        let words = placed.info.words();
        match index {
            Some(word) if word >= words => {
                return Err(Failure::bad_input(format!("{text}: {placed} has no word {word}"))
                    .remedy(format!("valid: {placed}[0] to {placed}[{}]", words - 1)));
            }
            Some(word) => chosen.push((placed, word)),
            None => chosen.extend((0..words).map(|word| (placed, word))),
        }
    }
    Ok(Choice::These(chosen))
}

/// Splits `Name[17]`.
fn split_index(text: &str) -> Result<(&str, Option<u32>), Failure> {
    let Some((name, rest)) = text.split_once('[') else {
        return Ok((text, None));
    };
    match rest.strip_suffix(']').and_then(|index| index.parse().ok()) {
        Some(index) => Ok((name, Some(index))),
        None => Err(Failure::bad_input(format!("{text}: the index is no number"))
            .remedy("a word of a table is written as in RcvEgrArray[17]")),
    }
}

/// A row's name without its numbers: `RcvHdrAddr{i}` is `RcvHdrAddr`, `ErrMask_{p}` is `ErrMask_p`.
fn stem(row: &RegInfo) -> String {
    row.template.replace("_{i}", "").replace("{i}", "").replace("{c}", "").replace("{p}", "p")
}

/// The name of the row of the map that the register called `name` is in; `name` itself if there is none.
pub(crate) fn row_name(name: &str) -> String {
    let placed = map::all().find(|placed| placed.to_string() == name);
    placed.map_or_else(|| name.to_owned(), |placed| stem(placed.info))
}

fn unknown_name(name: &str) -> Failure {
    let wanted = name.to_ascii_lowercase();
    let mut near: Vec<String> = map::rows()
        .map(stem)
        .filter(|stem| wanted.len() >= 3 && stem.to_ascii_lowercase().contains(&wanted))
        .collect();
    if near.is_empty() {
        let mut all: Vec<(usize, String)> =
            map::rows().map(stem).map(|stem| (distance(&stem.to_ascii_lowercase(), &wanted), stem)).collect();
        all.sort();
        near = all.into_iter().filter(|(d, _)| *d <= 3).map(|(_, stem)| stem).collect();
    }
    near.truncate(8);
    let remedy = match near.is_empty() {
        true => "`qhca regs --map` lists all names".to_owned(),
        false => format!("near: {}; `qhca regs --map` lists all names", near.join(", ")),
    };
    Failure::bad_input(format!("{name:?} is no register of this chip")).remedy(remedy)
}

/// Letters to insert, delete or change to make one word of the other.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, cb) in b.iter().enumerate() {
            let change = diagonal + usize::from(ca != *cb);
            diagonal = row[j + 1];
            row[j + 1] = change.min(row[j] + 1).min(row[j + 1] + 1);
        }
    }
    row[b.len()]
}
