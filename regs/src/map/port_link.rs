//! Registers of one port: link control and status, heartbeat, SerDes, VL arbitration.

use super::{contents, registers};

const EXTRA: bool = false;

registers! {
    IBC_STATUS_A: port Ro IbcStatusA @ 0x1540, "IBCStatusA_{p}", reset 0x2, unknown 0xf00;
    IBC_STATUS_B: port W1c IbcStatusB @ 0x1548, "IBCStatusB_{p}", reset 0x0, unknown 0xffffffff;
    IBC_CTRL_A: port Rw IbcCtrlA @ 0x1560, "IBCCtrlA_{p}", reset 0x0, unknown 0x0;
    IBC_CTRL_B: port Rw IbcCtrlB @ 0x1568, "IBCCtrlB_{p}", reset 0x305ff, unknown 0x0;
    IBC_CTRL_C: port Rw IbcCtrlC @ 0x1570, "IBCCtrlC_{p}", reset 0x301, unknown 0x0;
    HRTBT_GUID: port Rw u64 @ 0x1588, "HRTBT_GUID_{p}", reset 0x0, unknown 0x0;
    IB_SDTEST_IF_TX: port Rw IbSdtestIfTx @ 0x1590, "IB_SDTEST_IF_TX_{p}", reset 0x0, unknown 0x0;
    IB_SDTEST_IF_RX: port Ro IbSdtestIfRx @ 0x1598, "IB_SDTEST_IF_RX_{p}", reset 0x0, unknown 0x0;
    IBNC_MODE_CTRL: port Rw IbncModeCtrl @ 0x15b8, "IBNCModeCtrl_{p}", reset 0x0, unknown 0x0;
    IB_SERDES_STATUS: port Ro u64 @ 0x15d0, "IBSerdesStatus_{p}", reset 0x0, unknown 0x0;
    IBPCS_CONFIG: port Rw IbpcsConfig @ 0x15d8, "IBPCSConfig_{p}", reset 0x7, unknown 0x0;
    IB_SERDES_CTRL: port Rw IbSerdesCtrl @ 0x15e0, "IBSerdesCtrl_{p}", reset 0xffa00f, unknown 0x0;
    IB_SD_TX_DEEMPHASIS_OVERRIDE: port Rw IbSdTxDeemphasisOverride @ 0x1600, "IBSD_TX_DEEMPHASIS_OVERRIDE_{p}", reset 0x0, unknown 0x0;
    ADAPT_DISABLE_STATIC_SDR: port Rw AdaptDisable @ 0x1640, "ADAPT_DISABLE_STATIC_SDR_{p}", reset 0x0, unknown 0x0;
    ADAPT_DISABLE_DYNAMIC_SDR: port Rw AdaptDisable @ 0x1648, "ADAPT_DISABLE_DYNAMIC_SDR_{p}", reset 0x0, unknown 0x0;
    ADAPT_DISABLE_STATIC_DDR: port Rw AdaptDisable @ 0x1650, "ADAPT_DISABLE_STATIC_DDR_{p}", reset 0x0, unknown 0x0;
    ADAPT_DISABLE_DYNAMIC_DDR: port Rw AdaptDisable @ 0x1658, "ADAPT_DISABLE_DYNAMIC_DDR_{p}", reset 0x0, unknown 0x0;
    ADAPT_DISABLE_STATIC_QDR: port Rw AdaptDisable @ 0x1660, "ADAPT_DISABLE_STATIC_QDR_{p}", reset 0x0, unknown 0x0;
    ADAPT_DISABLE_DYNAMIC_QDR: port Rw AdaptDisable @ 0x1668, "ADAPT_DISABLE_DYNAMIC_QDR_{p}", reset 0x0, unknown 0x0;
    ADAPT_DISABLE_TIMER_THRESHOLD: port Rw u64 @ 0x1670, "ADAPT_DISABLE_TIMER_THRESHOLD_{p}", reset 0x0, unknown 0x0;
    HIGH_PRIORITY_LIMIT: port Rw HighPriorityLimit @ 0x1bc0, "HighPriorityLimit_{p}", reset 0x0, unknown 0x0;
    LOW_PRIORITY: port_row[16; 8] Rw LowPriority @ 0x1c00, "LowPriority{i}_{p}", reset 0x0, unknown 0x0;
    HIGH_PRIORITY: port_row[16; 8] Rw HighPriority @ 0x1e00, "HighPriority{i}_{p}", reset 0x0, unknown 0x0;
}

