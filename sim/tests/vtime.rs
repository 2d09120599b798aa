//! The virtual-time engine as an experiment uses it: a small model with its own events, turned to the end.
#![allow(missing_docs)]
#![forbid(unsafe_code)]

use proptest::prelude::*;
use qhca_regs::time::{Duration, Instant};
use qhca_sim::vtime::{
    Charges, Class, Core, Distribution, Engine, Label, Order, Outcome, Rng, Seed, Sort, TaskId, Turn,
};
use qhca_sim::vtime::{Timer, Woken};

fn ns(ns: u64) -> Duration {
    Duration::from_nanos(ns)
}

fn at(ns: u64) -> Instant {
    Instant::from_nanos(ns)
}

/// What can happen in the small model.
#[derive(Clone, Copy, Debug)]
enum Happening {
    Wake(usize, TaskId),
    SliceEnds(usize),
}

/// What a task's step costs, how many steps it takes, and whether its class mates may run in between.
#[derive(Clone, Debug)]
struct Plan {
    pieces: Vec<(Label, Duration)>,
    steps: u32,
    between: Outcome,
}

/// Cores, their tasks' plans, and a log of (time, core, task name, step).
struct Model {
    engine: Engine<Happening>,
    cores: Vec<Core>,
    timers: Vec<Option<Timer>>,
    plans: Vec<Vec<(Plan, u32)>>,
    log: Vec<(u64, usize, &'static str, u32)>,
}

impl Model {
    fn new(seed: Seed, cores: usize, order: Order) -> Self {
        Self {
            engine: Engine::new(seed),
            cores: (0..cores).map(|_| Core::new(order)).collect(),
            timers: vec![None; cores],
            plans: vec![Vec::new(); cores],
            log: Vec::new(),
        }
    }

    /// A task whose every step has the given pieces, all booked under the task's name.
    fn task(
        &mut self,
        core: usize,
        class: Class,
        sort: Sort,
        name: &'static str,
        pieces: &[u64],
        steps: u32,
    ) -> TaskId {
        let label = self.cores[core].label(name);
        let pieces = pieces.iter().map(|&span| (label, ns(span))).collect();
        self.plans[core].push((Plan { pieces, steps, between: Outcome::Continue }, 0));
        self.cores[core].add_task(class, sort, name)
    }

    fn wake_at(&mut self, when: u64, core: usize, task: TaskId) {
        self.engine.schedule(at(when), Happening::Wake(core, task));
    }

    fn run(&mut self, until: Instant) {
        while let Some(happening) = self.engine.pop_until(until) {
            match happening {
                Happening::Wake(core, task) => {
                    let now = self.engine.now();
                    match self.cores[core].wake(task, now) {
                        Woken::Start => self.turn(core),
                        Woken::Cut(end) => self.slice_ends(core, end),
                        Woken::Waits => {}
                    }
                }
                Happening::SliceEnds(core) => {
                    self.timers[core] = None;
                    self.cores[core].end_slice(self.engine.now());
                    self.turn(core);
                }
            }
        }
    }

    fn slice_ends(&mut self, core: usize, end: Instant) {
        if let Some(old) = self.timers[core].take() {
            self.engine.cancel(old);
        }
        self.timers[core] = Some(self.engine.schedule(end, Happening::SliceEnds(core)));
    }

    fn turn(&mut self, core: usize) {
        let now = self.engine.now();
        let end = match self.cores[core].turn(now) {
            Turn::Idle => return,
            Turn::Busy(end) => end,
            Turn::Run(task) => {
                let name = self.cores[core].name(task);
                let class = self.cores[core].class(task);
                assert!(
                    class == Class::HardIrq || self.cores[core].raised().is_empty(),
                    "{name} ran over an interrupt"
                );
                let index = (0..self.plans[core].len())
                    .find(|&n| self.plans[core][n].0.pieces[0].0 == self.cores[core].label(name))
                    .expect("each task has a plan");
                let (plan, done) = &mut self.plans[core][index];
                *done += 1;
                self.log.push((now.as_nanos(), core, name, *done));
                self.engine.record(name, [core as u64, u64::from(*done)]);
                let mut charges = Charges::new();
                for &(label, span) in &plan.pieces {
                    charges.add(label, span);
                }
                let outcome = if *done == plan.steps { Outcome::Done } else { plan.between };
                if outcome == Outcome::Done {
                    *done = 0;
                }
                self.cores[core].charge(&charges, outcome, now)
            }
        };
        self.slice_ends(core, end);
    }

