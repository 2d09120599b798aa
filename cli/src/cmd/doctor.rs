//! `qhca doctor`: everything that a card needs of its machine, what was seen, and what mends it.
//!
//! The kernel's files come first. If nothing in them stands in the way, the card is opened and brought up, or the
//! process that holds it is asked, for its EEPROM, its cables and its links; else those are "not looked at", with the
//! reason. An old file of options of `ib_qib` is read, and each of its settings is told by what it does here.

use crate::args::DeviceArg;
use crate::cmd::ibstat::Ca;
use crate::cmd::info::{self, CableView};
use crate::cmd::list::RootArg;
use crate::cmd::options;
use crate::fail::{Failure, Status};
use crate::target::Target;
use crate::ui::Ui;
use crate::up::client;
use crate::up::question::Question;
use qhca::Spec;
use qhca_driver::options::{Options, modprobe};
use qhca_host::doctor::{self, Check, Finding, Verdict};
use qhca_host::{Bdf, Card, Reader, cards, find};
use serde::Serialize;

const EXIT_CODES: &str = "\
Exit codes: 0 if the card can be used; else that of the first thing in the way:
  10 card         there is none             11 bus         it does not answer
  12 iommu        off                       13 intremap    interrupts are not remapped
  14 module       no vfio-pci               15 driver      vfio-pci does not have the card
  16 group        not viable                17 node        missing below /dev
  18 permission   not for this user         19 in-use      somebody has it open
  20 memlock      too little may be locked  21 power       the card has none
  22 lockdown     secure boot, no IOMMU     26 eeprom      the card does not come up
and 2 to 5 as for every command.";

/// Arguments of `qhca doctor`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Args {
    /// The card; every card of this machine by default
    #[arg(short, long, value_name = "DEV")]
    device: Option<String>,
    /// Do not open the card: look at the kernel's files alone
    #[arg(long)]
    no_open: bool,
    #[command(flatten)]
    root: RootArg,
}

#[derive(Serialize)]
struct Report {
    device: String,
    exit_code: u8,
    findings: Vec<JsonFinding>,
}

#[derive(Serialize)]
struct JsonFinding {
    check: &'static str,
    verdict: &'static str,
    observed: String,
    mend: Vec<String>,
}

/// A device's name and what was found.
type Examined = (String, Vec<Finding>);

/// Runs `qhca doctor`.
pub(crate) fn run(args: &Args, ui: &Ui) -> Result<Status, Failure> {
    let examined = examine(args, ui)?;
    let code = examined.iter().map(|(_, findings)| doctor::exit_code(findings)).find(|code| *code != 0);
    match ui.json {
        true => ui.json(&examined.iter().map(json).collect::<Vec<_>>())?,
        false => {
            let texts = examined.iter().map(|(name, findings)| doctor::text(name, findings));
            ui.text(&texts.collect::<Vec<_>>().join("\n"))?;
        }
    }
    Ok(code.map_or(Status::Done, Status::Cause))
}

fn json((device, findings): &Examined) -> Report {
    let view = |finding: &Finding| JsonFinding {
        check: finding.check.name(),
        verdict: finding.verdict.name(),
        observed: finding.observed.clone(),
        mend: finding.mend.clone(),
    };
    let exit_code = doctor::exit_code(findings);
    Report { device: device.clone(), exit_code, findings: findings.iter().map(view).collect() }
}

fn examine(args: &Args, ui: &Ui) -> Result<Vec<Examined>, Failure> {
    let host = args.root.host()?;
    let reader = Reader::new(&host);
    let wanted = args.device.as_deref().map(wanted).transpose()?;
    let cards = match wanted {
        Some(Wanted::Served) => {
            let name = args.device.clone().unwrap_or_default();
            let findings = device_findings(&name, None, ui);
            return Ok(vec![(name, findings)]);
        }
        Some(Wanted::Card(bdf)) => match find(reader, bdf) {
            Ok(Some(card)) => vec![card],
            Ok(None) => return Ok(vec![(bdf.to_string(), vec![doctor::no_card(reader, Some(bdf))])]),
            Err(unread) => {
                return Ok(vec![(bdf.to_string(), vec![Finding::new(Check::Card, Verdict::Bad, unread)])]);
            }
        },
        None => cards(reader).unwrap_or_default(),
    };
    if cards.is_empty() {
        return Ok(vec![("this machine".to_owned(), vec![doctor::no_card(reader, None)])]);
    }
    let is_copy = args.root.root.as_os_str() != "/";
    let closed = if is_copy {
        Some("this is a copy of a machine's files")
    } else {
        args.no_open.then_some("of --no-open")
    };
    Ok(cards.iter().map(|card| (card.bdf.to_string(), of_card(reader, card, closed, ui))).collect())
}

/// What `-d` may name.
enum Wanted {
    Card(Bdf),
    /// A device that is no card of this machine: there is nothing but itself to look at.
    Served,
}

fn wanted(device: &str) -> Result<Wanted, Failure> {
    if device.starts_with(client::PREFIX) {
        return Ok(Wanted::Served);
    }
    let spec: Spec = device.parse().map_err(|error| {
        Failure::bad_input(format!("-d {device}: {error}"))
            .remedy("`qhca list` shows the cards of this machine")
    })?;
    match spec {
        Spec::Pci { address, .. } => address
            .to_string()
            .parse()
            .map(Wanted::Card)
            .map_err(|error| Failure::bad_input(format!("-d {device}: {error}"))),
        _ => Ok(Wanted::Served),
    }
}

