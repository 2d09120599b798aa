//! Where a thread waits for interrupts, and what woke it.

use qhca_regs::{Instant, Vector};

/// A set of interrupt vectors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VectorSet(pub u32);

impl VectorSet {
    /// No vector.
    pub const EMPTY: Self = Self(0);

    /// The same set with `vector` in it.
    #[must_use]
    pub const fn with(self, vector: Vector) -> Self {
        Self(self.0 | 1 << vector.index())
    }

    /// Whether `vector` is in the set.
    pub const fn contains(self, vector: Vector) -> bool {
        self.0 & 1 << vector.index() != 0
    }

    /// Whether no vector is in the set.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The vectors of the set, ascending.
    pub fn iter(self) -> impl Iterator<Item = Vector> {
        (0..Vector::COUNT).filter_map(Vector::new).filter(move |&vector| self.contains(vector))
    }
}

/// What ended a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// These vectors fired since the last wait. A vector that fired twice is named once.
    Vectors(VectorSet),
    /// The deadline came first.
    Deadline,
}

/// A source of interrupts, for one thread.
pub trait IrqSource {
    /// Waits until a vector fires or the time is `deadline`; `None` waits for interrupts alone, and a deadline that
    /// has passed only looks.
    ///
    /// May wake early with an empty set of vectors: the caller looks at its own state and waits again.
    fn wait(&mut self, deadline: Option<Instant>) -> Wake;
}
