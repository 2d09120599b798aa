//! Packets: their headers, and what a queue pair in any state makes of them.
//!
//! Input: one byte for the state of the queue pair, one for the payload's length in words, then the packet. The headers
//! are held against a second reading of the same bytes, one field at a time; the engine must survive the packet,
//! answer it with packets that can be read, and write nothing outside the memory that it was given.

#![no_main]

use std::cell::RefCell;
use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use qhca_driver::dma::DmaMemory;
use qhca_fuzz::Bytes;
use qhca_regs::{Instant, Lid};
use qhca_verbs::wire::{Headers, Service, words_of};
use qhca_verbs::{
    Access, AddressVector, Config, Engine, Full, Mtu, Outgoing, Payload, Port, Psn, QpAttr, QpInit, QpNumber,
    QpState, RecvWr, RnrTimer, SendOp, SendWr,
};

/// Bytes of memory, of which the middle half is registered.
const MEMORY_BYTES: usize = 4096;
const GUARD: u8 = 0xA5;

thread_local! {
    static MEMORY: RefCell<Option<Arc<DmaMemory>>> = const { RefCell::new(None) };
}

fuzz_target!(|input: &[u8]| {
    let mut bytes = Bytes::new(input);
    let (state, payload_words) = (bytes.u8(), usize::from(bytes.u8()) % 72);
    let rest = bytes.rest();
    let (header, payload) = rest.split_at(rest.len().saturating_sub(payload_words * 4));
    let mut payload = payload.to_vec();
    payload.resize(payload_words * 4, 0);
    let words = words_of(header);
    check_headers(&words, payload_words);
    feed(state, &words, &payload);
});

fn check_headers(words: &[u32], payload_words: usize) {
    let Ok(h) = Headers::parse(words, payload_words) else { return };
    let bth = if words[0] >> 16 & 3 == 3 { 12 } else { 2 };
    let pad = (words[bth] >> 20 & 3) as usize;
    assert_eq!(h.bth.dest_qp.get(), words[bth + 1] & 0xFF_FFFF);
    assert_eq!(h.bth.psn.get(), words[bth + 2] & 0xFF_FFFF);
    assert_eq!(usize::from(h.lrh.len_dwords), words.len() + payload_words + 1);
    assert_eq!(h.payload_bytes() + pad, (h.rest().len() + payload_words) * 4, "payload and pad fill it: {h}");
    assert!(h.bth.opcode.meaning().is_some());
}

/// An engine with one queue pair in `state`, which takes the packet.
fn feed(state: u8, words: &[u32], payload: &[u8]) {
    let memory = MEMORY.with_borrow_mut(|slot| {
        slot.get_or_insert_with(|| Arc::new(DmaMemory::new(MEMORY_BYTES).expect("memory"))).clone()
    });
    memory.copy_in(0, &[GUARD; MEMORY_BYTES]);
    let mut engine = Engine::new(Config::default(), Port { lid: Lid(1), ..Port::default() });
    let pd = engine.allocate_pd();
    let all = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
    let zero_based = all | Access::ZERO_BASED;
    let (from, len) = (MEMORY_BYTES / 4, MEMORY_BYTES / 2);
    let region = engine.register(pd, &memory, from, len, zero_based).expect("a region");
    let cq = engine.create_cq(16).expect("a queue");
    let service = [Service::Rc, Service::Uc, Service::Ud][usize::from(state) / 8 % 3];
    let qp = engine.create_qp(&QpInit::new(service, pd, cq)).expect("a queue pair");
    bring(&mut engine, qp, service, usize::from(state) % 8);
    let sge = [region.sge(0, 300)];
    engine.post_recv(qp, &RecvWr { wr_id: 1, sges: &sge }, Instant::ZERO).ok();
    let read = SendOp::Read { addr: 0, rkey: region.rkey };
    engine.post_send(qp, &SendWr::new(2, read, &sge), Instant::ZERO).ok();
    engine.post_send(qp, &SendWr::new(3, SendOp::Send, &sge), Instant::ZERO).ok();
    let mut wire = |packet: &Outgoing<'_>| -> Result<(), Full> {
        let words: Vec<u32> = packet.header.iter().map(|word| u32::from_be(*word)).collect();
        assert!(Headers::parse(&words, packet.payload.len()).is_ok(), "what is sent can be read");
        Ok(())
    };
    engine.transmit(&mut wire, Instant::ZERO, 64);
    engine.on_packet(words, Payload::Bytes(payload), Instant::ZERO);
    engine.transmit(&mut wire, Instant::ZERO, 64);
    let mut seen = [0; MEMORY_BYTES];
    memory.copy_out(0, &mut seen);
    let outside = seen[..from].iter().chain(&seen[from + len..]);
    assert!(outside.into_iter().all(|byte| *byte == GUARD), "nothing is written outside the region");
}

/// Moves the queue pair up to `steps` states on.
fn bring(engine: &mut Engine, qp: QpNumber, service: Service, steps: usize) {
    let connected = service != Service::Ud;
    let reliable = service == Service::Rc;
    let all = Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
    let init = QpAttr {
        state: Some(QpState::Init),
        access: connected.then_some(all),
        qkey: (!connected).then_some(0x1111_1111),
        pkey_index: Some(0),
        port: Some(1),
        ..QpAttr::default()
    };
    let rtr = QpAttr {
        state: Some(QpState::Rtr),
        address: connected.then(|| AddressVector { dlid: Lid(2), ..AddressVector::default() }),
        path_mtu: connected.then_some(Mtu::B256),
        dest_qp: connected.then_some(QpNumber::new(2)),
        rq_psn: connected.then_some(Psn::new(0)),
        max_dest_rd_atomic: reliable.then_some(2),
        min_rnr_timer: reliable.then_some(RnrTimer::Code(1)),
        ..QpAttr::default()
    };
    let rts = QpAttr {
        state: Some(QpState::Rts),
        sq_psn: Some(Psn::new(0)),
        timeout: reliable.then_some(14),
        retry_count: reliable.then_some(7),
        rnr_retry: reliable.then_some(7),
        max_rd_atomic: reliable.then_some(2),
        ..QpAttr::default()
    };
    let last = QpAttr::to(if steps == 5 { QpState::Error } else { QpState::Sqd });
    for attr in [init, rtr, rts, last].iter().take(if steps > 4 { 4 } else { steps }) {
        engine.modify_qp(qp, attr, Instant::ZERO).expect("the attributes suit");
    }
}
