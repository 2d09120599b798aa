//! From an interrupt status word of the QLogic 7322 to ordered work.

#![forbid(unsafe_code)]

pub mod source;

pub use source::{IrqSource, VectorSet, Wake};
