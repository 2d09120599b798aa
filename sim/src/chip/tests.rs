//! A bench for the chip's tests: host memory, a clock, and shorthands; and what holds for the chip as a whole.

use super::*;
use proptest::prelude::*;
use qhca_regs::map::{area, device, user};
use qhca_regs::status::IntBits;
use qhca_regs::{Duration, Vector};

/// Memory of a few mapped ranges, and the interrupts that came.
#[derive(Default)]
pub(super) struct TestHost {
    pub(super) ranges: Vec<(u64, Vec<u8>)>,
    vectors: Vec<usize>,
    pub(super) line: Option<bool>,
    /// Every write in order: address and length.
    pub(super) writes: Vec<(u64, usize)>,
    pub(super) refused: u64,
}

impl TestHost {
    pub(super) fn map(&mut self, iova: u64, len: usize) {
        self.ranges.push((iova, vec![0; len]));
    }

    fn find(&mut self, iova: u64, len: usize) -> Option<&mut [u8]> {
        self.ranges.iter_mut().find_map(|(start, bytes)| {
            let at = usize::try_from(iova.checked_sub(*start)?).ok()?;
            bytes.get_mut(at..at.checked_add(len)?)
        })
    }

    pub(super) fn bytes(&mut self, iova: u64, len: usize) -> Vec<u8> {
        self.find(iova, len).expect("mapped").to_vec()
    }

    /// Software writes `bytes` at `iova`.
    pub(super) fn poke(&mut self, iova: u64, bytes: &[u8]) {
        self.find(iova, bytes.len()).expect("mapped").copy_from_slice(bytes);
    }

    pub(super) fn qword(&mut self, iova: u64) -> u64 {
        u64::from_le_bytes(self.bytes(iova, 8).try_into().expect("eight bytes"))
    }

    /// Vectors that came since the last call.
    pub(super) fn messages(&mut self) -> Vec<usize> {
        std::mem::take(&mut self.vectors)
    }
}

impl Host for TestHost {
    fn dma_write(&mut self, iova: u64, bytes: &[u8]) -> Result<(), DmaError> {
        self.writes.push((iova, bytes.len()));
        match self.find(iova, bytes.len()) {
            Some(to) => {
                to.copy_from_slice(bytes);
                Ok(())
            }
            None => {
                self.refused += 1;
                Err(DmaError { iova, len_bytes: bytes.len() })
            }
        }
    }
    fn dma_read(&mut self, iova: u64, bytes: &mut [u8]) -> Result<(), DmaError> {
        let len_bytes = bytes.len();
        let Some(from) = self.find(iova, len_bytes) else {
            self.refused += 1;
            return Err(DmaError { iova, len_bytes });
        };
        bytes.copy_from_slice(from);
        Ok(())
    }
    fn msix(&mut self, vector: Vector) {
        self.vectors.push(vector.index());
    }
    fn intx(&mut self, asserted: bool) {
        self.line = Some(asserted);
    }
}

/// A chip, its host and the time.
pub(super) struct Bench {
    pub(super) chip: Chip,
    pub(super) host: TestHost,
    pub(super) now: Instant,
}

impl Bench {
    pub(super) fn new() -> Self {
        Self::with(Config::default())
    }

    pub(super) fn on(board: Board) -> Self {
        Self::with(Config { board, ..Config::default() })
    }

    pub(super) fn with(config: Config) -> Self {
        Self { chip: Chip::new(config), host: TestHost::default(), now: Instant::from_nanos(1) }
    }

    pub(super) fn read(&mut self, offset: u32) -> u64 {
        self.chip.read(offset, self.now, &mut self.host)
    }

    pub(super) fn write(&mut self, offset: u32, value: u64) {
        self.chip.write(offset, value, self.now, &mut self.host);
    }

    pub(super) fn burst(&mut self, offset: u32, dwords: &[u32]) {
        self.chip.write_burst(offset, dwords, self.now, &mut self.host);
    }

    pub(super) fn deliver(&mut self, port: Port, bytes: &[u8], meta: Meta) {
        self.chip.deliver(port, bytes, meta, self.now, &mut self.host);
    }

