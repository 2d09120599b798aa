//! A device on the two-wire bus that behaves as the input says: it answers with the input's bytes, and at moments that
//! the input chooses it is deaf, holds a line, or takes the whole card with it.
//!
//! ```text
//!   input:  fault, countdown (bytes of the bus) ; fault, countdown ; …
//!   fault:  0 none   1 deaf for one byte   2 holds the clock   3 holds the data line   4 the card is gone
//! ```
//!
//! The bus is open drain: a line is low if the driver or the device pulls it. The driver's side is read off the two
//! registers that it writes, the device moves at the edges of the clock.

use std::cell::{Cell, RefCell};

use qhca_regs::map::device::{EXT_CTRL, EXT_STATUS, ExtCtrl, ExtStatus, GPIO_OUT};
use qhca_regs::{Bar, GONE};

use crate::Bytes;

const SCL: u16 = 1;
const SDA: u16 = 2;
/// Address byte of a write to the EEPROM.
const ADDRESS: u8 = 0xA2;

/// What the device is doing.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Idle,
    Listening,
    Talking,
}

/// What is wrong with the device.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    Deaf,
    HoldsClock,
    HoldsData,
    Gone,
}

struct Device {
    mode: Mode,
    /// Rising edges of the clock in the byte under way.
    bits: u32,
    byte: u8,
    /// Next byte to be read.
    place: usize,
    /// The next byte from the driver names a place.
    wants_place: bool,
    pulls_data: bool,
    fault: Fault,
    /// Bytes of the bus until the next fault.
    countdown: u8,
    next_fault: Fault,
    /// Whether an acknowledgement was refused since the device was addressed last.
    refused: bool,
    lines: (bool, bool),
}

/// The chip as far as its pins go, and the device behind them.
pub struct Wire<'a> {
    contents: [u8; 256],
    device: RefCell<Device>,
    input: RefCell<Bytes<'a>>,
    ctrl: Cell<ExtCtrl>,
    out: Cell<u16>,
    gone: Cell<bool>,
    /// Whether the device has ever held the data line: what was read then need not be what it holds.
    data_held: Cell<bool>,
    /// Accesses since a read gave all ones.
    after_gone: Cell<usize>,
    accesses: Cell<usize>,
}

impl<'a> Wire<'a> {
    /// A device that holds `contents` and fails as `input` says.
    #[must_use]
    pub fn new(contents: [u8; 256], input: Bytes<'a>) -> Self {
        let device = Device {
            mode: Mode::Idle,
            bits: 0,
            byte: 0,
            place: 0,
            wants_place: false,
            pulls_data: false,
            fault: Fault::None,
            countdown: 0,
            next_fault: Fault::None,
            refused: false,
            lines: (true, true),
        };
        let wire = Self {
            contents,
            device: RefCell::new(device),
            input: RefCell::new(input),
            ctrl: Cell::default(),
            out: Cell::new(0),
            gone: Cell::new(false),
            data_held: Cell::new(false),
            after_gone: Cell::new(0),
            accesses: Cell::new(0),
        };
        wire.plan_fault(&mut wire.device.borrow_mut());
        wire
    }

    /// Whether the device has refused an acknowledgement since it was addressed last.
    #[must_use]
    pub fn refused(&self) -> bool {
        self.device.borrow().refused
    }

    /// Whether the device has held the data line at any time.
    #[must_use]
    pub fn data_was_held(&self) -> bool {
        self.data_held.get()
    }

    /// Accesses after a read that gave all ones.
    #[must_use]
    pub fn after_gone(&self) -> usize {
        self.after_gone.get()
    }

    /// All accesses.
    #[must_use]
    pub fn accesses(&self) -> usize {
        self.accesses.get()
    }

    fn plan_fault(&self, device: &mut Device) {
        let mut input = self.input.borrow_mut();
        device.next_fault = match input.u8() % 8 {
            1 | 5 | 6 => Fault::Deaf,
            2 => Fault::HoldsClock,
            3 => Fault::HoldsData,
            4 => Fault::Gone,
            _ => Fault::None,
        };
        device.countdown = input.u8();
    }

    /// Clock and data as the driver leaves them: released lines are high.
    fn driven(&self) -> (bool, bool) {
        let low = self.ctrl.get().gpio_oe() & !self.out.get();
        (low & SCL == 0, low & SDA == 0)
    }

    /// The lines as they are.
    fn lines(&self, device: &Device) -> (bool, bool) {
        let (clock, data) = self.driven();
        let holds = |fault| device.fault == fault;
        (clock && !holds(Fault::HoldsClock), data && !holds(Fault::HoldsData) && !device.pulls_data)
    }

