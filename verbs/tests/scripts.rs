//! Packet scripts: a responder or requester that is handed packets one by one, each written out.

use std::sync::Arc;

use qhca_driver::dma::DmaMemory;
use qhca_regs::{Duration, Instant, Lid};
use qhca_verbs::wire::{
    Aeth, AtomicEth, Bth, Extra, Headers, Lrh, NakCode, NextHeader, Opcode, Operation, Place, Reth, Service,
    Syndrome,
};
use qhca_verbs::{
    Access, AddressVector, Arm, Config, CqId, Data, DropReason, Engine, Event, Full, Key, MemoryRegion, Mtu,
    Outgoing, Payload, PdId, Port, PostError, Psn, QpAttr, QpInit, QpNumber, QpState, RecvWr, RnrTimer,
    SendFlags, SendOp, SendWr, Wc, WcStatus,
};

const US: Lid = Lid(1);
const PEER: Lid = Lid(2);
const PEER_QP: QpNumber = QpNumber::new(0x77);
const MTU: usize = 256;

/// An endpoint whose peer is the script.
struct End {
    engine: Engine,
    memory: Arc<DmaMemory>,
    region: MemoryRegion,
    pd: PdId,
    cq: CqId,
    qp: QpNumber,
    now: Instant,
}

/// A packet that the endpoint sent.
#[derive(Clone, Debug)]
struct Seen {
    words: Vec<u32>,
    payload: Vec<u8>,
}

impl Seen {
    fn headers(&self) -> Headers<'_> {
        Headers::parse(&self.words, self.payload.len() / 4).expect("a packet of ours can be read")
    }

    fn psn(&self) -> u32 {
        self.headers().bth.psn.get()
    }

    fn syndrome(&self) -> Option<Syndrome> {
        self.headers().aeth().map(|aeth| aeth.syndrome)
    }
}

impl End {
    fn new(change: impl FnOnce(&mut QpInit, &mut [QpAttr; 3])) -> Self {
        Self::with_config(Config::default(), change)
    }

    /// An endpoint in RTS, expecting PSN 20 and beginning with PSN 20.
    fn with_config(config: Config, change: impl FnOnce(&mut QpInit, &mut [QpAttr; 3])) -> Self {
        let mut engine = Engine::new(config, Port { lid: US, ..Port::default() });
        let pd = engine.allocate_pd();
        let memory = Arc::new(DmaMemory::new(1 << 16).expect("memory"));
        let all = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
        let region = engine.register(pd, &memory, 0, 1 << 16, all | Access::WINDOW_BIND).expect("a region");
        let cq = engine.create_cq(256).expect("a completion queue");
        let mut init = QpInit::new(Service::Rc, pd, cq);
        let mut attrs = [
            QpAttr {
                state: Some(QpState::Init),
                access: Some(Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC),
                pkey_index: Some(0),
                port: Some(1),
                ..QpAttr::default()
            },
            QpAttr {
                state: Some(QpState::Rtr),
                address: Some(AddressVector { dlid: PEER, ..AddressVector::default() }),
                path_mtu: Some(Mtu::B256),
                dest_qp: Some(PEER_QP),
                rq_psn: Some(Psn::new(20)),
                max_dest_rd_atomic: Some(4),
                min_rnr_timer: Some(RnrTimer::Code(12)),
                ..QpAttr::default()
            },
            QpAttr {
                state: Some(QpState::Rts),
                sq_psn: Some(Psn::new(20)),
                timeout: Some(10),
                retry_count: Some(2),
                rnr_retry: Some(2),
                max_rd_atomic: Some(4),
                ..QpAttr::default()
            },
        ];
        change(&mut init, &mut attrs);
        let qp = engine.create_qp(&init).expect("a queue pair");
        let mut end = Self { engine, memory, region, pd, cq, qp, now: Instant::ZERO };
        for attr in attrs {
            end.engine.modify_qp(qp, &attr, end.now).expect("the attributes suit");
        }
        end
    }

    fn bth(&self, opcode: Opcode, psn: u32, pad: u8) -> Bth {
        Bth {
            opcode,
            solicited: false,
            migrated: true,
            pad,
            pkey: 0xFFFF,
            fecn: false,
            becn: false,
            dest_qp: self.qp,
            ack_request: true,
            psn: Psn::new(psn),
        }
    }

