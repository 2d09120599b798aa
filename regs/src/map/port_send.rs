//! Registers of one port: sending, send DMA, credits, send checks.

use super::{contents, registers};
use crate::status::SendHdrSymptom;

const EXTRA: bool = false;

registers! {
    SEND_DMA_IDLE_CNT: port Ro SendDmaIdleCnt @ 0x1180, "SendDmaIdleCnt_{p}", reset 0x0, unknown 0x0;
    SEND_DMA_RELOAD_CNT: port Rw SendDmaReloadCnt @ 0x1188, "SendDmaReloadCnt_{p}", reset 0x0, unknown 0x0;
    SEND_DMA_DESC_CNT: port Rw SendDmaDescCnt @ 0x1190, "SendDmaDescCnt_{p}", reset 0x0, unknown 0x0;
    SEND_CTRL: port Rw SendCtrl @ 0x11c0, "SendCtrl_{p}", reset 0x0, unknown 0x0;
    SEND_DMA_BASE: port Rw SendDmaBase @ 0x11f8, "SendDmaBase_{p}", reset 0x0, unknown 0x0;
    SEND_DMA_LEN_GEN: port Rw SendDmaLenGen @ 0x1200, "SendDmaLenGen_{p}", reset 0x0, unknown 0x0;
    SEND_DMA_TAIL: port Rw SendDmaTail @ 0x1208, "SendDmaTail_{p}", reset 0x0, unknown 0x0;
    SEND_DMA_HEAD: port Ro SendDmaHead @ 0x1210, "SendDmaHead_{p}", reset 0x0, unknown 0x0;
    SEND_DMA_HEAD_ADDR: port Rw SendDmaHeadAddr @ 0x1218, "SendDmaHeadAddr_{p}", reset 0x0, unknown 0x0;
    SEND_DMA_BUF_MASK: port_row[3; 8] Rw u64 @ 0x1220, "SendDmaBufMask{i}_{p}", reset 0x0, unknown 0x0;
    SEND_DMA_STATUS: port Ro SendDmaStatus @ 0x1238, "SendDmaStatus_{p}", reset 0x42000000, unknown 0x0;
    SEND_DMA_PRIORITY_THLD: port Rw SendDmaPriorityThld @ 0x1258, "SendDmaPriorityThld_{p}", reset 0x0, unknown 0x0;
    SEND_HDR_ERR_SYMPTOM: port Rw SendHdrSymptom @ 0x1260, "SendHdrErrSymptom_{p}", reset 0x0, unknown 0x0;
    RX_CREDIT_VL: port_row[8; 8] Rw RxCreditVl @ 0x1280, "RxCreditVL{i}_{p}", reset 0x0, unknown 0x0;
    RX_CREDIT_VL15: port Rw RxCreditVl @ 0x12f8, "RxCreditVL15_{p}", reset 0x0, unknown 0x0;
    SEND_DMA_BUF_USED: port_row[3; 8] Ro u64 @ 0x1480, "SendDmaBufUsed{i}_{p}", reset 0x0, unknown 0x0;
    SEND_CHECK_CONTROL: port Rw SendCheckControl @ 0x14a8, "SendCheckControl_{p}", reset 0x0, unknown 0x0;
    SEND_IBSLID_MASK: port Rw SendIbslidMask @ 0x14b0, "SendIBSLIDMask_{p}", reset 0x0, unknown 0x0;
    SEND_IBSLID_ASSIGN: port Rw SendIbslidAssign @ 0x14b8, "SendIBSLIDAssign_{p}", reset 0x0, unknown 0x0;
}

contents! {
    /// Contents of `SendDmaIdleCnt`.
    pub struct SendDmaIdleCnt;
    send_dma_idle_cnt / with_send_dma_idle_cnt: u16 [0..=15] "SendDmaIdleCnt";
}

contents! {
    /// Contents of `SendDmaReloadCnt`.
    pub struct SendDmaReloadCnt;
    send_dma_reload_cnt / with_send_dma_reload_cnt: u16 [0..=15] "SendDmaReloadCnt";
}

contents! {
    /// Contents of `SendDmaDescCnt`.
    pub struct SendDmaDescCnt;
    send_dma_desc_cnt / with_send_dma_desc_cnt: u16 [0..=15] "SendDmaDescCnt";
}

contents! {
    /// Contents of `SendCtrl`.
    pub struct SendCtrl;
    txe_abort_ibc / with_txe_abort_ibc: bool [0] "TxeAbortIbc";
    txe_bypass_ibc / with_txe_bypass_ibc: bool [1] "TxeBypassIbc";
    send_enable / with_send_enable: bool [3] "SendEnable";
    force_credit_up_to_date / with_force_credit_up_to_date: bool [7] "ForceCreditUpToDate";
    sdma_cleanup / with_sdma_cleanup: bool [8] "SDmaCleanup";
    sdma_int_enable / with_sdma_int_enable: bool [9] "SDmaIntEnable";
    sdma_single_descriptor / with_sdma_single_descriptor: bool [10] "SDmaSingleDescriptor";
    sdma_enable / with_sdma_enable: bool [11] "SDmaEnable";
    sdma_halt / with_sdma_halt: bool [12] "SDmaHalt";
    txe_drain_la_fifo / with_txe_drain_la_fifo: bool [13] "TxeDrainLaFifo";
    txe_drain_rm_fifo / with_txe_drain_rm_fifo: bool [14] "TxeDrainRmFifo";
    ibvl_arbiter_en / with_ibvl_arbiter_en: bool [15] "IBVLArbiterEn";
}

