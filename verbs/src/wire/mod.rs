//! What is on the wire: every header of an InfiniBand packet, read and written without a panic.
//!
//! A packet is a row of 32-bit words, the first byte of each the most significant. The parsers here take words that
//! are already in the processor's order (`u32::from_be`), which is what a receive queue hands out.
//!
//! ```text
//!   LRH 2 │ GRH 10, if the LRH says so │ BTH 3 │ extensions, by opcode │ payload + pad │ ICRC 1
//!   who on this subnet                  which queue pair               chip adds the CRCs (F-900)
//! ```
//!
//! Parsing has two levels. [`Headers::parse`] looks at lengths and versions once and gives a view; the typed headers
//! ([`Bth`], [`Reth`], ...) are read from the view where they are wanted. Reserved bits are ignored when read and
//! zero when written; an unknown version is an error, which the receiver counts.
//!
//! Sources: IBTA volume 1, chapters 7 to 9; F-900 for who computes the CRCs.

pub mod bth;
pub mod ext;
pub mod grh;
pub mod lrh;
pub mod mad;
pub mod opcode;
pub mod view;

use std::fmt;

pub use bth::Bth;
pub use ext::{Aeth, AtomicAckEth, AtomicEth, Credits, Deth, NakCode, Reth, Syndrome};
pub use grh::{Gid, Grh};
pub use lrh::{Lrh, NextHeader};
pub use opcode::{Extra, Opcode, Operation, Place, Service};
pub use view::Headers;

/// Why a packet could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WireError {
    /// It ends before a header does.
    Truncated {
        /// The header that is not whole.
        header: &'static str,
        /// Dwords that are there.
        have_dwords: usize,
        /// Dwords that it would take.
        need_dwords: usize,
    },
    /// The link version is not 0.
    LinkVersion(u8),
    /// A raw packet: no transport header follows the LRH.
    Raw(NextHeader),
    /// The GRH is not of version 6.
    GrhVersion(u8),
    /// No transport header follows the GRH.
    GrhNextHeader(u8),
    /// The transport version is not 0.
    TransportVersion(u8),
    /// An opcode that this transport does not know.
    Opcode(Opcode),
    /// The LRH's packet length contradicts the headers or what came.
    Length {
        /// Dwords by the LRH, ICRC included.
        lrh_dwords: usize,
        /// Dwords that came, ICRC included.
        have_dwords: usize,
    },
    /// More pad bytes than payload.
    Pad {
        /// Pad bytes by the BTH.
        pad: u8,
        /// Bytes of payload with its pad.
        payload_bytes: usize,
    },
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated { header, have_dwords, need_dwords } => {
                write!(f, "the packet ends in its {header}: {have_dwords} of {need_dwords} dwords")
            }
            Self::LinkVersion(version) => write!(f, "link version {version} in the LRH: only 0 is known"),
            Self::Raw(next) => write!(f, "{next} after the LRH: no InfiniBand transport"),
            Self::GrhVersion(version) => write!(f, "IP version {version} in the GRH: only 6 is allowed"),
            Self::GrhNextHeader(next) => {
                write!(
                    f,
                    "next header {next:#04x} in the GRH: {:#04x} is the transport",
                    Grh::NEXT_HEADER_IBA
                )
            }
            Self::TransportVersion(version) => {
                write!(f, "transport version {version} in the BTH: only 0 is known")
            }
            Self::Opcode(opcode) => write!(f, "opcode {:#04x} in the BTH is not known", opcode.0),
            Self::Length { lrh_dwords, have_dwords } => {
                write!(f, "the LRH says {lrh_dwords} dwords, the packet has {have_dwords}")
            }
            Self::Pad { pad, payload_bytes } => {
                write!(f, "{pad} pad bytes in a payload of {payload_bytes} bytes")
            }
        }
    }
}

impl std::error::Error for WireError {}

/// The words of a packet that lies in memory as bytes; a last part of a word is filled with zeros.
pub fn words_of(bytes: &[u8]) -> Vec<u32> {
    let word = |chunk: &[u8]| {
        let mut four = [0; 4];
        four[..chunk.len()].copy_from_slice(chunk);
        u32::from_be_bytes(four)
    };
    bytes.chunks(4).map(word).collect()
}

/// Two words as the 64-bit number that they are on the wire.
#[inline]
const fn wide(high: u32, low: u32) -> u64 {
    (high as u64) << 32 | low as u64
}
