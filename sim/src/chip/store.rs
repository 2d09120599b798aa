//! The backing store: every register of the map, with its reset value and its access kind honoured.
//!
//! A register whose contents no other chapter needs lives here and nowhere else. The other chapters keep what they
//! act on in fields of their own and leave here what software reads back.
//!
//! ```text
//!   0x00000 .. 0xD1180   one word for each qword of the BAR: registers, counters, arrays, equaliser map
//! ```
//!
//! Writes to read-only registers and to holes are dropped, reads of holes and of write-only registers give 0 (F-301).
//! Bits that no field names do not stick (F-302). A write with an effect that no chapter models is counted by register.

use super::board::Board;
use qhca_regs::map::{self, area, device, port, user};
use qhca_regs::{Access, Ctxt, Port};
use std::collections::BTreeMap;

/// End of the part of the BAR that is kept word for word.
const LOW_END: u32 = LAST_AREA.index(0).offset() + 8 * LAST_AREA.len();
const LAST_AREA: qhca_regs::access::RegArray<u64, qhca_regs::Rw> = area::IB_SD_DDS_MAP_TABLE.port(Port::P1);
/// Distance of two contexts' user pages.
pub(super) const USER_PAGE_BYTES: u32 = 0x1_0000;
/// What the store knows about one row of the map.
struct Rule {
    access: Access,
    /// Bits that a write can change.
    writable: u64,
    /// Bits whose effect no chapter models.
    unmodelled: u64,
}

/// See the chapter's head.
pub(super) struct Store {
    words: Vec<u64>,
    /// For each word the rule that governs it, counted from 1; 0 for a hole.
    rule_of: Vec<u16>,
    rules: Vec<Rule>,
    unmodelled_writes: BTreeMap<u32, u64>,
}

impl Store {
    /// All registers at their reset values, on `board`.
    pub(super) fn new(board: Board) -> Self {
        let words = vec![0; (LOW_END / 8) as usize];
        let mut store = Self {
            rule_of: vec![0; words.len()],
            words,
            rules: Vec::new(),
            unmodelled_writes: BTreeMap::new(),
        };
        for row in map::rows() {
            store.place(row);
        }
        store.identify(board);
        store
    }

    fn place(&mut self, row: &'static qhca_regs::info::RegInfo) {
        let named: u64 = row.fields.iter().map(|field| field.mask()).fold(0, |all, mask| all | mask);
        let writable = if row.fields.is_empty() { u64::MAX } else { named };
        self.rules.push(Rule {
            access: row.access,
            writable: writable_bits(row.offset).unwrap_or(writable),
            unmodelled: unmodelled_bits(row.offset),
        });
        let rule = self.rules.len();
        for placed in row.placed() {
            for word in 0..row.words() {
                let index = (placed.offset / 8 + word) as usize;
                if index < self.words.len() {
                    self.words[index] = placed.reset();
                    // PANIC: the map has a few hundred rows.
                    self.rule_of[index] = u16::try_from(rule).expect("rules fit 16 bits");
                }
            }
        }
    }

    /// Values that differ from board to board, or that the register header leaves open (F-300, F-304).
    fn identify(&mut self, board: Board) {
        let revision = device::Revision(self.get(device::REVISION.offset()))
            .with_chip_rev_minor(2)
            .with_board_id(board.id());
        self.set(device::REVISION.offset(), revision.0);
        let mask = u64::from(board.feature_mask());
        self.set(device::FEATURE_MASK.offset(), mask);
        self.set(device::ACTIVE_FEATURE_MASK.offset(), mask);
        let bist = device::ExtStatus::default().with_mem_bist_end_test(true);
        self.set(device::EXT_STATUS.offset(), bist.0);
    }

    /// The word at `offset`, whatever its access kind.
    #[inline]
    pub(super) fn get(&self, offset: u32) -> u64 {
        self.words.get((offset / 8) as usize).copied().unwrap_or(0)
    }

    /// Sets the word at `offset`, whatever its access kind.
    #[inline]
    pub(super) fn set(&mut self, offset: u32, value: u64) {
        if let Some(word) = self.words.get_mut((offset / 8) as usize) {
            *word = value;
        }
    }

    /// What software reads at `offset`.
    #[inline]
    pub(super) fn read(&self, offset: u32) -> u64 {
        let index = (offset / 8) as usize;
        match self.rule_of.get(index) {
            None | Some(0) => 0,
            Some(&rule) if self.rules[usize::from(rule) - 1].access == Access::Wo => 0,
            Some(_) => self.words[index],
        }
    }

    /// Software writes `value` at `offset`; returns what the register then holds.
    #[inline]
    pub(super) fn write(&mut self, offset: u32, value: u64) -> u64 {
        let index = (offset / 8) as usize;
        let (rule, word) = match self.rule_of.get(index) {
            None | Some(0) => return 0,
            Some(&rule) => (&self.rules[usize::from(rule) - 1], &mut self.words[index]),
        };
        let old = *word;
        match rule.access {
            Access::Ro => return old,
            Access::Rw | Access::Wo => *word = value & rule.writable,
            Access::W1c => *word = old & !value,
        }
        let new = *word;
        if rule.unmodelled != 0 && (rule.unmodelled == u64::MAX || (old ^ value) & rule.unmodelled != 0) {
            *self.unmodelled_writes.entry(offset & !7).or_default() += 1;
        }
        new
    }

