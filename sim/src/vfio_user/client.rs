//! The machine a served chip is plugged into: a client's memory and its interrupt descriptors.
//!
//! The chip writes and interrupts as it always does. Memory that came with a file is reached at once. For memory
//! without one the client has to be asked, which must not happen while the client waits for an answer of ours: writes
//! are held back until [`ClientHost::flush`], and interrupts that follow them too, so that none overtakes the data it
//! tells of.

use super::link::Link;
use super::memory::{ClientMemory, RemoteRead};
use super::sys;
use crate::chip::{DmaError, Host};
use crate::world::WorldHost;
use qhca_regs::Vector;
use std::cell::RefCell;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;

/// One interrupt and what hears it.
#[derive(Default)]
struct Line {
    event: Option<OwnedFd>,
    masked: bool,
    /// Fired while masked or unheard.
    pending: bool,
}

impl Line {
    fn fire(&mut self) {
        match &self.event {
            Some(event) if !self.masked => {
                sys::signal(event);
            }
            _ => self.pending = true,
        }
    }

    fn set_masked(&mut self, masked: bool) {
        self.masked = masked;
        if !masked && std::mem::take(&mut self.pending) {
            self.fire();
        }
    }
}

/// What the client is asked by, shared with the session that answers it.
pub(super) type SharedLink = Rc<RefCell<Link>>;

/// A client, as the chip sees it.
#[derive(Default)]
pub(super) struct ClientHost {
    pub(super) memory: ClientMemory,
    link: Option<SharedLink>,
    msix: Vec<Line>,
    intx: Line,
    intx_asserted: bool,
    bus_master: bool,
    /// Vectors that wait for held-back writes.
    held: Vec<Vector>,
    /// MSI-X messages since the start, for the state dump.
    pub(super) interrupts: u64,
    /// Held-back writes that the client refused or did not answer.
    pub(super) remote_failures: u64,
}

struct Ask<'a>(Option<&'a SharedLink>);

impl RemoteRead for Ask<'_> {
    fn read(&mut self, address: u64, bytes: &mut [u8]) -> io::Result<()> {
        match self.0 {
            Some(link) => link.borrow_mut().read_memory(address, bytes),
            None => Err(io::ErrorKind::NotConnected.into()),
        }
    }
}

impl ClientHost {
    /// A host on which nobody is yet, with room for `vectors` vectors.
    pub(super) fn new(vectors: usize) -> Self {
        Self { msix: (0..vectors).map(|_| Line::default()).collect(), ..Self::default() }
    }

    /// A client came.
    pub(super) fn attach(&mut self, link: SharedLink) {
        *self = Self { link: Some(link), ..Self::new(self.msix.len()) };
    }

    /// The client has gone: so have its memory and its descriptors.
    pub(super) fn detach(&mut self) {
        *self = Self::new(self.msix.len());
    }

    pub(super) fn set_bus_master(&mut self, may: bool) {
        self.bus_master = may;
    }

    /// Number of MSI-X vectors.
    pub(super) fn vectors(&self) -> usize {
        self.msix.len()
    }

    fn lines(&mut self, msix: bool, start: usize, count: usize) -> &mut [Line] {
        let all = if msix { &mut self.msix[..] } else { std::slice::from_mut(&mut self.intx) };
        let end = start.saturating_add(count).min(all.len());
        all.get_mut(start..end).unwrap_or(&mut [])
    }

    /// Connects `events` to the vectors from `start`, or takes away what hears `count` of them if there are none.
    pub(super) fn connect(&mut self, msix: bool, start: usize, count: usize, events: Vec<OwnedFd>) {
        let mut events = events.into_iter();
        let take_away = events.len() == 0;
        let lines = self.lines(msix, start, count);
        for line in lines {
            let event = events.next().filter(|event| sys::set_nonblocking(event).is_ok());
            if event.is_some() || take_away {
                line.event = event;
            }
            if line.event.is_some() && !line.masked && std::mem::take(&mut line.pending) {
                line.fire();
            }
        }
    }

    /// Takes away everything that hears interrupts of this kind.
    pub(super) fn disconnect(&mut self, msix: bool) {
        for line in self.lines(msix, 0, usize::MAX) {
            *line = Line::default();
        }
    }

    /// Whether the device wants an interrupt by the line.
    pub(super) fn wants_line(&self) -> bool {
        self.intx_asserted
    }

    /// Masks or unmasks vectors. The legacy line, if still asserted, fires again when it is unmasked.
    pub(super) fn set_masked(&mut self, msix: bool, start: usize, selected: &[bool], masked: bool) {
        let again = !msix && !masked && self.intx_asserted;
        for (line, selected) in self.lines(msix, start, selected.len()).iter_mut().zip(selected) {
            if *selected {
                line.set_masked(masked);
                if again {
                    line.fire();
                    line.masked = true;
                }
            }
        }
    }

    /// Fires vectors because the client asks for it.
    pub(super) fn trigger(&mut self, msix: bool, start: usize, selected: &[bool]) {
        for (line, selected) in self.lines(msix, start, selected.len()).iter_mut().zip(selected) {
            if *selected {
                line.fire();
            }
        }
    }

