//! The vfio-user message codec: bytes to messages and back, for the client and the server.
//!
//! vfio-user carries the questions that a program asks of a VFIO device over a Unix socket, so that a device can
//! live in another process. Every message is a 16-byte [`Header`] and a payload of fixed little-endian structs;
//! file descriptors travel beside the bytes and are not seen here. [`Request`] is what the client asks of the
//! device, [`Reply`] what comes back, [`DmaRequest`] what the device asks of the client's memory.
//!
//! ```text
//!  0      2         4          8       12       16
//!  +------+---------+----------+-------+--------+---------
//!  |  id  | command | size     | flags | errno  | payload
//!  +------+---------+----------+-------+--------+---------
//!            size counts the header; flags: [3:0] 0 = command, 1 = reply; bit 4 no reply wanted; bit 5 error
//! ```
//!
//! Nothing panics on bytes from the other side and no length is believed before it is compared with what is there:
//! a message that cannot be read is a [`ParseError`] that says which field is wrong.
//!
//! Source: the vfio-user protocol, version 0.1 (libvfio-user's `vfio-user.rst`).

#![forbid(unsafe_code)]

mod error;
mod header;
mod irqs;
mod reply;
mod request;
mod version;
mod wire;

pub use error::ParseError;
pub use header::{Command, HEADER_LEN_BYTES, Header, Kind};
pub use irqs::{IrqAction, IrqData, SetIrqs, TRIGGERS_MAX};
pub use reply::{DeviceInfo, IrqInfo, RegionInfo, Reply, SparseArea, error_reply};
pub use request::{DmaMap, DmaRequest, DmaUnmap, RegionAccess, Request, WriteOne};
pub use version::{Capabilities, Version};

/// Most payload bytes of one region or DMA transfer that we offer and accept: 1 MiB.
pub const XFER_MAX_BYTES: u32 = 1 << 20;

/// Most bytes of a whole message: a transfer, its struct and the header.
pub const MESSAGE_MAX_BYTES: u32 = XFER_MAX_BYTES + 4096;

/// Region indices of a PCI device, as VFIO numbers them.
pub mod region {
    /// BAR 0.
    pub const BAR0: u32 = 0;
    /// The expansion ROM.
    pub const ROM: u32 = 6;
    /// Configuration space.
    pub const CONFIG: u32 = 7;
    /// The VGA window.
    pub const VGA: u32 = 8;
    /// How many indices there are.
    pub const COUNT: u32 = 9;
}

/// Interrupt indices of a PCI device, as VFIO numbers them.
pub mod irq {
    /// The wire.
    pub const INTX: u32 = 0;
    /// MSI.
    pub const MSI: u32 = 1;
    /// MSI-X.
    pub const MSIX: u32 = 2;
    /// Error reporting.
    pub const ERR: u32 = 3;
    /// The device is asked back.
    pub const REQ: u32 = 4;
    /// How many indices there are.
    pub const COUNT: u32 = 5;
}
