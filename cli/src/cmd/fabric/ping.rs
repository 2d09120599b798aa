//! `qhca ping`: whether a port's management answers, and how fast.
//!
//! The question is the performance agent's ClassPortInfo, which every port answers: nothing need run at the other end.

use super::{Asking, Fabric, parse_lid};
use crate::fail::{Failure, Status};
use crate::ui::Ui;
use qhca::Lid;
use qhca::verbs::port::MadTo;
use qhca::verbs::wire::mad::{Mad, MadClass, Method};
use serde::Serialize;
use std::fmt::Write;

const NODE_DESCRIPTION: u16 = 0x10;
const CLASS_PORT_INFO: u16 = 0x01;

/// Arguments of `qhca ping`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The port's LID; the other end of the cable is 2 where ours manages
    #[arg(value_parser = parse_lid)]
    lid: Lid,
    /// Questions
    #[arg(short, long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    count: u32,
    #[command(flatten)]
    asking: Asking,
}

#[derive(Serialize)]
struct Json {
    lid: u16,
    description: String,
    transmitted: u32,
    received: u32,
    rtt_min_us: f64,
    rtt_avg_us: f64,
    rtt_max_us: f64,
}

/// Runs `qhca ping`.
pub(crate) fn run(args: &Args, ui: &Ui) -> Result<Status, Failure> {
    let mut fabric = Fabric::open(&args.asking)?;
    let node = Mad::new(MadClass::SubnetLid, Method::Get, NODE_DESCRIPTION, 0, 0);
    let description = fabric.ask(&node, MadTo::Subnet(args.lid))?.0;
    let description = String::from_utf8_lossy(description.data()).trim_end_matches('\0').to_owned();
    let question = Mad::new(MadClass::Performance, Method::Get, CLASS_PORT_INFO, 0, 0);
    let mut times_us = Vec::new();
    for _ in 0..args.count {
        let (_, took) = fabric.ask(&question, MadTo::General(args.lid))?;
        times_us.push(took.as_nanos() as f64 / 1000.0);
        if !ui.json {
            let ms = took.as_nanos() as f64 / 1e6;
            ui.text(&format!("Pong from {description} (Lid {}): time {ms:.3} ms\n", args.lid.0))?;
        }
    }
    let count = times_us.len() as f64;
    let json = Json {
        lid: args.lid.0,
        description,
        transmitted: args.count,
        received: times_us.len() as u32,
        rtt_min_us: times_us.iter().copied().fold(f64::INFINITY, f64::min),
        rtt_avg_us: times_us.iter().sum::<f64>() / count,
        rtt_max_us: times_us.iter().copied().fold(0.0, f64::max),
    };
    if ui.json {
        ui.json(&json)?;
        return Ok(Status::Done);
    }
    let mut text = format!("\n--- {} (Lid {}) ibping statistics ---\n", json.description, json.lid);
    let all_ms = times_us.iter().sum::<f64>() / 1000.0;
    let _ = writeln!(
        text,
        "{} packets transmitted, {} received, 0% packet loss, time {all_ms:.0} ms",
        json.transmitted, json.received
    );
    let _ = writeln!(
        text,
        "rtt min/avg/max = {:.3}/{:.3}/{:.3} ms",
        json.rtt_min_us / 1000.0,
        json.rtt_avg_us / 1000.0,
        json.rtt_max_us / 1000.0
    );
    ui.text(&text)?;
    Ok(Status::Done)
}
