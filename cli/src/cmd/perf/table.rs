//! What is printed: banner, columns and rows as perftest has them, and the same as JSON.

use super::Row;
use super::options::Wanted;
use qhca::verbs::perf::{EndName, MEGABYTE, Verb, Verify};
use qhca::verbs::wire::Service;
use serde::Serialize;
use std::fmt::Write;

const RULER: &str =
    "---------------------------------------------------------------------------------------\n";

/// What the reader of a server sees first.
pub(super) const WAITING: &str = "\n************************************\n* Waiting for client to connect... *\n************************************\n";

/// Everything above the columns' heads, and these.
pub(super) fn banner(wanted: &Wanted, addresses: &str) -> String {
    let mut text = RULER.to_owned();
    let verb = match wanted.verb {
        Verb::Write => "RDMA_Write",
        Verb::Read => "RDMA_Read",
        Verb::Send => "Send",
        Verb::FetchAdd | Verb::CompareSwap => "Atomic",
    };
    let _ = write!(text, "{:20}{verb} ", "");
    if wanted.both {
        text.push_str("Bidirectional ");
    }
    if wanted.list > 1 {
        text.push_str("Post List ");
    }
    text.push_str(if wanted.tool.is_latency() { "Latency Test\n" } else { "BW Test\n" });
    text.push_str(&labels(wanted));
    text.push_str(RULER);
    text.push_str(addresses);
    text.push_str(RULER);
    text.push_str(&heads(wanted));
    text
}

fn labels(wanted: &Wanted) -> String {
    let mut text = String::new();
    let on = |is_on: bool| if is_on { "ON" } else { "OFF" };
    let two = [
        ("Dual-port", "OFF".to_owned(), "Device", wanted.device.clone()),
        ("Number of qps", wanted.qps.to_string(), "Transport type", "IB".to_owned()),
        (
            "Connection type",
            wanted.service_name().to_owned(),
            "Using SRQ",
            on(wanted.shared_receives).to_owned(),
        ),
        ("PCIe relax order", "OFF".to_owned(), "Lock-free", "ON".to_owned()),
        ("ibv_wr* API", "OFF".to_owned(), "Using Enhanced Reorder", "OFF".to_owned()),
    ];
    for (label, value, other, other_value) in two {
        let _ = writeln!(text, " {label:<16}: {value}\t\t{other:<15}: {other_value}");
    }
    let mut one = |label: &str, value: String| {
        let _ = writeln!(text, " {label:<16}: {value}");
    };
    one("TX depth", wanted.depth.to_string());
    if wanted.list > 1 {
        one("Post List", wanted.list.to_string());
    }
    if wanted.verb == Verb::Send {
        one("RX depth", wanted.rx_depth.to_string());
    }
    if !wanted.tool.is_latency() {
        one("CQ Moderation", wanted.moderation.unwrap_or(100).to_string());
    }
    one("Mtu", format!("{}[B]", wanted.mtu.bytes()));
    one("Link type", "IB".to_owned());
    match wanted.verb.is_one_sided() {
        true => one("Outstand reads", wanted.outs.to_string()),
        false => one("Max inline data", format!("{}[B]", wanted.inline)),
    }
    one("rdma_cm QPs", "OFF".to_owned());
    one("Data ex. method", if wanted.is_simulated() { "In process" } else { "Ethernet" }.to_owned());
    text
}

/// The lines that name both ends.
pub(super) fn addresses(local: &EndName, remote: &EndName) -> String {
    let mut text = String::new();
    for (whose, name) in [("local", local), ("remote", remote)] {
        for (qp, psn) in &name.qps {
            let _ = writeln!(
                text,
                " {whose:>6} address: LID {:#04x} QPN {:#06x} PSN {:#06x} RKey {:#08x} VAddr {:#018x}",
                name.lid.0,
                qp.get(),
                psn.get(),
                name.region.rkey.0,
                name.region.addr
            );
        }
    }
    text
}

fn heads(wanted: &Wanted) -> String {
    if wanted.tool.is_latency() {
        return match wanted.duration {
            Some(_) => " #bytes        #iterations       t_avg[usec]    tps average\n".to_owned(),
            None => " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec]\n".to_owned(),
        };
    }
    let unit = if wanted.gbits { "Gb/sec" } else { "MiB/sec" };
    format!(" #bytes     #iterations    BW peak[{unit}]    BW average[{unit}]   MsgRate[Mpps]\n")
}

/// Gigabits of a megabyte.
const GBIT_OF_MB: f64 = MEGABYTE * 8.0 / 1e9;

