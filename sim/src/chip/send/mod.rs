//! Sending.

/// The longest packet that a send buffer holds, bytes.
pub(super) const MAX_PACKET_BYTES: usize = 0x1080 - 8;
