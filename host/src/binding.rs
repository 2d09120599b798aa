//! Giving a card to `vfio-pci`, and giving it back.
//!
//! The kernel binds a function to the first driver that fits, unless the function's `driver_override` names the only
//! one that may have it. So a card is given to VFIO by naming it there, taking it from whoever has it, and having the
//! kernel look again:
//!
//! ```text
//! modprobe vfio-pci                                         if it is not there
//! echo vfio-pci     > /sys/bus/pci/devices/BDF/driver_override
//! echo BDF          > /sys/bus/pci/devices/BDF/driver/unbind    if it has a driver
//! echo BDF          > /sys/bus/pci/drivers_probe
//! ```
//!
//! What is about to be done is a list of [`Step`]s before anything is done: it can be shown, and each step prints as
//! what one would type. A step that fails has the ones before it undone, so that a card is never left without the
//! driver that it had. Nothing is taken from whoever uses it: a process or a network interface that has the card is
//! named, and nothing happens.

use crate::bdf::Bdf;
use crate::card::{Card, DRIVERS, VFIO_PCI, is_vfio};
use crate::holders::{Holder, holders};
use crate::look::Edit;
use crate::persist;
use crate::read::{Reader, Unread};
use std::fmt;
use std::io;
use std::time::Duration;

/// How long one order may take.
///
/// TIMEOUT: ours; an unbind waits for whoever has the device, and ten seconds tell that they do not let go.
const ORDER_WITHIN: Duration = Duration::from_secs(10);
/// How often a card is looked at, after an order, for the driver that it should have now.
const LOOKS: usize = 40;
/// The time between two looks.
///
/// TIMEOUT: ours; two seconds in all. A release by VFIO is not over when the order returns (B132).
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// The kernel's order to look for drivers again.
const DRIVERS_PROBE: &str = "/sys/bus/pci/drivers_probe";

/// One order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Load a module.
    Load(&'static str),
    /// Write a word to one of the kernel's files.
    Write {
        /// The file.
        path: String,
        /// The word; empty to clear.
        word: String,
    },
    /// Give the nodes below `/dev` that open the card to a user.
    Give {
        /// The card.
        bdf: Bdf,
        /// The user's number.
        uid: u32,
    },
    /// Put a file of ours.
    Put {
        /// The file.
        path: String,
        /// What is in it.
        text: String,
        /// What was in it, if it was there.
        was: Option<String>,
    },
    /// Remove a file of ours.
    Remove {
        /// The file.
        path: String,
        /// What was in it.
        was: String,
    },
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Load(module) => write!(f, "modprobe {module}"),
            Self::Write { path, word } if word.is_empty() => write!(f, "echo > {path}"),
            Self::Write { path, word } => write!(f, "echo {word} > {path}"),
            Self::Give { bdf, uid } => write!(f, "chown {uid} the nodes of {bdf} below /dev/vfio; chmod 600"),
            Self::Put { path, .. } => write!(f, "write {path}"),
            Self::Remove { path, .. } => write!(f, "rm {path}"),
        }
    }
}

/// What is wanted beside the binding itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wish {
    /// The user whose the card's nodes are to be.
    pub uid: Option<u32>,
    /// Whether it is to hold after the next boot too.
    pub persist: bool,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The driver before.
    pub before: Option<String>,
    /// The driver now.
    pub after: Option<String>,
    /// The nodes that were given to the user.
    pub given: Vec<String>,
    /// What is odd, and was not mended.
    pub remarks: Vec<String>,
}

/// Why a card was not bound or given back.
#[derive(Debug)]
#[non_exhaustive]
pub enum BindError {
    /// A process has the card open.
    InUse(Holder),
    /// A network interface on the card is up.
    Interface {
        /// The interface.
        name: String,
    },
    /// A file that must be known does not tell.
    Unread(Unread),
    /// A file of somebody else stands where ours would.
    NotOurs {
        /// The file.
        path: String,
    },
    /// A step failed.
    Step {
        /// The step.
        step: Box<Step>,
        /// What the system said.
        source: io::Error,
        /// What became of the steps before.
        undone: Box<Undone>,
    },
    /// All was done, and the kernel gave the card to another driver or to none.
    NotTaken {
        /// The driver that was wanted.
        wanted: String,
        /// The driver that has it.
        has: Option<String>,
        /// What became of the steps before.
        undone: Box<Undone>,
    },
}

