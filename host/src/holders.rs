//! Who has a card open.
//!
//! The kernel does not say which process holds a device. What it does say is which files each process has open
//! (`/proc/PID/fd`), to the owner of the process and to root. Processes of other users are therefore counted as not
//! seen, so that "nobody" is never claimed without having looked.

use crate::card::Card;
use crate::read::Reader;
use std::fmt;
use std::io::ErrorKind;

/// A process that has a card open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Its number.
    pub pid: u32,
    /// Its command line, cut to a readable length.
    pub command: String,
    /// The file by which it holds the card.
    pub path: String,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} ({}) has {} open", self.pid, self.command, self.path)
    }
}

/// What a look at all processes gave.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holders {
    /// Those that have one of the files open.
    pub found: Vec<Holder>,
    /// Processes whose files this user may not see.
    pub unseen: usize,
}

/// Most descriptors of one process that are looked at.
const FDS_MAX: usize = 1 << 14;
/// Most bytes of a command line that are shown.
const COMMAND_BYTES: usize = 120;

/// Looks for processes that hold `card`, by VFIO or by the kernel driver's own nodes.
pub fn holders(reader: Reader<'_>, card: &Card) -> Holders {
    let mut paths: Vec<String> = card.cdev.iter().cloned().collect();
    if let Ok(Some(group)) = &card.group {
        paths.push(group.node());
    }
    let verbs = reader.names(&format!("{}/infiniband_verbs", card.folder())).unwrap_or_default();
    paths.extend(verbs.iter().map(|name| format!("/dev/infiniband/{name}")));
    let takes = |target: &str| {
        paths.iter().any(|path| path == target)
            || (!verbs.is_empty() && target.starts_with("/dev/ipath"))
            || (target.contains(&format!("/{}/resource", card.bdf)))
    };
    open_files(reader, takes)
}

fn open_files(reader: Reader<'_>, takes: impl Fn(&str) -> bool) -> Holders {
    let mut holders = Holders::default();
    for name in reader.names("/proc").unwrap_or_default() {
        let Ok(pid) = name.parse::<u32>() else { continue };
        match reader.look().list(&format!("/proc/{pid}/fd")) {
            Ok(fds) => {
                let targets = fds.iter().take(FDS_MAX);
                let mut targets =
                    targets.filter_map(|fd| reader.look().read_link(&format!("/proc/{pid}/fd/{fd}")).ok());
                if let Some(path) = targets.find(|target| takes(target)) {
                    holders.found.push(Holder { pid, command: command_of(reader, pid), path });
                }
            }
            Err(error) if error.kind() == ErrorKind::PermissionDenied => holders.unseen += 1,
            // It has ended since.
            Err(_) => {}
        }
    }
    holders
}

/// The command line of a process, or its name.
pub(crate) fn command_of(reader: Reader<'_>, pid: u32) -> String {
    // It is bytes, with zeros between the words.
    let bytes = reader.look().read(&format!("/proc/{pid}/cmdline"), COMMAND_BYTES).unwrap_or_default();
    let words = String::from_utf8_lossy(&bytes).replace('\0', " ");
    match words.trim() {
        "" => reader.word(&format!("/proc/{pid}/comm")).unwrap_or_else(|_| "unknown".to_owned()),
        words => words.chars().filter(|c| !c.is_control()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::FakeHost;

    fn card(host: &FakeHost) -> Card {
        Card::read(Reader::new(host), "04:00.0".parse().expect("an address"))
    }

    /// B120: whoever holds the device is named by number and command.
    #[test]
    fn process_that_holds_the_group_is_named_and_others_are_not() {
        let mut host = FakeHost::with_card("vfio-pci");
        host.process(611, "/usr/bin/qhca\0up\0-d\0", &["/dev/null", "/dev/vfio/26"]);
        host.process(612, "cat\0", &["/dev/vfio/27"]);
        host.process(613, "qemu\0", &["/dev/vfio/devices/vfio0"]);
        let found = holders(Reader::new(&host), &card(&host));
        let told: Vec<String> = found.found.iter().map(Holder::to_string).collect();
        assert_eq!(
            told,
            [
                "process 611 (/usr/bin/qhca up -d) has /dev/vfio/26 open",
                "process 613 (qemu) has /dev/vfio/devices/vfio0 open"
            ]
        );
    }

    #[test]
    fn processes_that_may_not_be_looked_at_are_counted() {
        let mut host = FakeHost::with_card("vfio-pci");
        host.process(611, "x\0", &[]);
        host.deny("/proc/611/fd");
        assert_eq!(holders(Reader::new(&host), &card(&host)), Holders { found: Vec::new(), unseen: 1 });
    }

    #[test]
    fn command_line_of_any_bytes_is_one_short_line() {
        let mut host = FakeHost::empty();
        host.bytes("/proc/7/cmdline", &b"\xff\x1b[31m\0\n".repeat(100));
        let command = command_of(Reader::new(&host), 7);
        assert!(
            !command.contains(char::is_control) && command.chars().count() <= COMMAND_BYTES,
            "{command:?}"
        );
        host.file("/proc/8/cmdline", "");
        host.file("/proc/8/comm", "kworker\n");
        assert_eq!(command_of(Reader::new(&host), 8), "kworker");
    }
}
