//! Whether to look at a client a little longer before the event loop sleeps.
//!
//! A driver that reads registers asks again as soon as it has its answer. A server that goes to sleep in between pays for
//! the sleep, for being woken, and for asking the event loop what woke it, with every read. One that looks again for some
//! microseconds finds the next question there.
//!
//! ```text
//!   read answered ──▶ look again, up to LOOK_NS ──▶ another read came: hit, look again
//!                                            └────▶ nothing, or a posted write: miss, sleep
//!   score: a hit adds 1, a miss halves; below ENOUGH the server sleeps at once, and tries again now and then
//! ```
//!
//! Clients that mostly write, as drivers do on their data path, make misses and cost nothing for long. So does a machine
//! with one processor, on which a client cannot ask while the server looks.

use qhca_regs::Duration;

/// How long is looked: about as long as a client needs from one answer to its next question.
pub(super) const LOOK_FOR: Duration = Duration::from_micros(12);
/// Score from which it is worth to look.
const ENOUGH: u8 = 4;
const SCORE_MAX: u8 = 32;
/// Answers after which it is tried again although it was not worth it.
const TRY_EVERY: u16 = 256;

/// What became of the looks so far.
#[derive(Clone, Copy, Debug)]
pub(super) struct Linger {
    score: u8,
    since_try: u16,
}

impl Linger {
    pub(super) const fn new() -> Self {
        Self { score: ENOUGH, since_try: 0 }
    }

    /// Whether to look after an answer.
    pub(super) fn is_worth_it(&mut self) -> bool {
        self.since_try += 1;
        let worth = self.score >= ENOUGH || self.since_try >= TRY_EVERY;
        if worth {
            self.since_try = 0;
        }
        worth
    }

    /// A question came while the server looked.
    pub(super) fn hit(&mut self) {
        self.score = (self.score + 1).min(SCORE_MAX);
    }

    /// None did.
    pub(super) fn miss(&mut self) {
        self.score /= 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of 10,000 answers are followed by a look, if every `every`-th look is a hit; 0 for none.
    fn looks(every: usize) -> usize {
        let (mut linger, mut looks) = (Linger::new(), 0);
        for _ in 0..10_000 {
            if linger.is_worth_it() {
                looks += 1;
                match every != 0 && looks % every == 0 {
                    true => linger.hit(),
                    false => linger.miss(),
                }
            }
        }
        looks
    }

    #[test]
    fn questions_that_follow_are_waited_for_and_others_hardly() {
        assert_eq!(looks(1), 10_000);
        assert!(looks(0) <= 10_000 / usize::from(TRY_EVERY) + 2, "{}", looks(0));
        assert!(looks(3) < 500, "{}", looks(3));
    }

    #[test]
    fn client_that_begins_to_read_is_found_out() {
        let mut linger = Linger::new();
        (0..1000).for_each(|_| linger.miss());
        let mut answers = 0;
        while linger.score < ENOUGH {
            answers += 1;
            if linger.is_worth_it() {
                linger.hit();
            }
            assert!(answers <= 8 * u32::from(TRY_EVERY), "never found out");
        }
    }
}
