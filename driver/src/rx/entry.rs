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

use std::sync::atomic::{AtomicU64, Ordering};

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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

/// The numbers of a queue and its buffers, worked out once: what an ordinary packet's claims are compared with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    rhf_dword: u32,
    pub(super) eager_count: u32,
    buffer_dwords: u32,
    /// The size of a buffer is a power of two.
    pub(super) buffer_shift: u32,
    pub(super) entry_words: usize,
    pub(super) queue_bytes: usize,
}

impl Limits {
    pub(super) fn new(queue: QueueShape, eager: EagerShape) -> Self {
        Self {
            rhf_dword: queue.rhf_dword(),
            eager_count: eager.count(),
            buffer_dwords: eager.buffer_bytes() as u32 / 4,
            buffer_shift: eager.buffer_bytes().trailing_zeros(),
            entry_words: queue.entry_bytes() / 8,
            queue_bytes: queue.len_bytes(),
        }
    }
}

/// An ordinary packet's claims, bounded. Plain numbers, which stay in registers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ordinary {
    /// Where the header starts in its entry, dwords.
    pub(super) header_dword: u32,
    pub(super) header_dwords: u32,
    pub(super) len_dwords: u32,
    pub(super) payload_dwords: u32,
    pub(super) index: u32,
}

/// The bits by which an ordinary packet is known: no error flag and no bit without a meaning (63 to 47 and 30 to 28),
/// plain, with a buffer.
pub(super) const ORDINARY_MASK: u64 = 0x1_FFFF << 47 | 0b1111 << 28 | 0b111 << 11;
/// What those bits are.
pub(super) const ORDINARY: u64 = 0b010 << 11 | 1 << 31;

/// Bounds the claims of a packet whose RHF is [`ORDINARY`] in [`ORDINARY_MASK`] and whose entry has the words `headers`
/// before the RHF; `differs` is the RHF without the bits that are set in [`ORDINARY`]. `None` means that [`judge`] has to
/// look.
///
/// The same comparisons in the fewest instructions: that an LRH lies inside `headers` bounds the header, and a payload
/// that is too short wraps to one that is too long.
#[inline]
pub(super) fn bound_ordinary(
    rhf: Rhf,
    differs: u64,
    headers: &[AtomicU64],
    limits: &Limits,
) -> Option<Ordinary> {
    let low = rhf.0 as u32;
    let len_dwords = low & 0x7FF;
    // Nothing stands above the offset in the RHF, nor above the index in what differs.
    let header_dword = (rhf.0 >> 36) as u32;
    let lrh_len = lrh_len(headers, header_dword as usize)?;
    let header_dwords = limits.rhf_dword.wrapping_sub(header_dword);
    let payload_dwords = len_dwords.wrapping_sub(header_dwords).wrapping_sub(1);
    let index = differs as u32 >> 16;
    // A planted fault, for the proof that the fuzzer reaches this far: the first index past the buffers is let through.
    #[cfg(canary)]
    let index = if index == limits.eager_count { index - 1 } else { index };
    if u32::from(lrh_len) != len_dwords
        || payload_dwords > limits.buffer_dwords
        || index >= limits.eager_count
    {
        return None;
    }
    Some(Ordinary { header_dword, header_dwords, len_dwords, payload_dwords, index })
}

/// The length that the LRH names which starts at `header_dword` of an entry, if it lies inside the words `headers`: its
/// second dword is length and source LID, big-endian, and the length has eleven bits (F-206).
#[inline]
pub(super) fn lrh_len(headers: &[AtomicU64], header_dword: usize) -> Option<u16> {
    let at = header_dword + 1;
    let word = u64::from_le(headers.get(at / 2)?.load(Ordering::Relaxed));
    Some(((word >> (32 * (at % 2))) as u16).swap_bytes() & 0x7FF)
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// The short way and the long way agree on every ordinary packet.
        #[test]
        fn short_and_long_way_agree(word in any::<u64>(), header in 0_u64..34, payload in 0_u64..520) {
            let queue = QueueShape::new(64, 32).expect("a shape");
            let eager = EagerShape::new(0, 48, 2048).expect("a shape");
            let limits = Limits::new(queue, eager);
            let ordinary = Rhf(word & !ORDINARY_MASK | ORDINARY);
            let near = ordinary
                .with_hdrq_offset(30_u64.wrapping_sub(header) as u16)
                .with_len_dwords((header + payload + 1) as u16)
                .with_egr_index(ordinary.egr_index() % 50);
            for rhf in [ordinary, near] {
                // Every LRH length agrees, so that the bounds alone decide.
                let lrh = u64::from(rhf.len_dwords().swap_bytes());
                let headers: [AtomicU64; 15] = std::array::from_fn(|_| AtomicU64::new(lrh | lrh << 32));
                match (bound_ordinary(rhf, rhf.0 ^ ORDINARY, &headers, &limits), judge(rhf, queue, eager)) {
                    (Some(short), Verdict::Whole(long)) => {
                        let header_at = short.header_dword as usize * 4;
                        let header_bytes = short.header_dwords as usize * 4;
                        let payload_bytes = short.payload_dwords as usize * 4;
                        let eager = Some(short.index);
                        prop_assert_eq!(Bounded { header_at, header_bytes, payload_bytes, eager }, long);
                    }
                    (None, Verdict::Malformed(_)) => {}
                    (short, long) => prop_assert!(false, "{:?}: {:?} but {:?}", rhf, short, long),
                }
            }
        }
    }
}
