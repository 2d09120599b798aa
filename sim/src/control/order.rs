//! Orders and their grammar.

use crate::chip::Injection;
use qhca_regs::info::FieldInfo;
use qhca_regs::status::{ErrBits, HwErrBits, PortErrBits};
use qhca_regs::value::Contents;
use qhca_regs::{Duration, Port};
use std::fmt;
use std::str::FromStr;

/// Longest packet that can be delivered, bytes: the chip's largest MTU with every header.
const PACKET_MAX_BYTES: usize = 4096 + 256;
/// Longest delay of a cable, ns: a second.
const DELAY_MAX_NS: u64 = 1_000_000_000;

/// A card by its rank in the world, called by a letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hca(u8);

impl Hca {
    /// Most cards that can be named.
    pub const COUNT: usize = 26;

    /// The card of this rank, if it has a letter.
    pub const fn new(rank: usize) -> Option<Self> {
        if rank < Self::COUNT { Some(Self(rank as u8)) } else { None }
    }

    /// Its rank, from 0.
    pub const fn rank(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for Hca {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", char::from(b'a' + self.0))
    }
}

/// A port of a card: `a:1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The card.
    pub hca: Hca,
    /// The port; written from 1.
    pub port: Port,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.hca, self.port.index() + 1)
    }
}

/// A packet that a port is to receive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deliver {
    /// LRH to the last pad byte.
    pub bytes: Vec<u8>,
    /// Whether the check sum from end to end fits.
    pub icrc_ok: bool,
    /// Whether the link's fits.
    pub vcrc_ok: bool,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Order {
    /// Pull the cable of a port, or put it back.
    Cable {
        /// One of its ends.
        at: Place,
        /// Put it back.
        plugged: bool,
    },
    /// Lay a new cable.
    Lay {
        /// One end.
        a: Place,
        /// The other.
        b: Place,
    },
    /// Change what happens to packets from a port on its cable. What is not given is set back to nothing.
    Line {
        /// The port that they leave.
        from: Place,
        /// One in so many vanishes.
        lose_one_in: u64,
        /// One in so many arrives twice.
        duplicate_one_in: u64,
        /// One in so many has flipped bits.
        flip_one_in: u64,
        /// The cable's delay, both ways; as it was if not given.
        delay: Option<Duration>,
    },
    /// Pull a module, or push it in.
    Module {
        /// The cage.
        at: Place,
        /// Push it in.
        present: bool,
    },
    /// Let a module raise an alarm.
    Alarm {
        /// Its cage.
        at: Place,
        /// Alarm byte, 3 to 21.
        byte: u8,
        /// Its bits.
        bits: u8,
    },
    /// Raise error bits.
    Inject(Hca, Injection),
    /// Pull a card, or put it back.
    Present {
        /// The card.
        hca: Hca,
        /// Put it back.
        present: bool,
    },
    /// Let a port receive a packet.
    Deliver(Place, Deliver),
    /// Read a register as software does.
    Read {
        /// The card.
        hca: Hca,
        /// Byte offset of the register.
        offset: u32,
    },
    /// Say how everything is.
    State,
    /// Say what was done so far.
    Stats,
}

/// Why words are no order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderError {
    /// The word that is wrong, or what is missing.
    pub word: String,
    /// What may stand there.
    pub valid: String,
}

impl fmt::Display for OrderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not valid here; valid: {}", self.word, self.valid)
    }
}

impl std::error::Error for OrderError {}

fn wrong(word: &str, valid: impl Into<String>) -> OrderError {
    // A word may be as long as a packet; what is shown of it is not.
    let word = word.chars().take(60).collect();
    OrderError { word, valid: valid.into() }
}

/// The words of an order, taken one by one.
struct Words<'a>(std::str::SplitWhitespace<'a>);

impl<'a> Words<'a> {
    fn next(&mut self, valid: &str) -> Result<&'a str, OrderError> {
        self.0.next().ok_or_else(|| wrong("", valid))
    }

    fn end(&mut self) -> Result<(), OrderError> {
        self.0.next().map_or(Ok(()), |more| Err(wrong(more, "nothing more")))
    }
}

impl FromStr for Order {
    type Err = OrderError;

