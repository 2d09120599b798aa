//! Extension headers: what stands between BTH and payload, by opcode.
//!
//! ```text
//!   RETH       address 64 │ R_Key 32 │ length 32
//!   AETH       syndrome 8 │ MSN 24
//!   AtomicETH  address 64 │ R_Key 32 │ swap or add 64 │ compare 64
//!   AtomicAck  value before 64
//!   DETH       Q_Key 32 │ reserved 8 │ source QP 24
//!   ImmDt      32 bits          IETH  R_Key 32
//! ```

use std::fmt;

use super::wide;
use crate::ids::{Key, QpNumber};

/// RDMA extended header: where in the responder's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reth {
    /// Address in the responder's terms.
    pub addr: u64,
    /// The key that lets us in.
    pub rkey: Key,
    /// Bytes of the whole message, at most 2^31.
    pub len_bytes: u32,
}

impl Reth {
    /// Words of a RETH.
    pub const WORDS: usize = 4;

    /// Reads a RETH.
    #[inline]
    pub const fn parse([high, low, rkey, len_bytes]: [u32; 4]) -> Self {
        Self { addr: wide(high, low), rkey: Key(rkey), len_bytes }
    }

    /// The words of this RETH.
    #[inline]
    pub const fn build(self) -> [u32; 4] {
        [(self.addr >> 32) as u32, self.addr as u32, self.rkey.0, self.len_bytes]
    }
}

impl fmt::Display for Reth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RETH {:#x} {} {} bytes", self.addr, self.rkey, self.len_bytes)
    }
}

/// Atomic extended header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicEth {
    /// Address in the responder's terms, a multiple of eight.
    pub addr: u64,
    /// The key that lets us in.
    pub rkey: Key,
    /// What to store, or what to add.
    pub swap_or_add: u64,
    /// What must be there for a swap.
    pub compare: u64,
}

impl AtomicEth {
    /// Words of an AtomicETH.
    pub const WORDS: usize = 7;

    /// Reads an AtomicETH.
    pub const fn parse([a1, a0, rkey, s1, s0, c1, c0]: [u32; 7]) -> Self {
        Self { addr: wide(a1, a0), rkey: Key(rkey), swap_or_add: wide(s1, s0), compare: wide(c1, c0) }
    }

    /// The words of this AtomicETH.
    pub const fn build(self) -> [u32; 7] {
        [
            (self.addr >> 32) as u32,
            self.addr as u32,
            self.rkey.0,
            (self.swap_or_add >> 32) as u32,
            self.swap_or_add as u32,
            (self.compare >> 32) as u32,
            self.compare as u32,
        ]
    }
}

impl fmt::Display for AtomicEth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "AtomicETH {:#x} {} swap/add {:#x} compare {:#x}",
            self.addr, self.rkey, self.swap_or_add, self.compare
        )
    }
}

/// The value that was there before an atomic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicAckEth(pub u64);

impl AtomicAckEth {
    /// Words of an AtomicAckETH.
    pub const WORDS: usize = 2;

    /// Reads an AtomicAckETH.
    pub const fn parse([high, low]: [u32; 2]) -> Self {
        Self(wide(high, low))
    }

    /// The words of this AtomicAckETH.
    pub const fn build(self) -> [u32; 2] {
        [(self.0 >> 32) as u32, self.0 as u32]
    }
}

impl fmt::Display for AtomicAckEth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AtomicAckETH {:#x}", self.0)
    }
}

/// Datagram extended header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deth {
    /// The key that the receiving queue pair must have.
    pub qkey: u32,
    /// The sending queue pair.
    pub src_qp: QpNumber,
}

impl Deth {
    /// Words of a DETH.
    pub const WORDS: usize = 2;

    /// Reads a DETH.
    #[inline]
    pub const fn parse([qkey, source]: [u32; 2]) -> Self {
        Self { qkey, src_qp: QpNumber::new(source) }
    }

    /// The words of this DETH.
    #[inline]
    pub const fn build(self) -> [u32; 2] {
        [self.qkey, self.src_qp.get()]
    }
}

impl fmt::Display for Deth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DETH from {} Q_Key {:#x}", self.src_qp, self.qkey)
    }
}

/// How many receives a responder has, as the five bits of an AETH say it.
///
/// 31 steps stand for 0 to 32768; a number between two steps is rounded down. The code 31 means that credits are not
/// counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credits(u8);

const CREDIT_STEPS: [u16; 31] = [
    0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072,
    4096, 6144, 8192, 12288, 16384, 24576, 32768,
];

impl Credits {
    /// Credits are not counted.
    pub const UNLIMITED: Self = Self(31);

    /// From the five bits.
    #[inline]
    pub const fn from_code(code: u8) -> Self {
        Self(code & 0x1F)
    }

    /// The five bits.
    #[inline]
    pub const fn code(self) -> u8 {
        self.0
    }

