//! The counters by name: which there are, how wide, what they count.
//!
//! Names and order of the listed ones are those of ipathfs, which owners' scripts know; at most 12 characters, save
//! for contexts of two digits. From one name on each list counts errors; ipathfs marks that name with `E `. A few
//! counters of the chip were never listed and come after.
//!
//! Source: F-145, F-146.

use qhca_regs::map::counter;

/// How a counter is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    /// Counts in 32 bits and wraps; the upper half of the word is not counted on.
    Bits32,
    /// Counts in 64 bits.
    Bits64,
    /// Is not a sum: shows the result of the last sampling interval.
    Level,
}

/// What a counter counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Packets.
    Packets,
    /// Words of 4 bytes.
    Dwords,
    /// Events or errors.
    Events,
    /// Ticks of a clock of the chip.
    Ticks,
}

impl Unit {
    /// The word in listings.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Packets => "packets",
            Self::Dwords => "dwords",
            Self::Events => "events",
            Self::Ticks => "ticks",
        }
    }
}

/// One counter.
#[derive(Clone, Copy, Debug)]
pub struct CounterInfo {
    /// The name that ipathfs gives it; for unlisted ones the register's.
    pub name: &'static str,
    /// Where it stands: port 0's copy, for a port's counter.
    pub offset: u32,
    /// How to read it.
    pub width: Width,
    /// What it counts.
    pub unit: Unit,
    /// Whether ipathfs lists it.
    pub is_listed: bool,
}

const fn row(name: &'static str, offset: u32, width: Width, unit: Unit) -> CounterInfo {
    CounterInfo { name, offset, width, unit, is_listed: true }
}

const fn unlisted(name: &'static str, offset: u32, width: Width, unit: Unit) -> CounterInfo {
    CounterInfo { name, offset, width, unit, is_listed: false }
}

use Unit::{Dwords, Events, Packets, Ticks};
use Width::{Bits32, Bits64, Level};

/// The device's counter from which on ipathfs counts errors.
pub const FIRST_DEVICE_ERROR: &str = "RxTIDFull";
/// A port's counter from which on ipathfs counts errors.
pub const FIRST_PORT_ERROR: &str = "RxDlidFltr";
/// Index of context 0's overflow counter in [`DEVICE`]; the other contexts follow.
pub const FIRST_OVERFLOW: usize = 5;

macro_rules! device_table {
    ($($ctxt:literal $name:literal),*) => {
        /// Counters of the whole device.
        pub const DEVICE: [CounterInfo; 24] = [
            row("Interrupts", counter::LB_INT_CNT.offset(), Bits64, Events),
            row("HostBusStall", counter::LB_FLOW_STALL_CNT.offset(), Bits64, Ticks),
            row("RxTIDFull", counter::RX_TID_FULL_ERR_CNT.offset(), Bits32, Packets),
            row("RxTIDInvalid", counter::RX_TID_VALID_ERR_CNT.offset(), Bits32, Packets),
            row("RxTIDFloDrop", counter::RX_TID_FLOW_DROP_CNT.offset(), Bits32, Packets),
            $(row($name, counter::RX_HDR_EGR_OVFL_CNT.index($ctxt).offset(), Bits32, Packets),)*
            unlisted("PcieRetryBufDiagQwordCnt", counter::PCIE_RETRY_BUF_DIAG_QWORD_CNT.offset(), Bits32, Events),
        ];
    };
}
device_table! {
    0 "Ctxt0EgrOvfl", 1 "Ctxt1EgrOvfl", 2 "Ctxt2EgrOvfl", 3 "Ctxt3EgrOvfl", 4 "Ctxt4EgrOvfl", 5 "Ctxt5EgrOvfl",
    6 "Ctxt6EgrOvfl", 7 "Ctxt7EgrOvfl", 8 "Ctxt8EgrOvfl", 9 "Ctxt9EgrOvfl", 10 "Ctxt10EgrOvfl", 11 "Ctxt11EgrOvfl",
    12 "Ctxt12EgrOvfl", 13 "Ctxt13EgrOvfl", 14 "Ctxt14EgrOvfl", 15 "Ctxt15EgrOvfl", 16 "Ctxt16EgrOvfl",
    17 "Ctxt17EgrOvfl"
}

