//! Unreliable services: datagrams, multicast, unreliable connections, and a port that talks to itself.

use std::sync::Arc;

use qhca_driver::dma::DmaMemory;
use qhca_regs::{Instant, Lid};
use qhca_verbs::wire::{Gid, Service};
use qhca_verbs::{
    Access, AddressVector, Config, CqId, Data, Destination, DropReason, Engine, Event, Full, GlobalRoute,
    MemoryRegion, Mtu, Outgoing, Payload, PdId, Port, PostError, Psn, QpAttr, QpInit, QpNumber, QpState,
    RecvWr, RnrTimer, SendFlags, SendOp, SendWr, SrqId, Wc, WcStatus,
};

const QKEY: u32 = 0x1111;
const GROUP: Gid = Gid(0xFF12_601B_FFFF_0000_0000_0000_0000_0001);
const GROUP_LID: Lid = Lid(0xC001);

struct End {
    engine: Engine,
    memory: Arc<DmaMemory>,
    region: MemoryRegion,
    pd: PdId,
    cq: CqId,
    lid: Lid,
}

const NOW: Instant = Instant::ZERO;

impl End {
    fn new(lid: u16) -> Self {
        let port =
            Port { lid: Lid(lid), gids: vec![Gid::new(Gid::DEFAULT_PREFIX, lid.into())], ..Port::default() };
        let mut engine = Engine::new(Config::default(), port);
        let pd = engine.allocate_pd();
        let memory = Arc::new(DmaMemory::new(1 << 16).expect("memory"));
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let region = engine.register(pd, &memory, 0, 1 << 16, access).expect("a region");
        let cq = engine.create_cq(256).expect("a completion queue");
        Self { engine, memory, region, pd, cq, lid: Lid(lid) }
    }

    fn ud(&mut self, qkey: u32, block_own_multicast: bool) -> QpNumber {
        let init = QpInit { block_own_multicast, ..QpInit::new(Service::Ud, self.pd, self.cq) };
        let qp = self.engine.create_qp(&init).expect("a queue pair");
        let init = QpAttr {
            state: Some(QpState::Init),
            pkey_index: Some(0),
            port: Some(1),
            qkey: Some(qkey),
            ..QpAttr::default()
        };
        let rts = QpAttr { state: Some(QpState::Rts), sq_psn: Some(Psn::new(0)), ..QpAttr::default() };
        for attr in [init, QpAttr::to(QpState::Rtr), rts] {
            self.engine.modify_qp(qp, &attr, NOW).expect("the attributes suit");
        }
        qp
    }

    fn connected(
        &mut self,
        service: Service,
        peer: Lid,
        srq: Option<SrqId>,
        dest: impl FnOnce(QpNumber) -> QpNumber,
    ) -> QpNumber {
        let qp = self
            .engine
            .create_qp(&QpInit { srq, ..QpInit::new(service, self.pd, self.cq) })
            .expect("a queue pair");
        let reliable = service == Service::Rc;
        let init = QpAttr {
            state: Some(QpState::Init),
            access: Some(Access::REMOTE_WRITE),
            pkey_index: Some(0),
            port: Some(1),
            ..QpAttr::default()
        };
        let rtr = QpAttr {
            state: Some(QpState::Rtr),
            address: Some(AddressVector { dlid: peer, ..AddressVector::default() }),
            path_mtu: Some(Mtu::B256),
            dest_qp: Some(dest(qp)),
            rq_psn: Some(Psn::new(5)),
            max_dest_rd_atomic: reliable.then_some(1),
            min_rnr_timer: reliable.then_some(RnrTimer::Code(12)),
            ..QpAttr::default()
        };
        let rts = QpAttr {
            state: Some(QpState::Rts),
            sq_psn: Some(Psn::new(5)),
            timeout: reliable.then_some(10),
            retry_count: reliable.then_some(7),
            rnr_retry: reliable.then_some(7),
            max_rd_atomic: reliable.then_some(1),
            ..QpAttr::default()
        };
        for attr in [init, rtr, rts] {
            self.engine.modify_qp(qp, &attr, NOW).expect("the attributes suit");
        }
        qp
    }

