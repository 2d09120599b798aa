//! Steps that many scenarios begin with, and reading what tools print.

use crate::fail::{Stop, Verdict, ensure, ensure_eq};
use crate::machine::Guest;

/// Seconds that a port may take to train or to be brought up by the subnet manager.
pub(super) const LINK_S: u64 = 60;
/// What the kernel says of a port at full speed.
pub(super) const RATE: &str = "40 Gb/sec (4X QDR)";

/// Loads the driver and waits until the card is there.
pub(super) fn load(guest: &mut Guest, parameters: &str) -> Verdict {
    guest.must(&format!("load {parameters}"), 120)?;
    guest.must("test -d /sys/class/infiniband/qib0", 5)?;
    Ok("every module loaded, qib0 is there".to_owned())
}

/// Waits until a port has a state, such as `INIT`, or one of several, such as `INIT|ACTIVE`.
pub(super) fn wait_state(guest: &mut Guest, port: u8, state: &str) -> Result<(), Stop> {
    let wait = format!("within {LINK_S} 'port {port} state | grep -Eq \"{state}\"'");
    guest.must(&wait, LINK_S).map(drop).map_err(|stop| match stop {
        Stop::Failed(_) => Stop::Failed(format!("port {port} is not {state} after {LINK_S} s")),
        other => other,
    })
}

/// A file of a port in sysfs, without its line end.
pub(super) fn port_file(guest: &mut Guest, port: u8, file: &str) -> Result<String, Stop> {
    guest.must(&format!("port {port} {file}"), 10).map(|text| text.trim().to_owned())
}

/// Waits until every port of `ports` is INIT at full speed.
pub(super) fn ports_init(guest: &mut Guest, ports: &[u8]) -> Verdict {
    for &port in ports {
        wait_state(guest, port, "INIT")?;
        ensure_eq!(port_file(guest, port, "phys_state")?, "5: LinkUp", "port {port}'s physical state");
        ensure_eq!(port_file(guest, port, "rate")?, RATE, "port {port}'s rate");
    }
    Ok(format!("{} ports INIT, LinkUp, {RATE}", ports.len()))
}

/// Starts the subnet manager on port 1 of this guest and waits until it is in charge.
pub(super) fn start_opensm(guest: &mut Guest) -> Result<(), Stop> {
    guest.must("killall opensm; rm -f /var/log/opensm.log; opensm -B >/dev/null", 30)?;
    guest.must("within 60 'grep -q \"Entering MASTER\\|SUBNET UP\" /var/log/opensm.log'", 60).map(drop)
}

/// The value after `key` and its dots in what the diagnostics print: `Lid:....1` or `lid.....1`.
pub(super) fn dotted<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let value = |line: &'a str| {
        let rest = line.trim().strip_prefix(key)?;
        let rest = rest.strip_prefix(':').unwrap_or(rest);
        rest.starts_with('.').then(|| rest.trim_start_matches('.').trim())
    };
    text.lines().find_map(value)
}

/// The value after `key:` in what `ibstat` and `ibv_devinfo` print.
pub(super) fn labelled<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.trim().strip_prefix(key)?.strip_prefix(':').map(str::trim))
}

/// The part of a listing from the line that starts `from` to the one that starts `to`.
pub(super) fn section<'a>(text: &'a str, from: &str, to: &str) -> &'a str {
    let at = text.find(from).unwrap_or(text.len());
    let rest = &text[at..];
    let end = rest[from.len().min(rest.len())..].find(to).map_or(rest.len(), |end| end + from.len());
    &rest[..end]
}

/// Fails unless `text` says `expected` for `key`.
pub(super) fn expect(
    tool: &str,
    key: &str,
    found: Option<&str>,
    expected: impl AsRef<str>,
) -> Result<(), Stop> {
    let expected = expected.as_ref();
    ensure!(found == Some(expected), "{tool} says {key} {found:?}, expected {expected:?}");
    Ok(())
}

/// A GUID as the kernel writes it.
pub(super) fn colons(guid: u64) -> String {
    let words: Vec<String> = (0..4).rev().map(|n| format!("{:04x}", guid >> (16 * n) & 0xFFFF)).collect();
    words.join(":")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_in_every_layout_of_the_tools() {
        let smp = "# Port info\nLid:.............................2\nSMLid:...........................1\n";
        assert_eq!(dotted(smp, "Lid"), Some("2"));
        assert_eq!(dotted(smp, "SMLid"), Some("1"));
        assert_eq!(dotted("\t\tlid.....................7\n", "lid"), Some("7"));
        let stat = "CA 'qib0'\n\tPort 1:\n\t\tState: Active\n\tPort 2:\n\t\tState: Down\n";
        assert_eq!(labelled(section(stat, "Port 1:", "Port"), "State"), Some("Active"));
        assert_eq!(labelled(section(stat, "Port 2:", "Port"), "State"), Some("Down"));
        assert_eq!(labelled(section(stat, "Port 3:", "Port"), "State"), None);
        assert_eq!(colons(0x0011_7500_0070_0001), "0011:7500:0070:0001");
    }
}
