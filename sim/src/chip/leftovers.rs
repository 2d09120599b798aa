//! What the model leaves out: every register whose writes have an effect that no chapter models stands here, with the
//! fact that says why; and every fact here is one that the chip's facts know.

use super::store::unmodelled_bits;
use qhca_regs::Access;
use qhca_regs::map;
use std::ops::RangeInclusive;

/// Offsets (port 0's page) and the fact with the reason.
const LEFT_OUT: &[(RangeInclusive<u32>, &str)] = &[
    (0x008..=0x008, "F-440"), // Control
    (0x0B0..=0x0B0, "F-321"), // HwDiagCtrl
    (0x440..=0x440, "F-440"),
    (0x480..=0x480, "F-440"),
    (0x7_0000..=0xB_C3FF, "F-440"),
    (0x040..=0x060, "F-441"),
    (0x0D8..=0x0D8, "F-441"),
    (0x180..=0x188, "F-441"),
    (0x410..=0x438, "F-441"),
    (0x470..=0x478, "F-441"),
    (0xA000..=0xAFFF, "F-441"),
    (0x3E8..=0x3F8, "F-442"),
    (0x588..=0x5A8, "F-443"),
    (0x600..=0x6B0, "F-444"),
    (0x100..=0x100, "F-445"),   // RcvCtrl
    (0x1100..=0x1100, "F-445"), // RcvCtrl_p
    (0x11C0..=0x11C0, "F-445"), // SendCtrl_p
    (0x1590..=0x1590, "F-445"), // IB_SDTEST_IF_TX
];

/// Counters and user pages are no business of the store: they are written in chapters of their own.
fn is_elsewhere(offset: u32) -> bool {
    (super::counter::START..super::counter::END).contains(&offset) || offset >= super::recv::USER_START
}

#[test]
fn every_register_that_is_left_out_has_its_reason_and_no_reason_is_left_over() {
    let facts = include_str!("../../../docs/chip/facts.md");
    let mut used = vec![false; LEFT_OUT.len()];
    for row in map::rows().filter(|row| row.access != Access::Ro && !is_elsewhere(row.offset)) {
        let placed = row.placed().next().expect("a row has a first register");
        if unmodelled_bits(row.offset) == 0 {
            continue;
        }
        let reason = LEFT_OUT.iter().position(|(offsets, _)| offsets.contains(&row.offset));
        let Some(reason) = reason else {
            panic!("{placed} at {:#x} is left out without a reason", row.offset)
        };
        used[reason] = true;
    }
    for ((offsets, fact), used) in LEFT_OUT.iter().zip(used) {
        assert!(used, "{offsets:x?} is modelled by now: take {fact} back");
        assert!(facts.contains(&format!("| {fact} |")), "{fact} is no fact");
    }
}
