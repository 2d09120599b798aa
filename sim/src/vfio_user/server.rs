//! The event loop: sockets that listen, clients that ask, chips whose time passes.

use super::Options;
use super::client::ClientHost;
use super::control::{CLIENTS_MAX, Control};
use super::linger::{LOOK_FOR, Linger};
use super::session::{Session, Stage};
use super::sys;
use super::trace::Trace;
use crate::chip::Config;
use crate::control::{Order, report};
use crate::fabric::CableConfig;
use crate::vtime::Seed;
use crate::world::{CableId, NodeId, World};
use qhca_driver::env::{Clock, MonotonicClock};
use qhca_driver::sys::{Epoll, EventFd};
use qhca_regs::{Duration, Instant, Port};
use serde_json::{Value, json};
use std::fmt;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Messages served for one client before the others have their turn.
const TURN_MESSAGES: usize = 64;

/// Questions that are looked for one after another before others have their turn.
const LINGER_MESSAGES: usize = 16;

/// Turns of a client in which its leaving is found out, if it has left, behind what it sent before.
const LEAVING_TURNS: usize = 8;

/// Longest sleep. TIMEOUT: only a bound for the loop; everything that matters wakes it.
const SLEEP_MAX_MS: i32 = 60_000;

const NS_PER_MS: u64 = 1_000_000;

/// Why a server could not be set up or had to stop.
#[derive(Debug)]
#[non_exhaustive]
pub enum ServeError {
    /// The socket's path is taken by something that is not a stale socket.
    Taken {
        /// The path.
        path: PathBuf,
        /// What is there.
        what: &'static str,
    },
    /// The system refused.
    Io {
        /// What was being done.
        doing: &'static str,
        /// To what.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl fmt::Display for ServeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Taken { path, what } => {
                write!(f, "{} is taken by {what}: choose another path or remove it", path.display())
            }
            Self::Io { doing, path, source } => write!(f, "{doing} {}: {source}", path.display()),
        }
    }
}

impl std::error::Error for ServeError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Taken { .. } => None,
            Self::Io { source, .. } => Some(source),
        }
    }
}

/// Ends a server from another thread or a signal handler's thread.
#[derive(Clone)]
pub struct Stop(Arc<EventFd>);

impl Stop {
    /// Lets [`Server::run`] return after the message it is serving.
    pub fn stop(&self) {
        self.0.signal();
    }
}

struct Slot {
    /// Messages that its clients sent.
    messages: u64,
    node: NodeId,
    options: Options,
    path: PathBuf,
    listener: UnixListener,
    session: Option<Session>,
    linger: Linger,
}

/// Chips behind sockets, and the cables between them.
pub struct Server {
    world: World<ClientHost>,
    slots: Vec<Slot>,
    trace: Trace,
    clock: MonotonicClock,
    epoll: Epoll,
    stop: Stop,
    control: Option<Control>,
    /// Orders that are due later, the next one last.
    planned: Vec<(Instant, Order)>,
    /// How often the event loop woke.
    wakeups: u64,
}

const TOKEN_STOP: u64 = u64::MAX;
const TOKEN_CONTROL: u64 = u64::MAX - 1;
/// Tokens of the control socket's clients: this one and as many below as there may be.
const TOKEN_CONTROL_CLIENT: u64 = u64::MAX - 2;
/// Tokens of a slot: its listener at twice its rank, its client one above.
const fn token(slot: usize, client: bool) -> u64 {
    2 * slot as u64 + client as u64
}

impl Server {
    /// A server without chips. Its world is drawn from `seed`; with `crc`, check sums are computed on every cable.
    ///
    /// # Errors
    /// [`ServeError::Io`] if the system has no descriptor left.
    pub fn new(seed: u64, crc: bool) -> Result<Self, ServeError> {
        let refused = |source| ServeError::Io { doing: "setting up", path: "the event loop".into(), source };
        let epoll = Epoll::new().map_err(refused)?;
        let stop = Stop(Arc::new(EventFd::new().map_err(refused)?));
        epoll.add(stop.0.as_fd(), TOKEN_STOP).map_err(refused)?;
        let (world, slots, trace) = (World::new(Seed(seed), crc), Vec::new(), Trace::default());
        let clock = MonotonicClock::new();
        let (control, planned) = (None, Vec::new());
        Ok(Self { world, slots, trace, clock, epoll, stop, control, planned, wakeups: 0 })
    }

