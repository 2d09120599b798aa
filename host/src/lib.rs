//! The machine around a card: what Linux says of it, and how a card is given to `vfio-pci` and back.
//!
//! A card of this machine is a *PCI function*: a place on a bus, written `0000:04:00.0` ([`Bdf`]). The kernel tells what
//! it knows of it in small text files below `/sys`, and takes orders the same way: a word written to the right file
//! takes a card from one driver and gives it to another. Which other functions share its door to memory (its *IOMMU
//! group*) decides whether a program may have it at all.
//!
//! ```text
//! /sys/bus/pci/devices/0000:04:00.0   ->  [Card]      one function, as read
//! /sys/kernel/iommu_groups/26         ->  [Group]     it and its neighbours
//! /proc/*/fd                          ->  [holders()] who has it open
//!                                         [doctor]    all of it judged: what is wrong, and what mends it
//!                                         [binding]   orders, each with its undoing
//! ```
//!
//! Everything is read through [`Look`] and written through [`Edit`], so a machine can be the one that this runs on, a
//! copy of its files in a folder, or a made-up one in memory ([`fake`]) that obeys as the kernel does. No file is
//! trusted: it may be missing, empty, huge, not text, or lie. What could not be read is a value ([`Unread`]) that says
//! which file and why, never a panic and never a made-up number.
//!
//! What this room does not do: it opens no device and reads no register. The chip is `driver`'s.

#![forbid(unsafe_code)]

mod bdf;
pub mod binding;
mod card;
pub mod doctor;
pub mod fake;
mod group;
mod holders;
mod look;
pub mod modules;
mod pcie;
mod persist;
mod read;
mod real;
pub mod users;

pub use bdf::{Bdf, BdfError};
pub use card::{Card, DEVICE_ID, VENDOR_ID, cards, find};
pub use group::{Group, Member};
pub use holders::{Holder, Holders, holders};
pub use look::{Edit, Look, Node, NodeKind};
pub use pcie::{Bridge, Link, Speed};
pub use persist::is_kept;
pub use read::{Fact, Reader, Unread, Why};
pub use real::RealHost;
