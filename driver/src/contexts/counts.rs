//! What the chip says it has, held against what it can have.
//!
//! The numbers come over a bus from a device that may be broken, half gone, or not the one we think. Each is compared
//! with the register map before anything is sized by it: too much is cut with a warning, too little or elsewhere is
//! refused, since the offsets in the map would then be wrong.

use super::{ContextCfg, SendBufCnt};
use core::fmt;
use qhca_regs::map::{device, port};
use qhca_regs::{Bar, Buffer, Ctxt, GONE, Port, RegValue};

/// Expected-receive entries of each context (F-114).
const TIDS_PER_CONTEXT: u64 = 512;

/// The chip's own count of what it has, after the check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChipCounts {
    /// Receive contexts, 6 to 18.
    pub contexts: usize,
    /// Small send buffers.
    pub small_buffers: usize,
    /// Large send buffers.
    pub large_buffers: usize,
    /// Expected-receive entries of each context, up to 512; 0 on a chip without.
    pub tids: u32,
    /// What was cut.
    pub warnings: Vec<CountWarning>,
}

/// A count above what the register map has room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountWarning {
    /// The register.
    pub register: &'static str,
    /// What it reads.
    pub found: u64,
    /// What is used instead.
    pub used: u64,
}

impl fmt::Display for CountWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} reports {}, more than the chip can have; {} is used",
            self.register, self.found, self.used
        )
    }
}

/// A register that contradicts the map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CountsError {
    /// The register reads all ones: the device no longer answers.
    Gone {
        /// The register.
        register: &'static str,
    },
    /// A base, size or stride is not where the map has it.
    Elsewhere {
        /// The register.
        register: &'static str,
        /// What it reads.
        found: u64,
        /// What the map says.
        expected: u64,
    },
    /// A count is too small to work with.
    TooFew {
        /// The register.
        register: &'static str,
        /// What it reads.
        found: u64,
        /// The least that works.
        least: u64,
    },
}

impl fmt::Display for CountsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gone { register } => write!(f, "{register} reads all ones: the device no longer answers"),
            Self::Elsewhere { register, found, expected } => write!(
                f,
                "{register} reads {found:#x} where the register map has {expected:#x}: not the chip this driver knows"
            ),
            Self::TooFew { register, found, least } => {
                write!(
                    f,
                    "{register} reports {found}, at least {least} are needed: broken, or not the chip this driver knows"
                )
            }
        }
    }
}

impl std::error::Error for CountsError {}

impl ChipCounts {
    /// Reads bases, sizes and counts.
    ///
    /// # Errors
    /// [`CountsError`]: nothing on this device can be trusted to be where the map says.
    ///
    /// Source: F-114 (qib_7322_set_baseaddrs).
    pub fn read(bar: &impl Bar) -> Result<Self, CountsError> {
        check_places(bar)?;
        let mut warnings = Vec::new();
        let contexts = take(
            "ContextCnt",
            device::CONTEXT_CNT.read(bar),
            ContextCfg::Six.contexts() as u64,
            Ctxt::COUNT as u64,
            &mut warnings,
        )?;
        let buffers = device::SEND_BUF_CNT.read(bar);
        let (small, large) = buffer_counts(buffers, &mut warnings)?;
        let tids = take("RcvTIDCnt", device::RCV_TID_CNT.read(bar), 0, TIDS_PER_CONTEXT, &mut warnings)?;
        Ok(Self {
            contexts: contexts as usize,
            small_buffers: small as usize,
            large_buffers: large as usize,
            tids: tids as u32,
            warnings,
        })
    }

    /// Judges what `RcvEgrCnt` reads once `cfg` is written.
    ///
    /// # Errors
    /// [`CountsError::TooFew`] if the chip did not take the configuration.
    pub fn check_eager(&mut self, cfg: ContextCfg, bar: &impl Bar) -> Result<(), CountsError> {
        let expected = u64::from(cfg.eager_entries());
        take("RcvEgrCnt", device::RCV_EGR_CNT.read(bar), expected, expected, &mut self.warnings)?;
        Ok(())
    }
}

/// The buffers are numbered through small, large, VL15, so neither count may fall short.
fn buffer_counts(raw: SendBufCnt, warnings: &mut Vec<CountWarning>) -> Result<(u64, u64), CountsError> {
    let (small, large) = (raw.raw() & 0xFFFF_FFFF, raw.raw() >> 32);
    if raw.raw() == GONE {
        return Err(CountsError::Gone { register: "SendBufCnt" });
    }
    let (most_small, most_large) = (Buffer::SMALL as u64, Buffer::LARGE as u64);
    let small = take("SendBufCnt (small)", small, most_small, most_small, warnings)?;
    let large = take("SendBufCnt (large)", large, most_large, most_large, warnings)?;
    Ok((small, large))
}

/// One count: refused below `least`, cut to `most`.
fn take(
    register: &'static str,
    found: u64,
    least: u64,
    most: u64,
    warnings: &mut Vec<CountWarning>,
) -> Result<u64, CountsError> {
    match found {
        GONE => Err(CountsError::Gone { register }),
        _ if found < least => Err(CountsError::TooFew { register, found, least }),
        _ if found > most => {
            warnings.push(CountWarning { register, found, used: most });
            Ok(most)
        }
        _ => Ok(found),
    }
}

/// The registers that say where things are must agree with the map, which was compiled in. One that reads all ones ends
/// it: a device that is gone is asked nothing more.
fn check_places(bar: &impl Bar) -> Result<(), CountsError> {
    const WHOLE: u64 = u64::MAX;
    /// The upper half of a counter base says something else.
    const LOW: u64 = 0xFFFF_FFFF;
    let counters = |port| port::CNTR_REG_BASE.port(port).offset();
    for (register, offset, bits, expected) in [
        ("PageAlign", device::PAGE_ALIGN.offset(), WHOLE, 0x1000),
        ("UserRegBase", device::USER_REG_BASE.offset(), WHOLE, 0x20_0000),
        ("RcvTIDBase", device::RCV_TID_BASE.offset(), WHOLE, 0x5_0000),
        ("RcvEgrBase", device::RCV_EGR_BASE.offset(), WHOLE, 0x1_4000),
        ("SendBufBase", device::SEND_BUF_BASE.offset(), WHOLE, 0x0018_0000_0010_0000),
        ("SendBufSize", device::SEND_BUF_SIZE.offset(), WHOLE, 0x1080_0000_0880),
        ("CntrRegBase", device::CNTR_REG_BASE.offset(), LOW, 0x1_1000),
        ("CntrRegBase_0", counters(Port::P0), LOW, 0x1_2000),
        ("CntrRegBase_1", counters(Port::P1), LOW, 0x1_3000),
    ] {
        match bar.read(offset) {
            GONE => return Err(CountsError::Gone { register }),
            found if found & bits != expected => {
                return Err(CountsError::Elsewhere { register, found: found & bits, expected });
            }
            _ => {}
        }
    }
    Ok(())
}
