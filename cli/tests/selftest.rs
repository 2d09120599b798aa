//! `qhca selftest` from the outside.

mod common;

use common::{json_of, qhca};
use serde_json::Value;

fn words(json: &Value) -> Vec<&str> {
    json["checks"].as_array().into_iter().flatten().filter_map(|check| check["result"].as_str()).collect()
}

#[test]
fn right_cards_pass_every_check_and_a_skip_names_its_reason() {
    for (device, skipped) in [("sim:qle7342", 0), ("sim:qle7340", 3)] {
        let json = json_of(&["selftest", "-d", device]);
        let words = words(&json);
        assert_eq!(words.len(), qhca_hwtests::count());
        assert_eq!(words.iter().filter(|word| **word == "skip").count(), skipped, "{json}");
        assert!(!words.contains(&"fail"), "{json}");
        for check in json["checks"].as_array().into_iter().flatten() {
            assert_eq!(check["result"] == "pass", check["why"].is_null(), "{check}");
        }
    }
}

#[test]
fn wrong_chip_fails_a_check_and_the_exit_code_says_so() {
    let run = qhca(&["selftest", "--wrong", "eeprom-checksum-bad", "--json"]);
    assert_eq!(run.code, 1, "{}", run.stderr);
    let json: Value = serde_json::from_str(&run.stdout).expect("JSON alone on stdout");
    let eeprom = json["checks"].as_array().into_iter().flatten().find(|check| check["name"] == "eeprom");
    assert_eq!(eeprom.map(|check| &check["result"]), Some(&Value::from("fail")), "{json}");
    let text = qhca(&["selftest", "--wrong", "eeprom-checksum-bad"]);
    assert!(text.code == 1 && text.stdout.contains("fail eeprom: "), "{}", text.stdout);
}

#[test]
fn chosen_checks_run_alone_and_one_that_is_none_is_refused_with_those_that_are() {
    let json = json_of(&["selftest", "--only", "scratch", "--only", "identify"]);
    let names: Vec<&str> =
        json["checks"].as_array().into_iter().flatten().filter_map(|check| check["name"].as_str()).collect();
    assert_eq!(names, ["identify", "scratch"], "in their own order");
    let none = qhca(&["selftest", "--only", "everything"]);
    assert_eq!(none.code, 2, "{}", none.stderr);
    assert!(
        none.stderr.contains("everything") && none.stderr.contains("loopback-packets"),
        "{}",
        none.stderr
    );
}

#[test]
fn progress_goes_to_stderr_and_quiet_silences_it() {
    let run = qhca(&["selftest"]);
    assert!(run.stderr.contains("checks"), "{}", run.stderr);
    assert!(run.stdout.ends_with(" passed, 0 failed, 0 skipped\n"), "{}", run.stdout);
    assert_eq!(qhca(&["selftest", "-q"]).stderr, "");
}
