//! The vector plan: which of the chip's interrupt causes gets which MSI-X vector.
//!
//! Each bit of `IntStatus` has a 5-bit field in six redirect registers that names the vector to fire (F-603). A bit
//! whose field is 0 fires the *default vector*, whose handler has to read `IntStatus` to learn what happened. Any
//! other vector has one cause only, so its handler needs no read: a read across PCIe costs as much as the rest of
//! the interrupt.
//!
//! ```text
//! bit b of IntStatus --> IntRedirect[b / 12], field b mod 12 (5 bits) --> vector 0 to 31
//! vector 0: everything that is not redirected        (one read of IntStatus)
//! vector 1: SendBufAvail                             (no read)
//! then for each port present: SDmaInt, SDmaIdleInt, SDmaProgressInt, SDmaCleanupDone
//! then for each kernel receive context: RcvAvail
//! ```
//!
//! The order and the exact effect of `krcvq01_no_msi` are the stock driver's, so that a figure taken with an option
//! means the same here. The plan does not ask the operating system for vectors; [`negotiate`] says in which order to ask.

use crate::sets::{ContextSet, PortSet, VectorSet};
use crate::source::Source;
use core::fmt;
use qhca_regs::map::device::{self, IntRedirect};
use qhca_regs::status::IntBits;
use qhca_regs::{Bar, Ctxt, Port, Vector};

/// Redirect registers, each with twelve fields.
pub const REDIRECT_REGISTERS: usize = 6;
/// Fields in one redirect register.
const FIELDS_PER_REGISTER: u32 = 12;
/// Width of a redirect field, bits.
const FIELD_BITS: u32 = 5;
/// The most kernel receive queues a port that the option `krcvqs` allows (F-604).
pub const KRCVQS_MAX: u8 = 17;

/// How the card announces interrupts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// A message for each vector.
    MsiX,
    /// One message for everything.
    Msi,
    /// The shared, level-triggered line: it must be unmasked after every interrupt, and may be somebody else's.
    Intx,
}

impl Mode {
    /// The order in which modes are asked for: the best first.
    pub const FALLBACK_ORDER: [Self; 3] = [Self::MsiX, Self::Msi, Self::Intx];
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::MsiX => "MSI-X",
            Self::Msi => "MSI",
            Self::Intx => "INTx",
        })
    }
}

/// What the operating system granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Grant {
    /// This many MSI-X vectors, perhaps fewer than wanted.
    MsiX {
        /// Vectors granted; more than 32 are of no use to the chip.
        vectors: usize,
    },
    /// One MSI message.
    Msi,
    /// The interrupt line.
    Intx,
}

/// Asks for interrupts mode by mode, best first, until one is granted.
///
/// `ask` is called with a mode and a number of vectors and answers with the number it got; `None` or 0 is a
/// refusal. `None` comes back if all were refused: the card can then only be polled.
pub fn negotiate(wanted: usize, mut ask: impl FnMut(Mode, usize) -> Option<usize>) -> Option<Grant> {
    Mode::FALLBACK_ORDER.into_iter().find_map(|mode| {
        let asked = if mode == Mode::MsiX { wanted } else { 1 };
        let granted = ask(mode, asked).filter(|granted| *granted > 0)?;
        Some(match mode {
            // Never more than was asked for: a vector that nobody asked for is nobody's to release.
            Mode::MsiX => Grant::MsiX { vectors: granted.min(asked) },
            Mode::Msi => Grant::Msi,
            Mode::Intx => Grant::Intx,
        })
    })
}

/// Why a plan cannot be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PlanError {
    /// The board has no port that is enabled.
    NoPorts,
    /// `krcvqs` is outside its range.
    Krcvqs {
        /// The value that was given.
        given: u8,
    },
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoPorts => f.write_str("no vector plan: the board has no enabled port"),
            Self::Krcvqs { given } => {
                write!(f, "krcvqs={given} is out of range: give 0 (one queue a port) to {KRCVQS_MAX}")
            }
        }
    }
}

impl core::error::Error for PlanError {}

/// What a plan is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlanRequest {
    ports: PortSet,
    kernel_contexts: ContextSet,
    krcvq01_no_msi: bool,
}

impl PlanRequest {
    /// A plan for the `ports` that are enabled, with `krcvqs` receive queues for each (0 means one).
    ///
    /// # Errors
    /// [`PlanError::NoPorts`] without a port, [`PlanError::Krcvqs`] above [`KRCVQS_MAX`].
    ///
    /// Source: F-604.
    pub fn new(ports: PortSet, krcvqs: u8, krcvq01_no_msi: bool) -> Result<Self, PlanError> {
        if ports.is_empty() {
            return Err(PlanError::NoPorts);
        }
        if krcvqs > KRCVQS_MAX {
            return Err(PlanError::Krcvqs { given: krcvqs });
        }
        Ok(Self { ports, kernel_contexts: kernel_contexts(ports, krcvqs), krcvq01_no_msi })
    }

    /// The same request with other receive contexts than the stock rule gives.
    #[must_use]
    pub const fn with_contexts(self, kernel_contexts: ContextSet) -> Self {
        Self { kernel_contexts, ..self }
    }

    /// The enabled ports.
    pub const fn ports(&self) -> PortSet {
        self.ports
    }

    /// The receive contexts that are to be served by interrupt.
    pub const fn kernel_contexts(&self) -> ContextSet {
        self.kernel_contexts
    }

