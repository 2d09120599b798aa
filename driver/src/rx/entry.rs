//! From an RHF that may be garbage to an arrival whose every view lies inside its memory.
//!
//! Lengths, offsets and indices in an RHF are the chip's claims. A chip that is dying, or memory that something
//! else has overwritten, claims anything; what is wrong is named, counted and passed over, and nothing is read that
//! the claim alone points to.
//!
//! ```text
//!   entry:  | ....... | LRH | BTH | ext | RHF |
//!                     ^ hdrq_offset     ^ rhf_dword
//!   length (dwords) = header + payload + 1 (ICRC)
//! ```

use qhca_regs::layout::{PacketType, Rhf, RhfErrors};

use super::memory::{EagerShape, QueueShape};

/// How an entry contradicts itself or the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Malformed {
    /// The header starts past the place where the RHF stands, or so late that no LRH fits.
    HeaderOffset,
    /// The packet is shorter than its header and the ICRC.
    TooShort,
    /// The packet is longer than the eager buffer, or than its entry if it has no buffer.
    TooLong,
    /// The eager index is past the context's buffers.
    EagerIndex,
    /// The LRH inside says another length than the RHF (F-206).
    LengthMismatch,
    /// A packet type that no source names.
    Kind,
}

/// How many kinds of contradiction there are.
pub(super) const MALFORMED_KINDS: usize = 6;

/// The smallest header, dwords: an LRH.
const LRH_DWORDS: u32 = 2;

/// An entry's shape after every claim was bounded.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounded {
    /// Header start inside the entry, bytes.
    pub(super) header_at: usize,
    /// Header length, bytes.
    pub(super) header_bytes: usize,
    /// Payload length, bytes; 0 if it is not in an eager buffer.
    pub(super) payload_bytes: usize,
    /// The eager buffer that was used up.
    pub(super) eager: Option<u32>,
}

/// What an RHF says when its claims are taken at no more than their worth.
#[derive(Clone, Copy, Debug)]
pub(super) enum Verdict {
    /// All claims agree; the LRH's length is still to be compared.
    Whole(Bounded),
    /// The payload found no buffer; headers are at these bytes of the entry.
    NoBuffer { header_at: usize, header_bytes: usize },
    /// Faulty; what stands at these bytes may be headers.
    Damaged { header_at: usize, header_bytes: usize, eager: Option<u32> },
    /// Contradictory.
    Malformed(Malformed),
}

/// Bounds the claims of `rhf`.
#[inline]
pub(super) fn judge(rhf: Rhf, queue: QueueShape, eager: EagerShape) -> Verdict {
    let rhf_dword = queue.rhf_dword();
    let offset = u32::from(rhf.hdrq_offset());
    if offset > rhf_dword - LRH_DWORDS {
        return Verdict::Malformed(Malformed::HeaderOffset);
    }
    let header_dwords = rhf_dword - offset;
    let (header_at, header_bytes) = (offset as usize * 4, header_dwords as usize * 4);
    let index = u32::from(rhf.egr_index());
    if !rhf.is_good() || matches!(rhf.kind(), PacketType::Error | PacketType::Unknown(_)) {
        return judge_faulty(rhf, header_at, header_bytes, eager);
    }
    let Some(payload_dwords) = u32::from(rhf.len_dwords()).checked_sub(header_dwords + 1) else {
        return Verdict::Malformed(Malformed::TooShort);
    };
    if !rhf.uses_egr_buf() {
        // A plain packet without a buffer has all of itself in the entry; only a KD packet may have its payload in
        // a TID's page (F-205).
        if payload_dwords > 0 && rhf.kind() != PacketType::Expected {
            return Verdict::Malformed(Malformed::TooLong);
        }
        return Verdict::Whole(Bounded { header_at, header_bytes, payload_bytes: 0, eager: None });
    }
    let payload_bytes = payload_dwords as usize * 4;
    if payload_bytes > eager.buffer_bytes() {
        return Verdict::Malformed(Malformed::TooLong);
    }
    if index >= eager.count() {
        return Verdict::Malformed(Malformed::EagerIndex);
    }
    Verdict::Whole(Bounded { header_at, header_bytes, payload_bytes, eager: Some(index) })
}

/// The rest of [`judge`] for packets that are of no use.
#[cold]
fn judge_faulty(rhf: Rhf, header_at: usize, header_bytes: usize, shape: EagerShape) -> Verdict {
    let errors = rhf.errors() & RhfErrors::PACKET;
    if errors == RhfErrors::TID {
        return Verdict::NoBuffer { header_at, header_bytes };
    }
    if errors.is_empty() && matches!(rhf.kind(), PacketType::Unknown(_)) {
        return Verdict::Malformed(Malformed::Kind);
    }
    // With a TID error the index names a buffer that was not used: it will come again (F-207).
    let used = rhf.uses_egr_buf() && !errors.contains(RhfErrors::TID);
    let index = u32::from(rhf.egr_index());
    let eager = (used && index < shape.count()).then_some(index);
    Verdict::Damaged { header_at, header_bytes, eager }
}
