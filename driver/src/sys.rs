//! The system calls the driver needs: eventfd, epoll, memory files, descriptors over sockets, CPU affinity, limits.
//!
//! One of the islands of `unsafe`; the requests of VFIO are in `sys/vfio.rs`. Every call that a signal can interrupt is
//! repeated until it is done, because a profiler's timer must never look like a device error. Nothing here knows a card:
//! the functions are the few that the standard library lacks, wrapped so that they cannot be misused.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

mod vfio;

pub use vfio::MappedWindow;
pub(crate) use vfio::{
    device_fd, ioas_ranges, map_ioas, map_type1, page_bytes, request_bytes, request_value, set_container,
};

/// Repeats `call` while a signal interrupts it; a negative result becomes the error that `errno` names.
fn retry(mut call: impl FnMut() -> libc::c_int) -> io::Result<libc::c_int> {
    loop {
        let result = call();
        if result >= 0 {
            return Ok(result);
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// Takes ownership of a descriptor that a call has just returned.
fn owned(fd: RawFd) -> OwnedFd {
    // SAFETY: the callers pass the non-negative result of a call that creates a descriptor, which nobody else knows.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// A file of `len_bytes` zero bytes that exists in memory only, to be mapped shared.
///
/// Its length is sealed: whoever is handed the descriptor may map it and need not fear that it shrinks under them.
///
/// # Errors
/// What the system says: no memory, or no descriptor left.
pub fn shared_memory_file(len_bytes: usize) -> io::Result<File> {
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // SAFETY: the name is a C string constant; the call has no other argument that points anywhere.
    let fd = retry(|| unsafe { libc::memfd_create(c"qhca-dma".as_ptr(), flags) })?;
    let file = File::from(owned(fd));
    file.set_len(len_bytes as u64)?;
    let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
    // SAFETY: the call takes plain numbers.
    retry(|| unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) })?;
    Ok(file)
}

/// Most descriptors that [`send_with_fds`] sends beside one message.
pub const SEND_FDS_MAX: usize = 16;

/// Room for the control message that carries [`SEND_FDS_MAX`] descriptors, aligned as its header needs.
#[repr(align(8))]
struct ControlRoom([u8; 128]);

/// Sends `bytes` over the stream socket `socket`, and copies of `fds` beside the first of them; returns how many bytes
/// went. A peer that has gone is an error and not a signal.
///
/// # Errors
/// `InvalidInput` for more than [`SEND_FDS_MAX`] descriptors, or what the system says.
pub fn send_with_fds(socket: BorrowedFd<'_>, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<usize> {
    if fds.len() > SEND_FDS_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "too many descriptors for one message"));
    }
    let mut raw: [RawFd; SEND_FDS_MAX] = [0; SEND_FDS_MAX];
    for (place, fd) in raw.iter_mut().zip(fds) {
        *place = fd.as_raw_fd();
    }
    let raw_len = (fds.len() * size_of::<RawFd>()) as u32;
    let mut room = ControlRoom([0; 128]);
    let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    // SAFETY: all-zero bytes are a valid msghdr: null pointers with zero lengths.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    if !fds.is_empty() {
        message.msg_control = room.0.as_mut_ptr().cast();
        // SAFETY: CMSG_SPACE is plain arithmetic; 16 descriptors need 80 of the room's 128 bytes.
        message.msg_controllen = unsafe { libc::CMSG_SPACE(raw_len) } as usize;
        // SAFETY: the message has a control room that is longer than a header, so this points to its start.
        let header = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
        // SAFETY: CMSG_LEN is plain arithmetic.
        let cmsg_len = unsafe { libc::CMSG_LEN(raw_len) } as usize;
        // SAFETY: the header lies inside the room, which is aligned for it, and nobody else refers to it.
        unsafe {
            header.write(libc::cmsghdr {
                cmsg_len,
                cmsg_level: libc::SOL_SOCKET,
                cmsg_type: libc::SCM_RIGHTS,
            })
        };
        // SAFETY: the data of a header inside the room begin inside it.
        let data = unsafe { libc::CMSG_DATA(header) };
        // SAFETY: the room holds `raw_len` bytes of data after the header (CMSG_SPACE above), `raw` has as many, and
        // the two do not overlap.
        unsafe { std::ptr::copy_nonoverlapping(raw.as_ptr().cast::<u8>(), data, raw_len as usize) };
    }
    // SAFETY: the message points to one readable part and to a filled control room or none, all alive through the call.
    let sent = retry(|| unsafe {
        libc::sendmsg(socket.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL) as libc::c_int
    })?;
    Ok(sent as usize)
}

