//! Receiving: from the wire through checks and steering to a header queue and an eager buffer.
//!
//! ```text
//!   cable -> link checks -> steer -> queue full? -> eager full? -> payload, header, RHF, tail -> interrupt
//!            VCRC, VL, ...  context   drop or hold   report, drop   in this order by DMA
//! ```
//!
//! A packet that fails a check is counted where it fails: in the register of its kind and in the account. A context
//! whose bit in `dontDropRHQFull` is set holds the port instead of dropping: packets wait, in order, in the chip's
//! internal buffer until the head moves (F-339).

mod eager;
mod queue;
mod registers;
mod steer;

pub(super) use registers::USER_START;
pub(super) use steer::{Bth, Lrh, Steering};

use super::account::Drop;
use super::config::EagerFull;
use super::wrong::WrongChip;
use super::{Chip, Host, Meta};
use eager::{Eager, Partition};
use qhca_regs::layout::{KdTid, PacketType, Rhf, RhfErrors, Slot};
use qhca_regs::map::{area, counter};
use qhca_regs::status::{ErrBits, IntBits, PortErrBits};
use qhca_regs::{Ctxt, Instant, Port};
use queue::{Due, Geometry, Queue, RHF_DWORDS};
use std::collections::VecDeque;
use steer::{Kind, Route};

/// Bytes of one credit.
pub(super) const CREDIT_BYTES: usize = 64;
/// The internal receive buffer of the chip, in credits, shared by its ports (§5.9).
const INTERNAL_CREDITS: usize = 1024;
const VL15: u8 = 15;
/// LRH, BTH and ICRC: nothing shorter is a packet.
const MIN_WIRE_DWORDS: u16 = 6;

/// One port's side of receiving.
pub(super) struct PortReceiver {
    enabled: bool,
    pub(super) steering: Steering,
    /// Packets that wait for room in a queue, oldest first.
    held: VecDeque<(Vec<u8>, Meta)>,
    held_credits: usize,
}

/// See the chapter's head.
pub(super) struct Receiver {
    queues: [Queue; Ctxt::COUNT],
    eager: [Eager; Ctxt::COUNT],
    ports: [PortReceiver; 2],
    geometry: Geometry,
    partition: Partition,
    single_port: bool,
    dont_drop: u32,
    int_avail: u32,
    tail_updates: bool,
    xrc_class: u8,
    /// Contexts whose timer runs.
    timers: u32,
}

/// What became of a packet.
enum Outcome {
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

impl Receiver {
    pub(super) fn new(single_port: bool) -> Self {
        let port = |port| PortReceiver {
            enabled: false,
            steering: Steering::new(port),
            held: VecDeque::new(),
            held_credits: 0,
        };
        Self {
            queues: [Queue::new(); Ctxt::COUNT],
            eager: [Eager::default(); Ctxt::COUNT],
            ports: Port::ALL.map(port),
            geometry: Geometry::default(),
            partition: Partition::from_code(0, single_port),
            single_port,
            dont_drop: 0,
            int_avail: 0,
            tail_updates: false,
            xrc_class: 0,
            timers: 0,
        }
    }

    pub(super) fn port(&self, port: Port) -> &PortReceiver {
        &self.ports[port.index()]
    }