macro_rules! port_table {
    ($($kind:ident $name:literal: $register:ident, $width:ident, $unit:ident;)*) => {
        /// Counters of one port. `TxBadLength` and `TxInvalLen` stand crosswise to the registers' names, as ipathfs has
        /// them.
        pub const PORT: &[CounterInfo] =
            &[$($kind($name, counter::$register.port(qhca_regs::Port::P0).offset(), $width, $unit),)*];
    };
}
port_table! {
    row "TxPkt": TX_DATA_PKT_CNT, Bits64, Packets;
    row "TxFlowPkt": TX_FLOW_PKT_CNT, Bits32, Packets;
    row "TxWords": TX_DWORD_CNT, Bits64, Dwords;
    row "RxPkt": RX_DATA_PKT_CNT, Bits64, Packets;
    row "RxFlowPkt": RX_FLOW_PKT_CNT, Bits32, Packets;
    row "RxWords": RX_DWORD_CNT, Bits64, Dwords;
    row "TxFlowStall": TX_FLOW_STALL_CNT, Bits32, Ticks;
    row "TxDmaDesc": TX_SDMA_DESC_CNT, Bits64, Events;
    row "RxDlidFltr": RX_DLID_FLTR_CNT, Bits32, Packets;
    row "IBStatusChng": IB_STATUS_CHANGE_CNT, Bits32, Events;
    row "IBLinkDown": IB_LINK_DOWNED_CNT, Bits32, Events;
    row "IBLnkRecov": IB_LINK_ERR_RECOVERY_CNT, Bits32, Events;
    row "IBRxLinkErr": RX_LINK_MALFORM_CNT, Bits32, Events;
    row "IBSymbolErr": IB_SYMBOL_ERR_CNT, Bits32, Events;
    row "RxLLIErr": LOCAL_LINK_INTEGRITY_ERR_CNT, Bits32, Events;
    row "RxBadFormat": RX_VERSION_ERR_CNT, Bits32, Packets;
    row "RxBadLen": RX_LEN_ERR_CNT, Bits32, Packets;
    row "RxBufOvrfl": RX_BUF_OVFL_CNT, Bits32, Packets;
    row "RxEBP": RX_EBP_CNT, Bits32, Packets;
    row "RxFlowCtlErr": RX_FLOW_CTRL_VIOL_CNT, Bits32, Packets;
    row "RxICRCerr": RX_ICRC_ERR_CNT, Bits32, Packets;
    row "RxLPCRCerr": RX_LPCRC_ERR_CNT, Bits32, Packets;
    row "RxVCRCerr": RX_VCRC_ERR_CNT, Bits32, Packets;
    row "RxInvalLen": RX_MAX_MIN_LEN_ERR_CNT, Bits32, Packets;
    row "RxInvalPKey": RX_P_KEY_MISMATCH_CNT, Bits32, Packets;
    row "RxPktDropped": RX_DROPPED_PKT_CNT, Bits32, Packets;
    row "TxBadLength": TX_MAX_MIN_LEN_ERR_CNT, Bits32, Packets;
    row "TxDropped": TX_DROPPED_PKT_CNT, Bits32, Packets;
    row "TxInvalLen": TX_LEN_ERR_CNT, Bits32, Packets;
    row "TxUnderrun": TX_UNDERRUN_CNT, Bits32, Packets;
    row "TxUnsupVL": TX_UNSUP_VL_ERR_CNT, Bits32, Packets;
    row "RxLclPhyErr": RX_OTHER_LOCAL_PHY_ERR_CNT, Bits32, Packets;
    row "RxVL15Drop": RX_VL15_DROPPED_PKT_CNT, Bits32, Packets;
    row "RxVlErr": RX_VL_ERR_CNT, Bits32, Packets;
    row "XcessBufOvfl": EXCESS_BUFFER_OVFL_CNT, Bits32, Events;
    row "RxQPBadCtxt": RX_QP_INVALID_CONTEXT_CNT, Bits32, Packets;
    row "TXBadHeader": TX_HEADERS_ERR_CNT, Bits32, Packets;
    unlisted "LBIntCnt_p": LB_INT_CNT_P, Bits32, Events;
    unlisted "TxCreditUpToDateTimeOut": TX_CREDIT_UP_TO_DATE_TIMEOUT, Bits32, Events;
    unlisted "RxLenTruncateCnt": RX_LEN_TRUNCATE_CNT, Bits32, Packets;
    unlisted "PSRcvDataCount": PS_RCV_DATA_COUNT, Level, Dwords;
    unlisted "PSRcvPktsCount": PS_RCV_PKTS_COUNT, Level, Packets;
    unlisted "PSXmitDataCount": PS_XMIT_DATA_COUNT, Level, Dwords;
    unlisted "PSXmitPktsCount": PS_XMIT_PKTS_COUNT, Level, Packets;
    unlisted "PSXmitWaitCount": PS_XMIT_WAIT_COUNT, Level, Ticks;
}

/// The listed names as ipathfs prints them: `E ` before the first that counts errors.
pub fn ipath_names(table: &'static [CounterInfo]) -> impl Iterator<Item = String> {
    table.iter().filter(|info| info.is_listed).map(|info| {
        let begins_errors = [FIRST_DEVICE_ERROR, FIRST_PORT_ERROR].contains(&info.name);
        format!("{}{}", if begins_errors { "E " } else { "" }, info.name)
    })
}
