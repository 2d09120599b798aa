//! The status words of the chip: one name and one line a bit, unknown bits kept.
//!
//! Status, mask and clear register of a kind share one layout, so one type serves all three.

use crate::ids::{Ctxt, Port};
use crate::value::status;

status! {
    /// `IntStatus`, `IntMask`, `IntClear`: what wants attention.
    pub struct IntBits;
    /// Packets wait in context 0: its count or its timeout was reached.
    RCV_AVAIL0 = 0 "RcvAvail0";
    /// Packets wait in context 1: its count or its timeout was reached.
    RCV_AVAIL1 = 1 "RcvAvail1";
    /// Packets wait in context 2: its count or its timeout was reached.
    RCV_AVAIL2 = 2 "RcvAvail2";
    /// Packets wait in context 3: its count or its timeout was reached.
    RCV_AVAIL3 = 3 "RcvAvail3";
    /// Packets wait in context 4: its count or its timeout was reached.
    RCV_AVAIL4 = 4 "RcvAvail4";
    /// Packets wait in context 5: its count or its timeout was reached.
    RCV_AVAIL5 = 5 "RcvAvail5";
    /// Packets wait in context 6: its count or its timeout was reached.
    RCV_AVAIL6 = 6 "RcvAvail6";
    /// Packets wait in context 7: its count or its timeout was reached.
    RCV_AVAIL7 = 7 "RcvAvail7";
    /// Packets wait in context 8: its count or its timeout was reached.
    RCV_AVAIL8 = 8 "RcvAvail8";
    /// Packets wait in context 9: its count or its timeout was reached.
    RCV_AVAIL9 = 9 "RcvAvail9";
    /// Packets wait in context 10: its count or its timeout was reached.
    RCV_AVAIL10 = 10 "RcvAvail10";
    /// Packets wait in context 11: its count or its timeout was reached.
    RCV_AVAIL11 = 11 "RcvAvail11";
    /// Packets wait in context 12: its count or its timeout was reached.
    RCV_AVAIL12 = 12 "RcvAvail12";
    /// Packets wait in context 13: its count or its timeout was reached.
    RCV_AVAIL13 = 13 "RcvAvail13";
    /// Packets wait in context 14: its count or its timeout was reached.
    RCV_AVAIL14 = 14 "RcvAvail14";
    /// Packets wait in context 15: its count or its timeout was reached.
    RCV_AVAIL15 = 15 "RcvAvail15";
    /// Packets wait in context 16: its count or its timeout was reached.
    RCV_AVAIL16 = 16 "RcvAvail16";
    /// Packets wait in context 17: its count or its timeout was reached.
    RCV_AVAIL17 = 17 "RcvAvail17";
    /// A send buffer became free while `SendIntBufAvail` asked to be told.
    SEND_BUF_AVAIL = 23 "SendBufAvail";
    /// Port 0 sent a packet whose PBC asked for this interrupt.
    SEND_DONE_0 = 24 "SendDone_0";
    /// Port 1 sent a packet whose PBC asked for this interrupt.
    SEND_DONE_1 = 25 "SendDone_1";
    /// A general-purpose pin that is not masked has its status set: on QSFP boards, module present.
    ASSERT_GPIO = 28 "AssertGPIO";
    /// Summary: `ErrStatus` has a bit that `ErrMask` lets through.
    ERR = 29 "Err";
    /// Summary: port 0's `ErrStatus_p` has a bit that its mask lets through.
    ERR_0 = 30 "Err_0";
    /// Summary: port 1's `ErrStatus_p` has a bit that its mask lets through.
    ERR_1 = 31 "Err_1";
    /// A packet marked urgent arrived in context 0.
    RCV_URG0 = 32 "RcvUrg0";
    /// A packet marked urgent arrived in context 1.
    RCV_URG1 = 33 "RcvUrg1";
    /// A packet marked urgent arrived in context 2.
    RCV_URG2 = 34 "RcvUrg2";
    /// A packet marked urgent arrived in context 3.
    RCV_URG3 = 35 "RcvUrg3";
    /// A packet marked urgent arrived in context 4.
    RCV_URG4 = 36 "RcvUrg4";
    /// A packet marked urgent arrived in context 5.
    RCV_URG5 = 37 "RcvUrg5";
    /// A packet marked urgent arrived in context 6.
    RCV_URG6 = 38 "RcvUrg6";
    /// A packet marked urgent arrived in context 7.
    RCV_URG7 = 39 "RcvUrg7";
    /// A packet marked urgent arrived in context 8.
    RCV_URG8 = 40 "RcvUrg8";
    /// A packet marked urgent arrived in context 9.
    RCV_URG9 = 41 "RcvUrg9";
    /// A packet marked urgent arrived in context 10.
    RCV_URG10 = 42 "RcvUrg10";
    /// A packet marked urgent arrived in context 11.
    RCV_URG11 = 43 "RcvUrg11";
    /// A packet marked urgent arrived in context 12.
    RCV_URG12 = 44 "RcvUrg12";
    /// A packet marked urgent arrived in context 13.
    RCV_URG13 = 45 "RcvUrg13";
    /// A packet marked urgent arrived in context 14.
    RCV_URG14 = 46 "RcvUrg14";
    /// A packet marked urgent arrived in context 15.
    RCV_URG15 = 47 "RcvUrg15";
    /// A packet marked urgent arrived in context 16.
    RCV_URG16 = 48 "RcvUrg16";
    /// A packet marked urgent arrived in context 17.
    RCV_URG17 = 49 "RcvUrg17";
    /// Port 0's send DMA engine has finished its clean-up.
    SDMA_CLEANUP_DONE_0 = 56 "SDmaCleanupDone_0";
    /// Port 1's send DMA engine has finished its clean-up.
    SDMA_CLEANUP_DONE_1 = 57 "SDmaCleanupDone_1";
    /// Port 0's send DMA idle timer ran out: completed descriptors wait to be reaped.
    SDMA_IDLE_INT_0 = 58 "SDmaIdleInt_0";
    /// Port 1's send DMA idle timer ran out: completed descriptors wait to be reaped.
    SDMA_IDLE_INT_1 = 59 "SDmaIdleInt_1";
    /// Port 0's send DMA engine retired as many descriptors as its `DescCnt` says.
    SDMA_PROGRESS_INT_0 = 60 "SDmaProgressInt_0";
    /// Port 1's send DMA engine retired as many descriptors as its `DescCnt` says.
    SDMA_PROGRESS_INT_1 = 61 "SDmaProgressInt_1";
    /// Port 0's send DMA engine finished a descriptor that asked for this interrupt.
    SDMA_INT_0 = 62 "SDmaInt_0";
    /// Port 1's send DMA engine finished a descriptor that asked for this interrupt.
    SDMA_INT_1 = 63 "SDmaInt_1";
}

