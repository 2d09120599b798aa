//! User registers: one 64 KiB page for each receive context from 0x200000, which may be handed to its owner.

use super::{contents, registers};

const EXTRA: bool = false;

registers! {
    RCV_HDR_TAIL: row[18; 0x10000] Ro u64 @ 0x200000, "RcvHdrTail{i}", reset 0x0, unknown 0x0;
    RCV_HDR_HEAD: row[18; 0x10000] Rw RcvHdrHead @ 0x200008, "RcvHdrHead{i}", reset 0x0, unknown 0x0;
    RCV_EGR_INDEX_TAIL: row[18; 0x10000] Ro u64 @ 0x200010, "RcvEgrIndexTail{i}", reset 0x0, unknown 0x0;
    RCV_EGR_INDEX_HEAD: row[18; 0x10000] Rw u64 @ 0x200018, "RcvEgrIndexHead{i}", reset 0x0, unknown 0x0;
    RCV_TID_FLOW_TABLE: ctxt_row[0x10000; 32; 8] Rw RcvTidFlowTable @ 0x201000, "RcvTIDFlowTable{c}_{i}", reset 0x0, unknown 0x0;
}

contents! {
    /// Contents of `RcvHdrHead0`.
    pub struct RcvHdrHead;
    rcv_head_pointer / with_rcv_head_pointer: u32 [0..=31] "RcvHeadPointer";
    counter / with_counter: u16 [32..=47] "counter";
}

contents! {
    /// Contents of `RcvTIDFlowTable0`.
    pub struct RcvTidFlowTable;
    seq_num / with_seq_num: u16 [0..=10] "SeqNum";
    gen_val / with_gen_val: u8 [11..=18] "GenVal";
    flow_valid / with_flow_valid: bool [19] "FlowValid";
    hdr_supp_enabled / with_hdr_supp_enabled: bool [20] "HdrSuppEnabled";
    keep_after_seq_err / with_keep_after_seq_err: bool [21] "KeepAfterSeqErr";
    keep_on_gen_err / with_keep_on_gen_err: bool [22] "KeepOnGenErr";
    seq_mismatch / with_seq_mismatch: bool [27] "SeqMismatch";
    gen_mismatch / with_gen_mismatch: bool [28] "GenMismatch";
}
