//! One row: everything known about one bit, or a run of bits with one name.
//!
//! The chip gives a bit a name and a place. The rest (how bad, why, what to do) is what a person at
//! two in the morning wants to read next to it, so it lives in the same row and cannot drift apart
//! from the bit.

use core::fmt;

/// How bad a set bit is for traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Normal operation: a state, a completion, an interrupt source.
    Info,
    /// Something was lost or refused and the chip goes on by itself.
    Warning,
    /// A packet, buffer or engine needs the driver's help.
    Error,
    /// The device cannot be trusted until it is reset.
    Fatal,
}

impl Severity {
    /// The word used in text and JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Error => "error",
            Self::Fatal => "fatal",
        }
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The classes a bit belongs to: a set, since a bit of the chip may be in several.
///
/// The first six follow the data sheet's letters for the port errors (F-702): R, S, P, L, D, X.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Groups(u16);

impl Groups {
    /// R: about received packets.
    pub const RECEIVE: Self = Self(1 << 0);
    /// S: about sent packets; a send buffer may have to be disarmed.
    pub const SEND: Self = Self(1 << 1);
    /// P: a common packet error, expected now and then on a healthy fabric.
    pub const PACKET: Self = Self(1 << 2);
    /// L: noise while the link is not active; means nothing then.
    pub const LINK_TRAINING: Self = Self(1 << 3);
    /// D: about the send-DMA engine.
    pub const SDMA: Self = Self(1 << 4);
    /// X: the send-DMA engine halts with it.
    pub const STOPS_SDMA: Self = Self(1 << 5);
    /// About the link's state.
    pub const LINK: Self = Self(1 << 6);
    /// About PCI Express or accesses over it.
    pub const BUS: Self = Self(1 << 7);
    /// About the chip's own memories, clocks and paths.
    pub const CHIP: Self = Self(1 << 8);
    /// About the board around the chip: EEPROM, pins, temperature.
    pub const BOARD: Self = Self(1 << 9);
    /// Stands for bits of another register that is to be read next.
    pub const SUMMARY: Self = Self(1 << 10);

    /// Names in bit order, as used in text and JSON.
    const NAMES: [&'static str; 11] = [
        "receive",
        "send",
        "packet",
        "link-training",
        "sdma",
        "stops-sdma",
        "link",
        "bus",
        "chip",
        "board",
        "summary",
    ];

    /// Both sets together.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether every group of `other` is in this set.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// The names of the groups in this set.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        let in_set = move |&(bit, _): &(usize, _)| self.0 & (1 << bit) != 0;
        Self::NAMES.into_iter().enumerate().filter(in_set).map(|(_, name)| name)
    }
}

impl fmt::Display for Groups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, name) in self.names().enumerate() {
            if n > 0 {
                f.write_str(" ")?;
            }
            f.write_str(name)?;
        }
        Ok(())
    }
}

/// What a row says beyond name and place. Several rows may share one text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Text {
    /// Classes the bit belongs to.
    pub groups: Groups,
    /// How bad it is.
    pub severity: Severity,
    /// What the bit says happened.
    pub meaning: &'static str,
    /// What usually brings it about.
    pub cause: &'static str,
    /// What a person or the driver should do.
    pub action: &'static str,
    /// Facts the row rests on, as numbered in `docs/chip/facts.md`.
    pub source: &'static str,
}

/// One row of a table: a bit, or a run of bits that share a name.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The bits, contiguous when there are several.
    pub mask: u64,
    /// The chip's name, with `_0`/`_1` where the register distinguishes the ports.
    pub name: &'static str,
    /// Length of `name` in bytes, fixed at compile time.
    pub name_len: u8,
    /// Classes, severity and advice.
    pub text: Text,
}

impl Row {
    /// A row for bits `lsb..=msb`.
    ///
    /// Evaluated at compile time by [`table!`](macro@crate::table); a bad row does not build.
    #[must_use]
    pub const fn new(name: &'static str, msb: u32, lsb: u32, text: Text) -> Self {
        assert!(lsb <= msb && msb < 64, "a row's bits run from lsb up to msb, below 64");
        assert!(name.is_ascii() && !name.is_empty(), "a row's name is plain ASCII");
        assert!(name.len() <= crate::MAX_NAME_LEN, "a row's name fits its cell");
        let mask = (u64::MAX >> (63 - msb)) & (u64::MAX << lsb);
        Self { mask, name, name_len: name.len() as u8, text }
    }

    /// How many bits share the row.
    #[must_use]
    pub const fn width(&self) -> u32 {
        self.mask.count_ones()
    }
}
