//! A driver in a hundred lines, straight from the data sheet: enough to bring a port up and move packets.

#![allow(dead_code)] // each user takes what it needs

use qhca_driver::dma::DmaRegion;
use qhca_driver::env::{Backend, Clock, DmaMapper};
use qhca_regs::layout::{ArrayEntry, BufSize, Pbc, Rhf, RhfSeq};
use qhca_regs::map::{area, device, port, user};
use qhca_regs::{Buffer, Ctxt, Duration, Instant, Lid, Port};
use qhca_sim::backend::{SimBar, SimDevice, SimWorld};
use qhca_sim::chip::Config;
use qhca_sim::fabric::CableConfig;
use qhca_sim::vtime::Seed;
use qhca_sim::world::{CableId, NodeId, World};

pub(crate) const P: Port = Port::P0;
pub(crate) const ENTRIES: u32 = 64;
pub(crate) const ENTRY_BYTES: usize = 128;
/// What context 0 has of the eager array on a two-port board.
pub(crate) const EAGER_BUFFERS: u32 = 1024;
pub(crate) const EAGER_BYTES: usize = 2048;

/// Two cards of the same build, port 0 to port 0.
pub(crate) fn pair(
    seed: Seed,
    crc: bool,
    cable: CableConfig,
    config: &Config,
) -> (World, [NodeId; 2], CableId) {
    let mut world = World::new(seed, crc);
    let nodes = [world.add(config.clone()), world.add(config.clone())];
    let cable = world.connect((nodes[0], P), (nodes[1], P), cable);
    (world, nodes, cable)
}

/// A card with port 0 and context 0 in use.
pub(crate) struct Card {
    pub(crate) device: SimDevice,
    pub(crate) bar: SimBar,
    pub(crate) queue: DmaRegion,
    pub(crate) eager: DmaRegion,
    pub(crate) avail: DmaRegion,
    seq: RhfSeq,
    entry: u32,
    next_buffer: usize,
    last_egr: u16,
}

pub(crate) struct Received {
    pub(crate) rhf: Rhf,
    pub(crate) bytes: Vec<u8>,
}

impl Card {
    /// Opens the card at `node` and sets context 0 up; the link is not up yet.
    pub(crate) fn open(world: &SimWorld, node: NodeId) -> Self {
        let device = world.open(node).expect("nobody has it open");
        let mut map = {
            let mut mapper = device.mapper();
            move |len| mapper.map(len).expect("memory for a test")
        };
        let card = Self {
            bar: device.bar(),
            queue: map(ENTRIES as usize * ENTRY_BYTES),
            eager: map(EAGER_BUFFERS as usize * EAGER_BYTES),
            avail: map(4096),
            device,
            seq: RhfSeq::FIRST,
            entry: 0,
            next_buffer: 0,
            last_egr: 0,
        };
        card.set_up_receive();
        card.set_up_send();
        card
    }

    fn set_up_receive(&self) {
        let (bar, ctxt) = (&self.bar, Ctxt::new(0).expect("context 0"));
        device::RCV_HDR_ENT_SIZE.write(bar, (ENTRY_BYTES / 4) as u64);
        device::RCV_HDR_SIZE.write(bar, 9);
        device::RCV_HDR_CNT.write(bar, ENTRIES.into());
        device::RCV_HDR_ADDR.ctxt(ctxt).write(bar, device::RcvHdrAddr(self.queue.iova()));
        for index in 0..EAGER_BUFFERS {
            let iova = self.eager.iova() + u64::from(index) * EAGER_BYTES as u64;
            area::RCV_EGR_ARRAY
                .index(index)
                .write(bar, ArrayEntry::new(iova, BufSize::K2).expect("aligned").build());
        }
        port::RCV_BTHQP.port(P).write(bar, port::RcvBthqp::default().with_rcv_bthqp(0x65_6B78));
        device::RCV_CTRL
            .write(bar, device::RcvCtrl::default().with_intr_avail(0x3_FFFF).with_xrc_type_code(5));
        let enable = port::RcvCtrl::default().with_context_enable_kernel(true).with_rcv_ib_port_enable(true);
        port::RCV_CTRL.port(P).write(bar, enable);
        self.write_head(1);
    }

    fn set_up_send(&self) {
        let bar = &self.bar;
        device::SEND_BUF_AVAIL_ADDR.write(bar, device::SendBufAvailAddr(self.avail.iova()));
        for word in 0..3 {
            device::SEND_IB_PACKET_MASK.index(word).write(bar, u64::MAX);
        }
        device::SEND_CTRL.write(bar, device::SendCtrl::default().with_send_buf_avail_upd(true));
        port::SEND_CTRL.port(P).write(bar, port::SendCtrl::default().with_send_enable(true));
    }

    /// Lets the port train, as soon as it sees light.
    pub(crate) fn enable_link(&self) {
        port::IBPCS_CONFIG.port(P).write(&self.bar, port::IbpcsConfig(0));
        for lane in 0..2 {
            let credits = port::RxCreditVl::default().with_rx_max_credit_vl(250);
            port::RX_CREDIT_VL.port(P).index(lane).write(&self.bar, credits);
        }
        let change = port::IbSdtestIfTx::default().with_credit_change(true);
        port::IB_SDTEST_IF_TX.port(P).write(&self.bar, change);
        self.command(0);
    }

    /// Gives link command `command`: 2 armed, 3 active.
    pub(crate) fn command(&self, command: u8) {
        let ctrl =
            port::IbcCtrlA::default().with_max_pkt_len(1057).with_flow_ctrl_period(24).with_ib_link_en(true);
        port::IBC_CTRL_A.port(P).write(&self.bar, ctrl.with_link_cmd(command));
    }

