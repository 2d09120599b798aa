//! Registers of the whole chip, 0x000 to 0xFFF: identity, interrupts, errors, GPIO, receive and send set-up.

use super::{contents, registers};
use crate::status::{ErrBits, HwErrBits, IntBits};

const EXTRA: bool = false;

registers! {
    REVISION: one Ro Revision @ 0x0, "Revision", reset 0x2010601, unknown 0x0;
    CONTROL: one Rw Control @ 0x8, "Control", reset 0x0, unknown 0x0;
    PAGE_ALIGN: one Ro u64 @ 0x10, "PageAlign", reset 0x1000, unknown 0x0;
    CONTEXT_CNT: one Ro u64 @ 0x18, "ContextCnt", reset 0x12, unknown 0x0;
    SCRATCH: one Rw u64 @ 0x20, "Scratch", reset 0x0, unknown 0x0;
    CNTR_REG_BASE: one Ro u64 @ 0x28, "CntrRegBase", reset 0x11000, unknown 0x0;
    SEND_REG_BASE: one Ro u64 @ 0x30, "SendRegBase", reset 0x3000, unknown 0x0;
    USER_REG_BASE: one Ro u64 @ 0x38, "UserRegBase", reset 0x200000, unknown 0x0;
    INT_MASK: one Rw IntBits @ 0x68, "IntMask", reset 0x0, unknown 0x0;
    INT_STATUS: one Ro IntBits @ 0x70, "IntStatus", reset 0x0, unknown 0x0;
    INT_CLEAR: one W1c IntBits @ 0x78, "IntClear", reset 0x0, unknown 0x0;
    ERR_MASK: one Rw ErrBits @ 0x80, "ErrMask", reset 0x0, unknown 0x0;
    ERR_STATUS: one Ro ErrBits @ 0x88, "ErrStatus", reset 0x0, unknown 0x0;
    ERR_CLEAR: one W1c ErrBits @ 0x90, "ErrClear", reset 0x0, unknown 0x0;
    HW_ERR_MASK: one Rw HwErrBits @ 0x98, "HwErrMask", reset 0x0, unknown 0x0;
    HW_ERR_STATUS: one Ro HwErrBits @ 0xa0, "HwErrStatus", reset 0x0, unknown 0x0;
    HW_ERR_CLEAR: one W1c HwErrBits @ 0xa8, "HwErrClear", reset 0x0, unknown 0x0;
    HW_DIAG_CTRL: one Rw HwDiagCtrl @ 0xb0, "HwDiagCtrl", reset 0x0, unknown 0x0;
    EXT_STATUS: one Ro ExtStatus @ 0xc0, "EXTStatus", reset 0x0, unknown 0xf000;
    EXT_CTRL: one Rw ExtCtrl @ 0xc8, "EXTCtrl", reset 0x0, unknown 0x0;
    GPIO_OUT: one Rw u64 @ 0xe0, "GPIOOut", reset 0x0, unknown 0x0;
    GPIO_MASK: one Rw u64 @ 0xe8, "GPIOMask", reset 0x0, unknown 0x0;
    GPIO_STATUS: one Ro u64 @ 0xf0, "GPIOStatus", reset 0x0, unknown 0x0;
    GPIO_CLEAR: one W1c u64 @ 0xf8, "GPIOClear", reset 0x0, unknown 0x0;
    RCV_CTRL: one Rw RcvCtrl @ 0x100, "RcvCtrl", reset 0x0, unknown 0x0;
    RCV_HDR_SIZE: one Rw u64 @ 0x110, "RcvHdrSize", reset 0x0, unknown 0x0;
    RCV_HDR_CNT: one Rw u64 @ 0x118, "RcvHdrCnt", reset 0x0, unknown 0x0;
    RCV_HDR_ENT_SIZE: one Rw u64 @ 0x120, "RcvHdrEntSize", reset 0x0, unknown 0x0;
    RCV_TID_BASE: one Ro u64 @ 0x128, "RcvTIDBase", reset 0x50000, unknown 0x0;
    RCV_TID_CNT: one Ro u64 @ 0x130, "RcvTIDCnt", reset 0x200, unknown 0x0;
    RCV_EGR_BASE: one Ro u64 @ 0x138, "RcvEgrBase", reset 0x14000, unknown 0x0;
    RCV_EGR_CNT: one Ro u64 @ 0x140, "RcvEgrCnt", reset 0x1000, unknown 0x0;
    RCV_BUF_BASE: one Ro u64 @ 0x148, "RcvBufBase", reset 0x80000, unknown 0x0;
    RCV_BUF_SIZE: one Ro u64 @ 0x150, "RcvBufSize", reset 0x5000, unknown 0x0;
    RX_INT_MEM_BASE: one Ro u64 @ 0x158, "RxIntMemBase", reset 0x77000, unknown 0x0;
    RX_INT_MEM_SIZE: one Ro u64 @ 0x160, "RxIntMemSize", reset 0x7000, unknown 0x0;
    FEATURE_MASK: one Ro u64 @ 0x190, "feature_mask", reset 0x0, unknown 0xff;
    ACTIVE_FEATURE_MASK: one Ro ActiveFeatureMask @ 0x198, "active_feature_mask", reset 0x0, unknown 0xff;
    SEND_CTRL: one Rw SendCtrl @ 0x1c0, "SendCtrl", reset 0x0, unknown 0x0;
    SEND_BUF_BASE: one Ro SendBufBase @ 0x1c8, "SendBufBase", reset 0x18000000100000, unknown 0x0;
    SEND_BUF_SIZE: one Ro SendBufSize @ 0x1d0, "SendBufSize", reset 0x108000000880, unknown 0x0;
    SEND_BUF_CNT: one Ro SendBufCnt @ 0x1d8, "SendBufCnt", reset 0x2000000080, unknown 0x0;
    SEND_BUF_AVAIL_ADDR: one Rw SendBufAvailAddr @ 0x1e0, "SendBufAvailAddr", reset 0x0, unknown 0x0;
    SEND_BUF_ERR: row[3; 0x8] W1c u64 @ 0x240, "SendBufErr{i}", reset 0x0, unknown 0x0;
    AVAIL_UPD_COUNT: one Ro AvailUpdCount @ 0x268, "AvailUpdCount", reset 0x0, unknown 0x0;
    RCV_HDR_ADDR: row[18; 0x8] Rw RcvHdrAddr @ 0x280, "RcvHdrAddr{i}", reset 0x0, unknown 0x0;
    RCV_HDR_TAIL_ADDR: row[18; 0x8] Rw RcvHdrTailAddr @ 0x340, "RcvHdrTailAddr{i}", reset 0x0, unknown 0x0;
    AHB_ACCESS_CTRL: one Rw AhbAccessCtrl @ 0x460, "ahb_access_ctrl", reset 0x0, unknown 0x0;
    AHB_TRANSACTION_REG: one Rw AhbTransactionReg @ 0x468, "ahb_transaction_reg", reset 0x80000000, unknown 0x0;
    SPC_JTAG_ACCESS_REG: one Rw SpcJtagAccessReg @ 0x470, "SPC_JTAG_ACCESS_REG", reset 0x1, unknown 0x0;
    SEND_CHECK_MASK: row[3; 0x8] Rw u64 @ 0x4c0, "SendCheckMask{i}", reset 0x0, unknown 0x0;
    SEND_GRH_CHECK_MASK: row[3; 0x8] Rw u64 @ 0x4e0, "SendGRHCheckMask{i}", reset 0x0, unknown 0x0;
    SEND_IB_PACKET_MASK: row[3; 0x8] Rw u64 @ 0x500, "SendIBPacketMask{i}", reset 0x0, unknown 0x0;
    INT_REDIRECT: row[6; 0x8] Rw IntRedirect @ 0x540, "IntRedirect{i}", reset 0x0, unknown 0x0;
    INT_GRANTED: one W1c u64 @ 0x570, "Int_Granted", reset 0x0, unknown 0x0;
    VEC_CLR_WITHOUT_INT: one W1c u64 @ 0x578, "vec_clr_without_int", reset 0x0, unknown 0x0;
    DCA_CTRL_A: one Rw DcaCtrlA @ 0x580, "DCACtrlA", reset 0x0, unknown 0x0;
    DCA_CTRL_B: one Rw DcaCtrlB @ 0x588, "DCACtrlB", reset 0x0, unknown 0x0;
    DCA_CTRL_C: one Rw DcaCtrlC @ 0x590, "DCACtrlC", reset 0x0, unknown 0x0;
    DCA_CTRL_D: one Rw DcaCtrlD @ 0x598, "DCACtrlD", reset 0x0, unknown 0x0;
    DCA_CTRL_E: one Rw DcaCtrlE @ 0x5a0, "DCACtrlE", reset 0x0, unknown 0x0;
    DCA_CTRL_F: one Rw DcaCtrlF @ 0x5a8, "DCACtrlF", reset 0x0, unknown 0x0;
    RCV_AVAIL_TIMEOUT: row[18; 0x8] Rw RcvAvailTimeout @ 0xc00, "RcvAvailTimeOut{i}", reset 0x0, unknown 0x0;
}

