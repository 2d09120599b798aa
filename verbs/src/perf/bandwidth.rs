//! A stream of messages: one end that posts them, or takes them, or both.

use qhca_regs::Instant;

use super::end::{End, Tag};
use super::run::Worker;
use super::{Job, PerfError, Verb, Verify};
use crate::engine::Engine;
use crate::wc::{Wc, WcStatus};
use crate::wr::{Data, SendFlags, SendOp, SendWr};

/// Times that are kept at most: a longer run has no peak.
const TIMES_MAX: usize = 1 << 20;
/// Bytes that can go inline at most.
const INLINE_MAX: usize = 1024;

/// How far one queue pair has come.
#[derive(Clone, Copy, Debug, Default)]
struct Lane {
    posted: u64,
    done: u64,
    received: u64,
    receives_posted: u64,
}

/// One end of a stream.
pub struct Streamer<'e> {
    end: &'e mut End,
    job: Job,
    lanes: Vec<Lane>,
    posts: bool,
    takes: bool,
    begun: Option<Instant>,
    stopped: bool,
    posted: Vec<Instant>,
    done: Vec<Instant>,
    count: u64,
    received: u64,
    inline: Vec<u8>,
}

impl<'e> Streamer<'e> {
    /// The end that posts, if `posts`, and takes what the other posts, if that needs somebody to take it.
    ///
    /// # Errors
    /// [`PerfError::Post`] if a receive is refused.
    pub fn new(
        end: &'e mut End,
        engine: &mut Engine,
        job: &Job,
        posts: bool,
        now: Instant,
    ) -> Result<Self, PerfError> {
        let posts = posts || job.both;
        let takes = job.verb == Verb::Send && (job.both || !posts);
        let lanes = vec![Lane::default(); end.name.qps.len()];
        let times = match job.duration {
            Some(_) => 2,
            None => (job.iterations as usize * lanes.len()).min(TIMES_MAX),
        };
        let keep = if posts { times } else { 0 };
        let mut streamer = Self {
            end,
            job: *job,
            lanes,
            posts,
            takes,
            begun: None,
            stopped: false,
            posted: Vec::with_capacity(keep),
            done: Vec::with_capacity(keep),
            count: 0,
            received: 0,
            inline: Vec::new(),
        };
        streamer.prepare(engine, now)?;
        Ok(streamer)
    }

    /// Fills the slots, and posts the first receives.
    fn prepare(&mut self, engine: &mut Engine, now: Instant) -> Result<(), PerfError> {
        let used = self.slots_used();
        for slot in 0..used {
            self.tag(slot, 0).fill(&self.end.memory, self.end.out_at(slot));
        }
        if self.job.verb.is_atomic() {
            for slot in 0..used {
                self.end.memory.store_u64(self.end.in_at(slot) as usize, 0);
            }
        }
        if self.job.bytes <= self.job.inline {
            self.inline = vec![0; self.job.bytes as usize];
            self.end.memory.copy_out(self.end.out_at(0) as usize, &mut self.inline);
        }
        self.post_receives(engine, now)
    }

    /// Messages that are posted on each queue pair, unless time decides.
    fn wanted(&self) -> u64 {
        match self.job.duration {
            Some(_) => u64::MAX,
            None => u64::from(self.job.iterations),
        }
    }

    fn slots_used(&self) -> u64 {
        self.wanted().saturating_mul(self.lanes.len() as u64).min(self.end.slots()).max(1)
    }

    fn slot_of(&self, lane: usize, message: u64) -> u64 {
        (message * self.lanes.len() as u64 + lane as u64) % self.end.slots()
    }

    fn tag(&self, slot: u64, message: u64) -> Tag {
        let message = if self.job.verify == Verify::Each { message } else { 0 };
        Tag { bytes: self.job.bytes, slot, message }
    }

    /// Messages that a lane may have under way: where each is checked, one for each slot.
    fn depth(&self) -> u64 {
        let depth = u64::from(self.job.depth.min(self.end.setup.depth).max(1));
        match self.job.verify {
            Verify::Each => depth.min((self.end.slots() / self.lanes.len() as u64).max(1)),
            _ => depth,
        }
    }

    fn moderation(&self) -> u64 {
        u64::from(self.job.moderation.max(1)).min(self.depth())
    }

