//! The guest's first and only file system: busybox, the modules of one kernel in the order in which they load, the script
//! that runs it all, and what the guest is for: the InfiniBand tools with the libraries they name, or our `qhca`.

use crate::fail::Stop;
use crate::fetch::{Kernel, Parts, entries};
use crate::newc::Archive;
use crate::object::{needed_libraries, needed_modules};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// What a guest is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// The stock driver and the InfiniBand tools.
    Fabric,
    /// Our driver over VFIO, as the owner of a card has it.
    Owner,
    /// One card for each.
    Both,
}

impl Purpose {
    /// What the name of an image says of it; nothing for the one that `docs/virtual-hca.md` uses.
    pub(crate) fn suffix(self) -> &'static str {
        match self {
            Self::Fabric => "",
            Self::Owner => "-owner",
            Self::Both => "-both",
        }
    }

    fn has_fabric(self) -> bool {
        self != Self::Owner
    }

    fn has_qhca(self) -> bool {
        self != Self::Fabric
    }
}

/// The modules that the stock driver's scenarios use; what they need comes with them.
const FABRIC_MODULES: [&str; 5] = ["ib_core", "ib_uverbs", "ib_qib", "ib_umad", "ib_ipoib"];
/// The modules of VFIO.
const VFIO_MODULES: [&str; 2] = ["vfio_pci", "vfio_iommu_type1"];

/// The programs that the scenarios use, where Debian puts them.
const PROGRAMS: [&str; 20] = [
    "usr/sbin/opensm",
    "usr/sbin/ibstat",
    "usr/sbin/ibaddr",
    "usr/sbin/ibping",
    "usr/sbin/iblinkinfo",
    "usr/sbin/ibportstate",
    "usr/sbin/perfquery",
    "usr/sbin/smpquery",
    "usr/sbin/saquery",
    "usr/sbin/sminfo",
    "usr/bin/ibv_devinfo",
    "usr/bin/ibv_rc_pingpong",
    "usr/bin/ibv_uc_pingpong",
    "usr/bin/ibv_ud_pingpong",
    "usr/bin/ib_write_bw",
    "usr/bin/ib_write_lat",
    "usr/bin/ib_read_bw",
    "usr/bin/ib_send_bw",
    "usr/bin/ib_send_lat",
    "usr/bin/ib_read_lat",
];

/// Reads the rules that a binding leaves for the next boot.
const UDEV: &str = "usr/bin/udevadm";

const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";
/// Where systemd keeps the library that only its own programs use.
const SYSTEMD_LIBRARIES: &str = "usr/lib/x86_64-linux-gnu/systemd";
const REMEDY: &str = "Debian's packages have changed: empty the cache, and mend the lists in this program if that \
                      does not help";

/// Builds the archive for one kernel; `qhca` is our command, linked so that it needs no library.
pub(crate) fn build(parts: &Parts, kernel: &Kernel, purpose: Purpose, qhca: &Path) -> Result<Vec<u8>, Stop> {
    let mut image = Image { archive: Archive::new(), tools: parts.tools() };
    for folder in ["bin", "sbin", "dev", "proc", "sys", "tmp", "run", "root", "etc", "lib", "modules"] {
        image.archive.folder(folder);
    }
    image.archive.file("init", include_bytes!("init.sh"));
    image.archive.device("dev/console", 5, 1);
    image.archive.device("dev/null", 1, 3);
    image.archive.file("etc/passwd", b"root:x:0:0:root:/root:/bin/sh\nowner:x:1000:1000::/root:/bin/sh\n");
    image.archive.file("etc/hosts", b"127.0.0.1 localhost\n");
    let busybox = image.read("usr/bin/busybox")?;
    image.archive.file("bin/busybox", &busybox);
    let mut loaded = Loaded::of(kernel)?;
    if purpose.has_fabric() {
        for program in PROGRAMS {
            image.program(program)?;
        }
        image.verbs_provider()?;
        image.modules(parts, &FABRIC_MODULES, &mut loaded, "order")?;
    }
    if purpose.has_qhca() {
        let bytes = fs::read(qhca).map_err(|error| Stop::file(qhca, &error))?;
        image.archive.file("usr/bin/qhca", &bytes);
        image.program(UDEV)?;
        image.archive.link("usr/lib/systemd/systemd-udevd", "/usr/bin/udevadm");
        image.modules(parts, &VFIO_MODULES, &mut loaded, "order-vfio")?;
    }
    image
        .archive
        .file(&format!("lib/modules/{}/modules.dep", kernel.release), loaded.dependencies().as_bytes());
    Ok(image.archive.finish())
}

struct Image {
    archive: Archive,
    tools: PathBuf,
}

impl Image {
    fn read(&self, path: &str) -> Result<Vec<u8>, Stop> {
        let file = self.tools.join(path);
        fs::read(&file).map_err(|error| Stop::missing(format!("{}: {error}", file.display()), REMEDY))
    }

    fn program(&mut self, path: &str) -> Result<(), Stop> {
        let bytes = self.read(path)?;
        self.archive.file(path, &bytes);
        self.archive.link("lib64", "usr/lib64");
        let loader = self.read(&format!("{LIBRARIES}/ld-linux-x86-64.so.2"))?;
        self.archive.file("usr/lib64/ld-linux-x86-64.so.2", &loader);
        self.libraries(&bytes)
    }

