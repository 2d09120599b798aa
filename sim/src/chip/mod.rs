//! The chip: an executable model of the 7322, written from its data sheet alone.
//!
//! Registers are read and written at their offsets in BAR 0, packets arrive at a port and leave by one, and DMA and
//! interrupts go to a [`Host`] that every call brings along. The model keeps no clock: `now` is an argument, it never
//! runs backwards, and [`Chip::next_deadline`] says when to call [`Chip::advance`] next. The same calls in the same order
//! with the same seed give the same bytes.
//!
//! ```text
//!            read / write / write_burst                  DMA, MSI-X
//!   software ---------------------------> Chip ------------------------> Host
//!                                        |    ^
//!                          take_outgoing v    | deliver
//!                                         cable
//! ```
//!
//! It shares nothing with the driver above `qhca-regs`: a model that borrowed the driver's idea of the chip would
//! agree with the driver's mistakes. What no source states is listed as a guess in `docs/chip/facts.md` (F-300 on).
//!
//! Registers whose writes have an effect that no chapter models are counted when they are written
//! ([`Chip::unmodelled`]); the reasons stand in `docs/chip/facts.md`.

pub mod account;
mod ahb;
pub mod board;
pub mod config;
mod counter;
pub mod credit;
mod dispatch;
mod error;
mod freeze;
mod gpio;
pub mod heartbeat;
pub mod host;
mod interrupt;
mod lamps;
#[cfg(test)]
mod leftovers;
mod link;
pub mod log;
pub mod negotiate;
#[cfg(test)]
mod negotiate_tests;
pub mod packet;
mod recv;
mod reset;
mod samples;
mod sdma;
mod send;
mod store;
#[cfg(test)]
mod tests;
mod twsi;
#[cfg(test)]
mod walk_tests;
pub mod wrong;
#[cfg(test)]
mod wrong_tests;

pub use account::{Account, Drop};
pub use board::Board;
pub use config::{Config, EagerFull, Habits, Timing};
pub use credit::FlowUpdate;
pub use heartbeat::FarEnd;
pub use host::{DmaError, Host, NoHost};
pub use lamps::Lamps;
pub use log::{Access, Log, Totals};
pub use negotiate::Offer;
pub use packet::{Meta, Packet};
pub use twsi::CagePins;
pub use twsi::module::{Description, Module, Technology};
pub use wrong::{WrongChip, WrongSet};

use ahb::Ahb;
use counter::Counters;
use credit::Credits;
use error::Errors;
use gpio::Gpio;
use heartbeat::Heartbeat;
use interrupt::Interrupts;
use link::Link;
use packet::Pool;
use qhca_regs::map::port;
use qhca_regs::status::{ErrBits, HwErrBits, PortErrBits};
use qhca_regs::{BAR_LEN_BYTES, GONE, Instant, Port};
use recv::Receiver;
use reset::Resetting;
use samples::Sampler;
use sdma::Sdma;
use send::Sender;
use std::collections::VecDeque;
use store::Store;
use twsi::Twsi;

/// An error to be raised from outside, as a fault of the hardware would be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Injection {
    /// Bits of `ErrStatus`.
    Device(ErrBits),
    /// Bits of `HwErrStatus`.
    Hardware(HwErrBits),
    /// Bits of one port's `ErrStatus_p`.
    Port(Port, PortErrBits),
}

/// What one end of a cable shows the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PeerState {
    /// No light: no cable, or a port that is disabled, held in reset or switched off.
    #[default]
    Silent,
    /// The port wants a link: it polls, listens while asleep, or trains.
    Training(Offer),
    /// The port's training has ended in LinkUp.
    Up,
    /// The same, at a port whose heartbeat is switched off: it does not answer any.
    UpMute,
}

impl PeerState {
    /// Whether the port's training has ended in LinkUp.
    pub const fn is_up(self) -> bool {
        matches!(self, Self::Up | Self::UpMute)
    }
}

/// How the chip signals interrupts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IntMode {
    /// MSI-X messages by `IntRedirect`.
    #[default]
    Msix,
    /// The legacy line, high while an enabled bit is set.
    Intx,
}