    fn post_receives(&mut self, engine: &mut Engine, now: Instant) -> Result<(), PerfError> {
        if !self.takes {
            return Ok(());
        }
        let wanted = self.wanted();
        for at in 0..self.lanes.len() {
            loop {
                let lane = self.lanes[at];
                let open = lane.receives_posted - lane.received;
                if open >= u64::from(self.end.setup.rx_depth) || lane.receives_posted >= wanted {
                    break;
                }
                let slot = self.slot_of(at, lane.receives_posted);
                self.end.post_receive(engine, at, slot, now)?;
                self.lanes[at].receives_posted += 1;
            }
        }
        Ok(())
    }

    fn post(&mut self, engine: &mut Engine, now: Instant) -> Result<(), PerfError> {
        if self.stopped {
            return Ok(());
        }
        let (depth, wanted) = (self.depth(), self.wanted());
        let list = u64::from(self.job.list.max(1)).min(depth);
        for at in 0..self.lanes.len() {
            loop {
                let lane = self.lanes[at];
                let left = wanted - lane.posted;
                let room = depth - (lane.posted - lane.done);
                if left == 0 || room < list.min(left) {
                    break;
                }
                for _ in 0..list.min(left) {
                    self.post_one(engine, at, now)?;
                }
            }
        }
        Ok(())
    }

    #[inline]
    fn post_one(&mut self, engine: &mut Engine, at: usize, now: Instant) -> Result<(), PerfError> {
        let message = self.lanes[at].posted;
        let slot = self.slot_of(at, message);
        if self.job.verify == Verify::Each && !self.job.verb.is_one_sided() {
            self.tag(slot, message).fill(&self.end.memory, self.end.out_at(slot));
            if !self.inline.is_empty() {
                self.end.memory.copy_out(self.end.out_at(slot) as usize, &mut self.inline);
            }
        }
        if self.job.verify == Verify::Each && self.job.verb == Verb::Read {
            self.end.memory.zero(self.end.in_at(slot) as usize, self.job.bytes as usize);
        }
        let op = self.operation(slot);
        let moderation = self.moderation();
        let covered = message % moderation + 1;
        let is_last = message + 1 == self.wanted();
        let signaled = covered == moderation || is_last;
        let from = if self.job.verb.is_one_sided() { self.end.in_at(slot) } else { self.end.out_at(slot) };
        // The answer of an atomic goes beside the word that the peer's atomics work on.
        let from = if self.job.verb.is_atomic() { from + 8 } else { from };
        let list = [self.end.region.sge(from, self.job.bytes)];
        let data = match self.inline.is_empty() {
            true => Data::Sges(&list),
            false => Data::Inline(&self.inline),
        };
        let flags = if signaled { SendFlags::SIGNALED } else { SendFlags::empty() };
        let to = self.end.destination(at);
        let wr = SendWr { wr_id: (at as u64) << 32 | covered, op, flags, data, to };
        engine.post_send(self.end.name.qps[at].0, &wr, now).map_err(PerfError::Post)?;
        self.begun.get_or_insert(now);
        self.lanes[at].posted += 1;
        self.note(now);
        Ok(())
    }

    #[inline]
    fn note(&mut self, now: Instant) {
        let keep = self.posted.capacity();
        if self.job.duration.is_none() && self.posted.len() < keep || self.posted.is_empty() {
            self.posted.push(now);
        }
    }

    fn operation(&self, slot: u64) -> SendOp {
        let (addr, rkey) = self.end.peer_at(slot, self.job.verb != Verb::Read);
        match self.job.verb {
            Verb::Write => SendOp::Write { addr, rkey },
            Verb::Read => SendOp::Read { addr, rkey },
            Verb::Send => SendOp::Send,
            Verb::FetchAdd => SendOp::FetchAdd { addr, rkey, add: 1 },
            Verb::CompareSwap => SendOp::CompareSwap { addr, rkey, compare: 0, swap: 0 },
        }
    }

