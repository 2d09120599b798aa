//! Reading one fact from one file, and saying why where that does not succeed.
//!
//! The kernel's small files hold one word or number and a line end. What is longer than any of them can be is not read
//! to its end; what is not text, not a number, or out of the range that the fact can have is refused, with the file's
//! name. A fact is a `Result`, so that "there is none" and "it could not be told" stay apart.

use crate::look::{Look, NodeKind};
use std::fmt;
use std::io;

/// What one file said, or why it said nothing.
pub type Fact<T> = Result<T, Unread>;

/// A file that did not tell what it should.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unread {
    /// The file.
    pub path: String,
    /// What is wrong with it.
    pub why: Why,
}

/// What is wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Why {
    /// It is not there.
    Missing,
    /// This user may not read it.
    Denied,
    /// There is nothing in it.
    Empty,
    /// It is longer than such a file can be.
    Huge {
        /// The most that is read.
        limit_bytes: usize,
    },
    /// It holds bytes that are no text.
    NotText,
    /// It says something that cannot be.
    Odd {
        /// What it says, cut to a readable length.
        says: String,
        /// What it should say.
        valid: &'static str,
    },
    /// The system says something else.
    System(String),
}

impl Unread {
    /// The file `path` says `says`, which is not `valid`.
    pub(crate) fn odd(path: &str, says: &str, valid: &'static str) -> Self {
        let says = says.chars().take(SHOWN_CHARS).collect();
        Self { path: path.to_owned(), why: Why::Odd { says, valid } }
    }

    fn new(path: &str, why: Why) -> Self {
        Self { path: path.to_owned(), why }
    }

    pub(crate) fn system(path: &str, error: &io::Error) -> Self {
        let why = match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Why::Missing,
            io::ErrorKind::PermissionDenied => Why::Denied,
            _ => Why::System(error.to_string()),
        };
        Self::new(path, why)
    }

    /// Whether the file is not there.
    pub fn is_missing(&self) -> bool {
        self.why == Why::Missing
    }
}

/// Most characters of a file that a message repeats.
const SHOWN_CHARS: usize = 40;

impl fmt::Display for Unread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = &self.path;
        match &self.why {
            Why::Missing => write!(f, "{path} is not there"),
            Why::Denied => write!(f, "{path} may not be read by this user"),
            Why::Empty => write!(f, "{path} is empty"),
            Why::Huge { limit_bytes } => {
                write!(f, "{path} is longer than {limit_bytes} bytes, which it cannot be")
            }
            Why::NotText => write!(f, "{path} holds bytes that are no text"),
            Why::Odd { says, valid } => write!(f, "{path} says {says:?}, which is not {valid}"),
            Why::System(what) => write!(f, "{path}: {what}"),
        }
    }
}

impl std::error::Error for Unread {}

/// Most bytes of a file that holds one word; the kernel writes a page at most.
const WORD_FILE_BYTES: usize = 4096;

/// Reads facts from a machine's files.
#[derive(Clone, Copy)]
pub struct Reader<'a> {
    look: &'a dyn Look,
}

impl<'a> Reader<'a> {
    /// Reads from `look`.
    pub fn new(look: &'a dyn Look) -> Self {
        Self { look }
    }

    /// What lies behind.
    pub(crate) fn look(&self) -> &'a dyn Look {
        self.look
    }

    /// The text of a small file, without blanks around it.
    ///
    /// # Errors
    /// [`Unread`].
    pub fn word(&self, path: &str) -> Fact<String> {
        let text = self.text(path, WORD_FILE_BYTES)?;
        match text.trim() {
            "" => Err(Unread::new(path, Why::Empty)),
            word => Ok(word.to_owned()),
        }
    }

    /// The text of a file of at most `limit_bytes`; it may be empty.
    ///
    /// # Errors
    /// [`Unread`].
    pub fn text(&self, path: &str, limit_bytes: usize) -> Fact<String> {
        let bytes = self.look.read(path, limit_bytes + 1).map_err(|error| Unread::system(path, &error))?;
        if bytes.len() > limit_bytes {
            return Err(Unread::new(path, Why::Huge { limit_bytes }));
        }
        String::from_utf8(bytes).map_err(|_| Unread::new(path, Why::NotText))
    }

    /// A number in decimal, or in hex behind `0x`, of at most `most`.
    ///
    /// # Errors
    /// [`Unread`].
    pub fn number(&self, path: &str, most: u64, valid: &'static str) -> Fact<u64> {
        let word = self.word(path)?;
        let number = match word.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16),
            None => word.parse(),
        };
        match number {
            Ok(number) if number <= most => Ok(number),
            _ => Err(Unread::odd(path, &word, valid)),
        }
    }

    /// The last part of where a link leads; `None` if there is no link.
    ///
    /// # Errors
    /// [`Unread`].
    pub fn link_name(&self, path: &str) -> Fact<Option<String>> {
        match self.look.read_link(path) {
            Ok(target) => match target.rsplit('/').next() {
                Some(name) if !name.is_empty() && name.len() <= NAME_BYTES => Ok(Some(name.to_owned())),
                _ => Err(Unread::odd(path, &target, "a link to a name")),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Unread::system(path, &error)),
        }
    }

    /// The names in a folder; none if it is not there.
    ///
    /// # Errors
    /// [`Unread`].
    pub fn names(&self, path: &str) -> Fact<Vec<String>> {
        match self.look.list(path) {
            Ok(names) => Ok(names),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(Unread::system(path, &error)),
        }
    }

    /// Whether something of this name is there.
    pub fn exists(&self, path: &str) -> bool {
        self.look.stat(path).is_ok()
    }

    /// Whether a folder of this name is there.
    pub fn is_folder(&self, path: &str) -> bool {
        self.look.stat(path).is_ok_and(|node| node.kind == NodeKind::Folder)
    }
}

/// Most bytes of a name that is believed: what a file system can hold.
const NAME_BYTES: usize = 255;
