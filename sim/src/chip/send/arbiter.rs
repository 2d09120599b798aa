//! Which data lane sends next: the two tables of VL arbitration, as the InfiniBand specification has it.
//!
//! ```text
//!   HighPriority0..15   (lane, weight) ...   before the low ones, until HighPriorityLimit * 4 KiB have gone ahead of them
//!   LowPriority0..15    (lane, weight) ...   then one of these
//!   an entry sends while its weight, in units of 64 bytes, is not used up; then the next entry has its turn
//! ```
//!
//! While `IBVLArbiterEn` is off the lanes take turns, and a lane that stands in neither table never sends while it is on
//! (F-485). The limit 255 is none, 0 lets one packet ahead.

use qhca_regs::map::port;

pub(super) const LANES: usize = 8;
const ENTRIES: usize = 16;
const UNLIMITED: u8 = 255;
/// Units of 64 bytes in the 4 KiB that the limit counts.
const LIMIT_UNITS: i64 = 4096 / 64;

/// One table and where its turn stands.
#[derive(Clone, Copy, Debug, Default)]
struct Table {
    lanes: [u8; ENTRIES],
    weights: [u8; ENTRIES],
    at: usize,
    /// Weight that the entry has left; below 0 if its last packet was larger.
    left: i32,
}

impl Table {
    fn set(&mut self, entry: usize, lane: u8, weight: u8) {
        (self.lanes[entry], self.weights[entry]) = (lane, weight);
        if entry == self.at {
            self.left = weight.into();
        }
    }

    /// The lane whose turn it is among those with something to send.
    fn turn(&mut self, ready: &[Option<usize>; LANES]) -> Option<usize> {
        // Once around, and back to the entry of the start with fresh weight.
        for _ in 0..=ENTRIES {
            let lane = usize::from(self.lanes[self.at]);
            if self.left > 0 && ready[lane].is_some() {
                return Some(lane);
            }
            self.at = (self.at + 1) % ENTRIES;
            self.left = self.weights[self.at].into();
        }
        None
    }

    fn spend(&mut self, units: usize) {
        self.left -= units.min(1 << 16) as i32;
    }
}

/// See the chapter's head.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Arbiter {
    pub(super) enabled: bool,
    high: Table,
    low: Table,
    limit: u8,
    /// Units that high-priority packets may still go ahead of low ones.
    ahead: i64,
}

impl Arbiter {
    pub(super) fn set_high(&mut self, entry: usize, value: port::HighPriority) {
        self.high.set(entry % ENTRIES, value.virtual_lane(), value.weight());
    }

    pub(super) fn set_low(&mut self, entry: usize, value: port::LowPriority) {
        self.low.set(entry % ENTRIES, value.virtual_lane(), value.weight());
    }

    pub(super) fn set_limit(&mut self, value: port::HighPriorityLimit) {
        self.limit = value.limit();
        self.ahead = self.full_limit();
    }

    fn full_limit(&self) -> i64 {
        match self.limit {
            UNLIMITED => i64::MAX,
            0 => 1,
            limit => i64::from(limit) * LIMIT_UNITS,
        }
    }

    /// The lane that sends next; `ready` has for each lane the units of its first packet, if that may go.
    pub(super) fn pick(&mut self, ready: &[Option<usize>; LANES]) -> Option<usize> {
        let high = self.high.turn(ready);
        let low = if high.is_some() && self.ahead > 0 { None } else { self.low.turn(ready) };
        let lane = low.or(high)?;
        let units = ready[lane].unwrap_or(0);
        if low.is_some() {
            self.low.spend(units);
            self.ahead = self.full_limit();
        } else {
            self.high.spend(units);
            self.ahead = if self.limit == UNLIMITED { i64::MAX } else { self.ahead - units as i64 };
        }
        Some(lane)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn arbiter(high: &[(u8, u8)], low: &[(u8, u8)], limit: u8) -> Arbiter {
        let mut arbiter = Arbiter { enabled: true, ..Arbiter::default() };
        for (n, &(lane, weight)) in high.iter().enumerate() {
            arbiter.set_high(n, port::HighPriority::default().with_virtual_lane(lane).with_weight(weight));
        }
        for (n, &(lane, weight)) in low.iter().enumerate() {
            arbiter.set_low(n, port::LowPriority::default().with_virtual_lane(lane).with_weight(weight));
        }
        arbiter.set_limit(port::HighPriorityLimit::default().with_limit(limit));
        arbiter
    }

    /// How often each lane sends in `picks`, if `ready` lanes always have a packet of `units`.
    fn shares(arbiter: &mut Arbiter, ready: &[usize], units: usize, picks: usize) -> [usize; LANES] {
        let mut all = [None; LANES];
        ready.iter().for_each(|&lane| all[lane] = Some(units));
        let mut shares = [0; LANES];
        for _ in 0..picks {
            if let Some(lane) = arbiter.pick(&all) {
                shares[lane] += 1;
            }
        }
        shares
    }

    #[test]
    fn weights_divide_the_line() {
        let mut arbiter = arbiter(&[], &[(0, 64), (1, 192)], 0);
        assert_eq!(shares(&mut arbiter, &[0, 1], 32, 800)[..2], [200, 600]);
    }

    #[test]
    fn lane_without_a_packet_gives_its_turn_away() {
        let mut arbiter = arbiter(&[], &[(0, 64), (1, 192)], 0);
        assert_eq!(shares(&mut arbiter, &[0], 32, 10)[..2], [10, 0]);
    }

    #[test]
    fn high_table_goes_ahead_as_far_as_the_limit_says() {
        for (limit, low) in [(255, 0), (1, 1), (4, 1)] {
            let mut arbiter = arbiter(&[(1, 255)], &[(0, 255)], limit);
            let high_packets = if limit == 255 { 100 } else { 2 * usize::from(limit) };
            let shares = shares(&mut arbiter, &[0, 1], 32, high_packets + low);
            assert_eq!(shares[..2], [low, high_packets], "limit {limit}");
        }
        let mut one = arbiter(&[(1, 255)], &[(0, 255)], 0);
        assert_eq!(shares(&mut one, &[0, 1], 32, 10)[..2], [5, 5], "one packet ahead");
    }

    #[test]
    fn lane_in_no_table_never_sends() {
        let mut arbiter = arbiter(&[], &[(0, 1)], 0);
        assert_eq!(shares(&mut arbiter, &[3], 1, 5), [0; LANES]);
    }

    proptest! {
        #[test]
        fn only_a_ready_lane_of_a_table_with_weight_is_picked_and_one_always_is(
            high in prop::collection::vec((0..8u8, 0..4u8), 0..16), low in prop::collection::vec((0..8u8, 0..4u8), 0..16),
            limit: u8, ready in prop::collection::vec(prop::option::of(1..70usize), 8),
        ) {
            let mut arbiter = arbiter(&high, &low, limit);
            let ready: [Option<usize>; LANES] = ready.try_into().expect("eight");
            let listed = |lane: usize| {
                high.iter().chain(&low).any(|&(entry, weight)| usize::from(entry) == lane && weight > 0)
            };
            for _ in 0..40 {
                let picked = arbiter.pick(&ready);
                prop_assert_eq!(picked.is_some(), (0..LANES).any(|lane| ready[lane].is_some() && listed(lane)));
                prop_assert!(picked.is_none_or(|lane| ready[lane].is_some() && listed(lane)));
            }
        }
    }
}
