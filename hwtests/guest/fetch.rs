//! QEMU, kernels and the guest's programs, from Debian's packages into a cache.
//!
//! apt runs with settings, lists and a package state of its own, all in the cache: nothing is installed on this
//! machine, no root is needed, and any Debian or Ubuntu will do. Packages are unpacked and never configured. Programs of
//! the unpacked trees run through the tree's own dynamic loader, so the release of this machine does not matter.
//!
//! ```text
//! apt/          settings, lists, downloaded packages
//! qemu/         qemu-system-x86 of trixie-backports and its libraries
//! tools/        what runs in the guests, from trixie
//! kernel-6.1/   the newest kernel of that series in Debian, unpacked
//! kernel-6.12/
//! kernel-6.18/
//! ```
//!
//! Beside them lies the one kernel that is built here, not fetched: [`crate::kernel`].

use crate::fail::Stop;
use crate::kernel;
use crate::process::{self, Process};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// TIMEOUT: a slow mirror gives 1 MB/s, and the largest package has 110 MB.
const FETCH_LIMIT: Duration = Duration::from_secs(600);
/// TIMEOUT: the largest package unpacks in seconds.
const UNPACK_LIMIT: Duration = Duration::from_secs(180);
const MIRROR: &str = "http://deb.debian.org/debian";
const SECURITY: &str = "http://deb.debian.org/debian-security";
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
const SUITES: [&str; 3] = ["trixie", "trixie-backports", "bookworm"];
const SECURITY_SUITES: [&str; 2] = ["trixie-security", "bookworm-security"];
const REMEDY: &str = "needs the network, apt and a Debian mirror; QHCA_GUEST_MIRROR names another mirror than \
                      deb.debian.org, QHCA_GUEST_CACHE another folder";

const QEMU: [&str; 3] = ["qemu-system-x86", "seabios", "ipxe-qemu"];
const TOOLS: [&str; 9] = [
    "busybox-static",
    "opensm",
    "infiniband-diags",
    "ibverbs-utils",
    "ibverbs-providers",
    "perftest",
    "rdma-core",
    "rdmacm-utils",
    "xz-utils",
];

/// A series of kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Series {
    /// Debian 12.
    V6_1,
    /// Debian 13.
    V6_12,
    /// Debian 13's backports; without `ib_qib`, as an owner of today has it.
    V6_18,
    /// The series of Debian 13, built here with iommufd and everything for VFIO inside.
    Iommufd,
}

impl Series {
    /// Those that still carry `ib_qib`.
    pub(crate) const WITH_IB_QIB: [Self; 2] = [Self::V6_1, Self::V6_12];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::V6_1 => "6.1",
            Self::V6_12 => "6.12",
            Self::V6_18 => "6.18",
            Self::Iommufd => "6.12-iommufd",
        }
    }

    /// The release whose own kernel this is, as its packages are named: `6.1.0-57`, `6.12.118+deb13`.
    fn of_package(name: &str) -> Option<(Self, Vec<u32>)> {
        let version = name.strip_prefix("linux-image-")?.strip_suffix("-amd64")?;
        let (series, rest) = match version.strip_prefix("6.1.0-") {
            Some(rest) => (Self::V6_1, rest.to_owned()),
            None => {
                let of = [Self::V6_12, Self::V6_18]
                    .into_iter()
                    .find(|series| version.starts_with(&format!("{}.", series.name())))?;
                let rest = version.strip_prefix(of.name())?.strip_prefix('.')?;
                (of, rest.replacen("+deb13", "", 1))
            }
        };
        let numbers = rest.split('.').map(|part| part.parse().ok()).collect::<Option<Vec<u32>>>()?;
        Some((series, numbers))
    }
}

/// What was fetched, and where it lies.
pub(crate) struct Parts {
    root: PathBuf,
}

impl Parts {
    /// What every scenario needs; what the cache has is not fetched again.
    pub(crate) fn fetch(say: &dyn Fn(&str)) -> Result<Self, Stop> {
        let parts = Self { root: cache()? };
        if Tree::ALL.iter().all(|tree| parts.has(*tree)) {
            return Ok(parts);
        }
        say("reading Debian's lists of packages");
        parts.prepare_apt()?;
        for tree in Tree::ALL.into_iter().filter(|tree| !parts.has(*tree)) {
            say(&format!("fetching {}", tree.name()));
            parts.fetch_tree(tree)?;
        }
        Ok(parts)
    }

