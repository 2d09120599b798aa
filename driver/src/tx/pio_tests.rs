//! A sender against a recording bar.

use proptest::prelude::*;
use qhca_regs::layout::BufferState;
use qhca_regs::map::device::{self, SendCtrl};

use super::*;
use crate::env::DmaMapper;
use crate::shared::DeviceState;
use crate::testing::{Access, PlainMapper, RecordingBar};

/// LRH and BTH of no particular packet.
const HEADER: [u32; 5] = [0x11, 0x22, 0x33, 0x44, 0x55];

struct Bench {
    sender: Sender,
    bar: RecordingBar,
    avail: DmaRegion,
    shared: Arc<DeviceShared>,
}

/// The number of the send buffer that took a packet.
fn index(submitted: Submitted) -> usize {
    match submitted {
        Submitted::Pio(buffer) => buffer.index(),
        Submitted::Sdma(id) => panic!("{id} without an engine"),
    }
}

fn bench(indices: &[usize]) -> Bench {
    let avail = PlainMapper::default().map(64).expect("memory");
    let pool = Pool::of_indices(indices.iter().copied(), &avail_image(&avail)).expect("a pool");
    let shared = crate::testing::shared(crate::fault::Policy::Guarded);
    let control = Arc::new(SendControl::new(SendCtrl::default().with_send_buf_avail_upd(true)));
    let sender = Sender::new(pool, avail.clone(), control, shared.clone());
    Bench { sender, bar: RecordingBar::default(), avail, shared }
}

impl Bench {
    fn submit(&mut self, frame: &Frame<'_>) -> Result<usize, SubmitError> {
        self.sender.submit(&self.bar, frame).map(index)
    }

    /// The chip has taken and sent `buffer` and says so.
    fn sent(&self, index: usize) {
        let buffer = Buffer::new(index).expect("a buffer");
        let mut image = avail_image(&self.avail);
        let check = !image.state(buffer).check;
        image.set(buffer, BufferState { check, busy: false });
        let (word, _) = AvailWords::place(buffer);
        self.avail.memory().store_u64(word * 8, image.0[word]);
    }

    /// What was written to the buffer at `offset`, from its start.
    fn written(&self, offset: u32) -> Vec<u32> {
        let mut words = Vec::new();
        for access in self.bar.log.borrow().iter() {
            if let Access::Burst(at, dwords) = access {
                assert_eq!(*at, offset + words.len() as u32 * 4, "ascending and without a gap");
                assert_eq!(at % 8, 0, "a burst starts on a pair of dwords");
                words.extend(dwords);
            }
        }
        words
    }
}

#[test]
fn packet_goes_out_control_word_first_without_a_register_read() {
    let mut bench = bench(&[120, 121]);
    let payload = [0xA, 0xB, 0xC];
    let frame = Frame::new(Port::P1, &HEADER, Payload::Dwords(&payload));
    assert_eq!(bench.submit(&frame), Ok(120));
    // 5 header + 3 payload + 1 ICRC; port 1 is bit 58.
    let mut wanted = vec![9, 1 << 26];
    wanted.extend(HEADER);
    wanted.extend(payload);
    assert_eq!(bench.written(0x10_0000 + 120 * 0x1000), wanted);
    assert_eq!(bench.bar.reads(), 0);
    assert_eq!((bench.sender.counts().packets, bench.sender.counts().dwords), (1, 9));
}

#[test]
fn lane_rate_and_notice_stand_in_the_control_word() {
    let mut bench = bench(&[0, 160]);
    let frame = Frame::new(Port::P0, &HEADER, Payload::None);
    let special = frame.with_lane(Lane::Vl(3)).with_static_rate(5).with_notify(true);
    assert_eq!(bench.submit(&special), Ok(0));
    assert_eq!(bench.written(0x10_0000)[..2], [1 << 31 | 6, 3 << 27 | 5]);
    bench.bar.take_log();
    assert_eq!(bench.submit(&frame.with_lane(Lane::Management)), Ok(160));
    assert_eq!(bench.written(0x1C_0000)[..2], [6, 1 << 31]);
}