contents! {
    /// Contents of `IBCStatusA`.
    pub struct IbcStatusA;
    link_training_state / with_link_training_state: u8 [0..=4] "LinkTrainingState";
    link_state / with_link_state: u8 [5..=7] "LinkState";
    link_speed_active / with_link_speed_active: bool [8] "LinkSpeedActive";
    link_width_active / with_link_width_active: bool [9] "LinkWidthActive";
    dds_rxeq_fail / with_dds_rxeq_fail: bool [10] "DDS_RXEQ_FAIL";
    ib_rx_lane_reversed / with_ib_rx_lane_reversed: bool [12] "IBRxLaneReversed";
    ib_tx_lane_reversed / with_ib_tx_lane_reversed: bool [13] "IBTxLaneReversed";
    scramble_en / with_scramble_en: bool [14] "ScrambleEn";
    scramble_cap_remote / with_scramble_cap_remote: bool [15] "ScrambleCapRemote";
    link_speed_qdr / with_link_speed_qdr: bool [29] "LinkSpeedQDR";
    tx_ready / with_tx_ready: bool [30] "TxReady";
    tx_credit_ok_vl0 / with_tx_credit_ok_vl0: bool [32] "TxCreditOk_VL0";
    tx_credit_ok_vl1 / with_tx_credit_ok_vl1: bool [33] "TxCreditOk_VL1";
    tx_credit_ok_vl2 / with_tx_credit_ok_vl2: bool [34] "TxCreditOk_VL2";
    tx_credit_ok_vl3 / with_tx_credit_ok_vl3: bool [35] "TxCreditOk_VL3";
    tx_credit_ok_vl4 / with_tx_credit_ok_vl4: bool [36] "TxCreditOk_VL4";
    tx_credit_ok_vl5 / with_tx_credit_ok_vl5: bool [37] "TxCreditOk_VL5";
    tx_credit_ok_vl6 / with_tx_credit_ok_vl6: bool [38] "TxCreditOk_VL6";
    tx_credit_ok_vl7 / with_tx_credit_ok_vl7: bool [39] "TxCreditOk_VL7";
}

contents! {
    /// Contents of `IBCStatusB`.
    pub struct IbcStatusB;
    link_round_trip_latency / with_link_round_trip_latency: u32 [0..=25] "LinkRoundTripLatency";
    req_dds_local_from_rmt / with_req_dds_local_from_rmt: u8 [26..=29] "ReqDDSLocalFromRmt";
    rx_eq_local_device / with_rx_eq_local_device: u8 [30..=31] "RxEqLocalDevice";
    heartbeat_crosstalk / with_heartbeat_crosstalk: u8 [32..=35] "heartbeat_crosstalk";
    heartbeat_timed_out / with_heartbeat_timed_out: bool [36] "heartbeat_timed_out";
    ibsd_adaptation_timer_started / with_ibsd_adaptation_timer_started: bool [37] "ibsd_adaptation_timer_started";
    ibsd_adaptation_timer_reached_threshold / with_ibsd_adaptation_timer_reached_threshold: bool [38] "ibsd_adaptation_timer_reached_threshold";
    ibsd_adaptation_timer_debug / with_ibsd_adaptation_timer_debug: bool [39] "ibsd_adaptation_timer_debug";
}

