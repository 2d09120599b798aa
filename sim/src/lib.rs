//! The world without a card: chip model, fabric, faults, virtual time.

pub mod vtime;
