//! One cable: two directions, each a line and what is in flight behind it.
//!
//! ```text
//!   side A ──▶ [line: busy until line_free] ──▶ flight: (arrives_at, packet or light) ... ──▶ side B
//!   side A ◀── flight ◀── [line] ◀── side B
//! ```
//!
//! Whatever enters a direction leaves it in the same order, however the delay is drawn: a cable has no overtaking
//! lane. A packet that is duplicated is followed by its copy; flips change the bytes on the way. The light of the link
//! and flow-control packets travel as packets do, but are neither lost nor bent.

use super::crc::{self, CRC_BYTES, Crcs, Verdict};
use super::rate::LineRate;
use crate::chip::{FlowUpdate, Packet, PeerState};
use crate::vtime::{Distribution, Rng, Seed};
use qhca_regs::{Duration, Instant};
use std::collections::VecDeque;

/// An end of a cable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The end named first.
    A,
    /// The end named second.
    B,
}

impl Side {
    /// Both ends.
    pub const BOTH: [Self; 2] = [Self::A, Self::B];

    /// The other end.
    pub const fn other(self) -> Self {
        match self {
            Self::A => Self::B,
            Self::B => Self::A,
        }
    }

    /// 0 or 1.
    pub const fn index(self) -> usize {
        self as usize
    }
}

/// What may go wrong with packets on their way, each once in so many packets on average; 0 is never.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LineFaults {
    /// The packet vanishes.
    pub lose_one_in: u64,
    /// The packet arrives twice.
    pub duplicate_one_in: u64,
    /// One to three bits of the packet change, check sums included.
    pub flip_one_in: u64,
}

/// What a cable is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CableConfig {
    /// From the last bit's leaving to its arrival.
    pub delay: Distribution,
    /// How long a packet occupies the line.
    pub rate: LineRate,
    /// What goes wrong from side A to side B, and from B to A.
    pub faults: [LineFaults; 2],
    /// The most that one direction holds; what exceeds it is dropped and counted.
    pub max_in_flight: usize,
    /// Whether it carries the ports' flow-control packets. Without them a sender takes the credits as endless.
    pub carries_credits: bool,
}

impl Default for CableConfig {
    /// Five metres of copper that lose nothing, on which packets take no time: chips pace their own.
    fn default() -> Self {
        Self {
            delay: Distribution::Fixed(Duration::from_nanos(25)),
            rate: LineRate::UNLIMITED,
            faults: [LineFaults::default(); 2],
            max_in_flight: 1 << 16,
            carries_credits: true,
        }
    }
}

/// What one direction did, counted where it happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LineStats {
    /// Packets that entered.
    pub entered: u64,
    /// Packets that arrived, copies included.
    pub arrived: u64,
    /// Packets lost by chance.
    pub lost: u64,
    /// Copies made by chance.
    pub duplicated: u64,
    /// Packets whose bits were flipped.
    pub flipped: u64,
    /// Packets that found the direction full.
    pub overrun: u64,
    /// Packets that found no cable, or were in flight when it was pulled.
    pub cut: u64,
}

/// What comes out of a cable.
#[derive(Clone, Debug)]
pub enum Arrival {
    /// A packet; its verdicts are what the receiving link finds.
    Packet(Packet),
    /// What the far port shows from now on.
    Light(PeerState),
    /// What the far port tells about its credits.
    Credits(FlowUpdate),
}

struct InFlight {
    arrives_at: Instant,
    what: Arrival,
}

struct Direction {
    flight: VecDeque<InFlight>,
    /// Until when the line is taken by an earlier packet.
    line_free: Instant,
    faults: LineFaults,
    stats: LineStats,
    rng: Rng,
}

/// A cable between two ports.
pub struct Cable {
    config: CableConfig,
    directions: [Direction; 2],
    connected: bool,
}

impl Cable {
    /// A plugged-in cable; `name` and `seed` decide its chances.
    pub fn new(config: CableConfig, seed: Seed, name: &str) -> Self {
        let direction = |way: &str, faults| Direction {
            flight: VecDeque::new(),
            line_free: Instant::ZERO,
            faults,
            stats: LineStats::default(),
            rng: seed.source(&format!("{name} {way}")),
        };
        let directions = [direction("A to B", config.faults[0]), direction("B to A", config.faults[1])];
        Self { config, directions, connected: true }
    }

    /// Whether both ends are plugged in.
    pub fn is_connected(&self) -> bool {
        self.connected
    }

    /// What happened to the packets that entered at `from`.
    pub fn stats(&self, from: Side) -> LineStats {
        self.directions[from.index()].stats
    }

    /// What goes wrong with packets that enter at `from`.
    pub fn faults(&self, from: Side) -> LineFaults {
        self.directions[from.index()].faults
    }

    /// Changes what goes wrong with packets that enter at `from`.
    pub fn set_faults(&mut self, from: Side, faults: LineFaults) {
        self.directions[from.index()].faults = faults;
    }

    /// Changes how long both ways are, for what enters from now on.
    pub fn set_delay(&mut self, delay: Distribution) {
        self.config.delay = delay;
    }

    /// Pulls the cable: what is in flight is lost. Gives back the packets.
    pub fn disconnect(&mut self) -> Vec<Packet> {
        self.connected = false;
        let mut cut = Vec::new();
        for direction in &mut self.directions {
            for entry in direction.flight.drain(..) {
                if let Arrival::Packet(packet) = entry.what {
                    direction.stats.cut += 1;
                    cut.push(packet);
                }
            }
        }
        cut
    }

