//! The receive header flags (RHF): the chip's verdict on one received packet.
//!
//! Every packet that arrives gets an entry of `RcvHdrEntSize` dwords in its context's header queue. The last two
//! dwords are the RHF, which the chip writes last; the packet's header stands right before it, as far to the right as
//! it goes (F-007):
//!
//! ```text
//! dword 0            hdrq_offset                 entsize − 2      entsize
//!   | left as it was | LRH · GRH · BTH · ... header | RHF 0 | RHF 1 |
//!
//!         31 30   28 27        16 15  14 13  11 10             0
//! RHF 0  | E|      | eager index |SWA|SWB| type | length, dwords |      E: the payload is in the eager buffer
//!
//!         31      21 20      15 14                 4 3         0
//! RHF 1  |  errors  |          | hdrq_offset, dwords |  sequence |
//! ```
//!
//! Bits that no source names are kept, not interpreted. The sequence number is what makes an entry new
//! ([`RhfSeq`]); the tail in memory is not needed.

use crate::value::{FieldValue, contents};
use core::ops::Range;

contents! {
    /// Both dwords of a receive header flags word, dword 0 in the low half.
    pub struct Rhf;
    /// Length of the packet from LRH through ICRC, dwords; equals the LRH's own length field (F-008).
    len_dwords / with_len_dwords: u16 [0..=10] "Length";
    /// What kind of packet it is.
    kind / with_kind: PacketType [11..=13] "RcvType";
    /// Bit SWB; no source tells its meaning.
    swb / with_swb: bool [14] "SWB";
    /// Bit SWA; no source tells its meaning.
    swa / with_swa: bool [15] "SWA";
    /// Index of the eager buffer, counted from the context's first; has meaning if [`uses_egr_buf`](Self::uses_egr_buf).
    egr_index / with_egr_index: u16 [16..=27] "EgrIndex";
    /// Whether the payload stands in an eager buffer.
    uses_egr_buf / with_uses_egr_buf: bool [31] "UseEgrBfr";
    /// Sequence number of the entry, see [`RhfSeq`].
    seq / with_seq: u8 [32..=35] "SeqNum";
    /// Where the packet's header starts in the entry, dwords.
    hdrq_offset / with_hdrq_offset: u16 [36..=46] "HdrqOffset";
    /// What was wrong with the packet.
    errors / with_errors: RhfErrors [53..=63] "Errors";
}

/// What kind of packet an RHF describes: three bits, four of whose values are known (F-007).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PacketType {
    /// A KD packet whose payload went to a TID's page.
    Expected,
    /// A KD packet whose payload went to an eager buffer, or that has none.
    Eager,
    /// A plain InfiniBand packet.
    Ib,
    /// A packet that the chip could not sort.
    Error,
    /// A value that no source names, 4 to 7.
    Unknown(u8),
}

impl FieldValue for PacketType {
    #[inline]
    fn from_bits(bits: u64) -> Self {
        match bits {
            0 => Self::Expected,
            1 => Self::Eager,
            2 => Self::Ib,
            3 => Self::Error,
            other => Self::Unknown(other as u8),
        }
    }

    #[inline]
    fn into_bits(self) -> u64 {
        match self {
            Self::Expected => 0,
            Self::Eager => 1,
            Self::Ib => 2,
            Self::Error => 3,
            Self::Unknown(code) => u64::from(code),
        }
    }
}

bitflags::bitflags! {
    /// The error bits of RHF dword 1, in their places there (F-009).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct RhfErrors: u32 {
        /// An expected packet's sequence number was not the one its flow waits for.
        const TF_SEQ = 1 << 21;
        /// An expected packet's generation was not the one its flow is in.
        const TF_GEN = 1 << 22;
        /// A fault of the InfiniBand headers.
        const IB = 1 << 23;
        /// The chip's MK error; no source tells more than the name.
        const MK = 1 << 24;
        /// The buffer's index or TID was not valid; alone on a plain packet: no eager buffer was left.
        const TID = 1 << 25;
        /// The KD header's version or checksum was wrong.
        const KHDR = 1 << 26;
        /// The packet is longer than the port's MTU.
        const MTU = 1 << 27;
        /// The packet's length and its LRH disagree.
        const LEN = 1 << 28;
        /// A parity error inside the chip.
        const PARITY = 1 << 29;
        /// The link-level check sum is wrong.
        const VCRC = 1 << 30;
        /// The end-to-end check sum is wrong.
        const ICRC = 1 << 31;
    }
}

