//! A send DMA engine on the bench: its ring, its switches, and what it says.
//!
//! ```text
//! ring of descriptors | head word      one region         packets: a region of their own
//! ```

use crate::bench::{Bench, PATIENCE};
use crate::check::{Stop, ensure};
use crate::packet::Packet;
use qhca_driver::dma::DmaRegion;
use qhca_driver::env::Backend;
use qhca_regs::layout::SdmaDesc;
use qhca_regs::map::port::{self as port_regs, SendCtrl};
use qhca_regs::status::PortErrBits;
use qhca_regs::{Port, RegValue};

/// Descriptors of the bench's rings: few, so that they wrap often.
pub(crate) const LEN: u32 = 8;
/// Where the head word stands.
const HEAD_AT: usize = 1024;
/// Bytes of one packet's memory.
const PACKET_BYTES: usize = 8192;

/// What a piece of a packet is, beside where it lies.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Flags {
    pub(crate) first: bool,
    pub(crate) last: bool,
    pub(crate) intr: bool,
    pub(crate) large: bool,
}

/// One port's engine.
pub(crate) struct Ring {
    pub(crate) port: Port,
    region: DmaRegion,
    packets: DmaRegion,
    next: u32,
    generation: u8,
}

impl Ring {
    /// Sets up the engine of `port` and has it halt before its first descriptor.
    pub(crate) fn open<B: Backend>(bench: &mut Bench<'_, B>, port: Port) -> Result<Self, Stop> {
        let region = bench.map(HEAD_AT + 8)?;
        let packets = bench.map(LEN as usize * PACKET_BYTES)?;
        bench.write(port_regs::SEND_DMA_BASE.port(port), port_regs::SendDmaBase(region.iova()));
        let ring = Self { port, region, packets, next: 0, generation: 0 };
        ring.set_back(bench);
        bench.write(port_regs::SEND_DMA_RELOAD_CNT.port(port), port_regs::SendDmaReloadCnt(64));
        bench.write(port_regs::SEND_DMA_DESC_CNT.port(port), port_regs::SendDmaDescCnt(0));
        let head = ring.region.iova() + HEAD_AT as u64;
        bench.write(port_regs::SEND_DMA_HEAD_ADDR.port(port), port_regs::SendDmaHeadAddr(head));
        // Half of the large buffers: 128 to 143 or 144 to 159.
        let mask = 0xFFFF << (16 * port.index());
        for (word, mask) in [0, 0, mask].into_iter().enumerate() {
            bench.write(port_regs::SEND_DMA_BUF_MASK.port(port).index(word as u32), mask);
        }
        ring.clear_errors(bench);
        ring.switch(bench, |control| control.with_sdma_int_enable(true).with_sdma_halt(true));
        Ok(ring)
    }

    /// Length, generation and tail as at first.
    fn set_back<B: Backend>(&self, bench: &Bench<'_, B>) {
        let register = port_regs::SEND_DMA_LEN_GEN.port(self.port);
        bench.write(register, port_regs::SendDmaLenGen(0).with_length(LEN as u16));
        bench.write(register, port_regs::SendDmaLenGen(0).with_length(LEN as u16).with_generation(4));
        bench.write(port_regs::SEND_DMA_TAIL.port(self.port), port_regs::SendDmaTail(0));
    }

    /// Changes the port's send control; commands are not kept.
    pub(crate) fn switch<B: Backend>(&self, bench: &Bench<'_, B>, change: impl FnOnce(SendCtrl) -> SendCtrl) {
        let register = port_regs::SEND_CTRL.port(self.port);
        let control = bench.read(register).with_sdma_cleanup(false);
        bench.write_apart(register, change(control));
    }

    /// Waits until the engine says that it has halted, and clears that.
    pub(crate) fn await_halt<B: Backend>(&self, bench: &mut Bench<'_, B>) -> Result<PortErrBits, Stop> {
        let register = port_regs::ERR_STATUS.port(self.port);
        let halted = bench.until(PATIENCE, |bench| bench.read(register).contains(PortErrBits::SDMA_HALT_ERR));
        let errors = bench.read(register);
        ensure!(halted, "{}: SDmaHaltErr did not come, ErrStatus {errors:?}", self.port);
        self.clear_errors(bench);
        Ok(errors)
    }

    pub(crate) fn clear_errors<B: Backend>(&self, bench: &Bench<'_, B>) {
        port_regs::ERR_CLEAR.port(self.port).clear(bench.bar(), PortErrBits::all());
    }

