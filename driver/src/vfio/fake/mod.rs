//! A kernel that keeps VFIO's rules, for tests: files, nodes, and who may do what when.
//!
//! It does not answer from a list. It holds the state that a kernel holds (which file is open, which container has an
//! IOMMU, what is mapped, which vectors are on) and judges each request by it, so a driver that asks in another order,
//! or with other bytes, is refused as the real one refuses. Rules and error numbers are those of F-825.
//!
//! On top of the rules a test breaks the machine: any call can be interrupted, and the n-th call of a name can fail.

mod card;
mod device;
mod iommu;

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use vfio_bindings::bindings::vfio;

use super::{Command, Kernel};
use crate::dma::DmaMemory;
use crate::sys::EventFd;
pub(super) use card::{Card, FakeWindow};
pub(super) use iommu::Space;

/// Where the card of every test sits.
pub(super) const ADDRESS: &str = "0000:04:00.0";
pub(super) const GROUP_NODE: &str = "/dev/vfio/12";
pub(super) const OWN_NODE: &str = "/dev/vfio/devices/vfio0";

pub(super) fn errno<T>(number: i32) -> io::Result<T> {
    Err(io::Error::from_raw_os_error(number))
}

/// An open file, by its number.
pub(super) struct FakeFd {
    number: i32,
    machine: Arc<Mutex<Machine>>,
}

/// What an open file is.
#[derive(Debug)]
pub(super) enum Open {
    Container { groups: Vec<i32>, kind: Option<u32>, space: Space },
    Group { container: Option<i32>, device: Option<i32> },
    Iommufd { spaces: BTreeMap<u32, Space> },
    Device { group: Option<i32>, iommufd: Option<i32>, attached: Option<u32> },
}

impl Open {
    const fn name(&self) -> &'static str {
        match self {
            Self::Container { .. } => "container",
            Self::Group { .. } => "group",
            Self::Iommufd { .. } => "iommufd",
            Self::Device { .. } => "device",
        }
    }
}

/// A call that is to fail.
#[derive(Clone, Debug)]
pub(super) struct Fault {
    /// Its name, as in the log.
    pub(super) call: &'static str,
    /// The how manieth of that name, from 0.
    pub(super) nth: usize,
    /// With what.
    pub(super) errno: i32,
}

/// The machine.
pub(super) struct Machine {
    pub(super) texts: BTreeMap<PathBuf, Vec<u8>>,
    pub(super) links: BTreeMap<PathBuf, PathBuf>,
    /// Device nodes, and what opening one says if it is not to be opened.
    pub(super) nodes: BTreeMap<PathBuf, Option<i32>>,
    pub(super) open: BTreeMap<i32, Open>,
    next_fd: i32,
    events: BTreeMap<i32, Arc<EventFd>>,
    pub(super) card: Card,
    pub(super) api_version: u32,
    /// Kinds of IOMMU that there are.
    pub(super) kinds: Vec<u32>,
    pub(super) viable: bool,
    pub(super) remaps_interrupts: bool,
    pub(super) noiommu: bool,
    /// The ranges, limit and page size of every address space.
    pub(super) ranges: Option<Vec<(u64, u64)>>,
    pub(super) maps_max: u32,
    pub(super) memlock: Option<u64>,
    pub(super) faults: Vec<Fault>,
    /// Every call is interrupted once before it is done.
    pub(super) interrupts: bool,
    interrupted: bool,
    /// The calls in order, by name.
    pub(super) log: Vec<String>,
    counts: BTreeMap<&'static str, usize>,
}

impl Machine {
    /// Every call passes here: it is written down, interrupted, or failed.
    fn enter(&mut self, call: &'static str, what: &str) -> io::Result<()> {
        if self.interrupts && !std::mem::replace(&mut self.interrupted, true) {
            return errno(libc::EINTR);
        }
        self.interrupted = false;
        let count = self.counts.entry(call).or_default();
        let nth = *count;
        *count += 1;
        self.log.push(format!("{call} {what}").trim_end().to_owned());
        match self.faults.iter().find(|fault| fault.call == call && fault.nth == nth) {
            Some(fault) => errno(fault.errno),
            None => Ok(()),
        }
    }

    fn insert(&mut self, open: Open) -> i32 {
        self.next_fd += 1;
        self.open.insert(self.next_fd, open);
        self.next_fd
    }

    /// Open files of a kind.
    pub(super) fn count(&self, kind: &str) -> usize {
        self.open.values().filter(|open| open.name() == kind).count()
    }
}

/// The machine as a kernel. Clones are the same.
#[derive(Clone)]
pub(super) struct Fake {
    machine: Arc<Mutex<Machine>>,
}