    fn receive(&mut self, qp: QpNumber, wr_id: u64, at: u64, len: u32) {
        let sge = [self.region.sge(at, len)];
        self.engine.post_recv(qp, &RecvWr { wr_id, sges: &sge }, NOW).expect("posted");
    }

    fn send(&mut self, qp: QpNumber, data: &[u8], to: Option<Destination>) -> Result<(), PostError> {
        let wr =
            SendWr { wr_id: 1, op: SendOp::Send, flags: SendFlags::SIGNALED, data: Data::Inline(data), to };
        self.engine.post_send(qp, &wr, NOW)
    }

    /// Gives `other` all that this end sends; returns how many packets that were.
    fn exchange(&mut self, other: &mut Self) -> usize {
        let mut packets = Vec::new();
        let mut wire = |packet: &Outgoing<'_>| -> Result<(), Full> {
            let words: Vec<u32> = packet.header.iter().map(|word| u32::from_be(*word)).collect();
            let payload: Vec<u8> = packet.payload.iter().flat_map(|dword| dword.to_le_bytes()).collect();
            packets.push((words, payload));
            Ok(())
        };
        self.engine.transmit(&mut wire, NOW, 1000);
        for (words, payload) in &packets {
            other.engine.on_packet(words, Payload::Bytes(payload), NOW);
        }
        packets.len()
    }

    fn completions(&mut self) -> Vec<Wc> {
        let mut wcs = [Wc::EMPTY; 64];
        let count = self.engine.poll_cq(self.cq, &mut wcs);
        wcs[..count].to_vec()
    }

    fn bytes(&self, at: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.memory.copy_out(at, &mut bytes);
        bytes
    }
}

fn to(end: &End, qp: QpNumber, qkey: u32, with_grh: bool) -> Option<Destination> {
    let dgid = Gid::new(Gid::DEFAULT_PREFIX, end.lid.0.into());
    let grh = with_grh.then(|| GlobalRoute { dgid, hop_limit: 1, ..GlobalRoute::default() });
    Some(Destination { address: AddressVector { dlid: end.lid, grh, ..AddressVector::default() }, qp, qkey })
}

fn to_group() -> Option<Destination> {
    let grh = Some(GlobalRoute { dgid: GROUP, hop_limit: 1, ..GlobalRoute::default() });
    let address = AddressVector { dlid: GROUP_LID, grh, ..AddressVector::default() };
    Some(Destination { address, qp: QpNumber::MULTICAST, qkey: QKEY })
}

/// B96, B97: exactly 40 bytes and the payload are needed, with or without a GRH; nothing is written beyond; a datagram
/// that does not fit leaves the receive for the next one and the queue pair usable.
#[test]
fn datagram_fits_forty_bytes_and_its_payload_exactly() {
    for with_grh in [false, true] {
        let (mut left, mut right) = (End::new(1), End::new(2));
        let (from, at) = (left.ud(QKEY, false), right.ud(QKEY, false));
        let data = [7; 20];
        right.memory.copy_in(0, &[0xEE; 256]);
        right.receive(at, 1, 0, 59);
        left.send(from, &data, to(&right, at, QKEY, with_grh)).expect("posted");
        left.exchange(&mut right);
        assert_eq!(right.engine.counters().dropped(DropReason::TooLong), 1);
        assert!(right.completions().is_empty());
        assert_eq!(right.bytes(0, 256), [0xEE; 256]);
        left.send(from, &data[..19], to(&right, at, QKEY, with_grh)).expect("posted");
        left.exchange(&mut right);
        let done = right.completions();
        let [wc] = done.as_slice() else { panic!("one completion, not {done:?}") };
        let detail = wc.detail().expect("it succeeded");
        assert_eq!((wc.wr_id, detail.len_bytes, detail.sender.has_grh), (1, 59, with_grh));
        assert_eq!((detail.sender.qp, detail.sender.lid), (from, Lid(1)));
        assert_eq!(right.bytes(40, 19), [7; 19]);
        assert_eq!(right.bytes(59, 64), [0xEE; 64]);
        assert_eq!(right.bytes(0, 1) == [0xEE], !with_grh, "without a GRH its room is left as it was");
    }
}

