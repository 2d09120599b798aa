//! What the QLogic 7322 defines, and how to touch it: registers as data, bits, memory layouts, the [`Bar`] seam.
//!
//! A register is a constant that knows its offset, the type of its contents and what may be done to it
//! ([`access`]); [`map`] lists them all, [`status`] names the bits of the status words, [`info`] is the same map as
//! data for dumps and models. [`layout`] is what chip and host lay out for each other in memory. [`bar`] is the seam
//! through which all is touched, [`mmio`] its one unsafe implementation. Nothing here knows a driver or a model: both stand on this crate and share nothing
//! above it.

#![no_std]
#![deny(unsafe_code)]

#[cfg(not(target_pointer_width = "64"))]
compile_error!("the 7322 needs whole 64-bit register accesses: build for a 64-bit target");

pub mod access;
pub mod bar;
pub mod ids;
pub mod info;
pub mod layout;
pub mod map;
#[allow(unsafe_code)]
pub mod mmio;
pub mod status;
pub mod time;
pub mod value;

pub use access::{Access, Reg, RegValue, Ro, Rw, Shadow, W1c, Wo};
pub use bar::{BAR_LEN_BYTES, Bar, GONE};
pub use ids::{Buffer, BufferKind, Ctxt, Lid, Port, Psn, Qpn, Vector};
pub use mmio::{MemoryWindow, MmioBar};
pub use time::{Duration, Instant};
