//! The two-wire serial bus, made of two pins and patience.
//!
//! EEPROM and cable modules hang on a bus of two open-drain lines, which the driver moves by hand. A transfer is
//! compiled to a list of edges, and [`Transfer::poll`] performs up to a byte of them a call, so that a caller with
//! other work is never kept longer than some tens of microseconds:
//!
//! ```text
//!  START       1   0   1 …  ACK   register  ACK   START  device+1  ACK   byte  ACK … byte  NACK  STOP
//!  SDA ‾‾\___ one bit each while SCL is high; the device pulls SDA low to acknowledge
//! ```
//!
//! Edges are paced by reading the pins back: a read pushes the write through, and takes about a microsecond across
//! the bus, which is the bus's pace. Only the long waits (a device that stretches the clock, the rest between two
//! transfers) use the time. Nothing is written to the EEPROM; a cable module is told which of its pages to show.
//!
//! Source: F-124, F-125.

use crate::gpio::{Gpio, SCL, SDA};
use core::fmt;
use qhca_regs::{Bar, Duration, Instant};

/// How long a device may hold the clock low.
///
/// TIMEOUT: the stock driver's limit (F-125).
const STRETCH_LIMIT: Duration = Duration::from_millis(1);
/// Rest between two transfers, and between naming a register and reading it (F-125).
const BUS_FREE: Duration = Duration::from_micros(60);
/// Reads of the pins after each edge, about a microsecond each.
const PACE_READS: usize = 2;
/// Edges done in one call: about a byte.
const EDGES_PER_POLL: usize = 32;
/// Clocks of a bus reset: a device in the middle of a byte has then let go of the data line.
const RESET_CLOCKS: usize = 9;

/// One move on the bus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Edge {
    /// Release the clock and wait until it is high.
    ClockHigh,
    /// Pull the clock low.
    ClockLow,
    /// Release or pull the data line.
    Data(bool),
    /// Take the data line as the next bit of a byte.
    Sample,
    /// The data line must be low: the device has understood.
    Acknowledged(Phase),
    /// The data line was high at least once since the start.
    NoteHigh,
    /// It must have been.
    WasHigh,
    /// Rest.
    Rest,
}

/// What a device did not acknowledge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Its address.
    Address,
    /// The register byte.
    Register,
    /// Its address, to be read from.
    ReadAddress,
    /// A byte that was written to it.
    Data,
}

/// Why a transfer failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TwsiError {
    /// The clock stays low although nobody here pulls it.
    ClockStuck {
        /// For how long it was watched.
        waited: Duration,
    },
    /// The data line stayed low through a bus reset.
    DataStuck,
    /// The device did not acknowledge.
    NoAck {
        /// Its address, in the 8-bit form.
        device: u8,
        /// What it did not acknowledge.
        phase: Phase,
    },
    /// The chip no longer answers.
    Gone,
}

impl fmt::Display for TwsiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ClockStuck { waited } => {
                write!(
                    f,
                    "two-wire bus: SCL (GPIO 0) stuck low for {waited}: a device holds the clock, or no pull-up"
                )
            }
            Self::DataStuck => f.write_str(
                "two-wire bus: SDA (GPIO 1) stuck low through a bus reset: a device holds the line",
            ),
            Self::NoAck { device, phase } => {
                let phase = match phase {
                    Phase::Address => "its address",
                    Phase::Register => "the register number",
                    Phase::ReadAddress => "its address for reading",
                    Phase::Data => "a byte that was written to it",
                };
                write!(f, "two-wire bus: device {device:#04x} did not acknowledge {phase}: absent, or busy")
            }
            Self::Gone => f.write_str("EXTStatus reads all ones: the device no longer answers"),
        }
    }
}

impl std::error::Error for TwsiError {}

