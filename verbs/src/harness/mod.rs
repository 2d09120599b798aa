//! Two endpoints and a bad cable.

/// A fault that a test plants in the transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planted {
    /// An acknowledge past a READ completes it, though its data never came.
    AckCompletesRead,
    /// The pause after an RNR NAK is not made.
    RnrTimerIgnored,
    /// An atomic that comes again is carried out again.
    AtomicReplayed,
    /// A request that comes again is acknowledged with the newest number.
    DuplicateAckNewest,
}
