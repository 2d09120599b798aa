//! The static split: which receive context gets how much of the chip.
//!
//! The chip has 18 receive contexts and one array of 18432 eager buffers. Software chooses one of three
//! configurations; the fewer contexts, the more buffers each:
//!
//! ```text
//!  eager array, entries      0        1024       2048                                        18432
//!  two ports               | context 0 | context 1 | context 2 | context 3 | …                   |
//!  one port                | context 0             | context 2 | context 3 | …                   |
//!                                                   4096 each with 6 contexts, 2048 with 10, 1024 with 18
//! ```
//!
//! Contexts 0 and 1 are the kernel's on port 0 and 1; `krcvqs` gives it more, taken in turn by the ports from
//! context 2 on. What is left are user contexts, one for each CPU if they suffice. The small send buffers are split
//! the same way: 0 to 119 among the user contexts, 120 to 127 for the kernel; large ones go to the kernel, by port.
//!
//! Every number that the chip reports is held against what the split can take before it is used ([`ChipCounts`]).
//!
//! Source: F-114 to F-118.

use crate::board::Board;
use crate::options::Options;
use crate::ports::Ports;
use core::fmt;
use core::ops::Range;
use qhca_irq::plan::{PlanError, PlanRequest};
use qhca_regs::map::device::SendBufCnt;
use qhca_regs::{Buffer, Ctxt, Port};

mod counts;

pub use counts::{ChipCounts, CountWarning, CountsError};

/// Entries of the eager array that contexts 0 and 1 share (F-115).
pub const KERNEL_EAGER_ENTRIES: u32 = 2048;
/// Small send buffers that belong to the kernel whatever the users hold (F-118).
pub const KERNEL_SMALL_BUFFERS: usize = 8;
/// Buffers that become free between two updates of the availability words, unless a context has too few (F-118).
const AVAIL_UPDATE_THRESHOLD: usize = 8;

/// The three ways to configure the chip's contexts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ContextCfg {
    /// 6 contexts, 4096 eager entries each.
    Six,
    /// 10 contexts, 2048 eager entries each.
    Ten,
    /// 18 contexts, 1024 eager entries each.
    Eighteen,
}

impl ContextCfg {
    /// All, fewest contexts first.
    pub const ALL: [Self; 3] = [Self::Six, Self::Ten, Self::Eighteen];

    /// How many contexts it has.
    pub const fn contexts(self) -> usize {
        match self {
            Self::Six => 6,
            Self::Ten => 10,
            Self::Eighteen => 18,
        }
    }

    /// Eager entries of each context from 2 on; `RcvEgrCnt` reads this once the configuration is written.
    pub const fn eager_entries(self) -> u32 {
        match self {
            Self::Six => 4096,
            Self::Ten => 2048,
            Self::Eighteen => 1024,
        }
    }

    /// The code in `RcvCtrl.ContextCfg`.
    pub const fn code(self) -> u8 {
        match self {
            Self::Six => 0,
            Self::Ten => 1,
            Self::Eighteen => 2,
        }
    }
}

/// Who a context serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// The driver itself, on this port.
    Kernel(Port),
    /// Whoever opens it, on either port.
    User,
}

/// What one context gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContextShare {
    /// The context.
    pub ctxt: Ctxt,
    /// Who it serves.
    pub owner: Owner,
    /// Its entries in the eager array.
    pub eager: Range<u32>,
    /// Small send buffers of a user context; the kernel's contexts send from the kernel's pool.
    pub buffers: Range<usize>,
}

/// The whole split of one chip.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Split {
    /// Ports in use.
    pub ports: Ports,
    /// The chip's configuration.
    pub cfg: ContextCfg,
    /// Kernel receive contexts of each port.
    pub kernel_queues: usize,
    /// Number of the first user context.
    pub first_user: usize,
    /// The contexts in use, ascending.
    pub contexts: Vec<ContextShare>,
    /// Entries of every header queue.
    pub hdr_entries: u32,
    /// Dwords of one entry.
    pub hdr_entry_dwords: u32,
    /// Dwords of header that the chip keeps beyond LRH and BTH.
    pub hdr_dwords: u32,
    /// Bytes of one eager buffer, 2048 or 4096.
    pub eager_buffer_bytes: u32,
    /// Large send buffers of each hardware port.
    pub large_buffers: [Range<usize>; 2],
    /// Value for `SendCtrl.AvailUpdThld`.
    pub avail_update_threshold: u8,
}

