//! What the driver asks of the world: a window of registers, memory the chip can reach, interrupts, a clock.
//!
//! A back end is whatever holds a card: the in-process model, a card behind VFIO, a model in another process. The
//! driver's state machines see none of it; they are handed a [`Bar`], a [`DmaRegion`] and the time. This chapter is
//! the list of what a back end has to provide, and `runtime/` is the only part of the driver that calls it.
//!
//! It does not say how a back end is found or named: the crate `qhca` does.

use std::fmt;
use std::io;
use std::os::fd::AsFd;

use qhca_irq::IrqSource;
use qhca_irq::plan::Mode;
use qhca_regs::{Bar, Instant, Vector};

use crate::dma::DmaRegion;

/// Addresses that every queue register of the chip can hold: 40 bits (F-201).
pub const IOVA_LIMIT: u64 = 1 << 40;

/// Gives the chip memory of the host.
pub trait DmaMapper {
    /// Allocates `len_bytes` of zeroed memory, rounded up to whole pages, contiguous as the chip sees it.
    ///
    /// The chip's address is a multiple of the page size and the whole region lies below [`IOVA_LIMIT`], so that it
    /// serves for any queue. Dropping the region takes it away from the chip again.
    ///
    /// # Errors
    /// [`MapError`]: the caller opens less, or not at all.
    fn map(&mut self, len_bytes: usize) -> Result<DmaRegion, MapError>;
}

/// Why memory could not be given to the chip.
#[derive(Debug)]
#[non_exhaustive]
pub enum MapError {
    /// The host has no memory of that size.
    NoMemory {
        /// What was asked for.
        len_bytes: usize,
        /// What the system said.
        source: io::Error,
    },
    /// No address below [`IOVA_LIMIT`] is left.
    NoAddress {
        /// What was asked for.
        len_bytes: usize,
    },
    /// The IOMMU or the device's host refused the mapping.
    Refused {
        /// What was asked for.
        len_bytes: usize,
        /// The address that was to be mapped.
        iova: u64,
        /// What the system said.
        source: io::Error,
    },
    /// More memory would be locked than this process may lock.
    MemlockLimit {
        /// What was asked for.
        len_bytes: usize,
        /// What the device has already.
        locked_bytes: u64,
        /// The limit (`ulimit -l`).
        limit_bytes: u64,
    },
    /// The kernel allows no more mappings.
    TooManyMaps {
        /// How many it allows.
        limit: u32,
    },
    /// The device has no IOMMU: it cannot be given memory in safety, and is given none.
    NoIommu {
        /// What was asked for.
        len_bytes: usize,
    },
}

impl fmt::Display for MapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoMemory { len_bytes, .. } => write!(f, "no memory for a DMA region of {len_bytes} bytes"),
            Self::NoAddress { len_bytes } => {
                write!(f, "no bus address below 2^40 is left for a DMA region of {len_bytes} bytes")
            }
            Self::Refused { len_bytes, iova, .. } => {
                write!(f, "mapping {len_bytes} bytes at bus address {iova:#x} was refused")
            }
            Self::MemlockLimit { len_bytes, locked_bytes, limit_bytes } => write!(
                f,
                "mapping {len_bytes} bytes to the {locked_bytes} that are mapped would lock more memory than the \
                 {limit_bytes} bytes allowed: `ulimit -l {}` (KiB) is needed",
                locked_bytes.saturating_add(*len_bytes as u64).div_ceil(1024)
            ),
            Self::TooManyMaps { limit } => {
                write!(
                    f,
                    "the kernel allows {limit} mappings (vfio_iommu_type1.dma_entry_limit), and all are in use"
                )
            }
            Self::NoIommu { len_bytes } => write!(
                f,
                "no DMA region of {len_bytes} bytes: the device has no IOMMU, and could write to any memory of this \
                 machine; only registers and interrupts can be used"
            ),
        }
    }
}

impl std::error::Error for MapError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::NoMemory { source, .. } | Self::Refused { source, .. } => Some(source),
            _ => None,
        }
    }
}

/// Tells the time. Asked by the runtime only; everything else is handed an [`Instant`].
pub trait Clock {
    /// Nanoseconds since the clock's origin; never less than the call before gave.
    fn now(&self) -> Instant;
}

/// The system's monotonic clock, from the moment it was made.
#[derive(Clone, Copy, Debug)]
pub struct MonotonicClock {
    origin: std::time::Instant,
}

impl MonotonicClock {
    /// A clock whose origin is now.
    pub fn new() -> Self {
        Self { origin: std::time::Instant::now() }
    }
}

