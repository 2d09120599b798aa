//! The requests that VFIO and iommufd take, by number and name.
//!
//! A request is an `ioctl`: a number, and either a plain value or a block of bytes that begins with its own length. The
//! two kinds are told apart here, and how many bytes a block has at least, so that the one place that makes the call
//! (`driver/src/sys/vfio.rs`) can check that the kernel stays inside the block.
//!
//! Numbers of VFIO are `_IO(';', 100 + n)`, those of iommufd `_IO(';', 0x80 + n)`: F-820. The package `vfio-bindings`
//! has the structures and not the numbers, which are macros of C; of iommufd it has nothing.

use vfio_bindings::bindings::vfio;

/// What may be asked of a container, a group, a device or an I/O address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Command {
    /// Container: which version of the interface is this?
    ApiVersion,
    /// Container: is this kind of IOMMU known?
    CheckExtension,
    /// Container: use this kind of IOMMU.
    SetIommu,
    /// Container: page sizes, address ranges, how many mappings are left.
    IommuInfo,
    /// Container: let the device reach memory.
    MapDma,
    /// Container: take memory from the device.
    UnmapDma,
    /// Group: is it viable, has it a container?
    GroupStatus,
    /// Group: join a container.
    SetContainer,
    /// Group: leave the container.
    UnsetContainer,
    /// Group: a descriptor for one of its devices.
    DeviceFd,
    /// Device: what it is, how many regions and interrupts.
    DeviceInfo,
    /// Device: one region.
    RegionInfo,
    /// Device: one kind of interrupts.
    IrqInfo,
    /// Device: connect, disconnect, mask or fire interrupts.
    SetIrqs,
    /// Device: reset the function.
    DeviceReset,
    /// Device: who would be reset with it?
    HotResetInfo,
    /// Device: reset the bus.
    HotReset,
    /// Device by its own node: belong to this iommufd.
    BindIommufd,
    /// Device by its own node: use this address space.
    AttachPt,
    /// Device by its own node: use none.
    DetachPt,
    /// iommufd: destroy an object.
    IommufdDestroy,
    /// iommufd: a new address space.
    IoasAlloc,
    /// iommufd: the address ranges that may be used.
    IoasRanges,
    /// iommufd: let devices reach memory.
    IoasMap,
    /// iommufd: take memory from devices.
    IoasUnmap,
}

/// The letter of both interfaces.
const LETTER: u32 = vfio::VFIO_TYPE as u32;
/// The first number of iommufd (F-820).
const IOMMUFD_BASE: u32 = 0x80;

const fn of_vfio(n: u32) -> u32 {
    LETTER << vfio::_IOC_TYPESHIFT | (vfio::VFIO_BASE + n)
}

const fn of_iommufd(n: u32) -> u32 {
    LETTER << vfio::_IOC_TYPESHIFT | (IOMMUFD_BASE + n)
}

/// How a request's argument looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Argument {
    /// A number.
    Value,
    /// Bytes that begin with how many they are; at least so many.
    Bytes(usize),
    /// An address in this process: these requests have functions of their own.
    Pointer,
}

impl Command {
    /// The number of the request.
    pub const fn number(self) -> u32 {
        match self {
            Self::ApiVersion => of_vfio(0),
            Self::CheckExtension => of_vfio(1),
            Self::SetIommu => of_vfio(2),
            Self::GroupStatus => of_vfio(3),
            Self::SetContainer => of_vfio(4),
            Self::UnsetContainer => of_vfio(5),
            Self::DeviceFd => of_vfio(6),
            Self::DeviceInfo => of_vfio(7),
            Self::RegionInfo => of_vfio(8),
            Self::IrqInfo => of_vfio(9),
            Self::SetIrqs => of_vfio(10),
            Self::DeviceReset => of_vfio(11),
            // Numbers 12 and 13 mean one thing to a device and another to a container.
            Self::HotResetInfo | Self::IommuInfo => of_vfio(12),
            Self::HotReset | Self::MapDma => of_vfio(13),
            Self::UnmapDma => of_vfio(14),
            Self::BindIommufd => of_vfio(18),
            Self::AttachPt => of_vfio(19),
            Self::DetachPt => of_vfio(20),
            Self::IommufdDestroy => of_iommufd(0),
            Self::IoasAlloc => of_iommufd(1),
            Self::IoasRanges => of_iommufd(4),
            Self::IoasMap => of_iommufd(5),
            Self::IoasUnmap => of_iommufd(6),
        }
    }

    /// How its argument looks.
    pub const fn argument(self) -> Argument {
        match self {
            Self::ApiVersion
            | Self::CheckExtension
            | Self::SetIommu
            | Self::UnsetContainer
            | Self::DeviceReset => Argument::Value,
            Self::SetContainer | Self::DeviceFd | Self::MapDma | Self::IoasMap | Self::IoasRanges => {
                Argument::Pointer
            }
            Self::GroupStatus | Self::IommufdDestroy => Argument::Bytes(8),
            Self::DetachPt => Argument::Bytes(8),
            Self::HotResetInfo | Self::HotReset | Self::AttachPt | Self::IoasAlloc => Argument::Bytes(12),
            Self::DeviceInfo | Self::IrqInfo | Self::IommuInfo | Self::BindIommufd => Argument::Bytes(16),
            Self::SetIrqs => Argument::Bytes(20),
            Self::UnmapDma | Self::IoasUnmap => Argument::Bytes(24),
            Self::RegionInfo => Argument::Bytes(32),
        }
    }

