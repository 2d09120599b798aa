//! The stock driver meets the model: it probes without complaint, sees the right identity, and trains both ports.

use crate::fail::{Stop, Verdict, ensure, ensure_eq};
use crate::fetch::Series;
use crate::lab::{Lab, Wanted};
use crate::machine::Guest;
use qhca_sim::chip::Config;

/// Seconds that both ports may take to train.
const TRAIN_S: u64 = 60;

/// Kernel messages of warning level or worse that say nothing about the model, and why.
const HARMLESS: &[(&str, &str)] = &[
    ("Unable to enable pcie error reporting", "the card offers no advanced error reporting unless asked to"),
    ("Could not enable error recovery", "the same"),
    ("Performance problem: bandwidth to PIO buffers", "an emulated processor stores slowly"),
    ("field-spanning write", "the kernel's own check of rvt_post_send in 6.1, with any card"),
];

/// A check by its name.
type Check = (&'static str, fn(&mut Guest) -> Verdict);

pub(crate) fn run(lab: &mut Lab, series: Series) -> Result<(), Stop> {
    let logs = lab.logs(&format!("ib-qib-{}", series.name()))?;
    let mut server = lab.serve(1, &["--cable", "loop"], &logs)?;
    let mut guest = lab.start("guest", Wanted { series, card: 0, iommu: false }, &server, &logs)?;
    guest.booted()?;
    let checks: [Check; 4] = [
        ("driver-loads", loads),
        ("ports-init", ports_init),
        ("identity", identity),
        ("no-complaints", no_complaints),
    ];
    for (name, check) in checks {
        let verdict = check(&mut guest);
        server.alive()?;
        lab.report.check(name, verdict)?;
    }
    guest.off()
}

fn loads(guest: &mut Guest) -> Verdict {
    guest.must("dmesg -c >/dev/null; load", 120)?;
    guest.must("test -d /sys/class/infiniband/qib0", 5)?;
    Ok("every module loaded, qib0 is there".to_owned())
}

fn ports_init(guest: &mut Guest) -> Verdict {
    for port in [1, 2] {
        let wait = format!("within {TRAIN_S} 'port {port} state | grep -q INIT'");
        guest.must(&wait, TRAIN_S)?;
        let read = |guest: &mut Guest, file: &str| {
            guest.must(&format!("port {port} {file}"), 5).map(|text| text.trim().to_owned())
        };
        ensure_eq!(read(guest, "phys_state")?, "5: LinkUp", "port {port}'s physical state");
        ensure_eq!(read(guest, "rate")?, "40 Gb/sec (4X QDR)", "port {port}'s rate");
    }
    Ok("both ports INIT, LinkUp, 40 Gb/s 4X QDR".to_owned())
}

fn identity(guest: &mut Guest) -> Verdict {
    let config = Config::default();
    let file = |guest: &mut Guest, name: &str| {
        let text = guest.must(&format!("cat /sys/class/infiniband/qib0/{name}"), 5)?;
        Ok::<_, Stop>(text.trim().to_owned())
    };
    ensure_eq!(file(guest, "node_guid")?, colons(config.guid), "the node's GUID");
    // These kernels print a dot before every serial number.
    let serial = file(guest, "serial")?;
    ensure_eq!(serial.strip_prefix('.').unwrap_or(&serial), config.serial, "the serial number");
    let board = file(guest, "boardversion")?;
    let hca = file(guest, "hca_type")?;
    ensure!(hca.contains("7342"), "the HCA's type is {hca}, a QLE7342 was served");
    ensure!(board.contains("ChipABI"), "the board's version is {board:?}");
    for port in [1, 2] {
        let gid = guest.must(&format!("port {port} gids/0"), 5)?;
        let guid = colons(config.guid + port - 1);
        ensure!(gid.trim().ends_with(&guid), "port {port}'s GID is {gid}, its GUID {guid}");
    }
    Ok(format!("{hca} {} {}, {board}", colons(config.guid), config.serial))
}

/// A GUID as the kernel writes it.
fn colons(guid: u64) -> String {
    let words: Vec<String> = (0..4).rev().map(|n| format!("{:04x}", guid >> (16 * n) & 0xFFFF)).collect();
    words.join(":")
}

/// Everything that the kernel said at warning level or worse since the modules were loaded.
fn no_complaints(guest: &mut Guest) -> Verdict {
    let log = guest.must("dmesg -r", 20)?;
    let complaints: Vec<&str> = log.lines().filter(|line| is_complaint(line)).collect();
    let harmless = |line: &&str| HARMLESS.iter().any(|(text, _)| line.contains(text));
    let (known, new): (Vec<&str>, Vec<&str>) = complaints.into_iter().partition(harmless);
    ensure!(new.is_empty(), "the kernel complains: {}", new.join(" | "));
    Ok(format!("none but {} harmless ones", known.len()))
}

/// Whether a line of `dmesg -r` has level 4, warning, or a graver one.
fn is_complaint(line: &str) -> bool {
    let level = line.strip_prefix('<').and_then(|rest| rest.split_once('>'));
    level.and_then(|(level, _)| level.parse::<u32>().ok()).is_some_and(|level| level % 8 <= 4)
}
