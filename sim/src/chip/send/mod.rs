//! Sending: from a full send buffer through checks and credits to the wire.
//!
//! ```text
//!   software fills a buffer -> complete -> checks -> queue of its lane -> credits, link, SendEnable -> wire
//!            (buffer)                      (check)    one a lane a port    VL15 first, then (arbiter)   free (avail)
//! ```
//!
//! VL15 goes out first, without credits, once the link has reached INIT; data lanes while it is ACTIVE.
//! A packet that the link is not up for is dropped with an error and its buffer freed (F-364).

mod arbiter;
mod avail;
mod buffer;
mod check;

pub(super) use buffer::{END, START};

use super::account::Drop;
use super::interrupt::send_done;
use super::recv::credits_of;
use super::wrong::WrongChip;
use super::{Chip, Host, Meta, Packet};
use arbiter::{Arbiter, LANES};
use avail::Avail;
use buffer::{Buffers, Filled, LaunchRule, locate};
use qhca_regs::layout::Pbc;
use qhca_regs::map::{counter, device, port};
use qhca_regs::status::{ErrBits, PortErrBits};
use qhca_regs::{Buffer, Duration, Instant, Port};
use std::collections::VecDeque;

const VL15: u8 = 15;
/// One tick of a PBC's static rate count: a qword at 40 Gb/s (F-365).
const RATE_TICK: Duration = Duration::from_nanos(2);

/// One port's side of sending.
struct PortSender {
    enabled: bool,
    lanes: [VecDeque<Buffer>; LANES],
    vl15: VecDeque<Buffer>,
    /// Packets in all queues.
    queued: usize,
    next_lane: usize,
    arbiter: Arbiter,
    /// When the line, or a packet's static rate, lets the next one start.
    free_at: Instant,
    /// Whether a packet waits for that and for nothing else.
    waits: bool,
    /// The buffer whose packet is on the line.
    on_line: Option<Buffer>,
}

impl PortSender {
    /// Whether something will happen at `free_at`.
    fn is_timed(&self) -> bool {
        self.on_line.is_some() || self.waits
    }
}

/// See the chapter's head.
pub(super) struct Sender {
    buffers: Buffers,
    avail: Avail,
    ports: [PortSender; 2],
    /// Whether packets wait for the special trigger.
    special: bool,
}

impl Sender {
    pub(super) fn new() -> Self {
        let port = |_| PortSender {
            enabled: false,
            lanes: Default::default(),
            vl15: VecDeque::new(),
            queued: 0,
            next_lane: 0,
            arbiter: Arbiter::default(),
            free_at: Instant::ZERO,
            waits: false,
            on_line: None,
        };
        Self { buffers: Buffers::new(), avail: Avail::new(), ports: Port::ALL.map(port), special: false }
    }

    /// When the line of a port becomes free with something waiting for that.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.ports.iter().filter(|port| port.is_timed()).map(|port| port.free_at).min()
    }

    /// Packets that wait on `port`.
    pub(super) fn queued(&self, port: Port) -> usize {
        self.ports[port.index()].queued
    }

    /// Whether no packet waits on `port`.
    pub(super) fn is_idle(&self, port: Port) -> bool {
        let sender = &self.ports[port.index()];
        sender.queued == 0 && sender.on_line.is_none()
    }
}

impl Chip {
    /// Software writes `dwords` to the send buffers, from byte `offset` of BAR 0 on.
    pub(super) fn fill_buffer(&mut self, offset: u32, dwords: &[u32], now: Instant, host: &mut impl Host) {
        let Some((buffer, dword)) = locate(offset) else { return };
        if dwords.is_empty() {
            return;
        }
        if self.frozen {
            return self.refuse_dwords(buffer, ErrBits::SEND_ARM_LAUNCH_ERR, now, host);
        }
        if self.send.special && self.trigger(buffer, dword, dwords, now, host) {
            return;
        }
        if self.send.buffers.is_taken_by(buffer, dword) {
            let toggles = !self.config.wrong.has(WrongChip::AvailCheckStuck);
            self.send.avail.take(buffer, toggles);
        }
        let rule = match self.send.special {
            true => LaunchRule::Trigger,
            false => LaunchRule::Count { early: u16::from(self.config.wrong.has(WrongChip::LaunchesEarly)) },
        };
        match self.send.buffers.fill(buffer, dword, dwords, rule) {
            Filled::Partly => {}
            Filled::Complete => self.launch(buffer, now, host),
            Filled::Fault => self.refuse_dwords(buffer, ErrBits::SEND_ARM_LAUNCH_ERR, now, host),
        }
    }