    /// Its name in the kernel's headers.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ApiVersion => "VFIO_GET_API_VERSION",
            Self::CheckExtension => "VFIO_CHECK_EXTENSION",
            Self::SetIommu => "VFIO_SET_IOMMU",
            Self::IommuInfo => "VFIO_IOMMU_GET_INFO",
            Self::MapDma => "VFIO_IOMMU_MAP_DMA",
            Self::UnmapDma => "VFIO_IOMMU_UNMAP_DMA",
            Self::GroupStatus => "VFIO_GROUP_GET_STATUS",
            Self::SetContainer => "VFIO_GROUP_SET_CONTAINER",
            Self::UnsetContainer => "VFIO_GROUP_UNSET_CONTAINER",
            Self::DeviceFd => "VFIO_GROUP_GET_DEVICE_FD",
            Self::DeviceInfo => "VFIO_DEVICE_GET_INFO",
            Self::RegionInfo => "VFIO_DEVICE_GET_REGION_INFO",
            Self::IrqInfo => "VFIO_DEVICE_GET_IRQ_INFO",
            Self::SetIrqs => "VFIO_DEVICE_SET_IRQS",
            Self::DeviceReset => "VFIO_DEVICE_RESET",
            Self::HotResetInfo => "VFIO_DEVICE_GET_PCI_HOT_RESET_INFO",
            Self::HotReset => "VFIO_DEVICE_PCI_HOT_RESET",
            Self::BindIommufd => "VFIO_DEVICE_BIND_IOMMUFD",
            Self::AttachPt => "VFIO_DEVICE_ATTACH_IOMMUFD_PT",
            Self::DetachPt => "VFIO_DEVICE_DETACH_IOMMUFD_PT",
            Self::IommufdDestroy => "IOMMU_DESTROY",
            Self::IoasAlloc => "IOMMU_IOAS_ALLOC",
            Self::IoasRanges => "IOMMU_IOAS_IOVA_RANGES",
            Self::IoasMap => "IOMMU_IOAS_MAP",
            Self::IoasUnmap => "IOMMU_IOAS_UNMAP",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers as a C program prints them that includes the kernel's headers (F-820).
    #[test]
    fn numbers_are_those_of_the_headers() {
        let numbers = [
            (Command::ApiVersion, 0x3B64),
            (Command::CheckExtension, 0x3B65),
            (Command::SetIommu, 0x3B66),
            (Command::GroupStatus, 0x3B67),
            (Command::SetContainer, 0x3B68),
            (Command::UnsetContainer, 0x3B69),
            (Command::DeviceFd, 0x3B6A),
            (Command::DeviceInfo, 0x3B6B),
            (Command::RegionInfo, 0x3B6C),
            (Command::IrqInfo, 0x3B6D),
            (Command::SetIrqs, 0x3B6E),
            (Command::DeviceReset, 0x3B6F),
            (Command::IommuInfo, 0x3B70),
            (Command::MapDma, 0x3B71),
            (Command::UnmapDma, 0x3B72),
            (Command::HotResetInfo, 0x3B70),
            (Command::HotReset, 0x3B71),
            (Command::BindIommufd, 0x3B76),
            (Command::AttachPt, 0x3B77),
            (Command::DetachPt, 0x3B78),
            (Command::IommufdDestroy, 0x3B80),
            (Command::IoasAlloc, 0x3B81),
            (Command::IoasRanges, 0x3B84),
            (Command::IoasMap, 0x3B85),
            (Command::IoasUnmap, 0x3B86),
        ];
        for (command, number) in numbers {
            assert_eq!(command.number(), number, "{}", command.name());
        }
    }

    #[test]
    fn least_lengths_are_those_of_the_structures() {
        let sizes = [
            (Command::GroupStatus, size_of::<vfio::vfio_group_status>()),
            (Command::RegionInfo, size_of::<vfio::vfio_region_info>()),
            (Command::IrqInfo, size_of::<vfio::vfio_irq_info>()),
            (Command::SetIrqs, size_of::<vfio::vfio_irq_set>()),
            (Command::BindIommufd, std::mem::offset_of!(vfio::vfio_device_bind_iommufd, token_uuid_ptr)),
            (Command::AttachPt, std::mem::offset_of!(vfio::vfio_device_attach_iommufd_pt, pasid)),
            (Command::UnmapDma, size_of::<vfio::vfio_iommu_type1_dma_unmap>()),
        ];
        for (command, size) in sizes {
            assert_eq!(command.argument(), Argument::Bytes(size), "{}", command.name());
        }
    }
}