    /// Takes orders at the socket `path`, which only this user may open.
    ///
    /// # Errors
    /// As [`add`](Self::add).
    pub fn control_at(&mut self, path: &Path) -> Result<(), ServeError> {
        let control = Control::new(path)?;
        let refused = |source| ServeError::Io { doing: "waiting on", path: path.to_owned(), source };
        self.epoll.add(control.fd(), TOKEN_CONTROL).map_err(refused)?;
        self.control = Some(control);
        Ok(())
    }

    /// Carries out `order` when the server has run for `after`.
    pub fn plan(&mut self, after: Duration, order: Order) {
        let at = Instant::ZERO + after;
        let place = self.planned.partition_point(|(later, _)| *later > at);
        self.planned.insert(place, (at, order));
    }

    /// Records every register access to `out`.
    pub fn trace_to(&mut self, out: Box<dyn Write>) {
        self.trace = Trace::new(out);
    }

    /// What ends [`run`](Self::run).
    pub fn stopper(&self) -> Stop {
        self.stop.clone()
    }

    /// Adds a chip behind the socket `path`, which only this user may open. A socket that an earlier server left is
    /// removed, anything else at that path is not.
    ///
    /// # Errors
    /// [`ServeError`]: the path is taken, or the system refuses it.
    pub fn add(&mut self, path: &Path, config: Config, options: Options) -> Result<NodeId, ServeError> {
        let listener = listen(path)?;
        let refused = |source| ServeError::Io { doing: "waiting on", path: path.to_owned(), source };
        self.epoll.add(listener.as_fd(), token(self.slots.len(), false)).map_err(refused)?;
        let node = self.world.add_on(config, ClientHost::new(usize::from(options.vectors.clamp(1, 32))));
        let path = path.to_owned();
        self.slots.push(Slot {
            messages: 0,
            node,
            options,
            path,
            listener,
            session: None,
            linger: Linger::new(),
        });
        Ok(node)
    }

    /// Lays a cable.
    pub fn connect(&mut self, a: (NodeId, Port), b: (NodeId, Port), config: CableConfig) -> CableId {
        self.world.connect(a, b, config)
    }

    /// Serves until it is stopped.
    ///
    /// # Errors
    /// [`ServeError::Io`] if the event loop itself fails; a client's faults end that client's connection only.
    pub fn run(&mut self) -> Result<(), ServeError> {
        let mut ready = Vec::new();
        let mut busy = false;
        loop {
            let timeout_ns = if busy { Some(0) } else { self.sleep_ns() };
            self.wait(timeout_ns, &mut ready).map_err(|source| ServeError::Io {
                doing: "waiting on",
                path: "the event loop".into(),
                source,
            })?;
            self.wakeups += 1;
            self.world.advance_to(self.clock.now());
            self.obey_planned();
            busy = false;
            for token in std::mem::take(&mut ready) {
                match token {
                    TOKEN_STOP => {
                        self.trace.flush();
                        return Ok(());
                    }
                    TOKEN_CONTROL => self.accept_control(),
                    token if TOKEN_CONTROL_CLIENT - token < CLIENTS_MAX as u64 => {
                        busy |= self.serve_control((TOKEN_CONTROL_CLIENT - token) as usize);
                    }
                    token if token.is_multiple_of(2) => self.accept((token / 2) as usize),
                    token => busy |= self.serve_on((token / 2) as usize),
                }
            }
            for slot in 0..self.slots.len() {
                if self.slots[slot].session.as_ref().is_some_and(Session::has_waiting) {
                    busy |= self.serve(slot);
                }
            }
            for place in 0..CLIENTS_MAX {
                if self.control.as_ref().is_some_and(|control| control.has_line(place)) {
                    busy |= self.serve_control(place);
                }
            }
            self.flush();
        }
    }