/// What a call of [`Transfer::poll`] came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TransferPoll {
    /// There is more to do: call again when convenient, not before the instant.
    More(Instant),
    /// The bytes read.
    Done(Vec<u8>),
    /// It failed; both lines are released, unless the card is gone.
    Failed(TwsiError),
}

/// One read from a device, or one write to it, with a bus reset before it.
#[derive(Clone, Debug)]
pub struct Transfer {
    device: u8,
    edges: Vec<Edge>,
    next: usize,
    /// The bits sampled of the byte under way, and how many.
    byte: (u8, u32),
    bytes: Vec<u8>,
    was_high: bool,
    /// When the clock was released and has not been seen high since.
    stretched_since: Option<Instant>,
}

impl Transfer {
    /// Will reset the bus, then read `len` bytes from `register` on of `device` (8-bit address, read bit clear).
    pub fn read(device: u8, register: u8, len: usize) -> Self {
        let mut edges = Vec::with_capacity(96 + len * 40);
        reset(&mut edges);
        start(&mut edges);
        send_byte(&mut edges, device & !1, Phase::Address);
        send_byte(&mut edges, register, Phase::Register);
        edges.push(Edge::Rest);
        start(&mut edges);
        send_byte(&mut edges, device | 1, Phase::ReadAddress);
        for index in 0..len {
            take_byte(&mut edges, index + 1 < len);
        }
        stop(&mut edges);
        Self::of_edges(device, edges, len)
    }

    /// Will reset the bus, then write `bytes` to `register` and what follows it of `device`. No bytes are read.
    pub fn write(device: u8, register: u8, bytes: &[u8]) -> Self {
        let mut edges = Vec::with_capacity(96 + bytes.len() * 40);
        reset(&mut edges);
        start(&mut edges);
        send_byte(&mut edges, device & !1, Phase::Address);
        send_byte(&mut edges, register, Phase::Register);
        bytes.iter().for_each(|byte| send_byte(&mut edges, *byte, Phase::Data));
        stop(&mut edges);
        Self::of_edges(device, edges, 0)
    }

    fn of_edges(device: u8, edges: Vec<Edge>, len: usize) -> Self {
        Self {
            device,
            edges,
            next: 0,
            byte: (0, 0),
            bytes: Vec::with_capacity(len),
            was_high: false,
            stretched_since: None,
        }
    }

    /// Goes on with the transfer for about a byte.
    pub fn poll(&mut self, gpio: &mut Gpio, bar: &impl Bar, now: Instant) -> TransferPoll {
        for _ in 0..EDGES_PER_POLL {
            let Some(&edge) = self.edges.get(self.next) else {
                return TransferPoll::Done(core::mem::take(&mut self.bytes));
            };
            match self.perform(edge, gpio, bar, now) {
                Ok(None) => self.next += 1,
                Ok(Some(Pause { until, then_next })) => {
                    self.next += usize::from(then_next);
                    return TransferPoll::More(until);
                }
                Err(error) => {
                    // A card that is gone is left alone.
                    if error != TwsiError::Gone {
                        gpio.release(SCL | SDA, true, bar);
                    }
                    return TransferPoll::Failed(error);
                }
            }
        }
        TransferPoll::More(now)
    }

    fn perform(
        &mut self,
        edge: Edge,
        gpio: &mut Gpio,
        bar: &impl Bar,
        now: Instant,
    ) -> Result<Option<Pause>, TwsiError> {
        match edge {
            Edge::ClockHigh => return self.raise_clock(gpio, bar, now),
            Edge::ClockLow => gpio.release(SCL, false, bar),
            Edge::Data(released) => gpio.release(SDA, released, bar),
            Edge::Sample => self.take_bit(pins(gpio, bar)? & SDA != 0),
            Edge::Acknowledged(phase) => {
                if pins(gpio, bar)? & SDA != 0 {
                    return Err(TwsiError::NoAck { device: self.device, phase });
                }
            }
            Edge::NoteHigh => self.was_high |= pins(gpio, bar)? & SDA != 0,
            Edge::WasHigh if !self.was_high => return Err(TwsiError::DataStuck),
            Edge::WasHigh => {}
            Edge::Rest => return Ok(Some(Pause { until: now + BUS_FREE, then_next: true })),
        }
        pace(gpio, bar)?;
        Ok(None)
    }

