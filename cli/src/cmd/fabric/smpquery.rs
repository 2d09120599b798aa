//! `qhca smpquery`: what a port's subnet agent says, as the tool of that name prints it.

use super::{Asking, Fabric, Lines, number};
use crate::fail::{Failure, Status};
use crate::ui::Ui;
use clap::ValueEnum;
use qhca::verbs::port::MadTo;
use qhca::verbs::wire::mad::{Mad, MadClass, Method};
use std::fmt::Write;

/// Arguments of `qhca smpquery`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// What to ask for
    #[arg(value_enum, ignore_case = true)]
    what: What,
    /// The port's LID, or with -D its path: 0 is this port, 0,1 the other end of its cable
    to: Option<String>,
    /// Number of the port on its node, or of the block of a table
    #[arg(default_value_t = 0)]
    number: u32,
    /// Address by directed route
    #[arg(short = 'D', long = "Direct")]
    direct: bool,
    #[command(flatten)]
    asking: Asking,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum What {
    /// Who the node is
    #[value(alias = "ni")]
    Nodeinfo,
    /// What the node is called
    #[value(alias = "nd")]
    Nodedesc,
    /// The port's state and abilities
    #[value(alias = "pi")]
    Portinfo,
    /// Partition keys
    #[value(alias = "pk")]
    Pkeys,
    /// GUIDs
    #[value(alias = "gi")]
    Guids,
    /// Lanes of the service levels
    Sl2vl,
}

impl What {
    fn attribute(self) -> u16 {
        match self {
            Self::Nodedesc => 0x10,
            Self::Nodeinfo => 0x11,
            Self::Guids => 0x14,
            Self::Portinfo => 0x15,
            Self::Pkeys => 0x16,
            Self::Sl2vl => 0x17,
        }
    }
}

/// A field: name, first byte, the byte's shift and width in bits, or whole bytes if the width is a multiple of eight.
type Field = (&'static str, usize, u32, u32, Show);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Show {
    Number,
    Hex,
    Words(&'static [&'static str]),
}

const STATES: Show = Show::Words(&["NoChange", "Down", "Initialize", "Armed", "Active"]);
const PHYSICAL: Show = Show::Words(&[
    "NoChange",
    "Sleep",
    "Polling",
    "Disabled",
    "PortConfigurationTraining",
    "LinkUp",
    "LinkErrorRecovery",
    "PhyTest",
]);
const MTUS: Show = Show::Words(&["0", "256", "512", "1024", "2048", "4096"]);
const LANES: Show = Show::Words(&["none", "VL0", "VL0-1", "VL0-3", "VL0-7", "VL0-14"]);
const WIDTHS: Show = Show::Words(&["none", "1X", "4X", "1X or 4X"]);
const SPEEDS: Show = Show::Words(&[
    "none",
    "2.5 Gbps",
    "5.0 Gbps",
    "2.5 Gbps or 5.0 Gbps",
    "10.0 Gbps",
    "2.5 Gbps or 10.0 Gbps",
    "5.0 Gbps or 10.0 Gbps",
    "2.5 Gbps or 5.0 Gbps or 10.0 Gbps",
]);
const TYPES: Show = Show::Words(&["none", "Channel Adapter", "Switch", "Router"]);

const NODE_INFO: [Field; 12] = [
    ("BaseVers", 0, 0, 8, Show::Number),
    ("ClassVers", 1, 0, 8, Show::Number),
    ("NodeType", 2, 0, 8, TYPES),
    ("NumPorts", 3, 0, 8, Show::Number),
    ("SystemGuid", 4, 0, 64, Show::Hex),
    ("Guid", 12, 0, 64, Show::Hex),
    ("PortGuid", 20, 0, 64, Show::Hex),
    ("PartCap", 28, 0, 16, Show::Number),
    ("DevId", 30, 0, 16, Show::Hex),
    ("Revision", 32, 0, 32, Show::Hex),
    ("LocalPort", 36, 0, 8, Show::Number),
    ("VendorId", 37, 0, 24, Show::Hex),
];

