//! A ring full of send DMA descriptors that nobody vouches for: the engine takes in exactly those that nothing is wrong
//! with, says one of the things that are wrong with the first other one, counts it, and starts anew after a clean-up.
//!
//! Input: the length of the ring and the generation it starts with, then descriptors. A descriptor is one byte that says
//! how it is shaped and what its fields need, or its 16 bytes as they are.

#![no_main]

use std::cell::RefCell;

use libfuzzer_sys::fuzz_target;
use qhca_fuzz::Bytes;
use qhca_regs::map::{device, port};
use qhca_regs::status::{ErrBits, HwErrBits, IntBits, PortErrBits};
use qhca_regs::{Buffer, Instant, Port, Vector};
use qhca_sim::chip::{Chip, Config, DmaError, Drop, Host, PeerState};

const P: Port = Port::P0;
const RING: u64 = 0x1000;
const DATA: u64 = 0x1_0000;
const MEMORY_END: u64 = 0x2_0000;
/// What a packet may have, in dwords with its PBC.
const SMALL: usize = 544;
const LARGE: usize = 1056;

/// Bits of a descriptor's first byte.
const RAW: u8 = 1;
const FIRST: u8 = 2;
const LAST: u8 = 4;
const USE_LARGE: u8 = 8;
const ASKS: u8 = 16;
const OTHER_GENERATION: u8 = 32;

thread_local! {
    /// One card for all inputs, cleaned up after each: to build one takes longer than to use it.
    static CARD: RefCell<Card> = RefCell::new(Card::new());
}

fuzz_target!(|input: &[u8]| {
    let mut bytes = Bytes::new(input);
    let length = 2 + u64::from(bytes.u8() % 14);
    let generation = bytes.u8() & 3;
    CARD.with_borrow_mut(|card| {
        let posted = post(&mut card.memory, &mut bytes, length, generation);
        card.run(length, generation);
        let expected = foretell(&card.memory, length, posted, generation);
        card.write(port::SEND_DMA_TAIL.port(P).offset(), posted);
        let head = port::SendDmaHead(card.read(port::SEND_DMA_HEAD.port(P).offset()));
        assert_eq!(u64::from(head.send_dma_head()), expected.taken, "descriptors taken in");
        check_errors(card, &expected);
        check_packets(card, &expected);
        check_clean_up(card);
    });
});

/// Fills the ring; returns how many descriptors it holds.
fn post(memory: &mut Memory, bytes: &mut Bytes<'_>, length: u64, generation: u8) -> u64 {
    let (mut posted, mut so_far) = (0, 0);
    while posted < length - 1 && !bytes.is_empty() {
        let shape = bytes.u8();
        let word = if shape & RAW != 0 {
            u128::from_le_bytes(bytes.array())
        } else {
            if shape & FIRST != 0 {
                so_far = 0;
            }
            let offset = i64::from(so_far) + i64::from(bytes.u8().cast_signed());
            let len = bytes.u16() & 0x7FF;
            let at = DATA + 4 * u64::from(bytes.u16() & 0x3FFF);
            let flag = |bit: u8, place: u32| u128::from(shape & bit != 0) << place;
            so_far = offset as u16 & 0x7FF;
            let word = u128::from(so_far) | u128::from(len) << 16 | u128::from(at) << 32;
            let stale = u128::from((generation + u8::from(shape & OTHER_GENERATION != 0)) & 3) << 30;
            so_far += len;
            word | stale
                | flag(LAST, 11)
                | flag(FIRST, 12)
                | flag(ASKS, 13)
                | flag(USE_LARGE, 14)
                | flag(ASKS, 15)
        };
        memory.put(RING + 16 * posted, &word.to_le_bytes());
        posted += 1;
    }
    posted
}

/// A chip with an ACTIVE port, its memory and its time.
struct Card {
    chip: Chip,
    memory: Memory,
    now: Instant,
    /// Errors of the engine and packets refused by inputs before this one.
    before: [u64; 2],
}

impl Card {
    fn new() -> Self {
        let (chip, memory) = (Chip::new(Config::default()), Memory::new());
        let mut card = Self { chip, memory, now: Instant::from_nanos(1), before: [0; 2] };
        let control = port::IbcCtrlA::default().with_ib_link_en(true).with_max_pkt_len(1057);
        let control_a = port::IBC_CTRL_A.port(P).offset();
        card.write(port::IBPCS_CONFIG.port(P).offset(), 0);
        card.write(control_a, control.0);
        card.chip.peer_link(P, PeerState::Up, card.now, &mut card.memory);
        card.settle();
        for command in [2, 3] {
            card.write(control_a, control.with_link_cmd(command).0);
            card.settle();
        }
        card.write(device::SEND_IB_PACKET_MASK.index(2).offset(), u64::MAX);
        card.write(port::SEND_DMA_BASE.port(P).offset(), RING);
        card.write(port::SEND_DMA_HEAD_ADDR.port(P).offset(), DATA);
        card.write(port::SEND_DMA_BUF_MASK.port(P).index(2).offset(), 0xFFFF_FFFF);
        card
    }

