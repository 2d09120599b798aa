//! The storm limiter: exact bounds for any sequence of errors, and storms in virtual time.

use proptest::prelude::*;
use qhca_irq::dispatch::{FATAL, UNKNOWN_LIMIT};
use qhca_irq::storm::{
    BACKOFF_MAX, BACKOFF_MIN, BURST, CLASS_RATE_PER_S, DEVICE_RATE_PER_S, StormLimiter, TokenBucket,
};
use qhca_regs::status::{ErrBits, PortErrBits};
use qhca_regs::{Duration, Instant, Port};

const SECOND: Duration = Duration::from_secs(1);

fn limiter() -> StormLimiter {
    StormLimiter::new(ErrBits::from_bits_retain(u64::MAX), [PortErrBits::from_bits_retain(u64::MAX); 2])
}

/// An error source that raises `bits` of a scope (0 chip, 1 and 2 ports) again and again, a period apart.
#[derive(Clone, Copy, Debug)]
struct Storm {
    scope: usize,
    bits: u64,
    period: Duration,
}

impl Storm {
    /// When the storm raises its bits next.
    fn next_after(&self, after: Instant) -> Instant {
        let period = self.period.as_nanos();
        Instant::from_nanos((after.as_nanos() / period + 1) * period)
    }
}

/// When error interrupts were served, and what they held.
type Served = Vec<(Instant, usize, u64)>;

/// Runs storms against the limiter for `span`, with the worker `delay` behind each interrupt.
///
/// Each scope has one status word and one mask, and interrupts whenever their intersection is not empty.
fn run(storms: &[Storm], span: Duration, delay: Duration) -> (Served, StormLimiter) {
    let mut limiter = limiter();
    let mut served = Vec::new();
    let mut now = Instant::ZERO;
    let mut taken_at = [Instant::ZERO; 3];
    loop {
        let masks = limiter.rearm(now);
        let mask = [masks.device.bits(), masks.ports[0].bits(), masks.ports[1].bits()];
        let fires = storms
            .iter()
            .filter(|storm| storm.bits & mask[storm.scope] != 0)
            .map(|storm| storm.next_after(taken_at[storm.scope]).max(now))
            .min();
        now = match (fires, limiter.poll_timeout()) {
            (Some(fires), timeout) if timeout.is_none_or(|timeout| fires <= timeout) => fires + delay,
            (_, Some(timeout)) => {
                assert!(timeout > now, "the limiter is late");
                now = timeout;
                continue;
            }
            _ => break,
        };
        if now >= Instant::ZERO + span {
            break;
        }
        // The worker reads and clears all three words; those that hold nothing enabled did not interrupt.
        for scope in 0..3 {
            let here = storms.iter().filter(|storm| storm.scope == scope);
            let bits = here
                .filter(|storm| storm.next_after(taken_at[scope]) <= now)
                .fold(0, |bits, storm| bits | storm.bits);
            if bits & mask[scope] == 0 {
                continue;
            }
            taken_at[scope] = now;
            served.push((now, scope, bits));
            match scope {
                0 => limiter.observe_device(ErrBits::from_bits_retain(bits), now),
                port => limiter.observe_port(
                    Port::new(port - 1).expect("a port"),
                    PortErrBits::from_bits_retain(bits),
                    now,
                ),
            }
        }
    }
    (served, limiter)
}

fn per_second_after(served: &Served, from: Duration, span: Duration) -> f64 {
    let counted = served.iter().filter(|(at, _, _)| *at >= Instant::ZERO + from).count();
    counted as f64 / (span - from).as_secs_f64()
}

const EGR_FULL: u64 = ErrBits::RCV_EGR_FULL_ERR.bits();
const ARM_LAUNCH: u64 = ErrBits::SEND_ARM_LAUNCH_ERR.bits();
const ICRC: u64 = PortErrBits::RCV_ICRC_ERR.bits();
const US: Duration = Duration::from_micros(1);

