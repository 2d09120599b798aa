//! A tap on the cable, which holds every packet against the rules, with its own idea of a connection's numbers.
//!
//! It sees what each side sends and what each side is handed, and knows nothing else.

use qhca_regs::Instant;

use super::check::Broken;
use crate::psn::Psn;
use crate::rnr::rnr_pause;
use crate::wire::{Credits, Headers, Operation, Reth, Syndrome};

/// What one side has sent as a requester, and its peer as the responder to it.
#[derive(Default)]
struct Direction {
    first: Psn,
    /// Numbers that were sent.
    sent: u32,
    /// Numbers that are answered, by what was delivered to the requester.
    answered: u32,
    /// For each number: what the packet was, 0 if it is a READ's.
    hashes: Vec<u64>,
    /// For each number: whether the responder was handed it.
    delivered: Vec<bool>,
    /// For each number: how often it was sent.
    tries: Vec<u8>,
    /// All numbers below were delivered.
    whole: u32,
    messages: u32,
    limit: Option<u32>,
    quiet_until: Instant,
}

/// The tap.
pub(super) struct Tap {
    directions: [Direction; 2],
    window: u32,
    mtu_shift: u32,
}

impl Tap {
    pub(super) fn new() -> Self {
        Self { directions: [Direction::default(), Direction::default()], window: 0, mtu_shift: 8 }
    }

    /// A new conversation, in which the sides begin with these numbers.
    pub(super) fn start(&mut self, psn: [Psn; 2], window: u32, mtu_shift: u32) {
        for (direction, first) in self.directions.iter_mut().zip(psn) {
            let mut old = std::mem::take(direction);
            old.hashes.clear();
            old.delivered.clear();
            old.tries.clear();
            let Direction { hashes, delivered, tries, .. } = old;
            *direction = Direction { first, hashes, delivered, tries, ..Direction::default() };
        }
        (self.window, self.mtu_shift) = (window, mtu_shift);
    }

    /// `side` sends a packet.
    pub(super) fn on_sent(
        &mut self,
        side: usize,
        words: &[u32],
        payload: &[u8],
        now: Instant,
    ) -> Result<(), Broken> {
        let h = Headers::parse(words, payload.len() / 4)
            .map_err(|error| ("a packet can be read", error.to_string()))?;
        if is_answer(&h) {
            self.on_answer_sent(side, &h)
        } else {
            self.on_request_sent(side, &h, words, payload, now)
        }
    }

    fn on_request_sent(
        &mut self,
        side: usize,
        h: &Headers<'_>,
        words: &[u32],
        payload: &[u8],
        now: Instant,
    ) -> Result<(), Broken> {
        let count = numbers_of(h, self.mtu_shift);
        let window = self.window;
        let direction = &mut self.directions[side];
        let at = h.bth.psn.distance_from(direction.first);
        if now < direction.quiet_until {
            return Err(("no request before the pause of an RNR NAK is over", h.to_string()));
        }
        if at > direction.sent {
            return Err((
                "numbers are used without a gap",
                format!("{} expected {at} <= {}", h, direction.sent),
            ));
        }
        let hash = if h.meaning.operation == Operation::ReadRequest { 0 } else { hash_of(words, payload) };
        if at < direction.sent {
            let before = direction.hashes[at as usize];
            direction.tries[at as usize] = direction.tries[at as usize].saturating_add(1);
            let same = before == hash || before == 0 || hash == 0;
            return if same { Ok(()) } else { Err(("a repeat equals the first packet", h.to_string())) };
        }
        direction.sent = at + count;
        direction.hashes.resize(direction.sent as usize, 0);
        direction.hashes[at as usize] = hash;
        direction.tries.resize(direction.sent as usize, 1);
        if direction.sent - direction.answered > window {
            let open = direction.sent - direction.answered;
            return Err(("no more packets under way than the window", format!("{open} > {window}, {h}")));
        }
        if h.meaning.place.begins() {
            direction.messages += 1;
            if let Some(limit) = direction.limit
                && takes_receive(h)
                && direction.messages > limit + 1
            {
                let seen = format!("message {} with a limit of {limit}: {h}", direction.messages);
                return Err(("no message beyond the credits but one", seen));
            }
        }
        Ok(())
    }

