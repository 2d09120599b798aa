//! Work requests: what an application asks for.

use std::fmt;

use bitflags::bitflags;
use qhca_regs::Lid;

use crate::ids::{Key, QpNumber};
use crate::mem::{Access, Sge};
use crate::qp::QpState;
use crate::wire::Gid;

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendOp {
    /// SEND: the peer's next receive says where.
    Send,
    /// SEND with 32 bits for the receive's completion.
    SendImmediate(u32),
    /// SEND, and the peer invalidates a window.
    SendInvalidate(Key),
    /// RDMA WRITE.
    Write {
        /// Where, in the peer's terms.
        addr: u64,
        /// The peer's key.
        rkey: Key,
    },
    /// RDMA WRITE that uses up a receive and gives its completion 32 bits.
    WriteImmediate {
        /// Where, in the peer's terms.
        addr: u64,
        /// The peer's key.
        rkey: Key,
        /// The 32 bits.
        immediate: u32,
    },
    /// RDMA READ.
    Read {
        /// From where, in the peer's terms.
        addr: u64,
        /// The peer's key.
        rkey: Key,
    },
    /// Compare and swap of eight bytes; the list gets what was there.
    CompareSwap {
        /// Where, in the peer's terms; a multiple of eight.
        addr: u64,
        /// The peer's key.
        rkey: Key,
        /// What must be there.
        compare: u64,
        /// What to store then.
        swap: u64,
    },
    /// Fetch and add of eight bytes; the list gets what was there.
    FetchAdd {
        /// Where, in the peer's terms; a multiple of eight.
        addr: u64,
        /// The peer's key.
        rkey: Key,
        /// What to add, wrapping.
        add: u64,
    },
    /// Binds a type 2 window to the stretch that the list's one entry names.
    BindWindow {
        /// The window's key; the bind replaces its lower eight bits.
        rkey: Key,
        /// The new lower eight bits.
        key_part: u8,
        /// The rights of the window.
        access: Access,
    },
    /// Takes a window's binding away.
    LocalInvalidate(Key),
}

impl SendOp {
    /// Whether an answer with data is expected, for which the responder keeps resources.
    #[inline]
    pub(crate) const fn wants_answer(&self) -> bool {
        matches!(self, Self::Read { .. } | Self::CompareSwap { .. } | Self::FetchAdd { .. })
    }

    /// Whether it sends nothing.
    #[inline]
    pub(crate) const fn is_local(&self) -> bool {
        matches!(self, Self::BindWindow { .. } | Self::LocalInvalidate(_))
    }

    /// Whether it uses up a receive of the peer.
    #[inline]
    pub(crate) const fn takes_receive(&self) -> bool {
        matches!(
            self,
            Self::Send | Self::SendImmediate(_) | Self::SendInvalidate(_) | Self::WriteImmediate { .. }
        )
    }
}

bitflags! {
    /// How a request is to be treated.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct SendFlags: u8 {
        /// A completion also when it succeeds.
        const SIGNALED = 1;
        /// The peer's completion raises a solicited event.
        const SOLICITED = 2;
        /// Not before all READs and atomics before it are done.
        const FENCE = 4;
    }
}

/// Where the data is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Data<'a> {
    /// In registered memory, which is read when it is sent, and again if that is needed.
    Sges(&'a [Sge]),
    /// Here; copied by the call.
    Inline(&'a [u8]),
}

/// How to reach a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AddressVector {
    /// The port, or the multicast group, or the router if there is a `grh`.
    pub dlid: Lid,
    /// Service level.
    pub sl: u8,
    /// What is added to this port's LID, below 2^LMC.
    pub path_bits: u8,
    /// Ticks of pause for each dword of a packet; 0 at full rate.
    pub static_rate: u8,
    /// The way beyond the subnet.
    pub grh: Option<GlobalRoute>,
}

/// What a GRH says beyond our own GID.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GlobalRoute {
    /// The destination.
    pub dgid: Gid,
    /// Which of this port's GIDs is the source.
    pub sgid_index: u8,
    /// Traffic class.
    pub traffic_class: u8,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Routers that may be passed.
    pub hop_limit: u8,
}