contents! {
    /// Contents of `Revision`.
    pub struct Revision;
    chip_rev_minor / with_chip_rev_minor: u8 [0..=7] "R_ChipRevMinor";
    chip_rev_major / with_chip_rev_major: u8 [8..=15] "R_ChipRevMajor";
    arch / with_arch: u8 [16..=23] "R_Arch";
    sw / with_sw: u8 [24..=31] "R_SW";
    board_id / with_board_id: u8 [32..=39] "BoardID";
    emulation_revcode / with_emulation_revcode: u32 [40..=61] "R_Emulation_Revcode";
    emulation / with_emulation: bool [62] "R_Emulation";
    simulator / with_simulator: bool [63] "R_Simulator";
}

contents! {
    /// Contents of `Control`.
    pub struct Control;
    sync_reset / with_sync_reset: bool [0] "SyncReset";
    freeze_mode / with_freeze_mode: bool [1] "FreezeMode";
    pcie_retry_buf_diag_en / with_pcie_retry_buf_diag_en: bool [3] "PCIERetryBufDiagEn";
    sdma_desc_fetch_priority_en / with_sdma_desc_fetch_priority_en: bool [4] "SDmaDescFetchPriorityEn";
    pcie_post_q_diag_en / with_pcie_post_q_diag_en: bool [5] "PCIEPostQDiagEn";
    pcie_cpl_q_diag_en / with_pcie_cpl_q_diag_en: bool [6] "PCIECplQDiagEn";
}

