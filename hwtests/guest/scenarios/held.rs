//! `qhca up` in a guest: it holds the card, answers others while it does, names itself to a second holder, and lets go
//! when it is told to, when it is killed, and when the card is pulled out.

use super::vfio::{Bench, CARD};
use crate::fail::{Stop, Verdict, ensure, ensure_eq};
use crate::machine::Guest;
use serde_json::Value;

/// Seconds that a bring-up may take in a guest; a second or two on an idle core.
const UP_S: u64 = 120;
/// Seconds within which a holder lets go.
const DOWN_S: u64 = 60;

/// Starts `qhca up` and waits until it says that the card is up.
fn start(guest: &mut Guest, words: &str) -> Result<(), Stop> {
    guest.must(&format!("rm -f /tmp/up; qhca up -d vfio:{CARD}{words} >/tmp/up 2>&1 &"), 30)?;
    let wait = format!("within {UP_S} 'grep -q \" is up\" /tmp/up || ! pidof qhca'; cat /tmp/up; pidof qhca");
    guest.must(&wait, UP_S).map(drop)
}

/// Waits until nobody holds the card.
fn gone(guest: &mut Guest) -> Result<(), Stop> {
    guest.must(&format!("within {DOWN_S} '! pidof qhca'"), DOWN_S).map(drop)
}

/// The card is brought up and held.
pub(super) fn up(bench: &mut Bench) -> Verdict {
    start(&mut bench.guest, "")?;
    let text = bench.guest.must("cat /tmp/up", 10)?;
    Ok(text.lines().find(|line| line.contains(" is up")).unwrap_or_default().to_owned())
}

/// A second `qhca up` is refused, and told the holder's process and command.
pub(super) fn second_up(bench: &mut Bench) -> Verdict {
    let pid = bench.guest.must("pidof qhca", 10)?;
    let refused = format!("qhca up -d vfio:{CARD} 2>&1; echo status $?");
    let text = bench.guest.must(&refused, UP_S)?;
    ensure!(text.contains("status 3"), "a second `qhca up` ended otherwise than with 3: {text:?}");
    for part in [pid.trim(), "qhca up"] {
        ensure!(text.contains(part), "a second `qhca up` does not name {part:?}: {text:?}");
    }
    Ok(text.lines().find(|line| line.contains(pid.trim())).unwrap_or_default().to_owned())
}

/// While the card is held, others are answered over the holder's socket.
pub(super) fn asked(bench: &mut Bench) -> Verdict {
    let guest = &mut bench.guest;
    let linked = format!("qhca info -d {CARD} qib0 1 | grep -q LinkUp");
    guest.must(&format!("within {UP_S} '{linked}'"), UP_S)?;
    let counters = guest.must(&format!("qhca counters --json -d {CARD} 2>/dev/null"), 30)?;
    let counters: Result<Value, _> = serde_json::from_str(&counters);
    ensure!(counters.is_ok(), "qhca counters --json prints no JSON: {counters:?}");
    let register = guest.must(&format!("qhca regs Revision -d {CARD}"), 30)?;
    ensure!(register.contains("Revision"), "qhca regs Revision prints {register:?}");
    bench.server.order("cable a:1 out")?;
    let wait = format!("within {DOWN_S} 'qhca events -d {CARD} | grep -qi down'; qhca events -d {CARD}");
    let events = bench.guest.must(&wait, DOWN_S)?;
    bench.server.order("cable a:1 in")?;
    ensure!(events.to_lowercase().contains("down"), "no event tells of the pulled cable: {events:?}");
    Ok(format!("info, counters, regs, and {} events", events.lines().count()))
}

/// After `kill -9` the next holder finds nothing that hinders it.
pub(super) fn killed(bench: &mut Bench) -> Verdict {
    bench.guest.must("killall -9 qhca", 10)?;
    gone(&mut bench.guest)?;
    start(&mut bench.guest, "")?;
    Ok("the next `qhca up` works".to_owned())
}

/// SIGTERM ends it with 0, and nothing of it is left.
pub(super) fn ends(bench: &mut Bench) -> Verdict {
    bench.guest.must("killall -TERM qhca", 10)?;
    gone(&mut bench.guest)?;
    let left =
        bench.guest.must(&format!("ls /run/qhca | grep -c sock; qhca info --no-link -d vfio:{CARD}"), 60)?;
    ensure_eq!(left.lines().next(), Some("0"), "the number of sockets in /run/qhca");
    Ok("no socket left, and the card can be opened".to_owned())
}

/// The kernel takes the card out while it is held, as it does for one that is pulled: it asks for it back (REQ), the holder
/// lets go, and the machine goes on without it. Found again, the card is as good as before. QEMU's own `device_del` is not
/// used: version 11.1.3 fails an assertion (`memory_region_del_subregion`) in its `vfio-user-pci`.
pub(super) fn unplugged(bench: &mut Bench) -> Verdict {
    let guest = &mut bench.guest;
    start(guest, "")?;
    let device = format!("/sys/bus/pci/devices/{CARD}");
    guest.must(&format!("echo 1 >{device}/remove"), DOWN_S)?;
    gone(guest)?;
    guest.must(&format!("! test -e {device}"), 10)?;
    let said = guest.must("tail -n 4 /tmp/up", 10)?;
    let list = guest.must("qhca list", 30)?;
    ensure!(!list.contains(CARD), "qhca list still shows the card: {list:?}");
    guest.must("echo 1 >/sys/bus/pci/rescan", 30)?;
    guest.must(&format!("qhca bind {CARD}"), 60)?;
    guest.must(&format!("qhca info -d vfio:{CARD}"), UP_S)?;
    Ok(format!("let go: {}; and open again after it was found again", said.trim().replace('\n', " | ")))
}
