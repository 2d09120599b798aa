//! The causes of an interrupt: what each of the 64 bits of `IntStatus` announces.
//!
//! The chip gathers everything that may want attention in one status word. Most bits are latched events (a packet
//! came, a descriptor was sent); `Err`, `Err_0`, `Err_1` and `AssertGPIO` are summaries of another word and come
//! back until that word is cleared or masked (F-601). Thirteen of the 64 bits have no known meaning: they are
//! sources too, so that no bit of a word that the chip wrote is ever without a name.

use core::fmt;
use qhca_regs::status::IntBits;
use qhca_regs::{Ctxt, Port};

/// What one bit of `IntStatus` announces. Every bit is exactly one source.
///
/// Source: F-600.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// Packets wait in the header queue of this context: the count or the timer of its moderation was reached.
    RcvAvail(Ctxt),
    /// A packet that its sender marked urgent came for this context.
    RcvUrg(Ctxt),
    /// A send buffer became free while that was asked for.
    SendBufAvail,
    /// A packet whose PBC asked for an interrupt was sent by this port.
    SendDone(Port),
    /// A GPIO pin that is not masked is asserted: a cable was plugged in or pulled.
    AssertGpio,
    /// An error of the whole chip: `ErrStatus & ErrMask` is not zero.
    Err,
    /// An error of this port: `ErrStatus_p & ErrMask_p` is not zero.
    ErrPort(Port),
    /// The send-DMA engine of this port has finished its clean-up.
    SdmaCleanupDone(Port),
    /// The idle counter of this port's send-DMA engine ran out.
    SdmaIdle(Port),
    /// As many descriptors as were asked for were retired by this port's send-DMA engine.
    SdmaProgress(Port),
    /// A descriptor that asked for an interrupt was retired by this port's send-DMA engine.
    Sdma(Port),
    /// A bit that no source gives a meaning.
    Reserved(ReservedBit),
}

/// The position of a bit of `IntStatus` that has no known meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ReservedBit(u8);

impl ReservedBit {
    /// 0 to 63.
    pub const fn bit(self) -> u32 {
        self.0 as u32
    }
}

impl Source {
    /// The source that bit `bit` announces, or `None` if the word has no such bit (64 and above).
    pub const fn from_bit(bit: u32) -> Option<Self> {
        // PANIC: the arms below only pass numbers below 18 and below 2.
        const fn ctxt(index: u32) -> Ctxt {
            Ctxt::new(index as usize).expect("a context number below 18")
        }
        const fn port(index: u32) -> Port {
            Port::new(index as usize).expect("a port number below 2")
        }
        Some(match bit {
            0..=17 => Self::RcvAvail(ctxt(bit)),
            23 => Self::SendBufAvail,
            24 | 25 => Self::SendDone(port(bit - 24)),
            28 => Self::AssertGpio,
            29 => Self::Err,
            30 | 31 => Self::ErrPort(port(bit - 30)),
            32..=49 => Self::RcvUrg(ctxt(bit - 32)),
            56 | 57 => Self::SdmaCleanupDone(port(bit - 56)),
            58 | 59 => Self::SdmaIdle(port(bit - 58)),
            60 | 61 => Self::SdmaProgress(port(bit - 60)),
            62 | 63 => Self::Sdma(port(bit - 62)),
            _ if bit < 64 => Self::Reserved(ReservedBit(bit as u8)),
            _ => return None,
        })
    }

    /// The bit that announces this source, 0 to 63.
    pub const fn bit(self) -> u32 {
        match self {
            Self::RcvAvail(ctxt) => ctxt.index() as u32,
            Self::SendBufAvail => 23,
            Self::SendDone(port) => 24 + port.index() as u32,
            Self::AssertGpio => 28,
            Self::Err => 29,
            Self::ErrPort(port) => 30 + port.index() as u32,
            Self::RcvUrg(ctxt) => 32 + ctxt.index() as u32,
            Self::SdmaCleanupDone(port) => 56 + port.index() as u32,
            Self::SdmaIdle(port) => 58 + port.index() as u32,
            Self::SdmaProgress(port) => 60 + port.index() as u32,
            Self::Sdma(port) => 62 + port.index() as u32,
            Self::Reserved(bit) => bit.bit(),
        }
    }

