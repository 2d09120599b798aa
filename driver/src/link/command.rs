//! What a link can be told, and what it must not be told.
//!
//! `IBCCtrlA` has two command fields that act once. The rows below are all commands that the driver gives, and
//! [`FORBIDDEN`] lists the ones that must not be given in a state, each with the reason: the chip's answer to them is
//! not documented.
//!
//! ```text
//!            Disable                 Poll, Sleep                Arm            Activate
//!   any ───────────────▶ Disabled ───────────────▶ Polling … Init ───▶ Armed ───────────▶ Active
//!                                        ▲                     │                            │
//!                                        └─── link lost, Down, Poll ────────────────────────┘
//! ```
//!
//! Source: F-132.

use super::state::Logical;
use core::fmt;
use qhca_regs::map::port::IbcCtrlA;

/// A command to the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Command {
    /// Take the link down; it trains again by itself.
    Down,
    /// Take it down and look for the other end.
    Poll,
    /// Take it down and listen at long intervals.
    Sleep,
    /// Take it down and keep it down.
    Disable,
    /// Receive data, send none yet.
    Arm,
    /// Let data flow.
    Activate,
}

impl Command {
    /// All commands.
    pub const ALL: [Self; 6] =
        [Self::Down, Self::Poll, Self::Sleep, Self::Disable, Self::Arm, Self::Activate];

    /// Codes for `LinkCmd` and `LinkInitCmd`.
    pub const fn codes(self) -> (u8, u8) {
        match self {
            Self::Down => (1, 0),
            Self::Poll => (1, 2),
            Self::Sleep => (1, 3),
            Self::Disable => (1, 1),
            Self::Arm => (2, 0),
            Self::Activate => (3, 0),
        }
    }

    /// `ctrl` with the command in it; `ctrl` holds none.
    pub fn put_in(self, ctrl: IbcCtrlA) -> IbcCtrlA {
        let (link, init) = self.codes();
        ctrl.with_link_cmd(link).with_link_init_cmd(init)
    }

    /// The word that people use.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Down => "down",
            Self::Poll => "poll",
            Self::Sleep => "sleep",
            Self::Disable => "disable",
            Self::Arm => "arm",
            Self::Activate => "active",
        }
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A command that must not be given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forbidden {
    /// In this state,
    pub state: Logical,
    /// this command,
    pub command: Command,
    /// for this reason.
    pub reason: &'static str,
}

const fn forbidden(state: Logical, command: Command, reason: &'static str) -> Forbidden {
    Forbidden { state, command, reason }
}

/// Every pair that is refused before it reaches the chip.
pub const FORBIDDEN: [Forbidden; 7] = [
    forbidden(Logical::Down, Command::Arm, "there is no link: both ends must train first"),
    forbidden(Logical::Down, Command::Activate, "there is no link: both ends must train, then be armed"),
    forbidden(Logical::Init, Command::Activate, "a port becomes active only from armed: `arm` it first"),
    forbidden(
        Logical::Armed,
        Command::Arm,
        "the port is armed already; a second command has no stated effect",
    ),
    forbidden(
        Logical::Active,
        Command::Activate,
        "the port is active already; a second command has no stated effect",
    ),
    forbidden(
        Logical::ActiveDefer,
        Command::Arm,
        "the physical link is recovering; wait until it is up or down",
    ),
    forbidden(Logical::ActiveDefer, Command::Activate, "the port is active and returns to it by itself"),
];

/// Why `command` must not be given in `state`, if so. Taking a link down is always allowed.
pub fn refusal(state: Logical, command: Command) -> Option<&'static str> {
    let takes_down = !matches!(command, Command::Arm | Command::Activate);
    let row = FORBIDDEN.iter().find(|row| row.state == state && row.command == command);
    match (row, state) {
        _ if takes_down => None,
        (Some(row), _) => Some(row.reason),
        (None, Logical::Unknown(_)) => Some("the state has no name, so nothing is known of the effect"),
        (None, _) => None,
    }
}
