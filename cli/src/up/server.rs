//! Answering questions about a held device.
//!
//! One thread serves every client in turn: it waits for whichever speaks, answers whole lines, and never waits for one
//! that does not read. A client that sends too much, or does not take its answer in time, is closed; one more than there
//! is room for is turned away. No question changes anything.

use super::place::Claim;
use super::question::{EVENTS_AT_ONCE, EventView, Events, OFFSETS_MAX, QUESTION_BYTES, Question};
use crate::cmd::{counters, info};
use crate::fail::{Failure, Status};
use crate::target::Target;
use qhca::{Event, Instant};
use qhca_driver::sys::Epoll;
use qhca_regs::{Access, map};
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant as StdInstant};

/// Most clients at a time.
const CLIENTS_MAX: usize = 32;
/// How long a client may leave its answer unread.
///
/// TIMEOUT: ours; a client that waits for its answer takes it at once.
const READ_WITHIN: Duration = Duration::from_secs(2);
/// Events that are kept for whoever asks.
const EVENTS_KEPT: usize = 1024;

/// What waits beside the clients, in the epoll set.
const LISTENER: u64 = 0;
/// The first client's token.
const FIRST_CLIENT: u64 = 2;

/// A device's socket, and those who are connected to it.
pub(crate) struct Server {
    listener: UnixListener,
    clients: BTreeMap<u64, Client>,
    next_token: u64,
    history: History,
}

struct Client {
    socket: UnixStream,
    heard: Vec<u8>,
    unsent: Vec<u8>,
    since: StdInstant,
}

impl Server {
    /// Makes the socket of `claim`, for this user, or for `group` as well.
    pub(crate) fn listen(
        claim: &Claim,
        group: Option<u32>,
        epoll: &Epoll,
        start: Instant,
    ) -> io::Result<Self> {
        let private = claim.private_folder();
        // A process of the same number may have left one.
        let _ = std::fs::remove_dir_all(&private);
        std::fs::create_dir(&private)?;
        let listener = Self::bind(claim, &private, group);
        let _ = std::fs::remove_dir_all(&private);
        let listener = listener?;
        listener.set_nonblocking(true)?;
        epoll.add(listener.as_fd(), LISTENER)?;
        let history = History::new(start);
        Ok(Self { listener, clients: BTreeMap::new(), next_token: FIRST_CLIENT, history })
    }

    /// The socket is made where nobody else gets, and moved when its rights are right; what a killed process left in its
    /// place is replaced.
    fn bind(claim: &Claim, private: &std::path::Path, group: Option<u32>) -> io::Result<UnixListener> {
        std::fs::set_permissions(private, std::fs::Permissions::from_mode(0o700))?;
        let fresh = private.join("s");
        let listener = UnixListener::bind(&fresh)?;
        let mode = if group.is_some() { 0o660 } else { 0o600 };
        if group.is_some() {
            std::os::unix::fs::chown(&fresh, None, group)?;
        }
        std::fs::set_permissions(&fresh, std::fs::Permissions::from_mode(mode))?;
        std::fs::rename(&fresh, claim.socket())?;
        Ok(listener)
    }

    /// Whether an answer waits for its client, so that the loop is to come back soon.
    pub(crate) fn has_unsent(&self) -> bool {
        self.clients.values().any(|client| !client.unsent.is_empty())
    }

    /// Keeps what happened for whoever asks, and gives it to `say`.
    pub(crate) fn note_events(&mut self, target: &Target, say: &mut dyn FnMut(&EventView)) {
        let Some(device) = target.device() else { return };
        while let Some(event) = device.poll_event() {
            let view = self.history.note(&event, device.now());
            say(&view);
        }
    }

    /// Serves whoever has spoken.
    pub(crate) fn serve(&mut self, tokens: &[u64], epoll: &Epoll, target: &Target, name: &str) {
        if tokens.contains(&LISTENER) {
            self.accept(epoll);
        }
        for token in tokens {
            if let Some(client) = self.clients.get_mut(token)
                && !client.serve(&mut |question| answer(&self.history, target, name, question))
            {
                self.clients.remove(token);
            }
        }
        self.clients.retain(|_, client| client.flush());
    }

