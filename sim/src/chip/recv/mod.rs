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

mod admit;
mod eager;
mod expected;
mod flow;
mod place;
mod queue;
mod registers;
mod steer;

pub(super) use registers::USER_START;
pub(super) use steer::{Bth, Lrh, Steering};

use super::account::Drop;
use super::wrong::WrongChip;
use super::{Chip, Host, Meta};
use eager::{Eager, Partition};
use flow::Flows;
use place::{Arrival, Outcome};
use qhca_regs::map::counter;
use qhca_regs::status::IntBits;
use qhca_regs::{Ctxt, Instant, Port};
use queue::{Due, Geometry, Queue};
use std::collections::VecDeque;
use steer::Rules;

/// Bytes of one credit.
pub(super) const CREDIT_BYTES: usize = 64;
/// The internal receive buffer of the chip, in credits, shared by its ports (§5.9).
const INTERNAL_CREDITS: usize = 1024;
const LANES: usize = 8;
const VL15: u8 = 15;

/// One port's side of receiving.
pub(super) struct PortReceiver {
    enabled: bool,
    pub(super) steering: Steering,
    /// Packets that wait for room in a queue, oldest first.
    held: VecDeque<(Vec<u8>, Meta)>,
    held_credits: usize,
    /// The same, each lane.
    held_by_lane: [usize; LANES],
}

/// See the chapter's head.
pub(super) struct Receiver {
    queues: [Queue; Ctxt::COUNT],
    eager: [Eager; Ctxt::COUNT],
    flows: Flows,
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

impl Receiver {
    pub(super) fn new(single_port: bool) -> Self {
        let port = |port| PortReceiver {
            enabled: false,
            steering: Steering::new(port),
            held: VecDeque::new(),
            held_credits: 0,
            held_by_lane: [0; LANES],
        };
        Self {
            queues: [Queue::new(); Ctxt::COUNT],
            eager: [Eager::default(); Ctxt::COUNT],
            flows: Flows::new(),
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

    pub(super) fn is_single_port(&self) -> bool {
        self.single_port
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
    /// Packets that wait.
    pub(super) fn held_packets(&self) -> usize {
        self.held.len()
    }

    /// Credits that waiting packets of `lane` occupy.
    #[inline]
    pub(super) fn held_credits_of(&self, lane: usize) -> usize {
        self.held_by_lane[lane % LANES]
    }

    /// A packet has begun or ceased to wait.
    fn count_held(&mut self, bytes: &[u8], waits: bool) {
        let needs = credits_of(bytes.len());
        let count = |held: &mut usize| *held = if waits { *held + needs } else { *held - needs };
        count(&mut self.held_credits);
        let lane = bytes.first().map_or(0, |byte| usize::from(byte >> 4));
        if let Some(held) = self.held_by_lane.get_mut(lane) {
            count(held);
        }
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
        if self.frozen {
            return self.drop_frozen(port);
        }
        if let Some(lane) = bytes.first().map(|byte| usize::from(byte >> 4)) {
            let leaks = self.config.wrong.has(WrongChip::CreditsLeak);
            self.credits[port.index()].arrive(lane, credits_of(bytes.len()), leaks);
        }
        let Some(headers) = self.admit(port, bytes, meta, now, host) else { return };
        let queued = !self.recv.ports[port.index()].held.is_empty();
        if queued || matches!(self.accept(port, bytes, headers, meta, now, host), Outcome::Stalls) {
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
        receiver.count_held(bytes, true);
        receiver.held.push_back((copy, meta));
    }

    /// Room may have come: takes in what waits, until something stalls again.
    pub(super) fn release_held(&mut self, now: Instant, host: &mut impl Host) {
        for port in Port::ALL {
            while let Some((bytes, meta)) = self.recv.ports[port.index()].held.pop_front() {
                let headers = Lrh::parse(&bytes).and_then(|lrh| Some((lrh, Bth::parse(&bytes, lrh)?)));
                if let Some(headers) = headers
                    && matches!(self.accept(port, &bytes, headers, meta, now, host), Outcome::Stalls)
                {
                    self.recv.ports[port.index()].held.push_front((bytes, meta));
                    break;
                }
                self.recv.ports[port.index()].count_held(&bytes, false);
                self.pool.give(bytes);
            }
        }
    }

    /// Takes an admitted packet to its context.
    fn accept(
        &mut self,
        port: Port,
        bytes: &[u8],
        (lrh, bth): (Lrh, Bth),
        meta: Meta,
        now: Instant,
        host: &mut impl Host,
    ) -> Outcome {
        let steering = &self.recv.ports[port.index()].steering;
        let rules = Rules {
            kd_dwords: self.recv.geometry.kd_dwords,
            xrc_class: self.recv.xrc_class,
            maps: !self.config.wrong.has(WrongChip::QpMapIgnored),
            sums: !self.config.wrong.has(WrongChip::KdChecksumUnchecked),
        };
        let route = steering.route(bytes, lrh, bth, rules);
        let ctxt = steer::existing(route.ctxt, self.recv.partition.ctxts)
            .filter(|ctxt| self.recv.queues[ctxt.index()].port == Some(port));
        let Some(ctxt) = ctxt else {
            self.counters.bump_port(counter::RX_QP_INVALID_CONTEXT_CNT, port, 1);
            self.account.drop(port, Drop::InvalidContext);
            return Outcome::Gone;
        };
        self.place(&Arrival { port, ctxt, route, bytes, lrh, meta }, now, host)
    }

    /// Raises `RcvAvail` of `ctxt` if it is due, or lets its timer run.
    pub(super) fn check_avail(&mut self, ctxt: Ctxt, now: Instant, host: &mut impl Host) {
        let bit = 1 << ctxt.index();
        if self.recv.int_avail & bit == 0 {
            // Stays armed for the day the bit is set again; until then no timer runs (F-334).
            self.recv.queues[ctxt.index()].timer = None;
            self.recv.timers &= !bit;
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

#[cfg(test)]
mod expected_tests;
#[cfg(test)]
mod tests;
