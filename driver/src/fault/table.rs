//! One table: what is done about which error.
//!
//! Each row names bits of one word and a response. A word's actions are those of all its bits; a bit that no row
//! names is counted and reported, nothing else. The responses follow the stock driver's (F-221, F-222, F-223), but
//! where it only prints a fault of the chip's own memory or bus, this table stops the device: data that went through
//! such a chip cannot be trusted.

use qhca_regs::status::{ErrBits, HwErrBits, PortErrBits};

/// What is done about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Response {
    /// It is counted and reported; nothing else helps.
    Count,
    /// Packets were dropped for want of space: look which context lost how many.
    CountDrops,
    /// The send buffers in error are taken back from the chip.
    CancelSends,
    /// The port's send-DMA engine has stopped and is to be started anew.
    RestartSdma,
    /// The state of the port's link is to be looked at.
    LinkChanged,
    /// The chip stands still without harm done: set it going again.
    Thaw,
    /// The device is of no more use.
    Fatal,
}

/// Several responses together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Actions(u8);

impl Actions {
    /// Nothing.
    pub const NONE: Self = Self(0);

    /// These and `response`.
    #[must_use]
    pub const fn with(self, response: Response) -> Self {
        Self(self.0 | 1 << response as u8)
    }

    /// Whether `response` is among them.
    pub const fn has(self, response: Response) -> bool {
        self.0 & 1 << response as u8 != 0
    }
}

/// One row: bits, and what they call for.
struct Row {
    bits: u64,
    response: Response,
}

const fn row(bits: u64, response: Response) -> Row {
    Row { bits, response }
}

/// `ErrStatus` (F-221). `HardwareErr` is a summary: its word has a table of its own.
const DEVICE: [Row; 4] = [
    row(ErrBits::RCV_EGR_FULL_ERR.bits() | ErrBits::RCV_HDR_FULL_ERR.bits(), Response::CountDrops),
    row(ErrBits::RESET_NEGATED.bits(), Response::Fatal),
    row(
        ErrBits::SDMA_VL15_ERR.bits()
            | ErrBits::SBUF_VL15_MISUSE_ERR.bits()
            | ErrBits::SEND_VL_MISMATCH_ERR.bits()
            | ErrBits::SEND_ARM_LAUNCH_ERR.bits()
            | ErrBits::SEND_SPECIAL_TRIGGER_ERR.bits()
            | ErrBits::SDMA_WRONG_PORT_ERR.bits(),
        Response::CancelSends,
    ),
    row(
        ErrBits::INVALID_ADDR_ERR.bits()
            | ErrBits::INVALID_EEP_CMD_ERR.bits()
            | ErrBits::RCV_CONTEXT_SHARE_ERR.bits()
            | ErrBits::SDMA_BUF_MASK_DUPLICATE_ERR.bits()
            | ErrBits::HARDWARE_ERR.bits(),
        Response::Count,
    ),
];

/// `HwErrStatus` of a chip that is not frozen (F-222).
const HARDWARE: [Row; 3] = [
    row(
        HwErrBits::MEMORY_ERR.bits()
            | HwErrBits::PC_IE_BUS_PARITY.bits()
            | HwErrBits::PCIE_PHY_TX_PARITY_ERR.bits()
            | HwErrBits::PCIE_CPL_TIMEOUT.bits()
            | HwErrBits::PCIE_POISONED_TLP.bits()
            | HwErrBits::PCIE_SERDES_P_CLK_NOT_DETECT.bits()
            | HwErrBits::POWER_ON_BIST_FAILED.bits()
            | HwErrBits::SDMA_MEM_READ_ERR_0.bits()
            | HwErrBits::SDMA_MEM_READ_ERR_1.bits()
            | HwErrBits::IBC_BUS_FROM_SPC_PARITY_ERR_0.bits()
            | HwErrBits::IBC_BUS_FROM_SPC_PARITY_ERR_1.bits()
            | HwErrBits::IBC_BUS_TO_SPC_PARITY_ERR_1.bits(),
        Response::Fatal,
    ),
    row(HwErrBits::LA_TRIGGERED.bits(), Response::Thaw),
    row(
        HwErrBits::TEMPSENSE_THOLD_REACHED.bits()
            | HwErrBits::STATUS_VALID_NO_EOP.bits()
            | HwErrBits::IB_SERDES_P_CLK_NOT_DETECT_0.bits()
            | HwErrBits::IB_SERDES_P_CLK_NOT_DETECT_1.bits(),
        Response::Count,
    ),
];

