//! What a turn of the worker found in one word.

use std::fmt;

use qhca_errdecode::Scope;
use qhca_regs::{Instant, Port};

use super::table::{Actions, Response};

/// One error word that was served. There is exactly one event for each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Which word it is.
    pub scope: Scope,
    /// The port, for a port's word.
    pub port: Option<Port>,
    /// The word as it was read and cleared.
    pub word: u64,
    /// Why a send header was refused, if that is among the bits: `SendHdrErrSymptom_p`.
    pub symptom: u64,
    /// What was done about it.
    pub actions: Actions,
    /// Whether the chip stood still.
    pub frozen: bool,
    /// When it was served.
    pub at: Instant,
    /// The names of its bits, if it was worth a log line.
    pub text: Option<Box<str>>,
}

impl Report {
    /// Whether the device is of no more use.
    pub fn is_fatal(&self) -> bool {
        self.actions.has(Response::Fatal)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(port) = self.port {
            write!(f, "{port}: ")?;
        }
        let text = self.text.as_deref().unwrap_or("error");
        write!(f, "{text} ({} {:#018x})", self.scope.as_str(), self.word)?;
        if self.is_fatal() {
            f.write_str(": the device is no longer usable")?;
        }
        Ok(())
    }
}
