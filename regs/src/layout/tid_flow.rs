//! A TID flow: how the chip checks the order of expected packets, 32 flows a context (F-016).
//!
//! ```text
//!  28  27  26 23  22   21   20   19  18          11 10             0
//! |gm |sm |     |kge |kse |hse |val | generation   |  next sequence  |     sm, gm: mismatch seen, write one to clear
//! ```
//!
//! The sequence number of an expected packet names flow, generation and place in one 24-bit PSN:
//!
//! ```text
//!  23    19 18          11 10             0
//! |  flow  |  generation  |    sequence     |
//! ```
//!
//! Bits 29 to 63 of an entry have no meaning and are ignored: the stock driver writes there by mistake.

use crate::ids::Psn;
use crate::map::user::RcvTidFlowTable;

/// One entry of a context's flow table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct TidFlow {
    /// The sequence number that the next packet should carry, 11 bits.
    pub seq: u16,
    /// The generation that packets should carry.
    pub generation: u8,
    /// Whether the flow is in use.
    pub valid: bool,
    /// Whether in-order packets that ask for it get no header-queue entry.
    pub hdr_supp: bool,
    /// Keep the payload of packets after a sequence error.
    pub keep_after_seq_err: bool,
    /// Keep the payload of packets of another generation.
    pub keep_on_gen_err: bool,
    /// A packet came out of order.
    pub seq_mismatch: bool,
    /// A packet of another generation came.
    pub gen_mismatch: bool,
}

impl TidFlow {
    /// Flows of one context.
    pub const COUNT: usize = 32;

    /// What `word` of the table says.
    pub fn parse(word: RcvTidFlowTable) -> Self {
        Self {
            seq: word.seq_num(),
            generation: word.gen_val(),
            valid: word.flow_valid(),
            hdr_supp: word.hdr_supp_enabled(),
            keep_after_seq_err: word.keep_after_seq_err(),
            keep_on_gen_err: word.keep_on_gen_err(),
            seq_mismatch: word.seq_mismatch(),
            gen_mismatch: word.gen_mismatch(),
        }
    }

    /// The word for the table; a sequence number wider than 11 bits is cut off.
    pub fn build(self) -> RcvTidFlowTable {
        RcvTidFlowTable(0)
            .with_seq_num(self.seq)
            .with_gen_val(self.generation)
            .with_flow_valid(self.valid)
            .with_hdr_supp_enabled(self.hdr_supp)
            .with_keep_after_seq_err(self.keep_after_seq_err)
            .with_keep_on_gen_err(self.keep_on_gen_err)
            .with_seq_mismatch(self.seq_mismatch)
            .with_gen_mismatch(self.gen_mismatch)
    }
}

/// The sequence number of an expected packet, taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlowPsn {
    /// The flow, 0 to 31.
    pub flow: u8,
    /// The flow's generation.
    pub generation: u8,
    /// The place in the flow, 11 bits.
    pub seq: u16,
}

impl FlowPsn {
    /// Takes `psn` apart.
    pub const fn parse(psn: Psn) -> Self {
        let bits = psn.value();
        // A planted fault, for the proof that the fuzzer reaches this far: one flow loses a bit of its place.
        #[cfg(canary)]
        let bits = if bits >> 19 == 0x1D { bits & !0x400 } else { bits };
        Self { flow: (bits >> 19) as u8, generation: (bits >> 11) as u8, seq: (bits & 0x7FF) as u16 }
    }

    /// Puts it together; what does not fit its field is cut off.
    pub const fn build(self) -> Psn {
        let (flow, seq) = (self.flow as u32 & 0x1F, self.seq as u32 & 0x7FF);
        Psn::new(flow << 19 | (self.generation as u32) << 11 | seq)
    }
}
