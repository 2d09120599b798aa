//! What is played: settings of a connection, requests of both sides, a fault of the cable, trouble in a request.

use std::fmt;

use super::rng::Rng;
use crate::psn::Psn;
use crate::qp::Mtu;

/// What is wrong with the cable, or with an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fault {
    /// Nothing.
    None,
    /// Packets are lost.
    Loss,
    /// Packets come twice.
    Duplicate,
    /// Packets are late, and overtaken.
    Delay,
    /// Packets are damaged, which a chip sees by the ICRC and tells instead of handing them out.
    Corrupt,
    /// An endpoint does nothing for a while.
    Stall,
    /// A queue pair is reset in the middle, and connected again.
    Reset,
    /// The link is down for a while.
    Flap,
    /// All of these in turn, a little.
    Mixed,
}

impl Fault {
    /// All faults.
    pub const ALL: [Self; 9] = [
        Self::None,
        Self::Loss,
        Self::Duplicate,
        Self::Delay,
        Self::Corrupt,
        Self::Stall,
        Self::Reset,
        Self::Flap,
        Self::Mixed,
    ];
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::None => "none",
            Self::Loss => "loss",
            Self::Duplicate => "duplicate",
            Self::Delay => "delay",
            Self::Corrupt => "corrupt",
            Self::Stall => "stall",
            Self::Reset => "reset",
            Self::Flap => "flap",
            Self::Mixed => "mixed",
        })
    }
}

/// What is wrong with one request of the scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Trouble {
    /// Nothing.
    None,
    /// Its R_Key was given back.
    StaleKey,
    /// It reaches past the end of the region.
    RemoteBounds,
    /// The peer's queue pair does not allow the operation.
    NoRight,
    /// The peer's receive is too small for it.
    SmallReceive,
    /// The peer's receive names a key that opens nothing.
    BadReceive,
    /// Its own list names a key that opens nothing.
    BadList,
    /// The peer posts no receive, and RNR retries are counted.
    NoReceive,
    /// The cable is cut for good.
    Cut,
}

impl Trouble {
    /// All kinds of trouble.
    pub const ALL: [Self; 9] = [
        Self::None,
        Self::StaleKey,
        Self::RemoteBounds,
        Self::NoRight,
        Self::SmallReceive,
        Self::BadReceive,
        Self::BadList,
        Self::NoReceive,
        Self::Cut,
    ];

    /// Whether it can befall `op`.
    pub(super) fn befalls(self, op: Op) -> bool {
        match self {
            Self::None => false,
            Self::StaleKey | Self::RemoteBounds | Self::NoRight => !op.is_send(),
            Self::SmallReceive | Self::BadReceive => op.is_send(),
            Self::NoReceive => op.takes_receive(),
            Self::BadList => !op.is_atomic(),
            Self::Cut => true,
        }
    }
}

/// An operation, as the scenarios count them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Op {
    /// SEND.
    Send,
    /// SEND with immediate.
    SendImmediate,
    /// SEND with invalidate; a window is bound for it before.
    SendInvalidate,
    /// RDMA WRITE.
    Write,
    /// RDMA WRITE with immediate.
    WriteImmediate,
    /// RDMA READ.
    Read,
    /// Compare and swap.
    CompareSwap,
    /// Fetch and add.
    FetchAdd,
}

impl Op {
    /// All operations.
    pub const ALL: [Self; 8] = [
        Self::Send,
        Self::SendImmediate,
        Self::SendInvalidate,
        Self::Write,
        Self::WriteImmediate,
        Self::Read,
        Self::CompareSwap,
        Self::FetchAdd,
    ];

    pub(super) fn is_send(self) -> bool {
        matches!(self, Self::Send | Self::SendImmediate | Self::SendInvalidate)
    }

    pub(super) fn is_atomic(self) -> bool {
        matches!(self, Self::CompareSwap | Self::FetchAdd)
    }

    pub(super) fn takes_receive(self) -> bool {
        self.is_send() || self == Self::WriteImmediate
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Send => "SEND",
            Self::SendImmediate => "SEND imm",
            Self::SendInvalidate => "SEND inv",
            Self::Write => "WRITE",
            Self::WriteImmediate => "WRITE imm",
            Self::Read => "READ",
            Self::CompareSwap => "CMP-SWAP",
            Self::FetchAdd => "FETCH-ADD",
        })
    }
}

/// One request that will be posted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Planned {
    pub(super) op: Op,
    pub(super) len_bytes: u32,
    pub(super) sges: u32,
    pub(super) is_inline: bool,
    pub(super) fence: bool,
    pub(super) solicited: bool,
    pub(super) signaled: bool,
    pub(super) trouble: Trouble,
    /// For atomics: compare, and swap or add.
    pub(super) values: (u64, u64),
}

