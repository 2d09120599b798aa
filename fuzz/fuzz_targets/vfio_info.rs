//! What the kernel answers about a card: device, regions with their capabilities, interrupts, IOMMU, configuration head,
//! and the list of functions on a bus.
//!
//! Input: one byte that says which answer, then its bytes, after a few words that shape them. Whatever they say: no
//! chain goes on for ever, no list is longer than its bytes, the areas that are mapped are pages of the window beside the
//! MSI-X table, and addresses are given out from the ranges, once.

#![no_main]

use libfuzzer_sys::fuzz_target;
use qhca_driver::env::IOVA_LIMIT;
use qhca_driver::vfio::{
    CONFIG_LEN_BYTES, ConfigHead, DeviceInfo, IommuInfo, IovaRange, IovaSpace, IrqInfo, RegionInfo,
    window_areas,
};
use qhca_fuzz::Bytes;

const WINDOW: u32 = 4 << 20;

fuzz_target!(|input: &[u8]| {
    let mut bytes = Bytes::new(input);
    match bytes.u8() % 5 {
        0 => check_region(bytes),
        1 => check_iommu(bytes.rest()),
        2 => check_irqs(bytes),
        3 => check_head(bytes),
        _ => check_space(bytes),
    }
});

fn check_region(mut bytes: Bytes<'_>) {
    let (start, len, page) = (bytes.u16(), bytes.u16(), 1 << (12 + bytes.u8() % 5));
    let answer = bytes.rest();
    let Some(mut info) = RegionInfo::parse(answer) else {
        assert!(answer.len() < RegionInfo::HEAD_BYTES);
        return;
    };
    assert!(info.areas.as_ref().is_none_or(|areas| 16 * areas.len() <= answer.len()));
    assert!(info.ask_again(answer.len()).is_none_or(|wanted| wanted > answer.len()));
    let (start, len) = (u32::from(start) * 64, u32::from(len));
    let told = window_areas(&info, WINDOW, page, Some(start..start + len));
    // Most answers tell another length; the rest of the reading is tried with the right one, too.
    info.len_bytes = WINDOW.into();
    let right = window_areas(&info, WINDOW, page, Some(start..start + len));
    for areas in [told, right].into_iter().flatten() {
        for area in &areas {
            assert!(area.start < area.end && area.end <= WINDOW, "{area:?}");
            assert!(area.start.is_multiple_of(page) && area.end.is_multiple_of(page), "{area:?}");
            assert!(area.end <= start || start + len <= area.start, "{area:?} holds the table");
        }
        let mapped: u32 = areas.iter().map(|area| area.end - area.start).sum();
        assert!(
            mapped < WINDOW && mapped + len + 2 * page >= WINDOW,
            "no more is left out than the table's pages"
        );
    }
}

fn check_iommu(answer: &[u8]) {
    let Some(info) = IommuInfo::parse(answer) else {
        assert!(answer.len() < 16);
        return;
    };
    let Some(ranges) = info.ranges else { return };
    assert!(16 * ranges.len() <= answer.len());
    give_out(&ranges);
}

fn check_space(mut bytes: Bytes<'_>) {
    let count = usize::from(bytes.u8() % 8);
    let ranges: Vec<_> = (0..count).map(|_| IovaRange { first: bytes.u64(), last: bytes.u64() }).collect();
    give_out(&ranges);
}

/// Addresses lie in a range, below the chip's limit, and are given out once.
fn give_out(ranges: &[IovaRange]) {
    let mut space = IovaSpace::new(Some(ranges), 4096);
    let all = space.free_bytes();
    let mut taken = Vec::new();
    for len in [4096, 1, 1 << 20, 8192, 1 << 30] {
        if let Some(start) = space.take(len) {
            let end = start + len.next_multiple_of(4096);
            assert!(start.is_multiple_of(4096) && end <= IOVA_LIMIT);
            assert!(end <= 0xFEE0_0000 || start >= 0xFEF0_0000, "the window of interrupts");
            assert!(taken.iter().all(|(from, to)| end <= *from || *to <= start), "given out twice");
            let told = |range: &IovaRange| range.first <= start && start <= range.last;
            assert!(ranges.iter().any(told), "{start:#x} is in no range");
            taken.push((start, end));
        }
    }
    taken.iter().for_each(|(start, end)| space.release(*start, end - start));
    assert_eq!(space.free_bytes(), all);
}

fn check_irqs(mut bytes: Bytes<'_>) {
    let (wanted, most) = (usize::from(bytes.u8()), usize::from(bytes.u8()));
    let answer = bytes.rest();
    if let Some(info) = IrqInfo::parse(answer) {
        let usable = info.usable(wanted, most);
        assert!(usable <= wanted && usable <= most && usable as u64 <= u64::from(info.count));
        assert!(info.eventfd || usable == 0);
    }
    if let Some(info) = DeviceInfo::parse(answer) {
        let [regions, irqs] =
            [8, 12].map(|at| u32::from_ne_bytes(answer[at..at + 4].try_into().expect("four")));
        assert_eq!((info.regions, info.irqs), (regions, irqs));
    }
}

fn check_head(mut bytes: Bytes<'_>) {
    let head: [u8; CONFIG_LEN_BYTES] = bytes.array();
    match ConfigHead::parse(&head) {
        Some(read) => {
            assert!(read.power_state < 4);
            assert!(read.power.is_none_or(|at| at >= 0x40) && read.pcie.is_none_or(|at| at >= 0x40));
            if let Some(table) = read.msix {
                assert!(
                    (1..=2048).contains(&table.entries) && table.offset.is_multiple_of(8) && table.bar < 8
                );
            }
        }
        None => assert_eq!(head[..4], [0xFF; 4]),
    }
}
