//! What a user asks of a port, and whether it came about in time.
//!
//! The words are those of `qhca port DEV:PORT`. A request changes what is wanted of the port, or gives one command,
//! and is then watched until the state shows or the deadline passes; it does not wait itself.

use super::{Command, Goal, LinkError, LinkStatus, Links, Logical, Physical};
use core::fmt;
use core::str::FromStr;
use qhca_regs::{Bar, Duration, Instant, Port};

/// What may be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PortAction {
    /// Switch the port on; a subnet manager, or `active`, does the rest.
    Enable,
    /// Switch it off for good.
    Disable,
    /// Take the link down and look for the other end anew.
    Poll,
    /// Receive data, send none yet.
    Arm,
    /// Make the port active by its own software, from whatever state it is in.
    Activate,
}

/// Time for what the port does alone: three attempts of a command, and the way there and back.
///
/// TIMEOUT: [`COMMAND_WITHIN`](super::COMMAND_WITHIN) three times, doubled.
const ALONE_WITHIN: Duration = Duration::from_millis(60);
/// Time for what needs the other end: training, and the commands after it.
///
/// TIMEOUT: ours. A chip that chases training states is stopped for 160 ms at a time, and a module just plugged in is
/// given 2 s.
const TOGETHER_WITHIN: Duration = Duration::from_secs(5);

impl PortAction {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Enable, Self::Disable, Self::Poll, Self::Arm, Self::Activate];

    /// The word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Enable => "enable",
            Self::Disable => "disable",
            Self::Poll => "poll",
            Self::Arm => "arm",
            Self::Activate => "active",
        }
    }

    /// How long it may take.
    pub const fn within(self) -> Duration {
        match self {
            Self::Activate => TOGETHER_WITHIN,
            _ => ALONE_WITHIN,
        }
    }

    /// Whether `status` is what was asked for.
    pub fn is_reached(self, status: LinkStatus) -> bool {
        let (logical, physical) = (status.logical(), status.physical());
        match self {
            Self::Enable | Self::Poll => physical != Physical::Disabled,
            Self::Disable => physical == Physical::Disabled,
            Self::Arm => matches!(logical, Logical::Armed) || logical.carries_data(),
            Self::Activate => logical.carries_data(),
        }
    }
}

impl fmt::Display for PortAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The word is none of those that may be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownAction(pub String);

impl fmt::Display for UnknownAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\" is nothing a port can do; valid: enable, disable, poll, arm, active", self.0)
    }
}

impl std::error::Error for UnknownAction {}

impl FromStr for PortAction {
    type Err = UnknownAction;

    fn from_str(text: &str) -> Result<Self, UnknownAction> {
        let found = Self::ALL.into_iter().find(|action| action.name() == text);
        found.ok_or_else(|| UnknownAction(crate::options::quotable(text)))
    }
}

/// What has become of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestPoll {
    /// The state shows.
    Reached(LinkStatus),
    /// Look again at the instant, or when something happened to the port.
    Waiting(Instant),
    /// The deadline has passed.
    Late {
        /// What the port shows instead.
        status: LinkStatus,
        /// How long it was watched.
        waited: Duration,
        /// What the states mean, and what to do.
        advice: &'static str,
    },
}

/// A request under way.
#[derive(Clone, Copy, Debug)]
pub struct PortRequest {
    port: Port,
    action: PortAction,
    since: Instant,
}

impl PortRequest {
    /// Asks `action` of `port`.
    ///
    /// # Errors
    /// [`LinkError`]: forbidden in this state, no such port, or gone.
    pub fn start(
        port: Port,
        action: PortAction,
        links: &mut Links,
        bar: &impl Bar,
        now: Instant,
    ) -> Result<Self, LinkError> {
        match action {
            PortAction::Enable => links.set_goal(port, Goal::Up, bar, now)?,
            PortAction::Disable => links.set_goal(port, Goal::Disabled, bar, now)?,
            PortAction::Poll => links.give_now(port, Command::Poll, bar, now)?,
            PortAction::Arm => links.give_now(port, Command::Arm, bar, now)?,
            PortAction::Activate => links.set_goal(port, Goal::Active, bar, now)?,
        }
        Ok(Self { port, action, since: now })
    }

    /// Whether it came about. Reads the port's status, so that a lost interrupt does not make it late.
    ///
    /// # Errors
    /// [`LinkError::Gone`].
    pub fn poll(&self, links: &mut Links, bar: &impl Bar, now: Instant) -> Result<RequestPoll, LinkError> {
        links.on_port_status(self.port, bar, now)?;
        let Some(link) = links.link(self.port) else {
            return Err(LinkError::NoPort { ib_port: self.port.index() as u8 + 1 });
        };
        let status = link.status();
        let (deadline, waited) = (self.since + self.action.within(), now.since(self.since));
        Ok(match self.action.is_reached(status) {
            true => RequestPoll::Reached(status),
            false if now < deadline => RequestPoll::Waiting(deadline),
            false => {
                let advice = links.advice(self.port).unwrap_or_default();
                RequestPoll::Late { status, waited, advice }
            }
        })
    }
}
