//! Packets as they pass the seam between chip and cable, and the pool that keeps their buffers.
//!
//! ```text
//!   on the wire   | LRH | GRH? | BTH | extensions | payload, padded | ICRC | VCRC |
//!   at this seam  '----------------- bytes -------------------------'  flags of Meta
//! ```
//!
//! The chip computes both CRCs on sending and checks both on receiving; software never sees them (F-303). Whether
//! they are really computed is the fabric's business: here a packet carries its bytes from the LRH to the last pad
//! byte and the verdicts.

use qhca_regs::{Instant, Port};

/// What the receiving link layer knows of a packet beyond its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meta {
    /// Whether the invariant CRC was right.
    pub icrc_ok: bool,
    /// Whether the variant CRC was right.
    pub vcrc_ok: bool,
    /// Whether the packet ended with the bad-packet delimiter.
    pub ends_bad: bool,
}

impl Meta {
    /// A packet without fault.
    pub const GOOD: Self = Self { icrc_ok: true, vcrc_ok: true, ends_bad: false };
}

/// A packet that the chip has put on the wire.
#[derive(Clone, Debug)]
pub struct Packet {
    /// From the LRH to the last pad byte, network order, without CRCs; a multiple of 4 long.
    pub bytes: Vec<u8>,
    /// Virtual lane it was sent on.
    pub vl: u8,
    /// When its first bit went out.
    pub sent_at: Instant,
    /// The port that sent it.
    pub port: Port,
    /// Verdicts a receiver would reach on it as it is: good unless the sender asked for a bad ending.
    pub meta: Meta,
}

impl Packet {
    /// Dwords on the wire, ICRC included: what the LRH's length field says.
    pub fn wire_dwords(&self) -> usize {
        self.bytes.len() / 4 + 1
    }
}

/// Buffers of sent packets, kept for the next ones.
#[derive(Debug, Default)]
pub(super) struct Pool {
    free: Vec<Vec<u8>>,
}

impl Pool {
    /// More than this are given back to the allocator.
    const KEEP: usize = 4096;

    /// A buffer that still holds what it held last.
    pub(super) fn take(&mut self) -> Vec<u8> {
        self.free.pop().unwrap_or_default()
    }

    pub(super) fn give(&mut self, bytes: Vec<u8>) {
        if self.free.len() < Self::KEEP {
            self.free.push(bytes);
        }
    }
}

/// Writes `dwords` to `bytes`, which is as long, in memory order.
#[inline]
pub(super) fn write_dwords(bytes: &mut [u8], dwords: &[u32]) {
    for (to, dword) in bytes.chunks_exact_mut(4).zip(dwords) {
        to.copy_from_slice(&dword.to_le_bytes());
    }
}
