//! Our driver on the kernel's own `vfio-pci`: a card behind an IOMMU in a guest, and `qhca` beside it as its owner would
//! have it, in one static program.
//!
//! ```text
//! guest:  qhca ── /dev/vfio/GROUP or /dev/vfio/devices/vfioN ── vfio-pci ── IOMMU ── card
//!         kernels 6.1 and 6.18 of Debian                        kernel 6.12 built here
//! ```

use super::{held, owner, steps};
use crate::fail::{Stop, Verdict, ensure, ensure_eq};
use crate::fetch::Series;
use crate::lab::{Lab, Wanted};
use crate::machine::Guest;
use crate::server::Server;
use qhca_sim::chip::Config;
use serde_json::Value;
use std::thread;
use std::time::{Duration, Instant};

/// The card's place in every guest: the first slot below the first root port.
pub(super) const CARD: &str = "0000:01:00.0";

/// TIMEOUT: the checks send their first packet seconds after they begin.
const TRAFFIC_LIMIT: Duration = Duration::from_secs(120);

/// Seconds within which both ports are up, bring-up and all; three on an idle core.
const LINKS_S: u64 = 90;

/// A guest with one card, and the server of the card.
pub(super) struct Bench {
    pub(super) guest: Guest,
    pub(super) server: Server,
}