    /// The next moment at which a context's timer runs out.
    pub(super) fn next_timer(&self) -> Option<Instant> {
        let mut running = self.timers;
        let mut next = None;
        while running != 0 {
            let at = self.queues[running.trailing_zeros() as usize].timer;
            running &= running - 1;
            next = match (next, at) {
                (Some(a), Some(b)) => Some(std::cmp::min(a, b)),
                (a, b) => a.or(b),
            };
        }
        next
    }
}

impl PortReceiver {
    /// Credits that waiting packets occupy.
    pub(super) fn held_credits(&self) -> usize {
        self.held_credits
    }
}

/// Credits that a packet of `bytes` (plus ICRC) takes.
pub(super) fn credits_of(bytes: usize) -> usize {
    (bytes + 4).div_ceil(CREDIT_BYTES)
}

impl Chip {
    /// A packet comes in from the cable, or from the port's own loopback.
    pub(super) fn receive(
        &mut self,
        port: Port,
        bytes: &[u8],
        meta: Meta,
        now: Instant,
        host: &mut impl Host,
    ) {
        if let Some(lane) = bytes.first().map(|byte| usize::from(byte >> 4)) {
            self.credits[port.index()].arrive(lane, credits_of(bytes.len()));
        }
        if !self.recv.ports[port.index()].held.is_empty() {
            return self.hold(port, bytes, meta);
        }
        if let Outcome::Stalls = self.accept(port, bytes, meta, now, host) {
            self.hold(port, bytes, meta);
        }
    }

    /// Keeps a packet in the internal buffer, if it fits.
    fn hold(&mut self, port: Port, bytes: &[u8], meta: Meta) {
        let room = if self.recv.single_port { INTERNAL_CREDITS } else { INTERNAL_CREDITS / 2 };
        let needs = credits_of(bytes.len());
        if self.recv.ports[port.index()].held_credits + needs > room {
            self.counters.bump_port(counter::RX_BUF_OVFL_CNT, port, 1);
            return self.account.drop(port, Drop::BufferOverflow);
        }
        let mut copy = self.pool.take();
        copy.clear();
        copy.extend_from_slice(bytes);
        let receiver = &mut self.recv.ports[port.index()];
        receiver.held_credits += needs;
        receiver.held.push_back((copy, meta));
    }

    /// Room may have come: takes in what waits, until something stalls again.
    pub(super) fn release_held(&mut self, now: Instant, host: &mut impl Host) {
        for port in Port::ALL {
            while let Some((bytes, meta)) = self.recv.ports[port.index()].held.pop_front() {
                if let Outcome::Stalls = self.accept(port, &bytes, meta, now, host) {
                    self.recv.ports[port.index()].held.push_front((bytes, meta));
                    break;
                }
                self.recv.ports[port.index()].held_credits -= credits_of(bytes.len());
                self.pool.give(bytes);
            }
        }
    }

    fn accept(
        &mut self,
        port: Port,
        bytes: &[u8],
        meta: Meta,
        now: Instant,
        host: &mut impl Host,
    ) -> Outcome {
        let (lrh, bth) = match self.pass_link(port, bytes, meta, now, host) {
            Ok(headers) => headers,
            Err(why) => {
                self.account.drop(port, why);
                return Outcome::Gone;
            }
        };
        let receiver = &self.recv.ports[port.index()];
        let mut steering = &receiver.steering;
        let unmapped;
        if self.config.wrong.has(WrongChip::QpMapIgnored) {
            unmapped = Steering { map_enabled: false, ..*steering };
            steering = &unmapped;
        }
        let route = steering.route(bytes, lrh, bth, self.recv.geometry.kd_dwords, self.recv.xrc_class);
        let ctxt = steer::existing(route.ctxt, self.recv.partition.ctxts)
            .filter(|ctxt| self.recv.queues[ctxt.index()].port == Some(port));
        let Some(ctxt) = ctxt else {
            self.count(counter::RX_QP_INVALID_CONTEXT_CNT, port);
            self.account.drop(port, Drop::InvalidContext);
            return Outcome::Gone;
        };
        self.place(port, ctxt, route, bytes, lrh, meta, now, host)
    }

