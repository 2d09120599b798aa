//! Two processes: a server without a host argument, and a client with one.
//!
//! They find each other over TCP and speak in lines of JSON, one object a line:
//!
//! ```text
//!   client                                    server
//!   {"tool", "transport", "qps", ..., "end"} ─►
//!                                          ◄─ {"end"} or {"error"}
//!   {"job": {"bytes", "iterations", ...}}   ─►     for each size, and each probe of one
//!                                          ◄─ {"ready"}
//!        ... messages over the fabric ...
//!   {"done": messages}                      ─►
//!                                          ◄─ {"ok", figures} or {"error"}
//!   {"bye"}                                 ─►
//! ```
//!
//! Both turn their ports while they wait for a line, or nobody would answer for them.

use super::options::Wanted;
use super::pair::{open_port, wait_until_active};
use super::{Bench, table};
use crate::fail::{Failure, Status};
use crate::ui::Ui;
use qhca::verbs::perf::{
    Bandwidth, End, EndName, Job, Latency, PerfError, PingPong, Side, Streamer, Verify, drive,
};
use qhca::verbs::port::Turn;
use qhca::verbs::{Key, MemoryRegion, Psn, QpNumber};
use qhca::{Device, Duration, Lid, VerbsPort};
use serde_json::{Value, json};
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};

/// How long a line of the other side may take.
const ANSWER_WITHIN: Duration = Duration::from_secs(60);
/// Bytes of a line at most: names of 4096 queue pairs fit.
const LINE_MAX: usize = 1 << 20;
/// How long the port rests between two looks for a line.
const REST: Duration = Duration::from_millis(1);

/// A connection in lines, beside a port that is turned.
struct Lines {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Lines {
    fn new(stream: TcpStream) -> Result<Self, PerfError> {
        let set = stream.set_nonblocking(true).and_then(|()| stream.set_nodelay(true));
        set.map_err(|e| told(format!("the TCP connection: {e}")))?;
        Ok(Self { stream, buffer: Vec::new() })
    }

    fn send(&mut self, value: &Value) -> Result<(), PerfError> {
        let mut line = value.to_string().into_bytes();
        line.push(b'\n');
        let mut rest = &line[..];
        let begun = std::time::Instant::now();
        while !rest.is_empty() {
            match self.stream.write(rest) {
                Ok(count) => rest = &rest[count..],
                Err(e) if e.kind() == ErrorKind::WouldBlock && begun.elapsed().as_secs() < 10 => {
                    std::thread::yield_now();
                }
                Err(e) => return Err(told(format!("the other side does not take more: {e}"))),
            }
        }
        Ok(())
    }

    /// A line, if there is a whole one.
    fn poll(&mut self) -> Result<Option<Value>, PerfError> {
        let mut chunk = [0; 4096];
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                let value: Value = serde_json::from_slice(&line)
                    .map_err(|e| told(format!("the other side sent no line of ours: {e}")))?;
                return match value.get("error").and_then(Value::as_str) {
                    Some(error) => Err(told(format!("the other side: {error}"))),
                    None => Ok(Some(value)),
                };
            }
            match self.stream.read(&mut chunk) {
                Ok(0) => return Err(told("the other side has closed the connection".to_owned())),
                Ok(count) => self.buffer.extend_from_slice(&chunk[..count]),
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(e) => return Err(told(format!("the other side is lost: {e}"))),
            }
            if self.buffer.len() > LINE_MAX {
                return Err(told("the other side sends no line of ours".to_owned()));
            }
        }
    }

    /// The next line; the port is turned until it comes.
    fn wait(&mut self, port: &mut VerbsPort) -> Result<Value, PerfError> {
        let begun = port.control().now();
        loop {
            if let Some(value) = self.poll()? {
                return Ok(value);
            }
            let now = port.control().now();
            if port.turn(now).is_idle() {
                port.rest(REST);
            }
            if now.since(begun) > ANSWER_WITHIN {
                return Err(told(format!("the other side has not answered in {ANSWER_WITHIN}")));
            }
        }
    }
}

fn told(text: String) -> PerfError {
    PerfError::Told(text)
}

/// What both must agree on.
fn agreement(wanted: &Wanted) -> Value {
    json!({
        "tool": wanted.tool.name(), "transport": wanted.service_name(), "qps": wanted.qps,
        "mtu": wanted.mtu.bytes(), "both": wanted.both, "sizes": wanted.sizes,
    })
}

fn end_to_json(name: &EndName) -> Value {
    let qps: Vec<[u32; 2]> = name.qps.iter().map(|(qp, psn)| [qp.get(), psn.get()]).collect();
    json!({
        "lid": name.lid.0, "qps": qps, "rkey": name.region.rkey.0, "addr": name.region.addr,
        "len": name.region.len_bytes, "slot_bytes": name.slot_bytes, "slots": name.slots,
    })
}

