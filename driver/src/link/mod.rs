//! Links: from a port that is switched off to one that carries data.
//!
//! [`state`] says what the chip reports and what it means, [`command`] what may be told to it and what must not,
//! [`setup`] prepares a port, [`PortLink`] keeps one port going towards its goal, [`socket`] watches for cables.
//! [`module`] reads what a cable says of itself ([`cable`]), and [`tuning`] sets the SerDes to it before the link is
//! switched on: a link that trained with the settings of another cable is a link with errors.
//! [`Links`] holds all of them for a device and is what the control thread talks to.
//!
//! ```text
//!  IBStatusChanged ─▶ Links::on_port_status ─▶ PortLink: status read, commands given ─▶ poll_change
//!  AssertGPIO      ─▶ Links::on_gpio        ─▶ Socket: look again later ─▶ port enabled or disabled
//!  deadline        ─▶ Links::on_timeout
//! ```
//!
//! There is no subnet manager here: with static LIDs each end makes its own port active.

use crate::gpio::Gpio;
use crate::ports::{Ports, Speeds};
use core::fmt;
use qhca_regs::{Bar, Instant, Lid, Port};

pub mod address;
pub mod cable;
pub mod command;
pub mod module;
mod port;
pub mod request;
pub mod setup;
pub mod socket;
pub mod state;
pub mod tuning;

pub use address::{AddressError, PortAddress};
pub use cable::CableInfo;
pub use command::{Command, FORBIDDEN, Forbidden};
pub use module::CableError;
pub use port::{COMMAND_ATTEMPTS, COMMAND_WITHIN, Choices, Goal, Heartbeat, LinkChange, PortLink, Width};
pub use request::{PortAction, PortRequest, RequestPoll, UnknownAction};
pub use setup::PortSetup;
pub use socket::{Socket, SocketChange};
pub use state::{LinkStatus, Logical, Physical, Speed, advice};

use module::{ModulePoll, ModuleReader};
use tuning::{Le2, write_le2};

/// Highest LID of a single port.
const MAX_UNICAST_LID: u16 = 0xBFFF;
/// Attenuation from which copper counts as long unless an option says otherwise, dB (F-241).
const LONG_ATTENUATION_DB: u8 = 10;
/// Highest LID mask control: 128 LIDs for one port.
const MAX_LMC: u8 = 7;

/// A LID and how many of its low bits are free.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LidAssignment {
    base: Lid,
    lmc: u8,
}

impl LidAssignment {
    /// No LID: management packets only.
    pub const NONE: Self = Self { base: Lid(0), lmc: 0 };

    /// `base` with `lmc` free low bits.
    ///
    /// # Errors
    /// [`LinkError::BadLid`] for 0, multicast LIDs, an `lmc` above 7, and a base whose free bits are not 0.
    pub fn new(base: Lid, lmc: u8) -> Result<Self, LinkError> {
        let is_unicast = (1..=MAX_UNICAST_LID).contains(&base.0);
        let is_aligned = lmc <= MAX_LMC && base.0.trailing_zeros() >= u32::from(lmc);
        match is_unicast && is_aligned {
            true => Ok(Self { base, lmc }),
            false => Err(LinkError::BadLid { base, lmc }),
        }
    }

    /// The lowest of the port's LIDs.
    pub const fn base(self) -> Lid {
        self.base
    }

    /// Free low bits.
    pub const fn lmc(self) -> u8 {
        self.lmc
    }

    /// Ones where a packet's LID must agree.
    pub const fn mask(self) -> u16 {
        if self.base.0 == 0 { 0 } else { u16::MAX << self.lmc }
    }
}

/// Why a link cannot do what was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LinkError {
    /// The state does not allow the command.
    Forbidden {
        /// The state.
        state: Logical,
        /// The command.
        command: Command,
        /// Why.
        reason: &'static str,
    },
    /// The LID cannot be a port's.
    BadLid {
        /// As given.
        base: Lid,
        /// As given.
        lmc: u8,
    },
    /// The port is not in use on this board.
    NoPort {
        /// IB port number.
        ib_port: u8,
    },
    /// The board brings none of the speeds out to the port.
    NoSpeed {
        /// The port.
        port: Port,
    },
    /// The device no longer answers.
    Gone {
        /// The port whose status was read.
        port: Port,
    },
}