    fn from_str(text: &str) -> Result<Self, OrderError> {
        let mut words = Words(text.split_whitespace());
        let order = match words.next("an order")? {
            "cable" => cable(&mut words)?,
            "line" => line(&mut words)?,
            "module" => {
                let at = place(words.next("a port such as a:1")?)?;
                Self::Module { at, present: in_or_out(words.next("in, out")?)? }
            }
            "alarm" => {
                let at = place(words.next("a port such as a:1")?)?;
                let byte = number(words.next("an alarm byte")?, 3, 21)? as u8;
                Self::Alarm { at, byte, bits: number(words.next("bits")?, 1, 255)? as u8 }
            }
            "inject" => {
                let hca = hca(words.next("a card such as a")?)?;
                let register = words.next(ERROR_REGISTERS)?;
                Self::Inject(hca, injection(register, words.next("names of bits joined by +, or hex")?)?)
            }
            "remove" => Self::Present { hca: hca(words.next("a card such as a")?)?, present: false },
            "return" => Self::Present { hca: hca(words.next("a card such as a")?)?, present: true },
            "deliver" => deliver(&mut words)?,
            "read" => {
                let hca = hca(words.next("a card such as a")?)?;
                let name = words.next("a register")?;
                let valid = "a register's name as `qhca regs --map` lists it, or its offset in hex";
                let offset = super::register_named(name).ok_or_else(|| wrong(name, valid))?;
                Self::Read { hca, offset }
            }
            "state" => Self::State,
            "stats" => Self::Stats,
            other => {
                let known: Vec<&str> = super::GRAMMAR.iter().map(|(example, _)| *example).collect();
                return Err(wrong(other, known.join(", ")));
            }
        };
        words.end()?;
        Ok(order)
    }
}

fn cable(words: &mut Words<'_>) -> Result<Order, OrderError> {
    let ends = words.next("a port such as a:1, or a cable such as a:1=b:1")?;
    match ends.split_once('=') {
        Some((a, b)) => Ok(Order::Lay { a: place(a)?, b: place(b)? }),
        None => Ok(Order::Cable { at: place(ends)?, plugged: in_or_out(words.next("in, out")?)? }),
    }
}

fn line(words: &mut Words<'_>) -> Result<Order, OrderError> {
    const VALID: &str = "lose=N, duplicate=N, flip=N (one in N, 0 for none), delay-ns=N";
    let from = place(words.next("a port such as a:1")?)?;
    let (mut lose_one_in, mut duplicate_one_in, mut flip_one_in, mut delay) = (0, 0, 0, None);
    for word in words.0.by_ref() {
        let (name, value) = word.split_once('=').ok_or_else(|| wrong(word, VALID))?;
        match name {
            "lose" => lose_one_in = number(value, 0, u64::MAX)?,
            "duplicate" => duplicate_one_in = number(value, 0, u64::MAX)?,
            "flip" => flip_one_in = number(value, 0, u64::MAX)?,
            "delay-ns" => delay = Some(Duration::from_nanos(number(value, 0, DELAY_MAX_NS)?)),
            _ => return Err(wrong(word, VALID)),
        }
    }
    Ok(Order::Line { from, lose_one_in, duplicate_one_in, flip_one_in, delay })
}

fn deliver(words: &mut Words<'_>) -> Result<Order, OrderError> {
    let at = place(words.next("a port such as a:1")?)?;
    let bytes = hex_bytes(words.next("a packet in hex")?)?;
    let mut packet = Deliver { bytes, icrc_ok: true, vcrc_ok: true };
    for word in words.0.by_ref() {
        match word {
            "bad-icrc" => packet.icrc_ok = false,
            "bad-vcrc" => packet.vcrc_ok = false,
            _ => return Err(wrong(word, "bad-icrc, bad-vcrc")),
        }
    }
    Ok(Order::Deliver(at, packet))
}

