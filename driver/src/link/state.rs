//! What a link says about itself: logical state, physical state, speed and width.
//!
//! A link has two states. The *physical* one belongs to the cable: no signal, training, up. The *logical* one counts
//! only when the physical one is up, and says how far the subnet has got with the port:
//!
//! ```text
//!  physical:  Polling → training → LinkUp                 (the two ends, by themselves)
//!  logical:   Down    →            Init → Armed → Active  (a subnet manager, or the driver with static LIDs)
//! ```
//!
//! Source: F-130, F-131.

use core::fmt;
use qhca_regs::map::port::IbcStatusA;

/// How far the subnet has got with the port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Logical {
    /// No link.
    Down,
    /// Link, and management packets only.
    Init,
    /// Data may be received, not yet sent.
    Armed,
    /// Data flows.
    Active,
    /// Active, and the physical link is recovering.
    ActiveDefer,
    /// A code without a name.
    Unknown(u8),
}

impl Logical {
    /// From the field `LinkState`.
    pub const fn from_code(code: u8) -> Self {
        match code {
            0 => Self::Down,
            1 => Self::Init,
            2 => Self::Armed,
            3 => Self::Active,
            4 => Self::ActiveDefer,
            code => Self::Unknown(code),
        }
    }

    /// The number that the InfiniBand management uses: one more than the chip's.
    pub const fn ibta_code(self) -> u8 {
        match self {
            Self::Down => 1,
            Self::Init => 2,
            Self::Armed => 3,
            Self::Active => 4,
            Self::ActiveDefer => 5,
            Self::Unknown(code) => code + 1,
        }
    }

    /// Whether a link is there at all.
    pub const fn is_linked(self) -> bool {
        matches!(self, Self::Init | Self::Armed | Self::Active | Self::ActiveDefer)
    }

    /// Whether data packets flow.
    pub const fn carries_data(self) -> bool {
        matches!(self, Self::Active | Self::ActiveDefer)
    }
}

impl fmt::Display for Logical {
    /// The word that `ibstat` prints.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Down => f.pad("Down"),
            Self::Init => f.pad("Initializing"),
            Self::Armed => f.pad("Armed"),
            Self::Active => f.pad("Active"),
            Self::ActiveDefer => f.pad("ActiveDefer"),
            Self::Unknown(code) => write!(f, "unknown ({code})"),
        }
    }
}

/// What the cable side is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Physical {
    /// Listening at long intervals.
    Sleep,
    /// Looking for the other end.
    Polling,
    /// Switched off.
    Disabled,
    /// The two ends are agreeing on lanes and speed.
    Training,
    /// Up.
    LinkUp,
    /// Up before, and recovering from errors.
    Recovering,
    /// A code without a name.
    Unknown(u8),
}

impl Physical {
    /// From the field `LinkTrainingState` (F-131). The training substates that the standard has no number for count
    /// as training here; the stock driver shows them as numbers of their own.
    pub const fn from_training(code: u8) -> Self {
        match code {
            0x00 => Self::Disabled,
            0x01 => Self::LinkUp,
            0x02 | 0x03 => Self::Polling,
            0x04 | 0x05 => Self::Sleep,
            0x08..=0x0B | 0x0D | 0x10..=0x17 => Self::Training,
            0x0C | 0x0E | 0x0F => Self::Recovering,
            code => Self::Unknown(code),
        }
    }

    /// The number that the InfiniBand management uses; 0 where it has none.
    pub const fn ibta_code(self) -> u8 {
        match self {
            Self::Sleep => 1,
            Self::Polling => 2,
            Self::Disabled => 3,
            Self::Training => 4,
            Self::LinkUp => 5,
            Self::Recovering => 6,
            Self::Unknown(_) => 0,
        }
    }

    /// Whether a link that was up has gone: recovery does not count.
    pub const fn is_down(self) -> bool {
        matches!(self, Self::Sleep | Self::Polling | Self::Disabled | Self::Training)
    }
}

impl fmt::Display for Physical {
    /// The word that `ibstat` prints.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sleep => f.pad("Sleep"),
            Self::Polling => f.pad("Polling"),
            Self::Disabled => f.pad("Disabled"),
            Self::Training => f.pad("PortConfigurationTraining"),
            Self::LinkUp => f.pad("LinkUp"),
            Self::Recovering => f.pad("LinkErrorRecovery"),
            Self::Unknown(code) => write!(f, "unknown ({code:#04x})"),
        }
    }
}

