//! `SendDmaStatus_0` and `_1`: the state of one send-DMA engine.
//!
//! Read when an engine halted or does not move. Its error bits are in the port's error word; this word
//! says where the engine stands: the scoreboard (Scb) that holds descriptors in work, and the FIFO (Spl)
//! towards the send buffers. Three bits and an empty scoreboard tell busy from halted (F-706).

use crate::{Groups, Severity, Text};

crate::table! {
    /// State of one send-DMA engine, from high bits to low (F-706).
    pub static SDMA: "SendDmaStatus_p", Register, values {
        ScbDescIndex_13_0 @ 60:47,
        RpyLowAddr_6_0 @ 46:40,
        RpyTag_7_0 @ 39:32,
        SplFifoBufNum @ 23:16,
        SplFifoDescIndex @ 15:0,
    };
    ScoreBoardDrainInProg @ 63 => Text {
        groups: Groups::SDMA,
        severity: Severity::Info,
        meaning: "the scoreboard is being emptied",
        cause: "the engine is told to halt",
        action: "wait: the engine is busy",
        source: "F-706, F-710",
    };
    HaltInProg @ 62 => Text {
        groups: Groups::SDMA,
        severity: Severity::Info,
        meaning: "a halt was asked for and is not done yet",
        cause: "the engine finishes its packet first",
        action: "wait for SDmaHalted, with a deadline",
        source: "F-706, F-710",
    };
    InternalSDmaHalt @ 61 => Text {
        groups: Groups::SDMA,
        severity: Severity::Info,
        meaning: "the engine has halted",
        cause: "it was told to, or an error stopped it",
        action: "if it should run, decode the port's error word and restart it",
        source: "F-706, F-710",
    };
    ScbFull @ 31 => Text {
        groups: Groups::SDMA,
        severity: Severity::Info,
        meaning: "the scoreboard takes no more descriptors",
        cause: "the engine waits for send buffers or for host memory",
        action: "nothing: a state",
        source: "F-706, F-710",
    };
    ScbEmpty @ 30 => Text {
        groups: Groups::SDMA,
        severity: Severity::Info,
        meaning: "the scoreboard holds no descriptor",
        cause: "the engine is idle",
        action: "nothing: a state",
        source: "F-706, F-710",
    };
    ScbEntryValid @ 29 => Text {
        groups: Groups::SDMA,
        severity: Severity::Info,
        meaning: "the entry shown by ScbDescIndex is valid",
        cause: "a descriptor is in work",
        action: "nothing: a state",
        source: "F-706, F-710",
    };
    ScbFetchDescFlag @ 28 => Text {
        groups: Groups::SDMA,
        severity: Severity::Info,
        meaning: "the engine fetches descriptors",
        cause: "the tail was moved",
        action: "nothing: a state",
        source: "F-706, F-710",
    };
    SplFifoReadyToGo @ 27 => Text {
        groups: Groups::SDMA,
        severity: Severity::Info,
        meaning: "a packet is complete in the send-buffer FIFO",
        cause: "it waits for credits or for the wire",
        action: "nothing: a state",
        source: "F-706, F-710",
    };
    SplFifoDisarmed @ 26 => Text {
        groups: Groups::SDMA,
        severity: Severity::Info,
        meaning: "the send buffer of the packet in work was disarmed",
        cause: "the driver cancelled sends",
        action: "restart the engine after the cancel",
        source: "F-706, F-710",
    };
    SplFifoEmpty @ 25 => Text {
        groups: Groups::SDMA,
        severity: Severity::Info,
        meaning: "the send-buffer FIFO is empty",
        cause: "the engine is idle",
        action: "nothing: a state",
        source: "F-706, F-710",
    };
    SplFifoFull @ 24 => Text {
        groups: Groups::SDMA,
        severity: Severity::Info,
        meaning: "the send-buffer FIFO takes no more",
        cause: "no credits, or a link that is not active",
        action: "if it stays, look at the link",
        source: "F-706, F-710",
    };
}
