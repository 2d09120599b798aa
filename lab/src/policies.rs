//! The policies of the transport, by the names that the experiments use.

pub use qhca_verbs::cq::pool;
pub use qhca_verbs::replenish;
pub use qhca_verbs::sched;
