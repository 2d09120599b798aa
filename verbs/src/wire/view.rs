//! The first level of parsing: lengths and versions are looked at once, then headers are read where they are wanted.

use std::fmt;

use super::opcode::Meaning;
use super::{
    Aeth, AtomicAckEth, AtomicEth, Bth, Deth, Extra, Grh, Lrh, NextHeader, Operation, Reth, Service,
    WireError,
};
use crate::ids::Key;

/// The headers of one packet, known to be whole, of versions and an opcode that we know.
#[derive(Clone, Copy, Debug)]
pub struct Headers<'a> {
    /// The local route header.
    pub lrh: Lrh,
    /// The base transport header.
    pub bth: Bth,
    /// What the opcode implies.
    pub meaning: &'static Meaning,
    grh_words: Option<&'a [u32; Grh::WORDS]>,
    ext: &'a [u32],
    rest: &'a [u32],
    payload_bytes: u16,
}

impl<'a> Headers<'a> {
    /// The longest headers, dwords: LRH, GRH, BTH and an AtomicETH.
    pub const MAX_WORDS: usize = Lrh::WORDS + Grh::WORDS + Bth::WORDS + AtomicEth::WORDS;

    /// Looks at the headers at the start of `words`. Words after the headers are payload
    /// ([`rest`](Self::rest)), or lie elsewhere; `payload_words` says how many do.
    ///
    /// # Errors
    /// [`WireError`]: what makes it no packet for a queue pair.
    #[inline]
    pub fn parse(words: &'a [u32], payload_words: usize) -> Result<Self, WireError> {
        let (lrh_words, after) = split::<{ Lrh::WORDS }>(words, "LRH")?;
        let lrh = Lrh::parse(*lrh_words)?;
        let (grh_words, after) = match lrh.next {
            NextHeader::Bth => (None, after),
            NextHeader::Grh => {
                let (grh_words, after) = split::<{ Grh::WORDS }>(after, "GRH")?;
                Grh::parse(*grh_words)?;
                (Some(grh_words), after)
            }
            raw => return Err(WireError::Raw(raw)),
        };
        let (bth_words, after) = split::<{ Bth::WORDS }>(after, "BTH")?;
        let bth = Bth::parse(*bth_words)?;
        let meaning = bth.opcode.meaning().ok_or(WireError::Opcode(bth.opcode))?;
        let ext_words = usize::from(meaning.ext_words);
        let Some((ext, rest)) = after.split_at_checked(ext_words) else {
            return Err(WireError::Truncated {
                header: "extension headers",
                have_dwords: after.len(),
                need_dwords: ext_words,
            });
        };
        let have_dwords = words.len() + payload_words + 1;
        if usize::from(lrh.len_dwords) != have_dwords {
            return Err(WireError::Length { lrh_dwords: usize::from(lrh.len_dwords), have_dwords });
        }
        let padded_bytes = (rest.len() + payload_words) * 4;
        if usize::from(bth.pad) > padded_bytes {
            return Err(WireError::Pad { pad: bth.pad, payload_bytes: padded_bytes });
        }
        // Below 2048 dwords by the LRH, which was compared.
        let payload_bytes = (padded_bytes - usize::from(bth.pad)) as u16;
        // A planted fault, for the proof that the fuzzer reaches this far: the pad of one kind of packet is forgotten.
        #[cfg(canary)]
        let payload_bytes = match meaning.extra {
            Extra::Immediate if meaning.service == Service::Uc => payload_bytes + u16::from(bth.pad),
            _ => payload_bytes,
        };
        Ok(Self { lrh, bth, meaning, grh_words, ext, rest, payload_bytes })
    }

    /// Bytes of payload, pad not counted.
    #[inline]
    pub fn payload_bytes(&self) -> usize {
        usize::from(self.payload_bytes)
    }

