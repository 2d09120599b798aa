//! The states of a queue pair, and which attributes each change of state needs and allows.
//!
//! ```text
//!   RESET ─► INIT ─► RTR ─► RTS ◄─► SQD          any ─► RESET, any ─► ERR
//!              │               ▲
//!              ▼ (again)       └── SQE           SQE: the send queue of UC and UD failed
//! ```

use std::fmt;

use bitflags::bitflags;

use crate::ids::QpNumber;
use crate::mem::Access;
use crate::psn::Psn;
use crate::wire::Service;
use crate::wr::AddressVector;

/// The state of a queue pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum QpState {
    /// New, or made new again.
    #[default]
    Reset,
    /// Receives can be posted.
    Init,
    /// Ready to receive.
    Rtr,
    /// Ready to send.
    Rts,
    /// The send queue drains: what was begun is finished, nothing new is begun.
    Sqd,
    /// The send queue failed; receiving goes on.
    Sqe,
    /// Everything is flushed.
    Error,
}

impl QpState {
    /// All states.
    pub const ALL: [Self; 7] =
        [Self::Reset, Self::Init, Self::Rtr, Self::Rts, Self::Sqd, Self::Sqe, Self::Error];

    /// Whether packets for the queue pair are taken.
    #[inline]
    pub(crate) const fn receives(self) -> bool {
        matches!(self, Self::Rtr | Self::Rts | Self::Sqd | Self::Sqe)
    }
}

impl fmt::Display for QpState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Reset => "RESET",
            Self::Init => "INIT",
            Self::Rtr => "RTR",
            Self::Rts => "RTS",
            Self::Sqd => "SQD",
            Self::Sqe => "SQE",
            Self::Error => "ERR",
        })
    }
}

/// Payload bytes of a packet at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mtu {
    /// 256 bytes.
    B256 = 1,
    /// 512 bytes.
    B512 = 2,
    /// 1024 bytes.
    B1024 = 3,
    /// 2048 bytes.
    B2048 = 4,
    /// 4096 bytes.
    B4096 = 5,
}

impl Mtu {
    /// All, ascending.
    pub const ALL: [Self; 5] = [Self::B256, Self::B512, Self::B1024, Self::B2048, Self::B4096];

    /// Bytes.
    #[inline]
    pub const fn bytes(self) -> u32 {
        1 << self.shift()
    }

    /// The logarithm of the bytes.
    #[inline]
    pub const fn shift(self) -> u32 {
        7 + self as u32
    }

    /// From the number that PortInfo and `enum ibv_mtu` use.
    pub const fn from_code(code: u8) -> Option<Self> {
        match code {
            1..=5 => Some(Self::ALL[code as usize - 1]),
            _ => None,
        }
    }
}

bitflags! {
    /// Which attributes a modify sets.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct AttrMask: u32 {
        /// `cur_state`.
        const CUR_STATE = 1 << 0;
        /// `drained_event`.
        const DRAINED_EVENT = 1 << 1;
        /// `access`.
        const ACCESS = 1 << 2;
        /// `pkey_index`.
        const PKEY_INDEX = 1 << 3;
        /// `port`.
        const PORT = 1 << 4;
        /// `qkey`.
        const QKEY = 1 << 5;
        /// `address`.
        const ADDRESS = 1 << 6;
        /// `path_mtu`.
        const PATH_MTU = 1 << 7;
        /// `timeout`.
        const TIMEOUT = 1 << 8;
        /// `retry_count`.
        const RETRY_COUNT = 1 << 9;
        /// `rnr_retry`.
        const RNR_RETRY = 1 << 10;
        /// `rq_psn`.
        const RQ_PSN = 1 << 11;
        /// `max_rd_atomic`.
        const MAX_RD_ATOMIC = 1 << 12;
        /// `alternate_path`.
        const ALTERNATE_PATH = 1 << 13;
        /// `min_rnr_timer`.
        const MIN_RNR_TIMER = 1 << 14;
        /// `sq_psn`.
        const SQ_PSN = 1 << 15;
        /// `max_dest_rd_atomic`.
        const MAX_DEST_RD_ATOMIC = 1 << 16;
        /// `dest_qp`.
        const DEST_QP = 1 << 20;
    }
}

