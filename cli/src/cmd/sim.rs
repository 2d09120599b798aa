//! `qhca sim serve`: simulated HCAs behind vfio-user sockets, for QEMU and for `-d vfio-user:`.
//!
//! What is done to them while they run is in [`ctl`], how QEMU is to be called for them in [`qemu`].

mod ctl;
mod qemu;

use crate::fail::{Failure, Status};
use crate::ui::Ui;
use clap::Subcommand;
use qhca_regs::{Duration, Port};
use qhca_sim::chip::{Board, Config, WrongChip, WrongSet};
use qhca_sim::control::{Order, OrderError};
use qhca_sim::fabric::{CableConfig, LineFaults, LineRate, Speed, Width};
use qhca_sim::vfio_user::{ConfigOptions, Options, ServeError, Server};
use qhca_sim::vtime::Distribution;
use qhca_sim::world::NodeId;
use std::io::LineWriter;
use std::path::PathBuf;

/// Most HCAs in one server: their names are single letters.
const HCAS_MAX: usize = 26;

/// What to type after `qhca sim`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve simulated HCAs over vfio-user until killed
    Serve(ServeArgs),
    /// Give orders to a server: cables, modules, errors, removal, state
    Ctl(ctl::Args),
    /// Print the command lines of QEMU guests that use simulated HCAs
    Qemu(qemu::QemuArgs),
}

