//! `qhca stress`: requests and acknowledges on many connections at once, in the columns of rds-stress.
//!
//! Two simulated HCAs in this process. Every payload carries a pattern that the other end checks.

use super::perf::{SmChoice, open_cards, open_port, wait_until_active};
use crate::fail::{Failure, Status};
use crate::ui::Ui;
use qhca::verbs::perf::{End, EndSetup, Exchange, Exchanged, PerfError, Stress};
use qhca::verbs::port::Turn;
use qhca::verbs::wire::Service;
use qhca::verbs::{Connect, Mtu, Psn, QpNumber};
use qhca::{Duration, Instant, Lid, Port, VerbsPort};
use serde::Serialize;
use std::fmt::Write;

/// How long nothing may happen.
const PATIENCE: Duration = Duration::from_secs(20);
const SECOND: Duration = Duration::from_secs(1);

/// Arguments of `qhca stress`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Connections
    #[arg(short, long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    tasks: u32,
    /// Requests under way on each
    #[arg(short, long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    depth: u32,
    /// Bytes of a request; K, M and G may follow
    #[arg(short = 'q', long, value_name = "BYTES", default_value = "1024", value_parser = parse_size)]
    request_bytes: u32,
    /// Bytes of an acknowledge
    #[arg(short, long, value_name = "BYTES", default_value = "16", value_parser = parse_size)]
    ack_bytes: u32,
    /// Say nothing on stderr but warnings and errors
    #[arg(long, id = "quiet")]
    quiet: bool,
    /// Only one end sends requests
    #[arg(short, long)]
    one_way: bool,
    /// For so many seconds
    #[arg(short = 'T', long = "run-time", value_name = "SECONDS", default_value_t = 5,
          value_parser = clap::value_parser!(u32).range(1..=86_400))]
    seconds: u32,
    /// The last line alone
    #[arg(short = 'z', long)]
    summary_only: bool,
    /// Device: `sim`, `sim:qle7340` or `sim:qle7342`
    #[arg(long, value_name = "DEV", default_value = "sim")]
    device: String,
    /// The micro subnet manager: if nobody better is there, whoever is there, or never
    #[arg(long, value_enum, default_value_t = SmChoice::Auto)]
    sm: SmChoice,
}

/// A size as it is typed.
fn parse_size(text: &str) -> Result<u32, String> {
    let (digits, shift) = match text.as_bytes().last() {
        Some(b'K' | b'k') => (&text[..text.len() - 1], 10),
        Some(b'M' | b'm') => (&text[..text.len() - 1], 20),
        Some(b'G' | b'g') => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    let size = digits.parse::<u64>().ok().and_then(|size| size.checked_shl(shift));
    let size = size.filter(|size| (1..=16 << 20).contains(size));
    size.map(|size| size as u32).ok_or_else(|| "no size; valid: 1 to 16M".to_owned())
}

/// One line.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Line {
    tasks: u32,
    tx_per_s: f64,
    rx_per_s: f64,
    kib_per_s: f64,
    mbi_kib_per_s: f64,
    mbo_kib_per_s: f64,
    tx_us: f64,
    rtt_us: f64,
    cpu_percent: f64,
}

#[derive(Serialize)]
struct Json {
    simulated: bool,
    request_bytes: u32,
    ack_bytes: u32,
    depth: u32,
    lines: Vec<Line>,
    average: Line,
}

/// Runs `qhca stress`.
pub(crate) fn run(args: &Args, ui: &Ui) -> Result<Status, Failure> {
    let (left, right) = open_cards(&args.device, Port::P0, true)?;
    let mode = args.sm.mode();
    let mut ports = [open_port(left, Port::P0, mode)?, open_port(right, Port::P0, mode)?];
    wait_until_active(&mut ports)?;
    let failed = |error: PerfError| {
        let status = match error {
            PerfError::Late { .. } | PerfError::Gone => Status::Device,
            PerfError::Memory(_) => Status::Missing,
            _ => Status::CheckFailed,
        };
        Failure::new(status, format!("stress: {error}"))
    };
    let setup = EndSetup {
        service: Service::Rc,
        qps: args.tasks,
        largest: args.request_bytes.max(args.ack_bytes),
        depth: 3 * args.depth,
        rx_depth: 2 * args.depth,
        inline: 0,
        shared_receives: false,
    };
    let [left, right] = &mut ports;
    let mut a = End::open(left.engine(), &setup, Psn::new(0)).map_err(failed)?;
    let mut b = End::open(right.engine(), &setup, Psn::new(0)).map_err(failed)?;
    if !a.has_a_slot_for_each() {
        let what = format!(
            "-t {} -d {} -q {}: too much memory for one run",
            args.tasks, args.depth, args.request_bytes
        );
        return Err(
            Failure::bad_input(what).remedy("tasks times depth times the larger size: at most 32 MiB")
        );
    }
    let (with, now) = (Connect::new(Lid(0), QpNumber::new(0), Mtu::B4096), left.control().now());
    a.connect(left.engine(), b.name(), &with, now).map_err(failed)?;
    b.connect(right.engine(), a.name(), &with, now).map_err(failed)?;
    let what = Exchanged {
        depth: args.depth,
        request_bytes: args.request_bytes,
        ack_bytes: args.ack_bytes,
        asks: true,
    };
    let mut asks = Stress::new(&mut a, left.engine(), what, now).map_err(failed)?;
    let answering = Exchanged { asks: !args.one_way, ..what };
    let mut answers = Stress::new(&mut b, right.engine(), answering, now).map_err(failed)?;
    if !ui.json {
        ui.text(&head(args))?;
    }
    let (mut lines, mut all) = (Vec::new(), Exchange::default());
    for _ in 0..args.seconds {
        let took = for_a_second((left, &mut asks), (right, &mut answers)).map_err(failed)?;
        let counts = asks.take_counts();
        answers.take_counts();
        let line = line(args, &counts, took);
        if !ui.json && !args.summary_only {
            ui.text(&shown(&line, ""))?;
        }
        add(&mut all, &counts);
        lines.push(line);
    }
    let average = line(args, &all, SECOND.times(args.seconds.into()));
    if ui.json {
        let (request_bytes, ack_bytes) = (args.request_bytes, args.ack_bytes);
        ui.json(&Json { simulated: true, request_bytes, ack_bytes, depth: args.depth, lines, average })?;
    } else {
        let ruler = "-".repeat(45);
        ui.text(&format!("{ruler}\n{}{}", shown(&average, "  (average)"), histogram(&all)))?;
    }
    Ok(Status::Done)
}