    /// The largest step that is not above `receives`.
    #[inline]
    pub fn for_receives(receives: u32) -> Self {
        match receives {
            0..=4 => Self(receives as u8),
            _ => {
                // Between two powers of two lies one step more, half way.
                let log = 31 - receives.leading_zeros();
                let half = receives >> (log - 1) & 1;
                Self((2 * log + half).min(30) as u8)
            }
        }
    }

    /// How many receives that is; `None` if they are not counted.
    #[inline]
    pub const fn count(self) -> Option<u32> {
        if (self.0 as usize) < CREDIT_STEPS.len() { Some(CREDIT_STEPS[self.0 as usize] as u32) } else { None }
    }
}

/// Why a responder refused a request for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NakCode {
    /// A request is missing; the PSN says which.
    SequenceError,
    /// The request makes no sense in this state.
    InvalidRequest,
    /// Key, bounds or rights.
    RemoteAccess,
    /// The responder could not do it.
    RemoteOperational,
    /// Of the reliable datagram service only.
    InvalidRd,
    /// Reserved by the specification.
    Reserved(u8),
}

impl NakCode {
    const fn from_code(code: u8) -> Self {
        match code {
            0 => Self::SequenceError,
            1 => Self::InvalidRequest,
            2 => Self::RemoteAccess,
            3 => Self::RemoteOperational,
            4 => Self::InvalidRd,
            other => Self::Reserved(other),
        }
    }

    const fn code(self) -> u8 {
        match self {
            Self::SequenceError => 0,
            Self::InvalidRequest => 1,
            Self::RemoteAccess => 2,
            Self::RemoteOperational => 3,
            Self::InvalidRd => 4,
            Self::Reserved(code) => code & 0x1F,
        }
    }
}

impl fmt::Display for NakCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SequenceError => f.write_str("PSN sequence error"),
            Self::InvalidRequest => f.write_str("invalid request"),
            Self::RemoteAccess => f.write_str("remote access error"),
            Self::RemoteOperational => f.write_str("remote operational error"),
            Self::InvalidRd => f.write_str("invalid RD request"),
            Self::Reserved(code) => write!(f, "reserved code {code}"),
        }
    }
}

/// The syndrome of an AETH.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Syndrome {
    /// Done, and so many receives are left.
    Ack(Credits),
    /// No receive is posted: try again after the time of this code, 0 to 31.
    RnrNak(u8),
    /// The encoding that the specification reserves.
    Reserved(u8),
    /// Refused.
    Nak(NakCode),
}

/// Acknowledge extended header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aeth {
    /// Yes, later, or no.
    pub syndrome: Syndrome,
    /// Messages that the responder has completed, 24 bits.
    pub msn: u32,
}

impl Aeth {
    /// Words of an AETH.
    pub const WORDS: usize = 1;

    /// Reads an AETH.
    #[inline]
    pub const fn parse(word: u32) -> Self {
        let value = (word >> 24 & 0x1F) as u8;
        let syndrome = match word >> 29 & 3 {
            0 => Syndrome::Ack(Credits::from_code(value)),
            1 => Syndrome::RnrNak(value),
            2 => Syndrome::Reserved(value),
            _ => Syndrome::Nak(NakCode::from_code(value)),
        };
        Self { syndrome, msn: word & 0xFF_FFFF }
    }

    /// The word of this AETH.
    #[inline]
    pub const fn build(self) -> u32 {
        let (kind, value) = match self.syndrome {
            Syndrome::Ack(credits) => (0, credits.code()),
            Syndrome::RnrNak(timer) => (1, timer & 0x1F),
            Syndrome::Reserved(value) => (2, value & 0x1F),
            Syndrome::Nak(code) => (3, code.code()),
        };
        kind << 29 | (value as u32) << 24 | self.msn & 0xFF_FFFF
    }
}

impl fmt::Display for Aeth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.syndrome {
            Syndrome::Ack(credits) => match credits.count() {
                Some(count) => write!(f, "AETH ACK credits {count}")?,
                None => f.write_str("AETH ACK credits not counted")?,
            },
            Syndrome::RnrNak(timer) => write!(f, "AETH RNR NAK timer {timer}")?,
            Syndrome::Reserved(value) => write!(f, "AETH reserved {value}")?,
            Syndrome::Nak(code) => write!(f, "AETH NAK {code}")?,
        }
        write!(f, " MSN {}", self.msn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credits_between_two_steps_are_rounded_down() {
        for receives in 0..70_000 {
            let credits = Credits::for_receives(receives);
            let wanted = CREDIT_STEPS.iter().rev().find(|step| u32::from(**step) <= receives);
            assert_eq!(credits.count(), wanted.map(|step| u32::from(*step)), "{receives} receives");
        }
        assert_eq!(Credits::UNLIMITED.count(), None);
    }

    #[test]
    fn every_aeth_syndrome_survives_the_wire() {
        for first in 0..=u8::MAX {
            let word = u32::from(first & 0x7F) << 24 | 0x12_3456;
            assert_eq!(Aeth::parse(word).build(), word, "syndrome {first:#x}");
        }
    }
}
