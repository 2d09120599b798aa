//! Which context a packet goes to, and where its header ends.
//!
//! ```text
//!   LRH 2 dwords | GRH 10, if LNH says so | BTH 3 | extension headers of the opcode | payload
//!   '--------------------- to the queue entry -----------------------------------'  to the buffer
//!
//!   destination QP = RcvBTHQP (bit 0 aside)  -> KD packet: context in its own header
//!                  = 0xFFFFFF                -> RcvQPMulticastContext
//!                  else, RcvQPMapEnable      -> map[(QP >> 1) & 31]
//!                  else                      -> the port's kernel context
//! ```

use qhca_regs::layout::kd_header::KdError;
use qhca_regs::layout::{KdFlags, KdHeader, KdTid};
use qhca_regs::{Ctxt, Port, Qpn};

/// What is read of a packet's LRH.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Lrh {
    pub(in super::super) vl: u8,
    pub(in super::super) version: u8,
    /// What follows: 2 a BTH, 3 a GRH, less is raw.
    pub(in super::super) next: u8,
    pub(in super::super) dlid: u16,
    /// Dwords from here to the ICRC.
    pub(in super::super) len_dwords: u16,
    pub(in super::super) slid: u16,
}

impl Lrh {
    pub(in super::super) const LEN_BYTES: usize = 8;

    #[inline]
    pub(in super::super) fn parse(bytes: &[u8]) -> Option<Self> {
        let &[b0, b1, d0, d1, l0, l1, s0, s1] = bytes.first_chunk::<{ Self::LEN_BYTES }>()?;
        Some(Self {
            vl: b0 >> 4,
            version: b0 & 0xF,
            next: b1 & 3,
            dlid: u16::from_be_bytes([d0, d1]),
            len_dwords: u16::from_be_bytes([l0, l1]) & 0x7FF,
            slid: u16::from_be_bytes([s0, s1]),
        })
    }

    /// Where the BTH starts, bytes; `None` on raw packets.
    pub(in super::super) fn bth_at(self) -> Option<usize> {
        match self.next {
            2 => Some(Self::LEN_BYTES),
            3 => Some(Self::LEN_BYTES + GRH_BYTES),
            _ => None,
        }
    }
}

const GRH_BYTES: usize = 40;
const BTH_BYTES: usize = 12;

/// What is read of a packet's BTH.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Bth {
    opcode: u8,
    pub(in super::super) pkey: u16,
    pub(in super::super) dest_qp: u32,
    /// Where it starts in the packet, bytes.
    at: usize,
}

impl Bth {
    #[inline]
    pub(in super::super) fn parse(bytes: &[u8], lrh: Lrh) -> Option<Self> {
        let at = lrh.bth_at()?;
        let bth = bytes.get(at..at + BTH_BYTES)?;
        Some(Self {
            opcode: bth[0],
            pkey: u16::from_be_bytes([bth[2], bth[3]]),
            dest_qp: u32::from_be_bytes([0, bth[5], bth[6], bth[7]]),
            at,
        })
    }

    fn end(self) -> usize {
        self.at + BTH_BYTES
    }
}

/// What the chip acts on in a KD header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kd {
    pub(super) tid: KdTid,
    pub(super) offset_dwords: u16,
    pub(super) flags: KdFlags,
}

impl From<KdHeader> for Kd {
    fn from(header: KdHeader) -> Self {
        Self { tid: header.tid, offset_dwords: header.offset_dwords, flags: header.flags }
    }
}

/// What kind of packet it is, for the chip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Anything without a KD header.
    Plain,
    /// A KD packet with a valid header.
    Kd(Kd),
    /// A KD packet whose header the chip cannot accept.
    BadKd,
}

/// Where a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Route {
    /// Number of the context, which need not exist.
    pub(super) ctxt: u8,
    pub(super) kind: Kind,
    /// Bytes of the packet that go to the queue entry.
    pub(super) header_bytes: usize,
}

