//! The receiving driver on the core: its real code, called step by step as a kernel or a runtime would call it.
//!
//! ```text
//!   hard irq    entry ─▶ dispatch ─▶ errors, if the policy serves them here ─▶ one batch of packets ─▶ exit
//!   tasklet     the worker's turn under `deferred`: as soon as no interrupt is pending
//!   worker      the worker's turn under `guarded`: when nothing else runs, or when its deadline has come
//! ```
//!
//! A batch has a bound. If there is more, the handler yields: its next batch begins without an interrupt, after
//! whatever else is pending. A worker whose deadline has come, or that is urgent, goes
//! before the next batch, whatever the order of interrupts.
//!
//! Only costs are added here: what is called, and in which order, is what the driver says.

use std::cell::RefCell;

use qhca_driver::event::Event;
use qhca_driver::fault::{FaultCounts, Policy, Worker};
use qhca_driver::hca::Hca;
use qhca_driver::rx::{Arrival, Context, Next};
use qhca_irq::{ContextSet, WorkerCall};
use qhca_regs::{Bar, Instant, Vector};
use qhca_sim::vtime::Outcome;

use super::machine::{CostBar, Job, Machine, Path, Purpose};

/// One brought-up device.
pub(super) struct Node {
    policy: Policy,
    hca: Hca,
    contexts: Vec<Context>,
    /// Contexts whose packets were left when the vector's handler yielded.
    polling: [ContextSet; Vector::COUNT],
    fatal_at: Option<Instant>,
}

impl Node {
    pub(super) fn new(policy: Policy, hca: Hca, contexts: Vec<Context>) -> Self {
        Self { policy, hca, contexts, polling: [ContextSet::EMPTY; Vector::COUNT], fatal_at: None }
    }

    /// The driver's account of dropped packets.
    pub(super) fn drops(&self) -> u64 {
        self.hca.worker().map_or(0, |worker| worker.overflow().lost_in_all())
    }

    /// Receive contexts in use.
    pub(super) fn contexts(&self) -> usize {
        self.contexts.len()
    }

    /// When the fatal event was out.
    pub(super) fn fatal_at(&self) -> Option<Instant> {
        self.fatal_at
    }

    /// Makes the step of one job.
    pub(super) fn step(&mut self, job: Job, machine: &RefCell<Machine>) -> Outcome {
        match job {
            Job::Vector(vector) => self.handle(vector, machine),
            Job::Stall => {
                machine.borrow_mut().stall();
                Outcome::Done
            }
            Job::Tasklet | Job::Worker => {
                if !self.hca.shared().handover().pending().is_empty() {
                    self.turn(machine);
                }
                Outcome::Done
            }
            Job::Timer => {
                self.turn_if_due(machine);
                let now = machine.borrow().now();
                self.hca.on_timeout(&CostBar::new(machine), now);
                Outcome::Done
            }
        }
    }

    /// The handler of `vector`: an interrupt if a message has come, else the next batch of one that yielded.
    fn handle(&mut self, vector: Vector, machine: &RefCell<Machine>) -> Outcome {
        self.turn_if_due(machine);
        let came = machine.borrow_mut().take_message(vector);
        let contexts = match came {
            true => self.interrupt(vector, machine),
            false => self.polling[vector.index()],
        };
        let more = self.drain(contexts, machine);
        self.polling[vector.index()] = more;
        if more.is_empty() { Outcome::Done } else { Outcome::Yield }
    }

    /// From entry to exit, but for the packets; returns the contexts to drain.
    fn interrupt(&mut self, vector: Vector, machine: &RefCell<Machine>) -> ContextSet {
        let now = machine.borrow_mut().enter_interrupt();
        let (counts, errors) = (self.fault_counts(), self.errors_announced(vector));
        let interrupt = self.hca.on_interrupt(vector, &CostBar::new(machine), now);
        let took = machine.borrow().now() - now;
        let is_error = self.errors_announced(vector) != errors;
        if is_error {
            self.finish_service(counts, machine);
        }
        match (interrupt.worker, self.policy) {
            (WorkerCall::None, _) => {}
            (WorkerCall::WakeUrgent, _) => self.turn(machine),
            (WorkerCall::Wake, Policy::Deferred) => machine.borrow_mut().wake(Job::Tasklet),
            (WorkerCall::Wake, _) => machine.borrow_mut().wake(Job::Worker),
        }
        let is_receive = !interrupt.contexts.is_empty();
        machine.borrow_mut().leave_interrupt(Purpose { is_error, is_receive }, took);
        interrupt.contexts.union(self.polling[vector.index()])
    }