    pub(super) fn raise(&mut self, bits: IntBits) {
        self.chip.raise(bits & IntBits::NAMED, self.now, &mut self.host);
    }

    pub(super) fn inject(&mut self, injection: Injection) {
        self.chip.inject(injection, self.now, &mut self.host);
    }

    pub(super) fn peer(&mut self, port: Port, peer: PeerState) {
        self.chip.peer_link(port, peer, self.now, &mut self.host);
    }

    pub(super) fn set_module(&mut self, port: Port, present: bool) {
        self.chip.set_module(port, present, self.now, &mut self.host);
    }

    pub(super) fn plug(&mut self, port: Port, module: Option<Module>) {
        self.chip.plug_module(port, module, self.now, &mut self.host);
    }

    pub(super) fn alarm(&mut self, port: Port, at: u8, bits: u8) {
        self.chip.module_alarm(port, at, bits, self.now, &mut self.host);
    }

    pub(super) fn set_int_mode(&mut self, mode: IntMode) {
        self.chip.set_int_mode(mode, self.now, &mut self.host);
    }

    /// Lets `span` pass.
    pub(super) fn pass(&mut self, span: Duration) {
        self.now += span;
        self.chip.advance(self.now, &mut self.host);
    }

    /// Lets time pass until nothing is due any more.
    pub(super) fn settle(&mut self) {
        for _ in 0..1000 {
            let Some(at) = self.chip.next_deadline() else { return };
            self.now = self.now.max(at);
            self.chip.advance(self.now, &mut self.host);
            for port in Port::ALL {
                let _ = self.chip.flow_update(port, self.now);
            }
        }
        panic!("something is due for ever, next at {:?}", self.chip.next_deadline());
    }

    /// Brings `port` to ACTIVE against a peer that only shows light, with sending and receiving on.
    pub(super) fn activate(&mut self, port: Port) {
        let control =
            port::IbcCtrlA::default().with_ib_link_en(true).with_num_v_lane(1).with_max_pkt_len(1057);
        let control_a = port::IBC_CTRL_A.port(port).offset();
        self.write(port::IBPCS_CONFIG.port(port).offset(), 0);
        self.write(control_a, control.0);
        self.peer(port, PeerState::Training(Offer::ALL));
        self.settle();
        self.peer(port, PeerState::Up);
        for command in [2, 3] {
            self.write(control_a, control.with_link_cmd(command).0);
            self.settle();
        }
        let send = port::SendCtrl::default().with_send_enable(true);
        self.write(port::SEND_CTRL.port(port).offset(), send.0);
        for n in 0..3 {
            self.write(device::SEND_IB_PACKET_MASK.index(n).offset(), u64::MAX);
        }
        let link = port::IbcStatusA(self.read(port::IBC_STATUS_A.port(port).offset()));
        assert_eq!((link.link_training_state(), link.link_state()), (1, 3));
    }
}

#[test]
fn pulled_card_reads_all_ones_and_swallows_writes() {
    let mut bench = Bench::new();
    bench.write(device::SCRATCH.offset(), 7);
    bench.chip.set_present(false);
    assert_eq!(bench.read(device::SCRATCH.offset()), GONE);
    bench.write(device::SCRATCH.offset(), 8);
    bench.chip.set_present(true);
    assert_eq!(bench.read(device::SCRATCH.offset()), 7);
}

#[test]
fn half_reads_give_half_and_half_writes_clear_the_other() {
    let mut bench = Bench::new();
    let scratch = device::SCRATCH.offset();
    bench.write(scratch, 0x1111_2222_3333_4444);
    assert_eq!(bench.chip.read32(scratch + 4, bench.now, &mut bench.host), 0x1111_2222);
    bench.chip.write32(scratch + 4, 9, bench.now, &mut bench.host);
    assert_eq!(bench.read(scratch), 0x1111_2222_3333_4444, "an upper half alone is dropped");
    bench.chip.write32(scratch, 9, bench.now, &mut bench.host);
    assert_eq!(bench.read(scratch), 9);
}

