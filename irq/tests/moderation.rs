//! Moderation of completion queues: the published climb against an oracle written apart from it, ours against what it
//! promises, and the rule that both set.

use std::collections::VecDeque;

use proptest::prelude::{ProptestConfig, prop_assert_eq, proptest};
use qhca_irq::moderation::cq::{CqModeration, CqState, Drain, FireRule, Pass, Reason, Registry};
use qhca_irq::moderation::guarded_dim::{DWELL, PERIOD_MAX};
use qhca_irq::moderation::rdma_dim::PROFILES;
use qhca_irq::moderation::{Defects, GuardedDim, RdmaDim, Sampling};
use qhca_regs::{Duration, Instant};

fn at(ns: u64) -> Instant {
    Instant::from_nanos(ns)
}

/// The published rules over the whole history, in 128-bit integers, with nothing carried from window to window but what
/// the rules say.
struct Oracle {
    history: Vec<(u128, u128)>,
    window: Option<(usize, u128)>,
    profile: i128,
    step: i128,
    before: Option<(i128, i128)>,
    waits: bool,
}

impl Oracle {
    fn new() -> Self {
        Self { history: vec![], window: None, profile: 0, step: 1, before: None, waits: false }
    }

    fn sample(&mut self, completions: u64, now_ns: u64) -> Option<u8> {
        self.history.push((completions.into(), now_ns.into()));
        let here = self.history.len();
        if self.waits {
            return None;
        }
        let Some((first, since)) = self.window else {
            self.window = Some((here, now_ns.into()));
            return None;
        };
        let us = (u128::from(now_ns) - since) / 1_000;
        if here - first < 64 || us == 0 {
            return None;
        }
        let all: u128 = self.history[first..].iter().map(|&(completions, _)| completions).sum();
        let up = |a: u128, b: u128| a / b + u128::from(!a.is_multiple_of(b));
        let (rate, events) = (up(all * 1_000, us), up(64_000, us));
        let now = (rate as i128, (100 * rate / events) as i128);
        let old = self.profile;
        self.move_on(now);
        self.before = Some(now);
        if old == self.profile {
            self.window = Some((here, now_ns.into()));
            return None;
        }
        self.waits = true;
        Some(self.profile as u8)
    }

    /// The verdict as a sign, then what it does.
    fn move_on(&mut self, now: (i128, i128)) {
        let beyond = |a: i128, b: i128| b != 0 && (100 * (a - b).abs()) / b >= 11;
        let verdict = match self.before {
            None | Some((0, _)) => 0,
            Some((rate, _)) if beyond(now.0, rate) => (now.0 - rate).signum(),
            Some((_, ratio)) if beyond(now.1, ratio) => (now.1 - ratio).signum(),
            _ => 0,
        };
        if verdict == 0 {
            if now.1 <= 50 * self.profile {
                self.profile = 0;
            }
            return;
        }
        if verdict < 0 {
            self.step = -self.step;
        }
        match self.profile + self.step {
            stays @ 0..=8 => self.profile = stays,
            _ => self.step = -self.step,
        }
    }

    fn applied(&mut self) {
        self.waits = false;
        self.window = None;
    }
}

/// A cheap generator: chance of the tests, not of the product.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    /// An exponential gap.
    fn gap(&mut self, mean_ns: f64) -> u64 {
        let unit = (self.next() + 1) as f64 / (1_u64 << 31) as f64;
        (mean_ns * -unit.ln()) as u64
    }
}