    /// The libraries that an object names, theirs, and so on.
    fn libraries(&mut self, object: &[u8]) -> Result<(), Stop> {
        for name in needed_libraries(object) {
            let own = format!("{SYSTEMD_LIBRARIES}/{name}");
            let is_own = self.tools.join(&own).is_file();
            let path = if is_own { own } else { format!("{LIBRARIES}/{name}") };
            if !self.archive.has(&path) {
                let bytes = self.read(&path)?;
                self.archive.file(&path, &bytes);
                self.libraries(&bytes)?;
            }
        }
        Ok(())
    }

    /// The one of the verbs libraries' plug-ins that knows this card.
    fn verbs_provider(&mut self) -> Result<(), Stop> {
        let driver = self.read("etc/libibverbs.d/ipathverbs.driver")?;
        self.archive.file("etc/libibverbs.d/ipathverbs.driver", &driver);
        let folder = format!("{LIBRARIES}/libibverbs");
        let plugin = entries(&self.tools.join(&folder))?
            .into_iter()
            .find(|name| name.starts_with("libipathverbs-"))
            .ok_or_else(|| Stop::missing("the plug-in libipathverbs of libibverbs", REMEDY))?;
        let path = format!("{folder}/{plugin}");
        let bytes = self.read(&path)?;
        self.archive.file(&path, &bytes);
        self.libraries(&bytes)
    }

    /// Adds modules with what they need, and the order in which they load. A kernel without modules has them inside.
    fn modules(
        &mut self,
        parts: &Parts,
        names: &[&str],
        loaded: &mut Loaded,
        order: &str,
    ) -> Result<(), Stop> {
        let from = loaded.order.len();
        if !loaded.found.is_empty() {
            for name in names {
                self.module(name, parts, loaded)?;
            }
        }
        let own: Vec<&str> = loaded.order[from..].iter().map(|(name, _)| name.as_str()).collect();
        self.archive.file(&format!("modules/{order}"), format!("{}\n", own.join("\n")).as_bytes());
        Ok(())
    }

    fn module(&mut self, name: &str, parts: &Parts, loaded: &mut Loaded) -> Result<(), Stop> {
        if loaded.order.iter().any(|(known, _)| known == name) {
            return Ok(());
        }
        let path = loaded
            .found
            .get(name)
            .ok_or_else(|| Stop::missing(format!("the kernel module {name}"), REMEDY))?;
        let bytes = match path.extension().is_some_and(|end| end == "xz") {
            true => parts.unxz(path)?,
            false => fs::read(path).map_err(|error| Stop::file(path, &error))?,
        };
        let mut needed = needed_modules(&bytes);
        // What modprobe reads in vfio.ko as a module that is wanted as well; busybox' does not.
        if name == "vfio_pci" {
            needed.push("vfio_iommu_type1".to_owned());
        }
        for name in &needed {
            self.module(name, parts, loaded)?;
        }
        self.archive.file(&format!("modules/{name}.ko"), &bytes);
        loaded.order.push((name.to_owned(), needed));
        Ok(())
    }
}

/// The modules of a kernel, and those of them that the image has, each with what it needs, in loading order.
struct Loaded {
    found: BTreeMap<String, PathBuf>,
    order: Vec<(String, Vec<String>)>,
}

impl Loaded {
    fn of(kernel: &Kernel) -> Result<Self, Stop> {
        let mut found = BTreeMap::new();
        if kernel.modules.is_dir() {
            find_modules(&kernel.modules.join("kernel"), &mut found)?;
        }
        Ok(Self { found, order: Vec::new() })
    }

    /// What `modprobe` reads: a module, and everything that must be loaded before it, the last to be loaded first.
    fn dependencies(&self) -> String {
        let file = |name: &String| format!("/modules/{name}.ko");
        let line = |(name, _): &(String, Vec<String>)| {
            let mut all = Vec::new();
            self.below(name, &mut all);
            let all: Vec<String> = all.iter().rev().map(file).collect();
            format!("{}: {}\n", file(name), all.join(" "))
        };
        self.order.iter().map(line).collect()
    }

    fn below(&self, name: &str, all: &mut Vec<String>) {
        let needed = self.order.iter().find(|(known, _)| known == name).map(|(_, needed)| needed);
        for name in needed.into_iter().flatten() {
            self.below(name, all);
            if !all.contains(name) {
                all.push(name.clone());
            }
        }
    }
}

/// Every module under a folder, by its name with underscores.
fn find_modules(folder: &Path, found: &mut BTreeMap<String, PathBuf>) -> Result<(), Stop> {
    for name in entries(folder)? {
        let path = folder.join(&name);
        if path.is_dir() {
            find_modules(&path, found)?;
        } else if let Some(module) = name.strip_suffix(".ko").or_else(|| name.strip_suffix(".ko.xz")) {
            found.insert(module.replace('-', "_"), path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modprobe_is_told_of_what_is_needed_by_what_is_needed() {
        let of =
            |name: &str, needed: &[&str]| (name.to_owned(), needed.iter().map(|n| (*n).to_owned()).collect());
        let order =
            vec![of("vfio", &[]), of("vfio_pci_core", &["vfio"]), of("vfio_pci", &["vfio_pci_core", "vfio"])];
        let loaded = Loaded { found: BTreeMap::new(), order };
        let text = loaded.dependencies();
        let last = text.lines().last();
        assert_eq!(last, Some("/modules/vfio_pci.ko: /modules/vfio_pci_core.ko /modules/vfio.ko"));
    }
}
