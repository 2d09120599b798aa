//! What the QLogic 7322 defines, and how to touch it: registers as data, bits, memory layouts, the [`Bar`] seam.
//!
//! A register is a constant that knows its offset, the type of its contents and what may be done to it
//! ([`access`]); [`map`] lists them all, [`status`] names the bits of the status words, [`info`] is the same map as
//! data for dumps and models. Nothing here knows a driver or a model: both stand on this crate and share nothing
//! above it.

#![no_std]

#[cfg(not(target_pointer_width = "64"))]
compile_error!("the 7322 needs whole 64-bit register accesses: build for a 64-bit target");

pub mod access;
pub mod bar;
pub mod ids;
pub mod info;
pub mod map;
pub mod status;
pub mod time;
pub mod value;

pub use access::{Access, Reg, RegValue, Ro, Rw, Shadow, W1c, Wo};
pub use bar::{BAR_LEN_BYTES, Bar, GONE};
pub use ids::{Buffer, BufferKind, Ctxt, Lid, Port, Psn, Qpn, Vector};
pub use time::{Duration, Instant};
