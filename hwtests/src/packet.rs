//! Packets that a port sends to itself.
//!
//! ```text
//! PBC (2 dwords) | LRH (2) | BTH (3) | payload            the chip adds ICRC and VCRC
//!                '--- len_dwords counts this and one dword of ICRC ---'
//! ```

use qhca_regs::layout::{KdFlags, KdHeader, KdTid, Pbc};
use qhca_regs::{Port, Psn, Qpn};

/// Dwords of LRH and BTH.
pub(crate) const HEADER_DWORDS: usize = 5;
/// The P_Key that every port knows.
pub(crate) const PKEY_DEFAULT: u16 = 0xFFFF;
/// The destination QP of PSM's packets for contexts 0 to 15.
pub(crate) const KD_QPN: u32 = 0x65_6B78;
/// PSM's opcode.
const OPCODE_KD: u32 = 0xC0;
/// Dwords of PSM's own header behind LRH and BTH, of which the chip reads two.
const KD_DWORDS: usize = 9;
/// Opcode "RC SEND only": nothing follows the BTH but payload.
const OPCODE_RC_SEND_ONLY: u32 = 0x04;

/// One packet.
#[derive(Clone, Debug)]
pub(crate) struct Packet {
    pub(crate) port: Port,
    pub(crate) qpn: Qpn,
    pub(crate) pkey: u16,
    /// The virtual lane.
    pub(crate) vl: u8,
    /// Whether `SendDone` is asked for.
    pub(crate) interrupt: bool,
    /// A packet of PSM's kind, with these flags, for context 0.
    pub(crate) kd: Option<KdFlags>,
    /// Where a packet of PSM's kind wants its payload, and how many dwords into the page.
    pub(crate) tid: KdTid,
    pub(crate) offset_dwords: u16,
    pub(crate) psn: Psn,
    /// What the checksum of PSM's header is too large by.
    pub(crate) checksum_off: u16,
    pub(crate) payload: Vec<u32>,
}

impl Packet {
    /// A packet of `payload_dwords`, whose contents follow from `seed`.
    pub(crate) fn new(port: Port, payload_dwords: usize, seed: u32) -> Self {
        let payload =
            (0..payload_dwords as u32).map(|n| (seed << 16 | n).wrapping_mul(0x9E37_79B1)).collect();
        let qpn = Qpn::new(0x40).unwrap_or_default();
        Self {
            port,
            qpn,
            pkey: PKEY_DEFAULT,
            vl: 0,
            interrupt: false,
            kd: None,
            tid: KdTid::Eager,
            offset_dwords: 0,
            psn: Psn::new(0),
            checksum_off: 0,
            payload,
        }
    }

    /// The same as a packet of PSM's kind.
    pub(crate) fn into_kd(self, flags: KdFlags) -> Self {
        Self { qpn: Qpn::new(KD_QPN).unwrap_or_default(), kd: Some(flags), ..self }
    }

    /// The same as an expected packet: its payload is for `offset_dwords` in the page of `tid`, its sequence number
    /// `psn`.
    pub(crate) fn into_expected(self, tid: u16, offset_dwords: u16, psn: Psn, flags: KdFlags) -> Self {
        Self { tid: KdTid::Tid(tid), offset_dwords, psn, ..self.into_kd(flags) }
    }

    /// Dwords before the payload.
    pub(crate) const fn header_dwords(&self) -> usize {
        HEADER_DWORDS + if self.kd.is_some() { KD_DWORDS } else { 0 }
    }

    /// LRH through ICRC, dwords.
    pub(crate) fn len_dwords(&self) -> u16 {
        (self.header_dwords() + self.payload.len() + 1) as u16
    }

    /// The header as it stands in memory: network order, PSM's own part little-endian.
    pub(crate) fn header(&self) -> Vec<u32> {
        const LID: u32 = 1;
        let opcode = if self.kd.is_some() { OPCODE_KD } else { OPCODE_RC_SEND_ONLY };
        let words = [
            u32::from(self.vl) << 28 | 0x0002_0000 | LID, // LRH: VL, version 0, SL 0, next header BTH; DLID
            u32::from(self.len_dwords()) << 16 | LID,
            opcode << 24 | u32::from(self.pkey),
            self.qpn.value(),
            self.psn.value(),
        ];
        let mut header: Vec<u32> = words.map(u32::swap_bytes).to_vec();
        if let Some(flags) = self.kd {
            let kd = KdHeader { ctxt_low: 0, tid: self.tid, offset_dwords: self.offset_dwords, flags };
            let good = u64::from_le_bytes(kd.build(self.len_dwords()));
            // The checksum stands in bits 47 to 32.
            let sum = (good >> 32) as u16;
            let word = good & !(0xFFFF << 32) | u64::from(sum.wrapping_add(self.checksum_off)) << 32;
            header.extend([word as u32, (word >> 32) as u32]);
            header.resize(self.header_dwords(), 0);
        }
        header
    }

    /// What is written to a send buffer, PBC first.
    pub(crate) fn dwords(&self) -> Vec<u32> {
        let pbc = Pbc::for_port(self.port, self.len_dwords()).with_vl(self.vl).with_intr(self.interrupt);
        [&pbc.dwords()[..], &self.header(), &self.payload].concat()
    }

    /// What goes over the wire, without check sums.
    pub(crate) fn wire_bytes(&self) -> Vec<u8> {
        let dwords = self.header().into_iter().chain(self.payload.iter().copied());
        dwords.flat_map(u32::to_le_bytes).collect()
    }
}
