//! What may be typed. Each command's own arguments stand in its file under `cmd/`.

use crate::cmd;
use clap::{Parser, Subcommand};

const EXIT_CODES: &str = "\
Exit codes:
  0  everything asked for was done
  1  a check that the command made failed
  2  an argument, option, word or file was refused
  3  something needed is not on this machine
  4  the device stopped answering, or answered what it must not
  5  the result could not be written

Results go to stdout, everything said about them to stderr. Devices: `sim` (the default) is a simulated QLE7342;
`sim:qle7340` has one port; `vfio-user:PATH` is a device that another process serves; `vfio:0000:04:00.0` is a card of
this machine that is bound to vfio-pci. Settings may follow its address, each after a comma: `cdev` or `group` (by which
nodes), `msix`, `msi` or `intx`, `vectors=N`, and `noiommu` (registers and interrupts without an IOMMU; no DMA; taints
the kernel). `up:NAME` is what `qhca up` holds.";

/// The driver and chip model of the QLogic 7322 InfiniBand HCA, from the command line.
#[derive(Debug, Parser)]
#[command(name = "qhca", version, after_help = EXIT_CODES, max_term_width = 120)]
pub(crate) struct Args {
    /// Options of every command.
    #[command(flatten)]
    pub(crate) global: Global,
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Options that every command has.
#[derive(Debug, clap::Args)]
pub(crate) struct Global {
    /// Print the result as JSON, alone on stdout (docs/json.md)
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Say nothing on stderr but warnings and errors
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub(crate) quiet: bool,
    /// Say more on stderr; twice for more still
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
}

/// The device a command works on.
#[derive(Debug, clap::Args)]
pub(crate) struct DeviceArg {
    /// Device: `sim`, `sim:qle7340`, `sim:qle7342`, `vfio-user:PATH`, `vfio:ADDRESS`, or `up:NAME` for one that `qhca up` holds
    #[arg(short, long, value_name = "DEV", default_value = "sim")]
    pub(crate) device: String,
    /// Send the interrupt vectors of a card of this machine to these CPUs in turn, such as 2 or 2-5,9
    #[arg(long, value_name = "CPUS", value_parser = parse_cpus)]
    pub(crate) pin_irqs: Option<Cpus>,
    /// Reset the chip by its own register too, once it is up; it drops off the bus meanwhile
    #[arg(long)]
    pub(crate) chip_reset: bool,
}

impl DeviceArg {
    /// A device by its name alone.
    pub(crate) fn named(device: &str) -> Self {
        Self { device: device.to_owned(), pin_irqs: None, chip_reset: false }
    }
}

/// CPUs by number, in the order in which they were given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cpus(pub(crate) Vec<usize>);

/// Reads a list such as `2-5,9`.
fn parse_cpus(text: &str) -> Result<Cpus, String> {
    /// No machine has more, and a typing error should not make a list of a million.
    const CPUS_MAX: usize = 8192;
    let wrong =
        || format!("{text:?} is no list of CPUs below {CPUS_MAX}: valid are lists such as 2 or 2-5,9");
    let number = |word: &str| word.parse::<usize>().ok().filter(|cpu| *cpu < CPUS_MAX).ok_or_else(wrong);
    let mut cpus = Vec::new();
    for part in text.split(',') {
        match part.split_once('-') {
            Some((first, last)) => {
                let (first, last) = (number(first)?, number(last)?);
                if first > last || cpus.len() > CPUS_MAX {
                    return Err(wrong());
                }
                cpus.extend(first..=last);
            }
            None => cpus.push(number(part)?),
        }
    }
    Ok(Cpus(cpus))
}

/// One variant a command.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List the cards of this machine, their drivers and IOMMU groups
    List(cmd::list::Args),
    /// Give a card to vfio-pci, so that this program can have it
    Bind(cmd::bind::Args),
    /// Give a card back to the kernel
    Unbind(cmd::bind::UnbindArgs),
    /// Look for what keeps a card from being used, and say what mends it
    Doctor(cmd::doctor::Args),
    /// Put all that these commands say into one archive, to go with a report of a fault
    Report(cmd::report::Args),
    /// Bring a device up and hold it until the program is ended; others look at it meanwhile
    Up(cmd::up::Args),
    /// Show what has happened to a device that `qhca up` holds
    Events(cmd::events::Args),
    /// Explain error words, also out of pasted log lines
    Decode(cmd::decode::Args),
    /// Show the device as ibstat does
    Info(cmd::info::Args),
    /// Show registers with their fields decoded
    Regs(cmd::regs::Args),
    /// Show the counters of device and ports
    Counters(cmd::counters::Args),
    /// Show a port's link and what to do about it, or ask something of it
    Port(cmd::port::Args),
    /// List the options of ib_qib with their effect here, or check a modprobe.d file
    Options(cmd::options::Args),
    /// Serve simulated HCAs to other programs
    Sim(cmd::sim::Args),
    /// Run the scenarios that any card must pass
    Selftest(cmd::selftest::Args),
    /// Show what each error policy does to a receiver whose buffers overflow, in virtual time
    Storm(cmd::storm::Args),
    /// Run the laboratory's experiments: published mechanisms and ours, in virtual time
    Lab(cmd::lab::Args),
    /// RDMA writes: bandwidth, as ib_write_bw shows it; between two simulated HCAs if no host is given
    WriteBw(cmd::perf::Args),
    /// RDMA reads: bandwidth
    ReadBw(cmd::perf::Args),
    /// Sends: bandwidth
    SendBw(cmd::perf::Args),
    /// Atomics: rate
    AtomicBw(cmd::perf::Args),
    /// RDMA writes: latency, as ib_write_lat shows it
    WriteLat(cmd::perf::Args),
    /// RDMA reads: latency
    ReadLat(cmd::perf::Args),
    /// Sends: latency
    SendLat(cmd::perf::Args),
    /// Atomics: latency
    AtomicLat(cmd::perf::Args),
    /// Requests and acknowledges on many connections at once, as rds-stress shows them
    Stress(cmd::stress::Args),
    /// Show a port's counters, as perfquery does
    Perfquery(cmd::fabric::perfquery::Args),
    /// Show what a port's subnet agent says, as smpquery does
    Smpquery(cmd::fabric::smpquery::Args),
    /// Ask a port whether its management answers, and how fast
    Ping(cmd::fabric::ping::Args),
    /// Exchange messages on a reliable connection, with this program or ibv_rc_pingpong
    RcPingpong(cmd::pingpong::Args),
    /// The same on an unreliable connection
    UcPingpong(cmd::pingpong::Args),
    /// The same with datagrams
    UdPingpong(cmd::pingpong::Args),
    /// Print a completion script for a shell
    Completions(cmd::completions::Args),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus_are_read_and_others_are_refused() {
        for (text, cpus) in
            [("2", vec![2]), ("2-5,9", vec![2, 3, 4, 5, 9]), ("7,0", vec![7, 0]), ("3-3", vec![3])]
        {
            assert_eq!(parse_cpus(text), Ok(Cpus(cpus)), "{text}");
        }
        for text in ["", ",", "2,", "5-2", "-", "2-", "x", "8192", "0-99999999999999999999", "1--2"] {
            assert!(parse_cpus(text).is_err_and(|error| error.contains("2-5,9")), "{text}");
        }
    }
}
