//! The bus as software sees it: bits moved by hand through the GPIO registers.

use super::super::tests::Bench;
use super::super::{Board, CagePins, Config, Description, Module};
use super::slave::BUSY_POLLS;
use super::*;
use proptest::prelude::*;
use qhca_regs::Duration;
use qhca_regs::layout::Flash;
use qhca_regs::layout::flash::LEN_BYTES;
use qhca_regs::map::device;

const EEPROM: u8 = eeprom::ADDRESS;
const MODULE: u8 = 0xA0;
const READ: u8 = 1;
const MODSEL: u16 = 1 << 2;
const RESET: u16 = 1 << 5;
const LOW_POWER: u16 = 1 << 6;
const SELECT_TIME: Duration = cage::SELECT_SETUP;

/// Software's end of the bus: three writes and a read a step, as a driver would.
pub(in super::super) struct Master<'a> {
    bench: &'a mut Bench,
    scl: bool,
    sda: bool,
    protect: bool,
    /// Pins driven low beside the bus.
    low: u16,
}

impl<'a> Master<'a> {
    pub(in super::super) fn new(bench: &'a mut Bench) -> Self {
        Self { bench, scl: true, sda: true, protect: false, low: 0 }
    }

    /// Moves one line and returns SDA.
    fn set(&mut self, scl: bool, sda: bool) -> bool {
        (self.scl, self.sda) = (scl, sda);
        let oe = u16::from(!scl) | u16::from(!sda) << 1 | 1 << 14 | self.low;
        let control = device::ExtCtrl::default().with_gpio_oe(oe);
        self.bench.write(device::EXT_CTRL.offset(), control.0);
        self.bench.write(device::GPIO_OUT.offset(), u64::from(self.protect) << 14);
        device::ExtStatus(self.bench.read(device::EXT_STATUS.offset())).gpio_in() & 2 != 0
    }

    fn start(&mut self) {
        self.set(false, true);
        self.set(true, true);
        self.set(true, false);
        self.set(false, false);
    }

    fn stop(&mut self) {
        self.set(false, false);
        self.set(true, false);
        self.set(true, true);
    }