    /// Whether `dwords` bring the special trigger of `buffer`, which launches what is complete (F-367).
    fn trigger(
        &mut self,
        buffer: Buffer,
        dword: usize,
        dwords: &[u32],
        now: Instant,
        host: &mut impl Host,
    ) -> bool {
        let place = buffer::trigger_dword(buffer).checked_sub(dword);
        let Some(&value) = place.and_then(|place| dwords.get(place)) else { return false };
        match value == buffer::TRIGGER && self.send.buffers.trigger(buffer) {
            true => self.launch(buffer, now, host),
            false => self.refuse_dwords(buffer, ErrBits::SEND_SPECIAL_TRIGGER_ERR, now, host),
        }
        true
    }

    /// Software has written to `buffer` what it must not.
    fn refuse_dwords(&mut self, buffer: Buffer, error: ErrBits, now: Instant, host: &mut impl Host) {
        self.mark_buffer(buffer);
        self.raise_err(error, now, host);
    }

    /// Sets the bit of `buffer` in `SendBufErr`.
    fn mark_buffer(&mut self, buffer: Buffer) {
        let offset = device::SEND_BUF_ERR.index((buffer.index() / 64) as u32).offset();
        let word = self.store.get(offset) | 1 << (buffer.index() % 64);
        self.store.set(offset, word);
    }

    pub(super) fn launch(&mut self, buffer: Buffer, now: Instant, host: &mut impl Host) {
        let pbc = self.send.buffers.pbc(buffer);
        let port = self.port_of(pbc);
        if let Err(refusal) = self.check_packet(buffer, pbc, port) {
            self.account.drop(port, Drop::SendRefused);
            self.mark_buffer(buffer);
            if let Some(counter) = refusal.counter {
                self.counters.bump_port(counter, port, 1);
            }
            if !refusal.symptom.is_empty() {
                let symptom = port::SEND_HDR_ERR_SYMPTOM.port(port).offset();
                self.store.set(symptom, self.store.get(symptom) | refusal.symptom.bits());
            }
            self.raise_port_err(port, refusal.port, now, host);
            self.raise_err(refusal.device, now, host);
            return;
        }
        let sender = &mut self.send.ports[port.index()];
        match pbc.vl15() {
            true => sender.vl15.push_back(buffer),
            false => sender.lanes[usize::from(pbc.vl())].push_back(buffer),
        }
        sender.queued += 1;
        self.pump(port, now, host);
    }

    /// Whether nothing is in `buffer`, so that a send DMA engine may fill it.
    pub(super) fn is_buffer_free(&self, buffer: Buffer) -> bool {
        !self.send.avail.is_busy(buffer)
    }

    /// A send DMA engine takes `buffer`: software's writes to it are arm-launch errors from now on.
    pub(super) fn claim_buffer(&mut self, buffer: Buffer) {
        self.send.buffers.claim(buffer);
        let toggles = !self.config.wrong.has(WrongChip::AvailCheckStuck);
        self.send.avail.take(buffer, toggles);
    }

    /// A send DMA engine puts a whole packet into `buffer`, which it has claimed; returns what `body` replaces.
    pub(super) fn load_buffer(&mut self, buffer: Buffer, pbc: Pbc, body: Vec<u8>) -> Vec<u8> {
        self.send.buffers.load(buffer, pbc, body)
    }

    /// A send DMA engine gives up on `buffer`.
    pub(super) fn release_buffer(&mut self, buffer: Buffer, now: Instant, host: &mut impl Host) {
        self.send.buffers.reset(buffer);
        self.free_buffer(buffer, now, host);
    }

    fn port_of(&self, pbc: Pbc) -> Port {
        if self.config.wrong.has(WrongChip::PbcPortIgnored) { Port::P0 } else { pbc.port() }
    }

    /// Puts on the wire what may go.
    pub(super) fn pump(&mut self, port: Port, now: Instant, host: &mut impl Host) {
        self.send.ports[port.index()].waits = false;
        if self.frozen {
            return;
        }
        while self.send.ports[port.index()].queued > 0 {
            let sender = &mut self.send.ports[port.index()];
            if !sender.enabled || sender.on_line.is_some() {
                return;
            }
            if sender.free_at > now {
                sender.waits = true;
                return;
            }
            let Some(buffer) = self.choose(port) else { return };
            self.send.ports[port.index()].queued -= 1;
            let pbc = self.send.buffers.pbc(buffer);
            if self.links[port.index()].sends(pbc.vl15()) {
                self.transmit(port, buffer, pbc, now, host);
            } else {
                self.drop_launched(port, buffer, pbc, now, host);
            }
        }
    }

