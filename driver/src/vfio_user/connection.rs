//! One connection: requests out, answers in, one at a time.
//!
//! All threads of the device share it, and a lock is held from a request to its answer, so answers need no sorting. What
//! needs no answer (a posted write) is sent and forgotten; the other side carries out what it gets in order. While an
//! answer is awaited the other side may ask for our memory, and is served.
//!
//! Whatever breaks the connection breaks it for good: from then on nothing is sent, which the chip's user sees as a card
//! that has gone.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use qhca_vfu::{
    Capabilities, Command, DmaRequest, HEADER_LEN_BYTES, Header, Kind, Request, Version, error_reply,
};

use super::error::VfioUserError;
use crate::dma::DmaMemory;
use crate::sys;

/// How long an answer may take, and how long a message may wait for room in the socket.
///
/// TIMEOUT: an answer takes microseconds. Five seconds is what QEMU gives a server, too: long enough for one that was
/// swapped out, short enough for whoever waits to be told.
pub const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// Bytes asked of one receive call.
const CHUNK_BYTES: usize = 64 * 1024;

/// Descriptors beside a message that a server which does not say takes.
const FDS_DEFAULT: usize = 1;

const ENOENT: u32 = libc::ENOENT as u32;

/// The connection, shared by everything that the back end hands out.
pub(super) struct Connection {
    wire: Mutex<Wire>,
    ended: AtomicBool,
    lost_writes: AtomicU64,
}

struct Wire {
    socket: UnixStream,
    within: Duration,
    next_id: u16,
    /// The message that goes out.
    out: Vec<u8>,
    /// Bytes received, from `taken` to `filled`; the buffer is longer.
    bytes: Vec<u8>,
    taken: usize,
    filled: usize,
    /// Memory by the address that the device has for it.
    maps: BTreeMap<u64, Arc<DmaMemory>>,
    fds_max: usize,
}

impl Connection {
    /// Connects to the server at `path` and agrees on a version with it.
    pub(super) fn open(path: &Path) -> Result<Self, VfioUserError> {
        let socket = UnixStream::connect(path)
            .map_err(|source| VfioUserError::Connect { path: path.to_owned(), source })?;
        Self::begin(socket, ANSWER_WITHIN)
    }

    /// Agrees on a version with whoever is at the other end of `socket`; answers come `within`.
    pub(super) fn begin(socket: UnixStream, within: Duration) -> Result<Self, VfioUserError> {
        let refused = |source| VfioUserError::System { command: Command::Version.name(), source };
        socket.set_read_timeout(Some(within)).map_err(refused)?;
        socket.set_write_timeout(Some(within)).map_err(refused)?;
        let (out, bytes, maps) = (Vec::new(), vec![0; CHUNK_BYTES], BTreeMap::new());
        let wire =
            Wire { socket, within, next_id: 0, out, bytes, taken: 0, filled: 0, maps, fds_max: FDS_DEFAULT };
        let this =
            Self { wire: Mutex::new(wire), ended: AtomicBool::new(false), lost_writes: AtomicU64::new(0) };
        let version = Version::ours(Capabilities::default());
        let theirs = this.ask(&Request::Version(version), &[], Version::parse)?;
        if theirs.major != version.major || theirs.minor > version.minor {
            let (seen, expected) = (u64::from(theirs.minor), u64::from(version.minor));
            return Err(VfioUserError::NotThisDevice { what: "protocol version", seen, expected });
        }
        this.wire().fds_max = (theirs.capabilities.max_msg_fds as usize).clamp(1, sys::SEND_FDS_MAX);
        Ok(this)
    }

    /// A panic of one thread does not make the device unreachable for the others.
    fn wire(&self) -> MutexGuard<'_, Wire> {
        self.wire.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many descriptors one message may carry.
    pub(super) fn fds_max(&self) -> usize {
        self.wire().fds_max
    }

    /// Writes that could not be sent, because the connection had ended.
    pub(super) fn lost_writes(&self) -> u64 {
        self.lost_writes.load(Ordering::Relaxed)
    }

