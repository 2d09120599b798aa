//! A register window for unit tests: it remembers what is written, says what it is told to say, and keeps a log.
//!
//! It is no model of the chip. A test scripts the few registers whose answers matter to it.

use qhca_regs::{Bar, GONE, map};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};

/// What a write sets off, besides being remembered.
pub(crate) type WriteHook = Box<dyn Fn(&ScriptBar, u32, u64)>;

#[allow(dead_code, reason = "each test scripts what it needs")]
pub(crate) struct ScriptBar {
    registers: RefCell<BTreeMap<u32, u64>>,
    /// Answers to the next reads of a register, before its contents are given again.
    answers: RefCell<BTreeMap<u32, VecDeque<u64>>>,
    /// Registers that keep their contents whatever is written.
    fixed: RefCell<Vec<u32>>,
    hooks: RefCell<Vec<WriteHook>>,
    gone: Cell<bool>,
    pub(crate) reads: RefCell<Vec<u32>>,
    pub(crate) writes: RefCell<Vec<(u32, u64)>>,
}

#[allow(dead_code, reason = "each test scripts what it needs")]
impl ScriptBar {
    /// Every register of the map at its reset value; bits without a known one are 0.
    pub(crate) fn reset() -> Self {
        let registers = map::all().map(|placed| (placed.offset, placed.reset())).collect();
        Self {
            registers: RefCell::new(registers),
            answers: RefCell::default(),
            fixed: RefCell::default(),
            hooks: RefCell::default(),
            gone: Cell::new(false),
            reads: RefCell::default(),
            writes: RefCell::default(),
        }
    }

    /// What the register at `offset` holds from now on.
    pub(crate) fn set(&self, offset: u32, value: u64) {
        self.registers.borrow_mut().insert(offset, value);
    }

    /// What the register holds, without a trace in the log.
    pub(crate) fn peek(&self, offset: u32) -> u64 {
        self.registers.borrow().get(&offset).copied().unwrap_or(0)
    }

    /// The next reads of `offset` give `values`.
    pub(crate) fn answer(&self, offset: u32, values: impl IntoIterator<Item = u64>) {
        self.answers.borrow_mut().entry(offset).or_default().extend(values);
    }

    /// Writes to `offset` change nothing from now on.
    pub(crate) fn fix(&self, offset: u32) {
        self.fixed.borrow_mut().push(offset);
    }

    /// Calls `hook` after every write.
    pub(crate) fn on_write(&self, hook: impl Fn(&ScriptBar, u32, u64) + 'static) {
        self.hooks.borrow_mut().push(Box::new(hook));
    }

    /// From now on reads give all ones and writes are lost.
    pub(crate) fn vanish(&self) {
        self.gone.set(true);
    }

    /// The values written to `offset`, in order.
    pub(crate) fn written(&self, offset: u32) -> Vec<u64> {
        self.writes.borrow().iter().filter(|(at, _)| *at == offset).map(|(_, value)| *value).collect()
    }
}

impl Bar for ScriptBar {
    fn read(&self, offset: u32) -> u64 {
        self.reads.borrow_mut().push(offset);
        if self.gone.get() {
            return GONE;
        }
        let answer = self.answers.borrow_mut().get_mut(&offset).and_then(VecDeque::pop_front);
        answer.unwrap_or_else(|| self.peek(offset))
    }

    fn write(&self, offset: u32, value: u64) {
        self.writes.borrow_mut().push((offset, value));
        if self.gone.get() {
            return;
        }
        if !self.fixed.borrow().contains(&offset) {
            self.set(offset, value);
        }
        for hook in self.hooks.borrow().iter() {
            hook(self, offset, value);
        }
    }

    fn doorbell(&self, offset: u32, value: u64) {
        self.write(offset, value);
    }

    fn burst(&self, offset: u32, dwords: &[u32]) {
        for (at, pair) in (offset..).step_by(8).zip(dwords.chunks(2)) {
            let high = pair.get(1).copied().unwrap_or(0);
            self.write(at, u64::from(pair[0]) | u64::from(high) << 32);
        }
    }
}
