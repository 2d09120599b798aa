//! What all queue pairs of an engine share: the port, memory keys, completion queues, who is ready to send, counters.

use std::collections::VecDeque;

use qhca_regs::{Instant, Lid};
use zerocopy::IntoBytes;

use crate::counters::Counters;
use crate::cq::{Cq, Pushed};
use crate::event::{Event, Events};
use crate::ids::CqId;
use crate::mem::{Access, KeyError, MemoryTable, Sge, Span};
use crate::out::{Full, HeaderBuf, Outgoing, Spec, Template, Wire};
use crate::policy::EndOfMessage;
use crate::qp::queue::Srq;
use crate::qp::{Mtu, Qp};
use crate::slab::Slab;
use crate::timers::Timers;
use crate::wc::Wc;
use crate::wire::Gid;

/// Packets to ourselves that wait at most.
const LOOPED_MAX: usize = 64;
/// Dwords of the largest payload.
const PAYLOAD_MAX_DWORDS: usize = 4096 / 4;

/// A port as the transport sees it: its names, its keys, its lanes.
#[derive(Clone, Debug)]
pub struct Port {
    /// The LID; 0 until it is given one.
    pub lid: Lid,
    /// How many low bits of a LID are ours.
    pub lmc: u8,
    /// GIDs; the first is made of subnet prefix and port GUID.
    pub gids: Vec<Gid>,
    /// Partition keys; 0 is an empty place.
    pub pkeys: Vec<u16>,
    /// The largest packet that the port sends.
    pub mtu: Mtu,
    /// The virtual lane of each service level.
    pub vl_of_sl: [u8; 16],
}

impl Default for Port {
    fn default() -> Self {
        Self {
            lid: Lid(0),
            lmc: 0,
            gids: vec![Gid::new(Gid::DEFAULT_PREFIX, 0)],
            pkeys: vec![0xFFFF],
            mtu: Mtu::B4096,
            vl_of_sl: [0; 16],
        }
    }
}

impl Port {
    /// The lane of service level `sl`.
    pub(crate) fn vl_of(&self, sl: u8) -> u8 {
        self.vl_of_sl[usize::from(sl & 0xF)] & 0xF
    }

    pub(crate) fn path_mask(&self) -> u8 {
        ((1u16 << self.lmc.min(7)) - 1) as u8
    }

    /// The GID at `index`, the first if there is none.
    pub(crate) fn gid(&self, index: u8) -> Gid {
        self.gids.get(usize::from(index)).or(self.gids.first()).copied().unwrap_or_default()
    }

    /// Whether packets to `lid` come to this port.
    #[inline]
    pub(crate) fn owns(&self, lid: Lid) -> bool {
        lid.0 & !u16::from(self.path_mask()) == self.lid.0
    }
}

/// Whether packets with P_Key `theirs` may reach one that has `ours`: the same partition, not both limited members.
#[inline]
pub fn pkeys_match(ours: u16, theirs: u16) -> bool {
    const FULL: u16 = 0x8000;
    (ours ^ theirs) & !FULL == 0 && ours & !FULL != 0 && (ours | theirs) & FULL != 0
}

/// A packet of ours to ourselves.
pub(crate) struct Looped {
    pub(crate) header: Vec<u32>,
    pub(crate) payload: Vec<u8>,
}

