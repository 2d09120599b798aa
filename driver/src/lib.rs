//! The QLogic 7322 as a state machine, and its edges.

pub mod dma;
pub mod env;
pub mod options;
pub mod rx;
pub mod shared;
pub mod sys;

#[cfg(test)]
mod testing;