    /// 0 down, 1 init, 2 armed, 3 active.
    pub(crate) fn link_state(&self) -> u8 {
        port::IBC_STATUS_A.port(P).read(&self.bar).link_state()
    }

    /// Gives head and eager index back and asks for an interrupt after `count` more packets.
    pub(crate) fn write_head(&self, count: u16) {
        let ctxt = Ctxt::new(0).expect("context 0");
        let head = self.entry * (ENTRY_BYTES / 4) as u32;
        let value = user::RcvHdrHead::default().with_rcv_head_pointer(head).with_counter(count);
        user::RCV_HDR_HEAD.ctxt(ctxt).write(&self.bar, value);
    }

    /// Sends `bytes` (LRH to pad) from the next small buffer, taken in turn.
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        let pbc = Pbc::for_port(P, (bytes.len() / 4 + 1) as u16);
        let words =
            bytes.chunks_exact(4).map(|chunk| u32::from_le_bytes(chunk.try_into().expect("four bytes")));
        let words: Vec<u32> = pbc.dwords().into_iter().chain(words).collect();
        let buffer = Buffer::new(self.next_buffer).expect("a small buffer");
        self.next_buffer = (self.next_buffer + 1) % Buffer::SMALL;
        qhca_regs::Bar::burst(&self.bar, buffer.offset(), &words);
    }

    /// The next packet in the queue, if one has come.
    pub(crate) fn receive(&mut self) -> Option<Received> {
        let start = self.entry as usize * ENTRY_BYTES;
        let rhf = Rhf(self.queue.memory().load_u64(start + ENTRY_BYTES - 8));
        if !self.seq.matches(rhf) {
            return None;
        }
        let span = rhf.header_span(ENTRY_BYTES / 4).expect("a header in the entry");
        let mut bytes = vec![0; span.len() * 4];
        self.queue.memory().copy_out(start + span.start * 4, &mut bytes);
        if rhf.uses_egr_buf() {
            let payload = rhf.payload_dwords(span.len()).expect("a payload") * 4;
            let at = bytes.len();
            bytes.resize(at + payload, 0);
            self.eager.memory().copy_out(usize::from(rhf.egr_index()) * EAGER_BYTES, &mut bytes[at..]);
            user::RCV_EGR_INDEX_HEAD.index(0).write(&self.bar, rhf.egr_index().into());
        }
        self.seq = self.seq.next();
        self.entry = (self.entry + 1) % ENTRIES;
        Some(Received { rhf, bytes })
    }

    /// Takes the next packet without looking into it; false if none has come.
    pub(crate) fn take(&mut self) -> bool {
        let rhf = Rhf(self.queue.memory().load_u64(self.entry as usize * ENTRY_BYTES + ENTRY_BYTES - 8));
        let came = self.seq.matches(rhf);
        if came {
            assert!(rhf.is_good() && rhf.uses_egr_buf());
            self.last_egr = rhf.egr_index();
            self.seq = self.seq.next();
            self.entry = (self.entry + 1) % ENTRIES;
        }
        came
    }

    /// Gives back what was taken.
    pub(crate) fn return_heads(&self) {
        user::RCV_EGR_INDEX_HEAD.index(0).write(&self.bar, self.last_egr.into());
        self.write_head(0);
    }

    pub(crate) fn receive_all(&mut self) -> Vec<Received> {
        std::iter::from_fn(|| self.receive()).collect()
    }
}

/// Lets `span` pass on a manual clock.
pub(crate) fn pass(world: &SimWorld, span: Duration) {
    world.advance_to(world.clock().now() + span);
}

/// Brings the link between two cards to ACTIVE, on a manual clock.
pub(crate) fn activate(world: &SimWorld, cards: [&Card; 2]) {
    cards.iter().for_each(|card| card.enable_link());
    pass(world, Duration::from_millis(20));
    assert_eq!(cards.map(Card::link_state), [1, 1], "both ports reach INIT");
    for command in [2, 3] {
        cards.iter().for_each(|card| card.command(command));
        pass(world, Duration::from_millis(1));
    }
    assert_eq!(cards.map(Card::link_state), [3, 3], "both ports reach ACTIVE");
}

/// A UC SEND-only packet of `payload` bytes with `number` at its end.
pub(crate) fn packet(number: u32, payload: usize) -> Vec<u8> {
    assert!(payload >= 4 && payload.is_multiple_of(4));
    let dwords = (8 + 12 + payload) / 4 + 1;
    let (dlid, slid) = (Lid(1), Lid(2));
    let mut bytes = vec![0, 2];
    bytes.extend(dlid.0.to_be_bytes());
    bytes.extend((dwords as u16).to_be_bytes());
    bytes.extend(slid.0.to_be_bytes());
    bytes.extend([0x24, 0, 0xFF, 0xFF]);
    bytes.extend(7_u32.to_be_bytes());
    bytes.extend(number.to_be_bytes());
    bytes.extend((0..payload - 4).map(|n| (n as u32 * 7 + number) as u8));
    bytes.extend(number.to_le_bytes());
    bytes
}

/// The number that [`packet`] wrote.
pub(crate) fn number(bytes: &[u8]) -> u32 {
    u32::from_le_bytes(*bytes.last_chunk().expect("a packet of the test"))
}

pub(crate) fn at(ns: u64) -> Instant {
    Instant::from_nanos(ns)
}
