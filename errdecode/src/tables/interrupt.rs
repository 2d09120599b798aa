//! `IntStatus`: what asks for attention.
//!
//! The same layout serves the mask, the clear and the blocked register. Few of these bits are errors: most
//! say that packets wait, that a send buffer is free or that a send-DMA engine moved. The order is the one
//! in which the main handler serves them: board and errors first, then receive, send DMA and send (F-704).
//! Bits 18–22, 26, 27 and 50–55 are reserved and decode as bits without a name.

use crate::{Groups, Severity, Text};

/// A context's packets are ready.
const AVAIL: Text = Text {
    groups: Groups::RECEIVE,
    severity: Severity::Info,
    meaning: "packets are ready in this context's header queue",
    cause: "the count armed in RcvHdrHead was reached, or RcvAvailTimeOut ended",
    action: "clear the bit, then drain the context and arm again",
    source: "F-704",
};

/// A context's urgent packet is ready.
const URGENT: Text = Text {
    groups: Groups::RECEIVE,
    severity: Severity::Info,
    meaning: "an urgent packet arrived for this context",
    cause: "the sender set the interrupt flag in the KD header",
    action: "clear the bit, then drain the context; a sleeping reader wakes",
    source: "F-704",
};

/// A port's errors wait.
const PORT_ERROR: Text = Text {
    groups: Groups::SUMMARY,
    severity: Severity::Error,
    meaning: "an unmasked bit of this port's error status is set",
    cause: "see ErrStatus_0 or ErrStatus_1",
    action: "mask the port's errors and leave them to the worker, which reads and decodes them",
    source: "F-704",
};

/// A descriptor with its interrupt bit is done.
const SDMA_DONE: Text = Text {
    groups: Groups::SEND.and(Groups::SDMA),
    severity: Severity::Info,
    meaning: "a descriptor that asked for an interrupt is done",
    cause: "the Intr bit of a send-DMA descriptor",
    action: "clear the bit, then reap finished descriptors",
    source: "F-704",
};

/// A number of descriptors is done.
const SDMA_PROGRESS: Text = Text {
    groups: Groups::SEND.and(Groups::SDMA),
    severity: Severity::Info,
    meaning: "as many descriptors as DescCnt says are done",
    cause: "the queue was full and somebody waits for room",
    action: "clear the bit, then reap finished descriptors",
    source: "F-704",
};

/// The engine has had nothing to do.
const SDMA_IDLE: Text = Text {
    groups: Groups::SEND.and(Groups::SDMA),
    severity: Severity::Info,
    meaning: "the send-DMA engine's idle counter ended",
    cause: "no descriptor came for the time in ReloadCnt",
    action: "clear the bit, then reap finished descriptors",
    source: "F-704",
};

/// The engine's clean-up is finished.
const SDMA_CLEANUP: Text = Text {
    groups: Groups::SDMA,
    severity: Severity::Info,
    meaning: "the clean-up of the send-DMA engine is finished",
    cause: "the driver asked for it after a halt",
    action: "clear the bit and feed the engine's state machine",
    source: "F-704",
};

/// A packet with its interrupt bit has been sent.
const SEND_DONE: Text = Text {
    groups: Groups::SEND,
    severity: Severity::Info,
    meaning: "a packet that asked for an interrupt has been sent",
    cause: "the Intr bit of a send's control word",
    action: "clear the bit",
    source: "F-704",
};

crate::table! {
    /// Interrupt sources, in the order in which the main handler serves them (F-704).
    pub static INTERRUPT: "IntStatus", Register;
    AssertGPIO @ 28 => Text {
        groups: Groups::BOARD,
        severity: Severity::Info,
        meaning: "a pin that is watched is active",
        cause: "a cable module was plugged in or out",
        action: "read GPIOStatus and clear the bits seen; mask a pin nobody handles",
        source: "F-704",
    };
    Err @ 29 => Text {
        groups: Groups::SUMMARY,
        severity: Severity::Error,
        meaning: "an unmasked bit of the device's error status is set",
        cause: "see ErrStatus",
        action: "mask the storming class and leave the rest to the worker, which reads and decodes it",
        source: "F-704",
    };
    Err_0 @ 30 => PORT_ERROR;
    Err_1 @ 31 => PORT_ERROR;
    RcvAvail0 @ 0 => AVAIL;
    RcvAvail1 @ 1 => AVAIL;
    RcvAvail2 @ 2 => AVAIL;
    RcvAvail3 @ 3 => AVAIL;
    RcvAvail4 @ 4 => AVAIL;
    RcvAvail5 @ 5 => AVAIL;
    RcvAvail6 @ 6 => AVAIL;
    RcvAvail7 @ 7 => AVAIL;
    RcvAvail8 @ 8 => AVAIL;
    RcvAvail9 @ 9 => AVAIL;
    RcvAvail10 @ 10 => AVAIL;
    RcvAvail11 @ 11 => AVAIL;
    RcvAvail12 @ 12 => AVAIL;
    RcvAvail13 @ 13 => AVAIL;
    RcvAvail14 @ 14 => AVAIL;
    RcvAvail15 @ 15 => AVAIL;
    RcvAvail16 @ 16 => AVAIL;
    RcvAvail17 @ 17 => AVAIL;
    RcvUrg0 @ 32 => URGENT;
    RcvUrg1 @ 33 => URGENT;
    RcvUrg2 @ 34 => URGENT;
    RcvUrg3 @ 35 => URGENT;
    RcvUrg4 @ 36 => URGENT;
    RcvUrg5 @ 37 => URGENT;
    RcvUrg6 @ 38 => URGENT;
    RcvUrg7 @ 39 => URGENT;
    RcvUrg8 @ 40 => URGENT;
    RcvUrg9 @ 41 => URGENT;
    RcvUrg10 @ 42 => URGENT;
    RcvUrg11 @ 43 => URGENT;
    RcvUrg12 @ 44 => URGENT;
    RcvUrg13 @ 45 => URGENT;
    RcvUrg14 @ 46 => URGENT;
    RcvUrg15 @ 47 => URGENT;
    RcvUrg16 @ 48 => URGENT;
    RcvUrg17 @ 49 => URGENT;
    SDmaInt_0 @ 62 => SDMA_DONE;
    SDmaInt_1 @ 63 => SDMA_DONE;
    SDmaProgressInt_0 @ 60 => SDMA_PROGRESS;
    SDmaProgressInt_1 @ 61 => SDMA_PROGRESS;
    SDmaIdleInt_0 @ 58 => SDMA_IDLE;
    SDmaIdleInt_1 @ 59 => SDMA_IDLE;
    SDmaCleanupDone_0 @ 56 => SDMA_CLEANUP;
    SDmaCleanupDone_1 @ 57 => SDMA_CLEANUP;
    SendBufAvail @ 23 => Text {
        groups: Groups::SEND,
        severity: Severity::Info,
        meaning: "a send buffer became free",
        cause: "SendCtrl.SendIntBufAvail was set by somebody who waits",
        action: "clear the bit, then let the waiting senders try again",
        source: "F-704",
    };
    SendDone_0 @ 24 => SEND_DONE;
    SendDone_1 @ 25 => SEND_DONE;
}
