//! A sender that repeats: RDMA writes of 1 MiB on a reliable connection, by the transport's own code on both ends.
//!
//! ```text
//!   requester ── a packet for each place on the wire ──▶ receiver's chip ── core ──▶ responder ──▶ memory
//!       ▲                                                                               │
//!       └───────────────── acks and NAKs, some microseconds later ──────────────────────┘
//! ```
//!
//! What the receiver drops comes again: the packet after the gap is answered by a NAK, and the requester goes back. It
//! stops when its window is full. So the window decides for how long a receiver that serves nothing but errors is kept
//! in its storm; stock rdmavt bounds it by the sequence numbers alone, since a WRITE needs no credit.
//!
//! One stall therefore costs `inline` what the window takes on the wire, whatever is measured: 43 ms for 65,536 packets,
//! 5.5 s for 2^23. A share of the goodput is a share of some time, and says little without it.
//!
//! Counted is what the responder takes: a repeat, or what follows a gap, is no goodput, and costs the core `refused_ns`. The requester's own machine is not part of the run: it sends whenever the wire has a place
//! and the transport something to send.

use std::collections::VecDeque;
use std::sync::Arc;

use qhca_driver::dma::DmaMemory;
use qhca_driver::rx::Packet;
use qhca_regs::{Instant, Lid};
use qhca_verbs::mem::Payload;
use qhca_verbs::wire::Service;
use qhca_verbs::{
    Access, Config, Connect, CqId, DropReason, Engine, MemoryRegion, Mtu, Outgoing, Port, QpInit, QpNumber,
    SendOp, SendWr, Wc, WcStatus, hand_over,
};

use super::packets::PAYLOAD_BYTES;
use super::run::StormError;

/// Bytes of a message.
const MESSAGE_BYTES: u32 = 1 << 20;
/// Messages under way, unless the window needs more of them.
const DEPTH: u32 = 128;
/// Packets of a message.
const MESSAGE_PACKETS: u32 = MESSAGE_BYTES / PAYLOAD_BYTES as u32;

/// One end.
struct End {
    engine: Engine,
    region: MemoryRegion,
    cq: CqId,
    qp: QpNumber,
}

/// Both ends of the connection, and the answers between them.
pub(super) struct Reliable {
    from: End,
    to: End,
    depth: u32,
    under_way: u32,
    packet: Vec<u8>,
    answers: VecDeque<Vec<u32>>,
    spare: Vec<Vec<u32>>,
    is_broken: bool,
}

impl End {
    fn open(lid: Lid, window: u32, depth: u32) -> Result<Self, StormError> {
        let config = Config { window_packets: window, ..Config::default() };
        let mut engine = Engine::new(config, Port { lid, mtu: Mtu::B2048, ..Port::default() });
        let pd = engine.allocate_pd();
        let memory = Arc::new(DmaMemory::new(MESSAGE_BYTES as usize).map_err(StormError::System)?);
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let region = engine.register(pd, &memory, 0, MESSAGE_BYTES as usize, access);
        let region = region.map_err(StormError::bring_up)?;
        let cq = engine.create_cq(2 * depth).map_err(StormError::bring_up)?;
        let init = QpInit { max_send: depth, max_send_sges: 1, ..QpInit::new(Service::Rc, pd, cq) };
        let qp = engine.create_qp(&init).map_err(StormError::bring_up)?;
        Ok(Self { engine, region, cq, qp })
    }

    fn connect(&mut self, lid: Lid, qp: QpNumber) -> Result<(), StormError> {
        let with = Connect::new(lid, qp, Mtu::B2048);
        self.engine.connect(self.qp, &with, Instant::ZERO).map_err(StormError::bring_up)
    }
}

impl Reliable {
    /// A connection from port `source` to port `dest`, with so many packets under way at most.
    pub(super) fn new(source: Lid, dest: Lid, window: u32) -> Result<Self, StormError> {
        let depth = DEPTH.max(window.div_ceil(MESSAGE_PACKETS)).min(qhca_verbs::QUEUE_DEPTH_MAX);
        let mut from = End::open(source, window, depth)?;
        let mut to = End::open(dest, window, 1)?;
        from.connect(dest, to.qp)?;
        to.connect(source, from.qp)?;
        Ok(Self {
            from,
            to,
            depth,
            under_way: 0,
            packet: Vec::new(),
            answers: VecDeque::new(),
            spare: Vec::new(),
            is_broken: false,
        })
    }

