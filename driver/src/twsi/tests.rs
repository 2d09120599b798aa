use super::*;
use crate::scriptbar::ScriptBar;
use qhca_regs::map::device::{self, ExtCtrl, ExtStatus};
use std::cell::RefCell;
use std::rc::Rc;

/// A memory on the bus, address 0xA2, driven by the edges that the driver makes.
#[derive(Default)]
pub(crate) struct BusMemory {
    pub(crate) contents: Vec<u8>,
    /// Addresses that it leaves unacknowledged before it answers.
    pub(crate) deaf_for: usize,
    /// Whether it holds the clock low for ever.
    pub(crate) holds_clock: bool,
    /// Whether it holds the data line low for ever.
    pub(crate) holds_data: bool,
    /// Reads of the whole memory that give zeros before it answers truly.
    pub(crate) zeros_for: usize,
    /// How often it was addressed for reading.
    pub(crate) reads: usize,
    pub(crate) scl: bool,
    pub(crate) sda: bool,
    pub(crate) pulls_data: bool,
    pub(crate) state: State,
    pub(crate) bits: (u8, u32),
    pub(crate) pointer: usize,
    /// Another address that it answers to.
    pub(crate) address: Option<u8>,
    /// Addresses that it leaves unacknowledged after a write.
    pub(crate) busy_after_write: usize,
    /// Registers that were written, with what.
    pub(crate) written: Vec<(u8, u8)>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum State {
    #[default]
    Idle,
    Address,
    Register,
    Written,
    Reading,
}

impl BusMemory {
    fn on_lines(&mut self, scl: bool, master_sda: bool) {
        let sda = master_sda && !self.pulls_data;
        if self.scl && scl && self.sda != sda {
            self.bits = (0, 0);
            self.pulls_data = false;
            self.state = if sda { State::Idle } else { State::Address };
        } else if !self.scl && scl {
            self.on_clock_up(sda);
        } else if self.scl && !scl {
            self.on_clock_down();
        }
        self.scl = scl;
        self.sda = master_sda && !self.pulls_data;
    }

    fn on_clock_up(&mut self, sda: bool) {
        let (bits, count) = self.bits;
        self.bits = (if count < 8 { bits << 1 | u8::from(sda) } else { bits }, count + 1);
        if self.state == State::Reading && count == 8 && sda {
            self.state = State::Idle; // the master wants no more
        }
    }

    fn on_clock_down(&mut self) {
        self.pulls_data = false;
        match self.bits {
            (_, 8) if self.state == State::Reading => self.pointer += 1,
            (byte, 8) => self.pulls_data = self.take(byte),
            (_, 9) => {
                self.bits = (0, 0);
                if self.state == State::Reading {
                    self.pulls_data = !self.next_bit(0);
                }
            }
            (_, count) if self.state == State::Reading && count < 8 => {
                self.pulls_data = !self.next_bit(count);
            }
            _ => {}
        }
    }

    fn next_bit(&self, count: u32) -> bool {
        let byte =
            if self.zeros_for > 0 { 0 } else { self.contents.get(self.pointer).copied().unwrap_or(0xFF) };
        byte >> (7 - count) & 1 == 1
    }

    /// Whether `byte` is acknowledged.
    fn take(&mut self, byte: u8) -> bool {
        match self.state {
            State::Address if self.deaf_for > 0 => {
                self.deaf_for -= 1;
                self.state = State::Idle;
                false
            }
            State::Address if byte == 0xA2 || Some(byte) == self.address => {
                self.state = State::Register;
                true
            }
            State::Address if byte == 0xA3 || Some(byte) == self.address.map(|address| address | 1) => {
                self.state = State::Reading;
                self.zeros_for = self.zeros_for.saturating_sub(usize::from(self.reads > 0));
                self.reads += 1;
                true
            }
            State::Register => {
                self.pointer = usize::from(byte);
                self.state = State::Written;
                true
            }
            State::Written => {
                self.written.push((self.pointer as u8, byte));
                self.deaf_for = self.busy_after_write;
                self.pointer += 1;
                true
            }
            _ => false,
        }
    }