    /// Hands the endpoint a packet of its peer.
    fn deliver(&mut self, bth: Bth, ext: &[u32], payload: &[u8]) {
        let mut padded = payload.to_vec();
        padded.resize(payload.len().next_multiple_of(4), 0);
        let words = 5 + ext.len();
        let lrh = Lrh {
            vl: 0,
            sl: 0,
            next: NextHeader::Bth,
            dlid: US,
            len_dwords: (words + padded.len() / 4 + 1) as u16,
            slid: PEER,
        };
        let mut header = lrh.build().to_vec();
        header.extend(bth.build());
        header.extend(ext);
        self.engine.on_packet(&header, Payload::Bytes(&padded), self.now);
    }

    fn request(&mut self, opcode: Opcode, psn: u32, ext: &[u32], payload: &[u8]) -> Vec<Seen> {
        let pad = (payload.len().wrapping_neg() % 4) as u8;
        self.deliver(self.bth(opcode, psn, pad), ext, payload);
        self.sent()
    }

    fn ack(&mut self, psn: u32, syndrome: Syndrome, msn: u32) -> Vec<Seen> {
        self.request(Opcode::ACKNOWLEDGE, psn, &[Aeth { syndrome, msn }.build()], &[])
    }

    /// All that the endpoint sends now.
    fn sent(&mut self) -> Vec<Seen> {
        let mut seen = Vec::new();
        let mut wire = |packet: &Outgoing<'_>| -> Result<(), Full> {
            seen.push(Seen {
                words: packet.header.iter().map(|word| u32::from_be(*word)).collect(),
                payload: packet.payload.iter().flat_map(|dword| dword.to_le_bytes()).collect(),
            });
            Ok(())
        };
        self.engine.transmit(&mut wire, self.now, 10_000);
        seen
    }

    fn wait(&mut self, time: Duration) -> Vec<Seen> {
        self.now += time;
        self.engine.on_timeout(self.now);
        self.sent()
    }

    fn completions(&mut self) -> Vec<(u64, WcStatus)> {
        let mut wcs = [Wc::EMPTY; 64];
        let count = self.engine.poll_cq(self.cq, &mut wcs);
        wcs[..count].iter().map(|wc| (wc.wr_id, wc.status)).collect()
    }

    fn post(&mut self, wr_id: u64, op: SendOp, len: u32) {
        let sge = [self.region.sge(0, len)];
        self.engine.post_send(self.qp, &SendWr::new(wr_id, op, &sge), self.now).expect("posted");
    }

    fn reth(&self, at: u64, len_bytes: u32) -> [u32; 4] {
        Reth { addr: self.region.addr + at, rkey: self.region.rkey, len_bytes }.build()
    }

    fn write_op(&self) -> SendOp {
        SendOp::Write { addr: 0x1000, rkey: Key(0x55) }
    }

    fn bytes(&self, at: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.memory.copy_out(at, &mut bytes);
        bytes
    }

    fn state(&self) -> QpState {
        self.engine.qp_state(self.qp).expect("it is there")
    }
}

fn plain() -> End {
    End::new(|_, _| {})
}

fn write(place: Place) -> Opcode {
    Opcode::write(Service::Rc, place, Extra::None)
}

fn send(place: Place) -> Opcode {
    Opcode::send(Service::Rc, place, Extra::None)
}

/// B77: a READ that is answered again in the middle of a WRITE does not disturb the WRITE.
#[test]
fn repeated_read_in_the_middle_of_a_write_does_not_break_the_write() {
    let mut end = plain();
    let data: Vec<u8> = (0..=255).cycle().take(2 * MTU).collect();
    let answers = end.request(Opcode::READ_REQUEST, 20, &end.reth(0, 3 * MTU as u32), &[]);
    assert_eq!(answers.iter().map(Seen::psn).collect::<Vec<_>>(), [20, 21, 22]);
    let target = end.reth(0x4000, 2 * MTU as u32);
    assert!(end.request(write(Place::First), 23, &target, &data[..MTU]).len() == 1);
    let again = end.request(Opcode::READ_REQUEST, 20, &end.reth(0, 3 * MTU as u32), &[]);
    assert_eq!(again.iter().map(Seen::psn).collect::<Vec<_>>(), [20, 21, 22]);
    end.request(write(Place::First), 23, &target, &data[..MTU]);
    let done = end.request(write(Place::Last), 24, &[], &data[MTU..]);
    assert!(
        matches!(done.as_slice(), [ack] if matches!(ack.syndrome(), Some(Syndrome::Ack(_))) && ack.psn() == 24)
    );
    assert_eq!(end.bytes(0x4000, 2 * MTU), data);
}

