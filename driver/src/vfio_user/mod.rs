//! A device in another process: the vfio-user client.
//!
//! `qhca sim serve` and other servers offer a PCI device over a Unix socket, in the words of VFIO. This back end talks to
//! one as to a card: registers by messages, memory by descriptors that the server maps, interrupts by descriptors that
//! it raises.
//!
//! ```text
//!   driver ── VfioUserBar ────▶ REGION_READ (waits), REGION_WRITE (posted) ──▶ ┐
//!          ── VfioUserMapper ─▶ DMA_MAP + memory file ───────────────────────▶ │ server
//!          ── VfioUserIrq ◀──── eventfds, handed over by SET_IRQS ◀─────────── ┘
//! ```
//!
//! Every answer has a deadline, and a connection that broke stays broken: registers then read as all ones, which the
//! driver takes for a card that has gone. Closing the connection gives the device back; the server resets it.
//!
//! Not here: the message format (crate `qhca-vfu`), mapping a server's registers into this process, device migration.

mod bar;
mod connection;
mod error;
mod irq;
mod memory;
#[cfg(test)]
mod tests;

pub use bar::VfioUserBar;
pub use connection::ANSWER_WITHIN;
pub use error::VfioUserError;
pub use irq::VfioUserIrq;
pub use memory::VfioUserMapper;

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::Arc;

use qhca_irq::plan::Mode;
use qhca_regs::{BAR_LEN_BYTES, Vector};
use qhca_vfu::{
    DeviceInfo, IrqAction, IrqData, IrqInfo, RegionAccess, RegionInfo, Request, SetIrqs, irq as irq_index,
    region,
};

use crate::env::{Backend, MonotonicClock, ResetKind};
use crate::sys::EventFd;
use connection::Connection;

/// Vendor and device id of the chip, as one dword of its configuration space (F-002).
const PCI_ID: u64 = 0x7322_1077;
/// What any dword of the configuration space reads as when the card does not answer.
const NO_ANSWER: u64 = 0xFFFF_FFFF;
/// Offset of the command register in the configuration space.
const COMMAND: u64 = 0x04;
/// Command register: answer to memory accesses, and reach memory.
const COMMAND_ENABLE: u16 = 0x0006;

/// A device behind a socket, opened.
pub struct VfioUserDevice {
    connection: Arc<Connection>,
    mapper: VfioUserMapper,
    clock: MonotonicClock,
    name: String,
    /// What hears the vectors that were granted.
    events: Vec<Arc<EventFd>>,
    mode: Mode,
}

impl VfioUserDevice {
    /// Opens the device that is served at `path`, and resets it.
    ///
    /// # Errors
    /// [`VfioUserError`]: nobody serves there, it is in use, or what is served is another kind of device.
    pub fn open(path: &Path) -> Result<Self, VfioUserError> {
        Self::begin(Connection::open(path)?, format!("vfio-user:{}", path.display()))
    }

    fn begin(connection: Connection, name: String) -> Result<Self, VfioUserError> {
        let connection = Arc::new(connection);
        let mapper = VfioUserMapper::new(connection.clone());
        let clock = MonotonicClock::new();
        let device = Self { connection, mapper, clock, name, events: Vec::new(), mode: Mode::Intx };
        device.check_identity()?;
        device.reset_function()?;
        Ok(device)
    }

    /// Makes sure that this is the chip that the driver is for, before anything of it is changed.
    fn check_identity(&self) -> Result<(), VfioUserError> {
        let expect = |what, seen, expected| match seen == expected {
            true => Ok(()),
            false => Err(VfioUserError::NotThisDevice { what, seen, expected }),
        };
        let info = self.connection.ask(&Request::DeviceInfo, &[], DeviceInfo::parse)?;
        expect("ability to be reset", u64::from(info.can_reset), 1)?;
        match self.read_config(0, 4)? {
            NO_ANSWER => return Err(VfioUserError::NoAnswer),
            id => expect("PCI id", id, PCI_ID)?,
        }
        let window = Request::RegionInfo { index: region::BAR0, argsz: 32 };
        let (window, _) = self.connection.ask(&window, &[], RegionInfo::parse)?;
        expect("length of BAR 0", window.len_bytes, u64::from(BAR_LEN_BYTES))?;
        expect("access to BAR 0", u64::from(window.readable && window.writable), 1)
    }

