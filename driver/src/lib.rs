//! The QLogic 7322 as a state machine, and its edges.

pub mod board;
pub mod bringup;
pub mod contexts;
pub mod control;
pub mod counters;
pub mod dma;
pub mod eeprom;
pub mod env;
pub mod event;
pub mod fault;
pub mod gpio;
pub mod hca;
pub mod identity;
pub mod link;
pub mod options;
pub mod ports;
pub mod runtime;
pub mod rx;
#[cfg(test)]
mod scriptbar;
pub mod shared;
pub mod slots;
pub mod sys;
pub mod twsi;
pub mod tx;
pub mod vfio;
pub mod vfio_user;

#[cfg(test)]
mod testing;
