//! A message at a time: there and back, or asked for and answered.
//!
//! For a WRITE the peer watches the last byte of the message, which the chip's payload reaches last; for a SEND it takes
//! the completion. READs and atomics need nobody at the other end.

use qhca_regs::Instant;

use super::end::{End, Tag};
use super::run::Worker;
use super::{Job, Latency, PerfError, Verb, Verify};
use crate::engine::Engine;
use crate::wc::{Wc, WcStatus};
use crate::wr::{Data, SendFlags, SendOp, SendWr};

/// The last byte of message `n` runs through so many values, none of which is 0.
const MARKS: u64 = 251;

/// One end of a ping-pong.
pub struct PingPong<'e> {
    end: &'e mut End,
    job: Job,
    begins: bool,
    begun: Option<Instant>,
    stopped: bool,
    sent: u64,
    done: u64,
    got: u64,
    receives_posted: u64,
    posted: Vec<Instant>,
    inline: Vec<u8>,
}

impl<'e> PingPong<'e> {
    /// The end that begins, or the one that answers. READs and atomics have nothing to do at the latter.
    ///
    /// # Errors
    /// [`PerfError::Post`] if a receive is refused.
    pub fn new(
        end: &'e mut End,
        engine: &mut Engine,
        job: &Job,
        begins: bool,
        now: Instant,
    ) -> Result<Self, PerfError> {
        let tag = Tag { bytes: job.bytes, slot: 0, message: 0 };
        tag.fill(&end.memory, end.out_at(0));
        // The mark of no message.
        if job.verb == Verb::Write {
            end.memory.copy_in(end.in_at(0) as usize + job.bytes as usize - 1, &[0]);
        }
        let keep = if begins { job.iterations as usize + 1 } else { 0 };
        let inline = if job.bytes <= job.inline { vec![0; job.bytes as usize] } else { Vec::new() };
        let mut pong = Self {
            end,
            job: *job,
            begins,
            begun: None,
            stopped: false,
            sent: 0,
            done: 0,
            got: 0,
            receives_posted: 0,
            posted: Vec::with_capacity(keep),
            inline,
        };
        if !pong.inline.is_empty() {
            pong.end.memory.copy_out(pong.end.out_at(0) as usize, &mut pong.inline);
        }
        pong.post_receives(engine, now)?;
        Ok(pong)
    }

    fn is_idle_end(&self) -> bool {
        self.job.verb.is_one_sided() && !self.begins
    }

    fn wanted(&self) -> u64 {
        match self.job.duration {
            Some(_) => u64::MAX,
            None => u64::from(self.job.iterations),
        }
    }

    fn post_receives(&mut self, engine: &mut Engine, now: Instant) -> Result<(), PerfError> {
        if self.job.verb != Verb::Send {
            return Ok(());
        }
        let depth = u64::from(self.end.setup.rx_depth);
        while self.receives_posted - self.got < depth && self.receives_posted < self.wanted() {
            self.end.post_receive(engine, 0, self.receives_posted % self.end.slots(), now)?;
            self.receives_posted += 1;
        }
        Ok(())
    }

    /// Whether it is this end's turn to send.
    fn may_send(&self) -> bool {
        if self.is_idle_end() || self.stopped || self.sent >= self.wanted() || self.done < self.sent {
            return false;
        }
        match (self.job.verb.is_one_sided(), self.begins) {
            (true, _) => true,
            (false, true) => self.got == self.sent,
            (false, false) => self.got > self.sent,
        }
    }

    fn send(&mut self, engine: &mut Engine, now: Instant) -> Result<(), PerfError> {
        let (verb, bytes) = (self.job.verb, self.job.bytes);
        if verb == Verb::Write {
            let mark = [(self.sent % MARKS) as u8 + 1];
            self.end.memory.copy_in(self.end.out_at(0) as usize + bytes as usize - 1, &mark);
            if let Some(last) = self.inline.last_mut() {
                *last = mark[0];
            }
        }
        let (addr, rkey) = self.end.peer_at(0, verb != Verb::Read);
        let op = match verb {
            Verb::Write => SendOp::Write { addr, rkey },
            Verb::Read => SendOp::Read { addr, rkey },
            Verb::Send => SendOp::Send,
            Verb::FetchAdd => SendOp::FetchAdd { addr, rkey, add: 1 },
            Verb::CompareSwap => SendOp::CompareSwap { addr, rkey, compare: 0, swap: 0 },
        };
        let at = match verb.is_one_sided() {
            true if verb.is_atomic() => self.end.in_at(0) + 8,
            true => self.end.in_at(0),
            false => self.end.out_at(0),
        };
        let list = [self.end.region.sge(at, bytes)];
        let data = if self.inline.is_empty() { Data::Sges(&list) } else { Data::Inline(&self.inline) };
        let to = self.end.destination(0);
        let wr = SendWr { wr_id: self.sent, op, flags: SendFlags::SIGNALED, data, to };
        engine.post_send(self.end.name.qps[0].0, &wr, now).map_err(PerfError::Post)?;
        self.begun.get_or_insert(now);
        if self.posted.len() < self.posted.capacity() {
            self.posted.push(now);
        }
        self.sent += 1;
        Ok(())
    }

