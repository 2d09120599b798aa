//! A guest: QEMU with one simulated card, and a line to the script in it that runs commands.
//!
//! ```text
//! first serial port    the kernel's console, into a file
//! second serial port   commands in, one a line; "@@begin N", what the command prints, "@@end N STATUS" out
//! ```
//!
//! Emulation shares two cores with everything else that a build machine does, so every bound here is generous: it is
//! there to end what hangs, not to measure.

use crate::fail::Stop;
use crate::process::{self, Lines, Process, Ran};
use qhca_hwtests::qemu;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

/// TIMEOUT: a guest boots in 5 to 10 s of an idle core.
const BOOT_LIMIT: Duration = Duration::from_secs(400);
/// TIMEOUT: over and above what a command may take in the guest, for the emulation being starved.
const SPARE: Duration = Duration::from_secs(120);
/// TIMEOUT: a guest that was told to power off does so within a second or two.
const OFF_LIMIT: Duration = Duration::from_secs(60);

/// A running guest.
pub(crate) struct Guest {
    name: String,
    process: Process,
    input: ChildStdin,
    lines: Lines,
    transcript: File,
    console: PathBuf,
    commands: u32,
}

/// A command that was sent and has not been waited for.
#[must_use]
pub(crate) struct Pending {
    number: u32,
    command: String,
    deadline: Instant,
}

impl Guest {
    /// Starts QEMU; `logs` gets the console and a transcript of the commands.
    pub(crate) fn start(
        mut qemu: Command,
        name: &str,
        machine: &qemu::Guest,
        logs: &Path,
    ) -> Result<Self, Stop> {
        let console = logs.join(format!("{name}.console"));
        let log = logs.join(format!("{name}.log"));
        let transcript = File::create(&log).map_err(|error| Stop::file(&log, &error))?;
        let stderr = transcript.try_clone().map_err(|error| Stop::file(&log, &error))?;
        qemu.args(machine.arguments());
        qemu.arg("-serial").arg(format!("file:{}", console.display())).args(["-serial", "stdio"]);
        // A little ahead of builds on the same cores: time passes in a guest whether it runs or not.
        let mut command = process::tethered("nice");
        command.args(["-n", "-5"]).arg(qemu.get_program()).args(qemu.get_args());
        for (key, value) in qemu.get_envs() {
            if let Some(value) = value {
                command.env(key, value);
            }
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(stderr);
        let mut process = Process::start(&mut command, process::TETHER_REMEDY)?;
        let ends = (process.child().stdin.take(), process.child().stdout.take());
        let (Some(input), Some(output)) = ends else {
            return Err(Stop::Lost(format!("{name}: no pipes to QEMU")));
        };
        let lines = Lines::of(output);
        Ok(Self { name: name.to_owned(), process, input, lines, transcript, console, commands: 0 })
    }

    /// Waits until the guest takes commands.
    pub(crate) fn booted(&mut self) -> Result<(), Stop> {
        let deadline = Instant::now() + BOOT_LIMIT;
        while self.line(deadline, "booting")? != "@@ready" {}
        Ok(())
    }

    /// Runs a command that must succeed, and returns what it printed.
    pub(crate) fn must(&mut self, command: &str, limit_s: u64) -> Result<String, Stop> {
        let pending = self.send(command, limit_s)?;
        self.finish_well(pending)
    }

    /// Sends a command; what it prints is read by [`Self::finish`].
    pub(crate) fn send(&mut self, command: &str, limit_s: u64) -> Result<Pending, Stop> {
        self.commands += 1;
        let number = self.commands;
        let command = command.replace('\n', " ");
        self.note(&format!("# {command}"));
        if let Err(error) = writeln!(self.input, "{number} {command}") {
            return Err(self.lost(&format!("does not take `{command}`: {error}")));
        }
        let deadline = Instant::now() + Duration::from_secs(limit_s) + SPARE;
        Ok(Pending { number, command, deadline })
    }

    /// Waits for the end of a command.
    pub(crate) fn finish(&mut self, pending: Pending) -> Result<Ran, Stop> {
        let begin = format!("@@begin {}", pending.number);
        let end = format!("@@end {} ", pending.number);
        while self.line(pending.deadline, &pending.command)? != begin {}
        let mut text = String::new();
        loop {
            let line = self.line(pending.deadline, &pending.command)?;
            // A program whose last line has no end shares that line with the marker.
            let Some((before, status)) = line.split_once(&end) else {
                text.push_str(&line);
                text.push('\n');
                continue;
            };
            text.push_str(before);
            let status = status.trim().parse().unwrap_or(-1);
            return Ok(Ran { status, text });
        }
    }

    /// Waits for the end of a command that must succeed.
    pub(crate) fn finish_well(&mut self, pending: Pending) -> Result<String, Stop> {
        let command = pending.command.clone();
        let ran = self.finish(pending)?;
        if ran.status == 0 {
            return Ok(ran.text);
        }
        let tail: Vec<&str> = ran.text.trim().lines().rev().take(6).collect();
        let tail: Vec<&str> = tail.into_iter().rev().collect();
        Err(Stop::Failed(format!("`{command}` ended with {}: {}", ran.status, tail.join(" | "))))
    }

    /// Powers the guest off and waits until it is.
    pub(crate) fn off(mut self) -> Result<(), Stop> {
        // Commands end with the guest; QEMU then ends with it.
        if writeln!(self.input, "0 poweroff -f").is_err() {
            return Err(self.lost("does not take the order to power off"));
        }
        self.process.wait(OFF_LIMIT).map(drop)
    }

    /// What the kernel printed on its console so far.
    pub(crate) fn console(&self) -> String {
        let bytes = std::fs::read(&self.console).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn line(&mut self, deadline: Instant, during: &str) -> Result<String, Stop> {
        match self.lines.next(deadline) {
            Ok(Some(line)) => {
                self.note(&line);
                Ok(line)
            }
            Ok(None) => Err(self.lost(&format!("no answer in time to `{during}`"))),
            Err(()) => Err(self.lost(&format!("QEMU ended during `{during}`"))),
        }
    }

    fn lost(&self, why: &str) -> Stop {
        let console = self.console();
        let tail: Vec<&str> = console.lines().rev().take(4).collect();
        let tail: Vec<&str> = tail.into_iter().rev().collect();
        Stop::Lost(format!("guest {}: {why}; its console ends: {}", self.name, tail.join(" | ")))
    }

    fn note(&mut self, line: &str) {
        // A full disk must not end the run: the checks do not depend on the transcript.
        let _ = writeln!(self.transcript, "{line}");
    }
}
