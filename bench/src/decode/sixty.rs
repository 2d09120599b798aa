//! Sixty one-bit names for comparing decoders, from one list.
//!
//! The chip's own tables have between 7 and 50 names. Peers are compared on a table of sixty, 9 to 23
//! characters, 987 bytes joined, with the two overflow bits first although their bits are in the middle,
//! as in the device's table. The shipped decoder's own macro builds it; the peers get the same rows.

use qhca_errdecode::{Groups, Severity, Text};

/// Hands the sixty rows to another macro, in table order.
macro_rules! with_sixty {
    ($then:ident) => {
        $then! {
            RcvEgrFullErr @ 12;
            RcvHdrFullErr @ 13;
            ResetNegated @ 63;
            HardwareErr @ 62;
            SDmaVL15Err @ 61;
            SBufVL15MisUseErr @ 60;
            SendVLMismatchErr @ 59;
            SendArmLaunchErr @ 58;
            SendSpecialTriggerErr @ 57;
            SDmaWrongPortErr @ 56;
            IBSerdesPClkNotDetect_1 @ 55;
            IBSerdesPClkNotDetect_0 @ 54;
            PCIESerdesPClkNotDetect @ 53;
            PowerOnBISTFailed @ 52;
            TempsenseTholdReached @ 51;
            MemoryErr @ 50;
            PCIeBusParity @ 49;
            PcieCplTimeout @ 48;
            PciePoisonedTLP @ 47;
            SDmaMemReadErr_1 @ 46;
            SDmaMemReadErr_0 @ 45;
            IBCBusToSPCParityErr_1 @ 44;
            statusValidNoEop @ 43;
            LATriggered @ 42;
            IBStatusChanged @ 41;
            SHeadersErr @ 40;
            VL15BufMisuseErr @ 39;
            SDmaHaltErr @ 38;
            SDmaDescAddrMisalignErr @ 37;
            SDmaUnexpDataErr @ 36;
            SDmaMissingDwErr @ 35;
            SDmaDwEnErr @ 34;
            SDmaRpyTagErr @ 33;
            SDma1stDescErr @ 32;
            SDmaBaseErr @ 31;
            SDmaTailOutOfBoundErr @ 30;
            SDmaOutOfBoundErr @ 29;
            SDmaGenMismatchErr @ 28;
            SendBufMisuseErr @ 27;
            SendUnsupportedVLErr @ 26;
            SendUnexpectedPktNumErr @ 25;
            SendDroppedDataPktErr @ 24;
            SendPktLenErr @ 23;
            SendUnderRunErr @ 22;
            SendMaxPktLenErr @ 17;
            SendMinPktLenErr @ 16;
            RcvIBLostLinkErr @ 15;
            RcvHdrErr @ 14;
            RcvHdrLenErr @ 11;
            RcvBadTidErr @ 10;
            RcvBadVersionErr @ 9;
            RcvIBFlowErr @ 8;
            RcvEBPErr @ 7;
            RcvUnsupportedVLErr @ 6;
            RcvShortPktLenErr @ 5;
            RcvLongPktLenErr @ 4;
            RcvMaxPktLenErr @ 3;
            RcvVCRCErr @ 2;
            RcvFormatErr @ 1;
            PacketTooSmall @ 0;
        }
    };
}

/// Text of every row: the decoders compared here copy names only.
const PLAIN: Text = Text {
    groups: Groups::CHIP,
    severity: Severity::Error,
    meaning: "a row of the comparison",
    cause: "a set bit in the word given",
    action: "compare decoders",
    source: "F-700",
};

macro_rules! as_table {
    ($($name:ident @ $bit:literal;)+) => {
        qhca_errdecode::table! {
            /// The sixty names as the shipped decoder's table.
            pub static SIXTY: "Sixty", Register;
            $($name @ $bit => PLAIN;)+
        }
    };
}
with_sixty!(as_table);

macro_rules! as_flags {
    ($($name:ident @ $bit:literal;)+) => {
        bitflags::bitflags! {
            /// The sixty names as `bitflags`, declared in table order.
            #[derive(Clone, Copy, Debug)]
            pub struct SixtyFlags: u64 {
                $(
                    #[allow(missing_docs, non_upper_case_globals)]
                    const $name = 1 << $bit;
                )+
            }
        }
    };
}
with_sixty!(as_flags);

#[cfg(test)]
mod tests {
    use super::SIXTY;

    #[test]
    fn table_has_the_shape_that_the_bars_were_set_for() {
        let lens: Vec<usize> = SIXTY.rows().iter().map(|row| row.name.len()).collect();
        assert_eq!(lens.len(), 60);
        assert_eq!((lens.iter().min(), lens.iter().max()), (Some(&9), Some(&23)));
        assert_eq!(lens.iter().sum::<usize>() + 59, 987);
        let bits: Vec<u32> = SIXTY.rows().iter().map(|row| row.mask.trailing_zeros()).collect();
        assert!(!bits.is_sorted() && !bits.is_sorted_by(|a, b| a > b), "table order is not bit order");
    }
}