contents! {
    /// Contents of `HwDiagCtrl`.
    pub struct HwDiagCtrl;
    force_ibc_bus_to_spc_parity_err_0 / with_force_ibc_bus_to_spc_parity_err_0: bool [12] "ForceIBCBusToSPCParityErr_0";
    force_ibc_bus_from_spc_parity_err_0 / with_force_ibc_bus_from_spc_parity_err_0: bool [13] "ForceIBCBusFromSPCParityErr_0";
    force_ibc_bus_to_spc_parity_err_1 / with_force_ibc_bus_to_spc_parity_err_1: bool [14] "ForceIBCBusToSPCParityErr_1";
    force_ibc_bus_from_spc_parity_err_1 / with_force_ibc_bus_from_spc_parity_err_1: bool [15] "ForceIBCBusFromSPCParityErr_1";
    force_pc_ie_bus_parity / with_force_pc_ie_bus_parity: u8 [31..=34] "forcePCIeBusParity";
    counter_disable / with_counter_disable: bool [60] "CounterDisable";
    counter_wr_enable / with_counter_wr_enable: bool [61] "CounterWrEnable";
    diagnostic / with_diagnostic: bool [63] "Diagnostic";
}

contents! {
    /// Contents of `EXTStatus`.
    pub struct ExtStatus;
    mem_bist_end_test / with_mem_bist_end_test: bool [14] "MemBISTEndTest";
    mem_bist_disabled / with_mem_bist_disabled: bool [15] "MemBISTDisabled";
    gpio_in / with_gpio_in: u16 [48..=63] "GPIOIn";
}