    /// The version of QEMU, as it prints it.
    pub(crate) fn qemu_version(&self) -> Result<String, Stop> {
        let text = process::must(self.qemu().arg("--version"), Duration::from_secs(60), REMEDY)?;
        let line = text.lines().next().unwrap_or_default();
        Ok(line.replace("emulator version ", "").trim().to_owned())
    }

    /// QEMU, run through its tree's own loader.
    pub(crate) fn qemu(&self) -> Command {
        let tree = self.root.join("qemu/usr");
        let mut command = self.program("qemu", "usr/bin/qemu-system-x86_64");
        command.env("QEMU_MODULE_DIR", tree.join("lib/x86_64-linux-gnu/qemu"));
        command.arg("-L").arg(tree.join("share/qemu")).arg("-L").arg(tree.join("share/seabios"));
        command
    }

    /// Unpacks what xz compressed.
    pub(crate) fn unxz(&self, file: &Path) -> Result<Vec<u8>, Stop> {
        let output = self.program("tools", "usr/bin/xz").arg("-dc").arg(file).output();
        let output = output.map_err(|error| Stop::file(file, &error))?;
        if !output.status.success() {
            return Err(Stop::missing(format!("{}: not unpacked", file.display()), REMEDY));
        }
        Ok(output.stdout)
    }

    /// Unpacks what xz compressed, into a pipe.
    pub(crate) fn unxz_to_pipe(&self, file: &Path) -> Result<Process, Stop> {
        let mut xz = self.program("tools", "usr/bin/xz");
        Process::start(xz.arg("-dc").arg(file).stdin(Stdio::null()).stdout(Stdio::piped()), REMEDY)
    }

    /// The folder that everything lies in.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Downloads one package, without what it depends on.
    pub(crate) fn download(&self, package: &str) -> Result<PathBuf, Stop> {
        self.prepare_apt()?;
        let debs = self.root.join("apt").join(format!("{package}-debs"));
        make_folder(&debs)?;
        self.apt_in(&debs, &["download", "-qq", package])?;
        let newest = entries(&debs)?.into_iter().rfind(|name| name.ends_with(".deb"));
        newest
            .map(|name| debs.join(name))
            .ok_or_else(|| Stop::missing(format!("no package {package}"), REMEDY))
    }

    /// The folder of the guest's programs.
    pub(crate) fn tools(&self) -> PathBuf {
        self.root.join("tools")
    }

    /// The kernel of a series: its image and the folder of its modules.
    pub(crate) fn kernel(&self, series: Series, say: &dyn Fn(&str)) -> Result<Kernel, Stop> {
        match series {
            Series::Iommufd => kernel::with_iommufd(self, say),
            fetched => {
                let tree = Tree::Kernel(fetched);
                if !self.has(tree) {
                    say(&format!("fetching {}", tree.name()));
                    self.prepare_apt()?;
                    self.fetch_tree(tree)?;
                }
                kernel_in(&self.root.join(tree.name()))
            }
        }
    }

    fn program(&self, tree: &str, path: &str) -> Command {
        let root = self.root.join(tree);
        let libraries = root.join("usr/lib/x86_64-linux-gnu");
        // The tree is run where it lies, at the niceness of whoever starts it.
        let mut command = Command::new(libraries.join("ld-linux-x86-64.so.2"));
        command.arg("--library-path").arg(&libraries).arg(root.join(path));
        command
    }

    fn has(&self, tree: Tree) -> bool {
        self.root.join(tree.name()).is_dir()
    }

    /// Brings the lists of packages up to date.
    fn prepare_apt(&self) -> Result<(), Stop> {
        for program in ["apt-get", "apt-cache", "dpkg-deb"] {
            if !process::on_path(program) {
                return Err(Stop::missing(format!("no {program}"), "run on Debian or Ubuntu"));
            }
        }
        if !Path::new(KEYRING).is_file() {
            return Err(Stop::missing(KEYRING, "apt-get install debian-archive-keyring"));
        }
        self.configure_apt()?;
        self.apt("apt-get", &["update", "-qq"]).map(drop)
    }

