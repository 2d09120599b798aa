//! The status words of the chip: one name and one line a bit, unknown bits kept.
//!
//! Status, mask and clear register of a kind share one layout, so one type serves all three.

use crate::ids::{Ctxt, Port};
use crate::value::status;

status! {
    /// `IntStatus`, `IntMask`, `IntClear`: what wants attention.
    pub struct IntBits;
    /// `RcvAvail0`.
    RCV_AVAIL0 = 0 "RcvAvail0";
    /// `RcvAvail1`.
    RCV_AVAIL1 = 1 "RcvAvail1";
    /// `RcvAvail2`.
    RCV_AVAIL2 = 2 "RcvAvail2";
    /// `RcvAvail3`.
    RCV_AVAIL3 = 3 "RcvAvail3";
    /// `RcvAvail4`.
    RCV_AVAIL4 = 4 "RcvAvail4";
    /// `RcvAvail5`.
    RCV_AVAIL5 = 5 "RcvAvail5";
    /// `RcvAvail6`.
    RCV_AVAIL6 = 6 "RcvAvail6";
    /// `RcvAvail7`.
    RCV_AVAIL7 = 7 "RcvAvail7";
    /// `RcvAvail8`.
    RCV_AVAIL8 = 8 "RcvAvail8";
    /// `RcvAvail9`.
    RCV_AVAIL9 = 9 "RcvAvail9";
    /// `RcvAvail10`.
    RCV_AVAIL10 = 10 "RcvAvail10";
    /// `RcvAvail11`.
    RCV_AVAIL11 = 11 "RcvAvail11";
    /// `RcvAvail12`.
    RCV_AVAIL12 = 12 "RcvAvail12";
    /// `RcvAvail13`.
    RCV_AVAIL13 = 13 "RcvAvail13";
    /// `RcvAvail14`.
    RCV_AVAIL14 = 14 "RcvAvail14";
    /// `RcvAvail15`.
    RCV_AVAIL15 = 15 "RcvAvail15";
    /// `RcvAvail16`.
    RCV_AVAIL16 = 16 "RcvAvail16";
    /// `RcvAvail17`.
    RCV_AVAIL17 = 17 "RcvAvail17";
    /// `SendBufAvail`.
    SEND_BUF_AVAIL = 23 "SendBufAvail";
    /// `SendDone_0`.
    SEND_DONE_0 = 24 "SendDone_0";
    /// `SendDone_1`.
    SEND_DONE_1 = 25 "SendDone_1";
    /// `AssertGPIO`.
    ASSERT_GPIO = 28 "AssertGPIO";
    /// `Err`.
    ERR = 29 "Err";
    /// `Err_0`.
    ERR_0 = 30 "Err_0";
    /// `Err_1`.
    ERR_1 = 31 "Err_1";
    /// `RcvUrg0`.
    RCV_URG0 = 32 "RcvUrg0";
    /// `RcvUrg1`.
    RCV_URG1 = 33 "RcvUrg1";
    /// `RcvUrg2`.
    RCV_URG2 = 34 "RcvUrg2";
    /// `RcvUrg3`.
    RCV_URG3 = 35 "RcvUrg3";
    /// `RcvUrg4`.
    RCV_URG4 = 36 "RcvUrg4";
    /// `RcvUrg5`.
    RCV_URG5 = 37 "RcvUrg5";
    /// `RcvUrg6`.
    RCV_URG6 = 38 "RcvUrg6";
    /// `RcvUrg7`.
    RCV_URG7 = 39 "RcvUrg7";
    /// `RcvUrg8`.
    RCV_URG8 = 40 "RcvUrg8";
    /// `RcvUrg9`.
    RCV_URG9 = 41 "RcvUrg9";
    /// `RcvUrg10`.
    RCV_URG10 = 42 "RcvUrg10";
    /// `RcvUrg11`.
    RCV_URG11 = 43 "RcvUrg11";
    /// `RcvUrg12`.
    RCV_URG12 = 44 "RcvUrg12";
    /// `RcvUrg13`.
    RCV_URG13 = 45 "RcvUrg13";
    /// `RcvUrg14`.
    RCV_URG14 = 46 "RcvUrg14";
    /// `RcvUrg15`.
    RCV_URG15 = 47 "RcvUrg15";
    /// `RcvUrg16`.
    RCV_URG16 = 48 "RcvUrg16";
    /// `RcvUrg17`.
    RCV_URG17 = 49 "RcvUrg17";
    /// `SDmaCleanupDone_0`.
    SDMA_CLEANUP_DONE_0 = 56 "SDmaCleanupDone_0";
    /// `SDmaCleanupDone_1`.
    SDMA_CLEANUP_DONE_1 = 57 "SDmaCleanupDone_1";
    /// `SDmaIdleInt_0`.
    SDMA_IDLE_INT_0 = 58 "SDmaIdleInt_0";
    /// `SDmaIdleInt_1`.
    SDMA_IDLE_INT_1 = 59 "SDmaIdleInt_1";
    /// `SDmaProgressInt_0`.
    SDMA_PROGRESS_INT_0 = 60 "SDmaProgressInt_0";
    /// `SDmaProgressInt_1`.
    SDMA_PROGRESS_INT_1 = 61 "SDmaProgressInt_1";
    /// `SDmaInt_0`.
    SDMA_INT_0 = 62 "SDmaInt_0";
    /// `SDmaInt_1`.
    SDMA_INT_1 = 63 "SDmaInt_1";
}

