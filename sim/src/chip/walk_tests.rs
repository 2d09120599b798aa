//! Every register of the map, by its kind: what is read only stays, what is written reads back as far as it has names, what
//! is cleared by ones is clear, and what can only be written reads as 0.

use super::tests::Bench;
use qhca_regs::Access;
use qhca_regs::info::RegInfo;
use qhca_regs::map;

/// Registers (port 0's, first of a row) with named bits that do not read back as they were written: the bits, and why.
const UNLIKE: &[(u32, u64, &str)] = &[
    (0x8, 0xFFFF_FFFF_FFFF_FF84, "Control: a reset is among the bits, and a chip in reset reads as all ones"),
    (0xE0, 0xFFFF_FFFF_FFFF_0000, "GPIOOut: 16 pins, no field names them"),
    (0xE8, 0xFFFF_FFFF_FFFF_0000, "GPIOMask: as GPIOOut"),
    (0x1C0, 0x80FF_0000, "SendCtrl: the disarm command and its buffer act once (F-302)"),
    (0x468, 0xFFFF_0000_F000_FFFF, "ahb_transaction_reg: always ready (F-306), and the rest is its answer"),
    (0xC00, 0xFFFF_0000, "RcvAvailTimeOut: the upper half counts"),
    (0x1100, 0x2, "RcvCtrl_p: context 1 is enabled by a bit that has no name (F-305)"),
    (0x11C0, 0x100, "SendCtrl_p: the clean-up command acts once (F-401)"),
    (0x1280, 0xFFF_0000, "RxCreditVL: what is consumed is the chip's to say"),
    (0x1560, 0x1F_0000, "IBCCtrlA: both link commands act once (F-302)"),
    (0x20_0018, u64::MAX, "RcvEgrIndexHead: an index in a context that is not enabled"),
    (0x20_1000, 0x1800_0000, "RcvTIDFlowTable: both mismatch bits are cleared by ones (F-470)"),
];

/// What a write of ones and one of zeros left, and what was there before, of the first register of `row` on a fresh chip.
fn written(row: &RegInfo) -> (u64, u64, u64) {
    let seen = |value: Option<u64>| {
        let mut bench = Bench::new();
        if let Some(value) = value {
            bench.write(row.offset, value);
        }
        bench.read(row.offset)
    };
    (seen(None), seen(Some(u64::MAX)), seen(Some(0)))
}

fn is_counter(row: &RegInfo) -> bool {
    (super::counter::START..super::counter::END).contains(&row.offset)
}

fn named(row: &RegInfo) -> u64 {
    match row.fields.is_empty() {
        true => u64::MAX,
        false => row.fields.iter().fold(0, |all, field| all | field.mask()),
    }
}

/// B152: a model that did not clear a register as its data sheet says.
#[test]
fn every_register_behaves_by_its_kind() {
    let mut wrong = Vec::new();
    let mut kinds = [0; 4];
    for row in map::rows() {
        let (before, ones, zeros) = written(row);
        let unlike = UNLIKE.iter().find(|(offset, ..)| *offset == row.offset).map_or(0, |(_, bits, _)| *bits);
        let (kind, expected) = match row.access {
            Access::Ro => (0, [before, before]),
            // Counters can be written while a diagnostic switch is on, which it is not.
            Access::Rw if is_counter(row) => (1, [before, before]),
            Access::Rw => (1, [named(row), 0]),
            Access::W1c => (2, [0, before]),
            Access::Wo => (3, [0, 0]),
        };
        kinds[kind] += 1;
        let differs = (ones ^ expected[0]) | (zeros ^ expected[1]);
        if differs != unlike {
            wrong.push(format!(
                "{} at {:#x}, {:?}: {before:#x}, ones leave {ones:#x}, zeros {zeros:#x}: {differs:#x} differs",
                row.template, row.offset, row.access
            ));
        }
    }
    assert!(wrong.is_empty(), "{}\n{}", wrong.len(), wrong.join("\n"));
    assert!(kinds.iter().all(|count| *count > 0), "{kinds:?}");
}
