//! Work completions: what became of a work request.

use std::fmt;

use qhca_regs::Lid;

use crate::ids::{Key, QpNumber};

/// How a work request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum WcStatus {
    /// It was done.
    Success,
    /// A message was longer than the receive, or than the transport allows.
    LocalLength,
    /// This side could not do it.
    LocalQpOperation,
    /// A local key does not open the memory that the request names.
    LocalProtection,
    /// The queue pair was in the error state or entered it before the request was done.
    Flushed,
    /// A window could not be bound.
    MemoryWindowBind,
    /// The responder answered what makes no sense.
    BadResponse,
    /// The peer's write or read broke a rule of the local memory.
    LocalAccess,
    /// The responder took the request for an invalid one.
    RemoteInvalidRequest,
    /// The responder's keys do not allow it.
    RemoteAccess,
    /// The responder could not do it.
    RemoteOperation,
    /// No answer, or only sequence errors, as often as the retry count allows.
    RetryExceeded,
    /// The responder had no receive posted, as often as the RNR retry count allows.
    RnrRetryExceeded,
}

impl WcStatus {
    /// The number that `enum ibv_wc_status` gives it.
    pub const fn number(self) -> u8 {
        match self {
            Self::Success => 0,
            Self::LocalLength => 1,
            Self::LocalQpOperation => 2,
            Self::LocalProtection => 4,
            Self::Flushed => 5,
            Self::MemoryWindowBind => 6,
            Self::BadResponse => 7,
            Self::LocalAccess => 8,
            Self::RemoteInvalidRequest => 9,
            Self::RemoteAccess => 10,
            Self::RemoteOperation => 11,
            Self::RetryExceeded => 12,
            Self::RnrRetryExceeded => 13,
        }
    }

    /// What is usually the cause, in a sentence.
    pub const fn likely_cause(self) -> &'static str {
        match self {
            Self::Success => "none: it was done",
            Self::LocalLength => "the receive is too small for the message that came",
            Self::LocalQpOperation => "the request does not suit this queue pair",
            Self::LocalProtection => {
                "an address, length, key or protection domain of the request's own list is wrong"
            }
            Self::Flushed => "an earlier request failed, or the queue pair was moved to the error state",
            Self::MemoryWindowBind => "the region does not allow windows, or the window is bound already",
            Self::BadResponse => "the peer's answer does not match the request",
            Self::LocalAccess => "the peer reached for memory that it was not given",
            Self::RemoteInvalidRequest => {
                "the peer's receive is too small, or its queue pair does not allow this operation"
            }
            Self::RemoteAccess => "remote address, length or R_Key is wrong, or the region lacks the right",
            Self::RemoteOperation => "the peer's own receive list is wrong",
            Self::RetryExceeded => "the peer is gone, its queue pair is not ready, or the cable is cut",
            Self::RnrRetryExceeded => "the peer has no receive posted",
        }
    }
}

impl fmt::Display for WcStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Success => "success",
            Self::LocalLength => "local length error",
            Self::LocalQpOperation => "local QP operation error",
            Self::LocalProtection => "local protection error",
            Self::Flushed => "work request flushed",
            Self::MemoryWindowBind => "memory window bind error",
            Self::BadResponse => "bad response",
            Self::LocalAccess => "local access error",
            Self::RemoteInvalidRequest => "remote invalid request",
            Self::RemoteAccess => "remote access error",
            Self::RemoteOperation => "remote operation error",
            Self::RetryExceeded => "transport retry count exceeded",
            Self::RnrRetryExceeded => "RNR retry count exceeded",
        })
    }
}

/// Which kind of work request it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WcOpcode {
    /// A SEND.
    Send,
    /// An RDMA WRITE.
    Write,
    /// An RDMA READ.
    Read,
    /// A compare and swap.
    CompareSwap,
    /// A fetch and add.
    FetchAdd,
    /// A bind of a memory window.
    BindWindow,
    /// A local invalidate.
    LocalInvalidate,
    /// A receive that a SEND filled.
    Recv,
    /// A receive that an RDMA WRITE with immediate used up.
    RecvWriteImmediate,
}

impl fmt::Display for WcOpcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Send => "SEND",
            Self::Write => "RDMA WRITE",
            Self::Read => "RDMA READ",
            Self::CompareSwap => "compare-swap",
            Self::FetchAdd => "fetch-add",
            Self::BindWindow => "bind",
            Self::LocalInvalidate => "local invalidate",
            Self::Recv => "receive",
            Self::RecvWriteImmediate => "receive of a WRITE with immediate",
        })
    }
}

/// What came along with a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Along {
    /// Nothing.
    #[default]
    None,
    /// Immediate data.
    Immediate(u32),
    /// This key was invalidated.
    Invalidated(Key),
}

/// Who sent a datagram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sender {
    /// The queue pair.
    pub qp: QpNumber,
    /// The port.
    pub lid: Lid,
    /// The service level.
    pub sl: u8,
    /// Whether the first 40 bytes of the receive are a GRH.
    pub has_grh: bool,
    /// Which P_Key of the table it bore.
    pub pkey_index: u16,
}

/// What is known of a request that succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WcDetail {
    /// Which kind of request.
    pub opcode: WcOpcode,
    /// Bytes of the message; for datagrams with the 40 bytes of the GRH's room.
    pub len_bytes: u32,
    /// What came along.
    pub along: Along,
    /// For datagrams: who sent it.
    pub sender: Sender,
}

/// A work completion.
///
/// Of a request that failed only `wr_id`, `status` and `qp` mean anything, so the rest is behind
/// [`detail`](Self::detail).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wc {
    /// What the poster called it.
    pub wr_id: u64,
    /// How it ended.
    pub status: WcStatus,
    /// Of which queue pair.
    pub qp: QpNumber,
    pub(crate) detail: WcDetail,
}

impl Wc {
    /// A completion that says nothing, to fill arrays with.
    pub const EMPTY: Self = Self {
        wr_id: 0,
        status: WcStatus::Flushed,
        qp: QpNumber::new(0),
        detail: WcDetail {
            opcode: WcOpcode::Send,
            len_bytes: 0,
            along: Along::None,
            sender: Sender { qp: QpNumber::new(0), lid: Lid(0), sl: 0, has_grh: false, pkey_index: 0 },
        },
    };

    /// What is known of a request that succeeded; `None` if it did not.
    #[inline]
    pub fn detail(&self) -> Option<&WcDetail> {
        (self.status == WcStatus::Success).then_some(&self.detail)
    }
}

impl fmt::Display for Wc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} request {:#x}: ", self.qp, self.wr_id)?;
        match self.detail() {
            Some(detail) => write!(f, "{} of {} bytes done", detail.opcode, detail.len_bytes),
            None => write!(
                f,
                "{} (status {}); likely cause: {}",
                self.status,
                self.status.number(),
                self.status.likely_cause()
            ),
        }
    }
}
