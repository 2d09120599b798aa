//! Send DMA through two cards and a cable, driven as the stock driver's states drive it (qib_sdma.c), and a reset of a
//! card in use.
//!
//! ```text
//!   s10 start-up wait -- SDmaHalted --> s20 idle -- link ACTIVE --> s99 running -- link down --> s50 halt wait
//!    ^                                                                                              | SDmaHalted
//!    '---- flush, LenGen, tail 0, SDmaCleanup ---- s30 software clean-up <---- s40 <----------------'
//! ```

mod common;

use common::{Card, P, activate, number, packet, pair, pass};
use qhca_driver::dma::DmaRegion;
use qhca_driver::env::{Backend, DmaMapper};
use qhca_regs::layout::{Pbc, SdmaDesc};
use qhca_regs::map::port::SendCtrl;
use qhca_regs::map::{device, port};
use qhca_regs::status::{IntBits, PortErrBits};
use qhca_regs::{Duration, GONE, RegValue};
use qhca_sim::backend::SimWorld;
use qhca_sim::chip::Config;
use qhca_sim::fabric::CableConfig;
use qhca_sim::vtime::Seed;
use qhca_sim::world::CableId;

const ENTRIES: u16 = 256;
const SLOT_BYTES: usize = 4096;
const SLOTS: usize = 16;

/// The engine of a card's port 0, as software sees it.
struct Ring {
    ring: DmaRegion,
    head: DmaRegion,
    data: DmaRegion,
    tail: u16,
    generation: u8,
    posted: usize,
}

impl Ring {
    /// The registers of `init_sdma_7322_regs`, then state s10.
    fn set_up(card: &Card) -> Self {
        let mut mapper = card.device.mapper();
        let mut map = |len| mapper.map(len).expect("memory for a test");
        let ring = Self {
            ring: map(16 * usize::from(ENTRIES)),
            head: map(4096),
            data: map(SLOT_BYTES * SLOTS),
            tail: 0,
            generation: 0,
            posted: 0,
        };
        let bar = &card.bar;
        port::SEND_DMA_BASE.port(P).write(bar, port::SendDmaBase(ring.ring.iova()));
        Self::load_len_gen(card);
        port::SEND_DMA_TAIL.port(P).write(bar, port::SendDmaTail(0));
        port::SEND_DMA_RELOAD_CNT.port(P).write(bar, port::SendDmaReloadCnt(64));
        port::SEND_DMA_DESC_CNT.port(P).write(bar, port::SendDmaDescCnt(0));
        port::SEND_DMA_HEAD_ADDR.port(P).write(bar, port::SendDmaHeadAddr(ring.head.iova()));
        port::SEND_DMA_BUF_MASK.port(P).index(2).write(bar, 0xFFFF);
        control(card, |c| c.with_sdma_halt(true).with_sdma_int_enable(true));
        ring
    }

    fn load_len_gen(card: &Card) {
        let count = port::SendDmaLenGen::default().with_length(ENTRIES);
        port::SEND_DMA_LEN_GEN.port(P).write(&card.bar, count);
        port::SEND_DMA_LEN_GEN.port(P).write(&card.bar, count.with_generation(4));
    }

    /// Leads the engine to s99.
    fn run(card: &Card) {
        control(card, |c| c.with_sdma_halt(true).with_sdma_int_enable(true).with_sdma_enable(true));
        control(card, |c| c.with_sdma_int_enable(true).with_sdma_enable(true));
    }

    /// s30 to s10: flush, LenGen, tail 0, head in memory 0, clean-up.
    fn clean_up(&mut self, card: &Card) {
        let waits = |c: SendCtrl| c.with_sdma_halt(true).with_sdma_int_enable(true);
        control(card, waits);
        control(card, |c| {
            waits(c).with_txe_drain_rm_fifo(true).with_txe_drain_la_fifo(true).with_txe_bypass_ibc(true)
        });
        control(card, waits);
        Self::load_len_gen(card);
        port::SEND_DMA_TAIL.port(P).write(&card.bar, port::SendDmaTail(0));
        self.head.memory().store_u64(0, 0);
        control(card, |c| waits(c).with_sdma_cleanup(true));
        (self.tail, self.generation) = (0, 0);
    }

    /// Posts one packet as header and payload descriptor, and rings.
    fn post(&mut self, card: &Card, bytes: &[u8]) {
        let slot = self.posted % SLOTS * SLOT_BYTES;
        self.posted += 1;
        let pbc = Pbc::for_port(P, (bytes.len() / 4 + 1) as u16);
        self.data.memory().copy_in(slot, &pbc.0.to_le_bytes());
        self.data.memory().copy_in(slot + 8, bytes);
        const HEADER: usize = 7;
        let whole = bytes.len() / 4 + Pbc::LEN_DWORDS;
        let at = self.data.iova() + slot as u64;
        // Now and then one that asks for a large buffer, though all of these are.
        let large = self.posted % 50 == 7;
        let head = SdmaDesc::new(at, HEADER).expect("aligned");
        self.put(SdmaDesc { word0: head.word0.with_first(true).with_use_large_buf(large), ..head });
        let rest = SdmaDesc::new(at + 4 * HEADER as u64, whole - HEADER).expect("aligned");
        let word0 = rest.word0.with_last(true).with_buf_offset(HEADER as u16).with_use_large_buf(large);
        self.put(SdmaDesc { word0: word0.with_intr(true).with_dma_head(true), ..rest });
        port::SEND_DMA_TAIL.port(P).write(&card.bar, port::SendDmaTail(self.tail.into()));
    }

