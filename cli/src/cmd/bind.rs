//! `qhca bind` and `qhca unbind`: a card goes to `vfio-pci`, and back to the kernel.
//!
//! Each step is said on stderr before it is done, as what one would type; with `--dry-run` the steps are the result and
//! nothing is done. A card in use is refused with the name of whoever uses it. A step that fails has the ones before it
//! undone.

use crate::cmd::list::{RootArg, card_at};
use crate::fail::{Failure, Status};
use crate::ui::Ui;
use qhca_host::binding::{self, BindError, Outcome, Step, Wish};
use qhca_host::{Card, Reader, RealHost, cards, users};
use serde::Serialize;
use std::fmt::Write;

/// Arguments of `qhca bind`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    what: What,
    /// Let this user (name or number) open the card without being root
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
}

/// Arguments of `qhca unbind`.
#[derive(Debug, clap::Args)]
pub(crate) struct UnbindArgs {
    #[command(flatten)]
    what: What,
}

#[derive(Debug, clap::Args)]
struct What {
    /// The card's PCI address, as `qhca list` shows it; the domain may be left out
    #[arg(value_name = "BDF", required_unless_present = "all")]
    bdf: Option<String>,
    /// Every card of this machine
    #[arg(long, conflicts_with = "bdf")]
    all: bool,
    /// Keep it so after the next boot (udev, modules-load.d, modprobe.d); of unbind: no longer
    #[arg(long)]
    persist: bool,
    /// Print the steps and do none of them
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    root: RootArg,
}

/// Which way a card goes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    ToVfio,
    ToKernel,
}

/// What was done to one card, as scripts read it.
#[derive(Debug, Serialize)]
struct Done {
    bdf: String,
    steps: Vec<String>,
    done: bool,
    driver_before: Option<String>,
    driver: Option<String>,
    nodes_given: Vec<String>,
    remarks: Vec<String>,
}

/// Runs `qhca bind`.
pub(crate) fn run(args: &Args, ui: &Ui) -> Result<Status, Failure> {
    let host = args.what.root.host()?;
    let uid = args.user.as_deref().map(|user| uid_of(Reader::new(&host), user)).transpose()?;
    change(host, &args.what, uid, Way::ToVfio, ui)
}

/// Runs `qhca unbind`.
pub(crate) fn run_unbind(args: &UnbindArgs, ui: &Ui) -> Result<Status, Failure> {
    change(args.what.root.host()?, &args.what, None, Way::ToKernel, ui)
}

fn uid_of(reader: Reader<'_>, user: &str) -> Result<u32, Failure> {
    users::uid_of(reader, user).map_err(|unread| Failure::new(Status::Missing, unread))?.ok_or_else(|| {
        Failure::bad_input(format!("--user {user}: /etc/passwd has no such user"))
            .remedy("valid: a name from /etc/passwd, or a user's number as `id -u` prints it")
    })
}

fn change(mut host: RealHost, what: &What, uid: Option<u32>, way: Way, ui: &Ui) -> Result<Status, Failure> {
    let chosen = chosen(Reader::new(&host), what)?;
    let wish = Wish { uid, persist: what.persist };
    let mut done = Vec::with_capacity(chosen.len());
    for card in &chosen {
        let steps = match way {
            Way::ToVfio => binding::plan_bind(Reader::new(&host), card, wish),
            Way::ToKernel => binding::plan_unbind(Reader::new(&host), card, wish),
        };
        let steps = steps.map_err(|error| failure(card, &error))?;
        let outcome = match what.dry_run {
            true => None,
            false => Some(carry_out(&mut host, card, &steps, way, ui)?),
        };
        done.push(told(card, &steps, outcome));
    }
    for card in &done {
        card.remarks.iter().for_each(|remark| ui.warning(&format!("{}: {remark}", card.bdf)));
    }
    match ui.json {
        true => ui.json(&done)?,
        false => ui.text(&text(&done, way))?,
    }
    Ok(Status::Done)
}

fn chosen(reader: Reader<'_>, what: &What) -> Result<Vec<Card>, Failure> {
    if let Some(typed) = &what.bdf {
        return Ok(vec![card_at(reader, typed)?]);
    }
    let found = cards(reader).map_err(|unread| Failure::new(Status::Missing, unread))?;
    match found.is_empty() {
        true => Err(Failure::new(Status::Missing, "this machine has no QLogic 7322").remedy(
            "`lspci -d 1077:7322` would list one; reseat the card, or look at the slot's setting in the BIOS",
        )),
        false => Ok(found),
    }
}

fn carry_out(
    host: &mut RealHost,
    card: &Card,
    steps: &[Step],
    way: Way,
    ui: &Ui,
) -> Result<Outcome, Failure> {
    let mut say = |step: &Step| ui.progress(&step.to_string());
    let outcome = match way {
        Way::ToVfio => binding::bind(host, card, steps, &mut say),
        Way::ToKernel => binding::unbind(host, card, steps, &mut say),
    };
    outcome.map_err(|error| failure(card, &error))
}

fn told(card: &Card, steps: &[Step], outcome: Option<Outcome>) -> Done {
    let before = card.driver.clone().unwrap_or(None);
    let done = outcome.is_some();
    let outcome = outcome.unwrap_or_else(|| Outcome {
        before: before.clone(),
        after: before,
        given: Vec::new(),
        remarks: Vec::new(),
    });
    Done {
        bdf: card.bdf.to_string(),
        steps: steps.iter().map(Step::to_string).collect(),
        done,
        driver_before: outcome.before,
        driver: outcome.after,
        nodes_given: outcome.given,
        remarks: outcome.remarks,
    }
}

fn text(cards: &[Done], way: Way) -> String {
    let mut text = String::new();
    for card in cards {
        if !card.done {
            card.steps.iter().for_each(|step| text += &format!("{step}\n"));
            continue;
        }
        let name = |driver: &Option<String>| driver.clone().unwrap_or_else(|| "none".to_owned());
        let (before, now) = (name(&card.driver_before), name(&card.driver));
        let _ = match before == now {
            true => writeln!(text, "{}: drv={now}, as before", card.bdf),
            false => writeln!(text, "{}: drv={now}, was {before}", card.bdf),
        };
        for node in &card.nodes_given {
            let _ = writeln!(text, "  given: {node}");
        }
        if way == Way::ToKernel && card.driver.is_none() {
            let _ = writeln!(
                text,
                "  no driver of this kernel takes it; ib_qib, which did, was removed in Linux 6.17"
            );
        }
    }
    text
}

fn failure(card: &Card, error: &BindError) -> Failure {
    let remedy = match error {
        BindError::InUse(_) => "end that process, then try again",
        BindError::Interface { .. } => "take it down first: `ip link set NAME down`",
        BindError::NotOurs { .. } => "move that file away, or leave --persist out",
        BindError::Unread(_) => "the card was left alone",
        _ if error.is_denied() => "run it as root: `sudo qhca …`",
        BindError::Step { step, .. } if matches!(**step, Step::Load(_)) => {
            "install the kernel's vfio-pci module (in Debian it is part of linux-image), or a kernel with CONFIG_VFIO_PCI"
        }
        _ => "`dmesg | tail` has the kernel's reason; `qhca doctor` looks at what a binding needs",
    };
    Failure::new(Status::Missing, format!("{}: {error}", card.bdf)).remedy(remedy)
}
