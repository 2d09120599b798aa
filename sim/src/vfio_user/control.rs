//! The server's control socket: orders in, answers out, one JSON object a line.
//!
//! Served by the event loop between two register accesses, so an order is as atomic as one. Whoever connects may stay, be
//! slow, or send nonsense: lines and connections are bounded, and a client that does not read its answers is closed.

use super::server::{ServeError, listen};
use crate::control::{LINE_MAX_BYTES, Order};
use serde_json::{Value, json};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// Most clients at a time.
pub(super) const CLIENTS_MAX: usize = 8;

/// Lines that one client has answered before the others have their turn.
const TURN_LINES: usize = 16;

struct Client {
    socket: UnixStream,
    line: Vec<u8>,
}

/// The socket and who is connected to it.
pub(super) struct Control {
    listener: UnixListener,
    path: PathBuf,
    clients: [Option<Client>; CLIENTS_MAX],
    /// Lines answered, and clients turned away or closed for not reading.
    pub(super) lines: u64,
    pub(super) closed: u64,
}

impl Control {
    /// Listens at `path`, which only this user may open.
    pub(super) fn new(path: &Path) -> Result<Self, ServeError> {
        let listener = listen(path)?;
        Ok(Self { listener, path: path.to_owned(), clients: Default::default(), lines: 0, closed: 0 })
    }

    /// The descriptor that says that somebody wants to connect.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    /// Takes in a client; gives its place, and the descriptor to wait for.
    pub(super) fn accept(&mut self) -> io::Result<Option<(usize, BorrowedFd<'_>)>> {
        let (socket, _) = self.listener.accept()?;
        let Some(place) = self.clients.iter().position(Option::is_none) else {
            self.closed += 1;
            return Ok(None);
        };
        socket.set_nonblocking(true)?;
        let client = self.clients[place].insert(Client { socket, line: Vec::new() });
        Ok(Some((place, client.socket.as_fd())))
    }

    /// Whether a line of the client at `place` waits that no descriptor will announce: it has been received already.
    pub(super) fn has_line(&self, place: usize) -> bool {
        let client = self.clients.get(place).and_then(Option::as_ref);
        client.is_some_and(|client| client.line.contains(&b'\n'))
    }

    /// Answers what the client at `place` has sent; whether it may have sent more. `obey` carries orders out.
    pub(super) fn serve(
        &mut self,
        place: usize,
        mut obey: impl FnMut(&Order) -> Result<Value, String>,
    ) -> bool {
        let Some(client) = self.clients.get_mut(place).and_then(Option::as_mut) else { return false };
        for _ in 0..TURN_LINES {
            let answer = match client.next_line() {
                Ok(Some(line)) => answer(&line, &mut obey),
                Ok(None) => return false,
                Err(Broken::Gone) => {
                    self.clients[place] = None;
                    return false;
                }
                Err(Broken::TooLong) => refusal(format!("a line is longer than {LINE_MAX_BYTES} bytes")),
            };
            self.lines += 1;
            let mut text = answer.to_string();
            text.push('\n');
            if client.socket.write_all(text.as_bytes()).is_err() || client.line.len() > LINE_MAX_BYTES {
                self.closed += 1;
                self.clients[place] = None;
                return false;
            }
        }
        true
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        // Nothing is lost if it is gone already.
        let _ = std::fs::remove_file(&self.path);
    }
}

enum Broken {
    Gone,
    TooLong,
}

impl Client {
    /// The next whole line, without its end.
    fn next_line(&mut self) -> Result<Option<Vec<u8>>, Broken> {
        loop {
            if let Some(end) = self.line.iter().position(|byte| *byte == b'\n') {
                let rest = self.line.split_off(end + 1);
                let mut line = std::mem::replace(&mut self.line, rest);
                line.pop();
                return Ok(Some(line));
            }
            if self.line.len() > LINE_MAX_BYTES {
                return Err(Broken::TooLong);
            }
            let mut bytes = [0; 4096];
            match self.socket.read(&mut bytes) {
                Ok(0) => return Err(Broken::Gone),
                Ok(len) => self.line.extend_from_slice(&bytes[..len]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Err(Broken::Gone),
            }
        }
    }
}

fn refusal(why: String) -> Value {
    json!({ "ok": false, "error": why })
}

/// The answer to one line.
fn answer(line: &[u8], obey: &mut impl FnMut(&Order) -> Result<Value, String>) -> Value {
    let request: Value = match serde_json::from_slice(line) {
        Ok(request) => request,
        Err(error) => return refusal(format!("the line is no JSON: {error}")),
    };
    let Some(text) = request["do"].as_str() else {
        return refusal(r#"the line is no object with a text "do", as in {"do": "state"}"#.to_owned());
    };
    let done = text.parse::<Order>().map_err(|error| error.to_string()).and_then(|order| obey(&order));
    match done {
        Ok(result) => json!({ "ok": true, "result": result }),
        Err(why) => refusal(why),
    }
}
