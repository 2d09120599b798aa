//! Devices by name, as they are typed; the one place where the tool opens one.

use crate::args::DeviceArg;
use crate::fail::{Failure, Status};
use crate::ui::Ui;
use qhca_driver::board::Chip;
use qhca_driver::eeprom::{EepromPoll, EepromReader};
use qhca_driver::env::{Backend, Clock};
use qhca_driver::gpio::Gpio;
use qhca_driver::identity::Identity;
use qhca_driver::link::state::LinkStatus;
use qhca_hwtests::{Check, Surroundings};
use qhca_regs::map::device::REVISION;
use qhca_regs::map::port::{IBC_CTRL_B, IBC_STATUS_A};
use qhca_regs::status::HwErrBits;
use qhca_regs::{Bar, GONE, Port, RegValue};
use qhca_sim::backend::{SimDevice, SimWorld};
use qhca_sim::chip::{Board, Config, Injection, Meta, WrongSet};
use qhca_sim::vtime::Seed;
use qhca_sim::world::{NodeId, World};

/// An open device.
pub(crate) struct Target {
    device: SimDevice,
    /// How the device was called on the command line.
    pub(crate) name: String,
}

impl Target {
    /// Opens the device and makes sure that it answers.
    pub(crate) fn open(arg: &DeviceArg, ui: &Ui) -> Result<Self, Failure> {
        Self::open_wrong(arg, WrongSet::NONE, ui)
    }

    /// The same, with a simulated chip that is wrong in these points.
    pub(crate) fn open_wrong(arg: &DeviceArg, wrong: WrongSet, ui: &Ui) -> Result<Self, Failure> {
        let name = arg.device.clone();
        ui.detail(&format!("opening {name}"));
        let board = sim_board(&name)?;
        let mut world = World::new(Seed(1), false);
        let node = world.add(Config { board, wrong, ..Config::default() });
        let device = SimWorld::manual(world).open(node).map_err(|e| {
            Failure::new(Status::Missing, format!("{name}: {e}")).remedy("close the program that holds it")
        })?;
        let target = Self { device, name };
        target.check_present("Revision")?;
        Ok(target)
    }

    /// Runs every scenario of `hwtests` on the device.
    pub(crate) fn selftest(self) -> Vec<Check> {
        let mut around = Around { world: self.device.world(), node: self.device.node() };
        qhca_hwtests::run(self.device, &mut around)
    }

    /// Reads the register at `offset`.
    pub(crate) fn read(&self, offset: u32) -> u64 {
        self.device.bar().read(offset)
    }

    /// Refuses to go on with a device that no longer answers; `register` is the one that read as all ones.
    pub(crate) fn check_present(&self, register: &str) -> Result<(), Failure> {
        let revision = REVISION.read(&self.device.bar()).raw();
        if revision != GONE {
            return Ok(());
        }
        let what = format!("{}: {register} reads {GONE:#x}: the device does not answer", self.name);
        Err(Failure::new(Status::Device, what)
            .remedy("nothing more was read; see whether lspci still lists the card, then reset or reseat it"))
    }

    /// The chip and its board.
    pub(crate) fn chip(&self) -> Result<Chip, Failure> {
        Chip::from_revision(REVISION.read(&self.device.bar())).map_err(|e| {
            Failure::new(Status::Device, format!("{}: {e}", self.name))
                .remedy("the device was left alone; `qhca regs Revision` shows the register")
        })
    }

    /// Who the device is: board, and the GUIDs and serial number in its EEPROM.
    pub(crate) fn identity(&self) -> Result<Identity, Failure> {
        let (chip, bar) = (self.chip()?, self.device.bar());
        let (mut reader, mut gpio) = (EepromReader::new(), Gpio::new());
        let flash = loop {
            match reader.poll(&mut gpio, &bar, self.device.clock().now()) {
                EepromPoll::More(until) => self.device.world().advance_to(until),
                EepromPoll::Done(result) => break result,
            }
        };
        Ok(Identity { chip, flash })
    }

    /// What `port`'s link is doing.
    pub(crate) fn link(&self, port: Port) -> Result<LinkStatus, Failure> {
        let status = IBC_STATUS_A.port(port).read(&self.device.bar());
        if status.raw() == GONE {
            self.check_present(&format!("IBCStatusA_{}", port.index()))?;
        }
        Ok(LinkStatus::new(status))
    }

    /// The LID that `port` answers to, and how many of its low bits are free.
    pub(crate) fn lid(&self, port: Port) -> (u16, u8) {
        let ctrl = IBC_CTRL_B.port(port).read(&self.device.bar());
        match ctrl.ib_dlid() {
            0 => (0, 0),
            lid => (lid, ctrl.ib_dlid_mask().trailing_zeros() as u8),
        }
    }

    /// What was written to parts of the chip that the model leaves out: register, offset, number of writes.
    pub(crate) fn unmodelled(&self) -> Result<Vec<(String, u32, u64)>, Failure> {
        let node = self.device.node();
        Ok(self.device.world().with(|world| world.chip(node).unmodelled().collect()))
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

/// The board that `sim` or `sim:BOARD` asks for.
fn sim_board(name: &str) -> Result<Board, Failure> {
    const VALID: &str = "valid: sim, sim:qle7340 (one port), sim:qle7342 (two ports)";
    match name.split_once(':') {
        None if name == "sim" => Ok(Board::default()),
        Some(("sim", board)) => Board::from_name(board).ok_or_else(|| {
            Failure::bad_input(format!("-d {name}: there is no simulated board {board:?}")).remedy(VALID)
        }),
        _ if is_real_device(name) => Err(Failure::new(
            Status::Missing,
            format!("-d {name}: this version opens simulated devices only"),
        )
        .remedy(format!("{VALID}; cards behind VFIO come with a later version"))),
        _ => Err(Failure::bad_input(format!("-d {name}: no such device")).remedy(VALID)),
    }
}

/// Whether `name` is a PCI address or a vfio-user socket.
fn is_real_device(name: &str) -> bool {
    let pci = |c: char| c.is_ascii_hexdigit() || c == ':' || c == '.';
    name.starts_with("vfio-user:") || (name.contains(':') && name.contains('.') && name.chars().all(pci))
}
