//! The edge where the state machines meet threads, descriptors and a clock.
//!
//! Everything else in this crate is handed a bar, the time and what happened. Here somebody waits. There are two ways
//! to turn a device, and both turn the same code (`Core` in `core`):
//!
//! ```text
//!   Runtime::Threads                                Runtime::Manual
//!   control thread: epoll(vectors, bell) ─► turn    application: epoll(fds()) ─► turn(now)
//!   worker thread:  bell ─► Worker::poll            (the worker's turn is part of it)
//!   application:    Receiver::wait / poll           application: Receiver::poll
//! ```
//!
//! Idle costs nothing but a look at each waiting context every few milliseconds, which finds interrupts that got
//! lost. A [`Receiver`] or [`Transmitter`] moves to the application's thread and keeps the device alive; dropping or
//! closing in any order is fine.
//!
//! | file | what |
//! |---|---|
//! | `open` | from a back end and options to a device that is up |
//! | `core` | one turn |
//! | `threads` | the control thread and the worker thread |
//! | `device` | what an application holds |
//! | `data` | receiving and sending on the application's threads |
//! | `reset` | a reset while the device is in use |
//! | `error` | why a device did not come up |

mod core;
mod data;
mod device;
mod error;
mod open;
mod reset;
mod threads;

pub use data::{Receiver, Transmitter};
pub use device::{CloseReport, Device};
pub use error::StartError;
pub use open::{Opening, Runtime};
pub use reset::{ResetError, ResetHow, ResetReport};