contents! {
    /// Contents of `EXTCtrl`.
    pub struct ExtCtrl;
    led_port0_yellow_on / with_led_port0_yellow_on: bool [0] "LEDPort0YellowOn";
    led_port0_green_on / with_led_port0_green_on: bool [1] "LEDPort0GreenOn";
    led_port1_yellow_on / with_led_port1_yellow_on: bool [2] "LEDPort1YellowOn";
    led_port1_green_on / with_led_port1_green_on: bool [3] "LEDPort1GreenOn";
    gpio_invert / with_gpio_invert: u16 [32..=47] "GPIOInvert";
    gpio_oe / with_gpio_oe: u16 [48..=63] "GPIOOe";
}

contents! {
    /// Contents of `RcvCtrl`.
    pub struct RcvCtrl;
    dont_drop_rhq_full / with_dont_drop_rhq_full: u32 [0..=17] "dontDropRHQFull";
    intr_avail / with_intr_avail: u32 [20..=37] "IntrAvail";
    context_cfg / with_context_cfg: u8 [41..=42] "ContextCfg";
    tid_flow_enable / with_tid_flow_enable: bool [43] "TidFlowEnable";
    xrc_type_code / with_xrc_type_code: u8 [44..=46] "XrcTypeCode";
    tail_upd / with_tail_upd: bool [47] "TailUpd";
    tid_redirect / with_tid_redirect: u16 [48..=63] "TidReDirect";
}

contents! {
    /// Contents of `active_feature_mask`.
    pub struct ActiveFeatureMask;
    port0_sdr_enabled / with_port0_sdr_enabled: bool [0] "Port0_SDR_Enabled";
    port0_ddr_enabled / with_port0_ddr_enabled: bool [1] "Port0_DDR_Enabled";
    port0_qdr_enabled / with_port0_qdr_enabled: bool [2] "Port0_QDR_Enabled";
    port1_sdr_enabled / with_port1_sdr_enabled: bool [3] "Port1_SDR_Enabled";
    port1_ddr_enabled / with_port1_ddr_enabled: bool [4] "Port1_DDR_Enabled";
    port1_qdr_enabled / with_port1_qdr_enabled: bool [5] "Port1_QDR_Enabled";
}

contents! {
    /// Contents of `SendCtrl`.
    pub struct SendCtrl;
    send_int_buf_avail / with_send_int_buf_avail: bool [1] "SendIntBufAvail";
    send_buf_avail_upd / with_send_buf_avail_upd: bool [2] "SendBufAvailUpd";
    special_trigger_en / with_special_trigger_en: bool [4] "SpecialTriggerEn";
    disarm_send_buf / with_disarm_send_buf: u8 [16..=23] "DisarmSendBuf";
    avail_upd_thld / with_avail_upd_thld: u8 [24..=28] "AvailUpdThld";
    send_buf_avail_pad64_byte / with_send_buf_avail_pad64_byte: bool [29] "SendBufAvailPad64Byte";
    disarm / with_disarm: bool [31] "Disarm";
}

contents! {
    /// Contents of `SendBufBase`.
    pub struct SendBufBase;
    base_addr_small_pio / with_base_addr_small_pio: u32 [0..=20] "BaseAddr_SmallPIO";
    base_addr_large_pio / with_base_addr_large_pio: u32 [32..=52] "BaseAddr_LargePIO";
}

