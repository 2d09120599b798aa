//! The wrong chips: named ways in which a chip may deviate from what the data sheet says.
//!
//! A scenario that passes on the right chip and on a wrong one proves nothing. Each deviation here is honoured by the
//! chapter it concerns, and the hardware scenarios must fail on every one of them.

/// One deviation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum WrongChip {
    /// A write to `IntClear` does not raise again what is still pending.
    IntClearDoesNotReraise,
    /// The avail image's check bits never toggle.
    AvailCheckStuck,
    /// The avail image's busy bits never clear.
    AvailBusyStuck,
    /// A disarm command does nothing.
    DisarmIgnored,
    /// The header queue's sequence leaves out number 7.
    SequenceSkips,
    /// `RcvHdrHead`'s counter is taken as 1, whatever is written.
    HeadCountIgnored,
    /// `ErrClear` clears every error, not just the ones written.
    ErrClearTooWide,
    /// `IntRedirect` fields act on the status bit above the one they belong to.
    RedirectOffByOne,
    /// Every packet leaves by port 0.
    PbcPortIgnored,
    /// The header queue runs on past its end instead of starting again.
    TailDoesNotWrap,
    /// The eager index in the entry is one more than the buffer that was written.
    EagerIndexOffByOne,
    /// `RcvEgrIndexHead` is not looked at: buffers still in use are written again.
    EagerHeadIgnored,
    /// Packets with any P_Key are accepted.
    PkeyCheckOff,
    /// Interrupts fire whether `IntMask` lets them or not.
    IntMaskIgnored,
    /// Training never ends.
    LinkStaysDown,
    /// The EEPROM's checksum byte is wrong.
    EepromChecksumBad,
    /// Reading a counter clears it.
    CountersClearOnRead,
    /// A wrong ICRC is not marked in the entry.
    IcrcFlagLost,
    /// A send buffer launches one dword before it is complete.
    LaunchesEarly,
    /// `RcvEgrCnt` does not follow `ContextCfg`.
    EagerCountFixed,
    /// A full header queue is written on, over entries that nobody has read.
    HeaderFullOverwrites,
    /// `SendBufAvailAddr` does not read back what was written.
    AvailAddrReadsZero,
    /// The payload begins one dword late in its eager buffer.
    PayloadShifted,
    /// The QP map is not looked at.
    QpMapIgnored,
    /// `LinkCmd` goes from INIT to ACTIVE at once.
    ActiveWithoutArmed,
    /// `IBStatusChanged` is never set.
    LinkChangeSilent,
    /// The scratch register forgets its upper half.
    ScratchHalf,
}

impl WrongChip {
    /// Every deviation.
    pub const ALL: [Self; 27] = [
        Self::IntClearDoesNotReraise,
        Self::AvailCheckStuck,
        Self::AvailBusyStuck,
        Self::DisarmIgnored,
        Self::SequenceSkips,
        Self::HeadCountIgnored,
        Self::ErrClearTooWide,
        Self::RedirectOffByOne,
        Self::PbcPortIgnored,
        Self::TailDoesNotWrap,
        Self::EagerIndexOffByOne,
        Self::EagerHeadIgnored,
        Self::PkeyCheckOff,
        Self::IntMaskIgnored,
        Self::LinkStaysDown,
        Self::EepromChecksumBad,
        Self::CountersClearOnRead,
        Self::IcrcFlagLost,
        Self::LaunchesEarly,
        Self::EagerCountFixed,
        Self::HeaderFullOverwrites,
        Self::AvailAddrReadsZero,
        Self::PayloadShifted,
        Self::QpMapIgnored,
        Self::ActiveWithoutArmed,
        Self::LinkChangeSilent,
        Self::ScratchHalf,
    ];

    /// The name by which it is switched on.
    pub const fn name(self) -> &'static str {
        match self {
            Self::IntClearDoesNotReraise => "int-clear-does-not-reraise",
            Self::AvailCheckStuck => "avail-check-stuck",
            Self::AvailBusyStuck => "avail-busy-stuck",
            Self::DisarmIgnored => "disarm-ignored",
            Self::SequenceSkips => "sequence-skips",
            Self::HeadCountIgnored => "head-count-ignored",
            Self::ErrClearTooWide => "err-clear-too-wide",
            Self::RedirectOffByOne => "redirect-off-by-one",
            Self::PbcPortIgnored => "pbc-port-ignored",
            Self::TailDoesNotWrap => "tail-does-not-wrap",
            Self::EagerIndexOffByOne => "eager-index-off-by-one",
            Self::EagerHeadIgnored => "eager-head-ignored",
            Self::PkeyCheckOff => "pkey-check-off",
            Self::IntMaskIgnored => "int-mask-ignored",
            Self::LinkStaysDown => "link-stays-down",
            Self::EepromChecksumBad => "eeprom-checksum-bad",
            Self::CountersClearOnRead => "counters-clear-on-read",
            Self::IcrcFlagLost => "icrc-flag-lost",
            Self::LaunchesEarly => "launches-early",
            Self::EagerCountFixed => "eager-count-fixed",
            Self::HeaderFullOverwrites => "header-full-overwrites",
            Self::AvailAddrReadsZero => "avail-addr-reads-zero",
            Self::PayloadShifted => "payload-shifted",
            Self::QpMapIgnored => "qp-map-ignored",
            Self::ActiveWithoutArmed => "active-without-armed",
            Self::LinkChangeSilent => "link-change-silent",
            Self::ScratchHalf => "scratch-half",
        }
    }

    /// The deviation called `name`.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|wrong| wrong.name() == name)
    }
}

/// The deviations that one chip has: none, for the right one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WrongSet(u32);

impl WrongSet {
    /// The right chip.
    pub const NONE: Self = Self(0);

    /// These and `wrong`.
    #[must_use]
    pub const fn with(self, wrong: WrongChip) -> Self {
        Self(self.0 | 1 << wrong as u8)
    }

    /// Whether `wrong` is among them.
    #[inline]
    pub const fn has(self, wrong: WrongChip) -> bool {
        self.0 >> wrong as u8 & 1 != 0
    }
}

impl From<WrongChip> for WrongSet {
    fn from(wrong: WrongChip) -> Self {
        Self::NONE.with(wrong)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_back_to_their_deviation() {
        for wrong in WrongChip::ALL {
            assert_eq!(WrongChip::from_name(wrong.name()), Some(wrong));
            assert!(WrongSet::from(wrong).has(wrong) && !WrongSet::NONE.has(wrong));
        }
    }
}
