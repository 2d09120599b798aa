//! `SendHdrErrSymptom_0` and `_1`: why a send header was refused.
//!
//! The chip checks headers of packets that user buffers send: source LID, partition key, queue pair, and
//! whether a buffer may send plain InfiniBand packets at all. A refusal sets `SHeadersErr` in the port's
//! error word and one of these bits, and the buffer is left for the driver to disarm (F-703).

use crate::{Groups, Severity, Text};

crate::table! {
    /// Why a send header was refused, in decoder order (F-703).
    pub static SEND_HEADER_SYMPTOM: "SendHdrErrSymptom_p", Register;
    NonKeyPacket @ 6 => Text {
        groups: Groups::SEND,
        severity: Severity::Warning,
        meaning: "a buffer that may send KD packets only held a plain InfiniBand packet",
        cause: "an application that builds its own packets, or SendIBPacketMask not set for this buffer",
        action: "the packet was not sent: read SendBufErr, write the same bits back and disarm the buffers it names",
        source: "F-703",
    };
    GRHFail @ 5 => Text {
        groups: Groups::SEND,
        severity: Severity::Warning,
        meaning: "a packet with a global route header came from a buffer that may not send one",
        cause: "SendGRHCheckMask is set for this buffer",
        action: "the packet was not sent: read SendBufErr, write the same bits back and disarm the buffers it names",
        source: "F-703",
    };
    PkeyFail @ 4 => Text {
        groups: Groups::SEND,
        severity: Severity::Warning,
        meaning: "the packet's partition key is not in the port's table",
        cause: "the table changed, or an application uses a key it was not given",
        action: "the packet was not sent: read SendBufErr, write the same bits back and disarm the buffers it names",
        source: "F-703",
    };
    QPFail @ 3 => Text {
        groups: Groups::SEND,
        severity: Severity::Warning,
        meaning: "the packet's queue pair is not the one its context may use",
        cause: "an application that builds its own packets",
        action: "the packet was not sent: read SendBufErr, write the same bits back and disarm the buffers it names",
        source: "F-703",
    };
    SLIDFail @ 2 => Text {
        groups: Groups::SEND,
        severity: Severity::Warning,
        meaning: "the packet's source LID is not this port's",
        cause: "the LID was assigned anew, or an application forges it",
        action: "the packet was not sent: read SendBufErr, write the same bits back and disarm the buffers it names",
        source: "F-703",
    };
    RawIPV6 @ 1 => Text {
        groups: Groups::SEND,
        severity: Severity::Warning,
        meaning: "a raw IPv6 packet was to be sent",
        cause: "a link next-header value that this port does not send",
        action: "the packet was not sent: read SendBufErr, write the same bits back and disarm the buffers it names",
        source: "F-703",
    };
    PacketTooSmall @ 0 => Text {
        groups: Groups::SEND,
        severity: Severity::Warning,
        meaning: "the packet is too short to hold its own headers",
        cause: "a wrong length in the control word",
        action: "the packet was not sent: read SendBufErr, write the same bits back and disarm the buffers it names",
        source: "F-703",
    };
}
