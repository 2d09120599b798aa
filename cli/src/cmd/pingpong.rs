//! `qhca rc-pingpong`, `uc-pingpong`, `ud-pingpong`: the programs of libibverbs' examples, in their own words.
//!
//! The two sides meet over TCP and tell each other in one fixed line who they are, which the stock programs do as well, so
//! either side may be one of them:
//!
//! ```text
//!   client                                              server
//!   "LID4:QPN6:PSN6:GID32" and a zero byte           ─►
//!                                                    ◄─ the same
//!   "done" and a zero byte                           ─►
//! ```
//!
//! Without a host and on a simulated device both sides are in this process.

use super::perf::{SmChoice, mtu_of};
use super::perf::{open_cards, open_port, wait_until_active};
use crate::fail::{Failure, Status};
use crate::ui::Ui;
use qhca::verbs::perf::{
    End, EndName, EndSetup, Job, PerfError, PingPong, Side, Verb, Verify, drive, measure_latency,
};
use qhca::verbs::port::Turn;
use qhca::verbs::wire::Service;
use qhca::verbs::{AddressVector, Connect, Key, MemoryRegion, Psn, QpNumber};
use qhca::{Device, Duration, Lid, Port, Spec, VerbsPort};
use serde::Serialize;
use std::fmt::Write as _;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};

/// Bytes of a line: 4, 6, 6 and 32 digits, colons, and a zero byte.
const LINE_BYTES: usize = 4 + 1 + 6 + 1 + 6 + 1 + 32 + 1;
/// What the client says last.
const DONE: &[u8; 5] = b"done\0";
/// How long the other side may take to say something.
const ANSWER_WITHIN: Duration = Duration::from_secs(60);

/// Arguments of the three programs.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The server: a host on which this program, or the stock one, runs without this argument
    host: Option<String>,
    /// TCP port on which the two sides meet
    #[arg(short, long, value_name = "PORT", default_value_t = 18515)]
    port: u16,
    /// Device: `sim`, `sim:qle7340`, `sim:qle7342` or `vfio-user:PATH`
    #[arg(short = 'd', long = "ib-dev", value_name = "DEV", default_value = "sim")]
    device: String,
    /// Port of the device, from 1
    #[arg(short = 'i', long, value_name = "PORT", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=2))]
    ib_port: u8,
    /// Bytes of a message; 4096, for datagrams 1024
    #[arg(short, long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(1..=1 << 30))]
    size: Option<u32>,
    /// Largest packet: 256, 512, 1024, 2048 or 4096 bytes
    #[arg(short, long, value_name = "BYTES", default_value_t = 1024)]
    mtu: u32,
    /// Receives posted
    #[arg(short, long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=16_383))]
    rx_depth: u32,
    /// Exchanges
    #[arg(short = 'n', long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=1 << 30))]
    iters: u32,
    /// Service level
    #[arg(short = 'l', long, value_name = "SL", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=15))]
    sl: u8,
    /// Sleep on events instead of polling
    #[arg(short, long)]
    events: bool,
    /// The micro subnet manager: if nobody better is there, whoever is there, or never
    #[arg(long, value_enum, default_value_t = SmChoice::Auto)]
    sm: SmChoice,
}

#[derive(Serialize)]
struct Json {
    transport: &'static str,
    bytes: u32,
    iterations: u32,
    seconds: f64,
    mbit_s: f64,
    usec_per_iteration: f64,
}

/// What is to be done.
struct Plan<'a> {
    args: &'a Args,
    service: Service,
    bytes: u32,
    port: Port,
}

