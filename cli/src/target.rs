//! Devices by name, as they are typed; the one place where the tool opens one.
//!
//! A simulated device stands in a world of its own, made for one command: the card, and a second card at the other end
//! of its cables, so that a link has somebody to talk to. Opened *cold*, nothing moves and nothing was written; opened
//! *up*, the driver has brought both cards up and its threads turn them.

use crate::args::DeviceArg;
use crate::fail::{Failure, Status};
use crate::ui::Ui;
use qhca::Spec;
use qhca_driver::board::Chip;
use qhca_driver::eeprom::{EepromPoll, EepromReader};
use qhca_driver::env::{Backend, Clock};
use qhca_driver::gpio::Gpio;
use qhca_driver::identity::Identity;
use qhca_driver::link::LinkStatus;
use qhca_driver::options::Options;
use qhca_driver::runtime::{Device, Opening, Runtime, StartError};
use qhca_hwtests::{Check, Surroundings};
use qhca_regs::map::device::REVISION;
use qhca_regs::map::port::{IBC_CTRL_B, IBC_STATUS_A};
use qhca_regs::status::HwErrBits;
use qhca_regs::{Bar, Duration, GONE, Port, RegValue};
use qhca_sim::backend::{SimBar, SimDevice, SimWorld};
use qhca_sim::chip::{Board, Config, Injection, Meta, WrongSet};
use qhca_sim::fabric::CableConfig;
use qhca_sim::vtime::Seed;
use qhca_sim::world::{NodeId, World};

/// How long links may train before they are shown as they are.
///
/// TIMEOUT: ours; a simulated link takes milliseconds, a real one some hundred.
const LINKS_WITHIN: Duration = Duration::from_secs(2);
/// Distance of the two cards' base GUIDs: room for those of the ports.
const GUIDS_APART: u64 = 0x10;

/// An open device.
pub(crate) struct Target {
    /// How the device was called on the command line.
    pub(crate) name: String,
    world: SimWorld,
    node: NodeId,
    bar: SimBar,
    held: Held,
}

/// Who holds the device.
enum Held {
    /// Nobody has written to it.
    Cold(SimDevice),
    /// The driver. The other end of the cables stays up as long.
    Up { device: Device<SimDevice>, _peer: Device<SimDevice> },
}

