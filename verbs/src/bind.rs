//! An engine on a receive context and a sender of the driver: the adapter between queue pairs and the chip.
//!
//! ```text
//!   context.drain ─► headers as words, payload in place ─► Engine ─► Frame ─► sender.submit
//!                     (NoBuffer, Damaged: counted; what is missing shows as a gap)
//! ```
//!
//! One turn drains, does what is due, and sends what there is room for. Nothing is copied on the way in but the headers;
//! the payload goes from the chip's buffer to its place in one copy.

use qhca_driver::dma::DmaSlice;
use qhca_driver::env::Backend;
use qhca_driver::runtime::{Receiver, Transmitter};
use qhca_driver::rx::{Arrival, Drained, Next, Packet};
use qhca_driver::tx::{Frame, Lane, Payload as FramePayload, SubmitError};
use qhca_regs::{Duration, Instant, Port};

use crate::engine::Engine;
use crate::mem::Payload;
use crate::out::{Full, Outgoing, Wire};

/// Words of headers that an entry of the chip's queue can hold.
const ENTRY_WORDS: usize = 30;
/// Packets that one turn takes and sends at most, unless told otherwise.
pub const TURN_PACKETS: usize = 256;
/// The lane of subnet management.
const MANAGEMENT_VL: u8 = 15;
/// The largest pause that a packet can ask for.
const STATIC_RATE_MAX: u32 = 0x3FFF;

/// Where packets come from.
pub trait Arrivals {
    /// Takes up to `budget` packets without waiting.
    fn drain(&mut self, budget: usize, sink: impl FnMut(Arrival<'_>)) -> Drained;

    /// Sleeps until a packet is there or `timeout` has passed; true if one is there. What cannot be slept on returns at
    /// once.
    fn sleep(&mut self, timeout: Duration) -> bool {
        let _ = timeout;
        false
    }
}

/// Where packets go.
pub trait Departures {
    /// Gives a frame to the chip.
    ///
    /// # Errors
    /// [`SubmitError::WouldBlock`] if there is no room.
    fn submit(&mut self, frame: &Frame<'_>) -> Result<(), SubmitError>;
}

impl<B: Backend> Arrivals for Receiver<B> {
    #[inline]
    fn drain(&mut self, budget: usize, sink: impl FnMut(Arrival<'_>)) -> Drained {
        self.poll(budget, sink)
    }

    fn sleep(&mut self, timeout: Duration) -> bool {
        self.wait(Some(timeout))
    }
}

impl<B: Backend> Departures for Transmitter<B> {
    #[inline]
    fn submit(&mut self, frame: &Frame<'_>) -> Result<(), SubmitError> {
        Transmitter::submit(self, frame).map(|_buffer| ())
    }
}

/// What an adapter has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BoundCounts {
    /// Arrivals whose payload found no buffer.
    pub without_buffer: u64,
    /// Arrivals that the chip found faulty, or that contradict themselves.
    pub damaged: u64,
    /// Packets that the sender refused for good.
    pub refused: u64,
    /// Times that the chip had no room.
    pub no_room: u64,
}

/// What one turn did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turned {
    /// Entries that were taken.
    pub received: usize,
    /// Packets that were sent.
    pub sent: usize,
    /// Whether the device is still there.
    pub gone: bool,
}

impl Turned {
    /// Whether the turn found nothing to do.
    pub fn is_idle(&self) -> bool {
        self.received == 0 && self.sent == 0
    }
}

/// An engine with its context and sender.
pub struct Bound<A, D> {
    /// The engine.
    pub engine: Engine,
    arrivals: A,
    departures: Sending<D>,
    counts: BoundCounts,
}

/// A sender, as the engine wants it.
struct Sending<D> {
    departures: D,
    port: Port,
    refused: u64,
    no_room: u64,
}

impl<D: Departures> Wire for Sending<D> {
    #[inline]
    fn send(&mut self, packet: &Outgoing<'_>) -> Result<(), Full> {
        let payload =
            if packet.payload.is_empty() { FramePayload::None } else { FramePayload::Dwords(packet.payload) };
        let lane = if packet.vl == MANAGEMENT_VL { Lane::Management } else { Lane::Vl(packet.vl) };
        let mut frame = Frame::new(self.port, packet.header, payload).with_lane(lane);
        if packet.static_rate > 0 {
            let dwords = (packet.header.len() + packet.payload.len() + 1) as u32;
            let ticks = u32::from(packet.static_rate) * dwords.div_ceil(2);
            frame = frame.with_static_rate(ticks.min(STATIC_RATE_MAX) as u16);
        }
        match self.departures.submit(&frame) {
            Ok(()) => Ok(()),
            Err(SubmitError::WouldBlock | SubmitError::Gone) => {
                self.no_room += 1;
                Err(Full)
            }
            // It would be refused again and again: it is lost, as on a bad cable, and repeats will say so.
            Err(_) => {
                self.refused += 1;
                Ok(())
            }
        }
    }
}

impl<A, D> Bound<A, D> {
    /// What receives: to look at it, or to wait on it in a set of descriptors.
    pub fn arrivals_ref(&self) -> &A {
        &self.arrivals
    }
}

impl<A: Arrivals, D: Departures> Bound<A, D> {
    /// Binds `engine` to what receives for it and sends for it on `port`.
    pub fn new(engine: Engine, port: Port, arrivals: A, departures: D) -> Self {
        let departures = Sending { departures, port, refused: 0, no_room: 0 };
        Self { engine, arrivals, departures, counts: BoundCounts::default() }
    }

    /// What was counted.
    pub fn counts(&self) -> BoundCounts {
        BoundCounts { refused: self.departures.refused, no_room: self.departures.no_room, ..self.counts }
    }

    /// What receives: to wait on it.
    pub fn arrivals(&mut self) -> &mut A {
        &mut self.arrivals
    }

    /// Takes what came, does what is due, sends what can be sent.
    #[inline]
    pub fn turn(&mut self, now: Instant) -> Turned {
        let Self { engine, arrivals, departures, counts } = self;
        let drained = arrivals.drain(TURN_PACKETS, |arrival| take(engine, counts, arrival, now));
        if engine.next_timeout().is_some_and(|due| due <= now) {
            engine.on_timeout(now);
        }
        let sent = if engine.has_output() { engine.transmit(departures, now, TURN_PACKETS) } else { 0 };
        Turned { received: drained.entries, sent, gone: drained.next == Next::Gone }
    }
}

#[inline]
fn take(engine: &mut Engine, counts: &mut BoundCounts, arrival: Arrival<'_>, now: Instant) {
    match arrival {
        Arrival::Packet(packet) => hand_over(engine, &packet, now),
        Arrival::NoBuffer { .. } => counts.without_buffer += 1,
        Arrival::Damaged { .. } | Arrival::Malformed { .. } => counts.damaged += 1,
    }
}

/// Gives an engine a packet that a context has handed out.
#[inline]
pub fn hand_over(engine: &mut Engine, packet: &Packet<'_>, now: Instant) {
    let mut words = [0; ENTRY_WORDS];
    let count = words_of(&packet.header, &mut words);
    engine.on_packet(&words[..count], Payload::Dma(packet.payload), now);
}

/// The headers in the processor's order; returns how many words those are.
#[inline]
fn words_of(header: &DmaSlice<'_>, words: &mut [u32; ENTRY_WORDS]) -> usize {
    let count = (header.len() / 4).min(ENTRY_WORDS);
    for (at, word) in words[..count].iter_mut().enumerate() {
        *word = header.be_u32(at * 4).unwrap_or(0);
    }
    count
}