status! {
    /// `ErrStatus`, `ErrMask`, `ErrClear`: errors of the whole chip.
    pub struct ErrBits;
    /// `RcvEgrFullErr`.
    RCV_EGR_FULL_ERR = 12 "RcvEgrFullErr";
    /// `RcvHdrFullErr`.
    RCV_HDR_FULL_ERR = 13 "RcvHdrFullErr";
    /// `SDmaBufMaskDuplicateErr`.
    SDMA_BUF_MASK_DUPLICATE_ERR = 25 "SDmaBufMaskDuplicateErr";
    /// `SDmaWrongPortErr`.
    SDMA_WRONG_PORT_ERR = 26 "SDmaWrongPortErr";
    /// `SendSpecialTriggerErr`.
    SEND_SPECIAL_TRIGGER_ERR = 27 "SendSpecialTriggerErr";
    /// `SendArmLaunchErr`.
    SEND_ARM_LAUNCH_ERR = 35 "SendArmLaunchErr";
    /// `SendVLMismatchErr`.
    SEND_VL_MISMATCH_ERR = 36 "SendVLMismatchErr";
    /// `RcvContextShareErr`.
    RCV_CONTEXT_SHARE_ERR = 52 "RcvContextShareErr";
    /// `InvalidEEPCmdErr`.
    INVALID_EEP_CMD_ERR = 53 "InvalidEEPCmdErr";
    /// `SBufVL15MisUseErr`.
    SBUF_VL15_MISUSE_ERR = 55 "SBufVL15MisUseErr";
    /// `SDmaVL15Err`.
    SDMA_VL15_ERR = 56 "SDmaVL15Err";
    /// `InvalidAddrErr`.
    INVALID_ADDR_ERR = 61 "InvalidAddrErr";
    /// `HardwareErr`.
    HARDWARE_ERR = 62 "HardwareErr";
    /// `ResetNegated`.
    RESET_NEGATED = 63 "ResetNegated";
}

