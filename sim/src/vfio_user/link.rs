//! One connection: a stream of bytes cut into messages, each with the descriptors that came beside it.
//!
//! Descriptors travel with the bytes of one send call, and a receive call never takes bytes from beyond the send that
//! carried descriptors. So those that a call brings belong to the message which holds the last byte it brought; the
//! stream can be read in large pieces all the same.

use super::sys::{self, FDS_MAX, Received};
use qhca_vfu::{Command, DmaRequest, HEADER_LEN_BYTES, Header, Kind, ParseError, XFER_MAX_BYTES};
use std::collections::VecDeque;
use std::io::{self, ErrorKind, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// How long one message may wait for room in the socket. TIMEOUT: a client that does not read for this long is gone.
const SEND_DEADLINE: Duration = Duration::from_secs(5);

/// Bytes asked of one receive call.
const CHUNK_BYTES: usize = 64 * 1024;

/// Messages that may wait while an answer is awaited; a client that sends more is not waiting for us.
const INBOX_MAX: usize = 4096;

/// A whole message.
pub(super) struct Message {
    pub(super) header: Header,
    pub(super) payload: Vec<u8>,
    pub(super) fds: Vec<OwnedFd>,
}

/// Why a connection ended.
#[derive(Debug)]
pub(super) enum Ended {
    /// The client closed it.
    Closed,
    /// It sent what cannot be cut into messages.
    Stream(ParseError),
    /// It did not answer when it was asked for its memory. Everybody waited for it; they will not again.
    Silent,
    /// The system says so.
    Io(io::Error),
}

impl std::fmt::Display for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Closed => f.write_str("closed by the client"),
            Self::Stream(error) => write!(f, "unreadable from here on: {error}"),
            Self::Silent => f.write_str("it does not answer when it is asked for its memory"),
            Self::Io(error) => write!(f, "{error}"),
        }
    }
}

