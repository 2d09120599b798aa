//! The machine that a modelled chip sits in: memory behind an address translation, and interrupt lines.
//!
//! ```text
//!   chip ── iova ──▶ maps, ascending:  [0x1_0000_0000 .. +len) ─▶ DmaMemory of the driver
//!                                      gap (refused, recorded)
//!                                      [0x1_0000_3000 .. +len) ─▶ DmaMemory
//!        ── MSI-X vector ──▶ pending set, counts, and the line that the vector was given to
//! ```
//!
//! The memory is the driver's own [`DmaMemory`], so what the chip writes is what the driver reads, word by atomic word.
//! An access to an address that is not mapped is refused, as an IOMMU would, and kept in a short record: it is always a
//! fault of the driver's (memory taken away too early, a wrong address) or of the chip's, and a test can ask for it.
//!
//! Bus addresses are never used twice, so a stale one hits nothing.

use crate::chip::{DmaError, Host};
use crate::vtime::{Rng, Seed};
use crate::world::WorldHost;
use qhca_driver::dma::{DmaMemory, PAGE_BYTES};
use qhca_driver::env::IOVA_LIMIT;
use qhca_irq::VectorSet;
use qhca_regs::Vector;
use std::collections::VecDeque;
use std::sync::Arc;

/// Refused accesses that are kept; older ones make room.
pub const MAX_REFUSALS: usize = 64;

/// Unmapped bytes kept after every mapping, so that a run past the end is seen.
const GAP_BYTES: u64 = PAGE_BYTES as u64;

/// A DMA access that hit no mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// First bus address of the access.
    pub iova: u64,
    /// Its length, bytes.
    pub len_bytes: usize,
    /// Whether the chip wanted to write.
    pub is_write: bool,
}

struct Mapping {
    iova: u64,
    memory: Arc<DmaMemory>,
}

impl Mapping {
    fn end(&self) -> u64 {
        self.iova + self.memory.len_bytes() as u64
    }
}

/// What is told when a vector fires. Called with the world locked: it may not touch the device.
pub trait IrqLine: Send + Sync {
    /// `vector` has fired.
    fn fire(&self, vector: Vector);
}

/// What goes wrong between chip and processor, each once in so many messages on average; 0 is never.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IrqFaults {
    /// The message vanishes.
    pub lose_one_in: u64,
    /// The message arrives twice.
    pub duplicate_one_in: u64,
}

/// Interrupts of one device.
pub struct Irqs {
    lines: [Option<Arc<dyn IrqLine>>; Vector::COUNT],
    pending: VectorSet,
    counts: [u64; Vector::COUNT],
    intx: bool,
    /// The host masks the legacy line when it fires, until the driver has looked.
    intx_masked: bool,
    lost: u64,
    unheard: u64,
    faults: IrqFaults,
    rng: Rng,
}

/// Memory and interrupts of one device.
pub struct HostMemory {
    maps: Vec<Mapping>,
    last: usize,
    next_iova: u64,
    refusals: VecDeque<Refusal>,
    refused: u64,
    irqs: Irqs,
}

impl HostMemory {
    /// A machine without memory, for the device called `name`. Its first mapping lies at `first_iova`.
    pub fn new(seed: Seed, name: &str, first_iova: u64) -> Self {
        Self {
            maps: Vec::new(),
            last: 0,
            next_iova: first_iova.next_multiple_of(PAGE_BYTES as u64),
            refusals: VecDeque::new(),
            refused: 0,
            irqs: Irqs::new(seed.source(&format!("{name} interrupts"))),
        }
    }

    /// Maps `memory` for the chip; returns its bus address, or `None` if none below [`IOVA_LIMIT`] is left.
    pub fn map(&mut self, memory: Arc<DmaMemory>) -> Option<u64> {
        let (iova, len) = (self.next_iova, memory.len_bytes() as u64);
        let end = iova.checked_add(len)?;
        if end > IOVA_LIMIT {
            return None;
        }
        self.next_iova = end + GAP_BYTES;
        self.maps.push(Mapping { iova, memory });
        Some(iova)
    }

    /// Takes the mapping at `iova` away from the chip; false if there is none.
    pub fn unmap(&mut self, iova: u64) -> bool {
        let found = self.maps.binary_search_by_key(&iova, |map| map.iova);
        self.last = 0;
        found.map(|at| self.maps.remove(at)).is_ok()
    }

    /// Bytes that the chip may reach.
    pub fn mapped_bytes(&self) -> usize {
        self.maps.iter().map(|map| map.memory.len_bytes()).sum()
    }

    /// How many accesses were refused.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// The latest refused accesses, oldest first.
    pub fn refusals(&self) -> impl Iterator<Item = Refusal> {
        self.refusals.iter().copied()
    }

    /// Interrupts of the device.
    pub fn irqs(&self) -> &Irqs {
        &self.irqs
    }

    /// Interrupts of the device, to give lines out and take what is pending.
    pub fn irqs_mut(&mut self) -> &mut Irqs {
        &mut self.irqs
    }

