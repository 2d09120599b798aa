//! `qhca port` from the outside: by device, never by LID; every state comes with advice.

mod common;

use common::{json_of, qhca, stdout_of};

#[test]
fn port_is_shown_with_its_state_and_advice() {
    for device in ["sim:qle7340", "sim:qle7342"] {
        let json = json_of(&["port", &format!("{device}:1")]);
        assert_eq!((&json["state"], &json["physical_state"]), (&"Initializing".into(), &"LinkUp".into()));
        assert_eq!((&json["speed"], &json["lanes"]), (&"QDR".into(), &4.into()));
        assert!(json["action"].is_null() && json["reached"] == true, "{json}");
        assert!(json["advice"].as_str().is_some_and(|advice| advice.contains("active")), "{json}");
    }
    let text = stdout_of(&["port", "sim:2"]);
    assert!(text.starts_with("sim:2  Initializing/LinkUp, 4X QDR\n  "), "{text}");
}

#[test]
fn each_action_leads_to_its_state() {
    let actions = [
        ("enable", "Initializing", "LinkUp"),
        ("disable", "Down", "Disabled"),
        ("poll", "Initializing", "LinkUp"),
        ("arm", "Armed", "LinkUp"),
        ("active", "Active", "LinkUp"),
    ];
    for (action, state, physical) in actions {
        let json = json_of(&["port", "sim:1", action]);
        assert_eq!(json["reached"], true, "{json}");
        assert_eq!((&json["state"], &json["physical_state"]), (&state.into(), &physical.into()), "{json}");
        assert_eq!(json["action"], action);
    }
}

#[test]
fn advice_of_a_disabled_port_names_the_way_out() {
    let text = stdout_of(&["port", "sim:1", "disable"]);
    assert!(text.contains("qhca port DEV:PORT enable"), "{text}");
}

#[test]
fn port_is_never_found_by_lid() {
    for lid in ["17", "0x11", "lid:17"] {
        let run = qhca(&["port", lid]);
        assert_eq!((run.code, run.stdout.as_str()), (2, ""));
        assert!(run.stderr.contains("LID") && run.stderr.contains("sim:1"), "{}", run.stderr);
    }
}