fn end_of_json(value: &Value) -> Option<EndName> {
    let number = |name: &str| value.get(name)?.as_u64();
    let short = |name: &str| u32::try_from(number(name)?).ok();
    let pair = |pair: &Value| {
        let at = |at: usize| u32::try_from(pair.get(at)?.as_u64()?).ok();
        Some((QpNumber::new(at(0)?), Psn::new(at(1)?)))
    };
    let rkey = Key(short("rkey")?);
    let region = MemoryRegion { lkey: rkey, rkey, addr: number("addr")?, len_bytes: number("len")? };
    Some(EndName {
        lid: Lid(u16::try_from(number("lid")?).ok()?),
        qps: value.get("qps")?.as_array()?.iter().map(pair).collect::<Option<_>>()?,
        region,
        slot_bytes: number("slot_bytes")?,
        slots: short("slots")?,
    })
}

fn open_side(wanted: &Wanted) -> Result<Side<VerbsPort>, Failure> {
    let card = Device::open(&wanted.device)
        .map_err(|e| Failure::new(Status::Missing, format!("-d {}: {e}", wanted.device)))?;
    let mut port = open_port(card, wanted.port, wanted.sm)?;
    wait_until_active(std::slice::from_mut(&mut port))?;
    let end = End::open(port.engine(), &wanted.end_setup(), Psn::new(0))
        .map_err(|e| super::failure(wanted, 0, &e))?;
    Ok(Side { port, end })
}

fn connect(side: &mut Side<VerbsPort>, peer: &Value, wanted: &Wanted) -> Result<EndName, PerfError> {
    let peer = peer.get("end").and_then(end_of_json);
    let peer = peer.ok_or_else(|| told("the other side does not say where it is".to_owned()))?;
    let now = side.port.control().now();
    side.end.connect(side.port.engine(), &peer, &wanted.connect(), now)?;
    Ok(peer)
}

/// The side that asks for the measurements.
pub(super) struct Client {
    side: Side<VerbsPort>,
    lines: Lines,
    peer: EndName,
}

impl Client {
    /// Finds the server and connects the ends.
    pub(super) fn connect(host: &str, wanted: &Wanted, ui: &Ui) -> Result<Self, Failure> {
        let stream = TcpStream::connect((host, wanted.tcp_port)).map_err(|e| {
            Failure::new(Status::Missing, format!("{host}:{}: {e}", wanted.tcp_port))
                .remedy("run the same command there first, without a host and with the same -p")
        })?;
        ui.detail(&format!("{host} answers; bringing up {}", wanted.device));
        let mut side = open_side(wanted)?;
        let meet = || -> Result<(Lines, EndName), PerfError> {
            let mut lines = Lines::new(stream)?;
            let mut hello = agreement(wanted);
            hello["end"] = end_to_json(side.end.name());
            lines.send(&hello)?;
            let answer = lines.wait(&mut side.port)?;
            let peer = connect(&mut side, &answer, wanted)?;
            Ok((lines, peer))
        };
        let (lines, peer) = { meet }().map_err(|e| super::failure(wanted, 0, &e))?;
        Ok(Self { side, lines, peer })
    }

    fn begin(&mut self, job: &Job) -> Result<(), PerfError> {
        self.lines.send(&json!({"job": {
            "bytes": job.bytes, "iterations": job.iterations,
            "duration_ns": job.duration.map(Duration::as_nanos), "moderation": job.moderation,
            "inline": job.inline,
        }}))?;
        self.lines.wait(&mut self.side.port).map(|_ready| ())
    }

    fn finish(&mut self, done: u64) -> Result<Value, PerfError> {
        self.lines.send(&json!({"done": done}))?;
        self.lines.wait(&mut self.side.port)
    }
}

impl Bench for Client {
    fn addresses(&self) -> String {
        table::addresses(self.side.end.name(), &self.peer)
    }

    fn bandwidth(&mut self, job: &Job) -> Result<Bandwidth, PerfError> {
        self.begin(job)?;
        let device = self.side.port.control().clone();
        let clock = move || device.now();
        let Side { port, end } = &mut self.side;
        let mut poster = Streamer::new(end, port.engine(), job, true, clock())?;
        drive(port, &mut poster, job, &clock, || Ok(true))?;
        poster.verify_last()?;
        if job.both {
            poster.verify_taken()?;
        }
        let (mut figures, count) = (poster.figures(), poster.count());
        let other = self.finish(count)?;
        if job.both {
            let of = |name: &str| other.get(name).and_then(Value::as_f64).unwrap_or(0.0);
            figures.average_mb_s += of("average_mb_s");
            figures.peak_mb_s += of("peak_mb_s");
            figures.msg_rate_mpps += of("msg_rate_mpps");
        }
        Ok(figures)
    }