/// B78: the acknowledge of a repeated WRITE speaks for the WRITE, not for the READ that came after it.
#[test]
fn repeated_write_is_acknowledged_with_its_own_number() {
    let mut end = plain();
    let target = end.reth(0x4000, 8);
    end.request(write(Place::Only), 20, &target, &[1; 8]);
    end.request(Opcode::READ_REQUEST, 21, &end.reth(0, 8), &[]);
    let again = end.request(write(Place::Only), 20, &target, &[2; 8]);
    assert!(
        matches!(again.as_slice(), [ack] if ack.psn() == 20 && matches!(ack.syndrome(), Some(Syndrome::Ack(_))))
    );
    assert_eq!(end.bytes(0x4000, 8), [1; 8], "what was carried out is not carried out again");
}

/// B87: a WRITE or READ of no bytes needs no key; one byte does.
#[test]
fn message_of_no_bytes_needs_no_key_and_one_byte_does() {
    for is_read in [false, true] {
        for (len, wanted) in [(0, None), (1, Some(Syndrome::Nak(NakCode::RemoteAccess)))] {
            let mut end = plain();
            let reth = Reth { addr: 0xDEAD, rkey: Key(0xBEEF_0000), len_bytes: len }.build();
            let answers = if is_read {
                end.request(Opcode::READ_REQUEST, 20, &reth, &[])
            } else {
                end.request(write(Place::Only), 20, &reth, &[0; 1][..len as usize])
            };
            let [answer] = answers.as_slice() else { panic!("one answer, not {answers:?}") };
            match wanted {
                None => assert!(matches!(answer.syndrome(), Some(Syndrome::Ack(_)))),
                Some(nak) => assert_eq!(answer.syndrome(), Some(nak)),
            }
            assert_eq!(end.state() == QpState::Error, len == 1);
        }
    }
}

fn fetch_add(end: &End, at: u64, add: u64) -> [u32; 7] {
    let eth = AtomicEth { addr: end.region.addr + at, rkey: end.region.rkey, swap_or_add: add, compare: 0 };
    eth.build()
}

/// B101: memory and returned values are in the processor's order, headers in the network's.
#[test]
fn atomic_values_keep_their_byte_order_on_the_way() {
    const PATTERN: u64 = 0x0102_0304_0506_0708;
    let mut end = plain();
    end.memory.store_u64(64, PATTERN);
    let answers = end.request(Opcode::FETCH_ADD, 20, &fetch_add(&end, 64, 1), &[]);
    let [answer] = answers.as_slice() else { panic!("one answer") };
    assert_eq!(answer.headers().atomic_ack().map(|value| value.0), Some(PATTERN));
    assert_eq!(end.memory.load_u64(64), PATTERN + 1);
    // And as the requester: the value lands in memory as a number.
    end.post(1, SendOp::FetchAdd { addr: 0x1000, rkey: Key(1), add: 5 }, 8);
    let sent = end.sent();
    assert_eq!(sent[0].headers().atomic().map(|eth| eth.swap_or_add), Some(5));
    let ext = [
        Aeth { syndrome: Syndrome::Ack(qhca_verbs::wire::Credits::UNLIMITED), msn: 1 }.build(),
        0x0102_0304,
        0x0506_0708,
    ];
    end.request(Opcode::ATOMIC_ACKNOWLEDGE, 20, &ext, &[]);
    assert_eq!(end.completions(), [(1, WcStatus::Success)]);
    assert_eq!(end.memory.load_u64(0), PATTERN);
}

