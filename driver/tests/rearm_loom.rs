//! Drain and re-arm against a chip that goes on writing, under every interleaving that the memory model allows.
//!
//! The chip is reduced to what the race is about: it writes entries one by one, and when one comes *after* the
//! interrupt was armed, it disarms and interrupts. What comes before the arming raises nothing. The lines that are
//! searched are the driver's own: [`qhca_driver::rx::flow::drain`].
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p qhca-driver --test rearm_loom --release`.

#![cfg(loom)]

use loom::sync::{Arc, Mutex};
use loom::thread;
use qhca_driver::rx::flow::{Drained, Flow, Next, drain};

/// What chip and driver share: the queue's tail in memory, the head and the arming in registers, the vector.
#[derive(Default)]
struct Wire {
    tail: usize,
    head: usize,
    armed: bool,
    fired: bool,
}

/// The wire, one access at a time: register accesses and DMA of one device reach it in one order.
type Shared = Arc<Mutex<Wire>>;

fn at<R>(wire: &Shared, access: impl FnOnce(&mut Wire) -> R) -> R {
    access(&mut wire.lock().unwrap())
}

/// The chip writes an entry; a moment later, if the interrupt is armed by then, it fires once.
fn packet(wire: &Shared) {
    at(wire, |wire| wire.tail += 1);
    at(wire, |wire| {
        wire.fired |= wire.armed;
        wire.armed = false;
    });
}

/// The driver's side of the queue.
struct Queue {
    wire: Shared,
    taken: usize,
}

impl Flow for Queue {
    fn take(&mut self, limit: usize) -> usize {
        let there = at(&self.wire, |wire| wire.tail) - self.taken;
        let took = there.min(limit);
        self.taken += took;
        took
    }

    fn has_new(&self) -> bool {
        at(&self.wire, |wire| wire.tail) > self.taken
    }

    fn release(&mut self) {
        let before = at(&self.wire, |wire| std::mem::replace(&mut wire.head, self.taken));
        assert!(before <= self.taken, "the head went backwards");
    }

    fn release_and_arm(&mut self) {
        self.release();
        at(&self.wire, |wire| wire.armed = true);
    }
}

/// Drains until the order says to wait. Gives what the last drain came to.
fn serve(queue: &mut Queue, budget: usize) -> Drained {
    loop {
        let drained = drain(queue, budget, 1);
        if drained.next != Next::More {
            return drained;
        }
    }
}

/// Trap 1, B45: with packets at any moment, either all are taken when the driver goes to sleep, or an interrupt has
/// been raised for the rest; each is taken once, and the head never goes backwards.
#[test]
fn a_packet_at_any_step_of_drain_and_arm_is_taken_or_announced() {
    for budget in [1, 2, 8] {
        loom::model(move || {
            let wire = Shared::default();
            packet(&wire);
            let chip = {
                let wire = wire.clone();
                thread::spawn(move || {
                    packet(&wire);
                    packet(&wire);
                })
            };
            let mut queue = Queue { wire: wire.clone(), taken: 0 };
            assert_eq!(serve(&mut queue, budget).next, Next::Wait);
            chip.join().unwrap();
            let announced = at(&wire, |wire| std::mem::take(&mut wire.fired));
            assert!(
                queue.taken == 3 || announced,
                "{} of 3 taken, and nothing will wake the driver",
                queue.taken
            );
            if announced {
                serve(&mut queue, budget);
            }
            assert_eq!((queue.taken, at(&wire, |wire| wire.head)), (3, 3));
            assert!(at(&wire, |wire| wire.armed), "the driver sleeps unarmed");
        });
    }
}