    /// Lets the engine run on an empty ring.
    fn run(&mut self, length: u64, generation: u8) {
        let len = port::SendDmaLenGen::default().with_length(length as u16).with_generation(4 | generation);
        self.write(port::SEND_DMA_LEN_GEN.port(P).offset(), len.0);
        self.write(port::SEND_CTRL.port(P).offset(), engine().0);
        for clear in [device::ERR_CLEAR.offset(), device::HW_ERR_CLEAR.offset()] {
            self.write(clear, u64::MAX);
        }
        self.write(port::ERR_CLEAR.port(P).offset(), u64::MAX);
        self.write(device::INT_CLEAR.offset(), u64::MAX);
        self.before = self.counted();
    }

    /// Errors of the engine and packets refused, ever.
    fn counted(&self) -> [u64; 2] {
        let account = self.chip.account();
        [account.sdma_faults[P.index()], account.dropped(P, Drop::SendRefused)]
    }

    fn read(&mut self, offset: u32) -> u64 {
        self.chip.read(offset, self.now, &mut self.memory)
    }

    fn write(&mut self, offset: u32, value: u64) {
        self.chip.write(offset, value, self.now, &mut self.memory);
    }

    fn settle(&mut self) {
        for _ in 0..100 {
            let Some(at) = self.chip.next_deadline() else { return };
            self.now = self.now.max(at);
            self.chip.advance(self.now, &mut self.memory);
        }
        panic!("something is due for ever");
    }
}

fn engine() -> port::SendCtrl {
    port::SendCtrl::default().with_send_enable(true).with_sdma_enable(true).with_sdma_int_enable(true)
}

/// What must come of a ring.
#[derive(Default)]
struct Expected {
    taken: u64,
    /// Packets that are complete: PBC and what follows it.
    packets: Vec<Vec<u8>>,
    /// Everything that is wrong with the first descriptor that is not taken in.
    port: PortErrBits,
    device: ErrBits,
    hardware: HwErrBits,
}

/// Goes through the ring field by field.
fn foretell(memory: &Memory, length: u64, posted: u64, generation: u8) -> Expected {
    assert!(posted < length, "the ring does not wrap");
    let mut expected = Expected::default();
    let mut open: Option<Vec<u8>> = None;
    for index in 0..posted {
        let mut bytes = [0; 16];
        memory.get(RING + 16 * index, &mut bytes).expect("the ring is mapped");
        let word = u128::from_le_bytes(bytes);
        let field = |low: u32, bits: u32| (word >> low) as u64 & ((1 << bits) - 1);
        let (offset, dwords) = (field(0, 11) as usize, field(16, 11) as usize);
        let (last, first, large) = (field(11, 1) != 0, field(12, 1) != 0, field(14, 1) != 0);
        let mut wrong = |bad: bool, bits: PortErrBits| {
            if bad {
                expected.port |= bits;
            }
        };
        let so_far = open.as_ref().map_or(0, |packet| packet.len() / 4);
        wrong(field(30, 2) != u64::from(generation), PortErrBits::SDMA_GEN_MISMATCH_ERR);
        wrong(first != open.is_none(), PortErrBits::SDMA1ST_DESC_ERR);
        wrong(open.is_none() && (offset != 0 || dwords < 2), PortErrBits::SDMA1ST_DESC_ERR);
        wrong(field(32, 2) != 0, PortErrBits::SDMA_DESC_ADDR_MISALIGN_ERR);
        wrong(dwords == 0, PortErrBits::SDMA_DW_EN_ERR);
        wrong(offset + dwords > if large { LARGE } else { SMALL }, PortErrBits::SDMA_OUT_OF_BOUND_ERR);
        wrong(offset != so_far, PortErrBits::SDMA_MISSING_DW_ERR);
        let mut piece = vec![0; 4 * dwords];
        if memory.get(field(32, 48), &mut piece).is_err() {
            expected.hardware |= HwErrBits::SDMA_MEM_READ_ERR_0;
        }
        let mut packet = open.take().unwrap_or_default();
        packet.extend(piece);
        if packet.len() >= 8 {
            let pbc = u64::from_le_bytes(packet[..8].try_into().expect("eight bytes"));
            expected.device.set(ErrBits::SDMA_VL15_ERR, pbc >> 63 != 0);
            expected.device.set(ErrBits::SDMA_WRONG_PORT_ERR, pbc >> 58 & 1 != 0);
            let right = (pbc & 0x7FF) as usize + 1;
            wrong(last && packet.len() / 4 < right, PortErrBits::SDMA_MISSING_DW_ERR);
            wrong(last && packet.len() / 4 > right, PortErrBits::SDMA_UNEXP_DATA_ERR);
        }
        if !expected.port.is_empty() || !expected.device.is_empty() || !expected.hardware.is_empty() {
            return expected;
        }
        expected.taken += 1;
        match last {
            true => expected.packets.push(packet),
            false => open = Some(packet),
        }
    }
    expected
}

