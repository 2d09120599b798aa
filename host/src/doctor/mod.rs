//! A card and its machine judged: each thing that a card behind VFIO needs, what was seen, and what mends it.
//!
//! A check looks at files alone and changes nothing. It gives one [`Finding`]: a [`Verdict`], the observed value, and the
//! commands or settings that mend it. A file that does not tell is a verdict of its own, because "could not be seen" is
//! neither right nor wrong. The checks stand in the order in which they stand in a user's way: the first that is bad is
//! the one to mend first, and its number is the exit code.

mod bus;
mod machine;
mod rights;

use crate::bdf::Bdf;
use crate::card::Card;
use crate::read::Reader;
use std::fmt::{self, Write};

/// What is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Check {
    /// There is a card.
    Card,
    /// It answers on its bus.
    Bus,
    /// The IOMMU is on.
    Iommu,
    /// Interrupts are remapped.
    Remapping,
    /// The modules are there.
    Module,
    /// `vfio-pci` has it.
    Driver,
    /// Its group is viable.
    Group,
    /// Its node is there.
    Node,
    /// This user may open it.
    Permission,
    /// Nobody else has it.
    InUse,
    /// Enough memory may be locked.
    Memlock,
    /// It is awake, or wakes.
    Power,
    /// The kernel is locked down.
    Lockdown,
    /// Its link is what the slot gives.
    Pcie,
    /// Its vectors stay where they are put.
    Irqbalance,
    /// An old file of options.
    Options,
    /// Its EEPROM.
    Eeprom,
    /// Its cables.
    Cable,
    /// What is at the other end.
    Link,
}

impl Check {
    /// All of them, in the order in which they stand in the way.
    pub const ALL: [Self; 19] = [
        Self::Card,
        Self::Bus,
        Self::Iommu,
        Self::Remapping,
        Self::Module,
        Self::Driver,
        Self::Group,
        Self::Node,
        Self::Permission,
        Self::InUse,
        Self::Memlock,
        Self::Power,
        Self::Lockdown,
        Self::Pcie,
        Self::Irqbalance,
        Self::Options,
        Self::Eeprom,
        Self::Cable,
        Self::Link,
    ];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Card => "card",
            Self::Bus => "bus",
            Self::Iommu => "iommu",
            Self::Remapping => "intremap",
            Self::Module => "module",
            Self::Driver => "driver",
            Self::Group => "group",
            Self::Node => "node",
            Self::Permission => "permission",
            Self::InUse => "in-use",
            Self::Memlock => "memlock",
            Self::Power => "power",
            Self::Lockdown => "lockdown",
            Self::Pcie => "pcie",
            Self::Irqbalance => "irqbalance",
            Self::Options => "options",
            Self::Eeprom => "eeprom",
            Self::Cable => "cable",
            Self::Link => "link",
        }
    }

    /// The exit code when this is the first that is bad.
    pub const fn exit_code(self) -> u8 {
        10 + self as u8
    }
}

/// How a check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// As it should be.
    Ok,
    /// Worth knowing.
    Note,
    /// The card can be used, and not as well as it could be.
    Warn,
    /// The card cannot be used.
    Bad,
    /// It could not be seen.
    Unknown,
}

impl Verdict {
    /// In a word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Note => "note",
            Self::Warn => "warn",
            Self::Bad => "BAD",
            Self::Unknown => "?",
        }
    }
}

/// What a check found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Which check.
    pub check: Check,
    /// How it ended.
    pub verdict: Verdict,
    /// What was seen.
    pub observed: String,
    /// What mends it: commands, settings, in the order in which to try them.
    pub mend: Vec<String>,
}

impl Finding {
    /// A finding without anything to mend.
    pub fn new(check: Check, verdict: Verdict, observed: impl fmt::Display) -> Self {
        Self { check, verdict, observed: observed.to_string(), mend: Vec::new() }
    }

    /// The same with one more thing that mends it.
    #[must_use]
    pub fn mend(mut self, what: impl fmt::Display) -> Self {
        self.mend.push(what.to_string());
        self
    }
}

/// How much memory a card's queues and buffers take, by the default options.
///
/// It is ours: a bound from above for all contexts, header queues and eager buffers of the chip.
pub const DMA_BYTES: u64 = 64 << 20;

/// Looks at everything that `card` needs of its machine.
pub fn examine(reader: Reader<'_>, card: &Card) -> Vec<Finding> {
    vec![
        Finding::new(Check::Card, Verdict::Ok, bus::place(card)),
        bus::answers(reader, card),
        machine::iommu(reader, card),
        machine::remapping(reader),
        machine::module(reader),
        machine::driver(reader, card),
        bus::group(card),
        rights::node(reader, card),
        rights::permission(reader, card),
        rights::in_use(reader, card),
        rights::memlock(reader),
        bus::power(card),
        machine::lockdown(reader, card),
        bus::pcie(card),
        rights::irqbalance(reader),
    ]
}

/// What there is to say where there is no card.
pub fn no_card(reader: Reader<'_>, asked: Option<Bdf>) -> Finding {
    bus::no_card(reader, asked)
}

/// The exit code of findings: that of the first that is bad, or 0.
pub fn exit_code(findings: &[Finding]) -> u8 {
    let first =
        findings.iter().filter(|finding| finding.verdict == Verdict::Bad).map(|finding| finding.check).min();
    first.map_or(0, Check::exit_code)
}

/// Findings as text, under a title.
pub fn text(title: &str, findings: &[Finding]) -> String {
    let mut text = format!("{title}\n");
    for finding in findings {
        let (verdict, name) = (finding.verdict.name(), finding.check.name());
        let mut lines = finding.observed.lines();
        let _ = writeln!(text, "  {verdict:<5} {name:<11} {}", lines.next().unwrap_or_default());
        for line in lines {
            let _ = writeln!(text, "{:20}{line}", "");
        }
        for mend in &finding.mend {
            let _ = writeln!(text, "{:8}mend:       {mend}", "");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_check_has_its_own_name_and_exit_code_above_the_tools_own() {
        let names: std::collections::BTreeSet<_> = Check::ALL.iter().map(|check| check.name()).collect();
        let codes: std::collections::BTreeSet<_> = Check::ALL.iter().map(|check| check.exit_code()).collect();
        assert_eq!((names.len(), codes.len()), (Check::ALL.len(), Check::ALL.len()));
        assert_eq!(codes.first(), Some(&10));
    }

    #[test]
    fn first_bad_finding_in_the_order_of_checks_gives_the_exit_code() {
        let finding = |check, verdict| Finding::new(check, verdict, "x");
        assert_eq!(
            exit_code(&[finding(Check::Pcie, Verdict::Warn), finding(Check::Bus, Verdict::Unknown)]),
            0
        );
        let both = [finding(Check::Memlock, Verdict::Bad), finding(Check::Iommu, Verdict::Bad)];
        assert_eq!(exit_code(&both), Check::Iommu.exit_code());
    }
}
