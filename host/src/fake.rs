//! A made-up machine in memory, whose kernel obeys as Linux does.
//!
//! Files, folders and links are entries of one map. Writing to certain of them changes others, by the kernel's rules:
//!
//! ```text
//! DEVICE/driver_override    names the only driver that may have the function; a lone line end clears it
//! DRIVER/unbind             takes the function from that driver, or ENODEV if it does not have it
//! DRIVER/bind               gives it, if the driver's ids or the override fit, or ENODEV
//! drivers_probe             gives a function without a driver to the override, else to the first driver that fits
//! ```
//!
//! Binding to VFIO makes the nodes below `/dev/vfio`, unbinding removes them. Any order can be made to fail
//! ([`fail_order`](FakeHost::fail_order)), any file to be refused ([`deny`](FakeHost::deny)), a driver to refuse a card
//! ([`refuse_probe`](FakeHost::refuse_probe)). The rules are written from the kernel's documented behaviour
//! (Documentation/ABI/testing/sysfs-bus-pci), not from the code that they test.

use crate::card::{DEVICE_ID, DEVICES, DRIVERS, VENDOR_ID, VFIO_PCI, is_vfio};
use crate::look::{Edit, Look, Node, NodeKind};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::time::Duration;

#[derive(Clone, Debug)]
enum Entry {
    File(Vec<u8>),
    Folder,
    Link(String),
}

/// A machine in memory.
#[derive(Clone, Debug, Default)]
pub struct FakeHost {
    entries: BTreeMap<String, Entry>,
    /// Permission bits, owner and group, where they are not 0644 of root.
    owners: BTreeMap<String, (u32, u32, u32)>,
    denied: BTreeSet<String>,
    /// Modules that can be loaded, and drivers that take the chip by its ids.
    modules: BTreeSet<String>,
    takes_by_id: BTreeSet<String>,
    refuses: BTreeSet<String>,
    nodes_made: u32,
    orders: usize,
    failing: Option<(usize, i32)>,
    stuck: BTreeSet<String>,
    paused: Duration,
    log: Vec<String>,
}

/// What a machine in order says of itself.
const HEALTHY: [(&str, &str); 12] = [
    ("/proc/cmdline", "BOOT_IMAGE=/vmlinuz root=/dev/sda1 intel_iommu=on\n"),
    ("/proc/cpuinfo", "processor\t: 0\nvendor_id\t: GenuineIntel\nflags\t\t: fpu vmx\n\nprocessor\t: 1\n"),
    (
        "/proc/interrupts",
        "  24:  0  IR-PCI-MSI-0000:00:1f.2  0-edge  ahci\n   9:  0  IR-IO-APIC  9-fasteoi  acpi\n",
    ),
    ("/proc/sys/kernel/osrelease", "6.18.1\n"),
    (
        "/proc/self/status",
        "Name:\tqhca\nUid:\t0\t0\t0\t0\nGid:\t0\t0\t0\t0\nGroups:\t0\nCapEff:\t000001ffffffffff\n",
    ),
    (
        "/proc/self/limits",
        "Limit  Soft Limit  Hard Limit  Units\nMax locked memory  unlimited  unlimited  bytes\n",
    ),
    ("/proc/1/comm", "systemd\n"),
    ("/sys/class/iommu/dmar0/intel-iommu/ecap", "f020df\n"),
    ("/sys/firmware/acpi/tables/DMAR", "DMAR\n"),
    ("/sys/kernel/security/lockdown", "[none] integrity confidentiality\n"),
    ("/sys/module/vfio_iommu_type1/parameters/allow_unsafe_interrupts", "N\n"),
    ("/dev/vfio/vfio", ""),
];

/// The way up from a folder below `/sys` to `/sys`.
fn up_from(folder: &str) -> String {
    vec![".."; folder.matches('/').count() - 1].join("/")
}

/// Most links in one path, as in Linux.
const LINKS_MAX: usize = 40;

impl FakeHost {
    /// A machine without anything.
    pub fn empty() -> Self {
        Self::default()
    }

    /// A machine with a card at `0000:04:00.0` in group 26 behind a bridge, in order in every respect, driven by
    /// `driver` (empty: by none). `vfio-pci` is loaded.
    pub fn with_card(driver: &str) -> Self {
        let mut host = Self::empty();
        host.folder(DEVICES);
        host.add_driver(VFIO_PCI);
        host.modules.insert(VFIO_PCI.to_owned());
        host.add_function("0000:00:03.0", "0x060400", Some("pcieport"), Some(9));
        host.add_card("0000:04:00.0", Some(driver).filter(|driver| !driver.is_empty()), Some(26));
        host.file("/sys/bus/pci/slots/4/address", "0000:04:00\n");
        host
    }

