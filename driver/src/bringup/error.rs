//! What stops bring-up, and what does not.

use super::steps::Step;
use crate::board::IdentifyError;
use crate::contexts::{CountWarning, CountsError, SplitError, SplitWarning};
use crate::eeprom::EepromError;
use crate::env::PioMapping;
use crate::link::LinkError;
use crate::tx::CopyRate;
use core::fmt;
use qhca_regs::{Duration, Port};

/// Bring-up has stopped in a step. The chip is best reset before anything else is tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BringUpError {
    /// The step.
    pub step: Step,
    /// What went wrong in it.
    pub fault: Fault,
}

/// What can go wrong in a step.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// A register reads all ones: the device no longer answers.
    Gone {
        /// The register.
        register: &'static str,
    },
    /// Not a device that this driver knows.
    Identify(IdentifyError),
    /// The device contradicts the register map.
    Counts(CountsError),
    /// No split of its contexts exists.
    Split(SplitError),
    /// The power-on self-test found bad memory.
    BistFailed {
        /// `HwErrStatus`.
        hw_err_status: u64,
    },
    /// `ErrMask` holds no bit that was written: errors could never be reported.
    NoErrors,
    /// The chip did not take the address of the availability words.
    AvailAddress {
        /// What was written.
        written: u64,
        /// What read back.
        read: u64,
    },
    /// A link could not be set up or switched on.
    Link(LinkError),
    /// The step was not ended in time.
    Deadline {
        /// How long it lasted.
        waited: Duration,
    },
    /// The caller could not do its part.
    Caller(String),
    /// A step needs what an earlier one should have left: a fault of this driver.
    OutOfOrder,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gone { register } => write!(f, "{register} reads all ones: the device no longer answers"),
            Self::Identify(error) => write!(f, "{error}"),
            Self::Counts(error) => write!(f, "{error}"),
            Self::Split(error) => write!(f, "{error}"),
            Self::BistFailed { hw_err_status } => write!(
                f,
                "HwErrStatus ({hw_err_status:#018x}) has PowerOnBISTFailed: the chip's memory is bad; power the host off \
                 and on, and replace the card if it stays"
            ),
            Self::NoErrors => {
                f.write_str("ErrMask reads 0 after all ones were written: the chip takes no writes")
            }
            Self::AvailAddress { written, read } => write!(
                f,
                "SendBufAvailAddr reads {read:#x} after {written:#x} was written: addresses must be multiples of 64 \
                 below 2^40"
            ),
            Self::Link(error) => write!(f, "{error}"),
            Self::Deadline { waited } => write!(f, "not done after {waited}"),
            Self::Caller(why) => f.write_str(why),
            Self::OutOfOrder => f.write_str("what an earlier step leaves is not there"),
        }
    }
}

impl fmt::Display for BringUpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "bring-up stopped in {}: {}", self.step, self.fault)
    }
}

impl std::error::Error for BringUpError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.fault {
            Fault::Identify(error) => Some(error),
            Fault::Counts(error) => Some(error),
            Fault::Split(error) => Some(error),
            Fault::Link(error) => Some(error),
            _ => None,
        }
    }
}

/// Something that is odd and no reason to stop.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BringUpWarning {
    /// A count was cut.
    Count(CountWarning),
    /// A wish was cut.
    Split(SplitWarning),
    /// The memory self-test neither ended nor is switched off.
    BistDidNotEnd {
        /// `EXTStatus`.
        ext_status: u64,
    },
    /// The board has no identity.
    Eeprom(EepromError),
    /// The EEPROM was not read in time.
    EepromSlow {
        /// How long it was waited for.
        waited: Duration,
    },
    /// A port's credits did not read back.
    Credits {
        /// The port.
        port: Port,
    },
    /// Copies into send buffers are slow.
    PioSlow {
        /// How the buffers are mapped.
        mapping: PioMapping,
        /// What was measured.
        rate: CopyRate,
    },
    /// Something about board or EEPROM.
    Remark(String),
}

impl fmt::Display for BringUpWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count(warning) => write!(f, "{warning}"),
            Self::Split(warning) => write!(f, "{warning}"),
            Self::BistDidNotEnd { ext_status } => {
                write!(
                    f,
                    "EXTStatus ({ext_status:#018x}): the memory self-test neither ended nor is disabled"
                )
            }
            Self::Eeprom(error) => write!(f, "no GUID: {error}"),
            Self::EepromSlow { waited } => write!(f, "no GUID: the EEPROM was not read within {waited}"),
            Self::Credits { port } => write!(f, "{port}: RxCreditVL* do not read back as written"),
            Self::PioSlow { mapping, rate } => write!(
                f,
                "send buffers are mapped {mapping} and take {} MiB/s: sends cost more than they should",
                rate.mib_per_s().unwrap_or_default()
            ),
            Self::Remark(text) => f.write_str(text),
        }
    }
}
