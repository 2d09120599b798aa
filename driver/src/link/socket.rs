//! A cable socket: is a module plugged in?
//!
//! A pin of the socket is low while a module is in it. The driver lets the chip interrupt when the pin changes and
//! then looks twice: contacts bounce, and a module needs time after insertion before its signal is good. A module
//! that is there at start-up has had its time.
//!
//! What the module says of itself is read by [`module`](super::module) before its link is switched on.
//!
//! Source: F-123, F-141.

use crate::gpio::{Gpio, SocketPins};
use qhca_regs::{Bar, Duration, Instant, Port};

/// How long the presence pin must hold still.
///
/// TIMEOUT: the stock driver looks after the same time (F-141).
pub const DEBOUNCE: Duration = Duration::from_millis(20);
/// How long a module is given after insertion.
///
/// TIMEOUT: the stock driver's, from the module standard (F-141).
pub const MODULE_READY_AFTER: Duration = Duration::from_secs(2);

/// What the socket has found out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketChange {
    /// A module is in, and had its time.
    Inserted,
    /// The module is out.
    Removed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Absent,
    /// Something changed; look at the instant.
    Settling(Instant),
    /// A module is in; it is ready at the instant.
    Waiting(Instant),
    Present,
}

/// The socket of one port.
#[derive(Clone, Copy, Debug)]
pub struct Socket {
    pins: SocketPins,
    state: State,
    was_present: bool,
}

impl Socket {
    /// Sets the socket's pins and starts to watch them. A module that is in now counts as ready.
    pub fn set_up(port: Port, gpio: &mut Gpio, bar: &impl Bar) -> Self {
        let pins = SocketPins::of(port);
        let outputs = pins.modsel_n | pins.reset_n | pins.lpmode;
        gpio.set(outputs | pins.modprs_n, outputs, outputs, bar);
        let is_in = is_in(pins, gpio, bar).unwrap_or(false);
        let state = if is_in { State::Present } else { State::Absent };
        let socket = Self { pins, state, was_present: is_in };
        socket.watch_for_change(is_in, gpio, bar);
        socket
    }

    /// Whether a module is in and ready.
    pub fn is_present(&self) -> bool {
        self.was_present
    }

    /// The socket's pins.
    pub fn pins(&self) -> SocketPins {
        self.pins
    }

    /// Pins that belong to this socket's presence.
    pub fn presence_pins(&self) -> u16 {
        self.pins.modprs_n
    }

    /// The presence pin has changed.
    pub fn on_pin(&mut self, now: Instant) {
        if !matches!(self.state, State::Settling(_)) {
            self.state = State::Settling(now + DEBOUNCE);
        }
    }

    /// When [`poll`](Self::poll) wants to be called.
    pub fn poll_timeout(&self) -> Option<Instant> {
        match self.state {
            State::Settling(at) | State::Waiting(at) => Some(at),
            State::Absent | State::Present => None,
        }
    }

    /// Looks, if it is time.
    pub fn poll(&mut self, gpio: &mut Gpio, bar: &impl Bar, now: Instant) -> Option<SocketChange> {
        if self.poll_timeout().is_none_or(|at| now < at) {
            return None;
        }
        let Some(is_in) = is_in(self.pins, gpio, bar) else {
            self.state = State::Absent;
            return None;
        };
        self.watch_for_change(is_in, gpio, bar);
        match (self.state, is_in) {
            (State::Waiting(_), true) => self.become_present(),
            (_, true) if self.was_present => {
                self.state = State::Present;
                None
            }
            (_, true) => {
                self.state = State::Waiting(now + MODULE_READY_AFTER);
                None
            }
            (_, false) => {
                self.state = State::Absent;
                let removed = core::mem::replace(&mut self.was_present, false);
                removed.then_some(SocketChange::Removed)
            }
        }
    }

    fn become_present(&mut self) -> Option<SocketChange> {
        self.state = State::Present;
        self.was_present = true;
        Some(SocketChange::Inserted)
    }

    /// Interrupts when the pin leaves the level it has: whether the chip notes levels or edges is not known (F-141),
    /// and this serves for both.
    fn watch_for_change(&self, is_in: bool, gpio: &mut Gpio, bar: &impl Bar) {
        let pin = self.pins.modprs_n;
        gpio.watch(pin, if is_in { 0 } else { pin }, bar);
    }
}

/// Whether a module pulls its pin low. `None` if the chip is gone.
fn is_in(pins: SocketPins, gpio: &Gpio, bar: &impl Bar) -> Option<bool> {
    gpio.read(bar).map(|levels| levels & pins.modprs_n == 0)
}
