//! One endpoint: an engine, a queue pair, memory that is laid out for a scenario, and the account of its requests.

use std::collections::VecDeque;
use std::sync::Arc;

use qhca_driver::dma::DmaMemory;
use qhca_regs::{Instant, Lid};

use super::check::{Broken, UNTOUCHED, fill};
use super::scenario::{INLINE_MAX, Op, Planned, Scenario, Trouble};
use crate::engine::Engine;
use crate::ids::{CqId, Key, QpNumber, SrqId};
use crate::mem::{Access, MemoryRegion, Sge};
use crate::qp::{Mtu, QpAttr, QpInit, QpState, RnrTimer};
use crate::shared::{Config, Port};
use crate::wc::WcStatus;
use crate::wire::Service;
use crate::wr::{AddressVector, Data, RecvWr, SendFlags, SendOp, SendWr};

/// Memory of one side.
pub(super) const MEMORY_BYTES: usize = 1 << 20;
/// Where the cell is that the peer's atomics work on.
const CELL_AT: usize = 64;
/// Where the layout begins.
const LAYOUT_AT: usize = 128;
/// Bytes between two stretches that nobody may touch.
const GAP_BYTES: usize = 16;
/// Receives that are kept besides those posted at the start.
const SPARE_RECEIVES: u32 = 6;

/// A stretch of a side's memory.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stretch {
    pub(super) at: usize,
    pub(super) len: usize,
}

/// A request with its places.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) plan: Planned,
    /// In this side's memory: where data comes from or goes to.
    pub(super) here: Stretch,
    /// In the peer's.
    pub(super) there: Stretch,
    pub(super) op: SendOp,
    pub(super) lkey: Key,
    /// How it ended.
    pub(super) ended: Option<WcStatus>,
}

/// One endpoint.
pub(super) struct Side {
    pub(super) engine: Engine,
    pub(super) memory: Arc<DmaMemory>,
    pub(super) region: MemoryRegion,
    /// The same memory without any right for the peer.
    no_right: MemoryRegion,
    stale: Key,
    pub(super) qp: QpNumber,
    pub(super) send_cq: CqId,
    pub(super) recv_cq: CqId,
    srq: Option<SrqId>,
    pub(super) requests: Vec<Request>,
    /// The next request to post.
    pub(super) next_post: usize,
    /// Posted and not known to be complete, in order.
    pub(super) open: VecDeque<usize>,
    pub(super) buffers: Vec<Stretch>,
    pub(super) free_buffers: Vec<usize>,
    /// Receives that are posted, in order.
    pub(super) posted: VecDeque<usize>,
    /// Receives that may still be posted, if they are counted.
    pub(super) receives_left: u32,
    /// Receives that were posted since the connection was made.
    posted_count: u32,
    special: Option<(u32, Trouble)>,
    used: usize,
    pub(super) stalled_until: Instant,
    pub(super) cell: u64,
}

/// Everything for the engine of one side.
fn config(scenario: &Scenario) -> Config {
    Config {
        window_packets: scenario.window,
        read_split_packets: scenario.read_split,
        acks: crate::policy::EndOfMessage { every: scenario.ack_every },
        max_qps: 4,
        max_cqs: 4,
        ..Config::default()
    }
}

/// The LID of side 0 or 1.
pub(super) fn lid_of(side: usize) -> Lid {
    Lid(side as u16 + 1)
}