/// What all ports of a chip go by.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    /// Dwords of a KD header beyond the BTH that are kept in the entry.
    pub(super) kd_dwords: u32,
    /// Opcodes of this class carry an XRC extension header.
    pub(super) xrc_class: u8,
    /// False for a chip that does not look at its QP map.
    pub(super) maps: bool,
    /// False for a chip that does not look at the KD header's checksum.
    pub(super) sums: bool,
}

/// What one port's registers say on steering.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Steering {
    pub(super) kernel_ctxt: u8,
    pub(super) bthqp: u32,
    pub(super) map_enabled: bool,
    pub(super) map: [u8; 32],
    pub(super) multicast_ctxt: u8,
    pub(super) pkeys: [u16; 4],
    pub(super) pkeys_checked: bool,
}

const DEFAULT_PKEY: u16 = 0xFFFF;
const PKEY_BASE: u16 = 0x7FFF;
const FULL_MEMBER: u16 = 0x8000;

impl Steering {
    pub(super) fn new(port: Port) -> Self {
        Self {
            kernel_ctxt: port.index() as u8,
            bthqp: 0,
            map_enabled: false,
            map: [0; 32],
            multicast_ctxt: 0,
            pkeys: [0; 4],
            pkeys_checked: true,
        }
    }

    /// Whether `qp` names KD packets; bit 0 of it is the context's top bit.
    #[inline]
    pub(in super::super) fn is_kd(&self, qp: u32) -> bool {
        (qp ^ self.bthqp) & !1 == 0
    }

    /// Whether `pkey` is in the table: same base, and not two limited members. The default key always is (F-337).
    pub(in super::super) fn knows_pkey(&self, pkey: u16) -> bool {
        let matches = |own: u16| (own ^ pkey) & PKEY_BASE == 0 && (own | pkey) & FULL_MEMBER != 0;
        matches(DEFAULT_PKEY) || self.pkeys.iter().any(|&own| own & PKEY_BASE != 0 && matches(own))
    }

    /// Where the packet goes, by the chip's `rules`.
    #[inline]
    pub(super) fn route(&self, bytes: &[u8], lrh: Lrh, bth: Bth, rules: Rules) -> Route {
        let qp = bth.dest_qp;
        if lrh.next == 2 && self.is_kd(qp) {
            return route_kd(bytes, lrh, bth, rules);
        }
        let ctxt = match qp {
            _ if qp == Qpn::MULTICAST.value() => self.multicast_ctxt,
            _ if self.map_enabled && rules.maps => self.map[(qp >> 1 & 31) as usize],
            _ => self.kernel_ctxt,
        };
        let header_bytes = bth.end() + 4 * extension_dwords(bth.opcode, rules.xrc_class);
        Route { ctxt, kind: Kind::Plain, header_bytes: header_bytes.min(bytes.len()) }
    }
}

fn route_kd(bytes: &[u8], lrh: Lrh, bth: Bth, rules: Rules) -> Route {
    let start = bth.end();
    let header_bytes = (start + 4 * rules.kd_dwords as usize).min(bytes.len());
    let high = (bth.dest_qp as u8 & 1) << 4;
    let Some(raw) = bytes.get(start..).and_then(|rest| rest.first_chunk::<{ KdHeader::LEN_BYTES }>()) else {
        return Route { ctxt: high, kind: Kind::BadKd, header_bytes };
    };
    let ctxt = high | raw[3] & 0xF;
    let kind = match KdHeader::parse(*raw, lrh.len_dwords) {
        Ok(header) => Kind::Kd(header.into()),
        Err(KdError::Checksum { expected, .. }) if !rules.sums => {
            let mut mended = *raw;
            mended[4..6].copy_from_slice(&expected.to_le_bytes());
            KdHeader::parse(mended, lrh.len_dwords).map_or(Kind::BadKd, |header| Kind::Kd(header.into()))
        }
        Err(_) => Kind::BadKd,
    };
    Route { ctxt, kind, header_bytes }
}

