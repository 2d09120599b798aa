//! Errors: three status words (chip, hardware, each port), each with a mask and a clear register.
//!
//! ```text
//!   HwErrStatus & HwErrMask   --> ErrStatus.HardwareErr --.
//!   ErrStatus   & ErrMask     -----------------------------+--> IntStatus.Err
//!   ErrStatus_p & ErrMask_p   --> IntStatus.Err_p
//! ```
//!
//! Status bits are latched and stay until they are written as one to the clear register. A mask only decides whether a
//! bit interrupts. `HardwareErr` is no latch: it follows the hardware word and its mask (F-320).

use super::wrong::WrongChip;
use super::{Chip, Host, Injection};
use qhca_regs::map::{device, port};
use qhca_regs::status::{ErrBits, HwErrBits, PortErrBits};
use qhca_regs::{Instant, Port};

#[derive(Clone, Copy, Default)]
struct Word {
    status: u64,
    mask: u64,
}

/// See the chapter's head.
pub(super) struct Errors {
    device: Word,
    hardware: Word,
    ports: [Word; 2],
}

impl Errors {
    pub(super) fn new() -> Self {
        Self { device: Word::default(), hardware: Word::default(), ports: [Word::default(); 2] }
    }

    /// `ErrStatus`, with the hardware summary.
    pub(super) fn device_status(&self) -> u64 {
        self.device.status | if self.hardware_level() { ErrBits::HARDWARE_ERR.bits() } else { 0 }
    }

    pub(super) fn hardware_status(&self) -> u64 {
        self.hardware.status
    }

    pub(super) fn port_status(&self, port: Port) -> u64 {
        self.ports[port.index()].status
    }

    /// Whether an unmasked hardware error stands.
    pub(super) fn hardware_level(&self) -> bool {
        self.hardware.status & self.hardware.mask != 0
    }

    pub(super) fn device_level(&self) -> bool {
        self.device_status() & self.device.mask != 0
    }

    pub(super) fn port_level(&self, port: Port) -> bool {
        let word = self.ports[port.index()];
        word.status & word.mask != 0
    }
}

impl Chip {
    /// Latches chip errors.
    pub(super) fn raise_err(&mut self, bits: ErrBits, now: Instant, host: &mut impl Host) {
        self.err.device.status |= bits.bits() & ErrBits::NAMED.bits();
        self.follow_levels(now, host);
    }

    /// Latches errors of `port`.
    pub(super) fn raise_port_err(
        &mut self,
        port: Port,
        bits: PortErrBits,
        now: Instant,
        host: &mut impl Host,
    ) {
        self.err.ports[port.index()].status |= bits.bits() & PortErrBits::NAMED.bits();
        self.follow_levels(now, host);
    }

    pub(super) fn raise_hw_err(&mut self, bits: HwErrBits, now: Instant, host: &mut impl Host) {
        self.err.hardware.status |= bits.bits() & HwErrBits::NAMED.bits();
        self.look_at_freeze();
        self.follow_levels(now, host);
    }

    pub(super) fn inject_error(&mut self, injection: Injection, now: Instant, host: &mut impl Host) {
        match injection {
            Injection::Device(bits) => self.raise_err(bits, now, host),
            Injection::Hardware(bits) => self.raise_hw_err(bits, now, host),
            Injection::Port(port, bits) => self.raise_port_err(port, bits, now, host),
        }
    }

    /// `HwDiagCtrl`: opens and freezes counters, and raises the parity errors that it is told to force (F-321).
    pub(super) fn write_hw_diag(&mut self, control: device::HwDiagCtrl, now: Instant, host: &mut impl Host) {
        self.counters.control(control);
        let mut forced = HwErrBits::empty();
        forced.set(HwErrBits::IBC_BUS_FROM_SPC_PARITY_ERR_0, control.force_ibc_bus_from_spc_parity_err_0());
        forced.set(HwErrBits::IBC_BUS_TO_SPC_PARITY_ERR_1, control.force_ibc_bus_to_spc_parity_err_1());
        forced.set(HwErrBits::IBC_BUS_FROM_SPC_PARITY_ERR_1, control.force_ibc_bus_from_spc_parity_err_1());
        // Four bits, in the places of PCIeBusParity and pcie_phy_txParityErr.
        let bus = HwErrBits::PC_IE_BUS_PARITY | HwErrBits::PCIE_PHY_TX_PARITY_ERR;
        forced |= HwErrBits::from_bits_retain(control.0) & bus;
        if !forced.is_empty() {
            self.raise_hw_err(forced, now, host);
        }
    }

    pub(super) fn write_err_mask(&mut self, now: Instant, host: &mut impl Host) {
        self.err.device.mask = self.store.get(device::ERR_MASK.offset());
        self.follow_levels(now, host);
    }

    pub(super) fn write_hw_err_mask(&mut self, now: Instant, host: &mut impl Host) {
        self.err.hardware.mask = self.store.get(device::HW_ERR_MASK.offset());
        self.look_at_freeze();
        self.follow_levels(now, host);
    }

