//! Submit: claim a buffer, write the control word, headers and payload, done.
//!
//! ```text
//!   buffer:  | PBC 0 | PBC 1 | LRH ... headers | payload ... |
//!            └── a store ────┴── pairs of dwords, ascending ──┘
//! ```
//!
//! The chip launches when as many dwords have arrived as the PBC announced (F-212). Every store begins on a pair of
//! dwords, so when the headers end in the middle of one the first payload dword goes with them.
//!
//! A sender belongs to one thread. It never waits: without a free buffer it says `WouldBlock` and has the chip tell
//! when that changes.

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

use qhca_regs::layout::{AvailWords, Pbc};
use qhca_regs::{Bar, Buffer, BufferKind, Port};

use super::control::SendControl;
use super::frame::{Frame, HEADER_MAX_DWORDS, Lane, Payload};
use super::pool::Pool;
use super::route::{SdmaSide, Submitted};
use super::sdma::{PACKET_MAX_DWORDS, SMALL_DWORDS, SdmaHome};
use crate::dma::DmaRegion;
use crate::shared::{DeviceShared, DeviceState};

/// Calls that would block before the chip is asked again for its avail words.
const ASK_AGAIN_AFTER: u64 = 64;
/// An LRH and a BTH: less is no packet that the chip would send.
const HEADER_MIN_DWORDS: usize = 5;
/// Bytes of the control word.
const PBC_BYTES: u32 = Pbc::LEN_DWORDS as u32 * 4;
/// Dwords of a byte payload that are copied at a time.
const STEP_DWORDS: usize = 64;

/// Why a packet was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SubmitError {
    /// No buffer is free. Try again when one is: an interrupt will say so.
    WouldBlock,
    /// The packet does not fit the largest buffer that the sender has.
    TooLong {
        /// Dwords of the packet with its control word.
        dwords: usize,
        /// Dwords that fit.
        fit: usize,
    },
    /// The headers are shorter than LRH and BTH or longer than [`HEADER_MAX_DWORDS`].
    HeaderLength {
        /// Dwords of header.
        dwords: usize,
    },
    /// There is no such virtual lane; 0 to 7 are.
    NoSuchLane {
        /// What was asked for.
        vl: u8,
    },
    /// The sender has no buffer for management packets of this port.
    NoManagementBuffer {
        /// The port.
        port: Port,
    },
    /// The static rate does not fit its 14 bits.
    RateTooLarge {
        /// What was asked for.
        static_rate: u16,
    },
    /// The packet must go by send DMA, and the port has no engine or one that does not run: its link is not ACTIVE.
    SdmaStopped {
        /// The port.
        port: Port,
    },
    /// A payload in place that does not lie in its region.
    OutsideRegion {
        /// Where it begins, bytes.
        offset: usize,
        /// Its length.
        len_bytes: usize,
        /// Bytes of the region.
        region_bytes: usize,
    },
    /// The device is closed, has failed or is gone.
    Gone,
}

impl fmt::Display for SubmitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WouldBlock => f.write_str("no send buffer is free: try again when one is"),
            Self::TooLong { dwords, fit } => {
                write!(
                    f,
                    "packet of {dwords} dwords with its control word: at most {fit} fit a buffer of this sender"
                )
            }
            Self::HeaderLength { dwords } => write!(
                f,
                "{dwords} dwords of header: {HEADER_MIN_DWORDS} (LRH and BTH) to {HEADER_MAX_DWORDS} are possible"
            ),
            Self::NoSuchLane { vl } => write!(f, "virtual lane {vl}: 0 to 7 are possible"),
            Self::NoManagementBuffer { port } => {
                write!(f, "this sender does not own the VL 15 buffer of {port}")
            }
            Self::RateTooLarge { static_rate } => {
                write!(f, "static rate {static_rate}: at most {} ticks are possible", STATIC_RATE_MAX)
            }
            Self::SdmaStopped { port } => {
                write!(
                    f,
                    "the send DMA engine of {port} does not run: its link must be ACTIVE, and special_trigger off"
                )
            }
            Self::OutsideRegion { offset, len_bytes, region_bytes } => write!(
                f,
                "payload of {len_bytes} bytes at {offset} of a DMA region of {region_bytes} bytes: it must lie inside"
            ),
            Self::Gone => f.write_str("the device is closed or no longer usable"),
        }
    }
}

impl std::error::Error for SubmitError {}

/// The largest pause that the control word can name.
const STATIC_RATE_MAX: u16 = 0x3FFF;

/// What became of what was submitted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TxCounts {
    /// Packets given to the chip, either way.
    pub packets: u64,
    /// Those of them that went by send DMA.
    pub by_sdma: u64,
    /// Their dwords on the wire, ICRC included.
    pub dwords: u64,
    /// Submits that found no free buffer.
    pub would_block: u64,
    /// Submits that were refused for what was in them.
    pub refused: u64,
    /// Times that the chip was asked for its avail words.
    pub updates_asked: u64,
}

