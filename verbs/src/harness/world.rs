//! The world: both sides, the cable and the tap, turned in virtual time until everything is over.

use std::sync::Arc;

use qhca_driver::dma::DmaMemory;
use qhca_regs::{Duration, Instant};
use zerocopy::IntoBytes;

use super::cable::Cable;
use super::check::{Broken, UNTOUCHED, Violation, atomic, compare};
use super::rng::Rng;
use super::scenario::{Fault, Op, Scenario, Trouble};
use super::side::{MEMORY_BYTES, Side, Stretch, lay_out, lid_of};
use super::table::Table;
use super::tap::Tap;
use crate::mem::Payload;
use crate::out::{Full, Outgoing};
use crate::psn::Psn;
use crate::qp::{QpAttr, QpState};
use crate::wc::{Along, Wc, WcOpcode, WcStatus};

/// A scenario that takes longer than this hangs.
const LONGEST: Duration = Duration::from_secs(20);
/// Turns after which a scenario is taken to go round in circles.
const TURNS_MAX: u64 = 200_000;
/// A receiver looks this often whether it has receives to post.
const REPLENISH_EVERY: Duration = Duration::from_micros(150);

/// What came of a scenario without a violation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Packets on the cable.
    pub packets: u64,
    /// Virtual time that it took.
    pub took: Duration,
    /// A hash of everything that happened: equal for equal seeds.
    pub trace: u64,
}

/// What is kept from scenario to scenario: memory, mostly.
pub struct World {
    memories: [Arc<DmaMemory>; 2],
    cable: Cable,
    tap: Tap,
    /// How many requests ended how.
    pub table: Table,
    #[cfg(test)]
    pub(super) planted: Option<super::Planted>,
}

impl World {
    /// A world without anything in it.
    ///
    /// # Errors
    /// What the system says when it has no memory.
    pub fn new() -> std::io::Result<Self> {
        let memory = || DmaMemory::new(MEMORY_BYTES).map(Arc::new);
        Ok(Self {
            memories: [memory()?, memory()?],
            cable: Cable::new(),
            tap: Tap::new(),
            table: Table::default(),
            #[cfg(test)]
            planted: None,
        })
    }

    /// Plays the scenario of `seed`.
    ///
    /// # Errors
    /// The first [`Violation`].
    pub fn play(&mut self, seed: u64) -> Result<Outcome, Violation> {
        let scenario = tame(Scenario::new(seed));
        let outcome = self.play_scenario(&scenario);
        outcome.map_err(|(rule, seen)| {
            let Scenario { fault, trouble, .. } = scenario;
            Violation { seed, rule, seen: format!("{seen} [fault {fault}, trouble {trouble:?}]") }
        })
    }

    fn play_scenario(&mut self, scenario: &Scenario) -> Result<Outcome, Broken> {
        let now = Instant::ZERO;
        let [first, second] = self.memories.clone();
        let mut sides = [Side::new(0, scenario, first)?, Side::new(1, scenario, second)?];
        #[cfg(test)]
        for side in &mut sides {
            side.engine.shared_mut().planted = self.planted;
        }
        self.cable.start(scenario);
        self.tap.start(scenario.psn, scenario.window, scenario.mtu.shift());
        let qps = [sides[0].qp, sides[1].qp];
        for (number, side) in sides.iter_mut().enumerate() {
            side.connect(number, qps[1 - number], scenario, scenario.psn, now)?;
        }
        for side in 0..2 {
            lay_out(side, &mut sides, scenario, now)?;
        }
        for (number, side) in sides.iter_mut().enumerate() {
            let sent_by_peer = scenario.requests[1 - number].iter().filter(|plan| plan.op.is_send());
            let longest = sent_by_peer.map(|plan| plan.len_bytes).max().unwrap_or(0);
            side.make_buffers(longest as usize + 8, scenario.receives[number].0);
            side.prepare(number);
        }
        for from in 0..2 {
            prepare_reads(from, &sides);
        }
        let mut play = Play {
            scenario,
            cable: &mut self.cable,
            tap: &mut self.tap,
            sides,
            now,
            rng: Rng::new(scenario.seed ^ 0x0DD5),
            trace: scenario.seed,
            turns: 0,
            broken: None,
            message: [0; 2],
            received: [0; 2],
            gathered: [0; 2],
            replenish_at: [Instant::ZERO + REPLENISH_EVERY; 2],
            reset_at: Instant::MAX,
            resets: 0,
            failed: false,
        };
        play.choose_incidents();
        play.run()?;
        play.judge()?;
        for request in play.sides.iter().flat_map(|side| &side.requests) {
            if let Some(status) = request.ended {
                self.table.count(request.plan.op, scenario.fault, status);
            }
        }
        self.table.scenarios += 1;
        self.table.packets += play.cable.sent;
        Ok(Outcome { packets: play.cable.sent, took: play.now.since(Instant::ZERO), trace: play.trace })
    }
}