fn hex_bytes(text: &str) -> Result<Vec<u8>, OrderError> {
    let refused = || wrong(text, format!("1 to {PACKET_MAX_BYTES} bytes, two hex digits each"));
    let digits: Option<Vec<u8>> =
        text.chars().map(|digit| digit.to_digit(16).map(|value| value as u8)).collect();
    let digits = digits.ok_or_else(refused)?;
    if digits.is_empty() || !digits.len().is_multiple_of(2) || digits.len() > 2 * PACKET_MAX_BYTES {
        return Err(refused());
    }
    Ok(digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

fn in_or_out(word: &str) -> Result<bool, OrderError> {
    match word {
        "in" => Ok(true),
        "out" => Ok(false),
        _ => Err(wrong(word, "in, out")),
    }
}

fn hca(word: &str) -> Result<Hca, OrderError> {
    match word.as_bytes() {
        [letter @ b'a'..=b'z'] => Ok(Hca(letter - b'a')),
        _ => Err(wrong(word, "a card by its letter: a, b, c …")),
    }
}

fn place(word: &str) -> Result<Place, OrderError> {
    let valid = "a port such as a:1: the card's letter, then 1 or 2";
    let (card, port) = word.split_once(':').ok_or_else(|| wrong(word, valid))?;
    let port = match port {
        "1" => Port::P0,
        "2" => Port::P1,
        _ => return Err(wrong(word, valid)),
    };
    Ok(Place { hca: hca(card).map_err(|_| wrong(word, valid))?, port })
}

fn number(word: &str, least: u64, most: u64) -> Result<u64, OrderError> {
    let parsed = match word.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => word.parse(),
    };
    parsed
        .ok()
        .filter(|number| (least..=most).contains(number))
        .ok_or_else(|| wrong(word, format!("a number from {least} to {most}, decimal or hex behind 0x")))
}

const ERROR_REGISTERS: &str = "ErrStatus, HwErrStatus, ErrStatus_0, ErrStatus_1";

fn injection(register: &str, text: &str) -> Result<Injection, OrderError> {
    Ok(match register {
        "ErrStatus" => Injection::Device(ErrBits::from_bits_retain(bits(text, ErrBits::FIELDS)?)),
        "HwErrStatus" => Injection::Hardware(HwErrBits::from_bits_retain(bits(text, HwErrBits::FIELDS)?)),
        "ErrStatus_0" => {
            Injection::Port(Port::P0, PortErrBits::from_bits_retain(bits(text, PortErrBits::FIELDS)?))
        }
        "ErrStatus_1" => {
            Injection::Port(Port::P1, PortErrBits::from_bits_retain(bits(text, PortErrBits::FIELDS)?))
        }
        other => return Err(wrong(other, ERROR_REGISTERS)),
    })
}

/// The bits that `text` names: fields joined by `+`, or one number.
fn bits(text: &str, fields: &[FieldInfo]) -> Result<u64, OrderError> {
    if text.starts_with("0x") {
        return number(text, 1, u64::MAX);
    }
    text.split('+').try_fold(0, |all, name| {
        let field = fields.iter().find(|field| field.name == name).ok_or_else(|| {
            let names: Vec<&str> = fields.iter().map(|field| field.name).collect();
            wrong(name, names.join(", "))
        })?;
        Ok(all | field.mask())
    })
}

impl fmt::Display for Order {
    /// The words that are read back as the same order.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let way = |inside: &bool| if *inside { "in" } else { "out" };
        match self {
            Self::Cable { at, plugged } => write!(f, "cable {at} {}", way(plugged)),
            Self::Lay { a, b } => write!(f, "cable {a}={b}"),
            Self::Line { from, lose_one_in, duplicate_one_in, flip_one_in, delay } => {
                write!(f, "line {from} lose={lose_one_in} duplicate={duplicate_one_in} flip={flip_one_in}")?;
                delay.map_or(Ok(()), |delay| write!(f, " delay-ns={}", delay.as_nanos()))
            }
            Self::Module { at, present } => write!(f, "module {at} {}", way(present)),
            Self::Alarm { at, byte, bits } => write!(f, "alarm {at} {byte} {bits:#x}"),
            Self::Inject(hca, injection) => match injection {
                Injection::Device(bits) => write!(f, "inject {hca} ErrStatus {:#x}", bits.bits()),
                Injection::Hardware(bits) => write!(f, "inject {hca} HwErrStatus {:#x}", bits.bits()),
                Injection::Port(port, bits) => {
                    write!(f, "inject {hca} ErrStatus_{} {:#x}", port.index(), bits.bits())
                }
            },
            Self::Present { hca, present } => {
                write!(f, "{} {hca}", if *present { "return" } else { "remove" })
            }
            Self::Deliver(at, packet) => {
                write!(f, "deliver {at} ")?;
                packet.bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
                f.write_str(if packet.icrc_ok { "" } else { " bad-icrc" })?;
                f.write_str(if packet.vcrc_ok { "" } else { " bad-vcrc" })
            }
            Self::Read { hca, offset } => write!(f, "read {hca} {offset:#x}"),
            Self::State => f.write_str("state"),
            Self::Stats => f.write_str("stats"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_line_of_the_grammar_is_an_order_and_prints_as_one_that_means_the_same() {
        for (example, _) in super::super::GRAMMAR {
            let order: Order = example.parse().unwrap_or_else(|error| panic!("{example}: {error}"));
            assert_eq!(order.to_string().parse(), Ok(order), "{example}");
        }
    }

    #[test]
    fn words_that_are_no_order_are_refused_with_what_is_valid() {
        for (text, valid) in [
            ("", "an order"),
            ("fly", "cable a:1 out"),
            ("cable a:3 out", "1 or 2"),
            ("cable a:1 sideways", "in, out"),
            ("cable a:1 out again", "nothing more"),
            ("cable a:1=b", "1 or 2"),
            ("inject a ErrStatus Nonsense", "RcvEgrFullErr"),
            ("inject a IntStatus 0x1", "HwErrStatus"),
            ("inject a ErrStatus 0x0", "from 1"),
            ("alarm a:1 2 1", "from 3 to 21"),
            ("deliver a:1 123", "two hex digits"),
            ("deliver a:1 zz", "two hex digits"),
            ("deliver a:1 00 worse", "bad-icrc"),
            ("line a:1 lose=-1", "a number"),
            ("line a:1 delay-ns=2000000000", "1000000000"),
            ("read a Nothing", "qhca regs --map"),
            ("remove A", "letter"),
        ] {
            let error = text.parse::<Order>().expect_err(text);
            assert!(error.to_string().contains(valid), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_an_order_or_is_refused(text in "[ -~]{0,80}") {
            if let Ok(order) = text.parse::<Order>() {
                prop_assert_eq!(order.to_string().parse(), Ok(order));
            }
        }
    }
}
