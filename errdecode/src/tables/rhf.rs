//! The receive-header flags (RHF): what the chip says of each received packet.
//!
//! They are the last 64 bits of a header-queue entry in host memory, taken here as one little-endian word:
//! the numbers (length, type, indices, sequence) below, the error flags in the top eleven bits (F-705).
//! Since the word comes from memory and not from a register, all ones is just a damaged entry.

use crate::{Groups, Severity, Text};

crate::table! {
    /// Error flags of one received packet, from high bits to low (F-705).
    pub static RHF: "RHF", Memory, values {
        LengthDwords @ 10:0,
        Type @ 13:11,
        SWB @ 14,
        SWA @ 15,
        EagerIndex @ 27:16,
        UseEager @ 31,
        Sequence @ 35:32,
        HeaderOffsetDwords @ 46:36,
    };
    ICRCErr @ 63 => Text {
        groups: Groups::RECEIVE.and(Groups::PACKET),
        severity: Severity::Warning,
        meaning: "the packet's end-to-end checksum is wrong",
        cause: "damage inside a switch or at the sender",
        action: "drop the packet; the sender repeats it",
        source: "F-705",
    };
    VCRCErr @ 62 => Text {
        groups: Groups::RECEIVE.and(Groups::PACKET),
        severity: Severity::Warning,
        meaning: "the packet's link checksum is wrong",
        cause: "symbol errors on the cable just before this port",
        action: "drop the packet; check the cable if the rate is high",
        source: "F-705",
    };
    ParityErr @ 61 => Text {
        groups: Groups::RECEIVE.and(Groups::CHIP),
        severity: Severity::Error,
        meaning: "the packet was damaged inside the chip",
        cause: "parity error in a receive memory",
        action: "drop the packet; look at HwErrStatus",
        source: "F-705, F-710",
    };
    LenErr @ 60 => Text {
        groups: Groups::RECEIVE,
        severity: Severity::Warning,
        meaning: "the packet's length and its header differ",
        cause: "symbol errors on the cable, or a sender that builds wrong headers",
        action: "drop the packet",
        source: "F-705",
    };
    MTUErr @ 59 => Text {
        groups: Groups::RECEIVE,
        severity: Severity::Warning,
        meaning: "the packet is longer than the MTU",
        cause: "the far end uses a larger MTU",
        action: "drop the packet; compare the MTU of both ends",
        source: "F-705",
    };
    KHdrErr @ 58 => Text {
        groups: Groups::RECEIVE,
        severity: Severity::Warning,
        meaning: "the KD header cannot be used",
        cause: "wrong checksum or version, or a context that does not exist",
        action: "drop the packet",
        source: "F-705",
    };
    TIDErr @ 57 => Text {
        groups: Groups::RECEIVE,
        severity: Severity::Warning,
        meaning: "no buffer: the entry that the packet needs is not valid",
        cause: "no eager buffer left, or an expected transfer that was ended",
        action: "refill; on a reliable connection answer with a sequence NAK",
        source: "F-705, F-711",
    };
    MKErr @ 56 => Text {
        groups: Groups::RECEIVE,
        severity: Severity::Warning,
        meaning: "the packet's key check failed",
        cause: "a packet of another job, or a wrong partition key",
        action: "drop the packet",
        source: "F-705, F-710",
    };
    IBErr @ 55 => Text {
        groups: Groups::RECEIVE,
        severity: Severity::Warning,
        meaning: "the packet breaks an InfiniBand rule",
        cause: "symbol errors on the cable, or a sender in trouble",
        action: "drop the packet",
        source: "F-705, F-710",
    };
    TFGenErr @ 54 => Text {
        groups: Groups::RECEIVE,
        severity: Severity::Warning,
        meaning: "an expected packet is of another generation of its flow",
        cause: "a late packet of an earlier transfer",
        action: "let the protocol resynchronise the flow",
        source: "F-705",
    };
    TFSeqErr @ 53 => Text {
        groups: Groups::RECEIVE,
        severity: Severity::Warning,
        meaning: "an expected packet is out of sequence in its flow",
        cause: "a packet before it was lost",
        action: "let the protocol repeat from the flow's expected number",
        source: "F-705",
    };
}