/// What became of a card after a failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Undone {
    /// All is as it was.
    All,
    /// It is not.
    Not {
        /// The driver that had the card.
        before: Option<String>,
        /// The driver that has it now.
        now: Option<String>,
        /// Why it could not be put back.
        why: String,
    },
}

impl fmt::Display for Undone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |driver: &Option<String>| driver.as_deref().unwrap_or("no driver").to_owned();
        match self {
            Self::All => f.write_str("all is as it was"),
            Self::Not { before, now, why } => {
                write!(f, "the card had {}, has {} and could not be put back: {why}", name(before), name(now))
            }
        }
    }
}

impl fmt::Display for BindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InUse(holder) => write!(f, "it is in use: {holder}"),
            Self::Interface { name } => write!(f, "it is in use: network interface {name} is up"),
            Self::Unread(unread) => unread.fmt(f),
            Self::NotOurs { path } => write!(f, "{path} is there and was not written by this program"),
            Self::Step { step, source, undone } if source.kind() == io::ErrorKind::TimedOut => {
                let secs = ORDER_WITHIN.as_secs();
                write!(f, "`{step}` did not end within {secs} s: somebody holds the card; {undone}")
            }
            Self::Step { step, source, undone } => write!(f, "`{step}`: {source}; {undone}"),
            Self::NotTaken { wanted, has, undone } => {
                let has = has.as_deref().unwrap_or("no driver");
                write!(f, "{wanted} did not take the card, which has {has}; {undone}")
            }
        }
    }
}

impl std::error::Error for BindError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Unread(unread) => Some(unread),
            Self::Step { source, .. } => Some(source),
            _ => None,
        }
    }
}

impl BindError {
    /// Whether the system refused for want of a right.
    pub fn is_denied(&self) -> bool {
        matches!(self, Self::Step { source, .. } if source.kind() == io::ErrorKind::PermissionDenied)
    }
}

/// The steps that give `card` to VFIO.
///
/// # Errors
/// [`BindError`]: the card is in use, or does not say what it has.
pub fn plan_bind(reader: Reader<'_>, card: &Card, wish: Wish) -> Result<Vec<Step>, BindError> {
    let mut steps = Vec::new();
    let driver = card.driver.clone().map_err(BindError::Unread)?;
    if !card.is_bound_to_vfio() {
        refuse_if_in_use(reader, card)?;
        if !reader.is_folder(&format!("{DRIVERS}/{VFIO_PCI}")) {
            steps.push(Step::Load(VFIO_PCI));
        }
        steps.push(set_override(card, VFIO_PCI));
        if let Some(driver) = &driver {
            steps.push(take_from(card.bdf, driver));
        }
        steps.push(probe(card.bdf));
    }
    if let Some(uid) = wish.uid {
        steps.push(Step::Give { bdf: card.bdf, uid });
    }
    if wish.persist {
        steps.extend(persist::plan_put(reader, card.bdf, wish.uid)?);
    }
    Ok(steps)
}

/// The steps that give `card` back to the kernel.
///
/// # Errors
/// As [`plan_bind`].
pub fn plan_unbind(reader: Reader<'_>, card: &Card, wish: Wish) -> Result<Vec<Step>, BindError> {
    let mut steps = Vec::new();
    let driver = card.driver.clone().map_err(BindError::Unread)?;
    let is_ours = |name: &String| is_vfio(name);
    if driver.as_ref().is_some_and(is_ours) {
        refuse_if_in_use(reader, card)?;
    }
    if card.driver_override.clone().map_err(BindError::Unread)?.as_ref().is_some_and(is_ours) {
        steps.push(set_override(card, ""));
    }
    if let Some(driver) = driver.as_ref().filter(|name| is_ours(name)) {
        steps.push(take_from(card.bdf, driver));
        steps.push(probe(card.bdf));
    }
    if wish.persist {
        steps.extend(persist::plan_remove(reader, card.bdf)?);
    }
    Ok(steps)
}

