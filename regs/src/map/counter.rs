//! Counters: of the chip from 0x11000, of port 0 from 0x12000, of port 1 from 0x13000.

use super::registers;

const EXTRA: bool = false;

registers! {
    LB_INT_CNT: one Rw u64 @ 0x11000, "LBIntCnt", reset 0x0, unknown 0x0;
    LB_FLOW_STALL_CNT: one Rw u64 @ 0x11008, "LBFlowStallCnt", reset 0x0, unknown 0x0;
    RX_TID_FULL_ERR_CNT: one Rw u64 @ 0x110d0, "RxTIDFullErrCnt", reset 0x0, unknown 0x0;
    RX_TID_VALID_ERR_CNT: one Rw u64 @ 0x110d8, "RxTIDValidErrCnt", reset 0x0, unknown 0x0;
    RX_HDR_EGR_OVFL_CNT: row[18; 8] Rw u64 @ 0x110e8, "RxP{i}HdrEgrOvflCnt", reset 0x0, unknown 0x0;
    PCIE_RETRY_BUF_DIAG_QWORD_CNT: one Rw u64 @ 0x111a0, "PcieRetryBufDiagQwordCnt", reset 0x0, unknown 0x0;
    RX_TID_FLOW_DROP_CNT: one Rw u64 @ 0x111e0, "RxTidFlowDropCnt", reset 0x0, unknown 0x0;
    LB_INT_CNT_P: port Rw u64 @ 0x12000, "LBIntCnt_{p}", reset 0x0, unknown 0x0;
    TX_CREDIT_UP_TO_DATE_TIMEOUT: port Rw u64 @ 0x12008, "TxCreditUpToDateTimeOut_{p}", reset 0x0, unknown 0x0;
    TX_SDMA_DESC_CNT: port Rw u64 @ 0x12010, "TxSDmaDescCnt_{p}", reset 0x0, unknown 0x0;
    TX_UNSUP_VL_ERR_CNT: port Rw u64 @ 0x12018, "TxUnsupVLErrCnt_{p}", reset 0x0, unknown 0x0;
    TX_DATA_PKT_CNT: port Rw u64 @ 0x12020, "TxDataPktCnt_{p}", reset 0x0, unknown 0x0;
    TX_FLOW_PKT_CNT: port Rw u64 @ 0x12028, "TxFlowPktCnt_{p}", reset 0x0, unknown 0x0;
    TX_DWORD_CNT: port Rw u64 @ 0x12030, "TxDwordCnt_{p}", reset 0x0, unknown 0x0;
    TX_LEN_ERR_CNT: port Rw u64 @ 0x12038, "TxLenErrCnt_{p}", reset 0x0, unknown 0x0;
    TX_MAX_MIN_LEN_ERR_CNT: port Rw u64 @ 0x12040, "TxMaxMinLenErrCnt_{p}", reset 0x0, unknown 0x0;
    TX_UNDERRUN_CNT: port Rw u64 @ 0x12048, "TxUnderrunCnt_{p}", reset 0x0, unknown 0x0;
    TX_FLOW_STALL_CNT: port Rw u64 @ 0x12050, "TxFlowStallCnt_{p}", reset 0x0, unknown 0x0;
    TX_DROPPED_PKT_CNT: port Rw u64 @ 0x12058, "TxDroppedPktCnt_{p}", reset 0x0, unknown 0x0;
    RX_DROPPED_PKT_CNT: port Rw u64 @ 0x12060, "RxDroppedPktCnt_{p}", reset 0x0, unknown 0x0;
    RX_DATA_PKT_CNT: port Rw u64 @ 0x12068, "RxDataPktCnt_{p}", reset 0x0, unknown 0x0;
    RX_FLOW_PKT_CNT: port Rw u64 @ 0x12070, "RxFlowPktCnt_{p}", reset 0x0, unknown 0x0;
    RX_DWORD_CNT: port Rw u64 @ 0x12078, "RxDwordCnt_{p}", reset 0x0, unknown 0x0;
    RX_LEN_ERR_CNT: port Rw u64 @ 0x12080, "RxLenErrCnt_{p}", reset 0x0, unknown 0x0;
    RX_MAX_MIN_LEN_ERR_CNT: port Rw u64 @ 0x12088, "RxMaxMinLenErrCnt_{p}", reset 0x0, unknown 0x0;
    RX_ICRC_ERR_CNT: port Rw u64 @ 0x12090, "RxICRCErrCnt_{p}", reset 0x0, unknown 0x0;
    RX_VCRC_ERR_CNT: port Rw u64 @ 0x12098, "RxVCRCErrCnt_{p}", reset 0x0, unknown 0x0;
    RX_FLOW_CTRL_VIOL_CNT: port Rw u64 @ 0x120a0, "RxFlowCtrlViolCnt_{p}", reset 0x0, unknown 0x0;
    RX_VERSION_ERR_CNT: port Rw u64 @ 0x120a8, "RxVersionErrCnt_{p}", reset 0x0, unknown 0x0;
    RX_LINK_MALFORM_CNT: port Rw u64 @ 0x120b0, "RxLinkMalformCnt_{p}", reset 0x0, unknown 0x0;
    RX_EBP_CNT: port Rw u64 @ 0x120b8, "RxEBPCnt_{p}", reset 0x0, unknown 0x0;
    RX_LPCRC_ERR_CNT: port Rw u64 @ 0x120c0, "RxLPCRCErrCnt_{p}", reset 0x0, unknown 0x0;
    RX_BUF_OVFL_CNT: port Rw u64 @ 0x120c8, "RxBufOvflCnt_{p}", reset 0x0, unknown 0x0;
    RX_LEN_TRUNCATE_CNT: port Rw u64 @ 0x120d0, "RxLenTruncateCnt_{p}", reset 0x0, unknown 0x0;
    RX_P_KEY_MISMATCH_CNT: port Rw u64 @ 0x120e0, "RxPKeyMismatchCnt_{p}", reset 0x0, unknown 0x0;
    IB_LINK_DOWNED_CNT: port Rw u64 @ 0x12180, "IBLinkDownedCnt_{p}", reset 0x0, unknown 0x0;
    IB_SYMBOL_ERR_CNT: port Rw u64 @ 0x12188, "IBSymbolErrCnt_{p}", reset 0x0, unknown 0x0;
    IB_STATUS_CHANGE_CNT: port Rw u64 @ 0x12190, "IBStatusChangeCnt_{p}", reset 0x0, unknown 0x0;
    IB_LINK_ERR_RECOVERY_CNT: port Rw u64 @ 0x12198, "IBLinkErrRecoveryCnt_{p}", reset 0x0, unknown 0x0;
    EXCESS_BUFFER_OVFL_CNT: port Rw u64 @ 0x121a8, "ExcessBufferOvflCnt_{p}", reset 0x0, unknown 0x0;
    LOCAL_LINK_INTEGRITY_ERR_CNT: port Rw u64 @ 0x121b0, "LocalLinkIntegrityErrCnt_{p}", reset 0x0, unknown 0x0;
    RX_VL_ERR_CNT: port Rw u64 @ 0x121b8, "RxVlErrCnt_{p}", reset 0x0, unknown 0x0;
    RX_DLID_FLTR_CNT: port Rw u64 @ 0x121c0, "RxDlidFltrCnt_{p}", reset 0x0, unknown 0x0;
    RX_VL15_DROPPED_PKT_CNT: port Rw u64 @ 0x121c8, "RxVL15DroppedPktCnt_{p}", reset 0x0, unknown 0x0;
    RX_OTHER_LOCAL_PHY_ERR_CNT: port Rw u64 @ 0x121d0, "RxOtherLocalPhyErrCnt_{p}", reset 0x0, unknown 0x0;
    RX_QP_INVALID_CONTEXT_CNT: port Rw u64 @ 0x121d8, "RxQPInvalidContextCnt_{p}", reset 0x0, unknown 0x0;
    TX_HEADERS_ERR_CNT: port Rw u64 @ 0x121f8, "TxHeadersErrCnt_{p}", reset 0x0, unknown 0x0;
    PS_RCV_DATA_COUNT: port Rw u64 @ 0x12218, "PSRcvDataCount_{p}", reset 0x0, unknown 0x0;
    PS_RCV_PKTS_COUNT: port Rw u64 @ 0x12220, "PSRcvPktsCount_{p}", reset 0x0, unknown 0x0;
    PS_XMIT_DATA_COUNT: port Rw u64 @ 0x12228, "PSXmitDataCount_{p}", reset 0x0, unknown 0x0;
    PS_XMIT_PKTS_COUNT: port Rw u64 @ 0x12230, "PSXmitPktsCount_{p}", reset 0x0, unknown 0x0;
    PS_XMIT_WAIT_COUNT: port Rw u64 @ 0x12238, "PSXmitWaitCount_{p}", reset 0x0, unknown 0x0;
}
