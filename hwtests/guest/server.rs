//! The simulated cards of a run: one `qhca sim serve`, and what can be asked of it while guests use it.

use crate::fail::Stop;
use crate::process::Process;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// TIMEOUT: the server opens its sockets at once.
const OPEN_LIMIT: Duration = Duration::from_secs(30);
const ASK_EVERY: Duration = Duration::from_millis(20);
const REMEDY: &str = "cargo build --release -p qhca-cli";

/// A running server.
pub(crate) struct Server {
    process: Process,
    sockets: Vec<PathBuf>,
    log: PathBuf,
}

impl Server {
    /// Serves `cards` simulated cards; `logs` gets what the server says.
    pub(crate) fn start(
        qhca: &Path,
        cards: usize,
        arguments: &[&str],
        sockets: &Path,
        logs: &Path,
    ) -> Result<Self, Stop> {
        let names = ('a'..='z').take(cards).map(|name| sockets.join(name.to_string()));
        let mut server = Command::new("nice");
        server.args(["-n", "-5"]).arg(qhca).args(["-v", "sim", "serve"]).args(arguments);
        let sockets: Vec<PathBuf> = names.collect();
        for socket in &sockets {
            // A socket that an earlier run left would be taken for this one's.
            let _ = std::fs::remove_file(socket);
            server.arg("--socket").arg(socket);
        }
        let log = logs.join("server.log");
        let file = File::create(&log).map_err(|error| Stop::file(&log, &error))?;
        server.stdin(Stdio::null()).stdout(Stdio::null()).stderr(file);
        let process = Process::start(&mut server, REMEDY)?;
        let mut server = Self { process, sockets, log };
        server.opened()?;
        Ok(server)
    }

    /// The socket of a card.
    pub(crate) fn socket(&self, card: usize) -> PathBuf {
        self.sockets[card].clone()
    }

    /// Processor time that the server has used, ns.
    pub(crate) fn cpu_ns(&mut self) -> Result<u64, Stop> {
        let path = format!("/proc/{}/schedstat", self.process.child().id());
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let first = text.split_whitespace().next().and_then(|word| word.parse().ok());
        first.ok_or_else(|| Stop::Lost(format!("{path} says {text:?}")))
    }

    /// Whether the server still runs; if not, what it said last.
    pub(crate) fn alive(&mut self) -> Result<(), Stop> {
        match self.process.ended() {
            None => Ok(()),
            Some(status) => {
                let said = std::fs::read_to_string(&self.log).unwrap_or_default();
                let last = said.lines().last().unwrap_or_default();
                Err(Stop::Lost(format!("the server ended with {status}: {last}")))
            }
        }
    }

    fn opened(&mut self) -> Result<(), Stop> {
        let deadline = Instant::now() + OPEN_LIMIT;
        while !self.sockets.iter().all(|socket| socket.exists()) {
            self.alive()?;
            if Instant::now() > deadline {
                return Err(Stop::Lost("the server did not open its sockets".to_owned()));
            }
            thread::sleep(ASK_EVERY);
        }
        Ok(())
    }
}
