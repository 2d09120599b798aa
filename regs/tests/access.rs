//! How often an access touches the bus.

use core::cell::RefCell;
use qhca_regs::map::device::{self, Control};
use qhca_regs::status::ErrBits;
use qhca_regs::{Bar, Shadow};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Access {
    Read(u32),
    Write(u32, u64),
    Doorbell(u32, u64),
}

/// A card that writes down what is done to it.
#[derive(Default)]
struct Notebook(RefCell<Vec<Access>>);

impl Notebook {
    fn took(&self) -> Vec<Access> {
        self.0.take()
    }
}

impl Bar for Notebook {
    fn read(&self, offset: u32) -> u64 {
        self.0.borrow_mut().push(Access::Read(offset));
        0x5
    }
    fn write(&self, offset: u32, value: u64) {
        self.0.borrow_mut().push(Access::Write(offset, value));
    }
    fn doorbell(&self, offset: u32, value: u64) {
        self.0.borrow_mut().push(Access::Doorbell(offset, value));
    }
    fn burst(&self, _: u32, _: &[u32]) {
        unreachable!("no register is written by a burst");
    }
}

/// B155: a register whose reading has an effect is read exactly as often as the source says.
#[test]
fn each_access_touches_the_bus_exactly_once() {
    let bar = Notebook::default();
    let found = device::ERR_STATUS.read(&bar);
    assert_eq!(bar.took(), [Access::Read(0x88)]);
    device::ERR_CLEAR.clear(&bar, found);
    assert_eq!(bar.took(), [Access::Write(0x90, 0x5)]);
    device::ERR_MASK.write(&bar, ErrBits::HARDWARE_ERR);
    assert_eq!(bar.took(), [Access::Write(0x80, 1 << 62)]);
    device::SCRATCH.doorbell(&bar, 7);
    assert_eq!(bar.took(), [Access::Doorbell(0x20, 7)]);
}

#[test]
fn a_shadow_changes_a_register_without_reading_it() {
    let bar = Notebook::default();
    let mut control = Shadow::new(Control::default().with_sdma_desc_fetch_priority_en(true));
    control.update(&bar, device::CONTROL, |it| it.with_freeze_mode(true));
    control.write_once(&bar, device::CONTROL, |it| it.with_sync_reset(true));
    assert_eq!(bar.took(), [Access::Write(0x8, 0b1_0010), Access::Write(0x8, 0b1_0011)]);
    assert!(!control.get().sync_reset(), "a bit that acts once is not kept");
}

#[test]
fn unknown_status_bits_survive_reading_and_clearing() {
    struct Odd;
    impl Bar for Odd {
        fn read(&self, _: u32) -> u64 {
            1 << 40
        }
        fn write(&self, _: u32, value: u64) {
            assert_eq!(value, 1 << 40);
        }
        fn doorbell(&self, _: u32, _: u64) {
            unreachable!("clearing is no doorbell");
        }
        fn burst(&self, _: u32, _: &[u32]) {
            unreachable!("no register is written by a burst");
        }
    }
    let found = device::ERR_STATUS.read(&Odd);
    assert!((found & !ErrBits::NAMED).bits() == 1 << 40);
    device::ERR_CLEAR.clear(&Odd, found);
}

/// B157: where a 64-bit access would be split into two bus cycles, the crate is refused by the compiler.
#[test]
fn a_target_that_would_split_accesses_is_refused() {
    let source = include_str!("../src/lib.rs");
    let guard = source.find("#[cfg(not(target_pointer_width = \"64\"))]").expect("the guard in lib.rs");
    assert!(source[guard..].lines().nth(1).is_some_and(|line| line.starts_with("compile_error!(")));
}