    /// What the link layer checks before anybody asks where the packet goes.
    fn pass_link(
        &mut self,
        port: Port,
        bytes: &[u8],
        meta: Meta,
        now: Instant,
        host: &mut impl Host,
    ) -> Result<(Lrh, Bth), Drop> {
        let refuse = self.link_fault(port, bytes, meta);
        if let Err((why, error, register)) = refuse {
            if let Some(register) = register {
                self.count(register, port);
            }
            if !error.is_empty() {
                self.raise_port_err(port, error, now, host);
            }
            return Err(why);
        }
        let (lrh, bth) = refuse.map_err(|(why, ..)| why)?;
        self.counters.bump_port(counter::RX_DATA_PKT_CNT, port, 1);
        self.counters.bump_port(counter::RX_DWORD_CNT, port, u64::from(lrh.len_dwords));
        if !meta.icrc_ok {
            self.count(counter::RX_ICRC_ERR_CNT, port);
            self.raise_port_err(port, PortErrBits::RCV_ICRC_ERR, now, host);
        }
        Ok((lrh, bth))
    }

    #[expect(clippy::type_complexity, reason = "private: the three things that follow on one fault")]
    fn link_fault(
        &self,
        port: Port,
        bytes: &[u8],
        meta: Meta,
    ) -> Result<(Lrh, Bth), (Drop, PortErrBits, Option<qhca_regs::access::PortReg<u64, qhca_regs::Rw>>)> {
        let quiet = PortErrBits::empty();
        let link = &self.links[port.index()];
        let receiver = &self.recv.ports[port.index()];
        if meta.ends_bad {
            return Err((Drop::EndsBad, PortErrBits::RCV_EBP_ERR, Some(counter::RX_EBP_CNT)));
        }
        if !meta.vcrc_ok {
            return Err((Drop::Vcrc, PortErrBits::RCV_VCRC_ERR, Some(counter::RX_VCRC_ERR_CNT)));
        }
        let whole = Lrh::parse(bytes).filter(|_| bytes.len().is_multiple_of(4));
        let Some(lrh) = whole else {
            return Err((
                Drop::Format,
                PortErrBits::RCV_MIN_PKT_LEN_ERR,
                Some(counter::RX_MAX_MIN_LEN_ERR_CNT),
            ));
        };
        if !receiver.enabled || !link.takes(lrh.vl == VL15) {
            return Err((Drop::PortDown, quiet, Some(counter::RX_DROPPED_PKT_CNT)));
        }
        if lrh.version != 0 {
            return Err((Drop::Version, PortErrBits::RCV_BAD_VERSION_ERR, Some(counter::RX_VERSION_ERR_CNT)));
        }
        let wire_dwords = bytes.len() / 4 + 1;
        if usize::from(lrh.len_dwords) != wire_dwords {
            let longer = wire_dwords > usize::from(lrh.len_dwords);
            let error =
                if longer { PortErrBits::RCV_LONG_PKT_LEN_ERR } else { PortErrBits::RCV_SHORT_PKT_LEN_ERR };
            return Err((Drop::Length, error, Some(counter::RX_LEN_ERR_CNT)));
        }
        if lrh.len_dwords > link.max_dwords() {
            return Err((
                Drop::TooLong,
                PortErrBits::RCV_MAX_PKT_LEN_ERR,
                Some(counter::RX_MAX_MIN_LEN_ERR_CNT),
            ));
        }
        if lrh.len_dwords < MIN_WIRE_DWORDS {
            return Err((
                Drop::Format,
                PortErrBits::RCV_MIN_PKT_LEN_ERR,
                Some(counter::RX_MAX_MIN_LEN_ERR_CNT),
            ));
        }
        if lrh.vl != VL15 && lrh.vl >= link.lanes() {
            return Err((Drop::Vl, PortErrBits::RCV_UNSUPPORTED_VL_ERR, Some(counter::RX_VL_ERR_CNT)));
        }
        if link.filters_out(lrh.dlid) {
            return Err((Drop::DlidFilter, quiet, Some(counter::RX_DLID_FLTR_CNT)));
        }
        let Some(bth) = Bth::parse(bytes, lrh) else {
            return Err((Drop::Format, PortErrBits::RCV_FORMAT_ERR, None));
        };
        let checked = receiver.steering.pkeys_checked && lrh.vl != VL15;
        if checked
            && !receiver.steering.knows_pkey(bth.pkey)
            && !self.config.wrong.has(WrongChip::PkeyCheckOff)
        {
            return Err((Drop::Pkey, quiet, Some(counter::RX_P_KEY_MISMATCH_CNT)));
        }
        Ok((lrh, bth))
    }