    /// Takes the next buffer that may go from the queues: VL15, then the lane whose turn it is, as credits allow.
    fn choose(&mut self, port: Port) -> Option<Buffer> {
        let sender = &mut self.send.ports[port.index()];
        if let Some(buffer) = sender.vl15.pop_front() {
            return Some(buffer);
        }
        let arbitrates = sender.arbiter.enabled && !self.config.wrong.has(WrongChip::VlArbiterIgnored);
        let lane = match arbitrates && self.links[port.index()].sends(false) {
            true => self.arbitrate(port),
            false => (0..LANES)
                .map(|step| (self.send.ports[port.index()].next_lane + step) % LANES)
                .find(|&lane| self.units_ready(port, lane).is_some()),
        };
        let Some(lane) = lane else {
            self.counters.bump_port(counter::TX_FLOW_STALL_CNT, port, 1);
            return None;
        };
        let sender = &mut self.send.ports[port.index()];
        sender.next_lane = (lane + 1) % LANES;
        sender.lanes[lane].pop_front()
    }

    /// The lane that the port's tables let send.
    fn arbitrate(&mut self, port: Port) -> Option<usize> {
        let ready = std::array::from_fn(|lane| self.units_ready(port, lane));
        self.send.ports[port.index()].arbiter.pick(&ready)
    }

    /// The credits that the first packet of `lane` needs, if it has one and they are there.
    #[inline]
    fn units_ready(&self, port: Port, lane: usize) -> Option<usize> {
        let &buffer = self.send.ports[port.index()].lanes[lane].front()?;
        let needs = credits_of(self.send.buffers.packet(buffer).len());
        let link = &self.links[port.index()];
        // A looped port has no peer that could tell it credits, and a link that is down needs none to drop.
        let counts = link.sends(false) && !link.is_looped();
        (!counts || self.credits[port.index()].allow(lane, needs)).then_some(needs)
    }

    /// The tables of VL arbitration, by their registers' places in port 0's page.
    pub(super) fn write_arbitration(&mut self, port: Port, place: u32, value: u64) {
        const LOW: u32 = port::LOW_PRIORITY.port(Port::P0).index(0).offset();
        const HIGH: u32 = port::HIGH_PRIORITY.port(Port::P0).index(0).offset();
        let arbiter = &mut self.send.ports[port.index()].arbiter;
        match place {
            HIGH.. => arbiter.set_high(((place - HIGH) / 8) as usize, port::HighPriority(value)),
            LOW.. => arbiter.set_low(((place - LOW) / 8) as usize, port::LowPriority(value)),
            _ => arbiter.set_limit(port::HighPriorityLimit(value)),
        }
    }

    fn transmit(&mut self, port: Port, buffer: Buffer, pbc: Pbc, now: Instant, host: &mut impl Host) {
        let fresh = self.pool.take();
        let bytes = self.send.buffers.take_packet(buffer, fresh);
        let vl = if pbc.vl15() { VL15 } else { pbc.vl() };
        if !pbc.vl15() {
            self.credits[port.index()].spend(usize::from(vl), credits_of(bytes.len()));
        }
        self.counters.bump_port(counter::TX_DATA_PKT_CNT, port, 1);
        self.counters.bump_port(counter::TX_DWORD_CNT, port, u64::from(pbc.len_dwords()));
        self.account.sent[port.index()] += 1;
        let meta = Meta { ends_bad: pbc.test_ebp(), ..Meta::GOOD };
        let packet = Packet { bytes, vl, sent_at: now, port, meta };
        if self.links[port.index()].is_looped() {
            self.looped.push_back(packet);
        } else {
            self.outbox[port.index()].push_back(packet);
        }
        let on_line = match self.config.timing.pace_line {
            true => self.links[port.index()].time_of(pbc.len_dwords()),
            false => Duration::ZERO,
        };
        let pause = RATE_TICK.times(u64::from(pbc.static_rate()));
        let sender = &mut self.send.ports[port.index()];
        sender.free_at = now + on_line + pause;
        if on_line == Duration::ZERO {
            self.finish(port, buffer, pbc, now, host);
        } else {
            sender.on_line = Some(buffer);
        }
    }

    /// The packet of `buffer` has left.
    fn finish(&mut self, port: Port, buffer: Buffer, pbc: Pbc, now: Instant, host: &mut impl Host) {
        self.send.buffers.reset(buffer);
        self.free_buffer(buffer, now, host);
        if pbc.intr() {
            self.raise(send_done(port), now, host);
        }
    }

