//! The simulated cards of a run: one `qhca sim serve`, and what can be asked of it while guests use it.

use crate::fail::Stop;
use crate::process::{self, Process};
use qhca_sim::control::{Client, Order};
use serde_json::Value;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

/// TIMEOUT: the server opens its sockets at once.
const OPEN_LIMIT: Duration = Duration::from_secs(30);
const ASK_EVERY: Duration = Duration::from_millis(20);

/// A running server.
pub(crate) struct Server {
    process: Process,
    sockets: Vec<PathBuf>,
    control: PathBuf,
    log: PathBuf,
}

impl Server {
    /// Serves `cards` simulated cards; `logs` gets what the server says.
    pub(crate) fn start(
        qhca: &Path,
        cards: usize,
        arguments: &[&str],
        sockets_folder: &Path,
        logs: &Path,
    ) -> Result<Self, Stop> {
        let names = ('a'..='z').take(cards).map(|name| sockets_folder.join(name.to_string()));
        let mut server = process::tethered("nice");
        server.args(["-n", "-5"]).arg(qhca).args(["-v", "sim", "serve"]).args(arguments);
        let sockets: Vec<PathBuf> = names.collect();
        for socket in &sockets {
            // A socket that an earlier run left would be taken for this one's.
            let _ = std::fs::remove_file(socket);
            server.arg("--socket").arg(socket);
        }
        let control = sockets_folder.join("control");
        // As above.
        let _ = std::fs::remove_file(&control);
        server.arg("--control").arg(&control);
        let log = logs.join("server.log");
        let file = File::create(&log).map_err(|error| Stop::file(&log, &error))?;
        server.stdin(Stdio::null()).stdout(Stdio::null()).stderr(file);
        let process = Process::start(&mut server, process::TETHER_REMEDY)?;
        let mut server = Self { process, sockets, control, log };
        server.opened()?;
        Ok(server)
    }

    /// The socket of a card.
    pub(crate) fn socket(&self, card: usize) -> PathBuf {
        self.sockets[card].clone()
    }

    /// Gives an order, in the words of `qhca sim ctl`, and returns what there is to say about it.
    pub(crate) fn order(&mut self, words: &str) -> Result<Value, Stop> {
        let failed = |why: String| Stop::Lost(format!("order `{words}`: {why}"));
        let order: Order = words.parse().map_err(|error| failed(format!("{error}")))?;
        let mut client = Client::connect(&self.control).map_err(|error| failed(error.to_string()))?;
        client.ask(&order).map_err(|error| failed(error.to_string()))
    }

    /// A register of card a, as software would read it.
    pub(crate) fn register(&mut self, name: &str) -> Result<u64, Stop> {
        let value = self.order(&format!("read a {name}"))?["value"].take();
        let digits = value.as_str().and_then(|text| text.strip_prefix("0x"));
        digits
            .and_then(|digits| u64::from_str_radix(digits, 16).ok())
            .ok_or_else(|| Stop::Lost(format!("{name} reads {value}")))
    }

    /// Processor time that the server has used, ns.
    pub(crate) fn cpu_ns(&mut self) -> Result<u64, Stop> {
        let stats = self.order("stats")?;
        let part = |name: &str| stats[name].as_u64();
        part("cpu_user_ns")
            .zip(part("cpu_system_ns"))
            .map(|(user, system)| user + system)
            .ok_or_else(|| Stop::Lost(format!("the server's statistics are {stats}")))
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
        while !self.sockets.iter().chain([&self.control]).all(|socket| socket.exists()) {
            self.alive()?;
            if Instant::now() > deadline {
                return Err(Stop::Lost("the server did not open its sockets".to_owned()));
            }
            thread::sleep(ASK_EVERY);
        }
        Ok(())
    }
}
