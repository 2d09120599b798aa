//! One cell of the published grid: `ack=256 req=8448 qps=8 threads=4 depth=4`.

use std::collections::BTreeMap;
use std::fmt;

use crate::rows::{RowError, number, words};

/// A cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Row {
    /// Bytes of an acknowledgement.
    pub ack: u32,
    /// Bytes of a request.
    pub req: u32,
    /// Queue pairs.
    pub qps: u32,
    /// Processes; each uses every queue pair.
    pub threads: u32,
    /// Requests that a process has under way on each queue pair.
    pub depth: u32,
}

/// Messages of more bytes than this are no use case of the published tool.
const MESSAGE_MAX_BYTES: u64 = 1 << 20;
/// Exchanges under way on one host, at most: the memory of a run is bounded by it.
const UNDER_WAY_MAX: u64 = 65_536;

impl Row {
    /// Reads a row; `ack`, `req` and `depth` have the values of the published table unless given.
    ///
    /// # Errors
    /// A word that is not understood, or a value out of range.
    pub fn parse(text: &str) -> Result<Self, RowError> {
        let mut row = Self { ack: 256, req: 8448, qps: 0, threads: 0, depth: 4 };
        for (key, value) in words(text)? {
            match key {
                "ack" => row.ack = number("ack", value, 1, MESSAGE_MAX_BYTES)?,
                "req" => row.req = number("req", value, 1, MESSAGE_MAX_BYTES)?,
                "qps" => row.qps = number("qps", value, 1, 1024)?,
                "threads" => row.threads = number("threads", value, 1, 256)?,
                "depth" => row.depth = number("depth", value, 1, 1024)?,
                _ => {
                    return Err(RowError::Unknown {
                        key: key.into(),
                        known: "ack, req, qps, threads, depth",
                    });
                }
            }
        }
        for (key, value) in [("qps", row.qps), ("threads", row.threads)] {
            if value == 0 {
                return Err(RowError::Missing { key });
            }
        }
        let under_way = u64::from(row.qps) * u64::from(row.threads) * u64::from(row.depth);
        if under_way > UNDER_WAY_MAX {
            let key = "qps*threads*depth";
            return Err(RowError::OutOfRange { key, value: under_way, low: 1, high: UNDER_WAY_MAX });
        }
        Ok(row)
    }

    /// The row's figures by name.
    pub fn fields(&self) -> BTreeMap<&'static str, u32> {
        BTreeMap::from([
            ("ack", self.ack),
            ("req", self.req),
            ("qps", self.qps),
            ("threads", self.threads),
            ("depth", self.depth),
        ])
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ack, req, qps, threads, depth } = self;
        write!(f, "ack={ack} req={req} qps={qps} threads={threads} depth={depth}")
    }
}
