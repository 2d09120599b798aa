//! Checks of the card itself and of what it is plugged into.

use super::{Check, Finding, Verdict};
use crate::bdf::Bdf;
use crate::card::{Card, DEVICES, cards};
use crate::pcie::{Link, Speed};
use crate::read::{Fact, Reader};
use std::io::ErrorKind;

/// Where a card sits.
pub(super) fn place(card: &Card) -> String {
    let slot = card.slot.as_ref().map(|slot| format!(", slot {slot}")).unwrap_or_default();
    let node = match &card.numa_node {
        Ok(Some(node)) => format!(", memory node {node}"),
        Ok(None) => String::new(),
        Err(unread) if unread.is_missing() => String::new(),
        Err(unread) => format!(", memory node not told: {unread}"),
    };
    let bridge = card.bridge.as_ref().map(|bridge| format!(", behind {}", bridge.bdf)).unwrap_or_default();
    format!("QLogic 7322 at {}{slot}{bridge}{node}", card.bdf)
}

/// There is none, or not where it was looked for.
pub(super) fn no_card(reader: Reader<'_>, asked: Option<Bdf>) -> Finding {
    match cards(reader) {
        Err(unread) => Finding::new(Check::Card, Verdict::Bad, unread).mend("mount -t sysfs sysfs /sys"),
        Ok(found) if found.is_empty() => {
            let names = reader.names(DEVICES).unwrap_or_default();
            let what = match names.is_empty() {
                true => "the kernel lists no PCI function at all".to_owned(),
                false => format!("none of {} PCI functions is 1077:7322", names.len()),
            };
            Finding::new(Check::Card, Verdict::Bad, what)
                .mend("reseat the card; see that the slot is on in the firmware's setup and has 4 lanes or more")
                .mend("echo 1 > /sys/bus/pci/rescan; in a virtual machine, hand the card over to it")
        }
        Ok(found) => {
            let places: Vec<String> = found.iter().map(|card| card.bdf.to_string()).collect();
            let asked = asked.map_or("nothing".to_owned(), |bdf| bdf.to_string());
            Finding::new(Check::Card, Verdict::Bad, format!("{asked} is no QLogic 7322"))
                .mend(format!("name one that there is: {}", places.join(", ")))
        }
    }
}

/// The first bytes of the function's configuration space: all ones come from no device at all.
pub(super) fn answers(reader: Reader<'_>, card: &Card) -> Finding {
    let path = format!("{}/config", card.folder());
    match reader.look().read(&path, 4) {
        Ok(bytes) if bytes.len() < 4 => {
            Finding::new(Check::Bus, Verdict::Unknown, format!("{path} is cut short"))
        }
        Ok(bytes) if bytes == [0xff; 4] => Finding::new(
            Check::Bus,
            Verdict::Bad,
            "the card does not answer: its configuration space reads all ones",
        )
        .mend(format!("echo 1 > {}/remove; echo 1 > /sys/bus/pci/rescan", card.folder()))
        .mend("if it stays so, switch the machine off and reseat the card"),
        Ok(_) => {
            let enabled = match &card.is_enabled {
                Ok(true) => ", decoders on",
                Ok(false) => ", decoders off until it is opened",
                Err(_) => "",
            };
            Finding::new(Check::Bus, Verdict::Ok, format!("it answers{enabled}"))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Finding::new(Check::Bus, Verdict::Unknown, format!("{path} is not there"))
        }
        Err(error) => Finding::new(Check::Bus, Verdict::Unknown, format!("{path}: {error}")),
    }
}

/// Who shares the card's door to memory.
pub(super) fn group(card: &Card) -> Finding {
    let group = match &card.group {
        Err(unread) => return Finding::new(Check::Group, Verdict::Unknown, unread),
        Ok(None) => return Finding::new(Check::Group, Verdict::Unknown, "there is none: see iommu"),
        Ok(Some(group)) => group,
    };
    if let Err(unread) = &group.members {
        return Finding::new(Check::Group, Verdict::Unknown, unread);
    }
    let spoilers = group.spoilers(card.bdf);
    if spoilers.is_empty() {
        let alone = match group.others(card.bdf).count() {
            0 => "the card is alone in it".to_owned(),
            others => format!("{others} more in it, none of them in the way"),
        };
        return Finding::new(Check::Group, Verdict::Ok, format!("{} is viable: {alone}", group.number));
    }
    let list: Vec<String> =
        spoilers.iter().map(|member| format!("{} has driver {}", member.bdf, member.driver_text())).collect();
    let mut finding = Finding::new(
        Check::Group,
        Verdict::Bad,
        format!("{} is not viable: {}", group.number, list.join(", ")),
    );
    for member in &spoilers {
        let driver = member.driver_text();
        finding = finding.mend(format!(
            "echo {} > {DEVICES}/{}/driver/unbind   (stops {driver} there)",
            member.bdf, member.bdf
        ));
    }
    finding.mend("or put the card into a slot of its own root port: the bridge above these keeps them not apart (no ACS)")
}

