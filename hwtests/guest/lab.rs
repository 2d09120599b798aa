//! What the scenarios share: the fetched parts, an image a kernel, the built `qhca`, and folders for sockets and logs.

use crate::fail::Stop;
use crate::fetch::{Kernel, Parts, Series, make_folder, write};
use crate::image;
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

/// What a guest is to be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    pub(crate) series: Series,
    /// Which of the server's cards it gets.
    pub(crate) card: usize,
    pub(crate) iommu: bool,
}

/// Everything that scenarios work with.
pub(crate) struct Lab {
    pub(crate) report: Report,
    pub(crate) parts: Parts,
    qhca: PathBuf,
    sockets: PathBuf,
    logs: PathBuf,
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
        Ok(Self { report: std::mem::take(report), parts, qhca, sockets, logs })
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

    /// Starts a server with `cards` cards.
    pub(crate) fn serve(&self, cards: usize, arguments: &[&str], logs: &Path) -> Result<Server, Stop> {
        Server::start(&self.qhca, cards, arguments, &self.sockets, logs)
    }

    /// The image for a kernel, built if it is not there.
    pub(crate) fn image(&mut self, series: Series) -> Result<(Kernel, PathBuf), Stop> {
        let kernel = self.parts.kernel(series)?;
        let path = self.logs.join(format!("initrd-{}", series.name()));
        if !self.report.noted(&kernel_note(&kernel)) {
            self.report.progress(&format!("building the image for kernel {}", kernel.release));
            write(&path, &image::build(&self.parts, &kernel)?)?;
            self.report.note(kernel_note(&kernel));
        }
        Ok((kernel, path))
    }

    /// Leaves a link to a kernel's image beside its first file system.
    pub(crate) fn link_kernel(&self, series: Series) -> Result<PathBuf, Stop> {
        let path = self.logs.join(format!("vmlinuz-{}", series.name()));
        let image = self.parts.kernel(series)?.image;
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
        let (kernel, initrd) = self.image(wanted.series)?;
        let machine = qemu::Guest {
            socket: server.socket(wanted.card),
            kernel: kernel.image,
            initrd,
            append: String::new(),
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

fn kernel_note(kernel: &Kernel) -> String {
    format!("kernel: {}", kernel.release)
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