/// Runs one of the programs.
pub(crate) fn run(service: Service, args: &Args, ui: &Ui) -> Result<Status, Failure> {
    let mtu = mtu_of(args.mtu)?;
    let is_ud = service == Service::Ud;
    let bytes = args.size.unwrap_or(if is_ud { 1024 } else { 4096 });
    if is_ud && bytes > 4096 {
        return Err(
            Failure::bad_input(format!("-s {bytes}: a datagram fits one packet")).remedy("valid: 1 to 4096")
        );
    }
    // PANIC: clap lets 1 and 2 through.
    let plan = Plan { args, service, bytes, port: Port::ALL[usize::from(args.ib_port) - 1] };
    let with = Connect { rd_atomic: 1, ..Connect::new(Lid(0), QpNumber::new(0), mtu) };
    let with = Connect { address: AddressVector { sl: args.sl, ..with.address }, ..with };
    let seconds = match (&args.host, args.device.parse()) {
        (None, Ok(Spec::Sim(_))) => plan.in_process(&with, ui)?,
        (Some(_), Ok(Spec::Sim(_))) => {
            let what = format!(
                "-d {}: a simulated HCA of this process shares no fabric with another's",
                args.device
            );
            return Err(Failure::bad_input(what)
                .remedy("serve it with `qhca sim serve` and name it with -d vfio-user:PATH"));
        }
        (host, _) => plan.between(host.as_deref(), &with, ui)?,
    };
    plan.report(seconds, ui)
}