    fn accept(&mut self, epoll: &Epoll) {
        while let Ok((socket, _)) = self.listener.accept() {
            let token = self.next_token;
            let room = self.clients.len() < CLIENTS_MAX;
            // A socket that cannot be waited for is closed, as is one too many.
            if room && socket.set_nonblocking(true).is_ok() && epoll.add(socket.as_fd(), token).is_ok() {
                self.next_token += 1;
                let client =
                    Client { socket, heard: Vec::new(), unsent: Vec::new(), since: StdInstant::now() };
                self.clients.insert(token, client);
            }
        }
    }
}

impl Client {
    /// Reads what has come and answers its whole lines; false if the client is to be closed.
    fn serve(&mut self, answer: &mut dyn FnMut(&[u8]) -> Value) -> bool {
        let mut room = [0; 4096];
        loop {
            match self.socket.read(&mut room) {
                Ok(0) => return false,
                Ok(n) => self.heard.extend_from_slice(&room[..n]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(_) => return false,
            }
            while let Some(end) = self.heard.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.heard.drain(..=end).collect();
                // One answer at a time: who asks on without reading waits until it was read.
                if self.unsent.len() > QUESTION_BYTES {
                    return false;
                }
                self.since = StdInstant::now();
                self.unsent.extend(answer(&line).to_string().into_bytes());
                self.unsent.push(b'\n');
            }
            if self.heard.len() > QUESTION_BYTES {
                return false;
            }
        }
    }

