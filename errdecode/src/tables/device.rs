//! `ErrStatus`: errors of the whole device.
//!
//! These bits name no port and no context. The two overflow bits stand first, since under load they are
//! by far the most frequent and a walk in table order meets them at once; then the bits from high to low,
//! the ones that end the device's life on top (F-700). Two of them, `HardwareErr` and the overflows, are
//! where to start looking and not the answer: the first sends the reader to `HwErrStatus`, the others to
//! the overflow counters of the contexts (F-711).

use crate::{Groups, Severity, Text};

crate::table! {
    /// Errors of the whole device, in decoder order (F-700).
    pub static DEVICE: "ErrStatus", Register;
    RcvEgrFullErr @ 12 => Text {
        groups: Groups::RECEIVE,
        severity: Severity::Warning,
        meaning: "a packet needed an eager buffer and its context had none left",
        cause: "the owner of a context does not drain it fast enough, or stood still for a while",
        action: "drain and refill; the context is the one whose overflow counter moved; the sender repeats reliable packets",
        source: "F-700, F-711",
    };
    RcvHdrFullErr @ 13 => Text {
        groups: Groups::RECEIVE,
        severity: Severity::Warning,
        meaning: "a packet found the header queue of its context full",
        cause: "the owner of a context does not return header-queue entries fast enough, or stopped",
        action: "drain and return the head; the context is the one whose overflow counter moved",
        source: "F-700, F-711",
    };
    ResetNegated @ 63 => Text {
        groups: Groups::CHIP,
        severity: Severity::Fatal,
        meaning: "the chip came out of reset by itself",
        cause: "a reset from the bus or a dip of power behind the driver's back",
        action: "take the device as uninitialised: stop all traffic and bring it up from cold",
        source: "F-700, F-708",
    };
    HardwareErr @ 62 => Text {
        groups: Groups::CHIP.and(Groups::SUMMARY),
        severity: Severity::Fatal,
        meaning: "at least one unmasked bit of HwErrStatus is set",
        cause: "see HwErrStatus",
        action: "read and decode HwErrStatus; look at Control.FreezeMode",
        source: "F-700, F-708",
    };
    InvalidAddrErr @ 61 => Text {
        groups: Groups::BUS,
        severity: Severity::Error,
        meaning: "an access hit an address that decodes to nothing",
        cause: "a wrong offset in the driver or in a program that maps the card",
        action: "count it; if it repeats, compare the last offsets written with the register map",
        source: "F-700",
    };
    SDmaVL15Err @ 56 => Text {
        groups: Groups::SEND.and(Groups::SDMA),
        severity: Severity::Error,
        meaning: "send DMA was asked to send a packet on VL15",
        cause: "a management packet was queued on the send-DMA ring",
        action: "send VL15 packets from its own send buffers; read SendBufErr, write the same bits back and disarm the buffers it names",
        source: "F-700, F-712",
    };
    SBufVL15MisUseErr @ 55 => Text {
        groups: Groups::SEND,
        severity: Severity::Error,
        meaning: "a VL15 buffer was used for another lane, or the reverse",
        cause: "a wrong buffer index, or a wrong lane in the control word",
        action: "check the lane against the buffer's kind; read SendBufErr, write the same bits back and disarm the buffers it names",
        source: "F-700, F-712",
    };
    InvalidEEPCmd @ 53 => Text {
        groups: Groups::BOARD,
        severity: Severity::Warning,
        meaning: "the EEPROM logic was given a command it does not know",
        cause: "a wrong value written to its command register",
        action: "check who touches that register; traffic is not affected",
        source: "F-700",
    };
    RcvContextShareErr @ 52 => Text {
        groups: Groups::RECEIVE,
        severity: Severity::Error,
        meaning: "a receive context is enabled in a way that two users would share it",
        cause: "the same context enabled on both ports",
        action: "check the context enables of both ports against the plan",
        source: "F-700, F-710",
    };
    SendVLMismatchErr @ 36 => Text {
        groups: Groups::SEND,
        severity: Severity::Error,
        meaning: "the lane in a packet's header and in its control word differ",
        cause: "headers built for one service level and sent with another's lane",
        action: "build both from one value; read SendBufErr, write the same bits back and disarm the buffers it names",
        source: "F-700, F-712",
    };
    SendArmLaunchErr @ 35 => Text {
        groups: Groups::SEND,
        severity: Severity::Warning,
        meaning: "a send buffer was written in a way that its launch rule forbids",
        cause: "a store out of order, repeated or left out, or an aborted copy",
        action: "check the order of stores and the write-combining mapping; read SendBufErr, write the same bits back and disarm the buffers it names",
        source: "F-700, F-712",
    };
    SendSpecialTriggerErr @ 27 => Text {
        groups: Groups::SEND,
        severity: Severity::Error,
        meaning: "the special trigger of a send buffer was misused",
        cause: "a store to a buffer's trigger address outside of a send",
        action: "use one way of launching only; read SendBufErr, write the same bits back and disarm the buffers it names",
        source: "F-700, F-712",
    };
    SDmaWrongPortErr @ 26 => Text {
        groups: Groups::SEND.and(Groups::SDMA),
        severity: Severity::Error,
        meaning: "a send-DMA packet names the other port",
        cause: "the port bit in the control word does not match the engine",
        action: "build the control word from the engine's port; read SendBufErr, write the same bits back and disarm the buffers it names",
        source: "F-700, F-712",
    };
    SDmaBufMaskDuplicateErr @ 25 => Text {
        groups: Groups::SDMA,
        severity: Severity::Error,
        meaning: "a send buffer is given to both send-DMA engines, or to one twice",
        cause: "overlapping buffer masks of the two ports",
        action: "make the masks disjoint; the engine halts and must be restarted",
        source: "F-700",
    };
}
