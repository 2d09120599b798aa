//! docs/json.md is a contract: every block in it names a command, and what the command prints must have its shape.

mod common;

use common::{differs, root, stdout_of};
use serde_json::Value;

/// The blocks of the document: the command's arguments, the promised shape.
fn blocks(document: &str) -> Vec<(Vec<String>, Value)> {
    let mut blocks = Vec::new();
    let mut rest = document;
    while let Some((_, after)) = rest.split_once("\n```json qhca ") {
        let (command, after) = after.split_once('\n').expect("a block has a first line");
        let (shape, after) = after.split_once("\n```").expect("a block is closed");
        let args = command.split_whitespace().map(str::to_owned).collect();
        let shape = serde_json::from_str(shape).unwrap_or_else(|e| panic!("qhca {command}: {e}"));
        blocks.push((args, shape));
        rest = after;
    }
    blocks
}

#[test]
fn every_documented_shape_is_what_its_command_prints() {
    let document = std::fs::read_to_string(root().join("docs/json.md")).expect("docs/json.md is there");
    let blocks = blocks(&document);
    assert!(blocks.len() >= 3, "the blocks of docs/json.md were not found");
    for (args, promise) in blocks {
        let args: Vec<&str> = args.iter().map(String::as_str).chain(["--json"]).collect();
        let stdout = stdout_of(&args);
        let lines: Vec<&str> = stdout.lines().collect();
        assert!(!lines.is_empty(), "qhca {args:?} printed nothing");
        for line in lines {
            let value = serde_json::from_str(line).unwrap_or_else(|e| panic!("qhca {args:?}: {e} in {line}"));
            let difference = differs(&promise, &value, "");
            assert_eq!(difference, None, "qhca {args:?} does not print what docs/json.md promises");
        }
    }
}

#[test]
fn missing_member_and_wrong_type_are_found() {
    let promise = serde_json::json!([{"a": "x|y", "n": 1}]);
    for (bad, place) in [
        (serde_json::json!([{"a": "x"}]), "[0].n"),
        (serde_json::json!([{"a": "z", "n": 1}]), "[0].a"),
        (serde_json::json!([{"a": "x", "n": "1"}]), "[0].n"),
        (serde_json::json!([]), "empty"),
    ] {
        let difference = differs(&promise, &bad, "").unwrap_or_default();
        assert!(difference.contains(place), "{difference:?} for {bad}");
    }
    assert_eq!(differs(&promise, &serde_json::json!([{"a": "y", "n": 7, "new": 1}]), ""), None);
}
