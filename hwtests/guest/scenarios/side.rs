//! Two drivers on one cable: the kernel's `ib_qib` has one card, `qhca up` the other, in one guest.
//!
//! ```text
//! 0000:01:00.0 ── ib_qib, port 1 ══ cable ══ port 1, qhca over vfio-pci ── 0000:02:00.0
//! ```
//!
//! Each is behind the IOMMU in a group of its own. Neither knows of the other but by what comes over the cable.

use super::steps::{self, port_file, wait_state};
use super::vfio::CARD;
use crate::fail::{Stop, Verdict, ensure, ensure_eq};
use crate::fetch::Series;
use crate::image::Purpose;
use crate::lab::{Lab, Wanted};
use crate::machine::Guest;
use crate::server::Server;
use serde_json::Value;

/// The card that is ours: behind the second root port.
const OURS: &str = "0000:02:00.0";
/// Seconds within which our driver sees what happened to its cable.
const SEEN_S: u64 = 60;

type Step = fn(&mut Guest, &mut Server) -> Verdict;

/// Runs the scenario.
pub(super) fn run(lab: &mut Lab) -> Result<(), Stop> {
    let logs = lab.logs("side-by-side")?;
    let mut server = lab.serve(2, &["--cable", "a:1=b:1"], &logs)?;
    let fabric = Wanted::fabric(Series::V6_12, 0);
    let wanted = Wanted { purpose: Purpose::Both, cards: vec![0, 1], iommu: true, ..fabric };
    let mut guest = lab.start("guest", wanted, &server, &logs)?;
    guest.booted()?;
    let steps: [(&str, Step); 4] = [
        ("both-drivers-load", both_load),
        ("both-init", both_init),
        ("smp-arrives", smp_arrives),
        ("cable-out-and-in", cable_out_and_in),
    ];
    for (name, step) in steps {
        let verdict = step(&mut guest, &mut server);
        server.alive()?;
        lab.report.check(name, verdict)?;
    }
    guest.off()
}

/// The second card goes to `vfio-pci` before `ib_qib` looks for cards, which then takes the first.
fn both_load(guest: &mut Guest, _: &mut Server) -> Verdict {
    let cards = guest.must("cards", 10)?;
    ensure_eq!(cards.split_whitespace().collect::<Vec<_>>(), [CARD, OURS], "the cards");
    guest.must(&format!("qhca bind {OURS}"), 60)?;
    guest.must(&format!("qhca up -d vfio:{OURS} >/tmp/up 2>&1 &"), 30)?;
    guest.must("within 120 'grep -q \" is up\" /tmp/up || ! pidof qhca'; cat /tmp/up; pidof qhca", 120)?;
    steps::load(guest, "")?;
    for (address, driver) in [(CARD, "ib_qib"), (OURS, "vfio-pci")] {
        let link = guest.must(&format!("readlink /sys/bus/pci/devices/{address}/driver"), 10)?;
        ensure_eq!(link.trim().rsplit('/').next(), Some(driver), "the driver of {address}");
    }
    Ok(format!("ib_qib has {CARD}, qhca has {OURS}"))
}

/// What `qhca up` says of its port 1: physical state and rate.
fn ours(guest: &mut Guest) -> Result<(String, String), Stop> {
    let text = guest.must(&format!("qhca info -d {OURS}"), 30)?;
    let part = steps::section(&text, "Port 1:", "Port ");
    let of = |key: &str| steps::labelled(part, key).unwrap_or_default().to_owned();
    Ok((format!("{}/{}", of("Physical state"), of("State")), of("Rate")))
}

/// Both ends of the cable are up at full speed, each as its own driver says.
fn both_init(guest: &mut Guest, _: &mut Server) -> Verdict {
    wait_state(guest, 1, "INIT")?;
    ensure_eq!(port_file(guest, 1, "phys_state")?, "5: LinkUp", "ib_qib's physical state");
    ensure_eq!(port_file(guest, 1, "rate")?, steps::RATE, "ib_qib's rate");
    wait_ours(guest, "LinkUp")?;
    let (state, rate) = ours(guest)?;
    ensure_eq!(state, "LinkUp/Initializing", "our state");
    ensure_eq!(rate, "40", "our rate");
    Ok(format!("ib_qib INIT, LinkUp, {}; qhca {state}, {rate}", steps::RATE))
}

fn wait_ours(guest: &mut Guest, state: &str) -> Result<(), Stop> {
    let look = format!("qhca info -d {OURS} qib0 1 | grep -q \"Physical state: {state}\"");
    guest.must(&format!("within {SEEN_S} '{look}'"), SEEN_S).map(drop).map_err(|stop| match stop {
        Stop::Failed(_) => Stop::Failed(format!("our port is not {state} after {SEEN_S} s")),
        other => other,
    })
}

/// A counter of our port 1.
fn counter(guest: &mut Guest, name: &str) -> Result<u64, Stop> {
    let text = guest.must(&format!("qhca counters --json -d {OURS} 2>/dev/null"), 30)?;
    let all: Value = serde_json::from_str(&text)
        .map_err(|error| Stop::Failed(format!("qhca counters --json prints no JSON: {error}")))?;
    let counters = all["ports"][0]["counters"].as_array().into_iter().flatten();
    let found = counters.filter(|one| one["name"] == name).find_map(|one| one["value"].as_u64());
    found.ok_or_else(|| Stop::Failed(format!("qhca counters has no {name}")))
}

/// What must not move while packets arrive.
const CLEAN: [&str; 5] = ["RxVL15Drop", "RxPktDropped", "RxICRCerr", "RxVCRCerr", "RxBadFormat"];

/// Directed packets of the stock `smpquery` come over the cable on VL 15 and reach our receive context whole. No subnet
/// agent is attached there, so nobody answers, and the tool says so.
fn smp_arrives(guest: &mut Guest, _: &mut Server) -> Verdict {
    let before = counter(guest, "RxPkt")?;
    let asked = guest.must("smpquery -t 500 -D nodeinfo 0,1 2>&1; true", 60)?;
    let arrived = counter(guest, "RxPkt")? - before;
    ensure!(arrived > 0, "no packet arrived; smpquery says {:?}", asked.trim());
    for name in CLEAN {
        ensure_eq!(counter(guest, name)?, 0, "our counter {name}");
    }
    let own = guest.must("smpquery -D nodeinfo 0", 30)?;
    ensure!(own.contains("Guid"), "smpquery of its own port prints {own:?}");
    Ok(format!("{arrived} packets arrived, none dropped or damaged"))
}

/// The cable is pulled and put back: both drivers see both.
fn cable_out_and_in(guest: &mut Guest, server: &mut Server) -> Verdict {
    server.order("cable a:1 out")?;
    wait_state(guest, 1, "DOWN")?;
    wait_ours(guest, "Polling")?;
    server.order("cable a:1 in")?;
    let back = both_init(guest, server)?;
    let events = guest.must(&format!("qhca events -d {OURS}"), 30)?;
    ensure!(events.to_lowercase().contains("down"), "no event of ours tells of the pulled cable: {events:?}");
    Ok(format!("both DOWN without it; then {back}"))
}