    /// The word with this source's bit alone.
    pub const fn mask(self) -> IntBits {
        IntBits::from_bits_retain(1 << self.bit())
    }

    /// The port whose absence makes this source meaningless, for those that belong to a port.
    pub const fn port(self) -> Option<Port> {
        match self {
            Self::SendDone(port)
            | Self::ErrPort(port)
            | Self::SdmaCleanupDone(port)
            | Self::SdmaIdle(port)
            | Self::SdmaProgress(port)
            | Self::Sdma(port) => Some(port),
            _ => None,
        }
    }

    /// All 64 sources, lowest bit first.
    pub fn all() -> impl Iterator<Item = Self> {
        Self::in_word(IntBits::from_bits_retain(u64::MAX))
    }

    /// The sources whose bits are set in `word`, lowest bit first.
    pub fn in_word(word: IntBits) -> impl Iterator<Item = Self> {
        let mut bits = word.bits();
        core::iter::from_fn(move || {
            let source = Self::from_bit(bits.trailing_zeros())?;
            bits &= bits - 1;
            Some(source)
        })
    }
}

impl fmt::Display for Source {
    /// The chip's own name of the bit; a reserved bit by its number.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RcvAvail(ctxt) => write!(f, "RcvAvail{}", ctxt.index()),
            Self::RcvUrg(ctxt) => write!(f, "RcvUrg{}", ctxt.index()),
            Self::SendBufAvail => f.write_str("SendBufAvail"),
            Self::SendDone(port) => write!(f, "SendDone_{}", port.index()),
            Self::AssertGpio => f.write_str("AssertGPIO"),
            Self::Err => f.write_str("Err"),
            Self::ErrPort(port) => write!(f, "Err_{}", port.index()),
            Self::SdmaCleanupDone(port) => write!(f, "SDmaCleanupDone_{}", port.index()),
            Self::SdmaIdle(port) => write!(f, "SDmaIdleInt_{}", port.index()),
            Self::SdmaProgress(port) => write!(f, "SDmaProgressInt_{}", port.index()),
            Self::Sdma(port) => write!(f, "SDmaInt_{}", port.index()),
            Self::Reserved(bit) => write!(f, "reserved bit {}", bit.bit()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use qhca_regs::value::Contents;
    use std::collections::BTreeSet;

    #[test]
    fn every_bit_is_one_source_and_leads_back_to_its_bit() {
        for bit in 0..64 {
            let source = Source::from_bit(bit).expect("a bit of a 64-bit word");
            assert_eq!(source.bit(), bit);
            assert_eq!(source.mask().bits(), 1 << bit);
        }
        assert_eq!(Source::from_bit(64), None);
        assert_eq!(Source::all().count(), 64);
    }

    /// B169: names are unique, and a source has a name exactly when the register map names its bit.
    #[test]
    fn names_are_unique_and_agree_with_the_register_map() {
        let names: BTreeSet<String> = Source::all().map(|source| source.to_string()).collect();
        assert_eq!(names.len(), 64);
        for field in IntBits::FIELDS {
            let source = Source::from_bit(u32::from(field.lsb)).expect("a bit of the word");
            assert_eq!(source.to_string(), field.name);
        }
        let named: u64 = Source::all()
            .filter(|source| !matches!(source, Source::Reserved(_)))
            .map(|source| source.mask().bits())
            .sum();
        assert_eq!(named, IntBits::NAMED.bits());
    }

    #[test]
    fn a_word_gives_exactly_the_sources_of_its_bits() {
        let word =
            Source::Err.mask() | IntBits::rcv_urg(Ctxt::new(17).unwrap()) | Source::Sdma(Port::P1).mask();
        let text: Vec<String> = Source::in_word(word).map(|source| source.to_string()).collect();
        assert_eq!(text, ["Err", "RcvUrg17", "SDmaInt_1"]);
    }
}