/// A scenario, all of it from one number.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The number.
    pub seed: u64,
    /// What is wrong with the cable.
    pub fault: Fault,
    /// What is wrong with one request of side A.
    pub trouble: Trouble,
    pub(super) mtu: Mtu,
    pub(super) psn: [Psn; 2],
    pub(super) window: u32,
    pub(super) read_split: u32,
    pub(super) ack_every: u32,
    pub(super) send_depth: u32,
    pub(super) timeout: u8,
    pub(super) retry_count: u8,
    pub(super) rnr_retry: u8,
    pub(super) rnr_timer: u8,
    pub(super) depth: u8,
    pub(super) with_srq: [bool; 2],
    /// Receives posted at the start, and how many completions are gathered before more are.
    pub(super) receives: [(u32, u32); 2],
    pub(super) requests: [Vec<Planned>; 2],
    /// Faults befall so many packets of a thousand.
    pub(super) per_mille: u64,
}

/// Inline bytes of one request.
pub(super) const INLINE_MAX: u32 = 64;

impl Scenario {
    /// The scenario of `seed`.
    pub fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let fault = rng.pick(&Fault::ALL);
        let trouble = if rng.chance(350) { rng.pick(&Trouble::ALL) } else { Trouble::None };
        let mtu = rng.pick(&[Mtu::B256, Mtu::B256, Mtu::B256, Mtu::B512, Mtu::B1024, Mtu::B2048, Mtu::B4096]);
        let psn = |rng: &mut Rng| match rng.below(3) {
            0 => Psn::new(0xFF_FFFF - rng.below(12) as u32),
            1 => Psn::new((1 << 23) - rng.below(12) as u32),
            _ => Psn::new(rng.draw() as u32),
        };
        let psn = [psn(&mut rng), psn(&mut rng)];
        let depth = rng.pick(&[1, 1, 2, 4, 16]);
        // A cut cable is told by the retry count; the rest should come through all of the faults.
        let retry_count = if trouble == Trouble::Cut { rng.below(3) as u8 } else { 7 };
        let rnr_retry = if trouble == Trouble::NoReceive { rng.below(4) as u8 } else { 7 };
        let receives = |rng: &mut Rng| (rng.between(1, 12) as u32, rng.between(1, 4) as u32);
        let mut scenario = Self {
            seed,
            fault,
            trouble,
            mtu,
            psn,
            window: rng.pick(&[2, 5, 16, 64, Psn::WINDOW]),
            read_split: rng.pick(&[1, 2, 3, 1 << 16]),
            ack_every: rng.pick(&[1, 2, 5, 64]),
            send_depth: rng.between(1, 16) as u32,
            timeout: 9,
            retry_count,
            rnr_retry,
            rnr_timer: rng.between(1, 12) as u8,
            depth,
            with_srq: [rng.chance(250), rng.chance(250)],
            receives: [receives(&mut rng), receives(&mut rng)],
            requests: [Vec::new(), Vec::new()],
            per_mille: rng.pick(&[5, 20, 60, 120]),
        };
        let counts = [rng.between(12, 16), rng.between(8, 12)];
        for (side, count) in counts.into_iter().enumerate() {
            scenario.requests[side] = (0..count).map(|_| scenario.plan(&mut rng)).collect();
        }
        scenario.place_trouble(&mut rng);
        scenario
    }

    fn plan(&self, rng: &mut Rng) -> Planned {
        let op = rng.pick(&Op::ALL);
        let mtu = self.mtu.bytes();
        let len_bytes = match rng.below(12) {
            0 => 0,
            1 => 1,
            2 => rng.between(2, 7) as u32,
            3..=5 => rng.between(8, 64) as u32,
            6 => mtu - 1,
            7 => mtu,
            8 => mtu + 1,
            9 => 2 * mtu,
            _ => rng.between(1, 5 * 256.max(u64::from(mtu) / 2)) as u32,
        };
        let len_bytes = if op.is_atomic() { 8 } else { len_bytes };
        Planned {
            op,
            len_bytes,
            sges: rng.between(1, 3) as u32,
            is_inline: len_bytes <= INLINE_MAX && !op.is_atomic() && op != Op::Read && rng.chance(300),
            fence: rng.chance(150),
            solicited: rng.chance(200),
            signaled: rng.chance(800),
            trouble: Trouble::None,
            values: (rng.below(3), rng.below(3)),
        }
    }

    /// Gives one request of side A its trouble.
    fn place_trouble(&mut self, rng: &mut Rng) {
        let trouble = self.trouble;
        if matches!(trouble, Trouble::None | Trouble::Cut) {
            return;
        }
        let requests = &mut self.requests[0];
        let start = rng.below(requests.len() as u64) as usize;
        let count = requests.len();
        let found =
            (0..count).map(|step| (start + step) % count).find(|at| trouble.befalls(requests[*at].op));
        let Some(at) = found else {
            self.trouble = Trouble::None;
            return;
        };
        let request = &mut requests[at];
        request.trouble = trouble;
        request.is_inline &= trouble != Trouble::BadList;
        if !request.op.is_atomic() {
            request.len_bytes = request.len_bytes.max(1);
        }
        if request.is_inline {
            request.len_bytes = request.len_bytes.min(INLINE_MAX);
        }
    }
}
