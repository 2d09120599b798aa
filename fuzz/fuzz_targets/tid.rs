//! Expected packets, flow entries and TID entries of any content: what the chip writes lies in its header queue or in the
//! buffer that an entry names, and a flow moves on past the packet it waited for and past nothing else that it dropped.
//!
//! Input: steps. A TID entry, a flow entry, or a packet.

#![no_main]

use libfuzzer_sys::fuzz_target;
use qhca_fuzz::Bytes;
use qhca_regs::layout::{FlowPsn, KdFlags, KdHeader, KdTid, Slot, TidFlow};
use qhca_regs::map::{area, device, port, user};
use qhca_regs::{Ctxt, Instant, Port, Vector};
use qhca_sim::chip::{Chip, Config, DmaError, Host, Meta, Offer, PeerState};

const P: Port = Port::P0;
const QUEUE: std::ops::Range<u64> = 0x10_0000..0x10_0000 + 128 * 16;
const KD_QP: u32 = 0x65_6B78;
const TIDS: u16 = 4;

/// A machine that takes every write and remembers where it went.
#[derive(Default)]
struct Recorder(Vec<std::ops::Range<u64>>);

impl Host for Recorder {
    fn dma_write(&mut self, iova: u64, bytes: &[u8]) -> Result<(), DmaError> {
        self.0.push(iova..iova + bytes.len() as u64);
        Ok(())
    }
    fn dma_read(&mut self, iova: u64, bytes: &mut [u8]) -> Result<(), DmaError> {
        Err(DmaError { iova, len_bytes: bytes.len() })
    }
    fn msix(&mut self, _: Vector) {}
    fn intx(&mut self, _: bool) {}
}

/// A chip whose context 0 takes expected packets.
fn ready(host: &mut Recorder) -> (Chip, Instant) {
    let mut chip = Chip::new(Config::default());
    let mut now = Instant::ZERO;
    let up = port::IbcCtrlA::default().with_ib_link_en(true).with_max_pkt_len(1057);
    chip.write(port::IBPCS_CONFIG.port(P).offset(), 0, now, host);
    for (command, peer) in [(0, PeerState::Training(Offer::ALL)), (2, PeerState::Up)] {
        chip.write(port::IBC_CTRL_A.port(P).offset(), up.with_link_cmd(command).0, now, host);
        chip.peer_link(P, peer, now, host);
        while let Some(due) = chip.next_deadline() {
            now = now.max(due);
            chip.advance(now, host);
        }
    }
    let settings = [
        (device::RCV_HDR_ENT_SIZE.offset(), 32),
        (device::RCV_HDR_CNT.offset(), 16),
        (device::RCV_HDR_SIZE.offset(), 9),
        (device::RCV_HDR_ADDR.index(0).offset(), QUEUE.start),
        (port::RCV_BTHQP.port(P).offset(), KD_QP.into()),
        (device::RCV_CTRL.offset(), device::RcvCtrl::default().with_tid_flow_enable(true).0),
        (
            port::RCV_CTRL.port(P).offset(),
            port::RcvCtrl::default().with_context_enable_kernel(true).with_rcv_ib_port_enable(true).0,
        ),
    ];
    settings.into_iter().for_each(|(offset, value)| chip.write(offset, value, now, host));
    (chip, now)
}

fn packet(psn: FlowPsn, header: KdHeader, payload: usize) -> Vec<u8> {
    let dwords = (56 / 4 + payload + 1) as u16;
    let mut bytes = vec![0, 2, 0, 1, (dwords >> 8) as u8, dwords as u8, 0, 2, 0xC0, 0, 0xFF, 0xFF];
    bytes.extend(KD_QP.to_be_bytes());
    bytes.extend(psn.build().value().to_be_bytes());
    bytes.extend(header.build(dwords));
    bytes.resize(56 + 4 * payload, 0x77);
    bytes
}

fuzz_target!(|input: &[u8]| {
    let mut bytes = Bytes::new(input);
    let mut host = Recorder::default();
    let (mut chip, now) = ready(&mut host);
    let ctxt = Ctxt::new(0).expect("context 0");
    let flow_at = |flow: u8| user::RCV_TID_FLOW_TABLE.ctxt(ctxt).index(flow.into()).offset();
    let tid_at = |tid: u16| area::RCV_TID_ARRAY.ctxt(ctxt).index(tid.into()).offset();
    let mut steps = 0;
    while !bytes.is_empty() && steps < 200 {
        steps += 1;
        match bytes.u8() % 3 {
            0 => {
                let (tid, entry) = (u16::from(bytes.u8()) % TIDS, bytes.u64());
                chip.write(tid_at(tid), entry, now, &mut host);
            }
            1 => {
                let (flow, entry) = (bytes.u8() % 32, bytes.u64());
                chip.write(flow_at(flow), entry, now, &mut host);
            }
            _ => {
                let [flow, generation, tid, flags] = bytes.array();
                let (seq, offset_dwords) = (bytes.u16() & 0x7FF, bytes.u16() & 0x1FFF);
                let psn = FlowPsn { flow: flow % 32, generation, seq };
                let tid = u16::from(tid) % (TIDS + 1);
                let flags = KdFlags::from_bits_retain(flags.into());
                let header = KdHeader { ctxt_low: 0, tid: KdTid::Tid(tid), offset_dwords, flags };
                let packet = packet(psn, header, usize::from(bytes.u8()));
                deliver(&mut chip, now, &mut host, &packet, psn, (flow_at(psn.flow), tid_at(tid)));
            }
        }
    }
});

/// Delivers one packet and checks what it did; the head follows, so that there is always room for its entry.
fn deliver(
    chip: &mut Chip,
    now: Instant,
    host: &mut Recorder,
    packet: &[u8],
    psn: FlowPsn,
    (flow_at, tid_at): (u32, u32),
) {
    let tail = chip.read(user::RCV_HDR_TAIL.index(0).offset(), now, host);
    chip.write(user::RCV_HDR_HEAD.index(0).offset(), tail, now, host);
    let flow = |chip: &mut Chip, host: &mut Recorder| {
        TidFlow::parse(user::RcvTidFlowTable(chip.read(flow_at, now, host)))
    };
    let before = flow(chip, host);
    let named = match Slot::parse(area::RcvArrayEntry(chip.read(tid_at, now, host))) {
        Slot::Buffer(buffer) => buffer.iova()..buffer.iova() + buffer.size().bytes() as u64,
        _ => 0..0,
    };
    host.0.clear();
    chip.deliver(P, packet, Meta::GOOD, now, host);
    let inside = |range: &std::ops::Range<u64>, outer: &std::ops::Range<u64>| {
        outer.start <= range.start && range.end <= outer.end
    };
    for written in &host.0 {
        assert!(inside(written, &QUEUE) || inside(written, &named), "{written:x?}");
    }
    let after = flow(chip, host);
    let right_generation = before.valid && before.generation == psn.generation;
    let kept_late = right_generation && before.keep_after_seq_err;
    let may_move = right_generation && before.seq == psn.seq || kept_late;
    let moved = after.seq != before.seq;
    assert!(!moved || may_move && after.seq == (psn.seq + 1) & 0x7FF, "{before:?} {psn:?} {after:?}");
    assert_eq!(after.gen_mismatch, before.gen_mismatch || before.valid && !right_generation);
}
