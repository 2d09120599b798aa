//! Broken machines, and what the doctor says of each.
//!
//! A file of `machines/` begins with what is wrong in words, then changes a machine that is in order, one order a line;
//! behind a line of dashes stands what the doctor says. `QHCA_BLESS=1` writes that anew.

use qhca_host::fake::FakeHost;
use qhca_host::{Bdf, Reader, cards, doctor, find};
use std::path::PathBuf;

fn machines() -> Vec<(String, PathBuf)> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/machines");
    let entries = std::fs::read_dir(folder).expect("a folder of machines").flatten();
    let mut found: Vec<(String, PathBuf)> =
        entries.map(|entry| (entry.file_name().to_string_lossy().into_owned(), entry.path())).collect();
    found.sort();
    found
}

fn some(word: &str) -> Option<&str> {
    Some(word).filter(|word| *word != "none")
}

/// Bytes as two hex digits each.
fn hex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).expect("hex")).collect()
}

fn apply(host: &mut FakeHost, line: &str) {
    let (order, rest) = line.split_once(' ').expect("an order and what it is about");
    let words: Vec<&str> = rest.split(' ').collect();
    let (path, text) = rest.split_once(' ').unwrap_or((rest, ""));
    let text = text.replace("\\n", "\n").replace("\\t", "\t");
    match order {
        "start" if rest == "nothing" => *host = FakeHost::empty(),
        "start" => *host = FakeHost::healthy(some(rest).unwrap_or_default()),
        "without" => host.without_driver(rest),
        "file" => host.file(path, &text),
        "bytes" => host.bytes(path, &hex(&text)),
        "huge" => host.file(path, &"7".repeat(text.parse().expect("a length"))),
        "link" => host.link(path, &text),
        "remove" => host.remove(rest),
        "deny" => host.deny(rest),
        "own" => {
            let mode = u32::from_str_radix(words[1], 8).expect("a mode");
            host.owned(words[0], mode, words[2].parse().expect("a user"), words[3].parse().expect("a group"));
        }
        "function" => {
            let group = some(words[3]).map(|group| group.parse().expect("a group"));
            host.add_function(words[0], words[1], some(words[2]), group);
        }
        "process" => {
            let pid = words[0].parse().expect("a number");
            host.process(pid, &words[1].replace(',', "\0"), &words[2..]);
        }
        _ => panic!("{line:?} is no order"),
    }
}

/// What the doctor says, and the exit code.
fn said(orders: &str) -> String {
    let mut host = FakeHost::healthy("vfio-pci");
    orders.lines().filter(|line| !line.starts_with('#')).for_each(|line| apply(&mut host, line));
    let reader = Reader::new(&host);
    let bdf: Bdf = "0000:04:00.0".parse().expect("an address");
    let findings = match cards(reader).and_then(|_| find(reader, bdf)) {
        Ok(Some(card)) => doctor::examine(reader, &card),
        _ => vec![doctor::no_card(reader, Some(bdf))],
    };
    format!("{}exit code {}\n", doctor::text(&bdf.to_string(), &findings), doctor::exit_code(&findings))
}

const DASHES: &str = "---\n";

#[test]
fn every_broken_machine_is_told_as_it_was() {
    let machines = machines();
    assert!(machines.len() >= 40, "the machines were not found");
    let mut differing = Vec::new();
    for (name, path) in machines {
        let file = std::fs::read_to_string(&path).expect("a machine");
        let (orders, kept) =
            file.split_once(DASHES).unwrap_or_else(|| panic!("{name} has no line of dashes"));
        let now = said(orders);
        if std::env::var_os("QHCA_BLESS").is_some() {
            std::fs::write(&path, format!("{orders}{DASHES}{now}")).expect("it can be written");
        } else if kept != now {
            differing
                .push(format!("{name} (QHCA_BLESS=1 accepts the new text)\n--- kept\n{kept}--- now\n{now}"));
        }
    }
    assert!(differing.is_empty(), "{}", differing.join("\n"));
}

/// A machine in order has nothing that is bad or unknown; each other one has something to tell.
#[test]
fn only_the_machine_in_order_has_nothing_to_tell() {
    for (name, path) in machines() {
        let file = std::fs::read_to_string(&path).expect("a machine");
        let told = said(file.split_once(DASHES).expect("a line of dashes").0);
        let nothing = !["  BAD ", "  warn ", "  note ", "  ? "].iter().any(|word| told.contains(word));
        let fine = [
            "in-order.txt",
            "permitted-by-owner.txt",
            "permitted-by-group.txt",
            "memlock-root.txt",
            "asleep.txt",
        ];
        assert_eq!(nothing, fine.contains(&name.as_str()), "{name}: {told}");
        let is_bad = told.contains("  BAD ");
        assert_eq!(is_bad, !told.ends_with("exit code 0\n"), "{name}: {told}");
        assert!(!is_bad || told.contains("mend:"), "{name} has no way out: {told}");
    }
}
