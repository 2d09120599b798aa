//! Our policy: inline where the queue pair lives, hand over elsewhere, wake only who sleeps, move only when it is quiet.
//!
//! The chip's queue-pair map steers a packet to its owner's receive context, so the usual answer is `Inline`. What comes
//! to another core goes into the owner's inbox; the owner is woken only if it has gone to sleep with an empty inbox. A
//! queue pair whose task is idle and that has next to nothing waiting may be run where its packet is ("stolen"), so
//! that a ping-pong stays on one core. The task's state (see [`super::task`]) makes sure that nobody else runs it.
//!
//! Inline work is bounded per turn, so that a flood of one queue pair does not keep the core from its queues.

use super::{Arrival, CoreId, Placed, Spread};

/// Packets that a turn of a core may run inline.
pub const INLINE_PACKETS_MAX: u32 = 64;
/// Time that a turn of a core may spend inline.
pub const INLINE_NS_MAX: u64 = 20_000;
/// A queue pair with more packets waiting is not run inline.
pub const INLINE_BACKLOG_MAX: u32 = 2;
/// A queue pair with more packets waiting is not stolen.
pub const STEAL_BACKLOG_MAX: u32 = 1;
/// Load above which a core gives queue pairs away, in per cent.
pub const LOADED_PERCENT: u32 = 80;
/// So long must the load last.
pub const LOADED_FOR_NS: u64 = 10_000_000;
/// And so many packets must wait.
pub const LOADED_BACKLOG: u32 = 8;

/// A queue pair changes its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// The queue pair.
    pub qpn: u32,
    /// The owner that it had.
    pub from: CoreId,
    /// The owner that it gets.
    pub to: CoreId,
}

#[derive(Clone, Copy, Debug, Default)]
struct CoreLoad {
    load_percent: u32,
    loaded_since_ns: Option<u64>,
}

/// The policy `hybrid`.
#[derive(Clone, Debug)]
pub struct Hybrid {
    cores: Vec<CoreLoad>,
    /// Queue pairs that do not live where their number says.
    moved: Vec<(u32, CoreId)>,
}

impl Hybrid {
    /// For a machine with so many cores.
    pub fn new(cores: u16) -> Self {
        Self { cores: vec![CoreLoad::default(); usize::from(cores.max(1))], moved: Vec::new() }
    }

    /// A core's load over the last while.
    pub fn measured(&mut self, core: CoreId, load_percent: u32, now_ns: u64) {
        let Some(one) = self.cores.get_mut(usize::from(core.0)) else { return };
        one.load_percent = load_percent;
        if load_percent <= LOADED_PERCENT {
            one.loaded_since_ns = None;
        } else {
            one.loaded_since_ns.get_or_insert(now_ns);
        }
    }

    /// At a quiet point of `qpn`, its inbox empty and its task idle: should it move?
    ///
    /// Order holds because nothing of the queue pair is anywhere: the next packet is the first that its new owner sees.
    pub fn try_move(&mut self, qpn: u32, core_backlog: u32, now_ns: u64) -> Option<Move> {
        let from = self.owner(qpn);
        let since = self.cores.get(usize::from(from.0))?.loaded_since_ns?;
        if core_backlog <= LOADED_BACKLOG || now_ns.saturating_sub(since) < LOADED_FOR_NS {
            return None;
        }
        let (place, least) = self.cores.iter().enumerate().min_by_key(|(_, core)| core.load_percent)?;
        if least.load_percent > LOADED_PERCENT {
            return None;
        }
        let to = CoreId(place as u16);
        self.moved.retain(|&(moved, _)| moved != qpn);
        self.moved.push((qpn, to));
        Some(Move { qpn, from, to })
    }
}

impl Spread for Hybrid {
    fn name(&self) -> &'static str {
        "hybrid"
    }

    fn owner(&self, qpn: u32) -> CoreId {
        let home = || CoreId((qpn % self.cores.len() as u32) as u16);
        self.moved.iter().find(|&&(moved, _)| moved == qpn).map_or_else(home, |&(_, core)| core)
    }

    fn place(&mut self, arrival: &Arrival) -> Placed {
        let budget = arrival.inline_packets < INLINE_PACKETS_MAX && arrival.inline_ns < INLINE_NS_MAX;
        let backlog_max = if arrival.here == arrival.owner { INLINE_BACKLOG_MAX } else { STEAL_BACKLOG_MAX };
        // Stealing from an owner that is awake would bounce the queue pair's state between two busy cores.
        let may = arrival.here == arrival.owner || arrival.owner_asleep;
        if arrival.task_idle && budget && may && arrival.backlog < backlog_max {
            return Placed::Inline;
        }
        let wake = arrival.here != arrival.owner && arrival.owner_asleep && arrival.backlog == 0;
        Placed::Hand { to: arrival.owner, wake }
    }

    fn steers(&self) -> bool {
        true
    }
}
