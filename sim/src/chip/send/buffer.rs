//! Send buffers: dwords that software streams in, and the count that launches them.
//!
//! ```text
//!   dword 0 1 | 2 ...                         | usable: 544 (small), 1056 (large, VL15)
//!         PBC | LRH, headers, payload         |
//! ```
//!
//! The first dword of the PBC takes the buffer: its check bit toggles, it is busy. When length + 1 dwords have been
//! written, in any order, the packet is launched. A dword written twice, a dword too many or one past the usable part is
//! an arm-launch error; the packet is then not sent and the buffer stays busy until it is disarmed. A dword for a buffer
//! whose packet has been launched and has not left is one too, and is dropped (F-361).

use super::super::packet::write_dwords;
use qhca_regs::layout::Pbc;
use qhca_regs::{Buffer, BufferKind};

const fn offset_of(index: usize) -> u32 {
    match Buffer::new(index) {
        Some(buffer) => buffer.offset(),
        // PANIC: evaluated at compile time, for buffers that exist.
        None => panic!("no such buffer"),
    }
}

/// Where the send buffers lie in BAR 0.
pub(in super::super) const START: u32 = offset_of(0);
const SMALL_STRIDE: u32 = offset_of(1) - START;
const LARGE_START: u32 = offset_of(Buffer::SMALL);
const LARGE_STRIDE: u32 = offset_of(Buffer::SMALL + 1) - LARGE_START;
/// First byte after the last of them.
pub(in super::super) const END: u32 = offset_of(Buffer::COUNT - 1) + LARGE_STRIDE;

const LARGE_DWORDS: usize = 0x1080 / 4;
const MAP_WORDS: usize = LARGE_DWORDS.div_ceil(64);
/// A length that no packet has: the buffer waits for its PBC, or will never launch.
const NEVER: u16 = u16::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nothing in it, or words that came before their PBC.
    Filling,
    /// Complete, not yet out.
    Launched,
    /// An arm-launch error: waits to be disarmed.
    Spoiled,
}

#[derive(Clone)]
struct Slot {
    state: State,
    /// Dwords written so far.
    have: u16,
    /// Dwords that launch it.
    need: u16,
    written: [u64; MAP_WORDS],
    pbc: [u32; Pbc::LEN_DWORDS],
    /// What follows the PBC, in memory order: the packet itself. Grows as it is written, and leaves with the packet.
    body: Vec<u8>,
}

/// What launches a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LaunchRule {
    /// Its last dword, or one that many dwords before.
    Count {
        /// How many.
        early: u16,
    },
    /// A word of its own, written behind the buffer (F-367).
    Trigger,
}

/// The value that launches under [`LaunchRule::Trigger`].
pub(super) const TRIGGER: u32 = 0xAEBE_CEDE;

/// The dword of `buffer` that takes the trigger: the last one before the next buffer.
pub(super) fn trigger_dword(buffer: Buffer) -> usize {
    let stride = if buffer.kind() == BufferKind::Small { SMALL_STRIDE } else { LARGE_STRIDE };
    (stride / 4) as usize - 1
}

/// What a write to a buffer led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Filled {
    /// More is to come.
    Partly,
    /// The packet is complete.
    Complete,
    /// An arm-launch error.
    Fault,
}

/// All send buffers of the chip.
pub(super) struct Buffers {
    slots: Vec<Slot>,
}

/// The buffer that byte `offset` of BAR 0 belongs to, and the dword in it; `None` past the last buffer.
pub(super) fn locate(offset: u32) -> Option<(Buffer, usize)> {
    let (first, stride, base) = match offset < LARGE_START {
        true => (0, SMALL_STRIDE, START),
        false => (Buffer::SMALL, LARGE_STRIDE, LARGE_START),
    };
    let past = offset.checked_sub(base)?;
    let buffer = Buffer::new(first + (past / stride) as usize)?;
    Some((buffer, (past % stride / 4) as usize))
}

impl Buffers {
    pub(super) fn new() -> Self {
        let slot = Slot {
            state: State::Filling,
            have: 0,
            need: NEVER,
            written: [0; MAP_WORDS],
            pbc: [0; Pbc::LEN_DWORDS],
            body: Vec::new(),
        };
        Self { slots: vec![slot; Buffer::COUNT] }
    }

    /// The packet in a buffer that is complete.
    #[inline]
    pub(super) fn packet(&self, buffer: Buffer) -> &[u8] {
        &self.slots[buffer.index()].body
    }