#[test]
fn log_counts_always_and_records_on_request() {
    let mut bench = Bench::new();
    bench.read(device::REVISION.offset());
    bench.chip.record_accesses(2);
    for value in 0..3 {
        bench.write(device::SCRATCH.offset(), value);
    }
    let kept: Vec<_> = bench.chip.log().entries().map(|(_, access)| *access).collect();
    let write = |value| Access::Write { offset: device::SCRATCH.offset(), value };
    assert_eq!(kept, [write(1), write(2)]);
    let totals = bench.chip.log().totals();
    assert_eq!((totals.reads, totals.writes, bench.chip.log().lost()), (1, 3, 1));
}

/// One thing that may be done to a chip.
#[derive(Clone, Debug)]
enum Deed {
    Write(u32, u64),
    Burst(u32, Vec<u32>),
    Read(u32),
    Deliver(bool, Vec<u8>, bool),
    Peer(bool, u8),
    Pass(u32),
    Flow(bool, u32),
    Inject(u64),
    FarEnd(bool, bool),
    Reset(bool),
}

/// Offsets that are likely to mean something, and some that are not.
fn offsets() -> impl Strategy<Value = u32> {
    let registers: Vec<u32> = qhca_regs::map::all().map(|placed| placed.offset).collect();
    prop_oneof![
        4 => proptest::sample::select(registers),
        2 => send::START..send::END,
        1 => area::RCV_EGR_ARRAY.index(0).offset()..area::RCV_EGR_ARRAY.index(64).offset(),
        1 => any::<u32>(),
    ]
}

/// Values with few bits, with all kinds of bits, and addresses near the mapped memory.
fn values() -> impl Strategy<Value = u64> {
    prop_oneof![
        any::<u64>(),
        (0u32..64).prop_map(|bit| 1 << bit),
        0u64..0x400,
        (0u64..0x2_0000).prop_map(|n| 0x10_0000 + n * 8),
        (0u64..512).prop_map(|n| 1 << 37 | n),
        Just(u64::MAX),
    ]
}

fn packets() -> impl Strategy<Value = Vec<u8>> {
    let plausible = (
        0u8..4,
        0u8..=15,
        6u16..80,
        any::<u8>(),
        prop::sample::select(vec![0u32, 1, 5, 0x65_6B78, 0xFF_FFFF]),
    )
        .prop_map(|(lnh, vl, dwords, opcode, qp)| {
            let mut bytes = vec![0xA5; 4 * (usize::from(dwords) - 1)];
            bytes[..8].copy_from_slice(&[vl << 4, lnh, 0, 1, (dwords >> 8) as u8, dwords as u8, 0, 2]);
            bytes[8..20].copy_from_slice(&[
                opcode,
                0,
                0xFF,
                0xFF,
                0,
                (qp >> 16) as u8,
                (qp >> 8) as u8,
                qp as u8,
                0,
                0,
                0,
                0,
            ]);
            bytes
        });
    prop_oneof![plausible, prop::collection::vec(any::<u8>(), 0..200)]
}

fn deeds() -> impl Strategy<Value = Deed> {
    prop_oneof![
        6 => (offsets(), values()).prop_map(|(offset, value)| Deed::Write(offset, value)),
        2 => (offsets(), prop::collection::vec(any::<u32>(), 0..40)).prop_map(|(offset, words)| Deed::Burst(offset, words)),
        1 => offsets().prop_map(Deed::Read),
        3 => (any::<bool>(), packets(), any::<bool>()).prop_map(|(p, bytes, icrc)| Deed::Deliver(p, bytes, icrc)),
        1 => (any::<bool>(), 0u8..5).prop_map(|(p, state)| Deed::Peer(p, state)),
        1 => any::<u32>().prop_map(Deed::Pass),
        1 => (any::<bool>(), any::<u32>()).prop_map(|(p, limit)| Deed::Flow(p, limit)),
        1 => any::<u64>().prop_map(Deed::Inject),
        1 => any::<(bool, bool)>().prop_map(|(p, answers)| Deed::FarEnd(p, answers)),
        1 => any::<bool>().prop_map(Deed::Reset),
    ]
}

