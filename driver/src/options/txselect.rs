//! The preset string of `txselect`: one index for all ports, then exceptions.
//!
//! `"10"` selects preset 10 everywhere; `"10 0,1=17 0,2=3,12"` makes it 17 on port 1 of unit 0 and 3, with an `h1`
//! value of 12, on its port 2. The presets shape the transmitter's signal for the cable; this driver keeps the reset
//! shape and holds the string so that an old file is checked and shown.
//!
//! Source: F-102.

use core::fmt;
use core::str::FromStr;

/// Presets of the stock driver: 16 in the main table, 18 extra, 2 for manufacturing.
pub const PRESETS: u32 = 36;
/// Most exceptions in one string: more cards than a host takes.
const MAX_EXCEPTIONS: usize = 32;
/// Largest `h1`, a 5-bit tap of the equaliser.
const MAX_H1: u32 = 31;

/// The presets wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TxSelect {
    /// The preset of every port that no exception names, below [`PRESETS`].
    pub preset: u32,
    /// Ports with a preset of their own.
    pub exceptions: Vec<TxException>,
}

/// One port's own preset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TxException {
    /// Card number on the host, from 0.
    pub unit: u32,
    /// IB port number, 1 or 2.
    pub ib_port: u32,
    /// Below [`PRESETS`].
    pub preset: u32,
    /// Receiver tap to force, 0 to 31.
    pub h1: Option<u32>,
}

/// What is wrong with a preset string.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TxSelectError {
    /// A word is not of the form it should have.
    Malformed(String),
    /// A preset is not below [`PRESETS`].
    Preset(u32),
    /// A port is neither 1 nor 2.
    IbPort(u32),
    /// An `h1` is above 31.
    H1(u32),
    /// More exceptions than the table holds.
    TooMany,
}

impl fmt::Display for TxSelectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(word) => write!(f, "\"{word}\" is neither an index nor unit,port=index[,h1]"),
            Self::Preset(n) => write!(f, "preset {n} is not one of 0 to {}", PRESETS - 1),
            Self::IbPort(n) => write!(f, "port {n} is neither 1 nor 2"),
            Self::H1(n) => write!(f, "h1 value {n} is not one of 0 to {MAX_H1}"),
            Self::TooMany => write!(f, "more than {MAX_EXCEPTIONS} exceptions"),
        }
    }
}

impl std::error::Error for TxSelectError {}

impl Default for TxSelect {
    fn default() -> Self {
        Self { preset: 10, exceptions: Vec::new() }
    }
}

impl FromStr for TxSelect {
    type Err = TxSelectError;

    fn from_str(text: &str) -> Result<Self, TxSelectError> {
        let mut words = text.split_ascii_whitespace();
        let first = words.next().unwrap_or_default();
        let mut presets = Self { preset: preset(first, first)?, exceptions: Vec::new() };
        for word in words {
            if presets.exceptions.len() == MAX_EXCEPTIONS {
                return Err(TxSelectError::TooMany);
            }
            presets.exceptions.push(exception(word)?);
        }
        Ok(presets)
    }
}

impl fmt::Display for TxSelect {
    /// The string as one would type it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.preset)?;
        for TxException { unit, ib_port, preset, h1 } in &self.exceptions {
            write!(f, " {unit},{ib_port}={preset}")?;
            if let Some(h1) = h1 {
                write!(f, ",{h1}")?;
            }
        }
        Ok(())
    }
}

fn number(text: &str, word: &str) -> Result<u32, TxSelectError> {
    super::parse_number(text).ok_or_else(|| TxSelectError::Malformed(super::quotable(word)))
}

fn preset(text: &str, word: &str) -> Result<u32, TxSelectError> {
    match number(text, word)? {
        n if n < PRESETS => Ok(n),
        n => Err(TxSelectError::Preset(n)),
    }
}

fn exception(word: &str) -> Result<TxException, TxSelectError> {
    let malformed = || TxSelectError::Malformed(super::quotable(word));
    let (port, value) = word.split_once('=').ok_or_else(malformed)?;
    let (unit, ib_port) = port.split_once(',').ok_or_else(malformed)?;
    let (preset_text, h1_text) = match value.split_once(',') {
        Some((preset, h1)) => (preset, Some(h1)),
        None => (value, None),
    };
    let unit = number(unit, word)?;
    let ib_port = match number(ib_port, word)? {
        n @ 1..=2 => n,
        n => return Err(TxSelectError::IbPort(n)),
    };
    let h1 = match h1_text.map(|text| number(text, word)).transpose()? {
        Some(n) if n > MAX_H1 => return Err(TxSelectError::H1(n)),
        h1 => h1,
    };
    Ok(TxException { unit, ib_port, preset: preset(preset_text, word)?, h1 })
}
