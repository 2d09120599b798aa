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
fn ipath_names_stand_in_the_order_of_ipathfs() {
    let text = stdout_of(&["counters", "--ipath", "-d", "sim:qle7340"]);
    let names: Vec<&str> = text.lines().map(|line| line.split(':').next().unwrap_or(line)).collect();
    assert_eq!(names[..4], ["# device", "Interrupts", "HostBusStall", "E RxTIDFull"]);
    let port = names.iter().position(|name| *name == "# port 1").expect("a port follows");
    assert_eq!(names[port + 1..port + 4], ["TxPkt", "TxFlowPkt", "TxWords"]);
    assert!(names.contains(&"Ctxt17EgrOvfl") && names.contains(&"E RxDlidFltr"), "{text}");
    assert_eq!(names.last(), Some(&"TXBadHeader"));
}
