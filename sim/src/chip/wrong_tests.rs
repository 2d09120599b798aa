//! Every wrong chip shows itself: one story, told by the right chip and by each wrong one, never reads the same twice.

mod engines;
mod states;

use super::tests::Bench;
use super::twsi::tests::Master;
use super::*;
use qhca_regs::layout::{ArrayEntry, BufSize, FlowPsn, KdFlags, KdHeader, KdTid, Pbc, TidFlow};
use qhca_regs::map::{area, counter, device, port, user};
use qhca_regs::status::IntBits;
use qhca_regs::{Buffer, Duration};

const P: Port = Port::P0;
const QUEUE: u64 = 0x10_0000;
const EAGER: u64 = 0x20_0000;
const AVAIL: u64 = 0x5000;
const ENTRIES: u32 = 8;

/// What the story leaves behind: values read, interrupts, writes to host memory.
#[derive(Default)]
struct Transcript(Vec<u64>);

struct Story {
    bench: Bench,
    told: Transcript,
}

impl Story {
    fn read(&mut self, offset: u32) {
        let value = self.bench.read(offset);
        self.told.0.push(value);
    }

    fn interrupts(&mut self) {
        let messages = self.bench.host.messages();
        self.told.0.push(messages.len() as u64);
        self.told.0.extend(messages.into_iter().map(|vector| vector as u64));
    }

    fn memory(&mut self) {
        for (iova, len) in std::mem::take(&mut self.bench.host.writes) {
            self.told.0.extend([iova, len as u64]);
        }
    }

    fn rhf(&mut self, entry: u64) {
        let rhf = self.bench.host.qword(QUEUE + 128 * entry + 120);
        self.told.0.push(rhf);
    }

    fn identity(&mut self) {
        self.bench.write(device::SCRATCH.offset(), u64::MAX);
        self.read(device::SCRATCH.offset());
        for code in [2, 0] {
            let control = device::RcvCtrl::default().with_context_cfg(code).with_intr_avail(1);
            self.bench.write(device::RCV_CTRL.offset(), control.0);
            self.read(device::RCV_EGR_CNT.offset());
        }
        let flash = Master::new(&mut self.bench).read(0, 8).unwrap_or_default();
        self.told.0.extend(flash.into_iter().map(u64::from));
        self.cable_module();
        self.bench.write(device::GPIO_CLEAR.offset(), u64::MAX);
    }

    fn cable_module(&mut self) {
        let mut master = Master::new(&mut self.bench);
        master.select_page(P, 0);
        let module = master.read_module(P, 128, 64).unwrap_or_default();
        self.told.0.extend(module.into_iter().map(u64::from));
    }

    fn interrupt_rules(&mut self) {
        let bench = &mut self.bench;
        bench.raise(IntBits::SEND_DONE_1);
        let redirect = device::IntRedirect::default().with_vec0(3).with_vec1(4);
        bench.write(device::INT_REDIRECT.index(2).offset(), redirect.0);
        self.interrupts();
        self.bench.write(device::INT_MASK.offset(), IntBits::NAMED.bits());
        self.bench.raise(IntBits::SEND_DONE_0);
        self.interrupts();
        self.bench.write(device::INT_CLEAR.offset(), 0);
        self.interrupts();
        self.bench.write(device::INT_CLEAR.offset(), u64::MAX);
        self.bench.inject(Injection::Port(P, PortErrBits::RCV_EBP_ERR | PortErrBits::RCV_HDR_ERR));
        self.bench.write(port::ERR_CLEAR.port(P).offset(), PortErrBits::RCV_EBP_ERR.bits());
        self.read(port::ERR_STATUS.port(P).offset());
        self.bench.write(port::ERR_CLEAR.port(P).offset(), u64::MAX);
    }

    fn link(&mut self, port: Port) {
        let control =
            port::IbcCtrlA::default().with_ib_link_en(true).with_num_v_lane(1).with_max_pkt_len(1057);
        let control_a = port::IBC_CTRL_A.port(port).offset();
        self.bench.write(port::IBPCS_CONFIG.port(port).offset(), 0);
        self.bench.write(control_a, control.0);
        self.bench.peer(port, PeerState::Training(Offer::ALL));
        self.bench.settle();
        self.bench.peer(port, PeerState::Up);
        for command in [3, 2, 3] {
            self.bench.write(control_a, control.with_link_cmd(command).0);
            self.bench.settle();
            self.read(port::IBC_STATUS_A.port(port).offset());
        }
        self.read(port::ERR_STATUS.port(port).offset());
        let credits = port::RxCreditVl::default().with_rx_max_credit_vl(200);
        self.bench.write(port::RX_CREDIT_VL.port(port).index(0).offset(), credits.0);
        let change = port::IbSdtestIfTx::default().with_credit_change(true);
        self.bench.write(port::IB_SDTEST_IF_TX.port(port).offset(), change.0);
        let send = port::SendCtrl::default().with_send_enable(true);
        self.bench.write(port::SEND_CTRL.port(port).offset(), send.0);
    }

