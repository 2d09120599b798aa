//! From a card that was found to a session, in the one order that the kernel takes.
//!
//! Each stage is a type, and the way to the next consumes it, so a step can neither be left out nor come too early
//! (B117): there is no mapping before an IOMMU, no device before its group has one, no register before the function was
//! looked at. A stage that fails drops what it holds, the last opened first, and leaves no descriptor behind (B120,
//! B131).
//!
//! ```text
//!            by group                            by the device's own node
//!   Opened   /dev/vfio/12 is viable              /dev/vfio/devices/vfio0
//!     ▼
//!   Ready    container: SET_CONTAINER, SET_IOMMU /dev/iommu: IOAS_ALLOC
//!     ▼
//!   Bound    GET_DEVICE_FD, ranges, who is it    BIND_IOMMUFD, ATTACH, ranges, who is it
//!     ▼
//!   Mapped   awake, BAR 0 in this process
//!     ▼
//!   Session  memory access on, reset, interrupts, DMA
//! ```

use std::ffi::CString;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use qhca_regs::BAR_LEN_BYTES;
use vfio_bindings::bindings::vfio;

use super::bytes::{request, word};
use super::command::Command;
use super::config::{CONFIG_LEN_BYTES, ConfigHead, PCI_ID};
use super::error::VfioError;
use super::find::{Found, spoilers};
use super::holder;
use super::info::{DeviceInfo, IommuInfo, IovaRange, RegionInfo, window_areas};
use super::kernel::{Calls, Kernel};
use super::settings::{VfioSettings, Way};
use crate::sys;

const CONTAINER: &str = "/dev/vfio/vfio";
const IOMMUFD: &str = "/dev/iommu";
/// Ranges of an address space that are asked for at most; machines have a handful.
const RANGES_MAX: usize = 1024;
/// Where the power state stands in its capability.
const POWER_CONTROL: u16 = 4;
/// How long a function takes at most from D3 to D0.
///
/// TIMEOUT: the PCI specification's 10 ms, twice.
const WAKES_WITHIN: Duration = Duration::from_millis(20);

/// The error of request `command` on `on`.
pub(super) fn refused(command: Command, on: impl ToString) -> impl FnOnce(io::Error) -> VfioError {
    let on = on.to_string();
    move |source| VfioError::Call { call: command.name(), on, source }
}

/// Opens a node, and says what it means if it cannot be.
fn open_node<K: Kernel>(calls: &Calls<K>, path: &Path) -> Result<K::Fd, VfioError> {
    calls.open(path).map_err(|source| match source.raw_os_error() {
        Some(libc::ENOENT | libc::ENXIO | libc::ENODEV) => VfioError::NoNode { path: path.to_owned() },
        Some(libc::EACCES | libc::EPERM) => VfioError::Permission { path: path.to_owned(), source },
        Some(libc::EBUSY) => busy(calls, path),
        _ => VfioError::Call { call: "open", on: path.display().to_string(), source },
    })
}

fn busy<K: Kernel>(calls: &Calls<K>, node: &Path) -> VfioError {
    VfioError::Busy { what: node.display().to_string(), holder: holder::find(calls, node) }
}

/// The nodes of one way, opened.
enum Nodes<K: Kernel> {
    Group { group: K::Fd },
    Own { device: K::Fd },
}

/// A card whose node is ours. Nothing was asked of it.
pub(super) struct Opened<K: Kernel> {
    calls: Calls<K>,
    found: Found,
    nodes: Nodes<K>,
    node: PathBuf,
}

