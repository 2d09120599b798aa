//! `qhca regs`: registers by name or offset, with their fields decoded.
//!
//! Only whole, aligned registers are read, each once. A register that may not be read (write-only) and one whose
//! reading nobody has vouched for (known from iPXE's header alone) is listed without a value; the latter is read when
//! it is asked for by name or offset. If the device stops answering half way, the listing is not printed: all ones is
//! no value.

use crate::args::DeviceArg;
use crate::cmd::regs_select::{self, Choice};
use crate::fail::{Failure, Status};
use crate::target::Target;
use crate::ui::Ui;
use crate::up::client::{self, Client};
use qhca_driver::options::Options;
use qhca_regs::info::{FieldInfo, Placed};
use qhca_regs::{Access, GONE};
use serde::Serialize;
use std::fmt::Write;

/// Arguments of `qhca regs`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    device: DeviceArg,
    /// A register's name (`IntStatus`, `ErrMask_1`, `RcvHdrAddr3`, `RcvHdrAddr` for all of them, `RcvEgrArray[17]`) or
    /// its offset (`0x70`); without one, the registers that do not hold their reset value
    #[arg(value_name = "NAME|OFFSET", group = "which")]
    select: Option<String>,
    /// Every register of the map; tables by their first word
    #[arg(long, group = "which")]
    all: bool,
    /// Bring the device up, then say what was written to parts of the chip that the model leaves out
    #[arg(long, group = "which", conflicts_with = "map")]
    unmodelled: bool,
    /// Bring the device up before its registers are read
    #[arg(long)]
    up: bool,
    /// The map itself, with reset values; opens no device
    #[arg(long, conflicts_with_all = ["device", "up"])]
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

    /// Whether the value read is not the reset value, in the digits that are known; of tables, the first word counts.
    fn differs_from_reset(&self) -> bool {
        let unknown = self.placed.info.reset_unknown;
        self.value.is_some_and(|value| (value ^ self.placed.reset()) & !unknown != 0)
    }

    /// The value to decode: what was read, or the reset value when the map alone is asked for.
    fn shown(&self) -> u64 {
        self.value.unwrap_or_else(|| self.placed.reset())
    }
}

/// Runs `qhca regs`.
pub(crate) fn run(args: &Args, ui: &Ui) -> Result<Status, Failure> {
    let choice = args.select.as_deref().map(regs_select::parse).transpose()?;
    let is_named = choice.is_some();
    let registers = choice.unwrap_or(Choice::All).registers();
    if args.map {
        let readings: Vec<Reading> =
            registers.into_iter().map(|(placed, word)| Reading { placed, word, value: None }).collect();
        return print(&readings, is_named, ui);
    }
    if let Some(mut holder) = client::holder_for(&args.device.device)?.filter(|_| !args.unmodelled) {
        let readings = ask(&mut holder, registers, is_named)?;
        return print_read(readings, is_named, args, ui);
    }
    let target = match args.up || args.unmodelled {
        true => Target::open_up(&args.device, &Options::default(), ui)?,
        false => Target::open(&args.device, ui)?,
    };
    target.wait_for_links(ui);
    if args.unmodelled {
        return print_unmodelled(&target, ui);
    }
    let mut readings = Vec::with_capacity(registers.len());
    for (placed, word) in registers {
        readings.push(read(&target, placed, word, is_named)?);
    }
    print_read(readings, is_named, args, ui)
}

/// Has the process that holds the device read registers.
fn ask(holder: &mut Client, registers: Vec<(Placed, u32)>, is_named: bool) -> Result<Vec<Reading>, Failure> {
    let mut readings: Vec<Reading> =
        registers.into_iter().map(|(placed, word)| Reading { placed, word, value: None }).collect();
    let readable: Vec<&mut Reading> =
        readings.iter_mut().filter(|reading| may_read(&reading.placed, is_named)).collect();
    let offsets: Vec<u32> = readable.iter().map(|reading| reading.offset()).collect();
    let values = holder.read(&offsets)?;
    readable.into_iter().zip(values).for_each(|(reading, value)| reading.value = Some(value));
    Ok(readings)
}

fn print_read(mut readings: Vec<Reading>, is_named: bool, args: &Args, ui: &Ui) -> Result<Status, Failure> {
    if !is_named && !args.all {
        let all = readings.len();
        readings.retain(Reading::differs_from_reset);
        ui.detail(&format!(
            "{} of {all} registers do not hold their reset value; --all lists every one",
            readings.len()
        ));
    }
    print(&readings, is_named, ui)
}

fn print(readings: &[Reading], is_named: bool, ui: &Ui) -> Result<Status, Failure> {
    match ui.json {
        true => ui.json(&readings.iter().map(to_json).collect::<Vec<_>>())?,
        false => ui.text(&to_text(readings, ui.verbosity() > 0 || (is_named && readings.len() == 1)))?,
    }
    Ok(Status::Done)
}

fn may_read(placed: &Placed, is_named: bool) -> bool {
    placed.info.access != Access::Wo && (is_named || !placed.info.extra)
}

/// Reads one register, unless it may not be read or nobody asked for it by name.
fn read(target: &Target, placed: Placed, word: u32, is_named: bool) -> Result<Reading, Failure> {
    let mut reading = Reading { placed, word, value: None };
    if may_read(&reading.placed, is_named) {
        let value = target.read(reading.offset());
        if value == GONE {
            // A register may hold all ones; a device that answers tells so by its first one.
            target.check_present(&reading.name())?;
        }
        reading.value = Some(value);
    }
    Ok(reading)
}

/// Text: a line a register with the fields that are not zero, or each field on a line of its own if `full`.
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
        if full {
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

#[derive(Serialize)]
struct JsonUnmodelled {
    name: String,
    offset: String,
    writes: u64,
}

/// Lists what was written to parts of the chip that the model leaves out.
fn print_unmodelled(target: &Target, ui: &Ui) -> Result<Status, Failure> {
    let rows: Vec<JsonUnmodelled> = target
        .unmodelled()?
        .into_iter()
        .map(|(name, offset, writes)| JsonUnmodelled { name, offset: format!("{offset:#x}"), writes })
        .collect();
    if ui.json {
        ui.json(&rows)?;
        return Ok(Status::Done);
    }
    let mut text = String::new();
    for (name, registers, writes) in grouped(&rows) {
        let _ = writeln!(text, "{name:<28} {registers:>4} registers {writes:>6} writes without effect");
    }
    if rows.is_empty() {
        text.push_str("nothing was written that the model leaves out\n");
    }
    ui.text(&text)?;
    Ok(Status::Done)
}

/// The same by row of the map, with the number of registers and of writes: a table is one line.
fn grouped(rows: &[JsonUnmodelled]) -> Vec<(String, usize, u64)> {
    let mut groups: Vec<(String, usize, u64)> = Vec::new();
    for row in rows {
        let group = regs_select::row_name(&row.name);
        match groups.last_mut() {
            Some((name, registers, writes)) if *name == group => {
                *registers += 1;
                *writes += row.writes;
            }
            _ => groups.push((group, 1, row.writes)),
        }
    }
    groups
}
