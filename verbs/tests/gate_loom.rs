//! Arm, poll again, sleep, under every interleaving that the memory model allows.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p qhca-verbs --test gate_loom --release`.

#![cfg(loom)]

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;
use qhca_verbs::channel::Gate;

/// The gate, the bell's rings, and the news themselves.
struct World {
    gate: Gate,
    rings: AtomicU64,
    queue: AtomicU64,
}

/// One or two publishers, one sleeper: it sleeps only if a ring will come, and what woke it is there.
fn no_news_are_slept_through(publishers: u64) {
    loom::model(move || {
        let world = Arc::new(World { gate: Gate::new(), rings: AtomicU64::new(0), queue: AtomicU64::new(0) });
        let threads: Vec<_> = (0..publishers)
            .map(|_| {
                let world = world.clone();
                thread::spawn(move || {
                    world.queue.fetch_add(1, Ordering::SeqCst);
                    if world.gate.note() {
                        world.rings.fetch_add(1, Ordering::SeqCst);
                    }
                })
            })
            .collect();
        let seen = world.gate.news();
        let taken = world.queue.swap(0, Ordering::SeqCst);
        let sleeps = !world.gate.arm(seen);
        threads.into_iter().for_each(|thread| thread.join().expect("it ends"));
        let rings = world.rings.load(Ordering::SeqCst);
        let left = world.queue.load(Ordering::SeqCst);
        if sleeps {
            // All is taken, or a bell has rung, or will not have to: nothing came after the look.
            assert!(left == 0 || rings > 0, "{left} news of {publishers} are slept through");
        }
        assert_eq!(taken + left, publishers, "none is lost, none is doubled");
    });
}

/// B74
#[test]
fn sleeper_misses_no_news_of_one_publisher() {
    no_news_are_slept_through(1);
}

/// B74
#[test]
fn sleeper_misses_no_news_of_two_publishers() {
    no_news_are_slept_through(2);
}