/// Plays one seed in a world of its own.
///
/// # Errors
/// The [`Violation`], or what the system said, as one.
pub fn run(seed: u64) -> Result<Outcome, Violation> {
    let mut world = World::new().map_err(|error| Violation {
        seed,
        rule: "there is memory for a world",
        seen: error.to_string(),
    })?;
    world.play(seed)
}

/// A reset in the middle changes which receive a message meets, so it comes without trouble.
fn tame(mut scenario: Scenario) -> Scenario {
    if scenario.fault == Fault::Reset && scenario.trouble != Trouble::None {
        scenario.trouble = Trouble::None;
        scenario.requests[0].iter_mut().for_each(|plan| plan.trouble = Trouble::None);
        (scenario.retry_count, scenario.rnr_retry) = (7, 7);
    }
    scenario
}

/// What side `from` will read lies at its peer.
fn prepare_reads(from: usize, sides: &[Side; 2]) {
    for (index, request) in sides[from].requests.iter().enumerate() {
        if request.plan.op == Op::Read {
            let mut bytes = vec![0; request.there.len];
            super::check::fill(&mut bytes, from, index);
            sides[1 - from].write(request.there.at, &bytes);
        }
    }
}

struct Play<'a> {
    scenario: &'a Scenario,
    cable: &'a mut Cable,
    tap: &'a mut Tap,
    sides: [Side; 2],
    now: Instant,
    rng: Rng,
    trace: u64,
    turns: u64,
    broken: Option<Broken>,
    /// For each receiver: the peer's request that its next receive is for.
    message: [usize; 2],
    received: [u64; 2],
    gathered: [u32; 2],
    replenish_at: [Instant; 2],
    reset_at: Instant,
    resets: u32,
    /// A queue pair failed: nothing more is posted.
    failed: bool,
}

