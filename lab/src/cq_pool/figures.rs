//! The cells of the published table, and the figures of `cq_pool.toml`.

use std::collections::BTreeMap;

use qhca_regs::Duration;

use crate::params::{ParamError, Parameters};
use crate::rows::{RowError, number, words};

/// A cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Row {
    /// Cores of the initiator that work.
    pub cores: u32,
}

impl Row {
    /// Reads a row such as `cores=14`.
    ///
    /// # Errors
    /// A word that is not understood, or a value out of range.
    pub fn parse(text: &str) -> Result<Self, RowError> {
        let mut cores = None;
        for (key, value) in words(text)? {
            if key != "cores" {
                return Err(RowError::Unknown { key: key.into(), known: "cores" });
            }
            cores = Some(number("cores", value, 1, 256)?);
        }
        Ok(Self { cores: cores.ok_or(RowError::Missing { key: "cores" })? })
    }

    /// The row's figures by name.
    pub fn fields(&self) -> BTreeMap<&'static str, String> {
        BTreeMap::from([("cores", self.cores.to_string())])
    }
}

/// What is left out to show that it matters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ablation {
    /// Nothing.
    #[default]
    None,
    /// The device costs nothing: only cores count.
    CpuOnly,
}

/// What a run assumes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figures {
    /// The stage for one operation, contexts included, the uneven part not.
    pub io_even: Duration,
    /// The mean of the uneven part.
    pub io_uneven: Duration,
    /// The stage for an event.
    pub event: Duration,
    /// Send completion after posting.
    pub send_done: Duration,
    /// Target, shortest.
    pub target_min: Duration,
    /// Target, longest.
    pub target_max: Duration,
    /// The target's server.
    pub target_server: Duration,
    /// Submission.
    pub submit: Duration,
    /// Completion of a read.
    pub complete: Duration,
    /// Completion of a send.
    pub send_complete: Duration,
    /// Interrupt.
    pub interrupt: Duration,
    /// From the interrupt to the first poll.
    pub poll_delay: Duration,
    /// Arming again.
    pub rearm: Duration,
    /// Part by which costs of cores vary.
    pub jitter: f64,
    /// Completions of a poll.
    pub batch: u32,
    /// Queue pairs of a core.
    pub disks: u32,
    /// Reads under way on each.
    pub depth: u32,
    /// Before the measurement.
    pub settle: Duration,
    /// The measurement.
    pub measure: Duration,
}

impl Figures {
    /// Takes the figures for `row` out of `parameters`.
    ///
    /// # Errors
    /// One of them is missing.
    pub fn from_parameters(
        parameters: &Parameters,
        row: &Row,
        ablation: Ablation,
    ) -> Result<Self, ParamError> {
        let whole = |name: &str| parameters.value(name).map(|value| value as u32);
        let disks = whole("disks_per_core")?;
        let qps = f64::from(row.cores * disks);
        let (io, spread) = (parameters.value("io_ns")?, parameters.value("stage_spread")?);
        let even = io * (1.0 - spread) + qps * parameters.value("qp_ns")?;
        let nanos = |ns: f64| match ablation {
            Ablation::None => Duration::from_nanos(ns.round() as u64),
            Ablation::CpuOnly => Duration::ZERO,
        };
        Ok(Self {
            io_even: nanos(even),
            io_uneven: nanos(io * spread),
            event: nanos(parameters.value("event_ns")?),
            send_done: parameters.span("send_done_us")?,
            target_min: parameters.span("target_min_us")?,
            target_max: parameters.span("target_max_us")?,
            target_server: nanos(parameters.value("target_server_ns")?),
            submit: parameters.span("submit_us")?,
            complete: parameters.span("complete_us")?,
            send_complete: parameters.span("send_complete_us")?,
            interrupt: parameters.span("interrupt_us")?,
            poll_delay: parameters.span("poll_delay_us")?,
            rearm: parameters.span("rearm_us")?,
            jitter: parameters.value("jitter")?,
            batch: whole("poll_batch")?,
            disks,
            depth: whole("depth")?,
            settle: parameters.span("settle_ms")?,
            measure: parameters.span("measure_ms")?,
        })
    }
}
