//! docs/json.md is a contract: every block in it names a command, and what the command prints must have its shape.

mod common;

use common::{root, stdout_of};
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

/// Says where `value` does not have the shape of `promise`: a member is missing, or a type differs.
fn differs(promise: &Value, value: &Value, at: &str) -> Option<String> {
    match (promise, value) {
        (Value::Object(promise), Value::Object(value)) => promise.iter().find_map(|(name, promise)| {
            let at = format!("{at}.{name}");
            match value.get(name) {
                Some(value) => differs(promise, value, &at),
                None => Some(format!("{at} is missing")),
            }
        }),
        (Value::Array(promise), Value::Array(values)) => {
            let first = promise.first()?;
            if values.is_empty() {
                return Some(format!("{at} is empty: run a command that shows an element"));
            }
            values.iter().enumerate().find_map(|(n, value)| differs(first, value, &format!("{at}[{n}]")))
        }
        (Value::String(words), Value::String(word)) if words.contains('|') && !words.contains(' ') => {
            (!words.split('|').any(|w| w == word)).then(|| format!("{at} is {word:?}, none of {words}"))
        }
        (Value::Null, Value::Null | Value::String(_) | Value::Number(_)) => None,
        (Value::String(_), Value::String(_)) | (Value::Number(_), Value::Number(_)) => None,
        (Value::Bool(_), Value::Bool(_)) => None,
        _ => Some(format!("{at} is {value}, promised is a value like {promise}")),
    }
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
