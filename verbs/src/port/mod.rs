//! A port in use: an engine on its receive context and sender, its management agents, and the micro manager.
//!
//! ```text
//!   VerbsPort.turn(now) ─► Bound.turn   packets in, timers, packets out: no lock, no system call, no register read
//!                       ─► agents       only if a MAD came or something of theirs is due
//! ```
//!
//! Whoever owns it turns it: a loop that polls, or a thread that sleeps in [`Turn::rest`] between turns. It is for
//! one thread at a time. It neither starts a thread nor knows what clock there is.

mod agents;
mod control;

pub use agents::{AgentCounts, GENERAL_SERVICES_QKEY, MadTo};
pub use control::{PortControl, mtu_of};

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use qhca_regs::{Duration, Instant, Lid, Port as ChipPort};

use crate::bind::{Arrivals, Bound, Departures, Turned};
use crate::channel::Publisher;
use crate::cq::CqError;
use crate::engine::{Engine, QpError};
use crate::mem::MemoryError;
use crate::mgmt::{PortAttributes, SmMode};
use crate::qp::ModifyError;
use crate::shared::{Config, Port};
use crate::wire::Gid;
use crate::wire::mad::Mad;
use crate::wr::PostError;
use agents::Agents;

/// How a port is to be used.
#[derive(Clone, Debug)]
pub struct PortSetup {
    /// The engine's limits and habits.
    pub config: Config,
    /// Whether the micro manager runs.
    pub manager: SmMode,
    /// Its priority among managers, 0 to 15.
    pub manager_priority: u8,
    /// The LID that the port has already, if it was given one.
    pub lid: Lid,
    /// What subnet managers are told that the node is called.
    pub host: String,
}

impl Default for PortSetup {
    fn default() -> Self {
        Self {
            config: Config::default(),
            manager: SmMode::Auto,
            manager_priority: 0,
            lid: Lid(0),
            host: "qhca".to_owned(),
        }
    }
}

/// Why a port could not be taken into use.
#[derive(Debug)]
#[non_exhaustive]
pub enum PortError {
    /// The system has no memory.
    Memory(io::Error),
    /// Memory could not be registered.
    Register(MemoryError),
    /// A completion queue could not be made.
    Cq(CqError),
    /// A queue pair could not be made.
    Qp(QpError),
    /// A queue pair could not be made ready.
    Modify(ModifyError),
    /// A receive could not be posted.
    Post(PostError),
}

impl fmt::Display for PortError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Memory(_) => "there is no memory for management datagrams",
            Self::Register(_) => "the memory for management datagrams could not be registered",
            Self::Cq(_) => "the completion queue of management could not be made",
            Self::Qp(_) => "QP 0 and QP 1 could not be made",
            Self::Modify(_) => "QP 0 and QP 1 could not be made ready",
            Self::Post(_) => "receives for management datagrams could not be posted",
        })
    }
}

impl std::error::Error for PortError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(match self {
            Self::Memory(error) => error,
            Self::Register(error) => error,
            Self::Cq(error) => error,
            Self::Qp(error) => error,
            Self::Modify(error) => error,
            Self::Post(error) => error,
        })
    }
}

/// Whatever turns an engine.
pub trait Turn {
    /// The engine.
    fn engine(&mut self) -> &mut Engine;
    /// Takes what came, does what is due, sends what can be sent.
    fn turn(&mut self, now: Instant) -> Turned;
    /// Sleeps until a packet is there, a turn is due or `timeout` has passed.
    fn rest(&mut self, timeout: Duration);
}

impl<A: Arrivals, D: Departures> Turn for Bound<A, D> {
    #[inline]
    fn engine(&mut self) -> &mut Engine {
        &mut self.engine
    }

    #[inline]
    fn turn(&mut self, now: Instant) -> Turned {
        Bound::turn(self, now)
    }

    fn rest(&mut self, timeout: Duration) {
        if !self.engine.has_output() {
            self.arrivals().sleep(timeout);
        }
    }
}

/// A port in use.
pub struct VerbsPort<A, D, C> {
    bound: Bound<A, D>,
    agents: Agents,
    control: C,
    port: ChipPort,
    publisher: Option<Publisher>,
}

