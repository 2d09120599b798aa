//! What the owner of a card does around it: finds it, gives it to `vfio-pci`, looks at what is missing, gives it back, and
//! has it kept over the next boot. Everything is read and written in the guest's own `/sys`, `/dev` and `/etc`.

use super::vfio::{Bench, CARD};
use crate::fail::{Stop, Verdict, ensure, ensure_eq};
use crate::fetch::Series;
use crate::lab::{Lab, Wanted};
use crate::machine::Guest;
use crate::newc::Archive;
use serde_json::Value;

/// The user of the guest who is not root.
const USER: (&str, u32) = ("owner", 1000);
/// Where a binding that is to last leaves files.
const KEPT_IN: [&str; 3] = ["/etc/udev/rules.d", "/etc/modules-load.d", "/etc/modprobe.d"];

/// What `qhca list` says of the only card.
fn listed(guest: &mut Guest) -> Result<Value, Stop> {
    let text = guest.must("qhca list --json 2>/tmp/stderr || cat /tmp/stderr", 30)?;
    let cards: Value = serde_json::from_str(&text)
        .map_err(|error| Stop::Failed(format!("qhca list --json prints no JSON ({error}): {text:?}")))?;
    let card = match cards.as_array().map(Vec::as_slice) {
        Some([card]) => card.clone(),
        _ => return Err(Stop::Failed(format!("qhca list shows {cards}, expected one card"))),
    };
    ensure_eq!(card["bdf"].as_str(), Some(CARD), "the listed card");
    Ok(card)
}

/// The card has no driver; it is found with its group all the same.
pub(super) fn list_before(bench: &mut Bench) -> Verdict {
    let card = listed(&mut bench.guest)?;
    ensure!(card["driver"].is_null(), "an untouched card has driver {}", card["driver"]);
    ensure!(card["iommu_group"].is_u64(), "the card's group is {}", card["iommu_group"]);
    ensure_eq!(card["group_viable"].as_bool(), Some(true), "whether the group is viable");
    let text = bench.guest.must("qhca list", 30)?;
    ensure!(text.contains("InfiniBand HCAs without a driver"), "qhca list prints {text:?}");
    Ok(format!("{CARD} in IOMMU group {}, no driver", card["iommu_group"]))
}

/// `qhca bind` loads what it needs and gives the card to `vfio-pci`; its user gets the nodes.
pub(super) fn bind(bench: &mut Bench) -> Verdict {
    let guest = &mut bench.guest;
    guest.must(&format!("qhca bind {CARD} --user {}", USER.0), 60)?;
    let card = listed(guest)?;
    ensure_eq!(card["driver"].as_str(), Some("vfio-pci"), "the driver after `qhca bind`");
    let nodes: Vec<&str> = card["nodes"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    ensure!(!nodes.is_empty(), "no node below /dev opens the card: {card}");
    for node in &nodes {
        let owner = guest.must(&format!("stat -c %u {node}"), 10)?;
        ensure_eq!(owner.trim(), USER.1.to_string(), "the owner of {node}");
    }
    let again = guest.must(&format!("qhca bind {CARD}"), 60)?;
    ensure!(again.contains("vfio-pci"), "a second `qhca bind` prints {again:?}");
    Ok(format!("{}, user {}", nodes.join(" and "), USER.0))
}

/// `qhca unbind` leaves the card as it was found.
pub(super) fn unbind(bench: &mut Bench) -> Verdict {
    bench.guest.must(&format!("qhca unbind {CARD}"), 60)?;
    let card = listed(&mut bench.guest)?;
    ensure!(card["driver"].is_null(), "after `qhca unbind` the driver is {}", card["driver"]);
    ensure!(card["driver_override"].is_null(), "driver_override is still {}", card["driver_override"]);
    Ok("no driver, no driver_override".to_owned())
}

/// Files below the folders that a lasting binding uses.
fn kept(guest: &mut Guest) -> Result<Vec<String>, Stop> {
    let text = guest.must(&format!("find {} -type f 2>/dev/null; true", KEPT_IN.join(" ")), 10)?;
    Ok(text.lines().map(|line| line.trim().to_owned()).collect())
}

/// `--persist` writes files that give the card to `vfio-pci` after the next boot, and takes them away again. The boot is a
/// second guest, which has those files and a real udev.
pub(super) fn persist(lab: &mut Lab, bench: &mut Bench, series: Series) -> Verdict {
    bench.guest.must(&format!("qhca bind {CARD} --persist --user {}", USER.0), 60)?;
    let files = kept(&mut bench.guest)?;
    ensure!(files.len() >= 2, "`qhca bind --persist` left {files:?}");
    let mut overlay = Archive::new();
    for path in &files {
        let contents = bench.guest.must(&format!("cat {path}"), 10)?;
        overlay.file(path.trim_start_matches('/'), contents.as_bytes());
    }
    bench.guest.must("sync", 10)?;
    let logs = lab.logs(&format!("vfio-{}-rebooted", series.name()))?;
    let mut server = lab.serve(1, &["--cable", "loop"], &logs)?;
    let wanted = Wanted { overlay: overlay.finish(), ..Wanted::owner(series) };
    let mut guest = lab.start("guest", wanted, &server, &logs)?;
    guest.booted()?;
    let verdict = kept_over_boot(&mut guest, &files);
    server.alive()?;
    guest.off()?;
    verdict
}

fn kept_over_boot(guest: &mut Guest, files: &[String]) -> Verdict {
    ensure_eq!(kept(guest)?, files, "the files after the boot");
    guest.must("services", 120)?;
    let card = listed(guest)?;
    ensure_eq!(card["driver"].as_str(), Some("vfio-pci"), "the driver after the boot");
    ensure_eq!(card["persistent"].as_bool(), Some(true), "whether `qhca list` says that it lasts");
    let group = card["iommu_group"].as_u64().unwrap_or_default();
    let owner = guest.must(&format!("stat -c %u /dev/vfio/{group}"), 10)?;
    ensure_eq!(owner.trim(), USER.1.to_string(), "the owner of the group's node after the boot");
    guest.must(&format!("qhca unbind {CARD} --persist"), 60)?;
    let left = kept(guest)?;
    ensure!(left.is_empty(), "`qhca unbind --persist` left {left:?}");
    let card = listed(guest)?;
    ensure!(card["driver"].is_null(), "the driver after `qhca unbind --persist` is {}", card["driver"]);
    Ok(format!(
        "{} files, the driver and the node's user after a boot, and nothing after unbind",
        files.len()
    ))
}