    fn count(&mut self, register: qhca_regs::access::PortReg<u64, qhca_regs::Rw>, port: Port) {
        self.counters.bump_port(register, port, 1);
    }

    /// Writes the packet to its context, or finds that it cannot.
    #[expect(clippy::too_many_arguments, reason = "one packet on its way, each part known by now")]
    fn place(
        &mut self,
        port: Port,
        ctxt: Ctxt,
        route: Route,
        bytes: &[u8],
        lrh: Lrh,
        meta: Meta,
        now: Instant,
        host: &mut impl Host,
    ) -> Outcome {
        let overwrites = self.config.wrong.has(WrongChip::HeaderFullOverwrites);
        if self.recv.queues[ctxt.index()].is_full(self.recv.geometry) && !overwrites {
            if self.recv.dont_drop >> ctxt.index() & 1 != 0 {
                return Outcome::Stalls;
            }
            self.overflow(port, ctxt, Drop::HeaderFull, ErrBits::RCV_HDR_FULL_ERR, now, host);
            return Outcome::Gone;
        }
        let (header, payload) = bytes.split_at(route.header_bytes);
        let rhf = Rhf::default()
            .with_len_dwords(lrh.len_dwords)
            .with_seq(self.recv.queues[ctxt.index()].seq.value());
        let Some(mut landing) = self.land(port, ctxt, route, rhf, payload.len(), now, host) else {
            return Outcome::Gone;
        };
        if !meta.icrc_ok && !self.config.wrong.has(WrongChip::IcrcFlagLost) {
            landing.rhf = add_error(landing.rhf, RhfErrors::ICRC);
        }
        self.write_packet(port, ctxt, header, payload, landing, host);
        if let Kind::Kd { urgent: true, .. } = route.kind {
            self.raise(IntBits::rcv_urg(ctxt), now, host);
        }
        self.check_avail(ctxt, now, host);
        Outcome::Gone
    }

    /// Counts a packet that a context has no room for.
    fn overflow(
        &mut self,
        port: Port,
        ctxt: Ctxt,
        why: Drop,
        error: ErrBits,
        now: Instant,
        host: &mut impl Host,
    ) {
        self.account.overflow(port, ctxt, why);
        self.counters.bump_ctxt(counter::RX_HDR_EGR_OVFL_CNT, ctxt);
        self.raise_err(error, now, host);
    }

    /// Finds the payload's place and what the entry will say; `None` if there will be no entry.
    #[expect(clippy::too_many_arguments, reason = "one packet on its way, each part known by now")]
    fn land(
        &mut self,
        port: Port,
        ctxt: Ctxt,
        route: Route,
        rhf: Rhf,
        payload_bytes: usize,
        now: Instant,
        host: &mut impl Host,
    ) -> Option<Landing> {
        let nowhere = |rhf| Some(Landing { rhf, iova: None, room_bytes: 0 });
        match route.kind {
            Kind::BadKd => {
                self.raise_port_err(port, PortErrBits::RCV_HDR_ERR, now, host);
                nowhere(add_error(rhf.with_kind(PacketType::Error), RhfErrors::KHDR))
            }
            Kind::Kd { tid: KdTid::Tid(tid), offset_dwords, .. } => self.land_expected(
                port,
                ctxt,
                tid,
                offset_dwords,
                rhf.with_kind(PacketType::Expected),
                now,
                host,
            ),
            Kind::Kd { tid: KdTid::Eager, .. } if payload_bytes > 0 => {
                self.land_eager(port, ctxt, rhf.with_kind(PacketType::Eager), now, host)
            }
            Kind::Plain if payload_bytes > 0 => {
                self.land_eager(port, ctxt, rhf.with_kind(PacketType::Ib), now, host)
            }
            Kind::Kd { .. } => nowhere(rhf.with_kind(PacketType::Eager)),
            Kind::Plain => nowhere(rhf.with_kind(PacketType::Ib)),
        }
    }

