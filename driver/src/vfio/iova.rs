//! Bus addresses: which there are, and which are taken.
//!
//! An IOMMU translates a part of all addresses, the kernel keeps some of them for itself, and writes into one window are
//! interrupts instead of memory. The chip's queue registers hold 40 bits on top (F-201). What is left is a set of
//! ranges, from which mappings are cut, first fit.
//!
//! ```text
//!   0 ── small numbers ── [MSI window FEE0_0000] ── 4 GiB ─────── given out from here ─────── 2^40 or the IOMMU's end
//!        only when nothing else is left
//! ```

use std::collections::BTreeMap;

use super::info::IovaRange;
use crate::env::IOVA_LIMIT;

/// Addresses below are given out last: a small number that got into an address register by mistake hits nothing then.
const PREFERRED_FROM: u64 = 1 << 32;
/// What is never given out, whatever is left: an address of zero looks like none.
const NEVER_BELOW: u64 = 1 << 16;
/// The window in which writes are interrupts on x86, for kernels that do not leave it out themselves (F-822).
const MSI_WINDOW: IovaRange = IovaRange { first: 0xFEE0_0000, last: 0xFEEF_FFFF };
/// The ranges of an IOMMU that tells none: what every one can that x86 machines have had.
const UNTOLD: IovaRange = IovaRange { first: 0, last: (1 << 39) - 1 };
/// Most ranges that are looked at; a machine has a handful.
const RANGES_MAX: usize = 4096;

/// The addresses that are free.
#[derive(Clone, Debug)]
pub struct IovaSpace {
    /// First address and length of each free range; none touches the next.
    free: BTreeMap<u64, u64>,
    page_bytes: u64,
}

impl IovaSpace {
    /// The space that an IOMMU with these ranges has; `None` if it does not tell. Mappings consist of pages of
    /// `page_bytes`, a power of two.
    pub fn new(ranges: Option<&[IovaRange]>, page_bytes: u64) -> Self {
        let page_bytes = page_bytes.max(1).next_power_of_two();
        let mut space = Self { free: BTreeMap::new(), page_bytes };
        for range in ranges.unwrap_or(&[UNTOLD]).iter().take(RANGES_MAX) {
            space.offer(*range);
        }
        space.withhold(MSI_WINDOW);
        space
    }

    /// Adds whole pages of `range`, as far as the chip reaches.
    fn offer(&mut self, range: IovaRange) {
        let end = range.last.saturating_add(1).min(IOVA_LIMIT) & !(self.page_bytes - 1);
        let start = range.first.max(NEVER_BELOW).checked_next_multiple_of(self.page_bytes);
        if let Some(start) = start
            && start < end
        {
            // Ranges that overlap are told by no kernel; if one does, what is offered twice is there once.
            self.withhold(IovaRange { first: start, last: end - 1 });
            self.release(start, end - start);
        }
    }

    /// Takes addresses out for good.
    fn withhold(&mut self, range: IovaRange) {
        let page = self.page_bytes;
        let (first, end) = (range.first & !(page - 1), range.last.saturating_add(1).next_multiple_of(page));
        let touched: Vec<(u64, u64)> = self
            .free
            .range(..end)
            .map(|(start, len)| (*start, start + len))
            .filter(|(_, stop)| *stop > first)
            .collect();
        for (start, stop) in touched {
            self.free.remove(&start);
            if start < first {
                self.free.insert(start, first - start);
            }
            if stop > end {
                self.free.insert(end, stop - end);
            }
        }
    }

    /// Bytes that are free.
    pub fn free_bytes(&self) -> u64 {
        self.free.values().sum()
    }

    /// Takes `len_bytes`, rounded up to pages, from the lowest range that has room; the small addresses come last. The
    /// first address, `None` if no range has room.
    pub fn take(&mut self, len_bytes: u64) -> Option<u64> {
        let len = len_bytes.checked_next_multiple_of(self.page_bytes).filter(|len| *len > 0)?;
        let start = self.fit(len, PREFERRED_FROM).or_else(|| self.fit(len, 0))?;
        let (&range, &range_len) = self.free.range(..=start).next_back()?;
        self.free.remove(&range);
        if range < start {
            self.free.insert(range, start - range);
        }
        let rest = range + range_len - (start + len);
        if rest > 0 {
            self.free.insert(start + len, rest);
        }
        Some(start)
    }

    /// The lowest address from `from` on at which `len` bytes are free.
    fn fit(&self, len: u64, from: u64) -> Option<u64> {
        let room = |(start, range_len): (&u64, &u64)| {
            let first = (*start).max(from);
            let end = start + range_len;
            (first < end && end - first >= len).then_some(first)
        };
        self.free.iter().find_map(room)
    }