/// One chip on one board.
pub struct Chip {
    config: Config,
    store: Store,
    int: Interrupts,
    err: Errors,
    counters: Counters,
    gpio: Gpio,
    twsi: Twsi,
    ahb: Ahb,
    links: [Link; 2],
    credits: [Credits; 2],
    recv: Receiver,
    send: Sender,
    sdma: Sdma,
    account: Account,
    log: Log,
    pool: Pool,
    outbox: [VecDeque<Packet>; 2],
    /// Packets that a port in loopback has sent to itself.
    looped: VecDeque<Packet>,
    samplers: [Sampler; 2],
    heartbeats: [Heartbeat; 2],
    random: u64,
    present: bool,
    resetting: Option<Resetting>,
    /// Whether it answers on the bus: it is there and does not reset.
    answers: bool,
    resets: u64,
    frozen: bool,
}

impl Chip {
    /// A chip just out of reset.
    pub fn new(config: Config) -> Self {
        let board = config.board;
        let store = Store::new(board);
        let twsi = Twsi::new(&config);
        let single_port = Port::ALL.iter().any(|&port| board.speeds(port) == 0);
        let link = |p: Port| {
            let wired = twsi.is_present(p) || !board.has_cage(p);
            let control_b = store.get(port::IBC_CTRL_B.port(p).offset());
            Link::new(board.speeds(p), control_b, wired, config.wrong)
        };
        Self {
            int: Interrupts::new(),
            err: Errors::new(),
            counters: Counters::new(),
            gpio: Gpio::new(Port::ALL.map(|port| twsi.is_present(port))),
            links: Port::ALL.map(link),
            twsi,
            ahb: Ahb::new(),
            credits: Default::default(),
            recv: Receiver::new(single_port),
            send: Sender::new(),
            sdma: Sdma::new(),
            account: Account::new(),
            log: Log::default(),
            pool: Pool::default(),
            outbox: Default::default(),
            looped: VecDeque::new(),
            samplers: Default::default(),
            heartbeats: Port::ALL.map(|port| Heartbeat::new(store.get(port::IBC_CTRL_B.port(port).offset()))),
            random: config.seed,
            present: true,
            resetting: None,
            answers: true,
            resets: 0,
            frozen: false,
            store,
            config,
        }
    }

    /// Software reads the register at `offset`, which is rounded down to a multiple of 8.
    #[inline]
    pub fn read(&mut self, offset: u32, now: Instant, host: &mut impl Host) -> u64 {
        let value = match self.is_there(now, host) && offset < BAR_LEN_BYTES {
            true => self.read_at(offset & !7, now),
            false => GONE,
        };
        self.log.note(now, Access::Read { offset, value });
        value
    }

    /// Software writes `value` to the register at `offset`, or to one qword of a send buffer.
    #[inline]
    pub fn write(&mut self, offset: u32, value: u64, now: Instant, host: &mut impl Host) {
        self.log.note(now, Access::Write { offset, value });
        if self.is_there(now, host) && offset < BAR_LEN_BYTES {
            self.write_at(offset & !7, value, now, host);
            self.deliver_looped(now, host);
        }
    }

    /// Software reads one half of a register: the chip answers with that half of the whole (F-301).
    pub fn read32(&mut self, offset: u32, now: Instant, host: &mut impl Host) -> u32 {
        (self.read(offset, now, host) >> (8 * (offset & 4))) as u32
    }

    /// Software writes 32 bits: to a send buffer, or to the low half of a register, whose upper half becomes 0. Writes
    /// to an upper half alone are dropped (F-301).
    pub fn write32(&mut self, offset: u32, value: u32, now: Instant, host: &mut impl Host) {
        match offset {
            send::START..send::END => self.write_burst(offset & !3, &[value], now, host),
            _ if offset & 4 == 0 => self.write(offset, u64::from(value), now, host),
            _ => self.log.note(now, Access::Write { offset, value: u64::from(value) }),
        }
    }

    /// Software streams `dwords` to a send buffer, ascending from `offset`, a multiple of 4. Outside the send buffers
    /// it is the same as qword writes.
    #[inline]
    pub fn write_burst(&mut self, offset: u32, dwords: &[u32], now: Instant, host: &mut impl Host) {
        self.log.note(now, Access::Burst { offset, dwords: dwords.len() as u32 });
        if !self.is_there(now, host) || offset >= BAR_LEN_BYTES {
            return;
        }
        if (send::START..send::END).contains(&offset) {
            self.fill_buffer(offset, dwords, now, host);
            return self.deliver_looped(now, host);
        }
        for (n, pair) in dwords.chunks(2).enumerate() {
            let high = pair.get(1).copied().unwrap_or(0);
            let at = offset.saturating_add(8 * n as u32);
            if at < BAR_LEN_BYTES {
                self.write_at(at & !7, u64::from(pair[0]) | u64::from(high) << 32, now, host);
            }
        }
        self.deliver_looped(now, host);
    }

