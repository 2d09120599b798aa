//! The system calls of VFIO and iommufd, and the mapping of a card's registers.
//!
//! An island of `unsafe`, the other half of `driver/src/sys.rs`. What makes each call safe is the same three times: the
//! kernel is handed either a plain number, or bytes whose own first word says how many they are (checked here), or an
//! address that this file takes itself from a value which outlives the call. No caller passes an address.
//!
//! A request that a signal interrupts is *not* repeated here: the callers' side (`driver/src/vfio/kernel.rs`) does that
//! once for all, so that a test can interrupt any of them.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd};
use std::ptr::NonNull;

use qhca_regs::MmioBar;
use vfio_bindings::bindings::vfio;

use crate::dma::DmaMemory;
use crate::vfio::{Argument, Command};

fn refused(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

/// The result of a request: what it gave, or what `errno` says.
fn outcome(result: libc::c_int) -> io::Result<u32> {
    u32::try_from(result).map_err(|_negative| io::Error::last_os_error())
}

/// Makes a request whose argument is a number.
///
/// # Errors
/// `InvalidInput` for a request of another kind, or what the system says.
pub(crate) fn request_value(fd: &File, command: Command, value: u32) -> io::Result<u32> {
    if command.argument() != Argument::Value {
        return Err(refused("this request takes no number"));
    }
    let number = libc::c_ulong::from(command.number());
    // SAFETY: these requests read their argument as a number and touch no memory of this process.
    outcome(unsafe { libc::ioctl(fd.as_raw_fd(), number, libc::c_ulong::from(value)) })
}

/// Makes a request whose argument is bytes that begin with their length.
///
/// # Errors
/// `InvalidInput` if the bytes are fewer than the request has or say another length, or what the system says.
pub(crate) fn request_bytes(fd: &File, command: Command, bytes: &mut [u8]) -> io::Result<u32> {
    let Argument::Bytes(least) = command.argument() else {
        return Err(refused("this request takes no bytes"));
    };
    let told = bytes.first_chunk().map(|length| u32::from_ne_bytes(*length) as usize);
    if bytes.len() < least || told != Some(bytes.len()) {
        return Err(refused("the bytes of a request begin with how many they are, and are whole"));
    }
    let flags = bytes[4..].first_chunk().map_or(0, |flags| u32::from_ne_bytes(*flags));
    if command == Command::UnmapDma && flags != 0 {
        return Err(refused("an unmap with flags would name a bitmap by its address"));
    }
    let number = libc::c_ulong::from(command.number());
    // SAFETY: `bytes` is writable and lives through the call; the kernel reads and writes no more than the length in the
    // first word, or the fixed structure, which `least` covers. None of these structures holds an address (the one that
    // may has been refused above).
    outcome(unsafe { libc::ioctl(fd.as_raw_fd(), number, bytes.as_mut_ptr()) })
}

/// Has a group join a container.
///
/// # Errors
/// What the system says.
pub(crate) fn set_container(group: &File, container: &File) -> io::Result<()> {
    let mut fd: libc::c_int = container.as_raw_fd();
    let number = libc::c_ulong::from(Command::SetContainer.number());
    // SAFETY: the request reads one int, which lives through the call.
    outcome(unsafe { libc::ioctl(group.as_raw_fd(), number, &raw mut fd) }).map(|_zero| ())
}

/// A descriptor for the device `name` of a group.
///
/// # Errors
/// What the system says.
pub(crate) fn device_fd(group: &File, name: &CStr) -> io::Result<File> {
    let number = libc::c_ulong::from(Command::DeviceFd.number());
    // SAFETY: the request reads a string that ends with a zero, which `name` is.
    let fd = outcome(unsafe { libc::ioctl(group.as_raw_fd(), number, name.as_ptr()) })?;
    // SAFETY: the request gave a new descriptor, which nobody else knows.
    Ok(unsafe { File::from_raw_fd(fd as libc::c_int) })
}

/// Lets the devices of a container read and write `memory` from bus address `iova` on.
///
/// # Errors
/// What the system says.
pub(crate) fn map_type1(container: &File, memory: &DmaMemory, iova: u64) -> io::Result<()> {
    let mut map = vfio::vfio_iommu_type1_dma_map {
        argsz: size_of::<vfio::vfio_iommu_type1_dma_map>() as u32,
        flags: vfio::VFIO_DMA_MAP_FLAG_READ | vfio::VFIO_DMA_MAP_FLAG_WRITE,
        vaddr: memory.address() as u64,
        iova,
        size: memory.len_bytes() as u64,
    };
    let number = libc::c_ulong::from(Command::MapDma.number());
    // SAFETY: the structure is whole and lives through the call. What the device writes afterwards goes to the pages of
    // `memory`, which are made to be written by a device; the kernel holds these pages until they are unmapped, so a
    // `memory` that is dropped before leaves the device no page that belongs to anybody else.
    outcome(unsafe { libc::ioctl(container.as_raw_fd(), number, &raw mut map) }).map(|_zero| ())
}

/// `struct iommu_ioas_map` (F-821).
#[repr(C)]
struct IoasMap {
    size: u32,
    flags: u32,
    ioas_id: u32,
    reserved: u32,
    user_va: u64,
    length: u64,
    iova: u64,
}

/// `IOMMU_IOAS_MAP_FIXED_IOVA | WRITEABLE | READABLE` (F-821).
const IOAS_MAP_FLAGS: u32 = 1 | 2 | 4;

/// Lets the devices of an address space read and write `memory` from bus address `iova` on.
///
/// # Errors
/// What the system says.
pub(crate) fn map_ioas(iommufd: &File, ioas_id: u32, memory: &DmaMemory, iova: u64) -> io::Result<()> {
    let mut map = IoasMap {
        size: size_of::<IoasMap>() as u32,
        flags: IOAS_MAP_FLAGS,
        ioas_id,
        reserved: 0,
        user_va: memory.address() as u64,
        length: memory.len_bytes() as u64,
        iova,
    };
    let number = libc::c_ulong::from(Command::IoasMap.number());
    // SAFETY: as in `map_type1`: a whole structure, and pages that the kernel holds as long as the device reaches them.
    outcome(unsafe { libc::ioctl(iommufd.as_raw_fd(), number, &raw mut map) }).map(|_zero| ())
}

/// `struct iommu_ioas_iova_ranges` (F-821).
#[repr(C)]
struct IoasRanges {
    size: u32,
    ioas_id: u32,
    num_iovas: u32,
    reserved: u32,
    allowed_iovas: u64,
    out_iova_alignment: u64,
}

/// Fills `ranges` with the first and last address of each range of an address space, eight bytes each; gives how many
/// ranges there are, which may be more than fit.
///
/// # Errors
/// What the system says.
pub(crate) fn ioas_ranges(iommufd: &File, ioas_id: u32, ranges: &mut [[u64; 2]]) -> io::Result<u32> {
    let mut ask = IoasRanges {
        size: size_of::<IoasRanges>() as u32,
        ioas_id,
        num_iovas: u32::try_from(ranges.len()).unwrap_or(u32::MAX),
        reserved: 0,
        allowed_iovas: ranges.as_mut_ptr() as u64,
        out_iova_alignment: 0,
    };
    let number = libc::c_ulong::from(Command::IoasRanges.number());
    // SAFETY: the structure is whole; the kernel writes at most `num_iovas` ranges of 16 bytes to `ranges`, which has as
    // many and lives through the call.
    match outcome(unsafe { libc::ioctl(iommufd.as_raw_fd(), number, &raw mut ask) }) {
        Ok(_zero) => Ok(ask.num_iovas),
        // "Does not fit" comes with how many there are.
        Err(error) if error.raw_os_error() == Some(libc::EMSGSIZE) => Ok(ask.num_iovas),
        Err(error) => Err(error),
    }
}

/// A card's registers, mapped into this process with holes.
///
/// What is not mapped to the card (the holes, and everything once it was taken away) is ordinary memory: an access there
/// has no effect on any card and stops nothing.
#[derive(Debug)]
pub struct MappedWindow {
    bar: MmioBar,
    base: NonNull<u8>,
    len_bytes: usize,
}

// SAFETY: the mapping is not tied to a thread, and all access goes through `MmioBar`, which may be used by several.
unsafe impl Send for MappedWindow {}
// SAFETY: as above; `retire` replaces the pages in one step of the kernel, and accesses of other threads meet the old
// pages or the new ones.
unsafe impl Sync for MappedWindow {}

impl MappedWindow {
    /// Maps the bytes `areas` of a region whose byte 0 stands at `offset` of the device's file; the window has
    /// `len_bytes`, zeros where there is no area.
    ///
    /// # Errors
    /// `InvalidInput` for areas that are not whole pages inside the window or a length that no window has, or what the
    /// system says; nothing is mapped then.
    pub fn new(device: &File, offset: u64, len_bytes: u32, areas: &[Range<u32>]) -> io::Result<Self> {
        let page = page_bytes();
        let whole = |at: u32| u64::from(at).is_multiple_of(page);
        let fits = |area: &Range<u32>| {
            area.start < area.end && area.end <= len_bytes && whole(area.start) && whole(area.end)
        };
        let end = offset.checked_add(len_bytes.into()).and_then(|end| libc::off_t::try_from(end).ok());
        if len_bytes == 0
            || !whole(len_bytes)
            || end.is_none()
            || !offset.is_multiple_of(page)
            || !areas.iter().all(fits)
        {
            return Err(refused("a window consists of whole pages inside its region"));
        }
        let len = len_bytes as usize;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping at a place that the kernel chooses replaces nothing.
        let base = unsafe {
            libc::mmap(std::ptr::null_mut(), len, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
        };
        let base = mapped(base)?;
        // SAFETY: `len` bytes from `base` have just been mapped readable and writable, and stay so until the value is
        // dropped, whatever is mapped in their place; no reference to them exists.
        let bar = unsafe { MmioBar::new(base, len_bytes) };
        // From here on the whole range is given back if anything fails.
        let window = Self { bar, base, len_bytes: len };
        for area in areas {
            let at = window.place(area);
            let area_len = (area.end - area.start) as usize;
            let from = (offset + u64::from(area.start)) as libc::off_t;
            let flags = libc::MAP_SHARED | libc::MAP_FIXED;
            // SAFETY: the area lies inside the window (checked above), which is ours and which nobody uses yet.
            mapped(unsafe {
                libc::mmap(at, area_len, libc::PROT_READ | libc::PROT_WRITE, flags, device.as_raw_fd(), from)
            })?;
        }
        Ok(window)
    }

    fn place(&self, area: &Range<u32>) -> *mut libc::c_void {
        // SAFETY: callers pass areas inside the window, so the sum stays in its mapping.
        unsafe { self.base.add(area.start as usize) }.as_ptr().cast()
    }

    /// The registers.
    #[inline]
    pub fn bar(&self) -> &MmioBar {
        &self.bar
    }

    /// Takes the card out of the window: whoever still reads finds all ones, as of a card that has gone, and what is
    /// written goes nowhere. In use or not, no access faults.
    ///
    /// # Errors
    /// What the system says: no memory. The card is still mapped then.
    pub fn retire(&self) -> io::Result<()> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // The pages are made elsewhere and moved over the card's in one step: nobody finds them half filled.
        // SAFETY: a new mapping at a place that the kernel chooses replaces nothing.
        let fresh = unsafe {
            libc::mmap(std::ptr::null_mut(), self.len_bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
        };
        let fresh = mapped(fresh)?;
        // SAFETY: `len_bytes` writable bytes that nobody else knows.
        unsafe { fresh.as_ptr().write_bytes(0xFF, self.len_bytes) };
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        // SAFETY: both ranges are ours and of equal length. The window stays mapped, readable and writable throughout, as
        // `MmioBar` demands: the kernel replaces its pages while no access is in the middle of one.
        let moved = unsafe {
            libc::mremap(fresh.as_ptr().cast(), self.len_bytes, self.len_bytes, flags, self.base.as_ptr())
        };
        if let Err(error) = mapped(moved) {
            // SAFETY: the fresh pages were not moved, and nobody knows them.
            let _ = unsafe { libc::munmap(fresh.as_ptr().cast(), self.len_bytes) };
            return Err(error);
        }
        Ok(())
    }
}

impl Drop for MappedWindow {
    fn drop(&mut self) {
        // SAFETY: exactly what `new` has mapped, and `bar`, the only thing that uses it, is dropped with it.
        let _ = unsafe { libc::munmap(self.base.as_ptr().cast(), self.len_bytes) };
    }
}

fn mapped(address: *mut libc::c_void) -> io::Result<NonNull<u8>> {
    match NonNull::new(address.cast()) {
        Some(base) if address != libc::MAP_FAILED => Ok(base),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Bytes of a page of this machine.
pub(crate) fn page_bytes() -> u64 {
    // SAFETY: the call takes a plain number.
    u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::shared_memory_file;
    use qhca_regs::{Bar, GONE};
    use std::os::unix::fs::FileExt;

    /// A single area.
    fn only(area: Range<u32>) -> Vec<Range<u32>> {
        std::iter::once(area).collect()
    }

    fn lines_of_maps() -> usize {
        std::fs::read_to_string("/proc/self/maps").expect("a list of mappings").lines().count()
    }

    /// B126, B162: what is mapped is where it should be, and the hole reaches no card.
    #[test]
    fn window_with_a_hole_maps_the_rest_in_its_place() {
        let page = page_bytes();
        let file = shared_memory_file(6 * page as usize).expect("memory");
        for n in 0..6 {
            file.write_all_at(&(0x7322_0000_u64 + n).to_le_bytes(), n * page).expect("written");
        }
        let at = |n: u64| (n * page) as u32;
        let window = MappedWindow::new(&file, page, at(5), &[at(0)..at(1), at(3)..at(5)]).expect("mapped");
        let read = |n| window.bar().read(at(n));
        assert_eq!((read(0), read(3), read(4)), (0x7322_0001, 0x7322_0004, 0x7322_0005));
        assert_eq!((read(1), read(2)), (0, 0));
        window.bar().write(at(1) + 8, 7);
        window.bar().write(at(3) + 8, 9);
        let mut seen = [0; 8];
        file.read_exact_at(&mut seen, 2 * page + 8).expect("read");
        assert_eq!(u64::from_le_bytes(seen), 0, "a store into the hole reaches nobody");
        file.read_exact_at(&mut seen, 4 * page + 8).expect("read");
        assert_eq!(u64::from_le_bytes(seen), 9);
    }

    /// B132, B140: a window that was taken away reads as a card that has gone, for all who still have it.
    #[test]
    fn retired_window_reads_all_ones_and_reaches_nobody() {
        let len = 4 * page_bytes() as u32;
        let file = shared_memory_file(len as usize).expect("memory");
        let window = MappedWindow::new(&file, 0, len, &only(0..len)).expect("mapped");
        assert_eq!(window.bar().read(0), 0);
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| while window.bar().read(16) != GONE {});
            window.retire().expect("retired");
            reader.join().expect("the reader ends");
        });
        window.bar().write(0, 5);
        let mut seen = [1; 8];
        file.read_exact_at(&mut seen, 0).expect("read");
        assert_eq!(seen, [0; 8]);
        assert_eq!((window.bar().read(8), window.bar().read(len - 8)), (GONE, GONE));
    }

    /// B163: as many mappings as before, whether it worked or not.
    #[test]
    fn window_gives_back_what_it_mapped() {
        let page = page_bytes() as u32;
        let file = shared_memory_file(4 * page as usize).expect("memory");
        let closed = File::open("/dev/null").expect("a file that cannot be mapped");
        let before = lines_of_maps();
        for _ in 0..50 {
            drop(MappedWindow::new(&file, 0, 4 * page, &[0..page, 2 * page..4 * page]).expect("mapped"));
            MappedWindow::new(&closed, 0, 4 * page, &only(0..page)).expect_err("no mapping of that");
        }
        // Other tests of this process map things meanwhile, but never fifty that stay.
        assert!(lines_of_maps() < before + 50);
    }

    #[test]
    fn areas_that_are_not_pages_of_the_window_are_refused() {
        let page = page_bytes() as u32;
        let file = shared_memory_file(4 * page as usize).expect("memory");
        let (one, end) = (8..page, page..5 * page);
        let (none, back) = (page..page, Range { start: 2 * page, end: page });
        for area in [one, end, none, back] {
            assert!(MappedWindow::new(&file, 0, 4 * page, std::slice::from_ref(&area)).is_err(), "{area:?}");
        }
        for (offset, len) in [(8, page), (0, 8), (0, 0), (u64::MAX - 4095, page), (1 << 63, page)] {
            assert!(MappedWindow::new(&file, offset, len, &[]).is_err(), "{offset:#x} {len}");
        }
    }

    #[test]
    fn requests_with_a_wrong_length_never_reach_the_kernel() {
        let file = File::open("/dev/null").expect("a file");
        let invalid = |result: io::Result<u32>| {
            assert_eq!(result.expect_err("refused").kind(), io::ErrorKind::InvalidInput);
        };
        let mut bytes = [0; 32];
        for told in [0_u32, 31, 33, u32::MAX] {
            bytes[..4].copy_from_slice(&told.to_ne_bytes());
            invalid(request_bytes(&file, Command::RegionInfo, &mut bytes));
        }
        bytes[..4].copy_from_slice(&16_u32.to_ne_bytes());
        invalid(request_bytes(&file, Command::RegionInfo, &mut bytes[..16]));
        invalid(request_bytes(&file, Command::RegionInfo, &mut []));
        invalid(request_bytes(&file, Command::MapDma, &mut bytes));
        invalid(request_value(&file, Command::SetIrqs, 0));
        bytes[..8].copy_from_slice(&[24, 0, 0, 0, 1, 0, 0, 0]);
        invalid(request_bytes(&file, Command::UnmapDma, &mut bytes[..24]));
        bytes[..4].copy_from_slice(&32_u32.to_ne_bytes());
        let error = request_bytes(&file, Command::RegionInfo, &mut bytes).expect_err("no such request");
        assert_eq!(error.raw_os_error(), Some(libc::ENOTTY));
    }
}
