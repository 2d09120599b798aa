//! What a chip is built from: board, identity, habits, delays, and what is wrong with it.

use super::board::Board;
use super::twsi::module::{Description, Module};
use super::wrong::WrongSet;
use qhca_regs::Duration;

/// What to build. `Config::default()` is a right two-port card with a cable module in each cage.
#[derive(Clone, Debug)]
pub struct Config {
    /// The board around the chip.
    pub board: Board,
    /// Base GUID in the EEPROM; port p uses this plus its IB port number minus 1.
    pub guid: u64,
    /// Serial number in the EEPROM, ASCII; cut or padded with zeros to 12 bytes.
    pub serial: String,
    /// Seed of the one generator that habits draw from.
    pub seed: u64,
    /// The cable module in each port's QSFP cage; boards and ports without a cage do not look at it.
    pub modules: [Option<Module>; 2],
    /// What the chip does where two cards may differ.
    pub habits: Habits,
    /// How long things take.
    pub timing: Timing,
    /// In what it deviates from the data sheet.
    pub wrong: WrongSet,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            board: Board::Qle7342,
            guid: 0x0011_7500_0070_0001,
            serial: "QHCASIM00001".to_owned(),
            seed: 1,
            // One with a single page, one with several.
            modules: [(true, "QHCACABLE0001"), (false, "QHCACABLE0002")].map(|(flat, serial)| {
                let description = Description { flat, ..Description::default() };
                Some(Module::new(&description).with_serial(serial))
            }),
            habits: Habits::default(),
            timing: Timing::default(),
            wrong: WrongSet::NONE,
        }
    }
}

/// What happens to a packet that finds no free eager buffer (F-330).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EagerFull {
    /// An entry with a TID error and the index of the next buffer, without the "eager buffer used" bit.
    #[default]
    Report,
    /// The same, with the "eager buffer used" bit: one index is repeated over many entries.
    ReportAsUsed,
    /// No entry: only error bit and counter tell.
    Drop,
}

/// Behaviour that the sources hint at without settling it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Habits {
    /// See [`EagerFull`].
    pub eager_full: EagerFull,
    /// Every how many packets (on average, drawn from the seed) a few eager buffers are skipped; 0 for never (F-331).
    pub skip_eager_every: u32,
}

/// How long things take. All figures that no source gives are guesses (F-340, F-411, F-426, F-436).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// One step of link training, from one training state to the next.
    pub training_step: Duration,
    /// From a link command to the new state.
    pub link_command: Duration,
    /// One unit of `RcvAvailTimeOut`.
    pub avail_timeout_unit: Duration,
    /// One unit of `SendDmaReloadCnt`.
    pub sdma_idle_unit: Duration,
    /// From `SDmaHalt` to `SDmaHaltErr`.
    pub sdma_halt: Duration,
    /// From `SDmaCleanup` to `SDmaCleanupDone`.
    pub sdma_cleanup: Duration,
    /// How long a far end may leave heartbeats unanswered.
    pub heartbeat: Duration,
    /// How long the chip is away when it resets.
    pub reset: Duration,
    /// Whether a packet occupies the line for as long as its bytes take at the link's speed. Off, packets leave the
    /// moment they are launched, and whoever carries them keeps the time.
    pub pace_line: bool,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            training_step: Duration::from_micros(100),
            link_command: Duration::from_micros(10),
            avail_timeout_unit: Duration::from_nanos(256),
            sdma_idle_unit: Duration::from_nanos(256),
            sdma_halt: Duration::from_micros(1),
            sdma_cleanup: Duration::from_micros(2),
            heartbeat: Duration::from_millis(500),
            reset: Duration::from_millis(500),
            pace_line: false,
        }
    }
}
