//! A cpio archive in the form "newc": what the kernel unpacks as its first file system.
//!
//! ```text
//! 070701 ino mode uid gid links mtime size major minor rmajor rminor namesize 0   (each 8 hex digits)
//! name NUL, padded to 4 bytes; contents, padded to 4 bytes; … ; an entry called TRAILER!!!
//! ```

use std::collections::BTreeSet;

const FOLDER: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;
const LINK: u32 = 0o120_777;
const CHARACTER: u32 = 0o020_600;

/// An archive that grows entry by entry. A path that is there already is not added again.
pub(crate) struct Archive {
    bytes: Vec<u8>,
    paths: BTreeSet<String>,
}

impl Archive {
    /// An archive without entries.
    pub(crate) fn new() -> Self {
        Self { bytes: Vec::new(), paths: BTreeSet::new() }
    }

    /// Whether `path` is in the archive.
    pub(crate) fn has(&self, path: &str) -> bool {
        self.paths.contains(path)
    }

    /// Adds a folder and those above it.
    pub(crate) fn folder(&mut self, path: &str) {
        let ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
        for end in ends.filter(|end| *end > 0) {
            self.entry(&path[..end], FOLDER, &[], (0, 0));
        }
    }

    /// Adds a file that may be run, and the folders above it.
    pub(crate) fn file(&mut self, path: &str, contents: &[u8]) {
        self.above(path);
        self.entry(path, PROGRAM, contents, (0, 0));
    }

    /// Adds a symbolic link, and the folders above it.
    pub(crate) fn link(&mut self, path: &str, to: &str) {
        self.above(path);
        self.entry(path, LINK, to.as_bytes(), (0, 0));
    }

    /// Adds a character device.
    pub(crate) fn device(&mut self, path: &str, major: u32, minor: u32) {
        self.above(path);
        self.entry(path, CHARACTER, &[], (major, minor));
    }

    /// The whole archive.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, &[], (0, 0));
        self.bytes
    }

    fn above(&mut self, path: &str) {
        if let Some((folder, _)) = path.rsplit_once('/') {
            self.folder(folder);
        }
    }

    fn entry(&mut self, path: &str, mode: u32, contents: &[u8], device: (u32, u32)) {
        if !self.paths.insert(path.to_owned()) {
            return;
        }
        let number = self.paths.len();
        let (size, name_size) = (contents.len(), path.len() + 1);
        let header = format!(
            "070701{number:08X}{mode:08X}{0:08X}{0:08X}{1:08X}{0:08X}{size:08X}{0:08X}{0:08X}{2:08X}{3:08X}{name_size:08X}{0:08X}",
            0, 1, device.0, device.1
        );
        self.bytes.extend_from_slice(header.as_bytes());
        self.bytes.extend_from_slice(path.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(contents);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_aligned_and_folders_come_before_what_is_in_them() {
        let mut archive = Archive::new();
        archive.file("a/b/c", b"12345");
        archive.file("a/b/d", b"");
        archive.folder("a/b");
        let bytes = archive.finish();
        let text = String::from_utf8_lossy(&bytes);
        let starts: Vec<usize> = text.match_indices("070701").map(|(at, _)| at).collect();
        assert_eq!(starts.len(), 5, "a, a/b, a/b/c, a/b/d, the trailer");
        assert!(starts.iter().all(|at| at % 4 == 0), "{starts:?}");
        assert!(bytes[starts[0] + 110..].starts_with(b"a\0"), "the name follows 110 bytes of header");
        assert_eq!(&bytes[starts[2] + 54..starts[2] + 62], b"00000005", "the size of a/b/c");
    }
}
