//! Field reports that take two ends: what people met with other stacks, played on ours.

use std::collections::VecDeque;
use std::sync::Arc;

use qhca_driver::dma::DmaMemory;
use qhca_regs::{Duration, Instant, Lid};
use qhca_verbs::perf::{self, EndSetup, Job, PerfError, PingPong, Verb, drive};
use qhca_verbs::port::Turn;
use qhca_verbs::wire::Service;
use qhca_verbs::{
    Access, Connect, CqId, Engine, Full, MemoryRegion, Mtu, Outgoing, Payload, Port, Psn, QpAttr, QpInit,
    QpNumber, QpState, RecvWr, SendOp, SendWr, Turned, Wc, WcOpcode, WcStatus,
};

const BYTES: u32 = 1 << 16;

type Packet = (Vec<u32>, Vec<u8>);

/// One end, and what it has sent and nobody has taken.
struct End {
    engine: Engine,
    region: MemoryRegion,
    memory: Arc<DmaMemory>,
    cq: CqId,
    qp: QpNumber,
    sent: VecDeque<Packet>,
    /// Packets that the wire has room for.
    room: usize,
}

impl End {
    fn new(lid: u16) -> Self {
        let mut engine =
            Engine::new(qhca_verbs::Config::default(), Port { lid: Lid(lid), ..Port::default() });
        let pd = engine.allocate_pd();
        let memory = Arc::new(DmaMemory::new(BYTES as usize).expect("memory"));
        let all = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
        let region = engine.register(pd, &memory, 0, BYTES as usize, all).expect("a region");
        let cq = engine.create_cq(256).expect("a completion queue");
        let qp = engine.create_qp(&QpInit::new(Service::Rc, pd, cq)).expect("a queue pair");
        Self { engine, region, memory, cq, qp, sent: VecDeque::new(), room: usize::MAX }
    }

    fn transmit(&mut self, now: Instant) {
        let Self { engine, sent, room, .. } = self;
        let mut wire = |out: &Outgoing<'_>| {
            if *room == 0 {
                return Err(Full);
            }
            *room -= 1;
            let words = out.header.iter().map(|word| u32::from_be(*word)).collect();
            sent.push_back((words, out.payload.iter().flat_map(|word| word.to_ne_bytes()).collect()));
            Ok(())
        };
        engine.transmit(&mut wire, now, usize::MAX);
    }

    fn take(&mut self, (words, payload): &Packet, now: Instant) {
        self.engine.on_packet(words, Payload::Bytes(payload), now);
    }

    fn poll(&mut self) -> Vec<Wc> {
        let mut wcs = [Wc::EMPTY; 64];
        let count = self.engine.poll_cq(self.cq, &mut wcs);
        wcs[..count].to_vec()
    }

    fn post(&mut self, wr_id: u64, op: SendOp, bytes: u32) {
        let list = [self.region.sge(0, bytes)];
        self.engine.post_send(self.qp, &SendWr::new(wr_id, op, &list), Instant::ZERO).expect("posted");
    }

    fn receive(&mut self, wr_id: u64) {
        let list = [self.region.sge(0, 4096)];
        let wr = RecvWr { wr_id, sges: &list };
        self.engine.post_recv(self.qp, &wr, Instant::ZERO).expect("posted");
    }
}

fn connect(a: &mut End, b: &mut End) {
    let with = |lid, qp| Connect::new(Lid(lid), qp, Mtu::B1024);
    a.engine.connect(a.qp, &with(2, b.qp), Instant::ZERO).expect("connected");
    b.engine.connect(b.qp, &with(1, a.qp), Instant::ZERO).expect("connected");
}

fn pair() -> (End, End) {
    let (mut a, mut b) = (End::new(1), End::new(2));
    connect(&mut a, &mut b);
    (a, b)
}

/// Carries packets to and fro until nobody has any.
fn carry(a: &mut End, b: &mut End, now: Instant) {
    loop {
        a.transmit(now);
        b.transmit(now);
        if a.sent.is_empty() && b.sent.is_empty() {
            return;
        }
        while let Some(packet) = a.sent.pop_front() {
            b.take(&packet, now);
        }
        while let Some(packet) = b.sent.pop_front() {
            a.take(&packet, now);
        }
    }
}

