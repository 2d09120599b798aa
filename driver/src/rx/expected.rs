//! Expected receive: payload that goes straight to the page it is meant for.
//!
//! A sender of the HCA's own packet kind can name a place at the receiver instead of an eager buffer: a *TID*, which
//! the receiver has bound to a page of memory, and an offset in it. Packets of one transfer form a *flow*, whose
//! sequence the chip checks; headers of packets that come in order can be suppressed, so that a long transfer costs
//! the receiver next to nothing.
//!
//! ```text
//!   chip, per context                                     memory
//!   TID array   | 0 | 1 | 2 | ... 511 |  ── entry ──────► page of 4 KiB   (payload at page + offset)
//!   flow table  | 0 | ... 31 | sequence, generation, valid, suppress headers
//! ```
//!
//! The table of a context is shared by its owner, who binds and releases, and by the device, which takes everything
//! from the chip when the owner goes: a page is kept until the chip was told.
//!
//! It does not know the protocol by which a sender learns of TIDs. Source: F-250 to F-253.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use qhca_regs::layout::{ArrayEntry, BufSize, TidFlow};
use qhca_regs::map::area::{self, RcvArrayEntry};
use qhca_regs::map::{device, user};
use qhca_regs::{Bar, Ctxt};

use crate::dma::DmaRegion;

/// TIDs of a context (F-250).
pub const TIDS: usize = 512;
/// Bytes of a page that a TID names (F-250).
pub const TID_PAGE_BYTES: usize = 4096;

/// A place in a context's TID array, 0 to 511.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tid(u16);

impl Tid {
    /// TID number `index`, if a context has it.
    pub const fn new(index: usize) -> Option<Self> {
        if index < TIDS { Some(Self(index as u16)) } else { None }
    }

    /// 0 to 511.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A flow of a context, 0 to 31.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowId(u8);

impl FlowId {
    /// Flow number `index`, if a context has it.
    pub const fn new(index: usize) -> Option<Self> {
        if index < TidFlow::COUNT { Some(Self(index as u8)) } else { None }
    }

    /// 0 to 31.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Why memory was not bound, or released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TidError {
    /// Not enough TIDs are free.
    Exhausted {
        /// Pages that were to be bound.
        wanted: usize,
        /// TIDs that are free.
        free: usize,
    },
    /// The stretch is empty, does not begin on a page, or does not lie in its region.
    Stretch {
        /// Where it begins, bytes.
        offset: usize,
        /// Its length.
        len_bytes: usize,
        /// Bytes of the region.
        region_bytes: usize,
    },
    /// The region lies where the chip cannot reach it.
    Address {
        /// Its bus address.
        iova: u64,
    },
    /// The TID is not bound.
    NotBound {
        /// The TID.
        tid: Tid,
    },
    /// The device is being reset. Try again.
    Resetting,
    /// The device is closed, has failed or is gone, or the context was taken back.
    Gone,
}

impl fmt::Display for TidError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exhausted { wanted, free } => {
                write!(
                    f,
                    "{wanted} pages to bind, {free} of {TIDS} TIDs are free: release some, or bind less"
                )
            }
            Self::Stretch { offset, len_bytes, region_bytes } => write!(
                f,
                "{len_bytes} bytes at {offset} of a region of {region_bytes}: a stretch begins at a multiple of \
                 {TID_PAGE_BYTES}, is not empty and lies inside"
            ),
            Self::Address { iova } => {
                write!(f, "memory at {iova:#x} cannot be bound: the chip takes multiples of 2 KiB below 2^48")
            }
            Self::NotBound { tid } => write!(f, "TID {} is not bound", tid.index()),
            Self::Resetting => f.write_str("the device is being reset: try again"),
            Self::Gone => f.write_str("the context was taken back, or the device is no longer usable"),
        }
    }
}

impl std::error::Error for TidError {}

