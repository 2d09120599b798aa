//! **This is where an interrupt is handled.**
//!
//! A vector fired; [`Dispatcher::on_vector`] finds out what it announces, silences what must not fire again at
//! once, and says what there is to do. It looks at no queue and reads no error register: it costs at most one
//! register read and a few posted writes, and the time it takes does not depend on what went wrong.
//!
//! ```text
//! dedicated vector:  no read; clear its own bits                         -> Work
//! default vector:    read IntStatus, once
//!                    all ones?       -> Gone, and the bar is never touched again
//!                    nothing of ours -> Spurious (on a shared line: somebody else's)
//!                    errors: write the error mask down to the fatal bits (F-605), read nothing
//!                    clear exactly the bits that were read (F-602)
//!                    hand the errors to the worker                       -> Work
//! ```
//!
//! Three orders matter. The error mask is written before the clear, because an error bit is a summary that comes
//! back while its cause is unmasked. The clear comes before any queue is looked at, so that a packet which arrives
//! during the drain raises again. And the clear comes before the worker is woken: a worker that unmasked first
//! would have its next error erased by the late clear.
//!
//! Which scope is silenced, and which the caller serves itself in the interrupt, is the [`ErrorPolicy`]. The
//! dispatcher is shared: all methods take `&self`, and its words are atomics, so that each vector may have a thread.

use crate::plan::{Mode, VectorPlan, VectorUse};
use crate::sets::{ContextSet, PortSet};
use crate::source::Source;
use crate::sync::{AtomicBool, AtomicU64, Ordering};
use crate::worker::{Handover, Reasons, Scheduled};
use qhca_regs::map::{device, port as port_regs};
use qhca_regs::status::{ErrBits, IntBits, PortErrBits};
use qhca_regs::{Bar, GONE, Instant, Port, Vector};

/// Device errors that stay enabled while the rest is masked: each may mean that the card must be stopped (F-605).
pub const FATAL: ErrBits =
    ErrBits::HARDWARE_ERR.union(ErrBits::RESET_NEGATED).union(ErrBits::INVALID_ADDR_ERR);

/// Port bits that stay enabled while the rest is masked: they are news, not errors (F-605).
pub const PORT_NEWS: PortErrBits = PortErrBits::IB_STATUS_CHANGED.union(PortErrBits::SDMA_HALT_ERR);

/// How often an unknown bit is cleared before it is masked for good.
pub const UNKNOWN_LIMIT: u64 = 20;

/// Who serves the errors of one scope, and what is silenced meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OnError {
    /// The caller serves them in the interrupt: nothing is masked, nothing is handed over.
    Inline,
    /// Everything is masked, and the worker serves them.
    MaskAll,
    /// Everything but the fatal bits (or a port's news) is masked, and the worker serves them.
    MaskCommon,
}

/// Who serves errors, by scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ErrorPolicy {
    /// Errors of the whole chip.
    pub device: OnError,
    /// Errors of a port.
    pub port: OnError,
}

impl ErrorPolicy {
    /// As first published: every error is served where it interrupts.
    pub const INLINE: Self = Self { device: OnError::Inline, port: OnError::Inline };
    /// As later published: device errors go to a worker, all of them masked meanwhile; port errors stay inline.
    pub const DEFERRED: Self = Self { device: OnError::MaskAll, port: OnError::Inline };
    /// Ours: both go to the worker, and what is fatal is never masked unless a turn is already wanted.
    pub const GUARDED: Self = Self { device: OnError::MaskCommon, port: OnError::MaskCommon };
}

/// Whether the caller has to wake the worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum WorkerCall {
    /// No: no error came, or the worker knows already.
    #[default]
    None,
    /// Wake it; its turn is due within [`WORKER_DEADLINE`](crate::worker::WORKER_DEADLINE).
    Wake,
    /// Wake it, and let it run before the next receive batch: the error may be fatal.
    WakeUrgent,
}

/// What an interrupt leaves to be done, in the order of the methods below.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use = "the bits are cleared: work that is dropped here does not come back"]
pub struct Work {
    bits: IntBits,
    worker: WorkerCall,
}

impl Work {
    /// All causes that were found and cleared, those that the worker will serve included.
    pub const fn bits(&self) -> IntBits {
        self.bits
    }

    /// Whether to wake the worker.
    pub const fn worker(&self) -> WorkerCall {
        self.worker
    }

    /// Whether a GPIO pin is asserted. It comes back until `GPIOStatus` is cleared or masked.
    pub const fn gpio(&self) -> bool {
        self.bits.intersects(Source::AssertGpio.mask())
    }

