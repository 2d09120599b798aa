//! Who has a device node open: the process that a second opener is told of.

use std::fmt;
use std::path::Path;

use super::kernel::{Calls, Kernel};

/// A process that has the card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Its id.
    pub pid: u32,
    /// Its command line, cut after some words.
    pub command: String,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} ({})", self.pid, self.command)
    }
}

/// Most characters of a command line that are repeated.
const COMMAND_CHARS: usize = 120;

/// The process that has `node` open, if this user may see it. Without rights over the process its descriptors are
/// hidden, and nobody is found.
pub(super) fn find<K: Kernel>(calls: &Calls<K>, node: &Path) -> Option<Holder> {
    let processes = calls.list(Path::new("/proc")).ok()?;
    processes.iter().filter_map(|name| name.to_str()?.parse().ok()).find_map(|pid: u32| {
        let folder = Path::new("/proc").join(pid.to_string());
        let descriptors = calls.list(&folder.join("fd")).ok()?;
        let holds = |name| calls.read_link(&folder.join("fd").join(name)).is_ok_and(|target| target == node);
        descriptors.iter().any(holds).then(|| Holder { pid, command: command_of(calls, &folder) })
    })
}

/// The command line with blanks between its words, and what a terminal would obey left out.
fn command_of<K: Kernel>(calls: &Calls<K>, folder: &Path) -> String {
    let read = |name: &str| calls.read_text(&folder.join(name)).ok().filter(|text| !text.is_empty());
    let text = read("cmdline").or_else(|| read("comm")).unwrap_or_else(|| "command unknown".to_owned());
    let shown = |char: char| if char.is_control() { ' ' } else { char };
    let line: String = text.chars().map(shown).take(COMMAND_CHARS).collect();
    line.trim().to_owned()
}
