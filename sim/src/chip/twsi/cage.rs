//! A cage for a QSFP module: its pins, and the module's memory at 0xA0 while the module is selected.
//!
//! ```text
//!   MODSEL_N low   the module hears the bus, from 2 ms later on     RESET_N low   it hears nothing and starts again
//!   MODPRS_N low   a module is there     INT_N low   an alarm is latched     LPMODE   noted, without effect on the link
//! ```
//!
//! On a module with pages the page select decides what bytes 128 to 255 are: 0 identity, 1 a table of applications, 2 the
//! user's own bytes, 3 thresholds; any other number goes back to 0. Alarms in bytes 3 to 21 stay until they are read.
//! Reading past the end of a page goes on at its start. All of that is from the module standard (F-460 to F-464).

use super::module::{Module, PAGE_BYTES, PAGE_SELECT, PAGES};
use super::slave::{Memory, Slave};
use qhca_regs::{Duration, Instant};

const ADDRESS: u8 = 0xA0;
/// From MODSEL_N low to the first address that is answered (F-461).
pub(super) const SELECT_SETUP: Duration = Duration::from_millis(2);
/// Byte 2, bit 1: no alarm is latched.
const NO_INTERRUPT: u8 = 1 << 1;
const STATUS: u8 = 2;
const ALARMS: std::ops::RangeInclusive<u8> = 3..=21;
/// Control bytes of the lower page that software may write.
const CONTROLS: std::ops::RangeInclusive<u8> = 86..=98;
const USER_PAGE: u8 = 2;

/// The pins of a cage that the chip drives, as levels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CagePins {
    /// MODSEL_N is low.
    pub selected: bool,
    /// RESET_N is low.
    pub in_reset: bool,
    /// LPMODE is high.
    pub low_power: bool,
}

/// The memory of a module in a cage.
#[derive(Debug)]
struct Plugged {
    module: Module,
    lower: [u8; PAGE_BYTES],
    pages: [[u8; PAGE_BYTES]; PAGES],
    page: u8,
    /// From when on the module answers, after it was plugged in or reset.
    awake_at: Instant,
    ignores_page_select: bool,
}

impl Plugged {
    fn new(module: Module, ignores_page_select: bool, now: Instant) -> Self {
        let mut plugged = Self {
            lower: [0; PAGE_BYTES],
            pages: [[0; PAGE_BYTES]; PAGES],
            page: 0,
            awake_at: now + module.wakes_after,
            module,
            ignores_page_select,
        };
        plugged.pages[0].copy_from_slice(&plugged.module.image[PAGE_BYTES..]);
        plugged.restart(now);
        plugged
    }

    /// What a reset leaves: the lower page as made, page 0, the user's bytes kept.
    fn restart(&mut self, now: Instant) {
        self.lower.copy_from_slice(&self.module.image[..PAGE_BYTES]);
        self.lower[usize::from(STATUS)] |= NO_INTERRUPT;
        self.page = if self.ignores_page_select && !self.module.is_flat() { 3 } else { 0 };
        self.awake_at = now + self.module.wakes_after;
    }

    fn has_alarm(&self) -> bool {
        ALARMS.into_iter().any(|at| self.lower[usize::from(at)] != 0)
    }

    fn select_page(&mut self, page: u8) {
        // A planted fault, for the proof that the fuzzer reaches this far: sixteen unknown pages lead to the user's
        // bytes.
        #[cfg(canary)]
        let page = if page >> 4 == 7 { USER_PAGE } else { page };
        if !self.module.is_flat() && !self.ignores_page_select {
            self.page = if usize::from(page) < PAGES { page } else { 0 };
        }
    }
}

