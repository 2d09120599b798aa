//! Chains of capabilities in any order and of any bytes, and what is mapped of a window.

use super::*;
use proptest::prelude::*;

const PAGE: u32 = 4096;
const LEN: u32 = 4 << 20;
/// Bytes of a capability's head.
const CAP_HEAD_BYTES: usize = 8;

fn capability(id: u16, next: u32, body: &[u32]) -> Vec<u8> {
    let head = u32::from(id) | 1 << 16;
    [head, next].iter().chain(body).flat_map(|word| word.to_ne_bytes()).collect()
}

/// An answer with these capabilities one behind the other.
fn region(flags: u32, capabilities: &[(u16, Vec<u32>)]) -> Vec<u8> {
    let mut bytes = RegionInfo::ask(0, 0);
    bytes[16..24].copy_from_slice(&u64::from(LEN).to_ne_bytes());
    bytes[24..32].copy_from_slice(&0_u64.to_ne_bytes());
    let flags = flags | if capabilities.is_empty() { 0 } else { 8 };
    bytes[4..8].copy_from_slice(&flags.to_ne_bytes());
    if !capabilities.is_empty() {
        bytes[12..16].copy_from_slice(&32_u32.to_ne_bytes());
    }
    for (n, (id, body)) in capabilities.iter().enumerate() {
        let end = bytes.len() + CAP_HEAD_BYTES + 4 * body.len();
        let next = if n + 1 == capabilities.len() { 0 } else { end as u32 };
        bytes.extend(capability(*id, next, body));
    }
    let len = bytes.len() as u32;
    bytes[..4].copy_from_slice(&len.to_ne_bytes());
    bytes
}

/// B127: three capabilities in any order, an unknown one among them: each that is known is honoured.
#[test]
fn capabilities_are_found_in_any_order() {
    let sparse = (CAP_SPARSE, vec![2, 0, 0, 0, 0x8000, 0, 0xA000, 0, 0x1000, 0]);
    let (mappable, unknown) = ((CAP_MSIX_MAPPABLE, vec![]), (77, vec![1, 2, 3]));
    let all = [sparse, mappable, unknown];
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let bytes = region(7, &order.map(|n| all[n].clone()));
        let info = RegionInfo::parse(&bytes).expect("an answer");
        assert!(info.msix_mappable && info.readable && info.writable && info.mappable);
        let areas = [Area { offset: 0, len_bytes: 0x8000 }, Area { offset: 0xA000, len_bytes: 0x1000 }];
        assert_eq!(info.areas.as_deref(), Some(&areas[..]));
    }
    let none = RegionInfo::parse(&region(7, &[(CAP_SPARSE, vec![0, 0])])).expect("an answer");
    assert_eq!(none.areas.as_deref(), Some(&[][..]), "sparse without an area: nothing may be mapped");
}

#[test]
fn chain_that_turns_back_or_leaves_the_answer_ends() {
    for next in [0, 8, 31, 32, 39, 40, 4096, u32::MAX] {
        let mut bytes = region(7, &[(77, vec![]), (CAP_MSIX_MAPPABLE, vec![])]);
        bytes[36..40].copy_from_slice(&next.to_ne_bytes());
        let info = RegionInfo::parse(&bytes).expect("an answer");
        assert_eq!(info.msix_mappable, next == 40, "next {next}");
    }
}

#[test]
fn count_that_lies_gives_what_is_there() {
    let bytes = region(7, &[(CAP_SPARSE, vec![u32::MAX, 0, 0, 0, PAGE, 0])]);
    let info = RegionInfo::parse(&bytes).expect("an answer");
    assert_eq!(info.areas.map(|areas| areas.len()), Some(1));
}

#[test]
fn answer_that_did_not_fit_is_asked_for_again_within_reason() {
    let info = |answer_bytes| RegionInfo { answer_bytes, ..RegionInfo::default() };
    assert_eq!(info(32).ask_again(32), None);
    assert_eq!(info(72).ask_again(32), Some(72));
    assert_eq!(info(u32::MAX).ask_again(32), None);
}

#[test]
fn iommu_that_tells_ranges_and_limits_is_heard() {
    let mut bytes = IommuInfo::ask(0);
    bytes[4..8].copy_from_slice(&3_u32.to_ne_bytes());
    bytes[8..16].copy_from_slice(&0x1000_u64.to_ne_bytes());
    bytes[16..20].copy_from_slice(&24_u32.to_ne_bytes());
    let body = [2, 0, 0, 0, 0xFEDF_FFFF, 0, 0xFEF0_0000, 0, 0xFFFF_FFFF, 0x7F];
    bytes.extend(capability(CAP_IOVA_RANGE, 24 + 48, &body));
    bytes.extend(capability(CAP_DMA_AVAIL, 0, &[65535]));
    let info = IommuInfo::parse(&bytes).expect("an answer");
    assert_eq!((info.page_sizes, info.maps_left), (0x1000, Some(65535)));
    let last = IovaRange { first: 0xFEF0_0000, last: 0x7F_FFFF_FFFF };
    assert_eq!(info.ranges, Some(vec![IovaRange { first: 0, last: 0xFEDF_FFFF }, last]));
    assert_eq!(IommuInfo::parse(&bytes[..15]), None);
    let old = IommuInfo::parse(&[16, 0, 0, 0, 1, 0, 0, 0, 0, 0x10, 0, 0, 0, 0, 0, 0]).expect("old kernels");
    assert_eq!((old.page_sizes, old.ranges), (0x1000, None));
}

