//! `ErrStatus_0` and `ErrStatus_1`: errors of one port.
//!
//! From high bits to low (F-702): link, send header, send DMA, send, receive. The groups are those of the
//! data sheet: R receive packet, S send packet, P common packet error, L noise while the link is not
//! active, D send DMA, X halts the engine. An X bit comes together with `SDmaHalted`, which is no error
//! by itself and drives the engine's states (F-714).

use crate::{Groups, Severity, Text};

crate::table! {
    /// Errors of one port, in decoder order (F-702).
    pub static PORT: "ErrStatus_p", Register;
    IBStatusChanged @ 58 => Text {
        groups: Groups::LINK,
        severity: Severity::Info,
        meaning: "the state of the link or of its training changed",
        cause: "a cable, the far end, a subnet manager or our own command",
        action: "read IBCStatusA and run the link logic",
        source: "F-702",
    };
    SHeadersErr @ 57 => Text {
        groups: Groups::PACKET.and(Groups::SEND),
        severity: Severity::Warning,
        meaning: "a packet to be sent has a header that the send checks refuse",
        cause: "wrong source LID, P_Key or queue pair, or a raw packet",
        action: "read and decode SendHdrErrSymptom, write 0 to it; read SendBufErr, write the same bits back and disarm the buffers it names",
        source: "F-702, F-703, F-712",
    };
    VL15BufMisuseErr @ 54 => Text {
        groups: Groups::PACKET.and(Groups::SEND),
        severity: Severity::Warning,
        meaning: "a VL15 buffer was used for another lane, or the reverse",
        cause: "a wrong buffer index, or a wrong lane in the control word",
        action: "read SendBufErr, write the same bits back and disarm the buffers it names",
        source: "F-702, F-712",
    };
    SDmaHalted @ 49 => Text {
        groups: Groups::SDMA.and(Groups::STOPS_SDMA),
        severity: Severity::Info,
        meaning: "the send-DMA engine has halted",
        cause: "it was told to, or an error stopped it",
        action: "feed the engine's state machine; it is an error only together with another send-DMA bit",
        source: "F-702, F-714",
    };
    SDmaDescAddrMisalignErr @ 48 => Text {
        groups: Groups::SDMA.and(Groups::STOPS_SDMA),
        severity: Severity::Error,
        meaning: "a descriptor's address is not a multiple of four",
        cause: "a payload buffer that starts at an odd place",
        action: "align or copy the payload; restart the send-DMA engine; save its registers first",
        source: "F-702, F-714",
    };
    SDmaUnexpDataErr @ 47 => Text {
        groups: Groups::SDMA,
        severity: Severity::Error,
        meaning: "data came back that no descriptor asked for",
        cause: "a completion after the engine was reset, or a fault on the bus",
        action: "save the engine's registers; watch if it repeats",
        source: "F-702, F-714",
    };
    SDmaMissingDwErr @ 46 => Text {
        groups: Groups::SDMA.and(Groups::STOPS_SDMA),
        severity: Severity::Error,
        meaning: "the descriptors of a packet carry fewer dwords than its control word says",
        cause: "a last descriptor that is missing or too short",
        action: "compare the control word's length with the sum of the descriptors; restart the send-DMA engine; save its registers first",
        source: "F-702, F-714",
    };
    SDmaDwEnErr @ 45 => Text {
        groups: Groups::SDMA.and(Groups::STOPS_SDMA),
        severity: Severity::Error,
        meaning: "the dword enables of a read do not fit its descriptor",
        cause: "a wrong dword count or offset in a descriptor",
        action: "check the descriptor that the head points at; restart the send-DMA engine; save its registers first",
        source: "F-702, F-714",
    };
    SDmaRpyTagErr @ 44 => Text {
        groups: Groups::SDMA.and(Groups::STOPS_SDMA),
        severity: Severity::Error,
        meaning: "a completion carries a tag that the engine did not use",
        cause: "a fault on the bus, or completions from before a reset",
        action: "restart the send-DMA engine; save its registers first",
        source: "F-702, F-714",
    };
    SDma1stDescErr @ 43 => Text {
        groups: Groups::SDMA.and(Groups::STOPS_SDMA),
        severity: Severity::Error,
        meaning: "a packet does not begin with a first descriptor, or has two",
        cause: "First and Last bits set wrongly",
        action: "restart the send-DMA engine; save its registers first; check how packets are cut into descriptors",
        source: "F-702, F-714",
    };
    SDmaBaseErr @ 42 => Text {
        groups: Groups::SDMA.and(Groups::STOPS_SDMA),
        severity: Severity::Error,
        meaning: "the base address of the descriptor queue is not valid",
        cause: "the base register is zero, misaligned or beyond 48 bits",
        action: "check the queue's address; restart the send-DMA engine; save its registers first",
        source: "F-702, F-714",
    };
    SDmaTailOutOfBoundErr @ 41 => Text {
        groups: Groups::SDMA.and(Groups::STOPS_SDMA),
        severity: Severity::Error,
        meaning: "the tail written is beyond the queue's length",
        cause: "an index that was not wrapped",
        action: "restart the send-DMA engine; save its registers first",
        source: "F-702, F-714",
    };
    SDmaOutOfBoundErr @ 40 => Text {
        groups: Groups::SDMA.and(Groups::STOPS_SDMA),
        severity: Severity::Error,
        meaning: "the engine left its queue or its send buffer",
        cause: "a wrong length, offset or head",
        action: "restart the send-DMA engine; save its registers first",
        source: "F-702, F-714",
    };
    SDmaGenMismatchErr @ 39 => Text {
        groups: Groups::SDMA.and(Groups::STOPS_SDMA),
        severity: Severity::Error,
        meaning: "a descriptor carries the wrong generation",
        cause: "the tail was moved before the descriptors were in memory, or the count missed a wrap",
        action: "write descriptors, barrier, then tail; restart the send-DMA engine; save its registers first",
        source: "F-702, F-714",
    };
    SendBufMisuseErr @ 38 => Text {
        groups: Groups::SEND,
        severity: Severity::Error,
        meaning: "a send buffer was written while it was not free",
        cause: "two senders with one buffer, or availability bits not checked",
        action: "read SendBufErr, write the same bits back and disarm the buffers it names",
        source: "F-702, F-712",
    };
    SendUnsupportedVLErr @ 37 => Text {
        groups: Groups::SEND,
        severity: Severity::Error,
        meaning: "a packet was to go out on a lane the port does not run",
        cause: "lanes not agreed on yet, or a wrong service-level map",
        action: "read SendBufErr, write the same bits back and disarm the buffers it names",
        source: "F-702, F-712",
    };
    SendUnexpectedPktNumErr @ 36 => Text {
        groups: Groups::SEND,
        severity: Severity::Error,
        meaning: "the packet number of a send is not the one expected",
        cause: "internal: a send that was cut off",
        action: "read SendBufErr, write the same bits back and disarm the buffers it names",
        source: "F-702, F-712",
    };
    SendDroppedDataPktErr @ 34 => Text {
        groups: Groups::PACKET.and(Groups::SEND).and(Groups::LINK_TRAINING),
        severity: Severity::Warning,
        meaning: "a data packet was dropped before it left",
        cause: "the link is not active",
        action: "read SendBufErr, write the same bits back and disarm the buffers it names; resend when the link is active",
        source: "F-702, F-712",
    };
    SendDroppedSmpPktErr @ 33 => Text {
        groups: Groups::SEND.and(Groups::LINK_TRAINING),
        severity: Severity::Warning,
        meaning: "a management packet was dropped before it left",
        cause: "the link is down",
        action: "read SendBufErr, write the same bits back and disarm the buffers it names; resend when the link is up",
        source: "F-702, F-712",
    };
    SendPktLenErr @ 32 => Text {
        groups: Groups::PACKET.and(Groups::SEND).and(Groups::LINK_TRAINING),
        severity: Severity::Warning,
        meaning: "the length in the header and in the control word differ",
        cause: "a length that was built twice",
        action: "read SendBufErr, write the same bits back and disarm the buffers it names",
        source: "F-702, F-712",
    };
    SendUnderRunErr @ 31 => Text {
        groups: Groups::SEND,
        severity: Severity::Warning,
        meaning: "the packet's data did not arrive in time to be sent",
        cause: "a sender that was interrupted in the middle of a buffer",
        action: "nothing by itself; look at the rate",
        source: "F-702, F-715",
    };
    SendMaxPktLenErr @ 30 => Text {
        groups: Groups::SEND,
        severity: Severity::Error,
        meaning: "a packet to be sent is longer than the port allows",
        cause: "MTU changed while packets were queued",
        action: "read SendBufErr, write the same bits back and disarm the buffers it names",
        source: "F-702, F-712",
    };
    SendMinPktLenErr @ 29 => Text {
        groups: Groups::SEND.and(Groups::LINK_TRAINING),
        severity: Severity::Warning,
        meaning: "a packet to be sent is shorter than a packet can be",
        cause: "a length of zero or without headers",
        action: "read SendBufErr, write the same bits back and disarm the buffers it names",
        source: "F-702, F-712",
    };
    RcvIBLostLinkErr @ 17 => Text {
        groups: Groups::RECEIVE.and(Groups::LINK),
        severity: Severity::Warning,
        meaning: "the link was lost while a packet came in",
        cause: "a cable pulled, or a far end that reset",
        action: "nothing here: IBStatusChanged follows",
        source: "F-702, F-715",
    };
    RcvHdrErr @ 16 => Text {
        groups: Groups::RECEIVE,
        severity: Severity::Warning,
        meaning: "a received header cannot be understood",
        cause: "a wrong KD checksum or version, or an opcode the port does not take",
        action: "nothing by itself: the packet is dropped and counted; look at the rate",
        source: "F-702",
    };
    RcvHdrLenErr @ 15 => Text {
        groups: Groups::RECEIVE,
        severity: Severity::Warning,
        meaning: "a received header is longer than the header queue takes",
        cause: "RcvHdrSize too small for the traffic",
        action: "check RcvHdrSize; the packet is dropped and counted",
        source: "F-702",
    };
    RcvBadTidErr @ 14 => Text {
        groups: Groups::RECEIVE,
        severity: Severity::Warning,
        meaning: "an expected packet names a buffer entry that is not valid",
        cause: "a late packet for a transfer that was ended, or no eager buffer left",
        action: "nothing by itself: the packet is dropped and counted; look at the rate",
        source: "F-702",
    };
    RcvBadVersionErr @ 11 => Text {
        groups: Groups::RECEIVE,
        severity: Severity::Warning,
        meaning: "a packet's version field is not one the port knows",
        cause: "a far end with another protocol version",
        action: "nothing by itself: the packet is dropped and counted; look at the rate",
        source: "F-702",
    };
    RcvIBFlowErr @ 10 => Text {
        groups: Groups::RECEIVE,
        severity: Severity::Warning,
        meaning: "a flow-control packet is wrong",
        cause: "symbol errors on the cable, or a far end in trouble",
        action: "nothing by itself: the packet is dropped and counted; look at the rate; credits may be lost",
        source: "F-702",
    };
    RcvEBPErr @ 9 => Text {
        groups: Groups::RECEIVE.and(Groups::PACKET),
        severity: Severity::Warning,
        meaning: "a packet ended with the mark for a bad packet",
        cause: "a switch or far end that found it damaged on its way",
        action: "nothing by itself: the packet is dropped and counted; look at the rate; look for the damaged link upstream",
        source: "F-702",
    };
    RcvUnsupportedVLErr @ 8 => Text {
        groups: Groups::RECEIVE,
        severity: Severity::Warning,
        meaning: "a packet came on a lane the port does not run",
        cause: "the two ends disagree on the number of lanes",
        action: "nothing by itself: the packet is dropped and counted; look at the rate",
        source: "F-702",
    };
    RcvUnexpectedCharErr @ 7 => Text {
        groups: Groups::RECEIVE.and(Groups::LINK_TRAINING),
        severity: Severity::Warning,
        meaning: "a symbol came where none is allowed",
        cause: "symbol errors on the cable, normal while the link trains",
        action: "nothing by itself: the packet is dropped and counted; look at the rate; with an active link check cable and equaliser",
        source: "F-702",
    };
    RcvShortPktLenErr @ 6 => Text {
        groups: Groups::RECEIVE.and(Groups::PACKET).and(Groups::LINK_TRAINING),
        severity: Severity::Warning,
        meaning: "a packet is shorter than its header says",
        cause: "symbol errors on the cable",
        action: "nothing by itself: the packet is dropped and counted; look at the rate",
        source: "F-702",
    };
    RcvLongPktLenErr @ 5 => Text {
        groups: Groups::RECEIVE,
        severity: Severity::Warning,
        meaning: "a packet is longer than its header says",
        cause: "symbol errors on the cable",
        action: "nothing by itself: the packet is dropped and counted; look at the rate",
        source: "F-702",
    };
    RcvMaxPktLenErr @ 4 => Text {
        groups: Groups::RECEIVE,
        severity: Severity::Warning,
        meaning: "a packet is longer than the port's MTU",
        cause: "the far end uses a larger MTU",
        action: "compare the MTU of both ends; the packet is dropped and counted",
        source: "F-702",
    };
    RcvMinPktLenErr @ 3 => Text {
        groups: Groups::RECEIVE.and(Groups::LINK_TRAINING),
        severity: Severity::Warning,
        meaning: "a packet is shorter than a packet can be",
        cause: "symbol errors on the cable, normal while the link trains",
        action: "nothing by itself: the packet is dropped and counted; look at the rate",
        source: "F-702",
    };
    RcvICRCErr @ 2 => Text {
        groups: Groups::PACKET,
        severity: Severity::Warning,
        meaning: "the packet's end-to-end checksum is wrong",
        cause: "damage inside a switch or at the sender, or a header changed on the way",
        action: "nothing by itself: the packet is dropped and counted; look at the rate",
        source: "F-702",
    };
    RcvVCRCErr @ 1 => Text {
        groups: Groups::PACKET,
        severity: Severity::Warning,
        meaning: "the packet's link checksum is wrong",
        cause: "symbol errors on the cable just before this port",
        action: "nothing by itself: the packet is dropped and counted; look at the rate; check the cable",
        source: "F-702",
    };
    RcvFormatErr @ 0 => Text {
        groups: Groups::RECEIVE,
        severity: Severity::Warning,
        meaning: "a packet's form is not one the port knows",
        cause: "symbol errors on the cable, or a far end in trouble",
        action: "nothing by itself: the packet is dropped and counted; look at the rate",
        source: "F-702",
    };
}