/// The world of one command: the card that is meant, and one at the other end of its cables.
fn build_world(board: Board, wrong: WrongSet) -> (World, NodeId, NodeId) {
    let mut world = World::new(Seed(1), false);
    let node = world.add(Config { board, wrong, ..Config::default() });
    let guid = Config::default().guid + GUIDS_APART;
    let peer = world.add(Config { guid, serial: "QHCASIM00002".to_owned(), ..Config::default() });
    for port in Port::ALL.into_iter().filter(|port| board.speeds(*port) != 0) {
        world.connect((node, port), (peer, port), CableConfig::default());
    }
    (world, node, peer)
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
        let (world, node, _) = build_world(sim_board(&name)?, wrong);
        let world = SimWorld::manual(world);
        let device = world.open(node).map_err(|e| missing(&name, e))?;
        let target = Self { name, world, node, bar: device.bar(), held: Held::Cold(device) };
        target.check_present("Revision")?;
        Ok(target)
    }

    /// Opens the device and brings it up with `options`, links switched on, none of them made active.
    pub(crate) fn open_up(arg: &DeviceArg, options: &Options, ui: &Ui) -> Result<Self, Failure> {
        let name = arg.device.clone();
        let (world, node, peer) = build_world(sim_board(&name)?, WrongSet::NONE);
        let world = SimWorld::start(world).map_err(|e| missing(&name, e))?;
        let start = |node, options: Options| -> Result<Device<SimDevice>, Failure> {
            let opening = Opening::new(world.open(node).map_err(|e| missing(&name, e))?);
            opening.parsed_options(options).start(Runtime::Threads).map_err(|e| not_started(&name, &e))
        };
        ui.progress(&format!("{name}: bringing it up"));
        let peer = start(peer, Options::default())?;
        let device = start(node, options.clone())?;
        ui.detail(device.bring_up_report().to_string().trim_end());
        for warning in &device.bring_up_report().warnings {
            ui.warning(&format!("{name}: {warning}"));
        }
        let bar = device.bar();
        Ok(Self { name, world, node, bar, held: Held::Up { device, _peer: peer } })
    }

    /// The running device, if it was brought up.
    pub(crate) fn device(&self) -> Option<&Device<SimDevice>> {
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

    /// Runs every scenario of `hwtests` on a device that was opened cold.
    pub(crate) fn selftest(self) -> Vec<Check> {
        let mut around = Around { world: self.world, node: self.node };
        match self.held {
            Held::Cold(device) => qhca_hwtests::run(device, &mut around),
            Held::Up { .. } => Vec::new(),
        }
    }

    /// Reads the register at `offset`.
    pub(crate) fn read(&self, offset: u32) -> u64 {
        self.bar.read(offset)
    }

    /// Refuses to go on with a device that no longer answers; `register` is the one that read as all ones.
    pub(crate) fn check_present(&self, register: &str) -> Result<(), Failure> {
        let revision = REVISION.read(&self.bar).raw();
        if revision != GONE {
            return Ok(());
        }
        let what = format!("{}: {register} reads {GONE:#x}: the device does not answer", self.name);
        Err(Failure::new(Status::Device, what)
            .remedy("nothing more was read; see whether lspci still lists the card, then reset or reseat it"))
    }

    /// The chip and its board.
    pub(crate) fn chip(&self) -> Result<Chip, Failure> {
        Chip::from_revision(REVISION.read(&self.bar)).map_err(|e| {
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
            match reader.poll(&mut gpio, &self.bar, self.world.clock().now()) {
                EepromPoll::More(until) => self.world.advance_to(until),
                EepromPoll::Done(result) => break result,
            }
        };
        Ok(Identity { chip, flash })
    }

    /// What `port`'s link is doing.
    pub(crate) fn link(&self, port: Port) -> Result<LinkStatus, Failure> {
        let status = IBC_STATUS_A.port(port).read(&self.bar);
        if status.raw() == GONE {
            self.check_present(&format!("IBCStatusA_{}", port.index()))?;
        }
        Ok(LinkStatus::new(status))
    }

    /// The LID that `port` answers to, and how many of its low bits are free.
    pub(crate) fn lid(&self, port: Port) -> (u16, u8) {
        let ctrl = IBC_CTRL_B.port(port).read(&self.bar);
        match ctrl.ib_dlid() {
            0 => (0, 0),
            lid => (lid, ctrl.ib_dlid_mask().trailing_zeros() as u8),
        }
    }

    /// What was written to parts of the chip that the model leaves out: register, offset, number of writes.
    pub(crate) fn unmodelled(&self) -> Vec<(String, u32, u64)> {
        self.world.with(|world| world.chip(self.node).unmodelled().collect())
    }
}

/// The world around a simulated card, which can do to it what it cannot do itself.
struct Around {
    world: SimWorld,
    node: NodeId,
}

impl Surroundings for Around {
    fn deliver_with_wrong_icrc(&mut self, port: Port, packet: &[u8]) -> bool {
        self.world.with(|world| {
            let now = world.now();
            let (chip, host) = world.chip_mut(self.node);
            chip.deliver(port, packet, Meta { icrc_ok: false, ..Meta::GOOD }, now, host);
        });
        true
    }

    fn raise_parity_error(&mut self) -> bool {
        let injection = Injection::Hardware(HwErrBits::IBC_BUS_FROM_SPC_PARITY_ERR_0);
        self.world.with(|world| world.inject(self.node, injection, world.now()));
        true
    }
}

fn missing(name: &str, error: std::io::Error) -> Failure {
    Failure::new(Status::Missing, format!("{name}: {error}"))
        .remedy("close the program that holds the device, or raise the limit that the message names")
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

/// The board that `sim` or `sim:BOARD` asks for.
fn sim_board(name: &str) -> Result<Board, Failure> {
    const VALID: &str = "valid: sim, sim:qle7340 (one port), sim:qle7342 (two ports)";
    match name.parse() {
        Ok(Spec::Sim(board)) => Ok(board),
        Ok(spec) => Err(Failure::new(
            Status::Missing,
            format!("-d {spec}: this version opens simulated devices only"),
        )
        .remedy(format!("{VALID}; cards behind VFIO come with a later version"))),
        Err(error) => Err(Failure::bad_input(format!("-d {name}: {error}")).remedy(VALID)),
    }
}