impl fmt::Display for LinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Forbidden { state, command, reason } => {
                write!(f, "{command} is not possible while the link is {state}: {reason}")
            }
            Self::BadLid { base, lmc } => write!(
                f,
                "LID {base} with LMC {lmc} cannot be a port's: valid are 0x0001 to 0xbfff, LMC 0 to 7, and the LID's \
                 low LMC bits 0"
            ),
            Self::NoPort { ib_port } => write!(f, "IB port {ib_port} is not in use on this device"),
            Self::NoSpeed { port } => write!(f, "{port} of this board has none of these speeds"),
            Self::Gone { port } => {
                write!(f, "IBCStatusA of {port} reads all ones: the device no longer answers")
            }
        }
    }
}

impl std::error::Error for LinkError {}

/// What happened to a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkEvent {
    /// The port.
    pub port: Port,
    /// What happened.
    pub change: PortChange,
}

/// What can happen to a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortChange {
    /// To its link.
    Link(LinkChange),
    /// To its cable.
    Socket(SocketChange),
}

/// One port, its socket if it has one, and what to do when a cable comes.
#[derive(Clone, Debug)]
struct PortEnd {
    link: PortLink,
    socket: Option<Socket>,
    /// What the user wants once a cable is there.
    wanted: Goal,
    socket_change: Option<SocketChange>,
    /// Reads the module that is in, as long as that takes.
    reader: Option<ModuleReader>,
    /// What the module said, or why it said nothing.
    cable: Option<Result<CableInfo, CableError>>,
}

/// All links of a device.
#[derive(Clone, Debug)]
pub struct Links {
    ports: Ports,
    ends: [Option<PortEnd>; 2],
    gpio: Gpio,
    /// The port whose module is being read: both share one bus.
    reading: Option<Port>,
    /// Attenuation from which copper counts as long, dB.
    long_attenuation_db: u8,
}

impl Links {
    /// The links of a device that bring-up has set up: each port's link and socket.
    pub fn new(ports: Ports, gpio: Gpio) -> Self {
        Self { ports, ends: [None, None], gpio, reading: None, long_attenuation_db: LONG_ATTENUATION_DB }
    }

    /// The same, with copper cables counting as long from `db` on: the option `long_attenuation`.
    #[must_use]
    pub fn with_long_attenuation(self, db: u8) -> Self {
        Self { long_attenuation_db: db, ..self }
    }

    /// Takes a port that was set up.
    pub fn add(&mut self, link: PortLink, socket: Option<Socket>) {
        let index = link.port().index();
        let present = socket.filter(Socket::is_present);
        self.ends[index] = Some(PortEnd {
            link,
            socket,
            wanted: Goal::Disabled,
            socket_change: None,
            reader: present.map(|socket| ModuleReader::new(socket.pins())),
            cable: None,
        });
    }

    /// The ports in use.
    pub const fn ports(&self) -> Ports {
        self.ports
    }

    /// The link of `port`, if it is in use.
    pub fn link(&self, port: Port) -> Option<&PortLink> {
        self.ends[port.index()].as_ref().map(|end| &end.link)
    }

    /// Whether a cable module is plugged into `port`, if the board can tell.
    pub fn module_present(&self, port: Port) -> Option<bool> {
        let end = self.ends[port.index()].as_ref()?;
        end.socket.as_ref().map(Socket::is_present)
    }

    /// What is wanted of `port` once a cable is there.
    pub fn wanted(&self, port: Port) -> Option<Goal> {
        self.ends[port.index()].as_ref().map(|end| end.wanted)
    }

    /// What the cable module of `port` says of itself: `None` if there is none, or as long as it is being read.
    pub fn cable(&self, port: Port) -> Option<&Result<CableInfo, CableError>> {
        self.ends[port.index()].as_ref()?.cable.as_ref()
    }

    /// Whether the module of `port` is being read, or waits for that.
    pub fn is_reading_cable(&self, port: Port) -> bool {
        self.ends[port.index()].as_ref().is_some_and(|end| end.reader.is_some())
    }