impl Fake {
    /// A machine in order: the card bound to vfio-pci, alone in group 12, both ways open.
    pub(super) fn new() -> Self {
        let device = Path::new("/sys/bus/pci/devices").join(ADDRESS);
        let texts = [
            (device.join("vendor"), "0x1077\n"),
            (device.join("device"), "0x7322\n"),
            (device.join("class"), "0x0c0600\n"),
            (device.join("numa_node"), "1\n"),
            (device.join("reset_method"), "pm bus\n"),
            (device.join("vfio-dev/vfio0/dev"), "241:0\n"),
            ("/sys/kernel/iommu_groups/12/name".into(), "\n"),
            ("/proc/self/status".into(), "Name:\tqhca\nCapEff:\t0000000000000000\n"),
        ];
        let links = [
            (device.join("driver"), "../../../../bus/pci/drivers/vfio-pci"),
            (device.join("iommu_group"), "../../../kernel/iommu_groups/12"),
            (Path::new("/sys/kernel/iommu_groups/12/devices").join(ADDRESS), "../../../../devices/x"),
        ];
        let nodes = ["/dev/vfio/vfio", "/dev/iommu", GROUP_NODE, OWN_NODE];
        let machine = Machine {
            texts: texts.map(|(path, text)| (path, text.as_bytes().to_vec())).into(),
            links: links.map(|(path, target)| (path, target.into())).into(),
            nodes: nodes.map(|node| (node.into(), None)).into(),
            open: BTreeMap::new(),
            next_fd: 100,
            events: BTreeMap::new(),
            card: Card::new(),
            api_version: 0,
            kinds: vec![vfio::VFIO_TYPE1_IOMMU, vfio::VFIO_TYPE1v2_IOMMU],
            viable: true,
            remaps_interrupts: true,
            noiommu: false,
            ranges: Some(vec![(0, 0xFEDF_FFFF), (0xFEF0_0000, (1 << 48) - 1)]),
            maps_max: 65535,
            memlock: Some(64 << 20),
            faults: Vec::new(),
            interrupts: false,
            interrupted: false,
            log: Vec::new(),
            counts: BTreeMap::new(),
        };
        Self { machine: Arc::new(Mutex::new(machine)) }
    }