    /// Takes the packet out of a buffer that is complete, without copying; the buffer gets `body` to fill next.
    #[inline]
    pub(super) fn take_packet(&mut self, buffer: Buffer, body: Vec<u8>) -> Vec<u8> {
        std::mem::replace(&mut self.slots[buffer.index()].body, body)
    }

    /// The buffer's PBC.
    #[inline]
    pub(super) fn pbc(&self, buffer: Buffer) -> Pbc {
        let [low, high] = self.slots[buffer.index()].pbc;
        Pbc::from_dwords(low, high)
    }

    /// Whether this write takes the buffer: it brings the first dword of a PBC to a buffer that has none.
    pub(super) fn is_taken_by(&self, buffer: Buffer, dword: usize) -> bool {
        let slot = &self.slots[buffer.index()];
        dword == 0 && slot.state == State::Filling && slot.written[0] & 1 == 0
    }

    /// Software writes `dwords` from `dword` of `buffer` on. `rule` says what
    /// launches it.
    pub(super) fn fill(&mut self, buffer: Buffer, dword: usize, dwords: &[u32], rule: LaunchRule) -> Filled {
        let early = if let LaunchRule::Count { early } = rule { early } else { 0 };
        let slot = &mut self.slots[buffer.index()];
        let end = dword + dwords.len();
        if slot.state == State::Launched {
            return Filled::Fault;
        }
        if slot.state == State::Spoiled || end > buffer.len_dwords() || !slot.mark(dword, end) {
            slot.state = State::Spoiled;
            return Filled::Fault;
        }
        slot.store(dword, dwords);
        if dword == 0 {
            let length = Pbc::from_dwords(dwords[0], 0).len_dwords();
            slot.need = if length == 0 { NEVER } else { (length + 1).saturating_sub(early) };
        }
        match slot.have.cmp(&slot.need) {
            std::cmp::Ordering::Less => Filled::Partly,
            std::cmp::Ordering::Equal if rule == LaunchRule::Trigger => Filled::Partly,
            std::cmp::Ordering::Equal => {
                slot.launch();
                Filled::Complete
            }
            std::cmp::Ordering::Greater => {
                slot.state = State::Spoiled;
                Filled::Fault
            }
        }
    }

    /// The special trigger of `buffer` has come; false if there is no complete packet to launch.
    pub(super) fn trigger(&mut self, buffer: Buffer) -> bool {
        let slot = &mut self.slots[buffer.index()];
        let complete = slot.state == State::Filling && slot.have == slot.need;
        match (complete, slot.state) {
            (true, _) => slot.launch(),
            (false, State::Filling) => slot.state = State::Spoiled,
            (false, State::Launched | State::Spoiled) => {}
        }
        complete
    }

    /// Keeps software out of `buffer`, and whatever it had written.
    pub(super) fn claim(&mut self, buffer: Buffer) {
        self.reset(buffer);
        self.slots[buffer.index()].state = State::Launched;
    }

    /// Puts a whole packet into `buffer`, which is claimed; returns the body it had.
    pub(super) fn load(&mut self, buffer: Buffer, pbc: Pbc, body: Vec<u8>) -> Vec<u8> {
        let slot = &mut self.slots[buffer.index()];
        slot.pbc = pbc.dwords();
        std::mem::replace(&mut slot.body, body)
    }

    /// Empties `buffer`.
    pub(super) fn reset(&mut self, buffer: Buffer) {
        let slot = &mut self.slots[buffer.index()];
        slot.state = State::Filling;
        slot.have = 0;
        slot.need = NEVER;
        slot.written = [0; MAP_WORDS];
    }
}

impl Slot {
    fn launch(&mut self) {
        self.state = State::Launched;
        // Dwords may stand anywhere in the buffer: the packet is as long as its PBC says.
        self.body.resize(4 * self.pbc_body_dwords(), 0);
    }

    /// Keeps `dwords` at their place.
    #[inline]
    fn store(&mut self, dword: usize, dwords: &[u32]) {
        let head = Pbc::LEN_DWORDS.saturating_sub(dword).min(dwords.len());
        let (pbc, rest) = dwords.split_at(head);
        if head > 0 {
            self.pbc[dword..dword + head].copy_from_slice(pbc);
        }
        let start = 4 * (dword + head).saturating_sub(Pbc::LEN_DWORDS);
        let end = start + 4 * rest.len();
        if self.body.len() < end {
            self.body.resize(end, 0);
        }
        write_dwords(&mut self.body[start..end], rest);
    }

