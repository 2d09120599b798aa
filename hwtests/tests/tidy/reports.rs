//! Rules about what the documents claim: facts that are cited, field reports that are answered.

use crate::File;
use std::collections::{BTreeMap, BTreeSet};

/// The field reports that must have an answer.
const REPORTS: [u32; 82] = [
    1, 2, 4, 6, 7, 8, 14, 15, 17, 18, 19, 20, 22, 23, 25, 26, 29, 30, 36, 37, 38, 39, 40, 41, 43, 44, 45, 46,
    59, 60, 62, 63, 64, 65, 66, 67, 68, 70, 71, 72, 73, 74, 75, 76, 77, 78, 80, 81, 82, 83, 84, 85, 86, 87,
    88, 90, 91, 92, 95, 96, 97, 98, 99, 100, 101, 102, 103, 104, 105, 106, 155, 156, 157, 158, 159, 160, 165,
    167, 168, 169, 170, 171,
];

/// An excuse shorter than this explains nothing.
const REASON_MIN_CHARS: usize = 40;

/// The report's name as documents and tests write it.
fn name(id: u32) -> String {
    format!("B{id:02}")
}

fn text_of<'a>(files: &'a [File], path: &str) -> &'a str {
    files.iter().find(|file| file.path == path).map_or("", |file| file.text.as_str())
}

/// All facts cited anywhere that the list does not have, and those that it has twice.
pub(crate) fn facts(files: &[File]) -> Vec<String> {
    const LIST: &str = "docs/chip/facts.md";
    let mut listed: BTreeMap<&str, usize> = BTreeMap::new();
    for line in text_of(files, LIST).lines() {
        if let Some(fact) = line.strip_prefix("| F-").and_then(|rest| rest.get(..3)) {
            *listed.entry(fact).or_default() += 1;
        }
    }
    let twice = listed.iter().filter(|(_, times)| **times > 1);
    let mut offences: Vec<String> = twice.map(|(fact, _)| format!("F-{fact} is listed twice")).collect();
    for file in
        files.iter().filter(|file| file.path.ends_with(".rs") && !file.path.starts_with("hwtests/tests/tidy"))
    {
        for cited in file.text.split("F-").skip(1).filter_map(|rest| rest.get(..3)) {
            let is_number = cited.bytes().all(|byte| byte.is_ascii_digit());
            if is_number && !listed.contains_key(cited) {
                offences.push(format!("{}: F-{cited} is not in {LIST}", file.path));
            }
        }
    }
    offences
}

/// Names of all test functions in the tree.
fn tests(files: &[File]) -> BTreeSet<&str> {
    let mut found = BTreeSet::new();
    for file in files.iter().filter(|file| file.path.ends_with(".rs")) {
        let mut is_test = false;
        for line in file.text.lines().map(str::trim_start) {
            is_test |= line.starts_with("#[test]");
            if let Some(name) = line.strip_prefix("fn ").filter(|_| std::mem::take(&mut is_test)) {
                found.insert(name.split(['(', '<']).next().unwrap_or_default());
            }
        }
    }
    found
}

/// Reports without a line, lines whose tests are gone, and lines with neither a test nor a reason.
///
/// A line is `| B01 | answer |`; names of tests stand in back quotes, and a reason begins with "not yet:".
pub(crate) fn field_reports(files: &[File]) -> Vec<String> {
    let tests = tests(files);
    let document = text_of(files, "docs/field-reports.md");
    let mut offences = Vec::new();
    for id in REPORTS.into_iter().map(name) {
        let Some(line) = document.lines().find(|line| line.starts_with(&format!("| {id} |"))) else {
            offences.push(format!("{id}: no line"));
            continue;
        };
        let quoted: Vec<&str> = line.split('`').skip(1).step_by(2).collect();
        for gone in quoted.iter().filter(|name| !tests.contains(**name)) {
            offences.push(format!("{id}: no test is called {gone}"));
        }
        let reason = line.split("not yet:").nth(1).map_or(0, |reason| reason.trim().chars().count());
        if quoted.is_empty() && reason < REASON_MIN_CHARS {
            offences.push(format!("{id}: neither a test nor a reason"));
        }
    }
    offences
}
