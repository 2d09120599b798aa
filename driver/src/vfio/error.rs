//! Why a card behind VFIO cannot be used: the cause, with the path, request and number that it was seen at, and what
//! mends it.

use std::fmt;
use std::io;
use std::path::PathBuf;

use super::address::PciAddress;
use super::command::Command;
use super::holder::Holder;
use super::info::WindowError;

/// A function of an IOMMU group, and the driver that has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spoiler {
    /// The function.
    pub name: String,
    /// Its driver.
    pub driver: String,
}

impl fmt::Display for Spoiler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (driver {})", self.name, self.driver)
    }
}

/// Why a card cannot be used, or a request was refused.
#[derive(Debug)]
#[non_exhaustive]
pub enum VfioError {
    /// There is no such function on this machine.
    NoDevice {
        /// What was asked for.
        address: PciAddress,
        /// The functions with the chip's id that there are.
        present: Vec<String>,
    },
    /// Another driver has it, or none.
    NotBound {
        /// The function.
        address: PciAddress,
        /// Its driver.
        driver: Option<String>,
    },
    /// It is in no IOMMU group.
    NoGroup {
        /// The function.
        address: PciAddress,
    },
    /// Its group has no IOMMU, and that was not allowed.
    NoIommuRefused {
        /// The function.
        address: PciAddress,
    },
    /// A device node is missing.
    NoNode {
        /// The node.
        path: PathBuf,
    },
    /// A device node may not be opened by this user.
    Permission {
        /// The node.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Somebody else has the card.
    Busy {
        /// The node, or the request, that said so.
        what: String,
        /// Who, if it could be found.
        holder: Option<Holder>,
    },
    /// The group has members that belong to drivers of the kernel.
    NotViable {
        /// The group.
        group: u32,
        /// They.
        spoilers: Vec<Spoiler>,
    },
    /// The kernel knows no IOMMU that this driver can use.
    NoType1,
    /// The kernel's interface is another one.
    ApiVersion {
        /// Its version.
        seen: u32,
    },
    /// The machine does not remap interrupts, and the kernel does not let a device be used without.
    NoInterruptRemapping {
        /// The request that was refused.
        command: Command,
        /// The module that has the parameter.
        module: &'static str,
    },
    /// A call failed otherwise.
    Call {
        /// The request, or the system call.
        call: &'static str,
        /// On what, with which argument.
        on: String,
        /// What the system said.
        source: io::Error,
    },
    /// The answer to a request cannot be.
    Answer {
        /// The request.
        command: Command,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The card does not answer on its bus.
    NoAnswer {
        /// The function.
        address: PciAddress,
        /// What was read.
        what: &'static str,
    },
    /// It is not the chip that this driver is for.
    NotThisDevice {
        /// The function.
        address: PciAddress,
        /// Vendor and device id.
        seen: u32,
    },
    /// Its registers cannot be mapped.
    Window(WindowError),
    /// It lies in a power state in which it does not answer, and does not leave it.
    Asleep {
        /// The state, 1 to 3.
        state: u8,
    },
    /// A bit of the command register does not stay.
    CommandRefused {
        /// What was written.
        wanted: u16,
        /// What it is.
        seen: u16,
    },
    /// It cannot be reset by itself, and a reset of its bus would reset others.
    ResetReachesOthers {
        /// They.
        others: Vec<String>,
    },
    /// It was given back before.
    Released,
}

impl VfioError {
    /// What mends it, as one line.
    pub fn remedy(&self) -> String {
        match self {
            Self::NoDevice { present, .. } if present.is_empty() => {
                "no function of this machine has the id 1077:7322; see `lspci -D`, reseat the card".to_owned()
            }
            Self::NoDevice { present, .. } => format!("of this chip there is {}", present.join(", ")),
            Self::NotBound { address, .. } => format!("bind it: `qhca bind {address}`"),
            Self::NoGroup { .. } => {
                "switch the IOMMU on: in the firmware (VT-d, AMD-Vi), and intel_iommu=on on the kernel's command line"
                    .to_owned()
            }
            Self::NoIommuRefused { .. } => {
                "with an IOMMU: switch it on; without: append `,noiommu` to the device's name, which gives registers \
                 and interrupts but no DMA, and taints the kernel"
                    .to_owned()
            }
            Self::NoNode { path } if path.ends_with("vfio") || path.ends_with("iommu") => {
                format!("load the module: `modprobe vfio-pci`; in a container, hand over {}", path.display())
            }
            Self::NoNode { path } => format!(
                "the driver is bound, so the node is missing in this /dev: hand {} over to this container, or see udev",
                path.display()
            ),
            Self::Permission { path, .. } => format!(
                "give this user read and write access: `chown $USER {}`, or a udev rule (`qhca bind --persist`)",
                path.display()
            ),
            Self::Busy { holder: Some(holder), .. } => format!("end process {} first", holder.pid),
            Self::Busy { holder: None, .. } => {
                "the holder is not visible to this user: `sudo fuser -v /dev/vfio/*`".to_owned()
            }
            Self::NotViable { .. } => {
                "bind those functions to vfio-pci too, or unbind their drivers, or move the card to another slot"
                    .to_owned()
            }
            Self::NoType1 => "load the module: `modprobe vfio_iommu_type1`".to_owned(),
            Self::ApiVersion { .. } => "use a kernel whose VFIO has interface version 0".to_owned(),
            Self::NoInterruptRemapping { module, .. } => format!(
                "switch interrupt remapping on in the firmware; or, at the risk that the card can fake interrupts of \
                 others: `echo 1 > /sys/module/{module}/parameters/allow_unsafe_interrupts`"
            ),
            Self::Call { source, .. } if source.raw_os_error() == Some(libc::ENOMEM) => {
                "raise the limit of locked memory: `ulimit -l`, LimitMEMLOCK= in a systemd unit".to_owned()
            }
            Self::Call { .. } | Self::Answer { .. } => {
                "the kernel's log may say more: `dmesg | tail`".to_owned()
            }
            Self::NoAnswer { .. } => {
                "see whether `lspci` still lists the card; reset its slot or reseat it".to_owned()
            }
            Self::NotThisDevice { .. } => "name another device: `lspci -D -d 1077:7322`".to_owned(),
            Self::Window(_) => "see `lspci -v`: BAR 0 must be enabled and have 4 MiB".to_owned(),
            Self::Asleep { .. } => {
                "take it out of its power state: `echo on > /sys/bus/pci/devices/ADDRESS/power/control`".to_owned()
            }
            Self::CommandRefused { .. } => "the bus gave the card no memory range; see `dmesg`".to_owned(),
            Self::ResetReachesOthers { .. } => {
                "unbind the others, or use the chip's own reset (`--chip-reset`)".to_owned()
            }
            Self::Released => "open the device anew".to_owned(),
        }
    }

    /// Whether the way by `/dev/vfio/devices` is not there on this machine, so that the other is tried.
    pub(super) fn is_missing_node(&self) -> bool {
        matches!(self, Self::NoNode { .. })
    }
}

impl fmt::Display for VfioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoDevice { address, .. } => write!(f, "there is no PCI function {address}"),
            Self::NotBound { address, driver: Some(driver) } => {
                write!(f, "{address} belongs to the driver {driver}, not to vfio-pci")
            }
            Self::NotBound { address, driver: None } => {
                write!(f, "{address} belongs to no driver; it must be bound to vfio-pci")
            }
            Self::NoGroup { address } => {
                write!(f, "{address} is in no IOMMU group: this machine's IOMMU is off or missing")
            }
            Self::NoIommuRefused { address } => write!(
                f,
                "{address} has no IOMMU behind it: a card could then write anywhere in this machine's memory"
            ),
            Self::NoNode { path } => write!(f, "{} does not exist", path.display()),
            Self::Permission { path, source } => {
                write!(f, "{} may not be opened for reading and writing: {source}", path.display())
            }
            Self::Busy { what, holder: Some(holder) } => write!(f, "{what} is in use by {holder}"),
            Self::Busy { what, holder: None } => write!(f, "{what} is in use by another process"),
            Self::NotViable { group, spoilers } => {
                let list: Vec<String> = spoilers.iter().map(ToString::to_string).collect();
                write!(f, "IOMMU group {group} is not viable: {}", list.join(", "))
            }
            Self::NoType1 => f.write_str("the kernel has no type 1 IOMMU for VFIO"),
            Self::ApiVersion { seen } => write!(f, "VFIO has interface version {seen}, not 0"),
            Self::NoInterruptRemapping { command, .. } => {
                write!(f, "{} was refused (EPERM): this machine does not remap interrupts", command.name())
            }
            Self::Call { call, on, source } => write!(f, "{call} on {on}: {source}"),
            Self::Answer { command, why } => write!(f, "the answer to {} {why}", command.name()),
            Self::NoAnswer { address, what } => {
                write!(f, "{address} does not answer: {what} reads as all ones")
            }
            Self::NotThisDevice { address, seen } => {
                let (vendor, device) = (seen & 0xFFFF, seen >> 16);
                write!(f, "{address} is {vendor:04x}:{device:04x} and no QLogic 7322 (1077:7322)")
            }
            Self::Window(error) => error.fmt(f),
            Self::Asleep { state } => write!(f, "the card stays in power state D{state}"),
            Self::CommandRefused { wanted, seen } => {
                write!(f, "the command register was given {wanted:#06x} and reads {seen:#06x}")
            }
            Self::ResetReachesOthers { others } => {
                write!(
                    f,
                    "the card has no reset of its own, and one of its bus would reset {}",
                    others.join(", ")
                )
            }
            Self::Released => f.write_str("the device was given back to the system"),
        }
    }
}

impl std::error::Error for VfioError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Permission { source, .. } | Self::Call { source, .. } => Some(source),
            Self::Window(error) => Some(error),
            _ => None,
        }
    }
}

impl From<WindowError> for VfioError {
    fn from(error: WindowError) -> Self {
        Self::Window(error)
    }
}

impl From<VfioError> for io::Error {
    fn from(error: VfioError) -> Self {
        let kind = match &error {
            VfioError::Call { source, .. } | VfioError::Permission { source, .. } => source.kind(),
            VfioError::Busy { .. } => io::ErrorKind::ResourceBusy,
            VfioError::NoAnswer { .. } | VfioError::Released => io::ErrorKind::NotConnected,
            VfioError::Answer { .. } | VfioError::Window(_) => io::ErrorKind::InvalidData,
            VfioError::NoInterruptRemapping { .. } => io::ErrorKind::PermissionDenied,
            _ => io::ErrorKind::Unsupported,
        };
        Self::new(kind, error)
    }
}
