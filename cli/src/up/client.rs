//! Asking the process that holds a device.

use super::place;
use super::question::{ANSWER_BYTES, Events, OFFSETS_MAX, Question};
use crate::fail::{Failure, Status};
use qhca::Spec;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// How long an answer may take. TIMEOUT: ours; a holder answers within 50 ms, and one that hangs is to be told as such.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// What a held device is called on a command line.
pub(crate) const PREFIX: &str = "up:";

/// A connection to the process that holds a device.
#[derive(Debug)]
pub(crate) struct Client {
    socket: BufReader<UnixStream>,
    name: String,
}

/// The process that holds `device`: of `up:NAME` always, of a card or a socket if one does. A simulated device is made
/// anew for each command, so nobody else holds it.
pub(crate) fn holder_for(device: &str) -> Result<Option<Client>, Failure> {
    if let Some(name) = device.strip_prefix(PREFIX) {
        return connect(name).transpose().unwrap_or_else(|| Err(nobody(name))).map(Some);
    }
    match device.parse::<Spec>() {
        Ok(spec @ (Spec::Pci { .. } | Spec::VfioUser(_))) => connect(&place::name_of(&spec)),
        _ => Ok(None),
    }
}

fn nobody(name: &str) -> Failure {
    let names: Vec<String> = place::held_names().into_iter().map(|name| format!("{PREFIX}{name}")).collect();
    let remedy = match names.is_empty() {
        true => "hold one: `qhca up -d DEV`".to_owned(),
        false => format!("valid: {}", names.join(", ")),
    };
    Failure::new(Status::Missing, format!("no `qhca up` holds {name}")).remedy(remedy)
}

/// `None` if there is no socket, or one that a process left behind when it was killed.
fn connect(name: &str) -> Result<Option<Client>, Failure> {
    let Some(path) = place::find_socket(name) else { return Ok(None) };
    let failed = |error: std::io::Error| {
        let remedy = match error.kind() {
            ErrorKind::PermissionDenied => {
                "it is another user's: ask them for `qhca up --group GROUP` with a group of yours"
            }
            _ => "see whether the process still runs: `qhca list`",
        };
        Failure::new(Status::Missing, format!("{}: {error}", path.display())).remedy(remedy)
    };
    let socket = match UnixStream::connect(&path) {
        Err(error) if matches!(error.kind(), ErrorKind::ConnectionRefused | ErrorKind::NotFound) => {
            return Ok(None);
        }
        connected => connected.map_err(failed)?,
    };
    socket.set_read_timeout(Some(ANSWER_WITHIN)).map_err(failed)?;
    socket.set_write_timeout(Some(ANSWER_WITHIN)).map_err(failed)?;
    Ok(Some(Client { socket: BufReader::new(socket), name: name.to_owned() }))
}

impl Client {
    /// Asks, and waits for the answer.
    pub(crate) fn ask<T: DeserializeOwned>(&mut self, question: &Question) -> Result<T, Failure> {
        let broken = |what: String| {
            Failure::new(Status::Device, format!("{PREFIX}{}: {what}", self.name))
                .remedy("see whether the process that holds it still runs and is of this version")
        };
        let mut line = serde_json::to_vec(question).map_err(|error| broken(error.to_string()))?;
        line.push(b'\n');
        self.socket.get_mut().write_all(&line).map_err(|error| broken(error.to_string()))?;
        let mut answer = Vec::new();
        let read = self.socket.by_ref().take(ANSWER_BYTES as u64).read_until(b'\n', &mut answer);
        read.map_err(|error| broken(error.to_string()))?;
        if answer.last() != Some(&b'\n') {
            return Err(broken(format!("its answer ends after {} bytes without a line's end", answer.len())));
        }
        let mut value: Value = serde_json::from_slice(&answer).map_err(|error| broken(error.to_string()))?;
        match value["ok"].as_bool() {
            Some(true) => {
                serde_json::from_value(value["result"].take()).map_err(|error| broken(error.to_string()))
            }
            _ => {
                let why = value["error"].as_str().unwrap_or("it does not say why it refuses");
                let status = if value["code"] == 2 { Status::BadInput } else { Status::Device };
                Err(Failure::new(status, format!("{PREFIX}{}: {why}", self.name)))
            }
        }
    }

    /// The contents of the registers at `offsets`, in their order.
    pub(crate) fn read(&mut self, offsets: &[u32]) -> Result<Vec<u64>, Failure> {
        let mut values = Vec::with_capacity(offsets.len());
        for some in offsets.chunks(OFFSETS_MAX) {
            let words: Vec<String> = self.ask(&Question::Read { offsets: some.to_vec() })?;
            let parsed =
                words.iter().filter_map(|word| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok());
            values.extend(parsed);
        }
        match values.len() == offsets.len() {
            true => Ok(values),
            false => {
                Err(Failure::new(Status::Device, format!("{PREFIX}{}: it left registers out", self.name)))
            }
        }
    }

    /// The events from number `from` on.
    pub(crate) fn events(&mut self, from: u64) -> Result<Events, Failure> {
        self.ask(&Question::Events { from })
    }
}
