//! `qhca counters` from the outside.

mod common;

use common::{json_of, stdout_of};
use std::collections::BTreeSet;

/// B169: every counter of the map is listed once for each port of the board.
#[test]
fn every_counter_is_listed_once_for_each_port() {
    for (device, ports) in [("sim:qle7340", 1), ("sim:qle7342", 2)] {
        let json = json_of(&["counters", "-d", device]);
        assert_eq!(json["ports"].as_array().map(Vec::len), Some(ports));
        let lists = json["ports"].as_array().into_iter().flatten().map(|port| &port["counters"]);
        let registers: Vec<&str> = lists
            .chain([&json["device"]])
            .flat_map(|list| list.as_array().into_iter().flatten())
            .filter_map(|counter| counter["register"].as_str())
            .collect();
        let unique: BTreeSet<&str> = registers.iter().copied().collect();
        assert_eq!(unique.len(), registers.len());
        let end = 0x12000 + 0x1000 * ports as u32;
        let expected = qhca_regs::map::all().filter(|p| (0x11000..end).contains(&p.offset));
        assert_eq!(
            unique,
            expected.map(|p| p.to_string()).collect::<Vec<_>>().iter().map(String::as_str).collect()
        );
    }
}

#[test]
fn device_that_is_up_shows_its_totals_beside_the_registers() {
    let cold = json_of(&["counters", "-d", "sim:qle7340"]);
    assert!(cold["device"][0]["total"].is_null(), "nobody has counted");
    let up = json_of(&["counters", "-d", "sim:qle7340", "--up"]);
    let lists = [&up["device"], &up["ports"][0]["counters"]];
    let counters: Vec<_> = lists.iter().flat_map(|list| list.as_array().into_iter().flatten()).collect();
    assert!(counters.len() > 50 && counters.iter().all(|counter| counter["total"].is_u64()), "{up}");
    // The counters were at 0 when the account began, or started later: no total exceeds its register by a wrap.
    assert!(counters.iter().all(|c| c["total"].as_u64() < Some(1 << 32)), "{up}");
}

#[test]
fn ipath_names_stand_in_the_order_of_ipathfs() {
    let text = stdout_of(&["counters", "--ipath", "-d", "sim:qle7340"]);
    let names: Vec<&str> = text.lines().map(|line| line.split(':').next().unwrap_or(line)).collect();
    assert_eq!(names[..4], ["# device", "Interrupts", "HostBusStall", "E RxTIDFull"]);
    let port = names.iter().position(|name| *name == "# port 1").expect("a port follows");
    assert_eq!(names[port + 1..port + 4], ["TxPkt", "TxFlowPkt", "TxWords"]);
    assert!(names.contains(&"Ctxt17EgrOvfl") && names.contains(&"E RxDlidFltr"), "{text}");
    assert_eq!(names.last(), Some(&"TXBadHeader"));
}
