//! Registers of one port, first part: identity and errors. Each stands at its offset for port 0 and 0x1000 higher for port 1.

use super::{contents, registers};
use crate::status::PortErrBits;

const EXTRA: bool = false;

registers! {
    CNTR_REG_BASE: port Ro u64 @ 0x1028, "CntrRegBase_{p}", reset 0x12000, unknown 0x0;
    ERR_MASK: port Rw PortErrBits @ 0x1080, "ErrMask_{p}", reset 0x0, unknown 0x0;
    ERR_STATUS: port Ro PortErrBits @ 0x1088, "ErrStatus_{p}", reset 0x0, unknown 0x0;
    ERR_CLEAR: port W1c PortErrBits @ 0x1090, "ErrClear_{p}", reset 0x0, unknown 0x0;
    TXE_STATUS: port Ro TxeStatus @ 0x10b8, "TXEStatus_{p}", reset 0xc00080ff, unknown 0xf00000000;
}

contents! {
    /// Contents of `TXEStatus`.
    pub struct TxeStatus;
    la_fifo_empty_vl0 / with_la_fifo_empty_vl0: bool [0] "LaFifoEmpty_VL0";
    la_fifo_empty_vl1 / with_la_fifo_empty_vl1: bool [1] "LaFifoEmpty_VL1";
    la_fifo_empty_vl2 / with_la_fifo_empty_vl2: bool [2] "LaFifoEmpty_VL2";
    la_fifo_empty_vl3 / with_la_fifo_empty_vl3: bool [3] "LaFifoEmpty_VL3";
    la_fifo_empty_vl4 / with_la_fifo_empty_vl4: bool [4] "LaFifoEmpty_VL4";
    la_fifo_empty_vl5 / with_la_fifo_empty_vl5: bool [5] "LaFifoEmpty_VL5";
    la_fifo_empty_vl6 / with_la_fifo_empty_vl6: bool [6] "LaFifoEmpty_VL6";
    la_fifo_empty_vl7 / with_la_fifo_empty_vl7: bool [7] "LaFifoEmpty_VL7";
    la_fifo_empty_vl15 / with_la_fifo_empty_vl15: bool [15] "LaFifoEmpty_VL15";
    rm_fifo_empty / with_rm_fifo_empty: bool [30] "RmFifoEmpty";
    txe_ibc_idle / with_txe_ibc_idle: bool [31] "TXE_IBC_Idle";
}
