//! The chip's own record of what was done to it: totals always, single accesses on request.
//!
//! The laboratory charges time for accesses; this record is made inside the chip, by code that knows nothing of
//! charges, so that the two can be held against each other.

use qhca_regs::{Instant, Vector};
use std::collections::VecDeque;

/// One access or interrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// A register was read.
    Read {
        /// Byte offset in BAR 0.
        offset: u32,
        /// What the chip answered.
        value: u64,
    },
    /// A register, or one qword of a send buffer, was written.
    Write {
        /// Byte offset in BAR 0.
        offset: u32,
        /// What was written.
        value: u64,
    },
    /// Dwords were streamed to a send buffer.
    Burst {
        /// Byte offset in BAR 0.
        offset: u32,
        /// How many.
        dwords: u32,
    },
    /// An MSI-X message went out.
    Msix(Vector),
    /// The legacy line changed.
    Intx(bool),
}

/// How often each kind of access happened since the chip was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Register reads.
    pub reads: u64,
    /// Single writes.
    pub writes: u64,
    /// Bursts.
    pub bursts: u64,
    /// Dwords of all bursts.
    pub burst_dwords: u64,
    /// MSI-X messages.
    pub messages: u64,
    /// Changes of the legacy line.
    pub line_changes: u64,
}

/// The record.
#[derive(Debug, Default)]
pub struct Log {
    totals: Totals,
    entries: VecDeque<(Instant, Access)>,
    /// Entries kept; 0 while single accesses are not recorded.
    bound: usize,
    lost: u64,
}

impl Log {
    pub(super) fn set_bound(&mut self, entries: usize) {
        self.bound = entries;
        self.entries.clear();
    }

    #[inline]
    pub(super) fn note(&mut self, now: Instant, access: Access) {
        match access {
            Access::Read { .. } => self.totals.reads += 1,
            Access::Write { .. } => self.totals.writes += 1,
            Access::Burst { dwords, .. } => {
                self.totals.bursts += 1;
                self.totals.burst_dwords += u64::from(dwords);
            }
            Access::Msix(_) => self.totals.messages += 1,
            Access::Intx(_) => self.totals.line_changes += 1,
        }
        if self.bound != 0 {
            self.keep(now, access);
        }
    }

    #[cold]
    fn keep(&mut self, now: Instant, access: Access) {
        if self.entries.len() == self.bound {
            self.entries.pop_front();
            self.lost += 1;
        }
        self.entries.push_back((now, access));
    }

    /// How often each kind of access happened.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// The recorded accesses, oldest first.
    pub fn entries(&self) -> impl Iterator<Item = &(Instant, Access)> {
        self.entries.iter()
    }

    /// Recorded accesses that made room for newer ones.
    pub fn lost(&self) -> u64 {
        self.lost
    }
}
