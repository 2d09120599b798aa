//! Runs the built `qhca` as a person would.

#![allow(dead_code, reason = "each test file uses its part")]

use serde_json::Value;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// How one run ended.
pub(crate) struct Run {
    /// The exit code.
    pub(crate) code: i32,
    /// What it printed.
    pub(crate) stdout: String,
    /// What it said about it.
    pub(crate) stderr: String,
}

/// The built command.
pub(crate) fn command() -> Command {
    Command::new(env!("CARGO_BIN_EXE_qhca"))
}

/// Runs `qhca` with `args`, nothing on stdin.
pub(crate) fn qhca(args: &[&str]) -> Run {
    qhca_with_input(args, b"")
}

/// Runs `qhca` with `args`, and `input` on stdin.
pub(crate) fn qhca_with_input(args: &[&str], input: &[u8]) -> Run {
    let mut child = command()
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("qhca starts");
    // A command that does not read stdin may have closed it.
    let _ = child.stdin.take().expect("stdin is piped").write_all(input);
    let output = child.wait_with_output().expect("qhca ends");
    Run {
        code: output.status.code().expect("qhca ends by itself, not by a signal"),
        stdout: String::from_utf8(output.stdout).expect("stdout is UTF-8"),
        stderr: String::from_utf8(output.stderr).expect("stderr is UTF-8"),
    }
}

/// Runs `qhca`, which must succeed; gives stdout.
pub(crate) fn stdout_of(args: &[&str]) -> String {
    let run = qhca(args);
    assert_eq!(run.code, 0, "qhca {args:?}: {}", run.stderr);
    run.stdout
}

/// Runs `qhca` with `--json`, which must succeed and print one JSON value alone.
pub(crate) fn json_of(args: &[&str]) -> serde_json::Value {
    let stdout = stdout_of(&[args, &["--json"]].concat());
    serde_json::from_str(&stdout).unwrap_or_else(|e| panic!("qhca {args:?} --json: {e} in {stdout}"))
}

/// The repository's root.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("cli/ stands in the root").to_owned()
}

/// Compares a command's stdout with `cli/tests/golden/NAME`; `QHCA_BLESS=1` writes the file instead.
pub(crate) fn golden(name: &str, args: &[&str]) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    let now = stdout_of(args);
    if std::env::var_os("QHCA_BLESS").is_some() {
        std::fs::write(&path, &now).expect("the golden file can be written");
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        kept == now,
        "qhca {args:?} no longer prints what {} holds (QHCA_BLESS=1 accepts the new text)\n--- kept\n{kept}--- now\n{now}",
        path.display()
    );
}

/// Says where `value` does not have the shape of `promise`: a member is missing, or a type differs.
pub(crate) fn differs(promise: &Value, value: &Value, at: &str) -> Option<String> {
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