    /// What the states of `port` mean, and what to do about them.
    pub fn advice(&self, port: Port) -> Option<&'static str> {
        let status = self.link(port)?.status();
        Some(advice(status.logical(), status.physical(), self.module_present(port)))
    }

    /// The hardware port behind an IB port number.
    ///
    /// # Errors
    /// [`LinkError::NoPort`].
    pub fn by_ib_number(&self, ib_port: u8) -> Result<Port, LinkError> {
        self.ports.by_ib_number(ib_port).ok_or(LinkError::NoPort { ib_port })
    }

    /// Sets what is wanted of `port`. A port without a cable module stays off until one is plugged in, and any port until
    /// its module has been read.
    ///
    /// # Errors
    /// [`LinkError::NoPort`], [`LinkError::Gone`].
    pub fn set_goal(
        &mut self,
        port: Port,
        goal: Goal,
        bar: &impl Bar,
        now: Instant,
    ) -> Result<(), LinkError> {
        let end = self.end(port)?;
        end.wanted = goal;
        match end.has_cable() {
            true => end.link.set_goal(goal, bar, now),
            false => Ok(()),
        }
    }

    /// Gives one command to `port` now.
    ///
    /// # Errors
    /// [`LinkError`]: forbidden in this state, no such port, or gone.
    pub fn give_now(
        &mut self,
        port: Port,
        command: Command,
        bar: &impl Bar,
        now: Instant,
    ) -> Result<(), LinkError> {
        let end = self.end(port)?;
        if command == Command::Disable {
            end.wanted = Goal::Disabled;
        }
        end.link.give_now(command, bar, now)
    }

    /// Gives `port` its LID.
    ///
    /// # Errors
    /// [`LinkError::NoPort`].
    pub fn set_lid(&mut self, port: Port, lid: LidAssignment, bar: &impl Bar) -> Result<(), LinkError> {
        self.end(port)?.link.set_lid(lid, bar);
        Ok(())
    }

    /// Makes `port` talk to itself, or stops that. Do it while the port is switched off, then set its goal.
    ///
    /// # Errors
    /// [`LinkError::NoPort`].
    pub fn set_loopback(&mut self, port: Port, on: bool, bar: &impl Bar) -> Result<(), LinkError> {
        self.end(port)?.link.set_loopback(on, bar);
        Ok(())
    }

    /// Sets which widths and speeds the link of `port` may have; speeds that the board does not bring out are left out.
    /// Do it while the port is switched off, then set its goal.
    ///
    /// # Errors
    /// [`LinkError::NoPort`]; [`LinkError::NoSpeed`] if none of the speeds is the board's.
    pub fn set_rates(
        &mut self,
        port: Port,
        speeds: Speeds,
        width: Width,
        bar: &impl Bar,
    ) -> Result<(), LinkError> {
        let possible = self.ports.speeds(port) & speeds;
        if possible.is_empty() {
            return Err(LinkError::NoSpeed { port });
        }
        self.end(port)?.link.set_rates(possible, width, bar);
        Ok(())
    }

    /// Makes the choices of speed, width and heartbeat that were made before a reset.
    ///
    /// # Errors
    /// [`LinkError::NoPort`].
    pub fn choose(&mut self, port: Port, choices: Choices, bar: &impl Bar) -> Result<(), LinkError> {
        self.end(port)?.link.choose(choices, bar);
        Ok(())
    }

    /// Sets whether `port` sends heartbeats.
    ///
    /// # Errors
    /// [`LinkError::NoPort`].
    pub fn set_heartbeat(
        &mut self,
        port: Port,
        heartbeat: Heartbeat,
        bar: &impl Bar,
    ) -> Result<(), LinkError> {
        self.end(port)?.link.set_heartbeat(heartbeat, bar);
        Ok(())
    }

    /// `ErrStatus_p` of `port` says IBStatusChanged.
    ///
    /// # Errors
    /// [`LinkError::Gone`].
    pub fn on_port_status(&mut self, port: Port, bar: &impl Bar, now: Instant) -> Result<(), LinkError> {
        self.end(port)?.link.on_status_change(bar, now)
    }

    /// `IntStatus` says AssertGPIO.
    pub fn on_gpio(&mut self, bar: &impl Bar, now: Instant) {
        let asserted = self.gpio.take_status(bar);
        let mut ours = 0;
        for socket in self.ends.iter_mut().flatten().filter_map(|end| end.socket.as_mut()) {
            ours |= socket.presence_pins();
            if asserted & socket.presence_pins() != 0 {
                // It stays quiet until it was looked at: a level would interrupt for ever.
                self.gpio.unwatch(socket.presence_pins(), bar);
                socket.on_pin(now);
            }
        }
        let strange = asserted & !ours & self.gpio.watched();
        if strange != 0 {
            self.gpio.unwatch(strange, bar);
        }
    }

    /// Makes the chip interrupt while `pin` is high.
    pub fn watch_pin(&mut self, pin: u16, bar: &impl Bar) {
        self.gpio.watch(pin, 0, bar);
    }

    /// Undoes [`watch_pin`](Self::watch_pin).
    pub fn unwatch_pin(&mut self, pin: u16, bar: &impl Bar) {
        self.gpio.unwatch(pin, bar);
    }

    /// A deadline of [`poll_timeout`](Self::poll_timeout) has passed.
    ///
    /// # Errors
    /// [`LinkError::Gone`].
    pub fn on_timeout(&mut self, bar: &impl Bar, now: Instant) -> Result<(), LinkError> {
        for end in self.ends.iter_mut().flatten() {
            let change = end.socket.as_mut().and_then(|socket| socket.poll(&mut self.gpio, bar, now));
            match (change, end.socket) {
                (Some(SocketChange::Inserted), Some(socket)) => {
                    end.cable = None;
                    end.reader = Some(ModuleReader::new(socket.pins()));
                }
                (Some(SocketChange::Removed), _) => {
                    end.cable = None;
                    if let Some(mut reader) = end.reader.take() {
                        reader.abandon(&mut self.gpio, bar);
                    }
                    if self.reading == Some(end.link.port()) {
                        self.reading = None;
                    }
                    end.socket_change = change;
                    end.link.set_goal(Goal::Disabled, bar, now)?;
                }
                _ => {}
            }
        }
        self.read_module(bar, now)?;
        self.ends.iter_mut().flatten().try_for_each(|end| end.link.on_timeout(bar, now))
    }

    /// Goes on with reading a module. One that was read, or could not be, has its port tuned and switched on as wanted.
    fn read_module(&mut self, bar: &impl Bar, now: Instant) -> Result<(), LinkError> {
        let waiting = |end: &&mut PortEnd| end.reader.is_some();
        let next = match self.reading {
            Some(port) => self.ends[port.index()].as_mut(),
            None => self.ends.iter_mut().flatten().find(waiting),
        };
        let Some(end) = next else { return Ok(()) };
        let Some(reader) = &mut end.reader else { return Ok(()) };
        self.reading = Some(end.link.port());
        let ModulePoll::Done(read) = reader.poll(&mut self.gpio, bar, now) else { return Ok(()) };
        (self.reading, end.reader) = (None, None);
        match &read {
            Ok(info) => {
                log::info!("{}: {info}", end.link.port());
                info.oddities().iter().for_each(|odd| log::warn!("{}: cable: {odd}", end.link.port()));
            }
            Err(error) => log::warn!("{}: {error}: {}", end.link.port(), error.cause),
        }
        // ORDER: the tuning before the link is told to train with it.
        let le2 = Le2::for_cable(read.as_ref().ok(), self.long_attenuation_db);
        if !write_le2(end.link.port(), le2, bar) {
            log::warn!("{}: the SerDes bus does not answer; the link trains untuned", end.link.port());
        }
        end.cable = Some(read);
        end.socket_change = Some(SocketChange::Inserted);
        match end.wanted {
            Goal::Disabled => Ok(()),
            goal => end.link.set_goal(goal, bar, now),
        }
    }

    /// When [`on_timeout`](Self::on_timeout) wants to be called.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let ends = self.ends.iter().flatten();
        let reading = |end: &PortEnd| {
            let turn = self.reading.is_none_or(|port| port == end.link.port());
            end.reader.as_ref().filter(|_| turn).map(ModuleReader::poll_timeout)
        };
        ends.flat_map(|end| {
            [end.link.poll_timeout(), end.socket.as_ref().and_then(Socket::poll_timeout), reading(end)]
        })
        .flatten()
        .min()
    }

    /// What has happened, until `None`.
    pub fn poll_event(&mut self) -> Option<LinkEvent> {
        self.ends.iter_mut().flatten().find_map(|end| {
            let socket = end.socket_change.take().map(PortChange::Socket);
            let change = socket.or_else(|| end.link.poll_change().map(PortChange::Link))?;
            Some(LinkEvent { port: end.link.port(), change })
        })
    }

    fn end(&mut self, port: Port) -> Result<&mut PortEnd, LinkError> {
        let ib_port = port.index() as u8 + 1;
        self.ends[port.index()].as_mut().ok_or(LinkError::NoPort { ib_port })
    }
}

impl PortEnd {
    /// Whether a link can be tried: boards without sockets have theirs wired, others need a module that was read.
    fn has_cable(&self) -> bool {
        self.socket.as_ref().is_none_or(|socket| socket.is_present() && self.cable.is_some())
    }
}

#[cfg(test)]
mod tests;