/// Limits and habits of an engine.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Packets that a requester has under way at most, up to [`Psn::WINDOW`](crate::Psn::WINDOW).
    pub window_packets: u32,
    /// Packets that one READ request asks for at most; a longer READ becomes several.
    pub read_split_packets: u32,
    /// Which request packets ask for an acknowledge.
    pub acks: EndOfMessage,
    /// Queue pairs at most.
    pub max_qps: u32,
    /// Completion queues at most.
    pub max_cqs: u32,
    /// Memory keys at most.
    pub max_keys: u32,
    /// Shared receive queues at most.
    pub max_srqs: u32,
    /// READs and atomics that a queue pair may have under way, or keep answers for, at most.
    pub max_rd_atomic: u8,
    /// Which of the chip's 32 places the queue pairs of this engine have, so that packets find their context; none
    /// if one context takes all.
    pub qpn_place: Option<u8>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            window_packets: crate::Psn::WINDOW,
            read_split_packets: 1 << 16,
            acks: EndOfMessage::default(),
            max_qps: 16_384,
            max_cqs: 0x1_FFFF,
            max_keys: 1 << 16,
            max_srqs: 1024,
            max_rd_atomic: 16,
            qpn_place: None,
        }
    }
}

/// What the queue pairs share.
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) port: Port,
    pub(crate) memory: MemoryTable,
    pub(crate) cqs: Slab<Cq>,
    pub(crate) srqs: Slab<Srq>,
    pub(crate) events: Events,
    pub(crate) timers: Timers,
    pub(crate) ready: VecDeque<u32>,
    pub(crate) counters: Counters,
    pub(crate) looped: VecDeque<Looped>,
    pub(crate) spare: Vec<Looped>,
    /// Completion queues that overflowed and whose queue pairs have not been told.
    pub(crate) dead_cqs: Vec<CqId>,
    pub(crate) scratch: Box<[u32; PAYLOAD_MAX_DWORDS]>,
    #[cfg(test)]
    pub(crate) planted: Option<crate::harness::Planted>,
}

impl Shared {
    pub(crate) fn new(config: Config, port: Port) -> Self {
        Self {
            config,
            port,
            memory: MemoryTable::new(config.max_keys as usize),
            cqs: Slab::new(config.max_cqs as usize),
            srqs: Slab::new(config.max_srqs as usize),
            events: Events::default(),
            timers: Timers::default(),
            ready: VecDeque::new(),
            counters: Counters::default(),
            looped: VecDeque::new(),
            spare: Vec::new(),
            dead_cqs: Vec::new(),
            scratch: Box::new([0; PAYLOAD_MAX_DWORDS]),
            #[cfg(test)]
            planted: None,
        }
    }

    /// Puts a completion to its queue and sees to what follows from that.
    #[inline]
    pub(crate) fn complete(&mut self, cq: CqId, wc: Wc, solicited: bool, now: Instant) {
        let Some(queue) = self.cqs.get_mut(cq.0) else { return };
        match queue.push(wc, solicited, now) {
            Pushed::Quiet => {}
            pushed => self.after_push(cq, pushed),
        }
    }

    #[cold]
    fn after_push(&mut self, cq: CqId, pushed: Pushed) {
        match pushed {
            Pushed::Quiet => {}
            Pushed::Event => self.events.push(Event::Completion(cq)),
            Pushed::Overflow => {
                self.events.push(Event::CqOverflow(cq));
                self.dead_cqs.push(cq);
                self.counters.completions_lost += 1;
            }
            Pushed::Lost => self.counters.completions_lost += 1,
        }
    }

    /// Puts a queue pair in the row of those that may have something to send.
    #[inline]
    pub(crate) fn schedule(&mut self, index: u32, scheduled: &mut bool) {
        if !std::mem::replace(scheduled, true) {
            self.ready.push_back(index);
        }
    }

    /// Copies `len_bytes` of a list from `offset` to the scratch payload, zeros behind.
    #[inline]
    pub(crate) fn gather(
        &mut self,
        qp: &Qp,
        sges: &[Sge],
        offset: u32,
        len_bytes: usize,
    ) -> Result<(), KeyError> {
        let bytes = self.scratch.as_mut_bytes();
        clear_pad(bytes, len_bytes);
        let mut into = &mut bytes[..len_bytes];
        let mut skip = offset;
        for sge in sges {
            if skip >= sge.len_bytes && sge.len_bytes > 0 {
                skip -= sge.len_bytes;
                continue;
            }
            let step = into.len().min((sge.len_bytes - skip) as usize);
            if step == 0 {
                continue;
            }
            let addr = sge.addr.checked_add(u64::from(skip)).ok_or(KeyError::OutOfBounds)?;
            let span = self.memory.check_local(sge.lkey, qp.pd, (addr, step as u32), Access::empty())?;
            let (now, later) = into.split_at_mut(step);
            span.memory.copy_out(span.offset, now);
            into = later;
            skip = 0;
            if into.is_empty() {
                break;
            }
        }
        Ok(())
    }