contents! {
    /// Contents of `SendBufSize`.
    pub struct SendBufSize;
    size_small_pio / with_size_small_pio: u16 [0..=11] "Size_SmallPIO";
    size_large_pio / with_size_large_pio: u16 [32..=44] "Size_LargePIO";
}

contents! {
    /// Contents of `SendBufCnt`.
    pub struct SendBufCnt;
    num_small_buffers / with_num_small_buffers: u16 [0..=8] "Num_SmallBuffers";
    num_large_buffers / with_num_large_buffers: u8 [32..=37] "Num_LargeBuffers";
}

contents! {
    /// Contents of `SendBufAvailAddr`.
    pub struct SendBufAvailAddr;
    send_buf_avail_addr / with_send_buf_avail_addr: u64 [6..=39] "SendBufAvailAddr";
}

contents! {
    /// Contents of `AvailUpdCount`.
    pub struct AvailUpdCount;
    avail_upd_count / with_avail_upd_count: u8 [0..=4] "AvailUpdCount";
}

contents! {
    /// Contents of `RcvHdrAddr0`.
    pub struct RcvHdrAddr;
    rcv_hdr_addr / with_rcv_hdr_addr: u64 [2..=39] "RcvHdrAddr";
}

contents! {
    /// Contents of `RcvHdrTailAddr0`.
    pub struct RcvHdrTailAddr;
    rcv_hdr_tail_addr / with_rcv_hdr_tail_addr: u64 [2..=39] "RcvHdrTailAddr";
}

contents! {
    /// Contents of `ahb_access_ctrl`.
    pub struct AhbAccessCtrl;
    sw_ahb_sel / with_sw_ahb_sel: bool [0] "sw_ahb_sel";
    sw_sel_ahb_trgt / with_sw_sel_ahb_trgt: u8 [1..=2] "sw_sel_ahb_trgt";
}

contents! {
    /// Contents of `ahb_transaction_reg`.
    pub struct AhbTransactionReg;
    ahb_address / with_ahb_address: u16 [16..=26] "ahb_address";
    write_not_read / with_write_not_read: bool [27] "write_not_read";
    ahb_req_err / with_ahb_req_err: bool [30] "ahb_req_err";
    ahb_rdy / with_ahb_rdy: bool [31] "ahb_rdy";
    ahb_data / with_ahb_data: u32 [32..=63] "ahb_data";
}

contents! {
    /// Contents of `SPC_JTAG_ACCESS_REG`.
    pub struct SpcJtagAccessReg;
    rdy / with_rdy: bool [0] "rdy";
    tdo / with_tdo: bool [1] "tdo";
    tdi / with_tdi: bool [2] "tdi";
    opcode / with_opcode: u8 [3..=4] "opcode";
    bist_en / with_bist_en: u8 [5..=9] "bist_en";
    spc_jtag_access_en / with_spc_jtag_access_en: bool [10] "SPC_JTAG_ACCESS_EN";
}

contents! {
    /// Contents of `IntRedirect0`.
    pub struct IntRedirect;
    vec0 / with_vec0: u8 [0..=4] "vec0";
    vec1 / with_vec1: u8 [5..=9] "vec1";
    vec2 / with_vec2: u8 [10..=14] "vec2";
    vec3 / with_vec3: u8 [15..=19] "vec3";
    vec4 / with_vec4: u8 [20..=24] "vec4";
    vec5 / with_vec5: u8 [25..=29] "vec5";
    vec6 / with_vec6: u8 [30..=34] "vec6";
    vec7 / with_vec7: u8 [35..=39] "vec7";
    vec8 / with_vec8: u8 [40..=44] "vec8";
    vec9 / with_vec9: u8 [45..=49] "vec9";
    vec10 / with_vec10: u8 [50..=54] "vec10";
    vec11 / with_vec11: u8 [55..=59] "vec11";
}