    /// The link is not up for the packet of `buffer`.
    fn drop_launched(&mut self, port: Port, buffer: Buffer, pbc: Pbc, now: Instant, host: &mut impl Host) {
        let error = match pbc.vl15() {
            true => PortErrBits::SEND_DROPPED_SMP_PKT_ERR,
            false => PortErrBits::SEND_DROPPED_DATA_PKT_ERR,
        };
        self.account.drop(port, Drop::SendLinkDown);
        self.counters.bump_port(counter::TX_DROPPED_PKT_CNT, port, 1);
        self.mark_buffer(buffer);
        self.send.buffers.reset(buffer);
        self.free_buffer(buffer, now, host);
        self.raise_port_err(port, error, now, host);
    }

    /// Lets packets leave the line and the next ones start: when the line became free, not when somebody looked.
    pub(super) fn advance_send(&mut self, now: Instant, host: &mut impl Host) {
        for port in Port::ALL {
            loop {
                let sender = &mut self.send.ports[port.index()];
                let at = sender.free_at;
                if !sender.is_timed() || at > now {
                    break;
                }
                if let Some(buffer) = sender.on_line.take() {
                    let pbc = self.send.buffers.pbc(buffer);
                    self.finish(port, buffer, pbc, at, host);
                }
                self.pump(port, at, host);
                if self.sdma.wants_turn() {
                    self.turn_engines(at, host);
                }
            }
        }
    }

    /// `SendCtrl`: the avail image, and the disarm command.
    pub(super) fn write_send_ctrl(&mut self, value: u64, now: Instant, host: &mut impl Host) {
        let control = device::SendCtrl(value);
        if control.disarm()
            && let Some(buffer) = Buffer::new(usize::from(control.disarm_send_buf()))
        {
            self.disarm(buffer, now, host);
        }
        let ignored = self.config.wrong.has(WrongChip::SpecialTriggerIgnored);
        self.send.special = control.special_trigger_en() && !ignored;
        self.control_avail(control, now, host);
    }

    /// Empties `buffer` as if its packet had been sent.
    fn disarm(&mut self, buffer: Buffer, now: Instant, host: &mut impl Host) {
        if self.config.wrong.has(WrongChip::DisarmIgnored) || self.sdma.fills(buffer) {
            return;
        }
        for port in Port::ALL {
            let sender = &mut self.send.ports[port.index()];
            if sender.on_line == Some(buffer) {
                return; // already on the wire: it ends as sent
            }
            let before = sender.queued;
            let keep = |queued: &Buffer| *queued != buffer;
            sender.vl15.retain(keep);
            sender.lanes.iter_mut().for_each(|lane| lane.retain(keep));
            sender.queued = sender.vl15.len() + sender.lanes.iter().map(VecDeque::len).sum::<usize>();
            if sender.queued < before {
                self.account.drop(port, Drop::SendCancelled);
            }
        }
        self.send.buffers.reset(buffer);
        if self.send.avail.is_busy(buffer) {
            self.free_buffer(buffer, now, host);
        }
    }

    /// `SendCtrl_p`: may the port send, and must it empty its queues.
    pub(super) fn write_port_send_ctrl(
        &mut self,
        port: Port,
        value: u64,
        now: Instant,
        host: &mut impl Host,
    ) {
        let control = port::SendCtrl(value);
        if control.txe_abort_ibc() || control.txe_drain_la_fifo() || control.txe_drain_rm_fifo() {
            self.cancel_queued(port, now, host);
        }
        self.control_engine(port, control, now, host);
        let sender = &mut self.send.ports[port.index()];
        sender.enabled = control.send_enable();
        sender.arbiter.enabled = control.ibvl_arbiter_en();
        self.pump(port, now, host);
    }

    /// Discards what waits to be sent, freeing its buffers (F-366).
    fn cancel_queued(&mut self, port: Port, now: Instant, host: &mut impl Host) {
        while let Some(buffer) = self.next_queued(port) {
            self.account.drop(port, Drop::SendCancelled);
            self.send.buffers.reset(buffer);
            self.free_buffer(buffer, now, host);
        }
    }

    fn next_queued(&mut self, port: Port) -> Option<Buffer> {
        let sender = &mut self.send.ports[port.index()];
        let buffer =
            sender.vl15.pop_front().or_else(|| sender.lanes.iter_mut().find_map(VecDeque::pop_front))?;
        sender.queued -= 1;
        Some(buffer)
    }
}

#[cfg(test)]
mod tests;
