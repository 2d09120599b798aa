//! The QEMU command line of a guest with a simulated card: one place for the guest suite and for `qhca sim qemu`.
//!
//! QEMU 10.1 or later knows `vfio-user-pci`. A card stands behind a root port, because `ib_qib` looks at the bridge
//! above it. The guest's memory is a memfd, because only then can the server of the card reach it without a message for
//! every few kilobytes. With an IOMMU, `caching-mode=on` is what makes QEMU tell the server of mappings at all.

use std::path::PathBuf;

/// A guest with simulated cards.
#[derive(Clone, Debug)]
pub struct Guest {
    /// The sockets on which its cards are served. Card n is in slot n + 1.
    pub sockets: Vec<PathBuf>,
    /// The kernel's image.
    pub kernel: PathBuf,
    /// The first file system.
    pub initrd: PathBuf,
    /// More words of the kernel's command line.
    pub append: String,
    /// Memory, MiB.
    pub memory_mib: u32,
    /// Whether DMA goes through an emulated Intel IOMMU.
    pub iommu: bool,
}

impl Guest {
    /// The arguments of `qemu-system-x86_64`, all but those of its serial ports.
    pub fn arguments(&self) -> Vec<String> {
        let memory = self.memory_mib;
        let mut append = "console=ttyS0 panic=-1 quiet mitigations=off audit=0".to_owned();
        if self.iommu {
            // A guest that is kept waiting takes its timer for one that does not work behind the IOMMU, and panics.
            append.push_str(" intel_iommu=on no_timer_check");
        }
        if !self.append.is_empty() {
            append.push(' ');
            append.push_str(&self.append);
        }
        let mut arguments: Vec<String> = [
            "-nodefaults",
            "-no-user-config",
            "-display",
            "none",
            "-no-reboot",
            "-accel",
            "tcg",
            "-smp",
            "1",
            "-M",
            "q35,kernel-irqchip=split,memory-backend=mem0",
            "-m",
        ]
        .map(str::to_owned)
        .to_vec();
        arguments.push(format!("{memory}M"));
        arguments.push("-object".to_owned());
        arguments.push(format!("memory-backend-memfd,id=mem0,size={memory}M,share=on"));
        if self.iommu {
            arguments.extend(["-device", "intel-iommu,intremap=on,caching-mode=on"].map(str::to_owned));
        }
        for (n, socket) in self.sockets.iter().enumerate() {
            arguments.extend(card(n, &socket.display().to_string()));
        }
        arguments.push("-kernel".to_owned());
        arguments.push(self.kernel.display().to_string());
        arguments.push("-initrd".to_owned());
        arguments.push(self.initrd.display().to_string());
        arguments.push("-append".to_owned());
        arguments.push(append);
        arguments
    }
}

/// A card behind a root port of its own.
fn card(n: usize, socket: &str) -> [String; 4] {
    let slot = n + 1;
    let device = format!(
        r#"{{"driver":"vfio-user-pci","bus":"rp{slot}","socket":{{"path":"{socket}","type":"unix"}}}}"#
    );
    let port = format!("pcie-root-port,id=rp{slot},chassis={slot},slot={slot}");
    ["-device".to_owned(), port, "-device".to_owned(), device]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guest(iommu: bool) -> Vec<String> {
        let path = PathBuf::from;
        let append = String::new();
        let sockets = vec![path("/s"), path("/t")];
        Guest { sockets, kernel: path("/k"), initrd: path("/i"), append, memory_mib: 512, iommu }.arguments()
    }

    #[test]
    fn memory_is_shared_and_an_iommu_tells_of_its_mappings() {
        for iommu in [false, true] {
            let arguments = guest(iommu);
            assert!(arguments.contains(&"memory-backend-memfd,id=mem0,size=512M,share=on".to_owned()));
            let caching = arguments.iter().any(|word| word.contains("caching-mode=on"));
            let kernel_told = arguments.iter().any(|word| word.contains("intel_iommu=on"));
            assert_eq!((caching, kernel_told), (iommu, iommu));
        }
    }

    #[test]
    fn each_card_has_a_root_port_of_its_own() {
        let text = guest(false).join(" ");
        for part in [r#""bus":"rp1""#, r#""bus":"rp2""#, "id=rp2,chassis=2,slot=2"] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }

    #[test]
    fn the_iommu_comes_before_the_devices_that_it_serves() {
        let arguments = guest(true);
        let at = |needle: &str| arguments.iter().position(|word| word.contains(needle));
        assert!(at("intel-iommu") < at("pcie-root-port") && at("pcie-root-port") < at("vfio-user-pci"));
    }
}