    /// Releases the clock, once, and waits until no device holds it down.
    fn raise_clock(
        &mut self,
        gpio: &mut Gpio,
        bar: &impl Bar,
        now: Instant,
    ) -> Result<Option<Pause>, TwsiError> {
        let since = match self.stretched_since {
            Some(since) => since,
            None => {
                gpio.release(SCL, true, bar);
                now
            }
        };
        if pace(gpio, bar)? & SCL != 0 {
            self.stretched_since = None;
            return Ok(None);
        }
        let waited = now.since(since);
        if waited >= STRETCH_LIMIT {
            return Err(TwsiError::ClockStuck { waited });
        }
        self.stretched_since = Some(since);
        Ok(Some(Pause { until: now + Duration::from_micros(20), then_next: false }))
    }

    fn take_bit(&mut self, high: bool) {
        let (bits, count) = self.byte;
        self.byte = (bits << 1 | u8::from(high), count + 1);
        if self.byte.1 == u8::BITS {
            self.bytes.push(self.byte.0);
            self.byte = (0, 0);
        }
    }
}

/// A wait that time has to end.
struct Pause {
    until: Instant,
    /// Whether the edge is done, or to be tried again.
    then_next: bool,
}

fn pins(gpio: &Gpio, bar: &impl Bar) -> Result<u16, TwsiError> {
    // A planted fault, for the proof that the fuzzer reaches this far: the bus of a card that is gone is read on.
    #[cfg(canary)]
    if gpio.read(bar).is_none() {
        return Ok(SCL | SDA);
    }
    gpio.read(bar).ok_or(TwsiError::Gone)
}

/// Lets the lines settle; what they are then.
fn pace(gpio: &Gpio, bar: &impl Bar) -> Result<u16, TwsiError> {
    (0..PACE_READS).try_fold(0, |_, _| pins(gpio, bar))
}

fn reset(edges: &mut Vec<Edge>) {
    edges.extend([Edge::Data(true), Edge::ClockHigh]);
    for _ in 0..RESET_CLOCKS {
        edges.extend([Edge::ClockLow, Edge::ClockHigh, Edge::NoteHigh]);
    }
    edges.push(Edge::WasHigh);
    // START and STOP while the clock is high: every device forgets what it was doing.
    edges.extend([Edge::Data(false), Edge::Data(true), Edge::Rest]);
}

/// START, or a repeated one; leaves the clock low.
fn start(edges: &mut Vec<Edge>) {
    edges.extend([Edge::Data(true), Edge::ClockHigh, Edge::Data(false), Edge::ClockLow]);
}

fn stop(edges: &mut Vec<Edge>) {
    edges.extend([Edge::Data(false), Edge::ClockHigh, Edge::Data(true), Edge::Rest]);
}

fn send_byte(edges: &mut Vec<Edge>, byte: u8, phase: Phase) {
    for bit in (0..u8::BITS).rev() {
        edges.extend([Edge::Data(byte >> bit & 1 == 1), Edge::ClockHigh, Edge::ClockLow]);
    }
    edges.extend([Edge::Data(true), Edge::ClockHigh, Edge::Acknowledged(phase), Edge::ClockLow]);
}

fn take_byte(edges: &mut Vec<Edge>, acknowledge: bool) {
    edges.push(Edge::Data(true));
    for _ in 0..u8::BITS {
        edges.extend([Edge::ClockHigh, Edge::Sample, Edge::ClockLow]);
    }
    edges.extend([Edge::Data(!acknowledge), Edge::ClockHigh, Edge::ClockLow]);
}

#[cfg(test)]
pub(crate) mod tests;
