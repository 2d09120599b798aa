//! What the scenarios share: the fetched parts, images, `qhca` for this machine and for guests, folders for sockets and
//! logs.

use crate::fail::Stop;
use crate::fetch::{Kernel, Parts, Series, make_folder, write};
use crate::image::{self, Purpose};
use crate::machine::Guest;
use crate::report::Report;
use crate::server::Server;
use qhca_hwtests::qemu;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// TIMEOUT: a release build from nothing takes minutes on a busy machine.
const BUILD_LIMIT: Duration = Duration::from_secs(1800);
/// Memory of a guest, MiB.
const MEMORY_MIB: u32 = 512;
/// What guests are.
const TRIPLE: &str = "x86_64-unknown-linux-gnu";

/// What a guest is to be.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    pub(crate) series: Series,
    pub(crate) purpose: Purpose,
    /// Which of the server's cards it gets.
    pub(crate) cards: Vec<usize>,
    pub(crate) iommu: bool,
    /// More words of the kernel's command line.
    pub(crate) append: &'static str,
    /// Files that its first file system has beside those of the image, as an archive; empty for none.
    pub(crate) overlay: Vec<u8>,
}

impl Wanted {
    /// A guest for the stock driver.
    pub(crate) fn fabric(series: Series, card: usize) -> Self {
        Self {
            series,
            purpose: Purpose::Fabric,
            cards: vec![card],
            iommu: false,
            append: "",
            overlay: Vec::new(),
        }
    }

    /// A guest for our driver, behind an IOMMU.
    pub(crate) fn owner(series: Series) -> Self {
        Self { series, purpose: Purpose::Owner, cards: vec![0], iommu: true, append: "", overlay: Vec::new() }
    }
}

/// Everything that scenarios work with.
pub(crate) struct Lab {
    pub(crate) report: Report,
    pub(crate) parts: Parts,
    qhca: PathBuf,
    sockets: PathBuf,
    logs: PathBuf,
    /// Images that this run has built.
    images: Vec<PathBuf>,
    static_is_built: bool,
    servers: u32,
}

impl Lab {
    /// Fetches, builds, and makes the folders.
    pub(crate) fn open(report: &mut Report) -> Result<Self, Stop> {
        report.begin("prepare");
        let parts = Parts::fetch(&|what| report.progress(what))?;
        report.note(format!("QEMU: {}", parts.qemu_version()?));
        report.progress("building qhca");
        let qhca = built_qhca()?;
        let logs = target().join("guest");
        make_folder(&logs)?;
        let sockets = std::env::temp_dir().join(format!("qhca-guest-{}", std::process::id()));
        make_folder(&sockets)?;
        let report = std::mem::take(report);
        Ok(Self {
            report,
            parts,
            qhca,
            sockets,
            logs,
            images: Vec::new(),
            static_is_built: false,
            servers: 0,
        })
    }

    /// The folder of logs of a scenario.
    pub(crate) fn logs(&self, scenario: &str) -> Result<PathBuf, Stop> {
        let folder = self.logs.join(scenario);
        make_folder(&folder)?;
        Ok(folder)
    }

    /// The `qhca` command.
    pub(crate) fn qhca(&self) -> &Path {
        &self.qhca
    }

    /// Starts a server with `cards` cards, whose sockets are in a folder of their own.
    pub(crate) fn serve(&mut self, cards: usize, arguments: &[&str], logs: &Path) -> Result<Server, Stop> {
        self.servers += 1;
        let sockets = self.sockets.join(self.servers.to_string());
        make_folder(&sockets)?;
        Server::start(&self.qhca, cards, arguments, &sockets, logs)
    }

    /// The image for a kernel, built if it is not there.
    pub(crate) fn image(&mut self, series: Series, purpose: Purpose) -> Result<(Kernel, PathBuf), Stop> {
        let kernel = self.parts.kernel(series, &|what| self.report.progress(what))?;
        let path = self.logs.join(format!("initrd-{}{}", series.name(), purpose.suffix()));
        if !self.images.contains(&path) {
            let qhca = match purpose {
                Purpose::Fabric => self.qhca.clone(),
                Purpose::Owner | Purpose::Both => self.static_qhca()?,
            };
            self.report.progress(&format!("building {} for kernel {}", path.display(), kernel.release));
            write(&path, &image::build(&self.parts, &kernel, purpose, &qhca)?)?;
            self.report.note(format!("kernel: {}", kernel.release));
            self.images.push(path.clone());
        }
        Ok((kernel, path))
    }