/// A wish that was cut to what the chip can give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SplitWarning {
    /// Fewer kernel receive queues than asked for.
    KernelQueuesCapped {
        /// Asked for, each port.
        wanted: usize,
        /// Given.
        used: usize,
    },
    /// `cfgctxts` left no room for the kernel's contexts and was raised.
    ContextsRaised {
        /// Asked for.
        wanted: usize,
        /// Used.
        used: usize,
    },
    /// `rcvhdrcnt` was below the number of eager buffers and was raised.
    HdrEntriesRaised {
        /// Asked for.
        wanted: u32,
        /// Used.
        used: u32,
    },
}

impl fmt::Display for SplitWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::KernelQueuesCapped { wanted, used } => {
                write!(f, "option krcvqs: {wanted} queues a port do not fit the chip; {used} are used")
            }
            Self::ContextsRaised { wanted, used } => {
                write!(
                    f,
                    "option cfgctxts: {wanted} contexts leave none for the kernel's queues; {used} are used"
                )
            }
            Self::HdrEntriesRaised { wanted, used } => {
                write!(f, "option rcvhdrcnt: {wanted} entries are fewer than eager buffers; {used} are used")
            }
        }
    }
}

/// Why no split exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SplitError {
    /// No port is in use.
    NoPorts,
    /// `cfgctxts` is below the number of ports.
    TooFewContexts {
        /// Asked for.
        cfgctxts: u32,
        /// Ports in use.
        ports: usize,
    },
    /// The chip has fewer contexts than the smallest configuration.
    ChipTooSmall {
        /// What it reports.
        contexts: usize,
    },
}

impl fmt::Display for SplitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoPorts => f.write_str("no port is in use: nothing to split contexts for"),
            Self::TooFewContexts { cfgctxts, ports } => {
                write!(
                    f,
                    "option cfgctxts: {cfgctxts} contexts for {ports} ports; valid: {ports} to 18, or 0"
                )
            }
            Self::ChipTooSmall { contexts } => {
                write!(f, "ContextCnt reports {contexts} contexts; the smallest configuration has 6")
            }
        }
    }
}

impl std::error::Error for SplitError {}

impl Split {
    /// Splits a chip with `counts` on `board` for `cpus` CPUs as `options` say.
    ///
    /// # Errors
    /// [`SplitError`], and nothing has been written to the chip yet.
    pub fn new(
        board: &Board,
        options: &Options,
        cpus: usize,
        counts: &ChipCounts,
    ) -> Result<(Self, Vec<SplitWarning>), SplitError> {
        let mut warnings = Vec::new();
        let ports = board.ports_used(options);
        if ports.is_empty() {
            return Err(SplitError::NoPorts);
        }
        let largest = largest_cfg(counts.contexts)?;
        let kernel_queues = kernel_queues(ports, options, largest.contexts(), &mut warnings);
        let first_user = 2 + (kernel_queues - 1) * ports.count();
        let wanted = contexts_wanted(ports, options, first_user, cpus, &mut warnings)?;
        let cfg =
            ContextCfg::ALL.into_iter().find(|cfg| cfg.contexts() >= wanted).unwrap_or(largest).min(largest);
        let contexts_end = wanted.min(cfg.contexts());

        let mut split = Self {
            ports,
            cfg,
            kernel_queues,
            first_user,
            contexts: Vec::with_capacity(contexts_end),
            hdr_entries: hdr_entries(ports, options, cfg.eager_entries(), &mut warnings),
            hdr_entry_dwords: options.hdr_entry_dwords(),
            hdr_dwords: options.hdr_dwords(),
            eager_buffer_bytes: options.mtu_bytes().max(2048),
            large_buffers: large_buffers(ports),
            avail_update_threshold: avail_update_threshold(contexts_end - first_user),
        };
        for ctxt in Ctxt::all().take(contexts_end) {
            split.contexts.extend(split.share(ctxt, contexts_end));
        }
        Ok((split, warnings))
    }