    fn configure_apt(&self) -> Result<(), Stop> {
        let apt = self.root.join("apt");
        for folder in ["lists/partial", "etc/apt.conf.d", "etc/preferences.d"] {
            make_folder(&apt.join(folder))?;
        }
        let mirror = std::env::var("QHCA_GUEST_MIRROR").unwrap_or_else(|_| MIRROR.to_owned());
        let source = |mirror: &str, suite: &str| format!("deb [signed-by={KEYRING}] {mirror} {suite} main\n");
        let mut sources: String = SUITES.iter().map(|suite| source(&mirror, suite)).collect();
        sources.extend(SECURITY_SUITES.iter().map(|suite| source(SECURITY, suite)));
        write(&apt.join("sources.list"), sources.as_bytes())?;
        write(&apt.join("status"), b"")?;
        let at = apt.display();
        let settings = format!(
            r#"Dir "{at}";
Dir::State::status "{at}/status";
Dir::State::lists "{at}/lists";
Dir::Cache "{at}";
Dir::Etc "{at}/etc";
Dir::Etc::sourcelist "{at}/sources.list";
Dir::Etc::sourceparts "-";
APT::Architecture "amd64";
APT::Architectures {{ "amd64"; }};
APT::Default-Release "trixie";
APT::Install-Recommends "false";
APT::Sandbox::User "root";
Acquire::Languages "none";
Acquire::Retries "3";
Acquire::http::Timeout "60";
Debug::NoLocking "1";
"#
        );
        write(&apt.join("apt.conf"), settings.as_bytes())
    }

    fn apt(&self, program: &str, arguments: &[&str]) -> Result<String, Stop> {
        let mut command = Command::new(program);
        command.env("APT_CONFIG", self.root.join("apt/apt.conf")).args(arguments);
        process::must(&mut command, FETCH_LIMIT, REMEDY)
    }

    fn fetch_tree(&self, tree: Tree) -> Result<(), Stop> {
        let debs = self.root.join("apt").join(format!("{}-debs", tree.name()));
        make_folder(&debs.join("partial"))?;
        let archives = format!("Dir::Cache::archives={}", debs.display());
        let mut arguments = vec!["install", "-y", "-qq", "--download-only", "-o", archives.as_str()];
        match tree {
            Tree::Qemu => {
                arguments.extend(["-t", "trixie-backports"]);
                arguments.extend(QEMU);
                self.apt("apt-get", &arguments)?;
            }
            Tree::Tools => {
                arguments.extend(TOOLS);
                self.apt("apt-get", &arguments)?;
            }
            Tree::Kernel(series) => self.download_kernel(series, &debs)?,
        }
        self.unpack(tree, &debs)
    }

    /// Only the kernel itself: what it depends on makes initial file systems, and the suite makes its own.
    fn download_kernel(&self, series: Series, debs: &Path) -> Result<(), Stop> {
        let names = self.apt("apt-cache", &["pkgnames", &format!("linux-image-{}.", series.name())])?;
        let newest = names
            .lines()
            .filter_map(|name| Some((Series::of_package(name)?, name)))
            .filter(|((of, _), _)| *of == series)
            .max_by(|((_, a), _), ((_, b), _)| a.cmp(b));
        let Some((_, package)) = newest else {
            let what = format!("Debian has no kernel {} any more", series.name());
            return Err(Stop::missing(what, "a snapshot.debian.org mirror in QHCA_GUEST_MIRROR has"));
        };
        self.apt_in(debs, &["download", "-qq", package])
    }

    fn apt_in(&self, folder: &Path, arguments: &[&str]) -> Result<(), Stop> {
        let mut command = Command::new("apt-get");
        command.env("APT_CONFIG", self.root.join("apt/apt.conf")).current_dir(folder);
        process::must(command.args(arguments), FETCH_LIMIT, REMEDY).map(drop)
    }