/// A counter that one thread raises and another waits for, through a descriptor.
#[derive(Debug)]
pub struct EventFd {
    fd: OwnedFd,
}

impl EventFd {
    /// A counter at zero, which never blocks its readers and writers.
    ///
    /// # Errors
    /// What the system says: no descriptor left.
    pub fn new() -> io::Result<Self> {
        // SAFETY: the call takes plain numbers.
        let fd = retry(|| unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })?;
        Ok(Self { fd: owned(fd) })
    }

    /// The number by which a request to the kernel names it.
    pub(crate) fn number(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// Raises the counter by one and wakes whoever waits. A counter at its top stays there: it is readable already.
    pub fn signal(&self) {
        let one = 1_u64.to_ne_bytes();
        // SAFETY: the buffer is eight readable bytes, as long as the length says, and lives through the call.
        let call =
            || unsafe { libc::write(self.fd.as_raw_fd(), one.as_ptr().cast(), one.len()) as libc::c_int };
        // The one error an open eventfd can give is "at its top", which means what the caller wants: it is raised.
        let (Ok(_) | Err(_)) = retry(call);
    }

    /// Takes the counter back to zero; returns how often it was raised since the last time, 0 if not at all.
    pub fn drain(&self) -> u64 {
        let mut count = [0; 8];
        let at = count.as_mut_ptr();
        // SAFETY: `at` points to eight writable bytes, as long as the length says, which live through the call.
        let call = || unsafe { libc::read(self.fd.as_raw_fd(), at.cast(), 8) as libc::c_int };
        match retry(call) {
            Ok(8) => u64::from_ne_bytes(count),
            _ => 0,
        }
    }

    /// Waits until the counter is raised, at most `timeout_ns` nanoseconds (`None`: for ever). Takes nothing from it.
    ///
    /// A signal ends the wait as the timeout does: whoever waits looks at the clock anyway.
    pub fn wait(&self, timeout_ns: Option<u64>) {
        wait_readable(self.fd.as_fd(), timeout_ns);
    }
}