#[test]
fn datagram_with_another_key_is_dropped_and_counted_for_the_subnet_manager() {
    let (mut left, mut right) = (End::new(1), End::new(2));
    let (from, at) = (left.ud(QKEY, false), right.ud(QKEY, false));
    right.receive(at, 1, 0, 100);
    left.send(from, &[1], to(&right, at, 0x2222, false)).expect("posted");
    // With the top bit the sender's own key is used.
    left.send(from, &[2], to(&right, at, 1 << 31, false)).expect("posted");
    left.exchange(&mut right);
    assert_eq!(right.engine.counters().qkey_violations, 1);
    assert_eq!(right.completions().len(), 1);
    assert_eq!(right.bytes(40, 1), [2]);
}

#[test]
fn datagram_beyond_the_mtu_or_without_a_destination_is_refused_when_posted() {
    let mut left = End::new(1);
    let from = left.ud(QKEY, false);
    left.engine.port_mut().mtu = Mtu::B256;
    let list = [left.region.sge(0, 257)];
    let wr = SendWr { to: to_group(), ..SendWr::new(1, SendOp::Send, &list) };
    assert_eq!(left.engine.post_send(from, &wr, NOW), Err(PostError::TooLong { given: 257, max: 256 }));
    assert_eq!(left.send(from, &[1], None), Err(PostError::Destination));
    let read = SendOp::Read { addr: 0, rkey: qhca_verbs::Key(0) };
    let wr = SendWr { op: read, ..wr };
    assert_eq!(left.engine.post_send(from, &wr, NOW), Err(PostError::NotSupported));
}

/// B90, B99: all members get the packet whatever becomes of one of them, and nobody else does.
#[test]
fn multicast_reaches_every_member_and_nobody_else() {
    for broken in 0..3 {
        let (mut left, mut right) = (End::new(1), End::new(2));
        let from = left.ud(QKEY, false);
        let outsider = right.ud(QKEY, false);
        right.receive(outsider, 99, 0x8000, 100);
        let members: Vec<QpNumber> =
            (0..3).map(|n| right.ud(if n == broken { 0x9999 } else { QKEY }, false)).collect();
        for (n, member) in members.iter().enumerate() {
            right.engine.attach_multicast(*member, GROUP, GROUP_LID).expect("room in the group");
            right.receive(*member, n as u64, n as u64 * 0x100, 100);
        }
        left.send(from, &[5; 8], to_group()).expect("posted");
        assert_eq!(left.exchange(&mut right), 1);
        let got: Vec<u64> = right.completions().iter().map(|wc| wc.wr_id).collect();
        let wanted: Vec<u64> = (0..3).filter(|n| *n != broken).collect();
        assert_eq!(got, wanted);
        assert!(wanted.iter().all(|n| right.bytes(*n as usize * 0x100 + 40, 8) == [5; 8]));
    }
}