    /// What `ctxt` gets; nothing if its port is not there.
    fn share(&self, ctxt: Ctxt, contexts_end: usize) -> Option<ContextShare> {
        let index = ctxt.index();
        let owner = self.owner(ctxt)?;
        let buffers = match owner {
            Owner::Kernel(_) => 0..0,
            Owner::User => user_buffers(index - self.first_user, contexts_end - self.first_user),
        };
        Some(ContextShare { ctxt, owner, eager: self.eager_entries(ctxt), buffers })
    }

    /// Who `ctxt` serves; `None` for the kernel context of an absent port.
    fn owner(&self, ctxt: Ctxt) -> Option<Owner> {
        match ctxt.index() {
            index @ 0..2 => Port::new(index).filter(|&port| self.ports.has(port)).map(Owner::Kernel),
            index if index >= self.first_user => Some(Owner::User),
            index if self.ports.count() == 2 => Port::new(index % 2).map(Owner::Kernel),
            _ => self.ports.iter().next().map(Owner::Kernel),
        }
    }

    /// The entries of `ctxt` in the eager array (F-115).
    fn eager_entries(&self, ctxt: Ctxt) -> Range<u32> {
        let each = self.cfg.eager_entries();
        let index = ctxt.index() as u32;
        match (index, self.ports.count()) {
            (0..2, 1) => 0..KERNEL_EAGER_ENTRIES,
            (0..2, _) => index * (KERNEL_EAGER_ENTRIES / 2)..(index + 1) * (KERNEL_EAGER_ENTRIES / 2),
            _ => KERNEL_EAGER_ENTRIES + (index - 2) * each..KERNEL_EAGER_ENTRIES + (index - 1) * each,
        }
    }

    /// The share of `ctxt`, if it is in use.
    pub fn context(&self, ctxt: Ctxt) -> Option<&ContextShare> {
        self.contexts.iter().find(|share| share.ctxt == ctxt)
    }

    /// The kernel's contexts with their ports, ascending.
    pub fn kernel_contexts(&self) -> impl Iterator<Item = (Ctxt, Port)> {
        self.contexts.iter().filter_map(|share| match share.owner {
            Owner::Kernel(port) => Some((share.ctxt, port)),
            Owner::User => None,
        })
    }

    /// The user contexts, ascending.
    pub fn user_contexts(&self) -> impl Iterator<Item = &ContextShare> {
        self.contexts.iter().filter(|share| share.owner == Owner::User)
    }

    /// What to ask the interrupt side for: these ports and kernel contexts, after all caps.
    ///
    /// # Errors
    /// None that this split can cause: it has a port, and its queues are within the option's range.
    pub fn plan_request(&self, options: &Options) -> Result<PlanRequest, PlanError> {
        let ports = self.ports.iter().collect();
        let contexts = self.kernel_contexts().map(|(ctxt, _)| ctxt).collect();
        let request = PlanRequest::new(ports, self.kernel_queues as u8, options.krcvq01_no_msi)?;
        Ok(request.with_contexts(contexts))
    }

    /// Small send buffers that the kernel may use while the user contexts for which `is_open` holds are open: its
    /// own, and those that nobody has claimed.
    pub fn kernel_small_buffers(&self, is_open: impl Fn(Ctxt) -> bool) -> Vec<Buffer> {
        let taken: Vec<_> = self
            .user_contexts()
            .filter(|share| is_open(share.ctxt))
            .map(|share| share.buffers.clone())
            .collect();
        (0..Buffer::SMALL)
            .filter(|index| !taken.iter().any(|range| range.contains(index)))
            .filter_map(Buffer::new)
            .collect()
    }

