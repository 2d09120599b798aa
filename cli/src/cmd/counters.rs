//! `qhca counters`: every counter of the chip, or those of ipathfs under the names that scripts know.
//!
//! What is printed is what the chip's registers hold now. Most of them have 32 bits and wrap; only a driver that has
//! the device open sees every wrap and counts on in 64 bits. Nothing is ever reset by looking.

use crate::args::DeviceArg;
use crate::fail::{Failure, Status};
use crate::target::Target;
use crate::ui::Ui;
use qhca_driver::counters::Width;
use qhca_driver::counters::table::{self, CounterInfo};
use qhca_driver::options::Options;
use qhca_regs::access::PORT_STRIDE_BYTES;
use qhca_regs::{GONE, map};
use serde::Serialize;
use std::fmt::Write;

/// Arguments of `qhca counters`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    device: DeviceArg,
    /// The counters that ipathfs listed, in its order; `E ` marks the name from which on errors are counted
    #[arg(long)]
    ipath: bool,
    /// Bring the device up before its counters are read
    #[arg(long)]
    up: bool,
}

#[derive(Serialize)]
struct All {
    device: Vec<Reading>,
    ports: Vec<OfPort>,
}

#[derive(Serialize)]
struct OfPort {
    port: u8,
    counters: Vec<Reading>,
}

#[derive(Serialize)]
struct Reading {
    name: &'static str,
    value: u64,
    unit: &'static str,
    bits: u8,
    register: String,
    #[serde(skip)]
    is_listed: bool,
}

/// Runs `qhca counters`.
pub(crate) fn run(args: &Args, ui: &Ui) -> Result<Status, Failure> {
    let target = match args.up {
        true => Target::open_up(&args.device, &Options::default(), ui)?,
        false => Target::open(&args.device, ui)?,
    };
    target.wait_for_links(ui);
    let mut all = read_all(&target)?;
    if args.ipath {
        let lists =
            std::iter::once(&mut all.device).chain(all.ports.iter_mut().map(|port| &mut port.counters));
        lists.for_each(|list| list.retain(|reading| reading.is_listed));
    }
    match (ui.json, args.ipath) {
        (true, _) => ui.json(&all)?,
        (false, true) => ui.text(&ipath_text(&all))?,
        (false, false) => ui.text(&text(&all))?,
    }
    Ok(Status::Done)
}

fn read_all(target: &Target) -> Result<All, Failure> {
    let ports = target.chip()?.board.ports;
    let device = table::DEVICE.iter().map(|info| read(target, info, 0)).collect::<Result<_, _>>()?;
    let numbered = ports.iter().filter_map(|port| Some((port, ports.ib_number(port)?)));
    let of_port = numbered.map(|(port, number)| {
        let shift = port.index() as u32 * PORT_STRIDE_BYTES;
        let counters = table::PORT.iter().map(|info| read(target, info, shift)).collect::<Result<_, _>>()?;
        Ok(OfPort { port: number, counters })
    });
    Ok(All { device, ports: of_port.collect::<Result<_, Failure>>()? })
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
    Ok(Reading { name: info.name, value, unit: info.unit.name(), bits, register, is_listed: info.is_listed })
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
    let Reading { name, value, unit, bits, register, .. } = reading;
    let _ = writeln!(text, "  {name:<24} {value:>20} {unit:<8} {bits}-bit {register}");
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