/// B102: bounds, alignment and rights of atomics, and a repeat that changes memory once.
#[test]
fn atomic_is_bounded_aligned_allowed_and_done_once() {
    let end_of_region = (1 << 16) - 8;
    for (at, wanted) in [
        (end_of_region, None),
        (end_of_region + 4, Some(NakCode::InvalidRequest)),
        (end_of_region + 8, Some(NakCode::RemoteAccess)),
        (61, Some(NakCode::InvalidRequest)),
    ] {
        let mut end = plain();
        let answers = end.request(Opcode::FETCH_ADD, 20, &fetch_add(&end, at, 1), &[]);
        let [answer] = answers.as_slice() else { panic!("one answer") };
        match wanted {
            None => assert!(matches!(answer.syndrome(), Some(Syndrome::Ack(_)))),
            Some(code) => assert_eq!(answer.syndrome(), Some(Syndrome::Nak(code)), "at {at}"),
        }
    }
    let mut end = plain();
    let no_right = end.engine.register(end.pd, &end.memory, 0, 64, Access::LOCAL_WRITE).expect("a region");
    let eth = AtomicEth { addr: no_right.addr, rkey: no_right.rkey, swap_or_add: 1, compare: 0 }.build();
    let answers = end.request(Opcode::FETCH_ADD, 20, &eth, &[]);
    assert_eq!(answers[0].syndrome(), Some(Syndrome::Nak(NakCode::RemoteAccess)));

    let mut end = plain();
    for _ in 0..3 {
        let answers = end.request(Opcode::FETCH_ADD, 20, &fetch_add(&end, 64, 1), &[]);
        assert_eq!(
            answers[0].headers().atomic_ack().map(|value| value.0),
            Some(0),
            "the first answer, again"
        );
    }
    assert_eq!(end.memory.load_u64(64), 1, "memory changed once");
}

/// B103: inline data is taken when it is posted, its key is not looked at, and too much of it is refused.
#[test]
fn inline_data_is_taken_when_it_is_posted() {
    let mut end = plain();
    let mut data = *b"as it was";
    let wr = SendWr {
        wr_id: 1,
        op: SendOp::Send,
        flags: SendFlags::SIGNALED,
        data: Data::Inline(&data),
        to: None,
    };
    end.engine.post_send(end.qp, &wr, end.now).expect("posted");
    data.fill(0);
    let sent = end.sent();
    assert_eq!(&sent[0].payload[..9], b"as it was");
    let wr = SendWr { data: Data::Inline(&[0; 65]), ..SendWr::new(2, SendOp::Send, &[]) };
    let refused = end.engine.post_send(end.qp, &wr, end.now);
    assert_eq!(refused, Err(PostError::InlineTooLong { given: 65, max: 64 }));
}

/// B104, B76: whatever was posted, before or in the error state, is flushed once and in order.
#[test]
fn everything_posted_is_flushed_once_in_order_also_in_the_error_state() {
    let mut end = plain();
    for wr_id in 0..50 {
        end.post(wr_id, end.write_op(), 16);
    }
    end.sent();
    end.engine.post_recv(end.qp, &RecvWr { wr_id: 100, sges: &[] }, end.now).expect("posted");
    end.engine.modify_qp(end.qp, &QpAttr::to(QpState::Error), end.now).expect("always possible");
    end.post(50, end.write_op(), 16);
    end.engine.post_recv(end.qp, &RecvWr { wr_id: 101, sges: &[] }, end.now).expect("posted");
    let wanted: Vec<_> = (0..50).chain([100, 50, 101]).map(|wr_id| (wr_id, WcStatus::Flushed)).collect();
    assert_eq!(end.completions(), wanted);
    assert!(end.sent().is_empty(), "a queue pair in the error state sends nothing");
    end.engine.modify_qp(end.qp, &QpAttr::to(QpState::Reset), end.now).expect("always possible");
    assert_eq!(end.completions(), []);
}

/// B81: never more than 2^23 - 1 numbers under way, also where they wrap.
#[test]
fn window_holds_across_the_wrap_of_the_numbers() {
    let config = Config { window_packets: 10, ..Config::default() };
    let mut end = End::with_config(config, |_, attrs| attrs[2].sq_psn = Some(Psn::new(0xFF_FFFA)));
    end.post(1, end.write_op(), 25 * MTU as u32);
    let first = end.sent();
    assert_eq!(first.len(), 10);
    assert_eq!(first.last().map(Seen::psn), Some(3), "six before the wrap, four after");
    assert!(first.last().is_some_and(|last| last.headers().bth.ack_request), "the last of a window asks");
    assert!(end.sent().is_empty());
    let yes = Syndrome::Ack(qhca_verbs::wire::Credits::UNLIMITED);
    assert_eq!(end.ack(0xFF_FFFF, yes, 0).len(), 6, "as many as were acknowledged");
    assert_eq!(end.ack(9, yes, 0).len(), 9);
    assert!(end.completions().is_empty());
    end.ack(18, yes, 1);
    assert_eq!(end.completions(), [(1, WcStatus::Success)]);
}

