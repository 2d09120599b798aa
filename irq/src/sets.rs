//! Small sets of contexts, ports and vectors: one bit a member, iterated in ascending order.

use core::fmt;
use qhca_regs::{Ctxt, Port, Vector};

macro_rules! bit_set {
    ($(#[$doc:meta])* $set:ident of $item:ident, $all:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
        pub struct $set(u32);

        impl $set {
            /// No member.
            pub const EMPTY: Self = Self(0);
            /// Every member that the chip has.
            pub const ALL: Self = Self($all);

            /// The members whose bits are one; bits that name nothing are dropped.
            pub const fn from_bits(bits: u32) -> Self {
                Self(bits & $all)
            }

            /// One bit a member.
            pub const fn bits(self) -> u32 {
                self.0
            }

            /// The set of `item` alone.
            pub const fn only(item: $item) -> Self {
                Self(1 << item.index())
            }

            /// The set with `item` in it.
            #[must_use]
            pub const fn with(self, item: $item) -> Self {
                Self(self.0 | 1 << item.index())
            }

            /// The set with `item` not in it.
            #[must_use]
            pub const fn without(self, item: $item) -> Self {
                Self(self.0 & !(1 << item.index()))
            }

            /// The members of either set.
            #[must_use]
            pub const fn union(self, other: Self) -> Self {
                Self(self.0 | other.0)
            }

            /// Whether `item` is in the set.
            pub const fn contains(self, item: $item) -> bool {
                self.0 >> item.index() & 1 == 1
            }

            /// Whether nothing is in the set.
            pub const fn is_empty(self) -> bool {
                self.0 == 0
            }

            /// How many members the set has.
            pub const fn len(self) -> usize {
                self.0.count_ones() as usize
            }

            /// The members, ascending.
            pub fn iter(self) -> impl Iterator<Item = $item> {
                let mut bits = self.0;
                core::iter::from_fn(move || {
                    let item = $item::new(bits.trailing_zeros() as usize)?;
                    bits &= bits - 1;
                    Some(item)
                })
            }
        }

        impl FromIterator<$item> for $set {
            fn from_iter<I: IntoIterator<Item = $item>>(items: I) -> Self {
                items.into_iter().fold(Self::EMPTY, Self::with)
            }
        }

        impl fmt::Debug for $set {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_set().entries(self.iter().map($item::index)).finish()
            }
        }
    };
}

bit_set!(
    /// Receive contexts.
    ContextSet of Ctxt, 0x3_FFFF
);
bit_set!(
    /// Hardware ports.
    PortSet of Port, 0b11
);
bit_set!(
    /// Interrupt vectors.
    VectorSet of Vector, 0xFFFF_FFFF
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_iterates_its_members_in_ascending_order_and_drops_bits_that_name_nothing() {
        let set = ContextSet::from_bits(0xFFF0_0005);
        assert_eq!(set.iter().map(Ctxt::index).collect::<Vec<_>>(), [0, 2]);
        assert_eq!(set.len(), 2);
        assert_eq!(VectorSet::ALL.iter().count(), Vector::COUNT);
        assert_eq!(PortSet::ALL.iter().collect::<PortSet>(), PortSet::ALL);
    }
}
