//! What the pools, the replenishers and the spreaders promise, without a queue pair in sight.

use qhca_verbs::cq::pool::rounds::{BURST, QUANTUM, Rounds};
use qhca_verbs::cq::pool::{
    self, Balanced, CqPool, FirstFit, PollClass, PoolError, PoolLimits, Private, Request,
};
use qhca_verbs::replenish::credit_lazy::BATCH;
use qhca_verbs::replenish::{self, CreditLazy, Replenish, Session};
use qhca_verbs::sched::steer::{ENTRIES, SteerMap};
use qhca_verbs::sched::task::{Passed, Sleeper, Task};
use qhca_verbs::sched::{self, Arrival, CoreId, Hybrid, Placed, Spread};

fn limits() -> PoolLimits {
    PoolLimits { max_cqe: 8192, vectors: 4, vector_of_core: vec![Some(2), Some(0), None, Some(3)] }
}

fn ask(entries: u32, core: u32) -> Request {
    Request { entries, core: Some(core), class: PollClass::SoftIrq }
}

/// Traps 18 and 19: each pool refuses what it can never hold, and takes any hint.
#[test]
fn requests_for_nothing_or_too_much_are_refused_and_hints_out_of_range_are_not() {
    for name in pool::NAMES {
        let mut pool = pool::by_name(name, limits()).expect(name);
        assert_eq!(pool.get(ask(0, 0)).map(|_| ()), Err(PoolError::NoEntries), "{name}");
        let refused = pool.get(ask(8193, 0)).map(|_| ());
        assert_eq!(refused, Err(PoolError::TooMany { entries: 8193, max_cqe: 8192 }), "{name}");
        for core in [0, 2, 3, 17, u32::MAX] {
            let grant = pool.get(ask(16, core)).expect("any hint is taken");
            assert!(grant.place.vector() < 4, "{name}: vector {}", grant.place.vector());
        }
        let none = PoolLimits { vectors: 0, ..limits() };
        let mut pool = pool::by_name(name, none).expect(name);
        assert_eq!(pool.get(ask(16, 0)).map(|_| ()), Err(PoolError::NoVector), "{name}");
    }
}

/// Trap 19: one vector serves everybody.
#[test]
fn one_vector_is_enough() {
    for name in pool::NAMES {
        let one = PoolLimits { vectors: 1, ..limits() };
        let mut pool = pool::by_name(name, one).expect(name);
        for core in 0..8 {
            assert_eq!(pool.get(ask(64, core)).expect("room").place.vector(), 0, "{name}");
        }
    }
}

/// Trap 19: reservations never exceed a queue's size.
#[test]
fn a_queue_never_promises_more_than_it_holds() {
    for name in ["first-fit", "balanced"] {
        let mut pool = pool::by_name(name, limits()).expect(name);
        let mut promised = std::collections::BTreeMap::new();
        let mut sizes = std::collections::BTreeMap::new();
        for n in 0..400_u32 {
            let grant = pool.get(ask(1 + n * 37 % 900, n % 4)).expect("growth is possible");
            sizes.extend(grant.created.iter().map(|new| (new.cq, new.entries)));
            *promised.entry(grant.place.cq()).or_insert(0) += grant.place.entries();
        }
        for (cq, entries) in promised {
            assert!(entries <= sizes[&cq], "{name}: {entries} promised by queue {cq:?} of {}", sizes[&cq]);
        }
    }
}

/// Trap 18: whoever misses second finds what the first miss created.
#[test]
fn two_misses_create_once() {
    for name in ["first-fit", "balanced"] {
        let mut pool = pool::by_name(name, limits()).expect(name);
        assert!(!pool.get(ask(100, 1)).expect("room").created.is_empty(), "{name}");
        assert!(pool.get(ask(100, 1)).expect("room").created.is_empty(), "{name}");
    }
}

/// Trap 18: a place that was given back cannot be given back again; the type does not let it, the books check it.
#[test]
fn a_place_of_another_pool_is_not_taken_back() {
    let mut one = Balanced::new(limits());
    let mut other = Private::new(limits());
    let place = one.get(ask(100, 0)).expect("room").place;
    assert_eq!(other.put(place), Err(PoolError::NotHeld { cq: pool::CqId(0) }));
    let place = other.get(ask(100, 0)).expect("room").place;
    assert_eq!(FirstFit::new(limits()).put(place), Err(PoolError::NotHeld { cq: pool::CqId(0) }));
}

/// Trap 18: the last put retires, a get that races it opens another queue, the poller's passing frees.
#[test]
fn an_empty_queue_is_retired_and_freed_only_after_its_poller_passed() {
    let mut pool = Balanced::new(limits());
    let first = pool.get(ask(100, 1)).expect("room").place;
    let cq = first.cq();
    assert_eq!(pool.poller_passed(cq), None, "it has a user");
    pool.put(first).expect("held");
    let second = pool.get(ask(100, 1)).expect("room");
    assert_ne!(second.place.cq(), cq, "a retired queue gets no new user");
    assert_eq!(pool.poller_passed(cq), Some(cq));
    assert_eq!(pool.poller_passed(cq), None, "once");
}

