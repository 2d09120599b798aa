//! A machine's files as they are, below a folder: `/` for the running machine, another for a copy of its files.

use crate::look::{Edit, Look, Node, NodeKind};
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc;
use std::time::Duration;

/// Most names of one folder that are looked at.
const NAMES_MAX: usize = 1 << 16;

/// The files below a folder.
#[derive(Clone, Debug)]
pub struct RealHost {
    root: PathBuf,
}

impl RealHost {
    /// The files below `root`.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    fn is_live(&self) -> bool {
        self.root == Path::new("/")
    }

    /// Orders go to the running machine alone: a copy of its files obeys nobody.
    fn live_only(&self) -> io::Result<()> {
        match self.is_live() {
            true => Ok(()),
            false => Err(io::Error::new(
                io::ErrorKind::Unsupported,
                format!("{} is a copy of a machine's files, and takes no orders", self.root.display()),
            )),
        }
    }
}

impl Look for RealHost {
    fn read(&self, path: &str, limit_bytes: usize) -> io::Result<Vec<u8>> {
        let path = self.at(path);
        // Opening a pipe would wait for somebody at its other end.
        if !fs::metadata(&path)?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no plain file"));
        }
        let mut bytes = Vec::new();
        fs::File::open(path)?.take(limit_bytes as u64).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    fn read_link(&self, path: &str) -> io::Result<String> {
        Ok(fs::read_link(self.at(path))?.to_string_lossy().into_owned())
    }

    fn real_path(&self, path: &str) -> io::Result<String> {
        let real = fs::canonicalize(self.at(path))?;
        let root = fs::canonicalize(&self.root)?;
        let inside = real.strip_prefix(&root).unwrap_or(&real);
        Ok(format!("/{}", inside.to_string_lossy().trim_start_matches('/')))
    }

    fn list(&self, path: &str) -> io::Result<Vec<String>> {
        let entries = fs::read_dir(self.at(path))?.take(NAMES_MAX);
        let mut names: Vec<String> =
            entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
        names.sort();
        Ok(names)
    }

    fn stat(&self, path: &str) -> io::Result<Node> {
        let meta = fs::metadata(self.at(path))?;
        let kind = match (meta.is_file(), meta.is_dir()) {
            (true, _) => NodeKind::File,
            (_, true) => NodeKind::Folder,
            _ => NodeKind::Special,
        };
        Ok(Node { kind, mode: meta.mode() & 0o7777, uid: meta.uid(), gid: meta.gid() })
    }
}

impl Edit for RealHost {
    fn write(&mut self, path: &str, text: &str, within: Duration) -> io::Result<()> {
        self.live_only()?;
        let (path, text) = (self.at(path), text.to_owned());
        let (done, result) = mpsc::channel();
        // The kernel answers an unbind when whoever holds the device has let go of it, which may be never: the write has
        // a thread of its own, and this one goes on.
        std::thread::spawn(move || {
            let wrote = fs::OpenOptions::new()
                .write(true)
                .open(path)
                .and_then(|mut file| file.write_all(text.as_bytes()));
            // Nobody may be waiting any more.
            let _ = done.send(wrote);
        });
        result.recv_timeout(within).unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }

    fn put_file(&mut self, path: &str, text: &str) -> io::Result<()> {
        self.live_only()?;
        let path = self.at(path);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}.new", std::process::id()));
        let fresh = path.with_file_name(name);
        let put = || {
            let mut file = fs::File::create(&fresh)?;
            file.write_all(text.as_bytes())?;
            file.set_permissions(fs::Permissions::from_mode(0o644))?;
            file.sync_all()?;
            fs::rename(&fresh, &path)
        };
        put().inspect_err(|_| {
            // It may not have been made.
            let _ = fs::remove_file(&fresh);
        })
    }

    fn remove_file(&mut self, path: &str) -> io::Result<()> {
        self.live_only()?;
        fs::remove_file(self.at(path))
    }

    fn give_to(&mut self, path: &str, uid: u32) -> io::Result<()> {
        self.live_only()?;
        let path = self.at(path);
        std::os::unix::fs::chown(&path, Some(uid), None)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600))
    }

    fn load_module(&mut self, name: &str) -> io::Result<()> {
        self.live_only()?;
        let output = ["modprobe", "/sbin/modprobe", "/usr/sbin/modprobe"]
            .into_iter()
            .map(|program| Command::new(program).arg(name).output())
            .find(|output| !matches!(output, Err(error) if error.kind() == io::ErrorKind::NotFound))
            .unwrap_or_else(|| Err(io::Error::new(io::ErrorKind::NotFound, "there is no modprobe")))?;
        match output.status.success() {
            true => Ok(()),
            false => Err(io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_owned())),
        }
    }

    fn pause(&mut self, time: Duration) {
        std::thread::sleep(time);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copy_of_a_machine_takes_no_orders() {
        let mut copy = RealHost::new(std::env::temp_dir());
        let error = copy.put_file("/etc/modprobe.d/qhca.conf", "x").expect_err("a copy");
        assert_eq!(error.kind(), io::ErrorKind::Unsupported);
    }

    #[test]
    fn folder_and_pipe_are_not_read_as_text() {
        let error = RealHost::new("/").read("/proc", 10).expect_err("a folder");
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn paths_behind_links_are_told_from_the_root() {
        let dir = std::env::temp_dir().join(format!("qhca-real-{}", std::process::id()));
        fs::create_dir_all(dir.join("a/b")).expect("a folder");
        // A run that was ended may have left it.
        let _ = fs::remove_file(dir.join("l"));
        std::os::unix::fs::symlink("a/b", dir.join("l")).expect("a link");
        let host = RealHost::new(&dir);
        assert_eq!(host.real_path("/l").expect("a path"), "/a/b");
        assert_eq!(host.read_link("/l").expect("a link"), "a/b");
        fs::remove_dir_all(dir).expect("it was there");
    }
}