/// What a modify sets; what is `None` stays as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QpAttr {
    /// The new state; none is "the same".
    pub state: Option<QpState>,
    /// The state that the caller takes the queue pair to be in.
    pub cur_state: Option<QpState>,
    /// Whether an event tells when the send queue is drained.
    pub drained_event: Option<bool>,
    /// What the peer may do.
    pub access: Option<Access>,
    /// Which P_Key.
    pub pkey_index: Option<u16>,
    /// The port, from 1.
    pub port: Option<u8>,
    /// The key that datagrams must have.
    pub qkey: Option<u32>,
    /// How to reach the peer.
    pub address: Option<AddressVector>,
    /// The largest packet of the way to the peer.
    pub path_mtu: Option<Mtu>,
    /// Local ack timeout, 0 to 31: 4.096 µs × 2^timeout; 0 waits for ever.
    pub timeout: Option<u8>,
    /// Repeats without progress, 0 to 7, taken literally.
    pub retry_count: Option<u8>,
    /// Repeats for want of a receive, 0 to 6; 7 repeats for ever.
    pub rnr_retry: Option<u8>,
    /// The peer's first sequence number.
    pub rq_psn: Option<Psn>,
    /// READs and atomics under way at most.
    pub max_rd_atomic: Option<u8>,
    /// Set to anything: path migration is refused.
    pub alternate_path: Option<AddressVector>,
    /// The code of the pause that a peer is asked to make when no receive is posted, 1 to 31.
    pub min_rnr_timer: Option<RnrTimer>,
    /// Our first sequence number.
    pub sq_psn: Option<Psn>,
    /// READs and atomics of the peer that we keep answers for.
    pub max_dest_rd_atomic: Option<u8>,
    /// The peer's queue pair.
    pub dest_qp: Option<QpNumber>,
}

impl QpAttr {
    /// An attempt to go to `state`, with nothing else.
    pub fn to(state: QpState) -> Self {
        Self { state: Some(state), ..Self::default() }
    }

    /// Which attributes are set.
    pub fn mask(&self) -> AttrMask {
        let set = [
            (self.cur_state.is_some(), AttrMask::CUR_STATE),
            (self.drained_event.is_some(), AttrMask::DRAINED_EVENT),
            (self.access.is_some(), AttrMask::ACCESS),
            (self.pkey_index.is_some(), AttrMask::PKEY_INDEX),
            (self.port.is_some(), AttrMask::PORT),
            (self.qkey.is_some(), AttrMask::QKEY),
            (self.address.is_some(), AttrMask::ADDRESS),
            (self.path_mtu.is_some(), AttrMask::PATH_MTU),
            (self.timeout.is_some(), AttrMask::TIMEOUT),
            (self.retry_count.is_some(), AttrMask::RETRY_COUNT),
            (self.rnr_retry.is_some(), AttrMask::RNR_RETRY),
            (self.rq_psn.is_some(), AttrMask::RQ_PSN),
            (self.max_rd_atomic.is_some(), AttrMask::MAX_RD_ATOMIC),
            (self.alternate_path.is_some(), AttrMask::ALTERNATE_PATH),
            (self.min_rnr_timer.is_some(), AttrMask::MIN_RNR_TIMER),
            (self.sq_psn.is_some(), AttrMask::SQ_PSN),
            (self.max_dest_rd_atomic.is_some(), AttrMask::MAX_DEST_RD_ATOMIC),
            (self.dest_qp.is_some(), AttrMask::DEST_QP),
        ];
        set.into_iter().filter(|(is_set, _)| *is_set).map(|(_, bit)| bit).collect()
    }
}

/// The code of an RNR timer as an attribute of ours: 0, which is 655.36 ms, only if asked for by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RnrTimer {
    /// Code 1 to 31.
    Code(u8),
    /// Code 0: the longest of all, 655.36 ms. A zero that somebody forgot to set cost others a factor of 280.
    Longest655Ms,
}