    /// Words after the headers that were given along with them.
    #[inline]
    pub fn rest(&self) -> &'a [u32] {
        self.rest
    }

    /// The global route header, if there is one.
    pub fn grh(&self) -> Option<Grh> {
        self.grh_words.and_then(|words| Grh::parse(*words).ok())
    }

    /// The words of the global route header, if there is one.
    pub fn grh_words(&self) -> Option<&'a [u32; Grh::WORDS]> {
        self.grh_words
    }

    #[inline]
    fn ext_at<const N: usize>(&self, at: usize) -> Option<[u32; N]> {
        self.ext.get(at..)?.first_chunk().copied()
    }

    /// The RETH, if the opcode has one.
    #[inline]
    pub fn reth(&self) -> Option<Reth> {
        let has = match self.meaning.operation {
            Operation::ReadRequest => true,
            Operation::Write => self.meaning.place.begins(),
            _ => false,
        };
        has.then(|| self.ext_at(0).map(Reth::parse)).flatten()
    }

    /// The AETH, if the opcode has one.
    #[inline]
    pub fn aeth(&self) -> Option<Aeth> {
        let has = match self.meaning.operation {
            Operation::Acknowledge | Operation::AtomicAcknowledge => true,
            Operation::ReadResponse => self.meaning.ext_words > 0,
            _ => false,
        };
        has.then(|| self.ext.first().copied().map(Aeth::parse)).flatten()
    }

    /// The AtomicETH, if the opcode has one.
    pub fn atomic(&self) -> Option<AtomicEth> {
        let has = matches!(self.meaning.operation, Operation::CompareSwap | Operation::FetchAdd);
        has.then(|| self.ext_at(0).map(AtomicEth::parse)).flatten()
    }

    /// The AtomicAckETH, if the opcode has one.
    pub fn atomic_ack(&self) -> Option<AtomicAckEth> {
        let has = self.meaning.operation == Operation::AtomicAcknowledge;
        has.then(|| self.ext_at(Aeth::WORDS).map(AtomicAckEth::parse)).flatten()
    }

    /// The DETH, if the opcode has one.
    #[inline]
    pub fn deth(&self) -> Option<Deth> {
        (self.meaning.service == Service::Ud).then(|| self.ext_at(0).map(Deth::parse)).flatten()
    }

    /// The immediate data, if the opcode has some.
    #[inline]
    pub fn immediate(&self) -> Option<u32> {
        (self.meaning.extra == Extra::Immediate).then(|| self.ext.last().copied()).flatten()
    }

    /// The key to invalidate, if the opcode has one.
    #[inline]
    pub fn invalidate(&self) -> Option<Key> {
        (self.meaning.extra == Extra::Invalidate).then(|| self.ext.last().copied().map(Key)).flatten()
    }
}

#[inline]
fn split<'a, const N: usize>(
    words: &'a [u32],
    header: &'static str,
) -> Result<(&'a [u32; N], &'a [u32]), WireError> {
    words.split_first_chunk().ok_or(WireError::Truncated { header, have_dwords: words.len(), need_dwords: N })
}

impl fmt::Display for Headers<'_> {
    /// All headers in their order, then the payload's length.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.lrh)?;
        if let Some(grh) = self.grh() {
            write!(f, " | {grh}")?;
        }
        write!(f, " | {}", self.bth)?;
        if let Some(deth) = self.deth() {
            write!(f, " | {deth}")?;
        }
        if let Some(reth) = self.reth() {
            write!(f, " | {reth}")?;
        }
        if let Some(atomic) = self.atomic() {
            write!(f, " | {atomic}")?;
        }
        if let Some(aeth) = self.aeth() {
            write!(f, " | {aeth}")?;
        }
        if let Some(value) = self.atomic_ack() {
            write!(f, " | {value}")?;
        }
        if let Some(immediate) = self.immediate() {
            write!(f, " | ImmDt {immediate:#x}")?;
        }
        if let Some(key) = self.invalidate() {
            write!(f, " | IETH {key}")?;
        }
        write!(f, " | {} bytes", self.payload_bytes)
    }
}
