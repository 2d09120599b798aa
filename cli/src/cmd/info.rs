//! `qhca info`: the device as `ibstat` shows it.
//!
//! The device is brought up first, so that the links show what they can do; with `--no-link` nothing is written but
//! the pins that read the EEPROM. No subnet agent runs in this driver, so there is no SM LID and no capability to
//! announce; both are shown as zero, as `ibstat` shows a port that no subnet manager has visited.

use crate::args::DeviceArg;
use crate::cmd::ibstat::{self, Ca, PortView, Rate};
use crate::fail::{Failure, Status};
use crate::target::Target;
use crate::ui::Ui;
use crate::up::client;
use crate::up::question::Question;
use qhca_driver::identity::Identity;
use qhca_driver::link::{CableError, CableInfo, Logical, Physical};
use qhca_driver::options::Options;
use qhca_regs::Port;

/// The device's name in scripts that knew the kernel's driver.
const CA_NAME: &str = "qib0";
/// Four lanes at the lowest speed: what the kernel's driver shows while there is no link.
const RATE_WITHOUT_LINK: Rate = Rate { tenth_gbps: 100 };

/// Arguments of `qhca info`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    device: DeviceArg,
    /// Names of the devices only
    #[arg(short, long, group = "form")]
    list_of_cas: bool,
    /// The device without its ports
    #[arg(short, long, group = "form")]
    short: bool,
    /// GUIDs of the ports only
    #[arg(short, long, group = "form")]
    port_list: bool,
    /// What the cable modules say of themselves, instead of the ports
    #[arg(long, group = "form", conflicts_with = "no_link")]
    cables: bool,
    /// Do not bring the device up; links show as they are found
    #[arg(long)]
    no_link: bool,
    /// The device's name as `-l` prints it
    ca_name: Option<String>,
    /// One port only, from 1
    port: Option<String>,
}

/// Runs `qhca info`.
pub(crate) fn run(args: &Args, ui: &Ui) -> Result<Status, Failure> {
    if let Some(name) = args.ca_name.as_deref().filter(|name| *name != CA_NAME) {
        return Err(Failure::bad_input(format!("{name:?} is no device here"))
            .remedy(format!("valid: {CA_NAME}; -d chooses what it stands for")));
    }
    if let Some(mut holder) = client::holder_for(&args.device.device)? {
        return match args.cables {
            true => print_cables(&holder.ask::<Vec<CableView>>(&Question::Cables)?, args.port.as_deref(), ui),
            false => print(args, &holder.ask(&Question::Info)?, ui),
        };
    }
    let target = match args.no_link || args.list_of_cas || args.short || args.port_list {
        true => Target::open(&args.device, ui)?,
        false => Target::open_up(&args.device, &Options::default(), ui)?,
    };
    target.wait_for_links(ui);
    if args.cables {
        return print_cables(&cables(&target)?, args.port.as_deref(), ui);
    }
    let identity = target.identity()?;
    for remark in identity.remarks() {
        ui.warning(&format!("{}: {remark}", target.name));
    }
    print(args, &look(&target, &identity)?, ui)
}

fn print(args: &Args, ca: &Ca, ui: &Ui) -> Result<Status, Failure> {
    let port = args.port.as_deref().map(|text| find_port(ca, text)).transpose()?;
    match (ui.json, port) {
        (true, None) => ui.json(ca)?,
        (true, Some(port)) => ui.json(&Ca { ports: vec![port.clone()], ..ca.clone() })?,
        (false, Some(port)) if !(args.list_of_cas || args.port_list || args.short) => {
            ui.text(&ibstat::port_text(ca, port))?;
        }
        (false, port) => ui.text(&text(args, ca, port))?,
    }
    Ok(Status::Done)
}

/// One port's cable, as scripts read it. Nothing is known of an empty cage but that.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct CableView {
    port: u8,
    pub(crate) present: bool,
    kind: Option<String>,
    vendor: Option<String>,
    part: Option<String>,
    revision: Option<String>,
    serial: Option<String>,
    length_m: Option<u8>,
    technology: Option<String>,
    attenuation_db: Option<[u8; 2]>,
    oddities: Vec<String>,
    pub(crate) error: Option<String>,
    /// The same for people.
    pub(crate) text: String,
}