impl Side {
    /// Side number `side`, with memory that is handed on from scenario to scenario.
    pub(super) fn new(side: usize, scenario: &Scenario, memory: Arc<DmaMemory>) -> Result<Self, Broken> {
        let setup = |error: String| ("the set-up works", error);
        let mut engine =
            Engine::new(config(scenario), Port { lid: lid_of(side), mtu: Mtu::B4096, ..Port::default() });
        let pd = engine.allocate_pd();
        let all = Access::LOCAL_WRITE
            | Access::REMOTE_WRITE
            | Access::REMOTE_READ
            | Access::REMOTE_ATOMIC
            | Access::WINDOW_BIND;
        let mut register =
            |access| engine.register(pd, &memory, 0, MEMORY_BYTES, access).map_err(|e| setup(e.to_string()));
        let region = register(all)?;
        let no_right = register(Access::LOCAL_WRITE)?;
        let stale = register(all)?.rkey;
        engine.deregister(stale).map_err(|e| setup(e.to_string()))?;
        let send_cq = engine.create_cq(512).map_err(|e| setup(e.to_string()))?;
        let recv_cq = engine.create_cq(512).map_err(|e| setup(e.to_string()))?;
        let srq = match scenario.with_srq[side] {
            true => Some(engine.create_srq(pd, 64, 3).map_err(|e| setup(e.to_string()))?),
            false => None,
        };
        let mut init = QpInit::new(Service::Rc, pd, send_cq);
        init.recv_cq = recv_cq;
        init.srq = srq;
        init.max_send = scenario.send_depth.max(2);
        init.max_recv = 64;
        init.max_send_sges = 3;
        init.max_recv_sges = 3;
        init.max_inline = INLINE_MAX as u16;
        let qp = engine.create_qp(&init).map_err(|e| setup(e.to_string()))?;
        Ok(Self {
            engine,
            memory,
            region,
            no_right,
            stale,
            qp,
            send_cq,
            recv_cq,
            srq,
            requests: Vec::new(),
            next_post: 0,
            open: VecDeque::new(),
            buffers: Vec::new(),
            free_buffers: Vec::new(),
            posted: VecDeque::new(),
            receives_left: u32::MAX,
            posted_count: 0,
            special: None,
            used: LAYOUT_AT,
            stalled_until: Instant::ZERO,
            cell: 0,
        })
    }

    /// A new stretch of `len` bytes whose start is `skew` past a multiple of eight.
    fn layout(&mut self, len: usize, skew: usize) -> Stretch {
        let at = self.used.next_multiple_of(8) + skew;
        self.used = at + len + GAP_BYTES;
        debug_assert!(self.used <= MEMORY_BYTES, "the scenario fits its memory");
        Stretch { at, len }
    }

    pub(super) fn write(&self, at: usize, bytes: &[u8]) {
        self.memory.copy_in(at, bytes);
    }

    pub(super) fn read(&self, stretch: Stretch) -> Vec<u8> {
        let mut bytes = vec![0; stretch.len];
        self.memory.copy_out(stretch.at, &mut bytes);
        bytes
    }

    /// Sets the whole layout to "untouched", then the sources to their data. Call it when all is laid out.
    pub(super) fn prepare(&mut self, side: usize) {
        let untouched = vec![UNTOUCHED; self.used + GAP_BYTES];
        self.write(0, &untouched);
        self.memory.store_u64(CELL_AT, 0);
        for index in 0..self.requests.len() {
            let request = self.requests[index];
            if !request.plan.op.is_atomic() && request.plan.op != Op::Read {
                let mut bytes = vec![0; request.here.len];
                fill(&mut bytes, side, index);
                self.write(request.here.at, &bytes);
            }
        }
    }

    /// The value of the cell that the peer's atomics work on.
    pub(super) fn cell_now(&self) -> u64 {
        self.memory.load_u64(CELL_AT)
    }

    /// All stretches that something may have been written to.
    pub(super) fn touched(&self, peer: &Self) -> Vec<Stretch> {
        let mut all = vec![Stretch { at: CELL_AT, len: 8 }];
        all.extend(self.buffers.iter());
        all.extend(self.requests.iter().map(|request| request.here));
        all.extend(peer.requests.iter().map(|request| request.there));
        all.sort_by_key(|stretch| stretch.at);
        all
    }

    /// Bytes of the layout.
    pub(super) fn used(&self) -> usize {
        self.used
    }

    /// Makes the receive buffers: as many and as long as the peer's messages may need.
    pub(super) fn make_buffers(&mut self, longest: usize, count: u32) {
        for number in 0..count + SPARE_RECEIVES {
            let stretch = self.layout(longest, number as usize % 8);
            self.free_buffers.push(self.buffers.len());
            self.buffers.push(stretch);
        }
    }