/// Sends from a pool of buffers of its own. It may move to another thread, but only one thread can use it.
pub struct Sender {
    pool: Pool,
    avail: DmaRegion,
    control: Arc<SendControl>,
    pub(super) shared: Arc<DeviceShared>,
    /// Dwords up to which a plain packet goes by programmed I/O without a second thought.
    pub(super) pio_limit_dwords: usize,
    /// Dwords that fit the largest buffer of the pool.
    pub(super) largest_dwords: usize,
    /// Dwords above which a packet goes by send DMA if it can.
    pub(super) sdma_above_dwords: usize,
    pub(super) sdma: [Option<SdmaSide>; 2],
    /// The device's word as this sender knows it: another one means that it was reset, or is not open.
    pub(super) known: u32,
    /// The control side waits for something that was done here.
    pub(super) answered: bool,
    blocked_in_row: u64,
    pub(super) counts: TxCounts,
    /// Which of the device's pools it is, so that it can be lent again.
    slot: Option<u32>,
    not_sync: PhantomData<Cell<()>>,
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.sdma.iter_mut().filter_map(Option::take).for_each(SdmaSide::bring_home);
        if let Some(slot) = self.slot {
            self.shared.note_sender_returned(slot);
        }
    }
}

impl Sender {
    /// The sender of the device's pool number `slot`.
    pub(crate) fn of_slot(
        slot: u32,
        pool: Pool,
        avail: DmaRegion,
        control: Arc<SendControl>,
        shared: Arc<DeviceShared>,
    ) -> Self {
        let mut sender = Self::new(pool, avail, control, shared);
        sender.slot = Some(slot);
        sender
    }

    /// A sender over `pool`, whose state the chip writes to the start of `avail`.
    pub fn new(pool: Pool, avail: DmaRegion, control: Arc<SendControl>, shared: Arc<DeviceShared>) -> Self {
        let data = pool.owned().filter(|buffer| !matches!(buffer.kind(), BufferKind::Vl15(_)));
        let largest_dwords = data.map(Buffer::len_dwords).max().unwrap_or(0);
        Self {
            pool,
            avail,
            control,
            pio_limit_dwords: largest_dwords,
            largest_dwords,
            sdma_above_dwords: SMALL_DWORDS,
            sdma: [None, None],
            answered: false,
            known: shared.word(),
            shared,
            blocked_in_row: 0,
            counts: TxCounts::default(),
            slot: None,
            not_sync: PhantomData,
        }
    }

    /// Gives the sender the queue of `port`'s send DMA engine, if it is at home.
    pub(crate) fn take_sdma(&mut self, port: Port, home: &Arc<SdmaHome>) {
        self.sdma[port.index()] = SdmaSide::from_home(home);
        self.pio_limit_dwords = self.sdma_above_dwords.min(self.largest_dwords);
    }

    /// What became of what was submitted.
    pub fn counts(&self) -> &TxCounts {
        &self.counts
    }

    /// Looks at the chip's words and says how many buffers are free.
    pub fn free_buffers(&mut self) -> usize {
        self.refresh();
        self.pool.free_count()
    }

    /// The buffers that the chip still holds, by its own words.
    pub fn in_flight(&mut self) -> impl Iterator<Item = Buffer> + use<> {
        self.refresh();
        self.pool.taken()
    }

    /// Gives `frame` to the chip; says what took it.
    ///
    /// Reads no register, takes no lock, allocates nothing.
    ///
    /// # Errors
    /// [`SubmitError::WouldBlock`] if there is no room; nothing was written then. The rest name what is wrong with
    /// the frame.
    ///
    /// Source: F-011, F-014, F-212.
    #[inline]
    pub fn submit(&mut self, bar: &impl Bar, frame: &Frame<'_>) -> Result<Submitted, SubmitError> {
        let written = Pbc::LEN_DWORDS + frame.header.len() + frame.payload.len_dwords();
        if !(HEADER_MIN_DWORDS..=HEADER_MAX_DWORDS).contains(&frame.header.len())
            || written > self.pio_limit_dwords
            || !frame.is_plain()
            || self.shared.word() != self.known
        {
            return self.submit_elsewise(bar, frame, written);
        }
        let Some(buffer) = self.pool.take(written) else {
            return self.submit_elsewise(bar, frame, written);
        };
        let wire_dwords = wire_dwords(written);
        Ok(self.launch(bar, buffer, Pbc::for_port(frame.port, wire_dwords), frame, wire_dwords))
    }

