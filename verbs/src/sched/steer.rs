//! Which receive context a queue pair's packets go to: the chip's map of 32 places.
//!
//! A port has six registers that together hold 32 entries of five bits: a queue pair's number, taken modulo 32 after the
//! bits that the chip leaves out, picks an entry, the entry names the context. Contexts belong to cores, so the map makes
//! "the core that has the packet" and "the core that owns the queue pair" the same.

use super::CoreId;

/// Entries of the map. Source: the chip's RcvQPMapTable registers.
pub const ENTRIES: usize = 32;

/// The context of each entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SteerMap([u8; ENTRIES]);

impl SteerMap {
    /// Spreads the entries over `contexts`, in turn; with none, everything goes to context 0.
    pub fn spread(contexts: &[u8]) -> Self {
        let mut map = [0; ENTRIES];
        if !contexts.is_empty() {
            for (entry, context) in map.iter_mut().zip(contexts.iter().cycle()) {
                *entry = *context & 31;
            }
        }
        Self(map)
    }

    /// The context of a queue pair.
    pub fn context(&self, qpn: u32) -> u8 {
        self.0[qpn as usize % ENTRIES]
    }

    /// All entries, in order.
    pub fn entries(&self) -> &[u8; ENTRIES] {
        &self.0
    }

    /// The core of a queue pair's packets, if contexts are given to cores in order.
    pub fn core(&self, qpn: u32, core_of_context: &[CoreId]) -> Option<CoreId> {
        core_of_context.get(usize::from(self.context(qpn))).copied()
    }
}
