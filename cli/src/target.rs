//! Devices by name, as they are typed; the one place where the tool opens one.
//!
//! A simulated device stands in a world of its own, made for one command: the card, and a second card at the other end
//! of its cables, so that a link has somebody to talk to. Opened *cold*, nothing moves and nothing was written; opened
//! *up*, the driver has brought both cards up and its threads turn them.

use crate::args::{Cpus, DeviceArg};
use crate::fail::{Failure, Status};
use crate::ui::Ui;
use crate::up::place;
use qhca::{
    Device, OpenError, Opening, ResetHow, Runtime, SimCards, SimSetup, Spec, StartError, VfioSettings, Window,
};
use qhca_driver::board::Chip;
use qhca_driver::eeprom::{EepromPoll, EepromReader};
use qhca_driver::env::Clock;
use qhca_driver::gpio::Gpio;
use qhca_driver::identity::Identity;
use qhca_driver::link::LinkStatus;
use qhca_driver::options::Options;
use qhca_driver::vfio::VfioError;
use qhca_driver::vfio_user::VfioUserError;
use qhca_hwtests::{ByControl, Check, InWorld};
use qhca_regs::map::device::REVISION;
use qhca_regs::map::port::{IBC_CTRL_B, IBC_STATUS_A};
use qhca_regs::{Bar, Duration, GONE, Instant, Port, RegValue};
use qhca_sim::chip::{Config, WrongSet};
use std::path::Path;
use std::time::Duration as StdDuration;

const VALID: &str = "valid: sim, sim:qle7340 (one port), sim:qle7342 (two ports), vfio-user:PATH, vfio:ADDRESS (a card of this machine), up:NAME for looking at what `qhca up` holds";

/// How long links may train before they are shown as they are.
///
/// TIMEOUT: ours; a simulated link takes milliseconds, a real one some hundred.
const LINKS_WITHIN: Duration = Duration::from_secs(2);

/// An open device.
pub(crate) struct Target {
    /// How the device was called on the command line.
    pub(crate) name: String,
    window: Window,
    /// The world that the device is simulated in, if that is in this process.
    around: Option<InWorld>,
    held: Held,
}

/// Who holds the device.
enum Held {
    /// Nobody has written to it.
    Cold(Box<Opening>),
    /// The driver. The other end of a simulated card's cables stays up as long.
    Up { device: Device, _peer: Option<Device> },
}

/// What is opened: the device, and what is at the other end of its cables if that is in this process too.
struct Opened {
    card: Opening,
    peer: Option<Opening>,
    around: Option<InWorld>,
}

/// Opens what `name` names. A simulated card stands still, unless it is `turned`, and is wrong in these points.
fn open(name: &str, wrong: WrongSet, turned: bool, ui: &Ui) -> Result<Opened, Failure> {
    let spec: Spec = name.parse().map_err(|e| Failure::bad_input(format!("-d {name}: {e}")).remedy(VALID))?;
    let Spec::Sim(board) = spec else {
        if wrong != WrongSet::NONE {
            let what = format!("-d {name}: only a chip that is simulated in this process can be made wrong");
            return Err(Failure::bad_input(what).remedy("give --wrong to `qhca sim serve` instead"));
        }
        let card = Device::open(name).map_err(|error| not_opened(name, &error))?;
        if let Some(how) = card.how() {
            ui.progress(&format!("{name}: {how}"));
        }
        if let Spec::Pci { settings: VfioSettings { noiommu: true, .. }, .. } = spec {
            ui.warning(&format!("{name}: without an IOMMU there is no DMA, and the kernel is tainted"));
        }
        return Ok(Opened { card, peer: None, around: None });
    };
    let setup = SimSetup::new(Config { board, wrong, ..Config::default() }).with_peer(&Port::ALL);
    let setup = if turned { setup } else { setup.on_manual_clock() };
    let SimCards { card, peer, .. } = setup.open().map_err(|error| not_opened(name, &error))?;
    let around = match &card {
        Opening::Sim(opening) => Some(InWorld::of(opening.backend())),
        _ => None,
    };
    Ok(Opened { card, peer, around })
}

impl Target {
    /// Opens the device, makes sure that it answers, and leaves it alone.
    pub(crate) fn open(arg: &DeviceArg, ui: &Ui) -> Result<Self, Failure> {
        Self::open_wrong(arg, WrongSet::NONE, ui)
    }

    /// The same, with a simulated chip that is wrong in these points.
    pub(crate) fn open_wrong(arg: &DeviceArg, wrong: WrongSet, ui: &Ui) -> Result<Self, Failure> {
        let name = arg.device.clone();
        ui.detail(&format!("opening {name}"));
        let Opened { card, around, .. } = open(&name, wrong, false, ui)?;
        let target = Self { name, window: card.window(), around, held: Held::Cold(Box::new(card)) };
        target.check_present("Revision")?;
        Ok(target)
    }

