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
//! Not modelled yet, and counted when written ([`Chip::unmodelled`]): send DMA, expected receive and TID flows, freeze,
//! chip reset, heartbeat, performance sampling.

pub mod account;
pub mod board;
pub mod config;
pub mod host;
pub mod log;
pub mod packet;
mod send;
mod store;
pub mod wrong;

pub use account::{Account, Drop};
pub use board::Board;
pub use config::{Config, EagerFull, Habits, Timing};
pub use host::{DmaError, Host, NoHost};
pub use log::{Access, Log, Totals};
pub use packet::{Meta, Packet};
pub use wrong::{WrongChip, WrongSet};

use packet::Pool;
use qhca_regs::status::{ErrBits, HwErrBits, PortErrBits};
use qhca_regs::{BAR_LEN_BYTES, GONE, Instant, Port};
use std::collections::VecDeque;
use store::Store;

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
    Training {
        /// SDR 1, DDR 2, QDR 4.
        speeds: u8,
    },
    /// The port's training has ended in LinkUp.
    Up,
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
    account: Account,
    log: Log,
    pool: Pool,
    outbox: [VecDeque<Packet>; 2],
    present: bool,
}

impl Chip {
    /// A chip just out of reset.
    pub fn new(config: Config) -> Self {
        Self {
            store: Store::new(config.board),
            account: Account::new(),
            log: Log::default(),
            pool: Pool::default(),
            outbox: Default::default(),
            present: true,
            config,
        }
    }

    /// Software reads the register at `offset`, which is rounded down to a multiple of 8.
    pub fn read(&mut self, offset: u32, now: Instant, _host: &mut impl Host) -> u64 {
        let value = if self.present && offset < BAR_LEN_BYTES { self.store.read(offset & !7) } else { GONE };
        self.log.note(now, Access::Read { offset, value });
        value
    }

    /// Software writes `value` to the register at `offset`, or to one qword of a send buffer.
    pub fn write(&mut self, offset: u32, value: u64, now: Instant, _host: &mut impl Host) {
        self.log.note(now, Access::Write { offset, value });
        if self.present && offset < BAR_LEN_BYTES {
            self.store.write(offset & !7, value);
        }
    }

    /// Software reads one half of a register: the chip answers with that half of the whole (F-301).
    pub fn read32(&mut self, offset: u32, now: Instant, host: &mut impl Host) -> u32 {
        (self.read(offset, now, host) >> (8 * (offset & 4))) as u32
    }

    /// Software writes 32 bits: to a send buffer, or to the low half of a register, whose upper half becomes 0. Writes
    /// to an upper half alone are dropped (F-301).
    pub fn write32(&mut self, offset: u32, value: u32, now: Instant, host: &mut impl Host) {
        if offset & 4 == 0 {
            self.write(offset, u64::from(value), now, host);
        }
    }

    /// Software streams `dwords` to a send buffer, ascending from `offset`.
    pub fn write_burst(&mut self, offset: u32, dwords: &[u32], now: Instant, _host: &mut impl Host) {
        self.log.note(now, Access::Burst { offset, dwords: dwords.len() as u32 });
    }

    /// A packet arrives at `port`: `bytes` from the LRH to the last pad byte, network order, without CRCs.
    pub fn deliver(&mut self, port: Port, bytes: &[u8], meta: Meta, now: Instant, host: &mut impl Host) {
        let _ = (bytes, meta, now, host);
        self.account.drop(port, Drop::PortDown);
    }

    /// The next packet that `port` has put on the wire, oldest first. Hand its buffer back with
    /// [`recycle`](Self::recycle).
    pub fn take_outgoing(&mut self, port: Port) -> Option<Packet> {
        self.outbox[port.index()].pop_front()
    }

    /// Takes back the buffer of a packet that [`take_outgoing`](Self::take_outgoing) gave out.
    pub fn recycle(&mut self, packet: Packet) {
        self.pool.give(packet.bytes);
    }

    /// Lets everything happen that is due at `now`.
    pub fn advance(&mut self, _now: Instant, _host: &mut impl Host) {}

    /// When [`advance`](Self::advance) has something to do next.
    pub fn next_deadline(&self) -> Option<Instant> {
        None
    }

    /// What the other end of `port`'s cable shows from now on.
    pub fn peer_link(&mut self, port: Port, peer: PeerState, now: Instant, host: &mut impl Host) {
        let _ = (port, peer, now, host);
    }

    /// What `port` shows the other end of its cable.
    pub fn own_link(&self, port: Port) -> PeerState {
        let _ = port;
        PeerState::Silent
    }

    /// Raises error bits as a fault would.
    pub fn inject(&mut self, injection: Injection, now: Instant, host: &mut impl Host) {
        let _ = (injection, now, host);
    }

    /// How interrupts are signalled; the host sets it when it enables or disables MSI-X.
    pub fn set_int_mode(&mut self, mode: IntMode, now: Instant, host: &mut impl Host) {
        let _ = (mode, now, host);
    }

    /// Pulls the card out (reads give all ones, writes go nowhere) or plugs it in again.
    pub fn set_present(&mut self, present: bool) {
        self.present = present;
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