    /// A packet arrives at `port`: `bytes` from the LRH to the last pad byte, network order, without CRCs.
    #[inline]
    pub fn deliver(&mut self, port: Port, bytes: &[u8], meta: Meta, now: Instant, host: &mut impl Host) {
        if self.is_there(now, host) {
            self.receive(port, bytes, meta, now, host);
        }
    }

    /// Whether the chip answers at `now`; a reset that is over ends here.
    #[inline]
    fn is_there(&mut self, now: Instant, host: &mut impl Host) -> bool {
        self.answers || self.resetting.is_some() && self.comes_back(now, host)
    }

    /// A port in loopback receives what it has sent.
    #[inline]
    fn deliver_looped(&mut self, now: Instant, host: &mut impl Host) {
        if self.sdma.wants_turn() {
            self.turn_engines(now, host);
        }
        while let Some(packet) = self.looped.pop_front() {
            self.receive(packet.port, &packet.bytes, packet.meta, now, host);
            self.pool.give(packet.bytes);
        }
    }

    /// The next packet that `port` has put on the wire, oldest first. Hand its buffer back with
    /// [`recycle`](Self::recycle).
    #[inline]
    pub fn take_outgoing(&mut self, port: Port) -> Option<Packet> {
        self.outbox[port.index()].pop_front()
    }

    /// Takes back the buffer of a packet that [`take_outgoing`](Self::take_outgoing) gave out.
    #[inline]
    pub fn recycle(&mut self, packet: Packet) {
        self.pool.give(packet.bytes);
    }

    /// Lets everything happen that is due at `now`.
    pub fn advance(&mut self, now: Instant, host: &mut impl Host) {
        if self.resetting.is_some() && !self.comes_back(now, host) {
            return;
        }
        for port in Port::ALL {
            self.advance_samples(port, now);
            self.advance_link(port, now, host);
            self.advance_heartbeat(port, now, host);
        }
        self.advance_send(now, host);
        self.advance_sdma(now, host);
        self.advance_receive(now, host);
        self.deliver_looped(now, host);
    }

    /// When [`advance`](Self::advance) has something to do next.
    pub fn next_deadline(&self) -> Option<Instant> {
        if let Some(at) = self.reset_deadline() {
            return Some(at);
        }
        let of_port = |port: Port| {
            let n = port.index();
            let timers = [
                self.links[n].next_deadline(),
                self.flow_deadline(port),
                self.samplers[n].next_deadline(),
                self.heartbeats[n].next_deadline(),
            ];
            timers.into_iter().flatten().min()
        };
        let ports = Port::ALL.into_iter().filter_map(of_port).min();
        [ports, self.send.next_deadline(), self.sdma.next_deadline(), self.recv.next_timer()]
            .into_iter()
            .flatten()
            .min()
    }

    /// Raises error bits as a fault would.
    pub fn inject(&mut self, injection: Injection, now: Instant, host: &mut impl Host) {
        if self.is_there(now, host) {
            self.inject_error(injection, now, host);
        }
    }

    /// How interrupts are signalled; the host sets it when it enables or disables MSI-X.
    pub fn set_int_mode(&mut self, mode: IntMode, now: Instant, host: &mut impl Host) {
        self.change_int_mode(mode, now, host);
    }

    /// Pulls the card out (reads give all ones, writes go nowhere) or plugs it in again.
    pub fn set_present(&mut self, present: bool) {
        self.present = present;
        self.answers = present && self.resetting.is_none();
    }

    /// The next number of the chip's one generator (SplitMix64).
    fn draw(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.random;
        z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ z >> 31
    }

    /// Whether the card is in its slot.
    pub fn is_present(&self) -> bool {
        self.present
    }

    /// What was thrown away, counted where it happened.
    pub fn account(&self) -> &Account {
        &self.account
    }

    /// What software did to the chip, and the interrupts it got.
    pub fn log(&self) -> &Log {
        &self.log
    }

    /// Records up to `entries` single accesses from now on; 0 stops recording.
    pub fn record_accesses(&mut self, entries: usize) {
        self.log.set_bound(entries);
    }

    /// Registers written with an effect that the model does not have: name, offset, how often.
    pub fn unmodelled(&self) -> impl Iterator<Item = (String, u32, u64)> {
        self.store.unmodelled().map(|(offset, writes)| {
            let name = qhca_regs::map::at(offset).map(|placed| placed.to_string()).unwrap_or_default();
            (name, offset, writes)
        })
    }

    /// What the chip was built from.
    pub fn config(&self) -> &Config {
        &self.config
    }
}
