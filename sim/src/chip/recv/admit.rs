//! What the link layer checks before anybody asks where a packet goes.

use super::super::account::Drop;
use super::super::wrong::WrongChip;
use super::super::{Chip, Host, Meta};
use super::VL15;
use super::steer::{Bth, Lrh};
use qhca_regs::access::PortReg;
use qhca_regs::map::counter;
use qhca_regs::status::PortErrBits;
use qhca_regs::{Instant, Port, Rw};

/// LRH, BTH and ICRC: nothing shorter is a packet.
const MIN_WIRE_DWORDS: u16 = 6;

/// What follows on a packet that fails: an entry in the account, an error bit, a counter.
struct Fault {
    why: Drop,
    error: PortErrBits,
    counter: Option<PortReg<u64, Rw>>,
}

impl Fault {
    fn loud(why: Drop, error: PortErrBits, counter: PortReg<u64, Rw>) -> Self {
        Self { why, error, counter: Some(counter) }
    }

    fn quiet(why: Drop, counter: PortReg<u64, Rw>) -> Self {
        Self { why, error: PortErrBits::empty(), counter: Some(counter) }
    }
}

impl Chip {
    /// Checks the packet, and counts it as received or as what it fails on (F-343, F-344).
    pub(super) fn admit(
        &mut self,
        port: Port,
        bytes: &[u8],
        meta: Meta,
        now: Instant,
        host: &mut impl Host,
    ) -> Option<(Lrh, Bth)> {
        let checked = check_delivery(bytes, meta)
            .and_then(|lrh| self.check_link(port, bytes, lrh))
            .and_then(|lrh| Ok((lrh, self.check_rights(port, bytes, lrh)?)));
        let (lrh, bth) = match checked {
            Ok(headers) => headers,
            Err(fault) => {
                self.account.drop(port, fault.why);
                if let Some(counter) = fault.counter {
                    self.counters.bump_port(counter, port, 1);
                }
                if !fault.error.is_empty() {
                    self.raise_port_err(port, fault.error, now, host);
                }
                return None;
            }
        };
        self.counters.bump_port(counter::RX_DATA_PKT_CNT, port, 1);
        self.counters.bump_port(counter::RX_DWORD_CNT, port, u64::from(lrh.len_dwords));
        if !meta.icrc_ok {
            self.counters.bump_port(counter::RX_ICRC_ERR_CNT, port, 1);
            self.raise_port_err(port, PortErrBits::RCV_ICRC_ERR, now, host);
        }
        Some((lrh, bth))
    }

    /// Whether the port is up for the packet, and the packet in the port's limits.
    fn check_link(&self, port: Port, bytes: &[u8], lrh: Lrh) -> Result<Lrh, Fault> {
        let link = &self.links[port.index()];
        if !self.recv.ports[port.index()].enabled || !link.takes(lrh.vl == VL15) {
            return Err(Fault::quiet(Drop::PortDown, counter::RX_DROPPED_PKT_CNT));
        }
        if lrh.version != 0 {
            let error = PortErrBits::RCV_BAD_VERSION_ERR;
            return Err(Fault::loud(Drop::Version, error, counter::RX_VERSION_ERR_CNT));
        }
        let wire_dwords = bytes.len() / 4 + 1;
        let said_dwords = usize::from(lrh.len_dwords);
        if said_dwords != wire_dwords {
            let error = match wire_dwords > said_dwords {
                true => PortErrBits::RCV_LONG_PKT_LEN_ERR,
                false => PortErrBits::RCV_SHORT_PKT_LEN_ERR,
            };
            return Err(Fault::loud(Drop::Length, error, counter::RX_LEN_ERR_CNT));
        }
        if lrh.len_dwords > link.max_dwords() {
            let error = PortErrBits::RCV_MAX_PKT_LEN_ERR;
            return Err(Fault::loud(Drop::TooLong, error, counter::RX_MAX_MIN_LEN_ERR_CNT));
        }
        if lrh.len_dwords < MIN_WIRE_DWORDS {
            return Err(too_short());
        }
        if lrh.vl != VL15 && lrh.vl >= link.lanes() {
            let error = PortErrBits::RCV_UNSUPPORTED_VL_ERR;
            return Err(Fault::loud(Drop::Vl, error, counter::RX_VL_ERR_CNT));
        }
        Ok(lrh)
    }

    /// Whether the packet is for this port: DLID filter and P_Keys (F-337, F-383).
    fn check_rights(&self, port: Port, bytes: &[u8], lrh: Lrh) -> Result<Bth, Fault> {
        if self.links[port.index()].filters_out(lrh.dlid) {
            return Err(Fault::quiet(Drop::DlidFilter, counter::RX_DLID_FLTR_CNT));
        }
        let Some(bth) = Bth::parse(bytes, lrh) else {
            let error = PortErrBits::RCV_FORMAT_ERR;
            return Err(Fault { why: Drop::Format, error, counter: None });
        };
        let steering = &self.recv.ports[port.index()].steering;
        let checked =
            steering.pkeys_checked && lrh.vl != VL15 && !self.config.wrong.has(WrongChip::PkeyCheckOff);
        if checked && !steering.knows_pkey(bth.pkey) {
            return Err(Fault::quiet(Drop::Pkey, counter::RX_P_KEY_MISMATCH_CNT));
        }
        Ok(bth)
    }
}

fn too_short() -> Fault {
    Fault::loud(Drop::Format, PortErrBits::RCV_MIN_PKT_LEN_ERR, counter::RX_MAX_MIN_LEN_ERR_CNT)
}

/// Whether the packet came whole.
fn check_delivery(bytes: &[u8], meta: Meta) -> Result<Lrh, Fault> {
    if meta.ends_bad {
        return Err(Fault::loud(Drop::EndsBad, PortErrBits::RCV_EBP_ERR, counter::RX_EBP_CNT));
    }
    if !meta.vcrc_ok {
        return Err(Fault::loud(Drop::Vcrc, PortErrBits::RCV_VCRC_ERR, counter::RX_VCRC_ERR_CNT));
    }
    Lrh::parse(bytes).filter(|_| bytes.len().is_multiple_of(4)).ok_or_else(too_short)
}
