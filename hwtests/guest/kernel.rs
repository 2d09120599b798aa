//! A guest kernel of our own: no kernel of Debian's has `/dev/vfio/devices` and iommufd.
//!
//! Built from Debian's own source of the series 6.12 with `make tinyconfig` and what `cdev.config` beside this file adds,
//! by the compiler of this machine. The image lies in the cache, in a folder that is named after the version of the
//! source and a sum over the configuration, so that a change to either builds anew and nothing else does.
//!
//! ```text
//! kernel-iommufd-6.12.117-1-0123456789abcdef/boot/vmlinuz-6.12.117-iommufd
//! ```

use crate::fail::Stop;
use crate::fetch::{self, Kernel, Parts, entries, make_folder, write};
use crate::process;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const CONFIG: &str = include_str!("cdev.config");
const PACKAGE: &str = "linux-source-6.12";
/// What the release's name ends in, so that it is told from Debian's kernels.
const SUFFIX: &str = "-iommufd";
const PREFIX: &str = "kernel-iommufd-";

/// TIMEOUT: the source has 1.5 GB unpacked; half a minute on idle cores.
const UNPACK_LIMIT: Duration = Duration::from_secs(600);
/// TIMEOUT: asking for the configuration compiles a few small programs.
const CONFIGURE_LIMIT: Duration = Duration::from_secs(300);
/// TIMEOUT: some minutes on two idle cores, several times as long beside other work.
const BUILD_LIMIT: Duration = Duration::from_secs(3000);

/// Programs and a header that the build needs, and the packages that have them.
const PROGRAMS: [&str; 5] = ["make", "gcc", "flex", "bison", "bc"];
const HEADER: &str = "/usr/include/gelf.h";
const REMEDY: &str = "apt-get install make gcc libc6-dev flex bison bc libelf-dev";

/// Parts of the source that this configuration never compiles and that take longest to unpack.
const LEFT_OUT: [&str; 5] = [
    "*/drivers/gpu/drm/amd/*.[ch]",
    "*/drivers/net/ethernet/*.[ch]",
    "*/drivers/media/*.[ch]",
    "*/sound/*.[ch]",
    "*/Documentation/*.rst",
];

/// The kernel with iommufd, built if the cache does not have it.
pub(crate) fn with_iommufd(parts: &Parts, say: &dyn Fn(&str)) -> Result<Kernel, Stop> {
    if let Some(kernel) = cached(parts.root())? {
        return Ok(kernel);
    }
    for program in PROGRAMS {
        if !process::on_path(program) {
            return Err(Stop::missing(format!("no {program}, with which the guest kernel is built"), REMEDY));
        }
    }
    if !Path::new(HEADER).is_file() {
        return Err(Stop::missing(
            format!("no {HEADER}, without which the guest kernel is not built"),
            REMEDY,
        ));
    }
    let begun = Instant::now();
    say("fetching the source of the guest kernel with iommufd");
    let deb = parts.download(PACKAGE)?;
    let folder = format!("{PREFIX}{}-{:016x}", version(&deb), sum(CONFIG.as_bytes()));
    let part = parts.root().join(format!("{folder}.part-{}", std::process::id()));
    let built = unpack(parts, &deb, &part).and_then(|source| {
        say("building the guest kernel with iommufd");
        compile(&source)
    });
    let kernel = built.and_then(|(image, release)| keep(&part, &parts.root().join(folder), &image, &release));
    // The source is of no use any more, whether it was built or not.
    let _ = std::fs::remove_dir_all(&part);
    kernel?;
    say(&format!("the guest kernel took {} s", begun.elapsed().as_secs()));
    cached(parts.root())?.ok_or_else(|| Stop::missing("the kernel that was just built", "empty the cache"))
}

/// The newest kernel in the cache that has this configuration.
fn cached(root: &Path) -> Result<Option<Kernel>, Stop> {
    let end = format!("-{:016x}", sum(CONFIG.as_bytes()));
    let folders = entries(root)?;
    let newest = folders.iter().rfind(|name| name.starts_with(PREFIX) && name.ends_with(&end));
    newest.map(|name| fetch::kernel_in(&root.join(name))).transpose()
}

/// The version in the name of a package's file.
fn version(deb: &Path) -> String {
    let name = deb.file_name().unwrap_or_default().to_string_lossy();
    name.split('_').nth(1).unwrap_or("unknown").to_owned()
}

