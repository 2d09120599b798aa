//! What the option parser says: errors that stop it, warnings that do not.

use super::table::Range;
use super::txselect::TxSelectError;
use core::fmt;

/// A setting that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OptionError {
    /// No option has this name.
    Unknown {
        /// As typed.
        name: String,
        /// An option with a similar name.
        nearest: Option<&'static str>,
    },
    /// `name` alone, or `name=`.
    MissingValue {
        /// The option.
        name: &'static str,
        /// What it takes.
        range: Range,
    },
    /// The value is not a number.
    NotANumber {
        /// The option.
        name: &'static str,
        /// As typed.
        value: String,
        /// What it takes.
        range: Range,
    },
    /// The value is a number that the option does not take.
    OutOfRange {
        /// The option.
        name: &'static str,
        /// As typed.
        value: u64,
        /// What it takes.
        range: Range,
    },
    /// The value of `txselect` is not a preset string.
    TxSelect(TxSelectError),
    /// `rcvhdrsize` and `rcvhdrentsize` do not fit together.
    HeaderTooLong {
        /// Dwords of header kept beyond LRH and BTH.
        header_dwords: u32,
        /// Dwords of one entry.
        entry_dwords: u32,
    },
    /// A double quote is not closed.
    OpenQuote {
        /// What follows it.
        setting: String,
    },
    /// The input is longer than any list of options.
    TooLong {
        /// Its length.
        len_bytes: usize,
        /// The longest that is read.
        max_bytes: usize,
    },
    /// A setting in a file.
    InFile {
        /// Counted from 1, where the logical line begins.
        line: usize,
        /// What is wrong there.
        error: Box<OptionError>,
    },
    /// The line is not UTF-8 text.
    NotText,
    /// The file holds zero bytes, so it is a program or a device.
    Binary,
}

impl fmt::Display for OptionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown { name, nearest: Some(nearest) } => {
                write!(f, "option \"{name}\" does not exist; did you mean {nearest}?")
            }
            Self::Unknown { name, nearest: None } => {
                write!(f, "option \"{name}\" does not exist; `qhca options` lists those that do")
            }
            Self::MissingValue { name, range } => write!(f, "option {name} needs a value: {range}"),
            Self::NotANumber { name, value, range } => {
                write!(f, "option {name}: \"{value}\" is not a number; valid: {range}")
            }
            Self::OutOfRange { name, value, range } => {
                write!(f, "option {name}: {value} is out of range; valid: {range}")
            }
            Self::TxSelect(error) => {
                write!(f, "option txselect: {error}; valid: {}", Range::TxSelect)
            }
            Self::HeaderTooLong { header_dwords, entry_dwords } => write!(
                f,
                "option rcvhdrsize: {header_dwords} dwords of header, 5 of LRH and BTH and 2 of flags do not fit an \
                 entry of {entry_dwords}; valid with this rcvhdrentsize: 1 to {}",
                entry_dwords.saturating_sub(7)
            ),
            Self::OpenQuote { setting } => write!(f, "the quote in \"{setting}\" is not closed"),
            Self::TooLong { len_bytes, max_bytes } => {
                write!(f, "{len_bytes} bytes of options; at most {max_bytes} are read")
            }
            Self::InFile { line, error } => write!(f, "line {line}: {error}"),
            Self::NotText => f.write_str("the line is not UTF-8 text"),
            Self::Binary => f.write_str("zero bytes in it, so it is no text: give a modprobe.d file"),
        }
    }
}

impl std::error::Error for OptionError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::TxSelect(error) => Some(error),
            Self::InFile { error, .. } => Some(error.as_ref()),
            _ => None,
        }
    }
}

/// A setting that was read, and not taken as it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Warning {
    /// A name of an earlier release; ignored.
    Gone {
        /// As typed.
        name: String,
    },
    /// Out of range, and replaced as the stock driver does.
    Mended {
        /// The option.
        name: &'static str,
        /// As typed.
        given: u64,
        /// What counts instead.
        used: u32,
        /// What it takes.
        range: Range,
    },
    /// Eight virtual lanes were asked for with a larger MTU than they allow; four are used.
    VlsNeedSmallMtu {
        /// The MTU asked for.
        mtu_bytes: u32,
    },
    /// The option changes nothing here.
    NoEffect {
        /// The option.
        name: &'static str,
        /// Why.
        why: &'static str,
    },
    /// A modprobe.d file without a single `options ib_qib` line: nothing was taken from it.
    NothingInFile,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gone { name } => write!(f, "option {name} is gone since an earlier release and is ignored"),
            Self::Mended { name, given, used, range } => {
                write!(f, "option {name}: {given} is out of range and {used} is used instead; valid: {range}")
            }
            Self::VlsNeedSmallMtu { mtu_bytes } => {
                write!(f, "option num_vls: 8 lanes need an MTU of 2048 or less, not {mtu_bytes}; 4 are used")
            }
            Self::NoEffect { name, why } => write!(f, "option {name} changes nothing here: {why}"),
            Self::NothingInFile => f.write_str(
                "the file has no line `options ib_qib NAME=VALUE ...`, so nothing was taken from it",
            ),
        }
    }
}
