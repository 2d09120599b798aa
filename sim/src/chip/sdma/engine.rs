//! From descriptors to a packet in a send buffer, and what may be wrong with them.
//!
//! ```text
//!   First  offset 0, PBC and headers    dwords so far = offset of the next piece
//!   ...    payload                      every piece lies behind the one before
//!   Last   dwords = PBC length + 1      complete: launched as software launches a buffer
//! ```
//!
//! An error stops the engine at the descriptor it found it in; head stays there. Which error bit stands for which fault
//! is read from the names (F-408).

use super::super::wrong::WrongChip;
use super::super::{Chip, Host};
use super::{Engine, MASK_WORDS};
use qhca_regs::layout::{Pbc, SdmaDesc};
use qhca_regs::status::{ErrBits, HwErrBits, PortErrBits};
use qhca_regs::{Buffer, Instant, Port};

/// Bits of a descriptor's address that reach the bus.
const ADDRESS_BITS: u32 = 48;
/// Dwords of a small buffer: what a packet may have without `UseLargeBuf`.
const SMALL_DWORDS: usize = 544;

/// A packet that the engine is putting together.
pub(super) struct Assembly {
    pub(super) buffer: Buffer,
    pbc: Pbc,
    /// What follows the PBC.
    pub(super) body: Vec<u8>,
}

impl Assembly {
    /// Dwords taken in so far, with the PBC.
    fn dwords(&self) -> usize {
        Pbc::LEN_DWORDS + self.body.len() / 4
    }
}

/// Why an engine stops.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) device: ErrBits,
    pub(super) hardware: HwErrBits,
    pub(super) port: PortErrBits,
}

impl From<PortErrBits> for Fault {
    fn from(port: PortErrBits) -> Self {
        Self { port, ..Self::default() }
    }
}

impl From<ErrBits> for Fault {
    fn from(device: ErrBits) -> Self {
        Self { device, ..Self::default() }
    }
}

/// The host refused to be read.
fn memory_fault(port: Port) -> Fault {
    let hardware =
        if port == Port::P0 { HwErrBits::SDMA_MEM_READ_ERR_0 } else { HwErrBits::SDMA_MEM_READ_ERR_1 };
    Fault { hardware, ..Fault::default() }
}

/// What is wrong with `desc` as the next one, whatever the ring; `packet` is the one begun and not ended.
fn check(desc: SdmaDesc, packet: Option<&Assembly>) -> Result<(), PortErrBits> {
    let word = desc.word0;
    if word.first() != packet.is_none() {
        return Err(PortErrBits::SDMA1ST_DESC_ERR);
    }
    if word.address_low() & 3 != 0 {
        return Err(PortErrBits::SDMA_DESC_ADDR_MISALIGN_ERR);
    }
    if word.len_dwords() == 0 {
        return Err(PortErrBits::SDMA_DW_EN_ERR);
    }
    let so_far = packet.map_or(0, Assembly::dwords);
    let (offset, len) = (usize::from(word.buf_offset()), usize::from(word.len_dwords()));
    if packet.is_none() && (offset != 0 || len < Pbc::LEN_DWORDS) {
        return Err(PortErrBits::SDMA1ST_DESC_ERR);
    }
    let room = match (packet, word.use_large_buf()) {
        (_, false) => SMALL_DWORDS,
        (Some(packet), true) => packet.buffer.len_dwords(),
        (None, true) => usize::MAX,
    };
    if offset + len > room {
        return Err(PortErrBits::SDMA_OUT_OF_BOUND_ERR);
    }
    // A planted fault, for the proof that the fuzzer reaches this far: some pieces may leave a gap.
    #[cfg(canary)]
    if packet.is_some() && offset > so_far && len % 4 == 2 {
        return Ok(());
    }
    if offset != so_far {
        return Err(PortErrBits::SDMA_MISSING_DW_ERR);
    }
    Ok(())
}

impl Engine {
    /// Where the next descriptor lies.
    fn descriptor_iova(&self) -> Result<u64, PortErrBits> {
        if self.head >= self.length {
            return Err(PortErrBits::SDMA_OUT_OF_BOUND_ERR);
        }
        let len = SdmaDesc::LEN_BYTES as u64;
        let end = self.base + len * u64::from(self.length);
        if !self.base.is_multiple_of(len) || end > 1 << ADDRESS_BITS {
            return Err(PortErrBits::SDMA_BASE_ERR);
        }
        Ok(self.base + len * u64::from(self.head))
    }
}

impl Chip {
    /// Takes in the next descriptor of `port`; false if it has to wait for a free buffer.
    pub(super) fn take_descriptor(
        &mut self,
        port: Port,
        now: Instant,
        host: &mut impl Host,
    ) -> Result<bool, Fault> {
        let mut bytes = [0; SdmaDesc::LEN_BYTES];
        let iova = self.engine(port).descriptor_iova()?;
        self.read_host(port, iova, &mut bytes, host)?;
        let desc = SdmaDesc::parse(bytes);
        let ignores_generation = self.config.wrong.has(WrongChip::SdmaGenerationIgnored);
        let engine = self.engine(port);
        if engine.checks_generation && desc.word0.generation() != engine.generation && !ignores_generation {
            return Err(PortErrBits::SDMA_GEN_MISMATCH_ERR.into());
        }
        check(desc, engine.packet.as_ref())?;
        let packet = match engine.packet.take() {
            Some(mut packet) => {
                let taken = self.read_piece(port, desc.iova(), desc, &mut packet.body, host);
                // Kept also if the read failed: its buffer is freed with the clean-up.
                self.engine(port).packet = Some(packet);
                taken
            }
            None => match self.begin_packet(port, desc, host)? {
                Some(packet) => {
                    self.engine(port).packet = Some(packet);
                    Ok(())
                }
                None => return Ok(false),
            },
        };
        packet?;
        if desc.word0.last() {
            self.end_packet(port, desc, now, host)?;
        } else {
            self.retire(port, desc, now, host);
        }
        Ok(true)
    }

