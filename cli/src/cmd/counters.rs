//! `qhca counters`: every counter of the chip, or those of ipathfs under the names that scripts know.
//!
//! What is printed is what the chip's registers hold now. Most of them have 32 bits and wrap; only a driver that has
//! the device open sees every wrap and counts on in 64 bits: with `--up`, its totals since bring-up stand beside the
//! registers. Nothing is ever reset by looking.

use crate::args::DeviceArg;
use crate::fail::{Failure, Status};
use crate::target::Target;
use crate::ui::Ui;
use crate::up::client;
use crate::up::question::Question;
use qhca_driver::counters::Width;
use qhca_driver::counters::table::{self, CounterInfo};
use qhca_driver::options::Options;
use qhca_regs::access::PORT_STRIDE_BYTES;
use qhca_regs::{GONE, map};
use serde::{Deserialize, Serialize};
use std::fmt::Write;

/// Arguments of `qhca counters`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    device: DeviceArg,
    /// The counters that ipathfs listed, in its order; `E ` marks the name from which on errors are counted
    #[arg(long)]
    ipath: bool,
    /// Bring the device up before its counters are read; not needed for one that `qhca up` holds, which is asked
    #[arg(long)]
    up: bool,
}

/// All counters, as they are printed.
#[derive(Serialize, Deserialize)]
pub(crate) struct All {
    device: Vec<Reading>,
    ports: Vec<OfPort>,
}

#[derive(Serialize, Deserialize)]
struct OfPort {
    port: u8,
    counters: Vec<Reading>,
}

#[derive(Serialize, Deserialize)]
struct Reading {
    name: String,
    value: u64,
    unit: String,
    bits: u8,
    total: Option<u64>,
    register: String,
    /// Whether ipathfs listed it.
    listed: bool,
}

/// Runs `qhca counters`.
pub(crate) fn run(args: &Args, ui: &Ui) -> Result<Status, Failure> {
    let mut all = match client::holder_for(&args.device.device)? {
        Some(mut holder) => holder.ask(&Question::Counters)?,
        None => open_and_read(args, ui)?,
    };
    if args.ipath {
        let lists =
            std::iter::once(&mut all.device).chain(all.ports.iter_mut().map(|port| &mut port.counters));
        lists.for_each(|list| list.retain(|reading| reading.listed));
    }
    match (ui.json, args.ipath) {
        (true, _) => ui.json(&all)?,
        (false, true) => ui.text(&ipath_text(&all))?,
        (false, false) => ui.text(&text(&all))?,
    }
    Ok(Status::Done)
}

fn open_and_read(args: &Args, ui: &Ui) -> Result<All, Failure> {
    let target = match args.up {
        true => Target::open_up(&args.device, &Options::default(), ui)?,
        false => Target::open(&args.device, ui)?,
    };
    target.wait_for_links(ui);
    read_all(&target)
}

/// Reads every counter.
pub(crate) fn read_all(target: &Target) -> Result<All, Failure> {
    let ports = target.chip()?.board.ports;
    let mut device: Vec<_> =
        table::DEVICE.iter().map(|info| read(target, info, 0)).collect::<Result<_, _>>()?;
    let numbered = ports.iter().filter_map(|port| Some((port, ports.ib_number(port)?)));
    let of_port = numbered.map(|(port, number)| {
        let shift = port.index() as u32 * PORT_STRIDE_BYTES;
        let counters = table::PORT.iter().map(|info| read(target, info, shift)).collect::<Result<_, _>>()?;
        Ok(OfPort { port: number, counters })
    });
    let mut of_ports = of_port.collect::<Result<Vec<_>, Failure>>()?;
    if let Some(open) = target.device() {
        let totals =
            open.counters().map_err(|e| Failure::new(Status::Device, format!("{}: {e}", target.name)))?;
        add_totals(&mut device, totals.device());
        for (of_port, port) in of_ports.iter_mut().zip(ports.iter()) {
            add_totals(&mut of_port.counters, totals.port(port));
        }
    }
    Ok(All { device, ports: of_ports })
}

/// The driver's totals beside the registers they are counted from: both stand in the order of the table.
fn add_totals(readings: &mut [Reading], totals: impl Iterator<Item = (&'static CounterInfo, u64)>) {
    for (reading, (_, total)) in readings.iter_mut().zip(totals) {
        reading.total = Some(total);
    }
}

/// Reads one counter by one access. All ones is a value only if the device still answers.
fn read(target: &Target, info: &CounterInfo, shift: u32) -> Result<Reading, Failure> {
    let offset = info.offset + shift;
    let register = map::at(offset).map(|placed| placed.to_string()).unwrap_or_default();
    let word = target.read(offset);
    if word == GONE {
        target.check_present(&register)?;
    }
    let (value, bits) = match info.width {
        Width::Bits32 | Width::Level => (word & 0xFFFF_FFFF, 32),
        Width::Bits64 => (word, 64),
    };
    let (name, unit, listed) = (info.name.to_owned(), info.unit.name().to_owned(), info.is_listed);
    Ok(Reading { name, value, unit, bits, total: None, register, listed })
}

fn text(all: &All) -> String {
    let mut text = String::from("device\n");
    all.device.iter().for_each(|reading| write_line(&mut text, reading));
    for port in &all.ports {
        let _ = writeln!(text, "port {}", port.port);
        port.counters.iter().for_each(|reading| write_line(&mut text, reading));
    }
    text
}

fn write_line(text: &mut String, reading: &Reading) {
    let Reading { name, value, unit, bits, total, register, .. } = reading;
    let total = total.map(|total| format!(", {total} since bring-up")).unwrap_or_default();
    let _ = writeln!(text, "  {name:<24} {value:>20} {unit:<8} {bits}-bit {register}{total}");
}

fn ipath_text(all: &All) -> String {
    let mut text = String::new();
    let mut list = |title: &str, table: &'static [CounterInfo], readings: &[Reading]| {
        let _ = writeln!(text, "# {title}");
        for (name, reading) in table::ipath_names(table).zip(readings) {
            let _ = writeln!(text, "{name}: {}", reading.value);
        }
    };
    list("device", &table::DEVICE, &all.device);
    for port in &all.ports {
        list(&format!("port {}", port.port), table::PORT, &port.counters);
    }
    text
}
