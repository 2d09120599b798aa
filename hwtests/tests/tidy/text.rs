//! Rules about what stands in files.

use crate::File;

/// The most lines that a Rust file may have.
const MAX_LINES: usize = 700;

/// Files that were longer when the limit came, and how long they may still be. An entry may only shrink or go.
const RATCHET: &[(&str, usize)] = &[];

/// The files that may hold unsafe code.
const ISLANDS: [&str; 5] = [
    "regs/src/mmio.rs",
    "driver/src/dma.rs",
    "driver/src/sys.rs",
    "driver/src/sys/vfio.rs",
    "sim/src/vfio_user/sys.rs",
];

/// This rule's own words would be offences.
const TIDY: &str = "hwtests/tests/tidy";

fn is_rust(file: &File) -> bool {
    file.path.ends_with(".rs")
}

/// Rust files over the limit, and entries of the ratchet that are no longer needed.
pub(crate) fn too_long(files: &[File]) -> Vec<String> {
    let mut offences = Vec::new();
    for file in files.iter().filter(|file| is_rust(file)) {
        let lines = file.text.lines().count();
        let allowed = RATCHET.iter().find(|(path, _)| *path == file.path);
        match allowed {
            Some((_, limit)) if lines > *limit => offences.push(format!("{}: {lines} > {limit}", file.path)),
            Some(_) if lines <= MAX_LINES => offences.push(format!("{}: leave the ratchet", file.path)),
            None if lines > MAX_LINES => offences.push(format!("{}: {lines} lines", file.path)),
            _ => {}
        }
    }
    offences
}

/// Rust files whose first line that is no attribute is not their documentation. A file of unit tests is told of by
/// the module that it tests.
pub(crate) fn without_docs(files: &[File]) -> Vec<String> {
    let begins_badly = |file: &&File| {
        let first = file.text.lines().find(|line| !line.trim().is_empty() && !line.starts_with("#!["));
        !first.is_some_and(|line| line.starts_with("//!"))
    };
    let is_chapter = |file: &&File| is_rust(file) && !file.path.ends_with("/tests.rs");
    files.iter().filter(is_chapter).filter(begins_badly).map(|file| file.path.clone()).collect()
}

/// Words that put something off. "for now" is an excuse at the end of a sentence, a time elsewhere.
pub(crate) fn put_off(files: &[File]) -> Vec<String> {
    const ANYWHERE: [&str; 7] =
        ["todo!", "unimplemented!", "#[ignore", "simplified", "placeholder", "for now.", "for now,"];
    lines(files, |line| {
        let lower = line.to_lowercase();
        ANYWHERE.iter().find(|word| lower.contains(**word)).map(|word| (*word).to_owned())
    })
}

/// Places that exist on one machine only.
pub(crate) fn machine_paths(files: &[File]) -> Vec<String> {
    const PLACES: [&str; 4] = ["/work/", "/home/", "/root/", "/Users/"];
    lines(files, |line| PLACES.iter().find(|place| line.contains(**place)).map(|place| (*place).to_owned()))
}

/// Every line of every file but this rule's own for which `offence` finds something.
fn lines(files: &[File], offence: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let mut offences = Vec::new();
    for file in files.iter().filter(|file| !file.path.starts_with(TIDY)) {
        for (number, line) in (1..).zip(file.text.lines()) {
            if let Some(what) = offence(line) {
                offences.push(format!("{}:{number}: {what}", file.path));
            }
        }
    }
    offences
}

/// A line of Rust without comments and the contents of strings, near enough for a search for a keyword.
fn code_of(line: &str) -> String {
    let mut code = String::new();
    let mut in_string = false;
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\\' if in_string => {
                chars.next();
            }
            '"' => in_string = !in_string,
            '/' if !in_string && chars.peek() == Some(&'/') => break,
            _ if !in_string => code.push(c),
            _ => {}
        }
    }
    code
}

fn has_word(code: &str, word: &str) -> bool {
    code.split(|c: char| !c.is_alphanumeric() && c != '_').any(|found| found == word)
}

/// Uses of the keyword outside the islands.
pub(crate) fn unsafe_off_islands(files: &[File]) -> Vec<String> {
    let off: Vec<File> = files
        .iter()
        .filter(|file| is_rust(file) && !ISLANDS.contains(&file.path.as_str()))
        .map(|file| File { path: file.path.clone(), text: file.text.clone() })
        .collect();
    lines(&off, |line| has_word(&code_of(line), "unsafe").then(|| line.trim().to_owned()))
}

/// Roots of crates that have no island and do not forbid unsafe code.
pub(crate) fn not_forbidding(files: &[File]) -> Vec<String> {
    let roots = files.iter().filter(|file| {
        (file.path.ends_with("src/lib.rs") || file.path.ends_with("src/main.rs")) && is_rust(file)
    });
    roots
        .filter(|file| {
            let folder = file.path.trim_end_matches("lib.rs").trim_end_matches("main.rs");
            let has_island = ISLANDS.iter().any(|island| island.starts_with(folder));
            !has_island && !file.text.contains("#![forbid(unsafe_code)]")
        })
        .map(|file| file.path.clone())
        .collect()
}

/// What the chip model takes from crates and modules of ours that it must know nothing of.
pub(crate) fn chip_uses(files: &[File]) -> Vec<String> {
    let chip: Vec<File> = files
        .iter()
        .filter(|file| file.path.starts_with("sim/src/chip/") && is_rust(file))
        .map(|file| File { path: file.path.clone(), text: file.text.clone() })
        .collect();
    lines(&chip, |line| {
        let code = code_of(line);
        let mut words = code.split(|c: char| !c.is_alphanumeric() && c != '_' && c != ':');
        words
            .find(|word| {
                let foreign = word.starts_with("qhca_") && !word.starts_with("qhca_regs");
                let outside = word.starts_with("crate::") && !word.starts_with("crate::chip");
                foreign || outside
            })
            .map(str::to_owned)
    })
}