/// `ErrStatus_p` (F-223).
const PORT: [Row; 5] = [
    row(PortErrBits::IB_STATUS_CHANGED.bits(), Response::LinkChanged),
    row(
        PortErrBits::S_HEADERS_ERR.bits()
            | PortErrBits::VL15_BUF_MISUSE_ERR.bits()
            | PortErrBits::SEND_BUF_MISUSE_ERR.bits()
            | PortErrBits::SEND_UNSUPPORTED_VL_ERR.bits()
            | PortErrBits::SEND_UNEXPECTED_PKT_NUM_ERR.bits()
            | PortErrBits::SEND_DROPPED_DATA_PKT_ERR.bits()
            | PortErrBits::SEND_DROPPED_SMP_PKT_ERR.bits()
            | PortErrBits::SEND_PKT_LEN_ERR.bits()
            | PortErrBits::SEND_MAX_PKT_LEN_ERR.bits()
            | PortErrBits::SEND_MIN_PKT_LEN_ERR.bits(),
        Response::CancelSends,
    ),
    row(
        PortErrBits::SDMA_HALT_ERR.bits()
            | PortErrBits::SDMA_DESC_ADDR_MISALIGN_ERR.bits()
            | PortErrBits::SDMA_MISSING_DW_ERR.bits()
            | PortErrBits::SDMA_DW_EN_ERR.bits()
            | PortErrBits::SDMA_RPY_TAG_ERR.bits()
            | PortErrBits::SDMA1ST_DESC_ERR.bits()
            | PortErrBits::SDMA_BASE_ERR.bits()
            | PortErrBits::SDMA_TAIL_OUT_OF_BOUND_ERR.bits()
            | PortErrBits::SDMA_OUT_OF_BOUND_ERR.bits()
            | PortErrBits::SDMA_GEN_MISMATCH_ERR.bits(),
        Response::RestartSdma,
    ),
    row(PortErrBits::SDMA_UNEXP_DATA_ERR.bits() | PortErrBits::SEND_UNDER_RUN_ERR.bits(), Response::Count),
    row(
        PortErrBits::RCV_IB_LOST_LINK_ERR.bits()
            | PortErrBits::RCV_HDR_ERR.bits()
            | PortErrBits::RCV_HDR_LEN_ERR.bits()
            | PortErrBits::RCV_BAD_TID_ERR.bits()
            | PortErrBits::RCV_BAD_VERSION_ERR.bits()
            | PortErrBits::RCV_IB_FLOW_ERR.bits()
            | PortErrBits::RCV_EBP_ERR.bits()
            | PortErrBits::RCV_UNSUPPORTED_VL_ERR.bits()
            | PortErrBits::RCV_UNEXPECTED_CHAR_ERR.bits()
            | PortErrBits::RCV_SHORT_PKT_LEN_ERR.bits()
            | PortErrBits::RCV_LONG_PKT_LEN_ERR.bits()
            | PortErrBits::RCV_MAX_PKT_LEN_ERR.bits()
            | PortErrBits::RCV_MIN_PKT_LEN_ERR.bits()
            | PortErrBits::RCV_ICRC_ERR.bits()
            | PortErrBits::RCV_VCRC_ERR.bits()
            | PortErrBits::RCV_FORMAT_ERR.bits(),
        Response::Count,
    ),
];

/// Port errors that a link which is not ACTIVE makes by itself: they are no news then (F-223).
pub(super) const EXPECTED_WHILE_LINK_IS_NOT_ACTIVE: PortErrBits = PortErrBits::SEND_DROPPED_DATA_PKT_ERR
    .union(PortErrBits::SEND_DROPPED_SMP_PKT_ERR)
    .union(PortErrBits::SEND_PKT_LEN_ERR)
    .union(PortErrBits::SEND_MIN_PKT_LEN_ERR)
    .union(PortErrBits::RCV_UNEXPECTED_CHAR_ERR)
    .union(PortErrBits::RCV_SHORT_PKT_LEN_ERR)
    .union(PortErrBits::RCV_MIN_PKT_LEN_ERR);

fn look_up(table: &[Row], word: u64) -> Actions {
    let hit = table.iter().filter(|row| row.bits & word != 0);
    hit.fold(Actions::NONE.with(Response::Count), |actions, row| actions.with(row.response))
}

/// What is done about `ErrStatus`.
pub fn device_actions(word: ErrBits) -> Actions {
    look_up(&DEVICE, word.bits())
}

/// What is done about `HwErrStatus`. A chip that is frozen for anything but its logic analyser is lost (F-222).
pub fn hardware_actions(word: HwErrBits, frozen: bool) -> Actions {
    let actions = look_up(&HARDWARE, word.bits());
    if frozen && word != HwErrBits::LA_TRIGGERED { actions.with(Response::Fatal) } else { actions }
}

/// What is done about `ErrStatus_p`.
pub fn port_actions(word: PortErrBits) -> Actions {
    look_up(&PORT, word.bits())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// B169: each named bit stands in exactly one row, and no row names another.
    #[test]
    fn every_named_bit_has_exactly_one_response() {
        for (table, named) in [
            (&DEVICE[..], ErrBits::NAMED.bits()),
            (&HARDWARE[..], HwErrBits::NAMED.bits()),
            (&PORT[..], PortErrBits::NAMED.bits()),
        ] {
            for bit in 0..64 {
                let rows = table.iter().filter(|row| row.bits >> bit & 1 != 0).count();
                assert_eq!(rows, usize::from(named >> bit & 1 != 0), "bit {bit}");
            }
        }
    }

    #[test]
    fn word_calls_for_what_each_of_its_bits_calls_for() {
        let actions = device_actions(ErrBits::RCV_HDR_FULL_ERR | ErrBits::SEND_ARM_LAUNCH_ERR);
        assert!(actions.has(Response::CountDrops) && actions.has(Response::CancelSends));
        assert!(!actions.has(Response::Fatal));
        assert_eq!(device_actions(ErrBits::from_bits_retain(1)), Actions::NONE.with(Response::Count));
    }

    /// B05: a frozen chip is lost, unless the logic analyser alone has stopped it.
    #[test]
    fn frozen_chip_is_lost_unless_the_trigger_alone_froze_it() {
        let trigger = HwErrBits::LA_TRIGGERED;
        assert!(!hardware_actions(trigger, true).has(Response::Fatal));
        assert!(hardware_actions(trigger, true).has(Response::Thaw));
        assert!(hardware_actions(trigger | HwErrBits::TEMPSENSE_THOLD_REACHED, true).has(Response::Fatal));
        assert!(!hardware_actions(HwErrBits::TEMPSENSE_THOLD_REACHED, false).has(Response::Fatal));
        assert!(hardware_actions(HwErrBits::MEMORY_ERR, false).has(Response::Fatal));
    }
}