/// How a flow is to be checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowSettings {
    /// Sequence number of the first packet, 11 bits; what does not fit is cut off.
    pub seq: u16,
    /// Generation that its packets carry.
    pub generation: u8,
    /// Packets in order that ask for it get no entry in the header queue.
    pub suppress_headers: bool,
    /// Keep the payload of packets after one out of order.
    pub keep_after_seq_err: bool,
    /// Keep the payload of packets of another generation.
    pub keep_on_gen_err: bool,
}

/// What the chip says of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowState {
    /// The sequence number that it waits for.
    pub next_seq: u16,
    /// Its generation.
    pub generation: u8,
    /// A packet came out of order since the flow was opened.
    pub seq_mismatch: bool,
    /// A packet of another generation came.
    pub gen_mismatch: bool,
}

/// The pages that are bound, by TID.
#[derive(Debug)]
struct Table {
    pages: Box<[Option<DmaRegion>]>,
    /// What the chip was told of each.
    entries: Box<[Option<ArrayEntry>]>,
    /// Where the next search begins: TIDs are used in turn, so that a late packet for an old one meets nothing new.
    from: usize,
    flows_used: u32,
    /// Taken back: nothing may be bound any more.
    closed: bool,
}

/// The expected-receive side of one context. Clones are handles to the same table.
#[derive(Clone, Debug)]
pub struct Expected {
    ctxt: Ctxt,
    table: Arc<Mutex<Table>>,
}

impl Expected {
    /// The table of `ctxt`, nothing bound.
    pub fn new(ctxt: Ctxt) -> Self {
        let pages = std::iter::repeat_with(|| None).take(TIDS).collect();
        let entries = vec![None; TIDS].into();
        let table = Table { pages, entries, from: 0, flows_used: 0, closed: false };
        Self { ctxt, table: Arc::new(Mutex::new(table)) }
    }

    /// The context.
    pub fn ctxt(&self) -> Ctxt {
        self.ctxt
    }

    /// TIDs that are free.
    pub fn free(&self) -> usize {
        self.lock().pages.iter().filter(|page| page.is_none()).count()
    }

    /// Binds the pages of `len_bytes` from byte `offset` of `region`, one TID each, in order. The chip may write there
    /// until they are released.
    ///
    /// # Errors
    /// [`TidError`]; nothing is bound then.
    pub fn bind(
        &self,
        region: &DmaRegion,
        offset: usize,
        len_bytes: usize,
        bar: &impl Bar,
    ) -> Result<Vec<Tid>, TidError> {
        let stretch = TidError::Stretch { offset, len_bytes, region_bytes: region.len_bytes() };
        let count = len_bytes.div_ceil(TID_PAGE_BYTES);
        let whole_end = count.checked_mul(TID_PAGE_BYTES).and_then(|bytes| offset.checked_add(bytes));
        // The chip may fill the whole of a page, so all of it must be there.
        let inside = whole_end.is_some_and(|end| end <= region.len_bytes());
        if count == 0 || !offset.is_multiple_of(TID_PAGE_BYTES) || !inside {
            return Err(stretch);
        }
        let first = region.iova() + offset as u64;
        let last = first + ((count - 1) * TID_PAGE_BYTES) as u64;
        let entry = |iova| ArrayEntry::new(iova, BufSize::K4).map_err(|_| TidError::Address { iova });
        let (_, _) = (entry(first)?, entry(last)?);
        let mut table = self.lock();
        let tids = table.take(count)?;
        for (tid, page) in tids.iter().zip(0..) {
            let entry = entry(first + page * TID_PAGE_BYTES as u64)?;
            table.pages[tid.index()] = Some(region.clone());
            table.entries[tid.index()] = Some(entry);
            area::RCV_TID_ARRAY.ctxt(self.ctxt).index(tid.0.into()).write(bar, entry.build());
        }
        Ok(tids)
    }

