//! What may be asked of the tools, and what it comes to.

use super::Tool;
use crate::fail::Failure;
use clap::ValueEnum;
use qhca::verbs::mgmt::SmMode;
use qhca::verbs::perf::{EndSetup, Job, Verb, Verify};
use qhca::verbs::wire::Service;
use qhca::verbs::{AddressVector, Connect, Mtu, QUEUE_DEPTH_MAX, QpNumber};
use qhca::{Duration, Lid, Port, Spec};

/// The largest size of `-a`, as a power of two.
const LARGEST_POWER: u32 = 23;
/// Sizes above this complete one by one unless told otherwise, as in perftest.
const MODERATE_UP_TO: u32 = 8192;
/// Messages one of which is signalled, unless told otherwise.
const MODERATION: u32 = 100;
const ATOMIC_BYTES: u32 = 8;
/// READs and atomics under way at most.
const OUTSTANDING_MAX: u8 = 16;

/// Arguments of the tools.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The server: a host on which the same command runs without this argument. Without it, two simulated HCAs are
    /// measured in this process
    host: Option<String>,
    /// Run all sizes from 2 to 2^23 bytes
    #[arg(short, long)]
    all: bool,
    /// Bytes of a message
    #[arg(short, long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(1..=1 << 30))]
    size: Option<u32>,
    /// Messages; as many as 2 s hold, at most 5000, if not given
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1 << 30))]
    iters: Option<u32>,
    /// Send for so many seconds instead
    #[arg(short = 'D', long, value_name = "SECONDS", conflicts_with = "iters",
          value_parser = clap::value_parser!(u64).range(1..=86_400))]
    duration: Option<u64>,
    /// Queue pairs
    #[arg(short = 'q', long = "qp", value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=4096))]
    qps: u32,
    /// Say nothing on stderr but warnings and errors
    #[arg(long, id = "quiet")]
    quiet: bool,
    /// Messages under way at most; 128, for latency 1
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(QUEUE_DEPTH_MAX)))]
    tx_depth: Option<u32>,
    /// Receives posted
    #[arg(short, long, value_name = "N", default_value_t = 512,
          value_parser = clap::value_parser!(u32).range(1..=i64::from(QUEUE_DEPTH_MAX)))]
    rx_depth: u32,
    /// Largest packet: 256, 512, 1024, 2048 or 4096 bytes; the port's if not given
    #[arg(short, long, value_name = "BYTES")]
    mtu: Option<u32>,
    /// Send in both directions at once
    #[arg(short, long)]
    bidirectional: bool,
    /// Sleep on events instead of polling
    #[arg(short, long)]
    events: bool,
    /// One signalled message in so many; 100, and 1 above 8192 bytes
    #[arg(short = 'Q', long = "cq-mod", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(QUEUE_DEPTH_MAX)))]
    cq_mod: Option<u32>,
    /// Post so many messages together
    #[arg(short = 'l', long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=i64::from(QUEUE_DEPTH_MAX)))]
    post_list: u32,
    /// Send messages of so many bytes or less inline
    #[arg(short = 'I', long = "inline_size", value_name = "BYTES", default_value_t = 0,
          value_parser = clap::value_parser!(u32).range(0..=1024))]
    inline: u32,
    /// Device: `sim`, `sim:qle7340`, `sim:qle7342` or `vfio-user:PATH`
    #[arg(short = 'd', long = "ib-dev", value_name = "DEV", default_value = "sim")]
    device: String,
    /// Port of the device, from 1
    #[arg(short = 'i', long, value_name = "PORT", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=2))]
    ib_port: u8,
    /// Service of the connection
    #[arg(short, long, value_enum, ignore_case = true, default_value_t = ServiceChoice::Rc)]
    connection: ServiceChoice,
    /// Which atomic
    #[arg(short = 'A', long, value_enum, ignore_case = true, default_value_t = AtomicChoice::FetchAndAdd)]
    atomic_type: AtomicChoice,
    /// READs and atomics under way at most
    #[arg(short, long, value_name = "N", default_value_t = OUTSTANDING_MAX,
          value_parser = clap::value_parser!(u8).range(1..=i64::from(OUTSTANDING_MAX)))]
    outs: u8,
    /// Service level
    #[arg(short = 'S', long, value_name = "SL", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=15))]
    sl: u8,
    /// Local ack timeout: 4.096 us times 2^N
    #[arg(short = 'u', long, value_name = "N", default_value_t = 14, value_parser = clap::value_parser!(u8).range(0..=31))]
    qp_timeout: u8,
    /// TCP port on which the two processes find each other
    #[arg(short, long, value_name = "PORT", default_value_t = 18515)]
    port: u16,
    /// Do not look for the best stretch
    #[arg(short = 'N', long = "noPeak")]
    no_peak: bool,
    /// All queue pairs take their receives from one queue
    #[arg(long)]
    use_srq: bool,
    /// Show bandwidth in Gb/s (10^9 bits)
    #[arg(long = "report_gbits")]
    report_gbits: bool,
    /// Print every latency, in order of length
    #[arg(short = 'H', long = "report_histogram", conflicts_with = "unsorted")]
    histogram: bool,
    /// Print every latency, in order of time
    #[arg(short = 'U', long = "report_unsorted")]
    unsorted: bool,
    /// Check every payload, not the last into each place only
    #[arg(long)]
    verify: bool,
    /// Fail (exit code 1) if the average bandwidth of a size is less, MiB/s; for latency if the typical one is more, us
    #[arg(long, value_name = "FIGURE")]
    fail_below: Option<f64>,
    /// Leave ICRC and VCRC out of the simulated cable
    #[arg(long)]
    no_crc: bool,
    /// The micro subnet manager: if nobody better is there, whoever is there, or never
    #[arg(long, value_enum, default_value_t = SmChoice::Auto)]
    sm: SmChoice,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ServiceChoice {
    Rc,
    Uc,
    Ud,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum AtomicChoice {
    #[value(name = "FETCH_AND_ADD")]
    FetchAndAdd,
    #[value(name = "CMP_AND_SWAP")]
    CmpAndSwap,
}

/// When the micro manager manages.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum SmChoice {
    /// If nobody better is there
    Auto,
    /// Whoever is there
    On,
    /// Never
    Off,
}