status! {
    /// `ErrStatus`, `ErrMask`, `ErrClear`: errors of the whole chip.
    pub struct ErrBits;
    /// A packet found no free eager buffer in its context; which one, only its overflow counter tells.
    RCV_EGR_FULL_ERR = 12 "RcvEgrFullErr";
    /// A packet found no free header-queue entry in its context; which one, only its overflow counter tells.
    RCV_HDR_FULL_ERR = 13 "RcvHdrFullErr";
    /// One send buffer is given to both ports' send DMA engines.
    SDMA_BUF_MASK_DUPLICATE_ERR = 25 "SDmaBufMaskDuplicateErr";
    /// A send DMA packet names the port whose engine it does not use.
    SDMA_WRONG_PORT_ERR = 26 "SDmaWrongPortErr";
    /// The word that triggers a send in special-trigger mode was wrong or out of place.
    SEND_SPECIAL_TRIGGER_ERR = 27 "SendSpecialTriggerErr";
    /// A send buffer got more, fewer or other words than its PBC announced before the packet was launched.
    SEND_ARM_LAUNCH_ERR = 35 "SendArmLaunchErr";
    /// The virtual lane in a packet's PBC is not the one in its LRH.
    SEND_VL_MISMATCH_ERR = 36 "SendVLMismatchErr";
    /// One receive context is enabled for both ports.
    RCV_CONTEXT_SHARE_ERR = 52 "RcvContextShareErr";
    /// The EEPROM controller was given a command that it does not know.
    INVALID_EEP_CMD_ERR = 53 "InvalidEEPCmdErr";
    /// A VL 15 send buffer was used for another lane, or another buffer for VL 15.
    SBUF_VL15_MISUSE_ERR = 55 "SBufVL15MisUseErr";
    /// Send DMA was asked to send on VL 15.
    SDMA_VL15_ERR = 56 "SDmaVL15Err";
    /// An access hit an address that the chip does not decode.
    INVALID_ADDR_ERR = 61 "InvalidAddrErr";
    /// Summary: `HwErrStatus` has a bit that its mask lets through.
    HARDWARE_ERR = 62 "HardwareErr";
    /// The chip has reset itself: all state is lost.
    RESET_NEGATED = 63 "ResetNegated";
}