    fn land_eager(
        &mut self,
        port: Port,
        ctxt: Ctxt,
        rhf: Rhf,
        now: Instant,
        host: &mut impl Host,
    ) -> Option<Landing> {
        let skip = self.skip_now();
        let eager = &mut self.recv.eager[ctxt.index()];
        (0..skip).for_each(|_| {
            if !eager.is_full() {
                eager.step()
            }
        });
        let full = eager.is_full() && !self.config.wrong.has(WrongChip::EagerHeadIgnored);
        let index = eager.tail;
        let shown = index + u32::from(self.config.wrong.has(WrongChip::EagerIndexOffByOne));
        let rhf = rhf.with_egr_index(shown as u16);
        if full {
            self.overflow(port, ctxt, Drop::EagerFull, ErrBits::RCV_EGR_FULL_ERR, now, host);
            let used = match self.config.habits.eager_full {
                EagerFull::Drop => return None,
                EagerFull::Report => false,
                EagerFull::ReportAsUsed => true,
            };
            let rhf = add_error(rhf.with_uses_egr_buf(used), RhfErrors::TID);
            return Some(Landing { rhf, iova: None, room_bytes: 0 });
        }
        let entry = self.store.get(area::RCV_EGR_ARRAY.index(eager.base + index).offset());
        eager.step();
        match Slot::parse(area::RcvArrayEntry(entry)) {
            Slot::Buffer(buffer) => Some(Landing {
                rhf: rhf.with_uses_egr_buf(true),
                iova: Some(buffer.iova()),
                room_bytes: buffer.size().bytes(),
            }),
            Slot::Empty | Slot::Reserved(_) => {
                self.account.drop(port, Drop::EagerInvalid);
                self.counters.bump(counter::RX_TID_VALID_ERR_CNT, 1);
                Some(Landing { rhf: add_error(rhf, RhfErrors::TID), iova: None, room_bytes: 0 })
            }
        }
    }

    /// An expected packet without flow checks: its payload goes into the page of its TID.
    #[expect(clippy::too_many_arguments, reason = "one packet on its way, each part known by now")]
    fn land_expected(
        &mut self,
        port: Port,
        ctxt: Ctxt,
        tid: u16,
        offset_dwords: u16,
        rhf: Rhf,
        now: Instant,
        host: &mut impl Host,
    ) -> Option<Landing> {
        let array = area::RCV_TID_ARRAY.ctxt(ctxt);
        let entry = match u32::from(tid) {
            tid if tid < array.len() => self.store.get(array.index(tid).offset()),
            _ => 0,
        };
        if let Slot::Buffer(buffer) = Slot::parse(area::RcvArrayEntry(entry)) {
            let offset = 4 * usize::from(offset_dwords);
            if offset < buffer.size().bytes() {
                let iova = Some(buffer.iova() + offset as u64);
                return Some(Landing { rhf, iova, room_bytes: buffer.size().bytes() - offset });
            }
        }
        self.account.drop(port, Drop::InvalidTid);
        self.counters.bump(counter::RX_TID_VALID_ERR_CNT, 1);
        self.raise_port_err(port, PortErrBits::RCV_BAD_TID_ERR, now, host);
        Some(Landing { rhf: add_error(rhf, RhfErrors::TID), iova: None, room_bytes: 0 })
    }