impl Memory for Plugged {
    fn read(&mut self, at: u8) -> u8 {
        let place = usize::from(at);
        match at {
            PAGE_SELECT => self.page,
            ALARMS_FIRST..=ALARMS_LAST => {
                let latched = std::mem::take(&mut self.lower[place]);
                if !self.has_alarm() {
                    self.lower[usize::from(STATUS)] |= NO_INTERRUPT;
                }
                latched
            }
            0..PAGE_SELECT => self.lower[place],
            _ => self.pages[usize::from(self.page)][place - PAGE_BYTES],
        }
    }

    fn keep(&mut self, written: &[(u8, u8)]) {
        for &(at, byte) in written {
            match at {
                PAGE_SELECT => self.select_page(byte),
                _ if CONTROLS.contains(&at) => self.lower[usize::from(at)] = byte,
                128.. if self.page == USER_PAGE => self.pages[2][usize::from(at) - PAGE_BYTES] = byte,
                _ => {}
            }
        }
    }

    fn after(&self, at: u8) -> u8 {
        at & 0x80 | at.wrapping_add(1) & 0x7F
    }
}

const ALARMS_FIRST: u8 = *ALARMS.start();
const ALARMS_LAST: u8 = *ALARMS.end();

/// See the chapter's head.
#[derive(Debug)]
pub(super) struct Cage {
    slave: Slave,
    plugged: Option<Plugged>,
    pins: CagePins,
    ready_at: Instant,
    ignores_page_select: bool,
}

impl Cage {
    pub(super) fn new(module: Option<Module>, ignores_page_select: bool) -> Self {
        let mut cage = Self {
            slave: Slave::new(ADDRESS),
            plugged: None,
            pins: CagePins::default(),
            ready_at: Instant::ZERO,
            ignores_page_select,
        };
        cage.plug(module, Instant::ZERO);
        if let Some(plugged) = &mut cage.plugged {
            // A module that was there when the power came has long been awake.
            plugged.awake_at = Instant::ZERO;
        }
        cage
    }

    /// Puts a module in, or takes it out.
    pub(super) fn plug(&mut self, module: Option<Module>, now: Instant) {
        self.slave.reset();
        self.plugged = module.map(|module| Plugged::new(module, self.ignores_page_select, now));
    }

    pub(super) fn is_present(&self) -> bool {
        self.plugged.is_some()
    }

    /// Whether the module pulls INT_N low.
    pub(super) fn interrupts(&self) -> bool {
        !self.pins.in_reset && self.plugged.as_ref().is_some_and(Plugged::has_alarm)
    }

    pub(super) fn pins(&self) -> CagePins {
        self.pins
    }

    pub(super) fn follow_pins(&mut self, pins: CagePins, now: Instant) {
        if pins.selected && !self.pins.selected {
            self.ready_at = now + SELECT_SETUP;
        }
        if self.pins.in_reset
            && !pins.in_reset
            && let Some(plugged) = &mut self.plugged
        {
            plugged.restart(now);
        }
        if pins.in_reset {
            self.slave.reset();
        } else if !pins.selected {
            self.slave.leave();
        }
        self.pins = pins;
    }

    /// Latches an alarm: `bits` of byte `at`, which must be one of bytes 3 to 21.
    pub(super) fn alarm(&mut self, at: u8, bits: u8) {
        if let Some(plugged) = &mut self.plugged
            && ALARMS.contains(&at)
            && bits != 0
        {
            plugged.lower[usize::from(at)] |= bits;
            plugged.lower[usize::from(STATUS)] &= !NO_INTERRUPT;
        }
    }

    /// The module, if it hears the bus at `now`.
    pub(super) fn listener(&mut self, now: Instant) -> Option<(&mut Slave, &mut impl Memory)> {
        let hears = self.pins.selected && !self.pins.in_reset && now >= self.ready_at;
        let plugged = self.plugged.as_mut().filter(|plugged| hears && !plugged.module.mute)?;
        (now >= plugged.awake_at).then_some((&mut self.slave, plugged))
    }

    pub(super) fn pulls(&self) -> bool {
        self.slave.pulls()
    }
}
