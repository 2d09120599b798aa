//! One processor core: tasks in four classes, run step by step, each step paid for in virtual time.
//!
//! ```text
//!   hard irq   [default vector] [context 0]      chosen by an order; never cut by another hard irq
//!   soft irq   [tasklet] [poll]                  cut by hard irqs
//!   thread     [receiver] [application]          cut by the two above
//!   worker     [error worker]                    runs when nothing else wants to
//! ```
//!
//! A task is something that can be woken: an interrupt handler, a tasklet, a thread. It is idle, ready, or under way;
//! waking a ready one changes nothing, and waking one that is under way runs it once more afterwards, as interrupt
//! controllers and tasklets do. So a run queue never holds more than the tasks there are.
//!
//! The model turns the core:
//!
//! ```text
//!   turn() ─ Run(task) ─▶ the model calls the real code ─┬─ charge(pieces, outcome) ─▶ busy_until(), schedule it
//!      ▲                                                 └─ spend() ... finish_live(outcome) ─▶ turn()
//!      └───────────── end_slice() at busy_until() ◀── wake() may bring busy_until() forward (Woken::Cut)
//! ```
//!
//! The core adds no cost of its own. Entry, exit and switching are charged by the model like everything else, and the
//! time of a core is the sum of its charges and its idleness, to the nanosecond.

use std::collections::VecDeque;

use qhca_regs::time::{Duration, Instant};

use super::{Arbitrate, Charges, Label, Ledger, Order, Pending, Sort};

/// Who goes before whom; the earlier class goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Interrupt handlers.
    HardIrq,
    /// Tasklets, soft interrupts and pollers that run in their place.
    SoftIrq,
    /// Ordinary threads.
    Thread,
    /// Background work.
    Worker,
}

impl Class {
    /// All classes, first to last.
    pub const ALL: [Self; 4] = [Self::HardIrq, Self::SoftIrq, Self::Thread, Self::Worker];
}

/// A task of one core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(u16);

/// What a task wants after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing until it is woken.
    Done,
    /// Another step, and no task of its own class in between.
    Continue,
    /// Another step, after the other ready tasks of its class. Among hard interrupts: after one of those that are
    /// pending by now, whatever the order, since a handler that ends raises its interrupt again only afterwards.
    Yield,
}

/// What the core does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// The model is to make this task's step now.
    Run(TaskId),
    /// A step that was cut goes on until then; call [`Core::end_slice`] at that time.
    Busy(Instant),
    /// Nothing until a task is woken.
    Idle,
}

/// What waking a task asks of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// The core is idle: call [`Core::turn`].
    Start,
    /// The present slice now ends at this earlier time: move the event that ends it.
    Cut(Instant),
    /// Nothing: the task waits for its turn, or was ready already.
    Waits,
}

/// A core whose pending interrupts are ordered by `A`.
#[derive(Clone, Debug)]
pub struct Core<A = Order> {
    tasks: Vec<Task>,
    raised: Vec<Pending>,
    /// The hard interrupt that has just yielded: it is raised, but no candidate while others are.
    yielded: Option<TaskId>,
    ready: [VecDeque<TaskId>; 3],
    frames: [Option<Frame>; 4],
    state: State,
    order: A,
    ledger: Ledger,
    by_class: [Duration; 4],
    idle: Duration,
    /// Up to here every nanosecond has been booked as busy or idle.
    booked_to: Instant,
    cuts: u64,
}

#[derive(Clone, Debug)]
struct Task {
    name: &'static str,
    class: Class,
    sort: Sort,
    state: TaskState,
    runs: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TaskState {
    Idle,
    Ready,
    UnderWay,
    UnderWayAndWoken,
}

/// A task under way: one per class at most.
#[derive(Clone, Debug)]
struct Frame {
    task: TaskId,
    /// What is left of the step's charges.
    pieces: VecDeque<(Label, Duration)>,
    outcome: Outcome,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nothing runs; `turn` decides.
    Between,
    /// The model is making a step of this class, begun then.
    Stepping { class: Class, begun: Instant, spent: Duration },
    /// Charges of this class's frame are being played: so many pieces, until then.
    Playing { class: Class, pieces: usize, until: Instant },
}

impl<A: Arbitrate> Core<A> {
    /// A core without tasks, whose pending interrupts are taken in `order`.
    pub fn new(order: A) -> Self {
        Self {
            tasks: Vec::new(),
            raised: Vec::new(),
            yielded: None,
            ready: Default::default(),
            frames: Default::default(),
            state: State::Between,
            order,
            ledger: Ledger::new(),
            by_class: [Duration::ZERO; 4],
            idle: Duration::ZERO,
            booked_to: Instant::ZERO,
            cuts: 0,
        }
    }

    /// The same, on a clock that already stands at `start`: what came before is neither busy nor idle time.
    pub fn starting_at(order: A, start: Instant) -> Self {
        Self { booked_to: start, ..Self::new(order) }
    }

