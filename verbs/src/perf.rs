//! Measuring a connection: the core loop of the bandwidth tools, on whatever a [`Bound`] is bound to.
//!
//! ```text
//!   post until `depth` are open ─► turn both ends ─► poll ─► note when each was posted and done ─► again
//! ```
//!
//! The figures are those of the perftest tools: a megabyte is 2^20 bytes; the average runs from the first post to the
//! last completion; the peak is the best of all stretches from a post to a later completion.

use std::fmt;
use std::sync::Arc;

use qhca_driver::dma::DmaMemory;
use qhca_regs::{Duration, Instant, Lid, Port as ChipPort};

use crate::bind::{Arrivals, Bound, Departures};
use crate::cq::CqError;
use crate::engine::{Engine, QpError};
use crate::ids::{CqId, QpNumber};
use crate::mem::{Access, MemoryError, MemoryRegion};
use crate::psn::Psn;
use crate::qp::{ModifyError, Mtu, QpAttr, QpInit, QpState, RnrTimer};
use crate::shared::{Config, Port};
use crate::wc::{Wc, WcStatus};
use crate::wire::Service;
use crate::wr::{AddressVector, PostError, SendOp, SendWr};

/// Bytes of the megabyte in which bandwidth is told.
const MEGABYTE: f64 = 1_048_576.0;

/// Why a measurement came to nothing.
#[derive(Debug)]
#[non_exhaustive]
pub enum PerfError {
    /// The system has no memory.
    Memory(std::io::Error),
    /// Memory could not be registered.
    Register(MemoryError),
    /// A completion queue could not be made.
    Cq(CqError),
    /// A queue pair could not be made.
    Qp(QpError),
    /// The connection could not be made.
    Connect(ModifyError),
    /// A request was refused.
    Post(PostError),
    /// A request failed.
    Failed(String),
    /// Nothing more came before the deadline.
    Late {
        /// Requests that were done.
        done: u32,
        /// Requests that were to be done.
        of: u32,
    },
    /// The peer's memory does not hold what was written.
    Content {
        /// The first byte that is wrong.
        at: usize,
    },
}

impl fmt::Display for PerfError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory(_) => f.write_str("there is no memory for the buffers"),
            Self::Register(_) => f.write_str("the buffer could not be registered"),
            Self::Cq(_) => f.write_str("the completion queue could not be made"),
            Self::Qp(_) => f.write_str("the queue pair could not be made"),
            Self::Connect(_) => f.write_str("the queue pair could not be connected"),
            Self::Post(_) => f.write_str("a request was refused"),
            Self::Failed(text) => write!(f, "a request failed: {text}"),
            Self::Late { done, of } => write!(f, "{done} of {of} messages were done in time"),
            Self::Content { at } => write!(f, "byte {at} of the peer's memory is not what was written"),
        }
    }
}

impl std::error::Error for PerfError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Memory(error) => Some(error),
            Self::Register(error) => Some(error),
            Self::Cq(error) => Some(error),
            Self::Qp(error) => Some(error),
            Self::Connect(error) => Some(error),
            Self::Post(error) => Some(error),
            Self::Failed(_) | Self::Late { .. } | Self::Content { .. } => None,
        }
    }
}

/// One end of a measured connection.
pub struct Endpoint<A, D> {
    /// The engine on its context.
    pub bound: Bound<A, D>,
    memory: Arc<DmaMemory>,
    region: MemoryRegion,
    cq: CqId,
    qp: QpNumber,
    lid: Lid,
    peer: Option<MemoryRegion>,
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Bytes of a message.
    pub bytes: u32,
    /// Messages.
    pub iterations: u32,
    /// Messages under way at most.
    pub depth: u32,
    /// Time after which it is given up.
    pub limit: Duration,
}

/// What was measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bandwidth {
    /// Bytes of a message.
    pub bytes: u32,
    /// Messages.
    pub iterations: u32,
    /// The best stretch, megabytes a second.
    pub peak_mb_s: f64,
    /// All of it, megabytes a second.
    pub average_mb_s: f64,
    /// Million messages a second.
    pub msg_rate_mpps: f64,
}