/// What a change of state needs, and what it allows besides; `None` if there is no such change.
pub fn allowed(service: Service, from: QpState, to: QpState) -> Option<(AttrMask, AttrMask)> {
    use AttrMask as A;
    use QpState as S;
    let none = A::empty();
    let is = |wanted: Service| service == wanted;
    let connected = !is(Service::Ud);
    let only = |condition: bool, mask: A| if condition { mask } else { none };
    let init = A::PKEY_INDEX | A::PORT | if connected { A::ACCESS } else { A::QKEY };
    let path = only(connected, A::ALTERNATE_PATH | A::ACCESS) | only(!connected, A::QKEY);
    Some(match (from, to) {
        (_, S::Reset | S::Error) => (none, none),
        (S::Reset, S::Init) => (init, none),
        (S::Init, S::Init) => (none, init),
        (S::Init, S::Rtr) => {
            let needs = only(connected, A::ADDRESS | A::PATH_MTU | A::DEST_QP | A::RQ_PSN)
                | only(is(Service::Rc), A::MAX_DEST_RD_ATOMIC | A::MIN_RNR_TIMER);
            (needs, path | A::PKEY_INDEX)
        }
        (S::Rtr, S::Rts) => {
            let reliable = A::TIMEOUT | A::RETRY_COUNT | A::RNR_RETRY | A::MAX_RD_ATOMIC;
            (
                A::SQ_PSN | only(is(Service::Rc), reliable),
                path | A::CUR_STATE | only(is(Service::Rc), A::MIN_RNR_TIMER),
            )
        }
        (S::Rts, S::Rts) | (S::Sqd, S::Rts) => {
            (none, path | A::CUR_STATE | only(is(Service::Rc), A::MIN_RNR_TIMER))
        }
        (S::Rts, S::Sqd) => (none, A::DRAINED_EVENT),
        (S::Sqd, S::Sqd) => {
            let reliable = A::PORT
                | A::TIMEOUT
                | A::RETRY_COUNT
                | A::RNR_RETRY
                | A::MAX_RD_ATOMIC
                | A::MAX_DEST_RD_ATOMIC
                | A::MIN_RNR_TIMER;
            (none, path | A::PKEY_INDEX | only(connected, A::ADDRESS) | only(is(Service::Rc), reliable))
        }
        (S::Sqe, S::Rts) if !is(Service::Rc) => {
            (none, A::CUR_STATE | only(connected, A::ACCESS) | only(!connected, A::QKEY))
        }
        _ => return None,
    })
}

/// Why a queue pair could not be changed. It is as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ModifyError {
    /// There is no such queue pair.
    NoSuchQp(QpNumber),
    /// It is not in the state that the caller takes it to be in.
    CurrentState {
        /// What the caller says.
        said: QpState,
        /// What it is.
        is: QpState,
    },
    /// There is no such change of state.
    NoSuchChange {
        /// The state that it is in.
        from: QpState,
        /// The state that was asked for.
        to: QpState,
    },
    /// Attributes that this change needs are not set.
    Missing(AttrMask),
    /// Attributes are set that this change does not allow.
    NotAllowed(AttrMask),
    /// An attribute has a value that is not possible.
    Value {
        /// The attribute.
        attribute: AttrMask,
        /// The value.
        value: u64,
        /// The largest possible one.
        max: u64,
    },
    /// Paths do not migrate here.
    PathMigration,
    /// An RNR timer of 0 is 655.36 ms: ask for [`RnrTimer::Longest655Ms`] if that is what is meant.
    RnrTimerZero,
}

impl fmt::Display for ModifyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSuchQp(qp) => write!(f, "there is no {qp}"),
            Self::CurrentState { said, is } => write!(f, "the queue pair is in {is}, not in {said}"),
            Self::NoSuchChange { from, to } => write!(f, "there is no way from {from} to {to}"),
            Self::Missing(mask) => write!(f, "this change also needs {mask:?}"),
            Self::NotAllowed(mask) => write!(f, "this change does not allow {mask:?}"),
            Self::Value { attribute, value, max } => {
                write!(f, "{attribute:?} is {value}: at most {max} is possible")
            }
            Self::PathMigration => f.write_str("paths do not migrate here: set no alternate path"),
            Self::RnrTimerZero => {
                f.write_str("an RNR timer of 0 is 655.36 ms: say Longest655Ms if that is meant, else 1 to 31")
            }
        }
    }
}

impl std::error::Error for ModifyError {}