    /// A module comes; a link that may only be narrow and slow.
    fn negotiation(&mut self) {
        let narrow = port::IbcCtrlB(0x304BF).with_ib_num_channels(0).with_sd_speed_qdr(false);
        let control_b = port::IBC_CTRL_B.port(P).offset();
        self.bench.write(control_b, narrow.0);
        self.bench.write(device::EXT_CTRL.offset(), device::ExtCtrl::default().with_gpio_invert(1 << 3).0);
        self.bench.set_module(P, false);
        self.bench.write(device::GPIO_CLEAR.offset(), u64::MAX);
        self.bench.set_module(P, true);
        self.read(device::GPIO_STATUS.offset());
        self.bench.write(port::IBPCS_CONFIG.port(P).offset(), 0);
        self.bench
            .write(port::IBC_CTRL_A.port(P).offset(), port::IbcCtrlA::default().with_ib_link_en(true).0);
        self.bench.peer(P, PeerState::Training(Offer::ALL));
        self.bench.settle();
        self.read(port::IBC_STATUS_A.port(P).offset());
        self.bench.write(port::IBC_CTRL_A.port(P).offset(), 0);
        self.bench.write(control_b, 0x304BF);
        self.bench.write(device::GPIO_CLEAR.offset(), u64::MAX);
    }

    fn set_up_receive(&mut self) {
        let bench = &mut self.bench;
        bench.host.map(QUEUE, 128 * ENTRIES as usize);
        bench.host.map(EAGER, 0x800 * 1024);
        bench.write(device::RCV_HDR_ENT_SIZE.offset(), 32);
        bench.write(device::RCV_HDR_CNT.offset(), ENTRIES.into());
        bench.write(device::RCV_HDR_ADDR.index(0).offset(), QUEUE);
        for index in 0..1024u32 {
            let iova = EAGER + 0x800 * u64::from(index);
            let entry = ArrayEntry::new(iova, BufSize::K2).expect("aligned").build();
            bench.write(area::RCV_EGR_ARRAY.index(index).offset(), entry.0);
        }
        bench.write(port::RCV_BTHQP.port(P).offset(), 0x65_6B78);
        let map = port::RcvQpMapTable::default().with_rcv_qp_map_context1(17);
        bench.write(port::RCV_QP_MAP_TABLE_A.port(P).offset(), map.0);
        let enable = port::RcvCtrl::default()
            .with_context_enable_kernel(true)
            .with_rcv_ib_port_enable(true)
            .with_rcv_qp_map_enable(true);
        bench.write(port::RCV_CTRL.port(P).offset(), enable.0);
    }

    fn deliver(&mut self, qp: u8, pkey: u16, meta: Meta) {
        let mut bytes = vec![0, 2, 0, 1, 0, 8, 0, 2, 0x24, 0];
        bytes.extend(pkey.to_be_bytes());
        bytes.extend([0, 0, 0, qp, 0, 0, 0, 0]);
        bytes.extend([0x5A; 8]);
        self.bench.deliver(P, &bytes, meta);
    }

    fn head(&mut self, entry: u32, counter: u16) {
        let value = user::RcvHdrHead::default().with_rcv_head_pointer(entry * 32).with_counter(counter);
        self.bench.write(user::RCV_HDR_HEAD.index(0).offset(), value.0);
    }

    fn receive(&mut self) {
        self.head(0, 0);
        for n in 0..u64::from(ENTRIES) + 2 {
            self.deliver(0, 0xFFFF, Meta::GOOD);
            self.rhf(n % u64::from(ENTRIES));
        }
        self.interrupts();
        self.memory();
        self.head(ENTRIES - 1, 0);
        for n in 0..3 {
            self.deliver(0, 0xFFFF, Meta::GOOD);
            self.head(n, 0);
        }
        self.deliver(0, 0xFFFF, Meta { icrc_ok: false, ..Meta::GOOD });
        self.deliver(0, 0x8001, Meta::GOOD);
        self.deliver(2, 0xFFFF, Meta::GOOD);
        let tail = self.bench.read(user::RCV_EGR_INDEX_TAIL.index(0).offset());
        self.bench.write(user::RCV_EGR_INDEX_HEAD.index(0).offset(), tail + 1);
        self.deliver(0, 0xFFFF, Meta::GOOD);
        for entry in 0..u64::from(ENTRIES) {
            self.rhf(entry);
        }
        self.memory();
        (0..2).for_each(|_| self.read(counter::RX_DATA_PKT_CNT.port(P).offset()));
    }

