//! A device that one process holds, and the others that look at it.
//!
//! VFIO gives a card to one process. `qhca up` is that process: it brings the card up and stays. Beside the card it
//! holds two files in a folder that others can find:
//!
//! ```text
//! /run/qhca/0000:04:00.0.lock    locked by the process; says who it is        (everybody may read it)
//! /run/qhca/0000:04:00.0.sock    answers questions, one line of JSON each      (its user, or a group)
//! ```
//!
//! The lock goes with its process however that ends, so nothing that a killed one left behind hinders the next. Nothing
//! can be written to the device through the socket.
//!
//! [`place`] finds the folder and takes the lock, [`server`] answers, [`client`] asks; [`question`] is what both say.

pub(crate) mod client;
pub(crate) mod place;
pub(crate) mod question;
pub(crate) mod server;
