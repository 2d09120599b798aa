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
        // The two that the fast path sees come first, without a table of jumps.
        match self {
            Self::None => return 0,
            Self::Dwords(dwords) => return dwords.len(),
            _ => {}
        }
        self.len_dwords_of_bytes()
    }

    #[inline(never)]
    fn len_dwords_of_bytes(&self) -> usize {
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
///
/// Most packets are plain: VL 0, full rate, no interrupt, whichever way the sender sees fit. How a frame departs from that
/// is kept beside one flag that says whether it does at all, which is all that the fast path asks.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// The port it leaves by.
    pub port: Port,
    /// The headers from LRH on, as they lie in memory: big-endian fields, four bytes a dword.
    pub header: &'a [u32],
    /// What follows them.
    pub payload: Payload<'a>,
    lane: Lane,
    static_rate: u16,
    notify: bool,
    path: Path,
    is_plain: bool,
}

impl<'a> Frame<'a> {
    /// A plain packet: at full rate on VL 0.
    #[inline]
    pub const fn new(port: Port, header: &'a [u32], payload: Payload<'a>) -> Self {
        Self {
            port,
            header,
            payload,
            lane: Lane::Vl(0),
            static_rate: 0,
            notify: false,
            path: Path::Auto,
            is_plain: true,
        }
    }

    /// Leaves by `lane`.
    #[inline]
    #[must_use]
    pub fn with_lane(self, lane: Lane) -> Self {
        Self { lane, ..self }.judged()
    }

    /// Is followed by a pause of `ticks` before the port's next packet, 14 bits; 0 for full rate.
    #[inline]
    #[must_use]
    pub fn with_static_rate(self, ticks: u16) -> Self {
        Self { static_rate: ticks, ..self }.judged()
    }

    /// Interrupts when it has left, or does not.
    #[inline]
    #[must_use]
    pub fn with_notify(self, notify: bool) -> Self {
        Self { notify, ..self }.judged()
    }

    /// Gets to the chip by `path`.
    #[inline]
    #[must_use]
    pub fn with_path(self, path: Path) -> Self {
        Self { path, ..self }.judged()
    }

    /// The lane that it leaves by.
    #[inline]
    pub const fn lane(&self) -> Lane {
        self.lane
    }

    /// Ticks of pause before the port's next packet.
    #[inline]
    pub const fn static_rate(&self) -> u16 {
        self.static_rate
    }

    /// Whether to interrupt when it has left.
    #[inline]
    pub const fn notify(&self) -> bool {
        self.notify
    }

    /// How it gets to the chip.
    #[inline]
    pub const fn path(&self) -> Path {
        self.path
    }

    /// Whether nothing is special about it.
    #[inline]
    pub(super) const fn is_plain(&self) -> bool {
        self.is_plain
    }

    #[inline]
    fn judged(mut self) -> Self {
        let special = self.static_rate != 0 || self.notify || self.path != Path::Auto;
        self.is_plain = self.lane == Lane::Vl(0) && !special;
        self
    }
}