    /// Whether the word had an error of the chip. Under [`OnError::Inline`] the caller serves it now.
    pub const fn device_error(&self) -> bool {
        self.bits.intersects(Source::Err.mask())
    }

    /// The ports that had an error. Under [`OnError::Inline`] the caller serves them now.
    pub const fn port_errors(&self) -> PortSet {
        self.ports_from(Source::ErrPort(Port::P0))
    }

    /// The receive contexts to drain.
    pub const fn contexts(&self) -> ContextSet {
        let bits = self.bits.bits();
        ContextSet::from_bits((bits | bits >> 32) as u32 & IntBits::RCV_AVAIL_ALL.bits() as u32)
    }

    /// The contexts of [`contexts`](Self::contexts) for which an urgent packet came.
    pub const fn urgent_contexts(&self) -> ContextSet {
        ContextSet::from_bits((self.bits.bits() >> 32) as u32 & IntBits::RCV_AVAIL_ALL.bits() as u32)
    }

    /// The ports whose send-DMA engine retired descriptors.
    pub const fn sdma(&self) -> PortSet {
        self.ports_from(Source::Sdma(Port::P0))
            .union(self.ports_from(Source::SdmaProgress(Port::P0)))
            .union(self.ports_from(Source::SdmaIdle(Port::P0)))
    }

    /// The ports whose send-DMA engine finished its clean-up.
    pub const fn sdma_cleanup_done(&self) -> PortSet {
        self.ports_from(Source::SdmaCleanupDone(Port::P0))
    }

    /// The ports that sent a packet whose PBC asked to be told.
    pub const fn send_done(&self) -> PortSet {
        self.ports_from(Source::SendDone(Port::P0))
    }

    /// Whether a send buffer became free.
    pub const fn send_buffer_free(&self) -> bool {
        self.bits.intersects(Source::SendBufAvail.mask())
    }

    /// The ports of a source whose two bits lie side by side, `first` being that of port 0.
    const fn ports_from(&self, first: Source) -> PortSet {
        PortSet::from_bits((self.bits.bits() >> first.bit()) as u32 & 0b11)
    }
}

/// What a vector turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// There is something to do.
    Work(Work),
    /// No cause was found. On a shared interrupt line: not ours.
    Spurious,
    /// The card answers with all ones. Nothing is to touch the bar any more.
    Gone,
    /// The device is closing; no register was touched.
    Closed,
}

/// How often what happened, since the dispatcher was made. All wrap at 2^64.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DispatchCounters {
    /// Interrupts by vector.
    pub vectors: [u64; Vector::COUNT],
    /// Interrupts without a cause.
    pub spurious: u64,
    /// Interrupts that announced an error of the chip.
    pub device_errors: u64,
    /// Interrupts that announced an error of each port.
    pub port_errors: [u64; 2],
    /// Bits without a known meaning, counted one by one.
    pub unknown_bits: u64,
    /// Unknown bits that are now masked for good.
    pub unknown_masked: IntBits,
    /// Reads of `IntStatus`.
    pub status_reads: u64,
}

/// Turns vectors into work. See the module for the order of things.
#[derive(Debug)]
pub struct Dispatcher {
    plan: VectorPlan,
    policy: ErrorPolicy,
    handover: Handover,
    gone: AtomicBool,
    closed: AtomicBool,
    /// Unknown bits that have been masked: they are no longer looked at.
    unknown_masked: AtomicU64,
    unknown_seen: [AtomicU64; 64],
    unknown_bits: AtomicU64,
    vectors: [AtomicU64; Vector::COUNT],
    spurious: AtomicU64,
    device_errors: AtomicU64,
    port_errors: [AtomicU64; 2],
    status_reads: AtomicU64,
}

impl Dispatcher {
    /// A dispatcher for the vectors of `plan`, with errors served as `policy` says.
    pub fn new(plan: VectorPlan, policy: ErrorPolicy) -> Self {
        Self {
            plan,
            policy,
            handover: Handover::new(),
            gone: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            unknown_masked: AtomicU64::new(0),
            unknown_seen: core::array::from_fn(|_| AtomicU64::new(0)),
            unknown_bits: AtomicU64::new(0),
            vectors: core::array::from_fn(|_| AtomicU64::new(0)),
            spurious: AtomicU64::new(0),
            device_errors: AtomicU64::new(0),
            port_errors: core::array::from_fn(|_| AtomicU64::new(0)),
            status_reads: AtomicU64::new(0),
        }
    }