    /// Copies bytes to the scratch payload, zeros behind.
    #[inline]
    pub(crate) fn gather_bytes(&mut self, from: &[u8]) {
        let bytes = self.scratch.as_mut_bytes();
        clear_pad(bytes, from.len());
        bytes[..from.len()].copy_from_slice(from);
    }

    /// Copies a stretch that a check let through to the scratch payload, zeros behind.
    #[inline]
    pub(crate) fn gather_span(scratch: &mut [u32; PAYLOAD_MAX_DWORDS], span: Span<'_>, len_bytes: usize) {
        let bytes = scratch.as_mut_bytes();
        clear_pad(bytes, len_bytes);
        span.memory.copy_out(span.offset, &mut bytes[..len_bytes]);
    }

    /// Sends a packet whose payload is in the scratch.
    #[inline]
    pub(crate) fn emit(
        &mut self,
        wire: &mut impl Wire,
        template: &Template,
        spec: Spec,
        ext: &[u32],
        payload_bytes: usize,
    ) -> Result<(), Full> {
        let mut header: HeaderBuf = [0; _];
        let words = template.build(&mut header, spec, ext, payload_bytes);
        let header = &header[..words];
        if template.to_self {
            return self.loop_back(header, payload_bytes);
        }
        let payload = &self.scratch[..payload_bytes.div_ceil(4)];
        wire.send(&Outgoing { vl: template.vl(), header, payload, static_rate: template.static_rate() })?;
        self.counters.packets_sent += 1;
        Ok(())
    }

    /// Keeps a packet to ourselves until the engine's next turn takes it in.
    #[cold]
    pub(crate) fn loop_back(&mut self, header: &[u32], payload_bytes: usize) -> Result<(), Full> {
        if self.looped.len() >= LOOPED_MAX {
            return Err(Full);
        }
        let mut packet =
            self.spare.pop().unwrap_or_else(|| Looped { header: Vec::new(), payload: Vec::new() });
        packet.header.clear();
        packet.header.extend(header.iter().map(|word| u32::from_be(*word)));
        packet.payload.clear();
        let padded = payload_bytes.next_multiple_of(4);
        packet.payload.extend_from_slice(&self.scratch.as_bytes()[..padded]);
        self.looped.push_back(packet);
        self.counters.packets_looped += 1;
        Ok(())
    }

    /// Gives our own members of a multicast group the packet whose payload is in the scratch.
    #[cold]
    pub(crate) fn loop_multicast(
        &mut self,
        template: &Template,
        spec: Spec,
        ext: &[u32],
        payload_bytes: usize,
    ) {
        let mut header: HeaderBuf = [0; _];
        let words = template.build(&mut header, spec, ext, payload_bytes);
        if self.loop_back(&header[..words], payload_bytes).is_err() {
            self.counters.drop_for(crate::counters::Drop::NoReceive);
        }
    }

    /// Whether a fault of the tests is planted here.
    #[cfg(test)]
    pub(crate) fn planted(&self, fault: crate::harness::Planted) -> bool {
        self.planted == Some(fault)
    }
}

/// Zeros up to the next dword.
#[inline]
fn clear_pad(bytes: &mut [u8], len_bytes: usize) {
    let end = len_bytes.next_multiple_of(4).min(bytes.len());
    bytes[len_bytes..end].fill(0);
}