/// Both ends for a second; how long it was.
fn for_a_second(
    (left, asks): (&mut VerbsPort, &mut Stress<'_>),
    (right, answers): (&mut VerbsPort, &mut Stress<'_>),
) -> Result<Duration, PerfError> {
    let started = std::time::Instant::now();
    let clock = || Instant::from_nanos(started.elapsed().as_nanos() as u64);
    let mut busy_at = clock();
    loop {
        // One clock for both, and for the deadlines of both transports.
        let now = left.control().now();
        let mut busy = asks.step(left.engine(), now)?;
        busy |= answers.step(right.engine(), now)?;
        let (one, other) = (left.turn(now), right.turn(now));
        if one.gone || other.gone {
            return Err(PerfError::Gone);
        }
        busy |= !one.is_idle() || !other.is_idle();
        let at = clock();
        if busy {
            busy_at = at;
        }
        if at.since(busy_at) > PATIENCE {
            return Err(PerfError::Late { done: 0, of: 0, waited: PATIENCE });
        }
        if at.since(Instant::ZERO) >= SECOND {
            return Ok(at.since(Instant::ZERO));
        }
    }
}

fn add(all: &mut Exchange, one: &Exchange) {
    all.sent += one.sent;
    all.received += one.received;
    all.acknowledged += one.acknowledged;
    all.bytes += one.bytes;
    all.send_time += one.send_time;
    all.completed += one.completed;
    all.round_trips += one.round_trips;
    for (sum, count) in all.histogram.iter_mut().zip(one.histogram) {
        *sum += count;
    }
}

fn line(args: &Args, counts: &Exchange, took: Duration) -> Line {
    let seconds = took.as_secs_f64();
    let mean_us = |sum: Duration, count: u64| sum.as_nanos() as f64 / 1000.0 / count.max(1) as f64;
    Line {
        tasks: args.tasks,
        tx_per_s: counts.sent as f64 / seconds,
        rx_per_s: counts.received as f64 / seconds,
        kib_per_s: counts.bytes as f64 / 1024.0 / seconds,
        mbi_kib_per_s: 0.0,
        mbo_kib_per_s: 0.0,
        tx_us: mean_us(counts.send_time, counts.completed),
        rtt_us: mean_us(counts.round_trips, counts.acknowledged),
        cpu_percent: -1.0,
    }
}

fn head(args: &Args) -> String {
    let mut text = format!(
        "Options:\n  Tasks           {}\n  Depth           {}\n  Request size    {}\n  Ack size        {}\n  One-way         {}\n",
        args.tasks,
        args.depth,
        args.request_bytes,
        args.ack_bytes,
        if args.one_way { "yes" } else { "no" }
    );
    let _ = writeln!(
        text,
        "{:>4} {:>6} {:>6} {:>10} {:>10} {:>10} {:>7} {:>8} {:>5}",
        "tsks", "tx/s", "rx/s", "tx+rx K/s", "mbi K/s", "mbo K/s", "tx us/c", "rtt us", "cpu %"
    );
    text
}

fn shown(line: &Line, end: &str) -> String {
    format!(
        "{:>4} {:>6.0} {:>6.0} {:>10.2} {:>10.2} {:>10.2} {:>7.2} {:>8.2} {:>5.2}{end}\n",
        line.tasks,
        line.tx_per_s,
        line.rx_per_s,
        line.kib_per_s,
        line.mbi_kib_per_s,
        line.mbo_kib_per_s,
        line.tx_us,
        line.rtt_us,
        line.cpu_percent
    )
}

fn histogram(all: &Exchange) -> String {
    let mut text = "RTT histogram\n".to_owned();
    for (step, count) in all.histogram.iter().enumerate().filter(|(_, count)| **count > 0) {
        let from = if step == 0 { 0 } else { 1_u64 << step };
        let _ = writeln!(text, "[{from:6} - {:6}] {count}", (2_u64 << step) - 1);
    }
    text
}