    fn latency(&mut self, job: &Job) -> Result<Latency, PerfError> {
        self.begin(job)?;
        let device = self.side.port.control().clone();
        let clock = move || device.now();
        let Side { port, end } = &mut self.side;
        let mut first = PingPong::new(end, port.engine(), job, true, clock())?;
        drive(port, &mut first, job, &clock, || Ok(true))?;
        first.verify_last()?;
        let (figures, count) = (first.figures(clock()), first.count());
        self.finish(count)?;
        Ok(figures)
    }

    fn end(&mut self) -> Result<(), PerfError> {
        self.lines.send(&json!({"bye": true}))
    }
}

/// The side that answers, until the client has had enough.
pub(super) fn serve(wanted: &Wanted, ui: &Ui) -> Result<Status, Failure> {
    let address = ("0.0.0.0", wanted.tcp_port);
    let listener = TcpListener::bind(address).map_err(|e| {
        Failure::new(Status::Missing, format!("TCP port {}: {e}", wanted.tcp_port))
            .remedy("end the program that has the port, or take another with -p on both sides")
    })?;
    if !ui.json {
        ui.text(table::WAITING)?;
    }
    let (stream, from) = listener
        .accept()
        .map_err(|e| Failure::new(Status::Missing, format!("TCP port {}: {e}", wanted.tcp_port)))?;
    ui.detail(&format!("{from} is the client; bringing up {}", wanted.device));
    let mut side = open_side(wanted)?;
    let mut lines = Lines::new(stream).map_err(|e| super::failure(wanted, 0, &e))?;
    match answer(&mut side, &mut lines, wanted, ui) {
        Ok(()) => Ok(Status::Done),
        Err(error) => {
            // The client may be gone already.
            let (Ok(()) | Err(_)) = lines.send(&json!({"error": error.to_string()}));
            Err(super::failure(wanted, 0, &error))
        }
    }
}

fn answer(side: &mut Side<VerbsPort>, lines: &mut Lines, wanted: &Wanted, ui: &Ui) -> Result<(), PerfError> {
    let hello = lines.wait(&mut side.port)?;
    for (name, ours) in agreement(wanted).as_object().into_iter().flatten() {
        if hello.get(name) != Some(ours) {
            let theirs = hello.get(name).unwrap_or(&Value::Null);
            return Err(told(format!(
                "{name} is {theirs} there and {ours} here: give both the same options"
            )));
        }
    }
    let peer = connect(side, &hello, wanted)?;
    lines.send(&json!({"end": end_to_json(side.end.name())}))?;
    let printed =
        ui.json || ui.text(&table::banner(wanted, &table::addresses(side.end.name(), &peer))).is_ok();
    loop {
        let line = lines.wait(&mut side.port)?;
        let Some(job) = line.get("job") else { break };
        let job = job_of(job, wanted).ok_or_else(|| told("a job without sense".to_owned()))?;
        answer_job(side, lines, wanted, &job)?;
    }
    if !printed {
        return Err(told("the banner could not be printed".to_owned()));
    }
    Ok(())
}

fn job_of(value: &Value, wanted: &Wanted) -> Option<Job> {
    let number = |name: &str| value.get(name)?.as_u64();
    let short = |name: &str| u32::try_from(number(name)?).ok();
    let bytes = short("bytes").filter(|bytes| wanted.sizes.contains(bytes))?;
    Some(Job {
        bytes,
        iterations: short("iterations")?,
        duration: number("duration_ns").map(Duration::from_nanos),
        moderation: short("moderation")?,
        inline: short("inline")?,
        verify: Verify::Last,
        ..wanted.job(bytes)
    })
}

fn answer_job(
    side: &mut Side<VerbsPort>,
    lines: &mut Lines,
    wanted: &Wanted,
    job: &Job,
) -> Result<(), PerfError> {
    let device = side.port.control().clone();
    let clock = move || device.now();
    let Side { port, end } = side;
    let mut done = None;
    let told_done = |lines: &mut Lines, done: &mut Option<u64>| -> Result<bool, PerfError> {
        if done.is_none() {
            *done = lines.poll()?.and_then(|line| line.get("done")?.as_u64());
        }
        Ok(done.is_some())
    };
    let mut answer = json!({"ok": true});
    if wanted.tool.is_latency() {
        let mut second = PingPong::new(end, port.engine(), job, false, clock())?;
        lines.send(&json!({"ready": true}))?;
        drive(port, &mut second, job, &clock, || told_done(lines, &mut done))?;
        second.verify_last()?;
    } else {
        let mut taker = Streamer::new(end, port.engine(), job, false, clock())?;
        lines.send(&json!({"ready": true}))?;
        drive(port, &mut taker, job, &clock, || told_done(lines, &mut done))?;
        taker.verify_taken()?;
        taker.verify_written(done.unwrap_or(0))?;
        if job.both {
            taker.verify_last()?;
            let seen = taker.figures();
            answer["average_mb_s"] = json!(seen.average_mb_s);
            answer["peak_mb_s"] = json!(seen.peak_mb_s);
            answer["msg_rate_mpps"] = json!(seen.msg_rate_mpps);
        }
    }
    lines.send(&answer)
}
