//! `qhca up`: brings a device up and holds it, so that others can look at it, until SIGTERM or SIGINT.
//!
//! A second `qhca up` of the same device is told who holds it. Results go to stdout as lines: first that the device is
//! up and where its socket is, then each event. Under systemd it says when it is ready.

use crate::args::DeviceArg;
use crate::cmd::options::read_modprobe_file;
use crate::fail::{Failure, Status};
use crate::target::Target;
use crate::ui::Ui;
use crate::up::place::{self, Claim};
use crate::up::question::EventView;
use crate::up::server::Server;
use qhca_driver::options::Options;
use qhca_driver::sys::{EndSignals, Epoll};
use qhca_host::{Reader, RealHost, users};
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::PathBuf;

/// Arguments of `qhca up`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    device: DeviceArg,
    /// Options of ib_qib, e.g. `krcvqs=2 ibmtu=4`
    #[arg(long, value_name = "LIST", default_value = "")]
    options: String,
    /// A modprobe.d file to take options from; `--options` goes on top
    #[arg(long, value_name = "FILE")]
    modprobe_conf: Option<PathBuf>,
    /// Let this group ask over the socket too (mode 0660 instead of 0600)
    #[arg(long, value_name = "NAME")]
    group: Option<String>,
}

/// The signals' token in the epoll set; the socket's and the clients' are the server's.
const SIGNALS: u64 = 1;
/// How often events are looked for.
///
/// TIMEOUT: ours; ten looks a second cost nothing, and an event is shown soon enough.
const LOOK_EVERY_MS: i32 = 100;
/// How often a client is tried again that does not take its answer.
///
/// TIMEOUT: ours; well below the 50 ms within which an answer is promised.
const UNSENT_EVERY_MS: i32 = 5;

/// Runs `qhca up`.
pub(crate) fn run(args: &Args, ui: &Ui) -> Result<Status, Failure> {
    let options = options(args, ui)?;
    let gid = args.group.as_deref().map(gid_of).transpose()?;
    // Before any thread is there: it is to come to this one.
    let signals = EndSignals::block().map_err(|error| system("signals cannot be waited for", &error))?;
    let device: qhca::Spec = args.device.device.parse().map_err(|error: qhca::SpecError| {
        Failure::bad_input(format!("-d {}: {error}", args.device.device))
            .remedy("`qhca list` shows the cards")
    })?;
    let name = if args.device.device == "sim" { "sim".to_owned() } else { place::name_of(&device) };
    let claim = Claim::take(&name)?;
    let target = Target::open_up(&args.device, &options, ui)?;
    let status = hold(&target, &claim, gid, &signals, ui);
    ui.progress(&format!("{}: closing", target.name));
    if let Some(device) = target.device() {
        ui.detail(&format!("{}: {:?}", target.name, device.close()));
    }
    status
}

/// Holds the device until the program is to end, or the device has.
fn hold(
    target: &Target,
    claim: &Claim,
    gid: Option<u32>,
    signals: &EndSignals,
    ui: &Ui,
) -> Result<Status, Failure> {
    let Some(device) = target.device() else {
        return Err(Failure::new(Status::Device, format!("{} is not up", target.name)));
    };
    let failed = |error: std::io::Error| system("the device's socket cannot be made", &error);
    let epoll = Epoll::new().map_err(failed)?;
    epoll.add(signals.as_fd(), SIGNALS).map_err(failed)?;
    let mut server = Server::listen(claim, gid, &epoll, device.now()).map_err(failed)?;
    ui.line(&format!(
        "{} is up; -d up:{} asks it, by {}",
        target.name,
        claim.name(),
        claim.socket().display()
    ))?;
    tell_systemd("READY=1");
    let (mut tokens, mut printed) = (Vec::new(), Ok(()));
    loop {
        let within = if server.has_unsent() { UNSENT_EVERY_MS } else { LOOK_EVERY_MS };
        epoll.wait(within, &mut tokens).map_err(failed)?;
        server.note_events(target, &mut |event| {
            if printed.is_ok() {
                printed = ui.line(&event_line(event));
            }
        });
        server.serve(&tokens, &epoll, target, claim.name());
        if signals.came() {
            tell_systemd("STOPPING=1");
            return printed.map(|()| Status::Done);
        }
        if device.state().is_final() {
            let what = format!("{}: the device is {:?}", target.name, device.state()).to_lowercase();
            return Err(Failure::new(Status::Device, what).remedy("the events above say what came before"));
        }
    }
}

/// One event on one line.
pub(crate) fn event_line(event: &EventView) -> String {
    format!("{:>12.6} {:<10} {}", event.seconds, event.kind, event.text)
}

fn options(args: &Args, ui: &Ui) -> Result<Options, Failure> {
    let mut list = String::new();
    if let Some(path) = &args.modprobe_conf {
        let parsed = read_modprobe_file(path)?;
        parsed.warnings.iter().for_each(|warning| ui.warning(&format!("{}: {warning}", path.display())));
        list = format!("{} ", parsed.options);
    }
    list += &args.options;
    let parsed = Options::parse(&list).map_err(|error| {
        Failure::bad_input(format!("--options: {error}")).remedy("`qhca options` lists names and ranges")
    })?;
    parsed.warnings.iter().for_each(|warning| ui.warning(&format!("--options: {warning}")));
    Ok(parsed.options)
}

fn gid_of(group: &str) -> Result<u32, Failure> {
    let host = RealHost::new("/");
    let gid =
        users::gid_of(Reader::new(&host), group).map_err(|unread| Failure::new(Status::Missing, unread))?;
    gid.ok_or_else(|| {
        Failure::bad_input(format!("--group {group}: /etc/group has no such group"))
            .remedy("valid: a name from /etc/group, or a group's number")
    })
}

fn system(what: &str, error: &std::io::Error) -> Failure {
    Failure::new(Status::Missing, format!("{what}: {error}"))
}

/// Says something to systemd, if it started this program and wants to hear.
fn tell_systemd(what: &str) {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let path = path.to_string_lossy().into_owned();
    let address = match path.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(&path),
    };
    // Nobody is hindered by not hearing it.
    if let (Ok(address), Ok(socket)) = (address, UnixDatagram::unbound()) {
        let _ = socket.send_to_addr(what.as_bytes(), &address);
    }
}