impl SmChoice {
    /// The mode.
    pub(crate) fn mode(self) -> SmMode {
        match self {
            Self::Auto => SmMode::Auto,
            Self::On => SmMode::On,
            Self::Off => SmMode::Off,
        }
    }
}

/// A size in bytes as an MTU.
pub(crate) fn mtu_of(bytes: u32) -> Result<Mtu, Failure> {
    let found = Mtu::ALL.into_iter().find(|mtu| mtu.bytes() == bytes);
    found.ok_or_else(|| {
        Failure::bad_input(format!("-m {bytes}: no MTU")).remedy("valid: 256, 512, 1024, 2048, 4096")
    })
}

/// What is to be measured, and how.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    pub(super) tool: Tool,
    pub(super) verb: Verb,
    pub(super) service: Service,
    pub(super) host: Option<String>,
    pub(super) tcp_port: u16,
    pub(super) device: String,
    pub(super) port: Port,
    pub(super) sizes: Vec<u32>,
    pub(super) iterations: Option<u32>,
    pub(super) duration: Option<Duration>,
    pub(super) qps: u32,
    pub(super) depth: u32,
    pub(super) rx_depth: u32,
    pub(super) mtu: Mtu,
    pub(super) both: bool,
    pub(super) events: bool,
    pub(super) moderation: Option<u32>,
    pub(super) list: u32,
    pub(super) inline: u32,
    pub(super) outs: u8,
    pub(super) sl: u8,
    pub(super) timeout: u8,
    pub(super) peak: bool,
    pub(super) shared_receives: bool,
    pub(super) gbits: bool,
    pub(super) histogram: bool,
    pub(super) unsorted: bool,
    pub(super) verify: Verify,
    pub(super) bar: Option<f64>,
    pub(super) crc: bool,
    pub(super) sm: SmMode,
    pub(super) warnings: Vec<String>,
}

impl Wanted {
    /// What `args` ask of `tool`.
    pub(super) fn new(tool: Tool, args: &Args) -> Result<Self, Failure> {
        let verb = tool.verb(matches!(args.atomic_type, AtomicChoice::CmpAndSwap));
        let service = match args.connection {
            ServiceChoice::Rc => Service::Rc,
            ServiceChoice::Uc => Service::Uc,
            ServiceChoice::Ud => Service::Ud,
        };
        check_service(tool, verb, service)?;
        let mtu = args.mtu.map_or(Ok(Mtu::B4096), mtu_of)?;
        let sizes = sizes(tool, args, service, mtu)?;
        let depth = args.tx_depth.unwrap_or(if tool.is_latency() { 1 } else { 128 });
        let mut wanted = Self {
            tool,
            verb,
            service,
            host: args.host.clone(),
            tcp_port: args.port,
            device: args.device.clone(),
            // PANIC: clap lets 1 and 2 through.
            port: Port::ALL[usize::from(args.ib_port) - 1],
            sizes,
            iterations: args.iters,
            duration: args.duration.map(Duration::from_secs),
            qps: if tool.is_latency() { 1 } else { args.qps },
            depth,
            rx_depth: args.rx_depth,
            mtu,
            both: args.bidirectional && !tool.is_latency(),
            events: args.events,
            moderation: args.cq_mod,
            list: args.post_list,
            inline: args.inline,
            outs: args.outs,
            sl: args.sl,
            timeout: args.qp_timeout,
            peak: !args.no_peak && args.duration.is_none(),
            shared_receives: args.use_srq,
            gbits: args.report_gbits,
            histogram: args.histogram,
            unsorted: args.unsorted,
            verify: if args.verify { Verify::Each } else { Verify::Last },
            bar: args.fail_below,
            crc: !args.no_crc,
            sm: args.sm.mode(),
            warnings: Vec::new(),
        };
        wanted.check(args)?;
        Ok(wanted)
    }

