//! `HwErrStatus`: errors of the chip's own hardware and of its bus.
//!
//! Parity in memories and paths, clocks, the PCI Express side, the temperature sensor. An unmasked one
//! may freeze the chip; once a running device is frozen, anything but `LATriggered` is fatal (F-708). The
//! stock driver prints the names without the port; they keep it here. The row for bit 34 is ours: the bit
//! is in the register's layout, and the stock driver's table lacks it (F-709).

use crate::{Groups, Severity, Text};

crate::table! {
    /// Errors of the chip's hardware, in decoder order (F-701), with bit 34 at its place (F-709).
    pub static HARDWARE: "HwErrStatus", Register;
    IBSerdesPClkNotDetect_1 @ 63 => Text {
        groups: Groups::CHIP.and(Groups::LINK),
        severity: Severity::Warning,
        meaning: "port 1 has no clock from its serializer",
        cause: "the port's PLL is off or does not lock; normal on a port that is not used",
        action: "leave it masked unless port 1 should be up; then reset its serializer",
        source: "F-701, F-713",
    };
    IBSerdesPClkNotDetect_0 @ 62 => Text {
        groups: Groups::CHIP.and(Groups::LINK),
        severity: Severity::Warning,
        meaning: "port 0 has no clock from its serializer",
        cause: "the port's PLL is off or does not lock; normal on a port that is not used",
        action: "leave it masked unless port 0 should be up; then reset its serializer",
        source: "F-701, F-713",
    };
    PCIESerdesPClkNotDetect @ 55 => Text {
        groups: Groups::CHIP.and(Groups::BUS),
        severity: Severity::Fatal,
        meaning: "the PCI Express serializer has no clock",
        cause: "the slot's reference clock failed or the link went down",
        action: "in freeze the device is lost for good: report it, stop all traffic, reset the card; check slot and riser",
        source: "F-701, F-708",
    };
    PowerOnBISTFailed @ 54 => Text {
        groups: Groups::CHIP,
        severity: Severity::Fatal,
        meaning: "the self test at power-on failed",
        cause: "a defect in one of the chip's memories",
        action: "do not use the device; never clear this bit, mask it; replace the card",
        source: "F-701, F-708",
    };
    TempsenseTholdReached @ 53 => Text {
        groups: Groups::BOARD,
        severity: Severity::Fatal,
        meaning: "the temperature sensor passed its threshold",
        cause: "no air flow, a hot neighbour, a fan that stopped",
        action: "cool the card before the next reset; in freeze the device is lost for good: report it, stop all traffic, reset the card",
        source: "F-701, F-708",
    };
    MemoryErr @ 48 => Text {
        groups: Groups::CHIP,
        severity: Severity::Fatal,
        meaning: "an internal memory gave an error that cannot be corrected",
        cause: "radiation, voltage or a failing chip",
        action: "in freeze the device is lost for good: report it, stop all traffic, reset the card; replace the card if it comes back",
        source: "F-701, F-708",
    };
    pcie_phy_txParityErr @ 34 => Text {
        groups: Groups::CHIP.and(Groups::BUS),
        severity: Severity::Fatal,
        meaning: "parity error on the transmit side of the PCI Express layer",
        cause: "radiation, voltage or a failing chip",
        action: "in freeze the device is lost for good: report it, stop all traffic, reset the card; replace the card if it comes back",
        source: "F-701, F-709",
    };
    PCIeBusParityErr @ 33:31 => Text {
        groups: Groups::CHIP.and(Groups::BUS),
        severity: Severity::Fatal,
        meaning: "parity error on a bus between PCI Express and the core",
        cause: "radiation, voltage or a failing chip",
        action: "in freeze the device is lost for good: report it, stop all traffic, reset the card; replace the card if it comes back",
        source: "F-701, F-708",
    };
    PcieCplTimeout @ 30 => Text {
        groups: Groups::BUS,
        severity: Severity::Fatal,
        meaning: "a read of host memory got no completion in time",
        cause: "a wrong address mapped for DMA, an IOMMU fault, or a root port in trouble",
        action: "look for IOMMU and AER messages of the host; in freeze the device is lost for good: report it, stop all traffic, reset the card",
        source: "F-701, F-708",
    };
    PciePoisonedTLP @ 29 => Text {
        groups: Groups::BUS,
        severity: Severity::Fatal,
        meaning: "the host answered with data that it marks as bad",
        cause: "an uncorrectable memory error in the host",
        action: "look for machine checks of the host; in freeze the device is lost for good: report it, stop all traffic, reset the card",
        source: "F-701, F-708",
    };
    SDmaMemReadErr_1 @ 28 => Text {
        groups: Groups::CHIP.and(Groups::SDMA),
        severity: Severity::Fatal,
        meaning: "port 1's send-DMA engine read bad data from its memory",
        cause: "radiation, voltage or a failing chip",
        action: "save the engine's registers; mask it if port 1 is absent; in freeze the device is lost for good: report it, stop all traffic, reset the card",
        source: "F-701, F-713",
    };
    SDmaMemReadErr_0 @ 27 => Text {
        groups: Groups::CHIP.and(Groups::SDMA),
        severity: Severity::Fatal,
        meaning: "port 0's send-DMA engine read bad data from its memory",
        cause: "radiation, voltage or a failing chip",
        action: "save the engine's registers; mask it if port 0 is absent; in freeze the device is lost for good: report it, stop all traffic, reset the card",
        source: "F-701, F-713",
    };
    IBCBusFromSPCParityErr_1 @ 15 => Text {
        groups: Groups::CHIP.and(Groups::LINK),
        severity: Severity::Fatal,
        meaning: "parity error from the packet core to port 1's link controller",
        cause: "radiation, voltage or a failing chip",
        action: "in freeze the device is lost for good: report it, stop all traffic, reset the card",
        source: "F-701, F-708",
    };
    IBCBusToSPCParityErr_1 @ 14 => Text {
        groups: Groups::CHIP.and(Groups::LINK),
        severity: Severity::Fatal,
        meaning: "parity error from port 1's link controller to the packet core",
        cause: "radiation, voltage or a failing chip",
        action: "in freeze the device is lost for good: report it, stop all traffic, reset the card",
        source: "F-701, F-708",
    };
    IBCBusFromSPCParityErr_0 @ 13 => Text {
        groups: Groups::CHIP.and(Groups::LINK),
        severity: Severity::Fatal,
        meaning: "parity error from the packet core to port 0's link controller",
        cause: "radiation, voltage or a failing chip",
        action: "in freeze the device is lost for good: report it, stop all traffic, reset the card",
        source: "F-701, F-708",
    };
    statusValidNoEop @ 12 => Text {
        groups: Groups::CHIP.and(Groups::LINK),
        severity: Severity::Error,
        meaning: "a packet's status arrived without its end",
        cause: "left over from a reset of the port's coding layer",
        action: "mask and clear it around such a reset; otherwise as any hardware error",
        source: "F-701, F-713",
    };
    LATriggered @ 11 => Text {
        groups: Groups::CHIP,
        severity: Severity::Info,
        meaning: "the built-in logic analyser has triggered",
        cause: "somebody armed it",
        action: "nothing: the only one that is never fatal",
        source: "F-701, F-708, F-713",
    };
}