status! {
    /// `HwErrStatus`, `HwErrMask`, `HwErrClear`: faults of the hardware itself.
    pub struct HwErrBits;
    /// The logic analyser was triggered; nothing is wrong.
    LA_TRIGGERED = 11 "LATriggered";
    /// The link block gave a packet's status without its end; expected around a reset of the physical layer.
    STATUS_VALID_NO_EOP = 12 "statusValidNoEop";
    /// Parity error on the bus from the SerDes controller to port 0's link block.
    IBC_BUS_FROM_SPC_PARITY_ERR_0 = 13 "IBCBusFromSPCParityErr_0";
    /// Parity error on the bus from port 1's link block to the SerDes controller.
    IBC_BUS_TO_SPC_PARITY_ERR_1 = 14 "IBCBusToSPCParityErr_1";
    /// Parity error on the bus from the SerDes controller to port 1's link block.
    IBC_BUS_FROM_SPC_PARITY_ERR_1 = 15 "IBCBusFromSPCParityErr_1";
    /// A memory read of port 0's send DMA engine failed on PCIe.
    SDMA_MEM_READ_ERR_0 = 27 "SDmaMemReadErr_0";
    /// A memory read of port 1's send DMA engine failed on PCIe.
    SDMA_MEM_READ_ERR_1 = 28 "SDmaMemReadErr_1";
    /// A PCIe packet came in marked as poisoned.
    PCIE_POISONED_TLP = 29 "PciePoisonedTLP";
    /// A PCIe read of the chip was not answered in time.
    PCIE_CPL_TIMEOUT = 30 "PcieCplTimeout";
    /// Parity errors inside the PCIe block, three places.
    PC_IE_BUS_PARITY = 31 ..= 33 "PCIeBusParity";
    /// Parity error in the transmit half of the PCIe physical layer.
    PCIE_PHY_TX_PARITY_ERR = 34 "pcie_phy_txParityErr";
    /// An internal memory had an error that could not be corrected.
    MEMORY_ERR = 48 "MemoryErr";
    /// The temperature sensor has reached its limit.
    TEMPSENSE_THOLD_REACHED = 53 "TempsenseTholdReached";
    /// The self-test at power-on failed: the device is unusable.
    POWER_ON_BIST_FAILED = 54 "PowerOnBISTFailed";
    /// The PCIe SerDes has no clock.
    PCIE_SERDES_P_CLK_NOT_DETECT = 55 "PCIESerdesPClkNotDetect";
    /// Port 0's SerDes has no clock.
    IB_SERDES_P_CLK_NOT_DETECT_0 = 62 "IBSerdesPClkNotDetect_0";
    /// Port 1's SerDes has no clock.
    IB_SERDES_P_CLK_NOT_DETECT_1 = 63 "IBSerdesPClkNotDetect_1";
}

