//! The system calls that the back end makes, as a trait: the real kernel, or one in a test.
//!
//! [`Kernel`] has one method a kind of call and nothing that thinks. [`Calls`] stands between it and everybody else: it
//! repeats a call that a signal interrupted, however often, so that a profiler's timer never looks like a refusal
//! (B16, B115).

use std::ffi::CStr;
use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use qhca_regs::Bar;

use super::command::Command;
use crate::dma::DmaMemory;
use crate::sys::{self, EventFd, MappedWindow};

/// A card's registers in this process.
pub trait Window: Send + Sync + 'static {
    /// What touches them.
    type Bar: Bar;
    /// The registers.
    fn bar(&self) -> &Self::Bar;

    /// Takes the card away from whoever still has the window: it reads all ones from then on.
    ///
    /// # Errors
    /// What the system says; the card is still there then.
    fn retire(&self) -> io::Result<()>;
}

impl Window for MappedWindow {
    type Bar = qhca_regs::MmioBar;

    #[inline]
    fn bar(&self) -> &Self::Bar {
        MappedWindow::bar(self)
    }

    fn retire(&self) -> io::Result<()> {
        MappedWindow::retire(self)
    }
}

/// The system calls. Each is made once; `Interrupted` is an answer like any other.
pub trait Kernel: Send + Sync + 'static {
    /// An open file.
    type Fd: Send + Sync + 'static;
    /// Registers, mapped.
    type Window: Window;

    /// Opens a device node for reading and writing.
    ///
    /// # Errors
    /// As `open(2)`.
    fn open(&self, path: &Path) -> io::Result<Self::Fd>;

    /// Where a symbolic link leads.
    ///
    /// # Errors
    /// As `readlink(2)`.
    fn read_link(&self, path: &Path) -> io::Result<PathBuf>;

    /// The names in a folder, in any order.
    ///
    /// # Errors
    /// As `opendir(3)`.
    fn list(&self, path: &Path) -> io::Result<Vec<PathBuf>>;

    /// The first bytes of a file, at most `len_bytes`.
    ///
    /// # Errors
    /// As `open(2)` and `read(2)`.
    fn read_file(&self, path: &Path, len_bytes: usize) -> io::Result<Vec<u8>>;

    /// Writes a file that exists.
    ///
    /// # Errors
    /// As `open(2)` and `write(2)`.
    fn write_file(&self, path: &Path, bytes: &[u8]) -> io::Result<()>;

    /// Makes a request whose argument is a number; gives what it returns.
    ///
    /// # Errors
    /// As `ioctl(2)`.
    fn request_value(&self, fd: &Self::Fd, command: Command, value: u32) -> io::Result<u32>;

    /// Makes a request whose argument is bytes that begin with their length; gives what it returns.
    ///
    /// # Errors
    /// As `ioctl(2)`.
    fn request_bytes(&self, fd: &Self::Fd, command: Command, bytes: &mut [u8]) -> io::Result<u32>;

    /// Has a group join a container.
    ///
    /// # Errors
    /// As `ioctl(2)`.
    fn set_container(&self, group: &Self::Fd, container: &Self::Fd) -> io::Result<()>;

    /// A descriptor for the device `name` of a group.
    ///
    /// # Errors
    /// As `ioctl(2)`.
    fn device_fd(&self, group: &Self::Fd, name: &CStr) -> io::Result<Self::Fd>;

    /// Maps memory into a container.
    ///
    /// # Errors
    /// As `ioctl(2)`.
    fn map_type1(&self, container: &Self::Fd, memory: &DmaMemory, iova: u64) -> io::Result<()>;

    /// Maps memory into an address space.
    ///
    /// # Errors
    /// As `ioctl(2)`.
    fn map_ioas(&self, iommufd: &Self::Fd, ioas_id: u32, memory: &DmaMemory, iova: u64) -> io::Result<()>;

    /// The ranges of an address space, as far as they fit; gives how many there are.
    ///
    /// # Errors
    /// As `ioctl(2)`.
    fn ioas_ranges(&self, iommufd: &Self::Fd, ioas_id: u32, ranges: &mut [[u64; 2]]) -> io::Result<u32>;

    /// The number by which a request names an open file.
    fn raw_fd(&self, fd: &Self::Fd) -> i32;

    /// A new counter that the kernel can raise.
    ///
    /// # Errors
    /// As `eventfd(2)`.
    fn event(&self) -> io::Result<Arc<EventFd>>;

    /// Reads a stretch of a device's file; gives how much was read.
    ///
    /// # Errors
    /// As `pread(2)`.
    fn read_at(&self, device: &Self::Fd, bytes: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes a stretch of a device's file; gives how much was written.
    ///
    /// # Errors
    /// As `pwrite(2)`.
    fn write_at(&self, device: &Self::Fd, bytes: &[u8], offset: u64) -> io::Result<usize>;

    /// Maps areas of a region.
    ///
    /// # Errors
    /// As `mmap(2)`.
    fn map_window(
        &self,
        device: &Self::Fd,
        offset: u64,
        len_bytes: u32,
        areas: &[Range<u32>],
    ) -> io::Result<Self::Window>;

    /// How many bytes this process may lock in memory; `None` is without limit.
    ///
    /// # Errors
    /// As `getrlimit(2)`.
    fn memlock_limit_bytes(&self) -> io::Result<Option<u64>>;
}