/// Runs both over the same trace; changes are applied so many samples later.
fn disagreement(seed: u64, samples: usize, mean_ns: f64, most: u64, apply_after: u64) -> Option<usize> {
    let mut chance = Chance(seed);
    let mut dim = RdmaDim::new(Sampling::PerDrain, Defects::Fixed);
    let mut oracle = Oracle::new();
    let (mut now, mut apply_in) = (0, None);
    for n in 0..samples {
        now += chance.gap(mean_ns);
        let completions = chance.below(most);
        let (got, wanted) = (dim.sample(completions, at(now)), oracle.sample(completions, now));
        if got != wanted {
            return Some(n);
        }
        if got.is_some() {
            apply_in = Some(apply_after);
        }
        apply_in = match apply_in {
            Some(0) => {
                dim.applied(at(now));
                oracle.applied();
                None
            }
            left => left.map(|left| left - 1),
        };
    }
    None
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_climb_decides_as_an_oracle_in_wide_integers_does(
        seed in 0_u64..u64::MAX, mean_ns in 100.0..3e6_f64, most in 1_u64..200, apply_after in 0_u64..100,
    ) {
        prop_assert_eq!(disagreement(seed, 6_000, mean_ns, most, apply_after), None);
    }
}

/// Trap 13.
#[test]
fn counters_that_wrap_change_no_decision() {
    // More than three times round a 16-bit counter.
    assert_eq!(disagreement(7, 220_000, 5_000.0, 6, 3), None);
}

/// Trap 13, the published defect: the window in which 16 bits wrap ends early, and its rate is a lie.
#[test]
fn sixteen_bit_counting_ends_the_window_early_when_asked_for() {
    let ends = |defects| {
        let mut dim = RdmaDim::new(Sampling::PerDrain, defects);
        // A steady load makes no change, so windows follow each other: they begin with samples 1, 65, 129 ...
        let mut changes = 0;
        for n in 1..=65_600_u64 {
            // One completion a sample, then many around the wrap: whoever ends a window there sees a change.
            let completions = if n >= 65_530 { 9 } else { 1 };
            changes += u64::from(dim.sample(completions, at(n * 10_000)).is_some());
            if changes > 0 {
                return n;
            }
        }
        0
    };
    assert_eq!(ends(Defects::Reproduced), 65_536, "the wrap itself ends the window");
    assert_eq!(ends(Defects::Fixed), 65_537, "the window is 64 samples long");
}

/// Trap 12.
#[test]
fn no_completions_and_no_time_decide_nothing() {
    let mut dim = RdmaDim::new(Sampling::PerDrain, Defects::Fixed);
    for _ in 0..1_000 {
        assert_eq!(dim.sample(0, at(5)), None, "no time has passed");
    }
    for n in 0..1_000 {
        assert_eq!(dim.sample(0, at(5 + n * 1_000)), None, "no rate to compare with");
    }
}

/// Trap 12.
#[test]
fn sixty_four_completions_in_139_ms_are_one_a_millisecond_and_no_reason_to_move() {
    let mut dim = RdmaDim::new(Sampling::PerDrain, Defects::Fixed);
    let spacing = 139_000_000 / 64;
    for n in 0..10_000 {
        assert_eq!(dim.sample(1, at(n * spacing)), None);
    }
    assert_eq!(dim.profile(), 0);
}

/// Trap 12.
#[test]
fn two_drains_are_one_sample_unless_counted_twice() {
    let first_change = |sampling| {
        let mut dim = RdmaDim::new(sampling, Defects::Fixed);
        (1..1_000_u64).find(|&n| {
            // Ten times the completions after 64 announcements' worth of either reading: the next window sees it.
            let completions = if n > 70 { 30 } else { 3 };
            let drain = |completions, pass| Drain { completions, pass, in_flight: 1, finished: 0 };
            let now = at(n * 10_000);
            let one = dim.on_drain(drain(completions, Pass::BeforeRearm), now);
            let two = dim.on_drain(drain(0, Pass::AfterRearm), now);
            one.or(two).is_some()
        })
    };
    // Windows of 64 announcements end with the 65th, the 129th; of 64 drains with the 33rd, the 65th, the 97th.
    assert_eq!(first_change(Sampling::PerEvent), Some(129));
    assert_eq!(first_change(Sampling::PerDrain), Some(97));
}

