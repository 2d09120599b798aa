//! Devices and ports by name, as they are typed; the one place where the tool opens one.

use crate::args::DeviceArg;
use crate::fail::{Failure, Status};
use crate::ui::Ui;
use qhca_driver::env::Backend;
use qhca_regs::map::device::REVISION;
use qhca_regs::{Bar, GONE, RegValue};
use qhca_sim::backend::{SimDevice, SimWorld};
use qhca_sim::chip::{Board, Config};
use qhca_sim::vtime::Seed;
use qhca_sim::world::World;

/// An open device.
pub(crate) struct Target {
    device: SimDevice,
    /// How the device was called on the command line.
    pub(crate) name: String,
}

impl Target {
    /// Opens the device and makes sure that it answers.
    pub(crate) fn open(arg: &DeviceArg, ui: &Ui) -> Result<Self, Failure> {
        let name = arg.device.clone();
        ui.detail(&format!("opening {name}"));
        let board = sim_board(&name)?;
        let mut world = World::new(Seed(1), false);
        let node = world.add(Config { board, ..Config::default() });
        let device = SimWorld::manual(world).open(node).map_err(|e| {
            Failure::new(Status::Missing, format!("{name}: {e}")).remedy("close the program that holds it")
        })?;
        let target = Self { device, name };
        target.check_present("Revision")?;
        Ok(target)
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

    /// What was written to parts of the chip that the model leaves out: register, offset, number of writes.
    pub(crate) fn unmodelled(&self) -> Result<Vec<(String, u32, u64)>, Failure> {
        let node = self.device.node();
        Ok(self.device.world().with(|world| world.chip(node).unmodelled().collect()))
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

/// A port of a device: `sim:1`, `sim:qle7342:2`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PortSpec {
    /// What opens the device.
    pub(crate) device: String,
    /// The port as people count it, from 1.
    pub(crate) ib_port: u8,
}

impl PortSpec {
    /// Understands `DEV:PORT`. A bare number is not taken for a port, nor for a LID: commands that change a link name
    /// the device that they change.
    pub(crate) fn parse(text: &str) -> Result<Self, Failure> {
        let refused = |why: &str| {
            Failure::bad_input(format!("{text:?} {why}"))
                .remedy("valid: DEV:PORT with PORT 1 or 2, such as sim:1 or sim:qle7340:1")
        };
        if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(refused("names no device; a port goes by its device, never by a LID"));
        }
        let (device, port) = text.rsplit_once(':').ok_or_else(|| refused("names no port"))?;
        match port {
            "1" | "2" if !device.is_empty() => {
                Ok(Self { device: device.to_owned(), ib_port: port.as_bytes()[0] - b'0' })
            }
            _ if device.is_empty() => Err(refused("names no device")),
            _ => Err(refused("does not end in a port number")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_is_what_follows_the_last_colon() {
        let spec = PortSpec::parse("sim:qle7342:2").expect("valid");
        assert_eq!((spec.device.as_str(), spec.ib_port), ("sim:qle7342", 2));
        assert_eq!(PortSpec::parse("0000:04:00.0:1").expect("valid").device, "0000:04:00.0");
    }

    #[test]
    fn anything_else_is_refused_with_the_form() {
        for text in ["", "1", "17", "sim", "sim:", ":1", "sim:0", "sim:3", "sim:01", "sim:+1", "sim:qle7342"]
        {
            let failure = PortSpec::parse(text).expect_err(text).to_string();
            assert!(failure.contains("sim:qle7340:1"), "{failure}");
        }
    }
}
