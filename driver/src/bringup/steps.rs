//! The steps of bring-up, in the data sheet's order, each with a name and a deadline.
//!
//! Steps that only touch registers end in the call that begins them; their deadline bounds how long the caller may
//! leave the chip half set up. Steps that wait (for the EEPROM, for the caller) are ended by it.

use core::fmt;
use qhca_regs::Duration;

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Step {
    /// Read `Revision`: which chip, which board.
    Identify,
    /// Read bases, sizes and counts, and hold them against the register map.
    Count,
    /// Decide what each context gets; no register.
    Split,
    /// First touch of the ports, present or absent.
    InitPorts,
    /// Write the context configuration; `RcvEgrCnt` must follow.
    ConfigureContexts,
    /// Multicast context, queue pair map, interrupt timers, flow tables.
    MapQueuePairs,
    /// The caller asks the system for interrupt vectors.
    TakeVectors,
    /// Interrupts and errors off and cleared; learn which error bits exist.
    QuietErrors,
    /// Tell the chip which cause fires which vector.
    RedirectInterrupts,
    /// Read the board's EEPROM.
    ReadEeprom,
    /// The caller maps memory for the availability words and the queues.
    TakeMemory,
    /// Sizes of header queues and their entries.
    SizeQueues,
    /// Where the availability words go; must read back.
    PlaceAvail,
    /// Which checks each send buffer's packets pass.
    SetSendChecks,
    /// Cable sockets and their pins.
    SetUpSockets,
    /// Packet sizes, credits, speeds of each port; left switched off.
    SetUpPorts,
    /// Availability updates and sending on.
    EnableSending,
    /// The caller tells the chip of its contexts and disarms the send buffers.
    OpenContexts,
    /// Interrupts on.
    EnableInterrupts,
    /// Ports on, as far as wanted.
    EnableLinks,
}

/// Time for a step of register accesses: a few thousand at about a microsecond each, and the caller's own delays.
///
/// TIMEOUT: ours.
const REGISTER_STEP_WITHIN: Duration = Duration::from_secs(5);
/// Time for the EEPROM: four attempts of some 10 ms, 20 ms between them, on a host that wakes us late.
///
/// TIMEOUT: ours.
const EEPROM_WITHIN: Duration = Duration::from_secs(5);
/// Time for what the caller does: mapping tens of megabytes through an IOMMU takes a second on a slow host.
///
/// TIMEOUT: ours.
const CALLER_WITHIN: Duration = Duration::from_secs(60);

impl Step {
    /// All steps, in order.
    pub const ALL: [Self; 20] = [
        Self::Identify,
        Self::Count,
        Self::Split,
        Self::InitPorts,
        Self::ConfigureContexts,
        Self::MapQueuePairs,
        Self::TakeVectors,
        Self::QuietErrors,
        Self::RedirectInterrupts,
        Self::ReadEeprom,
        Self::TakeMemory,
        Self::SizeQueues,
        Self::PlaceAvail,
        Self::SetSendChecks,
        Self::SetUpSockets,
        Self::SetUpPorts,
        Self::EnableSending,
        Self::OpenContexts,
        Self::EnableInterrupts,
        Self::EnableLinks,
    ];

    /// Its number, from 1.
    pub fn number(self) -> usize {
        self as usize + 1
    }

    /// The step after it.
    pub fn next(self) -> Option<Self> {
        Self::ALL.get(self.number()).copied()
    }

    /// What it does, in a few words.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Identify => "identify the chip",
            Self::Count => "read counts and places",
            Self::Split => "split contexts and buffers",
            Self::InitPorts => "touch the ports",
            Self::ConfigureContexts => "configure contexts",
            Self::MapQueuePairs => "map queue pairs to contexts",
            Self::TakeVectors => "take interrupt vectors",
            Self::QuietErrors => "clear and mask errors",
            Self::RedirectInterrupts => "redirect interrupts",
            Self::ReadEeprom => "read the EEPROM",
            Self::TakeMemory => "take memory",
            Self::SizeQueues => "size header queues",
            Self::PlaceAvail => "place availability words",
            Self::SetSendChecks => "set send checks",
            Self::SetUpSockets => "set up cable sockets",
            Self::SetUpPorts => "set up ports",
            Self::EnableSending => "enable sending",
            Self::OpenContexts => "open contexts",
            Self::EnableInterrupts => "enable interrupts",
            Self::EnableLinks => "enable links",
        }
    }

    /// How long it may take.
    pub const fn within(self) -> Duration {
        match self {
            Self::TakeVectors | Self::TakeMemory | Self::OpenContexts => CALLER_WITHIN,
            Self::ReadEeprom => EEPROM_WITHIN,
            _ => REGISTER_STEP_WITHIN,
        }
    }

    /// Where its content is known from.
    pub const fn source(self) -> &'static str {
        match self {
            Self::Identify => "F-111",
            Self::Count | Self::ConfigureContexts => "F-114, F-150",
            Self::Split => "F-114 to F-118",
            Self::InitPorts => "F-134",
            Self::MapQueuePairs => "F-117, F-151",
            Self::TakeVectors | Self::RedirectInterrupts => "F-603, F-604",
            Self::QuietErrors => "F-152, F-153",
            Self::ReadEeprom => "F-126",
            Self::TakeMemory | Self::PlaceAvail => "F-154",
            Self::SizeQueues => "F-104, F-116",
            Self::SetSendChecks => "F-155",
            Self::SetUpSockets => "F-123, F-141",
            Self::SetUpPorts => "F-135 to F-138, F-156",
            Self::EnableSending => "F-122, F-118",
            Self::OpenContexts => "F-121",
            Self::EnableInterrupts => "F-157",
            Self::EnableLinks => "F-132, F-141",
        }
    }
}

impl fmt::Display for Step {
    /// `step 5 of 20, configure contexts`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "step {} of {}, {}", self.number(), Self::ALL.len(), self.name())
    }
}