    /// `side` answers: only what it was handed, without a gap.
    fn on_answer_sent(&mut self, side: usize, h: &Headers<'_>) -> Result<(), Broken> {
        let direction = &self.directions[1 - side];
        let at = h.bth.psn.distance_from(direction.first);
        let is_yes = h.aeth().is_none_or(|aeth| matches!(aeth.syndrome, Syndrome::Ack(_)));
        let limit = if is_yes { direction.whole } else { direction.whole + 1 };
        if at < limit {
            return Ok(());
        }
        Err(("only what came is answered", format!("{at} of {} numbers: {h}", direction.whole)))
    }

    /// `side` is handed a packet.
    pub(super) fn on_delivered(&mut self, side: usize, words: &[u32], payload: &[u8], now: Instant) {
        let Ok(h) = Headers::parse(words, payload.len() / 4) else { return };
        if is_answer(&h) {
            return self.on_answer_delivered(side, &h, now);
        }
        let count = numbers_of(&h, self.mtu_shift);
        let direction = &mut self.directions[1 - side];
        let at = h.bth.psn.distance_from(direction.first);
        let end = at + count;
        if end > direction.sent {
            return;
        }
        if direction.delivered.len() < end as usize {
            direction.delivered.resize(end as usize, false);
        }
        direction.delivered[at as usize..end as usize].fill(true);
        while direction.delivered.get(direction.whole as usize) == Some(&true) {
            direction.whole += 1;
        }
    }

    fn on_answer_delivered(&mut self, side: usize, h: &Headers<'_>, now: Instant) {
        let direction = &mut self.directions[side];
        let at = h.bth.psn.distance_from(direction.first);
        if at >= direction.sent {
            return;
        }
        let Some(aeth) = h.aeth() else {
            direction.answered = direction.answered.max(at + 1);
            return;
        };
        match aeth.syndrome {
            Syndrome::Ack(credits) => {
                // An old answer may be passed over, so it does not begin the counting; it may widen the limit.
                if at + 1 >= direction.answered || direction.limit.is_some() {
                    direction.note_credits(credits, aeth.msn);
                }
                direction.answered = direction.answered.max(at + 1);
            }
            Syndrome::RnrNak(timer) => {
                let is_new = at >= direction.answered && direction.quiet_until <= now;
                direction.answered = direction.answered.max(at);
                if is_new {
                    direction.quiet_until = now + rnr_pause(timer);
                }
            }
            _ => direction.answered = direction.answered.max(at),
        }
    }

    /// Whether `side` sent something without an answer once, and `repeats` times more.
    pub(super) fn has_tried(&self, side: usize, repeats: u8) -> bool {
        let direction = &self.directions[side];
        let until = direction.tries.len().min(direction.answered as usize + 1);
        direction.tries[..until].iter().any(|tries| *tries > repeats)
    }

    /// Numbers that `side` has sent, for a look at the end.
    pub(super) fn sent(&self, side: usize) -> u32 {
        self.directions[side].sent
    }
}

impl Direction {
    fn note_credits(&mut self, credits: Credits, msn: u32) {
        self.limit = credits.count().map(|count| (msn + count).max(self.limit.unwrap_or(0)));
    }
}

fn is_answer(h: &Headers<'_>) -> bool {
    matches!(
        h.meaning.operation,
        Operation::ReadResponse | Operation::Acknowledge | Operation::AtomicAcknowledge
    )
}

fn takes_receive(h: &Headers<'_>) -> bool {
    // Of a WRITE of several packets the first does not say whether the last has immediate data.
    h.meaning.operation == Operation::Send || h.immediate().is_some()
}

fn numbers_of(h: &Headers<'_>, mtu_shift: u32) -> u32 {
    match h.reth() {
        Some(Reth { len_bytes, .. }) if h.meaning.operation == Operation::ReadRequest => {
            len_bytes.div_ceil(1 << mtu_shift).max(1)
        }
        _ => 1,
    }
}

/// All of a packet but the one bit that may differ in a repeat, AckReq.
fn hash_of(words: &[u32], payload: &[u8]) -> u64 {
    const PRIME: u64 = 0x100_0000_01B3;
    let mut hash = 0xCBF2_9CE4_8422_2325_u64;
    for (at, word) in words.iter().enumerate() {
        let word = if at == 4 { word & !(1 << 31) } else { *word };
        hash = (hash ^ u64::from(word)).wrapping_mul(PRIME);
    }
    for chunk in payload.chunks(8) {
        let mut eight = [0; 8];
        eight[..chunk.len()].copy_from_slice(chunk);
        hash = (hash ^ u64::from_le_bytes(eight)).wrapping_mul(PRIME);
    }
    hash | 1
}
