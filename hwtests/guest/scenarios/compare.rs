//! Our bring-up beside that of the stock driver, on the same served card: the same registers, the same last values.
//!
//! Both drivers' writes are recorded by the server. What is compared is what each left in a register, since orders differ
//! without meaning: only registers below the receive arrays and the send buffers, whose contents are addresses and
//! packets. Every difference stands with its reason in `docs/chip/bringup-diff.md`, and nothing else may differ; a line
//! there that is no longer needed fails as well.

use super::steps;
use crate::fail::{Stop, Verdict, ensure};
use crate::fetch::Series;
use crate::lab::{Lab, Wanted};
use crate::process;
use crate::trace::{Access, Trace};
use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use std::time::Duration;

const ALLOWED: &str = include_str!("../../../docs/chip/bringup-diff.md");
/// Receive arrays and send buffers begin here.
const ARRAYS_FROM: u64 = 0x1_4000;
/// TIMEOUT: our bring-up over a socket takes about a second.
const OURS_LIMIT: Duration = Duration::from_secs(120);
/// A reader of all registers makes more reads in a row than a bring-up ever does.
const LISTING_READS: usize = 400;

/// Runs the scenario.
pub(super) fn run(lab: &mut Lab) -> Result<(), Stop> {
    let ours = ours(lab)?;
    let theirs = theirs(lab)?;
    let verdict = compare(&last_values(&ours), &last_values(&theirs), &allowed(ALLOWED));
    lab.report.check("bring-up-by-meaning", verdict)
}

/// What our driver does until its links are up: `regs --up` reads every register then, and what follows is the end.
fn ours(lab: &mut Lab) -> Result<Vec<Access>, Stop> {
    let logs = lab.logs("trace-ours")?;
    let record = logs.join("trace");
    let server = lab.serve(1, &["--cable", "loop", "--trace", &record.display().to_string()], &logs)?;
    let device = format!("vfio-user:{}", server.socket(0).display());
    let mut qhca = Command::new(lab.qhca());
    process::must(
        qhca.args(["regs", "--up", "-d", &device]),
        OURS_LIMIT,
        "cargo build --release -p qhca-cli",
    )?;
    drop(server);
    let accesses = Trace::of(&record).since()?;
    let mut reads = 0;
    let listing = accesses.iter().position(|access| {
        reads = if access.write { 0 } else { reads + 1 };
        reads == LISTING_READS
    });
    let end =
        listing.ok_or_else(|| Stop::Lost("our driver's trace has no listing of registers".to_owned()))?;
    Ok(accesses[..end].to_vec())
}

/// What the stock driver does until its ports are INIT.
fn theirs(lab: &mut Lab) -> Result<Vec<Access>, Stop> {
    let logs = lab.logs("trace-ib-qib")?;
    let record = logs.join("trace");
    let server = lab.serve(1, &["--cable", "loop", "--trace", &record.display().to_string()], &logs)?;
    let wanted = Wanted::fabric(Series::V6_1, 0);
    let mut guest = lab.start("guest", wanted, &server, &logs)?;
    guest.booted()?;
    let verdict = steps::load(&mut guest, "").and_then(|_| steps::ports_init(&mut guest, &[1, 2]));
    lab.report.check("ib-qib-init", verdict)?;
    let accesses = Trace::of(&record).since()?;
    guest.off()?;
    Ok(accesses)
}

/// The last value that was written to each register.
fn last_values(accesses: &[Access]) -> BTreeMap<String, u64> {
    let registers = accesses.iter().filter(|access| access.write && access.offset < ARRAYS_FROM);
    registers.map(|access| (access.name.clone(), access.value)).collect()
}

/// How two bring-ups may differ in a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Difference {
    /// Both write it, another value.
    Value,
    /// Both write it, and what depends on the moment: another value in some runs, the same in others.
    AtTimes,
    /// Both write an address of memory of their own.
    Address,
    /// Only ours writes it.
    Ours,
    /// Only the stock driver writes it.
    Theirs,
}

