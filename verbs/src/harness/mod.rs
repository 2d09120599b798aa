//! Two endpoints and a bad cable: scenarios from a seed, in virtual time, and checkers that know nothing of the
//! transport's insides.
//!
//! ```text
//!   seed ─► Scenario ─► Side A ══ Cable (loss, duplication, delay, ...) ══ Side B
//!                         │            │ Tap: numbers, windows, credits        │
//!                         └── completions, memory ──► checks ◄─────────────────┘
//! ```
//!
//! [`run`] plays one seed and returns an [`Outcome`], or a [`Violation`] that names the rule which was broken. What is
//! checked: every work request completes exactly once and in order; the bytes are right and nothing beside them was
//! touched; atomics happened once, in order, with the right answers; sequence numbers, repeats, windows and credits on
//! the cable obey the rules; nothing hangs. The same seed plays the same scenario, event for event.

mod cable;
mod check;
mod rng;
mod scenario;
mod side;
mod table;
mod tap;
mod world;

#[cfg(test)]
mod planted_tests;

pub use check::Violation;
pub use rng::Rng;
pub use scenario::{Fault, Op, Scenario, Trouble};
pub use table::Table;
pub use world::{Outcome, World, run};

/// A fault that a test plants in the transport, to see that the checkers find it.
#[cfg(test)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Planted {
    /// An acknowledge past a READ completes it, though its data never came.
    AckCompletesRead,
    /// The pause after an RNR NAK is not made.
    RnrTimerIgnored,
    /// An atomic that comes again is carried out again.
    AtomicReplayed,
    /// A packet out of sequence is taken as if it were the expected one.
    GapIgnored,
    /// A repeat of a message begins one packet late.
    RepeatSkipsOne,
    /// A repeated SEND uses up another receive.
    DuplicateSendTaken,
    /// The window is not looked at.
    WindowIgnored,
    /// Credits are not looked at.
    CreditsIgnored,
    /// A flush leaves the last request without a completion.
    FlushForgetsLast,
    /// A READ's data is put where the request began, whatever packet it is.
    ReadOffsetLost,
    /// Retries are never used up.
    RetryForever,
}