    /// How long nothing has to be done; `None` for as long as no descriptor is ready.
    fn sleep_ns(&self) -> Option<u64> {
        let planned = self.planned.last().map(|(at, _)| *at);
        let due = [self.world.next_deadline(), planned].into_iter().flatten().min();
        due.map(|due| due.since(self.clock.now()).as_nanos())
    }

    fn obey_planned(&mut self) {
        let now = self.clock.now();
        while let Some((_, order)) = self.planned.pop_if(|(at, _)| *at <= now) {
            match self.obey(&order) {
                Ok(_) => log::info!("planned: {order}"),
                Err(why) => log::warn!("planned: {order}: {why}"),
            }
        }
    }

    /// Carries out an order.
    fn obey(&mut self, order: &Order) -> Result<Value, String> {
        obey(&mut self.world, &self.slots, &self.clock, self.wakeups, order)
    }

    fn accept_control(&mut self) {
        let Some(control) = &mut self.control else { return };
        match control.accept() {
            Ok(Some((place, fd))) => {
                if let Err(error) = self.epoll.add(fd, TOKEN_CONTROL_CLIENT - place as u64) {
                    log::warn!("a control client cannot be waited for: {error}");
                }
            }
            Ok(None) => log::warn!("a control client was turned away: {CLIENTS_MAX} are connected"),
            Err(error) => log::warn!("a control client could not be accepted: {error}"),
        }
    }

    /// Gives one control client its turn; whether it has more to say.
    fn serve_control(&mut self, place: usize) -> bool {
        let Self { world, slots, clock, wakeups, control, .. } = self;
        let Some(control) = control else { return false };
        control.serve(place, |order| obey(world, slots, clock, *wakeups, order))
    }

    fn wait(&self, timeout_ns: Option<u64>, ready: &mut Vec<u64>) -> io::Result<()> {
        match timeout_ns {
            None => self.epoll.wait(SLEEP_MAX_MS, ready),
            // One call where its grain will do; the last stretch is slept to the nanosecond.
            Some(ns) if ns >= 2 * NS_PER_MS => {
                self.epoll.wait((ns / NS_PER_MS).min(SLEEP_MAX_MS as u64) as i32, ready)
            }
            Some(ns) => self.epoll.wait_ns(Some(ns), ready),
        }
    }

    fn accept(&mut self, slot: usize) {
        let socket = match self.slots[slot].listener.accept() {
            Ok((socket, _)) => socket,
            Err(error) => {
                log::warn!("{}: a client could not be accepted: {error}", self.slots[slot].options.name);
                return;
            }
        };
        // Whoever comes may be told of before the last one's leaving is.
        for _ in 0..LEAVING_TURNS {
            if self.slots[slot].session.is_some() {
                self.serve(slot);
            }
        }
        if self.slots[slot].session.is_some() {
            log::warn!(
                "{}: a second client was turned away: one device, one client",
                self.slots[slot].options.name
            );
            return;
        }
        if let Err(error) = self.begin(slot, socket) {
            log::warn!("{}: a client could not be served: {error}", self.slots[slot].options.name);
        }
    }

    fn begin(&mut self, slot: usize, socket: UnixStream) -> io::Result<()> {
        let now = self.clock.now();
        let (node, options) = (self.slots[slot].node, self.slots[slot].options.clone());
        let mut stage = Stage { world: &mut self.world, trace: &mut self.trace, now };
        let session = Session::new(socket, node, options, &mut stage)?;
        session.with_fd(|fd| self.epoll.add(fd, token(slot, true)))?;
        log::info!("{}: client connected (descriptor {})", self.slots[slot].options.name, session.raw_fd());
        self.slots[slot].session = Some(session);
        Ok(())
    }

    /// Gives one client its turn, and looks at it a little longer while it asks one question after another; whether it
    /// has more to say. What is due ends that, and others do not wait for long.
    fn serve_on(&mut self, slot: usize) -> bool {
        let mut more = self.serve(slot);
        for _ in 0..LINGER_MESSAGES {
            let asks = self.slots[slot].session.as_ref().is_some_and(Session::has_answered);
            if more || !asks || !self.slots[slot].linger.is_worth_it() {
                break;
            }
            let served = self.slots[slot].messages;
            let due = self.world.next_deadline().unwrap_or(Instant::MAX);
            let until = due.min(self.clock.now() + LOOK_FOR);
            while !more && self.slots[slot].messages == served && self.clock.now() < until {
                more = self.serve(slot);
            }
            let Slot { session, linger, messages, .. } = &mut self.slots[slot];
            let came = *messages != served && session.as_ref().is_some_and(Session::has_answered);
            if came {
                linger.hit()
            } else {
                linger.miss()
            }
            if !came {
                break;
            }
        }
        more
    }

