//! Chance, reproducible: one generator for each named source, all derived from one seed.
//!
//! A source is whatever decides on its own in the modelled world: the gap between packets, the length of a stall, the
//! moment of a hardware error. Each has a generator of its own, seeded from (seed, name). A draw more in one source
//! moves no other, so two policies compared under one seed meet the same arrivals.
//!
//! The generator is xoshiro256** (Blackman and Vigna, public domain); its state is filled by SplitMix64. Draws from
//! the exponential distribution need a logarithm, and the one in the standard library may differ in the last bit
//! from machine to machine; the one here uses additions, multiplications and one division, which do not.

use qhca_regs::time::Duration;

use super::trace::{hash_text, mix};

/// The one number that decides a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seed(pub u64);

impl Seed {
    /// The generator of the source called `name`.
    pub fn source(self, name: &str) -> Rng {
        Rng::new(mix(self.0) ^ hash_text(name))
    }

    /// The seed of the `n`-th repetition of an experiment, unrelated to its neighbours.
    pub const fn repetition(self, n: u64) -> Self {
        Self(mix(self.0.wrapping_add(mix(n.wrapping_add(1)))))
    }
}

/// xoshiro256**: 256 bits of state, 64 bits a draw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rng {
    state: [u64; 4],
}

impl Rng {
    /// A generator whose state is spread from 64 bits.
    pub fn new(seed: u64) -> Self {
        let mut counter = seed;
        let state = [(); 4].map(|()| {
            counter = counter.wrapping_add(0x9E37_79B9_7F4A_7C15);
            mix(counter)
        });
        // All zeroes is the one state that xoshiro never leaves; SplitMix64 cannot give four zeroes in a row,
        // since it is a bijection of four different counters.
        Self { state }
    }

    /// 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        let [s0, s1, s2, s3] = self.state;
        let drawn = s1.wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let (t2, t3) = (s2 ^ s0, s3 ^ s1);
        self.state = [s0 ^ t3, s1 ^ t2, t2 ^ (s1 << 17), t3.rotate_left(45)];
        drawn
    }

    /// A whole number below `bound`, every one equally likely; 0 when `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        // Lemire's method: the high half of a 128-bit product, with the few draws that would favour small
        // results thrown away.
        let threshold = bound.wrapping_neg().checked_rem(bound).unwrap_or(0);
        loop {
            let product = u128::from(self.next_u64()) * u128::from(bound);
            if product as u64 >= threshold {
                return (product >> 64) as u64;
            }
        }
    }

    /// A whole number from `low` to `high`, both included; `low` when the range is empty.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        match high.saturating_sub(low).checked_add(1) {
            Some(count) => low + self.below(count),
            None => self.next_u64(),
        }
    }

    /// A number in (0, 1], in steps of 2^-53. Never zero, so that its logarithm exists.
    pub fn unit(&mut self) -> f64 {
        ((self.next_u64() >> 11) + 1) as f64 * (1.0 / (1_u64 << 53) as f64)
    }

    /// True once in `n` draws on average; never when `n` is 0.
    pub fn one_in(&mut self, n: u64) -> bool {
        n != 0 && self.below(n) == 0
    }

    /// A span drawn from the exponential distribution: the gap between happenings that know nothing of each other.
    pub fn exponential(&mut self, mean: Duration) -> Duration {
        Duration::from_nanos((mean.as_nanos() as f64 * -ln(self.unit())) as u64)
    }
}

/// How long something takes, as a rule from which single spans are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distribution {
    /// Always the same.
    Fixed(Duration),
    /// Anything from the first to the second, both included.
    Uniform(Duration, Duration),
    /// Exponential with this mean.
    Exponential(Duration),
    /// The first, plus or minus up to the second, evenly; never below zero.
    Jitter(Duration, Duration),
}

impl Distribution {
    /// Draws one span.
    pub fn draw(self, rng: &mut Rng) -> Duration {
        match self {
            Self::Fixed(span) => span,
            Self::Uniform(low, high) => Duration::from_nanos(rng.between(low.as_nanos(), high.as_nanos())),
            Self::Exponential(mean) => rng.exponential(mean),
            Self::Jitter(middle, spread) => {
                let offset = rng.between(0, spread.as_nanos().saturating_mul(2));
                Duration::from_nanos(
                    middle.as_nanos().saturating_add(offset).saturating_sub(spread.as_nanos()),
                )
            }
        }
    }

    /// The mean of many draws, in nanoseconds.
    pub fn mean_ns(self) -> f64 {
        match self {
            Self::Fixed(span) | Self::Exponential(span) | Self::Jitter(span, _) => span.as_nanos() as f64,
            Self::Uniform(low, high) => (low.as_nanos() as f64 + high.as_nanos() as f64) / 2.0,
        }
    }
}

