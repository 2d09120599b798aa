//! From error bits of the QLogic 7322 to names, meaning and advice.
//!
//! The chip reports trouble as bits of 64-bit words: one register for the whole device, one for the
//! hardware itself, one per port, a small one that says why a send header was refused, the interrupt
//! status, the status of each send-DMA engine, and the flags that come with every received packet.
//! This crate knows those seven words ([`Scope`]) and, for each bit, a [`Row`]: its name, how bad it
//! is, what it means, what usually causes it and what to do.
//!
//! Two ways to ask:
//!
//! * [`decode()`] writes the names, comma separated, into a buffer of any length. It is meant for the
//!   error path of a driver: no allocation, no formatting machinery, a few instructions a name, and
//!   it ends as soon as no bit is left.
//! * [`Report`] explains a word to a person, line by line, or to a program as JSON.
//!
//! ```
//! use qhca_errdecode::{Scope, decode};
//!
//! let mut buf = [0; 128];
//! let decoded = decode(Scope::Device, 1 << 12 | 1 << 40, &mut buf);
//! assert_eq!(decoded.as_str(), "RcvEgrFullErr,MORE:10000000000");
//! ```
//!
//! Reading order: [`row`](Row) (what is known of a bit), `table` (how rows become a table at compile
//! time), `decode` (the fast walk), `entries` and `report`; [`log_line`] finds words in text; `tables/` holds one file per word.
//!
//! What it does not do: it reads no register, decides nothing (the driver's fault policy does) and
//! keeps no state.

#![no_std]
#![forbid(unsafe_code)]

mod decode;
mod entries;
pub mod log_line;
mod report;
mod row;
mod scope;
mod table;
pub mod tables;

pub use decode::{Decoded, GONE_TEXT, TRUNCATION_MARK};
pub use entries::{Entries, Entry};
pub use report::Report;
pub use row::{Groups, Row, Severity, Text};
pub use scope::{Scope, UnknownScope};
pub use table::{MAX_NAME_LEN, Origin, Table, ValueField};

/// Writes the names of the bits set in `word` into `buf`, in the scope's table order.
///
/// See [`Table::decode`] for the exact form of the text.
pub fn decode(scope: Scope, word: u64, buf: &mut [u8]) -> Decoded<'_> {
    scope.table().decode(word, buf)
}

/// Iterates over the known flags set in `word`, in the scope's table order.
pub fn entries(scope: Scope, word: u64) -> Entries {
    scope.table().entries(word)
}

/// Whether a word read from a register says that nobody answered the read.
///
/// A PCIe read that no device completes returns all ones. No register of this chip can hold that
/// value honestly, so it is never a list of 64 faults (F-707).
#[must_use]
pub const fn is_gone(word: u64) -> bool {
    word == u64::MAX
}
