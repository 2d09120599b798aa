//! The worker hand-over under every interleaving that the memory model allows.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p qhca-irq --test handover_loom --release`.

#![cfg(loom)]

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use loom::thread;
use qhca_irq::worker::{Close, Handover, Reasons, Scheduled, TurnEnd};
use qhca_regs::{Instant, Port};

const NOW: Instant = Instant::from_nanos(160);

/// What the interrupt side and the worker share beside the hand-over: an error word, its mask, and turns that ran.
struct World {
    handover: Handover,
    /// Error bits that stand; the chip's `ErrStatus`.
    status: AtomicU64,
    in_turn: AtomicBool,
    served: AtomicU64,
}

impl World {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            handover: Handover::new(),
            status: AtomicU64::new(0),
            in_turn: AtomicBool::new(false),
            served: AtomicU64::new(0),
        })
    }

    /// An error has come and been handed over, and a thread of its own runs the turns that are wanted.
    fn with_a_worker_on_its_way() -> (Arc<Self>, thread::JoinHandle<bool>) {
        let world = Self::new();
        world.interrupt(1, false);
        let shared = world.clone();
        (world, thread::spawn(move || shared.work()))
    }

    /// An error comes and its interrupt hands it over.
    fn interrupt(&self, bits: u64, urgent: bool) -> Scheduled {
        self.status.fetch_or(bits, Ordering::Release);
        self.handover.schedule(Reasons::DEVICE, urgent, NOW)
    }

    /// The worker runs all turns that are wanted. Gives whether one of them was urgent.
    fn work(&self) -> bool {
        let mut urgent = false;
        while let Some(turn) = self.handover.begin(NOW) {
            assert!(!self.in_turn.swap(true, Ordering::AcqRel), "turns overlap");
            urgent |= turn.urgent;
            self.served.fetch_or(self.status.swap(0, Ordering::AcqRel), Ordering::AcqRel);
            self.in_turn.store(false, Ordering::Release);
            if self.handover.end(turn) != TurnEnd::Again {
                break;
            }
        }
        urgent
    }
}

/// Traps 2 and 3: whatever comes while a turn runs is served by that turn or by the next; no schedule is lost.
#[test]
fn errors_that_race_with_turns_are_all_served() {
    loom::model(|| {
        let world = World::new();
        let interrupts = {
            let world = world.clone();
            thread::spawn(move || {
                world.interrupt(1, false);
                world.interrupt(2, false);
            })
        };
        world.work();
        interrupts.join().unwrap();
        // The wake-up that the last schedule asked for.
        world.work();
        assert_eq!(world.served.load(Ordering::Acquire), 3);
        assert_eq!(world.handover.pending(), Reasons::NONE);
    });
}

/// Two vectors that hand over at once: at least one is told to wake the worker, and both reasons arrive.
#[test]
fn of_two_interrupts_at_once_one_wakes_the_worker_and_both_reasons_arrive() {
    loom::model(|| {
        let world = World::new();
        let other = {
            let world = world.clone();
            thread::spawn(move || world.handover.schedule(Reasons::port(Port::P1), false, NOW))
        };
        let mine = world.handover.schedule(Reasons::DEVICE, false, NOW);
        let theirs = other.join().unwrap();
        assert!(matches!(
            (mine, theirs),
            (Scheduled::Wake, Scheduled::AlreadyPending) | (Scheduled::AlreadyPending, Scheduled::Wake)
        ));
        let turn = world.handover.begin(NOW).expect("a turn");
        assert!(turn.reasons.contains(Reasons::DEVICE.and(Reasons::port(Port::P1))));
        assert_eq!(world.handover.end(turn), TurnEnd::Idle);
    });
}

/// Trap 8: urgency shows until a turn knows of it, however the turn that was already wanted races with it.
#[test]
fn urgency_is_seen_by_a_turn_and_never_hidden_before() {
    loom::model(|| {
        let (world, worker) = World::with_a_worker_on_its_way();
        assert_eq!(world.interrupt(2, true), Scheduled::Wake, "a newly urgent turn wakes");
        let urgent_then = worker.join().unwrap();
        let visible = world.handover.is_urgent();
        assert!(urgent_then || visible, "urgency was lost");
        let urgent_later = world.work();
        assert_eq!(urgent_later, visible);
        assert_eq!(world.served.load(Ordering::Acquire), 3);
    });
}

/// Two threads that may both run the worker (its own, and one that must not wait): turns never overlap.
#[test]
fn two_workers_never_run_a_turn_at_once_and_lose_nothing() {
    loom::model(|| {
        let (world, other) = World::with_a_worker_on_its_way();
        world.interrupt(2, true);
        world.work();
        other.join().unwrap();
        world.work();
        assert_eq!(world.served.load(Ordering::Acquire), 3);
    });
}

/// Trap 4: after close no turn begins; if close found none running, nothing is touched after it.
#[test]
fn a_close_that_races_with_interrupt_and_turn_leaves_nothing_running() {
    loom::model(|| {
        let (world, worker) = World::with_a_worker_on_its_way();
        let close = world.handover.close();
        if close == Close::Quiet {
            assert!(!world.in_turn.load(Ordering::Acquire), "quiet while a turn touches registers");
        }
        assert_eq!(world.interrupt(4, true), Scheduled::Closed);
        let served_before = (close == Close::Quiet).then(|| world.served.load(Ordering::Acquire));
        worker.join().unwrap();
        assert!(!world.handover.is_running());
        if let Some(served) = served_before {
            assert_eq!(world.served.load(Ordering::Acquire), served, "a turn ran after a quiet close");
        }
        assert!(world.handover.begin(NOW).is_none());
    });
}

/// Trap 16: the worker sleeps on a bell and is woken only when a turn becomes wanted. It never sleeps on a bell that is
/// silent while a turn is wanted, whenever interrupt and falling asleep meet.
#[test]
fn a_worker_never_falls_asleep_over_a_turn_that_is_wanted() {
    loom::model(|| {
        let world = World::new();
        let bell = Arc::new(AtomicBool::new(false));
        let ring = |world: &World, bell: &AtomicBool, bits| {
            if world.interrupt(bits, false) == Scheduled::Wake {
                bell.swap(true, Ordering::AcqRel);
            }
        };
        let worker = {
            let (world, bell) = (world.clone(), bell.clone());
            thread::spawn(move || {
                // Wakes if the bell has rung, works until nothing is left, looks at the bell once more, sleeps.
                for _ in 0..2 {
                    if bell.swap(false, Ordering::AcqRel) {
                        world.work();
                    }
                }
            })
        };
        ring(&world, &bell, 1);
        ring(&world, &bell, 2);
        worker.join().unwrap();
        let rings = bell.swap(false, Ordering::AcqRel);
        assert!(rings || world.handover.pending().is_empty(), "asleep, and a turn is wanted");
        if rings {
            world.work();
        }
        assert_eq!(world.served.load(Ordering::Acquire), 3);
    });
}
