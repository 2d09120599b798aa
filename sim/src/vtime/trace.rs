//! A fingerprint of a run: equal for two runs exactly when they did the same things at the same times.
//!
//! What goes in is up to the model: (time, label, arguments) of each event that matters. The fingerprint costs a few
//! instructions an entry, so it stays on in every run and a test compares two numbers instead of two logs.

use qhca_regs::time::Instant;

/// Running hash over (time, label, arguments), independent of machine and compiler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceHash {
    state: u64,
    entries: u64,
}

impl TraceHash {
    /// The fingerprint of a run in which nothing has happened yet.
    pub const fn new() -> Self {
        Self { state: 0x9E37_79B9_7F4A_7C15, entries: 0 }
    }

    /// Adds one happening.
    pub fn record(&mut self, at: Instant, label: &str, args: [u64; 2]) {
        self.absorb(at.as_nanos());
        self.absorb(hash_text(label));
        self.absorb(args[0]);
        self.absorb(args[1]);
        self.entries += 1;
    }

    /// The fingerprint so far.
    pub const fn value(self) -> u64 {
        mix(self.state ^ self.entries)
    }

    /// How many happenings went in.
    pub const fn entries(self) -> u64 {
        self.entries
    }

    /// Order matters: each word is mixed into all that came before it.
    fn absorb(&mut self, word: u64) {
        self.state = mix(self.state.rotate_left(5) ^ word).wrapping_add(word);
    }
}

impl Default for TraceHash {
    fn default() -> Self {
        Self::new()
    }
}

/// FNV-1a over a label's bytes: short constant strings, hashed afresh each time so that no table needs an order.
pub(super) fn hash_text(text: &str) -> u64 {
    let mut hash = 0xCBF2_9CE4_8422_2325_u64;
    for byte in text.bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3);
    }
    hash
}

/// The finishing step of SplitMix64: every input bit reaches every output bit.
pub(super) const fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(entries: &[(u64, &str, u64)]) -> u64 {
        let mut hash = TraceHash::new();
        for &(at, label, arg) in entries {
            hash.record(Instant::from_nanos(at), label, [arg, 0]);
        }
        hash.value()
    }

    #[test]
    fn any_difference_in_time_label_argument_or_order_shows() {
        let base = of(&[(1, "arrive", 7), (2, "drop", 8)]);
        assert_eq!(base, of(&[(1, "arrive", 7), (2, "drop", 8)]));
        for other in [
            of(&[(1, "arrive", 7), (3, "drop", 8)]),
            of(&[(1, "arrive", 7), (2, "drip", 8)]),
            of(&[(1, "arrive", 7), (2, "drop", 9)]),
            of(&[(2, "drop", 8), (1, "arrive", 7)]),
            of(&[(1, "arrive", 7)]),
            of(&[]),
        ] {
            assert_ne!(base, other);
        }
    }
}