/// Trap 14.
#[test]
fn a_change_that_is_never_written_leaves_the_old_rule_in_force() {
    let mut dim = RdmaDim::new(Sampling::PerDrain, Defects::Fixed);
    let mut chance = Chance(3);
    let mut now = 0;
    let mut change = || {
        for _ in 0..100_000 {
            now += chance.gap(5_000.0);
            if dim.sample(1 + chance.below(8), at(now)).is_some() {
                return true;
            }
        }
        false
    };
    assert!(change(), "noise moves the climb");
    assert!(!change(), "nothing is decided while a change is queued");
    assert_eq!(dim.rule(), FireRule::spacing(PROFILES[0].0, PROFILES[0].1), "and the old rule is in force");
    dim.abandoned();
    assert_eq!(dim.profile(), 0);
    dim.applied(at(now));
    assert_eq!(
        dim.rule(),
        FireRule::spacing(PROFILES[0].0, PROFILES[0].1),
        "an answer to nothing does nothing"
    );
}

/// A queue under an open load: what came, how often it was announced, how late.
struct Driven {
    changes: Vec<(u64, FireRule)>,
    mean_wait_ns: f64,
}

/// Completions come at random, `rate_per_s(now)` of them; operations last `latency_ns`.
fn drive(
    policy: &mut dyn CqModeration,
    rate_per_s: impl Fn(u64) -> f64,
    latency_ns: f64,
    until_ns: u64,
) -> Driven {
    let mut chance = Chance(11);
    let mut waiting: VecDeque<u64> = VecDeque::new();
    let (mut next, mut last_event, mut changes) = (0_u64, 0_u64, vec![]);
    let (mut waits, mut taken) = (0_u128, 0_u64);
    while next < until_ns {
        next += chance.gap(1e9 / rate_per_s(next));
        waiting.push_back(next);
        // Announce as often as the rule says before the next one comes.
        let upcoming = next + chance.gap(1e9 / rate_per_s(next)) / 4;
        let state = CqState {
            pending: waiting.len() as u32,
            possible: u32::MAX,
            last_event: at(last_event),
            newest: at(next),
            urgent: false,
        };
        let Some(due) = policy.rule().due(&state) else { continue };
        let event = due.as_nanos().max(next);
        if event > upcoming {
            continue;
        }
        last_event = event;
        let completions = waiting.len() as u32;
        waits += waiting.drain(..).map(|came| u128::from(event - came)).sum::<u128>();
        taken += u64::from(completions);
        let in_flight = (rate_per_s(event) * latency_ns / 1e9) as u32;
        let drain = |completions, pass, finished| Drain { completions, pass, in_flight, finished };
        let _ = policy.on_drain(drain(completions, Pass::BeforeRearm, 0), at(event));
        if let Some(rule) = policy.on_drain(drain(0, Pass::AfterRearm, completions), at(event)) {
            policy.applied(at(event));
            changes.push((event, rule));
        }
    }
    Driven { changes, mean_wait_ns: waits as f64 / taken.max(1) as f64 }
}

/// Trap 14.
#[test]
fn a_stationary_load_sees_few_changes_and_the_published_climb_many() {
    let second = 1_000_000_000;
    for rate in [2e3, 3e4, 2e5, 1e6] {
        let ours = drive(&mut GuardedDim::new(), |_| rate, 2e5, 2 * second);
        assert!(ours.changes.len() <= 20, "{rate}/s: {} changes in two seconds", ours.changes.len());
        for pair in ours.changes.windows(2) {
            assert!(pair[1].0 - pair[0].0 >= DWELL.as_nanos(), "{rate}/s: two changes within the dwell time");
        }
    }
    let published = drive(&mut RdmaDim::new(Sampling::PerEvent, Defects::Fixed), |_| 3e4, 2e5, 2 * second);
    assert!(published.changes.len() > 200, "only {} changes: the walk is gone", published.changes.len());
}