    /// The plan that is in force.
    pub const fn plan(&self) -> &VectorPlan {
        &self.plan
    }

    /// Who serves errors.
    pub const fn policy(&self) -> ErrorPolicy {
        self.policy
    }

    /// The hand-over to the worker.
    pub const fn handover(&self) -> &Handover {
        &self.handover
    }

    /// Serves one wake-up of `vector`.
    ///
    /// The caller then does the work in [`Work`]'s order, and on an interrupt line ([`Mode::Intx`]) unmasks it.
    pub fn on_vector(&self, vector: Vector, bar: &impl Bar, now: Instant) -> Outcome {
        self.on_vector_serving(vector, bar, now, |_| ())
    }

    /// As [`on_vector`](Self::on_vector), for a policy that serves errors in the interrupt: `serve` is called with the
    /// errors that are [`OnError::Inline`], after the masks and before the clear.
    ///
    /// ORDER: an error bit is a summary. Cleared before its cause it comes back at once, and every error would
    /// interrupt twice.
    pub fn on_vector_serving(
        &self,
        vector: Vector,
        bar: &impl Bar,
        now: Instant,
        serve: impl FnOnce(Work),
    ) -> Outcome {
        if self.gone.load(Ordering::Acquire) {
            return Outcome::Gone;
        }
        if self.closed.load(Ordering::Acquire) {
            return Outcome::Closed;
        }
        count(&self.vectors[vector.index()]);
        match self.plan.use_of(vector) {
            Some(VectorUse::Default) => self.on_default(bar, now, serve),
            Some(VectorUse::Dedicated(source)) => Self::on_dedicated(source, bar),
            None => self.spurious(),
        }
    }

    /// A vector with one cause: no read, for there is nothing to learn.
    fn on_dedicated(source: Source, bar: &impl Bar) -> Outcome {
        let mut bits = source.mask();
        if let Source::RcvAvail(ctxt) = source {
            // The same drain serves the urgent packets of this context, so both bits are cleared.
            bits |= IntBits::rcv_urg(ctxt);
        }
        device::INT_CLEAR.clear(bar, bits);
        Outcome::Work(Work { bits: source.mask(), worker: WorkerCall::None })
    }

    /// The vector that announces all the rest: one read, and only what the plan leaves to it.
    fn on_default(&self, bar: &impl Bar, now: Instant, serve: impl FnOnce(Work)) -> Outcome {
        let status = device::INT_STATUS.read(bar);
        count(&self.status_reads);
        if status.bits() == GONE {
            self.mark_gone();
            return Outcome::Gone;
        }
        let ignored = IntBits::from_bits_retain(self.unknown_masked.load(Ordering::Acquire));
        let bits = status.intersection(self.plan.main_bits()).difference(ignored);
        if bits.is_empty() {
            return self.spurious();
        }
        let unknown = bits.difference(self.plan.enabled_bits());
        if !unknown.is_empty() {
            self.on_unknown(unknown, bar);
        }
        let errors = self.silence(bits.difference(unknown), bar);
        let inline = bits.intersection(self.inline_errors());
        if !inline.is_empty() {
            serve(Work { bits: inline, worker: WorkerCall::None });
        }
        // ORDER: after the masks, before the worker is woken and before any queue is looked at.
        // A planted fault, for the proof that the fuzzer reaches this far: bits are cleared that were not looked at.
        #[cfg(canary)]
        device::INT_CLEAR
            .clear(bar, if errors.reasons.contains(Reasons::port(Port::P1)) { status } else { bits });
        #[cfg(not(canary))]
        device::INT_CLEAR.clear(bar, bits);
        let worker = self.hand_over(errors, now);
        Outcome::Work(Work { bits: bits.difference(unknown), worker })
    }

    /// The error bits that the caller serves in the interrupt.
    fn inline_errors(&self) -> IntBits {
        let mut bits = IntBits::empty();
        if self.policy.device == OnError::Inline {
            bits |= Source::Err.mask();
        }
        if self.policy.port == OnError::Inline {
            bits |= IntBits::err_port(Port::P0) | IntBits::err_port(Port::P1);
        }
        bits
    }