#[derive(Debug, clap::Args)]
struct ServeArgs {
    /// Socket of an HCA; repeat it for several, which are called a, b, c …
    #[arg(long, value_name = "PATH", required = true)]
    socket: Vec<PathBuf>,
    /// Board of every HCA: qle7340, qle7342, …
    #[arg(long, default_value = "qle7342")]
    board: String,
    /// Cables: `a:1=b:1,a:2=b:2`, `loop` (port 1 to port 2 of each HCA) or `none`
    #[arg(long, default_value = "loop")]
    cable: String,
    /// Delay of every cable, nanoseconds
    #[arg(long, value_name = "NS", default_value_t = 25)]
    delay_ns: u64,
    /// One packet in N is lost on every cable; 0 for none
    #[arg(long, value_name = "N", default_value_t = 0)]
    lose_one_in: u64,
    /// Most that a cable carries: sdr, ddr or qdr on four lanes; the chips pace themselves if it is not given
    #[arg(long, value_name = "SPEED")]
    speed: Option<String>,
    /// Compute and check ICRC and VCRC on every cable
    #[arg(long)]
    crc: bool,
    /// In what the chips deviate from the data sheet, by name, comma separated
    #[arg(long, value_name = "NAMES", default_value = "")]
    wrong: String,
    /// Offer function-level reset
    #[arg(long)]
    flr: bool,
    /// Offer advanced error reporting
    #[arg(long)]
    aer: bool,
    /// Take orders at this socket, from `qhca sim ctl`
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
    /// What is to go wrong: `TIME ORDER; …`, as in `2s cable a:1 out; 2500ms cable a:1 in` (orders: `qhca sim ctl --help`)
    #[arg(long, value_name = "SPEC", default_value = "")]
    faults: String,
    /// Record every register access
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Seed of everything that is drawn by chance
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Runs the command.
pub(crate) fn run(args: &Args, ui: &Ui) -> Result<Status, Failure> {
    match &args.command {
        Command::Serve(args) => serve(args, ui),
        Command::Ctl(args) => ctl::run(args, ui),
        Command::Qemu(args) => qemu::run(args, ui),
    }
}

fn serve(args: &ServeArgs, ui: &Ui) -> Result<Status, Failure> {
    let config = config(args)?;
    let cables = parse_cables(&args.cable, args.socket.len())?;
    let faults = parse_faults(&args.faults)?;
    let cable_config = cable_config(args)?;
    let mut server = Server::new(args.seed, args.crc).map_err(refused)?;
    let mut nodes = Vec::new();
    for (n, path) in args.socket.iter().enumerate() {
        let options = Options {
            name: path.display().to_string(),
            config: ConfigOptions { flr: args.flr, aer: args.aer },
            ..Options::default()
        };
        // Base GUIDs 16 apart leave room for the ports' own.
        let guid = config.guid + 16 * n as u64;
        let serial = format!("QHCASIM{:05}", n + 1);
        nodes.push(server.add(path, Config { guid, serial, ..config.clone() }, options).map_err(refused)?);
    }
    for cable in &cables {
        server.connect(cable.a.of(&nodes), cable.b.of(&nodes), cable_config);
    }
    for (after, order) in faults {
        server.plan(after, order);
    }
    if let Some(path) = &args.control {
        server.control_at(path).map_err(refused)?;
    }
    if let Some(path) = &args.trace {
        let file = std::fs::File::create(path)
            .map_err(|e| Failure::bad_input(format!("--trace {}: {e}", path.display())))?;
        server.trace_to(Box::new(LineWriter::new(file)));
    }
    ui.progress(&format!(
        "serving {} simulated {} with {} cables",
        nodes.len(),
        config.board.name(),
        cables.len()
    ));
    server.run().map_err(refused)?;
    Ok(Status::Done)
}

fn refused(error: ServeError) -> Failure {
    let status = match error {
        ServeError::Taken { .. } => Status::BadInput,
        _ => Status::Missing,
    };
    Failure::new(status, error)
}

fn config(args: &ServeArgs) -> Result<Config, Failure> {
    if args.socket.len() > HCAS_MAX {
        return Err(Failure::bad_input(format!(
            "{} sockets; one server holds 1 to {HCAS_MAX}",
            args.socket.len()
        )));
    }
    let board = Board::from_name(&args.board).ok_or_else(|| {
        Failure::bad_input(format!("--board {}: no such board", args.board)).remedy("try qle7342")
    })?;
    let mut wrong = WrongSet::NONE;
    for name in args.wrong.split(',').filter(|name| !name.is_empty()) {
        let one = WrongChip::from_name(name).ok_or_else(|| {
            let known: Vec<_> = WrongChip::ALL.into_iter().map(WrongChip::name).collect();
            Failure::bad_input(format!("--wrong {name}: no such deviation")).remedy(known.join("\n"))
        })?;
        wrong = wrong.with(one);
    }
    Ok(Config { board, wrong, seed: args.seed, ..Config::default() })
}

fn cable_config(args: &ServeArgs) -> Result<CableConfig, Failure> {
    let rate = match args.speed.as_deref() {
        None => LineRate::UNLIMITED,
        Some("sdr") => LineRate::of(Speed::Sdr, Width::X4),
        Some("ddr") => LineRate::of(Speed::Ddr, Width::X4),
        Some("qdr") => LineRate::of(Speed::Qdr, Width::X4),
        Some(other) => {
            let what = format!("--speed {other}: no such speed");
            return Err(Failure::bad_input(what).remedy("valid: sdr, ddr, qdr"));
        }
    };
    let faults = LineFaults { lose_one_in: args.lose_one_in, ..LineFaults::default() };
    let delay = Distribution::Fixed(Duration::from_nanos(args.delay_ns));
    Ok(CableConfig { delay, rate, faults: [faults; 2], ..CableConfig::default() })
}

/// Reads `--faults`.
fn parse_faults(text: &str) -> Result<Vec<(Duration, Order)>, Failure> {
    let mut faults = Vec::new();
    for part in text.split(';').map(str::trim).filter(|part| !part.is_empty()) {
        let (time, order) = part.split_once(' ').unwrap_or((part, ""));
        let after = parse_time(time).ok_or_else(|| {
            Failure::bad_input(format!("--faults {part}: {time:?} is no time"))
                .remedy("write TIME ORDER; TIME is a number with ns, us, ms or s, as in 1500ms")
        })?;
        let order = order.parse().map_err(|e: OrderError| {
            Failure::bad_input(format!("--faults {part}: {e}"))
                .remedy("`qhca sim ctl --help` lists the orders")
        })?;
        faults.push((after, order));
    }
    Ok(faults)
}

/// A number with its unit.
fn parse_time(text: &str) -> Option<Duration> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit_ns = match &text[digits.len()..] {
        "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(unit_ns).map(Duration::from_nanos)
}

/// One end of a cable: HCA by rank, and port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct End {
    hca: usize,
    port: Port,
}