    /// Expected packets: in order, out of order, of another generation, with a wrong checksum.
    fn expected(&mut self) {
        let ctxt = qhca_regs::Ctxt::new(0).expect("exists");
        let page = ArrayEntry::new(EAGER, BufSize::K4).expect("aligned").build();
        self.bench.write(area::RCV_TID_ARRAY.ctxt(ctxt).index(1).offset(), page.0);
        let flow = user::RCV_TID_FLOW_TABLE.ctxt(ctxt).index(2).offset();
        let entry = TidFlow { valid: true, generation: 3, hdr_supp: true, ..TidFlow::default() };
        self.bench.write(flow, entry.build().0);
        let control = device::RcvCtrl::default().with_tid_flow_enable(true);
        self.bench.write(device::RCV_CTRL.offset(), control.0);
        self.head(ENTRIES - 1, 0);
        for (generation, seq, flip) in [(3, 0, 0), (3, 2, 0), (2, 1, 0), (3, 1, 0x55)] {
            let psn = FlowPsn { flow: 2, generation, seq }.build().value();
            let mut bytes = vec![0, 2, 0, 1, 0, 16, 0, 2, 0xC0, 0, 0xFF, 0xFF, 0, 0x65, 0x6B, 0x78];
            bytes.extend(psn.to_be_bytes());
            let flags = KdFlags::HDR_SUPP;
            let header = KdHeader { ctxt_low: 0, tid: KdTid::Tid(1), offset_dwords: 4, flags };
            bytes.extend(header.build(16));
            bytes[24] ^= flip;
            bytes.resize(60, 0x77);
            self.bench.deliver(P, &bytes, Meta::GOOD);
        }
        self.read(flow);
        self.read(user::RCV_HDR_TAIL.index(0).offset());
        self.memory();
        (0..u64::from(ENTRIES)).for_each(|entry| self.rhf(entry));
    }

    fn send(&mut self, index: usize, port: Port, dwords: std::ops::Range<usize>) {
        let words = packet(port);
        let offset = Buffer::new(index).expect("exists").offset() + 4 * dwords.start as u32;
        self.bench.burst(offset, &words[dwords]);
    }

    /// Two lanes of which the table lets only the second send; what the port grants after packets have come.
    fn lanes(&mut self) {
        self.bench.pass(Duration::from_millis(1));
        let granted = self.bench.chip.flow_update(P, self.bench.now).map(|update| update.limit);
        self.told.0.extend(granted.into_iter().flatten().map(u64::from));
        let low = port::LowPriority::default().with_virtual_lane(1).with_weight(1);
        self.bench.write(port::LOW_PRIORITY.port(P).index(0).offset(), low.0);
        let send = port::SendCtrl::default().with_send_enable(true).with_ibvl_arbiter_en(true);
        self.bench.write(port::SEND_CTRL.port(P).offset(), send.0);
        self.send(5, P, 0..9);
        self.outgoing();
    }

    fn outgoing(&mut self) {
        for port in Port::ALL {
            while let Some(packet) = self.bench.chip.take_outgoing(port) {
                self.told.0.push(port.index() as u64);
                self.told.0.extend(packet.bytes.into_iter().map(u64::from));
            }
        }
    }

    fn sending(&mut self) {
        self.bench.host.map(AVAIL, 64);
        self.bench.write(device::SEND_BUF_AVAIL_ADDR.offset(), AVAIL);
        self.read(device::SEND_BUF_AVAIL_ADDR.offset());
        self.bench.write(device::SEND_IB_PACKET_MASK.index(0).offset(), u64::MAX);
        self.send(1, P, 0..9);
        self.send(2, Port::P1, 0..9);
        self.send(3, P, 0..8);
        self.send(4, P, 0..5);
        self.outgoing();
        self.read(area::SEND_BUF_AVAIL.index(0).offset());
        let disarm = device::SendCtrl::default().with_disarm(true).with_disarm_send_buf(4);
        self.bench.write(device::SEND_CTRL.offset(), disarm.0);
        self.read(area::SEND_BUF_AVAIL.index(0).offset());
    }
}

/// PBC and packet, 8 dwords long with its ICRC.
fn packet(port: Port) -> Vec<u32> {
    let mut words = Pbc::for_port(port, 8).dwords().to_vec();
    words.extend([0x0100_0200, 0x0200_0800, 0x24, 0, 0x0700_0000, 0x11, 0x22]);
    words
}

fn tell(wrong: WrongSet) -> Vec<u64> {
    let paged = Module::new(&Description { flat: false, ..Description::default() });
    let bench = Bench::with(Config { wrong, modules: [Some(paged), None], ..Config::default() });
    let mut story = Story { bench, told: Transcript::default() };
    story.identity();
    story.interrupt_rules();
    story.negotiation();
    Port::ALL.into_iter().for_each(|port| story.link(port));
    story.set_up_receive();
    story.receive();
    story.expected();
    story.bench.pass(Duration::from_millis(1));
    story.sending();
    story.lanes();
    story.send_dma();
    story.states();
    story.interrupts();
    story.told.0
}

#[test]
fn every_wrong_chip_tells_the_story_differently() {
    let right = tell(WrongSet::NONE);
    assert_eq!(tell(WrongSet::NONE), right, "the right chip tells it the same way each time");
    let silent: Vec<_> = WrongChip::ALL
        .into_iter()
        .filter(|&wrong| tell(wrong.into()) == right)
        .map(WrongChip::name)
        .collect();
    assert!(silent.is_empty(), "not to be told from the right chip: {silent:?}");
}