/// Trap 5: one bucket a class, so that A, B, A, B does not get round the limit; the device's bucket bounds the sum.
#[test]
fn storms_of_one_alternating_and_port_bits_stay_within_the_rates() {
    let hdr_err = PortErrBits::RCV_HDR_ERR.bits();
    let storm = |scope, bits| Storm { scope, bits, period: US };
    let cases: [(&str, Vec<Storm>, u64); 4] = [
        ("one class", vec![storm(0, EGR_FULL)], CLASS_RATE_PER_S),
        ("alternating", vec![storm(0, EGR_FULL), storm(0, ARM_LAUNCH)], DEVICE_RATE_PER_S),
        ("a port", vec![storm(1, ICRC), storm(1, hdr_err)], CLASS_RATE_PER_S),
        (
            "everything",
            vec![storm(0, EGR_FULL), storm(0, ARM_LAUNCH), storm(1, ICRC), storm(2, ICRC), storm(2, 1 << 29)],
            DEVICE_RATE_PER_S,
        ),
    ];
    let span = SECOND.doubled();
    for (name, storms, limit_per_s) in cases {
        let (served, _) = run(&storms, span, US.times(3));
        let rate = per_second_after(&served, Duration::from_millis(100), span);
        assert!(rate <= limit_per_s as f64, "{name}: {rate} error interrupts a second");
        assert!(
            rate >= 0.5 * CLASS_RATE_PER_S as f64,
            "{name}: {rate} is too silent, errors would go unseen"
        );
        assert!(served.len() as u64 <= limit_per_s * 2 + BURST, "{name}: {}", served.len());
    }
}

/// Trap 9, the inverse: with a worker turn of 5 µs and an interrupt of 2 µs, the worst storm takes less than 1 % of a
/// core from reception.
#[test]
fn the_worst_storm_costs_less_than_one_percent_of_a_core() {
    let storms = [0, 1, 2].map(|scope| Storm { scope, bits: u64::MAX >> 3 << 3, period: US });
    let (served, _) = run(&storms, SECOND, US);
    let cost = Duration::from_micros(5 + 2).times(served.len() as u64);
    assert!(cost.as_nanos() * 100 <= SECOND.as_nanos(), "{cost} in a second");
}

/// Trap 8: the fatal bits are enabled at every moment of a storm of ordinary errors.
#[test]
fn fatal_bits_stay_enabled_throughout_a_storm() {
    let mut limiter = limiter();
    let mut now = Instant::ZERO;
    for _ in 0..10_000 {
        limiter.observe_device(ErrBits::from_bits_retain(EGR_FULL | ARM_LAUNCH | 1), now);
        limiter.observe_port(Port::P1, PortErrBits::from_bits_retain(ICRC), now);
        let masks = limiter.rearm(now);
        assert!(masks.device.contains(FATAL), "masked at {now}");
        assert!(masks.ports[1].contains(PortErrBits::IB_STATUS_CHANGED | PortErrBits::SDMA_HALT_ERR));
        now += Duration::from_micros(7);
    }
}

/// The pause of a class doubles to its ceiling while the class is back at once, and halves while it is quiet.
#[test]
fn a_pause_doubles_while_the_storm_lasts_and_shrinks_when_it_is_over() {
    let mut limiter = limiter();
    let mut now = Instant::ZERO;
    let mut pauses = Vec::new();
    let full = ErrBits::from_bits_retain(u64::MAX);
    assert_eq!(limiter.rearm(now).device, full);
    for _ in 0..12 {
        limiter.observe_device(ErrBits::RCV_EGR_FULL_ERR, now);
        assert!(!limiter.rearm(now).device.contains(ErrBits::RCV_EGR_FULL_ERR));
        let back = limiter.poll_timeout().expect("a masked class");
        pauses.push(back.since(now));
        now = back;
        assert_eq!(limiter.rearm(now).device, full);
    }
    let expected: Vec<Duration> = (1..13).map(|n| BACKOFF_MIN.times(1 << n).min(BACKOFF_MAX)).collect();
    assert_eq!(pauses, expected);

    now += SECOND;
    limiter.observe_device(ErrBits::RCV_EGR_FULL_ERR, now);
    limiter.rearm(now);
    assert_eq!(limiter.poll_timeout(), Some(now + BACKOFF_MIN));
}

/// Trap 6: an unknown bit is masked for good after its bound and no longer comes back, known bits do.
#[test]
fn an_unknown_error_bit_is_masked_for_good_after_twenty() {
    let unknown = 1 << 3;
    assert_eq!(ErrBits::NAMED.bits() & unknown, 0);
    let storms = [Storm { scope: 0, bits: unknown, period: US }];
    let (served, mut limiter) = run(&storms, SECOND.times(5), US);
    assert_eq!(served.len() as u64, UNKNOWN_LIMIT);
    assert_eq!(limiter.counters().masked_for_good, [unknown, 0, 0]);
    let masks = limiter.rearm(Instant::ZERO + SECOND.times(6));
    assert_eq!(masks.device.bits(), !unknown);
}

