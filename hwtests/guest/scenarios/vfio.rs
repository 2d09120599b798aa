//! Our driver on the kernel's own `vfio-pci`: a card behind an IOMMU in a guest, and `qhca` beside it as its owner would
//! have it, in one static program.
//!
//! ```text
//! guest:  qhca ── /dev/vfio/GROUP or /dev/vfio/devices/vfioN ── vfio-pci ── IOMMU ── card
//!         kernels 6.1 and 6.18 of Debian                        kernel 6.12 built here
//! ```

use crate::fail::{Stop, Verdict, ensure, ensure_eq};
use crate::fetch::Series;
use crate::lab::{Lab, Wanted};
use crate::machine::Guest;

/// The card's place in every guest: the first slot below the first root port.
pub(super) const CARD: &str = "0000:01:00.0";

type Check = (&'static str, fn(&mut Guest) -> Verdict);

const GROUP: &[Check] =
    &[("qhca-runs", qhca_runs), ("card-is-seen", card_is_seen), ("vfio-pci-takes-it", vfio_pci_takes_it)];

/// The group back end, on a kernel of Debian's.
pub(super) fn run_group(lab: &mut Lab, series: Series) -> Result<(), Stop> {
    let logs = lab.logs(&format!("vfio-{}", series.name()))?;
    let mut server = lab.serve(1, &["--cable", "loop"], &logs)?;
    let mut guest = lab.start("guest", Wanted::owner(series), &server, &logs)?;
    guest.booted()?;
    for (name, check) in GROUP {
        let verdict = check(&mut guest);
        server.alive()?;
        lab.report.check(name, verdict)?;
    }
    guest.off()
}

/// The program runs where none of its libraries are.
fn qhca_runs(guest: &mut Guest) -> Verdict {
    let text = guest.must("qhca --version", 30)?;
    ensure!(text.starts_with("qhca "), "qhca --version prints {text:?}");
    Ok(text.trim().to_owned())
}

/// The card is on the bus, without a driver, in an IOMMU group.
fn card_is_seen(guest: &mut Guest) -> Verdict {
    let cards = guest.must("cards", 10)?;
    ensure_eq!(cards.trim(), CARD, "the card's address");
    let group = guest.must(&format!("readlink /sys/bus/pci/devices/{CARD}/iommu_group"), 10)?;
    let group = group.trim().rsplit('/').next().unwrap_or_default().to_owned();
    Ok(format!("{CARD} in IOMMU group {group}"))
}

/// `vfio-pci` is loaded and given the card; the group's node appears.
fn vfio_pci_takes_it(guest: &mut Guest) -> Verdict {
    guest.must("vfio", 60)?;
    give(guest, CARD)?;
    let nodes = guest.must("ls /dev/vfio", 10)?;
    ensure!(nodes.split_whitespace().any(|name| name.parse::<u32>().is_ok()), "/dev/vfio has {nodes:?}");
    Ok(format!("/dev/vfio has {}", nodes.split_whitespace().collect::<Vec<_>>().join(" ")))
}

/// Gives a device to `vfio-pci` by hand.
pub(super) fn give(guest: &mut Guest, address: &str) -> Result<(), Stop> {
    let device = format!("/sys/bus/pci/devices/{address}");
    guest.must(&format!("echo vfio-pci >{device}/driver_override"), 10)?;
    guest.must(&format!("echo {address} >/sys/bus/pci/drivers_probe"), 30)?;
    let driver = guest.must(&format!("readlink {device}/driver"), 10)?;
    ensure_eq!(driver.trim().rsplit('/').next(), Some("vfio-pci"), "the driver of {address}");
    Ok(())
}
