//! The two-wire bus behind GPIO pins 0 and 1: the board's EEPROM, and a QSFP module in each cage.
//!
//! ```text
//!   SDA  ‾‾\______ data changes while SCL is low ______/‾‾
//!   SCL  ‾‾‾‾\___/‾\___/‾\___ ... 9th clock: ack ___/‾‾‾‾‾
//!        START    bit 7 ...                          STOP
//! ```
//!
//! Both lines are open drain: whoever wants a 0 pulls, and released lines read 1. The EEPROM answers at 0xA2; a module
//! answers at 0xA0 while its cage is selected, so two selected modules speak at once and the zeros win.

mod cage;
mod eeprom;
pub(super) mod module;
mod slave;

pub use cage::CagePins;

use super::config::Config;
use super::wrong::WrongChip;
use cage::Cage;
use eeprom::Eeprom;
use module::Module;
use qhca_regs::{Instant, Port};
use slave::{Memory, Slave};

/// What the bus sees of the pins.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lines {
    pub(super) scl: bool,
    /// As the chip drives it.
    pub(super) sda: bool,
    pub(super) eeprom_writable: bool,
    pub(super) cages: [CagePins; 2],
}

/// What happens on the bus.
#[derive(Clone, Copy)]
enum Event {
    Start,
    Stop,
    ClockUp { sda: bool },
    ClockDown,
}

/// The bus and what hangs on it.
pub(super) struct Twsi {
    scl: bool,
    sda: bool,
    eeprom_slave: Slave,
    eeprom: Eeprom,
    cages: [Cage; 2],
}

impl Twsi {
    pub(super) fn new(config: &Config) -> Self {
        let ignores_page_select = config.wrong.has(WrongChip::QsfpPageIgnored);
        let cage = |port: Port| {
            let module = config.modules[port.index()].clone().filter(|_| config.board.has_cage(port));
            Cage::new(module, ignores_page_select)
        };
        Self {
            scl: true,
            sda: true,
            eeprom_slave: Slave::new(eeprom::ADDRESS),
            eeprom: Eeprom::new(config),
            cages: Port::ALL.map(cage),
        }
    }

    /// Puts a module into a cage, or takes it out.
    pub(super) fn plug(&mut self, port: Port, module: Option<Module>, now: Instant) {
        self.cages[port.index()].plug(module, now);
    }

    pub(super) fn is_present(&self, port: Port) -> bool {
        self.cages[port.index()].is_present()
    }

    /// Whether the module in the cage of `port` pulls INT_N low.
    pub(super) fn interrupts(&self, port: Port) -> bool {
        self.cages[port.index()].interrupts()
    }

    pub(super) fn cage_pins(&self, port: Port) -> CagePins {
        self.cages[port.index()].pins()
    }

    pub(super) fn alarm(&mut self, port: Port, at: u8, bits: u8) {
        self.cages[port.index()].alarm(at, bits);
    }

    /// The pins have changed; returns whether the bus now holds SDA low.
    pub(super) fn follow(&mut self, lines: Lines, now: Instant) -> bool {
        self.eeprom.writable = lines.eeprom_writable;
        for (cage, pins) in self.cages.iter_mut().zip(lines.cages) {
            cage.follow_pins(pins, now);
        }
        let sda = lines.sda && !self.pulls();
        let event = match (self.scl, lines.scl) {
            (true, true) if self.sda && !sda => Some(Event::Start),
            (true, true) if !self.sda && sda => Some(Event::Stop),
            (false, true) => Some(Event::ClockUp { sda }),
            (true, false) => Some(Event::ClockDown),
            _ => None,
        };
        if let Some(event) = event {
            tell(event, &mut self.eeprom_slave, &mut self.eeprom);
            for cage in &mut self.cages {
                if let Some((slave, memory)) = cage.listener(now) {
                    tell(event, slave, memory);
                }
            }
        }
        self.scl = lines.scl;
        self.sda = lines.sda && !self.pulls();
        self.pulls()
    }

    fn pulls(&self) -> bool {
        self.eeprom_slave.pulls() || self.cages.iter().any(Cage::pulls)
    }
}

fn tell(event: Event, slave: &mut Slave, memory: &mut impl Memory) {
    match event {
        Event::Start => slave.start(),
        Event::Stop => slave.stop(memory),
        Event::ClockUp { sda } => slave.clock_up(sda),
        Event::ClockDown => slave.clock_down(memory),
    }
}

#[cfg(test)]
pub(super) mod tests;