    /// Takes the pages of `tids` from the chip. The memory may be used anew when this returns.
    ///
    /// # Errors
    /// [`TidError::NotBound`] names the first that is not bound; those before it are released.
    pub fn release(&self, tids: &[Tid], bar: &impl Bar) -> Result<(), TidError> {
        let mut table = self.lock();
        if table.closed {
            return Err(TidError::Gone);
        }
        let mut released = Vec::with_capacity(tids.len());
        let mut result = Ok(());
        for tid in tids {
            match table.pages[tid.index()].take() {
                Some(page) => {
                    released.push(page);
                    table.entries[tid.index()] = None;
                    let entry = area::RCV_TID_ARRAY.ctxt(self.ctxt).index(tid.0.into());
                    entry.write(bar, RcvArrayEntry::default());
                }
                None => {
                    result = Err(TidError::NotBound { tid: *tid });
                    break;
                }
            }
        }
        // ORDER: payload that was on its way has arrived when the read comes back; then the pages may go.
        device::SCRATCH.read(bar);
        drop(released);
        result
    }

    /// Has the chip check `flow` from now on.
    ///
    /// # Errors
    /// [`TidError::Gone`].
    pub fn open_flow(&self, flow: FlowId, settings: FlowSettings, bar: &impl Bar) -> Result<(), TidError> {
        let mut table = self.lock();
        if table.closed {
            return Err(TidError::Gone);
        }
        table.flows_used |= 1 << flow.index();
        let entry = TidFlow {
            seq: settings.seq,
            generation: settings.generation,
            valid: true,
            hdr_supp: settings.suppress_headers,
            keep_after_seq_err: settings.keep_after_seq_err,
            keep_on_gen_err: settings.keep_on_gen_err,
            // Written as ones they are forgotten.
            seq_mismatch: true,
            gen_mismatch: true,
        };
        self.write_flow(flow, entry, bar);
        Ok(())
    }

    /// What the chip says of `flow`; `None` if it is not open.
    pub fn flow(&self, flow: FlowId, bar: &impl Bar) -> Option<FlowState> {
        if self.lock().flows_used & 1 << flow.index() == 0 {
            return None;
        }
        let entry = TidFlow::parse(user::RCV_TID_FLOW_TABLE.ctxt(self.ctxt).index(flow.0.into()).read(bar));
        entry.valid.then_some(FlowState {
            next_seq: entry.seq,
            generation: entry.generation,
            seq_mismatch: entry.seq_mismatch,
            gen_mismatch: entry.gen_mismatch,
        })
    }

    /// Has the chip forget `flow`.
    pub fn close_flow(&self, flow: FlowId, bar: &impl Bar) {
        let mut table = self.lock();
        if !table.closed && table.flows_used & 1 << flow.index() != 0 {
            table.flows_used &= !(1 << flow.index());
            self.write_flow(flow, TidFlow::default(), bar);
        }
    }

    fn write_flow(&self, flow: FlowId, entry: TidFlow, bar: &impl Bar) {
        user::RCV_TID_FLOW_TABLE.ctxt(self.ctxt).index(flow.0.into()).write(bar, entry.build());
        // Two writes of flows are kept apart by a write to a register that cannot be written (F-252).
        bar.write(user::RCV_EGR_INDEX_TAIL.ctxt(self.ctxt).offset(), 0);
    }

    /// Tells a chip that was reset of the pages again. Flows are forgotten: where they were only the chip knew.
    pub(crate) fn rebind(&self, bar: &impl Bar) {
        let mut table = self.lock();
        table.flows_used = 0;
        for (tid, entry) in (0..).zip(&table.entries) {
            if let Some(entry) = entry {
                area::RCV_TID_ARRAY.ctxt(self.ctxt).index(tid).write(bar, entry.build());
            }
        }
    }