    /// Claims a buffer and reads the first piece, which starts with the PBC; `None` if no buffer is free.
    fn begin_packet(
        &mut self,
        port: Port,
        desc: SdmaDesc,
        host: &mut impl Host,
    ) -> Result<Option<Assembly>, Fault> {
        let Some(buffer) = self.free_sdma_buffer(port, desc.word0.use_large_buf()) else { return Ok(None) };
        if usize::from(desc.word0.len_dwords()) > buffer.len_dwords() {
            return Err(PortErrBits::SDMA_OUT_OF_BOUND_ERR.into());
        }
        let mut head = [0; 4 * Pbc::LEN_DWORDS];
        self.read_host(port, desc.iova(), &mut head, host)?;
        let pbc = Pbc(u64::from_le_bytes(head));
        self.check_pbc(port, pbc)?;
        let mut body = self.pool.take();
        body.clear();
        if let Err(fault) = self.read_piece(port, desc.iova() + head.len() as u64, desc, &mut body, host) {
            self.pool.give(body);
            return Err(fault);
        }
        self.claim_buffer(buffer);
        let engine = self.engine(port);
        engine.used[buffer.index() / 64] |= 1 << (buffer.index() % 64);
        engine.last_buffer = buffer.index() as u8;
        Ok(Some(Assembly { buffer, pbc, body }))
    }

    /// The engine sends its own port's packets, and none of VL15 (F-409).
    fn check_pbc(&self, port: Port, pbc: Pbc) -> Result<(), ErrBits> {
        if pbc.vl15() {
            return Err(ErrBits::SDMA_VL15_ERR);
        }
        if pbc.port() != port && !self.config.wrong.has(WrongChip::PbcPortIgnored) {
            return Err(ErrBits::SDMA_WRONG_PORT_ERR);
        }
        Ok(())
    }

    /// Appends to `body` what `desc` brings from `iova` on: all of it, or what is left of the first piece after the PBC.
    fn read_piece(
        &mut self,
        port: Port,
        iova: u64,
        desc: SdmaDesc,
        body: &mut Vec<u8>,
        host: &mut impl Host,
    ) -> Result<(), Fault> {
        let skipped = (iova - desc.iova()) as usize;
        let start = body.len();
        body.resize(start + 4 * usize::from(desc.word0.len_dwords()) - skipped, 0);
        if start == body.len() {
            return Ok(());
        }
        let read = self.read_host(port, iova, &mut body[start..], host);
        if read.is_err() {
            body.truncate(start);
        }
        read
    }

    fn read_host(
        &mut self,
        port: Port,
        iova: u64,
        bytes: &mut [u8],
        host: &mut impl Host,
    ) -> Result<(), Fault> {
        host.dma_read(iova, bytes).map_err(|_| {
            self.account.dma_refused += 1;
            memory_fault(port)
        })
    }

    /// The last piece is in: the packet must be as long as its PBC says, then it is launched.
    fn end_packet(
        &mut self,
        port: Port,
        desc: SdmaDesc,
        now: Instant,
        host: &mut impl Host,
    ) -> Result<(), Fault> {
        let Some(packet) = self.engine(port).packet.take() else { return Ok(()) };
        let fault = match packet.dwords().cmp(&packet.pbc.written_dwords()) {
            std::cmp::Ordering::Less => Some(PortErrBits::SDMA_MISSING_DW_ERR),
            std::cmp::Ordering::Greater => Some(PortErrBits::SDMA_UNEXP_DATA_ERR),
            std::cmp::Ordering::Equal => None,
        };
        if let Some(fault) = fault {
            self.engine(port).packet = Some(packet);
            return Err(fault.into());
        }
        self.retire(port, desc, now, host);
        let spare = self.load_buffer(packet.buffer, packet.pbc, packet.body);
        self.pool.give(spare);
        self.launch(packet.buffer, now, host);
        Ok(())
    }

    /// A buffer of the engine's mask that holds nothing: large if it must be, the lowest number first (F-410).
    fn free_sdma_buffer(&self, port: Port, large: bool) -> Option<Buffer> {
        let engine = &self.sdma.engines[port.index()];
        let first = if large { Buffer::SMALL } else { 0 };
        let end = Buffer::SMALL + Buffer::LARGE;
        for word in first / 64..MASK_WORDS {
            let mut free = engine.mask[word] & !engine.used[word];
            while free != 0 {
                let index = 64 * word + free.trailing_zeros() as usize;
                free &= free - 1;
                let buffer = Buffer::new(index).filter(|_| (first..end).contains(&index));
                if let Some(buffer) = buffer.filter(|&buffer| self.is_buffer_free(buffer)) {
                    return Some(buffer);
                }
            }
        }
        None
    }
}
