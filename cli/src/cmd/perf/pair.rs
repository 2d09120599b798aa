//! Two simulated HCAs in this process, a cable between them, and an end on each.

use super::options::Wanted;
use super::{Bench, table};
use crate::fail::{Failure, Status};
use crate::ui::Ui;
use qhca::verbs::Psn;
use qhca::verbs::mgmt::SmMode;
use qhca::verbs::perf::{Bandwidth, End, Job, Latency, PerfError, Side, measure_bandwidth, measure_latency};
use qhca::verbs::port::{PortSetup, Turn};
use qhca::{Device, Duration, Instant, Opening, Port, Runtime, SimCards, SimSetup, Spec, VerbsPort};

/// How long a link may take to become ACTIVE.
///
/// TIMEOUT: ours; training takes milliseconds, an answer to a manager microseconds, a manager's second try a second.
const ACTIVE_WITHIN: Duration = Duration::from_secs(20);

/// The pair.
pub(super) struct Pair {
    from: Side<VerbsPort>,
    to: Side<VerbsPort>,
    device: Device,
}

impl Pair {
    /// Opens both, brings the cable up, connects the ends.
    pub(super) fn open(wanted: &Wanted, ui: &Ui) -> Result<Self, Failure> {
        let (left, right) = open_cards(&wanted.device, wanted.port, wanted.crc)?;
        ui.detail("bringing up two simulated HCAs");
        let mut ports = [open_port(left, wanted.port, wanted.sm)?, open_port(right, wanted.port, wanted.sm)?];
        wait_until_active(&mut ports)?;
        let device = ports[0].control().clone();
        let [mut left, mut right] = ports;
        let failed = |error: PerfError| super::failure(wanted, 0, &error);
        let setup = wanted.end_setup();
        let mut a = End::open(left.engine(), &setup, Psn::new(0)).map_err(failed)?;
        let mut b = End::open(right.engine(), &setup, Psn::new(0)).map_err(failed)?;
        let (with, now) = (wanted.connect(), device.now());
        a.connect(left.engine(), b.name(), &with, now).map_err(failed)?;
        b.connect(right.engine(), a.name(), &with, now).map_err(failed)?;
        a.look_at(&b);
        b.look_at(&a);
        Ok(Self { from: Side { port: left, end: a }, to: Side { port: right, end: b }, device })
    }
}

/// Two cards with a cable between their ports.
pub(crate) fn open_cards(device: &str, port: Port, crc: bool) -> Result<(Opening, Opening), Failure> {
    let board = match device.parse() {
        Ok(Spec::Sim(board)) => board,
        Ok(_) => {
            return Err(Failure::bad_input(format!("-d {device}: two simulated HCAs are needed"))
                .remedy("valid: sim, sim:qle7340, sim:qle7342"));
        }
        Err(error) => return Err(Failure::bad_input(format!("-d {device}: {error}"))),
    };
    let setup = SimSetup::board(board).with_peer(&[port]);
    let setup = if crc { setup.with_crc() } else { setup };
    let SimCards { card, peer, .. } = setup.open().map_err(|e| Failure::new(Status::Missing, e))?;
    let peer = peer.ok_or_else(|| {
        Failure::bad_input(format!("-i {}: {device} has no such port", port.index() + 1)).remedy("valid: 1")
    })?;
    Ok((card, peer))
}

/// Brings a card up and takes its port into use.
pub(crate) fn open_port(card: Opening, port: Port, manager: SmMode) -> Result<VerbsPort, Failure> {
    let name = card.name();
    let device =
        card.start(Runtime::Threads).map_err(|e| Failure::new(Status::Device, format!("{name}: {e}")))?;
    let setup = PortSetup { manager, host: format!("qhca {name}"), ..PortSetup::default() };
    device.open_verbs(port, &setup).map_err(|e| Failure::new(Status::Device, format!("{name}: {e}")))
}

/// Turns the ports until data can flow.
pub(crate) fn wait_until_active(ports: &mut [VerbsPort]) -> Result<(), Failure> {
    let clock = |ports: &[VerbsPort]| ports.first().map_or(Instant::ZERO, |port| port.control().now());
    let begun = clock(ports);
    while !ports.iter().all(VerbsPort::is_ready) {
        let now = clock(ports);
        let idle = ports.iter_mut().all(|port| port.turn(now).is_idle());
        if idle {
            std::thread::yield_now();
        }
        if now.since(begun) > ACTIVE_WITHIN {
            let port = ports.iter().find(|port| !port.is_ready());
            let advice = port.and_then(|port| port.control().link_advice(port.port())).unwrap_or_default();
            let what = format!("the link is not ACTIVE after {ACTIVE_WITHIN}: {advice}");
            return Err(Failure::new(Status::Device, what)
                .remedy("with --sm off somebody else must manage the subnet; --sm on does it here"));
        }
    }
    Ok(())
}

impl Bench for Pair {
    fn addresses(&self) -> String {
        table::addresses(self.from.end.name(), self.to.end.name())
    }

    fn bandwidth(&mut self, job: &Job) -> Result<Bandwidth, PerfError> {
        let device = self.device.clone();
        let seen = measure_bandwidth(&mut self.from, &mut self.to, job, &move || device.now())?;
        Ok(seen.figures)
    }

    fn latency(&mut self, job: &Job) -> Result<Latency, PerfError> {
        let device = self.device.clone();
        let seen = measure_latency(&mut self.from, &mut self.to, job, &move || device.now())?;
        Ok(seen.figures)
    }

    fn end(&mut self) -> Result<(), PerfError> {
        Ok(())
    }
}
