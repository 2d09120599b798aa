//! `qhca info` from the outside: `ibstat`'s layout, on both boards.

mod common;

use common::{json_of, stdout_of};

/// Labels and indentation of `ibstat`, with the values left out.
fn layout(text: &str) -> Vec<String> {
    text.lines().map(|line| line.split_once(": ").map_or(line, |(label, _)| label).to_owned()).collect()
}

const DEVICE: [&str; 7] = [
    "CA 'qib0'",
    "\tCA type",
    "\tNumber of ports",
    "\tFirmware version",
    "\tHardware version",
    "\tNode GUID",
    "\tSystem image GUID",
];

const PORT: [&str; 9] = [
    "State",
    "Physical state",
    "Rate",
    "Base lid",
    "LMC",
    "SM lid",
    "Capability mask",
    "Port GUID",
    "Link layer",
];

#[test]
fn device_and_its_ports_have_the_layout_of_ibstat() {
    for (device, ports) in [("sim:qle7340", 1), ("sim:qle7342", 2)] {
        let mut expected: Vec<String> = DEVICE.map(str::to_owned).to_vec();
        for port in 1..=ports {
            expected.push(format!("\tPort {port}:"));
            expected.extend(PORT.iter().map(|label| format!("\t\t{label}")));
        }
        let text = stdout_of(&["info", "-d", device]);
        assert_eq!(layout(&text), expected, "{text}");
        assert!(text.contains(&format!("Number of ports: {ports}\n")), "{text}");
        assert!(text.contains("\tFirmware version: \n"), "{text}");
    }
}

#[test]
fn short_list_and_port_list_are_those_of_ibstat() {
    assert_eq!(stdout_of(&["info", "-l"]), "qib0\n");
    assert_eq!(layout(&stdout_of(&["info", "-s"])), DEVICE);
    let guids = stdout_of(&["info", "-p"]);
    assert_eq!(guids.lines().count(), 2, "{guids}");
    for line in guids.lines() {
        assert!(line.starts_with("0x001175") && line.len() == 18, "{line}");
    }
}

#[test]
fn one_port_has_a_colon_behind_ca_and_no_indentation() {
    let mut expected = vec!["CA".to_owned(), "Port 2:".to_owned()];
    expected.extend(PORT.map(str::to_owned));
    assert_eq!(layout(&stdout_of(&["info", "qib0", "2"])), expected);
}

/// B154: the two ports of a card have GUIDs of their own, the same in every run.
#[test]
fn guids_differ_between_ports_and_not_between_runs() {
    let json = json_of(&["info"]);
    assert_ne!(json["ports"][0]["port_guid"], json["ports"][1]["port_guid"]);
    assert_eq!(json["ports"][0]["port_guid"], json["node_guid"]);
    assert_eq!(json, json_of(&["info"]));
}

#[test]
fn links_are_up_unless_the_device_is_left_alone() {
    let up = json_of(&["info"]);
    let cold = json_of(&["info", "--no-link"]);
    for port in 0..2 {
        assert_eq!(
            (&up["ports"][port]["physical_state"], &up["ports"][port]["rate"]),
            (&"LinkUp".into(), &40.into())
        );
        assert_eq!(cold["ports"][port]["physical_state"], "Polling");
        assert_eq!(up["ports"][port]["port_guid"], cold["ports"][port]["port_guid"]);
    }
}