    /// A machine with a card driven by `driver`, on which nothing is wrong but that, for root.
    pub fn healthy(driver: &str) -> Self {
        let mut host = Self::with_card(driver);
        for (path, text) in HEALTHY {
            host.file(path, text);
        }
        for folder in ["/sys/class/iommu/dmar0", "/sys/module/vfio_pci", "/sys/module/vfio_iommu_type1"] {
            host.folder(folder);
        }
        host.bytes(&format!("{DEVICES}/0000:04:00.0/config"), &[0x77, 0x10, 0x22, 0x73]);
        host.owned("/dev/vfio/vfio", 0o666, 0, 0);
        host.process(1, "/sbin/init\0", &[]);
        host
    }

    /// Puts a file.
    pub fn file(&mut self, path: &str, text: &str) {
        self.bytes(path, text.as_bytes());
    }

    /// Puts a file of any bytes.
    pub fn bytes(&mut self, path: &str, bytes: &[u8]) {
        self.put(path, Entry::File(bytes.to_vec()));
    }

    /// Puts a link.
    pub fn link(&mut self, path: &str, target: &str) {
        self.put(path, Entry::Link(target.to_owned()));
    }

    /// Puts a folder.
    pub fn folder(&mut self, path: &str) {
        self.put(path, Entry::Folder);
    }

    /// Puts an entry behind all links in its path but the last, and the folders above it.
    fn put(&mut self, path: &str, entry: Entry) {
        let at = match path.rsplit_once('/') {
            Some((parent, name)) if !parent.is_empty() => {
                let parent = self.settled(parent);
                self.make_folders(&parent);
                format!("{parent}/{name}")
            }
            _ => path.to_owned(),
        };
        if !(matches!(entry, Entry::Folder) && self.entries.contains_key(&at)) {
            self.entries.insert(at, entry);
        }
    }

    /// The path behind all links, as far as there is something.
    fn settled(&self, path: &str) -> String {
        match (self.resolve(path), path.rsplit_once('/')) {
            (Ok(real), _) => real,
            (Err(_), Some((above, name))) if !above.is_empty() => format!("{}/{name}", self.settled(above)),
            (Err(_), _) => path.to_owned(),
        }
    }

    fn make_folders(&mut self, path: &str) {
        for (at, _) in path.match_indices('/').skip(1).chain([(path.len(), "")]) {
            self.entries.entry(path[..at].to_owned()).or_insert(Entry::Folder);
        }
    }

    /// Removes a file, or a folder with all in it.
    pub fn remove(&mut self, path: &str) {
        let at = self.resolve_parent(path).unwrap_or_else(|_| path.to_owned());
        let inside = format!("{at}/");
        self.entries.retain(|path, _| *path != at && !path.starts_with(&inside));
    }

    /// Has reading `path` refused.
    pub fn deny(&mut self, path: &str) {
        let at = self.resolve(path).unwrap_or_else(|_| path.to_owned());
        self.denied.insert(at);
    }

    /// Sets permission bits, owner and group of a node.
    pub fn owned(&mut self, path: &str, mode: u32, uid: u32, gid: u32) {
        let at = self.resolve(path).unwrap_or_else(|_| path.to_owned());
        self.owners.insert(at, (mode, uid, gid));
    }

    /// Has a driver: loaded, with no function.
    pub fn add_driver(&mut self, name: &str) {
        self.folder(&format!("{DRIVERS}/{name}"));
        if name == "ib_qib" {
            self.takes_by_id.insert(name.to_owned());
        }
    }

    /// Makes a module loadable.
    pub fn add_module(&mut self, name: &str) {
        self.modules.insert(name.to_owned());
    }

    /// Takes a driver away as if it had never been loaded.
    pub fn without_driver(&mut self, name: &str) {
        self.remove(&format!("{DRIVERS}/{name}"));
        self.modules.remove(name);
    }