/// A single area.
fn only(area: Range<u32>) -> Vec<Range<u32>> {
    std::iter::once(area).collect()
}

fn window() -> RegionInfo {
    let (readable, writable, mappable) = (true, true, true);
    RegionInfo { readable, writable, mappable, len_bytes: LEN.into(), ..RegionInfo::default() }
}

/// B126: the table's pages are left out wherever it lies, and nothing else is.
#[test]
fn pages_of_the_table_are_left_out_and_no_others() {
    let areas = |table, page| window_areas(&window(), LEN, page, table);
    assert_eq!(areas(None, PAGE), Ok(only(0..LEN)));
    assert_eq!(areas(Some(0x8000..0x8200), PAGE), Ok(vec![0..0x8000, 0x9000..LEN]));
    assert_eq!(areas(Some(0x8000..0x8200), 0x1_0000), Ok(only(0x1_0000..LEN)), "host pages of 64 KiB");
    assert_eq!(areas(Some(0x5200..0x5400), PAGE), Ok(vec![0..0x5000, 0x6000..LEN]));
    assert_eq!(areas(Some(0..16), PAGE), Ok(only(PAGE..LEN)));
    assert_eq!(areas(Some(LEN - 16..LEN), PAGE), Ok(only(0..LEN - PAGE)));
    for table in [LEN - 16..LEN + 1, 8..8, Range { start: 16, end: 8 }] {
        assert!(matches!(areas(Some(table), PAGE), Err(WindowError::Table { .. })));
    }
}

#[test]
fn sparse_areas_must_hold_every_register() {
    let with = |areas: &[(u64, u64)]| {
        let areas = areas.iter().map(|(offset, len)| Area { offset: *offset, len_bytes: *len }).collect();
        let info = RegionInfo { areas: Some(areas), ..window() };
        window_areas(&info, LEN, PAGE, Some(0x8000..0x8200))
    };
    let (len, table) = (u64::from(LEN), 0x8000);
    assert!(with(&[(0, table), (0x9000, len - 0x9000)]).is_ok());
    assert!(with(&[(0x9000, len - 0x9000), (0x4000, 0x4000), (0, 0x5000)]).is_ok(), "unsorted, overlapping");
    assert_eq!(with(&[]), Err(WindowError::NotMappable { at: 0 }));
    assert_eq!(with(&[(0, table), (0xA000, len)]), Err(WindowError::NotMappable { at: 0x9000 }));
    assert_eq!(with(&[(0, u64::MAX), (8, u64::MAX)]), Ok(vec![0..0x8000, 0x9000..LEN]), "too long is enough");
}

/// B164, B170: absurd lengths and offsets are refused before anything is mapped.
#[test]
fn region_that_is_not_the_chips_window_is_refused() {
    for len_bytes in [0, 1, 4096, u64::from(u32::MAX), u64::MAX] {
        let info = RegionInfo { len_bytes, ..window() };
        assert!(matches!(window_areas(&info, LEN, PAGE, None), Err(WindowError::Length { .. })));
    }
    for offset in [8, u64::MAX - 4095, i64::MAX as u64 & !4095] {
        let info = RegionInfo { offset, ..window() };
        assert_eq!(window_areas(&info, LEN, PAGE, None), Err(WindowError::Offset { offset }));
    }
    for bit in 0..3 {
        let info = RegionInfo { readable: bit != 0, writable: bit != 1, mappable: bit != 2, ..window() };
        assert!(matches!(window_areas(&info, LEN, PAGE, None), Err(WindowError::Access { .. })));
    }
}

proptest! {
    /// Whatever the kernel answers: no panic, no endless chain, and areas that lie in the window.
    #[test]
    fn any_answer_is_read_within_its_bounds(bytes in prop::collection::vec(any::<u8>(), 0..300), first in 0_u32..64) {
        let mut bytes = bytes;
        if bytes.len() >= 16 {
            bytes[12..16].copy_from_slice(&first.to_ne_bytes());
            bytes[4] |= 8;
        }
        let info = RegionInfo::parse(&bytes);
        prop_assert_eq!(info.is_some(), bytes.len() >= RegionInfo::HEAD_BYTES);
        if let Some(info) = info {
            prop_assert!(info.areas.is_none_or(|areas| areas.len() <= bytes.len() / 16));
        }
        if let Some(info) = IommuInfo::parse(&bytes) {
            prop_assert!(info.ranges.is_none_or(|ranges| ranges.len() <= bytes.len() / 16));
        }
    }

    #[test]
    fn areas_lie_in_the_window_beside_the_table(start in 0..LEN, len in 1_u32..0x8000, shift in 12_u32..17) {
        let (page, end) = (1 << shift, (start + len).min(LEN));
        prop_assume!(start < end);
        let areas = window_areas(&window(), LEN, page, Some(start..end)).expect("a window");
        for area in areas {
            prop_assert!(area.start < area.end && area.end <= LEN);
            prop_assert!(area.start.is_multiple_of(page) && area.end.is_multiple_of(page));
            prop_assert!(area.end <= start || end <= area.start);
        }
    }
}
