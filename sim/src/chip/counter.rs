//! Counters: one block for the chip, one for each port.
//!
//! Seven of them are 64 bits wide, the rest 32; all wrap, and reading clears nothing (F-341). `HwDiagCtrl` can freeze
//! them and open them for writing.

use super::wrong::WrongChip;
use super::wrong::WrongSet;
use qhca_regs::access::{PortReg, RegArray};
use qhca_regs::map::{counter, device};
use qhca_regs::{Ctxt, Port, Reg, Rw};

const BLOCK_BYTES: u32 = 0x1000;
const BLOCK_WORDS: usize = (BLOCK_BYTES / 8) as usize;
/// First byte of the chip's block; the ports' follow (F-003).
pub(super) const START: u32 = counter::LB_INT_CNT.offset();
/// First byte after the last block.
pub(super) const END: u32 = START + 3 * BLOCK_BYTES;

/// See the chapter's head.
pub(super) struct Counters {
    words: Vec<u64>,
    frozen: bool,
    writable: bool,
}

impl Counters {
    pub(super) fn new() -> Self {
        Self { words: vec![0; 3 * BLOCK_WORDS], frozen: false, writable: false }
    }

    #[inline]
    fn add(&mut self, offset: u32, n: u64) {
        if !self.frozen {
            let word = &mut self.words[((offset - START) / 8) as usize];
            *word = word.wrapping_add(n);
        }
    }

    /// Adds `n` to one of the chip's counters.
    #[inline]
    pub(super) fn bump(&mut self, counter: Reg<u64, Rw>, n: u64) {
        self.add(counter.offset(), n);
    }

    /// Adds `n` to a counter of `port`.
    #[inline]
    pub(super) fn bump_port(&mut self, counter: PortReg<u64, Rw>, port: Port, n: u64) {
        self.add(counter.port(port).offset(), n);
    }

    /// Adds 1 to the counter of `ctxt` in a row.
    #[inline]
    pub(super) fn bump_ctxt(&mut self, row: RegArray<u64, Rw>, ctxt: Ctxt) {
        self.add(row.ctxt(ctxt).offset(), 1);
    }

    /// All 64 bits of a counter of `port`.
    pub(super) fn get(&self, counter: PortReg<u64, Rw>, port: Port) -> u64 {
        self.words[((counter.port(port).offset() - START) / 8) as usize]
    }

    pub(super) fn read(&mut self, offset: u32, wrong: WrongSet) -> u64 {
        let word = &mut self.words[((offset - START) / 8) as usize];
        let value = *word;
        if wrong.has(WrongChip::CountersClearOnRead) {
            *word = 0;
        }
        if is_wide(offset) { value } else { value & 0xFFFF_FFFF }
    }

    pub(super) fn write(&mut self, offset: u32, value: u64) {
        let known = qhca_regs::map::at(offset).is_some();
        if self.writable && known {
            self.words[((offset - START) / 8) as usize] = value;
        }
    }

    pub(super) fn control(&mut self, control: device::HwDiagCtrl) {
        self.frozen = control.counter_disable();
        self.writable = control.counter_wr_enable();
    }
}

/// Whether the counter at `offset` has 64 bits.
fn is_wide(offset: u32) -> bool {
    const PORT_WIDE: [u32; 5] = [
        counter::TX_SDMA_DESC_CNT.port(Port::P0).offset(),
        counter::TX_DATA_PKT_CNT.port(Port::P0).offset(),
        counter::TX_DWORD_CNT.port(Port::P0).offset(),
        counter::RX_DATA_PKT_CNT.port(Port::P0).offset(),
        counter::RX_DWORD_CNT.port(Port::P0).offset(),
    ];
    const PORTS: u32 = START + BLOCK_BYTES;
    match offset.checked_sub(PORTS) {
        None => offset == counter::LB_INT_CNT.offset() || offset == counter::LB_FLOW_STALL_CNT.offset(),
        Some(past) => PORT_WIDE.contains(&(PORTS + past % BLOCK_BYTES)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::Bench;
    use super::*;

    const SYMBOLS: u32 = counter::IB_SYMBOL_ERR_CNT.port(Port::P1).offset();
    const WORDS: u32 = counter::TX_DWORD_CNT.port(Port::P1).offset();

    fn open(bench: &mut Bench) {
        let open = device::HwDiagCtrl::default().with_counter_wr_enable(true);
        bench.write(device::HW_DIAG_CTRL.offset(), open.0);
    }

    #[test]
    fn counters_take_writes_only_while_opened() {
        let mut bench = Bench::new();
        bench.write(SYMBOLS, 9);
        assert_eq!(bench.read(SYMBOLS), 0);
        open(&mut bench);
        bench.write(SYMBOLS, 9);
        assert_eq!(bench.read(SYMBOLS), 9);
        assert_eq!(bench.read(SYMBOLS), 9, "reading clears nothing");
    }

    #[test]
    fn narrow_counters_wrap_at_32_bits_and_wide_ones_do_not() {
        let mut bench = Bench::new();
        open(&mut bench);
        bench.write(SYMBOLS, 0xFFFF_FFFF);
        bench.write(WORDS, 0xFFFF_FFFF);
        bench.chip.counters.bump_port(counter::IB_SYMBOL_ERR_CNT, Port::P1, 2);
        bench.chip.counters.bump_port(counter::TX_DWORD_CNT, Port::P1, 2);
        assert_eq!((bench.read(SYMBOLS), bench.read(WORDS)), (1, 0x1_0000_0001));
    }

    #[test]
    fn frozen_counters_stand_still() {
        let mut bench = Bench::new();
        let frozen = device::HwDiagCtrl::default().with_counter_disable(true);
        bench.write(device::HW_DIAG_CTRL.offset(), frozen.0);
        bench.chip.counters.bump(counter::LB_INT_CNT, 1);
        assert_eq!(bench.read(counter::LB_INT_CNT.offset()), 0);
    }
}
