//! The QLogic 7322 as a state machine, and its edges.

pub mod dma;
pub mod env;
pub mod sys;

pub mod options;
