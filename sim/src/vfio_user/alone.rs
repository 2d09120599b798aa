//! One client's session with one chip, turned by hand: no event loop, no thread, no clock.
//!
//! For tests and fuzzing: what a client sends goes in, what it would get comes out, and time is what the caller says.

use super::Options;
use super::client::ClientHost;
use super::session::{Session, Stage};
use super::trace::Trace;
use crate::chip::Config;
use crate::vtime::Seed;
use crate::world::{NodeId, World};
use qhca_driver::sys::send_with_fds;
use qhca_regs::{Duration, Instant};
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

/// A served chip and its client's end of the connection.
pub struct Alone {
    world: World<ClientHost>,
    trace: Trace,
    session: Option<Session>,
    node: NodeId,
    now: Instant,
    client: UnixStream,
}

impl Alone {
    /// A chip to which a client has just connected.
    ///
    /// # Errors
    /// The system has no descriptor left.
    pub fn new(config: Config, options: Options) -> io::Result<Self> {
        let (client, server) = UnixStream::pair()?;
        client.set_nonblocking(true)?;
        let (mut world, mut trace, now) = (World::new(Seed(1), false), Trace::default(), Instant::ZERO);
        let node = world.add_on(config, ClientHost::new(usize::from(options.vectors.clamp(1, 32))));
        let mut stage = Stage { world: &mut world, trace: &mut trace, now };
        let session = Some(Session::new(server, node, options, &mut stage)?);
        Ok(Self { world, trace, session, node, now, client })
    }

    /// Sends `bytes` with `fds` beside the first of them, and serves what has come whole, `after` so much time. Gives
    /// what the client is sent. Nothing once the connection has ended.
    ///
    /// # Errors
    /// What the system says; `WouldBlock` for more bytes than a socket holds.
    pub fn exchange(&mut self, bytes: &[u8], fds: &[BorrowedFd<'_>], after: Duration) -> io::Result<Vec<u8>> {
        self.now += after;
        let (mut rest, mut fds) = (bytes, fds);
        while !rest.is_empty() && self.session.is_some() {
            let sent = send_with_fds(self.client.as_fd(), rest, fds)?;
            (rest, fds) = (&rest[sent..], &[]);
        }
        let mut received = Vec::new();
        self.world.advance_to(self.now);
        while self.serve_one() {
            self.receive(&mut received)?;
        }
        self.receive(&mut received)?;
        Ok(received)
    }

    /// Serves one message; whether there may be more.
    fn serve_one(&mut self) -> bool {
        let Some(session) = &mut self.session else { return false };
        let mut stage = Stage { world: &mut self.world, trace: &mut self.trace, now: self.now };
        session.flush(&mut stage);
        match session.serve(1, &mut stage) {
            Ok(more) => more || session.has_waiting(),
            Err(ended) => {
                log::info!("session ended: {ended}");
                if let Some(session) = self.session.take() {
                    session.end(&mut stage);
                }
                false
            }
        }
    }

    fn receive(&mut self, received: &mut Vec<u8>) -> io::Result<()> {
        let mut bytes = [0; 4096];
        loop {
            match self.client.read(&mut bytes) {
                Ok(0) => return Ok(()),
                Ok(len) => received.extend_from_slice(&bytes[..len]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    /// Whether the server still listens to the client.
    pub fn is_open(&self) -> bool {
        self.session.is_some()
    }

    /// Accesses of the chip to memory that the client did not offer.
    pub fn refused_accesses(&self) -> u64 {
        self.world.host(self.node).memory.refused
    }
}
