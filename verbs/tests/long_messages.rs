//! Messages as long as they get, and many connections at once.

use std::sync::Arc;

use qhca_driver::dma::DmaMemory;
use qhca_regs::{Duration, Instant, Lid};
use qhca_verbs::wire::{Aeth, Bth, Credits, Headers, Lrh, NextHeader, Opcode, Operation, Service, Syndrome};
use qhca_verbs::{
    Access, AddressVector, Config, CqId, Engine, Full, Key, MemoryRegion, Mtu, Outgoing, Payload, Port, Psn,
    QpAttr, QpInit, QpNumber, QpState, SendOp, SendWr, Wc, WcStatus,
};

const PEER: Lid = Lid(2);

/// A reliable connection to a peer that never speaks by itself.
fn connect(engine: &mut Engine, init: &QpInit, mtu: Mtu, timeout: u8) -> QpNumber {
    let qp = engine.create_qp(init).expect("a queue pair");
    let attrs = [
        QpAttr {
            state: Some(QpState::Init),
            access: Some(Access::empty()),
            pkey_index: Some(0),
            port: Some(1),
            ..QpAttr::default()
        },
        QpAttr {
            state: Some(QpState::Rtr),
            address: Some(AddressVector { dlid: PEER, ..AddressVector::default() }),
            path_mtu: Some(mtu),
            dest_qp: Some(QpNumber::new(9)),
            rq_psn: Some(Psn::new(0)),
            max_dest_rd_atomic: Some(1),
            min_rnr_timer: Some(qhca_verbs::RnrTimer::Code(12)),
            ..QpAttr::default()
        },
        QpAttr {
            state: Some(QpState::Rts),
            sq_psn: Some(Psn::new(0xFF_FF00)),
            timeout: Some(timeout),
            retry_count: Some(7),
            rnr_retry: Some(7),
            max_rd_atomic: Some(4),
            ..QpAttr::default()
        },
    ];
    for attr in attrs {
        engine.modify_qp(qp, &attr, Instant::ZERO).expect("the attributes suit");
    }
    qp
}

fn engine(bytes: usize) -> (Engine, MemoryRegion, CqId, QpInit, Arc<DmaMemory>) {
    let mut engine = Engine::new(Config::default(), Port { lid: Lid(1), ..Port::default() });
    let pd = engine.allocate_pd();
    let memory = Arc::new(DmaMemory::new(bytes).expect("memory"));
    let region = engine.register(pd, &memory, 0, bytes, Access::LOCAL_WRITE).expect("a region");
    let cq = engine.create_cq(4096).expect("a completion queue");
    (engine, region, cq, QpInit::new(Service::Rc, pd, cq), memory)
}

fn acknowledge(engine: &mut Engine, qp: QpNumber, psn: Psn) {
    let lrh = Lrh { vl: 0, sl: 0, next: NextHeader::Bth, dlid: Lid(1), len_dwords: 7, slid: PEER };
    let bth = Bth {
        opcode: Opcode::ACKNOWLEDGE,
        solicited: false,
        migrated: true,
        pad: 0,
        pkey: 0xFFFF,
        fecn: false,
        becn: false,
        dest_qp: qp,
        ack_request: false,
        psn,
    };
    let aeth = Aeth { syndrome: Syndrome::Ack(Credits::UNLIMITED), msn: 1 };
    let mut words = lrh.build().to_vec();
    words.extend(bth.build());
    words.push(aeth.build());
    engine.on_packet(&words, Payload::EMPTY, Instant::ZERO);
}

/// B25: only the last packet of a message whose length is no multiple of four is padded, and the length is exact.
#[test]
fn only_the_last_packet_of_a_long_message_is_padded() {
    const BASE: u32 = 1 << 27;
    let (mut engine, region, cq, init, _memory) = engine(BASE as usize + 4096);
    for op in [SendOp::Send, SendOp::Write { addr: 0, rkey: Key(7) }] {
        for more in 0..4 {
            let qp = connect(&mut engine, &init, Mtu::B4096, 0);
            let list = [region.sge(0, BASE + more)];
            engine.post_send(qp, &SendWr::new(u64::from(more), op, &list), Instant::ZERO).expect("posted");
            let (mut bytes, mut padded, mut last) = (0, Vec::new(), Psn::new(0));
            let mut wire = |packet: &Outgoing<'_>| -> Result<(), Full> {
                let words: Vec<u32> = packet.header.iter().map(|word| u32::from_be(*word)).collect();
                let h = Headers::parse(&words, packet.payload.len()).expect("it can be read");
                bytes += h.payload_bytes() as u64;
                if h.bth.pad > 0 {
                    padded.push((h.meaning.place.ends(), h.bth.pad));
                }
                last = h.bth.psn;
                Ok(())
            };
            engine.transmit(&mut wire, Instant::ZERO, usize::MAX);
            assert_eq!(bytes, u64::from(BASE + more));
            assert_eq!(padded, if more == 0 { vec![] } else { vec![(true, 4 - more as u8)] });
            acknowledge(&mut engine, qp, last);
            let mut wc = [Wc::EMPTY];
            assert_eq!(engine.poll_cq(cq, &mut wc), 1);
            assert_eq!(wc[0].detail().map(|detail| detail.len_bytes), Some(BASE + more));
        }
    }
}

