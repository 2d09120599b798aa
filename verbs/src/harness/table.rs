//! The table of what was seen: operation × fault × status.

use std::collections::BTreeMap;
use std::fmt;

use super::scenario::{Fault, Op};
use crate::wc::WcStatus;

/// How often each operation ended in each way under each fault.
#[derive(Clone, Debug, Default)]
pub struct Table {
    cells: BTreeMap<(Op, WcStatus), [u64; Fault::ALL.len()]>,
    /// Scenarios played.
    pub scenarios: u64,
    /// Packets that went over the cable.
    pub packets: u64,
}

impl Table {
    /// Notes how one request ended.
    pub fn count(&mut self, op: Op, fault: Fault, status: WcStatus) {
        self.cells.entry((op, status)).or_default()[fault as usize] += 1;
    }

    /// Adds what another table has seen.
    pub fn merge(&mut self, other: &Self) {
        for (key, counts) in &other.cells {
            let cell = self.cells.entry(*key).or_default();
            cell.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
        }
        self.scenarios += other.scenarios;
        self.packets += other.packets;
    }

    /// How often `op` ended in `status` under `fault`.
    pub fn seen(&self, op: Op, fault: Fault, status: WcStatus) -> u64 {
        self.cells.get(&(op, status)).map_or(0, |counts| counts[fault as usize])
    }

    /// Requests in the table.
    pub fn requests(&self) -> u64 {
        self.cells.values().flatten().sum()
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<10} {:<30}", "operation", "status")?;
        for fault in Fault::ALL {
            write!(f, " {fault:>9}")?;
        }
        writeln!(f)?;
        for ((op, status), counts) in &self.cells {
            write!(f, "{op:<10} {:<30}", status.to_string())?;
            for count in counts {
                write!(f, " {count:>9}")?;
            }
            writeln!(f)?;
        }
        write!(f, "{} scenarios, {} work requests, {} packets", self.scenarios, self.requests(), self.packets)
    }
}