impl<K: Kernel> Opened<K> {
    /// Opens the card's own node, or its group's where there is none, unless `settings` say which.
    pub(super) fn open(calls: Calls<K>, found: Found, settings: &VfioSettings) -> Result<Self, VfioError> {
        if found.noiommu && !settings.noiommu {
            return Err(VfioError::NoIommuRefused { address: found.address });
        }
        match settings.way {
            Some(Way::Own) => Self::open_own(calls, found),
            Some(Way::Group) => Self::open_group(calls, found),
            None if found.device_node.is_none() || found.noiommu => Self::open_group(calls, found),
            None => match Self::open_own(calls.clone(), found.clone()) {
                Err(error) if error.is_missing_node() => {
                    log::debug!("{}: {error}; the group is used instead", found.address);
                    Self::open_group(calls, found)
                }
                result => result,
            },
        }
    }

    fn open_own(calls: Calls<K>, found: Found) -> Result<Self, VfioError> {
        let path = || Path::new("/dev/vfio/devices").to_owned();
        let node = found.device_node.clone().ok_or_else(|| VfioError::NoNode { path: path() })?;
        let device = open_node(&calls, &node)?;
        // Both nodes or none: without an address space the device is of no use.
        drop(open_node(&calls, Path::new(IOMMUFD))?);
        Ok(Self { calls, found, nodes: Nodes::Own { device }, node })
    }

    fn open_group(calls: Calls<K>, found: Found) -> Result<Self, VfioError> {
        let (Some(number), Some(node)) = (found.group, found.group_node()) else {
            return Err(VfioError::NoGroup { address: found.address });
        };
        let group = open_node(&calls, &node)?;
        let mut status = request(&[0]);
        calls
            .request_bytes(&group, Command::GroupStatus, &mut status)
            .map_err(refused(Command::GroupStatus, node.display()))?;
        if word(&status, 1) & vfio::VFIO_GROUP_FLAGS_VIABLE == 0 {
            return Err(VfioError::NotViable { group: number, spoilers: spoilers(&calls, number) });
        }
        Ok(Self { calls, found, nodes: Nodes::Group { group }, node })
    }

    /// Gives the card an IOMMU.
    pub(super) fn set_iommu(self) -> Result<Ready<K>, VfioError> {
        let Self { calls, found, nodes, node } = self;
        let space = match nodes {
            Nodes::Group { group } => group_space(&calls, &found, group, &node)?,
            Nodes::Own { device } => {
                let iommufd = open_node(&calls, Path::new(IOMMUFD))?;
                let mut alloc = request(&[0, 0]);
                calls
                    .request_bytes(&iommufd, Command::IoasAlloc, &mut alloc)
                    .map_err(refused(Command::IoasAlloc, IOMMUFD))?;
                Space::Own { device, iommufd, ioas: word(&alloc, 2) }
            }
        };
        Ok(Ready { calls, found, space, node })
    }
}

fn group_space<K: Kernel>(
    calls: &Calls<K>,
    found: &Found,
    group: K::Fd,
    node: &Path,
) -> Result<Space<K>, VfioError> {
    let container = open_node(calls, Path::new(CONTAINER))?;
    let seen = calls
        .request_value(&container, Command::ApiVersion, 0)
        .map_err(refused(Command::ApiVersion, CONTAINER))?;
    if seen != vfio::VFIO_API_VERSION {
        return Err(VfioError::ApiVersion { seen });
    }
    let wanted: &[u32] = if found.noiommu {
        &[vfio::VFIO_NOIOMMU_IOMMU]
    } else {
        &[vfio::VFIO_TYPE1v2_IOMMU, vfio::VFIO_TYPE1_IOMMU]
    };
    let known = |kind: &&u32| {
        let asked = calls.request_value(&container, Command::CheckExtension, **kind);
        asked.is_ok_and(|known| known != 0)
    };
    let kind = *wanted.iter().find(known).ok_or(VfioError::NoType1)?;
    calls.set_container(&group, &container).map_err(|source| match source.raw_os_error() {
        Some(libc::EBUSY) => busy(calls, node),
        _ => refused(Command::SetContainer, node.display())(source),
    })?;
    let module = "vfio_iommu_type1";
    calls.request_value(&container, Command::SetIommu, kind).map_err(|source| {
        match source.raw_os_error() {
            Some(libc::EPERM) => VfioError::NoInterruptRemapping { command: Command::SetIommu, module },
            _ => refused(Command::SetIommu, format!("{CONTAINER}, kind {kind}"))(source),
        }
    })?;
    Ok(Space::Group { group, container })
}

