//! One guest whose card has its two ports on one cable.

use super::{cables, fabric, probe, steps, traffic};
use crate::fail::{Stop, Verdict, ensure_eq};
use crate::fetch::Series;
use crate::lab::{Lab, Wanted};
use crate::machine::Guest;
use crate::server::Server;

/// A check by its name.
type Check = (&'static str, fn(&mut Guest) -> Verdict);
/// What is done to the card while the guest uses it.
type Hands = fn(&mut Guest, &mut Server) -> Verdict;

const PROBE: &[Check] = &[
    ("driver-loads", probe::loads),
    ("ports-init", probe::ports_init),
    ("identity", probe::identity),
    ("opensm-active", fabric::active),
    ("ibstat", fabric::ibstat),
    ("ibv-devinfo", fabric::devinfo),
    ("smpquery", fabric::smpquery),
    ("saquery", fabric::saquery),
    ("counters-agree", fabric::counters_agree),
];

const TRAFFIC: &[Check] = &[
    ("perfquery", fabric::perfquery),
    ("rc-pingpong", |guest| traffic::pingpong(guest, "rc", 4096)),
    ("uc-pingpong", |guest| traffic::pingpong(guest, "uc", 8192)),
    ("ud-pingpong", |guest| traffic::pingpong(guest, "ud", 2048)),
    ("ib-write-bw", |guest| traffic::perftest(guest, "ib_write_bw", 65536, 100)),
    ("ib-read-bw", |guest| traffic::perftest(guest, "ib_read_bw", 65536, 100)),
    ("ib-send-lat", |guest| traffic::perftest(guest, "ib_send_lat", 64, 200)),
    ("counters-agree-after", fabric::counters_agree),
    ("no-complaints", probe::no_complaints),
];

const RELOADS: &[Check] =
    &[("reload-krcvqs", reload_with_more_contexts), ("reload-singleport", reload_with_one_port)];

/// Everything that one guest can do.
pub(super) fn run(lab: &mut Lab, series: Series) -> Result<(), Stop> {
    let logs = lab.logs(&format!("ib-qib-{}", series.name()))?;
    let mut server = lab.serve(1, &["--cable", "loop"], &logs)?;
    let mut guest = lab.start("guest", Wanted::fabric(series, 0), &server, &logs)?;
    guest.booted()?;
    run_all(lab, &mut guest, &mut server, PROBE)?;
    run_all(lab, &mut guest, &mut server, TRAFFIC)?;
    let hands: [(&str, Hands); 2] =
        [("cable-out-and-in", cables::cable_out_and_in), ("module-out-and-in", cables::module_out_and_in)];
    for (name, check) in hands {
        let verdict = check(&mut guest, &mut server);
        lab.report.check(name, verdict)?;
    }
    run_all(lab, &mut guest, &mut server, RELOADS)?;
    guest.off()
}

/// What an IOMMU between card and memory could break.
pub(super) fn run_behind_iommu(lab: &mut Lab, series: Series) -> Result<(), Stop> {
    const CHECKS: &[Check] = &[
        ("driver-loads", probe::loads),
        ("dma-is-translated", dma_is_translated),
        ("ports-init", probe::ports_init),
        ("opensm-active", fabric::active),
        ("rc-pingpong", |guest| traffic::pingpong(guest, "rc", 4096)),
        ("ib-write-bw", |guest| traffic::perftest(guest, "ib_write_bw", 65536, 50)),
        ("no-complaints", probe::no_complaints),
    ];
    let logs = lab.logs(&format!("iommu-{}", series.name()))?;
    let mut server = lab.serve(1, &["--cable", "loop"], &logs)?;
    let mut guest =
        lab.start("guest", Wanted { iommu: true, ..Wanted::fabric(series, 0) }, &server, &logs)?;
    guest.booted()?;
    run_all(lab, &mut guest, &mut server, CHECKS)?;
    guest.off()
}

/// Runs checks in order; a guest or server that is lost ends them.
fn run_all(lab: &mut Lab, guest: &mut Guest, server: &mut Server, checks: &[Check]) -> Result<(), Stop> {
    for (name, check) in checks {
        let verdict = check(guest);
        server.alive()?;
        lab.report.check(name, verdict)?;
    }
    Ok(())
}

/// The card is in an IOMMU group of its own, whose domain translates.
fn dma_is_translated(guest: &mut Guest) -> Verdict {
    let kind = guest.must("cat /sys/class/infiniband/qib0/device/iommu_group/type", 10)?;
    ensure_eq!(kind.trim().starts_with("DMA"), true, "whether domain type {:?} translates", kind.trim());
    Ok(format!("domain type {}", kind.trim()))
}

fn unload(guest: &mut Guest) -> Result<(), Stop> {
    guest.must("killall opensm; within 20 '! pidof opensm'; rmmod ib_qib", 60)?;
    guest.must("! test -e /sys/class/infiniband/qib0", 5).map(drop)
}

/// How many of the card's interrupts are receive contexts of the kernel.
fn kernel_contexts(guest: &mut Guest) -> Result<u64, Stop> {
    let text = guest.must("grep -c 'ib_qib0 (kctx)' /proc/interrupts; true", 10)?;
    text.trim().parse().map_err(|_| Stop::Failed(format!("{text:?} kernel contexts")))
}

/// Removed and loaded again with three kernel receive contexts a port: the ports come up again and carry traffic.
fn reload_with_more_contexts(guest: &mut Guest) -> Verdict {
    let before = kernel_contexts(guest)?;
    unload(guest)?;
    steps::load(guest, "krcvqs=3")?;
    let after = kernel_contexts(guest)?;
    ensure_eq!((before, after), (2, 6), "kernel contexts before and after");
    steps::ports_init(guest, &[1, 2])?;
    fabric::active(guest)?;
    let traffic = traffic::pingpong(guest, "rc", 4096)?;
    Ok(format!("6 kernel contexts, {traffic}"))
}

/// Removed and loaded again with `singleport=1`: one port is left, and it trains.
fn reload_with_one_port(guest: &mut Guest) -> Verdict {
    unload(guest)?;
    steps::load(guest, "singleport=1")?;
    let ports = guest.must("ls /sys/class/infiniband/qib0/ports", 10)?;
    ensure_eq!(ports.split_whitespace().collect::<Vec<_>>(), ["1"], "the ports with singleport=1");
    Ok("one port".to_owned())
}