    /// The device was reset, is being reset, or is no more.
    #[cold]
    pub(super) fn look_what_changed(&mut self) -> Result<(), SubmitError> {
        let word = self.shared.word();
        match self.shared.state() {
            DeviceState::Open => {
                // The chip has forgotten every packet: what its words say is all there is.
                self.pool.restart(&avail_image(&self.avail));
                (self.known, self.blocked_in_row) = (word, 0);
                Ok(())
            }
            DeviceState::Resetting => Err(SubmitError::WouldBlock),
            _ => Err(SubmitError::Gone),
        }
    }

    /// Claims a buffer, the chip's words looked at if none was known to be free, and sends from it.
    pub(super) fn submit_by_pio(
        &mut self,
        bar: &impl Bar,
        frame: &Frame<'_>,
        written: usize,
    ) -> Result<Submitted, SubmitError> {
        if written > self.largest_dwords && frame.lane() != Lane::Management {
            return Err(SubmitError::TooLong { dwords: written, fit: self.largest_dwords });
        }
        let buffer = match self.claim(frame, written) {
            Some(buffer) => buffer,
            None => self.claim_late(bar, frame, written)?,
        };
        let wire_dwords = wire_dwords(written);
        Ok(self.launch(bar, buffer, pbc_of(frame, wire_dwords), frame, wire_dwords))
    }

    /// Writes to the buffer that was claimed. A part of each of its two callers: a call would cost as much as the claim.
    #[inline(always)]
    fn launch(
        &mut self,
        bar: &impl Bar,
        buffer: Buffer,
        pbc: Pbc,
        frame: &Frame<'_>,
        wire_dwords: u16,
    ) -> Submitted {
        write_frame(bar, buffer, pbc, frame);
        self.control.note_in_flight(buffer);
        self.counts.packets += 1;
        self.counts.dwords += u64::from(wire_dwords);
        Submitted::Pio(buffer)
    }

    #[inline]
    fn claim(&mut self, frame: &Frame<'_>, written: usize) -> Option<Buffer> {
        match frame.lane() {
            Lane::Vl(_) => self.pool.take(written),
            Lane::Management => self.pool.take_vl15(frame.port),
        }
    }

    /// No buffer was known to be free: looks at the chip's words, and has them renewed if that does not help.
    #[cold]
    fn claim_late(
        &mut self,
        bar: &impl Bar,
        frame: &Frame<'_>,
        written: usize,
    ) -> Result<Buffer, SubmitError> {
        if self.refresh() > 0
            && let Some(buffer) = self.claim(frame, written)
        {
            self.blocked_in_row = 0;
            return Ok(buffer);
        }
        if self.blocked_in_row.is_multiple_of(ASK_AGAIN_AFTER) {
            self.control.set_interrupt_when_free(bar, true);
            self.control.request_update(bar);
            self.counts.updates_asked += 1;
        }
        self.blocked_in_row += 1;
        self.counts.would_block += 1;
        Err(SubmitError::WouldBlock)
    }

    fn refresh(&mut self) -> u32 {
        let memory = self.avail.memory();
        self.pool.refresh(|word| memory.load_u64(word * 8))
    }

    /// What is wrong with `frame`, if anything is: the checks that a plain packet on VL 0 passes without coming here.
    pub(super) fn check(&mut self, frame: &Frame<'_>, written: usize) -> Result<(), SubmitError> {
        let verdict = self.judge(frame, written);
        self.counts.refused += u64::from(verdict.is_err());
        verdict
    }

    fn judge(&self, frame: &Frame<'_>, written: usize) -> Result<(), SubmitError> {
        let header = frame.header.len();
        if !(HEADER_MIN_DWORDS..=HEADER_MAX_DWORDS).contains(&header) {
            return Err(SubmitError::HeaderLength { dwords: header });
        }
        let static_rate = frame.static_rate();
        if static_rate > STATIC_RATE_MAX {
            return Err(SubmitError::RateTooLarge { static_rate });
        }
        let fit = match frame.lane() {
            Lane::Vl(vl) if vl > 7 => return Err(SubmitError::NoSuchLane { vl }),
            Lane::Vl(_) if self.sdma[frame.port.index()].is_some() => {
                PACKET_MAX_DWORDS.max(self.largest_dwords)
            }
            Lane::Vl(_) => self.largest_dwords,
            Lane::Management if self.pool.has_kind(BufferKind::Vl15(frame.port)) => {
                Buffer::vl15(frame.port).len_dwords()
            }
            Lane::Management => return Err(SubmitError::NoManagementBuffer { port: frame.port }),
        };
        if let Payload::InPlace { region, offset, len_bytes } = frame.payload
            && offset.checked_add(len_bytes).is_none_or(|end| end > region.len_bytes())
        {
            return Err(SubmitError::OutsideRegion { offset, len_bytes, region_bytes: region.len_bytes() });
        }
        if written > fit { Err(SubmitError::TooLong { dwords: written, fit }) } else { Ok(()) }
    }
}