    /// Opens the device and brings it up with `options`, links switched on, none of them made active.
    pub(crate) fn open_up(arg: &DeviceArg, options: &Options, ui: &Ui) -> Result<Self, Failure> {
        let name = arg.device.clone();
        let Opened { card, peer, around } = open(&name, WrongSet::NONE, true, ui)?;
        let start = |opening: Opening, options: Options| -> Result<Device, Failure> {
            opening.parsed_options(options).start(Runtime::Threads).map_err(|e| not_started(&name, &e))
        };
        ui.progress(&format!("{name}: bringing it up"));
        let peer = peer.map(|peer| start(peer, Options::default())).transpose()?;
        let device = start(card, options.clone())?;
        ui.detail(device.bring_up_report().to_string().trim_end());
        for warning in &device.bring_up_report().warnings {
            ui.warning(&format!("{name}: {warning}"));
        }
        if let Some(Cpus(cpus)) = &arg.pin_irqs
            && let Err(error) = device.pin_vectors(cpus)
        {
            ui.warning(&format!("{name}: {error}"));
        }
        for place in device.vector_places() {
            ui.detail(&format!("{name}: {place}"));
        }
        if arg.chip_reset {
            let report = device.reset(ResetHow::Chip).map_err(|error| {
                Failure::new(Status::Device, format!("{name}: {error}"))
                    .remedy("see whether `lspci` still lists the card; if not, rescan its bus or reboot")
            })?;
            ui.progress(&format!(
                "{name}: the chip was reset by its own register and back after {}",
                report.took
            ));
        }
        let window = device.window();
        Ok(Self { name, window, around, held: Held::Up { device, _peer: peer } })
    }

    /// The running device, if it was brought up.
    pub(crate) fn device(&self) -> Option<&Device> {
        match &self.held {
            Held::Cold(_) => None,
            Held::Up { device, .. } => Some(device),
        }
    }

    /// Waits until the links of all ports are up, or have had their time.
    pub(crate) fn wait_for_links(&self, ui: &Ui) {
        let Some(device) = self.device() else { return };
        for port in device.split().ports.iter() {
            if !device.wait_for_link(port, LINKS_WITHIN, LinkStatus::is_up) {
                ui.detail(&format!("{}: {port} is not up after {LINKS_WITHIN}", self.name));
            }
        }
    }

    /// Runs the scenarios of `hwtests` with these names on a device that was opened cold. `control` is the control socket of the server
    /// that it is behind.
    pub(crate) fn selftest(
        self,
        control: Option<&Path>,
        wanted: impl Fn(&str) -> bool,
    ) -> Result<Vec<Check>, Failure> {
        let spec: Option<Spec> = self.name.parse().ok();
        let around = match (spec, control) {
            (Some(Spec::VfioUser(device)), Some(control)) => {
                let around = ByControl::of(&device, control);
                Some(around.map_err(|error| Failure::new(Status::Missing, error))?)
            }
            (_, Some(_)) => {
                let what = format!("-d {}: only a device behind a socket has a server to control", self.name);
                return Err(Failure::bad_input(what).remedy("leave --control out"));
            }
            (_, None) => None,
        };
        Ok(match self.held {
            Held::Cold(card) => qhca_hwtests::run_opened(*card, around, wanted),
            Held::Up { .. } => Vec::new(),
        })
    }

    /// Reads the register at `offset`.
    pub(crate) fn read(&self, offset: u32) -> u64 {
        self.window.read(offset)
    }

    /// Refuses to go on with a device that no longer answers; `register` is the one that read as all ones.
    pub(crate) fn check_present(&self, register: &str) -> Result<(), Failure> {
        let revision = REVISION.read(&self.window).raw();
        if revision != GONE {
            return Ok(());
        }
        let what = format!("{}: {register} reads {GONE:#x}: the device does not answer", self.name);
        Err(Failure::new(Status::Device, what)
            .remedy("nothing more was read; see whether lspci still lists the card, then reset or reseat it"))
    }

    /// The chip and its board.
    pub(crate) fn chip(&self) -> Result<Chip, Failure> {
        Chip::from_revision(REVISION.read(&self.window)).map_err(|e| {
            Failure::new(Status::Device, format!("{}: {e}", self.name))
                .remedy("the device was left alone; `qhca regs Revision` shows the register")
        })
    }