/// B83: a sender with endless RNR retries waits by its timer, and can be destroyed or failed at any time.
#[test]
fn sender_that_waits_for_a_receive_sends_nothing_and_can_be_stopped() {
    let mut end = End::new(|_, attrs| attrs[2].rnr_retry = Some(7));
    end.post(1, SendOp::Send, 8);
    assert_eq!(end.sent().len(), 1);
    for round in 0..100 {
        assert!(end.ack(20, Syndrome::RnrNak(12), 0).is_empty(), "round {round}");
        assert!(end.wait(Duration::from_micros(639)).is_empty(), "the pause is 640 us");
        assert_eq!(end.wait(Duration::from_micros(1)).len(), 1);
    }
    end.engine.modify_qp(end.qp, &QpAttr::to(QpState::Error), end.now).expect("always possible");
    assert_eq!(end.completions(), [(1, WcStatus::Flushed)]);
    end.engine.destroy_qp(end.qp).expect("it is there");
    assert!(end.wait(Duration::from_secs(10)).is_empty());
}

/// RNR retries and transport retries are taken literally: so many repeats, and the next failure is the end.
#[test]
fn retry_counts_are_taken_literally() {
    for count in 0..=6 {
        let mut end = End::new(|_, attrs| attrs[2].rnr_retry = Some(count));
        end.post(1, SendOp::Send, 8);
        let mut packets = end.sent().len();
        while end.completions().is_empty() && packets < 20 {
            end.ack(20, Syndrome::RnrNak(1), 0);
            packets += end.wait(Duration::from_micros(10)).len();
        }
        assert_eq!(packets, 1 + usize::from(count), "RNR retry count {count}");
    }
    for count in 0..=7 {
        let mut end = End::new(|_, attrs| attrs[2].retry_count = Some(count));
        end.post(1, SendOp::Send, 8);
        let mut packets = end.sent().len();
        let timeout = qhca_verbs::ack_timeout(10).expect("a time");
        for _ in 0..=count {
            packets += end.wait(timeout).len();
        }
        assert_eq!(packets, 1 + usize::from(count), "retry count {count}");
        assert_eq!(end.completions(), [(1, WcStatus::RetryExceeded)]);
        assert_eq!(end.state(), QpState::Error);
    }
}

/// B84: the code of an RNR NAK is obeyed, 0 included; as an attribute of ours 0 must be asked for by name.
#[test]
fn every_rnr_code_is_obeyed_and_zero_is_refused_as_an_attribute() {
    for code in 0..32 {
        let mut end = plain();
        end.post(1, SendOp::Send, 8);
        end.sent();
        end.ack(20, Syndrome::RnrNak(code), 0);
        let pause = qhca_verbs::rnr_pause(code);
        assert!(end.wait(Duration::from_nanos(pause.as_nanos() - 1)).is_empty(), "code {code}");
        assert_eq!(end.wait(Duration::from_nanos(1)).len(), 1, "code {code}");
    }
    let mut end = plain();
    let zero = QpAttr { min_rnr_timer: Some(RnrTimer::Code(0)), ..QpAttr::default() };
    let refused = end.engine.modify_qp(end.qp, &zero, end.now);
    assert_eq!(refused, Err(qhca_verbs::ModifyError::RnrTimerZero));
    let named = QpAttr { min_rnr_timer: Some(RnrTimer::Longest655Ms), ..QpAttr::default() };
    end.engine.modify_qp(end.qp, &named, end.now).expect("asked for by name");
    let answers = end.request(send(Place::Only), 20, &[], &[1; 8]);
    assert_eq!(answers[0].syndrome(), Some(Syndrome::RnrNak(0)));
}

/// B85: a peer that does not make the pause is told again each time, and nothing gets out of step.
#[test]
fn peer_that_repeats_too_early_is_told_again() {
    let mut end = plain();
    for _ in 0..5 {
        let answers = end.request(send(Place::Only), 20, &[], &[1; 8]);
        assert!(
            matches!(answers.as_slice(), [nak] if nak.syndrome() == Some(Syndrome::RnrNak(12)) && nak.psn() == 20)
        );
    }
    let sge = [end.region.sge(0x100, 64)];
    end.engine.post_recv(end.qp, &RecvWr { wr_id: 9, sges: &sge }, end.now).expect("posted");
    let answers = end.request(send(Place::Only), 20, &[], &[1; 8]);
    assert!(matches!(answers[0].syndrome(), Some(Syndrome::Ack(_))));
    assert_eq!(end.completions(), [(9, WcStatus::Success)]);
    assert_eq!(end.engine.qp_counts(end.qp).map(|counts| counts.rnr_naks_sent), Some(5));
}