    /// Hangs the memory on the pins of `bar`; the rest of the pins are pulled up.
    pub(crate) fn attach(self, bar: &ScriptBar) -> Rc<RefCell<Self>> {
        let shared = Rc::new(RefCell::new(Self { scl: true, sda: true, ..self }));
        let memory = Rc::clone(&shared);
        bar.set(device::EXT_STATUS.offset(), ExtStatus(0).with_gpio_in(0xFFFF).0);
        bar.on_write(move |bar, offset, value| {
            if offset != device::EXT_CTRL.offset() {
                return;
            }
            let driven = ExtCtrl(value).gpio_oe();
            let mut memory = memory.borrow_mut();
            let scl = driven & SCL == 0 && !memory.holds_clock;
            memory.on_lines(scl, driven & SDA == 0);
            let sda = driven & SDA == 0 && !memory.pulls_data && !memory.holds_data;
            let low = if scl { 0 } else { SCL } | if sda { 0 } else { SDA };
            let status = ExtStatus(bar.peek(device::EXT_STATUS.offset()));
            let others = status.gpio_in() & !(SCL | SDA);
            let pins = others | (SCL | SDA) & !low;
            bar.set(device::EXT_STATUS.offset(), status.with_gpio_in(pins).0);
        });
        shared
    }
}

/// Turns the transfer to its end; what it came to, when, and in how many calls.
fn run(transfer: &mut Transfer, bar: &ScriptBar) -> (Result<Vec<u8>, TwsiError>, Instant, usize) {
    let (mut gpio, mut now) = (Gpio::new(), Instant::ZERO);
    for calls in 1..100_000 {
        match transfer.poll(&mut gpio, bar, now) {
            TransferPoll::More(until) => now = until.max(now),
            TransferPoll::Done(bytes) => return (Ok(bytes), now, calls),
            TransferPoll::Failed(error) => return (Err(error), now, calls),
        }
    }
    panic!("the transfer never ends");
}

#[test]
fn bytes_are_read_from_the_register_named() {
    let bar = ScriptBar::reset();
    let contents: Vec<u8> = (0..=255).collect();
    BusMemory { contents, ..BusMemory::default() }.attach(&bar);
    let (bytes, _, calls) = run(&mut Transfer::read(0xA2, 0x10, 5), &bar);
    assert_eq!(bytes, Ok(vec![0x10, 0x11, 0x12, 0x13, 0x14]));
    // Bounded work a call, so that a caller is never kept for a whole transfer.
    assert!(calls >= 8, "{calls} calls");
}

#[test]
fn whole_eeprom_is_read_in_one_transfer() {
    let bar = ScriptBar::reset();
    let contents: Vec<u8> = (0..128).map(|n: u8| n.wrapping_mul(77)).collect();
    BusMemory { contents: contents.clone(), ..BusMemory::default() }.attach(&bar);
    assert_eq!(run(&mut Transfer::read(0xA2, 0, 128), &bar).0, Ok(contents));
}

#[test]
fn bytes_are_written_to_the_register_named_and_the_next_ones() {
    let bar = ScriptBar::reset();
    let memory = BusMemory::default().attach(&bar);
    assert_eq!(run(&mut Transfer::write(0xA2, 127, &[0, 7]), &bar).0, Ok(vec![]));
    assert_eq!(memory.borrow().written, [(127, 0), (128, 7)]);
    let (result, ..) = run(&mut Transfer::write(0xA0, 127, &[0]), &bar);
    assert_eq!(result, Err(TwsiError::NoAck { device: 0xA0, phase: Phase::Address }));
}

#[test]
fn absent_device_is_named_with_the_byte_it_ignored() {
    let bar = ScriptBar::reset();
    BusMemory::default().attach(&bar);
    let (result, ..) = run(&mut Transfer::read(0xA0, 0, 1), &bar);
    assert_eq!(result, Err(TwsiError::NoAck { device: 0xA0, phase: Phase::Address }));
    // Nobody is left pulling a line.
    assert_eq!(ExtCtrl(bar.peek(device::EXT_CTRL.offset())).gpio_oe() & (SCL | SDA), 0);
}

#[test]
fn clock_that_is_held_low_ends_after_the_stretch_limit() {
    let bar = ScriptBar::reset();
    BusMemory { holds_clock: true, ..BusMemory::default() }.attach(&bar);
    let (result, now, _) = run(&mut Transfer::read(0xA2, 0, 1), &bar);
    assert!(matches!(result, Err(TwsiError::ClockStuck { .. })), "{result:?}");
    assert!(now <= Instant::ZERO + STRETCH_LIMIT.doubled());
}

#[test]
fn data_line_that_stays_low_through_a_reset_is_an_error() {
    let bar = ScriptBar::reset();
    BusMemory { holds_data: true, ..BusMemory::default() }.attach(&bar);
    assert_eq!(run(&mut Transfer::read(0xA2, 0, 1), &bar).0, Err(TwsiError::DataStuck));
}

#[test]
fn lost_device_ends_the_transfer_at_once() {
    let bar = ScriptBar::reset();
    bar.vanish();
    let (result, now, calls) = run(&mut Transfer::read(0xA2, 0, 128), &bar);
    assert_eq!((result, now, calls), (Err(TwsiError::Gone), Instant::ZERO, 1));
}