    /// `qhca` for guests, which have none of its libraries: linked with all of them in it, and built once a run.
    fn static_qhca(&mut self) -> Result<PathBuf, Stop> {
        let folder = target().join("guest-qhca");
        let qhca = folder.join(TRIPLE).join("release/qhca");
        if !self.static_is_built {
            self.report.progress("building qhca for guests");
            let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
            let mut command = Command::new(cargo);
            command.args(["build", "--quiet", "--locked", "--release", "-p", "qhca-cli", "--target", TRIPLE]);
            command.current_dir(tree()).env("CARGO_TARGET_DIR", &folder);
            command.env("RUSTFLAGS", "-Ctarget-feature=+crt-static");
            // Guests are emulated: what the last optimisation brings is not seen there, and costs minutes here.
            for (key, value) in
                [("LTO", "off"), ("CODEGEN_UNITS", "16"), ("DEBUG", "0"), ("STRIP", "symbols")]
            {
                command.env(format!("CARGO_PROFILE_RELEASE_{key}"), value);
            }
            crate::process::must(&mut command, BUILD_LIMIT, "apt-get install libc6-dev, which has libc.a")?;
            self.static_is_built = true;
        }
        Ok(qhca)
    }

    /// Leaves a link to a kernel's image beside its first file system.
    pub(crate) fn link_kernel(&self, series: Series) -> Result<PathBuf, Stop> {
        let path = self.logs.join(format!("vmlinuz-{}", series.name()));
        let image = self.parts.kernel(series, &|what| self.report.progress(what))?.image;
        // One that an earlier run left may lead elsewhere.
        let _ = std::fs::remove_file(&path);
        std::os::unix::fs::symlink(&image, &path).map_err(|error| Stop::file(&path, &error))?;
        Ok(path)
    }

    /// Leaves a script that calls the fetched QEMU.
    pub(crate) fn link_qemu(&self) -> Result<PathBuf, Stop> {
        use std::os::unix::fs::PermissionsExt;
        let path = self.logs.join("qemu");
        let qemu = self.parts.qemu();
        let quoted = |text: &std::ffi::OsStr| format!("'{}'", text.to_string_lossy().replace('\'', r"'\''"));
        let mut script = String::from("#!/bin/sh\n");
        for (key, value) in qemu.get_envs() {
            if let Some(value) = value {
                script.push_str(&format!("export {}={}\n", key.to_string_lossy(), quoted(value)));
            }
        }
        let words: Vec<String> =
            [qemu.get_program()].into_iter().chain(qemu.get_args()).map(quoted).collect();
        script.push_str(&format!("exec {} \"$@\"\n", words.join(" ")));
        write(&path, script.as_bytes())?;
        let runnable = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&path, runnable).map_err(|error| Stop::file(&path, &error))?;
        Ok(path)
    }

    /// Starts a guest; it boots meanwhile.
    pub(crate) fn start(
        &mut self,
        name: &str,
        wanted: Wanted,
        server: &Server,
        logs: &Path,
    ) -> Result<Guest, Stop> {
        let (kernel, mut initrd) = self.image(wanted.series, wanted.purpose)?;
        if !wanted.overlay.is_empty() {
            // The kernel unpacks one archive after the other; a file that comes twice is the later one.
            let mut bytes = std::fs::read(&initrd).map_err(|error| Stop::file(&initrd, &error))?;
            bytes.extend_from_slice(&wanted.overlay);
            initrd = logs.join(format!("{name}.initrd"));
            write(&initrd, &bytes)?;
        }
        let machine = qemu::Guest {
            sockets: wanted.cards.iter().map(|card| server.socket(*card)).collect(),
            kernel: kernel.image,
            initrd,
            append: wanted.append.to_owned(),
            memory_mib: MEMORY_MIB,
            iommu: wanted.iommu,
        };
        Guest::start(self.parts.qemu(), name, &machine, logs)
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        // Only sockets lie there; one that is left behind harms nobody.
        let _ = std::fs::remove_dir_all(&self.sockets);
    }
}

/// The root of the tree that this program was built from.
pub(crate) fn tree() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// The folder into which cargo built this program: `target/release/guest` lies two below.
fn target() -> PathBuf {
    let own = std::env::current_exe().unwrap_or_default();
    own.ancestors().nth(2).map_or_else(|| PathBuf::from("target"), Path::to_path_buf)
}

/// `qhca` beside this program; under `cargo run` it is brought up to date first.
fn built_qhca() -> Result<PathBuf, Stop> {
    let own = std::env::current_exe().unwrap_or_default();
    let release = own.parent().is_some_and(|folder| folder.ends_with("release"));
    let remedy = "cargo build --release -p qhca-cli";
    if let Some(cargo) = std::env::var_os("CARGO") {
        let mut command = Command::new(cargo);
        command.args(["build", "--quiet", "--locked", "-p", "qhca-cli"]);
        if release {
            command.arg("--release");
        }
        command.current_dir(tree());
        crate::process::must(&mut command, BUILD_LIMIT, remedy)?;
    }
    let qhca = own.with_file_name("qhca");
    if qhca.is_file() { Ok(qhca) } else { Err(Stop::missing(format!("no {}", qhca.display()), remedy)) }
}
