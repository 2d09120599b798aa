//! The system calls of the vfio-user server: sockets that carry descriptors, and a client's memory.
//!
//! The fourth island of `unsafe`. The client is not trusted: its descriptors may be anything, its files may shrink
//! under a mapping, its sockets may be closed at any time. So a file is mapped only when it is sealed against
//! shrinking and holds the whole range; any other file is read and written by calls that can fail.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::time::Duration;

/// Most descriptors that are taken beside one message: as many as QEMU accepts to hear of. What is over it is closed.
pub(super) const FDS_MAX: usize = 16;

/// Room for the control message that carries [`FDS_MAX`] descriptors, aligned as its header needs.
#[repr(align(8))]
struct ControlRoom([u8; 256]);

/// What one receive call brought.
pub(super) enum Received {
    /// So many bytes; 0 is the end of the stream.
    Bytes(usize),
    /// Nothing is there now.
    Nothing,
}

/// Receives up to `bytes.len()` bytes without waiting, and the descriptors beside them.
///
/// # Errors
/// What the system says; the connection is then of no more use.
pub(super) fn receive(socket: &UnixStream, bytes: &mut [u8], fds: &mut Vec<OwnedFd>) -> io::Result<Received> {
    let mut room = ControlRoom([0; 256]);
    let mut part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    // SAFETY: all-zero bytes are a valid msghdr: null pointers with zero lengths.
    let mut message: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = room.0.as_mut_ptr().cast();
    message.msg_controllen = room.0.len();
    let flags = libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
    let len = loop {
        // SAFETY: the header points to one writable part and a writable control room, both alive through the call.
        let len = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, flags) };
        if len >= 0 {
            break len as usize;
        }
        let error = io::Error::last_os_error();
        match error.kind() {
            ErrorKind::Interrupted => {}
            ErrorKind::WouldBlock => return Ok(Received::Nothing),
            _ => return Err(error),
        }
    };
    take_descriptors(&message, fds);
    Ok(Received::Bytes(len))
}

/// Takes ownership of every descriptor in the control part of `message`.
fn take_descriptors(message: &libc::msghdr, fds: &mut Vec<OwnedFd>) {
    // SAFETY: the kernel filled the control room and its length; CMSG_FIRSTHDR looks at nothing else.
    let mut header = unsafe { libc::CMSG_FIRSTHDR(message) };
    while !header.is_null() {
        // SAFETY: CMSG_FIRSTHDR and CMSG_NXTHDR give headers that lie wholly inside the control room, which nobody
        // writes while this reference lives.
        let libc::cmsghdr { cmsg_level: level, cmsg_type: kind, cmsg_len: len } = unsafe { *header };
        if level == libc::SOL_SOCKET && kind == libc::SCM_RIGHTS {
            // SAFETY: CMSG_LEN of 0 is plain arithmetic.
            let head_len = unsafe { libc::CMSG_LEN(0) } as usize;
            // SAFETY: the data of a header inside the control room lie inside it too.
            let data = unsafe { libc::CMSG_DATA(header) }.cast::<RawFd>();
            for n in 0..len.saturating_sub(head_len) / size_of::<RawFd>() {
                // SAFETY: the kernel says that `len` bytes of this header are filled, whole descriptors each.
                let fd = unsafe { data.wrapping_add(n).read_unaligned() };
                // SAFETY: the kernel has just made this descriptor for us; nobody else knows its number.
                fds.push(unsafe { OwnedFd::from_raw_fd(fd) });
            }
        }
        // SAFETY: as for CMSG_FIRSTHDR.
        header = unsafe { libc::CMSG_NXTHDR(message, header) };
    }
}

/// Waits until `fd` is readable or closed, at most `timeout`.
///
/// # Errors
/// `TimedOut`, or what the system says.
pub(super) fn wait_readable(fd: BorrowedFd<'_>, timeout: Duration) -> io::Result<()> {
    let mut poll = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let timeout_ms = timeout.as_millis().clamp(1, 60_000) as libc::c_int;
    // SAFETY: `poll` is one whole entry that lives through the call.
    match unsafe { libc::poll(&raw mut poll, 1, timeout_ms) } {
        0 => Err(ErrorKind::TimedOut.into()),
        n if n > 0 => Ok(()),
        _ => match io::Error::last_os_error() {
            // The caller holds the deadline and asks again.
            error if error.kind() == ErrorKind::Interrupted => Ok(()),
            error => Err(error),
        },
    }
}