    fn poll(&mut self, engine: &mut Engine, now: Instant) -> Result<bool, PerfError> {
        let mut wcs = [Wc::EMPTY; 8];
        let count = engine.poll_cq(self.end.send_cq, &mut wcs);
        for wc in &wcs[..count] {
            if wc.status != WcStatus::Success {
                return Err(PerfError::Failed(engine.explain(wc)));
            }
            self.done += 1;
        }
        let mut any = count > 0;
        match self.job.verb {
            Verb::Send => any |= self.poll_receives(engine, now)?,
            Verb::Write => any |= self.poll_mark()?,
            _ => {}
        }
        Ok(any)
    }

    fn poll_receives(&mut self, engine: &mut Engine, now: Instant) -> Result<bool, PerfError> {
        let mut wcs = [Wc::EMPTY; 8];
        let count = engine.poll_cq(self.end.recv_cq, &mut wcs);
        for wc in &wcs[..count] {
            if wc.status != WcStatus::Success {
                return Err(PerfError::Failed(engine.explain(wc)));
            }
            self.got += 1;
            if self.job.verify == Verify::Each {
                self.tag().check(&self.end.memory, self.end.received_at(wc.wr_id & 0xFFFF_FFFF), 0)?;
            }
        }
        if count > 0 {
            self.post_receives(engine, now)?;
        }
        Ok(count > 0)
    }

    fn tag(&self) -> Tag {
        Tag { bytes: self.job.bytes, slot: 0, message: 0 }
    }

    fn poll_mark(&mut self) -> Result<bool, PerfError> {
        let wanted = (self.got % MARKS) as u8 + 1;
        let mut seen = [0];
        self.end.memory.copy_out(self.end.in_at(0) as usize + self.job.bytes as usize - 1, &mut seen);
        if seen[0] != wanted || self.got >= self.wanted() {
            return Ok(false);
        }
        self.got += 1;
        if self.job.verify == Verify::Each {
            self.tag().check(&self.end.memory, self.end.in_at(0), 1)?;
        }
        Ok(true)
    }

    /// Looks at the last message that came.
    ///
    /// # Errors
    /// [`PerfError::Content`].
    pub fn verify_last(&self) -> Result<(), PerfError> {
        if self.job.verify == Verify::None {
            return Ok(());
        }
        match self.job.verb {
            Verb::Write if self.got > 0 => self.tag().check(&self.end.memory, self.end.in_at(0), 1),
            Verb::Read if self.done > 0 => self.tag().check(&self.end.memory, self.end.in_at(0), 0),
            Verb::Send if self.got > 0 => {
                let slot = (self.got - 1) % self.end.slots();
                self.tag().check(&self.end.memory, self.end.received_at(slot), 0)
            }
            _ => Ok(()),
        }
    }

    /// Messages that this end has sent and knows to be done.
    pub fn count(&self) -> u64 {
        self.done
    }

    /// What the times come to. Of a timed run only the mean is known.
    pub fn figures(&self, ended: Instant) -> Latency {
        let halves = !self.job.verb.is_one_sided();
        let mut seen = super::figures::latency(self.job.bytes, &self.posted, halves);
        if let (Some(_), Some(begun)) = (self.job.duration, self.begun) {
            let each = ended.since(begun).as_nanos() as f64 / 1000.0 / self.done.max(1) as f64;
            seen.t_avg_us = if halves { each / 2.0 } else { each };
        }
        seen.iterations = self.done;
        seen
    }
}

impl Worker for PingPong<'_> {
    fn step(&mut self, engine: &mut Engine, now: Instant) -> Result<bool, PerfError> {
        let any = self.poll(engine, now)?;
        if let (Some(duration), Some(begun), true) = (self.job.duration, self.begun, self.begins) {
            self.stopped |= now.since(begun) >= duration;
        }
        if self.may_send() {
            self.send(engine, now)?;
            return Ok(true);
        }
        Ok(any)
    }

    fn is_done(&self) -> bool {
        if self.is_idle_end() {
            return true;
        }
        let one_sided = self.job.verb.is_one_sided();
        let all = self.stopped || self.sent >= self.wanted();
        all && self.done == self.sent && (one_sided || self.got >= self.sent)
    }

    fn progress(&self) -> (u64, u64) {
        (self.done + self.got, self.wanted().saturating_mul(2))
    }

    fn arm(&self, engine: &mut Engine, now: Instant) -> bool {
        let sends = engine.arm_cq(self.end.send_cq, crate::Arm::Next, now);
        let receives = engine.arm_cq(self.end.recv_cq, crate::Arm::Next, now);
        sends || receives
    }
}