/// Asleep is fine if opening wakes it.
pub(super) fn power(card: &Card) -> Finding {
    let finding = |verdict, what: &str| Finding::new(Check::Power, verdict, what);
    let wake = format!("echo on > {}/power/control", card.folder());
    match &card.power_state {
        Ok(state) => match state.as_str() {
            "D0" => finding(Verdict::Ok, "D0: awake"),
            "D3hot" if card.is_bound_to_vfio() => finding(Verdict::Ok, "D3hot: asleep, and woken when it is opened"),
            "D1" | "D2" | "D3hot" => finding(Verdict::Warn, &format!("{state}: asleep")).mend(wake),
            "D3cold" => finding(Verdict::Bad, "D3cold: without power").mend(wake).mend(
                "if it stays so: pcie_port_pm=off on the kernel's command line, or switch slot power saving off in the firmware",
            ),
            "unknown" | "error" => finding(Verdict::Unknown, "the kernel does not know"),
            other => finding(Verdict::Unknown, &format!("{other:?} is no power state")),
        },
        Err(unread) if unread.is_missing() => {
            finding(Verdict::Unknown, "this kernel does not tell (before 5.10)")
        }
        Err(unread) => Finding::new(Check::Power, Verdict::Unknown, unread),
    }
}

/// The link against what both ends could do (B12: what is not told stays unknown).
pub(super) fn pcie(card: &Card) -> Finding {
    let link = &card.link;
    let (speed, width) = match (&link.speed, &link.width) {
        (Ok(speed), Ok(width)) => (*speed, *width),
        (Err(unread), _) | (_, Err(unread)) => {
            return Finding::new(Check::Pcie, Verdict::Unknown, format!("link unknown: {unread}"));
        }
    };
    let above = card.bridge.as_ref().map(|bridge| &bridge.link);
    let most_speed = lesser(&link.max_speed, above.map(|link| &link.max_speed)).unwrap_or(speed);
    let most_width = lesser(&link.max_width, above.map(|link| &link.max_width)).unwrap_or(width);
    let runs = format!("{speed} x{width}");
    if speed < most_speed || width < most_width {
        return Finding::new(
            Check::Pcie,
            Verdict::Warn,
            format!("{runs}, though card and slot can {most_speed} x{most_width}"),
        )
        .mend(
            "reseat the card and clean its contacts; look for a limit on the slot in the firmware's setup",
        );
    }
    if let Some(narrow) = above.and_then(|above| slot_is_less(link, above)) {
        return Finding::new(Check::Pcie, Verdict::Warn, format!("{runs}: {narrow}"))
            .mend("use a slot with 8 lanes at 5.0 GT/s: both ports at full rate need them");
    }
    Finding::new(Check::Pcie, Verdict::Ok, format!("{runs}, the most that card and slot can"))
}

/// What the slot withholds from the card.
fn slot_is_less(card: &Link, slot: &Link) -> Option<String> {
    let (speed, width) = (slot.max_speed.as_ref().ok()?, slot.max_width.as_ref().ok()?);
    let less = card.max_speed.as_ref().is_ok_and(|most| speed < most)
        || card.max_width.as_ref().is_ok_and(|most| width < most);
    let card_most =
        format!("{} x{}", text(&card.max_speed), card.max_width.as_ref().map_or(0, |width| *width));
    less.then(|| format!("the slot can {speed} x{width}, the card {card_most}"))
}

fn text(speed: &Fact<Speed>) -> String {
    speed.as_ref().map_or("unknown".to_owned(), Speed::to_string)
}

/// The lesser of what two ends can, as far as they say.
fn lesser<T: Copy + Ord>(one: &Fact<T>, other: Option<&Fact<T>>) -> Option<T> {
    let ends = [Some(one), other].into_iter().flatten().filter_map(|fact| fact.as_ref().ok().copied());
    ends.min()
}
