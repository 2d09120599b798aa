//! Where the time of a core went: virtual nanoseconds and occurrences, by label.
//!
//! A label is what the experiment wants to tell apart: "register read on the error path", "copy of a packet". Labels
//! are registered by name once and are indices afterwards, so that charging is an addition and nothing else.

use qhca_regs::time::Duration;

/// A kind of cost, as registered with [`Ledger::label`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Label(u16);

/// Sums by label.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    rows: Vec<Row>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Row {
    name: &'static str,
    spent: Duration,
    occurrences: u64,
}

impl Ledger {
    /// A ledger with no labels.
    pub const fn new() -> Self {
        Self { rows: Vec::new() }
    }

    /// The label called `name`, made if it is new. For set-up: it searches.
    ///
    /// PANIC: more than 65,536 labels, which are written by hand.
    pub fn label(&mut self, name: &'static str) -> Label {
        let place = self.rows.iter().position(|row| row.name == name).unwrap_or_else(|| {
            self.rows.push(Row { name, spent: Duration::ZERO, occurrences: 0 });
            self.rows.len() - 1
        });
        Label(u16::try_from(place).expect("labels are few"))
    }

    /// Books `span` under `label`, once.
    pub fn add(&mut self, label: Label, span: Duration) {
        let row = &mut self.rows[usize::from(label.0)];
        row.spent += span;
        row.occurrences += 1;
    }

    /// Time booked under `label`.
    pub fn spent(&self, label: Label) -> Duration {
        self.rows[usize::from(label.0)].spent
    }

    /// How often `label` was charged.
    pub fn occurrences(&self, label: Label) -> u64 {
        self.rows[usize::from(label.0)].occurrences
    }

    /// Time booked under all labels.
    pub fn total(&self) -> Duration {
        self.rows.iter().fold(Duration::ZERO, |sum, row| sum + row.spent)
    }

    /// (name, time, occurrences) of every label, in order of registration.
    pub fn rows(&self) -> impl Iterator<Item = (&'static str, Duration, u64)> + '_ {
        self.rows.iter().map(|row| (row.name, row.spent, row.occurrences))
    }

    /// What was booked since `earlier`, a copy of this ledger taken before.
    pub fn since(&self, earlier: &Self) -> Self {
        let rows = self.rows.iter().enumerate().map(|(place, row)| match earlier.rows.get(place) {
            Some(old) => Row {
                name: row.name,
                spent: row.spent - old.spent,
                occurrences: row.occurrences - old.occurrences,
            },
            None => row.clone(),
        });
        Self { rows: rows.collect() }
    }
}

/// What one step costs, piece by piece; between two pieces a higher class may cut in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Charges {
    pieces: Vec<(Label, Duration)>,
}

impl Charges {
    /// A step that costs nothing.
    pub const fn new() -> Self {
        Self { pieces: Vec::new() }
    }

    /// Adds a piece at the end.
    pub fn add(&mut self, label: Label, span: Duration) -> &mut Self {
        self.pieces.push((label, span));
        self
    }

    /// The pieces in order.
    pub fn pieces(&self) -> &[(Label, Duration)] {
        &self.pieces
    }

    /// The sum of the pieces.
    pub fn total(&self) -> Duration {
        self.pieces.iter().fold(Duration::ZERO, |sum, &(_, span)| sum + span)
    }

    /// Empties it for the next step, keeping the memory.
    pub fn clear(&mut self) {
        self.pieces.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_is_made_once_and_sums_apart() {
        let mut ledger = Ledger::new();
        let read = ledger.label("read");
        let copy = ledger.label("copy");
        assert_eq!(ledger.label("read"), read);
        ledger.add(read, Duration::from_micros(1));
        let earlier = ledger.clone();
        ledger.add(read, Duration::from_micros(1));
        ledger.add(copy, Duration::from_nanos(300));
        assert_eq!((ledger.spent(read), ledger.occurrences(read)), (Duration::from_micros(2), 2));
        assert_eq!(ledger.total(), Duration::from_nanos(2_300));
        let late = ledger.label("late");
        ledger.add(late, Duration::from_nanos(1));
        assert_eq!(ledger.since(&earlier).total(), Duration::from_nanos(1_301));
    }
}
