//! The tables against the register CSVs and against the order that the data sheet states.

use std::collections::{BTreeMap, BTreeSet};

use qhca_errdecode::{MAX_NAME_LEN, Scope, Table};

/// Names of the CSV that the decoder spells otherwise: (register, CSV, decoder). F-716.
const ALIASES: [(&str, &str, &str); 3] = [
    ("ErrStatus", "InvalidEEPCmdErr", "InvalidEEPCmd"),
    ("HwErrStatus", "PCIeBusParity", "PCIeBusParityErr"),
    ("ErrStatus_0", "SDmaHaltErr", "SDmaHalted"),
];

/// The tables of registers, and the register's name in the CSV.
const REGISTERS: [(Scope, &str); 6] = [
    (Scope::Device, "ErrStatus"),
    (Scope::Hardware, "HwErrStatus"),
    (Scope::Port, "ErrStatus_0"),
    (Scope::SendHeaderSymptom, "SendHdrErrSymptom_0"),
    (Scope::Interrupt, "IntStatus"),
    (Scope::Sdma, "SendDmaStatus_0"),
];

/// Fields of one register in `regs/data/fields.csv`: name and mask.
fn csv_fields(register: &str) -> BTreeMap<String, u64> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../regs/data/fields.csv");
    let csv = std::fs::read_to_string(path).expect("the register fields are part of the project");
    let mut fields = BTreeMap::new();
    for line in csv.lines().skip(1) {
        let columns: Vec<&str> = line.split(',').collect();
        let [of, name, a, b] = columns[..] else { panic!("four columns in {line:?}") };
        if of == register {
            let (a, b): (u32, u32) = (a.parse().unwrap(), b.parse().unwrap());
            let (lsb, msb) = (a.min(b), a.max(b));
            let mask = (u64::MAX >> (63 - msb)) & (u64::MAX << lsb);
            assert_eq!(fields.insert(name.to_owned(), mask), None, "{register}.{name} once in the CSV");
        }
    }
    assert!(!fields.is_empty(), "{register} is in the CSV");
    fields
}

fn alias(register: &str, field: &str) -> String {
    let spelled = ALIASES.iter().find(|(r, csv, _)| *r == register && *csv == field);
    spelled.map_or(field, |(_, _, name)| name).to_owned()
}

fn bits_in_order(table: &Table) -> Vec<u32> {
    table.rows().iter().map(|row| row.mask.trailing_zeros()).collect()
}

fn all_tables() -> impl Iterator<Item = (Scope, &'static Table)> {
    Scope::ALL.into_iter().map(|scope| (scope, scope.table()))
}

/// B169: each error bit decodes to exactly one name.
#[test]
fn every_field_of_the_csv_has_exactly_one_row() {
    for (scope, register) in REGISTERS {
        let table = scope.table();
        let mut named = BTreeMap::new();
        for row in table.rows() {
            assert_eq!(named.insert(row.name.to_owned(), row.mask), None, "{register}.{}", row.name);
        }
        for field in table.values() {
            assert_eq!(named.insert(field.name.to_owned(), field.mask()), None, "{register}.{}", field.name);
        }
        let expected: BTreeMap<String, u64> =
            csv_fields(register).into_iter().map(|(name, mask)| (alias(register, &name), mask)).collect();
        assert_eq!(named, expected, "{register}");
    }
}

#[test]
fn every_alias_is_needed() {
    for (register, csv, name) in ALIASES {
        assert!(csv_fields(register).contains_key(csv), "{register}.{csv}");
        assert!(!csv_fields(register).contains_key(name), "{register}.{name} is the CSV's own spelling");
    }
}

/// B169: all names are unique.
#[test]
fn names_are_unique_in_each_table() {
    for (scope, table) in all_tables() {
        let names: Vec<_> =
            table.entries(u64::MAX >> 1).chain(table.entries(1 << 63)).map(|e| e.name).collect();
        let unique: BTreeSet<_> = names.iter().collect();
        assert_eq!(unique.len(), names.len(), "{scope}");
        assert_eq!(names.len() as u32, table.flags().count_ones(), "{scope}");
    }
}

#[test]
fn no_two_rows_share_a_bit() {
    for (scope, table) in all_tables() {
        let sum: u32 = table.rows().iter().map(|row| row.width()).sum();
        assert_eq!(sum, table.flags().count_ones(), "{scope}");
        let values = table.values().iter().fold(0, |mask, field| mask | field.mask());
        assert_eq!(values & table.flags(), 0, "{scope}");
        assert_eq!(table.unknown(u64::MAX), !(values | table.flags()), "{scope}");
    }
}

