//! The data side against memory that a test reads as the chip would.

use proptest::prelude::*;
use qhca_regs::Port;

use super::*;
use crate::testing::{PlainMapper, RecordingBar};

/// LRH, BTH and two dwords more.
const HEADER: [u32; 7] = [0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77];

struct Bench {
    queue: SdmaQueue,
    bar: RecordingBar,
    mapper: PlainMapper,
    /// Every region that the chip may read.
    regions: Vec<DmaRegion>,
    /// What the chip keeps: the next descriptor, and the generation it expects.
    next: u32,
    generation: u8,
}

fn bench(descriptors: u32) -> Bench {
    let mut mapper = PlainMapper::default();
    let ring = Ring::allocate(descriptors, &mut mapper).expect("memory");
    let shared = Arc::new(SdmaShared::new(Port::P1));
    let queue = SdmaQueue::allocate(ring, shared.clone(), &mut mapper).expect("memory");
    shared.set_phase(Phase::Running);
    let regions = vec![queue.staging.clone()];
    Bench { queue, bar: RecordingBar::default(), mapper, regions, next: 0, generation: 0 }
}

impl Bench {
    fn submit(&mut self, frame: &Frame<'_>) -> Result<SendId, NotQueued> {
        let written = Pbc::LEN_DWORDS + frame.header.len() + frame.payload.len_dwords();
        let pbc = Pbc::for_port(frame.port, (written - 1) as u16);
        self.queue.try_submit(&self.bar, pbc, frame)
    }

    fn send(&mut self, payload: Payload<'_>) -> SendId {
        self.submit(&Frame::new(Port::P1, &HEADER, payload)).expect("room")
    }

    /// What the chip reads at `iova`.
    fn read(&self, iova: u64, dwords: usize) -> Vec<u32> {
        let inside =
            |region: &&DmaRegion| (region.iova()..region.iova() + region.len_bytes() as u64).contains(&iova);
        let region = self.regions.iter().find(inside).expect("memory that was mapped");
        let at = (iova - region.iova()) as usize;
        (0..dwords).map(|n| region.memory().load_u32(at + 4 * n)).collect()
    }

    /// Takes the next descriptor as the chip does.
    fn fetch(&mut self) -> SdmaDesc {
        let mut bytes = [0; SdmaDesc::LEN_BYTES];
        let at = self.next as usize * SdmaDesc::LEN_BYTES;
        self.queue.ring.region().memory().copy_out(at, &mut bytes);
        let desc = SdmaDesc::parse(bytes);
        assert_eq!(desc.word0.generation(), self.generation, "descriptor {} is of another round", self.next);
        self.next += 1;
        if self.next == self.queue.ring.len() {
            self.next = 0;
            self.generation = (self.generation + 1) % 4;
        }
        desc
    }

    /// Fetches one packet; gives what lies in the send buffer then, control word first.
    fn fetch_packet(&mut self) -> Vec<u32> {
        let mut words: Vec<u32> = Vec::new();
        loop {
            let desc = self.fetch();
            assert_eq!(desc.word0.first(), words.is_empty());
            assert_eq!(usize::from(desc.word0.buf_offset()), words.len());
            words.extend(self.read(desc.iova(), desc.word0.len_dwords().into()));
            assert_eq!(
                desc.word0.dma_head(),
                desc.word0.last(),
                "the head is asked for at the end of a packet"
            );
            if desc.word0.last() {
                return words;
            }
        }
    }

    /// Writes the chip's head to memory.
    fn write_head(&self) {
        let at = (self.queue.ring.head_iova() - self.queue.ring.iova()) as usize;
        self.queue.ring.region().memory().store_u64(at, self.next.into());
    }

    fn reap(&mut self) -> Vec<(u64, SendOutcome)> {
        let mut all = Vec::new();
        self.queue.look(&self.bar);
        self.queue.reap(|id, outcome| all.push((id.0, outcome)));
        all
    }
}

#[test]
fn packet_in_memory_is_what_a_send_buffer_would_hold() {
    let mut bench = bench(16);
    bench.send(Payload::Dwords(&[0xA, 0xB, 0xC, 0xD]));
    let words = bench.fetch_packet();
    // Control word: 7 dwords of header, 4 of payload and the ICRC, by port 1.
    assert_eq!(words[..2], [12, 1 << 26]);
    assert_eq!(words[2..9], HEADER);
    assert_eq!(words[9..], [0xA, 0xB, 0xC, 0xD]);
    let tail = port_regs::SEND_DMA_TAIL.port(Port::P1).offset();
    assert_eq!(bench.bar.writes_to(tail), [1], "one doorbell, behind the only descriptor");
    assert_eq!(bench.bar.reads(), 0);
}