    /// One batch of each of `contexts`; returns those that have more.
    fn drain(&mut self, contexts: ContextSet, machine: &RefCell<Machine>) -> ContextSet {
        let before = machine.borrow_mut().enter(Path::Receive);
        let mut more = ContextSet::EMPTY;
        let batch = machine.borrow().batch_packets(self.policy);
        for context in self.contexts.iter_mut().filter(|context| contexts.contains(context.ctxt())) {
            let now = machine.borrow().now();
            let drained = context.drain(batch, &CostBar::new(machine), now, |arrival| {
                let machine = &mut *machine.borrow_mut();
                match arrival {
                    Arrival::Packet(packet) => machine.spend_packet(&packet),
                    _ => machine.spend_dropped(),
                }
            });
            // What an answer calls for must find room. The published policies answer at once, as the stock driver does.
            if self.policy != Policy::Guarded || !context.is_quarter_full() {
                machine.borrow_mut().send_answers();
            }
            if drained.next == Next::More {
                more = more.with(context.ctxt());
            }
        }
        machine.borrow_mut().enter(before);
        more
    }

    /// The worker goes first if it can wait no longer.
    fn turn_if_due(&mut self, machine: &RefCell<Machine>) {
        let now = machine.borrow().now();
        let due = self.hca.worker().and_then(Worker::poll_timeout);
        if self.policy == Policy::Guarded && due.is_some_and(|at| at <= now) {
            self.turn(machine);
        }
    }

    /// A turn of the worker, or of the tasklet that it is under `deferred`.
    fn turn(&mut self, machine: &RefCell<Machine>) {
        let before = machine.borrow_mut().enter(Path::Error);
        let reads = machine.borrow().sums().reads;
        machine.borrow_mut().spend_worker();
        let counts = self.fault_counts();
        self.take_reports(machine);
        self.charge_service(counts, machine);
        machine.borrow_mut().note_turn(reads);
        machine.borrow_mut().enter(before);
    }

    /// Errors that the default vector has announced so far, each scope by itself.
    fn errors_announced(&self, vector: Vector) -> u64 {
        if vector != Vector::DEFAULT {
            return 0;
        }
        let counters = self.hca.shared().dispatcher().counters();
        counters.device_errors + counters.port_errors.iter().sum::<u64>()
    }

    /// What is left of a service in the interrupt, if there was one: its own instructions, and its reports.
    fn finish_service(&mut self, before: FaultCounts, machine: &RefCell<Machine>) {
        if self.fault_counts().served == before.served {
            return;
        }
        let path = machine.borrow_mut().enter(Path::Error);
        self.charge_service(before, machine);
        self.take_reports(machine);
        machine.borrow_mut().enter(path);
    }

    /// Lets the driver give its reports, and takes the events that come of them.
    fn take_reports(&mut self, machine: &RefCell<Machine>) {
        let bar = CostBar::new(machine);
        loop {
            let now = machine.borrow().now();
            let Some(report) = self.hca.poll_deferred(&bar, now) else { break };
            machine.borrow_mut().record_report(report.word);
        }
        let now = machine.borrow().now();
        while let Some(event) = self.hca.poll_event() {
            if matches!(event, Event::Fatal(_)) {
                self.fatal_at.get_or_insert(now);
            }
        }
    }

    /// The instructions of the error path since `before`: a handler for each word served, a decoding for each decoded.
    fn charge_service(&mut self, before: FaultCounts, machine: &RefCell<Machine>) {
        let counts = self.fault_counts();
        let served: u64 = counts.served.iter().sum::<u64>() - before.served.iter().sum::<u64>();
        let decoded = counts.decoded - before.decoded;
        machine.borrow_mut().spend_service(served, decoded, self.policy == Policy::Inline);
    }

    fn fault_counts(&self) -> FaultCounts {
        self.hca.worker().map(|worker| *worker.counts()).unwrap_or_default()
    }

    /// When the driver is to be called although nothing interrupts.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.hca.poll_timeout()
    }

    /// Brings the account of drops up to date, at no cost: the measurement is over.
    pub(super) fn final_sample(&mut self, bar: &impl Bar) {
        if let Some(worker) = self.hca.worker_mut() {
            worker.sample_overflow(bar);
        }
    }
}