    fn read_config(&self, offset: u64, len_bytes: u32) -> Result<u64, VfioUserError> {
        let at = RegionAccess { offset, region: region::CONFIG, len_bytes };
        self.connection.ask(&Request::RegionRead(at), &[], |payload| {
            let data = at.parse_read_reply(payload)?;
            Ok(data.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)))
        })
    }

    fn write_config(&self, offset: u64, data: &[u8]) -> Result<(), VfioUserError> {
        let at = RegionAccess { offset, region: region::CONFIG, len_bytes: data.len() as u32 };
        self.connection.ask(&Request::RegionWrite(at, data), &[], |_| Ok(()))
    }

    /// Resets the function, and lets it answer and reach memory again.
    fn reset_function(&self) -> Result<(), VfioUserError> {
        self.connection.ask(&Request::DeviceReset, &[], |_| Ok(()))?;
        self.enable()
    }

    /// Lets the function answer to memory accesses and reach memory.
    fn enable(&self) -> Result<(), VfioUserError> {
        let command = self.read_config(COMMAND, 2)? as u16;
        self.write_config(COMMAND, &(command | COMMAND_ENABLE).to_le_bytes())
    }

    /// Register writes that were lost because the connection had ended.
    pub fn lost_writes(&self) -> u64 {
        self.connection.lost_writes()
    }

    /// Tells the server what to do with interrupts of kind `index`.
    fn set_irqs(&self, set: SetIrqs<'_>, fds: &[BorrowedFd<'_>]) -> Result<(), VfioUserError> {
        self.connection.ask(&Request::SetIrqs(set), fds, |_| Ok(()))
    }

    /// Hands over `events`, as many in a message as the server takes.
    fn connect_events(&self, index: u32, events: &[Arc<EventFd>]) -> Result<(), VfioUserError> {
        let at_once = self.connection.fds_max();
        let (action, data) = (IrqAction::Trigger, IrqData::Eventfd);
        for (n, part) in events.chunks(at_once).enumerate() {
            let fds: Vec<BorrowedFd<'_>> = part.iter().map(|event| event.as_fd()).collect();
            let (start, count) = ((n * at_once) as u32, part.len() as u32);
            self.set_irqs(SetIrqs { index, start, count, action, data }, &fds)?;
        }
        Ok(())
    }

    fn take_vectors(&mut self, mode: Mode, wanted: usize) -> io::Result<usize> {
        let index = index_of(mode);
        let info = self.connection.ask(&Request::IrqInfo { index }, &[], IrqInfo::parse)?;
        let most = if info.eventfd { info.count as usize } else { 0 };
        let granted = wanted.min(most).min(Vector::COUNT);
        if granted == 0 {
            let refused = format!("{}: no {mode} interrupt can be had from this device", self.name);
            return Err(io::Error::new(io::ErrorKind::Unsupported, refused));
        }
        if !self.events.is_empty() {
            self.set_irqs(SetIrqs::disable(index_of(self.mode)), &[])?;
            self.events.clear();
        }
        let events = (0..granted).map(|_| EventFd::new().map(Arc::new)).collect::<io::Result<Vec<_>>>()?;
        self.connect_events(index, &events)?;
        (self.events, self.mode) = (events, mode);
        Ok(granted)
    }
}

const fn index_of(mode: Mode) -> u32 {
    match mode {
        Mode::MsiX => irq_index::MSIX,
        Mode::Msi => irq_index::MSI,
        Mode::Intx => irq_index::INTX,
    }
}

impl Backend for VfioUserDevice {
    type Bar = VfioUserBar;
    type Mapper = VfioUserMapper;
    type Irq = VfioUserIrq;
    type Clock = MonotonicClock;

    fn bar(&self) -> VfioUserBar {
        VfioUserBar { connection: self.connection.clone() }
    }

    fn mapper(&self) -> VfioUserMapper {
        self.mapper.clone()
    }

    fn clock(&self) -> MonotonicClock {
        self.clock
    }

    fn name(&self) -> String {
        self.name.clone()
    }

    fn grant_vectors(&mut self, mode: Mode, wanted: usize) -> io::Result<usize> {
        self.take_vectors(mode, wanted)
    }

    fn unmask_line(&mut self) {
        let (action, data) = (IrqAction::Unmask, IrqData::None);
        let unmask = SetIrqs { index: irq_index::INTX, start: 0, count: 1, action, data };
        if let Err(error) = self.set_irqs(unmask, &[]) {
            log::warn!("{}: the interrupt line stays masked: {error}", self.name);
        }
    }

    fn irq_source(&mut self, vectors: &[Vector]) -> io::Result<VfioUserIrq> {
        let line = |vector: &Vector| {
            let event = self.events.get(vector.index()).ok_or_else(|| {
                let refused = format!("{}: {vector} was not granted, {} were", self.name, self.events.len());
                io::Error::new(io::ErrorKind::InvalidInput, refused)
            })?;
            Ok((*vector, event.clone()))
        };
        let lines = vectors.iter().map(line).collect::<io::Result<Vec<_>>>()?;
        VfioUserIrq::new(lines, self.clock)
    }

    fn reset(&mut self) -> io::Result<ResetKind> {
        self.reset_function()?;
        Ok(ResetKind::Function)
    }

    fn restore_after_chip_reset(&mut self) -> io::Result<()> {
        Ok(self.enable()?)
    }
}

impl fmt::Debug for VfioUserDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VfioUserDevice({}, {} {} vectors)", self.name, self.events.len(), self.mode)
    }
}
