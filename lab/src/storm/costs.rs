//! What things cost, taken from the experiment's figures once, before a run.

use qhca_regs::time::Duration;

use crate::params::{ParamError, Parameters};

/// Costs and load of one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Costs {
    /// From packet to packet on the wire.
    pub wire: Duration,
    /// How far an arrival may lie from its place, either way.
    pub wire_jitter: Duration,
    /// How long the receiving core stalls, once.
    pub stall: Duration,
    /// Traffic before the stall.
    pub settle: Duration,
    /// What is measured, from the stall's end.
    pub measure: Duration,
    /// Packets that a repeating sender has under way at most.
    pub window_packets: u32,
    /// From the receiver's answer to the repeating sender's next packet.
    pub answer: Duration,
    /// A packet that a transport does not take, on the core.
    pub refused: Duration,
    /// From injected error to injected error.
    pub inject: Duration,
    /// RcvICRCErr between two RcvHdrErr.
    pub burst_errors: u64,
    /// Packets of one receive batch under the published policies.
    pub batch_packets: usize,
    /// Packets of one receive batch under `guarded`.
    pub guarded_batch_packets: usize,
    /// One packet on the core, copy included.
    pub receive: Duration,
    /// How far a packet's cost may lie from its mean, either way.
    pub receive_jitter: Duration,
    /// An entry that tells of a dropped packet.
    pub dropped: Duration,
    /// One register read.
    pub read: Duration,
    /// One posted write.
    pub write: Duration,
    /// Interrupt entry.
    pub entry: Duration,
    /// Interrupt exit.
    pub exit: Duration,
    /// Start of the tasklet or the worker.
    pub worker: Duration,
    /// Formatting an error word the old way.
    pub decode_old: Duration,
    /// Decoding an error word the new way.
    pub decode_new: Duration,
    /// The rest of an error handler.
    pub error: Duration,
}

impl Costs {
    /// The costs that `parameters` say.
    ///
    /// # Errors
    /// A figure is missing from the file.
    pub fn from_parameters(parameters: &Parameters) -> Result<Self, ParamError> {
        let span = |name| parameters.span(name);
        Ok(Self {
            wire: span("wire_ns")?,
            wire_jitter: span("wire_jitter_ns")?,
            stall: span("stall_ms")?,
            settle: span("settle_ms")?,
            measure: span("measure_ms")?,
            window_packets: parameters.value("window_packets")?.round() as u32,
            answer: span("answer_us")?,
            refused: span("refused_ns")?,
            inject: span("inject_ns")?,
            burst_errors: parameters.value("burst_errors")?.round() as u64,
            batch_packets: parameters.value("batch_packets")?.round() as usize,
            guarded_batch_packets: parameters.value("guarded_batch_packets")?.round() as usize,
            receive: span("receive_ns")?,
            receive_jitter: span("receive_jitter_ns")?,
            dropped: span("dropped_ns")?,
            read: span("read_us")?,
            write: span("write_ns")?,
            entry: span("entry_us")?,
            exit: span("exit_us")?,
            worker: span("worker_us")?,
            decode_old: span("decode_old_us")?,
            decode_new: span("decode_new_ns")?,
            error: span("error_us")?,
        })
    }
}
