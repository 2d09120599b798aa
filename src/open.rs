//! From a name to a device that is about to be brought up.

use std::fmt;
use std::io;

use qhca_driver::fault::Policy;
use qhca_driver::link::{Goal, LidAssignment};
use qhca_driver::options::Options;
use qhca_driver::runtime::{self, Runtime, StartError};
use qhca_regs::Port;
use qhca_sim::backend::{SimDevice, SimWorld};
use qhca_sim::chip::{Board, Config};
use qhca_sim::fabric::CableConfig;
use qhca_sim::vtime::Seed;
use qhca_sim::world::World;

use crate::device::Device;
use crate::spec::{Spec, SpecError};

/// Why a device could not be opened.
#[derive(Debug)]
#[non_exhaustive]
pub enum OpenError {
    /// The name names no device.
    Spec(SpecError),
    /// This version has no back end for that kind of device.
    NoBackend {
        /// The device.
        spec: Spec,
    },
    /// The system refused something, or the device is open already.
    System {
        /// The device.
        spec: Spec,
        /// What the system said.
        source: io::Error,
    },
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Spec(error) => error.fmt(f),
            Self::NoBackend { spec } => {
                write!(f, "{spec}: this version opens simulated devices only; try sim or sim:qle7340")
            }
            Self::System { spec, source } => write!(f, "{spec}: {source}"),
        }
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Spec(error) => Some(error),
            Self::NoBackend { .. } => None,
            Self::System { source, .. } => Some(source),
        }
    }
}

/// A device that was found and has not been touched yet.
#[non_exhaustive]
pub enum Opening {
    /// A chip model in this process.
    Sim(runtime::Opening<SimDevice>),
}

impl Device {
    /// Finds the device called `spec`. See the crate for the names.
    ///
    /// # Errors
    /// [`OpenError`] says what is wrong with the name, or why that device cannot be had.
    pub fn open(spec: &str) -> Result<Opening, OpenError> {
        let spec: Spec = spec.parse().map_err(OpenError::Spec)?;
        match spec {
            Spec::Sim(board) => {
                let mut world = World::new(Seed(1), true);
                let node = world.add(Config { board, ..Config::default() });
                let system = |source| OpenError::System { spec: Spec::Sim(board), source };
                let device = SimWorld::start(world).and_then(|world| world.open(node)).map_err(system)?;
                Ok(Opening::Sim(runtime::Opening::new(device)))
            }
            Spec::VfioUser(_) | Spec::Pci(_) => Err(OpenError::NoBackend { spec }),
        }
    }
}

/// Two simulated QLE7342 with a cable between their first ports.
///
/// # Errors
/// The system has no thread or descriptor left.
pub fn sim_pair() -> Result<(Opening, Opening), OpenError> {
    let board = Board::Qle7342;
    let mut world = World::new(Seed(1), true);
    let config = |n: u64| Config {
        board,
        guid: Config::default().guid + 0x10 * n,
        serial: format!("QHCASIM{:05}", n + 1),
        ..Config::default()
    };
    let (a, b) = (world.add(config(0)), world.add(config(1)));
    world.connect((a, Port::P0), (b, Port::P0), CableConfig::default());
    let system = |source| OpenError::System { spec: Spec::Sim(board), source };
    let world = SimWorld::start(world).map_err(system)?;
    let open = |node| Ok(Opening::Sim(runtime::Opening::new(world.open(node).map_err(system)?)));
    Ok((open(a)?, open(b)?))
}

impl Opening {
    /// What the device is called.
    pub fn name(&self) -> String {
        let Self::Sim(opening) = self;
        opening.name()
    }

    /// Sets module options from a list such as `krcvqs=2 ibmtu=4`.
    ///
    /// # Errors
    /// The option, its value and what is valid.
    pub fn options(self, list: &str) -> Result<Self, StartError> {
        let Self::Sim(opening) = self;
        opening.options(list).map(Self::Sim)
    }

    /// Sets options that were parsed before.
    #[must_use]
    pub fn parsed_options(self, options: Options) -> Self {
        let Self::Sim(opening) = self;
        Self::Sim(opening.parsed_options(options))
    }

    /// Sets how errors are served.
    #[must_use]
    pub fn policy(self, policy: Policy) -> Self {
        let Self::Sim(opening) = self;
        Self::Sim(opening.policy(policy))
    }

    /// Sets what is wanted of a port's link, `None` to leave it switched off.
    #[must_use]
    pub fn goal(self, port: Port, goal: Option<Goal>) -> Self {
        let Self::Sim(opening) = self;
        Self::Sim(opening.goal(port, goal))
    }

    /// Leaves all links switched off.
    #[must_use]
    pub fn no_links(self) -> Self {
        let Self::Sim(opening) = self;
        Self::Sim(opening.no_links())
    }

    /// Gives a port its LID and makes its link ACTIVE without a subnet manager.
    #[must_use]
    pub fn static_lid(self, port: Port, lid: LidAssignment) -> Self {
        let Self::Sim(opening) = self;
        Self::Sim(opening.static_lid(port, lid))
    }

    /// Brings the device up and has it turned by `runtime`.
    ///
    /// # Errors
    /// [`StartError`]: the step that failed, and why.
    pub fn start(self, runtime: Runtime) -> Result<Device, StartError> {
        let Self::Sim(opening) = self;
        opening.start(runtime).map(Device::Sim)
    }
}