    /// Who the device is: board, and the GUIDs and serial number in its EEPROM.
    pub(crate) fn identity(&self) -> Result<Identity, Failure> {
        if let Some(device) = self.device() {
            return Ok(device.identity().clone());
        }
        let chip = self.chip()?;
        let (mut reader, mut gpio) = (EepromReader::new(), Gpio::new());
        let flash = loop {
            match reader.poll(&mut gpio, &self.window, self.now()) {
                EepromPoll::More(until) => self.sleep_until(until),
                EepromPoll::Done(result) => break result,
            }
        };
        Ok(Identity { chip, flash })
    }

    /// The time on the clock that the device goes by.
    fn now(&self) -> Instant {
        match (&self.around, &self.held) {
            (Some(around), _) => around.world().clock().now(),
            (None, Held::Up { device, .. }) => device.now(),
            (None, Held::Cold(card)) => card.now(),
        }
    }

    /// Waits; a simulated world that stands still is moved.
    fn sleep_until(&self, until: Instant) {
        match &self.around {
            Some(around) => around.world().advance_to(until),
            None => std::thread::sleep(StdDuration::from_nanos(until.since(self.now()).as_nanos())),
        }
    }

    /// What `port`'s link is doing.
    pub(crate) fn link(&self, port: Port) -> Result<LinkStatus, Failure> {
        let status = IBC_STATUS_A.port(port).read(&self.window);
        if status.raw() == GONE {
            self.check_present(&format!("IBCStatusA_{}", port.index()))?;
        }
        Ok(LinkStatus::new(status))
    }

    /// The LID that `port` answers to, and how many of its low bits are free.
    pub(crate) fn lid(&self, port: Port) -> (u16, u8) {
        let ctrl = IBC_CTRL_B.port(port).read(&self.window);
        match ctrl.ib_dlid() {
            0 => (0, 0),
            lid => (lid, ctrl.ib_dlid_mask().trailing_zeros() as u8),
        }
    }

    /// What was written to parts of the chip that the model leaves out: register, offset, number of writes.
    pub(crate) fn unmodelled(&self) -> Result<Vec<(String, u32, u64)>, Failure> {
        let Some(around) = &self.around else {
            let what =
                format!("{}: what a model leaves out is known to the process that simulates it", self.name);
            return Err(Failure::new(Status::Missing, what)
                .remedy("ask it: `qhca sim ctl --control PATH state` (served with --control PATH)"));
        };
        Ok(around.world().with(|world| world.chip(around.node()).unmodelled().collect()))
    }
}

fn not_opened(name: &str, error: &OpenError) -> Failure {
    // What is wrong with a card is told as it is: only one that is in use has a holder to name, who is not ourselves.
    let is_in_use = match error {
        OpenError::Vfio { source, .. } => matches!(source, VfioError::Busy { .. }),
        OpenError::VfioUser { .. } | OpenError::System { .. } => true,
        _ => false,
    };
    let held_by = |spec: Spec| place::holder_of(&place::name_of(&spec));
    let holder = name.parse().ok().filter(|_| is_in_use).and_then(held_by);
    if let Some(holder) = holder.filter(|holder| holder.pid != std::process::id()) {
        return Failure::new(Status::Missing, format!("-d {name}: it is held by {holder}"))
            .remedy("info, counters, regs and events ask that process; end it for anything else");
    }
    let remedy: String = match error {
        OpenError::Vfio { source, .. } => source.remedy(),
        OpenError::VfioUser { .. } => {
            "see that `qhca sim serve --socket PATH` runs and that nobody else uses the socket".to_owned()
        }
        OpenError::System { .. } => {
            "close the program that holds the device, or raise the limit that the message names".to_owned()
        }
        _ => VALID.to_owned(),
    };
    let status = match error {
        OpenError::VfioUser { source: VfioUserError::NoAnswer, .. }
        | OpenError::Vfio { source: VfioError::NoAnswer { .. } | VfioError::Asleep { .. }, .. } => {
            Status::Device
        }
        _ => Status::Missing,
    };
    Failure::new(status, format!("-d {name}: {}", told(error))).remedy(remedy)
}

/// The error without the device's name, which the caller has said.
fn told(error: &OpenError) -> String {
    match std::error::Error::source(error) {
        Some(source) => source.to_string(),
        None => error.to_string(),
    }
}

fn not_started(name: &str, error: &StartError) -> Failure {
    let status = match error {
        StartError::Option(_) => Status::BadInput,
        StartError::BringUp(_) => Status::Device,
        _ => Status::Missing,
    };
    let what = match error {
        StartError::Map(source) => format!("{name}: {error}: {source}"),
        _ => format!("{name}: {error}"),
    };
    Failure::new(status, what).remedy("`qhca selftest` says which part of the device does not do its work")
}
