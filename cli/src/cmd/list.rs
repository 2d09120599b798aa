//! `qhca list`: the cards of this machine, in the layout that people know from binding tools.
//!
//! Only the kernel's files are read; no card is opened or woken. What board a card is stands in the chip, so it is told
//! for a card that a running `qhca up` holds, and not for others.

use crate::cmd::ibstat::Ca;
use crate::fail::{Failure, Status};
use crate::ui::Ui;
use crate::up::client;
use crate::up::question::Question;
use qhca_host::{Bdf, Card, Fact, Holder, Link, Member, Reader, RealHost, cards, holders, is_kept, modules};
use serde::Serialize;
use std::fmt::Write;
use std::path::PathBuf;

/// Arguments of `qhca list`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    root: RootArg,
}

/// Where the machine's files are.
#[derive(Debug, clap::Args)]
pub(crate) struct RootArg {
    /// Read a copy of a machine's /sys, /proc and /dev below this folder instead
    #[arg(long, value_name = "FOLDER", default_value = "/")]
    pub(crate) root: PathBuf,
}

impl RootArg {
    /// The machine.
    pub(crate) fn host(&self) -> Result<RealHost, Failure> {
        match self.root.is_dir() {
            true => Ok(RealHost::new(&self.root)),
            false => {
                Err(Failure::bad_input(format!("--root {}: there is no such folder", self.root.display()))
                    .remedy("valid: a folder that holds sys/ and proc/"))
            }
        }
    }
}

/// What `lspci` calls the chip.
const CHIP_NAME: &str = "IBA7322 QDR InfiniBand HCA";
/// Drivers that could have a card.
const DRIVERS: [&str; 2] = ["vfio-pci", "ib_qib"];

/// One card, as scripts read it.
#[derive(Debug, Serialize)]
struct CardView {
    bdf: String,
    name: String,
    chip: &'static str,
    board: Option<String>,
    driver: Option<String>,
    driver_override: Option<String>,
    unused: Vec<&'static str>,
    persistent: bool,
    iommu_group: Option<u32>,
    group_viable: Option<bool>,
    group_members: Vec<MemberView>,
    nodes: Vec<String>,
    numa_node: Option<u32>,
    slot: Option<String>,
    link: LinkView,
    power_state: Option<String>,
    in_use_by: Vec<HolderView>,
    oddities: Vec<String>,
}

#[derive(Debug, Serialize)]
struct MemberView {
    bdf: String,
    driver: Option<String>,
    bridge: bool,
}

#[derive(Debug, Serialize)]
struct LinkView {
    speed_gts: Option<f64>,
    width: Option<u8>,
    max_speed_gts: Option<f64>,
    max_width: Option<u8>,
}

#[derive(Debug, Serialize)]
struct HolderView {
    pid: u32,
    command: String,
    path: String,
}

/// Runs `qhca list`.
pub(crate) fn run(args: &Args, ui: &Ui) -> Result<Status, Failure> {
    let host = args.root.host()?;
    let reader = Reader::new(&host);
    let cards = cards(reader).map_err(|unread| {
        Failure::new(Status::Missing, unread).remedy("see that /sys is mounted: `mount -t sysfs sysfs /sys`")
    })?;
    // A copy of another machine's files names cards that processes of this one do not hold.
    let boards = args.root.root.as_os_str() == "/";
    let views: Vec<CardView> =
        cards.iter().enumerate().map(|(n, card)| view(reader, n, card, boards)).collect();
    match ui.json {
        true => ui.json(&views)?,
        false => ui.text(&text(&views))?,
    }
    Ok(Status::Done)
}

/// What board a held card is, as its holder says; nobody else knows without opening it.
fn board(bdf: &str) -> Option<String> {
    let ca: Ca = client::holder_for(bdf).ok()??.ask(&Question::Info).ok()?;
    Some(ca.ca_type)
}

fn view(reader: Reader<'_>, n: usize, card: &Card, boards: bool) -> CardView {
    let group = card.group.as_ref().ok().and_then(Option::as_ref);
    let driver = card.driver.clone().unwrap_or(None);
    let available = DRIVERS.into_iter().filter(|name| driver.as_deref() != Some(name));
    CardView {
        bdf: card.bdf.to_string(),
        name: format!("qib{n}"),
        chip: CHIP_NAME,
        board: boards.then(|| board(&card.bdf.to_string())).flatten(),
        driver_override: card.driver_override.clone().unwrap_or(None),
        unused: available.filter(|name| modules::is_available(reader, name)).collect(),
        persistent: is_kept(reader, card.bdf),
        iommu_group: group.map(|group| group.number),
        group_viable: group.map(|group| group.spoilers(card.bdf).is_empty()),
        group_members: group.map(|group| group.others(card.bdf).map(member).collect()).unwrap_or_default(),
        nodes: group
            .map(qhca_host::Group::node)
            .into_iter()
            .chain(card.cdev.clone())
            .filter(|p| reader.exists(p))
            .collect(),
        numa_node: card.numa_node.clone().unwrap_or(None),
        slot: card.slot.clone(),
        link: link(&card.link),
        power_state: card.power_state.clone().ok(),
        in_use_by: holders(reader, card).found.into_iter().map(holder).collect(),
        oddities: oddities(card),
        driver,
    }
}

fn member(member: &Member) -> MemberView {
    MemberView {
        bdf: member.bdf.to_string(),
        driver: member.driver.clone().unwrap_or(None),
        bridge: member.is_bridge,
    }
}