/// Where a datagram goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Destination {
    /// The port.
    pub address: AddressVector,
    /// The queue pair.
    pub qp: QpNumber,
    /// The key that it must have. With the top bit set the sender's own is used.
    pub qkey: u32,
}

/// A request to send, write, read.
#[derive(Clone, Copy, Debug)]
pub struct SendWr<'a> {
    /// What the poster calls it.
    pub wr_id: u64,
    /// What is to be done.
    pub op: SendOp,
    /// How.
    pub flags: SendFlags,
    /// With what.
    pub data: Data<'a>,
    /// For datagrams: where to.
    pub to: Option<Destination>,
}

impl<'a> SendWr<'a> {
    /// A signalled request.
    pub fn new(wr_id: u64, op: SendOp, sges: &'a [Sge]) -> Self {
        Self { wr_id, op, flags: SendFlags::SIGNALED, data: Data::Sges(sges), to: None }
    }
}

/// A receive.
#[derive(Clone, Copy, Debug)]
pub struct RecvWr<'a> {
    /// What the poster calls it.
    pub wr_id: u64,
    /// Where the message goes.
    pub sges: &'a [Sge],
}

/// Why a request was refused when it was posted. Nothing was done then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PostError {
    /// No such queue pair or shared receive queue.
    NoSuchQueue,
    /// In this state none of the kind can be posted.
    State(QpState),
    /// The queue is full: poll for completions.
    QueueFull {
        /// Requests that it holds.
        depth: u32,
    },
    /// More stretches than the queue was made for.
    TooManySges {
        /// What was given.
        given: usize,
        /// What is possible.
        max: usize,
    },
    /// More inline data than the queue was made for.
    InlineTooLong {
        /// Bytes that were given.
        given: usize,
        /// Bytes that are possible.
        max: usize,
    },
    /// Inline data for an operation that has no data of its own to send.
    InlineNotAllowed,
    /// A message longer than the transport carries.
    TooLong {
        /// Bytes that were given.
        given: u64,
        /// Bytes that are possible.
        max: u32,
    },
    /// The transport does not know this operation.
    NotSupported,
    /// An atomic that is not on eight aligned bytes, or with a list of another length than eight bytes.
    AtomicShape,
    /// A bind that does not name exactly one stretch.
    BindShape,
    /// A READ or atomic on a queue pair that may have none under way (`max_rd_atomic` is 0).
    NoInitiatorDepth,
    /// A datagram without a destination, or a connected request with one.
    Destination,
    /// A receive on a queue pair that takes its receives from a shared queue.
    HasSrq,
}

impl fmt::Display for PostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSuchQueue => f.write_str("there is no such queue"),
            Self::State(state) => write!(f, "the queue pair is in {state}: this cannot be posted there"),
            Self::QueueFull { depth } => write!(f, "all {depth} places are taken: poll for completions"),
            Self::TooManySges { given, max } => write!(f, "{given} stretches: the queue takes {max}"),
            Self::InlineTooLong { given, max } => write!(f, "{given} inline bytes: the queue takes {max}"),
            Self::InlineNotAllowed => f.write_str("this operation has no data that could be inline"),
            Self::TooLong { given, max } => write!(f, "{given} bytes: at most {max} go into one message"),
            Self::NotSupported => f.write_str("this transport does not know the operation"),
            Self::AtomicShape => f.write_str("an atomic works on eight bytes at a multiple of eight"),
            Self::BindShape => f.write_str("a bind names exactly one stretch"),
            Self::NoInitiatorDepth => f.write_str("max_rd_atomic is 0: no READ or atomic may be under way"),
            Self::Destination => f.write_str("datagrams have a destination, connected requests have none"),
            Self::HasSrq => f.write_str("receives are taken from the shared receive queue: post there"),
        }
    }
}

impl std::error::Error for PostError {}

/// Which request of a list was refused, and why. Those before it were posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadRequest {
    /// Its place in the list.
    pub index: usize,
    /// Why.
    pub why: PostError,
}

impl fmt::Display for BadRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "work request {} of the list: {}", self.index, self.why)
    }
}

impl std::error::Error for BadRequest {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.why)
    }
}