    /// What the vectors would be used for if all were granted, vector 0 first.
    pub fn uses(&self) -> impl Iterator<Item = VectorUse> {
        const SDMA: [fn(Port) -> Source; 4] =
            [Source::Sdma, Source::SdmaIdle, Source::SdmaProgress, Source::SdmaCleanupDone];
        let ports = self.ports;
        let sdma = SDMA.into_iter().flat_map(move |cause| ports.iter().map(cause));
        // `krcvq01_no_msi`: contexts 0 and 1 stay with the default vector. On a one-port board only one of
        // them exists, so only one vector is saved.
        let first_context = if self.krcvq01_no_msi { 2 } else { 0 };
        let contexts = self
            .kernel_contexts
            .iter()
            .filter(move |ctxt| ctxt.index() >= first_context)
            .map(Source::RcvAvail);
        core::iter::once(VectorUse::Default).chain(
            core::iter::once(Source::SendBufAvail).chain(sdma).chain(contexts).map(VectorUse::Dedicated),
        )
    }

    /// How many MSI-X vectors to ask for.
    pub fn wanted(&self) -> usize {
        self.uses().count().min(Vector::COUNT)
    }
}

/// The receive contexts that `krcvqs` queues a port make: context p for port p, the rest from context 2 up.
///
/// Source: F-604.
pub fn kernel_contexts(ports: PortSet, krcvqs: u8) -> ContextSet {
    let extra = usize::from(krcvqs.saturating_sub(1)) * ports.len();
    let first = ports.iter().filter_map(|port| Ctxt::new(port.index()));
    first.chain((2..2 + extra).map_while(Ctxt::new)).collect()
}

/// What one vector announces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum VectorUse {
    /// Everything that has no vector of its own.
    Default,
    /// This source alone.
    Dedicated(Source),
}

/// Which vector announces which source, and the register contents that make it so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VectorPlan {
    mode: Mode,
    uses: Vec<VectorUse>,
    redirect: [IntRedirect; REDIRECT_REGISTERS],
    main: IntBits,
    enabled: IntBits,
    kernel_contexts: ContextSet,
}

impl VectorPlan {
    /// The plan for `request` with what was granted. Fewer vectors than wanted cut the list short: whatever has no
    /// vector stays with the default one. MSI and INTx have the default vector only, and so has a grant of none.
    pub fn new(request: &PlanRequest, grant: Grant) -> Self {
        let (mode, vectors) = match grant {
            Grant::MsiX { vectors: 0 } | Grant::Intx => (Mode::Intx, 1),
            Grant::MsiX { vectors } => (Mode::MsiX, vectors.min(Vector::COUNT)),
            Grant::Msi => (Mode::Msi, 1),
        };
        let uses: Vec<VectorUse> = request.uses().take(vectors).collect();
        let mut redirect = [IntRedirect::default(); REDIRECT_REGISTERS];
        let mut main = IntBits::from_bits_retain(u64::MAX);
        for (number, vector_use) in uses.iter().enumerate() {
            if let VectorUse::Dedicated(source) = vector_use {
                let (register, shift) = redirect_field(*source);
                redirect[register].0 |= (number as u64) << shift;
                main.remove(source.mask());
            }
        }
        let enabled = enabled_bits(request.ports);
        Self { mode, uses, redirect, main, enabled, kernel_contexts: request.kernel_contexts }
    }

    /// How interrupts are announced.
    pub const fn mode(&self) -> Mode {
        self.mode
    }

    /// The vectors in use: 0 to `len` − 1. These, and no others, are to be requested and released.
    pub fn vectors(&self) -> VectorSet {
        (0..self.uses.len()).filter_map(Vector::new).collect()
    }

    /// How many vectors are in use, at least one.
    #[allow(clippy::len_without_is_empty, reason = "a plan is never empty")]
    pub fn len(&self) -> usize {
        self.uses.len()
    }

    /// What `vector` announces, or `None` if the plan does not use it.
    pub fn use_of(&self, vector: Vector) -> Option<VectorUse> {
        self.uses.get(vector.index()).copied()
    }

    /// The vector that announces `source`.
    pub fn vector_of(&self, source: Source) -> Vector {
        let (register, shift) = redirect_field(source);
        let field = self.redirect[register].0 >> shift & (Vector::COUNT as u64 - 1);
        // A 5-bit field is always a vector's number.
        Vector::new(field as usize).unwrap_or(Vector::DEFAULT)
    }

    /// Contents of `IntRedirect0` to `IntRedirect5`.
    pub const fn redirect(&self) -> [IntRedirect; REDIRECT_REGISTERS] {
        self.redirect
    }

    /// The bits that the default vector's handler serves; it ignores all others.
    pub const fn main_bits(&self) -> IntBits {
        self.main
    }

    /// What `IntMask` is to hold while interrupts are on: every bit that has a handler. Reserved bits have none,
    /// nor have bits of a port that is not there.
    pub const fn enabled_bits(&self) -> IntBits {
        self.enabled
    }

    /// The receive contexts that are served by interrupt.
    pub const fn kernel_contexts(&self) -> ContextSet {
        self.kernel_contexts
    }

    /// Writes the six redirect registers. `IntMask` must be 0: half a plan sends interrupts astray.
    pub fn write_redirects(&self, bar: &impl Bar) {
        for (number, contents) in (0..).zip(self.redirect) {
            device::INT_REDIRECT.index(number).write(bar, contents);
        }
    }
}

/// The redirect register of `source` and how far its field is shifted.
const fn redirect_field(source: Source) -> (usize, u32) {
    let bit = source.bit();
    ((bit / FIELDS_PER_REGISTER) as usize, bit % FIELDS_PER_REGISTER * FIELD_BITS)
}

/// The named bits, without those that belong to a port that is not in `ports`.
fn enabled_bits(ports: PortSet) -> IntBits {
    Source::in_word(IntBits::NAMED)
        .filter(|source| source.port().is_none_or(|port| ports.contains(port)))
        .fold(IntBits::empty(), |bits, source| bits | source.mask())
}