status! {
    /// `HwErrStatus`, `HwErrMask`, `HwErrClear`: faults of the hardware itself.
    pub struct HwErrBits;
    /// `LATriggered`.
    LA_TRIGGERED = 11 "LATriggered";
    /// `statusValidNoEop`.
    STATUS_VALID_NO_EOP = 12 "statusValidNoEop";
    /// `IBCBusFromSPCParityErr_0`.
    IBC_BUS_FROM_SPC_PARITY_ERR_0 = 13 "IBCBusFromSPCParityErr_0";
    /// `IBCBusToSPCParityErr_1`.
    IBC_BUS_TO_SPC_PARITY_ERR_1 = 14 "IBCBusToSPCParityErr_1";
    /// `IBCBusFromSPCParityErr_1`.
    IBC_BUS_FROM_SPC_PARITY_ERR_1 = 15 "IBCBusFromSPCParityErr_1";
    /// `SDmaMemReadErr_0`.
    SDMA_MEM_READ_ERR_0 = 27 "SDmaMemReadErr_0";
    /// `SDmaMemReadErr_1`.
    SDMA_MEM_READ_ERR_1 = 28 "SDmaMemReadErr_1";
    /// `PciePoisonedTLP`.
    PCIE_POISONED_TLP = 29 "PciePoisonedTLP";
    /// `PcieCplTimeout`.
    PCIE_CPL_TIMEOUT = 30 "PcieCplTimeout";
    /// `PCIeBusParity`.
    PC_IE_BUS_PARITY = 31 ..= 33 "PCIeBusParity";
    /// `pcie_phy_txParityErr`.
    PCIE_PHY_TX_PARITY_ERR = 34 "pcie_phy_txParityErr";
    /// `MemoryErr`.
    MEMORY_ERR = 48 "MemoryErr";
    /// `TempsenseTholdReached`.
    TEMPSENSE_THOLD_REACHED = 53 "TempsenseTholdReached";
    /// `PowerOnBISTFailed`.
    POWER_ON_BIST_FAILED = 54 "PowerOnBISTFailed";
    /// `PCIESerdesPClkNotDetect`.
    PCIE_SERDES_P_CLK_NOT_DETECT = 55 "PCIESerdesPClkNotDetect";
    /// `IBSerdesPClkNotDetect_0`.
    IB_SERDES_P_CLK_NOT_DETECT_0 = 62 "IBSerdesPClkNotDetect_0";
    /// `IBSerdesPClkNotDetect_1`.
    IB_SERDES_P_CLK_NOT_DETECT_1 = 63 "IBSerdesPClkNotDetect_1";
}

status! {
    /// `ErrStatus_p`, `ErrMask_p`, `ErrClear_p`: errors of one port.
    pub struct PortErrBits;
    /// `RcvFormatErr`.
    RCV_FORMAT_ERR = 0 "RcvFormatErr";
    /// `RcvVCRCErr`.
    RCV_VCRC_ERR = 1 "RcvVCRCErr";
    /// `RcvICRCErr`.
    RCV_ICRC_ERR = 2 "RcvICRCErr";
    /// `RcvMinPktLenErr`.
    RCV_MIN_PKT_LEN_ERR = 3 "RcvMinPktLenErr";
    /// `RcvMaxPktLenErr`.
    RCV_MAX_PKT_LEN_ERR = 4 "RcvMaxPktLenErr";
    /// `RcvLongPktLenErr`.
    RCV_LONG_PKT_LEN_ERR = 5 "RcvLongPktLenErr";
    /// `RcvShortPktLenErr`.
    RCV_SHORT_PKT_LEN_ERR = 6 "RcvShortPktLenErr";
    /// `RcvUnexpectedCharErr`.
    RCV_UNEXPECTED_CHAR_ERR = 7 "RcvUnexpectedCharErr";
    /// `RcvUnsupportedVLErr`.
    RCV_UNSUPPORTED_VL_ERR = 8 "RcvUnsupportedVLErr";
    /// `RcvEBPErr`.
    RCV_EBP_ERR = 9 "RcvEBPErr";
    /// `RcvIBFlowErr`.
    RCV_IB_FLOW_ERR = 10 "RcvIBFlowErr";
    /// `RcvBadVersionErr`.
    RCV_BAD_VERSION_ERR = 11 "RcvBadVersionErr";
    /// `RcvBadTidErr`.
    RCV_BAD_TID_ERR = 14 "RcvBadTidErr";
    /// `RcvHdrLenErr`.
    RCV_HDR_LEN_ERR = 15 "RcvHdrLenErr";
    /// `RcvHdrErr`.
    RCV_HDR_ERR = 16 "RcvHdrErr";
    /// `RcvIBLostLinkErr`.
    RCV_IB_LOST_LINK_ERR = 17 "RcvIBLostLinkErr";
    /// `SendMinPktLenErr`.
    SEND_MIN_PKT_LEN_ERR = 29 "SendMinPktLenErr";
    /// `SendMaxPktLenErr`.
    SEND_MAX_PKT_LEN_ERR = 30 "SendMaxPktLenErr";
    /// `SendUnderRunErr`.
    SEND_UNDER_RUN_ERR = 31 "SendUnderRunErr";
    /// `SendPktLenErr`.
    SEND_PKT_LEN_ERR = 32 "SendPktLenErr";
    /// `SendDroppedSmpPktErr`.
    SEND_DROPPED_SMP_PKT_ERR = 33 "SendDroppedSmpPktErr";
    /// `SendDroppedDataPktErr`.
    SEND_DROPPED_DATA_PKT_ERR = 34 "SendDroppedDataPktErr";
    /// `SendUnexpectedPktNumErr`.
    SEND_UNEXPECTED_PKT_NUM_ERR = 36 "SendUnexpectedPktNumErr";
    /// `SendUnsupportedVLErr`.
    SEND_UNSUPPORTED_VL_ERR = 37 "SendUnsupportedVLErr";
    /// `SendBufMisuseErr`.
    SEND_BUF_MISUSE_ERR = 38 "SendBufMisuseErr";
    /// `SDmaGenMismatchErr`.
    SDMA_GEN_MISMATCH_ERR = 39 "SDmaGenMismatchErr";
    /// `SDmaOutOfBoundErr`.
    SDMA_OUT_OF_BOUND_ERR = 40 "SDmaOutOfBoundErr";
    /// `SDmaTailOutOfBoundErr`.
    SDMA_TAIL_OUT_OF_BOUND_ERR = 41 "SDmaTailOutOfBoundErr";
    /// `SDmaBaseErr`.
    SDMA_BASE_ERR = 42 "SDmaBaseErr";
    /// `SDma1stDescErr`.
    SDMA1ST_DESC_ERR = 43 "SDma1stDescErr";
    /// `SDmaRpyTagErr`.
    SDMA_RPY_TAG_ERR = 44 "SDmaRpyTagErr";
    /// `SDmaDwEnErr`.
    SDMA_DW_EN_ERR = 45 "SDmaDwEnErr";
    /// `SDmaMissingDwErr`.
    SDMA_MISSING_DW_ERR = 46 "SDmaMissingDwErr";
    /// `SDmaUnexpDataErr`.
    SDMA_UNEXP_DATA_ERR = 47 "SDmaUnexpDataErr";
    /// `SDmaDescAddrMisalignErr`.
    SDMA_DESC_ADDR_MISALIGN_ERR = 48 "SDmaDescAddrMisalignErr";
    /// `SDmaHaltErr`.
    SDMA_HALT_ERR = 49 "SDmaHaltErr";
    /// `VL15BufMisuseErr`.
    VL15_BUF_MISUSE_ERR = 54 "VL15BufMisuseErr";
    /// `SHeadersErr`.
    S_HEADERS_ERR = 57 "SHeadersErr";
    /// `IBStatusChanged`.
    IB_STATUS_CHANGED = 58 "IBStatusChanged";
}

