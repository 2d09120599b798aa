//! `qhca write-bw`, `read-lat` and their like: the perftest tools, on our own transport.
//!
//! Without a host two simulated HCAs with a cable between them are measured in this process. With a host this process
//! is the client of another that was started without one, on devices that share a fabric (`qhca sim serve`).
//! Options, columns and figures are those of perftest; what a word there means stands in `verbs/src/perf/`.

mod between;
mod options;
mod pair;
mod table;

use options::Wanted;
pub(crate) use options::{Args, SmChoice, mtu_of};
pub(crate) use pair::{open_cards, open_port, wait_until_active};

use crate::fail::{Failure, Status};
use crate::ui::Ui;
use qhca::verbs::perf::{Bandwidth, Job, Latency, PerfError, Verb, iterations_within};
use qhca::{Duration, Instant};

/// How long the messages of one size may take, unless told otherwise.
const SIZE_WITHIN: Duration = Duration::from_secs(2);
/// And how many they are at most.
const ITERATIONS_MAX: u32 = 5000;

/// One of the tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tool {
    WriteBw,
    ReadBw,
    SendBw,
    AtomicBw,
    WriteLat,
    ReadLat,
    SendLat,
    AtomicLat,
}

impl Tool {
    /// What it is called.
    fn name(self) -> &'static str {
        match self {
            Self::WriteBw => "write-bw",
            Self::ReadBw => "read-bw",
            Self::SendBw => "send-bw",
            Self::AtomicBw => "atomic-bw",
            Self::WriteLat => "write-lat",
            Self::ReadLat => "read-lat",
            Self::SendLat => "send-lat",
            Self::AtomicLat => "atomic-lat",
        }
    }

    fn is_latency(self) -> bool {
        matches!(self, Self::WriteLat | Self::ReadLat | Self::SendLat | Self::AtomicLat)
    }

    /// What it does; `swap` chooses between the atomics.
    fn verb(self, swap: bool) -> Verb {
        match self {
            Self::WriteBw | Self::WriteLat => Verb::Write,
            Self::ReadBw | Self::ReadLat => Verb::Read,
            Self::SendBw | Self::SendLat => Verb::Send,
            Self::AtomicBw | Self::AtomicLat if swap => Verb::CompareSwap,
            Self::AtomicBw | Self::AtomicLat => Verb::FetchAdd,
        }
    }
}

/// What one size came to.
enum Row {
    Bandwidth(Bandwidth),
    Latency(Latency),
}

/// Whoever measures: two ends in this process, or this one with another process.
trait Bench {
    /// The two addresses, as they are printed.
    fn addresses(&self) -> String;
    /// A stream.
    fn bandwidth(&mut self, job: &Job) -> Result<Bandwidth, PerfError>;
    /// A ping-pong.
    fn latency(&mut self, job: &Job) -> Result<Latency, PerfError>;
    /// It was the last.
    fn end(&mut self) -> Result<(), PerfError>;
}

/// Runs one of the tools.
pub(crate) fn run(tool: Tool, args: &Args, ui: &Ui) -> Result<Status, Failure> {
    let wanted = Wanted::new(tool, args)?;
    for warning in &wanted.warnings {
        ui.warning(warning);
    }
    if wanted.host.is_none() && !wanted.is_simulated() {
        return between::serve(&wanted, ui);
    }
    let mut bench: Box<dyn Bench> = match &wanted.host {
        None => Box::new(pair::Pair::open(&wanted, ui)?),
        Some(host) => Box::new(between::Client::connect(host, &wanted, ui)?),
    };
    measure(&wanted, bench.as_mut(), ui)
}

/// Every size in turn, a line for each as soon as it is done.
fn measure(wanted: &Wanted, bench: &mut dyn Bench, ui: &Ui) -> Result<Status, Failure> {
    if !ui.json {
        ui.text(&table::banner(wanted, &bench.addresses()))?;
    }
    let (mut rows, mut status) = (Vec::new(), Status::Done);
    for bytes in &wanted.sizes {
        let row = measure_size(wanted, bench, *bytes).map_err(|e| failure(wanted, *bytes, &e))?;
        if !ui.json {
            ui.text(&table::row(wanted, &row))?;
        }
        if let Some(why) = table::misses(wanted, &row) {
            ui.warning(&why);
            status = Status::CheckFailed;
        }
        rows.push(row);
    }
    bench.end().map_err(|e| failure(wanted, 0, &e))?;
    if ui.json {
        ui.json(&table::json(wanted, &rows))?;
    } else {
        ui.text(&table::end(wanted))?;
    }
    Ok(status)
}

fn measure_size(wanted: &Wanted, bench: &mut dyn Bench, bytes: u32) -> Result<Row, PerfError> {
    let mut job = wanted.job(bytes);
    let mut once = |job: &Job| match wanted.tool.is_latency() {
        true => bench.latency(job).map(Row::Latency),
        false => bench.bandwidth(job).map(Row::Bandwidth),
    };
    if let Some(iterations) = wanted.iterations {
        job.iterations = iterations;
    } else if job.duration.is_none() {
        let started = std::time::Instant::now();
        let clock = || Instant::from_nanos(started.elapsed().as_nanos() as u64);
        job.iterations = iterations_within(SIZE_WITHIN, ITERATIONS_MAX, &clock, |messages| {
            once(&Job { iterations: messages, ..job }).map(|_row| ())
        })?;
    }
    once(&job)
}

/// What a measurement that came to nothing means for the exit code.
fn failure(wanted: &Wanted, bytes: u32, error: &PerfError) -> Failure {
    let status = match error {
        PerfError::Content { .. } | PerfError::Atomic { .. } | PerfError::Failed(_) => Status::CheckFailed,
        PerfError::Memory(_) | PerfError::Register(_) => Status::Missing,
        PerfError::Late { .. } | PerfError::Gone => Status::Device,
        _ => Status::BadInput,
    };
    let what = match bytes {
        0 => format!("{}: {error}", wanted.tool.name()),
        bytes => format!("{}, {bytes} bytes: {error}", wanted.tool.name()),
    };
    let remedy = match error {
        PerfError::Late { .. } => {
            "see that the other end runs, and what `qhca port DEV:PORT` says of the link"
        }
        PerfError::Content { .. } => "run it again with --verify: it then names the message",
        _ => return Failure::new(status, what),
    };
    Failure::new(status, what).remedy(remedy)
}