impl<A: Arrivals, D: Departures> Endpoint<A, D> {
    /// An end with a buffer of `buffer_bytes` and a reliable queue pair for `depth` messages.
    ///
    /// # Errors
    /// [`PerfError`].
    pub fn open(
        lid: Lid,
        port: ChipPort,
        (arrivals, departures): (A, D),
        buffer_bytes: usize,
        depth: u32,
    ) -> Result<Self, PerfError> {
        let mut engine = Engine::new(Config::default(), Port { lid, ..Port::default() });
        let pd = engine.allocate_pd();
        let memory = Arc::new(DmaMemory::new(buffer_bytes).map_err(PerfError::Memory)?);
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
        let region = engine.register(pd, &memory, 0, buffer_bytes, access).map_err(PerfError::Register)?;
        let cq = engine.create_cq(2 * depth.max(1)).map_err(PerfError::Cq)?;
        let init =
            QpInit { max_send: depth.max(1), max_recv: depth.max(1), ..QpInit::new(Service::Rc, pd, cq) };
        let qp = engine.create_qp(&init).map_err(PerfError::Qp)?;
        let bound = Bound::new(engine, port, arrivals, departures);
        Ok(Self { bound, memory, region, cq, qp, lid, peer: None })
    }

    /// Where its peer finds it: LID, queue pair, buffer.
    pub fn name(&self) -> (Lid, QpNumber, MemoryRegion) {
        (self.lid, self.qp, self.region)
    }

    /// Connects it to a peer of this name.
    ///
    /// # Errors
    /// [`PerfError::Connect`].
    pub fn connect(
        &mut self,
        (lid, qp, region): (Lid, QpNumber, MemoryRegion),
        mtu: Mtu,
        now: Instant,
    ) -> Result<(), PerfError> {
        let init = QpAttr {
            state: Some(QpState::Init),
            access: Some(Access::REMOTE_WRITE | Access::REMOTE_READ),
            pkey_index: Some(0),
            port: Some(1),
            ..QpAttr::default()
        };
        let rtr = QpAttr {
            state: Some(QpState::Rtr),
            address: Some(AddressVector { dlid: lid, ..AddressVector::default() }),
            path_mtu: Some(mtu),
            dest_qp: Some(qp),
            rq_psn: Some(Psn::new(0)),
            max_dest_rd_atomic: Some(4),
            min_rnr_timer: Some(RnrTimer::Code(10)),
            ..QpAttr::default()
        };
        let rts = QpAttr {
            state: Some(QpState::Rts),
            sq_psn: Some(Psn::new(0)),
            timeout: Some(14),
            retry_count: Some(7),
            rnr_retry: Some(7),
            max_rd_atomic: Some(4),
            ..QpAttr::default()
        };
        for attr in [init, rtr, rts] {
            self.bound.engine.modify_qp(self.qp, &attr, now).map_err(PerfError::Connect)?;
        }
        self.peer = Some(region);
        Ok(())
    }
}