#[test]
fn the_balanced_pool_takes_the_queue_with_the_least_to_do_on_the_core_that_asked() {
    let mut pool = Balanced::new(limits());
    // Core 1 is served by vector 0; two queues of 4096 entries are needed for nine times 500.
    let places: Vec<_> = (0..9).map(|_| pool.get(ask(500, 1)).expect("room").place).collect();
    assert!(places.iter().all(|place| place.vector() == 0));
    let (busy, calm) = (places[0].cq(), places[8].cq());
    assert_ne!(busy, calm);
    pool.measured(busy, 900_000);
    pool.measured(calm, 10);
    assert_eq!(pool.get(ask(16, 1)).expect("room").place.cq(), calm);
    pool.measured(calm, 2_000_000);
    assert_eq!(pool.get(ask(16, 1)).expect("room").place.cq(), busy);
    let big = pool.get(ask(2000, 1)).expect("room");
    assert_eq!(big.created.len(), 1, "more than a quarter of a queue gets its own");
    assert_ne!(pool.get(ask(16, 1)).expect("room").place.cq(), big.place.cq());
}

/// Trap 19: a flood does not keep the others from their turn.
#[test]
fn one_flooding_user_delays_its_neighbours_by_a_burst_at_most() {
    let mut rounds = Rounds::new();
    for _ in 0..10_000 {
        rounds.came(0, 500);
    }
    for user in 1..4 {
        rounds.came(user, 10);
    }
    let mut before = 0;
    let mut seen = 0;
    while seen < 3 {
        let (user, count) = rounds.next_turn().expect("something waits");
        if user == 0 { before += count } else { seen += 1 }
    }
    assert!(before <= QUANTUM, "{before} of the flood went first");
    rounds.came(5, 1);
    assert_eq!(rounds.next_turn(), Some((5, 1)), "who waits for one operation goes first");
    let most = std::iter::from_fn(|| rounds.next_turn()).map(|(_, count)| count).max();
    assert!(most.is_some_and(|most| most <= BURST));
    assert_eq!(rounds.waiting(), 0);
}

/// Drives a policy through a random life and returns (posts, responses, fewest buffers beyond what may come).
fn live(policy: &mut dyn Replenish, session: Session, turns: u32) -> (u32, u32, i64) {
    let (mut posts, mut responses, mut least) = (0, 0, i64::MAX);
    let mut posted = policy.buffers();
    policy.posted(posted);
    let mut in_flight = 0_u32;
    let mut seed = 0x9E37_79B9_u32;
    let mut random = |bound: u32| {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (seed >> 8) % bound.max(1)
    };
    for _ in 0..turns {
        let post = |n: u32, policy: &mut dyn Replenish, posted: &mut u32, posts: &mut u32| {
            if n > 0 {
                policy.posted(n);
                *posted += n;
                *posts += 1;
            }
        };
        while in_flight < session.commands && random(1_000) > 0 {
            let n = policy.before_launch(in_flight);
            post(n, policy, &mut posted, &mut posts);
            in_flight += 1;
            least = least.min(i64::from(posted) - i64::from(in_flight + session.unsolicited));
        }
        // A stall of any length: all that is under way comes at once, and takes a buffer each.
        for _ in 0..if random(4) == 0 { in_flight } else { random(in_flight + 1) } {
            posted -= 1;
            responses += 1;
            let n = policy.on_response();
            post(n, policy, &mut posted, &mut posts);
            in_flight -= 1;
            let n = policy.before_hand_up(in_flight);
            post(n, policy, &mut posted, &mut posts);
        }
        let n = policy.at_turn_end();
        post(n, policy, &mut posted, &mut posts);
    }
    (posts, responses, least)
}

/// Trap 20: whatever stalls, no command is under way without a buffer for its response.
#[test]
fn a_command_is_launched_only_with_a_buffer_for_its_response() {
    for commands in [1, 2, 15, 16, 64, 512] {
        let session = Session { commands, unsolicited: 4 };
        let mut lazy = CreditLazy::new(session);
        let (_, responses, least) = live(&mut lazy, session, 3_000);
        assert!(responses > 1_000 && least >= 0, "{commands} commands: {least} buffers beyond what may come");
        assert_eq!(lazy.buffers(), commands + 4 + BATCH - 1);
    }
    let session = Session { commands: 512, unsolicited: 4 };
    let mut quarter = replenish::by_name("chunk-quarter", session).expect("known");
    assert!(
        live(quarter.as_mut(), session, 3_000).2 < 0,
        "the published policy has the hole that ours closes"
    );
}

/// Trap 20: a post that fails midway is told as what was posted, and the rest is asked for again.
#[test]
fn buffers_that_could_not_be_posted_are_asked_for_again() {
    let mut lazy = CreditLazy::new(Session { commands: 64, unsolicited: 0 });
    lazy.posted(lazy.buffers());
    let wanted: u32 = (0..BATCH).map(|_| lazy.on_response()).sum();
    assert_eq!(wanted, BATCH);
    lazy.posted(5);
    assert_eq!((lazy.gathered(), lazy.at_turn_end()), (BATCH - 5, BATCH - 5));
}