contents! {
    /// Contents of `IBCCtrlA`.
    pub struct IbcCtrlA;
    flow_ctrl_period / with_flow_ctrl_period: u8 [0..=7] "FlowCtrlPeriod";
    flow_ctrl_water_mark / with_flow_ctrl_water_mark: u8 [8..=15] "FlowCtrlWaterMark";
    link_init_cmd / with_link_init_cmd: u8 [16..=18] "LinkInitCmd";
    link_cmd / with_link_cmd: u8 [19..=20] "LinkCmd";
    max_pkt_len / with_max_pkt_len: u16 [21..=31] "MaxPktLen";
    phyerr_threshold / with_phyerr_threshold: u8 [32..=35] "PhyerrThreshold";
    overrun_threshold / with_overrun_threshold: u8 [36..=39] "OverrunThreshold";
    num_v_lane / with_num_v_lane: u8 [48..=50] "NumVLane";
    ib_stat_int_reduction_en / with_ib_stat_int_reduction_en: bool [60] "IBStatIntReductionEn";
    ib_link_en / with_ib_link_en: bool [61] "IBLinkEn";
    link_down_default_state / with_link_down_default_state: bool [62] "LinkDownDefaultState";
    loopback / with_loopback: bool [63] "Loopback";
}

contents! {
    /// Contents of `IBCCtrlB`.
    pub struct IbcCtrlB;
    ib_enhanced_mode / with_ib_enhanced_mode: bool [0] "IB_ENHANCED_MODE";
    sd_speed / with_sd_speed: bool [1] "SD_SPEED";
    sd_speed_sdr / with_sd_speed_sdr: bool [2] "SD_SPEED_SDR";
    sd_speed_ddr / with_sd_speed_ddr: bool [3] "SD_SPEED_DDR";
    sd_speed_qdr / with_sd_speed_qdr: bool [4] "SD_SPEED_QDR";
    ib_num_channels / with_ib_num_channels: u8 [5..=6] "IB_NUM_CHANNELS";
    ib_polarity_rev_supp / with_ib_polarity_rev_supp: bool [7] "IB_POLARITY_REV_SUPP";
    ib_lane_rev_supported / with_ib_lane_rev_supported: bool [8] "IB_LANE_REV_SUPPORTED";
    sd_rx_equal_enable / with_sd_rx_equal_enable: bool [9] "SD_RX_EQUAL_ENABLE";
    sd_add_enb / with_sd_add_enb: bool [10] "SD_ADD_ENB";
    sd_ddsv / with_sd_ddsv: bool [11] "SD_DDSV";
    sd_dds / with_sd_dds: u8 [12..=15] "SD_DDS";
    hrtbt_enb / with_hrtbt_enb: bool [16] "HRTBT_ENB";
    hrtbt_auto / with_hrtbt_auto: bool [17] "HRTBT_AUTO";
    hrtbt_port / with_hrtbt_port: u8 [18..=25] "HRTBT_PORT";
    hrtbt_req / with_hrtbt_req: bool [26] "HRTBT_REQ";
    ib_enable_filt_dpkt / with_ib_enable_filt_dpkt: bool [27] "IB_ENABLE_FILT_DPKT";
    ib_dlid / with_ib_dlid: u16 [32..=47] "IB_DLID";
    ib_dlid_mask / with_ib_dlid_mask: u16 [48..=63] "IB_DLID_MASK";
}

contents! {
    /// Contents of `IBCCtrlC`.
    pub struct IbcCtrlC;
    ib_front_porch / with_ib_front_porch: u8 [0..=4] "IB_FRONT_PORCH";
    ib_back_porch / with_ib_back_porch: u8 [5..=9] "IB_BACK_PORCH";
}

