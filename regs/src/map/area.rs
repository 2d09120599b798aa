//! Tables in the BAR: buffer availability, MSI-X, logic analyser, eager and expected receive arrays, Tx equaliser map.

use super::{contents, registers};

const EXTRA: bool = false;

registers! {
    SEND_BUF_AVAIL: row[6; 0x8] Ro u64 @ 0x3000, "SendBufAvail{i}", reset 0x0, unknown 0x0;
    MSIX_TABLE: area[64; 8] Rw u64 @ 0x8000, "MsixTable", reset 0x0, unknown 0x0;
    MSIX_PBA: area[1; 8] Ro u64 @ 0x9000, "MsixPba", reset 0x0, unknown 0x0;
    LA_MEMORY: area[512; 8] Rw u64 @ 0xa000, "LAMemory", reset 0x0, unknown 0x0;
    RCV_EGR_ARRAY: area[18432; 8] Rw RcvArrayEntry @ 0x14000, "RcvEgrArray", reset 0x0, unknown 0x0;
    RCV_TID_ARRAY: ctxt_area[0x1000; 512; 8] Rw RcvArrayEntry @ 0x50000, "RcvTIDArray{c}", reset 0x0, unknown 0x0;
    IB_SD_DDS_MAP_TABLE: port_row[48; 8] Rw u64 @ 0xd0000, "IBSD_DDS_MAP_TABLE{i}_{p}", reset 0x0, unknown 0x0;
}

contents! {
    /// Contents of `RcvEgrArray`.
    pub struct RcvArrayEntry;
    rt_addr / with_rt_addr: u64 [0..=36] "RT_Addr";
    rt_buf_size / with_rt_buf_size: u8 [37..=39] "RT_BufSize";
}