/// Trap 16: under every order of the two sides' steps, what was put into the inbox is found.
#[test]
fn a_sleeper_is_woken_or_looks_again_whatever_the_order() {
    // Sleeper: announce, look. Producer: push, ask. All six orders.
    for order in [0b0011, 0b0101, 0b0110, 0b1001, 0b1010, 0b1100_u8] {
        let (sleeper, mut inbox) = (Sleeper::new(), 0);
        let (mut looked, mut found, mut pushed, mut woken) = (0, false, 0, false);
        for step in 0..4 {
            if order >> step & 1 == 0 {
                match looked {
                    0 => sleeper.announce(),
                    _ => found = inbox > 0,
                }
                looked += 1;
            } else {
                match pushed {
                    0 => inbox += 1,
                    _ => woken = sleeper.must_wake(),
                }
                pushed += 1;
            }
        }
        assert!(found || woken, "order {order:04b}: asleep with something in the inbox");
    }
}

#[test]
fn a_caller_just_after_the_last_look_causes_one_more_pass() {
    let task = Task::new();
    assert!(task.begin() && !task.is_idle());
    assert!(!task.begin() && !task.begin(), "whoever comes meanwhile does not run it");
    assert_eq!(task.pass_ends(), Passed::Again);
    assert_eq!(task.pass_ends(), Passed::Done);
    assert!(task.is_idle() && task.begin());
}

fn arrival(owner: u16, here: u16) -> Arrival {
    Arrival {
        qpn: 17,
        here: CoreId(here),
        owner: CoreId(owner),
        backlog: 0,
        task_idle: true,
        owner_asleep: false,
        is_read_request: false,
        inline_packets: 0,
        inline_ns: 0,
    }
}

/// Trap 17: inline work of a turn is bounded, and never beside another runner of the same queue pair.
#[test]
fn inline_is_local_idle_and_bounded() {
    let mut hybrid = Hybrid::new(4);
    assert_eq!(hybrid.place(&arrival(1, 1)), Placed::Inline);
    for not in [
        Arrival { task_idle: false, ..arrival(1, 1) },
        Arrival { backlog: 3, ..arrival(1, 1) },
        Arrival { inline_packets: 64, ..arrival(1, 1) },
        Arrival { inline_ns: 20_000, ..arrival(1, 1) },
        arrival(1, 0),
    ] {
        assert!(matches!(hybrid.place(&not), Placed::Hand { to: CoreId(1), wake: false }), "{not:?}");
    }
    let asleep = Arrival { owner_asleep: true, ..arrival(1, 0) };
    assert_eq!(hybrid.place(&asleep), Placed::Inline, "stolen from a sleeper");
    let busy = Arrival { task_idle: false, ..asleep };
    assert_eq!(hybrid.place(&busy), Placed::Hand { to: CoreId(1), wake: true }, "from empty to not empty");
    assert_eq!(
        hybrid.place(&Arrival { backlog: 1, ..busy }),
        Placed::Hand { to: CoreId(1), wake: false },
        "woken once"
    );
}

/// Trap 17: a queue pair moves after ten milliseconds of load, at a quiet point, to the core with the least to do.
#[test]
fn a_queue_pair_moves_only_from_a_core_that_stays_loaded() {
    let mut hybrid = Hybrid::new(3);
    let owner = hybrid.owner(17);
    for core in 0..3 {
        hybrid.measured(CoreId(core), if CoreId(core) == owner { 95 } else { 10 + u32::from(core) }, 1_000);
    }
    assert_eq!(hybrid.try_move(17, 20, 9_000_000), None, "not yet ten milliseconds");
    assert_eq!(hybrid.try_move(17, 8, 20_000_000), None, "too little waits");
    let moved = hybrid.try_move(17, 20, 20_000_000).expect("loaded long enough");
    assert_eq!((moved.from, moved.to), (owner, CoreId(0)));
    assert_eq!(hybrid.owner(17), CoreId(0));
    hybrid.measured(CoreId(0), 99, 30_000_000);
    hybrid.measured(CoreId(1), 99, 30_000_000);
    hybrid.measured(CoreId(2), 99, 30_000_000);
    assert_eq!(hybrid.try_move(17, 20, 90_000_000), None, "nowhere is better");
}

#[test]
fn the_map_sends_a_queue_pair_to_one_context_for_good() {
    let map = SteerMap::spread(&[2, 5, 9]);
    assert!((0..1_000).all(|qpn| map.context(qpn) == map.context(qpn + ENTRIES as u32)));
    assert!([2, 5, 9].iter().all(|context| map.entries().contains(context)));
    assert_eq!(SteerMap::spread(&[]).context(77), 0);
    for name in sched::NAMES {
        assert_eq!(sched::by_name(name, 4).expect(name).name(), name);
    }
    assert!(sched::by_name("fast", 4).is_none());
}