fn holder(holder: Holder) -> HolderView {
    HolderView { pid: holder.pid, command: holder.command, path: holder.path }
}

fn link(link: &Link) -> LinkView {
    let speed =
        |speed: &Fact<qhca_host::Speed>| speed.as_ref().ok().map(|speed| f64::from(speed.tenth_gts) / 10.0);
    LinkView {
        speed_gts: speed(&link.speed),
        width: link.width.clone().ok(),
        max_speed_gts: speed(&link.max_speed),
        max_width: link.max_width.clone().ok(),
    }
}

/// Files that told nothing, or something that cannot be. What an older kernel does not have is not odd.
fn oddities(card: &Card) -> Vec<String> {
    let told = [
        card.driver.as_ref().err(),
        card.driver_override.as_ref().err(),
        card.group.as_ref().err(),
        card.numa_node.as_ref().err(),
        card.link.speed.as_ref().err(),
        card.link.width.as_ref().err(),
    ];
    let members =
        card.group.as_ref().ok().and_then(Option::as_ref).and_then(|group| group.members.as_ref().err());
    told.into_iter()
        .flatten()
        .chain(members)
        .filter(|unread| !unread.is_missing())
        .map(ToString::to_string)
        .collect()
}

/// A title, and which cards stand below it.
type Section = (&'static str, fn(&CardView) -> bool);

/// The sections, in the order in which one looks for a card.
const SECTIONS: [Section; 3] = [
    ("InfiniBand HCAs using a VFIO driver", |card| {
        card.driver.as_deref().is_some_and(|d| d.contains("vfio"))
    }),
    ("InfiniBand HCAs using another driver", |card| {
        card.driver.as_deref().is_some_and(|d| !d.contains("vfio"))
    }),
    ("InfiniBand HCAs without a driver", |card| card.driver.is_none()),
];

fn text(cards: &[CardView]) -> String {
    if cards.is_empty() {
        return heading("No 'QLogic 7322' devices detected");
    }
    let mut text = String::new();
    for (title, belongs) in SECTIONS {
        let mut of_section = cards.iter().filter(|card| belongs(card)).peekable();
        if of_section.peek().is_some() {
            text += &heading(title);
            of_section.for_each(|card| write_card(&mut text, card));
        }
    }
    text
}

fn heading(title: &str) -> String {
    format!("\n{title}\n{}\n", "=".repeat(title.len()))
}

fn write_card(text: &mut String, card: &CardView) {
    let number = |n: Option<u32>| n.map_or("none".to_owned(), |n| n.to_string());
    let _ = write!(
        text,
        "{} '{} 7322' name={} numa_node={}",
        card.bdf,
        card.chip,
        card.name,
        number(card.numa_node)
    );
    let _ = write!(text, " group={} link={}", number(card.iommu_group), link_text(&card.link));
    if let Some(board) = &card.board {
        let _ = write!(text, " board={board}");
    }
    let driver = card.driver.as_deref().unwrap_or("");
    let _ = write!(text, " drv={driver} unused={}", card.unused.join(","));
    if card.persistent {
        text.push_str(" [persistent]");
    }
    if !card.in_use_by.is_empty() {
        text.push_str(" *Active*");
    }
    text.push('\n');
    for holder in &card.in_use_by {
        let _ = writeln!(text, "  in use by process {} ({})", holder.pid, holder.command);
    }
    for member in &card.group_members {
        let kind = if member.bridge { " bridge" } else { "" };
        let _ = writeln!(
            text,
            "  same group: {}{kind} drv={}",
            member.bdf,
            member.driver.as_deref().unwrap_or("")
        );
    }
    if card.group_viable == Some(false) {
        let _ = writeln!(
            text,
            "  the group is not viable: an ordinary driver has a member; `qhca doctor` says more"
        );
    }
    for oddity in &card.oddities {
        let _ = writeln!(text, "  odd: {oddity}");
    }
}

/// `5.0GT/s,x8`; what is not told is unknown (B12).
fn link_text(link: &LinkView) -> String {
    let speed = link.speed_gts.map_or("unknown".to_owned(), |speed| format!("{speed:.1}GT/s"));
    let width = link.width.map_or("x?".to_owned(), |width| format!("x{width}"));
    format!("{speed},{width}")
}

/// The address that was typed, of a card of this machine.
pub(crate) fn card_at(reader: Reader<'_>, typed: &str) -> Result<Card, Failure> {
    let bdf: Bdf = typed.parse().map_err(|error| Failure::bad_input(error).remedy(valid(reader)))?;
    match qhca_host::find(reader, bdf) {
        Ok(Some(card)) => Ok(card),
        Ok(None) => Err(Failure::new(Status::Missing, format!("{bdf} is no QLogic 7322 of this machine"))
            .remedy(valid(reader))),
        Err(unread) => Err(Failure::new(Status::Missing, format!("{bdf}: {unread}"))
            .remedy("the kernel does not say what this is; it was left alone")),
    }
}

/// The addresses that would have been right.
fn valid(reader: Reader<'_>) -> String {
    let found = cards(reader).unwrap_or_default();
    match found.is_empty() {
        true => "this machine has no such card; `lspci -d 1077:7322` would list it".to_owned(),
        false => {
            let names: Vec<String> = found.iter().map(|card| card.bdf.to_string()).collect();
            format!("valid: {}", names.join(", "))
        }
    }
}