impl End {
    fn of(self, nodes: &[NodeId]) -> (NodeId, Port) {
        (nodes[self.hca], self.port)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cable {
    a: End,
    b: End,
}

/// Reads `--cable` for `hcas` HCAs: every end names an HCA that is there, and no port has two cables.
fn parse_cables(text: &str, hcas: usize) -> Result<Vec<Cable>, Failure> {
    if text == "none" {
        return Ok(Vec::new());
    }
    if text == "loop" {
        let ends = |hca| Cable { a: End { hca, port: Port::P0 }, b: End { hca, port: Port::P1 } };
        return Ok((0..hcas).map(ends).collect());
    }
    let mut cables: Vec<Cable> = Vec::new();
    for part in text.split(',') {
        let cable = part
            .split_once('=')
            .and_then(|(a, b)| Some(Cable { a: parse_end(a, hcas)?, b: parse_end(b, hcas)? }))
            .ok_or_else(|| bad_cable(part, hcas))?;
        let taken = |end| cables.iter().any(|other| other.a == end || other.b == end);
        if taken(cable.a) || taken(cable.b) {
            return Err(Failure::bad_input(format!("--cable {part}: a port of it has a cable already")));
        }
        cables.push(cable);
    }
    Ok(cables)
}

fn parse_end(text: &str, hcas: usize) -> Option<End> {
    let (name, port) = text.split_once(':')?;
    let [letter @ b'a'..=b'z'] = name.as_bytes() else { return None };
    let hca = usize::from(letter - b'a');
    let port = match port {
        "1" => Port::P0,
        "2" => Port::P1,
        _ => return None,
    };
    (hca < hcas).then_some(End { hca, port })
}

fn bad_cable(part: &str, hcas: usize) -> Failure {
    let last = char::from(b'a' + (hcas.clamp(1, HCAS_MAX) - 1) as u8);
    Failure::bad_input(format!("--cable {part}: not a cable"))
        .remedy(format!("write HCA:PORT=HCA:PORT with HCA a to {last} and PORT 1 or 2, or `loop`, or `none`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planned_faults_have_a_time_with_a_unit_and_an_order() {
        let planned = parse_faults("2s cable a:1 out; 2500ms cable a:1 in;").expect("two faults");
        let times: Vec<u64> = planned.iter().map(|(after, _)| after.as_nanos()).collect();
        assert_eq!(times, [2_000_000_000, 2_500_000_000]);
        assert!(parse_faults("").is_ok_and(|none| none.is_empty()));
        for bad in ["2 cable a:1 out", "2h cable a:1 out", "2s", "2s fly", "99999999999999s state", "é state"]
        {
            assert_eq!(parse_faults(bad).expect_err(bad).status, Status::BadInput);
        }
    }

    #[test]
    fn cables_are_read_and_nonsense_is_refused_with_the_way_out() {
        let two = parse_cables("a:1=b:1,a:2=b:2", 2).expect("two cables");
        assert_eq!(two[1].b, End { hca: 1, port: Port::P1 });
        assert_eq!(parse_cables("loop", 3).map(|c| c.len()).ok(), Some(3));
        assert!(parse_cables("none", 1).is_ok_and(|c| c.is_empty()));
        for bad in ["", "a:1", "a:1=c:1", "a:0=b:1", "a:3=b:1", "ab:1=b:1", "a:1=b:1,a:1=b:2", "a:1=b:1,"] {
            let refused = parse_cables(bad, 2).expect_err(bad);
            assert_eq!(refused.status, Status::BadInput);
        }
    }
}