    /// Whether anything waits for [`flush`](Self::flush).
    pub(super) fn has_held(&self) -> bool {
        !self.held.is_empty() || self.memory.has_posted()
    }

    /// Sends what was held back, then the interrupts that were to follow it. Called when no answer is owed.
    pub(super) fn flush(&mut self) {
        for (address, bytes) in self.memory.take_posted() {
            let done = match &self.link {
                Some(link) => link.borrow_mut().write_memory(address, &bytes),
                None => Err(io::ErrorKind::NotConnected.into()),
            };
            if let Err(error) = done {
                self.remote_failures += 1;
                log::warn!("client memory at {address:#x}: {} bytes not written: {error}", bytes.len());
            }
        }
        for vector in std::mem::take(&mut self.held) {
            self.fire(vector);
        }
    }

    fn fire(&mut self, vector: Vector) {
        self.interrupts += 1;
        if let Some(line) = self.msix.get_mut(vector.index()) {
            line.fire();
        }
    }
}

impl Host for ClientHost {
    fn dma_write(&mut self, iova: u64, bytes: &[u8]) -> Result<(), DmaError> {
        if !self.bus_master {
            return Err(DmaError { iova, len_bytes: bytes.len() });
        }
        self.memory.write(iova, bytes)
    }

    fn dma_publish(&mut self, iova: u64, qword: u64) -> Result<(), DmaError> {
        if !self.bus_master {
            return Err(DmaError { iova, len_bytes: 8 });
        }
        self.memory.publish(iova, qword)
    }

    fn dma_read(&mut self, iova: u64, bytes: &mut [u8]) -> Result<(), DmaError> {
        if !self.bus_master {
            return Err(DmaError { iova, len_bytes: bytes.len() });
        }
        self.memory.read(iova, bytes, &mut Ask(self.link.as_ref()))
    }

    fn msix(&mut self, vector: Vector) {
        if self.memory.has_posted() {
            self.held.push(vector);
        } else {
            self.fire(vector);
        }
    }

    fn intx(&mut self, asserted: bool) {
        self.intx_asserted = asserted;
        if asserted && !self.intx.masked {
            self.intx.fire();
            // A level line masks itself until the client has looked.
            self.intx.masked = true;
        }
    }
}

impl WorldHost for ClientHost {}

#[cfg(test)]
mod tests {
    use super::*;
    use qhca_driver::sys::EventFd;
    use std::os::fd::AsFd;

    fn event(host: &mut ClientHost, vector: usize) -> EventFd {
        let event = EventFd::new().expect("a descriptor");
        let theirs = event.as_fd().try_clone_to_owned().expect("a descriptor");
        host.connect(true, vector, 1, vec![theirs]);
        event
    }

    #[test]
    fn a_message_that_nobody_hears_is_kept_until_somebody_does() {
        let mut host = ClientHost::new(4);
        host.msix(Vector::new(2).expect("a vector"));
        let heard = event(&mut host, 2);
        assert_eq!(heard.drain(), 1);
        host.set_masked(true, 2, &[true], true);
        host.msix(Vector::new(2).expect("a vector"));
        assert_eq!(heard.drain(), 0);
        host.set_masked(true, 2, &[true], false);
        assert_eq!(heard.drain(), 1);
    }

    /// B151: however often it was raised, it is delivered once; what was not raised is not delivered.
    #[test]
    fn a_masked_vector_delivers_once_what_was_raised_and_nothing_that_was_not() {
        for raised in [0, 1, 5] {
            let mut host = ClientHost::new(4);
            let heard = event(&mut host, 1);
            host.set_masked(true, 1, &[true], true);
            (0..raised).for_each(|_| host.msix(Vector::new(1).expect("a vector")));
            host.set_masked(true, 1, &[true], false);
            assert_eq!(heard.drain(), u64::from(raised > 0), "raised {raised} times");
            host.set_masked(true, 1, &[true], false);
            assert_eq!(heard.drain(), 0, "delivered twice");
        }
    }

    #[test]
    fn the_level_line_fires_again_when_unmasked_while_it_is_still_up() {
        let mut host = ClientHost::new(1);
        let event = EventFd::new().expect("a descriptor");
        host.connect(false, 0, 1, vec![event.as_fd().try_clone_to_owned().expect("a descriptor")]);
        host.intx(true);
        assert_eq!(event.drain(), 1);
        host.set_masked(false, 0, &[true], false);
        assert_eq!(event.drain(), 1);
        host.intx(false);
        host.set_masked(false, 0, &[true], false);
        assert_eq!(event.drain(), 0);
    }

    #[test]
    fn memory_is_out_of_reach_until_the_function_may_master_the_bus() {
        let mut host = ClientHost::new(1);
        assert!(host.dma_write(0, &[1]).is_err() && host.dma_publish(0, 1).is_err());
        assert!(host.dma_read(0, &mut [0]).is_err());
        assert_eq!(host.memory.refused, 0, "the client's memory was not even asked");
    }
}
