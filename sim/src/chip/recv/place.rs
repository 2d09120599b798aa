//! Where a packet's parts go in host memory, and what the entry says of it.
//!
//! A packet without payload uses no eager buffer; a payload larger than its buffer is cut, and an invalid array entry loses
//! it, each with an error in the entry (F-345). `RcvUrg` needs the INTR flag of a KD packet and nothing else (F-347).

use super::super::account::Drop;
use super::super::config::EagerFull;
use super::super::wrong::WrongChip;
use super::super::{Chip, Host, Meta};
use super::queue::RHF_DWORDS;
use super::steer::{Kind, Lrh, Route};
use qhca_regs::layout::{KdTid, PacketType, Rhf, RhfErrors, Slot};
use qhca_regs::map::{area, counter};
use qhca_regs::status::{ErrBits, IntBits, PortErrBits};
use qhca_regs::{Ctxt, Instant, Port};

/// A packet that has found its context.
pub(super) struct Arrival<'a> {
    pub(super) port: Port,
    pub(super) ctxt: Ctxt,
    pub(super) route: Route,
    pub(super) bytes: &'a [u8],
    pub(super) lrh: Lrh,
    pub(super) meta: Meta,
}

/// What became of a packet.
pub(super) enum Outcome {
    /// Received or dropped.
    Gone,
    /// Its context takes nothing now and must not drop.
    Stalls,
}

/// Where a packet's payload goes.
struct Landing {
    rhf: Rhf,
    iova: Option<u64>,
    room_bytes: usize,
}

impl Landing {
    fn nowhere(rhf: Rhf) -> Option<Self> {
        Some(Self { rhf, iova: None, room_bytes: 0 })
    }
}

impl Chip {
    /// Writes the packet to its context, or finds that it cannot.
    pub(super) fn place(&mut self, arrival: &Arrival, now: Instant, host: &mut impl Host) -> Outcome {
        let (ctxt, route) = (arrival.ctxt, arrival.route);
        let overwrites = self.config.wrong.has(WrongChip::HeaderFullOverwrites);
        if self.recv.queues[ctxt.index()].is_full(self.recv.geometry) && !overwrites {
            if self.recv.dont_drop >> ctxt.index() & 1 != 0 {
                return Outcome::Stalls;
            }
            self.overflow(arrival, Drop::HeaderFull, ErrBits::RCV_HDR_FULL_ERR, now, host);
            return Outcome::Gone;
        }
        let (header, payload) = arrival.bytes.split_at(route.header_bytes);
        let rhf = Rhf::default()
            .with_len_dwords(arrival.lrh.len_dwords)
            .with_seq(self.recv.queues[ctxt.index()].seq.value());
        let Some(mut landing) = self.land(arrival, rhf, payload.is_empty(), now, host) else {
            return Outcome::Gone;
        };
        if !arrival.meta.icrc_ok && !self.config.wrong.has(WrongChip::IcrcFlagLost) {
            landing.rhf = add_error(landing.rhf, RhfErrors::ICRC);
        }
        self.write_packet(arrival, header, payload, landing, host);
        if let Kind::Kd { urgent: true, .. } = route.kind {
            self.raise(IntBits::rcv_urg(ctxt), now, host);
        }
        self.check_avail(ctxt, now, host);
        Outcome::Gone
    }

    /// Counts a packet that its context has no room for.
    fn overflow(&mut self, arrival: &Arrival, why: Drop, error: ErrBits, now: Instant, host: &mut impl Host) {
        self.account.overflow(arrival.port, arrival.ctxt, why);
        self.counters.bump_ctxt(counter::RX_HDR_EGR_OVFL_CNT, arrival.ctxt);
        self.raise_err(error, now, host);
    }

    /// Finds the payload's place and what the entry will say; `None` if there will be no entry.
    fn land(
        &mut self,
        arrival: &Arrival,
        rhf: Rhf,
        empty: bool,
        now: Instant,
        host: &mut impl Host,
    ) -> Option<Landing> {
        match arrival.route.kind {
            Kind::BadKd => {
                self.raise_port_err(arrival.port, PortErrBits::RCV_HDR_ERR, now, host);
                Landing::nowhere(add_error(rhf.with_kind(PacketType::Error), RhfErrors::KHDR))
            }
            Kind::Kd { tid: KdTid::Tid(tid), offset_dwords, .. } => {
                let rhf = rhf.with_kind(PacketType::Expected);
                let landing = self.land_expected(arrival, tid, offset_dwords, rhf);
                if landing.iova.is_none() {
                    self.raise_port_err(arrival.port, PortErrBits::RCV_BAD_TID_ERR, now, host);
                }
                Some(landing)
            }
            Kind::Kd { .. } if empty => Landing::nowhere(rhf.with_kind(PacketType::Eager)),
            Kind::Plain if empty => Landing::nowhere(rhf.with_kind(PacketType::Ib)),
            Kind::Kd { .. } => self.land_eager(arrival, rhf.with_kind(PacketType::Eager), now, host),
            Kind::Plain => self.land_eager(arrival, rhf.with_kind(PacketType::Ib), now, host),
        }
    }