status! {
    /// `SendHdrErrSymptom_p`: why a send check refused a packet.
    pub struct SendHdrSymptom;
    /// `PacketTooSmall`.
    PACKET_TOO_SMALL = 0 "PacketTooSmall";
    /// `RawIPV6`.
    RAW_IPV6 = 1 "RawIPV6";
    /// `SLIDFail`.
    SLID_FAIL = 2 "SLIDFail";
    /// `QPFail`.
    QP_FAIL = 3 "QPFail";
    /// `PkeyFail`.
    PKEY_FAIL = 4 "PkeyFail";
    /// `GRHFail`.
    GRH_FAIL = 5 "GRHFail";
    /// `NonKeyPacket`.
    NON_KEY_PACKET = 6 "NonKeyPacket";
}

impl IntBits {
    /// All `RcvAvail` bits, 17 to 0.
    pub const RCV_AVAIL_ALL: Self = Self::from_bits_retain(0x3_FFFF);
    /// All `RcvUrg` bits, 49 to 32.
    pub const RCV_URG_ALL: Self = Self::from_bits_retain(0x3_FFFF << 32);

    /// The `RcvAvail` bit of `ctxt`.
    pub const fn rcv_avail(ctxt: Ctxt) -> Self {
        Self::from_bits_retain(1 << ctxt.index())
    }

    /// The `RcvUrg` bit of `ctxt`.
    pub const fn rcv_urg(ctxt: Ctxt) -> Self {
        Self::from_bits_retain(1 << (32 + ctxt.index()))
    }

    /// The `Err_p` bit of `port`.
    pub const fn err_port(port: Port) -> Self {
        Self::from_bits_retain(1 << (30 + port.index()))
    }
}
