//! What is sent: ready-made headers, a payload, and how they leave.

use qhca_regs::Port;

/// Dwords of header that a frame may have: LRH, GRH, BTH and the longest extension fit.
pub const HEADER_MAX_DWORDS: usize = 32;

/// The lane that a packet leaves by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// A virtual lane for data, 0 to 7. It must be the one that the LRH names.
    Vl(u8),
    /// VL 15: management, without credits, through the port's own buffer.
    Management,
}

/// What follows the headers. Its length is rounded up to dwords with zero bytes; the pad count is the headers'
/// business.
#[derive(Clone, Copy, Debug)]
pub enum Payload<'a> {
    /// Nothing.
    None,
    /// Dwords in memory order, which are copied straight to the buffer.
    Dwords(&'a [u32]),
    /// Bytes of any length and alignment, copied through a small buffer on the stack.
    Bytes(&'a [u8]),
}

impl Payload<'_> {
    /// Dwords on the wire.
    #[inline]
    pub fn len_dwords(&self) -> usize {
        match self {
            Self::None => 0,
            Self::Dwords(dwords) => dwords.len(),
            Self::Bytes(bytes) => bytes.len().div_ceil(4),
        }
    }
}

/// One packet.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// The port it leaves by.
    pub port: Port,
    /// The lane.
    pub lane: Lane,
    /// The headers from LRH on, as they lie in memory: big-endian fields, four bytes a dword.
    pub header: &'a [u32],
    /// What follows them.
    pub payload: Payload<'a>,
    /// Ticks of pause before the port's next packet, 14 bits; 0 at full rate.
    pub static_rate: u16,
    /// Whether to raise `SendDone` when it has left.
    pub notify: bool,
}

impl<'a> Frame<'a> {
    /// A packet at full rate on VL 0.
    pub fn new(port: Port, header: &'a [u32], payload: Payload<'a>) -> Self {
        Self { port, lane: Lane::Vl(0), header, payload, static_rate: 0, notify: false }
    }
}