/// B88: the wire has no room in the middle of the answer to a READ. The rest of the answer comes when it has, the READ is
/// done, and the region can be given back.
#[test]
fn answer_to_a_read_that_found_no_room_comes_later_and_its_region_can_be_given_back() {
    let (mut a, mut b) = pair();
    b.memory.copy_in(0, &[7; 8192]);
    let op = SendOp::Read { addr: b.region.addr, rkey: b.region.rkey };
    a.post(1, op, 8192);
    b.room = 3;
    carry(&mut a, &mut b, Instant::ZERO);
    assert!(a.poll().is_empty(), "a part of the answer is on its way");
    b.room = usize::MAX;
    carry(&mut a, &mut b, Instant::ZERO);
    assert_eq!(a.poll().iter().map(|wc| wc.status).collect::<Vec<_>>(), [WcStatus::Success]);
    let mut seen = [0; 8192];
    a.memory.copy_out(0, &mut seen);
    assert_eq!(seen, [7; 8192]);
    let keys = b.engine.keys_in_use();
    b.engine.deregister(b.region.lkey).expect("nobody holds it");
    assert_eq!(b.engine.keys_in_use(), keys - 1);
}

/// B92: a long WRITE and right behind it a short one with immediate; the responder's acknowledges are held back until it
/// has both, and one for the last is enough for both.
#[test]
fn one_acknowledge_completes_a_long_write_and_the_short_one_behind_it_in_order() {
    let (mut a, mut b) = pair();
    b.receive(9);
    a.post(1, SendOp::Write { addr: b.region.addr, rkey: b.region.rkey }, 60_000);
    let op = SendOp::WriteImmediate { addr: b.region.addr, rkey: b.region.rkey, immediate: 5 };
    a.post(2, op, 16);
    a.transmit(Instant::ZERO);
    // Everything arrives before the responder says a word.
    while let Some(packet) = a.sent.pop_front() {
        b.take(&packet, Instant::ZERO);
    }
    b.transmit(Instant::ZERO);
    let last = b.sent.pop_back().expect("an acknowledge");
    a.take(&last, Instant::ZERO);
    let done: Vec<_> = a.poll().iter().map(|wc| (wc.wr_id, wc.status)).collect();
    assert_eq!(done, [(1, WcStatus::Success), (2, WcStatus::Success)]);
    assert_eq!(a.engine.qp_counts(a.qp).expect("it is there").timeouts, 0);
    assert_eq!(b.poll()[0].detail().expect("it succeeded").opcode, WcOpcode::RecvWriteImmediate);
}

/// B105: completions wait when the connection ends. All are polled, every buffer comes back, and it can be made anew a
/// thousand times.
#[test]
fn connection_that_ends_with_completions_waiting_gives_everything_back_a_thousand_times() {
    let (mut a, mut b) = (End::new(1), End::new(2));
    for round in 0..1000 {
        connect(&mut a, &mut b);
        (0..8).for_each(|wr_id| b.receive(wr_id));
        (0..4).for_each(|wr_id| a.post(wr_id, SendOp::Send, 64));
        carry(&mut a, &mut b, Instant::ZERO);
        (4..6).for_each(|wr_id| a.post(wr_id, SendOp::Send, 64));
        for end in [&mut a, &mut b] {
            end.engine.modify_qp(end.qp, &QpAttr::to(QpState::Error), Instant::ZERO).expect("from anywhere");
        }
        let (sends, receives) = (a.poll(), b.poll());
        let ids = |wcs: &[Wc]| wcs.iter().map(|wc| wc.wr_id).collect::<Vec<_>>();
        assert_eq!((ids(&sends), ids(&receives)), ((0..6).collect(), (0..8).collect()), "round {round}");
        let good = |wcs: &[Wc]| wcs.iter().filter(|wc| wc.status == WcStatus::Success).count();
        assert_eq!((good(&sends), good(&receives)), (4, 4), "round {round}");
        for end in [&mut a, &mut b] {
            end.engine.modify_qp(end.qp, &QpAttr::to(QpState::Reset), Instant::ZERO).expect("from ERR");
        }
    }
}