/// Fires the client's event descriptor. Whatever kind of file it really is, the call neither waits nor fails loudly:
/// a client that sends nonsense loses its own interrupts.
pub(super) fn signal(event: &OwnedFd) -> bool {
    let one = 1_u64.to_ne_bytes();
    loop {
        // SAFETY: the buffer is eight readable bytes and lives through the call.
        let written = unsafe { libc::write(event.as_raw_fd(), one.as_ptr().cast(), one.len()) };
        if written >= 0 {
            return written == 8;
        }
        if io::Error::last_os_error().kind() != ErrorKind::Interrupted {
            return false;
        }
    }
}

/// Makes writes to `event` return at once, whatever it is.
pub(super) fn set_nonblocking(event: &OwnedFd) -> io::Result<()> {
    // SAFETY: the call takes plain numbers.
    let flags = unsafe { libc::fcntl(event.as_raw_fd(), libc::F_GETFL) };
    if flags < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call takes plain numbers.
    let done = unsafe { libc::fcntl(event.as_raw_fd(), libc::F_SETFL, flags | libc::O_NONBLOCK) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Processor time of this process.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CpuTime {
    pub(super) user: Duration,
    pub(super) system: Duration,
}

/// The processor time that this process has used so far.
pub(super) fn cpu_time() -> CpuTime {
    // SAFETY: all-zero bytes are a valid rusage, which consists of numbers.
    let mut usage: libc::rusage = unsafe { MaybeUninit::zeroed().assume_init() };
    // SAFETY: the pointer is to a whole rusage that lives through the call. The call has no way to fail with these
    // arguments; if it did, the times would be zero.
    let _ = unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) };
    let span = |time: libc::timeval| {
        Duration::from_secs(time.tv_sec.max(0) as u64) + Duration::from_micros(time.tv_usec.max(0) as u64)
    };
    CpuTime { user: span(usage.ru_utime), system: span(usage.ru_stime) }
}

/// Whether nobody can make the file shorter any more.
fn sealed_against_shrinking(file: &File) -> bool {
    // SAFETY: the call takes plain numbers; files that know no seals answer with an error.
    let seals = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) };
    seals >= 0 && seals & libc::F_SEAL_SHRINK != 0
}

/// A range of a client's file: mapped where that is safe, else reached by calls.
pub(super) struct ClientRange {
    file: File,
    offset: u64,
    mapped: Option<memmap2::MmapRaw>,
}

impl ClientRange {
    /// Takes `len_bytes` bytes of `fd` from `offset`.
    ///
    /// # Errors
    /// `InvalidInput` if the file does not hold the whole range, or what the system says of it.
    pub(super) fn new(fd: OwnedFd, offset: u64, len_bytes: u64, writable: bool) -> io::Result<Self> {
        let file = File::from(fd);
        let file_len = file.metadata()?.len();
        if offset.checked_add(len_bytes).is_none_or(|end| end > file_len) {
            let text =
                format!("{len_bytes:#x} bytes from {offset:#x} do not lie in a file of {file_len:#x} bytes");
            return Err(io::Error::new(ErrorKind::InvalidInput, text));
        }
        let mapped = match (sealed_against_shrinking(&file), usize::try_from(len_bytes)) {
            (true, Ok(len)) => {
                let mut options = memmap2::MmapOptions::new();
                let options = options.offset(offset).len(len);
                // A file that cannot be mapped is still reached by calls.
                if writable { options.map_raw(&file).ok() } else { options.map_raw_read_only(&file).ok() }
            }
            _ => None,
        };
        Ok(Self { file, offset, mapped })
    }