    /// Unpacks beside the final place and moves there, so that a tree is whole or not there.
    fn unpack(&self, tree: Tree, debs: &Path) -> Result<(), Stop> {
        let part = self.root.join(format!("{}.part-{}", tree.name(), std::process::id()));
        make_folder(&part)?;
        for name in entries(debs)?.into_iter().filter(|name| name.ends_with(".deb")) {
            let mut command = Command::new("dpkg-deb");
            process::must(command.arg("-x").arg(debs.join(name)).arg(&part), UNPACK_LIMIT, REMEDY)?;
        }
        let whole = self.root.join(tree.name());
        if let Err(error) = fs::rename(&part, &whole)
            && !whole.is_dir()
        {
            return Err(Stop::file(&whole, &error));
        }
        Ok(())
    }
}

/// A kernel: its release, its image, its modules.
pub(crate) struct Kernel {
    pub(crate) release: String,
    pub(crate) image: PathBuf,
    pub(crate) modules: PathBuf,
}

#[derive(Clone, Copy)]
enum Tree {
    Qemu,
    Tools,
    Kernel(Series),
}

impl Tree {
    /// What every run needs; another kernel is fetched when a scenario asks for it.
    const ALL: [Self; 4] = [Self::Qemu, Self::Tools, Self::Kernel(Series::V6_1), Self::Kernel(Series::V6_12)];

    fn name(self) -> String {
        match self {
            Self::Qemu => "qemu".to_owned(),
            Self::Tools => "tools".to_owned(),
            Self::Kernel(series) => format!("kernel-{}", series.name()),
        }
    }
}

fn cache() -> Result<PathBuf, Stop> {
    let folder = std::env::var_os("QHCA_GUEST_CACHE")
        .map_or_else(|| PathBuf::from("/var/cache/qhca-guest-suite"), PathBuf::from);
    make_folder(&folder)?;
    folder.canonicalize().map_err(|error| Stop::file(&folder, &error))
}

/// The kernel in the tree that lies in a folder.
pub(crate) fn kernel_in(root: &Path) -> Result<Kernel, Stop> {
    let boot = root.join("boot");
    let found = entries(&boot)?.into_iter().find_map(|name| {
        let release = name.strip_prefix("vmlinuz-")?.to_owned();
        Some(Kernel { image: boot.join(&name), modules: modules_of(root, &release), release })
    });
    found.ok_or_else(|| Stop::missing(format!("no kernel in {}", boot.display()), "empty the cache"))
}

fn modules_of(root: &Path, release: &str) -> PathBuf {
    // Debian 12 keeps them in /lib, Debian 13 in /usr/lib.
    let old = root.join("lib/modules").join(release);
    if old.is_dir() { old } else { root.join("usr/lib/modules").join(release) }
}

/// The names in a folder, in order.
pub(crate) fn entries(folder: &Path) -> Result<Vec<String>, Stop> {
    let read = fs::read_dir(folder).map_err(|error| Stop::file(folder, &error))?;
    let mut names: Vec<String> =
        read.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    Ok(names)
}

/// Makes a folder and those above it.
pub(crate) fn make_folder(folder: &Path) -> Result<(), Stop> {
    fs::create_dir_all(folder).map_err(|error| Stop::file(folder, &error))
}

/// Writes a whole file.
pub(crate) fn write(path: &Path, contents: &[u8]) -> Result<(), Stop> {
    fs::write(path, contents).map_err(|error| Stop::file(path, &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_told_apart_and_ordered_by_number() {
        let of = Series::of_package;
        assert_eq!(of("linux-image-6.1.0-57-amd64"), Some((Series::V6_1, vec![57])));
        assert_eq!(of("linux-image-6.12.118+deb13-amd64"), Some((Series::V6_12, vec![118])));
        assert_eq!(of("linux-image-6.18.15+deb13-amd64"), Some((Series::V6_18, vec![15])));
        assert!(of("linux-image-6.12.115+deb13.1-amd64") > of("linux-image-6.12.115+deb13-amd64"));
        assert!(of("linux-image-6.12.118+deb13-amd64") > of("linux-image-6.12.90+deb13-amd64"));
        for other in
            ["linux-image-6.1.0-57-cloud-amd64", "linux-image-6.12.117+deb12-amd64", "linux-image-amd64"]
        {
            assert_eq!(of(other), None, "{other}");
        }
    }
}