/// B98: a member that sends gets its own packet back unless it said that it does not want to; others always get it.
#[test]
fn own_multicast_comes_back_unless_it_is_blocked() {
    for block in [false, true] {
        let (mut left, mut right) = (End::new(1), End::new(2));
        let (from, beside) = (left.ud(QKEY, block), left.ud(QKEY, false));
        for (qp, wr_id) in [(from, 10), (beside, 11)] {
            left.engine.attach_multicast(qp, GROUP, GROUP_LID).expect("room in the group");
            left.receive(qp, wr_id, wr_id * 0x100, 100);
        }
        left.send(from, &[6], to_group()).expect("posted");
        left.exchange(&mut right);
        let mut got: Vec<u64> = left.completions().iter().map(|wc| wc.wr_id).filter(|id| *id >= 10).collect();
        got.sort_unstable();
        assert_eq!(got, if block { vec![11] } else { vec![10, 11] });
    }
}

/// B23: a port talks to itself without the cable, while the cable takes nothing.
#[test]
fn connection_to_the_same_port_goes_on_while_the_cable_is_blocked() {
    let mut end = End::new(1);
    let lid = end.lid;
    let qp = end.connected(Service::Rc, lid, None, |own| own);
    let away = end.connected(Service::Rc, Lid(9), None, |_| QpNumber::new(5));
    let mut blocked = |_: &Outgoing<'_>| -> Result<(), Full> { Err(Full) };
    end.send(away, &[1; 8], None).expect("posted");
    for round in 0..20 {
        end.receive(qp, 100 + round, 0x1000, 64);
        end.send(qp, &[round as u8; 32], None).expect("posted");
        for _ in 0..4 {
            end.engine.transmit(&mut blocked, NOW, 100);
        }
        let done = end.completions();
        assert_eq!(done.len(), 2, "round {round}: {done:?}");
        assert!(done.iter().all(|wc| wc.status == WcStatus::Success));
        assert_eq!(end.bytes(0x1000, 32), [round as u8; 32]);
    }
    assert_eq!(end.engine.qp_state(away), Some(QpState::Rts));
}

/// On an unreliable connection a lost packet loses its message and no other, and the receive is used for the next.
#[test]
fn lost_packet_loses_one_message_of_an_unreliable_connection() {
    for lost in 0..3 {
        let (mut left, mut right) = (End::new(1), End::new(2));
        let peer = QpNumber::new(2);
        let from = left.connected(Service::Uc, Lid(2), None, |_| peer);
        let at = right.connected(Service::Uc, Lid(1), None, |_| from);
        assert_eq!(at, peer);
        (0..2).for_each(|n| right.receive(at, n, n * 0x1000, 1000));
        left.memory.copy_in(0, &[1; 700]);
        left.memory.copy_in(1000, &[2; 700]);
        for start in [0, 1000] {
            let list = [left.region.sge(start, 700)];
            left.engine.post_send(from, &SendWr::new(start, SendOp::Send, &list), NOW).expect("posted");
        }
        let mut number = 0;
        let mut wire = |packet: &Outgoing<'_>| -> Result<(), Full> {
            let words: Vec<u32> = packet.header.iter().map(|word| u32::from_be(*word)).collect();
            let payload: Vec<u8> = packet.payload.iter().flat_map(|dword| dword.to_le_bytes()).collect();
            if number != lost {
                right.engine.on_packet(&words, Payload::Bytes(&payload), NOW);
            }
            number += 1;
            Ok(())
        };
        left.engine.transmit(&mut wire, NOW, 100);
        assert_eq!(number, 6);
        assert_eq!(left.completions().len(), 2, "sent is done");
        let done = right.completions();
        assert!(
            matches!(done.as_slice(), [wc] if wc.wr_id == 0 && wc.status == WcStatus::Success),
            "{done:?}"
        );
        assert_eq!(right.bytes(0, 700), [2; 700]);
    }
}

