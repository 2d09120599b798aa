//! The rows of the published table, and the figures of `spread.toml`.

use std::collections::BTreeMap;

use qhca_regs::Duration;

use crate::params::{ParamError, Parameters};
use crate::rows::{RowError, words};

/// A published row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Test {
    /// Random reads of 4 KiB, four jobs of depth 64.
    RandreadQd64Jobs4,
    /// The same, one job of depth 1.
    RandreadQd1,
    /// Sequential reads of 128 KiB.
    Seq,
    /// Ping-pong of 4 KiB.
    Pingpong4k,
    /// Ping-pong of 1 MiB.
    Pingpong1m,
}

/// A cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Row {
    /// The test.
    pub test: Test,
}

impl Test {
    /// All rows.
    pub const ALL: [Self; 5] =
        [Self::RandreadQd64Jobs4, Self::RandreadQd1, Self::Seq, Self::Pingpong4k, Self::Pingpong1m];

    /// The word in a row.
    pub const fn name(self) -> &'static str {
        match self {
            Self::RandreadQd64Jobs4 => "randread_qd64_jobs4",
            Self::RandreadQd1 => "randread_qd1",
            Self::Seq => "seq",
            Self::Pingpong4k => "pingpong_4k",
            Self::Pingpong1m => "pingpong_1m",
        }
    }

    /// What its result counts.
    pub const fn unit(self) -> &'static str {
        match self {
            Self::RandreadQd64Jobs4 => "iops",
            Self::RandreadQd1 | Self::Pingpong4k | Self::Pingpong1m => "us",
            Self::Seq => "MB/s",
        }
    }

    /// Queue pairs, and messages under way on each.
    pub(super) const fn load(self) -> (u32, u32) {
        match self {
            Self::RandreadQd64Jobs4 => (4, 64),
            Self::RandreadQd1 | Self::Pingpong4k | Self::Pingpong1m => (1, 1),
            Self::Seq => (4, 8),
        }
    }

    /// Packets of 4 KiB that one operation brings.
    pub(super) const fn packets(self) -> u32 {
        match self {
            Self::RandreadQd64Jobs4 | Self::RandreadQd1 => 2,
            Self::Seq => 32,
            Self::Pingpong4k => 1,
            Self::Pingpong1m => 256,
        }
    }

    /// Payload of one operation.
    pub(super) const fn bytes(self) -> u64 {
        match self {
            Self::RandreadQd64Jobs4 | Self::RandreadQd1 | Self::Pingpong4k => 4096,
            Self::Seq => 128 << 10,
            Self::Pingpong1m => 1 << 20,
        }
    }
}

impl Row {
    /// Reads a row such as `test=pingpong_4k`.
    ///
    /// # Errors
    /// A word that is not understood.
    pub fn parse(text: &str) -> Result<Self, RowError> {
        let mut test = None;
        for (key, value) in words(text)? {
            if key != "test" {
                return Err(RowError::Unknown { key: key.into(), known: "test" });
            }
            let found = Test::ALL.into_iter().find(|test| test.name() == value);
            test = Some(found.ok_or_else(|| RowError::NotOneOf {
                key: "test",
                value: value.into(),
                known: Test::ALL.map(Test::name).join(", "),
            })?);
        }
        Ok(Self { test: test.ok_or(RowError::Missing { key: "test" })? })
    }

    /// The row's figures by name.
    pub fn fields(&self) -> BTreeMap<&'static str, String> {
        BTreeMap::from([("test", self.test.name().to_owned())])
    }
}

/// What a run assumes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figures {
    /// Receive stack for one packet.
    pub receive: Duration,
    /// Transport work for one packet.
    pub transport: Duration,
    /// Until another core begins.
    pub hop: Duration,
    /// The caller's part of a hop.
    pub call: Duration,
    /// An inline call.
    pub inline: Duration,
    /// An inbox, both ends.
    pub inbox: Duration,
    /// Part by which costs vary.
    pub jitter: f64,
    /// Cores.
    pub cores: u16,
    /// From one operation's end to the next one's first packet.
    pub away: Duration,
    /// From one packet to the next of the same operation.
    pub between: Duration,
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
        let (receive, io) = (parameters.span("receive_us")?, parameters.span("io_us")?);
        let transport = io - receive;
        let packets = u64::from(row.test.packets());
        let share = |span: Duration, parts: u64| Duration::from_nanos(span.as_nanos() / parts.max(1));
        // A random read's cost is that of both of its messages; a large message costs the receive stack per packet and the
        // transport once; a ping-pong's packets cost all of it each.
        let (receive, transport) = match row.test {
            Test::RandreadQd64Jobs4 | Test::RandreadQd1 => {
                (share(receive, packets), share(transport, packets))
            }
            Test::Seq => (receive, share(transport, packets)),
            Test::Pingpong4k | Test::Pingpong1m => (receive, transport),
        };
        let inline = parameters.span("inline_us")?;
        let handled = (receive + transport + inline).times(packets);
        let backend_ns = row.test.bytes() as f64 * 1e3 / parameters.value("backend_mb_s")?;
        let (away, between) = match row.test {
            Test::RandreadQd64Jobs4 | Test::RandreadQd1 => {
                (parameters.span("depth1_us")? - handled, Duration::ZERO)
            }
            Test::Seq => (Duration::ZERO, Duration::from_nanos((backend_ns / packets as f64) as u64)),
            Test::Pingpong4k => (parameters.span("pingpong_4k_us")? - handled, Duration::ZERO),
            Test::Pingpong1m => {
                let away = parameters.span("pingpong_4k_us")? - receive - transport - inline;
                let left = parameters.span("pingpong_1m_us")? - handled - away;
                (away, share(left, packets))
            }
        };
        Ok(Self {
            receive,
            transport,
            hop: parameters.span("hop_us")?,
            call: parameters.span("call_us")?,
            inline,
            inbox: parameters.span("inbox_us")?,
            jitter: parameters.value("jitter")?,
            cores: parameters.value("cores")? as u16,
            away,
            between,
            settle: parameters.span("settle_ms")?,
            measure: parameters.span("measure_ms")?,
        })
    }
}