/// B26: a packet that is sent again is the packet that was sent first, for every operation.
#[test]
fn repeated_packet_equals_the_first() {
    let ops = |end: &End| {
        [
            SendOp::Send,
            SendOp::SendImmediate(5),
            end.write_op(),
            SendOp::Read { addr: 0x1000, rkey: Key(0x55) },
            SendOp::WriteImmediate { addr: 0x1000, rkey: Key(0x55), immediate: 6 },
        ]
    };
    let mut end = plain();
    for (wr_id, op) in ops(&end).into_iter().enumerate() {
        end.post(wr_id as u64, op, 3 * MTU as u32 - 1);
    }
    let first = end.sent();
    let timeout = qhca_verbs::ack_timeout(10).expect("a time");
    let second = end.wait(timeout);
    assert_eq!(first.len(), 3 * 4 + 1);
    assert_eq!(second.len(), first.len());
    for (one, two) in first.iter().zip(&second) {
        assert_eq!((&one.words, &one.payload), (&two.words, &two.payload));
    }
}

/// A gap is told once; what comes behind it is not told again until it is closed.
#[test]
fn gap_is_told_once_until_it_is_closed() {
    let mut end = plain();
    let target = end.reth(0x4000, 8);
    let naks = end.request(write(Place::Only), 21, &target, &[1; 8]);
    assert!(matches!(naks.as_slice(), [nak] if nak.psn() == 20
        && nak.syndrome() == Some(Syndrome::Nak(NakCode::SequenceError))));
    assert!(end.request(write(Place::Only), 22, &target, &[1; 8]).is_empty());
    assert_eq!(end.request(write(Place::Only), 20, &target, &[1; 8]).len(), 1);
    assert_eq!(end.request(write(Place::Only), 22, &target, &[1; 8]).len(), 1, "the next gap is told anew");
    assert_eq!(end.engine.counters().dropped(DropReason::OutOfSequence), 3);
}

/// What a packet's opcode may not be in the state of the message it belongs to.
#[test]
fn packet_that_does_not_continue_the_message_is_an_invalid_request() {
    for opcode in [write(Place::Middle), write(Place::Last), send(Place::Middle), send(Place::Last)] {
        let mut end = plain();
        let answers = end.request(opcode, 20, &[], &[0; MTU]);
        assert_eq!(answers[0].syndrome(), Some(Syndrome::Nak(NakCode::InvalidRequest)), "{opcode}");
        assert_eq!(end.state(), QpState::Error);
        assert_eq!(end.engine.poll_event(), Some(Event::QpRequestError(end.qp)));
        assert!(end.request(opcode, 20, &[], &[0; MTU]).is_empty(), "silence afterwards");
    }
}

/// A packet of the wrong port, queue pair, partition or service changes nothing and is counted.
#[test]
fn packet_that_is_not_for_this_connection_changes_nothing() {
    let mut end = plain();
    let target = end.reth(0x4000, 8);
    let right = end.bth(write(Place::Only), 20, 0);
    for (bth, reason) in [
        (Bth { dest_qp: QpNumber::new(99), ..right }, DropReason::NoSuchQp),
        (Bth { pkey: 0x1234, ..right }, DropReason::PKey),
        (
            Bth { opcode: Opcode::write(Service::Uc, Place::Only, Extra::None), ..right },
            DropReason::WrongService,
        ),
        (Bth { opcode: Opcode(0x1F), ..right }, DropReason::Malformed),
    ] {
        let before = end.engine.counters().dropped(reason);
        end.deliver(bth, &target, &[1; 8]);
        assert!(end.sent().is_empty());
        assert_eq!(end.engine.counters().dropped(reason), before + 1, "{reason}");
    }
    assert_eq!(end.bytes(0x4000, 8), [0; 8]);
    assert_eq!(end.engine.counters().pkey_violations, 1);
    assert_eq!(end.request(write(Place::Only), 20, &target, &[1; 8]).len(), 1, "the right one is taken");
}