/// FNV-1a: the same sum in every run of every build.
fn sum(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xCBF2_9CE4_8422_2325, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01B3))
}

/// Unpacks the package, then the archive in it; gives the folder of the source.
fn unpack(parts: &Parts, deb: &Path, part: &Path) -> Result<PathBuf, Stop> {
    make_folder(part)?;
    process::must(Command::new("dpkg-deb").arg("-x").arg(deb).arg(part), UNPACK_LIMIT, REMEDY)?;
    let archive = part.join(format!("usr/src/{PACKAGE}.tar.xz"));
    let mut unxz = parts.unxz_to_pipe(&archive)?;
    let mut tar = Command::new("tar");
    tar.args(LEFT_OUT.map(|pattern| format!("--exclude={pattern}")));
    tar.arg("-xC").arg(part);
    if let Some(out) = unxz.child().stdout.take() {
        tar.stdin(Stdio::from(out));
    }
    process::must_with_input(&mut tar, UNPACK_LIMIT, "1.5 GB of space in the cache")?;
    unxz.wait(UNPACK_LIMIT)?;
    Ok(part.join(PACKAGE))
}

/// Configures and builds; gives the image and the release's name.
fn compile(source: &Path) -> Result<(PathBuf, String), Stop> {
    let make = |target: &str, limit| {
        let mut command = Command::new("make");
        let jobs = std::thread::available_parallelism().map_or(2, usize::from);
        command.current_dir(source).arg("-s").arg(format!("-j{jobs}"));
        process::must(command.arg(format!("LOCALVERSION={SUFFIX}")).arg(target), limit, REMEDY)
    };
    make("tinyconfig", CONFIGURE_LIMIT)?;
    let path = source.join(".config");
    let read = || std::fs::read_to_string(&path).map_err(|error| Stop::file(&path, &error));
    write(&path, format!("{}\n{CONFIG}", read()?).as_bytes())?;
    make("olddefconfig", CONFIGURE_LIMIT)?;
    let lost = not_taken(&read()?);
    if !lost.is_empty() {
        let what = format!("this source does not take {} of cdev.config", lost.join(", "));
        return Err(Stop::missing(what, "mend that file"));
    }
    make("bzImage", BUILD_LIMIT)?;
    let release = make("kernelrelease", CONFIGURE_LIMIT)?.trim().to_owned();
    Ok((source.join("arch/x86/boot/bzImage"), release))
}

/// What `cdev.config` asks for and a configuration does not have.
fn not_taken(taken: &str) -> Vec<&'static str> {
    let asked = CONFIG.lines().filter(|line| line.starts_with("CONFIG_"));
    asked.filter(|line| !taken.lines().any(|have| have == *line)).collect()
}

/// Puts the image where the cache is looked up, whole or not at all.
fn keep(part: &Path, folder: &Path, image: &Path, release: &str) -> Result<(), Stop> {
    let fresh = part.join("kernel");
    make_folder(&fresh.join("boot"))?;
    let to = fresh.join("boot").join(format!("vmlinuz-{release}"));
    std::fs::copy(image, &to).map_err(|error| Stop::file(&to, &error))?;
    match std::fs::rename(&fresh, folder) {
        Err(error) if !folder.is_dir() => Err(Stop::file(folder, &error)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_read_out_of_the_files_name() {
        let deb = Path::new("/cache/apt/linux-source-6.12_6.12.117-1_all.deb");
        assert_eq!(version(deb), "6.12.117-1");
    }

    #[test]
    fn another_configuration_has_another_sum() {
        assert_eq!(sum(b""), 0xCBF2_9CE4_8422_2325, "the start of FNV-1a");
        assert_eq!(sum(b"a"), 0xAF63_DC4C_8601_EC8C, "the published sum of `a`");
        assert_ne!(sum(CONFIG.as_bytes()), sum(format!("{CONFIG}\n").as_bytes()));
    }

    #[test]
    fn an_option_that_the_source_dropped_is_told() {
        let without = CONFIG.replace("CONFIG_IOMMUFD=y", "# CONFIG_IOMMUFD is not set");
        assert_eq!(not_taken(&without), ["CONFIG_IOMMUFD=y"]);
        assert!(not_taken(CONFIG).is_empty());
    }
}