#[test]
fn payload_in_place_is_read_where_it_lies_and_its_memory_is_kept_until_the_outcome() {
    let mut bench = bench(16);
    let region = crate::env::DmaMapper::map(&mut bench.mapper, 8192).expect("memory");
    let memory = region.memory().clone();
    (0..2048).for_each(|n| memory.store_u32(n * 4, n as u32));
    bench.regions.push(region.clone());
    bench.send(Payload::InPlace { region: &region, offset: 2000, len_bytes: 4096 });
    bench.regions.pop();
    drop(region);
    let held = Arc::strong_count(&memory);
    let first = bench.fetch();
    assert!(first.word0.use_large_buf(), "4 KiB need a large buffer, said in every descriptor");
    let last = bench.fetch();
    assert!(last.word0.use_large_buf() && last.word0.last());
    assert_eq!((last.word0.len_dwords(), last.word0.buf_offset()), (1024, 9));
    assert_eq!(last.iova() % 4096, 2000);
    bench.write_head();
    bench.queue.look(&bench.bar);
    assert_eq!(Arc::strong_count(&memory), held - 1, "given back with the outcome");
}

#[test]
fn ragged_payload_in_place_is_copied_and_padded_with_zeros() {
    let mut bench = bench(16);
    let region = crate::env::DmaMapper::map(&mut bench.mapper, 4096).expect("memory");
    region.memory().copy_in(0, &[0xEE; 64]);
    for (offset, len_bytes) in [(0, 5), (1, 8)] {
        bench.send(Payload::InPlace { region: &region, offset, len_bytes });
        let words = bench.fetch_packet();
        let bytes: Vec<u8> = words[9..].iter().flat_map(|word| word.to_le_bytes()).collect();
        let zeros = bytes.len() - len_bytes;
        assert_eq!(bytes[..len_bytes], vec![0xEE; len_bytes]);
        assert_eq!(bytes[len_bytes..], vec![0; zeros]);
    }
}

#[test]
fn each_send_has_one_outcome_and_only_after_the_head_has_passed_all_of_it() {
    let mut bench = bench(16);
    bench.queue.track(true);
    let region = crate::env::DmaMapper::map(&mut bench.mapper, 4096).expect("memory");
    bench.regions.push(region.clone());
    bench.send(Payload::InPlace { region: &region, offset: 0, len_bytes: 64 });
    bench.send(Payload::None);
    assert_eq!(bench.reap(), []);
    bench.fetch();
    bench.write_head();
    assert_eq!(bench.reap(), [], "one of two descriptors");
    bench.fetch();
    bench.fetch();
    bench.write_head();
    assert_eq!(bench.reap(), [(0, SendOutcome::Sent), (1, SendOutcome::Sent)]);
    assert_eq!(bench.reap(), [], "told once");
    assert_eq!((bench.queue.counts().sent, bench.queue.in_flight()), (2, 0));
}

/// B28, B34: descriptors that run out are said so at once, and space that comes back is announced without a new send.
#[test]
fn full_ring_says_so_and_asks_once_to_be_told_of_space() {
    let mut bench = bench(16);
    let mut sent = 0;
    while bench.submit(&Frame::new(Port::P1, &HEADER, Payload::None)).is_ok() {
        sent += 1;
    }
    assert_eq!(sent, 14, "one of 16 stays free, and a packet may need two");
    for _ in 0..3 {
        let full = bench.submit(&Frame::new(Port::P1, &HEADER, Payload::None));
        assert_eq!(full, Err(NotQueued::Full));
    }
    let count = port_regs::SEND_DMA_DESC_CNT.port(Port::P1).offset();
    assert_eq!(bench.bar.writes_to(count), [7], "half of what is in flight");
    assert!(bench.queue.shared.take_blocked() && !bench.queue.shared.take_blocked());
    (0..4).for_each(|_| drop(bench.fetch_packet()));
    bench.write_head();
    assert!(bench.submit(&Frame::new(Port::P1, &HEADER, Payload::None)).is_ok());
    assert_eq!(bench.bar.reads(), 0);
}

#[test]
fn outcomes_that_are_wanted_and_not_reaped_take_up_room_and_others_do_not() {
    for (tracking, room) in [(true, false), (false, true)] {
        let mut bench = bench(16);
        bench.queue.track(tracking);
        for _ in 0..bench.queue.places.len() {
            bench.send(Payload::None);
            bench.fetch_packet();
            bench.write_head();
            bench.queue.look(&bench.bar);
        }
        let more = bench.submit(&Frame::new(Port::P1, &HEADER, Payload::None));
        assert_eq!(more.is_ok(), room, "tracking {tracking}");
    }
}