/// Trap 14.
#[test]
fn a_step_of_the_load_is_followed_within_100_ms_and_neither_end_holds_it() {
    let (up, down) = (300_000_000, 900_000_000);
    let load = |now: u64| if (up..down).contains(&now) { 4e5 } else { 1e3 };
    let got = drive(&mut GuardedDim::new(), load, 2e5, 1_500_000_000);
    let spaced = got.changes.iter().find(|(_, rule)| rule.period > Duration::ZERO);
    let (when, rule) = *spaced.expect("a dense load is spaced");
    assert!((up..up + 100_000_000).contains(&when), "spaced at {when} ns");
    assert!(rule.period <= PERIOD_MAX);
    let last = got.changes.last().expect("a thin load is announced at once again");
    assert_eq!(last.1, FireRule::AT_ONCE);
}

#[test]
fn a_thin_load_waits_for_nothing() {
    let got = drive(&mut GuardedDim::new(), |_| 5e3, 2e5, 2_000_000_000);
    assert!(got.changes.is_empty() && got.mean_wait_ns < 1.0, "waits {} ns", got.mean_wait_ns);
}

/// Trap 15.
#[test]
fn the_last_completions_of_a_burst_come_within_the_spacing_or_at_once_if_they_are_the_last() {
    let rule = FireRule {
        period: Duration::from_micros(16),
        count: 64,
        gap: Duration::from_micros(16),
        last_one_fires: true,
    };
    let state = |pending, possible, urgent| CqState {
        pending,
        possible,
        last_event: at(100_000),
        newest: at(103_000),
        urgent,
    };
    assert_eq!(rule.due(&state(3, 9, false)), Some(at(116_000)), "within D of the last event");
    assert_eq!(rule.due(&state(3, 3, false)), Some(at(103_000)), "nothing else can come");
    assert_eq!(rule.due(&state(1, 9, true)), Some(at(103_000)), "an error does not wait");
    assert_eq!(rule.due(&state(64, 99, false)), Some(at(103_000)), "enough to be worth it");
    assert_eq!(rule.due(&state(0, 9, true)), None, "nothing waits");
}

/// Trap 15, for the published rule: a spacing, no hold-off.
#[test]
fn the_first_completion_after_a_quiet_time_is_announced_at_once() {
    let state =
        CqState { pending: 1, possible: u32::MAX, last_event: at(0), newest: at(1_000_000), urgent: false };
    let due = FireRule::spacing(32, 32).due(&state);
    assert!(due.is_some_and(|due| due <= at(1_000_000)), "{due:?}");
}

#[test]
fn decisions_replayed_from_their_inputs_are_the_same() {
    let mut policy = GuardedDim::new();
    drive(&mut policy, |now| if now > 200_000_000 { 3e5 } else { 2e4 }, 2e5, 1_000_000_000);
    let mut again = GuardedDim::new();
    drive(&mut again, |now| if now > 200_000_000 { 3e5 } else { 2e4 }, 2e5, 1_000_000_000);
    let (one, two) = (policy.decisions().expect("kept"), again.decisions().expect("kept"));
    assert!(one.iter().any(|decision| decision.reason == Reason::Trial));
    assert!(one.iter().eq(two.iter()));
}

#[test]
fn policies_are_found_by_name_and_others_may_be_added() {
    let mut registry = Registry::builtin();
    assert_eq!(registry.names().collect::<Vec<_>>(), ["off", "rdma-dim", "rdma-dim-twice", "guarded-dim"]);
    let names: Vec<_> = registry.names().collect();
    for name in names {
        assert_eq!(registry.factory(name).expect(name)().name(), name);
    }
    let error = registry.factory("fast").expect_err("unknown").to_string();
    assert!(error.contains("'fast'") && error.contains("guarded-dim"), "{error}");
    registry.register("mine", || Box::new(GuardedDim::new()));
    assert!(registry.factory("mine").is_ok());
}
