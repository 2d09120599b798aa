//! Sixteen general-purpose pins: the two-wire bus, the QSFP cages, the EEPROM's write enable.
//!
//! ```text
//!   pin  0 SCL   1 SDA   14 EEPROM write enable (low = writes allowed)
//!   cage of port p, 5 pins higher for port 1:
//!        2 MODSEL_N   3 MODPRS_N (low = module present)   4 INT_N (low = alarm)   5 RESET_N   6 LPMODE
//! ```
//!
//! A pin whose `GPIOOe` bit is set carries its `GPIOOut` bit; the others are pulled high unless something outside pulls
//! them low. `GPIOIn` shows the level, whatever `GPIOInvert` says. `GPIOStatus` latches a pin when level xor invert
//! turns from 0 to 1 (F-350); with its mask it makes the `AssertGPIO` summary.

use super::twsi::module::Module;
use super::twsi::{CagePins, Lines};
use super::wrong::WrongChip;
use super::{Chip, Host};
use qhca_regs::map::device;
use qhca_regs::{Instant, Port};

const SCL: u16 = 1 << 0;
const SDA: u16 = 1 << 1;
const EEPROM_WRITE_DISABLE: u16 = 1 << 14;
const CAGE_STRIDE: usize = 5;

/// Pin `first` of port 0's cage, for the cage of `port`.
const fn cage_pin(port: Port, first: usize) -> u16 {
    1 << (first + CAGE_STRIDE * port.index())
}
const fn modsel(port: Port) -> u16 {
    cage_pin(port, 2)
}
const fn modprs(port: Port) -> u16 {
    cage_pin(port, 3)
}
const fn int(port: Port) -> u16 {
    cage_pin(port, 4)
}
const fn reset(port: Port) -> u16 {
    cage_pin(port, 5)
}
const fn low_power(port: Port) -> u16 {
    cage_pin(port, 6)
}

/// See the chapter's head.
pub(super) struct Gpio {
    out: u16,
    oe: u16,
    invert: u16,
    mask: u16,
    status: u16,
    /// Pins that something outside pulls low.
    pulled_low: u16,
    /// Level xor invert, as last looked at.
    asserted: u16,
}

impl Gpio {
    /// Pins at rest, with a module in the cages of `present`.
    pub(super) fn new(present: [bool; 2]) -> Self {
        let pulled_low = Port::ALL.into_iter().filter(|&p| present[p.index()]).map(modprs).sum();
        Self { out: 0, oe: 0, invert: 0, mask: 0, status: 0, pulled_low, asserted: !pulled_low }
    }

    /// The level of each pin.
    pub(super) fn levels(&self) -> u16 {
        (self.oe & self.out | !self.oe) & !self.pulled_low
    }

    /// `AssertGPIO`.
    pub(super) fn level(&self) -> bool {
        self.status & self.mask != 0
    }

    pub(super) fn status(&self) -> u64 {
        u64::from(self.status)
    }

    fn pull(&mut self, pins: u16, low: bool) {
        self.pulled_low = if low { self.pulled_low | pins } else { self.pulled_low & !pins };
    }

    fn latch(&mut self) {
        let asserted = self.levels() ^ self.invert;
        self.status |= asserted & !self.asserted;
        self.asserted = asserted;
    }
}

impl Chip {
    pub(super) fn write_ext_ctrl(&mut self, value: u64, now: Instant, host: &mut impl Host) {
        let control = device::ExtCtrl(value);
        self.gpio.oe = control.gpio_oe();
        self.gpio.invert = control.gpio_invert();
        self.follow_pins(now, host);
    }

    pub(super) fn write_gpio_out(&mut self, value: u64, now: Instant, host: &mut impl Host) {
        self.gpio.out = value as u16;
        self.follow_pins(now, host);
    }

    pub(super) fn write_gpio_mask(&mut self, value: u64, now: Instant, host: &mut impl Host) {
        self.gpio.mask = value as u16;
        self.follow_levels(now, host);
    }

    pub(super) fn write_gpio_clear(&mut self, value: u64, now: Instant, host: &mut impl Host) {
        self.gpio.status &= !(value as u16);
        self.follow_levels(now, host);
    }

    /// A module is pushed into the cage of `port`, or pulled out of it. Does nothing to ports without a cage.
    pub fn plug_module(&mut self, port: Port, module: Option<Module>, now: Instant, host: &mut impl Host) {
        if self.config.board.has_cage(port) {
            let wired = module.is_some();
            self.twsi.plug(port, module, now);
            if !self.config.wrong.has(WrongChip::ModuleInsertUnnoticed) || !wired {
                self.follow_pins(now, host);
            }
            self.set_wired(port, wired, now, host);
        }
    }