    /// The context that receives packets to the queue pairs of map entry `entry`, 0 to 31, on `port` (F-117).
    pub fn qp_map_entry(&self, port: Port, entry: usize) -> Ctxt {
        let turn = entry % self.kernel_queues;
        let index = match (turn, self.ports.count()) {
            (0, _) => port.index(),
            (_, 2) => turn * 2 + port.index(),
            (_, _) => turn + 1,
        };
        // PANIC: below `first_user`, which `kernel_queues` caps at the chip's contexts.
        Ctxt::new(index).expect("a kernel context of the chip")
    }
}

/// The largest configuration that a chip with `contexts` contexts can take.
fn largest_cfg(contexts: usize) -> Result<ContextCfg, SplitError> {
    let fitting = ContextCfg::ALL.into_iter().filter(|cfg| cfg.contexts() <= contexts);
    fitting.max().ok_or(SplitError::ChipTooSmall { contexts })
}

/// Kernel receive queues of each port, capped so that the chip's contexts hold them all.
fn kernel_queues(
    ports: Ports,
    options: &Options,
    chip_contexts: usize,
    warnings: &mut Vec<SplitWarning>,
) -> usize {
    let wanted = options.krcvqs.max(1) as usize;
    let most = 1 + (chip_contexts - 2) / ports.count();
    if wanted > most {
        warnings.push(SplitWarning::KernelQueuesCapped { wanted, used: most });
    }
    wanted.min(most)
}

/// Contexts to use: `cfgctxts`, or the kernel's and one for each CPU (F-114).
fn contexts_wanted(
    ports: Ports,
    options: &Options,
    first_user: usize,
    cpus: usize,
    warnings: &mut Vec<SplitWarning>,
) -> Result<usize, SplitError> {
    let cfgctxts = options.cfgctxts as usize;
    match cfgctxts {
        0 => Ok(first_user.saturating_add(cpus)),
        _ if cfgctxts < ports.count() => {
            Err(SplitError::TooFewContexts { cfgctxts: options.cfgctxts, ports: ports.count() })
        }
        _ if cfgctxts < first_user => {
            // One port needs one context, but its number may be 1 and the number counts the gap.
            if cfgctxts < first_user - (2 - ports.count()) {
                warnings.push(SplitWarning::ContextsRaised { wanted: cfgctxts, used: first_user });
            }
            Ok(first_user)
        }
        _ => Ok(cfgctxts),
    }
}

/// Entries of a header queue: never fewer than eager buffers, twice as many by default (F-116).
fn hdr_entries(ports: Ports, options: &Options, eager_entries: u32, warnings: &mut Vec<SplitWarning>) -> u32 {
    match options.rcvhdrcnt {
        0 => 2 * eager_entries.max(KERNEL_EAGER_ENTRIES / ports.count() as u32),
        wanted if wanted < eager_entries => {
            warnings.push(SplitWarning::HdrEntriesRaised { wanted, used: eager_entries });
            eager_entries
        }
        wanted => wanted,
    }
}

/// Small buffers of the user context with rank `rank` of `users`: equal parts, the rest one each to the first.
fn user_buffers(rank: usize, users: usize) -> Range<usize> {
    let (each, rest) = (USER_SMALL_BUFFERS / users, USER_SMALL_BUFFERS % users);
    let start = rank * each + rank.min(rest);
    start..start + each + usize::from(rank < rest)
}

const USER_SMALL_BUFFERS: usize = Buffer::SMALL - KERNEL_SMALL_BUFFERS;

/// Large buffers by port: halves, or all for a port alone.
fn large_buffers(ports: Ports) -> [Range<usize>; 2] {
    let (start, end) = (Buffer::SMALL, Buffer::SMALL + Buffer::LARGE);
    let middle = start + Buffer::LARGE / 2;
    match (ports.has(Port::P0), ports.has(Port::P1)) {
        (true, true) => [start..middle, middle..end],
        (true, false) => [start..end, end..end],
        (false, _) => [start..start, start..end],
    }
}

fn avail_update_threshold(users: usize) -> u8 {
    let each = USER_SMALL_BUFFERS.checked_div(users).unwrap_or(USER_SMALL_BUFFERS);
    AVAIL_UPDATE_THRESHOLD.min(each.saturating_sub(2)) as u8
}

#[cfg(test)]
mod tests;
