//! One arrival, as it is handed out: in place, for as long as the call lasts.

use qhca_regs::layout::{PacketType, Rhf, RhfErrors};

use crate::dma::DmaSlice;
use crate::rx::Malformed;

/// What one entry of the header queue turned out to be.
///
/// The views end with the call they are handed to: right afterwards the chip may be told that the space is free.
#[derive(Clone, Copy, Debug)]
pub enum Arrival<'a> {
    /// A packet without a flaw.
    Packet(Packet<'a>),
    /// A packet whose payload found no eager buffer: its headers came through, its payload is lost. For a reliable
    /// transport that is a gap in the sequence, and the headers say where (F-207).
    NoBuffer {
        /// The packet's headers.
        header: DmaSlice<'a>,
    },
    /// A packet that the chip found faulty. Its headers may be as wrong as anything else in it.
    Damaged {
        /// What is said to be wrong.
        errors: RhfErrors,
        /// What stands where the headers should be.
        header: DmaSlice<'a>,
    },
    /// An entry that contradicts itself or the shape of the queue; nothing of it can be used.
    Malformed {
        /// The contradiction.
        why: Malformed,
        /// The word that the chip wrote.
        rhf: Rhf,
    },
}

/// A packet without a flaw, in the memory that the chip wrote.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// The headers from LRH on, as on the wire.
    pub header: DmaSlice<'a>,
    /// What follows the headers, pad bytes included and ICRC excluded; empty if there is none, or if the chip put it
    /// somewhere else (a KD packet to a TID's page).
    pub payload: DmaSlice<'a>,
    /// The chip's verdict, as it was written.
    pub rhf: Rhf,
}

/// How an expected packet broke its flow's order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowError {
    /// Its sequence number was not the one that the flow waits for.
    Sequence,
    /// It is of another generation of the flow.
    Generation,
}

impl Packet<'_> {
    /// Whether it broke the order of its flow. Whether its payload was kept, the flow's settings say. Source: F-251.
    pub fn flow_error(&self) -> Option<FlowError> {
        let errors = self.rhf.errors();
        if errors.contains(RhfErrors::TF_GEN) {
            return Some(FlowError::Generation);
        }
        errors.contains(RhfErrors::TF_SEQ).then_some(FlowError::Sequence)
    }

    /// What kind of packet it is.
    #[inline]
    pub fn kind(&self) -> PacketType {
        self.rhf.kind()
    }

    /// Its length on the wire from LRH through ICRC, dwords.
    #[inline]
    pub fn wire_dwords(&self) -> u32 {
        u32::from(self.rhf.len_dwords())
    }
}
