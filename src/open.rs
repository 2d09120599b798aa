//! From a name to a device that is about to be brought up.

use std::fmt;
use std::io;

use qhca_driver::env::{Backend, Clock};
use qhca_driver::fault::Policy;
use qhca_driver::link::{Goal, LidAssignment};
use qhca_driver::options::Options;
use qhca_driver::runtime::{self, Runtime, StartError};
use qhca_driver::vfio::{VfioDevice, VfioError, Way};
use qhca_driver::vfio_user::{VfioUserDevice, VfioUserError};
use qhca_regs::{Instant, Port};
use qhca_sim::backend::SimDevice;

use crate::device::{Device, Window, each, each_into};
use crate::sim_setup::SimSetup;
use crate::spec::{Spec, SpecError};

/// Why a device could not be opened.
#[derive(Debug)]
#[non_exhaustive]
pub enum OpenError {
    /// The name names no device.
    Spec(SpecError),
    /// The card cannot be had from the kernel.
    Vfio {
        /// The device.
        spec: Spec,
        /// What is missing, who has it, what was refused.
        source: VfioError,
    },
    /// The process that serves the device cannot be reached, or serves something else.
    VfioUser {
        /// The device.
        spec: Spec,
        /// What happened.
        source: VfioUserError,
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
            Self::Vfio { spec, source } => write!(f, "{spec}: {source}"),
            Self::VfioUser { spec, source } => write!(f, "{spec}: {source}"),
            Self::System { spec, source } => write!(f, "{spec}: {source}"),
        }
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Spec(error) => Some(error),
            Self::Vfio { source, .. } => Some(source),
            Self::VfioUser { source, .. } => Some(source),
            Self::System { source, .. } => Some(source),
        }
    }
}

/// A device that was found and has not been touched yet.
#[non_exhaustive]
pub enum Opening {
    /// A chip model in this process.
    Sim(runtime::Opening<SimDevice>),
    /// A device in another process.
    VfioUser(runtime::Opening<VfioUserDevice>),
    /// A card of this machine.
    Vfio(runtime::Opening<VfioDevice>),
}

impl Device {
    /// Finds the device called `spec`. See the crate for the names.
    ///
    /// # Errors
    /// [`OpenError`] says what is wrong with the name, or why that device cannot be had.
    pub fn open(spec: &str) -> Result<Opening, OpenError> {
        let spec: Spec = spec.parse().map_err(OpenError::Spec)?;
        match spec {
            Spec::Sim(board) => Ok(SimSetup::board(board).with_crc().open()?.card),
            Spec::VfioUser(path) => match VfioUserDevice::open(&path) {
                Ok(device) => Ok(Opening::VfioUser(runtime::Opening::new(device))),
                Err(source) => Err(OpenError::VfioUser { spec: Spec::VfioUser(path), source }),
            },
            Spec::Pci { address, settings } => match VfioDevice::open(address, settings.clone()) {
                Ok(device) => Ok(Opening::Vfio(runtime::Opening::new(device))),
                Err(source) => Err(OpenError::Vfio { spec: Spec::Pci { address, settings }, source }),
            },
        }
    }
}

/// A setting: the variant stays the same.
macro_rules! each_self {
    ($this:expr, $held:ident => $call:expr) => {
        match $this {
            Self::Sim($held) => Self::Sim($call),
            Self::VfioUser($held) => Self::VfioUser($call),
            Self::Vfio($held) => Self::Vfio($call),
        }
    };
}

impl Opening {
    /// What the device is called.
    pub fn name(&self) -> String {
        each!(self, opening => opening.name())
    }

    /// The register window of a device that nobody has brought up.
    pub fn window(&self) -> Window {
        match self {
            Self::Sim(opening) => Window::Sim(opening.backend().bar()),
            Self::VfioUser(opening) => Window::VfioUser(opening.backend().bar()),
            Self::Vfio(opening) => Window::Vfio(opening.backend().bar()),
        }
    }

    /// How a card of this machine was opened, in words; nothing for other devices.
    pub fn how(&self) -> Option<String> {
        let Self::Vfio(opening) = self else { return None };
        let card = opening.backend();
        let by = match (card.way(), card.found().noiommu) {
            (Way::Own, _) => "by its own node",
            (Way::Group, false) => "by its group",
            (Way::Group, true) => "by its group, without an IOMMU",
        };
        Some(format!("opened {by}, {}", card.last_reset()))
    }

    /// The time on the device's clock.
    pub fn now(&self) -> Instant {
        each!(self, opening => opening.backend().clock().now())
    }

    /// Sets module options from a list such as `krcvqs=2 ibmtu=4`.
    ///
    /// # Errors
    /// The option, its value and what is valid.
    pub fn options(self, list: &str) -> Result<Self, StartError> {
        each_into!(self, Self, opening => opening.options(list))
    }

    /// Sets options that were parsed before.
    #[must_use]
    pub fn parsed_options(self, options: Options) -> Self {
        each_self!(self, opening => opening.parsed_options(options))
    }

    /// Sets how errors are served.
    #[must_use]
    pub fn policy(self, policy: Policy) -> Self {
        each_self!(self, opening => opening.policy(policy))
    }

    /// Sets what is wanted of a port's link, `None` to leave it switched off.
    #[must_use]
    pub fn goal(self, port: Port, goal: Option<Goal>) -> Self {
        each_self!(self, opening => opening.goal(port, goal))
    }

    /// Leaves all links switched off.
    #[must_use]
    pub fn no_links(self) -> Self {
        each_self!(self, opening => opening.no_links())
    }

    /// Gives a port its LID and makes its link ACTIVE without a subnet manager.
    #[must_use]
    pub fn static_lid(self, port: Port, lid: LidAssignment) -> Self {
        each_self!(self, opening => opening.static_lid(port, lid))
    }

    /// Brings the device up and has it turned by `runtime`.
    ///
    /// # Errors
    /// [`StartError`]: the step that failed, and why.
    pub fn start(self, runtime: Runtime) -> Result<Device, StartError> {
        each_into!(self, Device, opening => opening.start(runtime))
    }
}