    /// The module that the card was built with (else 3 m of copper) is pushed into the cage of `port`, or what is
    /// there is pulled out.
    pub fn set_module(&mut self, port: Port, present: bool, now: Instant, host: &mut impl Host) {
        let usual = || self.config.modules[port.index()].clone().unwrap_or_default();
        let module = present.then(usual);
        self.plug_module(port, module, now, host);
    }

    /// Whether a module sits in the cage of `port`.
    pub fn has_module(&self, port: Port) -> bool {
        self.twsi.is_present(port)
    }

    /// The module in the cage of `port` latches `bits` of alarm byte `at` (3 to 21) and pulls INT_N low.
    pub fn module_alarm(&mut self, port: Port, at: u8, bits: u8, now: Instant, host: &mut impl Host) {
        self.twsi.alarm(port, at, bits);
        self.follow_pins(now, host);
    }

    /// How the chip drives the cage of `port`.
    pub fn cage_pins(&self, port: Port) -> CagePins {
        self.twsi.cage_pins(port)
    }

    pub(super) fn ext_status(&self) -> u64 {
        let bist = device::ExtStatus(self.store.get(device::EXT_STATUS.offset()));
        bist.with_gpio_in(self.gpio.levels()).0
    }

    /// Lets the two-wire bus see the pins, and latches what changed.
    pub(super) fn follow_pins(&mut self, now: Instant, host: &mut impl Host) {
        self.gpio.pull(SDA, false);
        let levels = self.gpio.levels();
        let cage = |port: Port| CagePins {
            selected: levels & modsel(port) == 0,
            in_reset: levels & reset(port) == 0,
            low_power: levels & low_power(port) != 0,
        };
        let lines = Lines {
            scl: levels & SCL != 0,
            sda: levels & SDA != 0,
            eeprom_writable: levels & EEPROM_WRITE_DISABLE == 0,
            cages: Port::ALL.map(cage),
        };
        let held_low = self.twsi.follow(lines, now);
        self.gpio.pull(SDA, held_low);
        for port in Port::ALL {
            self.gpio.pull(modprs(port), self.twsi.is_present(port));
            self.gpio.pull(int(port), self.twsi.interrupts(port));
        }
        self.gpio.latch();
        self.follow_levels(now, host);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::Bench;
    use super::*;
    use qhca_regs::status::IntBits;

    fn pins(bench: &mut Bench) -> u16 {
        device::ExtStatus(bench.read(device::EXT_STATUS.offset())).gpio_in()
    }

    #[test]
    fn released_pins_read_high_and_a_present_module_reads_low() {
        let mut bench = Bench::new();
        assert_eq!(pins(&mut bench), !(modprs(Port::P0) | modprs(Port::P1)));
        let driven = device::ExtCtrl::default().with_gpio_oe(1 << 6).with_gpio_invert(0xFFFF);
        bench.write(device::EXT_CTRL.offset(), driven.0);
        assert_eq!(pins(&mut bench) & 1 << 6, 0, "driven low");
        assert_eq!(pins(&mut bench) & modprs(Port::P0), 0, "inversion does not reach GPIOIn");
    }

    #[test]
    fn module_present_asserts_once_inverted_and_waits_for_the_mask() {
        let mut bench = Bench::new();
        bench.write(device::INT_MASK.offset(), u64::MAX);
        let inverted = device::ExtCtrl::default().with_gpio_invert(modprs(Port::P0));
        bench.write(device::EXT_CTRL.offset(), inverted.0);
        assert!(bench.host.messages().is_empty());
        bench.write(device::GPIO_MASK.offset(), modprs(Port::P0).into());
        assert_eq!(bench.host.messages(), [0]);
        assert_eq!(bench.read(device::INT_STATUS.offset()), IntBits::ASSERT_GPIO.bits());
        let status = bench.read(device::GPIO_STATUS.offset());
        assert_eq!(status, u64::from(modprs(Port::P0)));
        bench.write(device::GPIO_CLEAR.offset(), status);
        bench.write(device::INT_CLEAR.offset(), IntBits::ASSERT_GPIO.bits());
        assert_eq!(bench.read(device::INT_STATUS.offset()), 0, "an edge, not a level");
    }

    #[test]
    fn pulling_the_module_out_and_in_asserts_again() {
        let mut bench = Bench::new();
        let inverted = device::ExtCtrl::default().with_gpio_invert(modprs(Port::P1));
        bench.write(device::EXT_CTRL.offset(), inverted.0);
        bench.write(device::GPIO_CLEAR.offset(), u64::MAX);
        bench.set_module(Port::P1, false);
        assert_eq!(bench.read(device::GPIO_STATUS.offset()), 0);
        bench.set_module(Port::P1, true);
        assert_eq!(bench.read(device::GPIO_STATUS.offset()), u64::from(modprs(Port::P1)));
    }

    #[test]
    fn self_test_is_reported_as_ended() {
        let mut bench = Bench::new();
        let status = device::ExtStatus(bench.read(device::EXT_STATUS.offset()));
        assert!(status.mem_bist_end_test());
    }
}