#[test]
fn full_pool_would_block_asks_the_chip_once_and_goes_on_when_a_buffer_is_free() {
    let mut bench = bench(&[120]);
    let frame = Frame::new(Port::P0, &HEADER, Payload::None);
    assert_eq!(bench.submit(&frame), Ok(120));
    bench.bar.take_log();
    for _ in 0..ASK_AGAIN_AFTER {
        assert_eq!(bench.submit(&frame), Err(SubmitError::WouldBlock));
    }
    // Interrupt when free (bit 1), then updates (bit 2) off and on.
    assert_eq!(bench.bar.writes_to(device::SEND_CTRL.offset()), [0b110, 0b010, 0b110]);
    bench.sent(120);
    assert_eq!(bench.submit(&frame), Ok(120));
    assert_eq!(bench.sender.counts().would_block, ASK_AGAIN_AFTER);
    assert_eq!(bench.sender.counts().updates_asked, 1);
    assert_eq!(bench.bar.reads(), 0);
}

#[test]
fn frame_that_cannot_be_sent_is_refused_by_name_and_takes_no_buffer() {
    let mut bench = bench(&[120]);
    let long = [0; 600];
    let with = |header, payload| Frame::new(Port::P0, header, payload);
    let good = with(&HEADER, Payload::None);
    let cases = [
        (with(&HEADER[..4], Payload::None), SubmitError::HeaderLength { dwords: 4 }),
        (with(&long[..33], Payload::None), SubmitError::HeaderLength { dwords: 33 }),
        (with(&HEADER, Payload::Dwords(&long[..538])), SubmitError::TooLong { dwords: 545, fit: 544 }),
        (good.with_lane(Lane::Vl(8)), SubmitError::NoSuchLane { vl: 8 }),
        (good.with_lane(Lane::Management), SubmitError::NoManagementBuffer { port: Port::P0 }),
        (good.with_static_rate(0x4000), SubmitError::RateTooLarge { static_rate: 0x4000 }),
    ];
    for (frame, error) in cases {
        assert_eq!(bench.submit(&frame), Err(error));
    }
    assert_eq!(bench.bar.take_log(), []);
    assert_eq!(bench.sender.counts().refused, cases.len() as u64);
    assert_eq!(bench.submit(&with(&HEADER, Payload::Dwords(&long[..537]))), Ok(120));
}

/// B30's like for PIO: a sender outlives its device, and touches nothing afterwards.
#[test]
fn sender_of_a_closed_device_touches_nothing() {
    let mut bench = bench(&[120]);
    bench.shared.worsen(DeviceState::Closed);
    let frame = Frame::new(Port::P0, &HEADER, Payload::None);
    assert_eq!(bench.submit(&frame), Err(SubmitError::Gone));
    assert_eq!(bench.bar.take_log(), []);
}

proptest! {
    /// Bytes or dwords, any header length: what lies in the buffer is the control word, the headers, the payload
    /// and zeros up to the dword.
    #[test]
    fn payload_of_bytes_arrives_as_it_lies_in_memory(header in prop::collection::vec(any::<u32>(), 5..=32), bytes in prop::collection::vec(any::<u8>(), 0..1500)) {
        let mut bench = bench(&[3]);
        let frame = Frame::new(Port::P0, &header, Payload::Bytes(&bytes));
        prop_assert_eq!(bench.submit(&frame), Ok(3));
        let words = bench.written(0x10_3000);
        let mut padded = bytes.clone();
        padded.resize(bytes.len().next_multiple_of(4), 0);
        let payload: Vec<u32> = padded.chunks(4).map(dword).collect();
        prop_assert_eq!(words[0] as usize, header.len() + payload.len() + 1);
        prop_assert_eq!(&words[2..2 + header.len()], &header[..]);
        prop_assert_eq!(&words[2 + header.len()..], &payload[..]);
        // The same as dwords.
        let mut again = self::bench(&[3]);
        prop_assert_eq!(again.submit(&Frame::new(Port::P0, &header, Payload::Dwords(&payload))), Ok(3));
        prop_assert_eq!(again.written(0x10_3000), words);
    }
}