    /// Takes everything from the chip: the context is given back, or the device closes. Its last owner's handles
    /// bind nothing any more.
    pub(crate) fn withdraw(&self, bar: &impl Bar) {
        let mut table = self.lock();
        table.closed = true;
        for (tid, page) in (0..).zip(&table.pages) {
            if page.is_some() {
                area::RCV_TID_ARRAY.ctxt(self.ctxt).index(tid).write(bar, RcvArrayEntry::default());
            }
        }
        let flows = table.flows_used;
        (0..TidFlow::COUNT).filter_map(FlowId::new).filter(|flow| flows >> flow.index() & 1 != 0).for_each(
            |flow| {
                self.write_flow(flow, TidFlow::default(), bar);
            },
        );
        // ORDER: as in `release`.
        device::SCRATCH.read(bar);
        table.flows_used = 0;
        table.pages.iter_mut().for_each(|page| *page = None);
        table.entries.iter_mut().for_each(|entry| *entry = None);
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        // A panic while the lock was held leaves a page bound that the table knows of.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    /// `count` free TIDs, in turn from where the last search ended.
    fn take(&mut self, count: usize) -> Result<Vec<Tid>, TidError> {
        if self.closed {
            return Err(TidError::Gone);
        }
        let in_turn = (self.from..TIDS).chain(0..self.from);
        let free: Vec<Tid> =
            in_turn.filter(|index| self.pages[*index].is_none()).filter_map(Tid::new).collect();
        if free.len() < count {
            return Err(TidError::Exhausted { wanted: count, free: free.len() });
        }
        self.from = (free[count - 1].index() + 1) % TIDS;
        Ok(free[..count].to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::DmaMapper;
    use crate::testing::{Access, PlainMapper, RecordingBar};
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn ctxt() -> Ctxt {
        Ctxt::new(3).expect("a context")
    }

    fn region(bytes: usize) -> DmaRegion {
        PlainMapper::default().map(bytes).expect("memory")
    }

    fn entry_at(tid: usize) -> u32 {
        area::RCV_TID_ARRAY.ctxt(ctxt()).index(tid as u32).offset()
    }

    #[test]
    fn pages_are_bound_in_order_and_released_after_the_chip_was_told() {
        let (expected, bar, region) = (Expected::new(ctxt()), RecordingBar::default(), region(4 * 4096));
        let memory = region.memory().clone();
        let tids = expected.bind(&region, 4096, 8192, &bar).expect("free");
        assert_eq!(tids.iter().map(|tid| tid.index()).collect::<Vec<_>>(), [0, 1]);
        for (tid, page) in [(0, 1), (1, 2)] {
            // Address in units of 2 KiB, size code 2 for 4 KiB.
            let word = (region.iova() + page * 4096) >> 11 | 2 << 37;
            assert_eq!(bar.writes_to(entry_at(tid)), [word]);
        }
        drop(region);
        let held = Arc::strong_count(&memory);
        bar.take_log();
        expected.release(&tids, &bar).expect("bound");
        let log = bar.take_log();
        assert_eq!(log.last(), Some(&Access::Read(device::SCRATCH.offset())));
        assert_eq!(log.len(), 3);
        assert_eq!((Arc::strong_count(&memory), expected.free()), (held - 2, TIDS));
        expected.rebind(&bar);
        assert_eq!(bar.take_log(), [], "what was released is not told again");
        assert_eq!(expected.release(&tids, &bar), Err(TidError::NotBound { tid: tids[0] }));
    }

    #[test]
    fn stretches_that_the_chip_could_overrun_are_refused() {
        let (expected, bar, region) = (Expected::new(ctxt()), RecordingBar::default(), region(2 * 4096));
        for (offset, len_bytes) in [(0, 0), (2048, 100), (4096, 4097), (8192, 1), (usize::MAX - 4095, 4096)] {
            let refused = expected.bind(&region, offset, len_bytes, &bar);
            assert!(matches!(refused, Err(TidError::Stretch { .. })), "{offset} {len_bytes}");
        }
        let wanted = TidError::Exhausted { wanted: 600, free: 512 };
        let large = self::region(600 * 4096);
        assert_eq!(expected.bind(&large, 0, 600 * 4096, &bar), Err(wanted));
        assert_eq!(bar.take_log(), []);
    }

    #[test]
    fn flow_is_opened_with_its_old_errors_forgotten_and_writes_are_kept_apart() {
        let (expected, bar) = (Expected::new(ctxt()), RecordingBar::default());
        let flow = FlowId::new(5).expect("a flow");
        assert_eq!(expected.flow(flow, &bar), None);
        let settings =
            FlowSettings { seq: 7, generation: 3, suppress_headers: true, ..FlowSettings::default() };
        expected.open_flow(flow, settings, &bar).expect("a device");
        let register = user::RCV_TID_FLOW_TABLE.ctxt(ctxt()).index(5);
        // Sequence 7, generation 3, valid (19), suppress (20), both mismatches cleared (27, 28).
        let word = 7 | 3 << 11 | 1 << 19 | 1 << 20 | 1 << 27 | 1 << 28;
        let apart = Access::Write(user::RCV_EGR_INDEX_TAIL.ctxt(ctxt()).offset(), 0);
        assert_eq!(bar.take_log(), [Access::Write(register.offset(), word), apart]);
        bar.set(register.offset(), 9 | 3 << 11 | 1 << 19 | 1 << 27);
        let state = expected.flow(flow, &bar).expect("open");
        assert_eq!((state.next_seq, state.generation), (9, 3));
        assert!(state.seq_mismatch && !state.gen_mismatch);
        expected.close_flow(flow, &bar);
        assert_eq!(bar.writes_to(register.offset()), [0]);
        assert_eq!(expected.flow(flow, &bar), None);
    }

    /// B135: memory goes only after the chip was told; what outlives its context binds nothing and touches nothing.
    #[test]
    fn withdrawn_context_has_no_page_nor_flow_left_and_old_handles_are_told() {
        let (expected, bar, region) = (Expected::new(ctxt()), RecordingBar::default(), region(4096));
        let memory = region.memory().clone();
        let tids = expected.bind(&region, 0, 10, &bar).expect("free");
        let flow = FlowId::new(0).expect("a flow");
        expected.open_flow(flow, FlowSettings::default(), &bar).expect("a device");
        drop(region);
        bar.take_log();
        expected.withdraw(&bar);
        assert_eq!(bar.writes_to(entry_at(0)), [0]);
        assert_eq!(bar.writes_to(user::RCV_TID_FLOW_TABLE.ctxt(ctxt()).index(0).offset()), [0]);
        assert_eq!(Arc::strong_count(&memory), 1);
        bar.take_log();
        assert_eq!(expected.release(&tids, &bar), Err(TidError::Gone));
        assert_eq!(expected.open_flow(flow, FlowSettings::default(), &bar), Err(TidError::Gone));
        assert_eq!(bar.take_log(), []);
    }

    proptest! {
        /// Whatever is bound and released, the chip's array holds exactly what the table says, and no TID is given twice.
        #[test]
        fn chip_holds_exactly_what_is_bound(steps in prop::collection::vec((any::<bool>(), 1_usize..40, any::<prop::sample::Index>()), 1..60)) {
            let (expected, bar, region) = (Expected::new(ctxt()), RecordingBar::default(), region(64 * 4096));
            let mut bound: Vec<Vec<Tid>> = Vec::new();
            let mut array: BTreeMap<u32, u64> = BTreeMap::new();
            for (bind, pages, pick) in steps {
                if bind {
                    if let Ok(tids) = expected.bind(&region, 0, pages * 4096, &bar) {
                        let fresh = tids.iter().all(|tid| bound.iter().flatten().all(|other| other != tid));
                        prop_assert!(fresh, "a TID was given twice");
                        bound.push(tids);
                    } else {
                        prop_assert!(expected.free() < pages);
                    }
                } else if !bound.is_empty() {
                    let tids = bound.swap_remove(pick.index(bound.len()));
                    prop_assert_eq!(expected.release(&tids, &bar), Ok(()));
                }
                for access in bar.take_log() {
                    if let Access::Write(at, value) = access {
                        array.insert(at, value);
                    }
                }
                let set = array.values().filter(|value| **value != 0).count();
                prop_assert_eq!(set, bound.iter().map(Vec::len).sum::<usize>());
                prop_assert_eq!(expected.free(), TIDS - set);
            }
        }
    }
}