impl RhfErrors {
    /// The bits that make a packet unusable; the two flow bits below them only tell why an expected packet is here.
    pub const PACKET: Self = Self::from_bits_retain(0xFF80_0000);
}

impl FieldValue for RhfErrors {
    #[inline]
    fn from_bits(bits: u64) -> Self {
        Self::from_bits_retain((bits as u32) << 21)
    }

    #[inline]
    fn into_bits(self) -> u64 {
        u64::from(self.bits() >> 21)
    }
}

impl Rhf {
    /// Dwords that an RHF takes at the end of its entry.
    pub const LEN_DWORDS: usize = 2;

    /// From the entry's last two dwords, in memory order.
    #[inline]
    pub const fn from_dwords(dword0: u32, dword1: u32) -> Self {
        Self(dword0 as u64 | (dword1 as u64) << 32)
    }

    /// The two dwords in memory order.
    #[inline]
    pub const fn dwords(self) -> [u32; 2] {
        [self.0 as u32, (self.0 >> 32) as u32]
    }

    /// From the eight bytes as they stand in memory.
    #[inline]
    pub const fn parse(bytes: [u8; 8]) -> Self {
        Self(u64::from_le_bytes(bytes))
    }

    /// The eight bytes as they stand in memory.
    #[inline]
    pub const fn build(self) -> [u8; 8] {
        self.0.to_le_bytes()
    }

    /// Whether the packet may be used: none of the errors in [`RhfErrors::PACKET`].
    #[inline]
    pub fn is_good(self) -> bool {
        !self.errors().intersects(RhfErrors::PACKET)
    }

    /// Where the packet's header stands in an entry of `entry_dwords`, dwords; `None` if the offset that the chip
    /// wrote leaves no room for one before the RHF.
    #[inline]
    pub fn header_span(self, entry_dwords: usize) -> Option<Range<usize>> {
        let (start, end) = (usize::from(self.hdrq_offset()), entry_dwords.checked_sub(Self::LEN_DWORDS)?);
        (start < end).then_some(start..end)
    }

    /// Payload dwords of a packet whose header takes `header_dwords`: what is neither header nor ICRC. `None` if the
    /// packet is shorter than its header claims.
    #[inline]
    pub fn payload_dwords(self, header_dwords: usize) -> Option<usize> {
        usize::from(self.len_dwords()).checked_sub(header_dwords + 1)
    }
}

/// The sequence number that the next new entry of a header queue will carry: 1 to 13, cyclic (F-010).
///
/// A queue starts zeroed, and no entry ever carries 0, so memory that the chip has not written never looks new.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RhfSeq(u8);

impl RhfSeq {
    /// What the first entry after a context was enabled carries.
    pub const FIRST: Self = Self(1);
    /// What follows [`FIRST`](Self::FIRST) again.
    pub const LAST: Self = Self(13);

    /// 1 to 13.
    pub const fn value(self) -> u8 {
        self.0
    }

    /// The number after this one.
    #[inline]
    #[must_use]
    pub const fn next(self) -> Self {
        if self.0 >= Self::LAST.0 { Self::FIRST } else { Self(self.0 + 1) }
    }

    /// Whether `rhf` is the entry that a reader of this number waits for.
    #[inline]
    pub fn matches(self, rhf: Rhf) -> bool {
        rhf.seq() == self.0
    }
}

impl Default for RhfSeq {
    fn default() -> Self {
        Self::FIRST
    }
}
