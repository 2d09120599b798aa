//! Where a held device's files are, and the lock that says who holds it.

use crate::fail::{Failure, Status};
use qhca::Spec;
use qhca_driver::sys::try_lock_file;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Names the folder, if it is to be another than the usual ones.
const FOLDER_VARIABLE: &str = "QHCA_RUN_DIR";
/// Where root's programs keep such files.
const SYSTEM_FOLDER: &str = "/run/qhca";
/// Most bytes of a lock file.
const LOCK_BYTES: u64 = 4096;
/// How often a lock that is taken is tried again while no holder is to be seen.
const LOOKS: usize = 10;
/// TIMEOUT: ours; whoever only looks has the lock for microseconds.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Most characters of a command line that are kept.
const COMMAND_CHARS: usize = 200;

/// The folders that may hold a device's files, the first one first.
pub(crate) fn folders() -> Vec<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value: &OsString| !value.is_empty());
    match set(FOLDER_VARIABLE) {
        Some(folder) => vec![folder.into()],
        None => {
            let user = set("XDG_RUNTIME_DIR").map(|folder| Path::new(&folder).join("qhca"));
            std::iter::once(SYSTEM_FOLDER.into()).chain(user).collect()
        }
    }
}

/// What a device is called among those that are held: a card by its address, however it is opened.
pub(crate) fn name_of(device: &Spec) -> String {
    match device {
        Spec::Pci { address, .. } => address.to_string(),
        other => other.to_string(),
    }
}

/// A device's name as part of a file's: what would not do there becomes a line.
pub(crate) fn file_name(device: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "._:-".contains(c) { c } else { '-' };
    device.chars().map(plain).collect()
}

/// The socket of a held device, in any of the folders.
pub(crate) fn find_socket(device: &str) -> Option<PathBuf> {
    let name = format!("{}.sock", file_name(device));
    folders().into_iter().map(|folder| folder.join(&name)).find(|path| path.exists())
}

/// The names of devices that somebody holds.
pub(crate) fn held_names() -> Vec<String> {
    let entries = folders().into_iter().filter_map(|folder| fs::read_dir(folder).ok()).flatten().flatten();
    let mut names: Vec<String> =
        entries.filter_map(|e| e.file_name().to_str()?.strip_suffix(".sock").map(str::to_owned)).collect();
    names.retain(|name| holder_of(name).is_some());
    names.sort();
    names
}

/// Who holds a device, as the lock file says.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub(crate) struct Holder {
    pub(crate) pid: u32,
    pub(crate) command: String,
}

impl Holder {
    /// Whether its process still runs.
    fn is_there(&self) -> bool {
        Path::new(&format!("/proc/{}", self.pid)).exists()
    }

    fn this_process() -> Self {
        let words: Vec<String> =
            std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
        Self { pid: std::process::id(), command: words.join(" ").chars().take(COMMAND_CHARS).collect() }
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} ({})", self.pid, self.command)
    }
}

/// The right to hold a device; it ends with this value, or with the process.
#[derive(Debug)]
pub(crate) struct Claim {
    folder: PathBuf,
    name: String,
    // Locked as long as it is open.
    lock: File,
}

impl Claim {
    /// Takes the right to hold `device`.
    pub(crate) fn take(device: &str) -> Result<Self, Failure> {
        let (folder, name) = (own_folder()?, file_name(device));
        let path = folder.join(format!("{name}.lock"));
        let failed = |error: io::Error| {
            Failure::new(Status::Missing, format!("{}: {error}", path.display()))
                .remedy(format!("see who owns the folder, or set {FOLDER_VARIABLE} to one of your own"))
        };
        for look in 1.. {
            let mut lock = OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .open(&path)
                .map_err(failed)?;
            if !try_lock_file(&lock).map_err(failed)? {
                let holder = read_holder(&lock);
                // Somebody who looks has the lock for a moment; who holds the device has said who they are.
                if look < LOOKS && !holder.as_ref().is_some_and(Holder::is_there) {
                    std::thread::sleep(LOOK_EVERY);
                    continue;
                }
                let who = holder.map_or("another process".to_owned(), |holder| holder.to_string());
                return Err(Failure::new(Status::Missing, format!("{device} is held by {who}"))
                    .remedy(format!("look at it with `qhca info -d up:{name}`, or end that process")));
            }
            // Whoever had it may have removed it between the two calls; a lock on a file without a name locks nobody out.
            let is_current =
                fs::metadata(&path).is_ok_and(|there| lock.metadata().is_ok_and(|l| l.ino() == there.ino()));
            if is_current {
                write_holder(&mut lock).map_err(failed)?;
                return Ok(Self { folder, name, lock });
            }
        }
        Err(Failure::new(Status::Missing, format!("{}: it is removed again and again", path.display())))
    }

    /// Where its socket is to be.
    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.join(format!("{}.sock", self.name))
    }

    /// A folder of this process alone, in which a socket is made before others see it.
    pub(crate) fn private_folder(&self) -> PathBuf {
        self.folder.join(format!(".{}.{}", self.name, std::process::id()))
    }

    /// The name that others call it by.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // What is left behind hinders nobody: the socket is replaced and the file is unlocked.
        let _ = fs::remove_file(self.socket());
        let _ = self.lock.set_len(0);
        let _ = fs::remove_file(self.folder.join(format!("{}.lock", self.name)));
    }
}

/// Who holds `device`, if a lock file says so and the process is there.
pub(crate) fn holder_of(device: &str) -> Option<Holder> {
    let name = format!("{}.lock", file_name(device));
    folders().into_iter().find_map(|folder| {
        let lock = File::open(folder.join(&name)).ok()?;
        // A lock that can be had is held by nobody.
        match try_lock_file(&lock) {
            Ok(false) => read_holder(&lock),
            _ => None,
        }
    })
}

/// The first folder that this user may write to, made if need be.
fn own_folder() -> Result<PathBuf, Failure> {
    let mut refusals = Vec::new();
    for folder in folders() {
        match fs::create_dir_all(&folder).and_then(|()| probe(&folder)) {
            Ok(()) => return Ok(folder),
            Err(error) => refusals.push(format!("{}: {error}", folder.display())),
        }
    }
    Err(Failure::new(
        Status::Missing,
        format!("no folder for the device's lock and socket: {}", refusals.join("; ")),
    )
    .remedy(format!("run it as root, or set {FOLDER_VARIABLE} to a folder of your own")))
}

/// Whether a file can be made there.
fn probe(folder: &Path) -> io::Result<()> {
    let path = folder.join(format!(".probe.{}", std::process::id()));
    File::create(&path)?;
    fs::remove_file(path)
}

fn read_holder(lock: &File) -> Option<Holder> {
    let mut text = String::new();
    let mut lock = lock;
    lock.rewind().ok()?;
    lock.take(LOCK_BYTES).read_to_string(&mut text).ok()?;
    serde_json::from_str(&text).ok()
}

fn write_holder(lock: &mut File) -> io::Result<()> {
    let text = serde_json::to_string(&Holder::this_process()).map_err(io::Error::other)?;
    lock.set_len(0)?;
    lock.rewind()?;
    lock.write_all(text.as_bytes())?;
    lock.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_name_is_a_plain_file_name() {
        assert_eq!(file_name("0000:04:00.0"), "0000:04:00.0");
        assert_eq!(file_name("vfio-user:/tmp/../x y"), "vfio-user:-tmp-..-x-y");
        assert!(!file_name("/../../etc\0").contains(['/', '\0']));
    }
}
