//! The card in the fake machine: its configuration space as the kernel shows it, its registers, its interrupts.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use qhca_regs::{BAR_LEN_BYTES, Bar, GONE};

use super::{Fake, errno};
use crate::sys::EventFd;
use crate::vfio::Window;

/// Where regions begin in a device's file: the index in the upper bits.
pub(super) const fn region_at(index: u32) -> u64 {
    (index as u64) << 40
}

const CONFIG: u64 = region_at(7);
const POWER: usize = 0x40;
const DEVICE_CONTROL: usize = 0x68;
/// Memory access and bus master in the command register.
const MEMORY: u8 = 2;

/// The card.
pub(in super::super) struct Card {
    pub(in super::super) config: [u8; 256],
    /// Whether the chip itself answers to its BARs: not after it was reset by its own register.
    pub(in super::super) has_place: bool,
    pub(in super::super) registers: BTreeMap<u32, u64>,
    /// Length of region 0 and its flags: read, write, map.
    pub(in super::super) bar_len: u64,
    pub(in super::super) bar_flags: u32,
    pub(in super::super) sparse: Option<Vec<(u64, u64)>>,
    pub(in super::super) regions: u32,
    /// Whether the function can be reset by itself, and the functions that are on its bus.
    pub(in super::super) can_reset: bool,
    pub(in super::super) on_bus: Vec<(u8, u8)>,
    pub(in super::super) resets: usize,
    /// Resets that are refused because the device is locked.
    pub(in super::super) locked_for: usize,
    /// Vectors that each kind has.
    pub(in super::super) vectors: [u32; 5],
    /// Messages that are free on this machine.
    pub(in super::super) messages_free: u32,
    /// Vectors cannot be added to those that are on.
    pub(in super::super) noresize: bool,
    /// The kind that is on, and what hears its vectors.
    pub(in super::super) on: Option<(u32, Vec<Option<Arc<EventFd>>>)>,
    /// What hears ERR and REQ.
    pub(in super::super) notices: [Option<Arc<EventFd>>; 2],
    pub(in super::super) line_masked: bool,
    /// It is held by somebody.
    held: bool,
    /// Memory access was switched on by whoever holds it.
    memory_wanted: bool,
}

impl Card {
    pub(super) fn new() -> Self {
        let mut config = [0; 256];
        config[..4].copy_from_slice(&0x7322_1077_u32.to_le_bytes());
        config[6] = 0x10;
        config[0x34] = 0x40;
        config[0x40..0x46].copy_from_slice(&[1, 0x50, 0, 0, 0, 0]);
        config[0x50..0x5C].copy_from_slice(&[0x11, 0x60, 31, 0, 0, 0x80, 0, 0, 0, 0x90, 0, 0]);
        config[0x60..0x62].copy_from_slice(&[0x10, 0]);
        config[DEVICE_CONTROL..DEVICE_CONTROL + 2].copy_from_slice(&[0x30, 0x20]);
        Self {
            config,
            has_place: true,
            registers: BTreeMap::from([(0, 0x0201_0602)]),
            bar_len: BAR_LEN_BYTES.into(),
            bar_flags: 7,
            sparse: None,
            regions: 9,
            can_reset: true,
            on_bus: vec![(4, 0)],
            resets: 0,
            locked_for: 0,
            vectors: [1, 1, 32, 1, 1],
            messages_free: u32::MAX,
            noresize: true,
            on: None,
            notices: [None, None],
            line_masked: false,
            held: false,
            memory_wanted: false,
        }
    }

    /// Somebody takes the card: it is awake, and reaches no memory.
    pub(super) fn taken(&mut self) {
        (self.held, self.memory_wanted) = (true, false);
        self.config[4] = 0;
    }

    /// It was given back: the kernel switches everything off.
    pub(super) fn released(&mut self) {
        self.held = false;
        (self.on, self.notices) = (None, [None, None]);
        self.config[4] = 0;
    }

    pub(super) fn reset(&mut self) -> io::Result<u32> {
        if !self.can_reset {
            return errno(libc::EINVAL);
        }
        if self.locked_for > 0 {
            self.locked_for -= 1;
            return errno(libc::EAGAIN);
        }
        self.resets += 1;
        self.registers = BTreeMap::from([(0, 0x0201_0602)]);
        Ok(0)
    }

    /// The chip is reset by its own register: it forgets its configuration.
    pub(in super::super) fn reset_itself(&mut self) {
        self.has_place = false;
        self.config[4] = 0;
        self.config[DEVICE_CONTROL..DEVICE_CONTROL + 2].copy_from_slice(&[0, 0]);
    }

    pub(in super::super) fn masters(&self) -> bool {
        self.config[4] & 4 != 0
    }

    pub(in super::super) fn device_control(&self) -> [u8; 2] {
        [self.config[DEVICE_CONTROL], self.config[DEVICE_CONTROL + 1]]
    }