    /// The driver has moved a line: lets the device see it.
    fn settle(&self) {
        let device = &mut *self.device.borrow_mut();
        let (was, now) = (device.lines, self.lines(device));
        device.lines = now;
        match (was, now) {
            ((true, true), (true, false)) => self.on_start(device),
            ((true, false), (true, true)) => device.mode = Mode::Idle,
            ((false, _), (true, data)) => Self::on_rise(device, data),
            ((true, _), (false, _)) => self.on_fall(device),
            _ => {}
        }
        device.lines = self.lines(device);
    }

    fn on_start(&self, device: &mut Device) {
        (device.mode, device.bits, device.byte) = (Mode::Listening, 0, 0);
        device.pulls_data = false;
    }

    fn on_rise(device: &mut Device, data: bool) {
        device.bits += 1;
        match (device.mode, device.bits) {
            (Mode::Listening, 1..=8) => device.byte = device.byte << 1 | u8::from(data),
            // The driver does not acknowledge: it has enough.
            (Mode::Talking, 9) if data => device.mode = Mode::Idle,
            _ => {}
        }
    }

    fn on_fall(&self, device: &mut Device) {
        if device.mode == Mode::Idle || device.bits == 0 {
            if device.mode == Mode::Idle {
                device.pulls_data = false;
            }
            return;
        }
        match (device.mode, device.bits) {
            (Mode::Listening, 8) => self.acknowledge(device),
            (Mode::Listening, 9) => self.heard(device),
            (Mode::Talking, 1..=7) => self.show_bit(device),
            (Mode::Talking, 8) => device.pulls_data = false,
            (Mode::Talking, 9) => self.next_byte(device),
            _ => {}
        }
    }

    /// Eight bits have come: pull the line, unless deaf.
    fn acknowledge(&self, device: &mut Device) {
        if device.byte == ADDRESS {
            device.refused = false;
        }
        self.on_byte(device);
        device.pulls_data = device.fault != Fault::Deaf;
        if device.fault == Fault::Deaf {
            device.refused = true;
            device.mode = Mode::Idle;
            device.fault = Fault::None;
        }
    }

    /// The driver has seen the acknowledgement.
    fn heard(&self, device: &mut Device) {
        device.pulls_data = false;
        device.bits = 0;
        match device.byte {
            byte if byte == ADDRESS | 1 => {
                device.mode = Mode::Talking;
                self.next_byte(device);
            }
            ADDRESS => device.wants_place = true,
            place if device.wants_place => {
                device.wants_place = false;
                device.place = usize::from(place);
            }
            _ => {}
        }
        if device.mode == Mode::Listening {
            device.byte = 0;
        }
    }

    fn next_byte(&self, device: &mut Device) {
        device.byte = self.contents[device.place % self.contents.len()];
        device.place += 1;
        device.bits = 0;
        self.on_byte(device);
        self.show_bit(device);
    }

    fn show_bit(&self, device: &mut Device) {
        device.pulls_data = device.byte << device.bits & 0x80 == 0;
    }

    /// A byte of the bus: one nearer to the next fault.
    fn on_byte(&self, device: &mut Device) {
        if device.countdown > 0 {
            device.countdown -= 1;
            return;
        }
        device.fault = device.next_fault;
        match device.fault {
            Fault::Gone => self.gone.set(true),
            Fault::HoldsData => self.data_held.set(true),
            _ => {}
        }
        self.plan_fault(device);
    }

    fn note(&self) {
        self.accesses.set(self.accesses.get() + 1);
        if self.after_gone.get() > 0 {
            self.after_gone.set(self.after_gone.get() + 1);
        }
    }
}

impl Bar for Wire<'_> {
    fn read(&self, offset: u32) -> u64 {
        assert_eq!(offset, EXT_STATUS.offset(), "a bus transfer reads the pins only");
        self.note();
        if self.gone.get() {
            self.after_gone.set(self.after_gone.get().max(1));
            return GONE;
        }
        let (clock, data) = self.lines(&self.device.borrow());
        let pins = u16::from(clock) * SCL | u16::from(data) * SDA;
        ExtStatus::default().with_gpio_in(pins).0
    }

    fn write(&self, offset: u32, value: u64) {
        self.note();
        if offset == EXT_CTRL.offset() {
            self.ctrl.set(ExtCtrl(value));
        } else {
            assert_eq!(offset, GPIO_OUT.offset(), "a bus transfer writes the pins only");
            self.out.set(value as u16);
        }
        self.settle();
    }

    fn doorbell(&self, offset: u32, value: u64) {
        self.write(offset, value);
    }

    fn burst(&self, offset: u32, _dwords: &[u32]) {
        panic!("a bus transfer sent from {offset:#x}");
    }
}