    fn poll_sends(&mut self, engine: &mut Engine, now: Instant) -> Result<bool, PerfError> {
        let mut wcs = [Wc::EMPTY; 32];
        let mut any = false;
        loop {
            let count = engine.poll_cq(self.end.send_cq, &mut wcs);
            for wc in &wcs[..count] {
                if wc.status != WcStatus::Success {
                    return Err(PerfError::Failed(engine.explain(wc)));
                }
                self.on_done((wc.wr_id >> 32) as usize, wc.wr_id & 0xFFFF_FFFF, now)?;
            }
            any |= count > 0;
            // All of it, each time: who sleeps with completions left sleeps for ever.
            if count < wcs.len() {
                return Ok(any);
            }
        }
    }

    /// `covered` more messages of a lane are done.
    fn on_done(&mut self, at: usize, covered: u64, now: Instant) -> Result<(), PerfError> {
        let first = self.lanes[at].done;
        self.lanes[at].done += covered;
        self.count += covered;
        for message in first..first + covered {
            if self.job.duration.is_none() && self.done.len() < self.done.capacity() {
                self.done.push(now);
            }
            if self.job.verify == Verify::Each {
                self.check(at, message)?;
            }
        }
        if self.job.duration.is_some() {
            self.done.clear();
            self.done.push(now);
        }
        Ok(())
    }

    /// Looks at the payload of one message that is done.
    fn check(&self, at: usize, message: u64) -> Result<(), PerfError> {
        let slot = self.slot_of(at, message);
        match self.job.verb {
            Verb::Read => self.tag(slot, 0).check(&self.end.memory, self.end.in_at(slot), 0),
            Verb::Write => self.check_peer(self.tag(slot, message), slot),
            _ => Ok(()),
        }
    }

    fn check_peer(&self, tag: Tag, slot: u64) -> Result<(), PerfError> {
        match (&self.end.peer_memory, &self.end.peer) {
            (Some(memory), Some(peer)) => {
                tag.check(memory, (u64::from(peer.slots) + slot) * peer.slot_bytes, 0)
            }
            _ => Ok(()),
        }
    }

    fn poll_receives(&mut self, engine: &mut Engine, now: Instant) -> Result<bool, PerfError> {
        if !self.takes {
            return Ok(false);
        }
        let mut wcs = [Wc::EMPTY; 32];
        let mut any = false;
        loop {
            let count = engine.poll_cq(self.end.recv_cq, &mut wcs);
            for wc in &wcs[..count] {
                if wc.status != WcStatus::Success {
                    return Err(PerfError::Failed(engine.explain(wc)));
                }
                self.on_received(wc)?;
            }
            any |= count > 0;
            if count < wcs.len() {
                break;
            }
        }
        if any {
            self.post_receives(engine, now)?;
        }
        Ok(any)
    }

    fn on_received(&mut self, wc: &Wc) -> Result<(), PerfError> {
        // Receives of a shared queue go to whichever queue pair is next; the completion says which it was.
        let at = match self.end.srq {
            Some(_) => self.end.name.qps.iter().position(|(qp, _)| *qp == wc.qp).unwrap_or(0),
            None => (wc.wr_id >> 32) as usize,
        };
        let slot = wc.wr_id & 0xFFFF_FFFF;
        let message = self.lanes[at].received;
        self.lanes[at].received += 1;
        self.received += 1;
        if self.job.verify == Verify::Each && self.end.srq.is_none() {
            // The sender's slot, which names what is in it.
            let tag = self.tag(self.slot_of(at, message), message);
            tag.check(&self.end.memory, self.end.received_at(slot), 0)?;
        }
        Ok(())
    }

    /// Looks at what the last messages have left, on this side and, if it can be seen, on the other.
    ///
    /// # Errors
    /// [`PerfError::Content`], [`PerfError::Atomic`].
    pub fn verify_last(&self) -> Result<(), PerfError> {
        if self.job.verify != Verify::Last || self.count == 0 {
            return Ok(());
        }
        if self.job.verb.is_atomic() {
            return self.verify_sum();
        }
        for slot in self.slots_written() {
            match self.job.verb {
                Verb::Read => self.tag(slot, 0).check(&self.end.memory, self.end.in_at(slot), 0)?,
                Verb::Write => self.check_peer(self.tag(self.shown(slot), 0), slot)?,
                _ => {}
            }
        }
        Ok(())
    }