impl Default for MonotonicClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for MonotonicClock {
    fn now(&self) -> Instant {
        // 2^64 ns are 584 years of uptime.
        Instant::from_nanos(self.origin.elapsed().as_nanos() as u64)
    }
}

/// How send buffers are mapped into this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PioMapping {
    /// Each store goes to the bus by itself.
    Uncached,
    /// The processor may combine stores to bursts.
    WriteCombining,
}

impl fmt::Display for PioMapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Uncached => "uncached",
            Self::WriteCombining => "write-combining",
        })
    }
}

/// How far a reset reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ResetKind {
    /// The function alone was reset, through its configuration space.
    Function,
    /// The whole bus behind its bridge was reset.
    Bus,
    /// The chip was reset by its own register.
    Chip,
}

/// What the system has to say of a device that is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Notice {
    /// It is wanted back: it is to be unplugged, or bound to another driver.
    WantedBack,
    /// The bus reported an error after which it cannot go on.
    BusError,
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::WantedBack => "the system wants the device back",
            Self::BusError => "the bus reported an error of the device",
        })
    }
}

/// A device as the driver needs it.
///
/// Dropping the back end and everything it handed out gives the device back. The driver stops the chip's DMA
/// before it drops any memory.
pub trait Backend: Send + 'static {
    /// The register window. Clones touch the same registers, and each thread has its own.
    type Bar: Bar + Clone + Send + 'static;
    /// The allocator of DMA memory.
    type Mapper: DmaMapper + Send + 'static;
    /// Where a thread waits for interrupts.
    type Irq: IrqSource + AsFd + Send + 'static;
    /// The clock that times everything.
    type Clock: Clock + Clone + Send + 'static;

    /// The register window.
    fn bar(&self) -> Self::Bar;

    /// The allocator of DMA memory.
    fn mapper(&self) -> Self::Mapper;

    /// The clock.
    fn clock(&self) -> Self::Clock;

    /// What the device is called in messages: `sim:qle7342`, `0000:04:00.0`.
    fn name(&self) -> String;

    /// Sets up `wanted` interrupts of kind `mode` and says how many were granted; fewer than wanted is a grant.
    ///
    /// The driver asks best mode first and goes on when it is refused ([`negotiate`](qhca_irq::plan::negotiate)), and
    /// asks again for the interrupt line when nothing arrives; what was granted before is then void.
    ///
    /// # Errors
    /// What the system said: this mode cannot be had.
    fn grant_vectors(&mut self, mode: Mode, wanted: usize) -> io::Result<usize>;

    /// Lets the interrupt line fire again. Called after each interrupt in mode [`Mode::Intx`], never in another.
    fn unmask_line(&mut self) {}

    /// How the send buffers are mapped, if they are: then the speed of copies into them is measured once when the device
    /// is started. Nothing to measure for a device whose stores are calls.
    fn pio_mapping(&self) -> Option<PioMapping> {
        None
    }

    /// A source that wakes for `vectors`. Each granted vector is given to one source at most.
    ///
    /// # Errors
    /// What the system said: no descriptor left.
    fn irq_source(&mut self, vectors: &[Vector]) -> io::Result<Self::Irq>;

    /// Resets the device. All its registers are then as after power-on and nothing of it does DMA.
    ///
    /// # Errors
    /// What the system said; the device has then not been reset.
    fn reset(&mut self) -> io::Result<ResetKind>;

    /// Raises the device's read requests to `128 << code` bytes if they are smaller, and says how large they are then;
    /// `None` for a device on no bus of this machine.
    ///
    /// # Errors
    /// What the system said; they are as before.
    fn raise_read_request(&mut self, _code: u8) -> io::Result<Option<u32>> {
        Ok(None)
    }

    /// Called before the chip is reset by its own register, which takes it off the bus.
    ///
    /// # Errors
    /// What the system said; the chip is not reset then.
    fn before_chip_reset(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// What the system has said of the device since the last call, the weightiest. Asked in every turn; an interrupt
    /// source wakes for it.
    fn notice(&mut self) -> Option<Notice> {
        None
    }

    /// Gives the device back now, whoever still has memory or a window of it. Registers read as all ones from then on.
    fn give_back(&mut self) {}

    /// Gives back what the chip lost when it was reset by its own register: its place on the bus. Called when it has had
    /// its rest, before it is looked for.
    ///
    /// # Errors
    /// What the system said.
    fn restore_after_chip_reset(&mut self) -> io::Result<()> {
        Ok(())
    }
}