    /// Masks the errors in `bits` that the worker is to serve, without reading anything.
    fn silence(&self, bits: IntBits, bar: &impl Bar) -> Errors {
        let pending = self.handover.pending();
        let mut errors = Errors::default();
        if bits.intersects(Source::Err.mask()) {
            count(&self.device_errors);
            let mask = errors.note(Reasons::DEVICE, self.policy.device, pending, FATAL.bits());
            if let Some(mask) = mask {
                device::ERR_MASK.write(bar, ErrBits::from_bits_retain(mask));
            }
        }
        for port in Port::ALL {
            if bits.intersects(IntBits::err_port(port)) {
                count(&self.port_errors[port.index()]);
                let mask = errors.note(Reasons::port(port), self.policy.port, pending, PORT_NEWS.bits());
                if let Some(mask) = mask {
                    port_regs::ERR_MASK.port(port).write(bar, PortErrBits::from_bits_retain(mask));
                }
            }
        }
        errors
    }

    /// Asks the worker for a turn.
    fn hand_over(&self, errors: Errors, now: Instant) -> WorkerCall {
        if errors.reasons.is_empty() {
            return WorkerCall::None;
        }
        match (self.handover.schedule(errors.reasons, errors.urgent, now), errors.urgent) {
            (Scheduled::Wake, true) => WorkerCall::WakeUrgent,
            (Scheduled::Wake, false) => WorkerCall::Wake,
            (Scheduled::AlreadyPending | Scheduled::Closed, _) => WorkerCall::None,
        }
    }

    /// Bits that nobody knows: counted, cleared with the rest, and masked for good if they keep coming.
    fn on_unknown(&self, unknown: IntBits, bar: &impl Bar) {
        for source in Source::in_word(unknown) {
            count(&self.unknown_bits);
            let seen = self.unknown_seen[source.bit() as usize].fetch_add(1, Ordering::Relaxed) + 1;
            if seen >= UNKNOWN_LIMIT {
                self.unknown_masked.fetch_or(source.mask().bits(), Ordering::AcqRel);
                device::INT_MASK.write(bar, self.enabled_bits());
            }
        }
    }

    /// What `IntMask` is to hold while interrupts are on.
    pub fn enabled_bits(&self) -> IntBits {
        let masked = IntBits::from_bits_retain(self.unknown_masked.load(Ordering::Acquire));
        self.plan.enabled_bits().difference(masked)
    }

    fn spurious(&self) -> Outcome {
        count(&self.spurious);
        Outcome::Spurious
    }

    /// Records that the card no longer answers, whoever noticed: no later interrupt touches the bar.
    pub fn mark_gone(&self) {
        self.gone.store(true, Ordering::Release);
        self.handover.close();
    }

    /// Whether the card has stopped answering.
    pub fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    /// Makes every later interrupt end without touching a register, and forbids further turns of the worker.
    ///
    /// Registers may be torn down once [`Handover::is_running`] is false and no `on_vector` is under way.
    pub fn close(&self) -> crate::worker::Close {
        self.closed.store(true, Ordering::Release);
        self.handover.close()
    }

    /// Whether the interrupt line must be unmasked after each interrupt: on INTx it must, for messages it must not.
    pub fn unmask_after_interrupt(&self) -> bool {
        self.plan.mode() == Mode::Intx
    }

    /// The counters as they stand.
    pub fn counters(&self) -> DispatchCounters {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        DispatchCounters {
            vectors: core::array::from_fn(|n| get(&self.vectors[n])),
            spurious: get(&self.spurious),
            device_errors: get(&self.device_errors),
            port_errors: core::array::from_fn(|n| get(&self.port_errors[n])),
            unknown_bits: get(&self.unknown_bits),
            unknown_masked: IntBits::from_bits_retain(get(&self.unknown_masked)),
            status_reads: get(&self.status_reads),
        }
    }
}

/// The errors of one word that go to the worker.
#[derive(Clone, Copy, Default)]
struct Errors {
    reasons: Reasons,
    urgent: bool,
}

impl Errors {
    /// Notes an error of the scope `reason`; gives what its mask is to be, or `None` if it stays as it is.
    ///
    /// While a turn for this scope is wanted, only the bits in `keep` are enabled: a second error can only be one
    /// of those. It is urgent, and since the worker knows by then, the scope is silenced altogether.
    fn note(&mut self, reason: Reasons, policy: OnError, pending: Reasons, keep: u64) -> Option<u64> {
        let again = pending.contains(reason);
        let mask = match policy {
            OnError::Inline => return None,
            OnError::MaskAll => 0,
            OnError::MaskCommon if again => 0,
            OnError::MaskCommon => keep,
        };
        self.reasons = self.reasons.and(reason);
        self.urgent |= again;
        Some(mask)
    }
}

fn count(counter: &AtomicU64) {
    // ORDER: counters order nothing; they are only added up.
    counter.fetch_add(1, Ordering::Relaxed);
}