contents! {
    /// Contents of `IB_SDTEST_IF_TX`.
    pub struct IbSdtestIfTx;
    ts_t_tx_valid / with_ts_t_tx_valid: bool [0] "TS_T_TX_VALID";
    ts_3_tx_valid / with_ts_3_tx_valid: bool [1] "TS_3_TX_VALID";
    vl_cap / with_vl_cap: u8 [2..=3] "VL_CAP";
    credit_change / with_credit_change: bool [4] "CREDIT_CHANGE";
    ts_tx_opcode / with_ts_tx_opcode: u8 [11..=12] "TS_TX_OPCODE";
    ts_tx_speed / with_ts_tx_speed: u8 [13..=15] "TS_TX_SPEED";
    ts_tx_tx_cfg / with_ts_tx_tx_cfg: u16 [32..=47] "TS_TX_TX_CFG";
    ts_tx_rx_cfg / with_ts_tx_rx_cfg: u16 [48..=63] "TS_TX_RX_CFG";
}

contents! {
    /// Contents of `IB_SDTEST_IF_RX`.
    pub struct IbSdtestIfRx;
    ts_t_rx_valid / with_ts_t_rx_valid: bool [0] "TS_T_RX_VALID";
    ts_3_rx_valid / with_ts_3_rx_valid: bool [1] "TS_3_RX_VALID";
    ts_rx_a / with_ts_rx_a: u8 [16..=23] "TS_RX_A";
    ts_rx_b / with_ts_rx_b: u8 [24..=31] "TS_RX_B";
    ts_rx_tx_cfg / with_ts_rx_tx_cfg: u16 [32..=47] "TS_RX_TX_CFG";
    ts_rx_rx_cfg / with_ts_rx_rx_cfg: u16 [48..=63] "TS_RX_RX_CFG";
}

contents! {
    /// Contents of `IBNCModeCtrl`.
    pub struct IbncModeCtrl;
    tsm_enable_send_ts1 / with_tsm_enable_send_ts1: bool [0] "TSMEnable_send_TS1";
    tsm_enable_send_ts2 / with_tsm_enable_send_ts2: bool [1] "TSMEnable_send_TS2";
    tsm_enable_ignore_tsm_on_rx / with_tsm_enable_ignore_tsm_on_rx: bool [2] "TSMEnable_ignore_TSM_on_rx";
    tsm_code_ts1 / with_tsm_code_ts1: u16 [8..=16] "TSMCode_TS1";
    tsm_code_ts2 / with_tsm_code_ts2: u16 [17..=25] "TSMCode_TS2";
    scramble_cap_local / with_scramble_cap_local: bool [32] "ScrambleCapLocal";
    scramble_cap_remote_mask / with_scramble_cap_remote_mask: bool [33] "ScrambleCapRemoteMask";
    scramble_cap_remote_force / with_scramble_cap_remote_force: bool [34] "ScrambleCapRemoteForce";
}

contents! {
    /// Contents of `IBPCSConfig`.
    pub struct IbpcsConfig;
    tx_rx_reset / with_tx_rx_reset: bool [0] "tx_rx_reset";
    xcv_treset / with_xcv_treset: bool [1] "xcv_treset";
    xcv_rreset / with_xcv_rreset: bool [2] "xcv_rreset";
    link_sync_mask / with_link_sync_mask: u16 [9..=18] "link_sync_mask";
}

contents! {
    /// Contents of `IBSerdesCtrl`.
    pub struct IbSerdesCtrl;
    cmode / with_cmode: u8 [0..=6] "CMODE";
    txidle / with_txidle: bool [8] "TXIDLE";
    rxpd / with_rxpd: bool [9] "RXPD";
    txpd / with_txpd: bool [10] "TXPD";
    pllpd / with_pllpd: bool [11] "PLLPD";
    lpen / with_lpen: bool [12] "LPEN";
    rxlosen / with_rxlosen: bool [13] "RXLOSEN";
    ib_lat_mode / with_ib_lat_mode: bool [15] "IB_LAT_MODE";
    cgmode / with_cgmode: u8 [16..=19] "CGMODE";
    channel_reset_n / with_channel_reset_n: u8 [20..=23] "CHANNEL_RESET_N";
    disable_rxlatoff_sdr / with_disable_rxlatoff_sdr: bool [24] "DISABLE_RXLATOFF_SDR";
    disable_rxlatoff_ddr / with_disable_rxlatoff_ddr: bool [25] "DISABLE_RXLATOFF_DDR";
    disable_rxlatoff_qdr / with_disable_rxlatoff_qdr: bool [26] "DISABLE_RXLATOFF_QDR";
}

