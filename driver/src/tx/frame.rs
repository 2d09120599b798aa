//! What is sent: ready-made headers, a payload, and how they leave.

use qhca_regs::Port;

use crate::dma::DmaRegion;

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
    /// Memory that the chip can reach. If the packet goes by send DMA the chip reads it where it lies, and it must
    /// stay as it is until the send has its outcome; whole dwords on a dword only, all else is copied.
    InPlace {
        /// The memory.
        region: &'a DmaRegion,
        /// Where the payload begins in it, bytes.
        offset: usize,
        /// Its length, bytes.
        len_bytes: usize,
    },
}

/// How a packet gets to the chip.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Path {
    /// As the sender sees fit: short packets by programmed I/O, long ones by send DMA, and either by the other way if
    /// its own is full. Packets that go different ways may overtake each other.
    #[default]
    Auto,
    /// By programmed I/O alone.
    Pio,
    /// By send DMA alone.
    Sdma,
}

impl Payload<'_> {
    /// Dwords on the wire.
    #[inline]
    pub fn len_dwords(&self) -> usize {
        match self {
            Self::None => 0,
            Self::Dwords(dwords) => dwords.len(),
            Self::Bytes(bytes) => bytes.len().div_ceil(4),
            // What lies outside of its region is longer than anything: whoever looks at the length looks at the rest.
            Self::InPlace { region, offset, len_bytes } => match offset.checked_add(*len_bytes) {
                Some(end) if end <= region.len_bytes() => len_bytes.div_ceil(4),
                _ => usize::MAX / 8,
            },
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
    /// Whether to interrupt when it has left.
    pub notify: bool,
    /// How it gets to the chip.
    pub path: Path,
}

impl<'a> Frame<'a> {
    /// A packet at full rate on VL 0.
    pub fn new(port: Port, header: &'a [u32], payload: Payload<'a>) -> Self {
        Self { port, lane: Lane::Vl(0), header, payload, static_rate: 0, notify: false, path: Path::Auto }
    }
}
