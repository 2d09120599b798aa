//! `qhca perfquery`: a port's counters, as the tool of that name prints them.

use super::{Asking, Fabric, Lines, number, parse_lid};
use crate::fail::{Failure, Status};
use crate::ui::Ui;
use qhca::Lid;
use qhca::verbs::port::MadTo;
use qhca::verbs::wire::mad::{Mad, MadClass, Method};
use serde::Serialize;

const CLASS_PORT_INFO: u16 = 0x01;
const PORT_COUNTERS: u16 = 0x12;
const PORT_COUNTERS_EXTENDED: u16 = 0x1D;
/// All counters that can be cleared.
const ALL: u32 = 0x1_FFFF;

/// Arguments of `qhca perfquery`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The port's LID; the port that asks if not given
    #[arg(value_parser = parse_lid)]
    lid: Option<Lid>,
    /// Number of the port on its node
    #[arg(default_value_t = 1)]
    node_port: u8,
    /// Which counters to clear, as bits: 0xffff is all but the last
    #[arg(value_parser = parse_mask, requires = "lid")]
    mask: Option<u32>,
    #[command(flatten)]
    asking: Asking,
    /// Show the extended counters
    #[arg(short = 'x', long)]
    extended: bool,
    /// Clear the counters after they were read
    #[arg(short = 'r', long = "reset_after_read", conflicts_with = "reset_only")]
    reset: bool,
    /// Clear the counters and show nothing
    #[arg(short = 'R', long = "Reset_only")]
    reset_only: bool,
}

fn parse_mask(text: &str) -> Result<u32, String> {
    let hex = text.strip_prefix("0x").map(|digits| u32::from_str_radix(digits, 16).ok());
    let mask = hex.unwrap_or_else(|| text.parse().ok()).filter(|mask| *mask <= ALL);
    mask.ok_or_else(|| format!("no mask; valid: 0 to {ALL:#x}"))
}

/// A counter: name, first byte of the attribute, bits, whether it is shown in hexadecimal.
type Field = (&'static str, usize, u32, bool);

const CLASSIC: [Field; 21] = [
    ("PortSelect", 1, 8, false),
    ("CounterSelect", 2, 16, true),
    ("SymbolErrorCounter", 4, 16, false),
    ("LinkErrorRecoveryCounter", 6, 8, false),
    ("LinkDownedCounter", 7, 8, false),
    ("PortRcvErrors", 8, 16, false),
    ("PortRcvRemotePhysicalErrors", 10, 16, false),
    ("PortRcvSwitchRelayErrors", 12, 16, false),
    ("PortXmitDiscards", 14, 16, false),
    ("PortXmitConstraintErrors", 16, 8, false),
    ("PortRcvConstraintErrors", 17, 8, false),
    ("CounterSelect2", 18, 8, true),
    ("LocalLinkIntegrityErrors", 19, 4, false),
    ("ExcessiveBufferOverrunErrors", 19, 0, false),
    ("QP1Dropped", 20, 16, false),
    ("VL15Dropped", 22, 16, false),
    ("PortXmitData", 24, 32, false),
    ("PortRcvData", 28, 32, false),
    ("PortXmitPkts", 32, 32, false),
    ("PortRcvPkts", 36, 32, false),
    ("PortXmitWait", 40, 32, false),
];

const EXTENDED: [Field; 10] = [
    ("PortSelect", 1, 8, false),
    ("CounterSelect", 2, 16, true),
    ("PortXmitData", 8, 64, false),
    ("PortRcvData", 16, 64, false),
    ("PortXmitPkts", 24, 64, false),
    ("PortRcvPkts", 32, 64, false),
    ("PortUnicastXmitPkts", 40, 64, false),
    ("PortUnicastRcvPkts", 48, 64, false),
    ("PortMulticastXmitPkts", 56, 64, false),
    ("PortMulticastRcvPkts", 64, 64, false),
];

/// A counter's value: two of them share a byte.
fn value(mad: &Mad, (_, at, bits, _): &Field) -> u64 {
    match bits {
        4 => number(mad, *at, 1) >> 4,
        0 => number(mad, *at, 1) & 0xF,
        bits => number(mad, *at, *bits as usize / 8),
    }
}

#[derive(Serialize)]
struct Json {
    lid: u16,
    port: u8,
    extended: bool,
    capability_mask: String,
    counters: Vec<JsonCounter>,
}

#[derive(Serialize)]
struct JsonCounter {
    name: &'static str,
    value: u64,
}

fn question(method: Method, attribute: u16, port: u8, select: u32) -> Mad {
    let mut mad = Mad::new(MadClass::Performance, method, attribute, 0, 0);
    mad.0[Mad::DATA_AT + 1] = port;
    mad.0[Mad::DATA_AT + 2..Mad::DATA_AT + 4].copy_from_slice(&(select as u16).to_be_bytes());
    mad.0[Mad::DATA_AT + 18] = (select >> 16) as u8;
    mad
}

/// Runs `qhca perfquery`.
pub(crate) fn run(args: &Args, ui: &Ui) -> Result<Status, Failure> {
    let mut fabric = Fabric::open(&args.asking)?;
    let lid = args.lid.unwrap_or(fabric.lid());
    let (to, port) = (MadTo::General(lid), args.node_port);
    let (attribute, fields): (_, &[Field]) = match args.extended {
        true => (PORT_COUNTERS_EXTENDED, &EXTENDED),
        false => (PORT_COUNTERS, &CLASSIC),
    };
    let (class, _) = fabric.ask(&question(Method::Get, CLASS_PORT_INFO, 0, 0), to)?;
    let mask = number(&class, 2, 2);
    if !args.reset_only {
        let (seen, _) = fabric.ask(&question(Method::Get, attribute, port, 0), to)?;
        match ui.json {
            true => ui.json(&Json {
                lid: lid.0,
                port,
                extended: args.extended,
                capability_mask: format!("{mask:#06x}"),
                counters: fields
                    .iter()
                    .map(|field| JsonCounter { name: field.0, value: value(&seen, field) })
                    .collect(),
            })?,
            false => ui.text(&to_text(
                &seen,
                fields,
                (lid, port),
                (args.extended, mask, number(&class, 4, 4) >> 5),
            ))?,
        }
    }
    if args.reset || args.reset_only {
        let all = if args.extended { 0xF } else { ALL };
        fabric.ask(&question(Method::Set, attribute, port, args.mask.unwrap_or(all)), to)?;
    }
    Ok(Status::Done)
}

fn to_text(
    seen: &Mad,
    fields: &[Field],
    (lid, port): (Lid, u8),
    (extended, mask, mask2): (bool, u64, u64),
) -> String {
    let head = match extended {
        true => format!(
            "# Port extended counters: Lid {} port {port} (CapMask: {mask:#04X} CapMask2: {mask2:#09X})",
            lid.0
        ),
        false => format!("# Port counters: Lid {} port {port} (CapMask: {mask:#04X})", lid.0),
    };
    let mut lines = Lines::new(head.replace("0X", "0x"));
    for field in fields {
        let value = value(seen, field);
        match field {
            (name, _, 16, true) => lines.put(name, format!("{value:#06x}")),
            (name, _, _, true) => lines.put(name, format!("{value:#04x}")),
            (name, ..) => lines.put(name, value),
        }
    }
    lines.0
}
