//! The seven words that can be decoded.

use core::{fmt, str::FromStr};

use crate::{Table, tables};

/// Which word is decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// `ErrStatus`: errors of the whole device.
    Device,
    /// `HwErrStatus`: errors of the chip's hardware and its bus.
    Hardware,
    /// `ErrStatus_0`, `ErrStatus_1`: errors of one port.
    Port,
    /// `SendHdrErrSymptom_0`, `_1`: why a send header was refused.
    SendHeaderSymptom,
    /// `IntStatus`: what asks for attention.
    Interrupt,
    /// The 64-bit receive-header flags of a header-queue entry.
    Rhf,
    /// `SendDmaStatus_0`, `_1`: the state of one send-DMA engine.
    Sdma,
}

impl Scope {
    /// Every scope, in the order in which a person would look.
    pub const ALL: [Self; 7] = [
        Self::Device,
        Self::Hardware,
        Self::Port,
        Self::SendHeaderSymptom,
        Self::Interrupt,
        Self::Rhf,
        Self::Sdma,
    ];

    /// The scope's table.
    #[must_use]
    pub fn table(self) -> &'static Table {
        match self {
            Self::Device => &tables::DEVICE,
            Self::Hardware => &tables::HARDWARE,
            Self::Port => &tables::PORT,
            Self::SendHeaderSymptom => &tables::SEND_HEADER_SYMPTOM,
            Self::Interrupt => &tables::INTERRUPT,
            Self::Rhf => &tables::RHF,
            Self::Sdma => &tables::SDMA,
        }
    }

    /// The word used on command lines and in JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Device => "device",
            Self::Hardware => "hardware",
            Self::Port => "port",
            Self::SendHeaderSymptom => "send-header-symptom",
            Self::Interrupt => "interrupt",
            Self::Rhf => "rhf",
            Self::Sdma => "sdma",
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Scope {
    type Err = UnknownScope;

    /// Takes the scope's word or its register's name, with or without a port suffix, in any case.
    fn from_str(given: &str) -> Result<Self, UnknownScope> {
        let stem = ["_0", "_1", "_p"].iter().find_map(|suffix| given.strip_suffix(suffix));
        // A port's registers are the device's with a suffix, so the suffix decides.
        if stem.is_some_and(|stem| stem.eq_ignore_ascii_case("ErrStatus")) {
            return Ok(Self::Port);
        }
        let stem = stem.unwrap_or(given);
        let is_meant = |scope: &Self| {
            let register = scope.table().word_name();
            let register = register.strip_suffix("_p").unwrap_or(register);
            scope.as_str().eq_ignore_ascii_case(given)
                || (*scope != Self::Port && register.eq_ignore_ascii_case(stem))
        };
        Self::ALL.into_iter().find(is_meant).ok_or(UnknownScope)
    }
}

/// A name that is no scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownScope;

impl fmt::Display for UnknownScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("unknown scope; valid are")?;
        for (n, scope) in Scope::ALL.into_iter().enumerate() {
            write!(f, "{}{scope}", if n == 0 { " " } else { ", " })?;
        }
        f.write_str(", or the name of the register")
    }
}

impl core::error::Error for UnknownScope {}
