//! The seam to a machine's files: what can be asked of them, and what can be ordered.
//!
//! Two traits, because most of this room only looks. Paths are absolute and as the running kernel has them; whoever
//! implements the traits decides what lies behind.

use std::io;
use std::time::Duration;

/// What a name in a folder stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeKind {
    /// Something with content.
    File,
    /// A folder.
    Folder,
    /// A device node, a socket or a pipe: not to be read for text.
    Special,
}

/// What the file system says of a file, behind all links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    /// What it is.
    pub kind: NodeKind,
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

/// Looking at a machine's files.
pub trait Look {
    /// The first bytes of a file, `limit_bytes` at most.
    ///
    /// # Errors
    /// What the system says.
    fn read(&self, path: &str, limit_bytes: usize) -> io::Result<Vec<u8>>;

    /// Where a link leads, as it is written.
    ///
    /// # Errors
    /// What the system says; `InvalidInput` for what is no link.
    fn read_link(&self, path: &str) -> io::Result<String>;

    /// The path behind all links.
    ///
    /// # Errors
    /// What the system says.
    fn real_path(&self, path: &str) -> io::Result<String>;

    /// The names in a folder, sorted; those that are not text are left out.
    ///
    /// # Errors
    /// What the system says.
    fn list(&self, path: &str) -> io::Result<Vec<String>>;

    /// What the file system says of a file, behind all links.
    ///
    /// # Errors
    /// What the system says.
    fn stat(&self, path: &str) -> io::Result<Node>;
}

/// Giving orders to a machine.
pub trait Edit: Look {
    /// Writes `text` to a file that is there, by one call; gives up after `within`.
    ///
    /// # Errors
    /// What the system says; `TimedOut` if the kernel still works on it.
    fn write(&mut self, path: &str, text: &str, within: Duration) -> io::Result<()>;

    /// Makes a file with this content, or puts it in the place of what is there; never half of it.
    ///
    /// # Errors
    /// What the system says.
    fn put_file(&mut self, path: &str, text: &str) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// What the system says.
    fn remove_file(&mut self, path: &str) -> io::Result<()>;

    /// Gives a node to this user, readable and writable for them alone.
    ///
    /// # Errors
    /// What the system says.
    fn give_to(&mut self, path: &str, uid: u32) -> io::Result<()>;

    /// Loads a kernel module.
    ///
    /// # Errors
    /// What `modprobe` says.
    fn load_module(&mut self, name: &str) -> io::Result<()>;

    /// Lets some time pass.
    fn pause(&mut self, time: Duration);
}