/// The table of the document: `| register | difference | reason |`, where `*` at a name's end stands for any digits.
fn allowed(document: &str) -> Vec<(String, Difference)> {
    let row = |line: &str| {
        let cells: Vec<&str> = line.trim_matches(['|', ' ']).split('|').map(str::trim).collect();
        let kind = match *cells.get(1)? {
            "value" => Difference::Value,
            "value, at times" => Difference::AtTimes,
            "address" => Difference::Address,
            "only qhca" => Difference::Ours,
            "only ib_qib" => Difference::Theirs,
            _ => return None,
        };
        // A reason of a word or two explains nothing.
        let has_reason = cells.get(2).is_some_and(|reason| reason.len() >= 30);
        has_reason.then(|| (cells[0].trim_matches('`').to_owned(), kind))
    };
    document.lines().filter(|line| line.starts_with('|')).filter_map(row).collect()
}

fn names(pattern: &str, register: &str) -> bool {
    match pattern.strip_suffix('*') {
        None => pattern == register,
        Some(stem) => register
            .strip_prefix(stem)
            .is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit())),
    }
}

fn compare(
    ours: &BTreeMap<String, u64>,
    theirs: &BTreeMap<String, u64>,
    allowed: &[(String, Difference)],
) -> Verdict {
    let (mut same, mut wrong, mut used) = (0, Vec::new(), BTreeSet::new());
    for register in ours.keys().chain(theirs.keys()).collect::<BTreeSet<_>>() {
        let (kinds, shown): (&[Difference], _) = match (ours.get(register), theirs.get(register)) {
            (Some(a), Some(b)) if a == b => {
                same += 1;
                continue;
            }
            (Some(a), Some(b)) => (
                &[Difference::Value, Difference::AtTimes, Difference::Address],
                format!("{a:#x}, ib_qib {b:#x}"),
            ),
            (Some(a), None) => (&[Difference::Ours], format!("{a:#x}, ib_qib does not write it")),
            (None, b) => {
                (&[Difference::Theirs], format!("not written, ib_qib {:#x}", b.copied().unwrap_or(0)))
            }
        };
        let row = allowed.iter().position(|(name, kind)| names(name, register) && kinds.contains(kind));
        match row {
            Some(row) => {
                used.insert(row);
            }
            None => wrong.push(format!("{register}: qhca {shown}")),
        }
    }
    for (row, (name, kind)) in allowed.iter().enumerate() {
        if !used.contains(&row) && *kind != Difference::AtTimes {
            wrong.push(format!("{name} ({kind:?}) is listed and does not differ"));
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("; "));
    ensure!(same > 50, "only {same} registers were compared");
    Ok(format!("{same} registers hold the same, {} differ as docs/chip/bringup-diff.md says", used.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(pairs: &[(&str, u64)]) -> BTreeMap<String, u64> {
        let many = (0..60).map(|n| (format!("Same{n}"), n));
        pairs.iter().map(|(name, value)| ((*name).to_owned(), *value)).chain(many).collect()
    }

    #[test]
    fn a_difference_that_is_not_listed_and_a_line_that_is_stale_are_told() {
        let why = "because of a reason that is long enough to say something";
        let listed = allowed(&format!(
            "| `A_*` | value | {why} |\n| B | only qhca | {why} |\n| C | value | short |\n"
        ));
        assert_eq!(listed.len(), 2, "a reason that says nothing does not count");
        let (ours, theirs) = (values(&[("A_0", 1), ("B", 2)]), values(&[("A_0", 3)]));
        assert!(compare(&ours, &theirs, &listed).is_ok());
        let more = values(&[("A_0", 3), ("D", 1)]);
        assert!(
            matches!(compare(&ours, &more, &listed), Err(Stop::Failed(why)) if why.contains("D: qhca not written"))
        );
        let momentary = allowed(&format!("| A | value, at times | {why} |\n"));
        for theirs in [1, 2] {
            assert!(compare(&values(&[("A", 1)]), &values(&[("A", theirs)]), &momentary).is_ok());
        }
        let same = values(&[("A_0", 1)]);
        assert!(matches!(compare(&ours, &same, &listed), Err(Stop::Failed(why)) if why.contains("A_*")));
    }

    #[test]
    fn the_document_has_a_table() {
        assert!(allowed(ALLOWED).len() > 10);
    }
}
