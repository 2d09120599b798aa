//! A register file that mostly keeps what is written and at times gives garbage: what a broken chip, or a broken bus,
//! may answer.
//!
//! ```text
//!   input:  reads until the next misread (1 byte), kind (1), value (8) ; …
//!   kind:   0 the value   1 some bits turned round   2 zero   3 the value from now on   7 all ones for ever: gone
//! ```
//!
//! It is no model of the chip: registers begin at their reset values and hold whatever they are given.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::LazyLock;

use qhca_driver::bringup::{BringUp, BringUpError, BringUpRequest, BroughtUp, Hook, Progress};
use qhca_irq::{Grant, VectorPlan};
use qhca_regs::map::{self, device};
use qhca_regs::{Bar, Duration, GONE, Instant};

use crate::Bytes;

static RESET: LazyLock<BTreeMap<u32, u64>> = LazyLock::new(|| {
    let mut reset: BTreeMap<u32, u64> = map::all().map(|placed| (placed.offset, placed.reset())).collect();
    // A QLE7342, its pins pulled up, its self-test over, its largest number of eager entries.
    reset.insert(device::REVISION.offset(), 0x0201_0602 | 2 << 32);
    reset.insert(device::EXT_STATUS.offset(), 0xFFFF << 48 | 1 << 14);
    reset.insert(device::RCV_EGR_CNT.offset(), 4096);
    reset
});

/// Entries of the eager array by context configuration (F-114).
const EAGER_ENTRIES: [u64; 4] = [4096, 2048, 1024, 0];

/// The register file.
pub struct Registers<'a> {
    written: RefCell<BTreeMap<u32, u64>>,
    input: RefCell<Bytes<'a>>,
    /// Reads until the next misread; none comes when the input is used up.
    countdown: Cell<u8>,
    is_gone: Cell<bool>,
    after_gone: Cell<usize>,
    accesses: Cell<usize>,
}

impl<'a> Registers<'a> {
    /// Registers at their reset values, misread as `input` says.
    #[must_use]
    pub fn new(mut input: Bytes<'a>) -> Self {
        let countdown = Cell::new(input.u8());
        Self {
            written: RefCell::default(),
            input: RefCell::new(input),
            countdown,
            is_gone: Cell::new(false),
            after_gone: Cell::new(0),
            accesses: Cell::new(0),
        }
    }

    /// What the register at `offset` gives from now on.
    pub fn set(&self, offset: u32, value: u64) {
        self.written.borrow_mut().insert(offset, value);
    }

    /// Reads give all ones from now on.
    pub fn vanish(&self) {
        self.is_gone.set(true);
    }

    /// Whether a read has given all ones.
    #[must_use]
    pub fn seen_gone(&self) -> bool {
        self.after_gone.get() > 0
    }

    /// Accesses after the first read that gave all ones.
    #[must_use]
    pub fn after_gone(&self) -> usize {
        self.after_gone.get().saturating_sub(1)
    }

    /// All accesses.
    #[must_use]
    pub fn accesses(&self) -> usize {
        self.accesses.get()
    }

    fn held(&self, offset: u32) -> u64 {
        let written = self.written.borrow().get(&offset).copied();
        written.or_else(|| RESET.get(&offset).copied()).unwrap_or(0)
    }

    /// The answer of this read, if it is not what is held.
    fn misread(&self, offset: u32) -> Option<u64> {
        let mut input = self.input.borrow_mut();
        if input.is_empty() {
            return None;
        }
        if self.countdown.get() > 0 {
            self.countdown.set(self.countdown.get() - 1);
            return None;
        }
        let (kind, value) = (input.u8(), input.u64());
        self.countdown.set(input.u8());
        match kind % 8 {
            0 | 4 => Some(value),
            1 | 5 => Some(self.held(offset) ^ value & value.rotate_left(17)),
            2 => Some(0),
            3 | 6 => {
                self.set(offset, value);
                Some(value)
            }
            _ => {
                self.vanish();
                Some(GONE)
            }
        }
    }

    fn note(&self) {
        self.accesses.set(self.accesses.get() + 1);
        if self.after_gone.get() > 0 {
            self.after_gone.set(self.after_gone.get() + 1);
        }
    }
}

impl Bar for Registers<'_> {
    fn read(&self, offset: u32) -> u64 {
        self.note();
        let misread = if self.is_gone.get() { Some(GONE) } else { self.misread(offset) };
        // A value of all ones out of the input is a card that is gone as well.
        if misread == Some(GONE) {
            self.vanish();
            self.after_gone.set(self.after_gone.get().max(1));
        }
        misread.unwrap_or_else(|| self.held(offset))
    }

    fn write(&self, offset: u32, value: u64) {
        self.note();
        self.set(offset, value);
        if offset == device::RCV_CTRL.offset() {
            let config = usize::from(device::RcvCtrl(value).context_cfg());
            self.set(device::RCV_EGR_CNT.offset(), EAGER_ENTRIES[config % EAGER_ENTRIES.len()]);
        }
    }

    fn doorbell(&self, offset: u32, value: u64) {
        self.write(offset, value);
    }

    fn burst(&self, _offset: u32, _dwords: &[u32]) {
        self.note();
    }
}

/// Polls of a bring-up: some hundred edges of a bus for each of 132 bytes and four attempts, at 32 a poll, and as many
/// for clocks that are held.
const POLLS_MAX: usize = 400_000;
/// All deadlines of the steps together, with room.
const LASTS_AT_MOST: Duration = Duration::from_secs(60);
const AVAIL: u64 = 0x12_3456_7000;

/// Turns a bring-up to its end; the caller's parts are answered at once.
///
/// # Panics
/// If it takes more steps or time than its deadlines allow.
pub fn bring_up(
    request: BringUpRequest,
    vectors: usize,
    bar: &Registers<'_>,
) -> (Result<Box<BroughtUp>, BringUpError>, Instant) {
    let (mut steps, mut now) = (BringUp::new(request), Instant::ZERO);
    for _ in 0..POLLS_MAX {
        match steps.poll(bar, now) {
            Progress::Step(_) => now += Duration::from_micros(1),
            Progress::Wait { until } => now = now.max(until),
            Progress::Hook(Hook::TakeVectors) => {
                let plan = steps.plan_request().map(|wanted| {
                    let vectors = vectors.min(wanted.wanted());
                    VectorPlan::new(&wanted, Grant::MsiX { vectors })
                });
                steps.give_vectors(plan);
            }
            Progress::Hook(Hook::TakeMemory) => steps.give_memory(AVAIL),
            Progress::Hook(Hook::OpenContexts) => steps.contexts_opened(),
            Progress::Done(up) => return (Ok(up), now),
            Progress::Failed(error) => return (Err(error), now),
        }
        assert!(
            now <= Instant::ZERO + LASTS_AT_MOST,
            "bring-up outlasts its deadlines at {:?}",
            steps.step()
        );
    }
    panic!("bring-up does not end at {:?}", steps.step());
}
