//! What the sender is told: the RNR timer's codes, and receive credits in five bits.
//!
//! The timer code in an RNR NAK names the least wait. Code 0 is the longest of all, 655.36 ms, and is what comes of
//! leaving the field alone, so it is refused here (F-858). Credits in an acknowledgement come in 31 steps; a count
//! between two of them is told as the lower one, or the sender would rely on a buffer that is not there (F-859).

use std::fmt;

/// Least waits by timer code, in units of 10 µs. Source: InfiniBand, table of RNR NAK timer encodings.
const WAITS_10US: [u32; 32] = [
    65_536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1_024, 1_536, 2_048,
    3_072, 4_096, 6_144, 8_192, 12_288, 16_384, 24_576, 32_768, 49_152,
];

/// Credits by code: 0, 1, 2, 3, 4, 6, 8, 12, 16 … 32768. Code 31 means "no credit is told".
pub const CREDIT_CODES: u8 = 31;

/// A timer code that may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RnrTimer(u8);

/// Why a timer code was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RnrTimerError {
    /// Code 0: a sender would wait 655.36 ms.
    Zero,
    /// The field has five bits.
    TooLarge(u8),
}

impl RnrTimer {
    /// 0.32 ms: long enough for a poll turn, short enough that one NAK is no catastrophe.
    pub const DEFAULT: Self = Self(0x0A);

    /// The timer with this code.
    ///
    /// # Errors
    /// Code 0, which is the longest wait, or a code of more than five bits.
    pub const fn new(code: u8) -> Result<Self, RnrTimerError> {
        match code {
            0 => Err(RnrTimerError::Zero),
            1..=31 => Ok(Self(code)),
            _ => Err(RnrTimerError::TooLarge(code)),
        }
    }

    /// The code for the wire.
    pub const fn code(self) -> u8 {
        self.0
    }

    /// The least wait of the sender in nanoseconds.
    pub const fn wait_ns(self) -> u64 {
        wait_ns_of_code(self.0)
    }
}

/// The least wait that a code names, in nanoseconds; only the low five bits count.
pub const fn wait_ns_of_code(code: u8) -> u64 {
    WAITS_10US[(code & 31) as usize] as u64 * 10_000
}

impl Default for RnrTimer {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl fmt::Display for RnrTimerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Zero => {
                write!(f, "RNR timer code 0 makes a sender wait 655.36 ms; use 1 to 31, 10 is the default")
            }
            Self::TooLarge(code) => write!(f, "RNR timer code {code} has more than five bits; use 1 to 31"),
        }
    }
}

impl std::error::Error for RnrTimerError {}

/// The credits that a code tells; none for 31, which tells nothing.
pub const fn credit_for_code(code: u8) -> Option<u32> {
    match code {
        0 => Some(0),
        1 => Some(1),
        2..=30 => {
            let power = code / 2;
            let whole = 1_u32 << power;
            Some(if code.is_multiple_of(2) { whole } else { whole + whole / 2 })
        }
        _ => None,
    }
}

/// The code that tells `buffers`, rounded down.
pub const fn credits_rounded_down(buffers: u32) -> u8 {
    let mut code = CREDIT_CODES - 1;
    while code > 0 {
        if let Some(credits) = credit_for_code(code)
            && credits <= buffers
        {
            return code;
        }
        code -= 1;
    }
    0
}