/// The chip says one of the things that are wrong, halts with it and counts it; or says nothing.
fn check_errors(card: &mut Card, expected: &Expected) {
    let said = PortErrBits::from_bits_retain(card.read(port::ERR_STATUS.port(P).offset()));
    let of_engine = PortErrBits::from_bits_retain(0x7FF << 39);
    let reasons = said & of_engine - PortErrBits::SDMA_HALT_ERR;
    let device = ErrBits::from_bits_retain(card.read(device::ERR_STATUS.offset()));
    let device = device & (ErrBits::SDMA_VL15_ERR | ErrBits::SDMA_WRONG_PORT_ERR);
    let hardware = HwErrBits::from_bits_retain(card.read(device::HW_ERR_STATUS.offset()));
    let count = reasons.bits().count_ones() + device.bits().count_ones() + hardware.bits().count_ones();
    let is_wrong = !expected.port.is_empty() || !expected.device.is_empty() || !expected.hardware.is_empty();
    assert_eq!(count, u32::from(is_wrong), "{reasons:?} {device:?} {hardware:?} for {:?}", expected.port);
    assert!(expected.port.contains(reasons), "{reasons:?} is not among {:?}", expected.port);
    assert!(expected.device.contains(device) && expected.hardware.contains(hardware));
    assert_eq!(said.contains(PortErrBits::SDMA_HALT_ERR), is_wrong, "an error halts, and nothing else does");
    assert_eq!(card.counted()[0] - card.before[0], u64::from(is_wrong));
}

/// What went out is what was described, in order; the rest was refused by the send checks and counted.
fn check_packets(card: &mut Card, expected: &Expected) {
    let mut described = expected.packets.iter();
    let mut sent = 0;
    while let Some(packet) = card.chip.take_outgoing(P) {
        sent += 1;
        assert!(described.any(|described| described[8..] == packet.bytes), "a packet that nobody described");
        card.chip.recycle(packet);
    }
    let refused = card.counted()[1] - card.before[1];
    assert_eq!(sent + refused, expected.packets.len() as u64);
}

/// Halt and clean-up are told, the engine stands at the start of its ring, and a disarm frees every buffer.
fn check_clean_up(card: &mut Card) {
    card.write(port::ERR_CLEAR.port(P).offset(), u64::MAX);
    let control = engine().with_sdma_halt(true).with_sdma_cleanup(true);
    card.write(port::SEND_CTRL.port(P).offset(), control.0);
    card.settle();
    let said = PortErrBits::from_bits_retain(card.read(port::ERR_STATUS.port(P).offset()));
    let told = IntBits::from_bits_retain(card.read(device::INT_STATUS.offset()));
    assert!(said.contains(PortErrBits::SDMA_HALT_ERR) && told.contains(IntBits::SDMA_CLEANUP_DONE_0));
    let status = port::SendDmaStatus(card.read(port::SEND_DMA_STATUS.port(P).offset()));
    assert!(status.scb_empty() && status.internal_sdma_halt());
    assert_eq!(card.read(port::SEND_DMA_HEAD.port(P).offset()), 0);
    for index in Buffer::SMALL..Buffer::SMALL + Buffer::LARGE {
        let disarm = device::SendCtrl::default().with_disarm(true).with_disarm_send_buf(index as u8);
        card.write(device::SEND_CTRL.offset(), disarm.0);
    }
    assert_eq!(card.read(port::SEND_DMA_BUF_USED.port(P).index(2).offset()), 0);
}

/// Ring and data; every 16 bytes of the data start with a PBC for a packet of another length.
struct Memory(Vec<u8>);

impl Memory {
    fn new() -> Self {
        let mut memory = Self(vec![0x5A; (MEMORY_END - RING) as usize]);
        for length in 0..0x800u64 {
            let lrh = [0, 2, 0, 1, (length >> 8) as u8, length as u8, 0, 2];
            memory.put(DATA + 16 * length, &length.to_le_bytes());
            memory.put(DATA + 16 * length + 8, &lrh);
        }
        memory
    }

    fn put(&mut self, iova: u64, bytes: &[u8]) {
        let at = (iova - RING) as usize;
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn get(&self, iova: u64, bytes: &mut [u8]) -> Result<(), DmaError> {
        let refused = DmaError { iova, len_bytes: bytes.len() };
        let at = iova.checked_sub(RING).and_then(|at| usize::try_from(at).ok()).ok_or(refused)?;
        let end = at.checked_add(bytes.len()).ok_or(refused)?;
        bytes.copy_from_slice(self.0.get(at..end).ok_or(refused)?);
        Ok(())
    }
}

impl Host for Memory {
    /// Only heads come, and they are not kept: the data stays what it was.
    fn dma_write(&mut self, iova: u64, bytes: &[u8]) -> Result<(), DmaError> {
        assert_eq!((iova, bytes.len()), (DATA, 8), "the engine writes its head and nothing else");
        Ok(())
    }
    fn dma_read(&mut self, iova: u64, bytes: &mut [u8]) -> Result<(), DmaError> {
        self.get(iova, bytes)
    }
    fn msix(&mut self, _: Vector) {}
    fn intx(&mut self, _: bool) {}
}
