//! The ways to serve errors, by name.
//!
//! Two are the stock driver's, before and after its fix for the overflow storm; one is ours. The other two exist to
//! be compared with: a new decoder without the rest, and no errors at all.

use std::fmt;
use std::str::FromStr;

use qhca_irq::ErrorPolicy;

/// How errors are served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Policy {
    /// All errors are masked for good: the control of an experiment, not for use.
    Silent,
    /// Every error is served and decoded where it interrupts, with the old formatted decoder.
    Inline,
    /// As `Inline`, with the new decoder alone.
    DecoderOnly,
    /// Device errors go to the worker and are all masked meanwhile; port errors are served inline.
    Deferred,
    /// Device and port errors go to the worker; classes are unmasked as the storm limiter allows; what is fatal is
    /// never hidden; receive batches stay short while the worker is wanted.
    #[default]
    Guarded,
}

impl Policy {
    /// All, in the order in which a table shows them.
    pub const ALL: [Self; 5] = [Self::Silent, Self::Inline, Self::DecoderOnly, Self::Deferred, Self::Guarded];

    /// The name that options and tables use.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Silent => "silent",
            Self::Inline => "inline",
            Self::DecoderOnly => "decoder-only",
            Self::Deferred => "deferred",
            Self::Guarded => "guarded",
        }
    }

    /// Who serves what, as the dispatcher is told.
    pub const fn dispatch(self) -> ErrorPolicy {
        match self {
            // Nothing is enabled under `Silent`; whatever comes all the same is masked.
            Self::Guarded | Self::Silent => ErrorPolicy::GUARDED,
            Self::Deferred => ErrorPolicy::DEFERRED,
            Self::Inline | Self::DecoderOnly => ErrorPolicy::INLINE,
        }
    }

    /// Whether receive batches stay short while the worker is wanted, and grow after an overflow.
    pub const fn guards_receive(self) -> bool {
        matches!(self, Self::Guarded)
    }

    /// Whether every report is decoded, as the published drivers do, or only as many as are worth a log line.
    pub const fn decodes_every_report(self) -> bool {
        !matches!(self, Self::Guarded | Self::Silent)
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// No policy has that name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownPolicy(pub String);

impl fmt::Display for UnknownPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no error policy `{}`: valid are", self.0)?;
        for (n, policy) in Policy::ALL.iter().enumerate() {
            write!(f, "{} {policy}", if n == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

impl std::error::Error for UnknownPolicy {}

impl FromStr for Policy {
    type Err = UnknownPolicy;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let known = Self::ALL.into_iter().find(|policy| policy.name() == name);
        known.ok_or_else(|| UnknownPolicy(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_policy_is_found_by_its_name_and_no_other() {
        for policy in Policy::ALL {
            assert_eq!(policy.name().parse(), Ok(policy));
        }
        let error = "tasklet".parse::<Policy>().expect_err("not a policy");
        let valid = "no error policy `tasklet`: valid are silent, inline, decoder-only, deferred, guarded";
        assert_eq!(error.to_string(), valid);
    }
}
