//! The world without a card: chip model, fabric, faults, virtual time.

pub mod chip;
pub mod vtime;
