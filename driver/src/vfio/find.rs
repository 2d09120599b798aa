//! Where a card is on this machine: its driver, its group, its nodes. Reads sysfs and opens nothing.
//!
//! ```text
//!   /sys/bus/pci/devices/0000:04:00.0/driver       -> …/vfio-pci         who has it
//!                                    /iommu_group  -> …/iommu_groups/12  /dev/vfio/12 or /dev/vfio/noiommu-12
//!                                    /vfio-dev/vfio0/                    /dev/vfio/devices/vfio0, on newer kernels
//!                                    /reset_method                       how the kernel would reset it
//! ```
//!
//! What is decided is decided by the function's own links: that a module is loaded says nothing of who has the card
//! (B121).

use std::path::{Path, PathBuf};

use super::address::PciAddress;
use super::error::{Spoiler, VfioError};
use super::kernel::{Calls, Kernel};
use crate::env::ResetKind;

const DEVICES: &str = "/sys/bus/pci/devices";
const GROUPS: &str = "/sys/kernel/iommu_groups";
/// Drivers that a group may have besides: they use no DMA on behalf of anybody.
const HARMLESS_DRIVERS: [&str; 3] = ["vfio-pci", "pci-stub", "pcieport"];
/// The class of bridges, in the upper byte.
const CLASS_BRIDGE: &str = "0x06";

/// A card that is bound to vfio-pci.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Where it sits.
    pub address: PciAddress,
    /// Its IOMMU group.
    pub group: Option<u32>,
    /// Its group has no IOMMU behind it.
    pub noiommu: bool,
    /// The node of the device alone, on kernels that have such.
    pub device_node: Option<PathBuf>,
    /// How the kernel resets it, if it tells.
    pub reset_kind: Option<ResetKind>,
    /// The memory node that it is near to, if it tells.
    pub numa_node: Option<u32>,
}

impl Found {
    /// The node of its group.
    pub fn group_node(&self) -> Option<PathBuf> {
        let group = self.group?;
        let name = if self.noiommu { format!("noiommu-{group}") } else { group.to_string() };
        Some(Path::new("/dev/vfio").join(name))
    }
}

pub(super) fn folder_of(address: PciAddress) -> PathBuf {
    Path::new(DEVICES).join(address.to_string())
}

fn last_name(path: PathBuf) -> Option<String> {
    Some(path.file_name()?.to_string_lossy().into_owned())
}

/// Finds the card.
///
/// # Errors
/// [`VfioError`]: there is no such function, or another driver has it.
pub(super) fn find<K: Kernel>(calls: &Calls<K>, address: PciAddress) -> Result<Found, VfioError> {
    let folder = folder_of(address);
    if calls.read_text(&folder.join("vendor")).is_err() {
        return Err(VfioError::NoDevice { address, present: present(calls) });
    }
    let link = |name: &str| calls.read_link(&folder.join(name)).ok().and_then(last_name);
    let driver = link("driver");
    if driver.as_deref() != Some("vfio-pci") {
        return Err(VfioError::NotBound { address, driver });
    }
    let group = link("iommu_group").and_then(|name| name.parse().ok());
    let noiommu = group.is_some_and(|group: u32| {
        let name = Path::new(GROUPS).join(group.to_string()).join("name");
        calls.read_text(&name).is_ok_and(|name| name == "vfio-noiommu")
    });
    let own = calls.list(&folder.join("vfio-dev")).ok();
    let device_node = own
        .and_then(|names| names.into_iter().find(|name| name.to_string_lossy().starts_with("vfio")))
        .map(|name| Path::new("/dev/vfio/devices").join(name));
    let reset_kind = calls.read_text(&folder.join("reset_method")).ok().as_deref().and_then(reset_kind);
    let numa_node = calls.read_text(&folder.join("numa_node")).ok().and_then(|node| node.parse().ok());
    Ok(Found { address, group, noiommu, device_node, reset_kind, numa_node })
}

/// What the kernel would use: the first method of its list.
fn reset_kind(methods: &str) -> Option<ResetKind> {
    match methods.split_whitespace().next()? {
        "bus" | "cxl_bus" => Some(ResetKind::Bus),
        _ => Some(ResetKind::Function),
    }
}

/// The functions with the chip's id.
fn present<K: Kernel>(calls: &Calls<K>) -> Vec<String> {
    let names = calls.list(Path::new(DEVICES)).unwrap_or_default();
    let is = |name: &Path, file: &str, id: &str| {
        let path = Path::new(DEVICES).join(name).join(file);
        calls.read_text(&path).is_ok_and(|text| text.eq_ignore_ascii_case(id))
    };
    let mut found: Vec<String> = names
        .iter()
        .filter(|name| is(name, "vendor", "0x1077") && is(name, "device", "0x7322"))
        .map(|name| name.to_string_lossy().into_owned())
        .collect();
    found.sort_unstable();
    found
}

/// The members of a group that belong to drivers which do DMA. Bridges are none (B119).
pub(super) fn spoilers<K: Kernel>(calls: &Calls<K>, group: u32) -> Vec<Spoiler> {
    let folder = Path::new(GROUPS).join(group.to_string()).join("devices");
    let mut names = calls.list(&folder).unwrap_or_default();
    names.sort_unstable();
    let spoiler = |name: &PathBuf| {
        let device = Path::new(DEVICES).join(name);
        let driver = calls.read_link(&device.join("driver")).ok().and_then(last_name)?;
        let bridge =
            calls.read_text(&device.join("class")).is_ok_and(|class| class.starts_with(CLASS_BRIDGE));
        let harmless = bridge || HARMLESS_DRIVERS.contains(&driver.as_str());
        (!harmless).then(|| Spoiler { name: name.to_string_lossy().into_owned(), driver })
    };
    names.iter().filter_map(spoiler).collect()
}