impl Plan<'_> {
    fn setup(&self) -> EndSetup {
        EndSetup {
            service: self.service,
            qps: 1,
            largest: self.bytes,
            depth: 1,
            rx_depth: self.args.rx_depth,
            inline: 0,
            shared_receives: false,
        }
    }

    fn job(&self, verify: Verify) -> Job {
        Job {
            depth: 1,
            events: self.args.events,
            verify,
            ..Job::new(Verb::Send, self.bytes, self.args.iters)
        }
    }

    fn failed(&self, error: PerfError) -> Failure {
        let status = match error {
            PerfError::Late { .. } | PerfError::Gone => Status::Device,
            PerfError::Told(_) | PerfError::Peer(_) => Status::Missing,
            _ => Status::CheckFailed,
        };
        Failure::new(status, format!("{}: {error}", self.name()))
    }

    fn name(&self) -> &'static str {
        match self.service {
            Service::Rc => "rc-pingpong",
            Service::Uc => "uc-pingpong",
            Service::Ud => "ud-pingpong",
        }
    }

    fn open_end(&self, port: &mut VerbsPort) -> Result<End, Failure> {
        // As good a first number as any; the stock programs draw theirs.
        let psn = Psn::new(port.control().now().as_nanos() as u32);
        End::open(port.engine(), &self.setup(), psn).map_err(|e| self.failed(e))
    }

    fn in_process(&self, with: &Connect, ui: &Ui) -> Result<f64, Failure> {
        let (left, right) = open_cards(&self.args.device, self.port, true)?;
        let manager = self.args.sm.mode();
        let mut ports = [open_port(left, self.port, manager)?, open_port(right, self.port, manager)?];
        wait_until_active(&mut ports)?;
        let [mut left, mut right] = ports;
        let (mut a, mut b) = (self.open_end(&mut left)?, self.open_end(&mut right)?);
        let now = left.control().now();
        a.connect(left.engine(), b.name(), with, now).map_err(|e| self.failed(e))?;
        b.connect(right.engine(), a.name(), with, now).map_err(|e| self.failed(e))?;
        if !ui.json {
            ui.text(&addresses(&left, a.name(), b.name(), gid_of(&right)))?;
        }
        let device = left.control().clone();
        let clock = move || device.now();
        let (mut from, mut to) = (Side { port: left, end: a }, Side { port: right, end: b });
        let begun = clock();
        measure_latency(&mut from, &mut to, &self.job(Verify::Each), &clock).map_err(|e| self.failed(e))?;
        Ok(clock().since(begun).as_secs_f64())
    }

    fn between(&self, host: Option<&str>, with: &Connect, ui: &Ui) -> Result<f64, Failure> {
        let stream = self.meet(host, ui)?;
        let card = Device::open(&self.args.device)
            .map_err(|e| Failure::new(Status::Missing, format!("-d {}: {e}", self.args.device)))?;
        let mut port = open_port(card, self.port, self.args.sm.mode())?;
        wait_until_active(std::slice::from_mut(&mut port))?;
        let end = self.open_end(&mut port)?;
        self.exchange(stream, host.is_some(), Side { port, end }, with, ui).map_err(|e| self.failed(e))
    }

    fn meet(&self, host: Option<&str>, ui: &Ui) -> Result<TcpStream, Failure> {
        let port = self.args.port;
        let failed = |e: std::io::Error| Failure::new(Status::Missing, format!("TCP port {port}: {e}"));
        match host {
            Some(host) => TcpStream::connect((host, port)).map_err(|e| {
                Failure::new(Status::Missing, format!("{host}:{port}: {e}"))
                    .remedy("run the same program there first, without a host and with the same -p")
            }),
            None => {
                let listener = TcpListener::bind(("0.0.0.0", port)).map_err(failed)?;
                ui.progress(&format!("{}: waiting for a client at TCP port {port}", self.name()));
                Ok(listener.accept().map_err(failed)?.0)
            }
        }
    }

    fn exchange(
        &self,
        mut stream: TcpStream,
        is_client: bool,
        mut side: Side<VerbsPort>,
        with: &Connect,
        ui: &Ui,
    ) -> Result<f64, PerfError> {
        stream.set_nonblocking(true).map_err(|e| PerfError::Told(format!("the TCP connection: {e}")))?;
        let Side { port, end } = &mut side;
        let job = self.job(Verify::None);
        let own = line(end.name(), gid_of(port));
        let device = port.control().clone();
        let clock = move || device.now();
        let mut theirs = [0; LINE_BYTES];
        if is_client {
            say(&mut stream, &own)?;
            hear(&mut stream, &mut theirs, port)?;
        } else {
            hear(&mut stream, &mut theirs, port)?;
        }
        let (peer, gid) = parse(&theirs)?;
        end.connect(port.engine(), &peer, with, clock())?;
        let printed = ui.json || ui.text(&addresses(port, end.name(), &peer, gid)).is_ok();
        // Receives are posted before the other side is told where to send.
        let mut worker = PingPong::new(end, port.engine(), &job, is_client, clock())?;
        if is_client {
            say(&mut stream, DONE)?;
        } else {
            say(&mut stream, &own)?;
            hear(&mut stream, &mut [0; DONE.len()], port)?;
        }
        let begun = clock();
        drive(port, &mut worker, &job, &clock, || Ok(true))?;
        let seconds = clock().since(begun).as_secs_f64();
        // The other side may still wait for an acknowledge of its last.
        let until = clock() + Duration::from_millis(200);
        while clock() < until {
            if port.turn(clock()).is_idle() {
                port.rest(Duration::from_millis(1));
            }
        }
        if printed {
            Ok(seconds)
        } else {
            Err(PerfError::Told("the addresses could not be printed".to_owned()))
        }
    }

    fn report(&self, seconds: f64, ui: &Ui) -> Result<Status, Failure> {
        let iters = self.args.iters;
        let bytes = u64::from(self.bytes) * u64::from(iters) * 2;
        let seconds = seconds.max(1e-9);
        let (mbit_s, usec) = (bytes as f64 * 8.0 / seconds / 1e6, seconds * 1e6 / f64::from(iters));
        if ui.json {
            let transport = match self.service {
                Service::Rc => "RC",
                Service::Uc => "UC",
                Service::Ud => "UD",
            };
            ui.json(&Json {
                transport,
                bytes: self.bytes,
                iterations: iters,
                seconds,
                mbit_s,
                usec_per_iteration: usec,
            })?;
            return Ok(Status::Done);
        }
        let mut text = String::new();
        let _ = writeln!(text, "{bytes} bytes in {seconds:.2} seconds = {mbit_s:.2} Mbit/sec");
        let _ = writeln!(text, "{iters} iters in {seconds:.2} seconds = {usec:.2} usec/iter");
        ui.text(&text)?;
        Ok(Status::Done)
    }
}