    /// What cannot be, and what is worth a word.
    fn check(&mut self, args: &Args) -> Result<(), Failure> {
        if self.host.is_some() && self.is_simulated() {
            let what = format!(
                "-d {}: a simulated HCA of this process shares no fabric with another's",
                self.device
            );
            return Err(Failure::bad_input(what)
                .remedy("serve both with `qhca sim serve` and name them with -d vfio-user:PATH"));
        }
        if self.tool.is_latency() && (args.qps > 1 || args.bidirectional) {
            self.warnings.push("a latency is of one message at a time: -q and -b do nothing here".to_owned());
        }
        let receives = if self.shared_receives { self.rx_depth * self.qps } else { self.rx_depth };
        if self.verb == Verb::Send && receives < self.depth {
            self.warnings.push(format!(
                "{receives} receives for {} messages under way: {}; -r {} is enough",
                self.depth,
                match self.service {
                    Service::Rc => "the peer will be asked to wait (RNR)",
                    _ => "messages will be lost",
                },
                self.depth
            ));
        }
        if self.list > self.depth {
            return Err(Failure::bad_input(format!(
                "-l {}: more than -t {} messages under way",
                self.list, self.depth
            ))
            .remedy(format!("valid: 1 to {}", self.depth)));
        }
        Ok(())
    }

    /// Whether the device is one of this process.
    pub(super) fn is_simulated(&self) -> bool {
        matches!(self.device.parse(), Ok(Spec::Sim(_)))
    }

    /// What an end is made for.
    pub(super) fn end_setup(&self) -> EndSetup {
        let receives = self.verb == Verb::Send;
        EndSetup {
            service: self.service,
            qps: self.qps,
            largest: self.sizes.iter().copied().max().unwrap_or(1),
            depth: self.depth,
            rx_depth: if receives { self.rx_depth } else { 0 },
            inline: Job::inline_limit(self.inline),
            shared_receives: self.shared_receives,
        }
    }

    /// How the ends are connected.
    pub(super) fn connect(&self) -> Connect {
        let plain = Connect::new(Lid(0), QpNumber::new(0), self.mtu);
        let address = AddressVector { sl: self.sl, ..plain.address };
        Connect { address, rd_atomic: self.outs, timeout: self.timeout, ..plain }
    }

    /// The work for one size.
    pub(super) fn job(&self, bytes: u32) -> Job {
        let moderation = self.moderation.unwrap_or(if bytes > MODERATE_UP_TO { 1 } else { MODERATION });
        Job {
            duration: self.duration,
            depth: self.depth,
            list: self.list,
            moderation: if self.verb.is_one_sided() { moderation.min(self.outs.into()) } else { moderation },
            inline: self.inline,
            both: self.both,
            events: self.events,
            verify: self.verify,
            ..Job::new(self.verb, bytes, 1)
        }
    }

    /// The service as it is written.
    pub(super) fn service_name(&self) -> &'static str {
        name_of(self.service)
    }
}

fn check_service(tool: Tool, verb: Verb, service: Service) -> Result<(), Failure> {
    let valid: &[Service] = match verb {
        Verb::Send => &[Service::Rc, Service::Uc, Service::Ud],
        Verb::Write => &[Service::Rc, Service::Uc],
        _ => &[Service::Rc],
    };
    if valid.contains(&service) {
        return Ok(());
    }
    let names: Vec<&str> = valid.iter().map(|service| name_of(*service)).collect();
    let what = format!("-c {}: {} does not exist on this service", name_of(service), tool.name());
    Err(Failure::bad_input(what).remedy(format!("valid: {}", names.join(", "))))
}

/// A service as it is written.
fn name_of(service: Service) -> &'static str {
    match service {
        Service::Rc => "RC",
        Service::Uc => "UC",
        Service::Ud => "UD",
    }
}

fn sizes(tool: Tool, args: &Args, service: Service, mtu: Mtu) -> Result<Vec<u32>, Failure> {
    if matches!(tool, Tool::AtomicBw | Tool::AtomicLat) {
        return match args.size {
            None | Some(ATOMIC_BYTES) => Ok(vec![ATOMIC_BYTES]),
            Some(size) => {
                Err(Failure::bad_input(format!("-s {size}: an atomic has 8 bytes")).remedy("valid: 8"))
            }
        };
    }
    let most = if service == Service::Ud { mtu.bytes() } else { 1 << 30 };
    if args.all {
        return Ok((1..=LARGEST_POWER).map(|power| 1 << power).filter(|bytes| *bytes <= most).collect());
    }
    let default = if tool.is_latency() { 2 } else { most.min(65_536) };
    match args.size {
        Some(size) if size > most => {
            Err(Failure::bad_input(format!("-s {size}: a datagram fits one packet"))
                .remedy(format!("valid: 1 to {most} (-m {most})")))
        }
        Some(size) => Ok(vec![size]),
        None => Ok(vec![default]),
    }
}