    /// The packet that takes the wire's place at `now`, from the LRH to the payload's end; none if the window is full.
    pub(super) fn next_packet(&mut self, now: Instant) -> Option<&[u8]> {
        self.post(now);
        let Self { from, packet, .. } = self;
        if from.engine.next_timeout().is_some_and(|due| due <= now) {
            from.engine.on_timeout(now);
        }
        packet.clear();
        let mut wire = |out: &Outgoing<'_>| {
            let words = out.header.iter().chain(out.payload);
            packet.extend(words.flat_map(|word| word.to_ne_bytes()));
            Ok(())
        };
        from.engine.transmit(&mut wire, now, 1);
        (!packet.is_empty()).then_some(&packet[..])
    }

    /// Keeps so many messages posted.
    fn post(&mut self, now: Instant) {
        let mut wcs = [Wc::EMPTY; 16];
        let count = self.from.engine.poll_cq(self.from.cq, &mut wcs);
        self.under_way -= count as u32;
        self.is_broken |= wcs[..count].iter().any(|wc| wc.status != WcStatus::Success);
        let list = [self.from.region.sge(0, MESSAGE_BYTES)];
        let op = SendOp::Write { addr: self.to.region.addr, rkey: self.to.region.rkey };
        while !self.is_broken && self.under_way < self.depth {
            let wr = SendWr::new(0, op, &list);
            // A queue pair that failed says so by its completions.
            self.is_broken |= self.from.engine.post_send(self.from.qp, &wr, now).is_err();
            self.under_way += 1;
        }
    }

    /// The responder takes a packet; how many bytes of it are new.
    pub(super) fn take(&mut self, packet: &Packet<'_>, now: Instant) -> usize {
        let refused = |engine: &Engine| {
            let counters = engine.counters();
            DropReason::ALL.iter().map(|reason| counters.dropped(*reason)).sum::<u64>()
        };
        let before = refused(&self.to.engine);
        hand_over(&mut self.to.engine, packet, now);
        if refused(&self.to.engine) == before { packet.payload.len() } else { 0 }
    }

    /// The responder's answers leave; their dwords, one entry an answer.
    pub(super) fn send_answers(&mut self, now: Instant, mut sent: impl FnMut(usize)) {
        let Self { to, answers, spare, .. } = self;
        let mut wire = |out: &Outgoing<'_>| {
            let mut words = spare.pop().unwrap_or_default();
            words.clear();
            words.extend(out.header.iter().map(|word| u32::from_be(*word)));
            sent(words.len());
            answers.push_back(words);
            Ok(())
        };
        to.engine.transmit(&mut wire, now, usize::MAX);
    }

    /// The oldest answer that is under way reaches the requester.
    pub(super) fn on_answer(&mut self, now: Instant) {
        let Some(words) = self.answers.pop_front() else { return };
        self.from.engine.on_packet(&words, Payload::EMPTY, now);
        self.spare.push(words);
    }

    /// Whether the requester has given up.
    pub(super) fn is_broken(&self) -> bool {
        self.is_broken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without a receiver the requester sends its window and no more, and begins again when its timer runs out.
    #[test]
    fn requester_stops_at_its_window_and_goes_back_when_its_timer_runs_out() {
        let mut rc = Reliable::new(Lid(1), Lid(2), 1000).expect("two ends");
        let first = rc.next_packet(Instant::ZERO).expect("a packet").to_vec();
        let more = (0..5000).filter(|_| rc.next_packet(Instant::ZERO).is_some()).count();
        assert_eq!(more + 1, 1000);
        let due = rc.from.engine.next_timeout().expect("a timer");
        assert_eq!(rc.next_packet(due).expect("again"), &first[..]);
    }
}