    /// How many eager buffers the chip passes over this time.
    fn skip_now(&mut self) -> u32 {
        match self.config.habits.skip_eager_every {
            0 => 0,
            every => {
                let draw = self.draw();
                if draw.is_multiple_of(u64::from(every)) { 1 + (draw >> 32) as u32 % 3 } else { 0 }
            }
        }
    }

    /// Payload, header, RHF, tail: in this order, so that whoever sees the RHF finds the rest in place.
    fn write_packet(
        &mut self,
        port: Port,
        ctxt: Ctxt,
        header: &[u8],
        payload: &[u8],
        landing: Landing,
        host: &mut impl Host,
    ) {
        let Landing { mut rhf, iova, room_bytes } = landing;
        let mut refused = 0;
        if let Some(iova) = iova {
            let fits = &payload[..payload.len().min(room_bytes)];
            if fits.len() < payload.len() {
                self.count(counter::RX_LEN_TRUNCATE_CNT, port);
                rhf = add_error(rhf, RhfErrors::LEN);
            }
            let shift = 4 * u64::from(self.config.wrong.has(WrongChip::PayloadShifted));
            refused += u64::from(host.dma_write(iova + shift, fits).is_err());
        }
        let geometry = self.recv.geometry;
        let room_dwords = geometry.entry_dwords - RHF_DWORDS;
        let header = &header[..header.len().min(4 * room_dwords as usize)];
        let start_dwords = room_dwords - (header.len() / 4) as u32;
        let rhf = rhf.with_hdrq_offset(start_dwords as u16);
        let queue = &mut self.recv.queues[ctxt.index()];
        let entry = queue.iova + 4 * u64::from(queue.tail);
        let at = |dwords: u32| entry + 4 * u64::from(dwords);
        refused += u64::from(host.dma_write(at(start_dwords), header).is_err());
        let place = at(room_dwords);
        refused += u64::from(match place % 8 {
            0 => host.dma_publish(place, rhf.0).is_err(),
            _ => host.dma_write(place, &rhf.build()).is_err(),
        });
        let wrong = self.config.wrong;
        queue.step(geometry, !wrong.has(WrongChip::TailDoesNotWrap), wrong.has(WrongChip::SequenceSkips));
        if self.recv.tail_updates && queue.tail_iova != 0 {
            let tail = u64::from(queue.tail);
            refused += u64::from(host.dma_write(queue.tail_iova, &tail.to_le_bytes()).is_err());
        }
        self.account.dma_refused += refused;
        if refused > 0 {
            self.account.drop(port, Drop::DmaRefused);
        } else if rhf.is_good() {
            self.account.received[port.index()] += 1;
        }
    }

    /// Raises `RcvAvail` of `ctxt` if it is due, or lets its timer run.
    pub(super) fn check_avail(&mut self, ctxt: Ctxt, now: Instant, host: &mut impl Host) {
        let bit = 1 << ctxt.index();
        if self.recv.int_avail & bit == 0 {
            return;
        }
        let queue = &mut self.recv.queues[ctxt.index()];
        let due = queue.check(now, self.config.timing.avail_timeout_unit);
        let runs = queue.timer.is_some();
        self.recv.timers = if runs { self.recv.timers | bit } else { self.recv.timers & !bit };
        if due == Due::Now {
            self.raise(IntBits::rcv_avail(ctxt), now, host);
        }
    }

    /// Fires the timers that have run out.
    pub(super) fn advance_receive(&mut self, now: Instant, host: &mut impl Host) {
        let mut running = self.recv.timers;
        while running != 0 {
            let index = running.trailing_zeros() as usize;
            running &= running - 1;
            if let Some(ctxt) = Ctxt::new(index) {
                self.check_avail(ctxt, now, host);
            }
        }
    }
}

fn add_error(rhf: Rhf, error: RhfErrors) -> Rhf {
    rhf.with_errors(rhf.errors() | error)
}

#[cfg(test)]
mod tests;