impl Play<'_> {
    /// When what happens that is not a matter of packets.
    fn choose_incidents(&mut self) {
        let soon = |rng: &mut Rng| Instant::from_nanos(rng.between(500, 60_000));
        let fault = self.scenario.fault;
        if fault == Fault::Stall || fault == Fault::Mixed {
            let side = self.rng.below(2) as usize;
            // The stall begins at once and is over before retries are used up.
            self.sides[side].stalled_until = Instant::from_nanos(self.rng.between(1_000, 4_000_000));
        }
        if fault == Fault::Flap {
            let from = soon(&mut self.rng);
            self.cable.down = (from, from + Duration::from_nanos(self.rng.between(1_000, 6_000_000)));
        }
        if fault == Fault::Reset {
            self.reset_at = soon(&mut self.rng);
        }
        if self.scenario.trouble == Trouble::Cut {
            self.cable.down = (soon(&mut self.rng), Instant::MAX);
        }
    }

    fn run(&mut self) -> Result<(), Broken> {
        loop {
            self.turns += 1;
            if self.turns > TURNS_MAX || self.now.since(Instant::ZERO) > LONGEST {
                return Err(("everything ends", self.describe()));
            }
            for side in 0..2 {
                self.turn(side)?;
            }
            if self.is_over() {
                return Ok(());
            }
            self.now = self.next_time().ok_or_else(|| ("nothing hangs", self.describe()))?;
            if self.reset_at <= self.now {
                self.reset()?;
            }
            for side in 0..2 {
                if self.sides[side].stalled_until <= self.now {
                    self.sides[side].engine.on_timeout(self.now);
                }
            }
            self.deliver();
        }
    }

    fn describe(&self) -> String {
        let open = |side: usize| self.sides[side].open.len();
        let state = |side: usize| self.sides[side].engine.qp_state(self.sides[side].qp);
        format!(
            "at {} after {} turns: {} and {} requests open, states {:?} and {:?}, numbers sent {} and {}",
            self.now,
            self.turns,
            open(0),
            open(1),
            state(0),
            state(1),
            self.tap.sent(0),
            self.tap.sent(1),
        )
    }

    /// Whether all requests were posted and nothing is left to happen.
    fn is_over(&self) -> bool {
        let done =
            |side: &Side| (side.next_post == side.requests.len() || self.failed) && side.open.is_empty();
        self.sides.iter().all(done) && self.reset_at == Instant::MAX
            || self.sides.iter().all(|side| {
                (side.next_post == side.requests.len() || self.failed)
                    && side.open.iter().all(|index| !side.requests[*index].plan.signaled)
                    && !side.engine.has_output()
            }) && self.reset_at == Instant::MAX
                && self.cable.next().is_none()
                && self.sides.iter().all(|side| side.engine.is_idle(side.qp))
    }

    fn next_time(&self) -> Option<Instant> {
        let mut times = vec![self.cable.next(), (self.reset_at != Instant::MAX).then_some(self.reset_at)];
        for side in 0..2 {
            let Side { engine, stalled_until, .. } = &self.sides[side];
            times.push((*stalled_until > self.now).then_some(*stalled_until));
            times.push(engine.next_timeout().map(|at| at.max(*stalled_until)));
            let wants = self.sides[side].receives_left > 0 && !self.failed;
            times.push(wants.then_some(self.replenish_at[side].max(*stalled_until)));
        }
        let next = times.into_iter().flatten().min()?;
        Some(next.max(self.now + Duration::from_nanos(1)))
    }

    /// One side does what it can do now.
    fn turn(&mut self, number: usize) -> Result<(), Broken> {
        if self.sides[number].stalled_until > self.now {
            return Ok(());
        }
        if !self.failed {
            self.replenish(number)?;
            self.sides[number].post_sends(number, self.now)?;
        }
        loop {
            let Self { cable, tap, sides, now, broken, trace, .. } = self;
            let mut wire = |packet: &Outgoing<'_>| -> Result<(), Full> {
                cable.send(1 - number, packet, *now)?;
                let mut words = [0; 32];
                let words = &mut words[..packet.header.len().min(32)];
                words.iter_mut().zip(packet.header).for_each(|(to, word)| *to = u32::from_be(*word));
                let tapped = tap.on_sent(number, words, packet.payload.as_bytes(), *now);
                *trace = mix(*trace, now.as_nanos() ^ u64::from(words.get(4).copied().unwrap_or(0)) << 1);
                if let Err(found) = tapped {
                    broken.get_or_insert(found);
                }
                Ok(())
            };
            let sent = sides[number].engine.transmit(&mut wire, *now, 256);
            if let Some(broken) = self.broken.take() {
                return Err(broken);
            }
            let polled = self.poll(number)?;
            if sent == 0 && polled == 0 {
                return Ok(());
            }
            if !self.failed {
                self.sides[number].post_sends(number, self.now)?;
            }
        }
    }

    /// Posts receives: some gathered ones together, or whatever is missing when it is time.
    fn replenish(&mut self, side: usize) -> Result<(), Broken> {
        let (wanted, gather) = self.scenario.receives[side];
        let is_time = self.replenish_at[side] <= self.now;
        if is_time {
            self.replenish_at[side] = self.now + REPLENISH_EVERY;
        }
        if self.turns == 1 || self.gathered[side] >= gather || is_time {
            self.gathered[side] = 0;
            self.sides[side].post_receives(wanted, self.now)?;
        }
        Ok(())
    }

    /// Hands out what has arrived.
    fn deliver(&mut self) {
        while let Some((to, packet)) = self.cable.pop(self.now) {
            if self.sides[to].stalled_until > self.now {
                // A stalled endpoint's buffers are full: what comes is lost.
                self.cable.recycle(packet);
                continue;
            }
            self.tap.on_delivered(to, &packet.words, &packet.payload, self.now);
            self.sides[to].engine.on_packet(&packet.words, Payload::Bytes(&packet.payload), self.now);
            self.cable.recycle(packet);
        }
    }

    fn poll(&mut self, number: usize) -> Result<usize, Broken> {
        let mut wcs = [Wc::EMPTY; 16];
        let mut total = 0;
        for (cq, is_send) in [(self.sides[number].send_cq, true), (self.sides[number].recv_cq, false)] {
            loop {
                let count = self.sides[number].engine.poll_cq(cq, &mut wcs);
                for wc in &wcs[..count] {
                    self.trace = mix(self.trace, wc.wr_id ^ u64::from(wc.status.number()) << 32);
                    if is_send { self.on_send_done(number, wc)? } else { self.on_recv_done(number, wc)? }
                }
                total += count;
                if count < wcs.len() {
                    break;
                }
            }
        }
        while let Some(event) = self.sides[number].engine.poll_event() {
            if matches!(event, crate::Event::CqOverflow(_)) {
                return Err(("no completion queue overflows", event.to_string()));
            }
        }
        Ok(total)
    }

    fn on_send_done(&mut self, number: usize, wc: &Wc) -> Result<(), Broken> {
        if wc.wr_id == u64::MAX {
            return Ok(());
        }
        loop {
            let Some(index) = self.sides[number].open.pop_front() else {
                return Err(("each request completes once", format!("side {number}: {wc} was not open")));
            };
            if index as u64 == wc.wr_id {
                return self.on_request_ended(number, index, wc.status);
            }
            if self.sides[number].requests[index].plan.signaled {
                return Err((
                    "requests complete in order",
                    format!("side {number}: {wc} before request {index}"),
                ));
            }
            self.on_request_ended(number, index, WcStatus::Success)?;
        }
    }

    fn on_request_ended(&mut self, number: usize, index: usize, status: WcStatus) -> Result<(), Broken> {
        let request = self.sides[number].requests[index];
        let before = index.checked_sub(1).and_then(|before| self.sides[number].requests[before].ended);
        let fresh = self.resets > 0;
        if status == WcStatus::Success && before.is_some_and(|before| before != WcStatus::Success) && !fresh {
            return Err(("nothing succeeds after a failure", format!("side {number} request {index}")));
        }
        self.sides[number].requests[index].ended = Some(status);
        if status == WcStatus::Success {
            return self.check_data(number, index);
        }
        self.failed |= self.scenario.fault != Fault::Reset;
        if status == WcStatus::RetryExceeded && !self.tap.has_tried(number, self.scenario.retry_count) {
            let seen = format!("side {number} request {index} after less than {}", self.scenario.retry_count);
            return Err(("repeats are made before it is given up", seen));
        }
        if status == WcStatus::Flushed
            || (status == WcStatus::RetryExceeded && self.scenario.fault != Fault::None)
        {
            return Ok(());
        }
        let expected = expected_status(request.plan.trouble);
        if self.scenario.trouble == Trouble::Cut && status == WcStatus::RetryExceeded || status == expected {
            return Ok(());
        }
        // With RNR retries counted a slow receiver is enough.
        let scarce = self.scenario.trouble == Trouble::NoReceive && request.plan.op.takes_receive();
        if scarce && status == WcStatus::RnrRetryExceeded {
            return Ok(());
        }
        // When the peer's queue pair failed first, the silence that follows is all that is seen of it.
        if status == WcStatus::RetryExceeded && self.scenario.trouble != Trouble::None {
            return Ok(());
        }
        let seen = format!("side {number} request {index} {:?}: {status}, expected {expected}", request.plan);
        Err(("a request fails as its trouble says", seen))
    }

    /// Holds the data of a request that succeeded against what it should be.
    fn check_data(&mut self, number: usize, index: usize) -> Result<(), Broken> {
        let request = self.sides[number].requests[index];
        let right = "the bytes are right";
        match request.plan.op {
            Op::Read => {
                let bytes = self.sides[number].read(request.here);
                compare(&bytes, number, index).map_err(|seen| (right, seen))
            }
            Op::Write | Op::WriteImmediate => {
                let bytes = self.sides[1 - number].read(request.there);
                compare(&bytes, number, index).map_err(|seen| (right, seen))
            }
            Op::CompareSwap | Op::FetchAdd => {
                let bytes = self.sides[number].read(request.here);
                let seen = bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte));
                let is_swap = request.plan.op == Op::CompareSwap;
                let wanted = atomic(&mut self.sides[number].cell, is_swap, request.plan.values);
                if seen == wanted {
                    return Ok(());
                }
                let seen = format!("side {number} request {index}: {seen} before, not {wanted}");
                Err(("atomics happen once, in order", seen))
            }
            _ => Ok(()),
        }
    }

    fn on_recv_done(&mut self, number: usize, wc: &Wc) -> Result<(), Broken> {
        let buffer = wc.wr_id as usize;
        let oldest = self.sides[number].posted.pop_front();
        if oldest != Some(buffer) {
            return Err((
                "receives complete once, in order",
                format!("side {number}: {wc}, oldest is {oldest:?}"),
            ));
        }
        self.gathered[number] += 1;
        let stretch = self.sides[number].buffers[buffer];
        if let Some(detail) = wc.detail() {
            let peer = &self.sides[1 - number].requests;
            let at = (self.message[number]..peer.len()).find(|at| peer[*at].plan.op.takes_receive());
            let Some(at) = at else {
                return Err(("each message comes once", format!("side {number}: {wc}")));
            };
            self.message[number] = at + 1;
            self.received[number] += 1;
            let plan = peer[at].plan;
            let kind =
                if plan.op == Op::WriteImmediate { WcOpcode::RecvWriteImmediate } else { WcOpcode::Recv };
            let carries = match plan.op {
                Op::SendImmediate | Op::WriteImmediate => detail.along == Along::Immediate(at as u32),
                Op::SendInvalidate => matches!(detail.along, Along::Invalidated(_)),
                _ => detail.along == Along::None,
            };
            if detail.opcode != kind || detail.len_bytes != plan.len_bytes || !carries {
                let seen = format!("side {number}: {detail:?} for request {at} {plan:?}");
                return Err(("a receive says what came", seen));
            }
            let data = if plan.op.is_send() { plan.len_bytes as usize } else { 0 };
            let bytes = self.sides[number].read(stretch);
            compare(&bytes[..data], 1 - number, at).map_err(|seen| ("the bytes are right", seen))?;
            if bytes[data..].iter().any(|byte| *byte != UNTOUCHED) {
                return Err(("nothing is written past a message", format!("side {number}: {wc}")));
            }
        } else if wc.status != WcStatus::Flushed {
            let expected = match self.scenario.trouble {
                Trouble::SmallReceive => WcStatus::LocalLength,
                Trouble::BadReceive => WcStatus::LocalProtection,
                _ => WcStatus::Flushed,
            };
            if wc.status != expected {
                return Err(("a receive fails as its trouble says", format!("side {number}: {wc}")));
            }
            self.failed = true;
        }
        self.sides[number].write(stretch.at, &vec![UNTOUCHED; stretch.len]);
        self.sides[number].free_buffers.push(buffer);
        Ok(())
    }

    /// Both queue pairs are reset and connected again, one a little after it went to the error state.
    fn reset(&mut self) -> Result<(), Broken> {
        self.reset_at = Instant::MAX;
        self.resets += 1;
        let first = self.rng.below(2) as usize;
        for side in [first, 1 - first] {
            let Side { engine, qp, .. } = &mut self.sides[side];
            let moved = engine.modify_qp(*qp, &QpAttr::to(QpState::Error), self.now);
            moved.map_err(|error| ("a queue pair can be moved to ERR", error.to_string()))?;
        }
        for side in 0..2 {
            // What is on the way is not for the new conversation.
            self.sides[side].stalled_until = Instant::ZERO;
            self.poll(side)?;
            self.end_unsignaled(side)?;
            if !self.sides[side].has_srq() && !self.sides[side].posted.is_empty() {
                return Err(("a flush completes every receive", format!("side {side}")));
            }
        }
        self.cable.clear();
        let psn = [Psn::new(self.rng.draw() as u32), Psn::new(self.rng.draw() as u32)];
        let qps = [self.sides[0].qp, self.sides[1].qp];
        self.tap.start(psn, self.scenario.window, self.scenario.mtu.shift());
        for side in 0..2 {
            let Side { engine, qp, .. } = &mut self.sides[side];
            let moved = engine.modify_qp(*qp, &QpAttr::to(QpState::Reset), self.now);
            moved.map_err(|error| ("a queue pair can be reset", error.to_string()))?;
            self.sides[side].connect(side, qps[1 - side], self.scenario, psn, self.now)?;
            self.message[1 - side] = self.sides[side].next_post;
            self.sync_cell(side)?;
        }
        Ok(())
    }

    /// Requests that are open when nothing more comes were done, and did not ask for a completion.
    fn end_unsignaled(&mut self, side: usize) -> Result<(), Broken> {
        while let Some(index) = self.sides[side].open.pop_front() {
            if self.sides[side].requests[index].plan.signaled {
                return Err(("each request completes once", format!("side {side}: {index} never did")));
            }
            self.on_request_ended(side, index, WcStatus::Success)?;
        }
        Ok(())
    }

    /// What atomics of `side` did before it was reset: some of those without a completion may have happened.
    fn sync_cell(&mut self, side: usize) -> Result<(), Broken> {
        let seen = self.sides[1 - side].cell_now();
        let mut value = self.sides[side].cell;
        let mut possible = vec![value];
        for request in &self.sides[side].requests {
            if request.plan.op.is_atomic() && request.ended == Some(WcStatus::Flushed) {
                atomic(&mut value, request.plan.op == Op::CompareSwap, request.plan.values);
                possible.push(value);
            }
        }
        self.sides[side].cell = seen;
        if possible.contains(&seen) {
            return Ok(());
        }
        Err((
            "atomics happen once, in order",
            format!("side {side}: the cell is {seen}, possible {possible:?}"),
        ))
    }

    /// Everything is over: was it right?
    fn judge(&mut self) -> Result<(), Broken> {
        for number in 0..2 {
            self.end_unsignaled(number)?;
            if self.resets == 0 {
                self.judge_cell(number)?;
            }
            self.judge_surroundings(number)?;
            debug_assert_eq!(self.sides[number].engine.port().lid, lid_of(number));
        }
        Ok(())
    }

    fn judge_cell(&mut self, side: usize) -> Result<(), Broken> {
        let seen = self.sides[1 - side].cell_now();
        let mut value = self.sides[side].cell;
        let mut possible = vec![value];
        for request in &self.sides[side].requests {
            let failed = request.ended.is_some_and(|status| status != WcStatus::Success);
            if request.plan.op.is_atomic() && failed {
                atomic(&mut value, request.plan.op == Op::CompareSwap, request.plan.values);
                possible.push(value);
            }
        }
        if possible.contains(&seen) {
            return Ok(());
        }
        Err((
            "atomics happen once, in order",
            format!("side {side}: the cell is {seen}, possible {possible:?}"),
        ))
    }

    /// Whatever belongs to no request and no receive is as it was.
    fn judge_surroundings(&self, side: usize) -> Result<(), Broken> {
        let all = self.sides[side].read(Stretch { at: 0, len: self.sides[side].used() });
        let mut from = 0;
        let end = Stretch { at: all.len(), len: 0 };
        for stretch in self.sides[side].touched(&self.sides[1 - side]).into_iter().chain([end]) {
            if stretch.len == 0 && stretch.at == 0 {
                continue;
            }
            if let Some(gap) = all.get(from..stretch.at)
                && let Some(at) = gap.iter().position(|byte| *byte != UNTOUCHED)
            {
                return Err(("nothing beside is touched", format!("side {side} byte {}", from + at)));
            }
            from = from.max(stretch.at + stretch.len);
        }
        Ok(())
    }
}

/// How a request with this trouble fails.
fn expected_status(trouble: Trouble) -> WcStatus {
    match trouble {
        Trouble::None => WcStatus::Success,
        Trouble::StaleKey | Trouble::RemoteBounds | Trouble::NoRight => WcStatus::RemoteAccess,
        Trouble::SmallReceive => WcStatus::RemoteInvalidRequest,
        Trouble::BadReceive => WcStatus::RemoteOperation,
        Trouble::BadList => WcStatus::LocalProtection,
        Trouble::NoReceive => WcStatus::RnrRetryExceeded,
        Trouble::Cut => WcStatus::RetryExceeded,
    }
}

fn mix(hash: u64, value: u64) -> u64 {
    (hash ^ value).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29)
}
