//! One file a command; each has `Args` (what may be typed) and `run`.

use crate::args::{Args, Command};
use crate::fail::{Failure, Status};
use crate::ui::Ui;
use qhca::verbs::wire::Service;

pub(crate) mod bind;
pub(crate) mod completions;
pub(crate) mod counters;
pub(crate) mod decode;
pub(crate) mod doctor;
pub(crate) mod events;
pub(crate) mod fabric;
mod ibstat;
pub(crate) mod info;
pub(crate) mod lab;
mod lab_tables;
mod lab_tools;
pub(crate) mod list;
pub(crate) mod options;
pub(crate) mod perf;
pub(crate) mod pingpong;
pub(crate) mod port;
pub(crate) mod regs;
mod regs_select;
pub(crate) mod report;
pub(crate) mod selftest;
pub(crate) mod sim;
pub(crate) mod storm;
pub(crate) mod stress;
pub(crate) mod up;

/// Runs the command that was typed.
pub(crate) fn run(args: &Args, ui: &Ui) -> Result<Status, Failure> {
    match &args.command {
        Command::Decode(args) => decode::run(args, ui),
        Command::Info(args) => info::run(args, ui),
        Command::Counters(args) => counters::run(args, ui),
        Command::List(args) => list::run(args, ui),
        Command::Doctor(args) => doctor::run(args, ui),
        Command::Report(args) => report::run(args, ui),
        Command::Up(args) => up::run(args, ui),
        Command::Events(args) => events::run(args, ui),
        Command::Bind(args) => bind::run(args, ui),
        Command::Unbind(args) => bind::run_unbind(args, ui),
        Command::Options(args) => options::run(args, ui),
        Command::Port(args) => port::run(args, ui),
        Command::Regs(args) => regs::run(args, ui),
        Command::Sim(args) => sim::run(args, ui),
        Command::Selftest(args) => selftest::run(args, ui),
        Command::Lab(args) => lab::run(args, ui),
        Command::Storm(args) => storm::run(args, ui),
        Command::WriteBw(args) => perf::run(perf::Tool::WriteBw, args, ui),
        Command::ReadBw(args) => perf::run(perf::Tool::ReadBw, args, ui),
        Command::SendBw(args) => perf::run(perf::Tool::SendBw, args, ui),
        Command::AtomicBw(args) => perf::run(perf::Tool::AtomicBw, args, ui),
        Command::WriteLat(args) => perf::run(perf::Tool::WriteLat, args, ui),
        Command::ReadLat(args) => perf::run(perf::Tool::ReadLat, args, ui),
        Command::SendLat(args) => perf::run(perf::Tool::SendLat, args, ui),
        Command::AtomicLat(args) => perf::run(perf::Tool::AtomicLat, args, ui),
        Command::Perfquery(args) => fabric::perfquery::run(args, ui),
        Command::Smpquery(args) => fabric::smpquery::run(args, ui),
        Command::Ping(args) => fabric::ping::run(args, ui),
        Command::RcPingpong(args) => pingpong::run(Service::Rc, args, ui),
        Command::UcPingpong(args) => pingpong::run(Service::Uc, args, ui),
        Command::UdPingpong(args) => pingpong::run(Service::Ud, args, ui),
        Command::Stress(args) => stress::run(args, ui),
        Command::Completions(args) => completions::run(args, ui),
    }
}