    /// Registers that were written with an effect that is not modelled: offset and how often, ascending.
    pub(super) fn unmodelled(&self) -> impl Iterator<Item = (u32, u64)> {
        self.unmodelled_writes.iter().map(|(&offset, &writes)| (offset, writes))
    }
}

const GPIO_PINS: u64 = 0xFFFF;
/// Context enables of `RcvCtrl_p`: one a context, though the header names 0 and 2 to 17 only (F-305).
const CTXT_ENABLES: u64 = 0x3_FFFF;

const fn p0<V, A>(reg: qhca_regs::access::PortReg<V, A>) -> u32 {
    reg.port(Port::P0).offset()
}

/// Where the bits that stick are not simply the named ones.
fn writable_bits(offset: u32) -> Option<u64> {
    const RCV_CTRL_P: u32 = p0(port::RCV_CTRL);
    const GPIO_OUT: u32 = device::GPIO_OUT.offset();
    const GPIO_MASK: u32 = device::GPIO_MASK.offset();
    const EGR: u32 = area::RCV_EGR_ARRAY.index(0).offset();
    match offset {
        RCV_CTRL_P => Some(CTXT_ENABLES | 0xF << 39),
        GPIO_OUT | GPIO_MASK => Some(GPIO_PINS),
        EGR => Some((1 << 40) - 1),
        _ => None,
    }
}

/// Bits of the register at `offset` (port 0's copy, first of a row) whose effect no chapter models: none for the
/// registers that a chapter handles or that only hold a value, all for the rest.
pub(super) fn unmodelled_bits(offset: u32) -> u64 {
    if MODELLED.contains(&offset) {
        return 0;
    }
    match offset {
        // The switches of PCIe diagnostics (F-440).
        o if o == device::CONTROL.offset() => 1 << 3 | 1 << 5 | 1 << 6,
        // Diagnostic, and ForceIBCBusToSPCParityErr_0, which has no status bit (F-321).
        o if o == device::HW_DIAG_CTRL.offset() => 1 << 63 | 1 << 12,
        o if o == device::RCV_CTRL.offset() => 0xFFFF << 48,
        o if o == p0(port::RCV_CTRL) => 1 << 42,
        o if o == p0(port::SEND_CTRL) => 1 << 7,
        o if o == p0(port::IB_SDTEST_IF_TX) => !(0x7 << 2), // lanes and credit change
        _ => u64::MAX,
    }
}

const TID_ARRAY: u32 = area::RCV_TID_ARRAY.ctxt(CTXT0).index(0).offset();
const CTXT0: Ctxt = match Ctxt::new(0) {
    Some(ctxt) => ctxt,
    // PANIC: evaluated at compile time.
    None => panic!("context 0 exists"),
};