impl CableView {
    fn new(port: u8, cable: Option<Result<CableInfo, CableError>>) -> Self {
        let shown = match &cable {
            None => format!("port {port}: no cable module\n"),
            Some(Err(error)) => format!("port {port}: {error}: {}\n", error.cause),
            Some(Ok(info)) => {
                let odd = info.oddities().into_iter().map(|odd| format!("port {port}: odd: {odd}\n"));
                format!("port {port}: {info}\n{}", odd.collect::<String>())
            }
        };
        let present = cable.is_some();
        let (info, error) = match cable {
            Some(Ok(info)) => (Some(info), None),
            Some(Err(error)) => (None, Some(format!("{error}: {}", error.cause))),
            None => (None, None),
        };
        let text = |of: fn(&CableInfo) -> &str| info.as_ref().map(|info| of(info).to_owned());
        Self {
            port,
            present,
            kind: info.as_ref().map(CableInfo::kind),
            vendor: text(|info| &info.vendor),
            part: text(|info| &info.part),
            revision: text(|info| &info.revision),
            serial: text(|info| &info.serial),
            length_m: info.as_ref().map(|info| info.length_m).filter(|metres| *metres != 0),
            technology: info.as_ref().map(|info| info.technology.to_string()),
            attenuation_db: info.as_ref().map(|info| info.attenuation_db),
            oddities: info.as_ref().map(CableInfo::oddities).unwrap_or_default(),
            error,
            text: shown,
        }
    }
}

/// The cables of every port.
pub(crate) fn cables(target: &Target) -> Result<Vec<CableView>, Failure> {
    let ports = target.identity()?.chip.board.ports;
    let numbers = ports.iter().filter_map(|port| Some((port, ports.ib_number(port)?)));
    let cable = |port| target.device().and_then(|device| device.cable(port));
    Ok(numbers.map(|(port, number)| CableView::new(number, cable(port))).collect())
}

fn print_cables(all: &[CableView], port: Option<&str>, ui: &Ui) -> Result<Status, Failure> {
    let chosen: Vec<&CableView> =
        all.iter().filter(|cable| port.is_none_or(|text| cable.port.to_string() == text)).collect();
    if let Some(text) = port.filter(|_| chosen.is_empty()) {
        let valid: Vec<String> = all.iter().map(|cable| cable.port.to_string()).collect();
        return Err(Failure::bad_input(format!("{text:?} is no port of this device"))
            .remedy(format!("valid: {}", valid.join(", "))));
    }
    if ui.json {
        chosen.into_iter().try_for_each(|view| ui.json(view))?;
        return Ok(Status::Done);
    }
    ui.text(&chosen.into_iter().map(|cable| cable.text.as_str()).collect::<String>())?;
    Ok(Status::Done)
}

fn text(args: &Args, ca: &Ca, port: Option<&PortView>) -> String {
    if args.list_of_cas {
        return format!("{}\n", ca.name);
    }
    if args.port_list {
        let ports = ca.ports.iter().filter(|p| port.is_none_or(|port| port.port == p.port));
        return ports.map(|port| format!("{:#018x}\n", port.port_guid)).collect();
    }
    ibstat::device_text(ca, args.short)
}

fn find_port<'a>(ca: &'a Ca, text: &str) -> Result<&'a PortView, Failure> {
    let found = ca.ports.iter().find(|port| port.port.to_string() == text);
    found.ok_or_else(|| {
        let valid: Vec<String> = ca.ports.iter().map(|port| port.port.to_string()).collect();
        Failure::bad_input(format!("{text:?} is no port of this {}", ca.ca_type))
            .remedy(format!("valid: {}", valid.join(", ")))
    })
}

/// Reads what `ibstat` shows.
pub(crate) fn look(target: &Target, identity: &Identity) -> Result<Ca, Failure> {
    let ports = identity.chip.board.ports;
    let views = ports.iter().filter_map(|port| Some((port, ports.ib_number(port)?)));
    Ok(Ca {
        name: CA_NAME.to_owned(),
        ca_type: identity.hca_type(),
        firmware_version: String::new(),
        hardware_version: identity.chip.hw_rev().to_string(),
        node_guid: identity.node_guid().0,
        system_image_guid: identity.node_guid().0,
        ports: views
            .map(|(port, number)| look_at_port(target, identity, port, number))
            .collect::<Result<_, _>>()?,
    })
}

fn look_at_port(target: &Target, identity: &Identity, port: Port, number: u8) -> Result<PortView, Failure> {
    let link = target.link(port)?;
    let (base_lid, lmc) = target.lid(port);
    Ok(PortView {
        port: number,
        state: match link.logical() {
            Logical::Unknown(_) => "???".to_owned(),
            state => state.to_string(),
        },
        physical_state: match link.physical() {
            Physical::Unknown(_) => "???".to_owned(),
            state => state.to_string(),
        },
        rate: if link.is_up() { Rate { tenth_gbps: link.rate_tenth_gbps() } } else { RATE_WITHOUT_LINK },
        base_lid,
        lmc,
        sm_lid: 0,
        capability_mask: 0,
        port_guid: identity.port_guid(number).0,
        link_layer: "InfiniBand".to_owned(),
    })
}