    fn put(&mut self, desc: SdmaDesc) {
        let word0 = desc.word0.with_generation(self.generation & 3);
        self.ring.memory().copy_in(16 * usize::from(self.tail), &SdmaDesc { word0, ..desc }.build());
        self.tail += 1;
        if self.tail == ENTRIES {
            self.tail = 0;
            self.generation += 1;
        }
    }

    fn head_in_memory(&self) -> u64 {
        self.head.memory().load_u64(0)
    }
}

fn control(card: &Card, change: impl Fn(SendCtrl) -> SendCtrl) {
    port::SEND_CTRL.port(P).write(&card.bar, change(SendCtrl::default().with_send_enable(true)));
}

/// Whether the engine has told that it halted; clears what it told.
fn halted(card: &Card) -> bool {
    let errors = port::ERR_STATUS.port(P).read(&card.bar);
    port::ERR_CLEAR.port(P).clear(&card.bar, errors);
    errors.contains(PortErrBits::SDMA_HALT_ERR)
}

fn told(card: &Card) -> IntBits {
    let bits = device::INT_STATUS.read(&card.bar);
    device::INT_CLEAR.clear(&card.bar, bits);
    bits
}

fn cards() -> (SimWorld, [Card; 2], CableId) {
    let (world, nodes, cable) = pair(Seed(1), true, CableConfig::default(), &Config::default());
    let world = SimWorld::manual(world);
    let cards = nodes.map(|node| Card::open(&world, node));
    activate(&world, [&cards[0], &cards[1]]);
    (world, cards, cable)
}

#[test]
fn packets_of_every_size_cross_by_send_dma_in_order_over_several_rounds_of_the_ring() {
    let (world, [sender, mut receiver], _) = cards();
    let mut ring = Ring::set_up(&sender);
    pass(&world, Duration::from_micros(10));
    assert!(halted(&sender), "s10 waits for this");
    Ring::run(&sender);
    told(&sender);
    let mut seen = Vec::new();
    for n in 0..600_u32 {
        ring.post(&sender, &packet(n, 4 + 4 * (n as usize % 500)));
        assert!(told(&sender).contains(IntBits::SDMA_INT_0));
        assert_eq!(ring.head_in_memory(), u64::from(ring.tail));
        pass(&world, Duration::from_micros(2));
        seen.extend(receiver.receive_all().iter().map(|received| number(&received.bytes)));
        receiver.write_head(0);
    }
    pass(&world, Duration::from_micros(50));
    seen.extend(receiver.receive_all().iter().map(|received| number(&received.bytes)));
    assert_eq!(seen, (0..600).collect::<Vec<_>>());
    let account = world.with(|world| world.chip(sender.device.node()).account().clone());
    assert_eq!((account.sdma_faults, account.total_dropped()), ([0; 2], 0));
}

#[test]
fn link_lost_halts_drains_cleans_up_and_runs_again_when_it_is_back() {
    let (world, cards, cable) = cards();
    let [sender, receiver] = &cards;
    let mut ring = Ring::set_up(sender);
    pass(&world, Duration::from_micros(10));
    halted(sender);
    Ring::run(sender);
    for n in 0..5 {
        ring.post(sender, &packet(n, 64));
    }
    pass(&world, Duration::from_micros(10));
    world.with(|world| world.unplug(cable));
    pass(&world, Duration::from_micros(10));
    halted(sender);
    let drain =
        |c: SendCtrl| c.with_txe_bypass_ibc(true).with_txe_abort_ibc(true).with_txe_drain_rm_fifo(true);
    control(sender, |c| drain(c).with_sdma_halt(true).with_sdma_int_enable(true).with_sdma_enable(true));
    pass(&world, Duration::from_micros(10));
    assert!(halted(sender), "s50 waits for this");
    ring.clean_up(sender);
    told(sender);
    pass(&world, Duration::from_micros(10));
    assert!(told(sender).contains(IntBits::SDMA_CLEANUP_DONE_0), "s10 waits for this");
    let status = port::SEND_DMA_STATUS.port(P).read(&sender.bar);
    let busy = status.score_board_drain_in_prog() || status.halt_in_prog();
    assert!(!busy && status.internal_sdma_halt() && status.scb_empty(), "{:#x}", status.0);
    world.with(|world| world.replug(cable));
    activate(&world, [sender, receiver]);
    Ring::run(sender);
    ring.post(sender, &packet(99, 64));
    pass(&world, Duration::from_micros(10));
    let [_, mut receiver] = cards;
    let numbers: Vec<_> = receiver.receive_all().iter().map(|received| number(&received.bytes)).collect();
    assert_eq!(numbers, [0, 1, 2, 3, 4, 99]);
}

#[test]
fn card_that_is_reset_in_use_vanishes_returns_and_carries_traffic_again() {
    let (world, [sender, receiver], _) = cards();
    let mut ring = Ring::set_up(&sender);
    device::CONTROL.write(&sender.bar, device::Control::default().with_sync_reset(true));
    assert_eq!(device::REVISION.read(&sender.bar).raw(), GONE);
    pass(&world, Duration::from_millis(1));
    assert_eq!(receiver.link_state(), 0, "the far end lost its light");
    pass(&world, Duration::from_secs(1));
    assert_eq!(port::SEND_DMA_BASE.port(P).read(&sender.bar).0, 0);
    let node = sender.device.node();
    drop(sender);
    let sender = Card::open(&world, node);
    activate(&world, [&sender, &receiver]);
    ring = Ring { posted: ring.posted, ..Ring::set_up(&sender) };
    pass(&world, Duration::from_micros(10));
    assert!(halted(&sender));
    Ring::run(&sender);
    ring.post(&sender, &packet(1, 64));
    pass(&world, Duration::from_micros(10));
    let mut receiver = receiver;
    assert_eq!(receiver.receive_all().len(), 1);
}