/// Dwords of the extension headers that follow the BTH (F-338); none for opcodes that IBTA does not define.
fn extension_dwords(opcode: u8, xrc_class: u8) -> usize {
    const RDETH: usize = 1;
    const DETH: usize = 2;
    const XRCETH: usize = 1;
    let operation = opcode & 0x1F;
    let Some(base) = operation_dwords(operation) else { return 0 };
    let request = !(0x0D..=0x12).contains(&operation);
    match opcode >> 5 {
        0 | 1 => base,
        2 => base + RDETH + if request { DETH } else { 0 },
        3 => base + DETH,
        class if class == xrc_class => base + if request { XRCETH } else { 0 },
        _ => 0,
    }
}

/// Dwords of the headers that an operation brings, whatever its transport.
fn operation_dwords(operation: u8) -> Option<usize> {
    const IMM: usize = 1;
    const RETH: usize = 4;
    const AETH: usize = 1;
    const ATOMIC: usize = 7;
    const ATOMIC_ACK: usize = 2;
    Some(match operation {
        0x00..=0x02 | 0x04 | 0x07 | 0x08 | 0x0E => 0,
        0x03 | 0x05 | 0x09 | 0x16 | 0x17 => IMM,
        0x06 | 0x0A | 0x0C => RETH,
        0x0B => RETH + IMM,
        0x0D | 0x0F..=0x11 => AETH,
        0x12 => AETH + ATOMIC_ACK,
        0x13 | 0x14 => ATOMIC,
        _ => return None,
    })
}

/// The context with the routed number, if the chip has it and it is below `usable`.
pub(super) fn existing(ctxt: u8, usable: u32) -> Option<Ctxt> {
    Ctxt::new(usize::from(ctxt)).filter(|ctxt| (ctxt.index() as u32) < usable)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: Rules = Rules { kd_dwords: 9, xrc_class: 5, maps: true, sums: true };

    /// Opcode, dwords after the BTH; from the tables of IBTA volume 1, chapter 9.
    const LENGTHS: [(u8, usize); 14] = [
        (0x04, 0), // RC SEND only
        (0x05, 1), // RC SEND only with immediate
        (0x06, 4), // RC RDMA WRITE first
        (0x0B, 5), // RC RDMA WRITE only with immediate
        (0x0E, 0), // RC RDMA READ response middle
        (0x10, 1), // RC RDMA READ response only
        (0x11, 1), // RC acknowledge
        (0x12, 3), // RC atomic acknowledge
        (0x13, 7), // RC compare and swap
        (0x2A, 4), // UC RDMA WRITE only
        (0x64, 2), // UD SEND only
        (0x65, 3), // UD SEND only with immediate
        (0xA4, 1), // XRC SEND only
        (0xC0, 0), // manufacturer's own
    ];

    #[test]
    fn header_ends_where_the_opcode_says() {
        for (opcode, dwords) in LENGTHS {
            assert_eq!(extension_dwords(opcode, 5), dwords, "{opcode:#x}");
        }
        assert_eq!(extension_dwords(0xA4, 0), 0, "XRC is recognised by the configured class only");
    }

    #[test]
    fn default_pkey_is_always_known_and_two_limited_members_never_meet() {
        let mut steering = Steering::new(Port::P0);
        assert!(steering.knows_pkey(0xFFFF) && steering.knows_pkey(0x7FFF));
        assert!(!steering.knows_pkey(0x8001) && !steering.knows_pkey(0));
        steering.pkeys[3] = 0x0001;
        assert!(steering.knows_pkey(0x8001) && !steering.knows_pkey(0x0001));
    }

    #[test]
    fn unicast_qp_follows_the_map_by_its_upper_bits() {
        let mut steering = Steering::new(Port::P1);
        let bytes = [0x00, 0x02, 0, 1, 0, 6, 0, 2, 4, 0, 0xFF, 0xFF, 0, 0, 0, 7, 0, 0, 0, 0];
        let lrh = Lrh::parse(&bytes).expect("whole");
        let bth = Bth::parse(&bytes, lrh).expect("whole");
        steering.bthqp = 0x65_6B78;
        steering.map[3] = 9;
        assert_eq!(steering.route(&bytes, lrh, bth, RULES).ctxt, 1, "the port's own context");
        steering.map_enabled = true;
        assert_eq!(steering.route(&bytes, lrh, bth, RULES).ctxt, 9);
    }
}
