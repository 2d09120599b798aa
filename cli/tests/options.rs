//! `qhca options` from the outside.

mod common;

use common::{json_of, qhca, stdout_of};
use std::collections::BTreeSet;
use std::path::PathBuf;

/// A file of this test process, deleted at the end.
struct ConfFile(PathBuf);

impl ConfFile {
    fn new(name: &str, content: &[u8]) -> Self {
        let path =
            PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{}-{name}.conf", std::process::id()));
        std::fs::write(&path, content).expect("a temporary file can be written");
        Self(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().expect("the path is UTF-8")
    }
}

impl Drop for ConfFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// B169: every option stands in the listing once.
#[test]
fn listing_has_every_option_once_with_all_members() {
    let json = json_of(&["options"]);
    let rows = json.as_array().expect("an array");
    let names: BTreeSet<&str> = rows.iter().filter_map(|row| row["name"].as_str()).collect();
    assert_eq!((rows.len(), names.len()), (qhca_driver::options::table::all().count(), rows.len()));
    for row in rows {
        for member in ["name", "default", "range", "meaning", "effect_here"] {
            assert!(row[member].as_str().is_some_and(|text| !text.is_empty()), "{member} of {row}");
        }
    }
}

#[test]
fn named_options_are_shown_alone() {
    let text = stdout_of(&["options", "krcvqs", "ibmtu"]);
    assert!(
        text.starts_with("krcvqs=0") && text.contains("ibmtu=0") && !text.contains("singleport"),
        "{text}"
    );
}

#[test]
fn old_file_is_checked_with_what_it_amounts_to() {
    let content = b"# tuned in 2012\noptions ib_qib krcvqs=2 \\\n  ibmtu=9 wc_pat=1\noptions mlx4_core x=1\n";
    let file = ConfFile::new("old", content);
    let json = json_of(&["options", "--check", file.path()]);
    assert_eq!(json["settings"], serde_json::json!([{"name": "krcvqs", "value": "2", "default": "0"}]));
    let warnings = json["warnings"].to_string();
    assert!(warnings.contains("ibmtu") && warnings.contains("wc_pat"), "{warnings}");
    let text = stdout_of(&["options", "--check", file.path()]);
    assert!(text.contains("krcvqs=2") && text.contains("warning: option ibmtu: 9"), "{text}");
}

#[test]
fn faulty_file_is_refused_with_file_line_option_value_and_range() {
    let cases: [(&[u8], &[&str]); 4] = [
        (b"\noptions ib_qib krcvqs=99\n", &["line 2", "krcvqs", "99", "0 to 17"]),
        (b"options ib_qib krcvq=1\n", &["line 1", "krcvq", "krcvqs"]),
        (b"options ib_qib krcvqs=many\n", &["krcvqs", "many", "0 to 17"]),
        (b"options ib_qib \xff\xfe=1\n", &["line 1", "UTF-8"]),
    ];
    for (n, (content, words)) in cases.into_iter().enumerate() {
        let file = ConfFile::new(&format!("faulty{n}"), content);
        let run = qhca(&["options", "--check", file.path()]);
        assert_eq!((run.code, run.stdout.as_str()), (2, ""), "{}", run.stderr);
        for word in words.iter().chain(&[file.path()]) {
            assert!(run.stderr.contains(word), "{word:?} is not in {}", run.stderr);
        }
    }
}