contents! {
    /// Contents of `IBSD_TX_DEEMPHASIS_OVERRIDE`.
    pub struct IbSdTxDeemphasisOverride;
    txcn1_ena / with_txcn1_ena: u8 [0..=2] "txcn1_ena";
    txcn1_xtra_emph0 / with_txcn1_xtra_emph0: u8 [3..=4] "txcn1_xtra_emph0";
    txcp1_ena / with_txcp1_ena: u8 [5..=8] "txcp1_ena";
    txc0_ena / with_txc0_ena: u8 [9..=13] "txc0_ena";
    txampcntl_d2a / with_txampcntl_d2a: u8 [14..=17] "txampcntl_d2a";
    reset_tx_deemphasis_override / with_reset_tx_deemphasis_override: bool [30] "reset_tx_deemphasis_override";
    tx_override_deemphasis_select / with_tx_override_deemphasis_select: bool [31] "tx_override_deemphasis_select";
}

contents! {
    /// Contents of `ADAPT_DISABLE_STATIC_SDR`.
    pub struct AdaptDisable;
    static_disable_rxenadfe_sdr_ch0 / with_static_disable_rxenadfe_sdr_ch0: u8 [0..=7] "static_disable_rxenadfe_sdr_ch0";
    static_disable_rxenadfe_sdr_ch1 / with_static_disable_rxenadfe_sdr_ch1: u8 [8..=15] "static_disable_rxenadfe_sdr_ch1";
    static_disable_rxenadfe_sdr_ch2 / with_static_disable_rxenadfe_sdr_ch2: u8 [16..=23] "static_disable_rxenadfe_sdr_ch2";
    static_disable_rxenadfe_sdr_ch3 / with_static_disable_rxenadfe_sdr_ch3: u8 [24..=31] "static_disable_rxenadfe_sdr_ch3";
    static_disable_rxenale_sdr_ch0 / with_static_disable_rxenale_sdr_ch0: bool [32] "static_disable_rxenale_sdr_ch0";
    static_disable_rxenale_sdr_ch1 / with_static_disable_rxenale_sdr_ch1: bool [33] "static_disable_rxenale_sdr_ch1";
    static_disable_rxenale_sdr_ch2 / with_static_disable_rxenale_sdr_ch2: bool [34] "static_disable_rxenale_sdr_ch2";
    static_disable_rxenale_sdr_ch3 / with_static_disable_rxenale_sdr_ch3: bool [35] "static_disable_rxenale_sdr_ch3";
    static_disable_rxenagain_sdr_ch0 / with_static_disable_rxenagain_sdr_ch0: bool [36] "static_disable_rxenagain_sdr_ch0";
    static_disable_rxenagain_sdr_ch1 / with_static_disable_rxenagain_sdr_ch1: bool [37] "static_disable_rxenagain_sdr_ch1";
    static_disable_rxenagain_sdr_ch2 / with_static_disable_rxenagain_sdr_ch2: bool [38] "static_disable_rxenagain_sdr_ch2";
    static_disable_rxenagain_sdr_ch3 / with_static_disable_rxenagain_sdr_ch3: bool [39] "static_disable_rxenagain_sdr_ch3";
}

contents! {
    /// Contents of `HighPriorityLimit`.
    pub struct HighPriorityLimit;
    limit / with_limit: u8 [0..=7] "Limit";
}

contents! {
    /// Contents of `LowPriority0`.
    pub struct LowPriority;
    weight / with_weight: u8 [0..=7] "Weight";
    virtual_lane / with_virtual_lane: u8 [16..=18] "VirtualLane";
}

contents! {
    /// Contents of `HighPriority0`.
    pub struct HighPriority;
    weight / with_weight: u8 [0..=7] "Weight";
    virtual_lane / with_virtual_lane: u8 [16..=18] "VirtualLane";
}