    /// Adds a task. `sort` matters to hard interrupts only.
    ///
    /// PANIC: more than 65,536 tasks on one core, which are written by hand.
    pub fn add_task(&mut self, class: Class, sort: Sort, name: &'static str) -> TaskId {
        let id = TaskId(u16::try_from(self.tasks.len()).expect("tasks are few"));
        self.tasks.push(Task { name, class, sort, state: TaskState::Idle, runs: 0 });
        id
    }

    /// Registers a kind of cost.
    pub fn label(&mut self, name: &'static str) -> Label {
        self.ledger.label(name)
    }

    /// Makes `task` ready, or lets it run once more if it is under way.
    pub fn wake(&mut self, task: TaskId, now: Instant) -> Woken {
        match self.task(task).state {
            TaskState::Ready | TaskState::UnderWayAndWoken => return Woken::Waits,
            TaskState::UnderWay => {
                self.task_mut(task).state = TaskState::UnderWayAndWoken;
                return Woken::Waits;
            }
            TaskState::Idle => self.make_ready(task, now),
        }
        match self.state {
            State::Between => Woken::Start,
            State::Stepping { .. } => Woken::Waits,
            State::Playing { class, .. } if class <= self.task(task).class => Woken::Waits,
            State::Playing { class, pieces, until } => self.cut(class, pieces, until, now),
        }
    }

    /// Decides what to do now: the first class that has something, and in it what is under way before what is ready.
    pub fn turn(&mut self, now: Instant) -> Turn {
        assert_eq!(self.state, State::Between, "a core is turned between slices only");
        self.book_idle(now);
        for class in Class::ALL {
            if let Some(frame) = &self.frames[class as usize] {
                if !frame.pieces.is_empty() {
                    return Turn::Busy(self.play(class, now));
                }
                return self.begin_step(class, frame.task, now);
            }
            if let Some(task) = self.next_ready(class) {
                self.frames[class as usize] =
                    Some(Frame { task, pieces: VecDeque::new(), outcome: Outcome::Done });
                return self.begin_step(class, task, now);
            }
        }
        Turn::Idle
    }

    /// Ends the model's step: `charges` are played from now on, then the task does as `outcome` says.
    ///
    /// Returns when that is; the model calls [`Core::end_slice`] then, unless a cut moves it.
    pub fn charge(&mut self, charges: &Charges, outcome: Outcome, now: Instant) -> Instant {
        let class = self.end_stepping(now);
        let frame = self.frame_mut(class);
        frame.pieces.extend(charges.pieces());
        frame.outcome = outcome;
        let until = self.play(class, now);
        match self.state {
            State::Playing { pieces, .. } if self.waits_above(class) => {
                match self.cut(class, pieces, until, now) {
                    Woken::Cut(boundary) => boundary,
                    Woken::Start | Woken::Waits => until,
                }
            }
            _ => until,
        }
    }

    /// Books time that a live step has just used; the model moves the clock by as much.
    pub fn spend(&mut self, label: Label, span: Duration) {
        let State::Stepping { spent, .. } = &mut self.state else {
            panic!("only a step under way spends time, but the core is {:?}", self.state);
        };
        *spent += span;
        self.ledger.add(label, span);
    }

    /// Ends a live step; call [`Core::turn`] next.
    pub fn finish_live(&mut self, outcome: Outcome, now: Instant) {
        let class = self.end_stepping(now);
        self.frame_mut(class).outcome = outcome;
        self.settle(class, now);
    }

    /// The slice that ends now is over: its charges are booked. Call [`Core::turn`] next.
    pub fn end_slice(&mut self, now: Instant) {
        let State::Playing { class, pieces, until } = self.state else {
            panic!("no slice is being played, the core is {:?}", self.state);
        };
        assert_eq!(now, until, "a slice ends when it was said to end");
        self.state = State::Between;
        let frame = self.frames[class as usize].as_mut().expect("a slice belongs to a frame");
        for (label, span) in frame.pieces.drain(..pieces) {
            self.ledger.add(label, span);
            self.by_class[class as usize] += span;
        }
        self.booked_to = now;
        if self.frame_mut(class).pieces.is_empty() {
            self.settle(class, now);
        }
    }

    /// When the present slice ends, while one is played.
    pub fn busy_until(&self) -> Option<Instant> {
        match self.state {
            State::Playing { until, .. } => Some(until),
            _ => None,
        }
    }

    /// True while nothing runs and nothing is ready.
    pub fn is_idle(&self) -> bool {
        self.state == State::Between
            && self.raised.is_empty()
            && self.ready.iter().all(VecDeque::is_empty)
            && self.frames.iter().all(Option::is_none)
    }

    /// Where the time went.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Time spent in `class`.
    pub fn class_time(&self, class: Class) -> Duration {
        self.by_class[class as usize]
    }

    /// Time in which nothing ran, up to the last turn, slice or step.
    pub fn idle_time(&self) -> Duration {
        self.idle
    }

    /// Up to when all time is booked.
    pub fn booked_to(&self) -> Instant {
        self.booked_to
    }

    /// How often `task` was started (continued steps do not count).
    pub fn runs(&self, task: TaskId) -> u64 {
        self.task(task).runs
    }