    /// Sends what it can; false if the client is to be closed.
    fn flush(&mut self) -> bool {
        while !self.unsent.is_empty() {
            match self.socket.write(&self.unsent) {
                Ok(0) => return false,
                Ok(n) => drop(self.unsent.drain(..n)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    return self.since.elapsed() < READ_WITHIN;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
        true
    }
}

fn answer(history: &History, target: &Target, name: &str, line: &[u8]) -> Value {
    match result(history, target, name, line) {
        Ok(result) => json!({ "ok": true, "result": result }),
        Err(failure) => json!({ "ok": false, "error": failure.to_string(), "code": failure.status.code() }),
    }
}

fn result(history: &History, target: &Target, name: &str, line: &[u8]) -> Result<Value, Failure> {
    let question: Question = serde_json::from_slice(line).map_err(|error| {
        Failure::bad_input(format!("no question: {error}"))
            .remedy("valid: {\"ask\": \"holder|info|cables|counters|read|events|figures\"}")
    })?;
    let value = |value: serde_json::Result<Value>| {
        value.map_err(|error| Failure::new(Status::Output, format!("the answer has no JSON form: {error}")))
    };
    match question {
        Question::Holder => Ok(holder(history, target, name)),
        Question::Info => value(serde_json::to_value(info::look(target, &target.identity()?)?)),
        Question::Cables => value(serde_json::to_value(info::cables(target)?)),
        Question::Counters => value(serde_json::to_value(counters::read_all(target)?)),
        Question::Read { offsets } => read(target, &offsets),
        Question::Events { from } => {
            let lost = target.device().map_or(0, |device| device.events_counted().1);
            value(serde_json::to_value(history.since(from, lost)))
        }
        Question::Figures => Ok(figures(history, target)),
    }
}

/// Reads registers that may be read: those of the map that are not write-only.
fn read(target: &Target, offsets: &[u32]) -> Result<Value, Failure> {
    if offsets.len() > OFFSETS_MAX {
        return Err(Failure::bad_input(format!(
            "{} registers in one question; at most {OFFSETS_MAX}",
            offsets.len()
        )));
    }
    for offset in offsets {
        let placed = Some(*offset).filter(|offset| offset.is_multiple_of(8)).and_then(map::at);
        if !placed.is_some_and(|placed| placed.info.access != Access::Wo) {
            return Err(Failure::bad_input(format!("{offset:#x} is no register that can be read")));
        }
    }
    target.check_present("Revision")?;
    let words: Vec<String> = offsets.iter().map(|offset| format!("{:#x}", target.read(*offset))).collect();
    Ok(json!(words))
}

fn holder(history: &History, target: &Target, name: &str) -> Value {
    let device = target.device();
    json!({
        "name": name,
        "device": target.name,
        "pid": std::process::id(),
        "version": env!("CARGO_PKG_VERSION"),
        "up_seconds": device.map(|device| history.seconds(device.now())),
        "state": device.map(|device| format!("{:?}", device.state()).to_lowercase()),
    })
}

fn figures(history: &History, target: &Target) -> Value {
    let Some(device) = target.device() else { return Value::Null };
    let split = device.split();
    let (events_total, events_lost) = device.events_counted();
    json!({
        "policy": device.policy().name(),
        "interrupts": if device.is_polled() { "polled" } else { "interrupts" },
        "ports": split.ports.iter().count(),
        "contexts": split.contexts.len(),
        "kernel_contexts_per_port": split.kernel_queues,
        "header_entries": split.hdr_entries,
        "events_total": events_total,
        "events_lost": events_lost,
        "events_by_kind": history.by_kind,
    })
}

/// The last events, numbered.
struct History {
    start: Instant,
    kept: VecDeque<EventView>,
    next: u64,
    by_kind: BTreeMap<&'static str, u64>,
}

impl History {
    fn new(start: Instant) -> Self {
        Self { start, kept: VecDeque::new(), next: 0, by_kind: BTreeMap::new() }
    }

    fn seconds(&self, now: Instant) -> f64 {
        now.since(self.start).as_nanos() as f64 / 1e9
    }

    fn note(&mut self, event: &Event, now: Instant) -> EventView {
        let kind = kind(event);
        *self.by_kind.entry(kind).or_default() += 1;
        let (number, seconds) = (self.next, self.seconds(now));
        let view = EventView { number, seconds, kind: kind.to_owned(), text: event.to_string() };
        self.next += 1;
        self.kept.push_back(view.clone());
        if self.kept.len() > EVENTS_KEPT {
            self.kept.pop_front();
        }
        view
    }

    fn since(&self, from: u64, lost: u64) -> Events {
        let first = self.kept.front().map_or(self.next, |event| event.number);
        let from_kept = from.max(first).min(self.next);
        let skip = (from_kept - first) as usize;
        let events: Vec<EventView> = self.kept.iter().skip(skip).take(EVENTS_AT_ONCE).cloned().collect();
        let next = events.last().map_or(from_kept, |event| event.number + 1);
        Events { events, next, missed: first.saturating_sub(from), lost }
    }
}

fn kind(event: &Event) -> &'static str {
    match event {
        Event::Error(_) => "error",
        Event::Fatal(_) => "fatal",
        Event::Gone => "gone",
        Event::Link(_) => "link",
        Event::SendSpace => "send-space",
        Event::Sdma { .. } => "send-dma",
        Event::WasReset { .. } => "reset",
        Event::FellBack { .. } | Event::NoInterrupts(_) => "interrupts",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn history_is_bounded_numbered_and_says_what_it_no_longer_has() {
        let mut history = History::new(Instant::from_nanos(0));
        for n in 0..EVENTS_KEPT as u64 + 10 {
            history.note(&Event::SendSpace, Instant::from_nanos(n * 1_000_000_000));
        }
        let first = history.since(0, 3);
        assert_eq!((first.missed, first.lost, first.events.len()), (10, 3, EVENTS_AT_ONCE));
        assert_eq!((first.events[0].number, first.events[0].seconds), (10, 10.0));
        let (mut from, mut seen) = (0, 0);
        loop {
            let some = history.since(from, 0);
            if some.events.is_empty() {
                break;
            }
            (from, seen) = (some.next, seen + some.events.len());
        }
        assert_eq!((from, seen), (EVENTS_KEPT as u64 + 10, EVENTS_KEPT));
        let ahead = history.since(u64::MAX, 0);
        assert_eq!((ahead.events.len(), ahead.next, ahead.missed), (0, from, 0));
    }
}