/// Waits until `fd` is readable, at most `timeout_ns` nanoseconds (`None`: for ever). Ready, timed out or interrupted:
/// the caller looks at the descriptor and at the clock in any case.
fn wait_readable(fd: BorrowedFd<'_>, timeout_ns: Option<u64>) {
    const NS_PER_S: u64 = 1_000_000_000;
    let span = timeout_ns.map(|ns| libc::timespec {
        tv_sec: (ns / NS_PER_S) as libc::time_t,
        tv_nsec: (ns % NS_PER_S) as libc::c_long,
    });
    let span = span.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    let mut polled = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let at = &raw mut polled;
    // SAFETY: one whole pollfd and, unless null, one whole timespec, both alive through the call; no signal mask.
    let _ready = unsafe { libc::ppoll(at, 1, span, std::ptr::null()) };
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// A set of descriptors that is waited for as one.
#[derive(Debug)]
pub struct Epoll {
    fd: OwnedFd,
}

/// How many ready descriptors one wait reports; the rest are reported by the next.
const READY_AT_ONCE: usize = 32;

impl Epoll {
    /// An empty set.
    ///
    /// # Errors
    /// What the system says: no descriptor left.
    pub fn new() -> io::Result<Self> {
        // SAFETY: the call takes a plain number.
        let fd = retry(|| unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        Ok(Self { fd: owned(fd) })
    }

    /// Adds `fd` to the set; `token` names it in [`wait`](Self::wait).
    ///
    /// # Errors
    /// What the system says: `fd` is in the set already, or cannot be waited for.
    pub fn add(&self, fd: BorrowedFd<'_>, token: u64) -> io::Result<()> {
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: token };
        let event = &raw mut event;
        // SAFETY: `event` points to a whole event that lives through the call; both descriptors are open.
        retry(|| unsafe {
            libc::epoll_ctl(self.fd.as_raw_fd(), libc::EPOLL_CTL_ADD, fd.as_raw_fd(), event)
        })?;
        Ok(())
    }

    /// Waits until a descriptor of the set is readable, at most `timeout_ms` (negative: for ever), and puts the
    /// tokens of the readable ones into `tokens`.
    ///
    /// A signal starts the wait again with the whole timeout; callers hold a deadline of their own.
    ///
    /// # Errors
    /// What the system says; an open set gives none.
    pub fn wait(&self, timeout_ms: i32, tokens: &mut Vec<u64>) -> io::Result<()> {
        tokens.clear();
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; READY_AT_ONCE];
        let at = events.as_mut_ptr();
        // SAFETY: `at` points to `READY_AT_ONCE` writable events, which live through the call.
        let count = retry(|| unsafe {
            libc::epoll_wait(self.fd.as_raw_fd(), at, READY_AT_ONCE as libc::c_int, timeout_ms)
        })?;
        tokens.extend(events.iter().take(count as usize).map(|event| event.u64));
        Ok(())
    }

    /// The same with a limit in nanoseconds (`None`: for ever). A signal ends the wait, with no token.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn wait_ns(&self, timeout_ns: Option<u64>, tokens: &mut Vec<u64>) -> io::Result<()> {
        if timeout_ns != Some(0) {
            wait_readable(self.fd.as_fd(), timeout_ns);
        }
        self.wait(0, tokens)
    }
}

impl AsFd for Epoll {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Binds the calling thread to CPU `cpu`.
///
/// # Errors
/// `InvalidInput` if no such CPU can be named, or what the system says: the CPU is not there or not allowed.
pub fn pin_current_thread(cpu: usize) -> io::Result<()> {
    const WORD_BITS: usize = u64::BITS as usize;
    let mut mask = [0_u64; 16];
    let word = mask.get_mut(cpu / WORD_BITS).ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidInput, format!("CPU {cpu} is past the last that can be named"))
    })?;
    *word = 1 << (cpu % WORD_BITS);
    let len = size_of_val(&mask);
    // SAFETY: the mask is `len` readable bytes and lives through the call; 0 names the calling thread.
    retry(|| unsafe { libc::sched_setaffinity(0, len, mask.as_ptr().cast()) })?;
    Ok(())
}

/// How many bytes this process may lock in memory; `None` means without limit. DMA memory of a real card counts.
///
/// # Errors
/// What the system says; the query has no known way to fail.
pub fn memlock_limit_bytes() -> io::Result<Option<u64>> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    let at = &raw mut limit;
    // SAFETY: `at` points to a whole limit that lives through the call.
    retry(|| unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, at) })?;
    Ok((limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur))
}

/// Locks `file` for this process, without waiting; false if another process has it locked. The lock goes with the last
/// descriptor of the file, however its process ends.
///
/// # Errors
/// What the system says: the file system has no locks.
pub fn try_lock_file(file: &File) -> io::Result<bool> {
    // SAFETY: the call takes plain numbers; the descriptor is open.
    match retry(|| unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) }) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
        Err(error) => Err(error),
    }
}

/// The two signals that ask a program to end, as something to wait for: SIGTERM and SIGINT.
pub struct EndSignals {
    file: File,
}

