//! The README is the first thing a stranger tries: the paths and commands in it must be there.

mod common;

use common::{qhca, root};
use std::collections::BTreeSet;

fn readme() -> String {
    std::fs::read_to_string(root().join("README.md")).expect("README.md is there")
}

/// Everything between single backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

#[test]
fn every_path_of_the_ten_second_table_is_there() {
    let readme = readme();
    let (_, table) = readme.split_once("## Found in ten seconds").expect("the table has its heading");
    let (table, _) = table.split_once("\n## ").expect("another heading follows");
    let missing: Vec<&str> =
        quoted(table).filter(|path| path.contains('/') && !root().join(path).exists()).collect();
    assert!(quoted(table).count() > 10, "the table was not found");
    assert_eq!(missing, [""; 0], "paths in README.md that do not exist");
}

#[test]
fn every_command_of_the_readme_exists_and_every_command_is_in_it() {
    let readme = readme();
    let named: BTreeSet<&str> =
        quoted(&readme).filter_map(|text| text.split("qhca ").nth(1)?.split_whitespace().next()).collect();
    for name in named.iter().filter(|name| !name.starts_with('-')) {
        assert_eq!(qhca(&["help", name]).code, 0, "README.md names `qhca {name}`");
    }
    let help = qhca(&["--help"]).stdout;
    let (_, commands) = help.split_once("Commands:\n").expect("the help lists the commands");
    let (commands, _) = commands.split_once("\n\n").expect("options follow");
    for name in commands.lines().filter_map(|line| line.strip_prefix("  ")?.split_whitespace().next()) {
        assert!(name == "help" || named.contains(name), "README.md does not show `qhca {name}`");
    }
}

#[test]
fn exit_codes_of_the_readme_are_those_of_the_help() {
    let (readme, help) = (readme(), qhca(&["--help"]).stdout);
    let (_, listed) = help.split_once("Exit codes:\n").expect("the help lists the codes");
    let (listed, _) = listed.split_once("\n\n").expect("more text follows");
    let mut seen = 0;
    for line in listed.lines() {
        let (code, meaning) = line.trim().split_once("  ").expect("a code and its meaning");
        assert!(
            readme.contains(&format!("| {code} | {meaning}")),
            "README.md lacks exit code {code}: {meaning}"
        );
        seen += 1;
    }
    assert_eq!(seen, 6);
}