/// An address space, and what is needed for the device to use it.
enum Space<K: Kernel> {
    Group { group: K::Fd, container: K::Fd },
    Own { device: K::Fd, iommufd: K::Fd, ioas: u32 },
}

/// A card with an IOMMU.
pub(super) struct Ready<K: Kernel> {
    calls: Calls<K>,
    found: Found,
    space: Space<K>,
    node: PathBuf,
}

/// What holds the device's translation. Dropped after the device.
pub(super) enum Route<K: Kernel> {
    /// A group in a container.
    Group { group: K::Fd, container: K::Fd },
    /// An address space of an iommufd.
    Own { iommufd: K::Fd, ioas: u32 },
    /// A group without an IOMMU.
    NoIommu { group: K::Fd, _container: K::Fd },
}

/// What is known of the IOMMU.
#[derive(Clone, Debug, Default)]
pub(super) struct Iommu {
    pub(super) ranges: Option<Vec<IovaRange>>,
    pub(super) page_bytes: u64,
    pub(super) maps_left: Option<u32>,
}

impl<K: Kernel> Ready<K> {
    /// Takes the device, and makes sure that it is the chip that this driver is for.
    pub(super) fn bind(self) -> Result<Bound<K>, VfioError> {
        let Self { calls, found, space, node } = self;
        let page = sys::page_bytes();
        let (device, route, iommu) = match space {
            Space::Group { group, container } => {
                let device = take_from_group(&calls, &group, &found)?;
                if found.noiommu {
                    let none = Iommu { ranges: Some(Vec::new()), page_bytes: page, maps_left: Some(0) };
                    (device, Route::NoIommu { group, _container: container }, none)
                } else {
                    let iommu = ask_iommu(&calls, &container)?;
                    (device, Route::Group { group, container }, iommu)
                }
            }
            Space::Own { device, iommufd, ioas } => {
                bind_own(&calls, &device, &iommufd, &node)?;
                attach(&calls, &device, ioas, &node)?;
                let iommu = ask_ioas(&calls, &iommufd, ioas)?;
                (device, Route::Own { iommufd, ioas }, iommu)
            }
        };
        let mut bound = Bound { calls, device, route, iommu, info: None, config: None, found };
        bound.identify()?;
        Ok(bound)
    }
}

fn take_from_group<K: Kernel>(calls: &Calls<K>, group: &K::Fd, found: &Found) -> Result<K::Fd, VfioError> {
    // PANIC: none; an address prints without a zero byte.
    let name = CString::new(found.address.to_string()).unwrap_or_default();
    calls.device_fd(group, &name).map_err(refused(Command::DeviceFd, found.address))
}

fn bind_own<K: Kernel>(
    calls: &Calls<K>,
    device: &K::Fd,
    iommufd: &K::Fd,
    node: &Path,
) -> Result<(), VfioError> {
    let mut bind = request(&[0, calls.raw_fd(iommufd) as u32, 0]);
    let bound = calls.request_bytes(device, Command::BindIommufd, &mut bind);
    bound.map(|_zero| ()).map_err(|source| match source.raw_os_error() {
        // A device that is open elsewhere is refused as invalid by this way, and as busy if its group is.
        Some(libc::EBUSY) => busy(calls, node),
        Some(libc::EINVAL) => match holder::find(calls, node) {
            Some(holder) => VfioError::Busy { what: node.display().to_string(), holder: Some(holder) },
            None => refused(Command::BindIommufd, node.display())(source),
        },
        _ => refused(Command::BindIommufd, node.display())(source),
    })
}

