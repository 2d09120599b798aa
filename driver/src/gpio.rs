//! The chip's sixteen general pins: two-wire bus, EEPROM write enable, cable sockets.
//!
//! A pin is an output while its output-enable bit is set and shows `GPIOOut` then; what every pin really is, output
//! or not, reads in `EXTStatus`. The bus pins are open drain: their output value stays 0 and they are driven low by
//! turning the output on and released by turning it off, when a pull-up makes them 1.
//!
//! ```text
//!  pin   0    1    2 ─ 6           7 ─ 11           14
//!       SCL  SDA   port 0 socket   port 1 socket    EEPROM write enable, low
//!                  +0 MODSEL_N  +1 MODPRS_N  +2 INT_N  +3 RESET_N  +4 LPMODE
//! ```
//!
//! Source: F-123, F-124.

use qhca_regs::map::device::{self, ExtCtrl};
use qhca_regs::{Bar, GONE, Port, RegValue};

/// Clock of the two-wire bus.
pub const SCL: u16 = 1 << 0;
/// Data of the two-wire bus.
pub const SDA: u16 = 1 << 1;
/// EEPROM write enable: low allows writes.
pub const EEPROM_WRITE_N: u16 = 1 << 14;

/// The pins of one port's cable socket.
#[derive(Clone, Copy, Debug)]
pub struct SocketPins {
    /// Low selects the module for the two-wire bus.
    pub modsel_n: u16,
    /// Low while a module is plugged in; input.
    pub modprs_n: u16,
    /// Low resets the module.
    pub reset_n: u16,
    /// High keeps the module in low power.
    pub lpmode: u16,
}

impl SocketPins {
    /// The pins of hardware port `port`.
    pub const fn of(port: Port) -> Self {
        let shift = 5 * port.index();
        Self { modsel_n: 4 << shift, modprs_n: 8 << shift, reset_n: 32 << shift, lpmode: 64 << shift }
    }
}

/// The driver's copy of the pin registers.
#[derive(Clone, Copy, Debug, Default)]
pub struct Gpio {
    ctrl: ExtCtrl,
    out: u16,
    mask: u16,
}

impl Gpio {
    /// The pins as a reset leaves them: all inputs.
    pub const fn new() -> Self {
        Self { ctrl: ExtCtrl(0), out: 0, mask: 0 }
    }

    /// Makes the pins of `pins` outputs where `outputs` has ones and inputs elsewhere, with `values` on the outputs.
    pub fn set(&mut self, pins: u16, outputs: u16, values: u16, bar: &impl Bar) {
        self.ctrl = self.ctrl.with_gpio_oe(self.ctrl.gpio_oe() & !pins | outputs & pins);
        self.out = self.out & !pins | values & pins;
        device::EXT_CTRL.write(bar, self.ctrl);
        device::GPIO_OUT.write(bar, u64::from(self.out));
    }

    /// Drives an open-drain `pin` low, or releases it.
    pub fn release(&mut self, pin: u16, released: bool, bar: &impl Bar) {
        self.set(pin, if released { 0 } else { pin }, 0, bar);
    }

    /// What the pins are. The read also pushes earlier writes through to the chip. `None` if the chip is gone.
    pub fn read(&self, bar: &impl Bar) -> Option<u16> {
        let status = device::EXT_STATUS.read(bar);
        (status.raw() != GONE).then(|| status.gpio_in())
    }

    /// Interrupts when one of `pins` is asserted, low counting as asserted for pins in `inverted`.
    pub fn watch(&mut self, pins: u16, inverted: u16, bar: &impl Bar) {
        self.ctrl = self.ctrl.with_gpio_invert(self.ctrl.gpio_invert() & !pins | inverted & pins);
        self.mask |= pins;
        device::EXT_CTRL.write(bar, self.ctrl);
        device::GPIO_OUT.write(bar, u64::from(self.out));
        device::GPIO_MASK.write(bar, u64::from(self.mask));
    }

    /// Stops interrupts of `pins`.
    pub fn unwatch(&mut self, pins: u16, bar: &impl Bar) {
        self.mask &= !pins;
        device::GPIO_MASK.write(bar, u64::from(self.mask));
    }

    /// Pins whose assertion was noted since the last call, and forgets them.
    pub fn take_status(&self, bar: &impl Bar) -> u16 {
        let status = device::GPIO_STATUS.read(bar);
        if status == GONE || status == 0 {
            return 0;
        }
        device::GPIO_CLEAR.clear(bar, status);
        status as u16
    }

    /// Pins that interrupt.
    pub const fn watched(&self) -> u16 {
        self.mask
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scriptbar::ScriptBar;

    #[test]
    fn released_pin_is_an_input_and_driven_pin_is_low() {
        let (bar, mut gpio) = (ScriptBar::reset(), Gpio::new());
        gpio.release(SDA, false, &bar);
        gpio.release(SCL, true, &bar);
        assert_eq!(ExtCtrl(bar.peek(device::EXT_CTRL.offset())).gpio_oe(), SDA);
        assert_eq!(bar.peek(device::GPIO_OUT.offset()), 0);
        gpio.release(SDA, true, &bar);
        assert_eq!(ExtCtrl(bar.peek(device::EXT_CTRL.offset())).gpio_oe(), 0);
    }

    #[test]
    fn pins_of_the_second_socket_are_five_higher() {
        let (first, second) = (SocketPins::of(Port::P0), SocketPins::of(Port::P1));
        assert_eq!((first.modprs_n, second.modprs_n), (1 << 3, 1 << 8));
        assert_eq!((first.lpmode, second.lpmode), (1 << 6, 1 << 11));
    }

    #[test]
    fn status_is_cleared_exactly_as_read_and_a_lost_chip_has_none() {
        let (bar, gpio) = (ScriptBar::reset(), Gpio::new());
        bar.set(device::GPIO_STATUS.offset(), 0x108);
        assert_eq!(gpio.take_status(&bar), 0x108);
        assert_eq!(bar.written(device::GPIO_CLEAR.offset()), [0x108]);
        bar.vanish();
        assert_eq!(gpio.take_status(&bar), 0);
        assert_eq!(gpio.read(&bar), None);
    }
}