#[test]
fn stored_lengths_are_the_lengths_of_the_names() {
    for (scope, table) in all_tables() {
        for row in table.rows() {
            assert_eq!(usize::from(row.name_len), row.name.len(), "{scope} {}", row.name);
            assert!(row.name.len() <= MAX_NAME_LEN, "{scope} {}", row.name);
        }
    }
}

/// F-700: the two overflows, then from high bits to low.
#[test]
fn device_table_has_the_overflows_first_and_descends_after() {
    let order = bits_in_order(Scope::Device.table());
    assert_eq!(order[..2], [12, 13]);
    assert!(order[2..].is_sorted_by(|a, b| a > b), "{order:?}");
}

/// F-701, F-702, F-703, F-705, F-706.
#[test]
fn other_error_tables_descend() {
    for scope in [Scope::Hardware, Scope::Port, Scope::SendHeaderSymptom, Scope::Rhf, Scope::Sdma] {
        let order = bits_in_order(scope.table());
        assert!(order.is_sorted_by(|a, b| a > b), "{scope} {order:?}");
    }
}

/// F-704: the order in which the main handler serves.
#[test]
fn interrupt_table_serves_errors_then_receive_then_send() {
    let table = Scope::Interrupt.table();
    let place = |name: &str| table.rows().iter().position(|row| row.name == name).expect(name);
    let served = ["AssertGPIO", "Err", "Err_0", "Err_1", "RcvAvail0", "RcvUrg0", "SDmaInt_0", "SendBufAvail"];
    assert!(served.map(place).is_sorted(), "{:?}", served.map(place));
    for n in 1..18 {
        assert_eq!(place(&format!("RcvAvail{n}")), place("RcvAvail0") + n);
        assert_eq!(place(&format!("RcvUrg{n}")), place("RcvUrg0") + n);
    }
}

/// F-709: the register has the bit, the stock driver's table has not.
#[test]
fn transmit_parity_of_the_bus_has_a_name() {
    let entry = Scope::Hardware.table().entries(1 << 34).next().expect("bit 34 has a row");
    assert_eq!((entry.name, entry.bit), ("pcie_phy_txParityErr", 34));
}

#[test]
fn every_row_says_what_it_means_and_what_to_do() {
    for (scope, table) in all_tables() {
        for row in table.rows() {
            let text = &row.text;
            for part in [text.meaning, text.cause, text.action] {
                assert!(part.len() >= 8, "{scope} {}: {part:?}", row.name);
                assert!(!part.ends_with('.'), "{scope} {}: {part:?}", row.name);
            }
            assert!(text.groups.names().next().is_some(), "{scope} {}", row.name);
        }
    }
}

/// Every fact cited by a row is a line of the project's own data sheet.
#[test]
fn every_source_is_a_numbered_fact() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/chip/facts.md");
    let facts = std::fs::read_to_string(path).expect("docs/chip/facts.md is part of the project");
    for (scope, table) in all_tables() {
        for row in table.rows() {
            for fact in row.text.source.split(", ") {
                assert!(fact.starts_with("F-") && fact.len() == 5, "{scope} {}: {fact:?}", row.name);
                assert!(facts.contains(fact), "{scope} {}: {fact} is not in facts.md", row.name);
            }
        }
    }
}

#[test]
fn scope_is_found_by_word_and_by_register() {
    for scope in Scope::ALL {
        assert_eq!(scope.as_str().parse(), Ok(scope));
        assert_eq!(scope.table().word_name().parse(), Ok(scope));
        assert_eq!(scope.as_str().to_uppercase().parse(), Ok(scope));
    }
    for (name, scope) in [
        ("ErrStatus", Scope::Device),
        ("errstatus_1", Scope::Port),
        ("SendDmaStatus_0", Scope::Sdma),
        ("SendHdrErrSymptom", Scope::SendHeaderSymptom),
    ] {
        assert_eq!(name.parse(), Ok(scope), "{name}");
    }
}

#[test]
fn unknown_scope_names_the_valid_ones() {
    for wrong in ["", "_0", "devices", "ErrMask", "port_0"] {
        let error = wrong.parse::<Scope>().expect_err(wrong);
        for scope in Scope::ALL {
            assert!(error.to_string().contains(scope.as_str()), "{error}");
        }
    }
}