contents! {
    /// Contents of `DCACtrlA`.
    pub struct DcaCtrlA;
    rcv_hdrq_dca_enable / with_rcv_hdrq_dca_enable: bool [0] "RcvHdrqDCAEnable";
    eager_dca_enable / with_eager_dca_enable: bool [1] "EagerDCAEnable";
    rcv_tail_upd_dca_enable / with_rcv_tail_upd_dca_enable: bool [2] "RcvTailUpdDCAEnable";
    send_dma_head0_dca_enable / with_send_dma_head0_dca_enable: bool [3] "SendDMAHead0DCAEnable";
    send_dma_head1_dca_enable / with_send_dma_head1_dca_enable: bool [4] "SendDMAHead1DCAEnable";
}

contents! {
    /// Contents of `DCACtrlB`.
    pub struct DcaCtrlB;
    rcv_hdrq0_dcaoph / with_rcv_hdrq0_dcaoph: u8 [0..=7] "RcvHdrq0DCAOPH";
    rcv_hdrq0_dca_xfr_cnt / with_rcv_hdrq0_dca_xfr_cnt: u8 [8..=13] "RcvHdrq0DCAXfrCnt";
    rcv_hdrq1_dcaoph / with_rcv_hdrq1_dcaoph: u8 [14..=21] "RcvHdrq1DCAOPH";
    rcv_hdrq1_dca_xfr_cnt / with_rcv_hdrq1_dca_xfr_cnt: u8 [22..=27] "RcvHdrq1DCAXfrCnt";
    rcv_hdrq2_dcaoph / with_rcv_hdrq2_dcaoph: u8 [32..=39] "RcvHdrq2DCAOPH";
    rcv_hdrq2_dca_xfr_cnt / with_rcv_hdrq2_dca_xfr_cnt: u8 [40..=45] "RcvHdrq2DCAXfrCnt";
    rcv_hdrq3_dcaoph / with_rcv_hdrq3_dcaoph: u8 [46..=53] "RcvHdrq3DCAOPH";
    rcv_hdrq3_dca_xfr_cnt / with_rcv_hdrq3_dca_xfr_cnt: u8 [54..=59] "RcvHdrq3DCAXfrCnt";
}

contents! {
    /// Contents of `DCACtrlC`.
    pub struct DcaCtrlC;
    rcv_hdrq4_dcaoph / with_rcv_hdrq4_dcaoph: u8 [0..=7] "RcvHdrq4DCAOPH";
    rcv_hdrq4_dca_xfr_cnt / with_rcv_hdrq4_dca_xfr_cnt: u8 [8..=13] "RcvHdrq4DCAXfrCnt";
    rcv_hdrq5_dcaoph / with_rcv_hdrq5_dcaoph: u8 [14..=21] "RcvHdrq5DCAOPH";
    rcv_hdrq5_dca_xfr_cnt / with_rcv_hdrq5_dca_xfr_cnt: u8 [22..=27] "RcvHdrq5DCAXfrCnt";
    rcv_hdrq6_dcaoph / with_rcv_hdrq6_dcaoph: u8 [32..=39] "RcvHdrq6DCAOPH";
    rcv_hdrq6_dca_xfr_cnt / with_rcv_hdrq6_dca_xfr_cnt: u8 [40..=45] "RcvHdrq6DCAXfrCnt";
    rcv_hdrq7_dcaoph / with_rcv_hdrq7_dcaoph: u8 [46..=53] "RcvHdrq7DCAOPH";
    rcv_hdrq7_dca_xfr_cnt / with_rcv_hdrq7_dca_xfr_cnt: u8 [54..=59] "RcvHdrq7DCAXfrCnt";
}

