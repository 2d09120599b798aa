//! A cable module on the two-wire bus: whatever happened on the pins before, a module that is selected and told to show
//! page 0 shows what its maker wrote, byte 127 says which page is shown, and the bus never hangs.
//!
//! Input: whether the module is flat, then steps: raw pins, a page select, bytes written, a reset, a module pulled or
//! plugged, time. After each eight bytes of it the module is read.

#![no_main]

use libfuzzer_sys::fuzz_target;
use qhca_fuzz::Bytes;
use qhca_regs::map::device;
use qhca_regs::{Duration, Instant, Port};
use qhca_sim::chip::{Chip, Config, Description, Module, NoHost};

const MODULE: u8 = 0xA0;
const READ: u8 = 1;
/// Pins of port 0's cage.
const MODSEL: u16 = 1 << 2;
const RESET: u16 = 1 << 5;
const PAGE_SELECT: u8 = 127;
const IDENTITY: u8 = 128;
/// More polls than any memory is busy for.
const POLLS: usize = 8;

struct Bus {
    chip: Chip,
    now: Instant,
    low: u16,
}

impl Bus {
    fn pins(&mut self, oe: u16) -> bool {
        let control = device::ExtCtrl::default().with_gpio_oe(oe);
        self.chip.write(device::EXT_CTRL.offset(), control.0, self.now, &mut NoHost);
        self.chip.write(device::GPIO_OUT.offset(), 0, self.now, &mut NoHost);
        let status = self.chip.read(device::EXT_STATUS.offset(), self.now, &mut NoHost);
        device::ExtStatus(status).gpio_in() & 2 != 0
    }

    fn lines(&mut self, scl: bool, sda: bool) -> bool {
        self.pins(self.low | u16::from(!scl) | u16::from(!sda) << 1)
    }

    fn bit(&mut self, sda: bool) -> bool {
        self.lines(false, sda);
        let seen = self.lines(true, sda);
        self.lines(false, sda);
        seen
    }

    fn start(&mut self) {
        for (scl, sda) in [(false, true), (true, true), (true, false), (false, false)] {
            self.lines(scl, sda);
        }
    }

    fn stop(&mut self) {
        for (scl, sda) in [(false, false), (true, false), (true, true)] {
            self.lines(scl, sda);
        }
    }

    fn send(&mut self, byte: u8) -> bool {
        (0..8).for_each(|n| {
            self.bit(byte << n & 0x80 != 0);
        });
        !self.bit(true)
    }

    fn hear(&mut self, ack: bool) -> u8 {
        let byte = (0..8).fold(0, |byte, _| byte << 1 | u8::from(self.bit(true)));
        self.bit(!ack);
        byte
    }

    /// Drives these pins low, waits until the module has settled, and frees the bus.
    fn select(&mut self, low: u16) {
        self.low = low;
        self.lines(true, true);
        self.now += Duration::from_millis(2);
        (0..9).for_each(|_| {
            self.bit(true);
        });
        self.stop();
    }

    /// Addresses the module; it may be busy with what was written before.
    fn address(&mut self, byte: u8) {
        for _ in 0..POLLS {
            self.start();
            if self.send(byte) {
                return;
            }
        }
        panic!("the module does not answer");
    }

    fn write(&mut self, at: u8, bytes: &[u8]) {
        self.address(MODULE);
        assert!(self.send(at));
        bytes.iter().for_each(|&byte| assert!(self.send(byte)));
        self.stop();
    }

    fn read(&mut self, at: u8, len: usize) -> Vec<u8> {
        self.address(MODULE);
        assert!(self.send(at));
        self.start();
        assert!(self.send(MODULE | READ));
        let bytes = (0..len).map(|n| self.hear(n + 1 < len)).collect();
        self.stop();
        bytes
    }
}

fuzz_target!(|input: &[u8]| {
    let mut bytes = Bytes::new(input);
    let flat = bytes.u8() & 1 != 0;
    let module = Module::new(&Description { flat, ..Description::default() });
    let config = Config { modules: [Some(module.clone()), None], ..Config::default() };
    let mut bus = Bus { chip: Chip::new(config), now: Instant::ZERO, low: 0 };
    let mut steps = 0;
    while !bytes.is_empty() && steps < 64 {
        steps += 1;
        match bytes.u8() % 6 {
            0 => {
                bus.pins(bytes.u16());
            }
            1 => {
                let page = bytes.u8();
                bus.select(MODSEL);
                bus.write(PAGE_SELECT, &[page]);
                let shown = if flat || page > 3 { 0 } else { page };
                assert_eq!(bus.read(PAGE_SELECT, 1), [shown], "page {page}");
            }
            2 => {
                let (at, written) = (bytes.u8(), bytes.array::<4>());
                bus.select(MODSEL);
                bus.write(at, &written);
            }
            3 => {
                bus.select(MODSEL | RESET);
            }
            4 => {
                let now = bus.now;
                bus.chip.plug_module(Port::P0, None, now, &mut NoHost);
                bus.chip.plug_module(Port::P0, Some(module.clone()), now, &mut NoHost);
            }
            _ => bus.now += Duration::from_nanos(bytes.u16().into()),
        }
    }
    bus.select(0);
    bus.select(MODSEL);
    bus.write(PAGE_SELECT, &[0]);
    assert_eq!(bus.read(IDENTITY, 128), module.image()[128..], "the maker's bytes");
});
