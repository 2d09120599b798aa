//! Finds interrupts that never came: a queue that is not empty although nothing has announced it.
//!
//! A message-signalled interrupt is a write that can be lost: while the system moves the vector to another
//! processor, or by a fault of the chipset. The chip believes that it has told us and stays silent, so reception
//! stops for good. The watchdog is asked once per period and context, from the control thread's timer. It compares
//! two facts: the queue is not empty, and no interrupt has come since it was first seen so. If both last for
//! [`LOST_AFTER`], the interrupt is taken as lost and the caller drains and re-arms as if it had come.
//!
//! So a lost interrupt costs at most [`RECOVERY_BOUND`], and while they all get lost, packets still flow at the
//! period of the check. It does not look at the queue itself, nor at a register.

use qhca_regs::{Ctxt, Duration, Instant};

/// How often each context is to be checked.
pub const CHECK_PERIOD: Duration = Duration::from_millis(5);

/// How long a queue may wait unannounced.
///
/// TIMEOUT: far above the longest moderation timer (375 ticks of at most a microsecond or so, F-607, guess), so
/// that an interrupt which is only late is not taken for lost.
pub const LOST_AFTER: Duration = Duration::from_millis(5);

/// The longest time from a lost interrupt to its recovery, if the check runs once per period.
///
/// One period until a check first sees the queue, then whole periods until it has waited long enough.
pub const RECOVERY_BOUND: Duration = CHECK_PERIOD.doubled();

/// What a check found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The queue is empty, or an interrupt has come since the last check.
    Fine,
    /// The queue is not empty and unannounced, but not for long enough.
    Waiting,
    /// An interrupt was lost: drain and re-arm as if it had come.
    Lost,
}

/// What the watchdog has seen of one context.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WatchCounters {
    /// Interrupts that were lost and recovered.
    pub lost: u64,
    /// Interrupts that found nothing to do.
    pub empty: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Watch {
    /// When the queue was first seen waiting, and how many interrupts there had been.
    waiting_since: Option<(Instant, u64)>,
    interrupts: u64,
    counters: WatchCounters,
}

/// Watches all receive contexts of a device.
#[derive(Clone, Debug, Default)]
pub struct Watchdog {
    watches: [Watch; Ctxt::COUNT],
}

impl Watchdog {
    /// A watchdog that has seen nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// An interrupt of `ctxt` was served and its drain handled `packets`.
    ///
    /// One that handled none is counted and otherwise ignored: the packets of a re-armed queue are often gone
    /// before the interrupt that announces them comes.
    pub fn on_interrupt(&mut self, ctxt: Ctxt, packets: u32) {
        let watch = &mut self.watches[ctxt.index()];
        watch.interrupts = watch.interrupts.wrapping_add(1);
        if packets == 0 {
            watch.counters.empty += 1;
        }
    }

    /// Checks `ctxt`, whose queue was just looked at. After [`Verdict::Lost`] the clock starts afresh.
    pub fn check(&mut self, ctxt: Ctxt, queue_waits: bool, now: Instant) -> Verdict {
        let watch = &mut self.watches[ctxt.index()];
        if !queue_waits {
            watch.waiting_since = None;
            return Verdict::Fine;
        }
        match watch.waiting_since {
            Some((since, interrupts)) if interrupts == watch.interrupts => {
                if now.since(since) < LOST_AFTER {
                    return Verdict::Waiting;
                }
                watch.waiting_since = None;
                watch.counters.lost += 1;
                Verdict::Lost
            }
            seen => {
                watch.waiting_since = Some((now, watch.interrupts));
                if seen.is_none() { Verdict::Waiting } else { Verdict::Fine }
            }
        }
    }

    /// What has been seen of `ctxt`.
    pub const fn counters(&self, ctxt: Ctxt) -> WatchCounters {
        self.watches[ctxt.index()].counters
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ctxt() -> Ctxt {
        Ctxt::new(3).unwrap()
    }

    fn after(periods: u64) -> Instant {
        Instant::ZERO + CHECK_PERIOD.times(periods)
    }

    /// B40: an interrupt that is lost while packets wait is recovered within the bound.
    #[test]
    fn a_queue_that_waits_unannounced_is_recovered_within_the_bound() {
        for lost_at_ns in [1, 1_000_000, CHECK_PERIOD.as_nanos() - 1, CHECK_PERIOD.as_nanos()] {
            let lost_at = Instant::from_nanos(lost_at_ns);
            let mut watchdog = Watchdog::new();
            let recovered = (1..100)
                .map(after)
                .find(|now| watchdog.check(ctxt(), *now >= lost_at, *now) == Verdict::Lost)
                .expect("a recovery");
            assert!(recovered.since(lost_at) <= RECOVERY_BOUND, "took {}", recovered.since(lost_at));
            assert_eq!(watchdog.counters(ctxt()).lost, 1);
        }
    }

    /// A queue that is never empty under load is no sign of loss as long as interrupts come.
    #[test]
    fn a_busy_queue_whose_interrupts_come_is_never_called_lost() {
        let mut watchdog = Watchdog::new();
        for period in 0..1000 {
            watchdog.on_interrupt(ctxt(), 64);
            assert_ne!(watchdog.check(ctxt(), true, after(period)), Verdict::Lost);
        }
    }

    /// B41: while every interrupt is suppressed the check itself keeps packets flowing.
    #[test]
    fn while_all_interrupts_are_lost_the_queue_is_served_once_in_every_two_periods() {
        let mut watchdog = Watchdog::new();
        let served = (0..200).filter(|n| watchdog.check(ctxt(), true, after(*n)) == Verdict::Lost).count();
        assert_eq!(served, 100);
    }

    /// B41: an interrupt without a cause is counted and changes nothing else.
    #[test]
    fn an_interrupt_that_found_nothing_is_counted() {
        let mut watchdog = Watchdog::new();
        watchdog.on_interrupt(ctxt(), 0);
        assert_eq!(watchdog.check(ctxt(), false, after(1)), Verdict::Fine);
        assert_eq!(watchdog.counters(ctxt()), WatchCounters { lost: 0, empty: 1 });
    }
}