    /// A PCI function; one on bus 4 is behind the bridge `0000:00:03.0`.
    pub fn add_function(&mut self, bdf: &str, class: &str, driver: Option<&str>, group: Option<u32>) {
        let above = if bdf.starts_with("0000:04:") { "/0000:00:03.0" } else { "" };
        let real = format!("/sys/devices/pci0000:00{above}/{bdf}");
        self.folder(&real);
        self.link(&format!("{DEVICES}/{bdf}"), &format!("../../..{}", real.trim_start_matches("/sys")));
        let mut file = |name: &str, text: &str| self.file(&format!("{real}/{name}"), text);
        file("vendor", "0x8086\n");
        file("device", "0x1533\n");
        file("class", &format!("{class}\n"));
        file("numa_node", "0\n");
        file("driver_override", "(null)\n");
        file("power_state", "D0\n");
        file("enable", if driver.is_some() { "1\n" } else { "0\n" });
        for name in ["current_link_speed", "max_link_speed"] {
            file(name, "5.0 GT/s PCIe\n");
        }
        for name in ["current_link_width", "max_link_width"] {
            file(name, "8\n");
        }
        if let Some(group) = group {
            let folder = format!("/sys/kernel/iommu_groups/{group}");
            self.file(&format!("{folder}/type"), "DMA-FQ\n");
            self.link(
                &format!("{folder}/devices/{bdf}"),
                &format!("../../../..{}", real.trim_start_matches("/sys")),
            );
            self.link(
                &format!("{real}/iommu_group"),
                &format!("{}/kernel/iommu_groups/{group}", up_from(&real)),
            );
        }
        if let Some(driver) = driver {
            self.add_driver(driver);
            self.attach(bdf, driver);
        }
    }

    /// A card.
    pub fn add_card(&mut self, bdf: &str, driver: Option<&str>, group: Option<u32>) {
        self.add_function(bdf, "0x0c0600", driver, group);
        if let Some(driver) = driver.filter(|driver| !is_vfio(driver)) {
            self.takes_by_id.insert(driver.to_owned());
        }
        self.file(&format!("{DEVICES}/{bdf}/vendor"), &format!("{VENDOR_ID:#06x}\n"));
        self.file(&format!("{DEVICES}/{bdf}/device"), &format!("{DEVICE_ID:#06x}\n"));
        self.file(&format!("{DEVICES}/{bdf}/reset_method"), "pm bus\n");
    }

    /// A process with these files open; its command line has a zero behind each word.
    pub fn process(&mut self, pid: u32, cmdline: &str, open: &[&str]) {
        self.file(&format!("/proc/{pid}/cmdline"), cmdline);
        self.folder(&format!("/proc/{pid}/fd"));
        for (n, path) in open.iter().enumerate() {
            self.link(&format!("/proc/{pid}/fd/{n}"), path);
        }
    }

    /// Has the order number `n`, counted from 0, fail with `errno`.
    pub fn fail_order(&mut self, n: usize, errno: i32) {
        self.failing = Some((n, errno));
        self.orders = 0;
    }

    /// Has `driver` refuse every card that it is given.
    pub fn refuse_probe(&mut self, driver: &str) {
        self.refuses.insert(driver.to_owned());
    }

    /// Has an unbind from `driver` never end, as when somebody holds the device and does not let go.
    pub fn hang_unbind(&mut self, driver: &str) {
        self.stuck.insert(driver.to_owned());
    }

    /// What was ordered, in words.
    pub fn log(&self) -> &[String] {
        &self.log
    }

    /// All of the machine's files in one text, to compare two states by.
    pub fn state(&self) -> String {
        let line = |(path, entry): (&String, &Entry)| match entry {
            Entry::File(bytes) => format!("{path} = {:?}\n", String::from_utf8_lossy(bytes)),
            Entry::Link(target) => format!("{path} -> {target}\n"),
            Entry::Folder => format!("{path}/\n"),
        };
        self.entries.iter().map(line).collect()
    }

    /// Writes all files, folders and links below `folder`, as a copy that other programs can read.
    ///
    /// # Errors
    /// What the system says.
    pub fn write_to(&self, folder: &Path) -> io::Result<()> {
        for (path, entry) in &self.entries {
            let at = folder.join(path.trim_start_matches('/'));
            match entry {
                Entry::Folder => std::fs::create_dir_all(at)?,
                Entry::File(bytes) => std::fs::write(at, bytes)?,
                Entry::Link(target) => std::os::unix::fs::symlink(target, at)?,
            }
        }
        Ok(())
    }

    /// The path behind all links, that of the last part included.
    fn resolve(&self, path: &str) -> io::Result<String> {
        self.follow(path, true)
    }

    fn resolve_parent(&self, path: &str) -> io::Result<String> {
        self.follow(path, false)
    }

