//! The register window, by messages: a read is a question and its answer, a write is posted.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use qhca_regs::{Bar, GONE};
use qhca_vfu::{RegionAccess, Request, region};

use super::connection::Connection;

/// The register window of a device behind a socket. Clones share the connection.
#[derive(Clone)]
pub struct VfioUserBar {
    pub(super) connection: Arc<Connection>,
}

fn at(offset: u32, len_bytes: u32) -> RegionAccess {
    RegionAccess { offset: u64::from(offset), region: region::BAR0, len_bytes }
}

impl Bar for VfioUserBar {
    /// All ones if the connection has ended, as a card answers that has gone.
    fn read(&self, offset: u32) -> u64 {
        let place = at(offset, 8);
        let value = self.connection.ask(&Request::RegionRead(place), &[], |payload| {
            let data = place.parse_read_reply(payload)?;
            Ok(data.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)))
        });
        value.unwrap_or(GONE)
    }

    fn write(&self, offset: u32, value: u64) {
        self.connection.tell(&Request::RegionWrite(at(offset, 8), &value.to_le_bytes()));
    }

    fn doorbell(&self, offset: u32, value: u64) {
        // ORDER: stores to DMA memory before the message that makes the device look at them. Sending is a system call on
        // both sides, which orders as much; the fence says what is meant.
        fence(Ordering::Release);
        self.write(offset, value);
    }

    /// One message: the server splits it into the accesses that a burst consists of.
    fn burst(&self, offset: u32, dwords: &[u32]) {
        /// A send buffer holds less; what does not fit in one message would go in several.
        const DWORDS_AT_ONCE: usize = 4096;
        let mut bytes = Vec::with_capacity(4 * dwords.len().min(DWORDS_AT_ONCE));
        let mut offset = offset;
        for part in dwords.chunks(DWORDS_AT_ONCE) {
            bytes.clear();
            part.iter().for_each(|dword| bytes.extend_from_slice(&dword.to_le_bytes()));
            self.connection.tell(&Request::RegionWrite(at(offset, bytes.len() as u32), &bytes));
            offset += bytes.len() as u32;
        }
    }
}

impl fmt::Debug for VfioUserBar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VfioUserBar").finish_non_exhaustive()
    }
}
