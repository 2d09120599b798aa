//! Registers of one port: which packets reach which receive context.

use super::{contents, registers};

const EXTRA: bool = false;

registers! {
    RCV_CTRL: port Rw RcvCtrl @ 0x1100, "RcvCtrl_{p}", reset 0x0, unknown 0x0;
    RCV_BTHQP: port Rw RcvBthqp @ 0x1108, "RcvBTHQP_{p}", reset 0x0, unknown 0x0;
    RCV_QP_MAP_TABLE_A: port Rw RcvQpMapTable @ 0x1110, "RcvQPMapTableA_{p}", reset 0x0, unknown 0x0;
    RCV_QP_MAP_TABLE_B: port Rw RcvQpMapTable @ 0x1118, "RcvQPMapTableB_{p}", reset 0x0, unknown 0x0;
    RCV_QP_MAP_TABLE_C: port Rw RcvQpMapTable @ 0x1120, "RcvQPMapTableC_{p}", reset 0x0, unknown 0x0;
    RCV_QP_MAP_TABLE_D: port Rw RcvQpMapTable @ 0x1128, "RcvQPMapTableD_{p}", reset 0x0, unknown 0x0;
    RCV_QP_MAP_TABLE_E: port Rw RcvQpMapTable @ 0x1130, "RcvQPMapTableE_{p}", reset 0x0, unknown 0x0;
    RCV_QP_MAP_TABLE_F: port Rw RcvQpMapTableF @ 0x1138, "RcvQPMapTableF_{p}", reset 0x0, unknown 0x0;
    PS_STAT: port Ro u64 @ 0x1140, "PSStat_{p}", reset 0x0, unknown 0x0;
    PS_START: port Rw u64 @ 0x1148, "PSStart_{p}", reset 0x0, unknown 0x0;
    PS_INTERVAL: port Rw u64 @ 0x1150, "PSInterval_{p}", reset 0x0, unknown 0x0;
    RCV_STATUS: port Ro RcvStatus @ 0x1160, "RcvStatus_{p}", reset 0x0, unknown 0x0;
    RCV_PARTITION_KEY: port Rw u64 @ 0x1168, "RcvPartitionKey_{p}", reset 0x0, unknown 0x0;
    RCV_QP_MULTICAST_CONTEXT: port Rw RcvQpMulticastContext @ 0x1170, "RcvQPMulticastContext_{p}", reset 0x0, unknown 0x0;
    RCV_PKT_LED_CNT: port Rw RcvPktLedCnt @ 0x1178, "RcvPktLEDCnt_{p}", reset 0x0, unknown 0x0;
}

contents! {
    /// Contents of `RcvCtrl`.
    pub struct RcvCtrl;
    context_enable_kernel / with_context_enable_kernel: bool [0] "ContextEnableKernel";
    context_enable_user / with_context_enable_user: u16 [2..=17] "ContextEnableUser";
    rcv_ib_port_enable / with_rcv_ib_port_enable: bool [39] "RcvIBPortEnable";
    rcv_qp_map_enable / with_rcv_qp_map_enable: bool [40] "RcvQPMapEnable";
    rcv_partition_key_disable / with_rcv_partition_key_disable: bool [41] "RcvPartitionKeyDisable";
    rcv_reset_credit / with_rcv_reset_credit: bool [42] "RcvResetCredit";
}

contents! {
    /// Contents of `RcvBTHQP`.
    pub struct RcvBthqp;
    rcv_bthqp / with_rcv_bthqp: u32 [0..=23] "RcvBTHQP";
}

contents! {
    /// Contents of `RcvQPMapTableA`.
    pub struct RcvQpMapTable;
    rcv_qp_map_context0 / with_rcv_qp_map_context0: u8 [0..=4] "RcvQPMapContext0";
    rcv_qp_map_context1 / with_rcv_qp_map_context1: u8 [5..=9] "RcvQPMapContext1";
    rcv_qp_map_context2 / with_rcv_qp_map_context2: u8 [10..=14] "RcvQPMapContext2";
    rcv_qp_map_context3 / with_rcv_qp_map_context3: u8 [15..=19] "RcvQPMapContext3";
    rcv_qp_map_context4 / with_rcv_qp_map_context4: u8 [20..=24] "RcvQPMapContext4";
    rcv_qp_map_context5 / with_rcv_qp_map_context5: u8 [25..=29] "RcvQPMapContext5";
}

contents! {
    /// Contents of `RcvQPMapTableF`.
    pub struct RcvQpMapTableF;
    rcv_qp_map_context30 / with_rcv_qp_map_context30: u8 [0..=4] "RcvQPMapContext30";
    rcv_qp_map_context31 / with_rcv_qp_map_context31: u8 [5..=9] "RcvQPMapContext31";
}

contents! {
    /// Contents of `RcvStatus`.
    pub struct RcvStatus;
    rx_pkt_in_progress / with_rx_pkt_in_progress: bool [0] "RxPktInProgress";
    dmaeq_blocking_context / with_dmaeq_blocking_context: u8 [1..=5] "DmaeqBlockingContext";
}

contents! {
    /// Contents of `RcvQPMulticastContext`.
    pub struct RcvQpMulticastContext;
    rcv_qp_mc_context / with_rcv_qp_mc_context: u8 [0..=4] "RcvQpMcContext";
}

contents! {
    /// Contents of `RcvPktLEDCnt`.
    pub struct RcvPktLedCnt;
    of_fperiod / with_of_fperiod: u32 [0..=31] "OFFperiod";
    o_nperiod / with_o_nperiod: u32 [32..=63] "ONperiod";
}