status! {
    /// `ErrStatus_p`, `ErrMask_p`, `ErrClear_p`: errors of one port.
    pub struct PortErrBits;
    /// A packet's format does not exist.
    RCV_FORMAT_ERR = 0 "RcvFormatErr";
    /// A packet's link-level check sum was wrong.
    RCV_VCRC_ERR = 1 "RcvVCRCErr";
    /// A packet's end-to-end check sum was wrong.
    RCV_ICRC_ERR = 2 "RcvICRCErr";
    /// A packet was shorter than any may be.
    RCV_MIN_PKT_LEN_ERR = 3 "RcvMinPktLenErr";
    /// A packet was longer than any may be.
    RCV_MAX_PKT_LEN_ERR = 4 "RcvMaxPktLenErr";
    /// A packet had more words than its LRH says.
    RCV_LONG_PKT_LEN_ERR = 5 "RcvLongPktLenErr";
    /// A packet had fewer words than its LRH says.
    RCV_SHORT_PKT_LEN_ERR = 6 "RcvShortPktLenErr";
    /// A control character came where none may be.
    RCV_UNEXPECTED_CHAR_ERR = 7 "RcvUnexpectedCharErr";
    /// A packet came on a virtual lane that is not in use.
    RCV_UNSUPPORTED_VL_ERR = 8 "RcvUnsupportedVLErr";
    /// A packet ended with the mark by which its sender takes it back.
    RCV_EBP_ERR = 9 "RcvEBPErr";
    /// A flow-control packet broke the credit rules.
    RCV_IB_FLOW_ERR = 10 "RcvIBFlowErr";
    /// A packet's LRH has an unknown version.
    RCV_BAD_VERSION_ERR = 11 "RcvBadVersionErr";
    /// A KD packet named a TID that is not valid.
    RCV_BAD_TID_ERR = 14 "RcvBadTidErr";
    /// A packet's header had the wrong length.
    RCV_HDR_LEN_ERR = 15 "RcvHdrLenErr";
    /// A KD header's version or checksum was wrong.
    RCV_HDR_ERR = 16 "RcvHdrErr";
    /// The link was lost in the middle of a packet.
    RCV_IB_LOST_LINK_ERR = 17 "RcvIBLostLinkErr";
    /// A packet to be sent was shorter than any may be.
    SEND_MIN_PKT_LEN_ERR = 29 "SendMinPktLenErr";
    /// A packet to be sent was longer than `MaxPktLen` allows.
    SEND_MAX_PKT_LEN_ERR = 30 "SendMaxPktLenErr";
    /// A packet's words did not reach the link in time.
    SEND_UNDER_RUN_ERR = 31 "SendUnderRunErr";
    /// The length in a packet's PBC does not fit its LRH.
    SEND_PKT_LEN_ERR = 32 "SendPktLenErr";
    /// A management packet was dropped because the link is not up.
    SEND_DROPPED_SMP_PKT_ERR = 33 "SendDroppedSmpPktErr";
    /// A data packet was dropped because the link is not active.
    SEND_DROPPED_DATA_PKT_ERR = 34 "SendDroppedDataPktErr";
    /// A send buffer with an unexpected number came up for sending.
    SEND_UNEXPECTED_PKT_NUM_ERR = 36 "SendUnexpectedPktNumErr";
    /// A packet was to be sent on a virtual lane that is not in use.
    SEND_UNSUPPORTED_VL_ERR = 37 "SendUnsupportedVLErr";
    /// A send buffer was written that belongs to send DMA, or was used against its set-up.
    SEND_BUF_MISUSE_ERR = 38 "SendBufMisuseErr";
    /// A send DMA descriptor carries another generation than its queue.
    SDMA_GEN_MISMATCH_ERR = 39 "SDmaGenMismatchErr";
    /// A send DMA piece reaches past the end of its send buffer.
    SDMA_OUT_OF_BOUND_ERR = 40 "SDmaOutOfBoundErr";
    /// The send DMA tail lies past the end of the queue.
    SDMA_TAIL_OUT_OF_BOUND_ERR = 41 "SDmaTailOutOfBoundErr";
    /// The send DMA queue's base address is not valid.
    SDMA_BASE_ERR = 42 "SDmaBaseErr";
    /// A send DMA packet does not start with a descriptor marked first.
    SDMA1ST_DESC_ERR = 43 "SDma1stDescErr";
    /// A memory read of the send DMA engine was answered with the wrong tag.
    SDMA_RPY_TAG_ERR = 44 "SDmaRpyTagErr";
    /// A memory read of the send DMA engine was answered with the wrong bytes enabled.
    SDMA_DW_EN_ERR = 45 "SDmaDwEnErr";
    /// A memory read of the send DMA engine was answered with words missing.
    SDMA_MISSING_DW_ERR = 46 "SDmaMissingDwErr";
    /// The send DMA engine got data that it had not asked for.
    SDMA_UNEXP_DATA_ERR = 47 "SDmaUnexpDataErr";
    /// A send DMA descriptor's address is not a multiple of 4.
    SDMA_DESC_ADDR_MISALIGN_ERR = 48 "SDmaDescAddrMisalignErr";
    /// The send DMA engine has halted: not an error by itself, it tells the state machine.
    SDMA_HALT_ERR = 49 "SDmaHaltErr";
    /// The port's VL 15 send buffer was used for something else.
    VL15_BUF_MISUSE_ERR = 54 "VL15BufMisuseErr";
    /// A send check refused a packet: `SendHdrErrSymptom` says why.
    S_HEADERS_ERR = 57 "SHeadersErr";
    /// The link's state changed: `IBCStatusA` tells to what.
    IB_STATUS_CHANGED = 58 "IBStatusChanged";
}

status! {
    /// `SendHdrErrSymptom_p`: why a send check refused a packet.
    pub struct SendHdrSymptom;
    /// The packet is too short to be checked.
    PACKET_TOO_SMALL = 0 "PacketTooSmall";
    /// The packet is a raw IPv6 packet.
    RAW_IPV6 = 1 "RawIPV6";
    /// The packet's source LID is not the port's.
    SLID_FAIL = 2 "SLIDFail";
    /// The packet's QP is not one that the buffer may use.
    QP_FAIL = 3 "QPFail";
    /// The packet's P_Key is not one that the context may use.
    PKEY_FAIL = 4 "PkeyFail";
    /// The packet has a GRH and the buffer may not send one.
    GRH_FAIL = 5 "GRHFail";
    /// The packet is plain InfiniBand and the buffer may send KD packets only.
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
