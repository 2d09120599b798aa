//! The world without a card: chip model, fabric, faults, virtual time.

pub mod backend;
pub mod chip;
pub mod control;
pub mod fabric;
pub mod faults;
pub mod host;
pub mod vfio_user;
pub mod vtime;
pub mod world;