    /// The connection's attributes; `to` is where the queue pair is to be.
    pub(super) fn connect(
        &mut self,
        side: usize,
        peer_qp: QpNumber,
        scenario: &Scenario,
        psn: [crate::Psn; 2],
        now: Instant,
    ) -> Result<(), Broken> {
        let access = Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
        let init = QpAttr {
            state: Some(QpState::Init),
            access: Some(access),
            pkey_index: Some(0),
            port: Some(1),
            ..QpAttr::default()
        };
        let rtr = QpAttr {
            state: Some(QpState::Rtr),
            address: Some(AddressVector { dlid: lid_of(1 - side), ..AddressVector::default() }),
            path_mtu: Some(scenario.mtu),
            dest_qp: Some(peer_qp),
            rq_psn: Some(psn[1 - side]),
            max_dest_rd_atomic: Some(scenario.depth),
            min_rnr_timer: Some(RnrTimer::Code(scenario.rnr_timer)),
            ..QpAttr::default()
        };
        let rts = QpAttr {
            state: Some(QpState::Rts),
            sq_psn: Some(psn[side]),
            timeout: Some(scenario.timeout),
            retry_count: Some(scenario.retry_count),
            rnr_retry: Some(scenario.rnr_retry),
            max_rd_atomic: Some(scenario.depth),
            ..QpAttr::default()
        };
        for attr in [init, rtr, rts] {
            self.engine
                .modify_qp(self.qp, &attr, now)
                .map_err(|error| ("the set-up works", error.to_string()))?;
        }
        Ok(())
    }

    /// Posts what the send queue takes.
    pub(super) fn post_sends(&mut self, side: usize, now: Instant) -> Result<(), Broken> {
        let mut inline = [0; INLINE_MAX as usize];
        while self.next_post < self.requests.len() {
            let index = self.next_post;
            let request = self.requests[index];
            let mut sges = [Sge::default(); 3];
            let count = split(&request, self.region.addr, &mut sges);
            let data = if request.plan.is_inline {
                let bytes = &mut inline[..request.plan.len_bytes as usize];
                fill(bytes, side, index);
                Data::Inline(bytes)
            } else {
                Data::Sges(&sges[..count])
            };
            let mut flags = SendFlags::empty();
            flags.set(SendFlags::SIGNALED, request.plan.signaled);
            flags.set(SendFlags::FENCE, request.plan.fence);
            flags.set(SendFlags::SOLICITED, request.plan.solicited);
            let wr = SendWr { wr_id: index as u64, op: request.op, flags, data, to: None };
            let posted = self.engine.post_send(self.qp, &wr, now);
            // What was inline may change at once.
            inline.fill(0);
            match posted {
                Ok(()) => self.open.push_back(index),
                Err(crate::PostError::QueueFull { .. }) => return Ok(()),
                Err(error) => return Err(("what fits the queue can be posted", error.to_string())),
            }
            self.next_post += 1;
        }
        Ok(())
    }

    /// Posts receives up to `wanted`.
    pub(super) fn post_receives(&mut self, wanted: u32, now: Instant) -> Result<(), Broken> {
        while (self.posted.len() as u32) < wanted && self.receives_left > 0 {
            let Some(buffer) = self.free_buffers.pop() else { return Ok(()) };
            let stretch = self.buffers[buffer];
            let mut sge = Sge {
                addr: self.region.addr + stretch.at as u64,
                len_bytes: stretch.len as u32,
                lkey: self.region.lkey,
            };
            if let Some((number, trouble)) = self.special
                && number == self.posted_count
            {
                match trouble {
                    Trouble::SmallReceive => sge.len_bytes = 0,
                    _ => sge.lkey = self.stale,
                }
            }
            let third = sge.len_bytes / 3;
            let parts = [
                Sge { len_bytes: third, ..sge },
                Sge { addr: sge.addr + u64::from(third), len_bytes: sge.len_bytes - third, ..sge },
            ];
            let wr = RecvWr { wr_id: buffer as u64, sges: &parts };
            let posted = match self.srq {
                Some(srq) => self.engine.post_srq_recv(srq, &wr),
                None => self.engine.post_recv(self.qp, &wr, now),
            };
            posted.map_err(|error| ("receives can be posted", error.to_string()))?;
            self.posted.push_back(buffer);
            self.posted_count += 1;
            self.receives_left -= 1;
        }
        Ok(())
    }

    /// Whether receives are taken from a shared queue, which a reset does not empty.
    pub(super) fn has_srq(&self) -> bool {
        self.srq.is_some()
    }
}