/// B100: no more READs under way than the initiator depth; a depth above the limit is refused.
#[test]
fn reads_beyond_the_depth_wait_and_a_depth_beyond_the_limit_is_refused() {
    let mut end = plain();
    for wr_id in 0..32 {
        end.post(wr_id, SendOp::Read { addr: 0x1000, rkey: Key(0x55) }, 8);
    }
    let sent = end.sent();
    assert_eq!(sent.len(), 4, "as many as max_rd_atomic");
    let aeth = Aeth { syndrome: Syndrome::Ack(qhca_verbs::wire::Credits::UNLIMITED), msn: 1 }.build();
    let more = end.request(Opcode::read_response(Place::Only), 20, &[aeth], &[0; 8]);
    assert!(matches!(more.as_slice(), [read] if read.headers().meaning.operation == Operation::ReadRequest));
    let sqd = QpAttr::to(QpState::Sqd);
    end.engine.modify_qp(end.qp, &sqd, end.now).expect("from RTS");
    let deeper = QpAttr { max_rd_atomic: Some(17), ..QpAttr::default() };
    assert!(matches!(
        end.engine.modify_qp(end.qp, &deeper, end.now),
        Err(qhca_verbs::ModifyError::Value { value: 17, max: 16, .. })
    ));
}

/// A send queue that drains finishes what it began, begins nothing, and tells when it is done.
#[test]
fn draining_send_queue_finishes_what_it_began_and_tells() {
    let config = Config { window_packets: 2, ..Config::default() };
    let mut end = End::with_config(config, |_, _| {});
    end.post(1, end.write_op(), 3 * MTU as u32);
    end.post(2, end.write_op(), 8);
    assert_eq!(end.sent().len(), 2);
    let sqd = QpAttr { state: Some(QpState::Sqd), drained_event: Some(true), ..QpAttr::default() };
    end.engine.modify_qp(end.qp, &sqd, end.now).expect("from RTS");
    let yes = Syndrome::Ack(qhca_verbs::wire::Credits::UNLIMITED);
    assert_eq!(end.ack(21, yes, 0).len(), 1, "the rest of what was begun");
    assert_eq!(end.engine.poll_event(), None);
    assert!(end.ack(22, yes, 1).is_empty(), "the second does not begin");
    assert_eq!(end.engine.poll_event(), Some(Event::SendQueueDrained(end.qp)));
    assert_eq!(end.completions(), [(1, WcStatus::Success)]);
    end.engine.modify_qp(end.qp, &QpAttr::to(QpState::Rts), end.now).expect("from SQD");
    assert_eq!(end.sent().len(), 1);
}

/// An armed queue tells of a solicited message and not of another.
#[test]
fn solicited_message_raises_the_event_that_was_armed_for_it() {
    let mut end = plain();
    let sge = [end.region.sge(0x100, 64)];
    for wr_id in 0..2 {
        end.engine.post_recv(end.qp, &RecvWr { wr_id, sges: &sge }, end.now).expect("posted");
    }
    end.engine.arm_cq(end.cq, Arm::Solicited, end.now);
    end.deliver(end.bth(send(Place::Only), 20, 0), &[], &[1; 8]);
    assert_eq!(end.engine.poll_event(), None);
    end.deliver(Bth { solicited: true, ..end.bth(send(Place::Only), 21, 0) }, &[], &[1; 8]);
    assert_eq!(end.engine.poll_event(), Some(Event::Completion(end.cq)));
}

/// B82: thousands of connections made and destroyed leave nothing behind, and numbers are used again.
#[test]
fn five_thousand_queue_pairs_made_and_destroyed_leave_nothing_behind() {
    let mut end = plain();
    let mut numbers = std::collections::BTreeSet::new();
    for _ in 0..5000 {
        let qp = end.engine.create_qp(&QpInit::new(Service::Rc, end.pd, end.cq)).expect("a queue pair");
        numbers.insert(qp);
        end.engine.destroy_qp(qp).expect("it is there");
    }
    assert!(numbers.len() < 100, "{} numbers", numbers.len());
    end.engine.destroy_qp(end.qp).expect("it is there");
    assert!(end.engine.destroy_cq(end.cq).is_ok(), "nobody uses it any more");
}

