//! The Rust register map against the tables it was written from.

use qhca_regs::Access;
use qhca_regs::info::Placed;
use qhca_regs::map;
use std::collections::{BTreeMap, BTreeSet};

const REGISTERS: &str = include_str!("../data/registers.csv");
const EXPANDED: &str = include_str!("../data/registers_expanded.csv");
const EXTRA: &str = include_str!("../data/registers_extra.csv");
const ACCESS: &str = include_str!("../data/access.csv");
const FIELDS: &str = include_str!("../data/fields.csv");

fn lines(csv: &str) -> impl Iterator<Item = Vec<&str>> {
    csv.lines().skip(1).map(|line| line.split(',').collect())
}

fn number(text: &str) -> u64 {
    u64::from_str_radix(text.trim_start_matches("0x"), 16).expect("a hex number in the table")
}

/// Reset value and mask of unknown bits; an `X` is an unknown hex digit, no reset at all is 64 unknown bits.
fn reset(text: &str) -> (u64, u64) {
    if text.is_empty() {
        return (0, u64::MAX);
    }
    let digits = text.trim_start_matches("0x");
    let unknown: String = digits.chars().map(|c| if c == 'X' { 'F' } else { '0' }).collect();
    (number(&digits.replace('X', "0")), number(&unknown))
}

/// The header names the first entries of two tables without their index.
fn ours_of(name: &str) -> &str {
    match name {
        "IBSD_DDS_MAP_TABLE_0" => "IBSD_DDS_MAP_TABLE0_0",
        "RcvTIDFlowTable0" => "RcvTIDFlowTable0_0",
        other => other,
    }
}

fn by_name() -> BTreeMap<String, Placed> {
    map::all().map(|placed| (placed.to_string(), placed)).collect()
}

#[test]
fn every_register_of_the_header_stands_at_its_offset_with_its_reset() {
    let ours = by_name();
    let mut checked = 0;
    for row in lines(REGISTERS).chain(lines(EXPANDED)).chain(lines(EXTRA)) {
        let placed =
            ours.get(ours_of(row[0])).unwrap_or_else(|| panic!("{} is missing from the map", row[0]));
        assert_eq!(u64::from(placed.offset), number(row[1]), "offset of {}", row[0]);
        // Two port 1 copies have no reset in the header: that of port 0 holds.
        if !(row[2].is_empty() && row[0].ends_with("_1")) {
            assert_eq!((placed.reset(), placed.info.reset_unknown), reset(row[2]), "reset of {}", row[0]);
        }
        checked += 1;
    }
    assert_eq!(checked, 236 + 1219 + 72);
}

#[test]
fn the_map_holds_nothing_that_the_tables_do_not() {
    let known: BTreeSet<&str> =
        lines(REGISTERS).chain(lines(EXPANDED)).chain(lines(EXTRA)).map(|row| ours_of(row[0])).collect();
    let ours = by_name();
    let surplus: Vec<_> = ours.keys().filter(|name| !known.contains(name.as_str())).collect();
    assert!(surplus.is_empty(), "not in the tables: {surplus:?}");
    assert_eq!(ours.len(), map::all().count(), "two registers share a name");
}

#[test]
fn every_field_of_the_header_has_its_bits() {
    let ours = by_name();
    let mut checked = 0;
    for row in lines(FIELDS) {
        let info = ours[ours_of(row[0])].info;
        let (lsb, msb) = (row[2].parse::<u8>().unwrap(), row[3].parse::<u8>().unwrap());
        if info.fields.is_empty() {
            assert_eq!((lsb, msb), (0, 63), "{} is a plain value, {} is not", row[0], row[1]);
        } else {
            let field = info.fields.iter().find(|f| (f.lsb, f.msb) == (lsb, msb));
            assert!(field.is_some(), "{}.{} [{msb}:{lsb}] is missing", row[0], row[1]);
        }
        checked += 1;
    }
    assert_eq!(checked, 808);
}

#[test]
fn every_register_has_the_access_kind_of_the_table() {
    let table: BTreeMap<&str, &str> = lines(ACCESS).map(|row| (row[0], row[1])).collect();
    let ours: BTreeMap<&str, &str> = map::rows().map(|info| (info.template, info.access.name())).collect();
    assert_eq!(ours, table);
}

/// A register's kind follows from its name, whichever table it stands in: status is for reading, clear for clearing.
#[test]
fn names_and_access_kinds_agree() {
    let mut checked = 0;
    for info in map::rows() {
        let name = info.template.trim_end_matches("_{p}");
        // Two timeout bits of the link status are cleared by writing ones (data sheet, link control registers).
        let expected = match name {
            "IBCStatusB" => Access::W1c,
            _ if name.ends_with("Clear") => Access::W1c,
            _ if name.ends_with("Status") || name == "IBCStatusA" => Access::Ro,
            _ => continue,
        };
        assert_eq!(info.access, expected, "{}", info.template);
        checked += 1;
    }
    assert_eq!(checked, 25);
}

#[test]
fn no_two_registers_overlap() {
    let mut spans: Vec<_> = map::all()
        .filter(|placed| !placed.info.extra)
        .map(|placed| (placed.offset, placed.offset + placed.info.words() * 8, placed.to_string()))
        .collect();
    spans.sort();
    for pair in spans.windows(2) {
        assert!(pair[0].1 <= pair[1].0, "{} and {} overlap", pair[0].2, pair[1].2);
    }
    assert!(spans.last().is_some_and(|last| last.1 <= qhca_regs::BAR_LEN_BYTES));
}

#[test]
fn an_offset_finds_its_register_and_a_hole_finds_none() {
    let name = |offset| map::at(offset).map(|placed| placed.to_string());
    assert_eq!(name(0x2088).as_deref(), Some("ErrStatus_1"));
    assert_eq!(name(0x110F0).as_deref(), Some("RxP1HdrEgrOvflCnt"));
    assert_eq!(name(0x14008).as_deref(), Some("RcvEgrArray"));
    assert_eq!(name(0x51FF8).as_deref(), Some("RcvTIDArray1"));
    assert_eq!(name(0x62000), None);
    assert_eq!(name(0x210008).as_deref(), Some("RcvHdrHead1"));
    assert_eq!(name(0x3108), None);
}
