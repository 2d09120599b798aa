//! Freeze: what the chip does when it no longer trusts itself.
//!
//! ```text
//!   HwErrStatus & HwErrMask ≠ 0 --.                               Control.FreezeMode := 0
//!   Control.FreezeMode := 1 ------+--> frozen, FreezeMode reads 1 -----------------------> runs again
//! ```
//!
//! An unmasked hardware error freezes the chip, and so does software by the bit itself (F-420). A frozen chip answers
//! registers, latches errors and interrupts; it sends nothing, receives nothing, and leaves host memory alone, so that
//! the avail image there grows stale while the registers stay right (F-421). It thaws when software clears the bit and
//! no unmasked hardware error stands (F-422).

use super::account::Drop;
use super::wrong::WrongChip;
use super::{Chip, Host};
use qhca_regs::map::{counter, device};
use qhca_regs::{Instant, Port};

impl Chip {
    /// `Control` as it reads: the freeze bit shows the state.
    pub(super) fn read_control(&self) -> u64 {
        let control = device::Control(self.store.get(device::CONTROL.offset()));
        control.with_freeze_mode(self.frozen).0
    }

    /// `Control`: resets, freezes or thaws the chip.
    pub(super) fn write_control(&mut self, value: u64, now: Instant, host: &mut impl Host) {
        let control = device::Control(value);
        if control.sync_reset() {
            return self.start_reset(false, now, host);
        }
        if control.freeze_mode() {
            self.freeze();
        } else if self.frozen && !self.err.hardware_level() {
            self.thaw(now, host);
        }
    }

    /// A hardware error or its mask has changed.
    pub(super) fn look_at_freeze(&mut self) {
        if self.err.hardware_level() {
            self.freeze();
        }
    }

    fn freeze(&mut self) {
        self.frozen = !self.config.wrong.has(WrongChip::FreezeIgnored);
    }

    fn thaw(&mut self, now: Instant, host: &mut impl Host) {
        self.frozen = false;
        for port in Port::ALL {
            self.pump(port, now, host);
        }
        self.turn_engines(now, host);
    }

    /// A packet comes to a frozen chip.
    pub(super) fn drop_frozen(&mut self, port: Port) {
        self.counters.bump_port(counter::RX_DROPPED_PKT_CNT, port, 1);
        self.account.drop(port, Drop::Frozen);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::Bench;
    use super::super::{Injection, Meta};
    use super::*;
    use qhca_regs::Buffer;
    use qhca_regs::layout::Pbc;
    use qhca_regs::map::port;
    use qhca_regs::status::{ErrBits, HwErrBits, IntBits};

    const P: Port = Port::P0;
    const AVAIL: u64 = 0x5000;

    fn control(bench: &mut Bench) -> device::Control {
        device::Control(bench.read(device::CONTROL.offset()))
    }

    fn packet() -> [u32; 9] {
        let [low, high] = Pbc::for_port(P, 8).dwords();
        [low, high, 0x0100_0200, 0x0200_0800, 0x24, 0, 0x0700_0000, 0x11, 0x22]
    }

    fn buffer(index: usize) -> u32 {
        Buffer::new(index).expect("exists").offset()
    }

    /// An ACTIVE port with its avail image in memory, and hardware errors unmasked.
    fn ready() -> Bench {
        let mut bench = Bench::new();
        bench.host.map(AVAIL, 64);
        bench.activate(P);
        bench.write(device::SEND_BUF_AVAIL_ADDR.offset(), AVAIL);
        bench.write(device::SEND_CTRL.offset(), device::SendCtrl::default().with_send_buf_avail_upd(true).0);
        bench.write(device::HW_ERR_MASK.offset(), u64::MAX);
        bench
    }

    #[test]
    fn unmasked_hardware_error_freezes_and_clearing_bit_and_cause_thaws() {
        let mut bench = ready();
        bench.inject(Injection::Hardware(HwErrBits::MEMORY_ERR));
        assert!(control(&mut bench).freeze_mode());
        bench.write(device::CONTROL.offset(), 0);
        assert!(control(&mut bench).freeze_mode(), "the cause still stands");
        bench.write(device::HW_ERR_CLEAR.offset(), u64::MAX);
        assert!(control(&mut bench).freeze_mode(), "only software thaws");
        bench.write(device::CONTROL.offset(), 0);
        assert!(!control(&mut bench).freeze_mode());
    }

    #[test]
    fn masked_hardware_error_freezes_when_its_mask_opens() {
        let mut bench = ready();
        bench.write(device::HW_ERR_MASK.offset(), !HwErrBits::LA_TRIGGERED.bits());
        bench.inject(Injection::Hardware(HwErrBits::LA_TRIGGERED));
        assert!(!control(&mut bench).freeze_mode());
        bench.write(device::HW_ERR_MASK.offset(), u64::MAX);
        assert!(control(&mut bench).freeze_mode());
    }

    #[test]
    fn frozen_chip_sends_nothing_and_leaves_the_image_in_memory_alone() {
        let mut bench = ready();
        bench.host.writes.clear();
        let none = super::super::FlowUpdate::default();
        bench.chip.take_flow_update(P, none, bench.now, &mut bench.host);
        bench.burst(buffer(0), &packet());
        bench.write(device::CONTROL.offset(), device::Control::default().with_freeze_mode(true).0);
        let some = super::super::FlowUpdate { limit: [9; 8], ..none };
        bench.chip.take_flow_update(P, some, bench.now, &mut bench.host);
        assert!(bench.chip.take_outgoing(P).is_none() && bench.host.writes.is_empty());
        bench.write(device::CONTROL.offset(), 0);
        assert!(bench.chip.take_outgoing(P).is_some() && !bench.host.writes.is_empty());
    }

    #[test]
    fn frozen_chip_takes_writes_to_send_buffers_as_launch_errors() {
        let mut bench = ready();
        bench.write(device::CONTROL.offset(), device::Control::default().with_freeze_mode(true).0);
        bench.burst(buffer(7), &packet());
        assert_eq!(bench.read(device::ERR_STATUS.offset()), ErrBits::SEND_ARM_LAUNCH_ERR.bits());
        assert_eq!(bench.read(device::SEND_BUF_ERR.index(0).offset()), 1 << 7);
    }

    #[test]
    fn frozen_chip_drops_what_arrives_and_still_interrupts() {
        let mut bench = ready();
        bench.write(device::INT_MASK.offset(), u64::MAX);
        bench.write(device::ERR_MASK.offset(), u64::MAX);
        bench.write(device::INT_CLEAR.offset(), u64::MAX);
        bench.host.messages();
        bench.inject(Injection::Hardware(HwErrBits::PCIE_CPL_TIMEOUT));
        assert_eq!(bench.host.messages(), [0]);
        assert_eq!(bench.read(device::INT_STATUS.offset()), IntBits::ERR.bits());
        bench.deliver(P, &[0; 32], Meta::GOOD);
        assert_eq!(bench.chip.account().dropped(P, Drop::Frozen), 1);
        assert_eq!(bench.read(counter::RX_DROPPED_PKT_CNT.port(P).offset()), 1);
        assert_eq!(bench.read(port::ERR_STATUS.port(P).offset()) & 0x1FFFF, 0, "no receive error");
    }
}
