//! Questions to the ports of a fabric: `qhca perfquery`, `qhca smpquery`, `qhca ping`.
//!
//! The device's own port asks, by directed route or LID. A simulated card has a second one at the other end of its
//! cable, whose port is turned here as well, so that there is somebody to ask.

pub(crate) mod perfquery;
pub(crate) mod ping;
pub(crate) mod smpquery;

use super::perf::{open_cards, open_port, wait_until_active};
use crate::fail::{Failure, Status};
use qhca::verbs::mgmt::SmMode;
use qhca::verbs::port::{MadTo, Turn};
use qhca::verbs::wire::mad::Mad;
use qhca::{Device, Duration, Lid, Port, Spec, VerbsPort};
use std::fmt::Write;

/// Questions before one is given up.
const TRIES: u32 = 3;
/// Column at which values begin.
const VALUE_COLUMN: usize = 32;

/// Whom to ask, and how.
#[derive(Debug, clap::Args)]
pub(crate) struct Asking {
    /// Device: `sim`, `sim:qle7340`, `sim:qle7342` or `vfio-user:PATH`
    #[arg(short = 'C', long = "Ca", value_name = "DEV", default_value = "sim")]
    device: String,
    /// Port of the device that asks, from 1
    #[arg(short = 'P', long = "Port", value_name = "PORT", default_value_t = 1,
          value_parser = clap::value_parser!(u8).range(1..=2))]
    port: u8,
    /// How long an answer may take, ms
    #[arg(short, long, value_name = "MS", default_value_t = 1000,
          value_parser = clap::value_parser!(u64).range(1..=60_000))]
    timeout: u64,
    /// The micro subnet manager: if nobody better is there, whoever is there, or never
    #[arg(long, value_enum, default_value_t = super::perf::SmChoice::Auto)]
    sm: super::perf::SmChoice,
}

/// The ports of this process on a fabric: the one that asks first.
pub(crate) struct Fabric {
    ports: Vec<VerbsPort>,
    timeout: Duration,
}

impl Fabric {
    /// Brings the device up, and its link to ACTIVE.
    fn open(asking: &Asking) -> Result<Self, Failure> {
        // PANIC: clap lets 1 and 2 through.
        let port = Port::ALL[usize::from(asking.port) - 1];
        let manager = asking.sm.mode();
        let mut ports = match asking.device.parse() {
            Ok(Spec::Sim(_)) => {
                let (card, peer) = open_cards(&asking.device, port, false)?;
                // One manager is enough for one cable.
                vec![open_port(card, port, manager)?, open_port(peer, port, SmMode::Off)?]
            }
            _ => {
                let card = Device::open(&asking.device)
                    .map_err(|e| Failure::new(Status::Missing, format!("-C {}: {e}", asking.device)))?;
                vec![open_port(card, port, manager)?]
            }
        };
        wait_until_active(&mut ports)?;
        Ok(Self { ports, timeout: Duration::from_millis(asking.timeout) })
    }

    /// The LID of the port that asks.
    fn lid(&self) -> Lid {
        self.ports[0].lid()
    }

    /// The answer to a question, and how long it took.
    fn ask(&mut self, mad: &Mad, to: MadTo) -> Result<(Mad, Duration), Failure> {
        for _ in 0..TRIES {
            let begun = self.ports[0].control().now();
            let transaction = self.ports[0].ask(mad, to, begun);
            loop {
                let now = self.ports[0].control().now();
                for port in &mut self.ports {
                    port.turn(now);
                }
                if let Some(answer) = self.ports[0].take_answer(transaction) {
                    let took = self.ports[0].control().now().since(begun);
                    return checked(answer).map(|answer| (answer, took));
                }
                if now.since(begun) > self.timeout {
                    break;
                }
            }
        }
        let what = format!("no answer from {}, asked {TRIES} times for {}", shown(to), self.timeout);
        Err(Failure::new(Status::CheckFailed, what)
            .remedy("see that the port is there; -t gives it more time"))
    }
}

/// An answer that says what was asked.
fn checked(answer: Mad) -> Result<Mad, Failure> {
    match answer.status() {
        0 => Ok(answer),
        status => {
            let why = match status >> 2 & 7 {
                1 => "the class or its version is not known there",
                2 => "the method is not known there",
                3 => "the attribute is not known there",
                7 => "a value of the question is not possible there",
                _ => "the agent is busy, or says to ask elsewhere",
            };
            Err(Failure::new(Status::CheckFailed, format!("the answer has status {status:#06x}: {why}")))
        }
    }
}

/// Whom a question goes to, as the tools write it.
fn shown(to: MadTo) -> String {
    match to {
        MadTo::Path => "DR path".to_owned(),
        MadTo::Subnet(lid) | MadTo::General(lid) => format!("Lid {}", lid.0),
    }
}

/// A LID as it is typed.
fn parse_lid(text: &str) -> Result<Lid, String> {
    let hex = text.strip_prefix("0x").map(|digits| u16::from_str_radix(digits, 16).ok());
    let lid = hex.unwrap_or_else(|| text.parse().ok());
    match lid {
        Some(lid @ 1..=0xBFFF) => Ok(Lid(lid)),
        _ => Err("no LID of a port; valid: 1 to 49151".to_owned()),
    }
}

/// Lines of name, dots and value.
struct Lines(String);

impl Lines {
    fn new(head: String) -> Self {
        Self(head + "\n")
    }

    fn put(&mut self, name: &str, value: impl std::fmt::Display) {
        let dots = ".".repeat(VALUE_COLUMN.saturating_sub(name.len() + 1));
        let _ = writeln!(self.0, "{name}:{dots}{value}");
    }
}

/// The big-endian number of `len` bytes at `at` of an attribute.
fn number(mad: &Mad, at: usize, len: usize) -> u64 {
    let bytes = mad.0.get(Mad::DATA_AT + at..Mad::DATA_AT + at + len).unwrap_or(&[]);
    bytes.iter().fold(0, |value, byte| value << 8 | u64::from(*byte))
}