type Check = (&'static str, fn(&mut Bench) -> Verdict);
/// A check that opens the card in one of the ways there are, named by a device's name.
type WayCheck = fn(&mut Bench, &str) -> Verdict;

const BEFORE: &[Check] = &[
    ("qhca-runs", qhca_runs),
    ("list-before", owner::list_before),
    ("wild-dma-refused", wild_dma_refused),
    ("bind", owner::bind),
];

const HELD: &[Check] = &[
    ("up", held::up),
    ("second-up-names-the-holder", held::second_up),
    ("asked-while-up", held::asked),
    ("killed-up-hinders-nobody", held::killed),
    ("up-ends-on-sigterm", held::ends),
];

/// The group back end, on a kernel of Debian's.
pub(super) fn run_group(lab: &mut Lab, series: Series) -> Result<(), Stop> {
    let logs = lab.logs(&format!("vfio-{}", series.name()))?;
    let server = lab.serve(1, &["--cable", "loop"], &logs)?;
    // Programs may reach the card's registers past any driver: the scenario does, to make the card misbehave.
    let wanted = Wanted { append: "iomem=relaxed", ..Wanted::owner(series) };
    let guest = lab.start("guest", wanted, &server, &logs)?;
    let mut bench = Bench { guest, server };
    bench.guest.booted()?;
    run_all(lab, &mut bench, BEFORE)?;
    opened(lab, &mut bench, "")?;
    run_all(lab, &mut bench, HELD)?;
    let verdict = owner::unbind(&mut bench);
    lab.report.check("unbind", verdict)?;
    // A boot of its own: once, on the kernel that an owner of today has.
    if series == Series::V6_18 {
        let verdict = owner::persist(lab, &mut bench, series);
        lab.report.check("persist-over-a-boot", verdict)?;
    }
    let verdict = owner::bind(&mut bench).and_then(|_| held::unplugged(&mut bench));
    lab.report.check("unplugged-while-up", verdict)?;
    bench.guest.off()
}

/// The device's own node and iommufd, on the kernel that has them.
pub(super) fn run_cdev(lab: &mut Lab) -> Result<(), Stop> {
    let logs = lab.logs("vfio-cdev")?;
    let server = lab.serve(1, &["--cable", "loop"], &logs)?;
    let guest = lab.start("guest", Wanted::owner(Series::Iommufd), &server, &logs)?;
    let mut bench = Bench { guest, server };
    bench.guest.booted()?;
    run_all(
        lab,
        &mut bench,
        &[("list-before", owner::list_before), ("bind", owner::bind), ("nodes", nodes)],
    )?;
    opened(lab, &mut bench, ",cdev")?;
    let verdict = info(&mut bench, &format!("vfio:{CARD},group"));
    lab.report.check("info-group", verdict)?;
    run_all(lab, &mut bench, HELD)?;
    let verdict = owner::unbind(&mut bench);
    lab.report.check("unbind", verdict)?;
    bench.guest.off()
}

/// Both kinds of nodes are there.
fn nodes(bench: &mut Bench) -> Verdict {
    bench.guest.must("ls -d /dev/iommu /dev/vfio/devices/vfio0 /dev/vfio/[0-9]*", 10).map(|text| {
        let found: Vec<&str> = text.split_whitespace().collect();
        found.join(", ")
    })
}

/// Without an IOMMU the kernel lets a device be opened only where it was told to; so does our driver.
pub(super) fn run_noiommu(lab: &mut Lab) -> Result<(), Stop> {
    let logs = lab.logs("vfio-noiommu")?;
    let server = lab.serve(1, &["--cable", "loop"], &logs)?;
    let wanted = Wanted { iommu: false, ..Wanted::owner(Series::Iommufd) };
    let guest = lab.start("guest", wanted, &server, &logs)?;
    let mut bench = Bench { guest, server };
    bench.guest.booted()?;
    run_all(lab, &mut bench, &[("bind-noiommu", bind_noiommu), ("noiommu", noiommu)])?;
    bench.guest.off()
}

fn bind_noiommu(bench: &mut Bench) -> Verdict {
    let guest = &mut bench.guest;
    guest.must("echo 1 >/sys/module/vfio/parameters/enable_unsafe_noiommu_mode", 10)?;
    guest.must(&format!("qhca bind {CARD}"), 60)?;
    let nodes = guest.must("ls /dev/vfio", 10)?;
    ensure!(nodes.contains("noiommu-"), "/dev/vfio has {nodes:?}");
    Ok(nodes.split_whitespace().collect::<Vec<_>>().join(", "))
}

/// Refused unless it is asked for by name; then registers answer, and what needs DMA is refused with the reason.
fn noiommu(bench: &mut Bench) -> Verdict {
    let guest = &mut bench.guest;
    let refused = guest.must(&format!("qhca info --no-link -d vfio:{CARD} 2>&1; echo status $?"), 60)?;
    ensure!(
        refused.contains("noiommu") && refused.contains("status 3"),
        "without the word it is {:?}",
        refused.trim()
    );
    let text = guest.must(&format!("qhca info --no-link -s -d vfio:{CARD},noiommu 2>/tmp/stderr"), 60)?;
    let node = format!("{:#018x}", Config::default().guid);
    ensure!(text.contains(&node), "registers do not tell {node}: {text:?}");
    let warned = guest.must("cat /tmp/stderr", 10)?;
    let dma = guest.must(&format!("qhca info -d vfio:{CARD},noiommu 2>&1; echo status $?"), 120)?;
    ensure!(!dma.contains("status 0"), "a bring-up without an IOMMU went through: {dma:?}");
    ensure!(dma.to_lowercase().contains("iommu"), "a refused bring-up does not say why: {dma:?}");
    Ok(format!("{node}; {}; {}", warned.trim().replace('\n', " | "), dma.trim().replace('\n', " | ")))
}

/// What a card must do however it is opened; `words` are the settings behind its address.
fn opened(lab: &mut Lab, bench: &mut Bench, words: &str) -> Result<(), Stop> {
    let device = format!("vfio:{CARD}{words}");
    let steps: [(&str, WayCheck); 3] =
        [("info", info), ("selftest", selftest), ("killed-in-traffic", killed_in_traffic)];
    for (name, check) in steps {
        let verdict = check(bench, &device);
        bench.server.alive()?;
        lab.report.check(name, verdict)?;
    }
    for fewer in ["intx", "vectors=4", "vectors=1"] {
        let verdict = info(bench, &format!("{device},{fewer}"));
        bench.server.alive()?;
        lab.report.check(&format!("info-{fewer}"), verdict)?;
    }
    Ok(())
}

/// Runs checks in order; a guest or server that is lost ends them.
fn run_all(lab: &mut Lab, bench: &mut Bench, checks: &[Check]) -> Result<(), Stop> {
    for (name, check) in checks {
        let verdict = check(bench);
        bench.server.alive()?;
        lab.report.check(name, verdict)?;
    }
    Ok(())
}

/// The program runs where none of its libraries are.
fn qhca_runs(bench: &mut Bench) -> Verdict {
    let text = bench.guest.must("qhca --version", 30)?;
    ensure!(text.starts_with("qhca "), "qhca --version prints {text:?}");
    Ok(text.trim().to_owned())
}

/// Accesses by the card that its server refused, because no mapping of the guest's covers them.
fn refused_accesses(server: &mut Server) -> Result<u64, Stop> {
    let stats = server.order("stats")?;
    stats["clients"][0]["refused_accesses"]
        .as_u64()
        .ok_or_else(|| Stop::Lost(format!("the server's statistics are {stats}")))
}

/// The card is told, past any driver, to write to an address that the IOMMU does not map. The write is refused, the guest
/// and the card go on.
fn wild_dma_refused(bench: &mut Bench) -> Verdict {
    use qhca_regs::RegValue;
    use qhca_regs::map::device::{REVISION, SEND_BUF_AVAIL_ADDR, SEND_CTRL, SendCtrl};
    let before = refused_accesses(&mut bench.server)?;
    let device = format!("/sys/bus/pci/devices/{CARD}");
    let guest = &mut bench.guest;
    guest.must(&format!("echo 1 >{device}/enable"), 10)?;
    // Command: memory and bus master.
    let master = format!("printf '\\006\\001' | dd of={device}/config bs=1 seek=4 conv=notrunc 2>/dev/null");
    guest.must(&master, 10)?;
    let bar = guest.must(&format!("head -n 1 {device}/resource | cut -d' ' -f1"), 10)?;
    let at = |offset: u32| format!("$(({} + {offset}))", bar.trim());
    let revision = guest.must(&format!("devmem {} 64", at(REVISION.offset())), 10)?;
    guest.must(&format!("devmem {} 64 0x12345000", at(SEND_BUF_AVAIL_ADDR.offset())), 10)?;
    let update = SendCtrl::from_raw(0).with_send_buf_avail_upd(true).raw();
    guest.must(&format!("devmem {} 64 {update:#x}", at(SEND_CTRL.offset())), 10)?;
    let again = guest.must(&format!("devmem {} 64", at(REVISION.offset())), 10)?;
    ensure_eq!(again, revision, "Revision after the refused write");
    ensure!(revision.trim() != "0xFFFFFFFFFFFFFFFF", "the card does not answer");
    let refused = refused_accesses(&mut bench.server)? - before;
    ensure!(refused > 0, "the card reached an address that the IOMMU does not map");
    bench.guest.must(&format!("echo 0 >{device}/enable"), 10)?;
    Ok(format!("{refused} accesses refused, Revision reads {} before and after", revision.trim()))
}

/// `qhca info` brings the card up over VFIO: the identity is that of the model, both ports are up at full speed.
fn info(bench: &mut Bench, device: &str) -> Verdict {
    let config = Config::default();
    // The command gives links two seconds to train, which are short where the whole machine is emulated.
    let both_up = format!("qhca info -d {device} >/tmp/info && [ $(grep -c LinkUp /tmp/info) = 2 ]");
    let text = bench.guest.must(&format!("within {LINKS_S} '{both_up}'; cat /tmp/info"), LINKS_S)?;
    let node = format!("{:#018x}", config.guid);
    steps::expect("qhca info", "Node GUID", steps::labelled(&text, "Node GUID"), &node)?;
    for port in ["1", "2"] {
        let part = steps::section(&text, &format!("Port {port}:"), "Port ");
        steps::expect("qhca info", "Physical state", steps::labelled(part, "Physical state"), "LinkUp")?;
        steps::expect("qhca info", "State", steps::labelled(part, "State"), "Initializing")?;
        steps::expect("qhca info", "Rate", steps::labelled(part, "Rate"), "40")?;
    }
    Ok(format!("{node}, both ports Initializing, LinkUp, 40"))
}

/// Checks that a card in a guest may skip, and why.
const MAY_BE_SKIPPED: [(&str, &str); 3] = [
    ("wrong-icrc", "no card sends itself a packet with a wrong check sum"),
    ("qsfp-insert", "nobody in the guest can pull a module"),
    ("hardware-error", "no card raises a parity error in itself"),
];

/// Every check of `hwtests`, as many as on a card that is simulated in the same process.
fn selftest(bench: &mut Bench, device: &str) -> Verdict {
    let command = format!("qhca selftest --json -d {device} 2>/tmp/stderr; cat /tmp/stderr >&2; true");
    let text = bench.guest.must(&command, 600)?;
    let json = text.find('{').map_or("", |at| &text[at..]);
    let mut values = serde_json::Deserializer::from_str(json).into_iter::<Value>();
    let Some(Ok(report)) = values.next() else {
        return Err(Stop::Failed(format!("qhca selftest prints {:?}", text.trim())));
    };
    let checks: Vec<&Value> = report["checks"].as_array().into_iter().flatten().collect();
    let name = |check: &Value| check["name"].as_str().unwrap_or_default().to_owned();
    let names: Vec<String> = checks.iter().map(|check| name(check)).collect();
    ensure_eq!(names, qhca_hwtests::names().collect::<Vec<_>>(), "the names of the checks");
    let of = |word: &'static str| checks.iter().filter(move |check| check["result"] == word);
    let failed: Vec<String> = of("fail").map(|check| format!("{}: {}", name(check), check["why"])).collect();
    ensure!(failed.is_empty(), "{}", failed.join("; "));
    let skipped: Vec<String> = of("skip").map(|check| name(check)).collect();
    let permitted = |name: &String| MAY_BE_SKIPPED.iter().any(|(may, _)| may == name);
    ensure!(skipped.iter().all(permitted), "skipped: {}", skipped.join(", "));
    Ok(format!("{} checks, all but {} pass", checks.len(), skipped.join(" and ")))
}

/// A process that is killed while its card sends and receives leaves a card that the next one can open.
fn killed_in_traffic(bench: &mut Bench, device: &str) -> Verdict {
    bench.guest.must(&format!("qhca selftest -d {device} >/dev/null 2>&1 & sleep 1; pidof qhca"), 60)?;
    let until = Instant::now() + TRAFFIC_LIMIT;
    // The checks send from a port to itself, and reset the card before each: the counter is that of the check at hand.
    while bench.server.register("TxDataPktCnt_0")? == 0 {
        ensure!(Instant::now() < until, "no packet within {} s", TRAFFIC_LIMIT.as_secs());
        thread::sleep(Duration::from_millis(5));
    }
    bench.guest.must("killall -9 qhca; within 30 '! pidof qhca'", 30)?;
    info(bench, device).map(|seen| format!("opened again: {seen}"))
}
