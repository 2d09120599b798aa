//! What the chip sees of the machine it sits in: memory that it may reach by DMA, and interrupt wires.
//!
//! The model owns no memory of the host and no wire. Every call that may touch them is handed a [`Host`], so that the
//! same chip runs on plain vectors in a test, on mapped memory behind an address translation, and on a virtual clock.

use qhca_regs::Vector;
use std::fmt;

/// A DMA access that the host refused: the address is not mapped for the device, or not for its whole length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DmaError {
    /// First bus address of the access.
    pub iova: u64,
    /// Its length, bytes.
    pub len_bytes: usize,
}

impl fmt::Display for DmaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "DMA of {} bytes at {:#x} refused: map the range for the device first",
            self.len_bytes, self.iova
        )
    }
}

impl std::error::Error for DmaError {}

/// The machine around the chip. Static dispatch: the chip's hot paths are compiled for each host.
pub trait Host {
    /// Writes `bytes` at bus address `iova`.
    ///
    /// # Errors
    /// [`DmaError`] if any byte is not mapped; then nothing may have been written.
    fn dma_write(&mut self, iova: u64, bytes: &[u8]) -> Result<(), DmaError>;

    /// Writes one aligned little-endian qword that must not be seen before every earlier write: the word that says
    /// that an entry is complete.
    ///
    /// # Errors
    /// [`DmaError`] if the qword is not mapped.
    fn dma_publish(&mut self, iova: u64, qword: u64) -> Result<(), DmaError> {
        self.dma_write(iova, &qword.to_le_bytes())
    }

    /// Reads `bytes.len()` bytes at bus address `iova`.
    ///
    /// # Errors
    /// [`DmaError`] if any byte is not mapped; `bytes` is then unspecified.
    fn dma_read(&mut self, iova: u64, bytes: &mut [u8]) -> Result<(), DmaError>;

    /// An MSI-X message for `vector`.
    fn msix(&mut self, vector: Vector);

    /// The legacy interrupt line was asserted or released. Called on changes only, and only in INTx mode.
    fn intx(&mut self, asserted: bool);
}

/// A machine without memory: every DMA is refused and interrupts go nowhere. For tools that only look at registers.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoHost;

impl Host for NoHost {
    fn dma_write(&mut self, iova: u64, bytes: &[u8]) -> Result<(), DmaError> {
        Err(DmaError { iova, len_bytes: bytes.len() })
    }
    fn dma_read(&mut self, iova: u64, bytes: &mut [u8]) -> Result<(), DmaError> {
        Err(DmaError { iova, len_bytes: bytes.len() })
    }
    fn msix(&mut self, _: Vector) {}
    fn intx(&mut self, _: bool) {}
}