const PORT_INFO: [Field; 38] = [
    ("Mkey", 0, 0, 64, Show::Hex),
    ("GidPrefix", 8, 0, 64, Show::Hex),
    ("Lid", 16, 0, 16, Show::Number),
    ("SMLid", 18, 0, 16, Show::Number),
    ("CapMask", 20, 0, 32, Show::Hex),
    ("DiagCode", 24, 0, 16, Show::Hex),
    ("MkeyLeasePeriod", 26, 0, 16, Show::Number),
    ("LocalPort", 28, 0, 8, Show::Number),
    ("LinkWidthEnabled", 29, 0, 8, WIDTHS),
    ("LinkWidthSupported", 30, 0, 8, WIDTHS),
    ("LinkWidthActive", 31, 0, 8, WIDTHS),
    ("LinkSpeedSupported", 32, 4, 4, SPEEDS),
    ("LinkState", 32, 0, 4, STATES),
    ("PhysLinkState", 33, 4, 4, PHYSICAL),
    ("LinkDownDefState", 33, 0, 4, PHYSICAL),
    ("ProtectBits", 34, 6, 2, Show::Number),
    ("LMC", 34, 0, 3, Show::Number),
    ("LinkSpeedActive", 35, 4, 4, SPEEDS),
    ("LinkSpeedEnabled", 35, 0, 4, SPEEDS),
    ("NeighborMTU", 36, 4, 4, MTUS),
    ("SMSL", 36, 0, 4, Show::Number),
    ("VLCap", 37, 4, 4, LANES),
    ("InitType", 37, 0, 4, Show::Hex),
    ("VLHighLimit", 38, 0, 8, Show::Number),
    ("VLArbHighCap", 39, 0, 8, Show::Number),
    ("VLArbLowCap", 40, 0, 8, Show::Number),
    ("InitReply", 41, 4, 4, Show::Hex),
    ("MtuCap", 41, 0, 4, MTUS),
    ("VLStallCount", 42, 5, 3, Show::Number),
    ("HoqLife", 42, 0, 5, Show::Number),
    ("OperVLs", 43, 4, 4, LANES),
    ("MkeyViolations", 44, 0, 16, Show::Number),
    ("PkeyViolations", 46, 0, 16, Show::Number),
    ("QkeyViolations", 48, 0, 16, Show::Number),
    ("GuidCap", 50, 0, 8, Show::Number),
    ("SubnetTimeout", 51, 0, 5, Show::Number),
    ("RespTimeVal", 52, 0, 5, Show::Number),
    ("LocalPhysErr", 53, 4, 4, Show::Number),
];

fn value(mad: &Mad, (_, at, shift, bits, _): &Field) -> u64 {
    match bits {
        8 | 16 | 24 | 32 | 64 => number(mad, *at, *bits as usize / 8),
        bits => number(mad, *at, 1) >> shift & ((1 << bits) - 1),
    }
}

/// Runs `qhca smpquery`.
pub(crate) fn run(args: &Args, ui: &Ui) -> Result<Status, Failure> {
    let mut fabric = Fabric::open(&args.asking)?;
    let class = if args.direct { MadClass::SubnetDirected } else { MadClass::SubnetLid };
    let mut question = Mad::new(class, Method::Get, args.what.attribute(), args.number, 0);
    let (to, shown) = match (args.direct, &args.to) {
        (true, path) => {
            let hops = parse_path(path.as_deref().unwrap_or("0"))?;
            question.direct(&hops);
            (MadTo::Path, format!("DR path slid 65535; dlid 65535; {}", path.as_deref().unwrap_or("0")))
        }
        (false, Some(lid)) => {
            let lid = super::parse_lid(lid).map_err(|e| Failure::bad_input(format!("{lid}: {e}")))?;
            (MadTo::Subnet(lid), format!("Lid {}", lid.0))
        }
        (false, None) => (MadTo::Subnet(fabric.lid()), format!("Lid {}", fabric.lid().0)),
    };
    let (seen, _) = fabric.ask(&question, to)?;
    if ui.json {
        ui.json(&to_json(args.what, &seen))?;
    } else {
        ui.text(&to_text(args.what, &seen, &shown, args.number))?;
    }
    Ok(Status::Done)
}