fn attach<K: Kernel>(calls: &Calls<K>, device: &K::Fd, ioas: u32, node: &Path) -> Result<(), VfioError> {
    let mut attach = request(&[0, ioas]);
    let attached = calls.request_bytes(device, Command::AttachPt, &mut attach);
    attached.map(|_zero| ()).map_err(|source| match source.raw_os_error() {
        Some(libc::EPERM) => {
            VfioError::NoInterruptRemapping { command: Command::AttachPt, module: "iommufd" }
        }
        _ => refused(Command::AttachPt, format!("{}, address space {ioas}", node.display()))(source),
    })
}

/// Asks a container what its IOMMU can. The ranges are those of the devices in it, so it is asked late.
fn ask_iommu<K: Kernel>(calls: &Calls<K>, container: &K::Fd) -> Result<Iommu, VfioError> {
    let command = Command::IommuInfo;
    let ask = |len| {
        let mut bytes = IommuInfo::ask(len);
        calls.request_bytes(container, command, &mut bytes).map_err(refused(command, CONTAINER))?;
        IommuInfo::parse(&bytes).ok_or(VfioError::Answer { command, why: "is cut short" })
    };
    let first = ask(0)?;
    let info = match first.ask_again(IommuInfo::HEAD_BYTES) {
        Some(len) => ask(len)?,
        None => first,
    };
    let page = sys::page_bytes();
    // Whole pages of this machine are mapped; an IOMMU whose smallest page is larger rounds more.
    let smallest = 1_u64.checked_shl(info.page_sizes.trailing_zeros()).unwrap_or(page);
    Ok(Iommu { ranges: info.ranges, page_bytes: smallest.max(page), maps_left: info.maps_left })
}

fn ask_ioas<K: Kernel>(calls: &Calls<K>, iommufd: &K::Fd, ioas: u32) -> Result<Iommu, VfioError> {
    let mut raw = vec![[0; 2]; 16];
    loop {
        let there = calls
            .ioas_ranges(iommufd, ioas, &mut raw)
            .map_err(refused(Command::IoasRanges, format!("address space {ioas}")))?
            as usize;
        if there > raw.len() && raw.len() < RANGES_MAX {
            raw.resize(there.min(RANGES_MAX), [0; 2]);
            continue;
        }
        raw.truncate(there);
        let ranges = raw.iter().map(|[first, last]| IovaRange { first: *first, last: *last }).collect();
        return Ok(Iommu { ranges: Some(ranges), page_bytes: sys::page_bytes(), maps_left: None });
    }
}

/// A card that is ours. Its fields are dropped in their order: the device before what it is attached to.
pub(super) struct Bound<K: Kernel> {
    pub(super) calls: Calls<K>,
    pub(super) device: K::Fd,
    pub(super) route: Route<K>,
    pub(super) iommu: Iommu,
    info: Option<DeviceInfo>,
    config: Option<Config>,
    pub(super) found: Found,
}

/// Where the configuration space stands in the device's file, and what it says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Config {
    pub(super) offset: u64,
    pub(super) head: ConfigHead,
}

impl<K: Kernel> Bound<K> {
    fn region(&self, index: u32) -> Result<RegionInfo, VfioError> {
        let command = Command::RegionInfo;
        let ask = |len| {
            let mut bytes = RegionInfo::ask(index, len);
            let asked = self.calls.request_bytes(&self.device, command, &mut bytes);
            asked.map_err(refused(command, format!("{}, region {index}", self.found.address)))?;
            RegionInfo::parse(&bytes).ok_or(VfioError::Answer { command, why: "is cut short" })
        };
        let first = ask(0)?;
        match first.ask_again(RegionInfo::HEAD_BYTES) {
            Some(len) => ask(len),
            None => Ok(first),
        }
    }

