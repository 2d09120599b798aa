//! The internal bus to the SerDes, as far as bring-up needs an answer from it.
//!
//! `ahb_access_ctrl` picks a target, a write to `ahb_transaction_reg` reads or writes one 16-bit register of it, and a
//! read shows the result. The bus is always ready. What is written is remembered for each target and address; register
//! 25 of a lane reports calibration as done, bit 9, and not as failed, bit 10 (§7.8 says the opposite of bit 10; the stock
//! driver complains when it is set). Nothing else of the SerDes is there (F-306).

use qhca_regs::map::device::{AhbAccessCtrl, AhbTransactionReg};

const TARGETS: usize = 4;
const ADDRESSES: usize = 1 << 11;
const CALIBRATION_REGISTER: u16 = 25;
const CALIBRATED: u16 = 1 << 9;

/// See the chapter's head.
pub(super) struct Ahb {
    words: Vec<u16>,
    target: usize,
    last: AhbTransactionReg,
}

impl Ahb {
    pub(super) fn new() -> Self {
        Self { words: vec![0; TARGETS * ADDRESSES], target: 0, last: AhbTransactionReg::default() }
    }

    pub(super) fn select(&mut self, control: AhbAccessCtrl) {
        self.target = usize::from(control.sw_sel_ahb_trgt());
    }

    pub(super) fn transact(&mut self, request: AhbTransactionReg) {
        let address = request.ahb_address();
        let word = &mut self.words[self.target * ADDRESSES + usize::from(address)];
        if request.write_not_read() {
            *word = request.ahb_data() as u16;
        }
        let register = address >> 1 & 0x3F;
        let shown = *word | if register == CALIBRATION_REGISTER { CALIBRATED } else { 0 };
        self.last = request.with_ahb_data(u32::from(shown)).with_ahb_req_err(false);
    }

    pub(super) fn result(&self) -> AhbTransactionReg {
        self.last.with_ahb_rdy(true)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::Bench;
    use super::*;
    use qhca_regs::map::device;

    #[test]
    fn bus_is_ready_and_remembers_by_target_and_address() {
        let mut bench = Bench::new();
        let transaction = device::AHB_TRANSACTION_REG.offset();
        let request = |address, data: Option<u32>| {
            let request = AhbTransactionReg::default().with_ahb_address(address);
            request.with_write_not_read(data.is_some()).with_ahb_data(data.unwrap_or(0)).0
        };
        let result = |bench: &mut Bench| AhbTransactionReg(bench.read(transaction));
        assert!(result(&mut bench).ahb_rdy());
        bench.write(device::AHB_ACCESS_CTRL.offset(), AhbAccessCtrl::default().with_sw_sel_ahb_trgt(2).0);
        bench.write(transaction, request(8, Some(0x1234)));
        bench.write(transaction, request(8, None));
        assert_eq!(result(&mut bench).ahb_data(), 0x1234);
        bench.write(device::AHB_ACCESS_CTRL.offset(), AhbAccessCtrl::default().with_sw_sel_ahb_trgt(3).0);
        bench.write(transaction, request(8, None));
        assert_eq!(result(&mut bench).ahb_data(), 0);
        bench.write(transaction, request(25 << 1, None));
        assert_eq!(result(&mut bench).ahb_data() & 0x600, 0x200);
    }
}
