//! The counters by all their names: the chip's, the one that ipathfs gave it, the unit it counts in.
//!
//! One table, so that a name in `counters`, in `counters --ipath` and in JSON cannot drift apart. Scripts of owners of
//! the card read ipathfs, whose names have at most 12 characters and whose order is kept here; counters that ipathfs
//! did not show come last.

/// What a counter counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Packets.
    Packets,
    /// Words of 4 bytes, as the chip counts data.
    Dwords,
    /// Events or errors.
    Events,
    /// Ticks of a clock of the chip.
    Ticks,
}

impl Unit {
    /// The word in listings and JSON.
    pub(crate) const fn name(self) -> &'static str {
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
pub(crate) struct CounterName {
    /// The register's name in the map, `{p}` for the port and `{i}` for the context.
    pub(crate) register: &'static str,
    /// The name in ipathfs.
    pub(crate) ipath: Option<&'static str>,
    /// What it counts.
    pub(crate) unit: Unit,
}

const fn row(register: &'static str, ipath: &'static str, unit: Unit) -> CounterName {
    CounterName { register, ipath: Some(ipath), unit }
}

const fn unlisted(register: &'static str, unit: Unit) -> CounterName {
    CounterName { register, ipath: None, unit }
}

/// From this counter on, ipathfs counts errors; it marks the name with `E `.
pub(crate) const FIRST_DEVICE_ERROR: &str = "RxTIDFull";
/// The same among a port's counters.
pub(crate) const FIRST_PORT_ERROR: &str = "RxDlidFltr";

use Unit::{Dwords, Events, Packets, Ticks};

/// Counters of the whole device.
pub(crate) const DEVICE: &[CounterName] = &[
    row("LBIntCnt", "Interrupts", Events),
    row("LBFlowStallCnt", "HostBusStall", Ticks),
    row("RxTIDFullErrCnt", "RxTIDFull", Packets),
    row("RxTIDValidErrCnt", "RxTIDInvalid", Packets),
    row("RxTidFlowDropCnt", "RxTIDFloDrop", Packets),
    row("RxP{i}HdrEgrOvflCnt", "Ctxt{i}EgrOvfl", Packets),
    unlisted("PcieRetryBufDiagQwordCnt", Events),
];

/// Counters of one port. `TxBadLength` and `TxInvalLen` stand as ipathfs had them: crosswise to the registers' names.
pub(crate) const PORT: &[CounterName] = &[
    row("TxDataPktCnt_{p}", "TxPkt", Packets),
    row("TxFlowPktCnt_{p}", "TxFlowPkt", Packets),
    row("TxDwordCnt_{p}", "TxWords", Dwords),
    row("RxDataPktCnt_{p}", "RxPkt", Packets),
    row("RxFlowPktCnt_{p}", "RxFlowPkt", Packets),
    row("RxDwordCnt_{p}", "RxWords", Dwords),
    row("TxFlowStallCnt_{p}", "TxFlowStall", Ticks),
    row("TxSDmaDescCnt_{p}", "TxDmaDesc", Events),
    row("RxDlidFltrCnt_{p}", "RxDlidFltr", Packets),
    row("IBStatusChangeCnt_{p}", "IBStatusChng", Events),
    row("IBLinkDownedCnt_{p}", "IBLinkDown", Events),
    row("IBLinkErrRecoveryCnt_{p}", "IBLnkRecov", Events),
    row("RxLinkMalformCnt_{p}", "IBRxLinkErr", Events),
    row("IBSymbolErrCnt_{p}", "IBSymbolErr", Events),
    row("LocalLinkIntegrityErrCnt_{p}", "RxLLIErr", Events),
    row("RxVersionErrCnt_{p}", "RxBadFormat", Packets),
    row("RxLenErrCnt_{p}", "RxBadLen", Packets),
    row("RxBufOvflCnt_{p}", "RxBufOvrfl", Packets),
    row("RxEBPCnt_{p}", "RxEBP", Packets),
    row("RxFlowCtrlViolCnt_{p}", "RxFlowCtlErr", Packets),
    row("RxICRCErrCnt_{p}", "RxICRCerr", Packets),
    row("RxLPCRCErrCnt_{p}", "RxLPCRCerr", Packets),
    row("RxVCRCErrCnt_{p}", "RxVCRCerr", Packets),
    row("RxMaxMinLenErrCnt_{p}", "RxInvalLen", Packets),
    row("RxPKeyMismatchCnt_{p}", "RxInvalPKey", Packets),
    row("RxDroppedPktCnt_{p}", "RxPktDropped", Packets),
    row("TxMaxMinLenErrCnt_{p}", "TxBadLength", Packets),
    row("TxDroppedPktCnt_{p}", "TxDropped", Packets),
    row("TxLenErrCnt_{p}", "TxInvalLen", Packets),
    row("TxUnderrunCnt_{p}", "TxUnderrun", Packets),
    row("TxUnsupVLErrCnt_{p}", "TxUnsupVL", Packets),
    row("RxOtherLocalPhyErrCnt_{p}", "RxLclPhyErr", Packets),
    row("RxVL15DroppedPktCnt_{p}", "RxVL15Drop", Packets),
    row("RxVlErrCnt_{p}", "RxVlErr", Packets),
    row("ExcessBufferOvflCnt_{p}", "XcessBufOvfl", Events),
    row("RxQPInvalidContextCnt_{p}", "RxQPBadCtxt", Packets),
    row("TxHeadersErrCnt_{p}", "TXBadHeader", Packets),
    unlisted("LBIntCnt_{p}", Events),
    unlisted("TxCreditUpToDateTimeOut_{p}", Events),
    unlisted("RxLenTruncateCnt_{p}", Packets),
    unlisted("PSRcvDataCount_{p}", Dwords),
    unlisted("PSRcvPktsCount_{p}", Packets),
    unlisted("PSXmitDataCount_{p}", Dwords),
    unlisted("PSXmitPktsCount_{p}", Packets),
    unlisted("PSXmitWaitCount_{p}", Ticks),
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn all() -> impl Iterator<Item = &'static CounterName> {
        DEVICE.iter().chain(PORT)
    }

    /// B169: every counter of the map stands in the tables once, and every name is used once.
    #[test]
    fn tables_name_every_counter_of_the_map_once() {
        let counters = qhca_regs::map::rows().filter(|row| (0x11000..0x13000).contains(&row.offset));
        let in_map: BTreeSet<&str> = counters.map(|row| row.template).collect();
        let here: BTreeSet<&str> = all().map(|row| row.register).collect();
        assert_eq!(here, in_map);
        assert_eq!(all().count(), here.len());
        let ipath: BTreeSet<&str> = all().filter_map(|row| row.ipath).collect();
        assert_eq!(all().filter(|row| row.ipath.is_some()).count(), ipath.len());
    }

    #[test]
    fn ipath_names_fit_twelve_characters() {
        for name in all().filter_map(|row| row.ipath) {
            assert!(name.replace("{i}", "17").len() <= 13 && (name.len() <= 12 || name.contains("{i}")), "{name}");
        }
        assert!(DEVICE.iter().any(|row| row.ipath == Some(FIRST_DEVICE_ERROR)));
        assert!(PORT.iter().any(|row| row.ipath == Some(FIRST_PORT_ERROR)));
    }
}
