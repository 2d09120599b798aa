//! Do the checkers see? Each planted fault must be found by some seed.

use super::{Planted, World};

/// Seeds within which a planted fault must show.
const SEEDS: u64 = 4000;

/// The first seed up to [`SEEDS`] that finds a rule broken, and the rule.
fn hunt(fault: Planted) -> Option<(u64, &'static str)> {
    let mut world = World::new().expect("memory for a world");
    world.planted = Some(fault);
    (0..SEEDS).find_map(|seed| world.play(seed).err().map(|violation| (seed, violation.rule)))
}

macro_rules! found {
    ($($name:ident: $fault:ident by $rule:literal;)*) => {$(
        #[test]
        fn $name() {
            let found = hunt(Planted::$fault);
            let by_rule = found.is_some_and(|(_, rule)| $rule.split(" | ").any(|one| one == rule));
            assert!(by_rule, "{found:?}");
        }
    )*};
}

found! {
    ack_that_completes_a_read_is_found: AckCompletesRead
        by "the bytes are right | atomics happen once, in order";
    pause_that_is_not_made_is_found: RnrTimerIgnored
        by "no request before the pause of an RNR NAK is over";
    atomic_carried_out_twice_is_found: AtomicReplayed
        by "atomics happen once, in order";
    gap_that_is_passed_over_is_found: GapIgnored
        by "only what came is answered | the bytes are right | a receive says what came | atomics happen once, in order";
    repeat_that_begins_late_is_found: RepeatSkipsOne
        by "repeats are made before it is given up | nothing hangs | everything ends";
    send_taken_twice_is_found: DuplicateSendTaken
        by "a receive says what came | each message comes once | the bytes are right | a receive fails as its trouble says";
    window_that_is_not_kept_is_found: WindowIgnored
        by "no more packets under way than the window";
    credits_that_are_not_kept_are_found: CreditsIgnored
        by "no message beyond the credits but one";
    flush_that_forgets_one_is_found: FlushForgetsLast
        by "each request completes once";
    read_data_in_the_wrong_place_is_found: ReadOffsetLost
        by "the bytes are right";
    retries_without_end_are_found: RetryForever
        by "everything ends";
}