/// Registers (port 0's copy, first of a row) with all of their effects modelled.
const MODELLED: &[u32] = &[
    device::SCRATCH.offset(),
    device::INT_MASK.offset(),
    device::INT_CLEAR.offset(),
    device::ERR_MASK.offset(),
    device::ERR_CLEAR.offset(),
    device::HW_ERR_MASK.offset(),
    device::HW_ERR_CLEAR.offset(),
    device::EXT_CTRL.offset(),
    device::GPIO_OUT.offset(),
    device::GPIO_MASK.offset(),
    device::GPIO_CLEAR.offset(),
    device::RCV_HDR_SIZE.offset(),
    device::RCV_HDR_CNT.offset(),
    device::RCV_HDR_ENT_SIZE.offset(),
    device::SEND_BUF_AVAIL_ADDR.offset(),
    device::SEND_BUF_ERR.index(0).offset(),
    device::RCV_HDR_ADDR.index(0).offset(),
    device::RCV_HDR_TAIL_ADDR.index(0).offset(),
    device::AHB_ACCESS_CTRL.offset(),
    device::AHB_TRANSACTION_REG.offset(),
    device::SEND_CHECK_MASK.index(0).offset(),
    device::SEND_GRH_CHECK_MASK.index(0).offset(),
    device::SEND_IB_PACKET_MASK.index(0).offset(),
    device::INT_REDIRECT.index(0).offset(),
    device::INT_GRANTED.offset(),
    device::VEC_CLR_WITHOUT_INT.offset(),
    device::RCV_AVAIL_TIMEOUT.index(0).offset(),
    p0(port::ERR_MASK),
    p0(port::ERR_CLEAR),
    p0(port::RCV_BTHQP),
    p0(port::RCV_QP_MAP_TABLE_A),
    p0(port::RCV_QP_MAP_TABLE_B),
    p0(port::RCV_QP_MAP_TABLE_C),
    p0(port::RCV_QP_MAP_TABLE_D),
    p0(port::RCV_QP_MAP_TABLE_E),
    p0(port::RCV_QP_MAP_TABLE_F),
    p0(port::RCV_PARTITION_KEY),
    p0(port::RCV_QP_MULTICAST_CONTEXT),
    p0(port::RCV_PKT_LED_CNT),
    p0(port::SEND_HDR_ERR_SYMPTOM),
    p0(port::RX_CREDIT_VL15),
    port::RX_CREDIT_VL.port(Port::P0).index(0).offset(),
    p0(port::SEND_CHECK_CONTROL),
    p0(port::SEND_DMA_BASE),
    p0(port::SEND_DMA_LEN_GEN),
    p0(port::SEND_DMA_TAIL),
    p0(port::SEND_DMA_HEAD_ADDR),
    p0(port::SEND_DMA_RELOAD_CNT),
    p0(port::SEND_DMA_DESC_CNT),
    port::SEND_DMA_BUF_MASK.port(Port::P0).index(0).offset(),
    // Which engine fetches first, where fetching takes no time (F-412).
    p0(port::SEND_DMA_PRIORITY_THLD),
    p0(port::SEND_IBSLID_MASK),
    p0(port::SEND_IBSLID_ASSIGN),
    device::SEND_CTRL.offset(),
    p0(port::HIGH_PRIORITY_LIMIT),
    port::LOW_PRIORITY.port(Port::P0).index(0).offset(),
    port::HIGH_PRIORITY.port(Port::P0).index(0).offset(),
    p0(port::IBC_CTRL_A),
    // Among its bits are tuning of analogue parts (F-306).
    p0(port::IBC_CTRL_B),
    p0(port::IBC_STATUS_B),
    p0(port::PS_START),
    p0(port::PS_INTERVAL),
    p0(port::IBPCS_CONFIG),
    // Tuning of analogue parts, without effect on a model that has none (F-306).
    p0(port::IBC_CTRL_C),
    p0(port::IBNC_MODE_CTRL),
    p0(port::IB_SERDES_CTRL),
    p0(port::IB_SD_TX_DEEMPHASIS_OVERRIDE),
    p0(port::ADAPT_DISABLE_STATIC_SDR),
    p0(port::ADAPT_DISABLE_DYNAMIC_SDR),
    p0(port::ADAPT_DISABLE_STATIC_DDR),
    p0(port::ADAPT_DISABLE_DYNAMIC_DDR),
    p0(port::ADAPT_DISABLE_STATIC_QDR),
    p0(port::ADAPT_DISABLE_DYNAMIC_QDR),
    p0(port::ADAPT_DISABLE_TIMER_THRESHOLD),
    area::IB_SD_DDS_MAP_TABLE.port(Port::P0).index(0).offset(),
    area::MSIX_TABLE.index(0).offset(),
    area::RCV_EGR_ARRAY.index(0).offset(),
    TID_ARRAY,
    user::RCV_HDR_HEAD.index(0).offset(),
    user::RCV_EGR_INDEX_HEAD.index(0).offset(),
    device::DCA_CTRL_A.offset(),
    p0(port::HRTBT_GUID),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_come_up_with_their_reset_values_and_port_copies() {
        let store = Store::new(Board::Qle7342);
        assert_eq!(store.read(device::REVISION.offset()), 0x0000_0002_0201_0602);
        for placed in map::all() {
            let given = [
                device::REVISION.offset(),
                device::FEATURE_MASK.offset(),
                device::ACTIVE_FEATURE_MASK.offset(),
                device::EXT_STATUS.offset(),
            ];
            let kept = placed.offset < LOW_END && placed.info.access != Access::Wo;
            if kept && !given.contains(&placed.offset) {
                assert_eq!(store.read(placed.offset), placed.reset(), "{placed}");
            }
        }
    }

    #[test]
    fn read_only_registers_and_holes_drop_writes() {
        let mut store = Store::new(Board::Qle7340);
        for offset in [device::CONTEXT_CNT.offset(), 0xFF8, 0x4000, 0x30_0000, !7] {
            let before = store.read(offset);
            store.write(offset, u64::MAX);
            assert_eq!(store.read(offset), before, "{offset:#x}");
        }
    }

    #[test]
    fn avail_address_keeps_exactly_its_field() {
        let mut store = Store::new(Board::Qle7342);
        assert_eq!(store.write(device::SEND_BUF_AVAIL_ADDR.offset(), u64::MAX), 0xFF_FFFF_FFC0);
    }

    #[test]
    fn write_without_modelled_effect_is_counted_by_register() {
        let mut store = Store::new(Board::Qle7342);
        let limit = map::extra::RCV_BUF_A_0.offset();
        store.write(limit, 7);
        store.write(limit, 8);
        store.write(device::SCRATCH.offset(), 1);
        assert_eq!(store.read(limit), 8);
        assert_eq!(store.unmodelled().collect::<Vec<_>>(), [(limit, 2)]);
    }
}
