//! Requests and their acknowledges in both directions, on many connections at once: what rds-stress does.
//!
//! ```text
//!   requester  ── request, a pattern of its number ──▶  responder looks at it
//!              ◀── acknowledge, a message as well ───   and answers
//! ```
//!
//! Each end is both. Immediate data tell a request from an acknowledge. Every payload is checked.

use std::collections::VecDeque;

use qhca_regs::{Duration, Instant};

use super::PerfError;
use super::end::{End, Tag};
use crate::engine::Engine;
use crate::wc::{Along, Wc, WcStatus};
use crate::wr::{PostError, SendOp, SendWr};

const REQUEST: u32 = 0;
const ACKNOWLEDGE: u32 = 1;
/// Steps of the histogram of round trips: powers of two of microseconds.
pub const RTT_STEPS: usize = 24;

/// What is exchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exchanged {
    /// Requests under way on a connection at most.
    pub depth: u32,
    /// Bytes of a request.
    pub request_bytes: u32,
    /// Bytes of an acknowledge.
    pub ack_bytes: u32,
    /// Whether this end sends requests.
    pub asks: bool,
}

/// What has been counted since the last look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exchange {
    /// Requests that were sent.
    pub sent: u64,
    /// Requests that came.
    pub received: u64,
    /// Acknowledges that came.
    pub acknowledged: u64,
    /// Bytes of messages in both directions, this end's sends and receives.
    pub bytes: u64,
    /// From post to completion of the requests that completed, together.
    pub send_time: Duration,
    /// How many those were.
    pub completed: u64,
    /// From post to acknowledge of the requests that were acknowledged, together.
    pub round_trips: Duration,
    /// Round trips of 2^n to 2^(n+1) microseconds.
    pub histogram: [u64; RTT_STEPS],
}

#[derive(Default)]
struct Lane {
    sent: u64,
    received: u64,
    acks_due: u32,
    acks_sent: u64,
    acks_received: u64,
    receives: u64,
    /// When the requests were posted that are not acknowledged, oldest first.
    asked: VecDeque<Instant>,
    /// When the requests were posted that have not completed.
    posted: VecDeque<Instant>,
}

/// One end of the exchange.
pub struct Stress<'e> {
    end: &'e mut End,
    what: Exchanged,
    lanes: Vec<Lane>,
    counts: Exchange,
}

impl<'e> Stress<'e> {
    /// An end that was made for `3 * depth` sends and `2 * depth` receives on each connection.
    ///
    /// # Errors
    /// [`PerfError::Post`].
    pub fn new(
        end: &'e mut End,
        engine: &mut Engine,
        what: Exchanged,
        now: Instant,
    ) -> Result<Self, PerfError> {
        let lanes = end.name.qps.iter().map(|_| Lane::default()).collect();
        let mut stress = Self { end, what, lanes, counts: Exchange::default() };
        for at in 0..stress.lanes.len() {
            for _ in 0..2 * u64::from(what.depth) {
                stress.post_receive(engine, at, now)?;
            }
        }
        Ok(stress)
    }

    /// The slot of a lane's message number `number`; acknowledges have those behind the requests.
    fn slot(&self, at: usize, number: u64, is_ack: bool) -> u64 {
        let depth = u64::from(self.what.depth);
        let slot = at as u64 * 2 * depth + number % depth + if is_ack { depth } else { 0 };
        slot % self.end.slots()
    }

    fn post_receive(&mut self, engine: &mut Engine, at: usize, now: Instant) -> Result<(), PerfError> {
        let depth = u64::from(self.what.depth);
        let number = self.lanes[at].receives;
        let slot = (at as u64 * 2 * depth + number % (2 * depth)) % self.end.slots();
        self.end.post_receive(engine, at, slot, now)?;
        self.lanes[at].receives += 1;
        Ok(())
    }

    fn tag(&self, at: usize, number: u64, is_ack: bool) -> Tag {
        let bytes = if is_ack { self.what.ack_bytes } else { self.what.request_bytes };
        Tag { bytes, slot: at as u64 * 2 + u64::from(is_ack), message: number }
    }

