//! What is printed: one line a check on stdout, what goes on on stderr, and the sum at the end.

use crate::fail::{Stop, Verdict};
use std::time::Instant;

/// The checks of all scenarios so far.
#[derive(Debug)]
pub(crate) struct Report {
    scenario: String,
    begun: Instant,
    passed: usize,
    failed: Vec<String>,
    missing: Option<Stop>,
    /// Lines of the summary: versions and figures.
    notes: Vec<String>,
}

impl Report {
    /// Nothing checked yet.
    pub(crate) fn new() -> Self {
        let (scenario, failed, notes) = (String::new(), Vec::new(), Vec::new());
        Self { scenario, begun: Instant::now(), passed: 0, failed, missing: None, notes }
    }

    /// What follows belongs to `scenario`.
    pub(crate) fn begin(&mut self, scenario: &str) {
        scenario.clone_into(&mut self.scenario);
        self.progress("begins");
    }

    /// Says on stderr what goes on.
    pub(crate) fn progress(&self, what: &str) {
        eprintln!("guest: {:6.1} s  {}: {what}", self.begun.elapsed().as_secs_f64(), self.scenario);
    }

    /// Keeps a line for the summary.
    pub(crate) fn note(&mut self, line: impl Into<String>) {
        let line = line.into();
        if !self.notes.contains(&line) {
            self.notes.push(line);
        }
    }

    /// Prints how a check ended. An error is returned only if nothing after it can be checked.
    pub(crate) fn check(&mut self, name: &str, verdict: Verdict) -> Result<(), Stop> {
        let at = self.begun.elapsed().as_secs_f64();
        match verdict {
            Ok(seen) => {
                self.passed += 1;
                println!("{at:7.1} pass {} {name}: {seen}", self.scenario);
                Ok(())
            }
            Err(Stop::Failed(why)) => {
                self.fail(name, &why);
                Ok(())
            }
            Err(stop) => Err(stop),
        }
    }

    /// Takes what ended a scenario before its last check.
    pub(crate) fn ended(&mut self, stop: Stop) {
        match stop {
            Stop::Missing { .. } => {
                println!("missing {}: {stop}", self.scenario);
                self.missing.get_or_insert(stop);
            }
            Stop::Failed(why) | Stop::Lost(why) => self.fail("ran-to-its-end", &why),
        }
    }

    fn fail(&mut self, name: &str, why: &str) {
        let at = self.begun.elapsed().as_secs_f64();
        println!("{at:7.1} FAIL {} {name}: {why}", self.scenario);
        self.failed.push(format!("{} {name}", self.scenario));
    }

    /// Prints the summary and gives the exit code: 0 passed, 1 a check failed, 3 something is missing.
    pub(crate) fn finish(&self) -> u8 {
        println!();
        for note in &self.notes {
            println!("{note}");
        }
        println!(
            "{} checks passed, {} failed, {:.0} s",
            self.passed,
            self.failed.len(),
            self.begun.elapsed().as_secs_f64()
        );
        for name in &self.failed {
            println!("failed: {name}");
        }
        if let Some(stop) = &self.missing {
            println!("missing: {stop}");
            return 3;
        }
        u8::from(!self.failed.is_empty() || self.passed == 0)
    }
}

impl Default for Report {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_check_lets_the_rest_run_and_fails_the_whole() {
        let mut report = Report::new();
        report.begin("unit");
        assert!(report.check("one", Ok("seen".to_owned())).is_ok());
        assert!(report.check("two", Err(Stop::Failed("wrong".to_owned()))).is_ok());
        assert_eq!(report.finish(), 1);
    }

    #[test]
    fn a_lost_guest_ends_the_scenario_and_a_missing_part_is_no_pass() {
        let mut report = Report::new();
        assert!(report.check("one", Err(Stop::Lost("gone".to_owned()))).is_err());
        report.ended(Stop::missing("QEMU", "fetch it"));
        assert_eq!(report.finish(), 3);
    }

    #[test]
    fn nothing_checked_is_no_pass() {
        assert_eq!(Report::new().finish(), 1);
    }
}
