//! The part of the story about the chip as a whole: samples, a missed heartbeat, the special trigger, a tail in memory,
//! a freeze, and at last a reset.

use super::*;
use qhca_regs::status::HwErrBits;

const TAIL: u64 = 0x9000;

impl Story {
    pub(super) fn states(&mut self) {
        self.tail_in_memory();
        self.sampling();
        self.special_trigger();
        self.freezing();
        self.missed_heartbeat();
        self.resetting();
    }

    fn tail_in_memory(&mut self) {
        self.bench.host.map(TAIL, 8);
        self.bench.write(device::RCV_HDR_TAIL_ADDR.index(0).offset(), TAIL);
        let control = device::RcvCtrl::default().with_tail_upd(true);
        self.bench.write(device::RCV_CTRL.offset(), control.0);
        self.head(0, 0);
        self.deliver(0, 0xFFFF, Meta::GOOD);
        let tail = self.bench.host.qword(TAIL);
        self.told.0.push(tail);
    }

    fn sampling(&mut self) {
        self.bench.write(port::PS_INTERVAL.port(P).offset(), 1000);
        self.bench.write(port::PS_START.port(P).offset(), 0);
        self.send(10, P, 0..9);
        self.read(counter::PS_XMIT_PKTS_COUNT.port(P).offset());
        self.outgoing();
    }

    fn special_trigger(&mut self) {
        let control = device::SendCtrl::default().with_special_trigger_en(true);
        self.bench.write(device::SEND_CTRL.offset(), control.0);
        self.send(11, P, 0..9);
        self.read(counter::TX_DATA_PKT_CNT.port(P).offset());
        let offset = Buffer::new(11).expect("exists").offset();
        self.bench.burst(offset + 4 * 1023, &[0xAEBE_CEDE]);
        self.outgoing();
        self.bench.write(device::SEND_CTRL.offset(), 0);
    }

    fn freezing(&mut self) {
        self.bench.write(device::HW_ERR_MASK.offset(), u64::MAX);
        self.bench.inject(Injection::Hardware(HwErrBits::PCIE_CPL_TIMEOUT));
        self.read(device::CONTROL.offset());
        self.bench.write(device::HW_ERR_CLEAR.offset(), u64::MAX);
        self.bench.write(device::CONTROL.offset(), 0);
        self.read(device::CONTROL.offset());
    }

    fn missed_heartbeat(&mut self) {
        self.bench.chip.set_far_end(P, FarEnd { answers: false, ..FarEnd::default() }, self.bench.now);
        self.bench.settle();
        self.read(port::IBC_STATUS_B.port(P).offset());
    }

    fn resetting(&mut self) {
        self.bench.write(device::CONTROL.offset(), device::Control::default().with_sync_reset(true).0);
        self.read(device::REVISION.offset());
        self.bench.settle();
        self.read(device::REVISION.offset());
        self.read(device::RCV_HDR_CNT.offset());
    }
}