    /// Changes the machine, or looks into it.
    pub(super) fn with<T>(&self, act: impl FnOnce(&mut Machine) -> T) -> T {
        act(&mut self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, Machine> {
        self.machine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A machine in order with one thing changed.
    pub(super) fn but(change: impl FnOnce(&mut Machine)) -> Self {
        let fake = Self::new();
        fake.with(change);
        fake
    }

    /// Open files that were not closed.
    pub(super) fn left_open(&self) -> Vec<&'static str> {
        self.with(|machine| machine.open.values().map(Open::name).collect())
    }

    /// Without an IOMMU, as the kernel shows it then.
    pub(super) fn without_iommu(self) -> Self {
        self.with(|machine| {
            machine.noiommu = true;
            machine.kinds = vec![vfio::VFIO_NOIOMMU_IOMMU];
            machine.texts.insert("/sys/kernel/iommu_groups/12/name".into(), b"vfio-noiommu\n".to_vec());
            machine.nodes.remove(Path::new(GROUP_NODE));
            machine.nodes.insert("/dev/vfio/noiommu-12".into(), None);
        });
        self
    }

    fn handle(&self, number: i32) -> FakeFd {
        FakeFd { number, machine: self.machine.clone() }
    }
}

impl Drop for FakeFd {
    fn drop(&mut self) {
        let mut machine = self.machine.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(open) = machine.open.remove(&self.number) else { return };
        machine.log.push(format!("close {}", open.name()));
        match open {
            Open::Group { container: Some(container), .. } => {
                if let Some(Open::Container { groups, kind, space }) = machine.open.get_mut(&container) {
                    groups.retain(|group| *group != self.number);
                    if groups.is_empty() {
                        // The container forgets everything with its last group (B130).
                        (*kind, *space) = (None, Space::default());
                    }
                }
            }
            Open::Device { group: Some(group), .. } => {
                if let Some(Open::Group { device, .. }) = machine.open.get_mut(&group) {
                    *device = None;
                }
                machine.card.released();
            }
            Open::Device { iommufd: Some(_), .. } => machine.card.released(),
            _ => {}
        }
    }
}

impl Machine {
    fn open_node(&mut self, path: &Path) -> io::Result<i32> {
        match self.nodes.get(path) {
            None => return errno(libc::ENOENT),
            Some(Some(number)) => return errno(*number),
            Some(None) => {}
        }
        let name = path.to_string_lossy();
        let open = match &*name {
            "/dev/vfio/vfio" => Open::Container { groups: Vec::new(), kind: None, space: Space::default() },
            "/dev/iommu" => Open::Iommufd { spaces: BTreeMap::new() },
            OWN_NODE => Open::Device { group: None, iommufd: None, attached: None },
            _ => {
                let bound = |open: &Open| matches!(open, Open::Device { iommufd: Some(_), .. });
                if self.count("group") > 0 || self.open.values().any(bound) {
                    return errno(libc::EBUSY);
                }
                Open::Group { container: None, device: None }
            }
        };
        Ok(self.insert(open))
    }
}

impl Kernel for Fake {
    type Fd = FakeFd;
    type Window = FakeWindow;

    fn open(&self, path: &Path) -> io::Result<FakeFd> {
        let mut machine = self.lock();
        machine.enter("open", &path.to_string_lossy())?;
        let number = machine.open_node(path)?;
        drop(machine);
        Ok(self.handle(number))
    }

    fn read_link(&self, path: &Path) -> io::Result<PathBuf> {
        let mut machine = self.lock();
        machine.enter("readlink", "")?;
        machine.links.get(path).cloned().map_or_else(|| errno(libc::ENOENT), Ok)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        let mut machine = self.lock();
        machine.enter("list", "")?;
        let all = machine.texts.keys().chain(machine.links.keys());
        let below = all.filter_map(|file| file.strip_prefix(path).ok());
        let mut names: Vec<PathBuf> =
            below.filter_map(|rest| rest.iter().next()).map(PathBuf::from).collect();
        names.sort_unstable();
        names.dedup();
        if names.is_empty() { errno(libc::ENOENT) } else { Ok(names) }
    }

    fn read_file(&self, path: &Path, len_bytes: usize) -> io::Result<Vec<u8>> {
        let mut machine = self.lock();
        machine.enter("read", "")?;
        let text = machine.texts.get(path).map(|text| text[..text.len().min(len_bytes)].to_vec());
        text.map_or_else(|| errno(libc::ENOENT), Ok)
    }

    fn write_file(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let mut machine = self.lock();
        machine.enter("write", &path.to_string_lossy())?;
        match machine.texts.get_mut(path) {
            Some(text) => {
                *text = bytes.to_vec();
                Ok(())
            }
            None => errno(libc::ENOENT),
        }
    }

    fn request_value(&self, fd: &FakeFd, command: Command, value: u32) -> io::Result<u32> {
        let mut machine = self.lock();
        machine.enter(command.name(), "")?;
        machine.value(fd.number, command, value)
    }

    fn request_bytes(&self, fd: &FakeFd, command: Command, bytes: &mut [u8]) -> io::Result<u32> {
        let mut machine = self.lock();
        machine.enter(command.name(), &device::shown(command, bytes))?;
        machine.bytes(fd.number, command, bytes)
    }

    fn set_container(&self, group: &FakeFd, container: &FakeFd) -> io::Result<()> {
        let mut machine = self.lock();
        machine.enter(Command::SetContainer.name(), "")?;
        machine.join(group.number, container.number)
    }

    fn device_fd(&self, group: &FakeFd, name: &CStr) -> io::Result<FakeFd> {
        let mut machine = self.lock();
        machine.enter(Command::DeviceFd.name(), "")?;
        let number = machine.take_device(group.number, &name.to_string_lossy())?;
        drop(machine);
        Ok(self.handle(number))
    }

    fn map_type1(&self, container: &FakeFd, memory: &DmaMemory, iova: u64) -> io::Result<()> {
        let mut machine = self.lock();
        machine.enter(Command::MapDma.name(), "")?;
        machine.map_type1(container.number, memory, iova)
    }

    fn map_ioas(&self, iommufd: &FakeFd, ioas_id: u32, memory: &DmaMemory, iova: u64) -> io::Result<()> {
        let mut machine = self.lock();
        machine.enter(Command::IoasMap.name(), "")?;
        machine.map_ioas(iommufd.number, ioas_id, memory, iova)
    }

    fn ioas_ranges(&self, iommufd: &FakeFd, ioas_id: u32, ranges: &mut [[u64; 2]]) -> io::Result<u32> {
        let mut machine = self.lock();
        machine.enter(Command::IoasRanges.name(), "")?;
        machine.ioas_ranges(iommufd.number, ioas_id, ranges)
    }

    fn raw_fd(&self, fd: &FakeFd) -> i32 {
        fd.number
    }

    fn event(&self) -> io::Result<Arc<EventFd>> {
        let mut machine = self.lock();
        machine.enter("eventfd", "")?;
        let event = Arc::new(EventFd::new()?);
        machine.events.insert(event.number(), event.clone());
        // Only the kernel's own references keep an event that nobody has any more.
        machine.events.retain(|_, event| Arc::strong_count(event) > 1);
        Ok(event)
    }

    fn read_at(&self, device: &FakeFd, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut machine = self.lock();
        machine.enter("pread", "")?;
        machine.usable(device.number)?;
        machine.card.read_at(bytes, offset)
    }

    fn write_at(&self, device: &FakeFd, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let mut machine = self.lock();
        machine.enter("pwrite", &format!("{:#x}={bytes:02x?}", offset & 0xFFFF))?;
        machine.usable(device.number)?;
        machine.card.write_at(bytes, offset)
    }

    fn map_window(
        &self,
        device: &FakeFd,
        offset: u64,
        len_bytes: u32,
        areas: &[Range<u32>],
    ) -> io::Result<FakeWindow> {
        let mut machine = self.lock();
        machine.enter("mmap", "")?;
        machine.usable(device.number)?;
        machine.card.may_map(offset, len_bytes, areas)?;
        Ok(FakeWindow::new(self.clone(), areas.to_vec()))
    }

    fn memlock_limit_bytes(&self) -> io::Result<Option<u64>> {
        let mut machine = self.lock();
        machine.enter("getrlimit", "")?;
        Ok(machine.memlock)
    }
}
