//! The QLogic 7322 as a state machine, and its edges.

pub mod dma;
pub mod env;
pub mod board;
pub mod contexts;
pub mod options;
pub mod ports;
#[cfg(test)]
mod scriptbar;
pub mod rx;
pub mod shared;
pub mod sys;

#[cfg(test)]
mod testing;