    /// Dwords of the packet, as the PBC says.
    fn pbc_body_dwords(&self) -> usize {
        usize::from(Pbc::from_dwords(self.pbc[0], self.pbc[1]).len_dwords()).saturating_sub(1)
    }

    /// Notes that dwords `from..to` have been written; false if one of them already was.
    #[inline]
    fn mark(&mut self, from: usize, to: usize) -> bool {
        let mut fresh = true;
        let mut at = from;
        while at < to {
            let (word, bit) = (at / 64, at % 64);
            let len = (64 - bit).min(to - at);
            let bits = (u64::MAX >> (64 - len)) << bit;
            fresh &= self.written[word] & bits == 0;
            self.written[word] |= bits;
            at += len;
        }
        self.have = self.have.saturating_add((to - from) as u16);
        fresh
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const COUNT: LaunchRule = LaunchRule::Count { early: 0 };

    fn small(index: usize) -> Buffer {
        Buffer::new(index).expect("exists")
    }

    fn pbc(length: u16) -> [u32; 2] {
        Pbc(0).with_len_dwords(length).dwords()
    }

    #[test]
    fn addresses_lead_to_the_buffers_of_the_data_sheet() {
        for buffer in (0..Buffer::COUNT).filter_map(Buffer::new) {
            assert_eq!(locate(buffer.offset()), Some((buffer, 0)));
            assert_eq!(locate(buffer.offset() + 0x87C), Some((buffer, 543)));
        }
        assert_eq!(locate(END), None);
        assert_eq!(locate(END - 4), Some((Buffer::vl15(qhca_regs::Port::P1), 2047)));
    }

    #[test]
    fn buffer_launches_with_its_last_dword() {
        let mut buffers = Buffers::new();
        assert_eq!(buffers.fill(small(3), 0, &pbc(7), COUNT), Filled::Partly);
        assert_eq!(buffers.fill(small(3), 2, &[1, 2, 3, 4], COUNT), Filled::Partly);
        assert_eq!(buffers.fill(small(3), 6, &[5, 6], COUNT), Filled::Complete);
        let expected: Vec<u8> = (1..=6u32).flat_map(u32::to_le_bytes).collect();
        assert_eq!(buffers.packet(small(3)), expected);
    }

    #[test]
    fn repeated_and_surplus_dwords_spoil_the_buffer_until_it_is_reset() {
        let mut buffers = Buffers::new();
        buffers.fill(small(0), 0, &pbc(7), COUNT);
        buffers.fill(small(0), 2, &[1], COUNT);
        assert_eq!(buffers.fill(small(0), 2, &[1], COUNT), Filled::Fault, "written twice");
        assert_eq!(buffers.fill(small(0), 3, &[1], COUNT), Filled::Fault, "spoiled");
        buffers.reset(small(0));
        buffers.fill(small(0), 0, &pbc(3), COUNT);
        assert_eq!(buffers.fill(small(0), 2, &[1, 2, 3], COUNT), Filled::Fault, "one too many");
        assert_eq!(buffers.fill(small(1), 543, &[1, 2], COUNT), Filled::Fault, "past the usable part");
    }

    #[test]
    fn length_zero_never_launches() {
        let mut buffers = Buffers::new();
        assert_eq!(buffers.fill(small(0), 0, &[0, 0], COUNT), Filled::Partly);
        assert_eq!(buffers.fill(small(0), 64, &[7; 256], COUNT), Filled::Partly);
        assert_eq!(buffers.fill(small(0), 64, &[7; 256], COUNT), Filled::Fault);
    }

    proptest! {
        #[test]
        fn any_order_of_the_dwords_launches_once_with_the_right_bytes(
            payload in 1usize..500,
            order in any::<proptest::sample::Index>(),
        ) {
            let mut buffers = Buffers::new();
            let mut words = pbc(payload as u16 + 1).to_vec();
            words.extend((0..payload as u32).map(|n| n.wrapping_mul(0x9E37_79B9)));
            let start = order.index(words.len());
            let mut complete = 0;
            for n in (start..words.len()).chain(0..start) {
                match buffers.fill(small(9), n, &words[n..=n], COUNT) {
                    Filled::Complete => complete += 1,
                    Filled::Partly => {}
                    Filled::Fault => prop_assert!(false, "fault at dword {}", n),
                }
            }
            prop_assert_eq!(complete, 1);
            let expected: Vec<u8> = words[2..].iter().flat_map(|word| word.to_le_bytes()).collect();
            prop_assert_eq!(buffers.packet(small(9)), &expected[..]);
        }
    }
}
