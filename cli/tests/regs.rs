//! `qhca regs` from the outside.

mod common;

use common::{command, json_of, stdout_of};
use serde_json::Value;
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

#[test]
fn map_lists_every_register_once_under_a_name_of_its_own() {
    let json = json_of(&["regs", "--map"]);
    let rows = json.as_array().expect("an array");
    let names: BTreeSet<&str> = rows.iter().filter_map(|row| row["name"].as_str()).collect();
    let expected = qhca_regs::map::all().count();
    assert_eq!((rows.len(), names.len()), (expected, expected));
}

#[test]
fn name_offset_and_decimal_offset_show_the_same_register() {
    let by_name = stdout_of(&["regs", "--map", "intstatus"]);
    assert_eq!(stdout_of(&["regs", "--map", "0x70"]), by_name);
    assert_eq!(stdout_of(&["regs", "--map", "112"]), by_name);
    assert!(by_name.contains("RcvAvail0"), "{by_name}");
}

#[test]
fn name_of_a_row_shows_every_copy() {
    let json = json_of(&["regs", "--map", "RcvHdrAddr"]);
    assert_eq!(json.as_array().map(Vec::len), Some(18));
    let json = json_of(&["regs", "--map", "ErrMask_p"]);
    let names: Vec<&Value> = json.as_array().into_iter().flatten().map(|row| &row["name"]).collect();
    assert_eq!(names, ["ErrMask_0", "ErrMask_1"]);
}

#[test]
fn word_of_a_table_is_found_by_index_and_by_offset() {
    let by_index = json_of(&["regs", "--map", "RcvEgrArray[17]"]);
    assert_eq!(by_index, json_of(&["regs", "--map", "0x14088"]));
    assert_eq!(by_index[0]["name"], "RcvEgrArray[17]");
}

#[test]
fn boards_are_told_apart_by_the_first_register() {
    let board = |device| {
        let json = json_of(&["regs", "-d", device, "Revision"]);
        let fields = json[0]["fields"].as_array().cloned().unwrap_or_default();
        fields.iter().find(|field| field["name"] == "BoardID").map(|field| field["value"].clone())
    };
    assert_eq!(board("sim:qle7340"), Some(Value::from("0x1")));
    assert_eq!(board("sim:qle7342"), Some(Value::from("0x2")));
    assert_eq!(board("sim"), board("sim:qle7342"));
}

/// B155, B159: a listing of all registers reads each readable one, whole, and leaves the write-only ones alone.
#[test]
fn all_registers_are_listed_with_a_value_unless_they_may_not_be_read() {
    for device in ["sim:qle7340", "sim:qle7342"] {
        let json = json_of(&["regs", "-d", device, "--all"]);
        let rows = json.as_array().expect("an array");
        assert_eq!(rows.len(), qhca_regs::map::all().count());
        for row in rows {
            let may_read = row["access"] != "wo" && row["extra"] == false;
            assert_eq!(row["value"].is_string(), may_read, "{row}");
        }
        let text = stdout_of(&["regs", "-d", device, "--all"]);
        assert_eq!(text.lines().count(), rows.len());
    }
}

#[test]
fn register_outside_the_stock_header_is_read_when_named() {
    let json = json_of(&["regs", "EEPCtlStat"]);
    assert_eq!((&json[0]["extra"], json[0]["value"].is_string()), (&Value::from(true), true));
}

#[test]
fn device_that_is_up_shows_its_masks_and_what_the_model_leaves_out() {
    let cold = json_of(&["regs", "IntMask"]);
    let up = json_of(&["regs", "--up", "IntMask"]);
    assert_eq!(cold[0]["value"], "0x0");
    assert_ne!(up[0]["value"], "0x0");
    let left_out = json_of(&["regs", "--unmodelled"]);
    for row in left_out.as_array().expect("an array") {
        let known = qhca_regs::map::all().any(|placed| row["name"] == placed.to_string());
        assert!(known && row["writes"].as_u64() > Some(0), "{row}");
    }
}

#[test]
fn reader_that_leaves_early_is_no_error() {
    let mut child = command()
        .args(["regs", "--map", "-v"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("qhca starts");
    let mut line = String::new();
    let mut reader = BufReader::with_capacity(64, child.stdout.take().expect("stdout is piped"));
    reader.read_line(&mut line).expect("a first line");
    drop(reader);
    let output = child.wait_with_output().expect("qhca ends");
    assert!(line.contains("Revision"), "{line}");
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}