    /// Sends `request` with `fds` beside it and waits for the answer, whose payload `read` reads.
    pub(super) fn ask<T>(
        &self,
        request: &Request<'_>,
        fds: &[BorrowedFd<'_>],
        read: impl FnOnce(&[u8]) -> Result<T, qhca_vfu::ParseError>,
    ) -> Result<T, VfioUserError> {
        let result = self.ask_on(&mut self.wire(), request, fds, read);
        if let Err(error) = &result
            && error.ends_connection()
        {
            self.end(error);
        }
        result
    }

    fn ask_on<T>(
        &self,
        wire: &mut Wire,
        request: &Request<'_>,
        fds: &[BorrowedFd<'_>],
        read: impl FnOnce(&[u8]) -> Result<T, qhca_vfu::ParseError>,
    ) -> Result<T, VfioUserError> {
        let (command, id) = wire.encode(request, false);
        if self.has_ended() {
            return Err(VfioUserError::Gone { command: command.name() });
        }
        wire.send(command.name(), fds)?;
        let payload = wire.answer(command, id)?;
        read(payload).map_err(|source| VfioUserError::Message { command: command.name(), source })
    }

    /// Sends `request`, which wants no answer.
    pub(super) fn tell(&self, request: &Request<'_>) {
        let mut wire = self.wire();
        let (command, _) = wire.encode(request, true);
        let sent = if self.has_ended() {
            Err(VfioUserError::Gone { command: command.name() })
        } else {
            wire.send(command.name(), &[])
        };
        drop(wire);
        if let Err(error) = sent {
            self.lost_writes.fetch_add(1, Ordering::Relaxed);
            self.end(&error);
        }
    }

    /// Notes what memory the device finds at `iova`, for when it asks for it.
    pub(super) fn note_map(&self, iova: u64, memory: Arc<DmaMemory>) {
        self.wire().maps.insert(iova, memory);
    }

    pub(super) fn forget_map(&self, iova: u64) {
        self.wire().maps.remove(&iova);
    }

    fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    fn end(&self, why: &VfioUserError) {
        if !self.ended.swap(true, Ordering::Relaxed) {
            log::error!("vfio-user connection ended: {why}");
        }
    }
}

impl Wire {
    fn encode(&mut self, request: &Request<'_>, no_reply: bool) -> (Command, u16) {
        self.next_id = self.next_id.wrapping_add(1);
        (request.encode(self.next_id, no_reply, &mut self.out), self.next_id)
    }

    /// Sends what was encoded, with `fds` beside it.
    fn send(&self, command: &'static str, fds: &[BorrowedFd<'_>]) -> Result<(), VfioUserError> {
        send_all(&self.socket, &self.out, fds, command, self.within)
    }

    /// The payload that answers our `command`; what the device asks for in the meantime is served.
    fn answer(&mut self, command: Command, id: u16) -> Result<&[u8], VfioUserError> {
        let name = command.name();
        let deadline = Instant::now() + self.within;
        loop {
            let header = self.fill_message(name, deadline)?;
            let payload = self.taken + HEADER_LEN_BYTES..self.taken + header.size_bytes as usize;
            self.taken = payload.end;
            match header.kind {
                Kind::Command => self.serve(&header, payload, name)?,
                Kind::Reply if header.id != id || header.command != command as u16 => {
                    return Err(VfioUserError::Stray { command: name, id, came: header.id });
                }
                Kind::Reply => match header.error {
                    Some(errno) => return Err(VfioUserError::Refused { command: name, errno }),
                    None => return Ok(&self.bytes[payload]),
                },
            }
        }
    }

    /// Receives until a whole message is there, and gives its header.
    fn fill_message(&mut self, command: &'static str, deadline: Instant) -> Result<Header, VfioUserError> {
        loop {
            let there = &self.bytes[self.taken..self.filled];
            let mut needed = HEADER_LEN_BYTES;
            if let Some(head) = there.first_chunk::<HEADER_LEN_BYTES>() {
                let header =
                    Header::parse(head).map_err(|source| VfioUserError::Message { command, source })?;
                needed = header.size_bytes as usize;
                if there.len() >= needed {
                    return Ok(header);
                }
            }
            self.make_room(needed);
            self.receive(command, deadline)?;
        }
    }

    /// Makes room for a message of `needed` bytes from `taken` on.
    fn make_room(&mut self, needed: usize) {
        if self.taken == self.filled {
            (self.taken, self.filled) = (0, 0);
        }
        if self.bytes.len() - self.taken < needed {
            self.bytes.copy_within(self.taken..self.filled, 0);
            (self.taken, self.filled) = (0, self.filled - self.taken);
        }
        if self.bytes.len() < needed {
            // The header's size is bounded by the codec.
            self.bytes.resize(needed, 0);
        }
    }

    /// Receives some bytes. Descriptors beside them are not taken, and the system closes them.
    fn receive(&mut self, command: &'static str, deadline: Instant) -> Result<(), VfioUserError> {
        let late = VfioUserError::Late { command, waited: self.within };
        loop {
            match (&self.socket).read(&mut self.bytes[self.filled..]) {
                Ok(0) => return Err(VfioUserError::Closed { command }),
                Ok(len) => {
                    self.filled += len;
                    return Ok(());
                }
                Err(error) => match error.kind() {
                    ErrorKind::Interrupted if Instant::now() < deadline => {}
                    ErrorKind::Interrupted | ErrorKind::WouldBlock => return Err(late),
                    ErrorKind::ConnectionReset => return Err(VfioUserError::Closed { command }),
                    _ => return Err(VfioUserError::System { command, source: error }),
                },
            }
        }
    }

    /// Answers the device, which asks for memory of ours: memory that it was given, whole or not at all.
    fn serve(
        &mut self,
        header: &Header,
        payload: std::ops::Range<usize>,
        asking: &'static str,
    ) -> Result<(), VfioUserError> {
        let parsed = Command::from_number(header.command)
            .and_then(|command| DmaRequest::parse(command, &self.bytes[payload]));
        let reply = match parsed {
            Ok(request) => match touch(&self.maps, &request) {
                Some(data) => request.reply(header, &data),
                None => error_reply(header, ENOENT),
            },
            Err(error) => error_reply(header, error.errno()),
        };
        if header.no_reply {
            return Ok(());
        }
        send_all(&self.socket, &reply, &[], asking, self.within)
    }
}

/// Carries out what the device asks of our memory; the bytes read, if any. `None`: that memory is not its.
fn touch(maps: &BTreeMap<u64, Arc<DmaMemory>>, request: &DmaRequest<'_>) -> Option<Vec<u8>> {
    let (address, len) = match request {
        DmaRequest::Read { address, len_bytes } => (*address, *len_bytes as usize),
        DmaRequest::Write { address, data } => (*address, data.len()),
    };
    let (iova, memory) = maps.range(..=address).next_back()?;
    let offset = usize::try_from(address - iova).ok()?;
    let inside = memory.slice(offset, len)?;
    match request {
        DmaRequest::Read { .. } => Some(inside.to_vec()),
        DmaRequest::Write { data, .. } => {
            memory.copy_in(offset, data);
            // ORDER: the bytes before whatever the device tells next; its message comes through the socket.
            std::sync::atomic::fence(Ordering::Release);
            Some(Vec::new())
        }
    }
}

fn send_all(
    socket: &UnixStream,
    bytes: &[u8],
    fds: &[BorrowedFd<'_>],
    command: &'static str,
    within: Duration,
) -> Result<(), VfioUserError> {
    let (mut rest, mut fds) = (bytes, fds);
    while !rest.is_empty() {
        match sys::send_with_fds(socket.as_fd(), rest, fds) {
            Ok(len) => (rest, fds) = (&rest[len..], &[]),
            Err(error) => {
                return Err(match error.kind() {
                    ErrorKind::WouldBlock => VfioUserError::Late { command, waited: within },
                    ErrorKind::BrokenPipe | ErrorKind::ConnectionReset => VfioUserError::Closed { command },
                    _ => VfioUserError::System { command, source: error },
                });
            }
        }
    }
    Ok(())
}