/// Dwords on the wire, ICRC included, of a packet of `written` dwords with its control word.
#[inline]
pub(super) fn wire_dwords(written: usize) -> u16 {
    (written - Pbc::LEN_DWORDS + 1) as u16
}

/// The control word of `frame`.
pub(super) fn pbc_of(frame: &Frame<'_>, wire_dwords: u16) -> Pbc {
    let pbc = Pbc::for_port(frame.port, wire_dwords)
        .with_static_rate(frame.static_rate())
        .with_intr(frame.notify());
    match frame.lane() {
        Lane::Vl(vl) => pbc.with_vl(vl),
        Lane::Management => pbc.with_vl15(true),
    }
}

/// Copies control word, headers and payload to `buffer`, ascending.
#[inline(always)]
fn write_frame(bar: &impl Bar, buffer: Buffer, pbc: Pbc, frame: &Frame<'_>) {
    let at = buffer.offset();
    bar.burst(at, &pbc.dwords());
    if let Payload::None = frame.payload {
        return bar.burst(at + PBC_BYTES, frame.header);
    }
    write_with_payload(bar, at + PBC_BYTES, frame);
}

/// The rest of [`write_frame`] for a packet with a payload, whose copy costs more than the call.
#[inline(never)]
fn write_with_payload(bar: &impl Bar, at: u32, frame: &Frame<'_>) {
    match frame.payload {
        Payload::None => bar.burst(at, frame.header),
        Payload::Dwords(dwords) => write_dwords(bar, at, frame.header, dwords),
        Payload::Bytes(bytes) => write_bytes(bar, at, frame.header, bytes),
        Payload::InPlace { region, offset, len_bytes } => {
            write_in_place(bar, at, frame.header, region, offset..offset + len_bytes);
        }
    }
}

/// Headers and a payload of dwords to `at`.
fn write_dwords(bar: &impl Bar, mut at: u32, header: &[u32], payload: &[u32]) {
    let (mut whole, mut rest) = (header, payload);
    if !header.len().is_multiple_of(2)
        && let (Some((last, before)), Some((first, after))) = (header.split_last(), payload.split_first())
    {
        // The last dword of the headers and the first of the payload are one store.
        bar.burst(at, before);
        at += before.len() as u32 * 4;
        bar.burst(at, &[*last, *first]);
        at += 8;
        (whole, rest) = (&[], after);
    }
    if !whole.is_empty() {
        bar.burst(at, whole);
        at += whole.len() as u32 * 4;
    }
    if !rest.is_empty() {
        bar.burst(at, rest);
    }
}

/// Headers and a payload that lies in DMA memory to `at`.
#[inline(never)]
fn write_in_place(bar: &impl Bar, at: u32, header: &[u32], region: &DmaRegion, range: Range<usize>) {
    let mut copy = [0; PACKET_MAX_DWORDS * 4];
    let bytes = &mut copy[..range.len()];
    region.memory().copy_out(range.start, bytes);
    write_bytes(bar, at, header, bytes);
}

/// Headers and a payload of bytes to `at`: through the stack, a little at a time.
fn write_bytes(bar: &impl Bar, mut at: u32, header: &[u32], bytes: &[u8]) {
    let (first, rest) = bytes.split_at(bytes.len().min(header.len() % 2 * 4));
    match header.split_last() {
        Some((last, before)) if !first.is_empty() => {
            bar.burst(at, before);
            bar.burst(at + before.len() as u32 * 4, &[*last, dword(first)]);
            at += before.len() as u32 * 4 + 8;
        }
        _ => {
            bar.burst(at, header);
            at += header.len() as u32 * 4;
        }
    }
    for step in rest.chunks(STEP_DWORDS * 4) {
        let mut dwords = [0; STEP_DWORDS];
        for (to, from) in dwords.iter_mut().zip(step.chunks(4)) {
            *to = dword(from);
        }
        let count = step.len().div_ceil(4);
        bar.burst(at, &dwords[..count]);
        at += count as u32 * 4;
    }
}

/// Up to four bytes as the dword that lies in memory as they do, zeros behind them.
#[inline]
pub(super) fn dword(bytes: &[u8]) -> u32 {
    let mut four = [0; 4];
    four[..bytes.len()].copy_from_slice(bytes);
    u32::from_le_bytes(four)
}

/// The chip's avail words as they stand in `region`.
pub fn avail_image(region: &DmaRegion) -> AvailWords {
    AvailWords(std::array::from_fn(|word| region.memory().load_u64(word * 8)))
}

#[cfg(test)]
#[path = "pio_tests.rs"]
mod tests;
