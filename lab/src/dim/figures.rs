//! The figures of `dim.toml` in the units that the run counts in.

use qhca_regs::Duration;

use crate::params::{ParamError, Parameters};

/// What a run assumes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figures {
    /// Picoseconds of the stage a byte.
    pub byte_ps: u64,
    /// The part of a work request's stage time that is uneven, in thousandths.
    pub stage_spread_per_mille: u64,
    /// The stage's time an event.
    pub event: Duration,
    /// The stage's time a change of moderation.
    pub change: Duration,
    /// From decision to write.
    pub apply: Duration,
    /// From last byte to completion.
    pub one_way: Duration,
    /// Mean extra delay of a message.
    pub jitter: Duration,
    /// Payload of a work request.
    pub fragment_bytes: u32,
    /// Header of a fragment.
    pub header_bytes: u32,
    /// Cores that take interrupts.
    pub vectors: u32,
    /// Interrupt and tasklet.
    pub interrupt: Duration,
    /// Arming again.
    pub rearm: Duration,
    /// One receive completion.
    pub receive: Duration,
    /// One send completion.
    pub send: Duration,
    /// One message in the process.
    pub app: Duration,
    /// How far one message's cost varies either way.
    pub app_spread: Duration,
    /// Waking a process.
    pub wake: Duration,
    /// Before the measurement.
    pub settle: Duration,
    /// The measurement.
    pub measure: Duration,
}

impl Figures {
    /// Takes the figures out of `parameters`.
    ///
    /// # Errors
    /// One of them is missing.
    pub fn from_parameters(parameters: &Parameters) -> Result<Self, ParamError> {
        let whole = |name: &str| parameters.value(name).map(|value| value.round() as u32);
        let app = parameters.span("app_us")?;
        let spread = parameters.value("app_jitter")? * app.as_nanos() as f64;
        Ok(Self {
            byte_ps: (1e3 / parameters.value("rate_gb_s")?).round() as u64,
            stage_spread_per_mille: (parameters.value("stage_spread")? * 1e3).round() as u64,
            event: parameters.span("event_ns")?,
            change: parameters.span("change_ns")?,
            apply: parameters.span("apply_us")?,
            one_way: parameters.span("one_way_us")?,
            jitter: parameters.span("jitter_us")?,
            fragment_bytes: whole("fragment_bytes")?,
            header_bytes: whole("header_bytes")?,
            vectors: whole("vectors")?,
            interrupt: parameters.span("interrupt_us")?,
            rearm: parameters.span("rearm_us")?,
            receive: parameters.span("receive_us")?,
            send: parameters.span("send_us")?,
            app,
            app_spread: Duration::from_nanos(spread.round() as u64),
            wake: parameters.span("wake_us")?,
            settle: parameters.span("settle_ms")?,
            measure: parameters.span("measure_ms")?,
        })
    }

    /// Fragments of a message of `bytes`.
    pub fn fragments(&self, bytes: u32) -> u32 {
        bytes.div_ceil(self.fragment_bytes).max(1)
    }
}
