//! `qhca sim qemu`: the command lines with which guests get simulated cards, ready for a shell.

use crate::fail::{Failure, Status};
use crate::ui::Ui;
use qhca_hwtests::qemu::Guest;
use serde::Serialize;
use std::path::{Path, PathBuf};

/// Debian packages that a guest needs for everything that `docs/virtual-hca.md` does in it.
const PACKAGES: [&str; 6] =
    ["rdma-core", "opensm", "infiniband-diags", "ibverbs-utils", "ibverbs-providers", "perftest"];

/// What may be typed after `qhca sim qemu`.
#[derive(Debug, clap::Args)]
pub(crate) struct QemuArgs {
    /// How many guests: one, its card's ports on one cable, or two, port 1 of theirs on one cable
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=2))]
    guests: u8,
    /// Print one command line alone: the server's or a guest's
    #[arg(long, value_name = "WHICH")]
    only: Option<Only>,
    /// The QEMU to call, 10.1 or later
    #[arg(long, value_name = "PATH", default_value = "qemu-system-x86_64")]
    qemu: PathBuf,
    /// The guests' kernel
    #[arg(long, value_name = "FILE", default_value = "vmlinuz")]
    kernel: PathBuf,
    /// The guests' first file system
    #[arg(long, value_name = "FILE", default_value = "initrd")]
    initrd: PathBuf,
    /// More words for the kernel's command line
    #[arg(long, value_name = "WORDS", default_value = "")]
    append: String,
    /// Memory of each guest, MiB
    #[arg(long, value_name = "MIB", default_value_t = 512, value_parser = clap::value_parser!(u32).range(128..=65536))]
    memory_mib: u32,
    /// Put an emulated IOMMU between card and memory
    #[arg(long)]
    iommu: bool,
    /// Folder of the sockets
    #[arg(long, value_name = "FOLDER", default_value = "/tmp")]
    sockets: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Only {
    Server,
    A,
    B,
}

/// Everything that there is to type.
#[derive(Debug, Serialize)]
struct Plan {
    server: Vec<String>,
    guests: Vec<Vec<String>>,
    packages: Vec<&'static str>,
}

/// Runs the command.
pub(super) fn run(args: &QemuArgs, ui: &Ui) -> Result<Status, Failure> {
    let plan = plan(args)?;
    if ui.json {
        ui.json(&plan)?;
        return Ok(Status::Done);
    }
    let text = match args.only {
        None => listing(&plan),
        Some(Only::Server) => shell(&plan.server),
        Some(which) => {
            let guest = plan.guests.get(usize::from(which == Only::B)).ok_or_else(|| {
                Failure::bad_input("--only b: there is one guest").remedy("ask for two with --guests 2")
            })?;
            shell(guest)
        }
    };
    ui.text(&text)?;
    Ok(Status::Done)
}

fn plan(args: &QemuArgs) -> Result<Plan, Failure> {
    let own = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("qhca"));
    let names = &["a", "b"][..usize::from(args.guests)];
    let sockets: Vec<PathBuf> =
        names.iter().map(|name| args.sockets.join(format!("qhca-{name}.sock"))).collect();
    for path in [&args.qemu, &args.kernel, &args.initrd, &args.sockets] {
        // QEMU reads a comma as the end of an option's value, and JSON a quotation mark as that of a string.
        if path.to_string_lossy().contains([',', '"', '\\', '\n']) {
            return Err(Failure::bad_input(format!("{}: QEMU cannot be given such a path", path.display()))
                .remedy("use paths without commas, quotation marks, backslashes and line ends"));
        }
    }
    let mut server = vec![own.display().to_string(), "sim".to_owned(), "serve".to_owned()];
    for socket in &sockets {
        server.extend(["--socket".to_owned(), socket.display().to_string()]);
    }
    server.extend(["--cable", if args.guests == 2 { "a:1=b:1" } else { "loop" }].map(str::to_owned));
    let guests = sockets.iter().map(|socket| guest(args, socket)).collect();
    Ok(Plan { server, guests, packages: PACKAGES.to_vec() })
}

fn guest(args: &QemuArgs, socket: &Path) -> Vec<String> {
    let guest = Guest {
        sockets: vec![socket.to_owned()],
        kernel: args.kernel.clone(),
        initrd: args.initrd.clone(),
        append: args.append.clone(),
        memory_mib: args.memory_mib,
        iommu: args.iommu,
    };
    let mut words = vec![args.qemu.display().to_string()];
    words.extend(guest.arguments());
    words.extend(["-serial", "mon:stdio"].map(str::to_owned));
    words
}

fn listing(plan: &Plan) -> String {
    let mut text = String::from("# The cards. Start this first; it serves until it is ended.\n");
    text.push_str(&shell(&plan.server));
    for (name, guest) in ["a", "b"].iter().zip(&plan.guests) {
        text.push_str(&format!("\n# Guest {name}, in a terminal of its own. Ctrl-a x ends it.\n"));
        text.push_str(&shell(guest));
    }
    text.push_str("\n# In a guest that is a Debian system: Linux 6.16 or older with ib_qib, and\n");
    text.push_str(&format!("apt-get install {}\n", plan.packages.join(" ")));
    text
}

/// A command line for a shell; what a shell would take apart stands in quotation marks.
fn shell(words: &[String]) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,+@%".contains(c);
    let quoted: Vec<String> = words
        .iter()
        .map(|word| match !word.is_empty() && word.chars().all(plain) {
            true => word.clone(),
            false => format!("'{}'", word.replace('\'', r"'\''")),
        })
        .collect();
    format!("{}\n", quoted.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_shell_would_take_apart_is_quoted() {
        let words = ["a", "b c", r#"{"x":1}"#, "it's", ""].map(str::to_owned);
        assert_eq!(shell(&words), "a 'b c' '{\"x\":1}' 'it'\\''s' ''\n");
    }
}