    /// Asks the kernel and the function itself who it is. Changes nothing.
    fn identify(&mut self) -> Result<(), VfioError> {
        let command = Command::DeviceInfo;
        let mut bytes = DeviceInfo::ask();
        self.calls
            .request_bytes(&self.device, command, &mut bytes)
            .map_err(refused(command, self.found.address))?;
        let info = DeviceInfo::parse(&bytes).ok_or(VfioError::Answer { command, why: "is cut short" })?;
        if !info.is_pci || info.regions <= vfio::VFIO_PCI_CONFIG_REGION_INDEX {
            return Err(VfioError::Answer { command, why: "is not that of a PCI function" });
        }
        let space = self.region(vfio::VFIO_PCI_CONFIG_REGION_INDEX)?;
        let command = Command::RegionInfo;
        if space.len_bytes < CONFIG_LEN_BYTES as u64 || !space.readable || !space.writable {
            return Err(VfioError::Answer { command, why: "has no configuration space" });
        }
        if space.offset.checked_add(space.len_bytes).is_none_or(|end| end > i64::MAX as u64) {
            return Err(VfioError::Answer { command, why: "places the configuration space nowhere" });
        }
        let config = Config { offset: space.offset, head: self.read_head(space.offset)? };
        if config.head.id != PCI_ID {
            return Err(VfioError::NotThisDevice { address: self.found.address, seen: config.head.id });
        }
        (self.info, self.config) = (Some(info), Some(config));
        Ok(())
    }

    fn read_head(&self, offset: u64) -> Result<ConfigHead, VfioError> {
        let mut bytes = [0; CONFIG_LEN_BYTES];
        self.calls.read_at(&self.device, &mut bytes, offset).map_err(|source| VfioError::Call {
            call: "pread",
            on: format!("{}, configuration space", self.found.address),
            source,
        })?;
        let gone = VfioError::NoAnswer { address: self.found.address, what: "the PCI id" };
        ConfigHead::parse(&bytes).ok_or(gone)
    }

    /// Wakes the function up, and maps its registers.
    pub(super) fn map(mut self) -> Result<Mapped<K>, VfioError> {
        let missing = VfioError::Answer { command: Command::DeviceInfo, why: "was not asked for" };
        let (Some(info), Some(config)) = (self.info, self.config) else { return Err(missing) };
        let config = self.wake(config)?;
        let region = self.region(vfio::VFIO_PCI_BAR0_REGION_INDEX)?;
        let table = config.head.msix.and_then(|table| table.in_bar_0());
        // PANIC: none; a page has less than 4 GiB.
        let page = u32::try_from(sys::page_bytes()).unwrap_or(u32::MAX);
        let areas = window_areas(&region, BAR_LEN_BYTES, page, table)?;
        let window =
            self.calls.map_window(&self.device, region.offset, BAR_LEN_BYTES, &areas).map_err(|source| {
                VfioError::Call {
                    call: "mmap",
                    on: format!("{}, BAR 0 at {:#x} of the device's file", self.found.address, region.offset),
                    source,
                }
            })?;
        self.config = Some(config);
        Ok(Mapped { window, bound: self, info, config })
    }

    /// Takes the function out of its power state if it sleeps.
    fn wake(&self, mut config: Config) -> Result<Config, VfioError> {
        let Some(power) = config.head.power.filter(|_| config.head.power_state != 0) else {
            return Ok(config);
        };
        let at = config.offset + u64::from(power) + u64::from(POWER_CONTROL);
        let written = self.calls.write_at(&self.device, &0_u16.to_le_bytes(), at);
        written.map_err(|source| VfioError::Call {
            call: "pwrite",
            on: format!("{}, power state", self.found.address),
            source,
        })?;
        std::thread::sleep(WAKES_WITHIN);
        config.head = self.read_head(config.offset)?;
        match config.head.power_state {
            0 => Ok(config),
            state => Err(VfioError::Asleep { state }),
        }
    }
}

/// A card whose registers are in this process. The window goes before the device.
pub(super) struct Mapped<K: Kernel> {
    pub(super) window: K::Window,
    pub(super) bound: Bound<K>,
    pub(super) info: DeviceInfo,
    pub(super) config: Config,
}
