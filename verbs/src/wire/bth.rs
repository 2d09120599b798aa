//! Base transport header: which queue pair, what kind of packet, the how-many-eth.
//!
//! ```text
//!   word 0  opcode 8 │ SE 1 │ M 1 │ pad 2 │ TVer 4 │ P_Key 16
//!   word 1  FECN 1 │ BECN 1 │ reserved 6 │ destination QP 24
//!   word 2  A 1 │ reserved 7 │ PSN 24
//! ```

use std::fmt;

use super::{Opcode, WireError};
use crate::ids::QpNumber;
use crate::psn::Psn;

/// A base transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bth {
    /// What kind of packet.
    pub opcode: Opcode,
    /// The responder shall raise a solicited event.
    pub solicited: bool,
    /// The migration state: set is "migrated", the state of a connection that never migrates.
    pub migrated: bool,
    /// Bytes that fill the payload up to dwords, 0 to 3.
    pub pad: u8,
    /// Partition key.
    pub pkey: u16,
    /// Forward congestion notice.
    pub fecn: bool,
    /// Backward congestion notice.
    pub becn: bool,
    /// Destination queue pair.
    pub dest_qp: QpNumber,
    /// The responder shall acknowledge this packet.
    pub ack_request: bool,
    /// Packet sequence number.
    pub psn: Psn,
}

impl Bth {
    /// Words of a BTH.
    pub const WORDS: usize = 3;

    /// Reads a BTH.
    ///
    /// # Errors
    /// [`WireError::TransportVersion`]. The opcode is not judged here.
    #[inline]
    pub const fn parse([first, second, third]: [u32; 3]) -> Result<Self, WireError> {
        let version = (first >> 16 & 0xF) as u8;
        if version != 0 {
            return Err(WireError::TransportVersion(version));
        }
        Ok(Self {
            opcode: Opcode((first >> 24) as u8),
            solicited: first >> 23 & 1 != 0,
            migrated: first >> 22 & 1 != 0,
            pad: (first >> 20 & 3) as u8,
            pkey: first as u16,
            fecn: second >> 31 != 0,
            becn: second >> 30 & 1 != 0,
            dest_qp: QpNumber::new(second),
            ack_request: third >> 31 != 0,
            psn: Psn::new(third),
        })
    }

    /// The words of this BTH.
    #[inline]
    pub const fn build(self) -> [u32; 3] {
        let first = (self.opcode.0 as u32) << 24
            | (self.solicited as u32) << 23
            | (self.migrated as u32) << 22
            | (self.pad as u32 & 3) << 20
            | self.pkey as u32;
        let second = (self.fecn as u32) << 31 | (self.becn as u32) << 30 | self.dest_qp.get();
        [first, second, (self.ack_request as u32) << 31 | self.psn.get()]
    }
}

impl fmt::Display for Bth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BTH {} {} {} P_Key {:#06x}", self.opcode, self.dest_qp, self.psn, self.pkey)?;
        if self.ack_request {
            f.write_str(" AckReq")?;
        }
        if self.solicited {
            f.write_str(" SE")?;
        }
        Ok(())
    }
}