/// B95: a shared receive queue is not destroyed under its users; its limit raises one event; RC and UC share it.
#[test]
fn shared_receive_queue_serves_its_users_tells_its_limit_once_and_outlives_them() {
    let (mut left, mut right) = (End::new(1), End::new(2));
    let srq = right.engine.create_srq(right.pd, 8, 2).expect("a queue");
    let first = right.connected(Service::Uc, Lid(1), Some(srq), |_| QpNumber::new(2));
    let second = right.connected(Service::Uc, Lid(1), Some(srq), |_| QpNumber::new(3));
    let senders = [
        left.connected(Service::Uc, Lid(2), None, |_| first),
        left.connected(Service::Uc, Lid(2), None, |_| second),
    ];
    assert!(matches!(right.engine.destroy_srq(srq), Err(qhca_verbs::QpError::Busy { users: 2 })));
    for wr_id in 0..6 {
        let sge = [right.region.sge(wr_id * 64, 64)];
        right.engine.post_srq_recv(srq, &RecvWr { wr_id, sges: &sge }).expect("posted");
    }
    right.engine.set_srq_limit(srq, 4).expect("below its depth");
    right.engine.resize_srq(srq, 16).expect("more room");
    for round in 0..4 {
        left.send(senders[round % 2], &[round as u8; 8], None).expect("posted");
        left.exchange(&mut right);
    }
    let ids: Vec<u64> = right.completions().iter().map(|wc| wc.wr_id).collect();
    assert_eq!(ids, [0, 1, 2, 3], "in the order in which they were posted");
    let mut limits = 0;
    while let Some(event) = right.engine.poll_event() {
        limits += u32::from(event == Event::SrqLimitReached(srq));
    }
    assert_eq!(limits, 1, "one event, until it is asked for again");
    let refused = right.engine.post_recv(first, &RecvWr { wr_id: 0, sges: &[] }, NOW);
    assert_eq!(refused, Err(PostError::HasSrq));
    for qp in [first, second] {
        right.engine.destroy_qp(qp).expect("it is there");
    }
    assert!(right.engine.destroy_srq(srq).is_ok());
}

/// Every change of state is made with exactly the attributes that it needs, and with no other.
#[test]
fn every_change_of_state_wants_its_attributes_and_no_others() {
    use qhca_verbs::{AttrMask, ModifyError, allowed};
    for service in [Service::Rc, Service::Uc, Service::Ud] {
        let ways = QpState::ALL.iter().flat_map(|from| QpState::ALL.map(|to| (*from, to)));
        let possible = ways.filter(|(from, to)| allowed(service, *from, *to).is_some()).count();
        assert_eq!(possible, 14 + 8 + usize::from(service != Service::Rc), "{service}");
    }
    let mut end = End::new(1);
    let qp = end.engine.create_qp(&QpInit::new(Service::Rc, end.pd, end.cq)).expect("a queue pair");
    let full = QpAttr {
        state: Some(QpState::Init),
        access: Some(Access::empty()),
        pkey_index: Some(0),
        port: Some(1),
        ..QpAttr::default()
    };
    let without = QpAttr { port: None, ..full };
    assert_eq!(end.engine.modify_qp(qp, &without, NOW), Err(ModifyError::Missing(AttrMask::PORT)));
    let surplus = QpAttr { qkey: Some(1), ..full };
    assert_eq!(end.engine.modify_qp(qp, &surplus, NOW), Err(ModifyError::NotAllowed(AttrMask::QKEY)));
    let mistaken = QpAttr { cur_state: Some(QpState::Rts), ..full };
    assert!(matches!(end.engine.modify_qp(qp, &mistaken, NOW), Err(ModifyError::CurrentState { .. })));
    let migrating = QpAttr { alternate_path: Some(AddressVector::default()), ..full };
    assert_eq!(end.engine.modify_qp(qp, &migrating, NOW), Err(ModifyError::PathMigration));
    let jump = QpAttr::to(QpState::Rts);
    assert!(matches!(end.engine.modify_qp(qp, &jump, NOW), Err(ModifyError::NoSuchChange { .. })));
    assert_eq!(end.engine.qp_state(qp), Some(QpState::Reset), "nothing of all that did anything");
    end.engine.modify_qp(qp, &full, NOW).expect("the attributes suit");
}