    fn follow(&self, path: &str, through_last: bool) -> io::Result<String> {
        let mut rest: Vec<String> =
            path.split('/').rev().filter(|p| !p.is_empty()).map(str::to_owned).collect();
        let (mut at, mut links) = (String::new(), 0);
        while let Some(part) = rest.pop() {
            match part.as_str() {
                "." => continue,
                ".." => at.truncate(at.rfind('/').unwrap_or(0)),
                name => {
                    let next = format!("{at}/{name}");
                    match self.entries.get(&next) {
                        Some(Entry::Link(target)) if through_last || !rest.is_empty() => {
                            links += 1;
                            if links > LINKS_MAX {
                                return Err(io::Error::from_raw_os_error(ELOOP));
                            }
                            if target.starts_with('/') {
                                at.clear();
                            }
                            rest.extend(target.split('/').rev().filter(|p| !p.is_empty()).map(str::to_owned));
                        }
                        Some(_) => at = next,
                        None => return Err(io::Error::from_raw_os_error(ENOENT)),
                    }
                }
            }
        }
        Ok(at)
    }

    fn entry(&self, path: &str) -> io::Result<(String, &Entry)> {
        let at = self.resolve(path)?;
        if self.denied.contains(&at) {
            return Err(io::Error::from_raw_os_error(EACCES));
        }
        let entry = self.entries.get(&at).ok_or_else(|| io::Error::from_raw_os_error(ENOENT))?;
        Ok((at, entry))
    }
}

const ENOENT: i32 = 2;
const EACCES: i32 = 13;
const ENODEV: i32 = 19;
const EINVAL: i32 = 22;
const ELOOP: i32 = 40;

impl Look for FakeHost {
    fn read(&self, path: &str, limit_bytes: usize) -> io::Result<Vec<u8>> {
        match self.entry(path)? {
            (_, Entry::File(bytes)) => Ok(bytes.iter().copied().take(limit_bytes).collect()),
            _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no plain file")),
        }
    }

    fn read_link(&self, path: &str) -> io::Result<String> {
        let at = self.resolve_parent(path)?;
        if self.denied.contains(&at) {
            return Err(io::Error::from_raw_os_error(EACCES));
        }
        match self.entries.get(&at) {
            Some(Entry::Link(target)) => Ok(target.clone()),
            Some(_) => Err(io::Error::from_raw_os_error(EINVAL)),
            None => Err(io::Error::from_raw_os_error(ENOENT)),
        }
    }

    fn real_path(&self, path: &str) -> io::Result<String> {
        self.resolve(path)
    }

    fn list(&self, path: &str) -> io::Result<Vec<String>> {
        match self.entry(path)? {
            (at, Entry::Folder) => {
                let inside = format!("{at}/");
                let below = self.entries.range(inside.clone()..);
                let below = below.map(|(path, _)| path).take_while(|path| path.starts_with(&inside));
                Ok(below
                    .map(|path| &path[inside.len()..])
                    .filter(|n| !n.contains('/'))
                    .map(str::to_owned)
                    .collect())
            }
            _ => Err(io::Error::from(io::ErrorKind::NotADirectory)),
        }
    }

    fn stat(&self, path: &str) -> io::Result<Node> {
        let at = self.resolve(path)?;
        let kind = match self.entries.get(&at) {
            Some(Entry::Folder) => NodeKind::Folder,
            _ if at.starts_with("/dev/") => NodeKind::Special,
            _ => NodeKind::File,
        };
        let (mode, uid, gid) = self.owners.get(&at).copied().unwrap_or((0o644, 0, 0));
        Ok(Node { kind, mode, uid, gid })
    }
}

/// The kernel's part.
impl FakeHost {
    /// Notes an order; refuses it if it is the one that is to fail.
    fn order(&mut self, what: String) -> io::Result<()> {
        self.log.push(what);
        let n = self.orders;
        self.orders += 1;
        match self.failing {
            Some((failing, errno)) if failing == n => Err(io::Error::from_raw_os_error(errno)),
            _ => Ok(()),
        }
    }

    fn driver_of(&self, bdf: &str) -> Option<String> {
        let target = self.read_link(&format!("{DEVICES}/{bdf}/driver")).ok()?;
        target.rsplit('/').next().map(str::to_owned)
    }

    fn override_of(&self, bdf: &str) -> Option<String> {
        let text = self.read(&format!("{DEVICES}/{bdf}/driver_override"), 256).ok()?;
        let text = String::from_utf8(text).ok()?;
        Some(text.trim().to_owned()).filter(|name| name != "(null)" && !name.is_empty())
    }

