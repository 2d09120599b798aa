//! Other programs: run to their end within a bound, or kept running and ended when they are dropped.

use crate::fail::Stop;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

/// How often a program is asked whether it has ended.
const ASK_EVERY: Duration = Duration::from_millis(10);
/// The most of a program's complaint that is repeated, bytes.
const COMPLAINT_BYTES: usize = 2000;

/// A command for a program that must not outlive this one, however that ends: when the thread that starts it is gone,
/// the kernel kills it. The program takes the place of the one that asks for this, and so does what it calls by `exec`.
pub(crate) fn tethered(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).arg(program);
    command
}

/// What to do where there is none of the program that [`tethered`] calls.
pub(crate) const TETHER_REMEDY: &str = "apt-get install util-linux";

/// A program that is killed, it alone, when this is dropped.
pub(crate) struct Process {
    child: Child,
    name: String,
}

impl Process {
    /// Starts a program; `remedy` says what to do if there is none.
    pub(crate) fn start(command: &mut Command, remedy: &str) -> Result<Self, Stop> {
        let name = command.get_program().to_string_lossy().into_owned();
        let child = command.spawn().map_err(|error| Stop::missing(format!("{name}: {error}"), remedy))?;
        Ok(Self { child, name })
    }

    /// The running program.
    pub(crate) fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Its exit status, if it has ended.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Waits for its end; kills it when the time is over.
    pub(crate) fn wait(&mut self, limit: Duration) -> Result<ExitStatus, Stop> {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(status) = self.ended() {
                return Ok(status);
            }
            if Instant::now() > deadline {
                self.kill();
                return Err(Stop::Lost(format!("{} did not end within {} s", self.name, limit.as_secs())));
            }
            thread::sleep(ASK_EVERY);
        }
    }

    /// Ends it.
    pub(crate) fn kill(&mut self) {
        // It may have ended by itself in between: then there is nothing to kill, and waiting still reaps it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// What a program printed and how it ended.
pub(crate) struct Ran {
    pub(crate) status: i32,
    pub(crate) text: String,
}

/// Runs a program to its end and returns what it printed on stdout and stderr.
pub(crate) fn run(command: &mut Command, limit: Duration, remedy: &str) -> Result<Ran, Stop> {
    run_with_input(command.stdin(Stdio::null()), limit, remedy)
}

fn run_with_input(command: &mut Command, limit: Duration, remedy: &str) -> Result<Ran, Stop> {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = Process::start(command, remedy)?;
    let stdout = process.child().stdout.take().map(|out| thread::spawn(move || all(out)));
    let stderr = process.child().stderr.take().map(|err| thread::spawn(move || all(err)));
    let status = process.wait(limit)?;
    let [out, err] = [stdout, stderr].map(|t| t.and_then(|t| t.join().ok()).unwrap_or_default());
    Ok(Ran { status: status.code().unwrap_or(-1), text: out + &err })
}

/// Runs a program that must succeed; otherwise something is missing here, and `remedy` says what to do.
pub(crate) fn must(command: &mut Command, limit: Duration, remedy: &str) -> Result<String, Stop> {
    must_with_input(command.stdin(Stdio::null()), limit, remedy)
}

/// The same for a program whose input was set.
pub(crate) fn must_with_input(command: &mut Command, limit: Duration, remedy: &str) -> Result<String, Stop> {
    let ran = run_with_input(command, limit, remedy)?;
    if ran.status == 0 {
        return Ok(ran.text);
    }
    let program = command.get_program().to_string_lossy().into_owned();
    let from = ran.text.len().saturating_sub(COMPLAINT_BYTES);
    let tail: String = ran.text.chars().skip(from).collect();
    Err(Stop::missing(format!("{program} ended with {}: {}", ran.status, tail.trim()), remedy))
}

/// The file `name` in the folders of PATH.
pub(crate) fn on_path(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| Path::new(&folder).join(name).is_file())
}

fn all(mut from: impl Read) -> String {
    let mut bytes = Vec::new();
    // What was read before an error is what there is to say.
    let _ = from.read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Lines that a thread reads, with a deadline for each.
pub(crate) struct Lines {
    receiver: Receiver<String>,
}

impl Lines {
    /// Reads lines from `from` until it ends.
    pub(crate) fn of(from: impl Read + Send + 'static) -> Self {
        let (sender, receiver) = mpsc::channel();
        thread::spawn(move || {
            let mut from = BufReader::new(from);
            let mut line = Vec::new();
            while from.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
                let text = String::from_utf8_lossy(&line).trim_end_matches(['\r', '\n']).to_owned();
                line.clear();
                if sender.send(text).is_err() {
                    return;
                }
            }
        });
        Self { receiver }
    }

    /// The next line. `None`: the deadline is over. An error: there will be no more.
    pub(crate) fn next(&self, deadline: Instant) -> Result<Option<String>, ()> {
        match self.receiver.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(line) => Ok(Some(line)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_hangs_is_ended_at_its_bound() {
        let begun = Instant::now();
        let ran = run(Command::new("sleep").arg("60"), Duration::from_millis(50), "");
        assert!(matches!(ran, Err(Stop::Lost(_))));
        assert!(begun.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn a_program_that_is_not_there_is_missing_with_its_remedy() {
        let refused = run(&mut Command::new("qhca-no-such-program"), Duration::from_secs(1), "install it");
        assert!(matches!(refused, Err(Stop::Missing { remedy, .. }) if remedy == "install it"));
    }

    /// The first field behind the name in `/proc/PID/stat` says whether it still runs; a zombie does not.
    fn runs(pid: &str) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit(')').next().is_some_and(|rest| !matches!(rest.trim().get(..1), None | Some("Z" | "X")))
    }

    #[test]
    fn what_is_tethered_ends_when_its_starter_is_killed() {
        let tethered = tethered("sleep");
        let words: Vec<_> = tethered.get_args().map(|word| word.to_string_lossy().into_owned()).collect();
        let script = format!("{} {} 600 & echo $!; wait", tethered.get_program().display(), words.join(" "));
        let mut starter = Command::new("sh");
        starter.args(["-c", &script]).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut starter = Process::start(&mut starter, "a shell").expect("a shell");
        let lines = Lines::of(starter.child().stdout.take().expect("its output"));
        let soon = Instant::now() + Duration::from_secs(60);
        let pid = lines.next(soon).expect("a line").expect("in time");
        let name = || std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        // Until then the tether is not set.
        while name().trim() != "sleep" {
            assert!(Instant::now() < soon, "{pid} is {:?}", name());
            thread::sleep(ASK_EVERY);
        }
        assert!(runs(&pid));
        starter.kill();
        while runs(&pid) {
            assert!(Instant::now() < soon, "{pid} outlives its starter");
            thread::sleep(ASK_EVERY);
        }
    }

    #[test]
    fn lines_end_with_the_program() {
        let lines = Lines::of(&b"one\r\ntwo"[..]);
        let soon = Instant::now() + Duration::from_secs(10);
        assert_eq!(lines.next(soon), Ok(Some("one".to_owned())));
        assert_eq!(lines.next(soon), Ok(Some("two".to_owned())));
        assert_eq!(lines.next(soon), Err(()));
    }
}