    /// From halted to running.
    pub(crate) fn run<B: Backend>(&self, bench: &mut Bench<'_, B>) -> Result<(), Stop> {
        self.await_halt(bench)?;
        self.switch(bench, |control| control.with_sdma_enable(true).with_sdma_halt(false));
        Ok(())
    }

    /// Cleans up an engine that has halted; it waits halted before its first descriptor again.
    pub(crate) fn clean_up<B: Backend>(&mut self, bench: &mut Bench<'_, B>) {
        self.switch(bench, |control| control.with_sdma_enable(false).with_sdma_halt(true));
        self.set_back(bench);
        (self.next, self.generation) = (0, 0);
        self.region.memory().store_u64(HEAD_AT, 0);
        self.switch(bench, |control| control.with_sdma_cleanup(true));
    }

    /// Puts `dwords` where the chip can read them; where that is. A place is used again after a round.
    pub(crate) fn place(&self, dwords: &[u32]) -> u64 {
        let at = self.next as usize * PACKET_BYTES;
        let bytes: Vec<u8> = dwords.iter().flat_map(|dword| dword.to_le_bytes()).collect();
        self.packets.memory().copy_in(at, &bytes);
        self.packets.iova() + at as u64
    }

    /// Writes one descriptor of the present generation.
    pub(crate) fn push(&mut self, iova: u64, offset: usize, dwords: usize, flags: Flags) -> Result<(), Stop> {
        let desc = SdmaDesc::new(iova & !3, dwords).map_err(|error| Stop::Fail(error.to_string()))?;
        let word0 = desc
            .word0
            .with_buf_offset(offset as u16)
            .with_first(flags.first)
            .with_last(flags.last)
            .with_dma_head(flags.last)
            .with_intr(flags.intr)
            .with_use_large_buf(flags.large)
            // A bench may want an address that the type does not let through.
            .with_address_low(iova as u32);
        self.push_raw(SdmaDesc { word0: word0.with_generation(self.generation), ..desc });
        Ok(())
    }

    /// Writes `desc` as it is.
    pub(crate) fn push_raw(&mut self, desc: SdmaDesc) {
        let at = self.next as usize * SdmaDesc::LEN_BYTES;
        self.region.memory().copy_in(at, &desc.build());
        self.next += 1;
        if self.next == LEN {
            self.next = 0;
            self.generation = (self.generation + 1) % 4;
        }
    }

    /// Tells the chip how far the descriptors reach.
    pub(crate) fn ring_doorbell<B: Backend>(&self, bench: &Bench<'_, B>) {
        self.write_tail(bench, self.next as u16);
    }

    pub(crate) fn write_tail<B: Backend>(&self, bench: &Bench<'_, B>, tail: u16) {
        let tail = port_regs::SendDmaTail(0).with_send_dma_tail(tail);
        let offset = port_regs::SEND_DMA_TAIL.port(self.port).offset();
        qhca_regs::Bar::doorbell(bench.bar(), offset, tail.raw());
    }

    /// Sends `packet`, in as many descriptors as `pieces` says.
    pub(crate) fn send<B: Backend>(
        &mut self,
        bench: &mut Bench<'_, B>,
        packet: &Packet,
        pieces: usize,
        intr: bool,
    ) -> Result<(), Stop> {
        let dwords = packet.dwords();
        let start = self.place(&dwords);
        let header = 2 + packet.header_dwords();
        // The first piece is control word and headers, the payload the rest.
        let cut = if pieces > 1 && dwords.len() > header { header } else { dwords.len() };
        let large = dwords.len() > 544;
        self.push(start, 0, cut, Flags { first: true, last: cut == dwords.len(), intr, large })?;
        if cut < dwords.len() {
            let rest = dwords.len() - cut;
            self.push(start + 4 * cut as u64, cut, rest, Flags { last: true, intr, large, first: false })?;
        }
        self.ring_doorbell(bench);
        bench.settle(qhca_regs::Duration::from_micros(60));
        Ok(())
    }

    /// The head as the chip has written it to memory.
    pub(crate) fn head_in_memory(&self) -> u64 {
        self.region.memory().load_u64(HEAD_AT)
    }

    /// The head as the register shows it.
    pub(crate) fn head<B: Backend>(&self, bench: &Bench<'_, B>) -> u16 {
        bench.read(port_regs::SEND_DMA_HEAD.port(self.port)).send_dma_head()
    }

    /// Where the next descriptor goes.
    pub(crate) fn next(&self) -> u32 {
        self.next
    }

    /// The generation of the next descriptor.
    pub(crate) fn generation(&self) -> u8 {
        self.generation
    }
}
