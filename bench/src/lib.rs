//! Instruction gates and interleaved comparisons.
//!
//! Times on a shared machine drift by more than most changes are worth, so two rules hold here.
//! *Instruction counts* gate: `benches/` runs under valgrind, where a count is the same in every run,
//! and fails over its limit. *Times* are compared as ratios only, by [`interleave`], which takes the
//! candidates in turn within one run.

#![forbid(unsafe_code)]

pub mod compare;
pub mod decode;
pub mod device;
pub mod interleave;