contents! {
    /// Contents of `SendDmaBase`.
    pub struct SendDmaBase;
    send_dma_base / with_send_dma_base: u64 [0..=47] "SendDmaBase";
}

contents! {
    /// Contents of `SendDmaLenGen`.
    pub struct SendDmaLenGen;
    length / with_length: u16 [0..=15] "Length";
    generation / with_generation: u8 [16..=18] "Generation";
}

contents! {
    /// Contents of `SendDmaTail`.
    pub struct SendDmaTail;
    send_dma_tail / with_send_dma_tail: u16 [0..=15] "SendDmaTail";
}

contents! {
    /// Contents of `SendDmaHead`.
    pub struct SendDmaHead;
    send_dma_head / with_send_dma_head: u16 [0..=15] "SendDmaHead";
    internal_send_dma_head / with_internal_send_dma_head: u16 [32..=47] "InternalSendDmaHead";
}

contents! {
    /// Contents of `SendDmaHeadAddr`.
    pub struct SendDmaHeadAddr;
    send_dma_head_addr / with_send_dma_head_addr: u64 [0..=47] "SendDmaHeadAddr";
}

contents! {
    /// Contents of `SendDmaStatus`.
    pub struct SendDmaStatus;
    spl_fifo_desc_index / with_spl_fifo_desc_index: u16 [0..=15] "SplFifoDescIndex";
    spl_fifo_buf_num / with_spl_fifo_buf_num: u8 [16..=23] "SplFifoBufNum";
    spl_fifo_full / with_spl_fifo_full: bool [24] "SplFifoFull";
    spl_fifo_empty / with_spl_fifo_empty: bool [25] "SplFifoEmpty";
    spl_fifo_disarmed / with_spl_fifo_disarmed: bool [26] "SplFifoDisarmed";
    spl_fifo_ready_to_go / with_spl_fifo_ready_to_go: bool [27] "SplFifoReadyToGo";
    scb_fetch_desc_flag / with_scb_fetch_desc_flag: bool [28] "ScbFetchDescFlag";
    scb_entry_valid / with_scb_entry_valid: bool [29] "ScbEntryValid";
    scb_empty / with_scb_empty: bool [30] "ScbEmpty";
    scb_full / with_scb_full: bool [31] "ScbFull";
    rpy_tag_7_0 / with_rpy_tag_7_0: u8 [32..=39] "RpyTag_7_0";
    rpy_low_addr_6_0 / with_rpy_low_addr_6_0: u8 [40..=46] "RpyLowAddr_6_0";
    scb_desc_index_13_0 / with_scb_desc_index_13_0: u16 [47..=60] "ScbDescIndex_13_0";
    internal_sdma_halt / with_internal_sdma_halt: bool [61] "InternalSDmaHalt";
    halt_in_prog / with_halt_in_prog: bool [62] "HaltInProg";
    score_board_drain_in_prog / with_score_board_drain_in_prog: bool [63] "ScoreBoardDrainInProg";
}

contents! {
    /// Contents of `SendDmaPriorityThld`.
    pub struct SendDmaPriorityThld;
    priority_threshold / with_priority_threshold: u8 [0..=3] "PriorityThreshold";
}

contents! {
    /// Contents of `RxCreditVL0`.
    pub struct RxCreditVl;
    rx_max_credit_vl / with_rx_max_credit_vl: u16 [0..=11] "RxMaxCreditVL";
    rx_bufr_consumed_vl / with_rx_bufr_consumed_vl: u16 [16..=27] "RxBufrConsumedVL";
}

contents! {
    /// Contents of `SendCheckControl`.
    pub struct SendCheckControl;
    packet_too_small_en / with_packet_too_small_en: bool [0] "PacketTooSmall_En";
    raw_ipv6_en / with_raw_ipv6_en: bool [1] "RawIPV6_En";
    slid_en / with_slid_en: bool [2] "SLID_En";
    bthqp_en / with_bthqp_en: bool [3] "BTHQP_En";
    p_key_en / with_p_key_en: bool [4] "PKey_En";
}

contents! {
    /// Contents of `SendIBSLIDMask`.
    pub struct SendIbslidMask;
    send_ibslid_mask_15_0 / with_send_ibslid_mask_15_0: u16 [0..=15] "SendIBSLIDMask_15_0";
}

contents! {
    /// Contents of `SendIBSLIDAssign`.
    pub struct SendIbslidAssign;
    send_ibslid_assign_15_0 / with_send_ibslid_assign_15_0: u16 [0..=15] "SendIBSLIDAssign_15_0";
}
