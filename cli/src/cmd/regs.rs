//! `qhca regs`: registers by name or offset, with their fields decoded.
//!
//! Only whole, aligned registers are read, each once. A register that may not be read (write-only) and one whose
//! reading nobody has vouched for (known from iPXE's header alone) is listed without a value; the latter is read when
//! it is asked for by name or offset.

use crate::cmd::regs_select::{self, Choice};
use crate::fail::{Failure, Status};
use crate::ui::Ui;
use qhca_regs::info::{FieldInfo, Placed};
use serde::Serialize;
use std::fmt::Write;

/// Arguments of `qhca regs`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A register's name (`IntStatus`, `ErrMask_1`, `RcvHdrAddr3`, `RcvHdrAddr` for all of them, `RcvEgrArray[17]`) or
    /// its offset (`0x70`); without one, the registers that do not hold their reset value
    #[arg(value_name = "NAME|OFFSET", group = "which")]
    select: Option<String>,
    /// Every register of the map
    #[arg(long, group = "which")]
    all: bool,
    /// The map itself, with reset values; opens no device
    #[arg(long)]
    map: bool,
}

/// One register and what it held.
pub(crate) struct Reading {
    /// The register.
    pub(crate) placed: Placed,
    /// Which 64-bit word of it; above 0 only in tables.
    pub(crate) word: u32,
    /// What it held, if it was read.
    pub(crate) value: Option<u64>,
}

impl Reading {
    fn offset(&self) -> u32 {
        self.placed.offset + self.word * regs_select::word_stride(self.placed.info)
    }

    fn name(&self) -> String {
        match self.placed.info.words() {
            1 => self.placed.to_string(),
            _ => format!("{}[{}]", self.placed, self.word),
        }
    }

    /// The value to decode: what was read, or the reset value when the map alone is asked for.
    fn shown(&self) -> u64 {
        self.value.unwrap_or_else(|| self.placed.reset())
    }
}

/// Runs `qhca regs`.
pub(crate) fn run(args: &Args, ui: &Ui) -> Result<Status, Failure> {
    let choice = match &args.select {
        Some(text) => regs_select::parse(text)?,
        None => Choice::All,
    };
    let readings: Vec<Reading> =
        choice.registers().into_iter().map(|(placed, word)| Reading { placed, word, value: None }).collect();
    if ui.json {
        ui.json(&readings.iter().map(to_json).collect::<Vec<_>>())?;
    } else {
        ui.text(&to_text(&readings, ui.verbosity() > 0))?;
    }
    Ok(Status::Done)
}

/// Text: one register in full, several as a list with the fields that are not zero.
fn to_text(readings: &[Reading], full: bool) -> String {
    let mut text = String::new();
    for reading in readings {
        let info = reading.placed.info;
        let value = match reading.value {
            Some(value) => format!("{value:#018x}"),
            None => "-".to_owned(),
        };
        let (offset, access) = (reading.offset(), info.access.name());
        let _ = write!(text, "{offset:#08x}  {:<28} {access:<3}  {value:<18}", reading.name());
        if full || readings.len() == 1 {
            let _ = writeln!(text, "  reset {}", reset_text(reading));
            write_fields(&mut text, reading);
        } else {
            let _ = writeln!(text, "  {}", fields_line(reading));
            text.truncate(text.trim_end().len());
            text.push('\n');
        }
    }
    text
}

/// The reset value in hex, `x` for each digit that no source gives.
fn reset_text(reading: &Reading) -> String {
    let (reset, unknown) = (reading.placed.reset(), reading.placed.info.reset_unknown);
    let digit = |n: u32| match (unknown >> (4 * n)) & 0xf {
        0 => char::from_digit((reset >> (4 * n) & 0xf) as u32, 16).unwrap_or('?'),
        _ => 'x',
    };
    format!("0x{}", (0..16).rev().map(digit).collect::<String>())
}

/// Every field on a line of its own.
fn write_fields(text: &mut String, reading: &Reading) {
    for field in reading.placed.info.fields {
        let bits = match (field.msb, field.lsb) {
            (msb, lsb) if msb == lsb => format!("[{lsb}]"),
            (msb, lsb) => format!("[{msb}:{lsb}]"),
        };
        let value = field.extract(reading.shown());
        let _ = writeln!(text, "            {:<28} {bits:<8} {value:#x}", field.name);
    }
    let unnamed = unnamed_bits(reading);
    if unnamed != 0 {
        let _ = writeln!(text, "            {:<28} {:<8} {unnamed:#x}", "(bits without a name)", "");
    }
}

/// The fields that are not zero, one bit by its name alone.
fn fields_line(reading: &Reading) -> String {
    let value = reading.shown();
    let set = |field: &&FieldInfo| field.extract(value) != 0;
    let show = |field: &FieldInfo| match field.msb == field.lsb {
        true => field.name.to_owned(),
        false => format!("{}={:#x}", field.name, field.extract(value)),
    };
    let mut shown: Vec<String> = reading.placed.info.fields.iter().filter(set).map(show).collect();
    let unnamed = unnamed_bits(reading);
    if unnamed != 0 && !reading.placed.info.fields.is_empty() {
        shown.push(format!("unnamed={unnamed:#x}"));
    }
    shown.join(" ")
}

/// The bits that are set and belong to no field; none in a register without fields, which is one value.
fn unnamed_bits(reading: &Reading) -> u64 {
    let fields = reading.placed.info.fields;
    match fields.is_empty() {
        true => 0,
        false => reading.shown() & !fields.iter().fold(0, |bits, field| bits | field.mask()),
    }
}

#[derive(Serialize)]
struct JsonRegister {
    name: String,
    offset: String,
    access: &'static str,
    reset: String,
    value: Option<String>,
    extra: bool,
    words: u32,
    fields: Vec<JsonField>,
}

#[derive(Serialize)]
struct JsonField {
    name: &'static str,
    lsb: u8,
    msb: u8,
    value: Option<String>,
}

fn to_json(reading: &Reading) -> JsonRegister {
    let info = reading.placed.info;
    let field = |field: &FieldInfo| JsonField {
        name: field.name,
        lsb: field.lsb,
        msb: field.msb,
        value: reading.value.map(|value| format!("{:#x}", field.extract(value))),
    };
    JsonRegister {
        name: reading.name(),
        offset: format!("{:#x}", reading.offset()),
        access: info.access.name(),
        reset: reset_text(reading),
        value: reading.value.map(|value| format!("{value:#x}")),
        extra: info.extra,
        words: info.words(),
        fields: info.fields.iter().map(field).collect(),
    }
}
