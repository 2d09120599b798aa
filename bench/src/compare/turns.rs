//! One thread asks, another answers: the time from asking to the answer.
//!
//! The answer is a counter in shared memory that the asker spins on, the same for every candidate, so that ratios
//! compare the asking. Before each question the asker spins for a while, and the answerer has gone to sleep by then.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Questions in one turn of a candidate.
const QUESTIONS: u64 = 400;

/// A way to ask.
pub(super) trait Bell: Sync {
    /// Asks. Called by the asker only.
    fn ring(&self);

    /// Waits until it was asked, or until there is nothing more to come. Called by the answerer only.
    fn wait(&self);
}

/// Nanoseconds from asking to the answer, the median of many, with `pause` before each question.
pub(super) fn median_ns(bell: &impl Bell, pause: Duration) -> f64 {
    let (answers, done) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            loop {
                bell.wait();
                if done.load(Ordering::Acquire) {
                    break;
                }
                answers.fetch_add(1, Ordering::AcqRel);
            }
        });
        let mut waits = Vec::with_capacity(QUESTIONS as usize);
        for question in 0..QUESTIONS {
            spin_until(Instant::now() + pause);
            let begun = Instant::now();
            bell.ring();
            while answers.load(Ordering::Acquire) <= question {
                spin_loop();
            }
            waits.push(begun.elapsed());
        }
        done.store(true, Ordering::Release);
        bell.ring();
        waits.sort();
        waits[waits.len() / 2].as_nanos() as f64
    })
}

fn spin_until(deadline: Instant) {
    while Instant::now() < deadline {
        spin_loop();
    }
}