/// RDMA writes from `from` into the buffer of `to`, both turned by this thread. Every byte is checked at the end.
///
/// # Errors
/// [`PerfError`].
pub fn write_bandwidth<A: Arrivals, D: Departures>(
    from: &mut Endpoint<A, D>,
    to: &mut Endpoint<A, D>,
    plan: &Plan,
    clock: impl Fn() -> Instant,
) -> Result<Bandwidth, PerfError> {
    let target = from.peer.unwrap_or(to.region);
    let content: Vec<u8> = (0..plan.bytes).map(|at| (at.wrapping_mul(31) ^ plan.bytes >> 3) as u8).collect();
    from.memory.copy_in(0, &content);
    let list = [from.region.sge(0, plan.bytes)];
    let op = SendOp::Write { addr: target.addr, rkey: target.rkey };
    let mut posted = Vec::with_capacity(plan.iterations as usize);
    let mut done = Vec::with_capacity(plan.iterations as usize);
    let begun = clock();
    while done.len() < plan.iterations as usize {
        let now = clock();
        while posted.len() < plan.iterations as usize && posted.len() - done.len() < plan.depth as usize {
            let wr = SendWr::new(posted.len() as u64, op, &list);
            from.bound.engine.post_send(from.qp, &wr, now).map_err(PerfError::Post)?;
            posted.push(now);
        }
        from.bound.turn(now);
        to.bound.turn(now);
        take_completions(from, &mut done, clock())?;
        if now.since(begun) > plan.limit {
            return Err(PerfError::Late { done: done.len() as u32, of: plan.iterations });
        }
    }
    let mut seen = vec![0; content.len()];
    to.memory.copy_out(0, &mut seen);
    if let Some(at) = seen.iter().zip(&content).position(|(seen, wanted)| seen != wanted) {
        return Err(PerfError::Content { at });
    }
    Ok(figures(plan, &posted, &done))
}

fn take_completions<A: Arrivals, D: Departures>(
    end: &mut Endpoint<A, D>,
    done: &mut Vec<Instant>,
    now: Instant,
) -> Result<(), PerfError> {
    let mut wcs = [Wc::EMPTY; 16];
    loop {
        let count = end.bound.engine.poll_cq(end.cq, &mut wcs);
        for wc in &wcs[..count] {
            if wc.status != WcStatus::Success {
                return Err(PerfError::Failed(end.bound.engine.explain(wc)));
            }
            done.push(now);
        }
        if count < wcs.len() {
            return Ok(());
        }
    }
}

/// Average, peak and rate of what was posted and done at these times.
fn figures(plan: &Plan, posted: &[Instant], done: &[Instant]) -> Bandwidth {
    let span = |from: Option<&Instant>, to: Option<&Instant>| match (from, to) {
        (Some(from), Some(to)) => to.since(*from).as_nanos().max(1) as f64,
        _ => 1.0,
    };
    let all = span(posted.first(), done.last());
    let best = posted.iter().enumerate().flat_map(|(first, from)| {
        let later = done.iter().enumerate().skip(first);
        later.map(move |(last, to)| to.since(*from).as_nanos().max(1) as f64 / (last - first + 1) as f64)
    });
    let best_ns = best.fold(f64::INFINITY, f64::min);
    let bytes = f64::from(plan.bytes);
    let mb_s = |ns_per_message: f64| bytes / MEGABYTE * 1e9 / ns_per_message;
    let count = done.len().max(1) as f64;
    Bandwidth {
        bytes: plan.bytes,
        iterations: plan.iterations,
        peak_mb_s: mb_s(best_ns.min(all / count)),
        average_mb_s: mb_s(all / count),
        msg_rate_mpps: count * 1e3 / all,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// B165: figures of a run of days are positive and exact, and the average is no better than the peak.
    #[test]
    fn figures_of_a_long_run_are_positive_and_the_average_is_below_the_peak() {
        const HOUR_NS: u64 = 3_600_000_000_000;
        let plan = Plan { bytes: 1 << 20, iterations: 58, depth: 1, limit: Duration::MAX };
        let posted: Vec<Instant> = (0..58).map(|hour| Instant::from_nanos(hour * HOUR_NS)).collect();
        let done: Vec<Instant> =
            posted.iter().map(|at| *at + Duration::from_nanos(HOUR_NS - 1_000_000_000)).collect();
        let seen = figures(&plan, &posted, &done);
        assert!(seen.average_mb_s > 0.0 && seen.average_mb_s <= seen.peak_mb_s, "{seen:?}");
        let wanted = 58.0 / (58.0 * 3600.0 - 1.0);
        assert!((seen.average_mb_s - wanted).abs() < wanted * 1e-9, "{seen:?}");
        assert!((seen.msg_rate_mpps * 1e6 - wanted).abs() < wanted * 1e-9);
        assert!((seen.peak_mb_s - 1.0 / 3599.0).abs() < 1e-12);
    }
}
