//! The cells of the published table, and the figures of `rnr.toml`.

use std::collections::BTreeMap;

use qhca_regs::Duration;
use qhca_verbs::rnr_pause;

use crate::params::{ParamError, Parameters};
use crate::rows::{RowError, number, words};

/// What the jobs do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// Random reads.
    Read,
    /// Random writes.
    Write,
}

/// A cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Row {
    /// Bytes of an operation.
    pub block: u32,
    /// What it is.
    pub op: Op,
    /// Commands under way.
    pub outstanding: u32,
}

/// `4096`, `4K`, `4k` or `1M`.
fn bytes(text: &str) -> Result<u32, RowError> {
    let (digits, unit) = match text.strip_suffix(['K', 'k']) {
        Some(digits) => (digits, 1024),
        None => text.strip_suffix(['M', 'm']).map_or((text, 1), |digits| (digits, 1 << 20)),
    };
    number("block", digits, 1, u64::from(BLOCK_MAX_BYTES / unit)).map(|value| value * unit)
}

/// The largest block that the model covers.
const BLOCK_MAX_BYTES: u32 = 4 << 20;

impl Row {
    /// Reads a row such as `block=4K op=read`.
    ///
    /// # Errors
    /// A word that is not understood, or a value out of range.
    pub fn parse(text: &str) -> Result<Self, RowError> {
        let (mut block, mut op, mut outstanding) = (None, None, 512);
        for (key, value) in words(text)? {
            match (key, value) {
                ("block", _) => block = Some(bytes(value)?),
                ("op", "read") => op = Some(Op::Read),
                ("op", "write") => op = Some(Op::Write),
                ("op", _) => {
                    return Err(RowError::NotOneOf {
                        key: "op",
                        value: value.into(),
                        known: "read, write".into(),
                    });
                }
                ("outstanding", _) => outstanding = number("outstanding", value, 1, 4096)?,
                _ => return Err(RowError::Unknown { key: key.into(), known: "block, op, outstanding" }),
            }
        }
        Ok(Self {
            block: block.ok_or(RowError::Missing { key: "block" })?,
            op: op.ok_or(RowError::Missing { key: "op" })?,
            outstanding,
        })
    }

    /// The row's figures by name.
    pub fn fields(&self) -> BTreeMap<&'static str, String> {
        let op = match self.op {
            Op::Read => "read",
            Op::Write => "write",
        };
        BTreeMap::from([
            ("block", self.block.to_string()),
            ("op", op.to_owned()),
            ("outstanding", self.outstanding.to_string()),
        ])
    }
}

/// What a run assumes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figures {
    /// The core for one operation, bytes included, posts not.
    pub cost: Duration,
    /// By how much that varies.
    pub spread: Duration,
    /// A post call.
    pub post: Duration,
    /// A buffer in its list.
    pub wr: Duration,
    /// Responses of a turn.
    pub batch: u32,
    /// Launch to response.
    pub target: Duration,
    /// By how much that varies.
    pub target_spread: Duration,
    /// The sender's wait after an RNR NAK.
    pub rnr_wait: Duration,
    /// Mean time between stalls; zero for none.
    pub stall_gap: Duration,
    /// Shortest stall.
    pub stall_min: Duration,
    /// Longest stall.
    pub stall_max: Duration,
    /// Messages that nobody asked for.
    pub unsolicited: u32,
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
    pub fn from_parameters(parameters: &Parameters, row: &Row) -> Result<Self, ParamError> {
        let (cpu, rate) = match row.op {
            Op::Read => (parameters.span("cpu_read_us")?, parameters.value("read_gb_s")?),
            Op::Write => (parameters.span("cpu_write_us")?, parameters.value("write_gb_s")?),
        };
        let cost = cpu + Duration::from_nanos((f64::from(row.block) / rate).round() as u64);
        let spread = parameters.value("cost_jitter")? * cost.as_nanos() as f64;
        let stalls = parameters.value("stalls_per_s")?;
        Ok(Self {
            cost,
            spread: Duration::from_nanos(spread as u64),
            post: parameters.span("post_ns")?,
            wr: parameters.span("wr_ns")?,
            batch: parameters.value("poll_batch")? as u32,
            target: parameters.span("target_us")?,
            target_spread: parameters.span("target_jitter_us")?,
            rnr_wait: rnr_pause(parameters.value("rnr_code")? as u8),
            stall_gap: Duration::from_nanos(if stalls > 0.0 { (1e9 / stalls) as u64 } else { 0 }),
            stall_min: parameters.span("stall_min_ms")?,
            stall_max: parameters.span("stall_max_ms")?,
            unsolicited: parameters.value("unsolicited")? as u32,
            settle: parameters.span("settle_ms")?,
            measure: parameters.span("measure_ms")?,
        })
    }
}