/// Does `steps`, which give `card` to VFIO; `say` hears of each before it is done.
///
/// # Errors
/// [`BindError`] says what failed, and whether all is as it was.
pub fn bind(
    host: &mut dyn Edit,
    card: &Card,
    steps: &[Step],
    say: &mut dyn FnMut(&Step),
) -> Result<Outcome, BindError> {
    let given = carry_out(host, card, steps, say)?;
    let after = look_for(host, card.bdf, |driver| driver.is_some_and(is_vfio));
    if !after.as_deref().is_some_and(is_vfio) {
        let undone = Box::new(undo(host, card, steps));
        return Err(BindError::NotTaken { wanted: VFIO_PCI.to_owned(), has: after, undone });
    }
    Ok(Outcome { before: former(card), after, given, remarks: remarks(host, card.bdf) })
}

/// Does `steps`, which give `card` back. That no driver takes it then is no failure: the kernel may have none.
///
/// # Errors
/// As [`bind`].
pub fn unbind(
    host: &mut dyn Edit,
    card: &Card,
    steps: &[Step],
    say: &mut dyn FnMut(&Step),
) -> Result<Outcome, BindError> {
    carry_out(host, card, steps, say)?;
    let after = look_for(host, card.bdf, |driver| !driver.is_some_and(is_vfio));
    if let Some(driver) = after.as_deref().filter(|driver| is_vfio(driver)) {
        let undone = Box::new(undo(host, card, steps));
        return Err(BindError::NotTaken {
            wanted: "the kernel".to_owned(),
            has: Some(driver.to_owned()),
            undone,
        });
    }
    Ok(Outcome { before: former(card), after, given: Vec::new(), remarks: Vec::new() })
}

fn former(card: &Card) -> Option<String> {
    card.driver.clone().unwrap_or(None)
}

fn set_override(card: &Card, word: &str) -> Step {
    Step::Write { path: format!("{}/driver_override", card.folder()), word: word.to_owned() }
}

fn take_from(bdf: Bdf, driver: &str) -> Step {
    Step::Write { path: format!("{DRIVERS}/{driver}/unbind"), word: bdf.to_string() }
}

fn give_to(bdf: Bdf, driver: &str) -> Step {
    Step::Write { path: format!("{DRIVERS}/{driver}/bind"), word: bdf.to_string() }
}

fn probe(bdf: Bdf) -> Step {
    Step::Write { path: DRIVERS_PROBE.to_owned(), word: bdf.to_string() }
}

fn refuse_if_in_use(reader: Reader<'_>, card: &Card) -> Result<(), BindError> {
    if let Some(holder) = holders(reader, card).found.into_iter().next() {
        return Err(BindError::InUse(holder));
    }
    let folder = format!("{}/net", card.folder());
    let names = reader.names(&folder).unwrap_or_default();
    let is_up =
        |name: &String| reader.word(&format!("{folder}/{name}/operstate")).is_ok_and(|state| state == "up");
    match names.into_iter().find(is_up) {
        Some(name) => Err(BindError::Interface { name }),
        None => Ok(()),
    }
}

/// Does one step; the nodes that were given, if it gives any.
fn carry_out_one(host: &mut dyn Edit, step: &Step) -> io::Result<Vec<String>> {
    match step {
        Step::Load(module) => host.load_module(module)?,
        Step::Write { path, word } => {
            // An empty write is none; the kernel clears on a lone line end.
            let text = if word.is_empty() { "\n" } else { word };
            host.write(path, text, ORDER_WITHIN)?;
        }
        Step::Give { bdf, uid } => return give_nodes(host, *bdf, *uid),
        Step::Put { path, text, .. } => host.put_file(path, text)?,
        Step::Remove { path, .. } => host.remove_file(path)?,
    }
    Ok(Vec::new())
}

fn carry_out(
    host: &mut dyn Edit,
    card: &Card,
    steps: &[Step],
    say: &mut dyn FnMut(&Step),
) -> Result<Vec<String>, BindError> {
    let mut given = Vec::new();
    for (n, step) in steps.iter().enumerate() {
        say(step);
        match carry_out_one(host, step) {
            Ok(nodes) => given.extend(nodes),
            Err(source) => {
                // The failed step too: it may have been half done.
                let undone = undo(host, card, &steps[..=n]);
                return Err(BindError::Step {
                    step: Box::new(step.clone()),
                    source,
                    undone: Box::new(undone),
                });
            }
        }
    }
    Ok(given)
}