/// Heads from a chip that writes rubbish: the register decides, and if that is rubbish too nothing has moved.
#[test]
fn head_in_memory_that_makes_no_sense_is_replaced_by_the_register() {
    let mut bench = bench(16);
    bench.queue.track(true);
    bench.send(Payload::None);
    bench.send(Payload::None);
    let at = (bench.queue.ring.head_iova() - bench.queue.ring.iova()) as usize;
    bench.queue.ring.region().memory().store_u64(at, 9);
    let register = port_regs::SEND_DMA_HEAD.port(Port::P1).offset();
    bench.bar.set(register, 1);
    assert_eq!(bench.reap(), [(0, SendOutcome::Sent)]);
    for rubbish in [5, u64::MAX] {
        bench.bar.set(register, rubbish);
        assert_eq!(bench.reap(), []);
    }
    assert_eq!((bench.queue.counts().head_fallbacks, bench.queue.counts().heads_refused), (3, 2));
}

/// B30, B32: what is in flight when the engine stops has an outcome, what was done before keeps its own.
#[test]
fn stopped_engine_settles_what_it_had_done_and_flushes_the_rest() {
    let mut bench = bench(16);
    bench.queue.track(true);
    for _ in 0..3 {
        bench.send(Payload::None);
    }
    bench.queue.shared.set_phase(Phase::Halting);
    let refused = bench.submit(&Frame::new(Port::P1, &HEADER, Payload::None));
    assert_eq!(refused, Err(NotQueued::NotRunning));
    bench.queue.shared.ask_flush(1, FlushReason::LinkDown);
    assert!(bench.queue.look(&bench.bar), "the control side waits for it");
    assert_eq!(bench.queue.shared.phase(), Phase::Flushed);
    let flushed = SendOutcome::Flushed(FlushReason::LinkDown);
    assert_eq!(bench.reap(), [(0, SendOutcome::Sent), (1, flushed), (2, flushed)]);
    // The ring begins afresh: index 0, generation 0.
    bench.queue.shared.set_phase(Phase::Running);
    bench.bar.take_log();
    bench.send(Payload::None);
    let tail = port_regs::SEND_DMA_TAIL.port(Port::P1).offset();
    assert_eq!(bench.bar.writes_to(tail), [1]);
    bench.fetch_packet();
}

#[test]
fn engine_that_did_not_halt_costs_its_memory_and_nothing_else() {
    let mut bench = bench(16);
    bench.queue.track(true);
    bench.send(Payload::None);
    bench.queue.shared.ask_flush(0, FlushReason::Stuck);
    assert_eq!(bench.reap(), [(0, SendOutcome::Flushed(FlushReason::Stuck))]);
}

proptest! {
    /// Sends of all kinds, fetched, reported and stopped at any moment: each has exactly one outcome, in order, and
    /// what the chip has fetched whole before it stopped counts as sent.
    #[test]
    fn every_send_has_exactly_one_outcome(
        descriptors in 16_u32..64,
        steps in prop::collection::vec((0_u8..6, any::<u8>()), 1..300),
    ) {
        let mut bench = bench(descriptors);
        bench.queue.track(true);
        let region = crate::env::DmaMapper::map(&mut bench.mapper, 4096).expect("memory");
        bench.regions.push(region.clone());
        let mut submitted = 0_u64;
        let mut fetched = 0_u64;
        let mut reaped = Vec::new();
        for (what, n) in steps {
            match what {
                0..=2 => {
                    let payload = match n % 3 {
                        0 => Payload::None,
                        1 => Payload::Bytes(&[7; 33]),
                        _ => Payload::InPlace { region: &region, offset: usize::from(n) * 4, len_bytes: 128 },
                    };
                    if let Ok(id) = bench.submit(&Frame::new(Port::P1, &HEADER, payload)) {
                        prop_assert_eq!(id.0, submitted);
                        submitted += 1;
                    }
                }
                3 if fetched < submitted => {
                    bench.fetch_packet();
                    fetched += 1;
                    if n % 2 == 0 {
                        bench.write_head();
                    }
                }
                4 if n < 16 => {
                    let head = bench.next;
                    bench.queue.shared.set_phase(Phase::Halting);
                    bench.queue.shared.ask_flush(head, FlushReason::Halted);
                    reaped.extend(bench.reap());
                    for (id, outcome) in &reaped {
                        let sent = *outcome == SendOutcome::Sent;
                        prop_assert!(!sent || *id < submitted);
                    }
                    prop_assert_eq!(reaped.len() as u64, submitted);
                    (bench.next, bench.generation) = (0, 0);
                    fetched = submitted;
                    bench.queue.shared.set_phase(Phase::Running);
                }
                _ => reaped.extend(bench.reap()),
            }
            prop_assert!(reaped.len() as u64 <= submitted);
            prop_assert!(reaped.iter().zip(0..).all(|((id, _), n)| *id == n));
        }
        bench.write_head();
        reaped.extend(bench.reap());
        prop_assert_eq!(reaped.len() as u64, fetched);
        let counts = bench.queue.counts();
        prop_assert_eq!(counts.sent + counts.flushed, fetched);
        prop_assert_eq!(bench.queue.in_flight() as u64, submitted - fetched);
    }
}