    /// Plugs the cable in again.
    pub fn connect(&mut self) {
        self.connected = true;
    }

    /// A packet enters at `from`. Gives it back if it goes no further.
    pub fn send(&mut self, from: Side, mut packet: Packet, crcs: Option<&Crcs>) -> Option<Packet> {
        let (connected, config) = (self.connected, self.config);
        let direction = &mut self.directions[from.index()];
        direction.stats.entered += 1;
        if !connected {
            direction.stats.cut += 1;
            return Some(packet);
        }
        let arrives_at = direction.occupy_line(&packet, &config);
        if direction.rng.one_in(direction.faults.lose_one_in) {
            direction.stats.lost += 1;
            return Some(packet);
        }
        if direction.flight.len() >= config.max_in_flight {
            direction.stats.overrun += 1;
            return Some(packet);
        }
        if let Some(crcs) = crcs {
            crcs.seal(&mut packet.bytes);
        }
        let copy = direction.rng.one_in(direction.faults.duplicate_one_in).then(|| packet.clone());
        direction.stats.duplicated += u64::from(copy.is_some());
        for mut packet in std::iter::once(packet).chain(copy) {
            if direction.rng.one_in(direction.faults.flip_one_in) {
                direction.stats.flipped += 1;
                direction.flip(&mut packet, crcs.is_some());
            }
            direction.flight.push_back(InFlight { arrives_at, what: Arrival::Packet(packet) });
        }
        None
    }

    /// Whether the cable carries flow-control packets, and is there to do so.
    #[inline]
    pub fn carries_credits(&self) -> bool {
        self.connected && self.config.carries_credits
    }

    /// The port at `from` shows its light, or tells about its credits, from `now` on.
    pub fn show(&mut self, from: Side, what: Arrival, now: Instant) {
        if self.connected {
            let config = self.config;
            let direction = &mut self.directions[from.index()];
            let arrives_at = direction.arrival(now, &config);
            direction.flight.push_back(InFlight { arrives_at, what });
        }
    }

    /// When the next thing arrives at either end; [`Instant::MAX`] if nothing is on its way.
    #[inline]
    pub fn next_arrival(&self) -> Instant {
        let front =
            |direction: &Direction| direction.flight.front().map_or(Instant::MAX, |entry| entry.arrives_at);
        front(&self.directions[0]).min(front(&self.directions[1]))
    }

    /// The next thing that has arrived from `from` by `now`, check sums checked and taken off.
    #[inline]
    pub fn receive(&mut self, from: Side, now: Instant, crcs: Option<&Crcs>) -> Option<Arrival> {
        let direction = &mut self.directions[from.index()];
        if direction.flight.front()?.arrives_at > now {
            return None;
        }
        let mut arrival = direction.flight.pop_front()?.what;
        if let Arrival::Packet(packet) = &mut arrival {
            direction.stats.arrived += 1;
            if let Some(crcs) = crcs {
                let Verdict { icrc_ok, vcrc_ok } = crcs.open(&mut packet.bytes);
                packet.meta.icrc_ok &= icrc_ok;
                packet.meta.vcrc_ok &= vcrc_ok;
            }
        }
        Some(arrival)
    }
}

impl Direction {
    /// Puts the packet on the line as soon as that is free; returns when its last bit arrives.
    #[inline]
    fn occupy_line(&mut self, packet: &Packet, config: &CableConfig) -> Instant {
        let starts_at = packet.sent_at.max(self.line_free);
        self.line_free = starts_at + config.rate.packet_time(packet.bytes.len());
        self.arrival(self.line_free, config)
    }

    /// When something that leaves the line at `left_at` arrives: after its delay, and not before what is ahead of it.
    #[inline]
    fn arrival(&mut self, left_at: Instant, config: &CableConfig) -> Instant {
        let arrives_at = left_at + config.delay.draw(&mut self.rng);
        self.flight.back().map_or(arrives_at, |ahead| arrives_at.max(ahead.arrives_at))
    }

    /// Flips one to three different bits. Check sums that are really there find out for themselves; else the verdict is
    /// what they would find, the two sums' own bits taken as flipped when the draw falls past the packet's end.
    #[cold]
    fn flip(&mut self, packet: &mut Packet, sealed: bool) {
        let bytes = &mut packet.bytes;
        let body_bits = (bytes.len() - if sealed { CRC_BYTES } else { 0 }) * 8;
        let mut flipped = [usize::MAX; 3];
        for n in 0..self.rng.between(1, 3) as usize {
            let mut at = usize::MAX;
            // At most three rounds on average less than two: a packet has hundreds of bits.
            while flipped.contains(&at) {
                at = self.rng.below((body_bits + CRC_BYTES * 8) as u64) as usize;
            }
            flipped[n] = at;
        }
        for at in flipped.into_iter().filter(|at| *at != usize::MAX) {
            let (byte, bit) = (at / 8, (at % 8) as u8);
            if !sealed {
                packet.meta.vcrc_ok = false;
                let in_icrc = at < body_bits + 32;
                packet.meta.icrc_ok &= !(in_icrc && crc::is_invariant(bytes, byte, bit));
            }
            if let Some(byte) = bytes.get_mut(byte) {
                *byte ^= 1 << bit;
            }
        }
    }
}
