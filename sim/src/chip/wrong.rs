//! The wrong chips: named ways in which a chip may deviate from what the data sheet says.
//!
//! A scenario that passes on the right chip and on a wrong one proves nothing. Each deviation here is honoured by the
//! chapter it concerns, and the hardware scenarios must fail on every one of them.

/// Makes the enum, its list and its names from one table.
macro_rules! wrong_chips {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// One deviation.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum WrongChip { $($(#[$doc])* $variant,)* }

        impl WrongChip {
            /// Every deviation.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$variant),*];

            /// The name by which it is switched on.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }
        }
    };
}

wrong_chips! {
    /// A write to `IntClear` does not raise again what is still pending.
    IntClearDoesNotReraise = "int-clear-does-not-reraise",
    /// The avail image's check bits never toggle.
    AvailCheckStuck = "avail-check-stuck",
    /// The avail image's busy bits never clear.
    AvailBusyStuck = "avail-busy-stuck",
    /// A disarm command does nothing.
    DisarmIgnored = "disarm-ignored",
    /// The header queue's sequence leaves out number 7.
    SequenceSkips = "sequence-skips",
    /// `RcvHdrHead`'s counter is taken as 1, whatever is written.
    HeadCountIgnored = "head-count-ignored",
    /// `ErrClear` clears every error, not just the ones written.
    ErrClearTooWide = "err-clear-too-wide",
    /// `IntRedirect` fields act on the status bit above the one they belong to.
    RedirectOffByOne = "redirect-off-by-one",
    /// Every packet leaves by port 0.
    PbcPortIgnored = "pbc-port-ignored",
    /// The header queue runs on past its end instead of starting again.
    TailDoesNotWrap = "tail-does-not-wrap",
    /// The eager index in the entry is one more than the buffer that was written.
    EagerIndexOffByOne = "eager-index-off-by-one",
    /// `RcvEgrIndexHead` is not looked at: buffers still in use are written again.
    EagerHeadIgnored = "eager-head-ignored",
    /// Packets with any P_Key are accepted.
    PkeyCheckOff = "pkey-check-off",
    /// Interrupts fire whether `IntMask` lets them or not.
    IntMaskIgnored = "int-mask-ignored",
    /// Training never ends.
    LinkStaysDown = "link-stays-down",
    /// The EEPROM's checksum byte is wrong.
    EepromChecksumBad = "eeprom-checksum-bad",
    /// Reading a counter clears it.
    CountersClearOnRead = "counters-clear-on-read",
    /// A wrong ICRC is not marked in the entry.
    IcrcFlagLost = "icrc-flag-lost",
    /// A send buffer launches one dword before it is complete.
    LaunchesEarly = "launches-early",
    /// `RcvEgrCnt` does not follow `ContextCfg`.
    EagerCountFixed = "eager-count-fixed",
    /// A full header queue is written on, over entries that nobody has read.
    HeaderFullOverwrites = "header-full-overwrites",
    /// `SendBufAvailAddr` does not read back what was written.
    AvailAddrReadsZero = "avail-addr-reads-zero",
    /// The payload begins one dword late in its eager buffer.
    PayloadShifted = "payload-shifted",
    /// The QP map is not looked at.
    QpMapIgnored = "qp-map-ignored",
    /// `LinkCmd` goes from INIT to ACTIVE at once.
    ActiveWithoutArmed = "active-without-armed",
    /// `IBStatusChanged` is never set.
    LinkChangeSilent = "link-change-silent",
    /// The scratch register forgets its upper half.
    ScratchHalf = "scratch-half",
    /// The head of the send DMA ring is never written to host memory.
    SdmaHeadNotWritten = "sdma-head-not-written",
    /// A send DMA clean-up never says that it is done.
    SdmaCleanupSilent = "sdma-cleanup-silent",
    /// A send DMA engine that halts, on command or by an error, does not say so.
    SdmaHaltSilent = "sdma-halt-silent",
    /// Descriptors of any generation are sent: a stale one goes out again.
    SdmaGenerationIgnored = "sdma-generation-ignored",
    /// A descriptor's interrupt flag is not looked at.
    SdmaIntrIgnored = "sdma-intr-ignored",
    /// Nothing freezes the chip.
    FreezeIgnored = "freeze-ignored",
    /// A reset leaves `RcvHdrCnt` as it was.
    ResetKeepsRegister = "reset-keeps-register",
    /// A heartbeat that is not answered is not missed.
    HeartbeatSilent = "heartbeat-silent",
    /// The tail of a header queue is never written to host memory.
    TailDmaMissing = "tail-dma-missing",
    /// Packets launch by their count, whatever `SpecialTriggerEn` says.
    SpecialTriggerIgnored = "special-trigger-ignored",
    /// Sample counters stay 0.
    SamplesStandStill = "samples-stand-still",
    /// A paged cable module shows its thresholds, whatever page is selected.
    QsfpPageIgnored = "qsfp-page-ignored",
    /// A cable module that is plugged in leaves no trace on the pins until something else changes them.
    ModuleInsertUnnoticed = "module-insert-unnoticed",
    /// A link is four lanes wide, whatever widths are enabled.
    WidthNotHonoured = "width-not-honoured",
    /// A link runs at the board's highest speed, whatever speeds are enabled.
    SpeedNotHonoured = "speed-not-honoured",
    /// The tables of VL arbitration are not looked at.
    VlArbiterIgnored = "vl-arbiter-ignored",
    /// Each packet received gives one credit fewer back than it took.
    CreditsLeak = "credits-leak",
    /// The payload of an expected packet starts at the start of its page.
    TidOffsetIgnored = "tid-offset-ignored",
    /// An expected packet of any generation is in order.
    FlowGenerationUnchecked = "flow-generation-unchecked",
    /// An expected packet with any sequence number is in order.
    FlowSequenceUnchecked = "flow-sequence-unchecked",
    /// Packets in order have an entry, whether they ask for it or not.
    HeaderSuppressionIgnored = "header-suppression-ignored",
    /// A KD header with any checksum is accepted.
    KdChecksumUnchecked = "kd-checksum-unchecked",
}

impl WrongChip {
    /// The deviation called `name`.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|wrong| wrong.name() == name)
    }
}

/// The deviations that one chip has: none, for the right one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WrongSet(u64);

impl WrongSet {
    const FITS: () = assert!(WrongChip::ALL.len() <= 64, "one bit a deviation");

    /// The right chip.
    pub const NONE: Self = Self(0);

    /// These and `wrong`.
    #[must_use]
    pub const fn with(self, wrong: WrongChip) -> Self {
        let () = Self::FITS;
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
