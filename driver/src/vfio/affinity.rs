//! Which CPU hears a vector, and how to change that.
//!
//! The kernel lists its interrupts in `/proc/interrupts`, ours among them under the names that VFIO gives:
//! `vfio-msix[3](0000:04:00.0)`. Where each goes stands in `/proc/irq/N/effective_affinity_list`, and may be changed by
//! whoever may write `/proc/irq/N/smp_affinity_list`. A balancer that runs on the machine may change it again.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use super::address::PciAddress;
use super::kernel::{Calls, Kernel};

/// One vector, and where it goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VectorPlace {
    /// The vector.
    pub vector: usize,
    /// The kernel's number of the interrupt.
    pub irq: u32,
    /// The CPUs that hear it, as the kernel lists them; empty if it does not tell.
    pub cpus: String,
    /// The memory node of the first of them.
    pub node: Option<u32>,
}

impl fmt::Display for VectorPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { vector, irq, cpus, node } = self;
        let cpus = if cpus.is_empty() { "unknown" } else { cpus };
        write!(f, "vector {vector}: interrupt {irq}, CPU {cpus}")?;
        match node {
            Some(node) => write!(f, ", node {node}"),
            None => Ok(()),
        }
    }
}

/// Why a vector does not go to the CPU that was named.
#[derive(Debug)]
pub struct PinError {
    /// The file that cannot be written.
    pub path: PathBuf,
    /// The CPU.
    pub cpu: usize,
    /// What the system said.
    pub source: io::Error,
}

impl fmt::Display for PinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (path, cpu) = (self.path.display(), self.cpu);
        write!(
            f,
            "{path} does not take CPU {cpu}: {}; only root may write it, and the CPU must be online",
            self.source
        )
    }
}

impl std::error::Error for PinError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

/// The vectors of the card in the kernel's list: vector and interrupt, by vector.
fn vectors_in(interrupts: &str, address: PciAddress) -> Vec<(usize, u32)> {
    let ours = format!("({address})");
    let entry = |line: &str| {
        let name = line.split_whitespace().find(|word| word.starts_with("vfio-") && word.ends_with(&ours))?;
        let irq = line.split_once(':')?.0.trim().parse().ok()?;
        let vector = name.split_once('[').and_then(|(_, rest)| rest.split_once(']')?.0.parse().ok());
        Some((vector.unwrap_or(0), irq))
    };
    let mut found: Vec<(usize, u32)> = interrupts.lines().filter_map(entry).collect();
    found.sort_unstable();
    found
}

fn irq_file(irq: u32, name: &str) -> PathBuf {
    Path::new("/proc/irq").join(irq.to_string()).join(name)
}

/// Where the card's vectors go.
pub(super) fn places<K: Kernel>(calls: &Calls<K>, address: PciAddress) -> Vec<VectorPlace> {
    /// A list of a machine with thousands of interrupts and hundreds of CPUs.
    const LIST_BYTES: usize = 16 << 20;
    let list = calls.read_file(Path::new("/proc/interrupts"), LIST_BYTES).unwrap_or_default();
    let place = |(vector, irq)| {
        let read = |name| calls.read_text(&irq_file(irq, name)).ok().filter(|text| !text.is_empty());
        let cpus = read("effective_affinity_list").or_else(|| read("smp_affinity_list")).unwrap_or_default();
        let node = first_cpu(&cpus).and_then(|cpu| node_of(calls, cpu));
        VectorPlace { vector, irq, cpus, node }
    };
    vectors_in(&String::from_utf8_lossy(&list), address).into_iter().map(place).collect()
}

/// The first CPU of a list such as `3,8-11`.
fn first_cpu(list: &str) -> Option<usize> {
    list.split([',', '-']).next()?.trim().parse().ok()
}

fn node_of<K: Kernel>(calls: &Calls<K>, cpu: usize) -> Option<u32> {
    let folder = Path::new("/sys/devices/system/cpu").join(format!("cpu{cpu}"));
    let names = calls.list(&folder).ok()?;
    names.iter().find_map(|name| name.to_str()?.strip_prefix("node")?.parse().ok())
}

/// Sends vector after vector to the CPUs `cpus` in turn.
pub(super) fn pin<K: Kernel>(calls: &Calls<K>, address: PciAddress, cpus: &[usize]) -> Result<(), PinError> {
    for (place, cpu) in places(calls, address).iter().zip(cpus.iter().cycle()) {
        let path = irq_file(place.irq, "smp_affinity_list");
        let written = calls.write_file(&path, cpu.to_string().as_bytes());
        written.map_err(|source| PinError { path, cpu: *cpu, source })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LIST: &str = "            CPU0       CPU1
   0:         44          0   IO-APIC    2-edge      timer
  29:          7          0  IR-PCI-MSIX-0000:04:00.0  10-edge      vfio-msix[10](0000:04:00.0)
  28:          0          9  IR-PCI-MSIX-0000:04:00.0    2-edge      vfio-msix[2](0000:04:00.0)
  30:          0          9  IR-PCI-MSIX-0000:05:00.0    0-edge      vfio-msix[0](0000:05:00.0)
 NMI:          0          0   Non-maskable interrupts
";

    #[test]
    fn vectors_of_this_card_are_found_among_others() {
        let address: PciAddress = "04:00.0".parse().expect("an address");
        assert_eq!(vectors_in(LIST, address), [(2, 28), (10, 29)]);
        let line = " 16:  0  0  IO-APIC  16-fasteoi   vfio-intx(0000:04:00.0)";
        assert_eq!(vectors_in(line, address), [(0, 16)]);
        assert_eq!(first_cpu("3,8-11"), Some(3));
        assert_eq!(first_cpu("8-11"), Some(8));
        assert_eq!(first_cpu(""), None);
    }

    proptest! {
        #[test]
        fn any_list_is_read(text in ".{0,200}") {
            let address: PciAddress = "04:00.0".parse().expect("an address");
            prop_assert!(vectors_in(&text, address).len() <= text.lines().count());
        }
    }
}
