//! Where a packet's parts go in host memory, and what the entry says of it.
//!
//! A packet without payload uses no eager buffer; a payload larger than its buffer is cut, and an invalid array entry loses
//! it, each with an error in the entry (F-345). `RcvUrg` needs the INTR flag of a KD packet and nothing else (F-347).

use super::super::account::Drop;
use super::super::config::EagerFull;
use super::super::wrong::WrongChip;
use super::super::{Chip, Host, Meta};
use super::queue::RHF_DWORDS;
use super::steer::{Kd, Kind, Lrh, Route};
use qhca_regs::layout::{KdFlags, KdTid, PacketType, Rhf, RhfErrors, Slot};
use qhca_regs::map::{area, counter};
use qhca_regs::status::{ErrBits, IntBits, PortErrBits};
use qhca_regs::{Ctxt, Instant, Port, Psn};

/// A packet that has found its context.
pub(super) struct Arrival<'a> {
    pub(super) port: Port,
    pub(super) ctxt: Ctxt,
    pub(super) route: Route,
    pub(super) bytes: &'a [u8],
    pub(super) lrh: Lrh,
    pub(super) meta: Meta,
}

impl Arrival<'_> {
    /// What any entry of the packet says, wherever its payload goes.
    #[inline]
    pub(super) fn rhf(&self, chip: &Chip) -> Rhf {
        let rhf = Rhf::default()
            .with_len_dwords(self.lrh.len_dwords)
            .with_seq(chip.recv.queues[self.ctxt.index()].seq.value());
        match self.meta.icrc_ok || chip.config.wrong.has(WrongChip::IcrcFlagLost) {
            true => rhf,
            false => add_error(rhf, RhfErrors::ICRC),
        }
    }

    /// The packet's sequence number; 0 if it has no BTH right after the LRH.
    pub(super) fn psn(&self) -> Psn {
        const PSN_AT: usize = Lrh::LEN_BYTES + 8;
        let bytes = self.bytes.get(PSN_AT..).and_then(|rest| rest.first_chunk::<4>());
        Psn::new(bytes.map_or(0, |&bytes| u32::from_be_bytes(bytes) & 0xFF_FFFF))
    }
}

/// What became of a packet.
pub(super) enum Outcome {
    /// Received or dropped.
    Gone,
    /// Its context takes nothing now and must not drop.
    Stalls,
}

/// Where a packet's payload goes.
pub(super) struct Landing {
    pub(super) rhf: Rhf,
    pub(super) iova: Option<u64>,
    pub(super) room_bytes: usize,
}

impl Landing {
    pub(super) fn nowhere(rhf: Rhf) -> Self {
        Self { rhf, iova: None, room_bytes: 0 }
    }
}

impl Chip {
    /// Writes the packet to its context, or finds that it cannot.
    pub(super) fn place(&mut self, arrival: &Arrival, now: Instant, host: &mut impl Host) -> Outcome {
        let (ctxt, route) = (arrival.ctxt, arrival.route);
        if let Kind::Kd(kd @ Kd { tid: KdTid::Tid(tid), .. }) = route.kind {
            return self.place_expected(arrival, tid, kd, now, host);
        }
        if let Some(outcome) = self.refuse_if_full(arrival, now, host) {
            return outcome;
        }
        let (header, payload) = arrival.bytes.split_at(route.header_bytes);
        let rhf = arrival.rhf(self);
        let Some(landing) = self.land(arrival, rhf, payload.is_empty(), now, host) else {
            return Outcome::Gone;
        };
        self.write_packet(arrival, header, payload, landing, host);
        if let Kind::Kd(kd) = route.kind
            && kd.flags.contains(KdFlags::INTR)
        {
            self.raise(IntBits::rcv_urg(ctxt), now, host);
        }
        self.check_avail(ctxt, now, host);
        Outcome::Gone
    }

    /// Counts a packet that its context has no room for.
    pub(super) fn overflow(
        &mut self,
        arrival: &Arrival,
        why: Drop,
        error: ErrBits,
        now: Instant,
        host: &mut impl Host,
    ) {
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
                Some(Landing::nowhere(add_error(rhf.with_kind(PacketType::Error), RhfErrors::KHDR)))
            }
            Kind::Kd(_) if empty => Some(Landing::nowhere(rhf.with_kind(PacketType::Eager))),
            Kind::Plain if empty => Some(Landing::nowhere(rhf.with_kind(PacketType::Ib))),
            Kind::Kd(_) => self.land_eager(arrival, rhf.with_kind(PacketType::Eager), now, host),
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
            return Some(Landing::nowhere(add_error(rhf.with_uses_egr_buf(used), RhfErrors::TID)));
        }
        let entry = self.store.get(area::RCV_EGR_ARRAY.index(eager.base + index).offset());
        eager.step();
        if let Slot::Buffer(buffer) = Slot::parse(area::RcvArrayEntry(entry)) {
            let (iova, room_bytes) = (Some(buffer.iova()), buffer.size().bytes());
            return Some(Landing { rhf: rhf.with_uses_egr_buf(true), iova, room_bytes });
        }
        self.account.drop(arrival.port, Drop::EagerInvalid);
        self.counters.bump(counter::RX_TID_VALID_ERR_CNT, 1);
        Some(Landing::nowhere(add_error(rhf, RhfErrors::TID)))
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
    pub(super) fn write_packet(
        &mut self,
        arrival: &Arrival,
        header: &[u8],
        payload: &[u8],
        landing: Landing,
        host: &mut impl Host,
    ) {
        let port = arrival.port;
        let mut refused = 0;
        let rhf = self.write_payload(port, payload, &landing, &mut refused, host);
        let rhf = self.write_entry(arrival.ctxt, header, rhf, &mut refused, host);
        self.account.dma_refused += refused;
        if refused > 0 {
            self.account.drop(port, Drop::DmaRefused);
        } else if rhf.is_good() && !rhf.errors().intersects(RhfErrors::TF_SEQ | RhfErrors::TF_GEN) {
            self.account.received[port.index()] += 1;
        }
    }

    /// Writes as much of the payload as has room; returns what the entry will say.
    #[inline]
    pub(super) fn write_payload(
        &mut self,
        port: Port,
        payload: &[u8],
        landing: &Landing,
        refused: &mut u64,
        host: &mut impl Host,
    ) -> Rhf {
        let mut rhf = landing.rhf;
        if let Some(iova) = landing.iova {
            let fits = &payload[..payload.len().min(landing.room_bytes)];
            if fits.len() < payload.len() {
                self.counters.bump_port(counter::RX_LEN_TRUNCATE_CNT, port, 1);
                rhf = add_error(rhf, RhfErrors::LEN);
            }
            let shift = 4 * u64::from(self.config.wrong.has(WrongChip::PayloadShifted));
            *refused += u64::from(host.dma_write(iova + shift, fits).is_err());
        }
        rhf
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
        if self.recv.tail_updates && queue.tail_iova != 0 && !self.config.wrong.has(WrongChip::TailDmaMissing)
        {
            let tail = u64::from(queue.tail);
            *refused += u64::from(host.dma_write(queue.tail_iova, &tail.to_le_bytes()).is_err());
        }
        rhf
    }
}

pub(super) fn add_error(rhf: Rhf, error: RhfErrors) -> Rhf {
    rhf.with_errors(rhf.errors() | error)
}
