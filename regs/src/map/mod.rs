//! The register map: 236 registers of the chip's header with arrays and port copies, and 72 that iPXE adds.
//!
//! One line a register: name, how often it stands, access kind, contents, offset, the header's name, reset value and
//! the bits of it that no source gives. `regs/data/` holds the tables these lines are tested against.

use crate::info::{Placed, RegInfo};
use crate::value::{contents, registers};

pub mod area;
pub mod counter;
pub mod device;
pub mod extra;
mod port_head;
mod port_link;
mod port_recv;
mod port_send;
pub mod user;

/// Registers of one port: each stands at its offset for port 0 and 0x1000 higher for port 1 (F-003).
pub mod port {
    pub use super::port_head::*;
    pub use super::port_link::*;
    pub use super::port_recv::*;
    pub use super::port_send::*;
}

/// All chapters of the map, in address order but for the extra registers, which come last.
pub const CHAPTERS: [&[RegInfo]; 9] = [
    device::TABLE,
    port_head::TABLE,
    port_recv::TABLE,
    port_send::TABLE,
    port_link::TABLE,
    area::TABLE,
    counter::TABLE,
    user::TABLE,
    extra::TABLE,
];

/// Every row of the map.
pub fn rows() -> impl Iterator<Item = &'static RegInfo> {
    CHAPTERS.into_iter().flatten()
}

/// Every register of the map at its address, tables under their first entry.
pub fn all() -> impl Iterator<Item = Placed> {
    rows().flat_map(RegInfo::placed)
}

/// The register that covers byte `offset`, if the map has one.
pub fn at(offset: u32) -> Option<Placed> {
    rows().find_map(|row| row.covering(offset))
}
