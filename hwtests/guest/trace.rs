//! The server's record of register accesses, as the scenarios judge a driver by it.
//!
//! ```text
//! 17.785569 R8 000000 0000000202010602 Revision
//! ```

use crate::fail::Stop;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// One access.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Access {
    pub(crate) write: bool,
    pub(crate) offset: u64,
    pub(crate) value: u64,
    /// The register's name, `-` for what is none.
    pub(crate) name: String,
}

impl Access {
    /// Reads a line; `None` for one that is no access.
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split_whitespace().skip(1);
        let write = match words.next()?.as_bytes().first()? {
            b'W' => true,
            b'R' => false,
            _ => return None,
        };
        let offset = u64::from_str_radix(words.next()?, 16).ok()?;
        let value = u64::from_str_radix(words.next()?, 16).ok()?;
        Some(Self { write, offset, value, name: words.next().unwrap_or("-").to_owned() })
    }
}

/// A trace that a server is writing.
pub(crate) struct Trace {
    path: PathBuf,
    at: u64,
}

impl Trace {
    /// The trace in a file, from its beginning.
    pub(crate) fn of(path: &Path) -> Self {
        Self { path: path.to_owned(), at: 0 }
    }

    /// What was written since the last call, whole lines only.
    pub(crate) fn since(&mut self) -> Result<Vec<Access>, Stop> {
        let failed = |error| Stop::file(&self.path, &error);
        let mut file = File::open(&self.path).map_err(failed)?;
        file.seek(SeekFrom::Start(self.at)).map_err(failed)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(failed)?;
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
        self.at += whole as u64;
        Ok(String::from_utf8_lossy(&bytes[..whole]).lines().filter_map(Access::parse).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accesses_are_read_and_other_lines_are_not() {
        let read = Access::parse("17.785569 R8 000000 0000000202010602 Revision");
        assert_eq!(
            read.map(|access| (access.write, access.value, access.name)),
            Some((false, 0x2_0201_0602, "Revision".to_owned()))
        );
        assert!(
            Access::parse("17.78 W4 100000 0000002a -")
                .is_some_and(|access| access.write && access.offset == 0x10_0000)
        );
        assert_eq!(Access::parse("17.78 I 3"), None);
        assert_eq!(Access::parse(""), None);
    }
}
