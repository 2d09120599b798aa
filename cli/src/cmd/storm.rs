//! `qhca storm`: what each error policy does to a receiver whose buffers overflow, in virtual time.

use crate::fail::{Failure, Status};
use crate::ui::Ui;
use clap::ValueEnum;
use qhca_driver::options::{Options, modprobe};
use qhca_lab::params::Parameters;
use qhca_lab::storm::{self, Case, Costs, Policy, RealTime, Storm, StormError, Study, Transport};
use qhca_sim::vtime::{Order, Seed};
use std::path::PathBuf;

/// What each run of a sweep measures unless it is told otherwise: there are many.
const SWEPT_MEASURE: &str = "measure_ms=100";

/// Arguments of `qhca storm`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The error policy to run; `silent` is the control
    #[arg(long, value_enum, default_value_t = PolicyChoice::All)]
    policy: PolicyChoice,
    /// What goes wrong: overflow alone, overflow and launch errors in turn, or a port's errors
    #[arg(long, value_enum, default_value_t = StormChoice::Egrfull)]
    storm: StormChoice,
    /// How the sender answers loss: it sends on, or it goes back to what was lost (RDMA writes of 1 MiB)
    #[arg(long, value_enum, default_value_t = TransportChoice::Raw)]
    transport: TransportChoice,
    /// Which pending interrupt the core takes first
    #[arg(long, value_enum, default_value_t = OrderChoice::All)]
    arbitration: OrderChoice,
    /// Options of the driver, as for ib_qib: `krcvq01_no_msi=1 rcvhdrcnt=4096`
    #[arg(long, value_name = "LIST", default_value = "", hide_default_value = true)]
    options: String,
    /// A modprobe.d file to take options from; `--options` goes on top
    #[arg(long, value_name = "FILE")]
    modprobe_conf: Option<PathBuf>,
    /// Set a figure of the cost model or the load, e.g. `receive_ns=660`; may be repeated
    #[arg(long, value_name = "NAME=VALUE")]
    set: Vec<String>,
    /// Run a figure through a range and say where krcvq01_no_msi=1 pays, e.g. `entry_us=0.2..3`. With --transport rc,
    /// and no range: what inline keeps over the sender's window and a packet's cost
    #[arg(long, value_name = "NAME=LOW..HIGH", num_args = 0..=1, default_missing_value = "")]
    sweep: Option<String>,
    /// Run on threads and the system's clock instead of virtual time; of the figures only measure_ms, inject_ns and
    /// burst_errors then mean something
    #[arg(long, conflicts_with_all = ["sweep", "arbitration", "transport"])]
    real_time: bool,
    /// Seed of every source of chance
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = parse_seed)]
    seed: u64,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum PolicyChoice {
    Inline,
    Deferred,
    Guarded,
    DecoderOnly,
    Silent,
    All,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum StormChoice {
    Egrfull,
    Alternate,
    Port,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum TransportChoice {
    Raw,
    Rc,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum OrderChoice {
    ErrorsFirst,
    Arrival,
    ReceiveFirst,
    All,
}

/// A seed, or what would be one.
fn parse_seed(text: &str) -> Result<u64, String> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit());
    let seed = if plain { text.parse().ok() } else { None };
    seed.ok_or_else(|| format!("no seed; valid: 0 to {}", u64::MAX))
}

impl PolicyChoice {
    fn policies(self) -> Vec<Policy> {
        match self {
            Self::Inline => vec![Policy::Inline],
            Self::Deferred => vec![Policy::Deferred],
            Self::Guarded => vec![Policy::Guarded],
            Self::DecoderOnly => vec![Policy::DecoderOnly],
            Self::Silent => vec![Policy::Silent],
            Self::All => Policy::ALL.to_vec(),
        }
    }

    /// What a sweep compares: the control and the ablation say nothing about vectors.
    fn swept(self) -> Vec<Policy> {
        match self {
            Self::All => vec![Policy::Inline, Policy::Deferred, Policy::Guarded],
            one => one.policies(),
        }
    }
}

impl StormChoice {
    fn storm(self) -> Storm {
        match self {
            Self::Egrfull => Storm::EgrFull,
            Self::Alternate => Storm::Alternate,
            Self::Port => Storm::Port,
        }
    }
}

impl OrderChoice {
    fn orders(self) -> Vec<Order> {
        match self {
            Self::ErrorsFirst => vec![Order::ErrorsFirst],
            Self::Arrival => vec![Order::Arrival],
            Self::ReceiveFirst => vec![Order::ReceiveFirst],
            Self::All => Order::ALL.to_vec(),
        }
    }
}

/// Runs `qhca storm`.
pub(crate) fn run(args: &Args, ui: &Ui) -> Result<Status, Failure> {
    let study = study(args, ui)?;
    if args.real_time {
        return run_on_threads(study, args.storm.storm(), ui);
    }
    let say = |case: &Case| {
        ui.detail(&format!(
            "running {} under {}, {}",
            case.policy.name(),
            case.storm.name(),
            case.order.name()
        ));
    };
    match &args.sweep {
        Some(text) if text.is_empty() => {
            if study.transport == Transport::Raw {
                return Err(Failure::bad_input("--sweep: no figure and no range")
                    .remedy("valid: NAME=LOW..HIGH, e.g. entry_us=0.2..3; nothing with --transport rc"));
            }
            let report = study.band(say).map_err(|e| failure(&e))?;
            if ui.json { ui.json(&report)? } else { ui.text(&report.to_text())? }
        }
        Some(text) => {
            let sweep =
                study.parameters.sweep(text).map_err(|e| Failure::bad_input(format!("--sweep: {e}")))?;
            let report = study.sweep(&sweep, say).map_err(|e| failure(&e))?;
            if ui.json { ui.json(&report)? } else { ui.text(&report.to_text())? }
        }
        None => {
            let report = study.run(say).map_err(|e| failure(&e))?;
            if ui.json { ui.json(&report)? } else { ui.text(&report.to_text())? }
        }
    }
    Ok(Status::Done)
}

/// The same driver on threads.
fn run_on_threads(study: Study, storm: Storm, ui: &Ui) -> Result<Status, Failure> {
    let costs = Costs::from_parameters(&study.parameters).map_err(Failure::bad_input)?;
    let run = RealTime {
        policies: study.policies,
        storm,
        options: study.options,
        options_text: study.options_text,
        seed: study.seed,
        costs,
    };
    let report = run.run().map_err(|e| failure(&e))?;
    if ui.json {
        ui.json(&report)?
    } else {
        ui.text(&report.to_text())?
    }
    Ok(Status::Done)
}

/// What the arguments ask for.
fn study(args: &Args, ui: &Ui) -> Result<Study, Failure> {
    let mut parameters: Parameters = storm::parameters();
    let mut set = args.set.clone();
    if args.sweep.is_some() && !set.iter().any(|text| text.starts_with("measure_ms")) {
        set.push(SWEPT_MEASURE.to_owned());
    }
    for text in &set {
        parameters.set_from_text(text).map_err(|e| Failure::bad_input(format!("--set: {e}")))?;
        if args.real_time {
            check_real(text)?;
        }
    }
    let options = options(args, ui)?;
    let mut options_text = options.to_string();
    for text in &set {
        options_text.push_str(if options_text.is_empty() { "" } else { " " });
        options_text.push_str(text);
    }
    Ok(Study {
        policies: if args.sweep.is_some() { args.policy.swept() } else { args.policy.policies() },
        storms: vec![args.storm.storm()],
        orders: args.arbitration.orders(),
        options,
        transport: match args.transport {
            TransportChoice::Raw => Transport::Raw,
            TransportChoice::Rc => Transport::Rc,
        },
        options_text,
        seed: Seed(args.seed),
        parameters,
    })
}

/// Refuses a figure that nothing is charged by when time is real.
fn check_real(text: &str) -> Result<(), Failure> {
    let name = text.split('=').next().unwrap_or(text).trim();
    if RealTime::FIGURES.contains(&name) {
        return Ok(());
    }
    let what = format!("--set {name}: a figure of virtual time, without effect under --real-time");
    let valid = format!("valid with --real-time: {}", RealTime::FIGURES.join(", "));
    Err(Failure::bad_input(what).remedy(valid))
}

/// The driver's options: the file's, with the list's on top.
fn options(args: &Args, ui: &Ui) -> Result<Options, Failure> {
    let mut list = String::new();
    if let Some(path) = &args.modprobe_conf {
        let bytes = std::fs::read(path).map_err(|e| {
            Failure::bad_input(format!("--modprobe-conf: cannot read {}: {e}", path.display()))
                .remedy("give a file that holds lines such as `options ib_qib krcvqs=1`")
        })?;
        let parsed = modprobe::parse_file(&bytes)
            .map_err(|e| Failure::bad_input(format!("--modprobe-conf {}: {e}", path.display())))?;
        for warning in &parsed.warnings {
            ui.warning(&format!("{}: {warning}", path.display()));
        }
        list = parsed.options.to_string();
        list.push(' ');
    }
    list.push_str(&args.options);
    let parsed = Options::parse(&list).map_err(|e| Failure::bad_input(format!("--options: {e}")))?;
    for warning in &parsed.warnings {
        ui.warning(&format!("--options: {warning}"));
    }
    Ok(parsed.options)
}

fn failure(error: &StormError) -> Failure {
    match error {
        StormError::Figure(_) | StormError::Options(_) => Failure::bad_input(error),
        StormError::System(_) => Failure::new(Status::Missing, error),
        _ => Failure::new(Status::Device, error),
    }
}