impl EndSignals {
    /// Keeps both signals from ending the process, in the calling thread and those that it starts from now on; call it
    /// before any other thread is there.
    ///
    /// # Errors
    /// What the system says: no descriptor left.
    pub fn block() -> io::Result<Self> {
        let mut set = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: the call fills the whole set, which is writable.
        unsafe { libc::sigemptyset(set.as_mut_ptr()) };
        // SAFETY: the set was filled by the call above.
        let mut set = unsafe { set.assume_init() };
        for signal in [libc::SIGTERM, libc::SIGINT] {
            // SAFETY: the set is whole and writable; the signal is one that exists.
            unsafe { libc::sigaddset(&raw mut set, signal) };
        }
        // SAFETY: the set is whole and lives through the call; the old one is not asked for.
        let error = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) };
        if error != 0 {
            return Err(io::Error::from_raw_os_error(error));
        }
        let flags = libc::SFD_CLOEXEC | libc::SFD_NONBLOCK;
        // SAFETY: the set is whole and lives through the call; -1 asks for a new descriptor.
        let fd = retry(|| unsafe { libc::signalfd(-1, &raw const set, flags) })?;
        Ok(Self { file: File::from(owned(fd)) })
    }

    /// Whether one of them came; each is told once.
    pub fn came(&self) -> bool {
        let mut info = [0_u8; size_of::<libc::signalfd_siginfo>()];
        (&self.file).read(&mut info).is_ok_and(|bytes| bytes == info.len())
    }
}

impl AsFd for EndSignals {
    /// Readable when one of them came.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Trap 22: an eventfd coalesces what was raised between two looks.
    #[test]
    fn event_raised_three_times_is_drained_once() {
        let event = EventFd::new().expect("a descriptor");
        assert_eq!(event.drain(), 0);
        (0..3).for_each(|_| event.signal());
        assert_eq!(event.drain(), 3);
        assert_eq!(event.drain(), 0);
    }

    #[test]
    fn wait_ends_with_the_timeout_or_at_once_when_the_counter_is_raised() {
        let event = EventFd::new().expect("a descriptor");
        let start = std::time::Instant::now();
        event.wait(Some(300_000));
        assert!(start.elapsed().as_nanos() >= 300_000);
        event.signal();
        event.wait(None);
        assert_eq!(event.drain(), 1, "waiting takes nothing");
    }

    #[test]
    fn epoll_names_the_descriptor_that_is_ready() {
        let (quiet, loud) = (EventFd::new().expect("a descriptor"), EventFd::new().expect("a descriptor"));
        let epoll = Epoll::new().expect("a descriptor");
        epoll.add(quiet.as_fd(), 7).expect("added");
        epoll.add(loud.as_fd(), 9).expect("added");
        let mut tokens = vec![1];
        epoll.wait(0, &mut tokens).expect("waited");
        assert!(tokens.is_empty());
        loud.signal();
        epoll.wait(-1, &mut tokens).expect("waited");
        assert_eq!(tokens, [9]);
    }

    #[test]
    fn epoll_with_nanoseconds_ends_with_its_limit_or_with_a_descriptor() {
        let event = EventFd::new().expect("a descriptor");
        let epoll = Epoll::new().expect("a descriptor");
        epoll.add(event.as_fd(), 3).expect("added");
        let mut tokens = Vec::new();
        let start = std::time::Instant::now();
        epoll.wait_ns(Some(300_000), &mut tokens).expect("waited");
        assert!(start.elapsed().as_nanos() >= 300_000 && tokens.is_empty());
        event.signal();
        epoll.wait_ns(None, &mut tokens).expect("waited");
        assert_eq!(tokens, [3]);
    }

    #[test]
    fn memory_file_can_neither_shrink_nor_grow() {
        let file = shared_memory_file(8192).expect("memory");
        assert!(file.set_len(4096).is_err() && file.set_len(16384).is_err());
        assert_eq!(file.metadata().expect("a file").len(), 8192);
    }

    #[test]
    fn too_many_descriptors_are_refused_before_anything_is_sent() {
        let (one, two) = std::os::unix::net::UnixStream::pair().expect("sockets");
        let fds = [one.as_fd(); SEND_FDS_MAX + 1];
        assert!(send_with_fds(one.as_fd(), &[1], &fds).is_err());
        assert_eq!(send_with_fds(one.as_fd(), &[1, 2], &fds[1..]).expect("sent"), 2);
        drop(two);
        assert!(send_with_fds(one.as_fd(), &[1], &[]).is_err(), "a peer that has gone is an error");
    }

    #[test]
    fn cpu_that_cannot_exist_is_refused() {
        assert!(pin_current_thread(usize::MAX).is_err());
        assert!(pin_current_thread(1023).is_err());
    }
}