    /// The mapping that holds all of `len` bytes from `iova`, and where in it they start. The one that was hit last is
    /// tried first: a packet and its neighbours fall into the same buffer.
    #[inline]
    fn find(&mut self, iova: u64, len: usize) -> Option<(&DmaMemory, usize)> {
        let holds = |map: &Mapping| {
            map.iova <= iova && iova.checked_add(len as u64).is_some_and(|end| end <= map.end())
        };
        if !self.maps.get(self.last).is_some_and(holds) {
            let after = self.maps.partition_point(|map| map.iova <= iova);
            self.last = after.checked_sub(1).filter(|at| holds(&self.maps[*at]))?;
        }
        let map = &self.maps[self.last];
        Some((&map.memory, (iova - map.iova) as usize))
    }

    #[cold]
    fn refuse(&mut self, iova: u64, len_bytes: usize, is_write: bool) -> DmaError {
        self.refused += 1;
        if self.refusals.len() == MAX_REFUSALS {
            self.refusals.pop_front();
        }
        self.refusals.push_back(Refusal { iova, len_bytes, is_write });
        DmaError { iova, len_bytes }
    }
}

impl WorldHost for HostMemory {
    fn set_irq_faults(&mut self, faults: IrqFaults) {
        self.irqs_mut().set_faults(faults);
    }
}

impl Host for HostMemory {
    #[inline]
    fn dma_write(&mut self, iova: u64, bytes: &[u8]) -> Result<(), DmaError> {
        match self.find(iova, bytes.len()) {
            Some((memory, offset)) => {
                memory.copy_in(offset, bytes);
                Ok(())
            }
            None => Err(self.refuse(iova, bytes.len(), true)),
        }
    }

    #[inline]
    fn dma_publish(&mut self, iova: u64, qword: u64) -> Result<(), DmaError> {
        match self.find(iova, 8) {
            Some((memory, offset)) if offset.is_multiple_of(8) => {
                // ORDER: a release store: whoever sees the qword sees every byte that was written before it.
                memory.store_u64(offset, qword);
                Ok(())
            }
            _ => Err(self.refuse(iova, 8, true)),
        }
    }

    #[inline]
    fn dma_read(&mut self, iova: u64, bytes: &mut [u8]) -> Result<(), DmaError> {
        match self.find(iova, bytes.len()) {
            Some((memory, offset)) => {
                memory.copy_out(offset, bytes);
                Ok(())
            }
            None => Err(self.refuse(iova, bytes.len(), false)),
        }
    }

    fn msix(&mut self, vector: Vector) {
        self.irqs.message(vector);
    }

    fn intx(&mut self, asserted: bool) {
        self.irqs.set_intx(asserted);
    }
}

impl Irqs {
    fn new(rng: Rng) -> Self {
        Self {
            lines: Default::default(),
            pending: VectorSet::EMPTY,
            counts: [0; Vector::COUNT],
            intx: false,
            intx_masked: false,
            lost: 0,
            unheard: 0,
            faults: IrqFaults::default(),
            rng,
        }
    }

    /// Gives `vector` to `line`; whatever had it before hears nothing more.
    pub fn connect(&mut self, vector: Vector, line: Arc<dyn IrqLine>) {
        self.lines[vector.index()] = Some(line);
    }

    /// Takes all vectors back and forgets what is pending.
    pub fn disconnect_all(&mut self) {
        self.lines = Default::default();
        self.pending = VectorSet::EMPTY;
        self.intx_masked = false;
    }

    /// Lets the legacy line fire again; it does so at once if it is still asserted.
    pub fn unmask_intx(&mut self) {
        self.intx_masked = false;
        self.set_intx(self.intx);
    }

    /// Changes what goes wrong with messages.
    pub fn set_faults(&mut self, faults: IrqFaults) {
        self.faults = faults;
    }

    /// The vectors that fired since the last call: for whoever has no line.
    pub fn take_pending(&mut self) -> VectorSet {
        std::mem::take(&mut self.pending)
    }

    /// The vectors that fired since [`take_pending`](Self::take_pending).
    pub fn pending(&self) -> VectorSet {
        self.pending
    }

    /// How often `vector` fired.
    pub fn count(&self, vector: Vector) -> u64 {
        self.counts[vector.index()]
    }

    /// Whether the legacy line is asserted.
    pub fn intx(&self) -> bool {
        self.intx
    }

    /// Messages lost by chance.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Messages for vectors that have no line while others have one: a redirect field names what was never granted.
    pub fn unheard(&self) -> u64 {
        self.unheard
    }

    fn message(&mut self, vector: Vector) {
        if self.rng.one_in(self.faults.lose_one_in) {
            self.lost += 1;
            return;
        }
        self.fire(vector);
        if self.rng.one_in(self.faults.duplicate_one_in) {
            self.fire(vector);
        }
    }

    fn fire(&mut self, vector: Vector) {
        self.counts[vector.index()] += 1;
        self.pending = self.pending.with(vector);
        match &self.lines[vector.index()] {
            Some(line) => line.fire(vector),
            None => self.unheard += u64::from(self.lines.iter().any(Option::is_some)),
        }
    }

    fn set_intx(&mut self, asserted: bool) {
        self.intx = asserted;
        if asserted && !self.intx_masked {
            self.intx_masked = true;
            self.fire(Vector::DEFAULT);
        }
    }
}
