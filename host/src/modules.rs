//! Kernel modules and drivers: loaded, on disk, built in, or not to be had.

use crate::card::DRIVERS;
use crate::read::Reader;

/// Most bytes of a list of modules.
const LIST_BYTES: usize = 8 << 20;

/// The running kernel's release, such as `6.1.0-49-amd64`.
pub fn kernel_release(reader: Reader<'_>) -> Option<String> {
    reader.word("/proc/sys/kernel/osrelease").ok()
}

/// Whether a module or driver of this name is there already.
pub fn is_loaded(reader: Reader<'_>, name: &str) -> bool {
    let module = name.replace('-', "_");
    reader.is_folder(&format!("/sys/module/{module}")) || reader.is_folder(&format!("{DRIVERS}/{name}"))
}

/// Whether `modprobe` would find it, or it is there already.
pub fn is_available(reader: Reader<'_>, name: &str) -> bool {
    is_loaded(reader, name) || is_on_disk(reader, name)
}

fn is_on_disk(reader: Reader<'_>, name: &str) -> bool {
    let Some(release) = kernel_release(reader) else { return false };
    let file = format!("/{name}.ko");
    let listed = |list: &str| {
        let text = reader.text(&format!("/lib/modules/{release}/{list}"), LIST_BYTES).unwrap_or_default();
        text.lines().any(|line| line.split(':').next().is_some_and(|path| path.contains(&file)))
    };
    listed("modules.dep") || listed("modules.builtin")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::FakeHost;

    #[test]
    fn module_is_found_loaded_on_disk_or_built_in() {
        let mut host = FakeHost::empty();
        host.file("/proc/sys/kernel/osrelease", "6.18.1\n");
        host.file(
            "/lib/modules/6.18.1/modules.dep",
            "kernel/drivers/vfio/pci/vfio-pci.ko.xz: kernel/drivers/vfio/vfio.ko.xz\n",
        );
        host.file("/lib/modules/6.18.1/modules.builtin", "kernel/drivers/iommu/iommufd/iommufd.ko\n");
        host.folder("/sys/module/vfio_iommu_type1");
        let reader = Reader::new(&host);
        assert!(is_available(reader, "vfio-pci") && !is_loaded(reader, "vfio-pci"));
        assert!(is_available(reader, "iommufd"));
        assert!(is_loaded(reader, "vfio-iommu-type1"));
        assert!(!is_available(reader, "ib_qib") && !is_available(reader, "vfio"));
    }
}
