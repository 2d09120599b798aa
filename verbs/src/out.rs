//! Packets on their way out: how headers are put together, and the seam that takes them.
//!
//! What stays the same for all packets of a connection is kept ready in a [`Template`]; the rest is filled in.

use qhca_regs::Lid;

use crate::ids::QpNumber;
use crate::psn::Psn;
use crate::shared::Port;
use crate::wire::{Grh, Headers, Lrh, NextHeader, Opcode};
use crate::wr::AddressVector;

/// A packet that is ready to be sent.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing<'a> {
    /// The virtual lane: 0 to 7, or 15 for subnet management.
    pub vl: u8,
    /// The headers as they lie in memory, big-endian fields.
    pub header: &'a [u32],
    /// The payload as it lies in memory, with its pad.
    pub payload: &'a [u32],
    /// Ticks of pause for each dword.
    pub static_rate: u8,
}

/// There is no room for a packet; the engine keeps it and offers it again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// Whatever takes packets: a chip, another engine, a test.
pub trait Wire {
    /// Takes a packet.
    ///
    /// # Errors
    /// [`Full`] if there is no room; nothing of it was taken then.
    fn send(&mut self, packet: &Outgoing<'_>) -> Result<(), Full>;
}

impl<F: FnMut(&Outgoing<'_>) -> Result<(), Full>> Wire for F {
    #[inline]
    fn send(&mut self, packet: &Outgoing<'_>) -> Result<(), Full> {
        self(packet)
    }
}

/// What all packets to one destination have in common.
#[derive(Clone, Debug, Default)]
pub(crate) struct Template {
    lrh: u32,
    slid: u32,
    grh: Option<[u32; Grh::WORDS]>,
    bth: u32,
    dest_qp: u32,
    vl: u8,
    static_rate: u8,
    pub(crate) to_self: bool,
}

/// The bit of a connection that does not migrate.
const MIGRATED: u32 = 1 << 22;

/// What one packet has of its own.
#[derive(Clone, Copy)]
pub(crate) struct Spec {
    pub(crate) opcode: Opcode,
    pub(crate) solicited: bool,
    pub(crate) ack_request: bool,
    pub(crate) psn: Psn,
}

/// Headers that are being put together.
pub(crate) type HeaderBuf = [u32; Headers::MAX_WORDS];

impl Template {
    pub(crate) fn new(port: &Port, address: &AddressVector, pkey: u16, dest_qp: QpNumber) -> Self {
        let vl = port.vl_of(address.sl);
        let next = if address.grh.is_some() { NextHeader::Grh } else { NextHeader::Bth };
        // A port without a LID signs as everybody's: only directed management leaves it.
        let slid = match port.lid {
            Lid(0) => Lid::PERMISSIVE,
            lid => Lid(lid.0 | u16::from(address.path_bits & port.path_mask())),
        };
        let lrh = Lrh { vl, sl: address.sl, next, dlid: address.dlid, len_dwords: 0, slid };
        let grh = address.grh.map(|route| {
            Grh {
                traffic_class: route.traffic_class,
                flow_label: route.flow_label,
                payload_bytes: 0,
                hop_limit: route.hop_limit,
                sgid: port.gid(route.sgid_index),
                dgid: route.dgid,
            }
            .build()
        });
        let [lrh, slid] = lrh.build();
        Self {
            lrh,
            slid,
            grh,
            bth: MIGRATED | u32::from(pkey),
            dest_qp: dest_qp.get(),
            vl,
            static_rate: address.static_rate,
            to_self: port.owns(address.dlid),
        }
    }

    /// Sends by VL 15, as subnet management is.
    pub(crate) fn use_management_lane(&mut self) {
        self.vl = 15;
        self.lrh |= 15 << 28;
    }

    pub(crate) fn vl(&self) -> u8 {
        self.vl
    }

    pub(crate) fn static_rate(&self) -> u8 {
        self.static_rate
    }

    /// Writes the headers to `into`; returns how many dwords they are.
    #[inline]
    pub(crate) fn build(&self, into: &mut HeaderBuf, spec: Spec, ext: &[u32], payload_bytes: usize) -> usize {
        let payload_words = payload_bytes.div_ceil(4);
        let base = if self.grh.is_some() { Lrh::WORDS + Grh::WORDS } else { Lrh::WORDS };
        let words = base + 3 + ext.len();
        let len_dwords = (words + payload_words + 1) as u32;
        into[0] = self.lrh.to_be();
        into[1] = (len_dwords << 16 | self.slid).to_be();
        if let Some(grh) = &self.grh {
            self.build_grh(into, grh, len_dwords);
        }
        let pad = (payload_words * 4 - payload_bytes) as u32;
        let first = u32::from(spec.opcode.0) << 24 | u32::from(spec.solicited) << 23 | pad << 20 | self.bth;
        let Some((bth, after)) = into[base..].split_first_chunk_mut::<3>() else { return 0 };
        bth[0] = first.to_be();
        bth[1] = self.dest_qp.to_be();
        bth[2] = (u32::from(spec.ack_request) << 31 | spec.psn.get()).to_be();
        for (to, word) in after.iter_mut().zip(ext) {
            *to = word.to_be();
        }
        words
    }

    #[cold]
    fn build_grh(&self, into: &mut HeaderBuf, grh: &[u32; Grh::WORDS], len_dwords: u32) {
        for (to, word) in into[Lrh::WORDS..].iter_mut().zip(grh) {
            *to = word.to_be();
        }
        let bytes = (len_dwords - (Lrh::WORDS + Grh::WORDS) as u32) * 4;
        into[Lrh::WORDS + 1] = (grh[1] & 0xFFFF | bytes << 16).to_be();
    }
}