/// One size's line.
pub(super) fn row(wanted: &Wanted, row: &Row) -> String {
    match row {
        Row::Bandwidth(seen) => {
            let scale = if wanted.gbits { GBIT_OF_MB } else { 1.0 };
            let (peak, average) = (seen.peak_mb_s * scale, seen.average_mb_s * scale);
            // Very slow results would be 0.00.
            let digits = if average < 0.1 { 6 } else { 2 };
            let peak = if wanted.peak { peak } else { 0.0 };
            format!(
                " {:<7}    {:<10}       {peak:<7.digits$}            {average:<7.digits$}\t\t     {:<7.6}\n",
                seen.bytes, seen.iterations, seen.msg_rate_mpps
            )
        }
        Row::Latency(seen) => {
            let mut text = match wanted.duration {
                Some(_) => {
                    let tps = 1e6 / seen.t_avg_us;
                    format!(
                        " {:<7}       {:<10}        {:<7.2}        {tps:<7.2}\n",
                        seen.bytes, seen.iterations, seen.t_avg_us
                    )
                }
                None => format!(
                    " {:<7} {:<10}     {:<7.2}        {:<7.2}      {:<7.2}  \t       {:<7.2}     \t{:<7.2}\t\t{:<7.2}\t\t{:<7.2}\n",
                    seen.bytes,
                    seen.iterations,
                    seen.t_min_us,
                    seen.t_max_us,
                    seen.t_typical_us,
                    seen.t_avg_us,
                    seen.t_stdev_us,
                    seen.p99_us,
                    seen.p999_us
                ),
            };
            if wanted.histogram || wanted.unsorted {
                text.push_str(&samples(&seen.samples_us, wanted.histogram));
            }
            text
        }
    }
}

fn samples(samples: &[f64], sorted: bool) -> String {
    let mut samples = samples.to_vec();
    if sorted {
        samples.sort_by(f64::total_cmp);
    }
    let mut text = "#, usec\n".to_owned();
    for (at, sample) in samples.iter().enumerate() {
        let _ = writeln!(text, "{}, {sample:.3}", at + 1);
    }
    text
}

/// The last line.
pub(super) fn end(wanted: &Wanted) -> String {
    let checked = match (wanted.verify, wanted.service) {
        (Verify::Each, _) => "every payload was checked",
        (Verify::Last, _) => "the last payload of every buffer was checked",
        (Verify::None, _) => "no payload was checked",
    };
    match wanted.is_simulated() {
        true => format!("{RULER} Simulated HCAs; {checked}.\n"),
        false => format!("{RULER} {}; {checked}.\n", wanted.device),
    }
}

/// Why a size misses the figure that was asked for, if it does.
pub(super) fn misses(wanted: &Wanted, row: &Row) -> Option<String> {
    let bar = wanted.bar?;
    match row {
        Row::Bandwidth(seen) if seen.average_mb_s < bar => {
            Some(format!("{} bytes: {:.2} MiB/s are less than {bar}", seen.bytes, seen.average_mb_s))
        }
        Row::Latency(seen) if seen.t_typical_us > bar => {
            Some(format!("{} bytes: {:.2} us are more than {bar}", seen.bytes, seen.t_typical_us))
        }
        _ => None,
    }
}

#[derive(Serialize)]
pub(super) struct Json {
    tool: &'static str,
    simulated: bool,
    transport: &'static str,
    mtu: u32,
    qps: u32,
    verified: &'static str,
    results: Vec<JsonRow>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum JsonRow {
    Bandwidth {
        bytes: u32,
        iterations: u64,
        bw_peak_mb_s: Option<f64>,
        bw_average_mb_s: f64,
        msg_rate_mpps: f64,
    },
    Latency {
        bytes: u32,
        iterations: u64,
        t_min_us: f64,
        t_max_us: f64,
        t_typical_us: f64,
        t_avg_us: f64,
        t_stdev_us: f64,
        p99_us: f64,
        p999_us: f64,
    },
}

/// The whole result.
pub(super) fn json(wanted: &Wanted, rows: &[Row]) -> Json {
    debug_assert!(wanted.service != Service::Ud || wanted.verb == Verb::Send, "datagrams are sent");
    let of = |row: &Row| match row {
        Row::Bandwidth(seen) => JsonRow::Bandwidth {
            bytes: seen.bytes,
            iterations: seen.iterations,
            bw_peak_mb_s: wanted.peak.then_some(seen.peak_mb_s),
            bw_average_mb_s: seen.average_mb_s,
            msg_rate_mpps: seen.msg_rate_mpps,
        },
        Row::Latency(seen) => JsonRow::Latency {
            bytes: seen.bytes,
            iterations: seen.iterations,
            t_min_us: seen.t_min_us,
            t_max_us: seen.t_max_us,
            t_typical_us: seen.t_typical_us,
            t_avg_us: seen.t_avg_us,
            t_stdev_us: seen.t_stdev_us,
            p99_us: seen.p99_us,
            p999_us: seen.p999_us,
        },
    };
    Json {
        tool: wanted.tool.name(),
        simulated: wanted.is_simulated() || wanted.device.starts_with("vfio-user:"),
        transport: wanted.service_name(),
        mtu: wanted.mtu.bytes(),
        qps: wanted.qps,
        verified: match wanted.verify {
            Verify::None => "none",
            Verify::Last => "last",
            Verify::Each => "each",
        },
        results: rows.iter().map(of).collect(),
    }
}
