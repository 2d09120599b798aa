//! The house rules, checked on the tree itself.
//!
//! Each rule is a function from files to a list of offences, and each has a test that shows it finds one: a rule that
//! cannot fail protects nothing. What `cargo metadata` knows (who depends on whom, licences, versions) is asked of it.

mod tidy {
    pub(crate) mod graph;
    pub(crate) mod reports;
    pub(crate) mod text;
}

use std::path::{Path, PathBuf};

/// The root of the tree.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate lies in the tree").to_owned()
}

/// A text file of the tree, by its path from the root.
pub(crate) struct File {
    pub(crate) path: String,
    pub(crate) text: String,
}

/// All Rust, Markdown, TOML and shell files, in the order of their paths. What is built or fetched is left out.
fn files() -> Vec<File> {
    let mut found = Vec::new();
    let mut folders = vec![root()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder of the tree") {
            let path = entry.expect("an entry of a folder").path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if path.is_dir() {
                if !matches!(name.as_str(), "target" | ".git" | "corpus" | "artifacts") {
                    folders.push(path);
                }
            } else if [".rs", ".md", ".toml", ".sh"].iter().any(|end| name.ends_with(end)) || name == "run" {
                let text = std::fs::read_to_string(&path).expect("a text file");
                let path =
                    path.strip_prefix(root()).expect("a path in the tree").to_string_lossy().into_owned();
                found.push(File { path, text });
            }
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    assert!(found.len() > 200, "only {} files found: looked in the wrong place", found.len());
    found
}

/// The files of a made-up tree.
fn tree(files: &[(&str, &str)]) -> Vec<File> {
    files.iter().map(|(path, text)| File { path: (*path).to_owned(), text: (*text).to_owned() }).collect()
}

fn assert_clean(rule: &str, offences: &[String]) {
    assert!(offences.is_empty(), "{rule}:\n{}", offences.join("\n"));
}

#[test]
fn no_file_is_longer_than_a_chapter() {
    assert_clean("files over the limit of lines", &tidy::text::too_long(&files()));
}

#[test]
fn a_file_over_the_limit_and_a_stale_ratchet_are_found() {
    let long = "//! Long.\n".repeat(701);
    assert_eq!(tidy::text::too_long(&tree(&[("a/src/long.rs", &long)])).len(), 1);
    assert_eq!(tidy::text::too_long(&tree(&[("a/src/short.rs", "//! Short.\n")])).len(), 0);
}

#[test]
fn every_rust_file_begins_with_what_it_is() {
    assert_clean("files without module docs", &tidy::text::without_docs(&files()));
}

#[test]
fn a_file_that_does_not_say_what_it_is_is_found() {
    assert_eq!(tidy::text::without_docs(&tree(&[("a/src/b.rs", "use std::io;\n")])).len(), 1);
    assert!(tidy::text::without_docs(&tree(&[("a/src/b.rs", "#![cfg(loom)]\n//! B.\n")])).is_empty());
}

#[test]
fn nothing_is_left_for_later() {
    assert_clean("words that put something off", &tidy::text::put_off(&files()));
}

#[test]
fn a_word_that_puts_something_off_is_found() {
    for text in ["todo!()", "// Good enough for now.", "#[ignore]", "A simplified model."] {
        assert_eq!(tidy::text::put_off(&tree(&[("a/src/b.rs", text)])).len(), 1, "{text}");
    }
    assert!(
        tidy::text::put_off(&tree(&[("a.rs", "or for now if it is past")])).is_empty(),
        "a date, no excuse"
    );
}

#[test]
fn no_file_names_a_place_on_one_machine() {
    assert_clean("paths of one machine", &tidy::text::machine_paths(&files()));
}

#[test]
fn a_path_of_one_machine_is_found() {
    assert_eq!(tidy::text::machine_paths(&tree(&[("a.md", "see /home/somebody/notes")])).len(), 1);
}

#[test]
fn unsafe_code_stays_on_its_islands() {
    assert_clean("unsafe code off the islands", &tidy::text::unsafe_off_islands(&files()));
}

#[test]
fn unsafe_code_off_the_islands_is_found_and_words_about_it_are_not() {
    let found = tidy::text::unsafe_off_islands(&tree(&[
        ("driver/src/tx.rs", "//! x\nfn f() { unsafe { g() } }\n"),
        ("driver/src/sys.rs", "unsafe { g() }\n"),
        ("irq/src/lib.rs", "#![forbid(unsafe_code)]\n// nothing unsafe here\nlet s = \"unsafe\";\n"),
    ]));
    assert_eq!(found.len(), 1, "{found:?}");
}

#[test]
fn every_crate_without_an_island_forbids_unsafe_code() {
    assert_clean("crates that do not forbid unsafe code", &tidy::text::not_forbidding(&files()));
}

#[test]
fn a_crate_that_forgets_to_forbid_unsafe_code_is_found() {
    let text = "//! Errors.\n";
    assert_eq!(tidy::text::not_forbidding(&tree(&[("errdecode/src/lib.rs", text)])).len(), 1);
}

#[test]
fn the_chip_model_uses_the_register_map_and_nothing_else_of_ours() {
    assert_clean("the chip model's uses", &tidy::text::chip_uses(&files()));
}

#[test]
fn a_chip_model_that_borrows_from_driver_or_simulator_is_found() {
    for text in ["use qhca_irq::Source;", "use crate::host::HostMemory;", "let x = qhca_driver::f();"] {
        assert_eq!(tidy::text::chip_uses(&tree(&[("sim/src/chip/link.rs", text)])).len(), 1, "{text}");
    }
    assert!(tidy::text::chip_uses(&tree(&[("sim/src/chip/a.rs", "use qhca_regs::Bar;\n")])).is_empty());
}

#[test]
fn every_fact_that_is_cited_is_listed_once() {
    assert_clean("facts", &tidy::reports::facts(&files()));
}

#[test]
fn a_fact_that_is_not_listed_and_one_that_is_listed_twice_are_found() {
    let list = "| F-001 | a |\n| F-002 | b |\n| F-002 | c |\n";
    let files = tree(&[("docs/chip/facts.md", list), ("a/src/b.rs", "//! F-001, F-003\n")]);
    assert_eq!(tidy::reports::facts(&files).len(), 2);
}

#[test]
fn every_field_report_has_a_test_that_exists_or_a_reason() {
    assert_clean("docs/field-reports.md", &tidy::reports::field_reports(&files()));
}

#[test]
fn a_field_report_without_a_test_and_one_whose_test_is_gone_are_found() {
    let list = "| B01 | `a_test_that_exists` |\n| B02 | `a_test_that_is_gone` |\n| B04 | not yet: short |\n";
    let code = "#[test]\nfn a_test_that_exists() {}\n";
    let files = tree(&[("docs/field-reports.md", list), ("a/tests/b.rs", code)]);
    let offences = tidy::reports::field_reports(&files);
    assert!(!offences.iter().any(|offence| offence.starts_with("B01")), "{offences:?}");
    for id in ["B02", "B04", "B170"] {
        assert!(offences.iter().any(|offence| offence.starts_with(id)), "{id} in {offences:?}");
    }
}

#[test]
fn crates_depend_only_on_what_the_plan_allows() {
    let metadata = tidy::graph::metadata(&root());
    assert_clean("the crate graph", &tidy::graph::forbidden_edges(&metadata));
}

#[test]
fn a_dependency_that_the_plan_forbids_is_found() {
    let package = |name: &str, on: &str| serde_json::json!({"name": name, "source": null, "dependencies": [{"name": on}]});
    let packages =
        [package("qhca-driver", "qhca-sim"), package("qhca-new", "libc"), package("qhca-irq", "qhca-regs")];
    let found = tidy::graph::forbidden_edges(&serde_json::json!({ "packages": packages }));
    assert_eq!(found.len(), 2, "{found:?}");
}

#[test]
fn every_crate_takes_the_common_lints_and_the_lints_ask_for_docs() {
    assert_clean("lints", &tidy::graph::lints(&files()));
}

#[test]
fn a_crate_without_the_common_lints_is_found() {
    let files = tree(&[("Cargo.toml", "[workspace.lints.rust]\n"), ("a/Cargo.toml", "[package]\n")]);
    assert_eq!(tidy::graph::lints(&files).len(), 2);
}

#[test]
fn licences_are_ones_that_we_may_use_and_no_crate_comes_in_two_versions_without_a_reason() {
    let metadata = tidy::graph::metadata(&root());
    assert_clean("licences", &tidy::graph::licences(&metadata));
    assert_clean("duplicate versions", &tidy::graph::duplicates(&metadata));
}

#[test]
fn a_foreign_licence_and_a_duplicate_version_are_found() {
    let package = |name: &str, version: &str, license: &str| {
        let id = format!("{name} {version}");
        serde_json::json!({"name": name, "version": version, "license": license, "id": id})
    };
    let packages =
        [package("a", "1.0.0", "GPL-3.0"), package("a", "2.0.0", "MIT"), package("b", "1.0.0", "MIT")];
    let nodes: Vec<_> = packages.iter().map(|package| serde_json::json!({"id": package["id"]})).collect();
    let metadata = serde_json::json!({"packages": packages, "resolve": {"nodes": nodes}});
    assert_eq!(tidy::graph::licences(&metadata).len(), 1);
    assert!(tidy::graph::duplicates(&metadata).iter().any(|offence| offence.starts_with("a ")));
}
