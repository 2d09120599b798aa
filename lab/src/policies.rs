//! The policies of the transport, by the names that the experiments use.

/// Who shares a completion queue with whom.
#[path = "../../verbs/src/cq/pool/mod.rs"]
pub mod pool;
/// When receive buffers are posted again.
#[path = "../../verbs/src/replenish/mod.rs"]
pub mod replenish;
/// On which core transport work is done.
#[path = "../../verbs/src/sched/mod.rs"]
pub mod sched;
