//! What the chip checks of a packet before it lets it out, and what it says when it does not.
//!
//! First the rules of the buffer and the wire: lane, lengths. Then, buffer by buffer as three bit masks say, the checks
//! that keep a process which owns a buffer from sending what it may not: forged source LIDs, foreign partitions,
//! management packets. A refused packet is not sent, its buffer is marked in `SendBufErr` and stays busy until it is
//! disarmed (F-362). Which error is raised for which mismatch is a guess where the names leave room (F-363).

use super::super::Chip;
use super::super::recv::{Bth, Lrh};
use qhca_regs::access::PortReg;
use qhca_regs::layout::Pbc;
use qhca_regs::map::{counter, device, port};
use qhca_regs::status::{ErrBits, PortErrBits, SendHdrSymptom};
use qhca_regs::{Buffer, BufferKind, Port, Rw};

/// LRH, BTH and ICRC.
const MIN_DWORDS: u16 = 6;
const VL15: u8 = 15;
/// Bytes of a packet that checks look at: LRH, GRH, BTH.
const HEADER_BYTES: usize = 8 + 40 + 12;

/// Why a packet is refused.
#[derive(Clone, Copy, Default)]
pub(super) struct Refusal {
    pub(super) device: ErrBits,
    pub(super) port: PortErrBits,
    pub(super) symptom: SendHdrSymptom,
    pub(super) counter: Option<PortReg<u64, Rw>>,
}

impl Refusal {
    fn device(device: ErrBits) -> Self {
        Self { device, ..Self::default() }
    }

    fn port(port: PortErrBits, counter: Option<PortReg<u64, Rw>>) -> Self {
        Self { port, counter, ..Self::default() }
    }

    fn headers(symptom: SendHdrSymptom) -> Self {
        let port = PortErrBits::S_HEADERS_ERR;
        Self { port, symptom, counter: Some(counter::TX_HEADERS_ERR_CNT), ..Self::default() }
    }
}

/// Bit of `buffer` in one of the three-qword masks.
fn bit_of(words: [u64; 3], buffer: Buffer) -> bool {
    words[buffer.index() / 64] >> (buffer.index() % 64) & 1 != 0
}

impl Chip {
    /// Looks at the packet in `buffer`, which is complete; `Err` says why it must not go out.
    pub(super) fn check_packet(&self, buffer: Buffer, pbc: Pbc, port: Port) -> Result<(), Refusal> {
        let packet = self.send.buffers.packet(buffer);
        let head = &packet[..packet.len().min(HEADER_BYTES)];
        let too_short =
            Refusal::port(PortErrBits::SEND_MIN_PKT_LEN_ERR, Some(counter::TX_MAX_MIN_LEN_ERR_CNT));
        let lrh = Lrh::parse(head).ok_or(too_short)?;
        self.check_lane(buffer, pbc, port, lrh)?;
        self.check_length(pbc, port, lrh)?;
        self.check_headers(buffer, pbc, port, lrh, head)
    }

    fn check_lane(&self, buffer: Buffer, pbc: Pbc, port: Port, lrh: Lrh) -> Result<(), Refusal> {
        match buffer.kind() {
            BufferKind::Small | BufferKind::Large if pbc.vl15() => {
                return Err(Refusal::port(PortErrBits::VL15_BUF_MISUSE_ERR, None));
            }
            BufferKind::Vl15(owner) if owner != port || !pbc.vl15() => {
                return Err(Refusal::device(ErrBits::SBUF_VL15_MISUSE_ERR));
            }
            _ => {}
        }
        let lane = if pbc.vl15() { VL15 } else { pbc.vl() };
        if lrh.vl != lane {
            return Err(Refusal::device(ErrBits::SEND_VL_MISMATCH_ERR));
        }
        if lane != VL15 && lane >= self.links[port.index()].lanes() {
            let counter = Some(counter::TX_UNSUP_VL_ERR_CNT);
            return Err(Refusal::port(PortErrBits::SEND_UNSUPPORTED_VL_ERR, counter));
        }
        Ok(())
    }

    fn check_length(&self, pbc: Pbc, port: Port, lrh: Lrh) -> Result<(), Refusal> {
        let limits = Some(counter::TX_MAX_MIN_LEN_ERR_CNT);
        if pbc.len_dwords() < MIN_DWORDS {
            return Err(Refusal::port(PortErrBits::SEND_MIN_PKT_LEN_ERR, limits));
        }
        if pbc.len_dwords() > self.links[port.index()].max_dwords() {
            return Err(Refusal::port(PortErrBits::SEND_MAX_PKT_LEN_ERR, limits));
        }
        if pbc.len_dwords() != lrh.len_dwords {
            return Err(Refusal::port(PortErrBits::SEND_PKT_LEN_ERR, Some(counter::TX_LEN_ERR_CNT)));
        }
        Ok(())
    }

    fn check_headers(
        &self,
        buffer: Buffer,
        pbc: Pbc,
        port: Port,
        lrh: Lrh,
        head: &[u8],
    ) -> Result<(), Refusal> {
        let rules = port::SendCheckControl(self.store.get(port::SEND_CHECK_CONTROL.port(port).offset()));
        let masks = |row: qhca_regs::access::RegArray<u64, Rw>| {
            std::array::from_fn(|n| self.store.get(row.index(n as u32).offset()))
        };
        let checked = bit_of(masks(device::SEND_CHECK_MASK), buffer);
        let may_send_ib = bit_of(masks(device::SEND_IB_PACKET_MASK), buffer);
        let refuses_grh = bit_of(masks(device::SEND_GRH_CHECK_MASK), buffer);
        let steering = &self.recv.port(port).steering;
        let bth = Bth::parse(head, lrh);
        let is_kd = lrh.next == 2 && bth.is_some_and(|bth| steering.is_kd(bth.dest_qp));
        let mut symptom = SendHdrSymptom::empty();
        symptom.set(SendHdrSymptom::NON_KEY_PACKET, !may_send_ib && !is_kd);
        symptom.set(SendHdrSymptom::GRH_FAIL, refuses_grh && lrh.next == 3);
        if checked {
            let raw = bth.is_none();
            symptom
                .set(SendHdrSymptom::PACKET_TOO_SMALL, rules.packet_too_small_en() && raw && lrh.next >= 2);
            symptom.set(SendHdrSymptom::RAW_IPV6, rules.raw_ipv6_en() && lrh.next < 2);
            symptom.set(
                SendHdrSymptom::SLID_FAIL,
                rules.slid_en() && !pbc.vl15() && !self.may_send_from(port, lrh.slid),
            );
            let foreign = bth.is_some_and(|bth| !may_send_ib && !steering.knows_pkey(bth.pkey));
            symptom.set(SendHdrSymptom::PKEY_FAIL, rules.p_key_en() && foreign);
            symptom.set(SendHdrSymptom::QP_FAIL, rules.bthqp_en() && !may_send_ib && !is_kd);
        }
        if symptom.is_empty() { Ok(()) } else { Err(Refusal::headers(symptom)) }
    }

    /// Whether `slid` is one that `port` may send from: a mask of 0 lets every one pass (§6.7).
    fn may_send_from(&self, port: Port, slid: u16) -> bool {
        let mask = self.store.get(port::SEND_IBSLID_MASK.port(port).offset()) as u16;
        let own = self.store.get(port::SEND_IBSLID_ASSIGN.port(port).offset()) as u16;
        slid & mask == own
    }
}