/// Signalling rate of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Speed {
    /// 2.5 Gb/s.
    Sdr,
    /// 5 Gb/s.
    Ddr,
    /// 10 Gb/s.
    Qdr,
}

impl Speed {
    /// Tenths of a Gb/s of one lane.
    pub const fn lane_tenth_gbps(self) -> u32 {
        match self {
            Self::Sdr => 25,
            Self::Ddr => 50,
            Self::Qdr => 100,
        }
    }

    /// The usual name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sdr => "SDR",
            Self::Ddr => "DDR",
            Self::Qdr => "QDR",
        }
    }
}

/// One reading of `IBCStatusA`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkStatus {
    /// The register.
    pub raw: IbcStatusA,
}

impl LinkStatus {
    /// What the register says.
    pub const fn new(raw: IbcStatusA) -> Self {
        Self { raw }
    }

    /// The logical state.
    pub fn logical(self) -> Logical {
        Logical::from_code(self.raw.link_state())
    }

    /// The physical state.
    pub fn physical(self) -> Physical {
        Physical::from_training(self.raw.link_training_state())
    }

    /// The speed; means something only while the link is up.
    pub fn speed(self) -> Speed {
        match (self.raw.link_speed_qdr(), self.raw.link_speed_active()) {
            (true, _) => Speed::Qdr,
            (false, true) => Speed::Ddr,
            (false, false) => Speed::Sdr,
        }
    }

    /// Lanes, 1 or 4; means something only while the link is up.
    pub fn lanes(self) -> u32 {
        if self.raw.link_width_active() { 4 } else { 1 }
    }

    /// Tenths of a Gb/s of the whole link.
    pub fn rate_tenth_gbps(self) -> u32 {
        self.lanes() * self.speed().lane_tenth_gbps()
    }

    /// Whether the link is up on both sides: cable and logic.
    pub fn is_up(self) -> bool {
        self.physical() == Physical::LinkUp && self.logical().is_linked()
    }
}

impl fmt::Display for LinkStatus {
    /// `Active/LinkUp, 4X QDR`, without the rate while there is no link.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.logical(), self.physical())?;
        match self.is_up() {
            true => write!(f, ", {}X {}", self.lanes(), self.speed().name()),
            false => Ok(()),
        }
    }
}

/// What the two states together mean, and what to do about them.
///
/// `module` says whether a cable module is plugged in, if the board can tell.
pub fn advice(logical: Logical, physical: Physical, module: Option<bool>) -> &'static str {
    match (logical, physical) {
        (Logical::Unknown(_), _) | (_, Physical::Unknown(_)) => {
            "the chip reports a state without a name; look again, and report the number if it lasts"
        }
        (_, Physical::Disabled) if module == Some(false) => {
            "no cable module in the socket: plug one in; the port then enables itself"
        }
        (_, Physical::Disabled) => "the port is switched off: `qhca port DEV:PORT enable`",
        (Logical::Down, Physical::Polling) => {
            "no link: no cable, or the other end is off or disabled; this is not a matter of a subnet manager"
        }
        (Logical::Down, Physical::Sleep) => {
            "no link: the port listens at long intervals; `qhca port DEV:PORT poll` makes it look for the other end"
        }
        (_, Physical::Training) => {
            "the two ends are training; if it lasts, the cable or connector is bad, or the speeds do not match"
        }
        (_, Physical::Recovering) => {
            "the link is up and recovering from errors: check cable and error counters"
        }
        (Logical::Init, Physical::LinkUp) => {
            "the cable is good and nobody has made the port active: start a subnet manager, or give static LIDs and \
             `qhca port DEV:PORT active` on both ends"
        }
        (Logical::Armed, Physical::LinkUp) => {
            "half way: received data is taken, nothing is sent; the subnet manager, or `active` on this end, finishes it"
        }
        (Logical::Active, Physical::LinkUp) => "data can flow",
        (Logical::ActiveDefer, Physical::LinkUp) => "active, held back while the physical link recovers",
        (Logical::Down, Physical::LinkUp) => {
            "the physical link is up and the logic has not followed yet: wait, then look again"
        }
        (_, Physical::Polling | Physical::Sleep) => {
            "the states contradict each other, as they may for a moment when a cable is pulled: look again"
        }
    }
}