/// Makes the nodes of `bdf` the user's; they appear a moment after the driver has the card.
fn give_nodes(host: &mut dyn Edit, bdf: Bdf, uid: u32) -> io::Result<Vec<String>> {
    for look in 1.. {
        let card = Card::read(Reader::new(&*host), bdf);
        let group = card.group.ok().flatten().map(|group| group.node());
        let nodes: Vec<String> =
            group.into_iter().chain(card.cdev).filter(|node| host.stat(node).is_ok()).collect();
        if !nodes.is_empty() {
            nodes.iter().try_for_each(|node| host.give_to(node, uid))?;
            return Ok(nodes);
        }
        if look == LOOKS {
            break;
        }
        host.pause(LOOK_EVERY);
    }
    Err(io::Error::new(io::ErrorKind::NotFound, "no node of it appeared below /dev/vfio"))
}

/// Looks at the card's driver until it is what is `wanted`, or the time is over.
fn look_for(host: &mut dyn Edit, bdf: Bdf, wanted: impl Fn(Option<&str>) -> bool) -> Option<String> {
    for look in 1.. {
        let driver = Card::read(Reader::new(&*host), bdf).driver.unwrap_or(None);
        if wanted(driver.as_deref()) || look == LOOKS {
            return driver;
        }
        host.pause(LOOK_EVERY);
    }
    None
}

/// Puts everything back that `steps` may have changed.
fn undo(host: &mut dyn Edit, card: &Card, steps: &[Step]) -> Undone {
    let mut why = Vec::new();
    for step in steps.iter().rev() {
        let (path, back) = match step {
            Step::Put { path, was: None, .. } => (path, host.remove_file(path)),
            Step::Put { path, was: Some(was), .. } | Step::Remove { path, was } => {
                (path, host.put_file(path, was))
            }
            _ => continue,
        };
        if let Err(error) = back.or_else(|error| match error.kind() {
            io::ErrorKind::NotFound => Ok(()),
            _ => Err(error),
        }) {
            why.push(format!("{path}: {error}"));
        }
    }
    let before = former(card);
    let now = Card::read(Reader::new(&*host), card.bdf);
    let mut back = Vec::new();
    if let Some(driver) = former(&now).filter(|driver| before.as_ref() != Some(driver)) {
        back.push(take_from(card.bdf, &driver));
    }
    if now.driver_override != card.driver_override {
        back.push(set_override(
            card,
            card.driver_override.as_ref().ok().and_then(Option::as_deref).unwrap_or(""),
        ));
    }
    if let Some(driver) = before.as_deref().filter(|driver| former(&now).as_deref() != Some(driver)) {
        back.push(give_to(card.bdf, driver));
    }
    for step in &back {
        if let Err(error) = again(host, step) {
            why.push(format!("`{step}`: {error}"));
        }
    }
    let now = Card::read(Reader::new(&*host), card.bdf);
    match former(&now) == before && now.driver_override == card.driver_override && why.is_empty() {
        true => Undone::All,
        false => Undone::Not { before, now: former(&now), why: why.join("; ") },
    }
}

/// Does a step of the way back, more than once if need be: a driver may refuse a card that was just released (B132).
fn again(host: &mut dyn Edit, step: &Step) -> io::Result<()> {
    const TRIES: usize = 5;
    for _ in 1..TRIES {
        match carry_out_one(host, step) {
            Ok(_) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::TimedOut => return Err(error),
            Err(_) => host.pause(LOOK_EVERY),
        }
    }
    carry_out_one(host, step).map(|_| ())
}

/// What keeps a card that is bound from being used.
fn remarks(host: &mut dyn Edit, bdf: Bdf) -> Vec<String> {
    let card = Card::read(Reader::new(&*host), bdf);
    match &card.group {
        Ok(None) => {
            vec!["it is in no IOMMU group: the IOMMU is off, and VFIO will refuse the card".to_owned()]
        }
        Err(unread) => vec![unread.to_string()],
        Ok(Some(group)) => {
            let spoiled = group.spoilers(bdf).into_iter().map(|member| {
                let (group, driver) = (group.number, member.driver_text());
                format!("group {group} is not viable: {} is driven by {driver}", member.bdf)
            });
            spoiled.collect()
        }
    }
}

#[cfg(test)]
#[path = "binding_tests.rs"]
mod tests;