    fn attach(&mut self, bdf: &str, driver: &str) {
        let up = up_from(&self.settled(&format!("{DEVICES}/{bdf}")));
        self.link(&format!("{DEVICES}/{bdf}/driver"), &format!("{up}/bus/pci/drivers/{driver}"));
        self.link(&format!("{DRIVERS}/{driver}/{bdf}"), &format!("../../../../devices/{bdf}"));
        if !is_vfio(driver) {
            return;
        }
        let cdev = format!("vfio{}", self.nodes_made);
        self.nodes_made += 1;
        self.folder(&format!("{DEVICES}/{bdf}/vfio-dev/{cdev}"));
        let group = self.read_link(&format!("{DEVICES}/{bdf}/iommu_group")).ok();
        let group = group.and_then(|link| link.rsplit('/').next().map(|name| format!("/dev/vfio/{name}")));
        for node in [Some(format!("/dev/vfio/devices/{cdev}")), group].into_iter().flatten() {
            self.file(&node, "");
            self.owned(&node, 0o600, 0, 0);
        }
    }

    fn detach(&mut self, bdf: &str, driver: &str) {
        self.remove(&format!("{DEVICES}/{bdf}/driver"));
        self.remove(&format!("{DRIVERS}/{driver}/{bdf}"));
        if is_vfio(driver) {
            for name in self.list(&format!("{DEVICES}/{bdf}/vfio-dev")).unwrap_or_default() {
                self.remove(&format!("/dev/vfio/devices/{name}"));
            }
            self.remove(&format!("{DEVICES}/{bdf}/vfio-dev"));
            let group = self.read_link(&format!("{DEVICES}/{bdf}/iommu_group")).unwrap_or_default();
            self.remove(&format!("/dev/vfio/{}", group.rsplit('/').next().unwrap_or_default()));
        }
    }

    fn fits(&self, bdf: &str, driver: &str) -> bool {
        match self.override_of(bdf) {
            Some(only) => only == driver,
            None => self.takes_by_id.contains(driver),
        }
    }

    fn give(&mut self, bdf: &str, driver: &str) -> io::Result<()> {
        let is_free = self.driver_of(bdf).is_none();
        if !is_free || !self.fits(bdf, driver) || self.refuses.contains(driver) {
            return Err(io::Error::from_raw_os_error(ENODEV));
        }
        self.attach(bdf, driver);
        Ok(())
    }

    fn obey(&mut self, path: &str, text: &str) -> io::Result<()> {
        let word = text.trim();
        if let Some(driver) = path.strip_suffix("/unbind").and_then(|p| p.rsplit('/').next()) {
            if self.driver_of(word).as_deref() != Some(driver) {
                return Err(io::Error::from_raw_os_error(ENODEV));
            }
            if self.stuck.contains(driver) {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.detach(word, driver);
            return Ok(());
        }
        if let Some(driver) = path.strip_suffix("/bind").and_then(|p| p.rsplit('/').next()) {
            return self.give(word, driver);
        }
        if path.ends_with("/drivers_probe") {
            let loaded = self.list(DRIVERS).unwrap_or_default();
            let taker = loaded.into_iter().find(|driver| self.fits(word, driver));
            if let (None, Some(driver)) = (self.driver_of(word), taker) {
                // A probe that fails is told in the kernel's log, and nowhere else.
                let _ = self.give(word, &driver);
            }
            return Ok(());
        }
        if path.ends_with("/driver_override") {
            let text = if word.is_empty() { "(null)" } else { word };
            self.file(path, &format!("{text}\n"));
            return Ok(());
        }
        self.file(path, text);
        Ok(())
    }
}

impl Edit for FakeHost {
    fn write(&mut self, path: &str, text: &str, _within: Duration) -> io::Result<()> {
        self.order(format!("write {} to {path}", text.trim()))?;
        let at = match path.rsplit_once('/') {
            // Orders are files of folders that are always there.
            Some((folder, name @ ("bind" | "unbind" | "drivers_probe"))) => {
                format!("{}/{name}", self.resolve(folder)?)
            }
            _ => self.entry(path)?.0,
        };
        self.obey(&at, text)
    }

    fn put_file(&mut self, path: &str, text: &str) -> io::Result<()> {
        self.order(format!("put {path}"))?;
        self.file(path, text);
        Ok(())
    }

    fn remove_file(&mut self, path: &str) -> io::Result<()> {
        self.order(format!("remove {path}"))?;
        self.entry(path)?;
        self.remove(path);
        Ok(())
    }

    fn give_to(&mut self, path: &str, uid: u32) -> io::Result<()> {
        self.order(format!("give {path} to {uid}"))?;
        self.entry(path)?;
        self.owned(path, 0o600, uid, 0);
        Ok(())
    }

    fn load_module(&mut self, name: &str) -> io::Result<()> {
        self.order(format!("load {name}"))?;
        match self.modules.contains(name) {
            true => {
                self.add_driver(name);
                Ok(())
            }
            false => Err(io::Error::other(format!("modprobe: FATAL: Module {name} not found."))),
        }
    }

    fn pause(&mut self, time: Duration) {
        self.paused += time;
    }
}