    fn bit(&mut self, sda: bool) -> bool {
        self.set(false, sda);
        let seen = self.set(true, sda);
        self.set(false, sda);
        seen
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

    pub(in super::super) fn read(&mut self, register: u8, len: usize) -> Option<Vec<u8>> {
        self.read_from(EEPROM, register, len)
    }

    fn read_from(&mut self, address: u8, register: u8, len: usize) -> Option<Vec<u8>> {
        self.start();
        (self.send(address) && self.send(register)).then_some(())?;
        self.start();
        self.send(address | READ).then_some(())?;
        let bytes = (0..len).map(|n| self.hear(n + 1 < len)).collect();
        self.stop();
        Some(bytes)
    }

    fn write(&mut self, register: u8, bytes: &[u8]) {
        self.write_to(EEPROM, register, bytes);
    }

    fn write_to(&mut self, address: u8, register: u8, bytes: &[u8]) {
        self.start();
        assert!(self.send(address) && self.send(register));
        bytes.iter().for_each(|&byte| assert!(self.send(byte)));
        self.stop();
    }

    /// Waits until the memory at `address` answers again.
    fn wait(&mut self, address: u8) {
        for _ in 0..=BUSY_POLLS {
            self.start();
            if self.send(address | READ) {
                self.hear(false);
                return self.stop();
            }
            self.stop();
        }
        panic!("{address:#x} stays busy");
    }

    /// Drives these pins of the cage of `port` low, as offsets from port 0's pin 0, and lets the module get ready.
    pub(in super::super) fn drive_low(&mut self, port: Port, pins: u16) {
        self.low = pins << (5 * port.index());
        self.set(true, true);
        self.bench.pass(SELECT_TIME);
    }

    /// Reads the module in the cage of `port`, whose cage it selects.
    pub(in super::super) fn read_module(&mut self, port: Port, register: u8, len: usize) -> Option<Vec<u8>> {
        self.drive_low(port, MODSEL);
        let bytes = self.read_from(MODULE, register, len);
        self.stop();
        self.drive_low(port, 0);
        bytes
    }

    /// Selects an upper page of the module in the cage of `port`.
    pub(in super::super) fn select_page(&mut self, port: Port, page: u8) {
        self.drive_low(port, MODSEL);
        self.write_to(MODULE, module::PAGE_SELECT, &[page]);
        self.wait(MODULE);
        self.drive_low(port, 0);
    }
}

#[test]
fn whole_flash_reads_in_one_transaction_and_holds_guid_and_serial() {
    let mut bench = Bench::new();
    let bytes = Master::new(&mut bench).read(0, LEN_BYTES).expect("acknowledged");
    let flash = Flash::parse(&bytes.try_into().expect("128 bytes")).expect("valid");
    assert_eq!(flash.base_guid, bench.chip.config().guid);
    assert_eq!(flash.serial.as_str(), bench.chip.config().serial);
    assert!(flash.notes.is_empty(), "{:?}", flash.notes);
}

#[test]
fn other_addresses_are_not_acknowledged() {
    let mut bench = Bench::new();
    let mut master = Master::new(&mut bench);
    for address in [0xA0, 0x98, 0xA4] {
        master.start();
        assert!(!master.send(address), "{address:#x}");
        master.stop();
    }
}

#[test]
fn written_bytes_are_kept_and_the_memory_is_busy_for_a_while() {
    let mut bench = Bench::new();
    let mut master = Master::new(&mut bench);
    master.write(40, &[1, 2, 3, 4]);
    master.start();
    assert!(!master.send(EEPROM | READ), "busy");
    master.start();
    assert!(!master.send(EEPROM | READ), "still busy");
    assert_eq!(master.read(40, 4), Some(vec![1, 2, 3, 4]));
}

#[test]
fn write_protected_memory_keeps_its_bytes() {
    let mut bench = Bench::new();
    let mut master = Master::new(&mut bench);
    let before = master.read(40, 1);
    master.protect = true;
    master.write(40, &[0x77]);
    (0..2).for_each(|_| {
        master.start();
        master.send(EEPROM | READ);
    });
    assert_eq!(master.read(40, 1), before);
}

proptest! {
    #[test]
    fn any_wiggling_of_the_lines_leaves_the_bus_usable(steps in prop::collection::vec(any::<(bool, bool)>(), 0..200)) {
        let mut bench = Bench::new();
        let mut master = Master::new(&mut bench);
        for (scl, sda) in steps {
            master.set(scl, sda);
        }
        (0..9).for_each(|_| { master.bit(true); });
        master.stop();
        (0..=BUSY_POLLS).for_each(|_| { master.start(); master.send(EEPROM); master.stop(); });
        prop_assert!(master.read(0, 3).is_some());
    }
}

fn whole(bench: &mut Bench, port: Port) -> Option<Vec<u8>> {
    let mut master = Master::new(bench);
    let mut bytes = master.read_module(port, 0, 128)?;
    bytes.extend(master.read_module(port, 128, 128)?);
    Some(bytes)
}

fn card(module: Module) -> Bench {
    Bench::with(Config { modules: [Some(module), None], ..Config::default() })
}

fn paged() -> Module {
    Module::new(&Description { flat: false, ..Description::default() })
}

/// B11: what the module holds is what the bus carries, byte for byte, from the cage that is selected.
#[test]
fn each_selected_module_reads_as_made() {
    let mut bench = Bench::new();
    for port in Port::ALL {
        let read = whole(&mut bench, port).expect("answers");
        let made = bench.chip.config().modules[port.index()].clone().expect("plugged").image;
        assert_eq!(read[3..], made[3..], "{port}");
        assert_eq!(read[2], made[2] | 2, "{port}: no alarm");
    }
}

#[test]
fn module_answers_only_while_selected_and_settled() {
    let mut bench = Bench::new();
    let mut master = Master::new(&mut bench);
    assert_eq!(master.read_from(MODULE, 0, 1), None, "not selected");
    master.stop();
    master.low = MODSEL;
    master.set(true, true);
    assert_eq!(master.read_from(MODULE, 0, 1), None, "within the set-up time");
    master.stop();
    master.bench.pass(SELECT_TIME);
    assert_eq!(master.read_from(MODULE, 0, 1), Some(vec![0x0D]));
}

#[test]
fn empty_cage_mute_module_and_board_without_cages_do_not_acknowledge() {
    for config in [
        Config { modules: [None, None], ..Config::default() },
        Config { modules: [Some(Module::default().mute()), None], ..Config::default() },
        Config { board: Board::Qmh7342, ..Config::default() },
    ] {
        let mut bench = Bench::with(config);
        assert_eq!(Master::new(&mut bench).read_module(Port::P0, 0, 1), None);
    }
    let mut bench = Bench::on(Board::Qle7340);
    assert!(Master::new(&mut bench).read_module(Port::P0, 0, 1).is_some());
    assert_eq!(Master::new(&mut bench).read_module(Port::P1, 0, 1), None, "one cage on a one-port card");
}

#[test]
fn page_select_moves_the_upper_half_and_unknown_pages_lead_back_to_0() {
    let mut bench = card(paged());
    let mut master = Master::new(&mut bench);
    let identity = master.read_module(Port::P0, 128, 128);
    master.select_page(Port::P0, 2);
    assert_ne!(master.read_module(Port::P0, 128, 128), identity);
    assert_eq!(master.read_module(Port::P0, 127, 1), Some(vec![2]));
    master.select_page(Port::P0, 9);
    assert_eq!(master.read_module(Port::P0, 128, 128), identity);
}

#[test]
fn users_page_keeps_what_is_written_and_identity_does_not() {
    let mut bench = card(paged());
    let mut master = Master::new(&mut bench);
    for (page, kept) in [(2, [1, 2, 3, 4].to_vec()), (0, b"QHCA".to_vec())] {
        master.select_page(Port::P0, page);
        master.drive_low(Port::P0, MODSEL);
        master.write_to(MODULE, 148, &[1, 2, 3, 4]);
        master.wait(MODULE);
        assert_eq!(master.read_module(Port::P0, 148, 4), Some(kept));
    }
}

#[test]
fn flat_module_has_one_page_whatever_is_selected() {
    let mut bench = Bench::new();
    let mut master = Master::new(&mut bench);
    let identity = master.read_module(Port::P0, 128, 128);
    master.select_page(Port::P0, 3);
    assert_eq!(master.read_module(Port::P0, 128, 128), identity);
}

#[test]
fn reading_on_past_the_end_of_a_page_starts_it_again() {
    let mut bench = Bench::new();
    let read = Master::new(&mut bench).read_module(Port::P0, 255, 2).expect("answers");
    assert_eq!(read[1], 0x0D, "byte 128, not byte 0's neighbour");
}

#[test]
fn module_in_reset_is_silent_and_comes_back_on_page_0() {
    let mut bench = card(paged());
    let mut master = Master::new(&mut bench);
    let identity = master.read_module(Port::P0, 128, 16);
    master.select_page(Port::P0, 3);
    master.drive_low(Port::P0, MODSEL | RESET);
    assert_eq!(master.read_from(MODULE, 0, 1), None);
    master.stop();
    assert_eq!(master.read_module(Port::P0, 128, 16), identity);
    let pins = |bench: &Bench| bench.chip.cage_pins(Port::P0);
    assert!(pins(&bench).low_power && !pins(&bench).in_reset);
    Master::new(&mut bench).drive_low(Port::P0, RESET | LOW_POWER);
    assert_eq!(pins(&bench), CagePins { selected: false, in_reset: true, low_power: false });
}

/// B03: a module may take its time after it was plugged in; until then it does not answer.
#[test]
fn plugged_module_answers_when_it_is_awake() {
    let mut bench = Bench::with(Config { modules: [None, None], ..Config::default() });
    let module = Module::default().waking_after(Duration::from_millis(500));
    bench.plug(Port::P0, Some(module));
    assert_eq!(Master::new(&mut bench).read_module(Port::P0, 0, 1), None);
    bench.pass(Duration::from_millis(500));
    assert_eq!(Master::new(&mut bench).read_module(Port::P0, 0, 1), Some(vec![0x0D]));
}

#[test]
fn another_module_plugged_in_reads_as_itself() {
    let mut bench = Bench::new();
    let optical = Description { technology: module::Technology::Vcsel850, ..Description::default() };
    bench.plug(Port::P1, Some(Module::new(&optical).with_serial("OTHER")));
    let read = Master::new(&mut bench).read_module(Port::P1, 196, 6);
    assert_eq!(read.as_deref(), Some(&b"OTHER "[..]));
    bench.plug(Port::P1, None);
    assert_eq!(Master::new(&mut bench).read_module(Port::P1, 196, 6), None);
}

#[test]
fn alarm_pulls_its_pin_until_it_is_read() {
    let mut bench = Bench::new();
    let pin =
        |bench: &mut Bench| device::ExtStatus(bench.read(device::EXT_STATUS.offset())).gpio_in() >> 9 & 1;
    assert_eq!(pin(&mut bench), 1);
    bench.alarm(Port::P1, 3, 0x01);
    assert_eq!(pin(&mut bench), 0);
    let mut master = Master::new(&mut bench);
    assert_eq!(master.read_module(Port::P1, 2, 2), Some(vec![0, 1]));
    assert_eq!(master.read_module(Port::P1, 2, 2), Some(vec![2, 0]));
    assert_eq!(pin(&mut bench), 1);
}

#[test]
fn both_modules_selected_at_once_answer_with_the_zeros_of_both() {
    let mut bench = Bench::new();
    let mut master = Master::new(&mut bench);
    master.low = MODSEL | MODSEL << 5;
    master.set(true, true);
    master.bench.pass(SELECT_TIME);
    let read = master.read_from(MODULE, 208, 1).expect("both answer");
    assert_eq!(read, [b'1' & b'2']);
}