    fn land_eager(
        &mut self,
        arrival: &Arrival,
        rhf: Rhf,
        now: Instant,
        host: &mut impl Host,
    ) -> Option<Landing> {
        let skip = self.skip_now();
        let eager = &mut self.recv.eager[arrival.ctxt.index()];
        for _ in 0..skip {
            if !eager.is_full() {
                eager.step();
            }
        }
        let heads_count = !self.config.wrong.has(WrongChip::EagerHeadIgnored);
        let full = eager.is_full() && (heads_count || eager.count == 0);
        let index = eager.tail;
        let shown = index + u32::from(self.config.wrong.has(WrongChip::EagerIndexOffByOne));
        let rhf = rhf.with_egr_index(shown as u16);
        if full {
            self.overflow(arrival, Drop::EagerFull, ErrBits::RCV_EGR_FULL_ERR, now, host);
            let used = match self.config.habits.eager_full {
                EagerFull::Drop => return None,
                EagerFull::Report => false,
                EagerFull::ReportAsUsed => true,
            };
            return Landing::nowhere(add_error(rhf.with_uses_egr_buf(used), RhfErrors::TID));
        }
        let entry = self.store.get(area::RCV_EGR_ARRAY.index(eager.base + index).offset());
        eager.step();
        if let Slot::Buffer(buffer) = Slot::parse(area::RcvArrayEntry(entry)) {
            let (iova, room_bytes) = (Some(buffer.iova()), buffer.size().bytes());
            return Some(Landing { rhf: rhf.with_uses_egr_buf(true), iova, room_bytes });
        }
        self.account.drop(arrival.port, Drop::EagerInvalid);
        self.counters.bump(counter::RX_TID_VALID_ERR_CNT, 1);
        Landing::nowhere(add_error(rhf, RhfErrors::TID))
    }

    /// An expected packet without flow checks: its payload goes into the page of its TID, if that is valid (F-346).
    fn land_expected(&mut self, arrival: &Arrival, tid: u16, offset_dwords: u16, rhf: Rhf) -> Landing {
        let array = area::RCV_TID_ARRAY.ctxt(arrival.ctxt);
        let entry = match u32::from(tid) {
            tid if tid < array.len() => self.store.get(array.index(tid).offset()),
            _ => 0,
        };
        let offset = 4 * usize::from(offset_dwords);
        match Slot::parse(area::RcvArrayEntry(entry)) {
            Slot::Buffer(buffer) if offset < buffer.size().bytes() => {
                let iova = Some(buffer.iova() + offset as u64);
                Landing { rhf, iova, room_bytes: buffer.size().bytes() - offset }
            }
            _ => {
                self.account.drop(arrival.port, Drop::InvalidTid);
                self.counters.bump(counter::RX_TID_VALID_ERR_CNT, 1);
                Landing { rhf: add_error(rhf, RhfErrors::TID), iova: None, room_bytes: 0 }
            }
        }
    }

    /// How many eager buffers the chip passes over this time (F-331).
    fn skip_now(&mut self) -> u32 {
        const MOST: u32 = 3;
        match self.config.habits.skip_eager_every {
            0 => 0,
            every => {
                let draw = self.draw();
                if draw.is_multiple_of(u64::from(every)) { 1 + (draw >> 32) as u32 % MOST } else { 0 }
            }
        }
    }

    /// Payload, header, RHF, tail: in this order, so that whoever sees the RHF finds the rest in place.
    fn write_packet(
        &mut self,
        arrival: &Arrival,
        header: &[u8],
        payload: &[u8],
        landing: Landing,
        host: &mut impl Host,
    ) {
        let (port, mut rhf) = (arrival.port, landing.rhf);
        let mut refused = 0;
        if let Some(iova) = landing.iova {
            let fits = &payload[..payload.len().min(landing.room_bytes)];
            if fits.len() < payload.len() {
                self.counters.bump_port(counter::RX_LEN_TRUNCATE_CNT, port, 1);
                rhf = add_error(rhf, RhfErrors::LEN);
            }
            let shift = 4 * u64::from(self.config.wrong.has(WrongChip::PayloadShifted));
            refused += u64::from(host.dma_write(iova + shift, fits).is_err());
        }
        rhf = self.write_entry(arrival.ctxt, header, rhf, &mut refused, host);
        self.account.dma_refused += refused;
        if refused > 0 {
            self.account.drop(port, Drop::DmaRefused);
        } else if rhf.is_good() {
            self.account.received[port.index()] += 1;
        }
    }

    /// Writes the entry at the tail and steps past it; returns the RHF as written.
    fn write_entry(
        &mut self,
        ctxt: Ctxt,
        header: &[u8],
        rhf: Rhf,
        refused: &mut u64,
        host: &mut impl Host,
    ) -> Rhf {
        let geometry = self.recv.geometry;
        let room_dwords = geometry.entry_dwords.saturating_sub(RHF_DWORDS);
        let header = &header[..header.len().min(4 * room_dwords as usize)];
        let start_dwords = room_dwords - (header.len() / 4) as u32;
        let rhf = rhf.with_hdrq_offset(start_dwords as u16);
        let queue = &mut self.recv.queues[ctxt.index()];
        let entry = queue.iova + 4 * u64::from(queue.tail);
        let at = |dwords: u32| entry + 4 * u64::from(dwords);
        *refused += u64::from(host.dma_write(at(start_dwords), header).is_err());
        let place = at(room_dwords);
        *refused += u64::from(match place % 8 {
            0 => host.dma_publish(place, rhf.0).is_err(),
            _ => host.dma_write(place, &rhf.build()).is_err(),
        });
        let wrong = self.config.wrong;
        queue.step(geometry, !wrong.has(WrongChip::TailDoesNotWrap), wrong.has(WrongChip::SequenceSkips));
        if self.recv.tail_updates && queue.tail_iova != 0 {
            let tail = u64::from(queue.tail);
            *refused += u64::from(host.dma_write(queue.tail_iova, &tail.to_le_bytes()).is_err());
        }
        rhf
    }
}

fn add_error(rhf: Rhf, error: RhfErrors) -> Rhf {
    rhf.with_errors(rhf.errors() | error)
}