impl From<io::Error> for Ended {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// A connection.
pub(super) struct Link {
    socket: UnixStream,
    /// Bytes received and not yet cut into messages, from `taken` to `filled`; the buffer is longer.
    bytes: Vec<u8>,
    taken: usize,
    filled: usize,
    /// The last receive call left nothing behind.
    drained: bool,
    /// How long the client has to answer when it is asked for its memory.
    answer_within: Duration,
    silent: bool,
    /// Where in `bytes` a receive call that brought descriptors ended, and what it brought.
    fds: VecDeque<(usize, Vec<OwnedFd>)>,
    inbox: VecDeque<Message>,
    next_id: u16,
}

impl Link {
    pub(super) fn new(socket: UnixStream, answer_within: Duration) -> io::Result<Self> {
        socket.set_nonblocking(false)?;
        socket.set_write_timeout(Some(SEND_DEADLINE))?;
        Ok(Self {
            socket,
            bytes: Vec::new(),
            taken: 0,
            filled: 0,
            drained: false,
            answer_within,
            silent: false,
            fds: VecDeque::new(),
            inbox: VecDeque::new(),
            next_id: 0,
        })
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// The next message, if a whole one is there.
    pub(super) fn next(&mut self) -> Result<Option<Message>, Ended> {
        if self.silent {
            return Err(Ended::Silent);
        }
        if let Some(message) = self.inbox.pop_front() {
            return Ok(Some(message));
        }
        loop {
            if let Some(message) = self.cut()? {
                return Ok(Some(message));
            }
            // Whoever waits on the descriptor is told if more has come since.
            if std::mem::take(&mut self.drained) || !self.fill()? {
                return Ok(None);
            }
        }
    }

    /// Whether messages may wait that no descriptor will announce: they have been received already.
    pub(super) fn has_waiting(&self) -> bool {
        self.silent || !self.inbox.is_empty() || self.has_whole()
    }

    /// Whether the bytes that are there hold a message, or what can be none.
    fn has_whole(&self) -> bool {
        let rest = &self.bytes[self.taken..self.filled];
        let head = rest.first_chunk::<HEADER_LEN_BYTES>().map(Header::parse);
        head.is_some_and(|head| head.map_or(true, |header| header.size_bytes as usize <= rest.len()))
    }

    /// Cuts one message off the bytes that are there.
    fn cut(&mut self) -> Result<Option<Message>, Ended> {
        let rest = &self.bytes[self.taken..self.filled];
        let Some(head) = rest.first_chunk::<HEADER_LEN_BYTES>() else { return Ok(None) };
        let header = Header::parse(head).map_err(Ended::Stream)?;
        let Some(whole) = rest.get(..header.size_bytes as usize) else { return Ok(None) };
        let payload = whole[HEADER_LEN_BYTES..].to_vec();
        self.taken += whole.len();
        let mut fds = Vec::new();
        while self.fds.front().is_some_and(|(end, _)| *end <= self.taken) {
            fds.extend(self.fds.pop_front().into_iter().flat_map(|(_, more)| more));
        }
        Ok(Some(Message { header, payload, fds }))
    }

    /// Makes room for another receive call behind what is there.
    fn make_room(&mut self) {
        if self.taken > 0 {
            self.bytes.copy_within(self.taken..self.filled, 0);
            for (end, _) in &mut self.fds {
                *end -= self.taken;
            }
            self.filled -= self.taken;
            self.taken = 0;
        }
        if self.bytes.len() - self.filled < CHUNK_BYTES {
            // At most a message and what one call brings beyond it: the codec bounds the first, the chunk the second.
            self.bytes.resize(self.filled + CHUNK_BYTES, 0);
        }
    }

    /// Receives what is there; false if nothing is.
    fn fill(&mut self) -> Result<bool, Ended> {
        self.make_room();
        let mut fds = Vec::new();
        let room = self.bytes.len() - self.filled;
        let received = sys::receive(&self.socket, &mut self.bytes[self.filled..], &mut fds)?;
        let len = match received {
            Received::Nothing => return Ok(false),
            Received::Bytes(0) => return Err(Ended::Closed),
            Received::Bytes(len) => len,
        };
        self.filled += len;
        // A call that brought descriptors ends with them, whatever lies behind.
        self.drained = len < room && fds.is_empty();
        if !fds.is_empty() {
            fds.truncate(FDS_MAX);
            self.fds.push_back((self.filled, fds));
        }
        Ok(true)
    }

    /// Sends a whole message.
    pub(super) fn send(&mut self, message: &[u8]) -> io::Result<()> {
        self.socket.write_all(message)
    }

    fn ask(&mut self, request: &DmaRequest<'_>) -> io::Result<u16> {
        if self.silent {
            return Err(ErrorKind::NotConnected.into());
        }
        let (command, payload) = request.build();
        self.next_id = self.next_id.wrapping_add(1);
        let (id, command) = (self.next_id, command as u16);
        let header = Header { id, command, size_bytes: 0, kind: Kind::Command, no_reply: false, error: None };
        self.send(&header.with_payload(&payload))?;
        Ok(id)
    }

    /// The payload that answers our command `id`. A client that does not answer in time is not asked again.
    fn answer(&mut self, id: u16, command: Command) -> io::Result<Vec<u8>> {
        let answer = self.await_answer(id, command);
        self.silent |= answer.as_ref().is_err_and(|error| error.kind() == ErrorKind::TimedOut);
        answer
    }

    /// Waits for the answer; other messages that come first wait in the inbox.
    fn await_answer(&mut self, id: u16, command: Command) -> io::Result<Vec<u8>> {
        let deadline = Instant::now() + self.answer_within;
        loop {
            let message = match self.cut() {
                Ok(Some(message)) => message,
                Ok(None) => {
                    self.wait_readable(deadline)?;
                    self.fill().map_err(into_io)?;
                    continue;
                }
                Err(ended) => return Err(into_io(ended)),
            };
            let ours = message.header.kind == Kind::Reply
                && message.header.id == id
                && message.header.command == command as u16;
            match message.header.error {
                Some(errno) if ours => return Err(io::Error::from_raw_os_error(errno as i32)),
                None if ours => return Ok(message.payload),
                _ if self.inbox.len() >= INBOX_MAX => return Err(ErrorKind::OutOfMemory.into()),
                _ => self.inbox.push_back(message),
            }
        }
    }

    fn wait_readable(&self, deadline: Instant) -> io::Result<()> {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        sys::wait_readable(self.fd(), left)
    }

    /// Reads client memory by asking for it.
    pub(super) fn read_memory(&mut self, address: u64, bytes: &mut [u8]) -> io::Result<()> {
        let mut at = address;
        for part in bytes.chunks_mut(XFER_MAX_BYTES as usize) {
            let len_bytes = part.len() as u32;
            let id = self.ask(&DmaRequest::Read { address: at, len_bytes })?;
            let payload = self.answer(id, Command::DmaRead)?;
            let data = DmaRequest::parse_read_reply(&payload, len_bytes)
                .map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?;
            part.copy_from_slice(data);
            at = at.wrapping_add(u64::from(len_bytes));
        }
        Ok(())
    }

    /// Writes client memory by asking for it; returns when the client has done it.
    pub(super) fn write_memory(&mut self, address: u64, bytes: &[u8]) -> io::Result<()> {
        let mut at = address;
        for data in bytes.chunks(XFER_MAX_BYTES as usize) {
            let id = self.ask(&DmaRequest::Write { address: at, data })?;
            self.answer(id, Command::DmaWrite)?;
            at = at.wrapping_add(data.len() as u64);
        }
        Ok(())
    }
}

fn into_io(ended: Ended) -> io::Error {
    match ended {
        Ended::Io(error) => error,
        Ended::Closed => ErrorKind::UnexpectedEof.into(),
        Ended::Silent => ErrorKind::NotConnected.into(),
        Ended::Stream(error) => io::Error::new(ErrorKind::InvalidData, error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(id: u16, payload: &[u8]) -> Vec<u8> {
        let command = Command::RegionRead as u16;
        let header = Header { id, command, size_bytes: 0, kind: Kind::Command, no_reply: false, error: None };
        header.with_payload(payload)
    }

    #[test]
    fn messages_are_cut_wherever_the_stream_breaks() {
        let (mut client, server) = UnixStream::pair().expect("sockets");
        let mut link = Link::new(server, Duration::from_secs(1)).expect("a link");
        let stream = [message(1, &[1; 16]), message(2, &[]), message(3, &[3; 100])].concat();
        let mut seen = Vec::new();
        for byte in &stream {
            client.write_all(&[*byte]).expect("sent");
            while let Ok(Some(message)) = link.next() {
                seen.push((message.header.id, message.payload.len()));
            }
        }
        assert_eq!(seen, [(1, 16), (2, 0), (3, 100)]);
        drop(client);
        assert!(matches!(link.next(), Err(Ended::Closed)));
    }

    #[test]
    fn messages_that_were_received_together_are_known_to_wait() {
        let (mut client, server) = UnixStream::pair().expect("sockets");
        let mut link = Link::new(server, Duration::from_secs(1)).expect("a link");
        client.write_all(&[message(1, &[]), message(2, &[])].concat()).expect("sent");
        assert!(matches!(link.next(), Ok(Some(_))));
        assert!(link.has_waiting(), "the second message is ours already: its socket is quiet");
        assert!(matches!(link.next(), Ok(Some(_))));
        assert!(!link.has_waiting());
    }

    #[test]
    fn a_size_that_cannot_be_true_ends_the_connection() {
        let (mut client, server) = UnixStream::pair().expect("sockets");
        let mut link = Link::new(server, Duration::from_secs(1)).expect("a link");
        let mut bad = message(1, &[]);
        bad[4..8].copy_from_slice(&3_u32.to_le_bytes());
        client.write_all(&bad).expect("sent");
        assert!(matches!(link.next(), Err(Ended::Stream(ParseError::Size { size_bytes: 3 }))));
    }

    #[test]
    fn commands_that_come_before_an_answer_wait_for_their_turn() {
        let (mut client, server) = UnixStream::pair().expect("sockets");
        let mut link = Link::new(server, Duration::from_secs(1)).expect("a link");
        client.write_all(&message(9, &[])).expect("sent");
        let reply = Header {
            id: 1,
            command: Command::DmaRead as u16,
            size_bytes: 0,
            kind: Kind::Reply,
            no_reply: false,
            error: None,
        };
        client.write_all(&reply.with_payload(&[&[0; 16][..], &[5, 6]].concat())).expect("sent");
        let mut bytes = [0; 2];
        link.read_memory(0x1000, &mut bytes).expect("answered");
        assert_eq!(bytes, [5, 6]);
        assert!(link.has_waiting());
        assert!(matches!(link.next(), Ok(Some(message)) if message.header.id == 9));
    }
}
