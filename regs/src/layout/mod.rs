//! What the chip and the host lay out for each other in memory and in the send buffers.
//!
//! One file a layout, each with a drawing, a `parse` that takes any bits without complaint or with a typed error, and
//! a `build` that makes them. A word is a newtype over its bits, so that looking at one field costs one shift and one
//! mask; nothing here reads or writes memory that the chip shares.
//!
//! Indices and lengths taken from such words are the chip's claims: whoever uses one bounds it first.

pub mod array_entry;
pub mod avail;
pub mod flash;
pub mod kd_header;
pub mod pbc;
pub mod rhf;
pub mod sdma_desc;
pub mod tid_flow;

pub use array_entry::{ArrayEntry, ArrayEntryError, BufSize, Slot};
pub use avail::{AvailWords, BufferState};
pub use flash::{Flash, FlashError, FlashNotes};
pub use kd_header::{KdError, KdFlags, KdHeader, KdTid};
pub use pbc::Pbc;
pub use rhf::{PacketType, Rhf, RhfErrors, RhfSeq};
pub use sdma_desc::{SdmaDesc, SdmaDescError};
pub use tid_flow::{FlowPsn, TidFlow};