fn do_deed(bench: &mut Bench, deed: &Deed) {
    let port = |second: bool| if second { Port::P1 } else { Port::P0 };
    match deed {
        Deed::Write(offset, value) => bench.write(*offset, *value),
        Deed::Burst(offset, words) => bench.burst(offset & !3, words),
        Deed::Read(offset) => {
            bench.read(*offset);
        }
        Deed::Deliver(second, bytes, icrc_ok) => {
            bench.deliver(port(*second), bytes, Meta { icrc_ok: *icrc_ok, ..Meta::GOOD });
        }
        Deed::Peer(second, state) => {
            let states = [
                PeerState::Silent,
                PeerState::Training(Offer::ALL),
                PeerState::Training(Offer::of_speeds(2)),
                PeerState::Up,
                PeerState::UpMute,
            ];
            bench.peer(port(*second), states[usize::from(*state)]);
        }
        Deed::Flow(second, limit) => {
            let update = FlowUpdate { sent: [*limit; 8], limit: [*limit; 8] };
            bench.chip.take_flow_update(port(*second), update, bench.now, &mut bench.host);
        }
        Deed::FarEnd(second, answers) => {
            let far = FarEnd { answers: *answers, ..FarEnd::default() };
            bench.chip.set_far_end(port(*second), far, bench.now);
        }
        Deed::Reset(true) => bench.chip.reset(bench.now, &mut bench.host),
        Deed::Reset(false) => bench.chip.reset_by_itself(bench.now, &mut bench.host),
        Deed::Pass(ns) => bench.pass(Duration::from_nanos(u64::from(*ns))),
        Deed::Inject(bits) => {
            bench.inject(Injection::Device(ErrBits::from_bits_retain(*bits)));
            bench.inject(Injection::Hardware(HwErrBits::from_bits_retain(*bits)));
            bench.inject(Injection::Port(Port::P0, PortErrBits::from_bits_retain(*bits)));
        }
    }
}

/// A chip that can receive at once, so that garbage reaches the far chapters.
fn receiving(wrong: WrongSet) -> Bench {
    let mut bench = Bench::with(Config { wrong, ..Config::default() });
    bench.host.map(0x10_0000, 0x10_0000);
    if wrong == WrongSet::NONE {
        bench.activate(Port::P0);
    }
    bench.write(device::RCV_HDR_ENT_SIZE.offset(), 32);
    bench.write(device::RCV_HDR_CNT.offset(), 64);
    bench.write(device::RCV_HDR_ADDR.index(0).offset(), 0x10_0000);
    bench.write(device::RCV_CTRL.offset(), device::RcvCtrl::default().with_intr_avail(0x3_FFFF).0);
    bench.write(device::RCV_AVAIL_TIMEOUT.index(0).offset(), 375);
    let control = port::RcvCtrl::default().with_context_enable_kernel(true).with_rcv_ib_port_enable(true);
    bench.write(port::RCV_CTRL.port(Port::P0).offset(), control.0);
    let head = user::RcvHdrHead::default().with_counter(16);
    bench.write(user::RCV_HDR_HEAD.index(0).offset(), head.0);
    bench
}

proptest! {
    /// No panic, DMA the host refused is DMA that the account knows of, and nothing stays due for ever.
    #[test]
    fn garbage_never_panics_nor_hangs_and_every_refused_dma_is_counted(
        deeds in prop::collection::vec(deeds(), 1..120),
        wrong in prop::option::of(0..WrongChip::ALL.len()),
    ) {
        let wrong = wrong.map_or(WrongSet::NONE, |n| WrongChip::ALL[n].into());
        let mut bench = receiving(wrong);
        for deed in &deeds {
            do_deed(&mut bench, deed);
        }
        prop_assert_eq!(bench.chip.account().dma_refused, bench.host.refused);
        bench.settle();
    }

    /// The same calls give the same bytes.
    #[test]
    fn two_chips_with_one_history_agree(deeds in prop::collection::vec(deeds(), 1..60)) {
        let mut one = receiving(WrongSet::NONE);
        let mut two = receiving(WrongSet::NONE);
        for deed in &deeds {
            do_deed(&mut one, deed);
            do_deed(&mut two, deed);
        }
        prop_assert_eq!(one.host.writes, two.host.writes);
        prop_assert_eq!(one.chip.account(), two.chip.account());
        prop_assert_eq!(one.chip.next_deadline(), two.chip.next_deadline());
    }
}