    /// Looks at what has been received, for the end that was sent to.
    ///
    /// # Errors
    /// [`PerfError::Content`].
    pub fn verify_taken(&self) -> Result<(), PerfError> {
        if self.job.verify != Verify::Last || self.end.srq.is_some() || !self.takes {
            return Ok(());
        }
        let qps = self.lanes.len() as u64;
        let all = self.lanes.iter().map(|lane| lane.received).min().unwrap_or(0) * qps;
        for slot in 0..all.min(self.end.slots()) {
            self.tag(self.shown(slot), 0).check(&self.end.memory, self.end.received_at(slot), 0)?;
        }
        Ok(())
    }

    /// Looks at what a peer in another process has written here, once it says that `count` messages are done.
    ///
    /// # Errors
    /// [`PerfError::Content`].
    pub fn verify_written(&self, count: u64) -> Result<(), PerfError> {
        if self.job.verify == Verify::None || self.job.verb != Verb::Write {
            return Ok(());
        }
        let whole = count / self.lanes.len() as u64 * self.lanes.len() as u64;
        for slot in 0..whole.min(self.end.slots()) {
            self.tag(self.shown(slot), 0).check(&self.end.memory, self.end.in_at(slot), 0)?;
        }
        Ok(())
    }

    /// The slot whose pattern is in `slot`: inline messages all come from the first.
    fn shown(&self, slot: u64) -> u64 {
        if self.inline.is_empty() { slot } else { 0 }
    }

    fn slots_written(&self) -> std::ops::Range<u64> {
        let all = self.lanes.iter().map(|lane| lane.done).min().unwrap_or(0) * self.lanes.len() as u64;
        0..all.min(self.end.slots())
    }

    /// Every add counts once: the peer's counters come to the number of messages.
    fn verify_sum(&self) -> Result<(), PerfError> {
        let (Some(memory), Some(peer)) = (&self.end.peer_memory, &self.end.peer) else { return Ok(()) };
        if self.job.verb != Verb::FetchAdd || self.job.both {
            return Ok(());
        }
        let at = |slot: u64| ((u64::from(peer.slots) + slot) * peer.slot_bytes) as usize;
        let seen: u64 = (0..self.slots_used()).map(|slot| memory.load_u64(at(slot))).sum();
        match seen == self.count {
            true => Ok(()),
            false => Err(PerfError::Atomic { seen, wanted: self.count }),
        }
    }

    /// Messages that are done.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Messages that were received.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// What the times come to.
    pub fn figures(&self) -> super::Bandwidth {
        let peak = self.job.duration.is_none() && self.done.len() as u64 == self.count;
        super::figures::bandwidth(self.job.bytes, self.count, &self.posted, &self.done, peak)
    }
}

impl Worker for Streamer<'_> {
    fn step(&mut self, engine: &mut Engine, now: Instant) -> Result<bool, PerfError> {
        let mut any = self.poll_receives(engine, now)?;
        if self.posts {
            any |= self.poll_sends(engine, now)?;
            if let (Some(duration), Some(begun)) = (self.job.duration, self.begun) {
                self.stopped |= now.since(begun) >= duration;
            }
            self.post(engine, now)?;
        }
        Ok(any)
    }

    fn is_done(&self) -> bool {
        let posts = self.lanes.iter().all(|lane| {
            let all = self.stopped || lane.posted == self.wanted();
            // What was posted unsignalled at the end of a timed run has no completion to wait for.
            all && (lane.done == lane.posted || self.stopped && lane.posted - lane.done < self.moderation())
        });
        let takes =
            self.job.duration.is_some() || self.lanes.iter().all(|lane| lane.received == self.wanted());
        (!self.posts || posts) && (!self.takes || takes)
    }

    fn progress(&self) -> (u64, u64) {
        let qps = self.lanes.len() as u64;
        let ends = u64::from(self.posts) + u64::from(self.takes);
        (self.count + self.received, self.wanted().saturating_mul(qps).saturating_mul(ends))
    }

    fn arm(&self, engine: &mut Engine, now: Instant) -> bool {
        let sends = self.posts && engine.arm_cq(self.end.send_cq, crate::Arm::Next, now);
        let receives = self.takes && engine.arm_cq(self.end.recv_cq, crate::Arm::Next, now);
        sends || receives
    }
}

impl Job {
    /// Bytes that can go inline, of those that were asked for.
    pub fn inline_limit(asked: u32) -> u16 {
        asked.min(INLINE_MAX as u32) as u16
    }
}
