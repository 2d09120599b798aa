//! What is asked and answered over a held device's socket: one line of JSON each, in order.
//!
//! ```text
//! {"ask": "info"}                          {"ok": true, "result": …}
//! {"ask": "read", "offsets": [0, 112]}     {"ok": false, "error": "…", "code": 2}
//! ```

use serde::{Deserialize, Serialize};

/// Longest question.
pub(crate) const QUESTION_BYTES: usize = 16 << 10;
/// Longest answer.
pub(crate) const ANSWER_BYTES: usize = 4 << 20;
/// Most registers of one question.
pub(crate) const OFFSETS_MAX: usize = 512;
/// Most events of one answer.
pub(crate) const EVENTS_AT_ONCE: usize = 256;

/// A question.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "lowercase")]
pub(crate) enum Question {
    /// Who holds which device since when.
    Holder,
    /// As `qhca info --json`.
    Info,
    /// As `qhca info --cables --json`, in one array.
    Cables,
    /// As `qhca counters --json`.
    Counters,
    /// The contents of registers.
    Read {
        /// Their offsets.
        offsets: Vec<u32>,
    },
    /// What happened.
    Events {
        /// Those with a number from this on.
        #[serde(default)]
        from: u64,
    },
    /// How the driver works: policies, contexts, what it has dealt with.
    Figures,
}

/// One event.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct EventView {
    /// Counted from 0 since the device was brought up.
    pub(crate) number: u64,
    /// Seconds since then.
    pub(crate) seconds: f64,
    /// Its kind in a word.
    pub(crate) kind: String,
    /// What it says.
    pub(crate) text: String,
}

/// Some events.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Events {
    /// The events, oldest first.
    pub(crate) events: Vec<EventView>,
    /// The number to ask from next.
    pub(crate) next: u64,
    /// Events from the asked number on that are no longer kept.
    pub(crate) missed: u64,
    /// Events that the driver had no room for.
    pub(crate) lost: u64,
}