impl<A: Arrivals, D: Departures, C: PortControl> VerbsPort<A, D, C> {
    /// Takes `port` into use with what receives and sends for it.
    ///
    /// # Errors
    /// [`PortError`].
    pub fn open(
        control: C,
        port: ChipPort,
        (arrivals, departures): (A, D),
        setup: &PortSetup,
        now: Instant,
    ) -> Result<Self, PortError> {
        let identity = control::identity_of(&control, port, &setup.host);
        let mtu = control.mtu();
        let attributes =
            PortAttributes { lid: setup.lid.0, mtu: [mtu as u8; 2], ..PortAttributes::default() };
        let engine_port = Port {
            lid: setup.lid,
            gids: vec![Gid::new(attributes.prefix, identity.port_guid)],
            pkeys: attributes.pkeys.clone(),
            mtu,
            ..Port::default()
        };
        let mut engine = Engine::new(setup.config, engine_port);
        let agents = Agents::new(&mut engine, identity, attributes, setup, now)?;
        let bound = Bound::new(engine, port, arrivals, departures);
        Ok(Self { bound, agents, control, port, publisher: None })
    }

    /// The device.
    pub fn control(&self) -> &C {
        &self.control
    }

    /// Which port it is.
    pub fn port(&self) -> ChipPort {
        self.port
    }

    /// The port's LID; 0 as long as no manager gave it one.
    pub fn lid(&self) -> Lid {
        self.bound.engine.port().lid
    }

    /// What a subnet manager sees of the port.
    pub fn attributes(&self) -> &PortAttributes {
        self.agents.attributes()
    }

    /// What the agents have counted.
    pub fn agent_counts(&self) -> AgentCounts {
        self.agents.counts()
    }

    /// Whether the micro manager has left the port to somebody else.
    pub fn is_managed_by_others(&self) -> bool {
        self.agents.manager().is_aside()
    }

    /// From now on each turn hands the engine's events to the thread at the other end of `publisher`'s channel.
    pub fn publish_to(&mut self, publisher: Publisher) {
        self.publisher = Some(publisher);
    }

    /// The engine with its context and sender.
    pub fn bound(&mut self) -> &mut Bound<A, D> {
        &mut self.bound
    }

    /// Whether data can flow: the link is ACTIVE, and the port has a LID.
    pub fn is_ready(&self) -> bool {
        let active = self.control.status(self.port).is_some_and(|status| status.logical().carries_data());
        active && self.lid() != Lid(0)
    }

    /// When the next turn is due, whatever comes.
    pub fn next_turn(&self) -> Instant {
        let timers = self.bound.engine.next_timeout();
        timers.map_or(self.agents.due(), |at| at.min(self.agents.due()))
    }

    /// Sends a MAD of the caller's, with a transaction of this port's; gives the transaction, for
    /// [`take_answer`](Self::take_answer).
    pub fn ask(&mut self, mad: &Mad, to: MadTo, now: Instant) -> u64 {
        let mut mad = mad.clone();
        let transaction = self.agents.next_transaction();
        mad.set_transaction(transaction);
        self.agents.ask(&mut self.bound.engine, (&mad, to), &self.control, self.port, now);
        transaction
    }

    /// The answer to `transaction`, once it is there.
    pub fn take_answer(&mut self, transaction: u64) -> Option<Mad> {
        self.agents.take_answer(transaction)
    }
}

impl<A: AsFd, D, C> AsFd for VerbsPort<A, D, C> {
    /// Readable when the context's interrupt came: turn the port then, and when [`VerbsPort::next_turn`] is due.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bound.arrivals_ref().as_fd()
    }
}

impl<A: Arrivals, D: Departures, C: PortControl> Turn for VerbsPort<A, D, C> {
    #[inline]
    fn engine(&mut self) -> &mut Engine {
        &mut self.bound.engine
    }

    #[inline]
    fn turn(&mut self, now: Instant) -> Turned {
        let turned = self.bound.turn(now);
        if now >= self.agents.due() || turned.received > 0 && self.agents.has_mads(&mut self.bound.engine) {
            self.agents.turn(&mut self.bound.engine, &self.control, self.port, now);
        }
        if let Some(publisher) = &self.publisher
            && self.bound.engine.has_events()
        {
            publisher.publish(&mut self.bound.engine);
        }
        turned
    }

    fn rest(&mut self, timeout: Duration) {
        if self.bound.engine.has_output() {
            return;
        }
        let now = self.control.now();
        let due = self.next_turn().since(now);
        self.bound.arrivals().sleep(due.min(timeout));
    }
}
