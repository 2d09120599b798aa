//! `docs/virtual-hca.md`, done as it is written: every command of the page is run where the page says.
//!
//! A block of code that begins with `sh` and a place is typed there, line by line: `host` in a shell of this machine,
//! `server`, `guest-a` and `guest-b` in a terminal of their own that stays open, `in-a` and `in-b` at the prompts that
//! the latter two then show.

use crate::fail::{Stop, Verdict, ensure};
use crate::lab::{Lab, tree};
use crate::process::{self, Lines, Process};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::{ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

const PAGE: &str = include_str!("../../../docs/virtual-hca.md");
/// TIMEOUT: a command on the host may build the workspace.
const HOST_LIMIT: Duration = Duration::from_secs(1800);
/// TIMEOUT: a line typed at a guest's prompt, of which the slowest waits for the subnet manager.
const LINE_LIMIT: Duration = Duration::from_secs(300);
/// TIMEOUT: a guest boots in 5 to 10 s of an idle core.
const BOOT_LIMIT: Duration = Duration::from_secs(400);

/// A block of the page: where it is typed, and what.
#[derive(Debug, PartialEq, Eq)]
struct Block<'a> {
    place: &'a str,
    text: String,
}

/// Runs the scenario.
pub(super) fn run(lab: &mut Lab) -> Result<(), Stop> {
    let logs = lab.logs("page")?;
    let mut terminals = BTreeMap::new();
    let mut counts = BTreeMap::new();
    for block in blocks(PAGE) {
        let count = counts.entry(block.place).or_insert(0);
        *count += 1;
        let name = format!("{}-{count}", block.place);
        let verdict = match block.place {
            "host" => host(&block.text),
            "server" | "guest-a" | "guest-b" => open(&block, &logs).map(|terminal| {
                terminals.insert(block.place.to_owned(), terminal);
                "started".to_owned()
            }),
            place => type_in(&mut terminals, place, &block.text),
        };
        lab.report.check(&name, verdict)?;
    }
    let ping = terminals.get("guest-b").is_some_and(|terminal| {
        terminal.seen.contains("3 packets transmitted, 3 packets received, 0% packet loss")
    });
    let verdict: Verdict = match ping {
        true => Ok("3 of 3 packets came back".to_owned()),
        false => Err(Stop::Failed("the page's last ping was not answered three times".to_owned())),
    };
    lab.report.check("guests-ping-each-other", verdict)
}

/// The blocks of a page that name a place.
fn blocks(page: &str) -> Vec<Block<'_>> {
    let mut found = Vec::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        let Some(place) = line.strip_prefix("```sh ") else { continue };
        let body: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
        found.push(Block { place, text: body.join("\n") });
    }
    found
}

fn shell(text: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-e", "-c", text]).current_dir(tree());
    command
}

fn host(text: &str) -> Verdict {
    let ran = process::run(&mut shell(text), HOST_LIMIT, "a shell")?;
    let tail = ran.text.trim().lines().last().unwrap_or_default();
    ensure!(ran.status == 0, "ended with {}: {tail}", ran.status);
    Ok("done".to_owned())
}

/// A terminal that stays open: what is typed, and everything that it showed.
struct Terminal {
    // Dropped first: it ends what runs in the terminal.
    _process: Process,
    input: ChildStdin,
    lines: Lines,
    seen: String,
    log: File,
    typed: u32,
}

fn open(block: &Block<'_>, logs: &Path) -> Result<Terminal, Stop> {
    let path = logs.join(format!("{}.log", block.place));
    let log = File::create(&path).map_err(|error| Stop::file(&path, &error))?;
    let stderr = log.try_clone().map_err(|error| Stop::file(&path, &error))?;
    // The program takes the shell's place, so that ending the one ends the other.
    let text = block.text.replacen("eval \"", "eval \"exec ", 1);
    let mut command = process::tethered("sh");
    command.args(["-e", "-c", &text]).current_dir(tree());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(stderr);
    let mut process = Process::start(&mut command, process::TETHER_REMEDY)?;
    let ends = (process.child().stdin.take(), process.child().stdout.take());
    let (Some(input), Some(output)) = ends else {
        return Err(Stop::Lost("no pipes to a terminal".to_owned()));
    };
    let lines = Lines::of(output);
    let mut terminal = Terminal { _process: process, input, lines, seen: String::new(), log, typed: 0 };
    match block.place {
        // It opens its sockets at once.
        "server" => std::thread::sleep(Duration::from_secs(2)),
        _ => terminal.until("load: loads ib_qib", BOOT_LIMIT).map(drop)?,
    }
    Ok(terminal)
}

/// Types the lines of a block and waits for the end of each.
fn type_in(terminals: &mut BTreeMap<String, Terminal>, place: &str, text: &str) -> Verdict {
    let guest = place.replacen("in-", "guest-", 1);
    let terminal =
        terminals.get_mut(&guest).ok_or_else(|| Stop::Lost(format!("{place}: no terminal {guest}")))?;
    let lines: Vec<&str> = text.lines().collect();
    for line in &lines {
        terminal.line(line)?;
    }
    Ok(format!("{} lines", lines.len()))
}

impl Terminal {
    /// Types a line, and one more that shows how it ended.
    fn line(&mut self, text: &str) -> Result<(), Stop> {
        self.typed += 1;
        let mark = format!("ended-{}-", self.typed);
        // The shell puts the mark together, so that its echo of what was typed does not look like it.
        let typed = format!("{text}\necho end\"\"ed-{}-$?-\n", self.typed);
        self.input
            .write_all(typed.as_bytes())
            .map_err(|error| Stop::Lost(format!("`{text}` cannot be typed: {error}")))?;
        let line = self.until(&mark, LINE_LIMIT)?;
        let status = line.split(&mark).nth(1).and_then(|rest| rest.split('-').next()).unwrap_or_default();
        ensure!(status == "0", "`{text}` ended with {status}");
        Ok(())
    }

    /// Reads until a line holds `text`.
    fn until(&mut self, text: &str, limit: Duration) -> Result<String, Stop> {
        let deadline = Instant::now() + limit;
        loop {
            let line = match self.lines.next(deadline) {
                Ok(Some(line)) => line,
                Ok(None) => return Err(Stop::Lost(format!("{text:?} did not appear in time"))),
                Err(()) => return Err(Stop::Lost(format!("the terminal ended before {text:?} appeared"))),
            };
            self.seen.push_str(&line);
            self.seen.push('\n');
            // The record is for people; the run does not depend on it.
            let _ = writeln!(self.log, "{line}");
            if line.contains(text) {
                return Ok(line);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_with_a_place_are_taken_and_others_are_not() {
        let page = "text\n```sh host\na\nb\n```\n```text\nno\n```\n```sh in-a\nc\n```\n";
        let found = blocks(page);
        assert_eq!(found.len(), 2);
        assert_eq!((found[0].place, found[0].text.as_str()), ("host", "a\nb"));
        assert_eq!((found[1].place, found[1].text.as_str()), ("in-a", "c"));
    }

    #[test]
    fn the_page_says_where_each_command_is_typed() {
        let places: Vec<&str> = blocks(PAGE).iter().map(|block| block.place).collect();
        for place in ["host", "server", "guest-a", "guest-b", "in-a", "in-b"] {
            assert!(places.contains(&place), "{place} in {places:?}");
        }
        let known =
            |place: &&&str| !["host", "server", "guest-a", "guest-b", "in-a", "in-b"].contains(*place);
        assert_eq!(places.iter().find(known), None);
    }
}
