//! The part of the story that the send DMA engine tells: a ring that wraps, a halt, a clean-up, a stale descriptor.

use super::*;
use qhca_regs::layout::SdmaDesc;

const RING: u64 = 0x6000;
const HEAD: u64 = 0x7000;
const DATA: u64 = 0x8000;
const ENTRIES: u16 = 4;

impl Story {
    pub(super) fn send_dma(&mut self) {
        for (iova, len) in [(RING, 0x1000), (HEAD, 0x1000), (DATA, 0x1000)] {
            self.bench.host.map(iova, len);
        }
        let bytes: Vec<u8> = packet(P).iter().flat_map(|word| word.to_le_bytes()).collect();
        self.bench.host.poke(DATA, &bytes);
        let len = port::SendDmaLenGen::default().with_length(ENTRIES).with_generation(4);
        for (register, value) in [
            (port::SEND_DMA_BASE.port(P).offset(), RING),
            (port::SEND_DMA_LEN_GEN.port(P).offset(), len.0),
            (port::SEND_DMA_HEAD_ADDR.port(P).offset(), HEAD),
            (port::SEND_DMA_BUF_MASK.port(P).index(0).offset(), 0xF0),
        ] {
            self.bench.write(register, value);
        }
        self.engine(|c| c.with_sdma_halt(true).with_sdma_cleanup(true));
        self.bench.settle();
        self.told_by_engine();
        self.engine(|c| c);
        let desc = SdmaDesc::new(DATA, 9).expect("aligned");
        let word0 = desc.word0.with_first(true).with_last(true).with_dma_head(true).with_intr(true);
        for index in 0..u64::from(ENTRIES) {
            self.bench.host.poke(RING + 16 * index, &SdmaDesc { word0, ..desc }.build());
        }
        // The ring comes round: the fifth is of the generation before.
        for tail in [3, 0, 1] {
            self.bench.write(port::SEND_DMA_TAIL.port(P).offset(), tail);
            self.told_by_engine();
        }
        self.outgoing();
    }

    fn engine(&mut self, change: impl Fn(port::SendCtrl) -> port::SendCtrl) {
        let control = port::SendCtrl::default().with_send_enable(true);
        let control = control.with_sdma_enable(true).with_sdma_int_enable(true);
        self.bench.write(port::SEND_CTRL.port(P).offset(), change(control).0);
    }

    fn told_by_engine(&mut self) {
        self.read(port::ERR_STATUS.port(P).offset());
        self.read(port::SEND_DMA_HEAD.port(P).offset());
        self.read(device::INT_STATUS.offset());
        let head = self.bench.host.qword(HEAD);
        self.told.0.push(head);
        self.bench.write(port::ERR_CLEAR.port(P).offset(), u64::MAX);
        self.bench.write(device::INT_CLEAR.offset(), u64::MAX);
    }
}