/// B168: a failure says its status, queue pair, peer, operation and likely cause.
#[test]
fn failure_is_explained_with_queue_pair_peer_operation_and_cause() {
    let mut end = End::new(|_, attrs| attrs[2].retry_count = Some(0));
    end.post(1, SendOp::Send, 8);
    end.sent();
    end.wait(qhca_verbs::ack_timeout(10).expect("a time"));
    let mut wc = [Wc::EMPTY];
    assert_eq!(end.engine.poll_cq(end.cq, &mut wc), 1);
    assert!(wc[0].detail().is_none(), "B71: of a failure only id, status and queue pair mean anything");
    let text = end.engine.explain(&wc[0]);
    for part in ["QP 2", "QP 119", "LID 2", "SEND", "retry count exceeded", "status 12", "the peer is gone"] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
}

/// B70: the name of a completion queue that is gone names nothing, also after its place was used again.
#[test]
fn name_of_a_destroyed_completion_queue_names_nothing() {
    let mut end = plain();
    let mut old = Vec::new();
    for _ in 0..200 {
        let cq = end.engine.create_cq(4).expect("a queue");
        end.engine.destroy_cq(cq).expect("unused");
        old.push(cq);
    }
    let cq = end.engine.create_cq(4).expect("a queue");
    assert!(!old.contains(&cq));
    assert!(old.iter().all(|cq| end.engine.destroy_cq(*cq).is_err() && end.engine.cq(*cq).is_none()));
}

/// B46: a queue that is destroyed while a hundred completions wait in it wakes nobody any more, whatever comes and goes.
#[test]
fn queue_destroyed_with_a_hundred_completions_unpolled_wakes_nobody_any_more() {
    let mut end = plain();
    end.engine.arm_cq(end.cq, Arm::Next, end.now);
    (0..100).for_each(|wr_id| end.post(wr_id, end.write_op(), 16));
    end.engine.modify_qp(end.qp, &QpAttr::to(QpState::Error), end.now).expect("always possible");
    assert_eq!(end.engine.cq(end.cq).map(|queue| queue.len()), Some(100));
    end.engine.arm_cq(end.cq, Arm::Next, end.now);
    end.engine.destroy_qp(end.qp).expect("it is there");
    end.engine.destroy_cq(end.cq).expect("unused");
    for _ in 0..1000 {
        assert!(end.wait(Duration::from_millis(10)).is_empty());
        end.request(write(Place::Only), 20, &end.reth(0, 8), &[1; 8]);
        assert_eq!(end.engine.poll_event(), None);
        assert_eq!(end.engine.next_timeout(), None, "nothing is left that would wake anybody");
    }
}

/// A memory window opens what it is bound to, for its queue pair, until it is invalidated; a stale key opens nothing.
#[test]
fn window_opens_its_part_until_it_is_invalidated() {
    let mut end = plain();
    let window = end.engine.allocate_window(end.pd).expect("a window");
    let op = SendOp::BindWindow { rkey: window.rkey, key_part: 0x33, access: Access::REMOTE_WRITE };
    let part = [end.region.sge(0x2000, 64)];
    end.engine.post_send(end.qp, &SendWr::new(1, op, &part), end.now).expect("posted");
    end.sent();
    assert_eq!(end.completions(), [(1, WcStatus::Success)]);
    let rkey = Key(window.rkey.0 & !0xFF | 0x33);
    let inside = Reth { addr: end.region.addr + 0x2000, rkey, len_bytes: 8 }.build();
    let answers = end.request(write(Place::Only), 20, &inside, &[3; 8]);
    assert!(matches!(answers[0].syndrome(), Some(Syndrome::Ack(_))));
    assert!(matches!(
        end.engine.deregister(end.region.lkey),
        Err(qhca_verbs::MemoryError::Busy { windows: 1, .. })
    ));
    let unbind = SendWr::new(2, SendOp::LocalInvalidate(rkey), &[]);
    end.engine.post_send(end.qp, &unbind, end.now).expect("posted");
    end.sent();
    assert_eq!(end.completions(), [(2, WcStatus::Success)]);
    let answers = end.request(write(Place::Only), 21, &inside, &[4; 8]);
    assert_eq!(answers[0].syndrome(), Some(Syndrome::Nak(NakCode::RemoteAccess)));
    assert_eq!(end.bytes(0x2000, 8), [3; 8]);
}
