//! Our driver on the kernel's own `vfio-pci`: a card behind an IOMMU in a guest, and `qhca` beside it as its owner would
//! have it, in one static program.
//!
//! ```text
//! guest:  qhca ── /dev/vfio/GROUP or /dev/vfio/devices/vfioN ── vfio-pci ── IOMMU ── card
//!         kernels 6.1 and 6.18 of Debian                        kernel 6.12 built here
//! ```

use super::owner;
use crate::fail::{Stop, Verdict, ensure, ensure_eq};
use crate::fetch::Series;
use crate::lab::{Lab, Wanted};
use crate::machine::Guest;
use crate::server::Server;

/// The card's place in every guest: the first slot below the first root port.
pub(super) const CARD: &str = "0000:01:00.0";

/// A guest with one card, and the server of the card.
pub(super) struct Bench {
    pub(super) guest: Guest,
    pub(super) server: Server,
}

type Check = (&'static str, fn(&mut Bench) -> Verdict);

const BEFORE: &[Check] = &[
    ("qhca-runs", qhca_runs),
    ("list-before", owner::list_before),
    ("wild-dma-refused", wild_dma_refused),
    ("bind", owner::bind),
];

const AFTER: &[Check] = &[("unbind", owner::unbind)];

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
    run_all(lab, &mut bench, AFTER)?;
    let verdict = owner::persist(lab, &mut bench, series);
    lab.report.check("persist-over-a-boot", verdict)?;
    bench.guest.off()
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