fn gid_of(port: &VerbsPort) -> [u8; 16] {
    let attributes = port.attributes();
    let guid = port.control().identity().port_guid(port.port().index() as u8 + 1).0;
    let mut gid = [0; 16];
    gid[..8].copy_from_slice(&attributes.prefix.to_be_bytes());
    gid[8..].copy_from_slice(&guid.to_be_bytes());
    gid
}

fn line(name: &EndName, gid: [u8; 16]) -> Vec<u8> {
    let (qp, psn) = name.qps.first().copied().unwrap_or_default();
    let gid: String = gid.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut line = format!("{:04x}:{:06x}:{:06x}:{gid}", name.lid.0, qp.get(), psn.get()).into_bytes();
    line.push(0);
    line
}

/// What the other side says of itself.
fn parse(line: &[u8; LINE_BYTES]) -> Result<(EndName, [u8; 16]), PerfError> {
    let text = std::str::from_utf8(&line[..LINE_BYTES - 1]).ok();
    let parts: Vec<&str> = text.map(|text| text.split(':').collect()).unwrap_or_default();
    let hex = |at: usize| u32::from_str_radix(parts.get(at)?, 16).ok();
    let gid = || {
        let digits = parts.get(3)?.as_bytes();
        let mut gid = [0; 16];
        for (byte, pair) in gid.iter_mut().zip(digits.chunks(2)) {
            *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
        }
        Some(gid)
    };
    let name = || {
        let region = MemoryRegion { lkey: Key(0), rkey: Key(0), addr: 0, len_bytes: 0 };
        Some(EndName {
            lid: Lid(u16::try_from(hex(0)?).ok()?),
            qps: vec![(QpNumber::new(hex(1)?), Psn::new(hex(2)?))],
            region,
            slot_bytes: u64::MAX,
            slots: u32::MAX,
        })
    };
    name().zip(gid()).ok_or_else(|| {
        PerfError::Told(format!(
            "the other side says {:?}, which is no address",
            String::from_utf8_lossy(line)
        ))
    })
}

fn say(stream: &mut TcpStream, bytes: &[u8]) -> Result<(), PerfError> {
    // So few bytes always find room.
    stream.write_all(bytes).map_err(|e| PerfError::Told(format!("the other side is lost: {e}")))
}

/// Reads `bytes`; the port is turned until they are there.
fn hear(stream: &mut TcpStream, bytes: &mut [u8], port: &mut VerbsPort) -> Result<(), PerfError> {
    let (begun, mut have) = (port.control().now(), 0);
    while have < bytes.len() {
        match stream.read(&mut bytes[have..]) {
            Ok(0) => return Err(PerfError::Told("the other side has closed the connection".to_owned())),
            Ok(count) => have += count,
            Err(e) if e.kind() == ErrorKind::WouldBlock => {
                let now = port.control().now();
                if port.turn(now).is_idle() {
                    port.rest(Duration::from_millis(1));
                }
                if now.since(begun) > ANSWER_WITHIN {
                    return Err(PerfError::Told(format!("the other side said nothing for {ANSWER_WITHIN}")));
                }
            }
            Err(e) => return Err(PerfError::Told(format!("the other side is lost: {e}"))),
        }
    }
    Ok(())
}

fn addresses(port: &VerbsPort, local: &EndName, remote: &EndName, remote_gid: [u8; 16]) -> String {
    let mut text = String::new();
    for (whose, name, gid) in
        [("  local address: ", local, gid_of(port)), ("  remote address:", remote, remote_gid)]
    {
        let (qp, psn) = name.qps.first().copied().unwrap_or_default();
        let gid = std::net::Ipv6Addr::from(gid);
        let _ = writeln!(
            text,
            "{whose} LID {:#06x}, QPN {:#08x}, PSN {:#08x}, GID {gid}",
            name.lid.0,
            qp.get(),
            psn.get()
        );
    }
    text
}