contents! {
    /// Contents of `DCACtrlD`.
    pub struct DcaCtrlD;
    rcv_hdrq8_dcaoph / with_rcv_hdrq8_dcaoph: u8 [0..=7] "RcvHdrq8DCAOPH";
    rcv_hdrq8_dca_xfr_cnt / with_rcv_hdrq8_dca_xfr_cnt: u8 [8..=13] "RcvHdrq8DCAXfrCnt";
    rcv_hdrq9_dcaoph / with_rcv_hdrq9_dcaoph: u8 [14..=21] "RcvHdrq9DCAOPH";
    rcv_hdrq9_dca_xfr_cnt / with_rcv_hdrq9_dca_xfr_cnt: u8 [22..=27] "RcvHdrq9DCAXfrCnt";
    rcv_hdrq10_dcaoph / with_rcv_hdrq10_dcaoph: u8 [32..=39] "RcvHdrq10DCAOPH";
    rcv_hdrq10_dca_xfr_cnt / with_rcv_hdrq10_dca_xfr_cnt: u8 [40..=45] "RcvHdrq10DCAXfrCnt";
    rcv_hdrq11_dcaoph / with_rcv_hdrq11_dcaoph: u8 [46..=53] "RcvHdrq11DCAOPH";
    rcv_hdrq11_dca_xfr_cnt / with_rcv_hdrq11_dca_xfr_cnt: u8 [54..=59] "RcvHdrq11DCAXfrCnt";
}

contents! {
    /// Contents of `DCACtrlE`.
    pub struct DcaCtrlE;
    rcv_hdrq12_dcaoph / with_rcv_hdrq12_dcaoph: u8 [0..=7] "RcvHdrq12DCAOPH";
    rcv_hdrq12_dca_xfr_cnt / with_rcv_hdrq12_dca_xfr_cnt: u8 [8..=13] "RcvHdrq12DCAXfrCnt";
    rcv_hdrq13_dcaoph / with_rcv_hdrq13_dcaoph: u8 [14..=21] "RcvHdrq13DCAOPH";
    rcv_hdrq13_dca_xfr_cnt / with_rcv_hdrq13_dca_xfr_cnt: u8 [22..=27] "RcvHdrq13DCAXfrCnt";
    rcv_hdrq14_dcaoph / with_rcv_hdrq14_dcaoph: u8 [32..=39] "RcvHdrq14DCAOPH";
    rcv_hdrq14_dca_xfr_cnt / with_rcv_hdrq14_dca_xfr_cnt: u8 [40..=45] "RcvHdrq14DCAXfrCnt";
    rcv_hdrq15_dcaoph / with_rcv_hdrq15_dcaoph: u8 [46..=53] "RcvHdrq15DCAOPH";
    rcv_hdrq15_dca_xfr_cnt / with_rcv_hdrq15_dca_xfr_cnt: u8 [54..=59] "RcvHdrq15DCAXfrCnt";
}

contents! {
    /// Contents of `DCACtrlF`.
    pub struct DcaCtrlF;
    rcv_hdrq16_dcaoph / with_rcv_hdrq16_dcaoph: u8 [0..=7] "RcvHdrq16DCAOPH";
    rcv_hdrq16_dca_xfr_cnt / with_rcv_hdrq16_dca_xfr_cnt: u8 [8..=13] "RcvHdrq16DCAXfrCnt";
    rcv_hdrq17_dcaoph / with_rcv_hdrq17_dcaoph: u8 [14..=21] "RcvHdrq17DCAOPH";
    rcv_hdrq17_dca_xfr_cnt / with_rcv_hdrq17_dca_xfr_cnt: u8 [22..=27] "RcvHdrq17DCAXfrCnt";
    send_dma0_dcaoph / with_send_dma0_dcaoph: u8 [32..=39] "SendDma0DCAOPH";
    send_dma1_dcaoph / with_send_dma1_dcaoph: u8 [40..=47] "SendDma1DCAOPH";
}

contents! {
    /// Contents of `RcvAvailTimeOut0`.
    pub struct RcvAvailTimeout;
    rcv_avail_to_reload / with_rcv_avail_to_reload: u16 [0..=15] "RcvAvailTOReload";
    rcv_avail_to_count / with_rcv_avail_to_count: u16 [16..=31] "RcvAvailTOCount";
}
