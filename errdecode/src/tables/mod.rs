//! The tables: one file per word, rows in decoder order.
//!
//! A bit's name, meaning and advice are in its row and nowhere else.

mod device;
mod hardware;
mod interrupt;
mod port;
mod rhf;
mod sdma;
mod symptom;

pub use device::DEVICE;
pub use hardware::HARDWARE;
pub use interrupt::INTERRUPT;
pub use port::PORT;
pub use rhf::RHF;
pub use sdma::SDMA;
pub use symptom::SEND_HEADER_SYMPTOM;
