//! What each command prints, word for word: scripts and eyes rely on it.

mod common;

use common::golden;

#[test]
fn decode_prints_what_it_printed() {
    golden("decode.txt", &["decode", "0x40001000", "port 1: ErrStatus_1 = 0x4"]);
    golden("decode.json", &["decode", "--json", "0x40001000", "port 1: ErrStatus_1 = 0x4"]);
}

#[test]
fn regs_map_prints_what_it_printed() {
    golden("regs-map.txt", &["regs", "--map", "ErrMask_0"]);
    golden("regs-map.json", &["regs", "--map", "--json", "ErrMask_0"]);
}

#[test]
fn options_print_what_they_printed() {
    golden("options.txt", &["options", "krcvqs", "krcvq01_no_msi"]);
    golden("options.json", &["options", "--json", "krcvqs", "krcvq01_no_msi"]);
}

#[test]
fn info_prints_what_it_printed() {
    golden("info.txt", &["info", "-d", "sim:qle7340"]);
    golden("info.json", &["info", "--json"]);
}

#[test]
fn regs_of_a_device_print_what_they_printed() {
    golden("regs.txt", &["regs", "-d", "sim:qle7340", "Revision"]);
    golden("regs.json", &["regs", "-d", "sim:qle7340", "--json", "Revision"]);
}

#[test]
fn counters_print_what_they_printed() {
    golden("counters.txt", &["counters", "-d", "sim:qle7340"]);
    golden("counters-ipath.txt", &["counters", "-d", "sim:qle7340", "--ipath"]);
    golden("counters.json", &["counters", "-d", "sim:qle7340", "--json"]);
}

#[test]
fn selftest_prints_what_it_printed() {
    golden("selftest.txt", &["selftest", "-d", "sim:qle7340"]);
    golden("selftest.json", &["selftest", "-d", "sim:qle7340", "--json"]);
}

#[test]
fn port_prints_what_it_printed() {
    golden("port.txt", &["port", "sim:qle7340:1", "active"]);
    golden("port.json", &["port", "sim:qle7340:1", "--json"]);
}