/// Cuts a request's stretch into as many parts as it wants; returns how many those are.
fn split(request: &Request, base: u64, sges: &mut [Sge; 3]) -> usize {
    let parts = request.plan.sges.clamp(1, 3);
    let total = request.here.len as u32;
    let step = total / parts;
    for part in 0..parts {
        let start = part * step;
        let len_bytes = if part + 1 == parts { total - start } else { step };
        let addr = base + request.here.at as u64 + u64::from(start);
        sges[part as usize] = Sge { addr, len_bytes, lkey: request.lkey };
    }
    parts as usize
}

/// Lays the requests of side `from` out in the memory of both.
pub(super) fn lay_out(
    from: usize,
    sides: &mut [Side; 2],
    scenario: &Scenario,
    now: Instant,
) -> Result<(), Broken> {
    let mut messages = 0;
    for (index, plan) in scenario.requests[from].iter().enumerate() {
        let len = plan.len_bytes as usize;
        let skew = if plan.op.is_atomic() { 0 } else { index % 8 };
        let here = sides[from].layout(len, skew);
        let reaches = !plan.op.is_send() && !plan.op.is_atomic();
        let there = match (reaches, plan.op.is_atomic()) {
            (true, _) => sides[1 - from].layout(len, (index + 3) % 8),
            (_, true) => Stretch { at: CELL_AT, len: 8 },
            _ => Stretch::default(),
        };
        let invalidate =
            if plan.op == Op::SendInvalidate { Some(bind_window(&mut sides[1 - from], now)?) } else { None };
        let peer = &mut sides[1 - from];
        let rkey = match plan.trouble {
            Trouble::StaleKey => peer.stale,
            Trouble::NoRight => peer.no_right.rkey,
            _ => peer.region.rkey,
        };
        let mut addr = peer.region.addr + there.at as u64;
        if plan.trouble == Trouble::RemoteBounds {
            addr = peer.region.addr + peer.region.len_bytes
                - if plan.op.is_atomic() { 0 } else { len as u64 - 1 };
        }
        match plan.trouble {
            Trouble::SmallReceive | Trouble::BadReceive => peer.special = Some((messages, plan.trouble)),
            Trouble::NoReceive => peer.receives_left = messages,
            _ => {}
        }
        messages += u32::from(plan.op.takes_receive());
        let lkey = if plan.trouble == Trouble::BadList { sides[from].stale } else { sides[from].region.lkey };
        let op = send_op(plan, index, addr, rkey, invalidate.unwrap_or_default());
        sides[from].requests.push(Request { plan: *plan, here, there, op, lkey, ended: None });
    }
    Ok(())
}

fn send_op(plan: &Planned, index: usize, addr: u64, rkey: Key, window: Key) -> SendOp {
    let (compare, swap) = plan.values;
    match plan.op {
        Op::Send => SendOp::Send,
        Op::SendImmediate => SendOp::SendImmediate(index as u32),
        Op::SendInvalidate => SendOp::SendInvalidate(window),
        Op::Write => SendOp::Write { addr, rkey },
        Op::WriteImmediate => SendOp::WriteImmediate { addr, rkey, immediate: index as u32 },
        Op::Read => SendOp::Read { addr, rkey },
        Op::CompareSwap => SendOp::CompareSwap { addr, rkey, compare, swap },
        Op::FetchAdd => SendOp::FetchAdd { addr, rkey, add: swap },
    }
}

/// Binds a window of `side` that its peer will invalidate.
fn bind_window(side: &mut Side, now: Instant) -> Result<Key, Broken> {
    let setup = |error: String| ("the set-up works", error);
    // The first protection domain of the engine is the only one.
    let window = side.engine.allocate_window(crate::ids::PdId(0)).map_err(|e| setup(e.to_string()))?;
    let part = side.region.sge(0, 64);
    let op = SendOp::BindWindow { rkey: window.rkey, key_part: 0x5A, access: Access::REMOTE_WRITE };
    let wr = SendWr { wr_id: u64::MAX, op, flags: SendFlags::empty(), data: Data::Sges(&[part]), to: None };
    side.engine.post_send(side.qp, &wr, now).map_err(|e| setup(e.to_string()))?;
    side.engine.transmit(&mut |_: &crate::Outgoing<'_>| Err(crate::Full), now, 1);
    Ok(Key(window.rkey.0 & !0xFF | 0x5A))
}