    fn send(
        &mut self,
        engine: &mut Engine,
        at: usize,
        number: u64,
        is_ack: bool,
        now: Instant,
    ) -> Result<(), PerfError> {
        let (tag, slot) = (self.tag(at, number, is_ack), self.slot(at, number, is_ack));
        tag.fill(&self.end.memory, self.end.out_at(slot));
        let list = [self.end.region.sge(self.end.out_at(slot), tag.bytes)];
        let kind = if is_ack { ACKNOWLEDGE } else { REQUEST };
        let wr = SendWr::new(u64::from(kind) << 32 | at as u64, SendOp::SendImmediate(kind), &list);
        engine.post_send(self.end.name.qps[at].0, &wr, now).map_err(PerfError::Post)?;
        self.counts.bytes += u64::from(tag.bytes);
        Ok(())
    }

    /// Polls what is done, answers, asks. Whether anything was done.
    ///
    /// # Errors
    /// [`PerfError`].
    pub fn step(&mut self, engine: &mut Engine, now: Instant) -> Result<bool, PerfError> {
        let mut any = self.poll_receives(engine, now)?;
        any |= self.poll_sends(engine, now)?;
        for at in 0..self.lanes.len() {
            while self.lanes[at].acks_due > 0 {
                let number = self.lanes[at].acks_sent;
                match self.send(engine, at, number, true, now) {
                    // Earlier ones have not completed yet.
                    Err(PerfError::Post(PostError::QueueFull { .. })) => break,
                    sent => sent?,
                }
                let lane = &mut self.lanes[at];
                (lane.acks_due, lane.acks_sent) = (lane.acks_due - 1, number + 1);
            }
            while self.what.asks && self.may_ask(at) {
                let number = self.lanes[at].sent;
                self.send(engine, at, number, false, now)?;
                let lane = &mut self.lanes[at];
                lane.sent += 1;
                lane.asked.push_back(now);
                lane.posted.push_back(now);
                self.counts.sent += 1;
                any = true;
            }
        }
        Ok(any)
    }

    fn may_ask(&self, at: usize) -> bool {
        let (lane, depth) = (&self.lanes[at], self.what.depth as usize);
        lane.asked.len() < depth && lane.posted.len() < depth
    }

    fn poll_sends(&mut self, engine: &mut Engine, now: Instant) -> Result<bool, PerfError> {
        let mut wcs = [Wc::EMPTY; 32];
        let count = engine.poll_cq(self.end.send_cq, &mut wcs);
        for wc in &wcs[..count] {
            if wc.status != WcStatus::Success {
                return Err(PerfError::Failed(engine.explain(wc)));
            }
            let at = (wc.wr_id & 0xFFFF_FFFF) as usize;
            if wc.wr_id >> 32 == u64::from(REQUEST)
                && let Some(posted) = self.lanes[at].posted.pop_front()
            {
                self.counts.send_time += now.since(posted);
                self.counts.completed += 1;
            }
        }
        Ok(count > 0)
    }

    fn poll_receives(&mut self, engine: &mut Engine, now: Instant) -> Result<bool, PerfError> {
        let mut wcs = [Wc::EMPTY; 32];
        let count = engine.poll_cq(self.end.recv_cq, &mut wcs);
        for wc in &wcs[..count] {
            if wc.status != WcStatus::Success {
                return Err(PerfError::Failed(engine.explain(wc)));
            }
            let (at, slot) = ((wc.wr_id >> 32) as usize, wc.wr_id & 0xFFFF_FFFF);
            let is_ack = wc.detail().is_some_and(|detail| detail.along == Along::Immediate(ACKNOWLEDGE));
            self.on_message(at, slot, is_ack, now)?;
            self.post_receive(engine, at, now)?;
        }
        Ok(count > 0)
    }

    fn on_message(&mut self, at: usize, slot: u64, is_ack: bool, now: Instant) -> Result<(), PerfError> {
        let number = if is_ack { self.lanes[at].acks_received } else { self.lanes[at].received };
        let tag = self.tag(at, number, is_ack);
        tag.check(&self.end.memory, self.end.received_at(slot), 0)?;
        self.counts.bytes += u64::from(tag.bytes);
        let lane = &mut self.lanes[at];
        if !is_ack {
            (lane.received, lane.acks_due) = (number + 1, lane.acks_due + 1);
            self.counts.received += 1;
            return Ok(());
        }
        lane.acks_received += 1;
        self.counts.acknowledged += 1;
        if let Some(asked) = lane.asked.pop_front() {
            let took = now.since(asked);
            self.counts.round_trips += took;
            let us = (took.as_nanos() / 1000).max(1);
            self.counts.histogram[(us.ilog2() as usize).min(RTT_STEPS - 1)] += 1;
        }
        Ok(())
    }

    /// What was counted since the last call.
    pub fn take_counts(&mut self) -> Exchange {
        std::mem::take(&mut self.counts)
    }
}