    fn order(&self) -> Vec<(u64, &'static str)> {
        self.log.iter().map(|&(when, _, name, _)| (when, name)).collect()
    }
}

#[test]
fn an_interrupt_cuts_a_thread_between_two_charges() {
    let mut model = Model::new(Seed(1), 1, Order::Arrival);
    let thread = model.task(0, Class::Thread, Sort::Other, "thread", &[100, 100, 100], 1);
    let irq = model.task(0, Class::HardIrq, Sort::Receive, "irq", &[50], 1);
    let next = model.task(0, Class::Thread, Sort::Other, "next", &[10], 1);
    model.wake_at(0, 0, thread);
    model.wake_at(0, 0, next);
    model.wake_at(120, 0, irq);
    model.run(at(10_000));
    // The second charge ends at 200, the interrupt takes 50, the third charge 100 more.
    assert_eq!(model.order(), [(0, "thread"), (200, "irq"), (350, "next")]);
    assert_eq!(model.cores[0].cuts(), 1);
    assert_eq!(model.cores[0].class_time(Class::Thread), ns(310));
}

#[test]
fn a_hard_interrupt_is_not_cut_by_another() {
    let mut model = Model::new(Seed(1), 1, Order::ErrorsFirst);
    let receive = model.task(0, Class::HardIrq, Sort::Receive, "receive", &[100, 100], 2);
    let error = model.task(0, Class::HardIrq, Sort::Error, "error", &[10], 1);
    model.wake_at(0, 0, receive);
    model.wake_at(50, 0, error);
    model.run(at(10_000));
    assert_eq!(model.order(), [(0, "receive"), (200, "receive"), (400, "error")]);
    assert_eq!(model.cores[0].cuts(), 0);
}

#[test]
fn classes_run_in_their_order_and_the_worker_last() {
    let mut model = Model::new(Seed(1), 1, Order::Arrival);
    let first = model.task(0, Class::HardIrq, Sort::Other, "first", &[10], 1);
    let worker = model.task(0, Class::Worker, Sort::Other, "worker", &[10], 1);
    let thread = model.task(0, Class::Thread, Sort::Other, "thread", &[10], 1);
    let soft = model.task(0, Class::SoftIrq, Sort::Other, "soft", &[10], 1);
    for task in [first, worker, thread, soft] {
        model.wake_at(0, 0, task);
    }
    model.run(at(1_000));
    assert_eq!(model.order(), [(0, "first"), (10, "soft"), (20, "thread"), (30, "worker")]);
}

#[test]
fn errors_first_starves_receive_and_arrival_does_not() {
    for (order, expected) in [
        (Order::ErrorsFirst, &["error", "error", "error", "error", "receive"][..]),
        (Order::Arrival, &["error", "receive", "error", "error"]),
        (Order::ReceiveFirst, &["error", "receive", "error", "error"]),
    ] {
        let mut model = Model::new(Seed(1), 1, order);
        let error = model.task(0, Class::HardIrq, Sort::Error, "error", &[100], 1);
        let receive = model.task(0, Class::HardIrq, Sort::Receive, "receive", &[100], 1);
        model.wake_at(0, 0, error);
        model.wake_at(10, 0, receive);
        // Raised again while its handler runs: once more afterwards, behind what came before.
        model.wake_at(50, 0, error);
        model.wake_at(150, 0, error);
        model.wake_at(250, 0, error);
        model.run(at(10_000));
        let names: Vec<_> = model.order().into_iter().map(|(_, name)| name).collect();
        assert_eq!(names, expected, "{}", order.name());
    }
}

#[test]
fn a_handler_that_yields_lets_another_interrupt_in_whatever_the_order() {
    let mut model = Model::new(Seed(1), 1, Order::ReceiveFirst);
    let receive = model.task(0, Class::HardIrq, Sort::Receive, "receive", &[100], 4);
    model.plans[0].last_mut().expect("just added").0.between = Outcome::Yield;
    let error = model.task(0, Class::HardIrq, Sort::Error, "error", &[10], 1);
    model.wake_at(0, 0, receive);
    model.wake_at(50, 0, error);
    model.wake_at(105, 0, error);
    model.run(at(10_000));
    // The second error is pending when the order decides again, and receive goes first.
    let names: Vec<_> = model.order().into_iter().map(|(_, name)| name).collect();
    assert_eq!(names, ["receive", "error", "receive", "error", "receive", "receive"]);
}

#[test]
fn a_wake_of_a_ready_task_is_coalesced_and_one_of_a_running_task_is_kept() {
    let mut model = Model::new(Seed(1), 1, Order::Arrival);
    let blocker = model.task(0, Class::HardIrq, Sort::Other, "blocker", &[100], 1);
    let task = model.task(0, Class::SoftIrq, Sort::Other, "task", &[100], 1);
    model.wake_at(0, 0, blocker);
    for when in [10, 20, 30] {
        model.wake_at(when, 0, task);
    }
    model.wake_at(150, 0, task);
    model.run(at(10_000));
    assert_eq!(model.cores[0].runs(task), 2);
}

#[test]
fn tasks_that_yield_take_turns_and_tasks_that_continue_do_not() {
    for (between, expected) in
        [(Outcome::Yield, ["a", "b", "a", "b"]), (Outcome::Continue, ["a", "a", "b", "b"])]
    {
        let mut model = Model::new(Seed(1), 1, Order::Arrival);
        let a = model.task(0, Class::Thread, Sort::Other, "a", &[10], 2);
        let b = model.task(0, Class::Thread, Sort::Other, "b", &[10], 2);
        for (plan, _) in &mut model.plans[0] {
            plan.between = between;
        }
        model.wake_at(0, 0, a);
        model.wake_at(0, 0, b);
        model.run(at(1_000));
        let names: Vec<_> = model.order().into_iter().map(|(_, name)| name).collect();
        assert_eq!(names, expected);
    }
}

#[test]
fn a_live_step_sees_the_world_move_and_is_not_cut() {
    let mut engine: Engine<&str> = Engine::new(Seed(1));
    let mut core = Core::new(Order::Arrival);
    let read = core.label("read");
    let thread = core.add_task(Class::Thread, Sort::Other, "thread");
    let irq = core.add_task(Class::HardIrq, Sort::Receive, "irq");
    engine.schedule(at(700), "packet");
    assert_eq!(core.wake(thread, engine.now()), Woken::Start);
    assert_eq!(core.turn(engine.now()), Turn::Run(thread));
    let mut packets = 0;
    let mut seen = Vec::new();
    for _ in 0..2 {
        let to = engine.now() + ns(500);
        core.spend(read, ns(500));
        while engine.pop_until(to).is_some() {
            packets += 1;
            assert_eq!(core.wake(irq, engine.now()), Woken::Waits);
        }
        engine.advance_to(to);
        seen.push(packets);
    }
    core.finish_live(Outcome::Done, engine.now());
    assert_eq!(seen, [0, 1], "the second read happens after the packet, the first before it");
    assert_eq!(core.turn(engine.now()), Turn::Run(irq));
    assert_eq!(core.class_time(Class::Thread), ns(1_000));
}

/// A busy machine drawn from a seed: tasks of all classes on two cores, woken at random.
fn random_machine(seed: u64, order: Order) -> Model {
    let mut model = Model::new(Seed(seed), 2, order);
    let mut shape: Rng = model.engine.source("shape");
    let mut gaps = model.engine.source("gaps");
    let names = ["irq0", "irq1", "soft0", "soft1", "thread0", "thread1", "worker0", "worker1"];
    for core in 0..2 {
        for (place, name) in names.into_iter().enumerate() {
            let pieces: Vec<u64> = (0..=shape.below(4)).map(|_| shape.between(1, 80)).collect();
            let sort = if shape.one_in(2) { Sort::Error } else { Sort::Receive };
            let steps = shape.between(1, 3) as u32;
            let task = model.task(core, Class::ALL[place / 2], sort, name, &pieces, steps);
            if shape.one_in(2) {
                model.plans[core].last_mut().expect("just added").0.between = Outcome::Yield;
            }
            let mut when = 0;
            for _ in 0..20 {
                when += Distribution::Exponential(ns(400)).draw(&mut gaps).as_nanos();
                model.wake_at(when, core, task);
            }
        }
    }
    model
}

proptest! {
    #[test]
    fn every_nanosecond_is_booked_once(seed: u64) {
        let mut model = random_machine(seed, Order::Arrival);
        model.run(Instant::MAX);
        for core in &model.cores {
            prop_assert!(core.is_idle());
            let by_class = Class::ALL.iter().fold(Duration::ZERO, |sum, &class| sum + core.class_time(class));
            prop_assert_eq!(core.ledger().total(), by_class);
            prop_assert_eq!(by_class + core.idle_time(), core.booked_to() - Instant::ZERO);
        }
    }

    #[test]
    fn one_seed_gives_one_run(seed: u64) {
        let run = |seed, order| {
            let mut model = random_machine(seed, order);
            model.run(Instant::MAX);
            (model.engine.trace().value(), model.log)
        };
        prop_assert_eq!(run(seed, Order::ErrorsFirst), run(seed, Order::ErrorsFirst));
        prop_assert_ne!(run(seed, Order::Arrival).0, run(seed ^ 1, Order::Arrival).0);
    }

    /// All that a wake promised is done: a woken task ran at or after its wake.
    #[test]
    fn no_wake_is_lost(seed: u64, when in 0_u64..8_000) {
        let mut model = random_machine(seed, Order::ErrorsFirst);
        let task = model.task(0, Class::Worker, Sort::Other, "late", &[5], 1);
        model.wake_at(when, 0, task);
        model.run(Instant::MAX);
        prop_assert!(model.log.iter().any(|&(start, _, name, _)| name == "late" && start >= when));
    }
}
