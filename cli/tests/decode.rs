//! `qhca decode` from the outside.

mod common;

use common::{json_of, qhca, qhca_with_input, stdout_of};
use serde_json::{Value, json};

#[test]
fn hex_and_decimal_of_one_word_give_the_same() {
    assert_eq!(stdout_of(&["decode", "0x1000"]), stdout_of(&["decode", "4096"]));
    assert_eq!(json_of(&["decode", "0x1000"])["names"], json!(["RcvEgrFullErr"]));
}

#[test]
fn number_alone_is_a_device_word_and_scope_overrides() {
    assert_eq!(json_of(&["decode", "0x4"])["scope"], "device");
    assert_eq!(json_of(&["decode", "--scope", "port", "0x4"])["names"], json!(["RcvICRCErr"]));
    assert_eq!(json_of(&["decode", "--scope", "HwErrStatus", "0x0"])["scope"], "hardware");
}

#[test]
fn several_words_give_one_json_object_a_line() {
    let lines = stdout_of(&["decode", "--json", "0x1000", "IntStatus: 0x20000000", "RHF 0x80000000"]);
    let scopes: Vec<Value> = lines
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("a line is an object")["scope"].clone())
        .collect();
    assert_eq!(scopes, ["device", "interrupt", "rhf"]);
}

#[test]
fn log_from_stdin_is_searched_and_other_lines_are_passed_over() {
    let log = b"eth0: link up\nib_qib 0000:04:00.0: qib0: ErrStatus_0 0x4\n\xff\xfe\nErrStatus = 0x1000\n";
    let run = qhca_with_input(&["decode", "--json", "-"], log);
    assert_eq!((run.code, run.stdout.lines().count()), (0, 2), "{}", run.stderr);
    let nothing = qhca_with_input(&["decode", "-"], b"eth0: link up\n");
    assert_eq!((nothing.code, nothing.stdout.as_str()), (2, ""));
}

/// B04: all ones is a card that does not answer, and no list of faults.
#[test]
fn all_ones_is_a_device_that_does_not_answer() {
    let json = json_of(&["decode", "0xffffffffffffffff"]);
    assert_eq!((&json["gone"], &json["names"]), (&json!(true), &json!([])));
}

#[test]
fn unknown_bits_are_kept_in_hex() {
    let json = json_of(&["decode", "0x100000"]);
    assert_eq!((&json["unknown"], &json["names"]), (&json!("0x100000"), &json!([])));
}

#[test]
fn refused_word_leaves_stdout_empty_even_behind_a_good_one() {
    let run = qhca(&["decode", "0x1000", "nonsense"]);
    assert_eq!((run.code, run.stdout.as_str()), (2, ""));
}