    /// Gives one client its turn; whether it has more to say.
    fn serve(&mut self, slot: usize) -> bool {
        let Some(session) = &mut self.slots[slot].session else { return false };
        let mut stage = Stage { world: &mut self.world, trace: &mut self.trace, now: self.clock.now() };
        let served = session.serve(TURN_MESSAGES, &mut stage);
        self.slots[slot].messages += session.take_served();
        match served {
            Ok(more) => more,
            Err(ended) => {
                log::info!("{}: client gone: {ended}", self.slots[slot].options.name);
                // Closing the socket takes it out of the set that is waited for.
                if let Some(session) = self.slots[slot].session.take() {
                    session.end(&mut stage);
                }
                false
            }
        }
    }

    /// Sends what the chips wrote by themselves to memory that only clients can reach.
    fn flush(&mut self) {
        let mut stage = Stage { world: &mut self.world, trace: &mut self.trace, now: Instant::ZERO };
        for slot in &self.slots {
            if let Some(session) = &slot.session {
                session.flush(&mut stage);
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        for slot in &self.slots {
            // Nothing is lost if it is gone already.
            let _ = std::fs::remove_file(&slot.path);
        }
    }
}

/// Carries out an order: on the world, or on what the server knows of itself.
fn obey(
    world: &mut World<ClientHost>,
    slots: &[Slot],
    clock: &MonotonicClock,
    wakeups: u64,
    order: &Order,
) -> Result<Value, String> {
    let now = clock.now();
    if *order == Order::Stats {
        return Ok(stats(world, slots, now, wakeups));
    }
    let mut result = order.apply(world, now).map_err(|refusal| refusal.to_string())?;
    if *order == Order::State {
        for slot in slots {
            let card = &mut result["cards"][slot.node.index()];
            card["socket"] = slot.path.display().to_string().into();
            card["client"] = slot.session.is_some().into();
        }
    }
    Ok(result)
}

/// What the server did so far.
fn stats(world: &World<ClientHost>, slots: &[Slot], now: Instant, wakeups: u64) -> Value {
    let cpu = sys::cpu_time();
    let clients: Vec<Value> = slots
        .iter()
        .map(|slot| {
            let host = world.host(slot.node);
            json!({
                "socket": slot.path.display().to_string(),
                "messages": slot.messages,
                "interrupts": host.interrupts,
                "refused_accesses": host.memory.refused,
                "lost_writes": host.memory.posted_lost,
                "remote_failures": host.remote_failures,
            })
        })
        .collect();
    json!({
        "uptime_ns": now.as_nanos(),
        "cpu_user_ns": cpu.user.as_nanos() as u64,
        "cpu_system_ns": cpu.system.as_nanos() as u64,
        "wakeups": wakeups,
        "packets": report::packets(world),
        "clients": clients,
    })
}

/// A socket at `path` that only this user may open.
pub(super) fn listen(path: &Path) -> Result<UnixListener, ServeError> {
    let refused = |doing| move |source| ServeError::Io { doing, path: path.to_owned(), source };
    if let Ok(found) = std::fs::symlink_metadata(path) {
        let taken = |what| Err(ServeError::Taken { path: path.to_owned(), what });
        if !found.file_type().is_socket() {
            return taken("a file that is no socket");
        }
        if UnixStream::connect(path).is_ok() {
            return taken("a running server");
        }
        std::fs::remove_file(path).map_err(refused("removing the stale socket"))?;
    }
    let listener = UnixListener::bind(path).map_err(refused("listening on"))?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).map_err(refused("restricting"))?;
    listener.set_nonblocking(true).map_err(refused("listening on"))?;
    Ok(listener)
}
