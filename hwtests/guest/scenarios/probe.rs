//! The stock driver meets the model: it probes without complaint, sees the right identity, and trains both ports.

use super::steps::{self, colons, port_file};
use crate::fail::{Stop, Verdict, ensure, ensure_eq};
use crate::machine::Guest;
use qhca_sim::chip::Config;

/// Kernel messages of warning level or worse that say nothing about the model, and why.
const HARMLESS: &[(&str, &str)] = &[
    ("Unable to enable pcie error reporting", "the card offers no advanced error reporting unless asked to"),
    ("Could not enable error recovery", "the same"),
    ("clocksource: Long readout interval", "the emulated processor did not run for a while"),
    ("clocksource: timekeeping watchdog", "the same"),
    ("Performance problem: bandwidth to PIO buffers", "an emulated processor stores slowly"),
];

/// A warning with a call trace that this kernel raises with any card: a copy in `rvt_post_send` over two fields.
const FIELD_SPANNING: &str = "field-spanning write";

/// Loads the driver, with the kernel's log emptied before, so that what it says then is the driver's.
pub(super) fn loads(guest: &mut Guest) -> Verdict {
    guest.must("dmesg -c >/dev/null", 10)?;
    steps::load(guest, "")
}

/// Both ports train by themselves.
pub(super) fn ports_init(guest: &mut Guest) -> Verdict {
    steps::ports_init(guest, &[1, 2])
}

/// What sysfs says about the board is what stands in the model's EEPROM.
pub(super) fn identity(guest: &mut Guest) -> Verdict {
    let config = Config::default();
    let file = |guest: &mut Guest, name: &str| {
        let text = guest.must(&format!("cat /sys/class/infiniband/qib0/{name}"), 5)?;
        Ok::<_, Stop>(text.trim().to_owned())
    };
    ensure_eq!(file(guest, "node_guid")?, colons(config.guid), "the node's GUID");
    // These kernels print a dot before every serial number.
    let serial = file(guest, "serial")?;
    ensure_eq!(serial.strip_prefix('.').unwrap_or(&serial), config.serial, "the serial number");
    let hca = file(guest, "hca_type")?;
    ensure_eq!(hca, format!("InfiniPath_{}", config.board.name()), "the HCA's type");
    // Board, architecture 1, chip 6.2, software interface 2: what the register Revision says.
    let board = file(guest, "boardversion")?;
    ensure_eq!(board, format!("ChipABI 2.0, {hca}, InfiniPath1 6.2, SW Compat 2"), "the board's version");
    for port in [1, 2] {
        let guid = colons(config.guid + u64::from(port) - 1);
        let gid = port_file(guest, port, "gids/0")?;
        ensure_eq!(gid, format!("fe80:0000:0000:0000:{guid}"), "port {port}'s GID");
    }
    Ok(format!("{board}; {}, serial {}", colons(config.guid), config.serial))
}

/// Everything that the kernel said at warning level or worse since the modules were loaded.
pub(super) fn no_complaints(guest: &mut Guest) -> Verdict {
    let log = guest.must("dmesg -r", 20)?;
    let (known, new) = complaints(&log);
    ensure!(new.is_empty(), "the kernel complains: {}", new.join(" | "));
    Ok(format!("none but {known} harmless ones"))
}

/// How many complaints in a log are harmless, and the others.
pub(super) fn complaints(log: &str) -> (usize, Vec<&str>) {
    let (mut known, mut new) = (0, Vec::new());
    let mut in_trace = false;
    for line in log.lines().filter(|line| is_complaint(line)) {
        // A known warning's registers and call trace belong to it.
        if line.contains("cut here") {
            in_trace = true;
        } else if in_trace && line.contains("WARNING:") && !line.contains("rvt_post_send") {
            in_trace = false;
            new.push(line);
        } else if line.contains("end trace") {
            in_trace = false;
        } else if line.contains(FIELD_SPANNING) || HARMLESS.iter().any(|(text, _)| line.contains(text)) {
            known += 1;
        } else if !in_trace {
            new.push(line);
        }
    }
    (known, new)
}

/// Whether a line of `dmesg -r` has level 4, warning, or a graver one.
fn is_complaint(line: &str) -> bool {
    let level = line.strip_prefix('<').and_then(|rest| rest.split_once('>'));
    level.and_then(|(level, _)| level.parse::<u32>().ok()).is_some_and(|level| level % 8 <= 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_complaint_is_found_between_harmless_ones() {
        let log = "<6>[1] fine\n\
                   <3>[2] ib_qib: Unable to enable pcie error reporting: -5\n\
                   <4>[3] ------------[ cut here ]------------\n\
                   <4>[3] memcpy: detected field-spanning write (size 80)\n\
                   <4>[3] WARNING: CPU: 0 at rvt_post_send+0x7e6\n\
                   <4>[3] RIP: 0010:rvt_post_send\n\
                   <4>[3] ---[ end trace 0000000000000000 ]---\n\
                   <3>[4] ib_qib: QSFP failed even retrying\n";
        let (known, new) = complaints(log);
        assert_eq!(known, 2);
        assert_eq!(new, ["<3>[4] ib_qib: QSFP failed even retrying"]);
        let other =
            "<4>[3] --[ cut here ]--\n<4>[3] WARNING: CPU: 0 at qib_irq+0x1\n<4>[3] --[ end trace 0 ]--\n";
        assert_eq!(complaints(other).1.len(), 1, "a warning somewhere else counts");
    }
}
