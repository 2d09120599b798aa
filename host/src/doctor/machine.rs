//! Checks of what is true of the whole machine: IOMMU, interrupts, kernel, modules.

use super::{Check, Finding, Verdict};
use crate::card::{Card, VFIO_PCI};
use crate::modules;
use crate::read::Reader;

/// IOMMUs as the kernel lists them.
const IOMMUS: &str = "/sys/class/iommu";
/// Most bytes of /proc/interrupts and /proc/cpuinfo: a line a vector, a column a processor.
const LONG_BYTES: usize = 16 << 20;

/// Words of the kernel's command line that switch an IOMMU off.
const OFF_WORDS: [&str; 5] = ["intel_iommu=off", "amd_iommu=off", "iommu=off", "iommu=soft", "noiommu"];
/// Words that switch interrupt remapping off.
const NO_REMAPPING_WORDS: [&str; 3] = ["intremap=off", "nointremap", "noapic"];

/// The words of the kernel's command line that are among `words`.
fn on_command_line<'a>(reader: Reader<'_>, words: &[&'a str]) -> Vec<&'a str> {
    let line = reader.text("/proc/cmdline", 64 << 10).unwrap_or_default();
    words.iter().copied().filter(|word| line.split_whitespace().any(|said| said == *word)).collect()
}

/// Whose processor it is, and whether the machine is a virtual one.
struct Processor {
    is_intel: bool,
    is_amd: bool,
    is_virtual: bool,
}

fn processor(reader: Reader<'_>) -> Processor {
    let info = reader.text("/proc/cpuinfo", LONG_BYTES).unwrap_or_default();
    let first: String = info.lines().take_while(|line| !line.is_empty()).collect::<Vec<_>>().join("\n");
    let is_virtual = first.lines().any(|line| {
        line.starts_with("flags") && line.ends_with(" hypervisor") || line.contains(" hypervisor ")
    });
    Processor { is_intel: first.contains("GenuineIntel"), is_amd: first.contains("AuthenticAMD"), is_virtual }
}

/// Whether an IOMMU stands before the card.
pub(super) fn iommu(reader: Reader<'_>, card: &Card) -> Finding {
    let names = reader.names(IOMMUS).unwrap_or_default();
    match &card.group {
        Err(unread) => return Finding::new(Check::Iommu, Verdict::Unknown, unread),
        Ok(Some(group)) if group.is_noiommu => {
            return off(
                reader,
                format!("off: group noiommu-{} is a stand-in, and DMA is not confined", group.number),
            );
        }
        Ok(Some(group)) => {
            let kind = group.kind.as_ref().map_or("kind unknown", |kind| kind);
            let by = if names.is_empty() { String::new() } else { format!(", by {}", names.join(", ")) };
            return Finding::new(
                Check::Iommu,
                Verdict::Ok,
                format!("on: group {} ({kind}){by}", group.number),
            );
        }
        Ok(None) => {}
    }
    match names.is_empty() {
        true => off(reader, "off: the kernel has none, and no groups".to_owned()),
        false => Finding::new(Check::Iommu, Verdict::Bad, format!("{} is on, and the card is in no group of it", names.join(", ")))
            .mend("put the card into a slot of a root port that the IOMMU covers; see `dmesg | grep -e DMAR -e AMD-Vi`"),
    }
}

fn off(reader: Reader<'_>, observed: String) -> Finding {
    let cpu = processor(reader);
    let mut finding = Finding::new(Check::Iommu, Verdict::Bad, observed);
    let words = on_command_line(reader, &OFF_WORDS);
    if !words.is_empty() {
        return finding.mend(format!(
            "take {} off the kernel's command line (/etc/default/grub, then update-grub), and boot anew",
            words.join(" and ")
        ));
    }
    if cpu.is_virtual {
        finding = finding.mend("this is a virtual machine: give it an IOMMU (QEMU: -device intel-iommu,intremap=on,caching-mode=on)");
    }
    let tables = "/sys/firmware/acpi/tables";
    let has_table = ["DMAR", "IVRS", "IORT"].iter().any(|name| reader.exists(&format!("{tables}/{name}")));
    if !has_table && !cpu.is_virtual {
        let name = if cpu.is_amd {
            "AMD-Vi (IOMMU)"
        } else if cpu.is_intel {
            "VT-d"
        } else {
            "the IOMMU"
        };
        finding = finding.mend(format!("the firmware offers none: switch {name} on in its setup"));
    }
    if cpu.is_intel && on_command_line(reader, &["intel_iommu=on"]).is_empty() {
        finding = finding.mend(
            "add intel_iommu=on to the kernel's command line (/etc/default/grub, then update-grub), and boot anew",
        );
    }
    finding.mend("without it, registers and interrupts alone can be had, and no DMA: -d ADDRESS,noiommu (it taints the kernel)")
}

/// Whether a card's interrupts can be kept apart from those of others. The names of the interrupt chips tell.
pub(super) fn remapping(reader: Reader<'_>) -> Finding {
    let finding = |verdict, what: &str| Finding::new(Check::Remapping, verdict, what);
    let table = match reader.text("/proc/interrupts", LONG_BYTES) {
        Ok(table) => table,
        Err(unread) => return Finding::new(Check::Remapping, Verdict::Unknown, unread),
    };
    if table.contains(" IR-") || table.contains("-IR-") {
        return finding(Verdict::Ok, "on");
    }
    if table.contains("ITS-") || table.contains("GICv3") {
        return finding(Verdict::Ok, "on, by the interrupt controller (ITS)");
    }
    if !(table.contains("PCI-MSI") || table.contains("IO-APIC") || table.contains("PCI-MSIX")) {
        return finding(Verdict::Unknown, "/proc/interrupts names no interrupt chip that tells");
    }
    let allowed = ["vfio_iommu_type1", "iommufd"].into_iter().find(|module| {
        let path = format!("/sys/module/{module}/parameters/allow_unsafe_interrupts");
        reader.word(&path).is_ok_and(|word| word == "Y" || word == "1")
    });
    if let Some(module) = allowed {
        return finding(Verdict::Warn, &format!("off, and allowed by {module}.allow_unsafe_interrupts"))
            .mend("know the risk: the card, or who drives it, can fake any interrupt of this machine");
    }
    let could = hardware_could(reader).map(|name| format!(", though {name} could")).unwrap_or_default();
    let mut bad =
        finding(Verdict::Bad, &format!("off{could}: attaching the card to VFIO will fail with EPERM"));
    let words = on_command_line(reader, &NO_REMAPPING_WORDS);
    if !words.is_empty() {
        bad = bad.mend(format!("take {} off the kernel's command line, and boot anew", words.join(" and ")));
    }
    bad.mend("switch interrupt remapping (x2APIC) on in the firmware's setup; in QEMU: intel-iommu,intremap=on").mend(
        "or, at the risk that the card can fake any interrupt: echo 'options vfio_iommu_type1 allow_unsafe_interrupts=1' \
         > /etc/modprobe.d/qhca-interrupts.conf, and load the module anew",
    )
}

/// An Intel IOMMU whose extended capabilities have bit 3: it can remap interrupts (VT-d specification, ECAP_REG.IR).
fn hardware_could(reader: Reader<'_>) -> Option<String> {
    let names = reader.names(IOMMUS).ok()?;
    names.into_iter().find(|name| {
        let word = reader.word(&format!("{IOMMUS}/{name}/intel-iommu/ecap"));
        word.is_ok_and(|word| u64::from_str_radix(&word, 16).is_ok_and(|ecap| ecap & (1 << 3) != 0))
    })
}

/// Whether the kernel has what hands cards to programs.
pub(super) fn module(reader: Reader<'_>) -> Finding {
    let finding = |verdict, what: String| Finding::new(Check::Module, verdict, what);
    if !modules::is_available(reader, VFIO_PCI) {
        return finding(Verdict::Bad, "vfio-pci is neither loaded nor to be found".to_owned())
            .mend("install the modules of the running kernel (in Debian: linux-image-…), or build it with CONFIG_VFIO_PCI=m");
    }
    // Type 1 is what the group's way needs; the card's own node needs iommufd.
    let back_ends: Vec<&str> = ["vfio_iommu_type1", "iommufd"]
        .into_iter()
        .filter(|name| modules::is_available(reader, name))
        .collect();
    if back_ends.is_empty() {
        return finding(Verdict::Bad, "neither vfio_iommu_type1 nor iommufd is to be found".to_owned())
            .mend("modprobe vfio_iommu_type1, or a kernel with CONFIG_VFIO_IOMMU_TYPE1");
    }
    match modules::is_loaded(reader, VFIO_PCI) {
        true => finding(Verdict::Ok, format!("vfio-pci is loaded, with {}", back_ends.join(" and "))),
        false => finding(Verdict::Ok, "vfio-pci can be loaded, and is when a card is bound".to_owned()),
    }
}

/// Who has the card.
pub(super) fn driver(reader: Reader<'_>, card: &Card) -> Finding {
    let finding = |verdict, what: String| Finding::new(Check::Driver, verdict, what);
    let bind = format!("qhca bind {}", card.bdf);
    match &card.driver {
        Err(unread) => Finding::new(Check::Driver, Verdict::Unknown, unread),
        Ok(Some(driver)) if card.is_bound_to_vfio() => finding(Verdict::Ok, format!("{driver} has it")),
        Ok(Some(driver)) if driver == "ib_qib" => finding(
            Verdict::Bad,
            "ib_qib has it: the kernel's own driver, which was removed in Linux 6.17".to_owned(),
        )
        .mend(bind)
        .mend("to use it with ib_qib instead, leave it as it is"),
        Ok(Some(driver)) => finding(Verdict::Bad, format!("{driver} has it")).mend(bind),
        Ok(None) => {
            let gone = match modules::is_available(reader, "ib_qib") {
                true => String::new(),
                false => {
                    "; ib_qib was removed in Linux 6.17, and this program is what replaces it".to_owned()
                }
            };
            let told = match &card.driver_override {
                Ok(Some(name)) if name != VFIO_PCI => format!("; driver_override is {name:?}"),
                _ => String::new(),
            };
            finding(Verdict::Bad, format!("no driver has it{told}{gone}")).mend(bind)
        }
    }
}

/// Secure boot's part (B125): VFIO works under it, other ways to the registers do not.
pub(super) fn lockdown(reader: Reader<'_>, card: &Card) -> Finding {
    let finding = |verdict, what: String| Finding::new(Check::Lockdown, verdict, what);
    let word = match reader.word("/sys/kernel/security/lockdown") {
        Ok(word) => word,
        Err(unread) if unread.is_missing() => return finding(Verdict::Ok, "this kernel has none".to_owned()),
        Err(unread) => return Finding::new(Check::Lockdown, Verdict::Unknown, unread),
    };
    let level = word.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map(|(level, _)| level);
    match level {
        Some("none") => finding(Verdict::Ok, "none".to_owned()),
        Some(level @ ("integrity" | "confidentiality")) => {
            let without_iommu = matches!(&card.group, Ok(Some(group)) if group.is_noiommu);
            match without_iommu {
                true => finding(
                    Verdict::Bad,
                    format!("{level}: a kernel with secure boot gives no card without an IOMMU"),
                )
                .mend("switch the IOMMU on: see iommu"),
                false => finding(
                    Verdict::Note,
                    format!("{level} (secure boot): VFIO works; tools that map /sys/…/resource0 do not"),
                ),
            }
        }
        _ => finding(Verdict::Unknown, format!("/sys/kernel/security/lockdown says {word:?}")),
    }
}
