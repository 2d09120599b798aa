//! Which of several pending interrupts a core takes first: a question the experiments must be able to ask both ways.
//!
//! On x86 the interrupt controller offers the highest pending vector. Vectors are handed out by the kernel, so whether
//! an error or a receive interrupt wins is an accident of set-up, and it decides much. Hence an order is a plug-in:
//! implement [`Arbitrate`], or take one of [`Order`].

use qhca_regs::time::Instant;

use super::TaskId;

/// What an interrupt is about, as far as an order cares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Sort {
    /// It tells of an error.
    Error,
    /// It tells of received packets.
    Receive,
    /// Anything else.
    Other,
}

/// An interrupt that has been raised and not yet taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pending {
    /// Its handler.
    pub task: TaskId,
    /// What it is about.
    pub sort: Sort,
    /// When it was raised first since it was taken last.
    pub since: Instant,
}

/// Chooses among pending interrupts.
pub trait Arbitrate {
    /// The index in `pending` of the one to take; `pending` is in order of arrival and not empty.
    fn pick(&self, pending: &[Pending]) -> usize;
}

/// The orders that the experiments compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Order {
    /// Errors before anything else, then by arrival.
    ErrorsFirst,
    /// By arrival alone.
    Arrival,
    /// Receives before anything else, then by arrival.
    ReceiveFirst,
}

impl Order {
    /// Every order, in the order of the tables.
    pub const ALL: [Self; 3] = [Self::ErrorsFirst, Self::Arrival, Self::ReceiveFirst];

    /// The name used on the command line and in results.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ErrorsFirst => "errors-first",
            Self::Arrival => "arrival",
            Self::ReceiveFirst => "receive-first",
        }
    }

    /// The order called `name`.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|order| order.name() == name)
    }
}

impl Arbitrate for Order {
    fn pick(&self, pending: &[Pending]) -> usize {
        let favourite = match self {
            Self::ErrorsFirst => Sort::Error,
            Self::ReceiveFirst => Sort::Receive,
            Self::Arrival => return 0,
        };
        pending.iter().position(|one| one.sort == favourite).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Class, Core};
    use super::*;

    #[test]
    fn each_order_takes_what_its_name_says() {
        let mut core = Core::new(Order::Arrival);
        let mut pending = |sort| {
            let task = core.add_task(Class::HardIrq, sort, "handler");
            Pending { task, sort, since: Instant::ZERO }
        };
        let raised = [Sort::Other, Sort::Receive, Sort::Error, Sort::Receive, Sort::Error].map(&mut pending);
        assert_eq!(Order::Arrival.pick(&raised), 0);
        assert_eq!(Order::ErrorsFirst.pick(&raised), 2);
        assert_eq!(Order::ReceiveFirst.pick(&raised), 1);
        assert_eq!(Order::ErrorsFirst.pick(&raised[..2]), 0, "without a favourite, arrival decides");
        for order in Order::ALL {
            assert_eq!(Order::from_name(order.name()), Some(order));
        }
    }
}