    pub(super) fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        let Some(at) = offset.checked_sub(CONFIG).filter(|at| *at < 256) else { return errno(libc::EINVAL) };
        let inside = &self.config[at as usize..];
        let len = bytes.len().min(inside.len());
        bytes[..len].copy_from_slice(&inside[..len]);
        Ok(len)
    }

    pub(super) fn write_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let Some(at) = offset.checked_sub(CONFIG).filter(|at| *at < 256) else { return errno(libc::EINVAL) };
        match (at as usize, bytes) {
            (4, [low, high]) => {
                // What was switched on, is off in the function, and is switched on again, has lost its BARs: the kernel
                // writes them. To a function that was off before it does not.
                let on = *low & MEMORY != 0;
                if on && self.memory_wanted && self.config[4] & MEMORY == 0 {
                    self.has_place = true;
                }
                self.memory_wanted = on;
                self.config[4..6].copy_from_slice(&[*low, *high]);
            }
            (at, [low, _]) if at == POWER + 4 => self.config[at] = self.config[at] & !3 | low & 3,
            // The payload's half stays what the kernel has set.
            (at, [_, high]) if at == DEVICE_CONTROL => {
                self.config[at + 1] = self.config[at + 1] & !0x70 | high & 0x70;
            }
            _ => {}
        }
        Ok(bytes.len())
    }

    pub(super) fn may_map(&self, offset: u64, len_bytes: u32, areas: &[Range<u32>]) -> io::Result<()> {
        let allowed = |area: &Range<u32>| {
            self.sparse.as_ref().is_none_or(|parts| {
                parts.iter().any(|(at, len)| *at <= area.start.into() && u64::from(area.end) <= at + len)
            })
        };
        let right = offset == region_at(0) && u64::from(len_bytes) <= self.bar_len;
        match right && self.bar_flags & 4 != 0 && areas.iter().all(allowed) {
            true => Ok(()),
            false => errno(libc::EINVAL),
        }
    }

    /// Fires a vector, as the chip does.
    pub(in super::super) fn fire(&mut self, vector: usize) {
        if let Some((index, heard)) = &self.on
            && let Some(Some(event)) = heard.get(vector)
        {
            if *index == 0 {
                if self.line_masked {
                    return;
                }
                self.line_masked = true;
            }
            event.signal();
        }
    }
}

/// A window of the card's registers.
pub(in super::super) struct FakeWindow {
    bar: FakeBar,
}

impl FakeWindow {
    pub(super) fn new(fake: Fake, areas: Vec<Range<u32>>) -> Self {
        Self { bar: FakeBar { fake, areas, retired: AtomicBool::new(false) } }
    }
}

impl Window for FakeWindow {
    type Bar = FakeBar;

    fn bar(&self) -> &FakeBar {
        &self.bar
    }

    fn retire(&self) -> io::Result<()> {
        self.bar.fake.with(|machine| {
            machine.enter("mremap", "")?;
            self.bar.retired.store(true, Ordering::Relaxed);
            Ok(())
        })
    }
}

impl Drop for FakeWindow {
    fn drop(&mut self) {
        self.bar.fake.with(|machine| machine.log.push("munmap".to_owned()));
    }
}

/// Accesses to the card. One to a card that has lost its place would kill the process, and so it kills the test.
pub(in super::super) struct FakeBar {
    fake: Fake,
    areas: Vec<Range<u32>>,
    retired: AtomicBool,
}

impl FakeBar {
    fn reaches(&self, offset: u32) -> bool {
        let mapped = self.areas.iter().any(|area| area.contains(&offset));
        let gone = self.retired.load(Ordering::Relaxed);
        if mapped && !gone {
            self.fake.with(|machine| {
                assert!(machine.card.held, "an access to a card that nobody holds");
                assert!(machine.card.config[4] & MEMORY != 0, "SIGBUS: memory access is off");
                assert!(machine.card.has_place, "the card is not on the bus");
            });
        }
        mapped && !gone
    }
}

impl Bar for FakeBar {
    fn read(&self, offset: u32) -> u64 {
        match self.reaches(offset) {
            true => self.fake.with(|machine| machine.card.registers.get(&offset).copied().unwrap_or(0)),
            false if self.retired.load(Ordering::Relaxed) => GONE,
            false => 0,
        }
    }

    fn write(&self, offset: u32, value: u64) {
        if self.reaches(offset) {
            self.fake.with(|machine| machine.card.registers.insert(offset, value));
        }
    }

    fn doorbell(&self, offset: u32, value: u64) {
        self.write(offset, value);
    }

    fn burst(&self, offset: u32, dwords: &[u32]) {
        for (n, pair) in dwords.chunks(2).enumerate() {
            let high = pair.get(1).copied().unwrap_or(0);
            self.write(offset + 8 * n as u32, u64::from(pair[0]) | u64::from(high) << 32);
        }
    }
}