    /// Reads from `at` bytes into the range. The caller has checked that the range holds it.
    ///
    /// # Errors
    /// What the system says of a file that is not mapped.
    pub(super) fn read(&self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        let Some(map) = &self.mapped else {
            return self.file.read_exact_at(bytes, self.offset + at);
        };
        let at = at as usize;
        assert!(at + bytes.len() <= map.len(), "read past a client's range");
        // SAFETY: the range lies inside the mapping (asserted), which lives as long as `self` and whose file is
        // sealed against shrinking, so no access faults. The client may write at the same time: what is copied is
        // then any mix of old and new bytes, and the destination is memory that nobody shares.
        unsafe {
            std::ptr::copy_nonoverlapping(map.as_ptr().wrapping_add(at), bytes.as_mut_ptr(), bytes.len())
        };
        Ok(())
    }

    /// Writes at `at` bytes into the range. The caller has checked that the range holds it and is writable.
    ///
    /// # Errors
    /// What the system says of a file that is not mapped.
    pub(super) fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let Some(map) = &self.mapped else {
            return self.file.write_all_at(bytes, self.offset + at);
        };
        let at = at as usize;
        assert!(at + bytes.len() <= map.len(), "write past a client's range");
        // SAFETY: as for `read`, with the directions exchanged; the map was made writable for a writable range.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), map.as_mut_ptr().wrapping_add(at), bytes.len())
        };
        Ok(())
    }

    /// Writes an aligned qword after every earlier write has become visible to the client.
    ///
    /// # Errors
    /// What the system says of a file that is not mapped.
    pub(super) fn publish(&self, at: u64, qword: u64) -> io::Result<()> {
        let aligned = |map: &memmap2::MmapRaw| (map.as_ptr() as usize + at as usize).is_multiple_of(8);
        match &self.mapped {
            Some(map) if aligned(map) && at as usize + 8 <= map.len() => {
                // SAFETY: eight bytes inside the mapping (checked), aligned (checked), alive as long as `self`.
                let word = unsafe { AtomicU64::from_ptr(map.as_mut_ptr().wrapping_add(at as usize).cast()) };
                // ORDER: the queue entry's bytes before the word that says it is complete.
                word.store(qword.to_le(), Ordering::Release);
                Ok(())
            }
            _ => {
                fence(Ordering::Release);
                self.write(at, &qword.to_le_bytes())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use qhca_driver::sys::shared_memory_file;
    use std::io::Write;

    #[test]
    fn descriptors_arrive_with_the_bytes_they_were_sent_with() {
        let (mut one, two) = UnixStream::pair().expect("a pair of sockets");
        one.write_all(&[7; 20]).expect("sent");
        let (mut bytes, mut fds) = ([0; 16], Vec::new());
        assert!(matches!(receive(&two, &mut bytes, &mut fds), Ok(Received::Bytes(16))));
        assert!(matches!(receive(&two, &mut bytes, &mut fds), Ok(Received::Bytes(4))));
        assert!(matches!(receive(&two, &mut bytes, &mut fds), Ok(Received::Nothing)));
        drop(one);
        assert!(matches!(receive(&two, &mut bytes, &mut fds), Ok(Received::Bytes(0))));
        assert!(fds.is_empty());
    }

    #[test]
    fn a_file_that_may_shrink_is_not_mapped_and_still_serves() {
        let path = std::env::temp_dir().join(format!("qhca-shrinks-{}", std::process::id()));
        let mut file =
            File::options().read(true).write(true).create(true).truncate(true).open(&path).expect("a file");
        std::fs::remove_file(&path).expect("removed");
        file.write_all(&[0; 8192]).expect("written");
        let other = file.try_clone().expect("a descriptor");
        let range = ClientRange::new(file.into(), 4096, 4096, true).expect("in the file");
        assert!(range.mapped.is_none());
        range.write(8, &[1, 2, 3]).expect("written");
        let mut back = [0; 3];
        range.read(8, &mut back).expect("read");
        assert_eq!(back, [1, 2, 3]);
        other.set_len(0).expect("shrunk");
        assert!(range.read(8, &mut back).is_err(), "a shrunk file must fail, not fault");
    }

    #[test]
    fn a_range_past_the_end_of_its_file_is_refused() {
        for (offset, len) in [(0, 4097), (4096, 1), (u64::MAX, 2)] {
            let file = shared_memory_file(4096).expect("memory");
            assert!(ClientRange::new(file.into(), offset, len, true).is_err());
        }
    }
}