    pub(super) fn write_port_err_mask(&mut self, port: Port, now: Instant, host: &mut impl Host) {
        self.err.ports[port.index()].mask = self.store.get(port::ERR_MASK.port(port).offset());
        self.follow_levels(now, host);
    }

    pub(super) fn write_err_clear(&mut self, value: u64, now: Instant, host: &mut impl Host) {
        self.err.device.status &= !self.cleared(value);
        self.follow_levels(now, host);
    }

    pub(super) fn write_hw_err_clear(&mut self, value: u64, now: Instant, host: &mut impl Host) {
        self.err.hardware.status &= !self.cleared(value);
        self.follow_levels(now, host);
    }

    pub(super) fn write_port_err_clear(
        &mut self,
        port: Port,
        value: u64,
        now: Instant,
        host: &mut impl Host,
    ) {
        self.err.ports[port.index()].status &= !self.cleared(value);
        self.follow_levels(now, host);
    }

    fn cleared(&self, value: u64) -> u64 {
        if self.config.wrong.has(WrongChip::ErrClearTooWide) && value != 0 { u64::MAX } else { value }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::Bench;
    use super::*;
    use qhca_regs::status::IntBits;

    #[test]
    fn every_defined_bit_of_every_scope_can_be_injected_and_cleared_alone() {
        let mut bench = Bench::new();
        for bit in (0..64).map(|n| 1u64 << n) {
            let hardware_summary = ErrBits::HARDWARE_ERR.bits();
            bench.inject(Injection::Device(ErrBits::from_bits_retain(bit)));
            let named = bit & ErrBits::NAMED.bits();
            assert_eq!(bench.read(device::ERR_STATUS.offset()), named);
            bench.write(device::ERR_CLEAR.offset(), !bit);
            assert_eq!(bench.read(device::ERR_STATUS.offset()), named);
            bench.write(device::ERR_CLEAR.offset(), bit);
            assert_eq!(bench.read(device::ERR_STATUS.offset()) & !hardware_summary, 0);
            bench.inject(Injection::Hardware(HwErrBits::from_bits_retain(bit)));
            assert_eq!(bench.read(device::HW_ERR_STATUS.offset()), bit & HwErrBits::NAMED.bits());
            bench.write(device::HW_ERR_CLEAR.offset(), bit);
            for p in Port::ALL {
                bench.inject(Injection::Port(p, PortErrBits::from_bits_retain(bit)));
                let status = port::ERR_STATUS.port(p).offset();
                assert_eq!(bench.read(status), bit & PortErrBits::NAMED.bits());
                bench.write(port::ERR_CLEAR.port(p).offset(), bit);
                assert_eq!(bench.read(status), 0);
            }
        }
    }

    #[test]
    fn hardware_error_shows_in_the_chip_word_only_while_unmasked() {
        let mut bench = Bench::new();
        bench.inject(Injection::Hardware(HwErrBits::MEMORY_ERR));
        assert_eq!(bench.read(device::ERR_STATUS.offset()), 0);
        bench.write(device::HW_ERR_MASK.offset(), u64::MAX);
        let summary = ErrBits::HARDWARE_ERR.bits();
        assert_eq!(bench.read(device::ERR_STATUS.offset()), summary);
        bench.write(device::ERR_CLEAR.offset(), summary);
        assert_eq!(bench.read(device::ERR_STATUS.offset()), summary, "the cause is still there");
        bench.write(device::HW_ERR_CLEAR.offset(), HwErrBits::MEMORY_ERR.bits());
        assert_eq!(bench.read(device::ERR_STATUS.offset()), 0);
    }

    #[test]
    fn parity_errors_can_be_forced_by_software() {
        let mut bench = Bench::new();
        let forced = device::HwDiagCtrl::default().with_force_pc_ie_bus_parity(0b1010);
        bench.write(device::HW_DIAG_CTRL.offset(), forced.with_force_ibc_bus_to_spc_parity_err_1(true).0);
        let expected = 1 << 32
            | HwErrBits::PCIE_PHY_TX_PARITY_ERR.bits()
            | HwErrBits::IBC_BUS_TO_SPC_PARITY_ERR_1.bits();
        assert_eq!(bench.read(device::HW_ERR_STATUS.offset()), expected);
        bench.write(device::HW_DIAG_CTRL.offset(), 0);
        bench.write(device::HW_ERR_CLEAR.offset(), u64::MAX);
        assert_eq!(bench.read(device::HW_ERR_STATUS.offset()), 0);
    }

    #[test]
    fn mask_reads_back_the_bits_that_exist() {
        let mut bench = Bench::new();
        bench.write(device::ERR_MASK.offset(), u64::MAX);
        assert_eq!(bench.read(device::ERR_MASK.offset()), ErrBits::NAMED.bits());
    }

    #[test]
    fn port_error_raises_its_own_summary() {
        let mut bench = Bench::new();
        bench.write(port::ERR_MASK.port(Port::P1).offset(), u64::MAX);
        bench.inject(Injection::Port(Port::P1, PortErrBits::RCV_ICRC_ERR));
        assert_eq!(bench.read(device::INT_STATUS.offset()), IntBits::ERR_1.bits());
    }
}
