//! Experiments in virtual time, with the real driver code in the loop.
//!
//! Each experiment reproduces a published measurement on a machine that does not exist: a chip model, one or more
//! processor cores that cost time, and the driver's own code between them. Its results are simulated, never measured,
//! and say so.
//!
//! The parts of virtual time are in the simulator's `vtime`; here are the experiments and the figures they assume.

#![forbid(unsafe_code)]

pub mod calibrate;
pub mod cq_pool;
pub mod dim;
pub mod params;
pub mod policies;
pub mod predict;
pub mod published;
pub mod replay;
pub mod report;
pub mod rnr;
pub mod rows;
pub mod spread;
pub mod storm;