    /// The name of `task`.
    pub fn name(&self, task: TaskId) -> &'static str {
        self.task(task).name
    }

    /// The class of `task`.
    pub fn class(&self, task: TaskId) -> Class {
        self.task(task).class
    }

    /// How often a slice was cut by a higher class.
    pub fn cuts(&self) -> u64 {
        self.cuts
    }

    /// Interrupts raised and not yet taken, in order of arrival.
    pub fn raised(&self) -> &[Pending] {
        &self.raised
    }

    fn task(&self, id: TaskId) -> &Task {
        &self.tasks[usize::from(id.0)]
    }

    fn task_mut(&mut self, id: TaskId) -> &mut Task {
        &mut self.tasks[usize::from(id.0)]
    }

    fn frame_mut(&mut self, class: Class) -> &mut Frame {
        self.frames[class as usize].as_mut().expect("a class that runs has a frame")
    }

    fn make_ready(&mut self, id: TaskId, now: Instant) {
        let task = self.task_mut(id);
        task.state = TaskState::Ready;
        match task.class {
            Class::HardIrq => {
                let sort = task.sort;
                self.raised.push(Pending { task: id, sort, since: now });
            }
            class => self.ready[class as usize - 1].push_back(id),
        }
    }

    fn next_ready(&mut self, class: Class) -> Option<TaskId> {
        let id = match class {
            Class::HardIrq if self.raised.is_empty() => return None,
            Class::HardIrq => self.take_raised(),
            _ => self.ready[class as usize - 1].pop_front()?,
        };
        let task = self.task_mut(id);
        task.state = TaskState::UnderWay;
        task.runs += 1;
        Some(id)
    }

    /// Takes the pending interrupt that the order chooses. There is one.
    fn take_raised(&mut self) -> TaskId {
        let last = self.raised.len() - 1;
        let late = self.yielded.take().is_some_and(|task| last > 0 && self.raised[last].task == task);
        let candidates = if late { &self.raised[..last] } else { &self.raised[..] };
        let chosen = self.order.pick(candidates).min(last);
        self.raised.remove(chosen).task
    }

    /// True if a task of an earlier class than `class` is ready: it was woken during the step.
    fn waits_above(&self, class: Class) -> bool {
        class > Class::HardIrq && !self.raised.is_empty()
            || Class::ALL[1..]
                .iter()
                .zip(&self.ready)
                .any(|(&other, ready)| other < class && !ready.is_empty())
    }

    fn begin_step(&mut self, class: Class, task: TaskId, now: Instant) -> Turn {
        self.state = State::Stepping { class, begun: now, spent: Duration::ZERO };
        Turn::Run(task)
    }

    /// Leaves the step; what it spent live must be what the clock moved by.
    fn end_stepping(&mut self, now: Instant) -> Class {
        let State::Stepping { class, begun, spent } = self.state else {
            panic!("no step is under way, the core is {:?}", self.state);
        };
        assert_eq!(now - begun, spent, "a live step books every nanosecond that it takes");
        self.state = State::Between;
        self.by_class[class as usize] += spent;
        self.booked_to = now;
        class
    }

    /// Plays all that is left of a frame's charges.
    fn play(&mut self, class: Class, now: Instant) -> Instant {
        let frame = self.frame_mut(class);
        let until = frame.pieces.iter().fold(now, |at, &(_, span)| at + span);
        let pieces = frame.pieces.len();
        self.state = State::Playing { class, pieces, until };
        until
    }

    /// Shortens the present slice to the first boundary between charges at `now` or later.
    fn cut(&mut self, class: Class, pieces: usize, until: Instant, now: Instant) -> Woken {
        let mut boundary = self.booked_to;
        let mut whole = 0;
        for &(_, span) in self.frame_mut(class).pieces.iter().take(pieces) {
            if whole > 0 && boundary >= now {
                break;
            }
            boundary += span;
            whole += 1;
        }
        if whole == pieces {
            return Woken::Waits;
        }
        debug_assert!(boundary <= until);
        self.cuts += 1;
        self.state = State::Playing { class, pieces: whole, until: boundary };
        Woken::Cut(boundary)
    }

    /// A step's charges are paid: the task goes idle, on, or to the back of its queue.
    fn settle(&mut self, class: Class, now: Instant) {
        let frame = self.frame_mut(class);
        let (task, outcome) = (frame.task, frame.outcome);
        if outcome == Outcome::Continue {
            return;
        }
        self.frames[class as usize] = None;
        let woken = self.task(task).state == TaskState::UnderWayAndWoken;
        if woken || outcome == Outcome::Yield {
            self.make_ready(task, now);
            if outcome == Outcome::Yield && class == Class::HardIrq {
                self.yielded = Some(task);
            }
        } else {
            self.task_mut(task).state = TaskState::Idle;
        }
    }

    fn book_idle(&mut self, now: Instant) {
        self.idle += now - self.booked_to;
        self.booked_to = self.booked_to.max(now);
    }
}