/// An interrupt whose word reads as zero is counted, and charged like any other.
#[test]
fn interrupts_without_an_error_are_counted_and_limited() {
    let mut limiter = limiter();
    let now = Instant::ZERO;
    let mut armed = 0;
    for _ in 0..1000 {
        if limiter.rearm(now).device.intersects(ErrBits::RCV_EGR_FULL_ERR) {
            armed += 1;
        }
        limiter.observe_device(ErrBits::empty(), now);
    }
    assert_eq!(limiter.counters().unexplained, 1000);
    // The two ports hold a token each.
    assert_eq!(armed, BURST - 2, "each is charged to the device, and to no class");
}

/// What may be unmasked is unmasked, when `poll_timeout` says so and not later.
#[test]
fn at_its_timeout_the_limiter_unmasks_something() {
    let mut limiter = limiter();
    let mut now = Instant::ZERO;
    limiter.rearm(now);
    for round in 0..500 {
        limiter.observe_device(ErrBits::from_bits_retain(EGR_FULL | ARM_LAUNCH), now);
        limiter.observe_port(Port::P0, PortErrBits::from_bits_retain(ICRC), now);
        limiter.rearm(now);
        while let Some(at) = limiter.poll_timeout() {
            let before = limiter.rearm(now);
            assert_eq!(limiter.poll_timeout(), Some(at), "rearm at {now} changed nothing");
            assert!(at > now, "round {round}: late by {}", now.since(at));
            now = at;
            assert_ne!(limiter.rearm(now), before, "round {round}: nothing was unmasked at {now}");
        }
    }
}

fn any_bucket() -> impl Strategy<Value = (u64, u64)> {
    (1u64..5_000, 1u64..100)
}

fn any_storm() -> impl Strategy<Value = Storm> {
    (0usize..3, any::<u64>(), any::<u64>(), 200u64..2_000_000).prop_map(|(scope, a, b, period_ns)| {
        // Only ordinary errors: what is exempt has its own bound, checked apart.
        let exempt = if scope == 0 { FATAL.bits() } else { 1 << 58 | 1 << 49 };
        Storm { scope, bits: a & b & !exempt, period: Duration::from_nanos(period_ns) }
    })
}

/// Every window of the served interrupts holds at most `rate × length + burst` of them.
fn assert_bound(at: &[Instant], rate_per_s: u64, burst: u64) -> Result<(), TestCaseError> {
    for (first, start) in at.iter().enumerate() {
        for (n, end) in at[first..].iter().enumerate() {
            let span_ns = end.since(*start).as_nanos();
            let limit = burst + rate_per_s * span_ns / 1_000_000_000 + 1;
            prop_assert!(n as u64 <= limit, "{} in {span_ns} ns", n + 1);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

    /// A bucket gives at most `rate × t + burst` tokens in any time t, and gives them if asked often enough.
    #[test]
    fn a_bucket_never_gives_more_than_rate_times_time_plus_burst(
        (rate, burst) in any_bucket(),
        gaps in prop::collection::vec(0u64..20_000_000, 1..400),
    ) {
        let mut bucket = TokenBucket::new(rate, burst);
        let mut now = Instant::ZERO;
        let mut taken = 0;
        for gap in gaps {
            now += Duration::from_nanos(gap);
            prop_assert_eq!(bucket.ready_at() <= now, { let mut copy = bucket; copy.try_take(now) });
            taken += u64::from(bucket.try_take(now));
            prop_assert!(taken * 1_000_000_000 <= rate * now.as_nanos() + burst * 1_000_000_000);
        }
    }

    /// Whatever storms come, and however late the worker is: all classes together stay within the device's bucket,
    /// and each class within its own, in every window of time.
    #[test]
    fn any_mixture_of_storms_stays_within_rate_times_time_plus_burst(
        storms in prop::collection::vec(any_storm(), 1..6),
        delay_ns in 1u64..900_000,
    ) {
        let (served, _) = run(&storms, Duration::from_millis(700), Duration::from_nanos(delay_ns));
        let all: Vec<Instant> = served.iter().map(|(at, _, _)| *at).collect();
        assert_bound(&all, DEVICE_RATE_PER_S, BURST + 3)?;
    }

    /// What is exempt from the device's bucket is still bound by its own.
    #[test]
    fn a_storm_of_an_exempt_bit_stays_within_its_class(bit in prop::sample::select(vec![61usize, 62, 63])) {
        let storms = [Storm { scope: 0, bits: 1 << bit, period: US }];
        let (served, _) = run(&storms, SECOND, US);
        let at: Vec<Instant> = served.iter().map(|(at, _, _)| *at).collect();
        assert_bound(&at, CLASS_RATE_PER_S, BURST + 1)?;
        prop_assert!(served.len() as u64 >= CLASS_RATE_PER_S);
    }
}
