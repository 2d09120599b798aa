//! The cable: a heap of arrivals in virtual time, and what a fault does to them.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use qhca_regs::{Duration, Instant};
use zerocopy::IntoBytes;

use super::rng::Rng;
use super::scenario::{Fault, Scenario};
use crate::out::{Full, Outgoing};

/// Packets on the way in one direction at most; a sender finds no room beyond.
const ON_THE_WAY_MAX: usize = 48;
/// Time from one end to the other.
const LATENCY: Duration = Duration::from_nanos(700);
/// The longest extra time of a late packet.
const LATE_MAX_NS: u64 = 60_000;
/// Bytes that leave in a nanosecond, times eight.
const BYTES_PER_8NS: u64 = 26;

/// A packet as it arrives.
#[derive(Debug, Default)]
pub(super) struct Arrived {
    pub(super) words: Vec<u32>,
    pub(super) payload: Vec<u8>,
}

struct OnTheWay {
    at: Instant,
    number: u64,
    to: usize,
    packet: Arrived,
}

impl PartialEq for OnTheWay {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}
impl Eq for OnTheWay {}
impl PartialOrd for OnTheWay {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for OnTheWay {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

/// Both directions of a cable.
pub(super) struct Cable {
    heap: BinaryHeap<Reverse<OnTheWay>>,
    spare: Vec<Arrived>,
    numbers: u64,
    on_the_way: [usize; 2],
    free_at: [Instant; 2],
    rng: Rng,
    fault: Fault,
    per_mille: u64,
    /// The link is down in between.
    pub(super) down: (Instant, Instant),
    /// Packets that were damaged, for each receiver.
    pub(super) damaged: u64,
    pub(super) lost: u64,
    pub(super) sent: u64,
}

impl Cable {
    pub(super) fn new() -> Self {
        Self {
            heap: BinaryHeap::new(),
            spare: Vec::new(),
            numbers: 0,
            on_the_way: [0; 2],
            free_at: [Instant::ZERO; 2],
            rng: Rng::new(0),
            fault: Fault::None,
            per_mille: 0,
            down: (Instant::MAX, Instant::MAX),
            damaged: 0,
            lost: 0,
            sent: 0,
        }
    }

    /// Empties the cable and gives it the habits of `scenario`.
    pub(super) fn start(&mut self, scenario: &Scenario) {
        self.clear();
        self.free_at = [Instant::ZERO; 2];
        self.rng = Rng::new(scenario.seed ^ 0xCAB1_E000_0000_0000);
        self.fault = scenario.fault;
        self.per_mille = scenario.per_mille;
        self.down = (Instant::MAX, Instant::MAX);
        (self.damaged, self.lost, self.sent) = (0, 0, 0);
    }

    /// Whatever is on the way is gone.
    pub(super) fn clear(&mut self) {
        while let Some(Reverse(entry)) = self.heap.pop() {
            self.spare.push(entry.packet);
        }
        self.on_the_way = [0; 2];
    }

    /// Takes a packet for side `to`.
    pub(super) fn send(&mut self, to: usize, packet: &Outgoing<'_>, now: Instant) -> Result<(), Full> {
        if self.on_the_way[to] >= ON_THE_WAY_MAX {
            return Err(Full);
        }
        self.sent += 1;
        let bytes = (packet.header.len() + packet.payload.len()) as u64 * 4;
        self.free_at[to] = self.free_at[to].max(now) + Duration::from_nanos(bytes * 8 / BYTES_PER_8NS);
        let at = self.free_at[to] + LATENCY;
        let fault = match self.fault {
            Fault::Mixed => {
                self.rng.pick(&[Fault::Loss, Fault::Duplicate, Fault::Delay, Fault::Corrupt, Fault::None])
            }
            fault => fault,
        };
        let is_hit = self.rng.chance(self.per_mille);
        let is_down = at >= self.down.0 && at < self.down.1;
        match fault {
            _ if is_down => self.lost += 1,
            Fault::Loss if is_hit => self.lost += 1,
            Fault::Corrupt if is_hit => self.damaged += 1,
            Fault::Duplicate if is_hit => {
                self.push(to, packet, at);
                let late = Duration::from_nanos(self.rng.below(LATE_MAX_NS));
                self.push(to, packet, at + late);
            }
            Fault::Delay if is_hit => {
                let late = Duration::from_nanos(self.rng.below(LATE_MAX_NS));
                self.push(to, packet, at + late);
            }
            _ => self.push(to, packet, at),
        }
        Ok(())
    }

    fn push(&mut self, to: usize, packet: &Outgoing<'_>, at: Instant) {
        let mut arrived = self.spare.pop().unwrap_or_default();
        arrived.words.clear();
        arrived.words.extend(packet.header.iter().map(|word| u32::from_be(*word)));
        arrived.payload.clear();
        arrived.payload.extend_from_slice(packet.payload.as_bytes());
        self.numbers += 1;
        self.on_the_way[to] += 1;
        self.heap.push(Reverse(OnTheWay { at, number: self.numbers, to, packet: arrived }));
    }

    /// When the next packet arrives.
    pub(super) fn next(&self) -> Option<Instant> {
        self.heap.peek().map(|Reverse(entry)| entry.at)
    }

    /// The next packet that has arrived by `now`, and for whom.
    pub(super) fn pop(&mut self, now: Instant) -> Option<(usize, Arrived)> {
        if self.next()? > now {
            return None;
        }
        let Reverse(entry) = self.heap.pop()?;
        self.on_the_way[entry.to] -= 1;
        Some((entry.to, entry.packet))
    }

    /// Takes a packet's memory back.
    pub(super) fn recycle(&mut self, packet: Arrived) {
        self.spare.push(packet);
    }
}