/// Natural logarithm of a positive normal number, to about 1e-15, the same bits on every machine.
///
/// The number is split into m x 2^e with m near 1; ln m comes from the series of the inverse hyperbolic tangent.
fn ln(x: f64) -> f64 {
    const FRACTION: u64 = (1 << 52) - 1;
    let bits = x.to_bits();
    let mut exponent = ((bits >> 52) & 0x7FF) as i64 - 1023;
    let mut mantissa = f64::from_bits((bits & FRACTION) | (1023 << 52));
    if mantissa > std::f64::consts::SQRT_2 {
        mantissa *= 0.5;
        exponent += 1;
    }
    let s = (mantissa - 1.0) / (mantissa + 1.0);
    let s2 = s * s;
    let mut series = 0.0;
    // |s| <= 0.1716: the first term left out, s^21/21, is below 1e-17.
    for odd in [19.0, 17.0, 15.0, 13.0, 11.0, 9.0, 7.0, 5.0, 3.0, 1.0] {
        series = series * s2 + 1.0 / odd;
    }
    2.0 * s * series + exponent as f64 * std::f64::consts::LN_2
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::{any, prop_assert, proptest};

    #[test]
    fn the_published_first_draws_of_the_generator_come_out() {
        // The reference program of xoshiro256** from state 1, 2, 3, 4.
        let mut rng = Rng { state: [1, 2, 3, 4] };
        let drawn = [(); 5].map(|()| rng.next_u64());
        assert_eq!(drawn, [11520, 0, 1_509_978_240, 1_215_971_899_390_074_240, 1_216_172_134_540_287_360]);
    }

    #[test]
    fn sources_of_one_seed_are_unrelated_and_repeatable() {
        let draw = |seed, name| Seed(seed).source(name).next_u64();
        assert_eq!(draw(7, "wire"), draw(7, "wire"));
        assert_ne!(draw(7, "wire"), draw(7, "stall"));
        assert_ne!(draw(7, "wire"), draw(8, "wire"));
        assert_ne!(Seed(7).repetition(0), Seed(7).repetition(1));
    }

    #[test]
    fn the_exponential_has_the_mean_and_the_tail_of_one() {
        let mut rng = Seed(1).source("exponential");
        let mean = Duration::from_micros(10);
        let draws: Vec<u64> = (0..200_000).map(|_| rng.exponential(mean).as_nanos()).collect();
        let average = draws.iter().sum::<u64>() as f64 / draws.len() as f64;
        let past_mean = draws.iter().filter(|&&ns| ns > mean.as_nanos()).count() as f64 / draws.len() as f64;
        assert!((average - 10_000.0).abs() < 100.0, "mean {average} ns");
        assert!((past_mean - (-1.0_f64).exp()).abs() < 0.01, "share above the mean {past_mean}");
    }

    proptest! {
        #[test]
        fn the_logarithm_agrees_with_the_standard_library(x in f64::MIN_POSITIVE..1e300) {
            prop_assert!((ln(x) - x.ln()).abs() <= 1e-14 * x.ln().abs().max(1.0));
        }

        #[test]
        fn draws_stay_in_their_range(seed in any::<u64>(), low in 0..u64::MAX / 2, width in 0..u64::MAX / 2) {
            let mut rng = Rng::new(seed);
            for _ in 0..8 {
                let drawn = rng.between(low, low + width);
                prop_assert!((low..=low + width).contains(&drawn));
            }
            prop_assert!(width == 0 || rng.below(width) < width);
            let unit = rng.unit();
            prop_assert!(unit > 0.0 && unit <= 1.0);
        }

        #[test]
        fn jitter_is_centred_and_never_negative(seed in any::<u64>(), middle in 0_u64..10_000, spread in 0_u64..20_000) {
            let mut rng = Rng::new(seed);
            let rule = Distribution::Jitter(Duration::from_nanos(middle), Duration::from_nanos(spread));
            for _ in 0..8 {
                let drawn = rule.draw(&mut rng).as_nanos();
                prop_assert!(drawn <= middle + spread && drawn + spread >= middle);
            }
        }
    }

    #[test]
    fn an_empty_range_gives_its_lower_end() {
        let mut rng = Seed(3).source("edge");
        assert_eq!(rng.below(0), 0);
        assert_eq!(rng.between(9, 4), 9);
        assert!(!rng.one_in(0));
        assert!(rng.one_in(1));
        let _ = rng.between(0, u64::MAX);
    }
}
