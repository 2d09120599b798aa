//! What became of every entry that a context took from its queue.

use qhca_regs::layout::RhfErrors;

/// The accounts of one context. Every entry is in exactly one of `packets`, `no_buffer`, `damaged`, `malformed`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RxCounts {
    /// Packets handed out without a flaw.
    pub packets: u64,
    /// Their dwords on the wire, LRH through ICRC.
    pub dwords: u64,
    /// Packets whose payload found no eager buffer.
    pub no_buffer: u64,
    /// Packets that the chip marked faulty; the kinds are in `damaged_by_kind`.
    pub damaged: u64,
    /// For each error flag how many packets bore it: [`RhfErrors`] bit 21 first. A packet may bear several.
    pub damaged_by_kind: [u64; 11],
    /// Entries that contradicted themselves; the kinds are in `malformed_by_kind`.
    pub malformed: u64,
    /// For each [`Malformed`](super::Malformed), in its order, how many entries.
    pub malformed_by_kind: [u64; super::entry::MALFORMED_KINDS],
    /// Eager buffers that the chip passed over.
    pub eager_skipped: u64,
    /// Packets that named the same eager buffer as the packet before.
    pub eager_repeated: u64,
    /// Calls of `drain`.
    pub drains: u64,
    /// Calls of `drain` that found nothing.
    pub drains_empty: u64,
    /// Times the interrupt was armed.
    pub rearms: u64,
    /// Times that the look after arming found a packet which the look before had not.
    pub second_looks_that_found: u64,
    /// Times that space was returned to the chip, arming included.
    pub releases: u64,
    /// Times that the queue had to be found again by the tail register.
    pub resyncs: u64,
    /// Entries that were passed over when the queue was found again.
    pub lost_in_resync: u64,
    /// The most entries that were taken in a row before the queue was found empty.
    pub deepest_backlog: u64,
    /// Times that such a row was longer than three quarters of the eager buffers: the chip was near starving.
    pub low_water: u64,
    /// Times that the queue began afresh because the device was reset.
    pub restarts: u64,
    /// Times that the error worker raised the context's budget after an overflow.
    pub boosts: u64,
}

/// Name of the lowest flag counted in `damaged_by_kind` is bit 21.
const FIRST_ERROR_BIT: u32 = RhfErrors::TF_SEQ.bits().trailing_zeros();

impl RxCounts {
    /// Entries taken from the queue, whatever they were.
    pub fn entries(&self) -> u64 {
        self.packets + self.no_buffer + self.damaged + self.malformed
    }

    /// Entries that were no use to anybody: every one a packet that somebody sent.
    pub fn dropped(&self) -> u64 {
        self.no_buffer + self.damaged + self.malformed + self.lost_in_resync
    }

    /// Counts one faulty packet.
    #[cold]
    pub(super) fn count_damaged(&mut self, errors: RhfErrors) {
        self.damaged += 1;
        for (n, count) in (0..).zip(&mut self.damaged_by_kind) {
            *count += u64::from(errors.bits() >> (FIRST_ERROR_BIT + n) & 1);
        }
    }

    /// Counts one entry that contradicted itself.
    #[cold]
    pub(super) fn count_malformed(&mut self, why: super::Malformed) {
        self.malformed += 1;
        self.malformed_by_kind[why as usize] += 1;
    }
}