/// The ports of a path as it is typed; the first is this node.
fn parse_path(text: &str) -> Result<Vec<u8>, Failure> {
    let hops: Option<Vec<u8>> = text.split(',').map(|hop| hop.trim().parse().ok()).collect();
    match hops.as_deref() {
        Some([0, hops @ ..]) if hops.len() <= usize::from(Mad::HOPS_MAX) => Ok(hops.to_vec()),
        _ => Err(Failure::bad_input(format!("-D {text}: no path"))
            .remedy("valid: 0 for this port, 0,1 for the other end of its cable")),
    }
}

fn fields_of(what: What) -> &'static [Field] {
    match what {
        What::Nodeinfo => &NODE_INFO,
        What::Portinfo => &PORT_INFO,
        _ => &[],
    }
}

fn show(field: &Field, value: u64) -> String {
    match field.4 {
        Show::Number => value.to_string(),
        Show::Hex => format!("{value:#0width$x}", width = 2 + field.3.div_ceil(4) as usize),
        Show::Words(words) => {
            words.get(value as usize).map_or_else(|| format!("??? ({value})"), |word| (*word).to_owned())
        }
    }
}

fn text_of(mad: &Mad) -> String {
    let text = String::from_utf8_lossy(mad.data());
    text.trim_end_matches('\0').chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

fn to_text(what: What, seen: &Mad, to: &str, block: u32) -> String {
    let head = match what {
        What::Nodeinfo => format!("# Node info: {to}"),
        What::Portinfo => format!("# Port info: {to} port {block}"),
        What::Nodedesc => {
            let mut lines = Lines(String::new());
            lines.put("Node Description", text_of(seen));
            return lines.0;
        }
        What::Pkeys => {
            let mut text = format!("# Partition keys: {to} block {block}\n");
            for (row, keys) in seen.data().chunks(16).enumerate() {
                let _ = write!(text, "{:4}:", block * 32 + row as u32 * 8);
                for key in keys.chunks_exact(2) {
                    let _ = write!(text, " 0x{:02x}{:02x}", key[0], key[1]);
                }
                text.push('\n');
            }
            return text;
        }
        What::Guids => return format!("# GUIDs: {to}\n   0: {:#018x}\n", number(seen, 0, 8)),
        What::Sl2vl => {
            let lanes: Vec<String> = seen.data()[..8]
                .iter()
                .flat_map(|pair| [pair >> 4, pair & 0xF])
                .map(|vl| format!("{vl:2}"))
                .collect();
            return format!(
                "# SL2VL table: {to}\n#                 SL: | 0| 1| 2| 3| 4| 5| 6| 7| 8| 9|10|11|12|13|14|15|\nports: in  0, out  0: |{}|\n",
                lanes.join("|")
            );
        }
    };
    let mut lines = Lines::new(head);
    for field in fields_of(what) {
        lines.put(field.0, show(field, value(seen, field)));
    }
    lines.0
}

fn to_json(what: What, seen: &Mad) -> serde_json::Value {
    let fields =
        fields_of(what).iter().map(|field| (field.0.to_owned(), show(field, value(seen, field)).into()));
    let mut fields: serde_json::Map<String, serde_json::Value> = fields.collect();
    match what {
        What::Nodedesc => drop(fields.insert("description".to_owned(), text_of(seen).into())),
        What::Pkeys => {
            let keys =
                seen.data().chunks_exact(2).map(|key| format!("0x{:02x}{:02x}", key[0], key[1]).into());
            fields.insert("pkeys".to_owned(), serde_json::Value::Array(keys.collect()));
        }
        What::Guids => drop(fields.insert("guid".to_owned(), format!("{:#018x}", number(seen, 0, 8)).into())),
        What::Sl2vl => {
            let lanes = seen.data()[..8].iter().flat_map(|pair| [pair >> 4, pair & 0xF]).map(Into::into);
            fields.insert("lanes".to_owned(), serde_json::Value::Array(lanes.collect()));
        }
        What::Nodeinfo | What::Portinfo => {}
    }
    serde_json::Value::Object(fields)
}
