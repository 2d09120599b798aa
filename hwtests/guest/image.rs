//! The guest's first and only file system: busybox, the InfiniBand tools with the libraries they name, the modules of
//! one kernel in the order in which they load, and the script that runs it all.

use crate::fail::Stop;
use crate::fetch::{Kernel, Parts, entries};
use crate::newc::Archive;
use crate::object::{needed_libraries, needed_modules};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The modules that the scenarios use; what they need comes with them.
const MODULES: [&str; 5] = ["ib_core", "ib_uverbs", "ib_qib", "ib_umad", "ib_ipoib"];

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

const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";
const REMEDY: &str = "Debian's packages have changed: empty the cache, and mend the lists in this program if that \
                      does not help";

/// Builds the archive for one kernel.
pub(crate) fn build(parts: &Parts, kernel: &Kernel) -> Result<Vec<u8>, Stop> {
    let mut image = Image { archive: Archive::new(), tools: parts.tools() };
    for folder in ["bin", "sbin", "dev", "proc", "sys", "tmp", "run", "root", "etc", "lib", "modules"] {
        image.archive.folder(folder);
    }
    image.archive.file("init", include_bytes!("init.sh"));
    image.archive.device("dev/console", 5, 1);
    image.archive.device("dev/null", 1, 3);
    image.archive.file("etc/passwd", b"root:x:0:0:root:/root:/bin/sh\n");
    image.archive.file("etc/hosts", b"127.0.0.1 localhost\n");
    let busybox = image.read("usr/bin/busybox")?;
    image.archive.file("bin/busybox", &busybox);
    for program in PROGRAMS {
        image.program(program)?;
    }
    image.verbs_provider()?;
    image.modules(parts, kernel)?;
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
            let path = format!("{LIBRARIES}/{name}");
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

    fn modules(&mut self, parts: &Parts, kernel: &Kernel) -> Result<(), Stop> {
        let mut found = BTreeMap::new();
        find_modules(&kernel.modules.join("kernel"), &mut found)?;
        let mut order = Vec::new();
        for name in MODULES {
            self.module(name, &found, parts, &mut order)?;
        }
        self.archive.file("modules/order", format!("{}\n", order.join("\n")).as_bytes());
        Ok(())
    }

    fn module(
        &mut self,
        name: &str,
        found: &BTreeMap<String, PathBuf>,
        parts: &Parts,
        order: &mut Vec<String>,
    ) -> Result<(), Stop> {
        if order.iter().any(|known| known == name) {
            return Ok(());
        }
        let path =
            found.get(name).ok_or_else(|| Stop::missing(format!("the kernel module {name}"), REMEDY))?;
        let bytes = match path.extension().is_some_and(|end| end == "xz") {
            true => parts.unxz(path)?,
            false => fs::read(path).map_err(|error| Stop::file(path, &error))?,
        };
        for needed in needed_modules(&bytes) {
            self.module(&needed, found, parts, order)?;
        }
        self.archive.file(&format!("modules/{name}.ko"), &bytes);
        order.push(name.to_owned());
        Ok(())
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