/// A READ of 2^31 bytes at the smallest MTU takes 2^23 numbers, more than may be under way: it goes in parts.
#[test]
fn longest_read_is_asked_for_in_parts_that_fit_the_window() {
    let (mut engine, _region, _cq, init, memory) = engine(4096);
    // The list is longer than the memory: nothing is read or written before an answer comes.
    let qp = connect(&mut engine, &init, Mtu::B256, 0);
    let list = [qhca_verbs::Sge { addr: memory.address() as u64, len_bytes: 1 << 31, lkey: Key(0) }];
    let op = SendOp::Read { addr: 0x1000, rkey: Key(7) };
    engine.post_send(qp, &SendWr::new(1, op, &list), Instant::ZERO).expect("posted");
    let mut parts = Vec::new();
    let mut wire = |packet: &Outgoing<'_>| -> Result<(), Full> {
        let words: Vec<u32> = packet.header.iter().map(|word| u32::from_be(*word)).collect();
        let h = Headers::parse(&words, 0).expect("it can be read");
        assert_eq!(h.meaning.operation, Operation::ReadRequest);
        parts.push((h.bth.psn, h.reth().expect("a READ has one")));
        Ok(())
    };
    engine.transmit(&mut wire, Instant::ZERO, 100);
    assert_eq!(parts.len(), 4, "as many as max_rd_atomic");
    for (at, (psn, reth)) in parts.iter().enumerate() {
        let packets = Config::default().read_split_packets;
        assert_eq!(reth.len_bytes, packets * 256);
        assert_eq!(reth.addr, 0x1000 + at as u64 * u64::from(packets) * 256);
        assert_eq!(*psn, Psn::new(0xFF_FF00).plus(at as u32 * packets));
    }
    let long = [qhca_verbs::Sge { len_bytes: (1 << 31) + 1, ..list[0] }];
    let refused = engine.post_send(qp, &SendWr::new(2, op, &long), Instant::ZERO);
    assert!(matches!(refused, Err(qhca_verbs::PostError::TooLong { .. })));
}

/// B20: a thousand connections to a peer that has died are closed at once, each request accounted for.
#[test]
fn thousand_connections_to_a_silent_peer_close_at_once() {
    let (mut engine, region, cq, init, _memory) = engine(4096);
    let small = QpInit { max_send: 4, max_recv: 4, ..init };
    let qps: Vec<QpNumber> = (0..1000).map(|_| connect(&mut engine, &small, Mtu::B2048, 14)).collect();
    for qp in &qps {
        let list = [region.sge(0, 8)];
        engine.post_send(*qp, &SendWr::new(1, SendOp::Send, &list), Instant::ZERO).expect("posted");
    }
    let mut silence = |_: &Outgoing<'_>| -> Result<(), Full> { Ok(()) };
    assert_eq!(engine.transmit(&mut silence, Instant::ZERO, 5000), 1000);
    for qp in &qps {
        engine.modify_qp(*qp, &QpAttr::to(QpState::Error), Instant::ZERO).expect("always possible");
    }
    let mut wcs = vec![Wc::EMPTY; 2000];
    let count = engine.poll_cq(cq, &mut wcs);
    assert_eq!(count, 1000);
    assert!(wcs[..count].iter().all(|wc| wc.status == WcStatus::Flushed));
    qps.iter().for_each(|qp| engine.destroy_qp(*qp).expect("it is there"));
    assert_eq!(engine.destroy_cq(cq), Ok(()));
}

/// B86: a timer of a queue pair that is gone does nothing to the one that has its place.
#[test]
fn timer_of_a_destroyed_queue_pair_does_not_touch_its_successor() {
    let (mut engine, region, cq, init, _memory) = engine(4096);
    let list = [region.sge(0, 8)];
    let mut silence = |_: &Outgoing<'_>| -> Result<(), Full> { Ok(()) };
    for round in 0..300 {
        let qp = connect(&mut engine, &init, Mtu::B2048, 10);
        engine.post_send(qp, &SendWr::new(round, SendOp::Send, &list), Instant::ZERO).expect("posted");
        engine.transmit(&mut silence, Instant::ZERO, 10);
        engine.destroy_qp(qp).expect("it is there");
    }
    let last = connect(&mut engine, &init, Mtu::B2048, 0);
    engine.post_send(last, &SendWr::new(999, SendOp::Send, &list), Instant::ZERO).expect("posted");
    engine.transmit(&mut silence, Instant::ZERO, 10);
    engine.on_timeout(Instant::ZERO + Duration::from_secs(1));
    assert_eq!(engine.counters().timeouts, 0);
    assert_eq!(engine.qp_state(last), Some(QpState::Rts));
    assert_eq!(engine.next_timeout(), None, "nothing is left behind");
    let mut wc = [Wc::EMPTY];
    assert_eq!(engine.poll_cq(cq, &mut wc), 0);
}