/// The kernel that this program runs on.
#[derive(Clone, Copy, Debug, Default)]
pub struct Linux;

impl Kernel for Linux {
    type Fd = File;
    type Window = MappedWindow;

    fn open(&self, path: &Path) -> io::Result<File> {
        File::options().read(true).write(true).open(path)
    }

    fn read_link(&self, path: &Path) -> io::Result<PathBuf> {
        std::fs::read_link(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        std::fs::read_dir(path)?.map(|entry| entry.map(|entry| entry.file_name().into())).collect()
    }

    fn read_file(&self, path: &Path, len_bytes: usize) -> io::Result<Vec<u8>> {
        use std::io::Read;
        let mut bytes = Vec::new();
        File::open(path)?.take(len_bytes as u64).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    fn write_file(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        use std::io::Write;
        File::options().write(true).open(path)?.write_all(bytes)
    }

    fn request_value(&self, fd: &File, command: Command, value: u32) -> io::Result<u32> {
        sys::request_value(fd, command, value)
    }

    fn request_bytes(&self, fd: &File, command: Command, bytes: &mut [u8]) -> io::Result<u32> {
        sys::request_bytes(fd, command, bytes)
    }

    fn set_container(&self, group: &File, container: &File) -> io::Result<()> {
        sys::set_container(group, container)
    }

    fn device_fd(&self, group: &File, name: &CStr) -> io::Result<File> {
        sys::device_fd(group, name)
    }

    fn map_type1(&self, container: &File, memory: &DmaMemory, iova: u64) -> io::Result<()> {
        sys::map_type1(container, memory, iova)
    }

    fn map_ioas(&self, iommufd: &File, ioas_id: u32, memory: &DmaMemory, iova: u64) -> io::Result<()> {
        sys::map_ioas(iommufd, ioas_id, memory, iova)
    }

    fn ioas_ranges(&self, iommufd: &File, ioas_id: u32, ranges: &mut [[u64; 2]]) -> io::Result<u32> {
        sys::ioas_ranges(iommufd, ioas_id, ranges)
    }

    fn raw_fd(&self, fd: &File) -> i32 {
        std::os::fd::AsRawFd::as_raw_fd(fd)
    }

    fn event(&self) -> io::Result<Arc<EventFd>> {
        EventFd::new().map(Arc::new)
    }

    fn read_at(&self, device: &File, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        FileExt::read_at(device, bytes, offset)
    }

    fn write_at(&self, device: &File, bytes: &[u8], offset: u64) -> io::Result<usize> {
        FileExt::write_at(device, bytes, offset)
    }

    fn map_window(
        &self,
        device: &File,
        offset: u64,
        len_bytes: u32,
        areas: &[Range<u32>],
    ) -> io::Result<MappedWindow> {
        MappedWindow::new(device, offset, len_bytes, areas)
    }

    fn memlock_limit_bytes(&self) -> io::Result<Option<u64>> {
        sys::memlock_limit_bytes()
    }
}

/// The kernel, asked again while a signal interrupts.
pub(super) struct Calls<K> {
    kernel: Arc<K>,
}

impl<K> Clone for Calls<K> {
    fn clone(&self) -> Self {
        Self { kernel: self.kernel.clone() }
    }
}

/// Calls `call` until it is not interrupted.
fn whole<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

impl<K: Kernel> Calls<K> {
    pub(super) fn new(kernel: K) -> Self {
        Self { kernel: Arc::new(kernel) }
    }

    pub(super) fn open(&self, path: &Path) -> io::Result<K::Fd> {
        whole(|| self.kernel.open(path))
    }

    pub(super) fn read_link(&self, path: &Path) -> io::Result<PathBuf> {
        whole(|| self.kernel.read_link(path))
    }

    pub(super) fn list(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        whole(|| self.kernel.list(path))
    }

    pub(super) fn read_file(&self, path: &Path, len_bytes: usize) -> io::Result<Vec<u8>> {
        whole(|| self.kernel.read_file(path, len_bytes))
    }

    /// The file's words as text, without blanks around them; what is no text is replaced.
    pub(super) fn read_text(&self, path: &Path) -> io::Result<String> {
        /// Files of sysfs and procfs that are read here are a line or a page; one that is longer is cut.
        const TEXT_BYTES: usize = 64 * 1024;
        let bytes = self.read_file(path, TEXT_BYTES)?;
        Ok(String::from_utf8_lossy(&bytes).trim().to_owned())
    }

    pub(super) fn write_file(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        whole(|| self.kernel.write_file(path, bytes))
    }

    pub(super) fn request_value(&self, fd: &K::Fd, command: Command, value: u32) -> io::Result<u32> {
        whole(|| self.kernel.request_value(fd, command, value))
    }

    pub(super) fn request_bytes(&self, fd: &K::Fd, command: Command, bytes: &mut [u8]) -> io::Result<u32> {
        whole(|| self.kernel.request_bytes(fd, command, bytes))
    }

    pub(super) fn set_container(&self, group: &K::Fd, container: &K::Fd) -> io::Result<()> {
        whole(|| self.kernel.set_container(group, container))
    }

    pub(super) fn device_fd(&self, group: &K::Fd, name: &CStr) -> io::Result<K::Fd> {
        whole(|| self.kernel.device_fd(group, name))
    }

    pub(super) fn map_type1(&self, container: &K::Fd, memory: &DmaMemory, iova: u64) -> io::Result<()> {
        whole(|| self.kernel.map_type1(container, memory, iova))
    }

    pub(super) fn map_ioas(
        &self,
        iommufd: &K::Fd,
        ioas_id: u32,
        memory: &DmaMemory,
        iova: u64,
    ) -> io::Result<()> {
        whole(|| self.kernel.map_ioas(iommufd, ioas_id, memory, iova))
    }

    pub(super) fn ioas_ranges(
        &self,
        iommufd: &K::Fd,
        ioas_id: u32,
        ranges: &mut [[u64; 2]],
    ) -> io::Result<u32> {
        whole(|| self.kernel.ioas_ranges(iommufd, ioas_id, ranges))
    }

    pub(super) fn raw_fd(&self, fd: &K::Fd) -> i32 {
        self.kernel.raw_fd(fd)
    }

    pub(super) fn event(&self) -> io::Result<Arc<EventFd>> {
        whole(|| self.kernel.event())
    }

    /// Reads all of `bytes`; fewer is an error.
    pub(super) fn read_at(&self, device: &K::Fd, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        match whole(|| self.kernel.read_at(device, bytes, offset))? {
            len if len == bytes.len() => Ok(()),
            len => Err(cut_short(len, bytes.len())),
        }
    }

    /// Writes all of `bytes`; fewer is an error.
    pub(super) fn write_at(&self, device: &K::Fd, bytes: &[u8], offset: u64) -> io::Result<()> {
        match whole(|| self.kernel.write_at(device, bytes, offset))? {
            len if len == bytes.len() => Ok(()),
            len => Err(cut_short(len, bytes.len())),
        }
    }

    pub(super) fn map_window(
        &self,
        device: &K::Fd,
        offset: u64,
        len_bytes: u32,
        areas: &[Range<u32>],
    ) -> io::Result<K::Window> {
        whole(|| self.kernel.map_window(device, offset, len_bytes, areas))
    }

    pub(super) fn retire(&self, window: &K::Window) -> io::Result<()> {
        whole(|| window.retire())
    }

    pub(super) fn memlock_limit_bytes(&self) -> io::Result<Option<u64>> {
        whole(|| self.kernel.memlock_limit_bytes())
    }
}

fn cut_short(len: usize, wanted: usize) -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, format!("{len} of {wanted} bytes"))
}

impl<K> fmt::Debug for Calls<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Calls")
    }
}