/// B66: a completion queue of one entry or two, four queue pairs. Whoever polls in time gets everything; whoever does
/// not is told, and nobody waits for ever.
#[test]
fn queue_of_one_entry_completes_for_whoever_polls_and_fails_aloud_for_whoever_does_not() {
    for depth in [1, 2] {
        let (mut a, mut b) = (End::new(1), End::new(2));
        let pd = a.engine.allocate_pd();
        let region = a.engine.register(pd, &a.memory, 0, 4096, Access::LOCAL_WRITE).expect("a region");
        let cq = a.engine.create_cq(depth).expect("a completion queue");
        let pd_b = b.engine.allocate_pd();
        let qps: Vec<QpNumber> = (0..4)
            .map(|_| {
                let qp = a.engine.create_qp(&QpInit::new(Service::Rc, pd, cq)).expect("a queue pair");
                let peer = b.engine.create_qp(&QpInit::new(Service::Rc, pd_b, b.cq)).expect("a queue pair");
                let with = |lid, qp| Connect::new(Lid(lid), qp, Mtu::B1024);
                a.engine.connect(qp, &with(2, peer), Instant::ZERO).expect("connected");
                b.engine.connect(peer, &with(1, qp), Instant::ZERO).expect("connected");
                qp
            })
            .collect();
        let op = SendOp::Write { addr: b.region.addr, rkey: b.region.rkey };
        let post = |a: &mut End, qp, bytes| {
            let list = [region.sge(0, bytes)];
            a.engine.post_send(qp, &SendWr::new(0, op, &list), Instant::ZERO).expect("posted");
        };
        let mut wcs = [Wc::EMPTY; 8];
        for round in 0..100 {
            // Nothing is written: a WRITE of no bytes needs no key.
            post(&mut a, qps[round % 4], 0);
            carry(&mut a, &mut b, Instant::ZERO);
            assert_eq!(a.engine.poll_cq(cq, &mut wcs), 1, "depth {depth}, round {round}");
            assert_eq!(wcs[0].status, WcStatus::Success);
        }
        qps.iter().for_each(|qp| post(&mut a, *qp, 0));
        carry(&mut a, &mut b, Instant::ZERO);
        let events: Vec<_> = std::iter::from_fn(|| a.engine.poll_event()).collect();
        assert!(events.contains(&qhca_verbs::Event::CqOverflow(cq)), "depth {depth}: {events:?}");
        assert!(qps.iter().all(|qp| a.engine.qp_state(*qp) == Some(QpState::Error)), "depth {depth}");
    }
}

/// A port whose cable ends nowhere.
struct Nowhere(Engine);

impl Turn for Nowhere {
    fn engine(&mut self) -> &mut Engine {
        &mut self.0
    }

    fn turn(&mut self, now: Instant) -> Turned {
        if self.0.next_timeout().is_some_and(|due| due <= now) {
            self.0.on_timeout(now);
        }
        let sent = self.0.transmit(&mut |_: &Outgoing<'_>| Ok(()), now, usize::MAX);
        Turned { received: 0, sent, gone: false }
    }

    fn rest(&mut self, _timeout: Duration) {}
}

/// B106: nobody answers. The tool ends by its deadline, whether the transport gives up before or never does.
#[test]
fn tool_whose_peer_never_answers_ends_by_its_deadline() {
    for (timeout, retries) in [(14, 7), (0, 7), (1, 0)] {
        let mut port =
            Nowhere(Engine::new(qhca_verbs::Config::default(), Port { lid: Lid(1), ..Port::default() }));
        let setup = EndSetup {
            service: Service::Rc,
            qps: 1,
            largest: 64,
            depth: 1,
            rx_depth: 4,
            inline: 0,
            shared_receives: false,
        };
        let mut end = perf::End::open(&mut port.0, &setup, Psn::new(0)).expect("an end");
        let mut peer = end.name().clone();
        peer.lid = Lid(2);
        let with =
            Connect { timeout, retry_count: retries, ..Connect::new(Lid(2), QpNumber::new(9), Mtu::B1024) };
        end.connect(&mut port.0, &peer, &with, Instant::ZERO).expect("connected");
        let job = Job { depth: 1, patience: Duration::from_millis(300), ..Job::new(Verb::Send, 64, 10) };
        let mut worker = PingPong::new(&mut end, &mut port.0, &job, true, Instant::ZERO).expect("posted");
        let begun = std::time::Instant::now();
        let clock = || Instant::from_nanos(begun.elapsed().as_nanos() as u64);
        let error = drive(&mut port, &mut worker, &job, &clock, || Ok(true)).expect_err("nobody answers");
        assert!(matches!(error, PerfError::Late { .. } | PerfError::Failed(_)), "{error}");
        assert!(begun.elapsed().as_secs() < 10, "{error}");
    }
}