    /// Gives back what [`take`](Self::take) gave for `len_bytes`.
    pub fn release(&mut self, start: u64, len_bytes: u64) {
        let (mut start, mut len) = (start, len_bytes.next_multiple_of(self.page_bytes));
        if let Some((&before, &before_len)) = self.free.range(..start).next_back()
            && before + before_len == start
        {
            self.free.remove(&before);
            (start, len) = (before, before_len + len);
        }
        if let Some(after_len) = self.free.remove(&(start + len)) {
            len += after_len;
        }
        self.free.insert(start, len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PAGE: u64 = 4096;

    fn range(first: u64, last: u64) -> IovaRange {
        IovaRange { first, last }
    }

    /// B116: an IOMMU with 39 bits and the hole of the interrupts: all of it can be had, and nothing else.
    #[test]
    fn narrow_iommu_is_used_to_its_end_and_the_hole_never() {
        let ranges = [range(0, 0xFEDF_FFFF), range(0xFEF0_0000, (1 << 39) - 1)];
        let mut space = IovaSpace::new(Some(&ranges), PAGE);
        let (all, mut taken) = (space.free_bytes(), 0);
        while let Some(start) = space.take(1 << 30).or_else(|| space.take(PAGE)) {
            let len = if space.free_bytes() + taken + (1 << 30) == all { 1 << 30 } else { PAGE };
            assert!(ranges.iter().any(|range| range.first <= start && start + len - 1 <= range.last));
            taken += len;
            if len == PAGE {
                break;
            }
        }
        assert!(taken >= (1 << 39) - (4 << 30), "{taken:#x}");
        assert_eq!(IovaSpace::new(Some(&ranges), PAGE).take((1 << 39) - 1), None, "too much is no address");
    }

    #[test]
    fn interrupt_window_is_left_out_even_if_the_kernel_offers_it() {
        for ranges in [None, Some(&[range(0, u64::MAX)][..])] {
            let mut space = IovaSpace::new(ranges, PAGE);
            // Whatever is left below 4 GiB once the rest is gone.
            while space.fit(PAGE, PREFERRED_FROM).is_some() {
                let (&start, &len) = space.free.iter().next_back().expect("a range");
                space.withhold(range(start.max(PREFERRED_FROM), start + len - 1));
            }
            let before = space.take(0xFEE0_0000 - NEVER_BELOW).expect("all before the window");
            let after = space.take(PREFERRED_FROM - 0xFEF0_0000).expect("all behind it");
            assert_eq!((before, after), (NEVER_BELOW, 0xFEF0_0000));
            assert_eq!(space.take(PAGE), None);
        }
    }

    /// B170: ranges that cannot be.
    #[test]
    fn absurd_ranges_give_nothing_or_what_is_sane_in_them() {
        let free = |first, last| IovaSpace::new(Some(&[range(first, last)]), PAGE).free_bytes();
        assert_eq!((free(5, 4), free(u64::MAX, u64::MAX), free(u64::MAX, 0), free(0, 0)), (0, 0, 0, 0));
        assert_eq!(free(IOVA_LIMIT, u64::MAX), 0);
        assert_eq!(free(1 << 32 | 1, (1 << 32) + 2 * PAGE), PAGE, "half pages are nobody's");
        assert_eq!(IovaSpace::new(Some(&[]), PAGE).free_bytes(), 0);
        let twice = [range(1 << 32, (2 << 32) - 1), range(1 << 32, (3 << 32) - 1)];
        assert_eq!(IovaSpace::new(Some(&twice), PAGE).free_bytes(), 2 << 32);
        let many = vec![range(1 << 32, (1 << 32) + PAGE - 1); 2 * RANGES_MAX];
        assert_eq!(IovaSpace::new(Some(&many), PAGE).free_bytes(), PAGE);
    }

    #[test]
    fn nothing_and_everything_are_refused() {
        let mut space = IovaSpace::new(None, PAGE);
        assert_eq!((space.take(0), space.take(u64::MAX), space.take(IOVA_LIMIT)), (None, None, None));
    }

    proptest! {
        #[test]
        fn takes_never_overlap_and_releases_heal(
            steps in prop::collection::vec((1_u64..300_000, any::<prop::sample::Index>(), any::<bool>()), 1..120),
            ends in prop::collection::vec((0_u64..1 << 41, 0_u64..1 << 38), 1..5),
        ) {
            let ranges: Vec<_> = ends.iter().map(|(first, len)| range(*first, first + len)).collect();
            let mut space = IovaSpace::new(Some(&ranges), PAGE);
            let all = space.free_bytes();
            let mut taken: Vec<(u64, u64)> = Vec::new();
            for (len, pick, give_back) in steps {
                let rounded = len.next_multiple_of(PAGE);
                if let Some(start) = space.take(len) {
                    let end = start + rounded;
                    prop_assert!(start.is_multiple_of(PAGE) && start >= NEVER_BELOW && end <= IOVA_LIMIT);
                    prop_assert!(end <= MSI_WINDOW.first || start > MSI_WINDOW.last);
                    prop_assert!(taken.iter().all(|(at, len)| at + len <= start || end <= *at));
                    taken.push((start, rounded));
                }
                if give_back && !taken.is_empty() {
                    let (start, len) = taken.swap_remove(pick.index(taken.len()));
                    space.release(start, len);
                }
                let used: u64 = taken.iter().map(|(_, len)| len).sum();
                prop_assert_eq!(space.free_bytes() + used, all);
            }
        }
    }
}
