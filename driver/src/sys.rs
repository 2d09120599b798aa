//! The system calls the driver needs: eventfd, epoll, memory files, CPU affinity, limits.
//!
//! One of three islands of `unsafe`. Every call that a signal can interrupt is repeated until it is done, because a
//! profiler's timer must never look like a device error. Nothing here knows a card: the functions are the few that
//! the standard library lacks, wrapped so that they cannot be misused.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

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
/// # Errors
/// What the system says: no memory, or no descriptor left.
pub fn shared_memory_file(len_bytes: usize) -> io::Result<File> {
    // SAFETY: the name is a C string constant; the call has no other argument that points anywhere.
    let fd = retry(|| unsafe { libc::memfd_create(c"qhca-dma".as_ptr(), libc::MFD_CLOEXEC) })?;
    let file = File::from(owned(fd));
    file.set_len(len_bytes as u64)?;
    Ok(file)
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
        const NS_PER_S: u64 = 1_000_000_000;
        let span = timeout_ns.map(|ns| libc::timespec {
            tv_sec: (ns / NS_PER_S) as libc::time_t,
            tv_nsec: (ns % NS_PER_S) as libc::c_long,
        });
        let span = span.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        let mut polled = libc::pollfd { fd: self.fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let at = &raw mut polled;
        // Ready, timed out or interrupted: the caller drains and looks at the clock in any case.
        // SAFETY: one whole pollfd and, unless null, one whole timespec, both alive through the call; no signal mask.
        let _ready = unsafe { libc::ppoll(at, 1, span, std::ptr::null()) };
    }
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
    fn cpu_that_cannot_exist_is_refused() {
        assert!(pin_current_thread(usize::MAX).is_err());
        assert!(pin_current_thread(1023).is_err());
    }
}
