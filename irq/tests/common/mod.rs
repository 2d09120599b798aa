//! A chip small enough to be checked by eye: status words, masks, levels, and a log of every access.
//!
//! It is written from the data sheet's section on interrupts alone and knows nothing of queues. The full model lives
//! elsewhere; this one lets a test set a bit between any two accesses.

#![allow(dead_code, reason = "each test file uses its own part")]

use qhca_regs::map::{device, port as port_regs};
use qhca_regs::{Bar, Port};
use std::cell::RefCell;

/// One access, in the order in which the chip saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read(u32),
    Write(u32, u64),
}

/// An error scope: chip, port 0, port 1.
#[derive(Clone, Copy, Default)]
struct ErrorScope {
    status: u64,
    mask: u64,
}

#[derive(Default)]
struct State {
    int_status: u64,
    int_mask: u64,
    scopes: [ErrorScope; 3],
    log: Vec<Access>,
    after_status_read: u64,
    gone: bool,
}

/// The small chip. Error masks and `IntMask` start as all ones.
pub(crate) struct MiniChip(RefCell<State>);

impl MiniChip {
    pub(crate) fn new() -> Self {
        let scopes = [ErrorScope { status: 0, mask: u64::MAX }; 3];
        Self(RefCell::new(State { scopes, int_mask: u64::MAX, ..State::default() }))
    }

    /// Latches bits of `IntStatus`.
    pub(crate) fn raise(&self, bits: u64) {
        self.0.borrow_mut().int_status |= bits;
    }

    /// Latches bits right after the next read of `IntStatus`, before whatever comes next.
    pub(crate) fn raise_after_status_read(&self, bits: u64) {
        self.0.borrow_mut().after_status_read = bits;
    }

    /// Sets bits of `ErrStatus` (scope 0) or `ErrStatus_p` (scope 1 + p).
    pub(crate) fn fail(&self, scope: usize, bits: u64) {
        self.0.borrow_mut().scopes[scope].status |= bits;
        self.0.borrow_mut().settle();
    }

    /// Reads and clears an error word, as a worker does, without leaving traces in the log.
    pub(crate) fn serve(&self, scope: usize) -> u64 {
        std::mem::take(&mut self.0.borrow_mut().scopes[scope].status)
    }

    /// Writes an error mask, as a worker does.
    pub(crate) fn unmask(&self, scope: usize, mask: u64) {
        self.0.borrow_mut().scopes[scope].mask = mask;
        self.0.borrow_mut().settle();
    }

    pub(crate) fn error_mask(&self, scope: usize) -> u64 {
        self.0.borrow().scopes[scope].mask
    }

    pub(crate) fn int_mask(&self) -> u64 {
        self.0.borrow().int_mask
    }

    pub(crate) fn int_status(&self) -> u64 {
        self.0.borrow().int_status
    }

    /// Whether the chip would fire a vector now.
    pub(crate) fn fires(&self) -> bool {
        let state = self.0.borrow();
        state.int_status & state.int_mask != 0
    }

    /// From now on every read gives all ones.
    pub(crate) fn vanish(&self) {
        self.0.borrow_mut().gone = true;
    }

    /// What was accessed since the last call.
    pub(crate) fn take_log(&self) -> Vec<Access> {
        std::mem::take(&mut self.0.borrow_mut().log)
    }
}

impl State {
    /// Summary bits are levels: they are set while their word has an enabled bit.
    fn settle(&mut self) {
        for (scope, bit) in self.scopes.iter().zip([29, 30, 31]) {
            if scope.status & scope.mask != 0 {
                self.int_status |= 1 << bit;
            }
        }
    }
}

impl Bar for MiniChip {
    fn read(&self, offset: u32) -> u64 {
        let mut state = self.0.borrow_mut();
        state.log.push(Access::Read(offset));
        if state.gone {
            return u64::MAX;
        }
        assert_eq!(offset, device::INT_STATUS.offset(), "a handler reads IntStatus and nothing else");
        let seen = state.int_status;
        state.int_status |= std::mem::take(&mut state.after_status_read);
        seen
    }

    fn write(&self, offset: u32, value: u64) {
        let mut state = self.0.borrow_mut();
        state.log.push(Access::Write(offset, value));
        let masks = [
            device::ERR_MASK.offset(),
            port_regs::ERR_MASK.port(Port::P0).offset(),
            port_regs::ERR_MASK.port(Port::P1).offset(),
        ];
        if let Some(scope) = masks.iter().position(|mask| *mask == offset) {
            state.scopes[scope].mask = value;
        } else if offset == device::INT_CLEAR.offset() {
            state.int_status &= !value;
        } else if offset == device::INT_MASK.offset() {
            state.int_mask = value;
        } else {
            panic!("a handler writes masks and IntClear and nothing else, not {offset:#x}");
        }
        state.settle();
    }

    fn doorbell(&self, offset: u32, _value: u64) {
        panic!("a handler rings no doorbell: {offset:#x}");
    }

    fn burst(&self, offset: u32, _dwords: &[u32]) {
        panic!("a handler copies nothing: {offset:#x}");
    }
}
