//! The account of drops: every packet that the chip throws away, counted where it is thrown away.
//!
//! The registers count too, in 32 bits, some of them two things at once, and software may write them. This account
//! is kept beside them in 64 bits and from other lines of code, so that a driver's sums can be checked against it.

use qhca_regs::{Ctxt, Port};

/// Why a packet went no further.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Drop {
    /// Received while the port's receiver or link was not up for it.
    PortDown,
    /// The variant CRC was wrong.
    Vcrc,
    /// It ended with the bad-packet delimiter.
    EndsBad,
    /// No BTH, or shorter than its headers.
    Format,
    /// Link version not 0.
    Version,
    /// The LRH's length is not the length received.
    Length,
    /// Longer than the port accepts.
    TooLong,
    /// A lane that the port does not run.
    Vl,
    /// The internal receive buffer was full: the sender ignored the credits.
    BufferOverflow,
    /// Refused by the DLID filter.
    DlidFilter,
    /// P_Key not in the port's table.
    Pkey,
    /// The QP maps to a context that is not enabled.
    InvalidContext,
    /// Expected (TID) packet whose entry is invalid.
    InvalidTid,
    /// Expected (TID) packet that its flow turned away.
    FlowMismatch,
    /// The context's header queue was full.
    HeaderFull,
    /// The context had no eager buffer: the payload is lost, whether an entry reports it or not.
    EagerFull,
    /// The eager array's entry was invalid: the payload is lost.
    EagerInvalid,
    /// The host refused the DMA of entry or payload.
    DmaRefused,
    /// Sending: the link was not up for it.
    SendLinkDown,
    /// Sending: refused by a check or length rule.
    SendRefused,
    /// Sending: discarded by a disarm, drain or abort.
    SendCancelled,
    /// Sending: a send DMA descriptor was wrong, and the clean-up dropped what had been taken in.
    SendDescriptor,
    /// Received by a frozen chip.
    Frozen,
    /// In the chip when it was reset.
    Reset,
}

impl Drop {
    /// How many reasons there are.
    pub const COUNT: usize = 24;

    /// Every reason.
    pub const ALL: [Self; Self::COUNT] = [
        Self::PortDown,
        Self::Vcrc,
        Self::EndsBad,
        Self::Format,
        Self::Version,
        Self::Length,
        Self::TooLong,
        Self::Vl,
        Self::BufferOverflow,
        Self::DlidFilter,
        Self::Pkey,
        Self::InvalidContext,
        Self::InvalidTid,
        Self::FlowMismatch,
        Self::HeaderFull,
        Self::EagerFull,
        Self::EagerInvalid,
        Self::DmaRefused,
        Self::SendLinkDown,
        Self::SendRefused,
        Self::SendCancelled,
        Self::SendDescriptor,
        Self::Frozen,
        Self::Reset,
    ];

    /// The reason in a word or two, for tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::PortDown => "port down",
            Self::Vcrc => "bad VCRC",
            Self::EndsBad => "bad end",
            Self::Format => "format",
            Self::Version => "version",
            Self::Length => "length",
            Self::TooLong => "too long",
            Self::Vl => "lane",
            Self::BufferOverflow => "buffer overflow",
            Self::DlidFilter => "DLID filter",
            Self::Pkey => "P_Key",
            Self::InvalidContext => "invalid context",
            Self::InvalidTid => "invalid TID",
            Self::FlowMismatch => "TID flow",
            Self::HeaderFull => "header queue full",
            Self::EagerFull => "eager full",
            Self::EagerInvalid => "eager entry invalid",
            Self::DmaRefused => "DMA refused",
            Self::SendLinkDown => "send: link down",
            Self::SendRefused => "send: refused",
            Self::SendCancelled => "send: cancelled",
            Self::SendDescriptor => "send: descriptor",
            Self::Frozen => "frozen",
            Self::Reset => "reset",
        }
    }
}

/// The account of one chip.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    ports: [[u64; Drop::COUNT]; 2],
    ctxt_overflow: [u64; Ctxt::COUNT],
    /// Packets that got an entry in a header queue without an error flag, each port.
    pub received: [u64; 2],
    /// Expected packets in order that asked for no entry and got none, each port.
    pub suppressed: [u64; 2],
    /// Packets put on the wire, each port.
    pub sent: [u64; 2],
    /// Errors that stopped the send DMA engine of each port.
    pub sdma_faults: [u64; 2],
    /// DMA accesses that the host refused.
    pub dma_refused: u64,
    /// Link commands that the state did not allow.
    pub link_commands_ignored: u64,
}

impl Account {
    pub(super) fn new() -> Self {
        Self {
            ports: [[0; Drop::COUNT]; 2],
            ctxt_overflow: [0; Ctxt::COUNT],
            received: [0; 2],
            suppressed: [0; 2],
            sent: [0; 2],
            sdma_faults: [0; 2],
            dma_refused: 0,
            link_commands_ignored: 0,
        }
    }

    pub(super) fn drop(&mut self, port: Port, why: Drop) {
        self.ports[port.index()][why as usize] += 1;
    }

    pub(super) fn overflow(&mut self, port: Port, ctxt: Ctxt, why: Drop) {
        self.drop(port, why);
        self.ctxt_overflow[ctxt.index()] += 1;
    }

    /// Packets dropped on `port` for `why`.
    pub fn dropped(&self, port: Port, why: Drop) -> u64 {
        self.ports[port.index()][why as usize]
    }

    /// Packets that `ctxt` lost because its header queue or its eager array was full.
    pub fn overflowed(&self, ctxt: Ctxt) -> u64 {
        self.ctxt_overflow[ctxt.index()]
    }

    /// Packets dropped on both ports for any reason.
    pub fn total_dropped(&self) -> u64 {
        self.ports.iter().flatten().sum()
    }
}