fn of_card(reader: Reader<'_>, card: &Card, closed: Option<&str>, ui: &Ui) -> Vec<Finding> {
    let mut findings = doctor::examine(reader, card);
    findings.extend(old_options(reader));
    let in_the_way = findings.iter().find(|f| f.verdict == Verdict::Bad && f.check != Check::InUse);
    let closed = match (closed, in_the_way) {
        (Some(why), _) => Some(why.to_owned()),
        (None, Some(finding)) => Some(format!("{} is bad", finding.check.name())),
        (None, None) => None,
    };
    findings.extend(device_findings(&card.bdf.to_string(), closed.as_deref(), ui));
    findings
}

/// Files that may hold options of `ib_qib`.
const MODPROBE_FOLDER: &str = "/etc/modprobe.d";

/// What the old driver's options mean here, a finding a file.
fn old_options(reader: Reader<'_>) -> Vec<Finding> {
    let names = reader.names(MODPROBE_FOLDER).unwrap_or_default();
    let files =
        names.iter().filter(|name| name.ends_with(".conf")).map(|name| format!("{MODPROBE_FOLDER}/{name}"));
    let told = files.filter_map(|path| {
        let text = reader.text(&path, modprobe::MAX_FILE_BYTES);
        match text {
            Ok(text) if names_ib_qib(&text) => Some(told_options(&path, &text)),
            Ok(_) => None,
            Err(unread) if path.contains("qib") || path.contains("truescale") => {
                Some(Finding::new(Check::Options, Verdict::Unknown, unread))
            }
            Err(_) => None,
        }
    });
    told.collect()
}

fn names_ib_qib(text: &str) -> bool {
    text.lines()
        .map(str::split_whitespace)
        .any(|mut words| words.next() == Some("options") && words.next() == Some("ib_qib"))
}

fn told_options(path: &str, text: &str) -> Finding {
    let parsed = match modprobe::parse_file(text.as_bytes()) {
        Ok(parsed) => parsed,
        Err(error) => {
            return Finding::new(Check::Options, Verdict::Warn, format!("{path}: {error}"))
                .mend("`qhca options` lists names, defaults and ranges");
        }
    };
    let settings = options::settings_in_words(&parsed);
    let warnings = parsed.warnings.iter().map(|warning| format!("warning: {warning}"));
    let lines: Vec<String> = std::iter::once(path.to_owned()).chain(settings).chain(warnings).collect();
    Finding::new(Check::Options, Verdict::Note, lines.join("\n"))
        .mend(format!("to use them here: --modprobe-conf {path}"))
}

/// What is seen of a device that is open.
struct Seen {
    remarks: Vec<String>,
    ca: Ca,
    cables: Vec<CableView>,
}

fn device_findings(device: &str, closed: Option<&str>, ui: &Ui) -> Vec<Finding> {
    let not_looked = |why: &str| {
        let what = format!("not looked at, because {why}");
        [Check::Eeprom, Check::Cable, Check::Link]
            .map(|check| Finding::new(check, Verdict::Unknown, &what))
            .to_vec()
    };
    if let Some(why) = closed {
        return not_looked(why);
    }
    match see(device, ui) {
        Ok(seen) => judged(&seen),
        Err(failure) => {
            let mut findings = vec![Finding::new(Check::Eeprom, Verdict::Bad, &failure)];
            findings.extend(not_looked("the device did not come up").into_iter().skip(1));
            findings
        }
    }
}

/// Asks whoever holds the device, or brings it up.
fn see(device: &str, ui: &Ui) -> Result<Seen, Failure> {
    if let Some(mut holder) = client::holder_for(device)? {
        let (ca, cables) = (holder.ask(&Question::Info)?, holder.ask(&Question::Cables)?);
        return Ok(Seen { remarks: Vec::new(), ca, cables });
    }
    let arg = DeviceArg::named(device);
    let target = Target::open_up(&arg, &Options::default(), ui)?;
    target.wait_for_links(ui);
    let identity = target.identity()?;
    let remarks = identity.remarks().iter().map(ToString::to_string).collect();
    Ok(Seen { remarks, ca: info::look(&target, &identity)?, cables: info::cables(&target)? })
}

fn judged(seen: &Seen) -> Vec<Finding> {
    let ca = &seen.ca;
    let who = format!("{}, GUID {:#018x}", ca.ca_type, ca.node_guid);
    let mut findings = vec![match (seen.remarks.is_empty(), ca.node_guid) {
        (true, 1..) => Finding::new(Check::Eeprom, Verdict::Ok, who),
        _ => Finding::new(Check::Eeprom, Verdict::Warn, format!("{who}: {}", seen.remarks.join("; ")))
            .mend("the card works; subnet managers need a GUID that no other card has"),
    }];
    for cable in &seen.cables {
        findings.push(match (cable.present, &cable.error) {
            (true, None) => Finding::new(Check::Cable, Verdict::Ok, cable.text.trim_end()),
            (true, Some(_)) => Finding::new(Check::Cable, Verdict::Warn, cable.text.trim_end())
                .mend("take the module out and put it in again; clean its contacts"),
            (false, _) => Finding::new(Check::Cable, Verdict::Note, cable.text.trim_end()),
        });
    }
    for port in &ca.ports {
        let state = format!("port {}: {}, {}", port.port, port.state, port.physical_state);
        findings.push(match (port.physical_state == "LinkUp", port.state.as_str()) {
            (true, "Active") => {
                Finding::new(Check::Link, Verdict::Ok, format!("{state}, {} Gb/s", port.rate))
            }
            (true, _) => Finding::new(
                Check::Link,
                Verdict::Note,
                format!("{state}, {} Gb/s: it waits for a subnet manager", port.rate),
            )
            .mend(format!("without one: qhca port DEV:{} active", port.port)),
            (false, _) => {
                Finding::new(Check::Link, Verdict::Note, format!("{state}: nobody answers at the other end"))
                    .mend("see that the cable is in at both ends, and that the other end is on")
            }
        });
    }
    findings
}
