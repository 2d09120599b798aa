//! A card of this machine, behind the kernel's VFIO.
//!
//! VFIO hands a PCI function to a process: its registers by a mapping, its interrupts by descriptors, and memory that it
//! may reach through the IOMMU. This back end takes a QLogic 7322 that is bound to `vfio-pci`, by either of the two
//! interfaces that kernels have, and gives it back in the state in which the next one can use it.
//!
//! ```text
//!   find ─► open (a stage a type) ─► Session ─┬─ VfioBar: loads and stores on the mapped BAR 0
//!                                             ├─ VfioMapper: memory, pinned, at a bus address
//!                                             ├─ VfioIrq: one descriptor a vector, and two for the card itself
//!                                             └─ reset, power, command register
//!            everything through Kernel, which is Linux, or a kernel in a test that keeps VFIO's rules
//! ```
//!
//! | file | what |
//! |---|---|
//! | `address` | `0000:04:00.0` |
//! | `find` | who has the card, its group, its nodes |
//! | `holder` | who has a node open |
//! | `settings` | what may be chosen |
//! | `command`, `kernel` | the requests, and the calls as a trait |
//! | `info`, `irqs`, `config`, `iova` | the kernel's structures and numbers, as pure functions |
//! | `open` | the order of opening, as types |
//! | `session`, `reset` | what is asked of a card that is held; giving it back |
//! | `memory`, `irq` | memory and interrupts, as the driver wants them |
//! | `affinity` | which CPU hears a vector |
//! | `error` | causes and what mends them |
//!
//! VFIO has no mask for an MSI-X vector, so only the chip's own masks stop one. The MSI-X table lies in BAR 0, is the
//! kernel's alone, and is not mapped. Send buffers are mapped as the kernel maps them, uncached.
//!
//! Not here: binding the card to the driver, which the program `qhca` does.

mod address;
mod affinity;
mod bytes;
mod command;
mod config;
mod error;
#[cfg(test)]
mod fake;
mod find;
mod holder;
mod info;
mod iova;
mod irq;
mod irqs;
mod kernel;
mod memory;
mod open;
mod reset;
mod session;
mod settings;
#[cfg(test)]
mod tests;

pub use address::{NotPciAddress, PciAddress};
pub use affinity::{PinError, VectorPlace};
pub use command::{Argument, Command};
pub use config::{CONFIG_LEN_BYTES, ConfigHead, MsixTable};
pub use error::{Spoiler, VfioError};
pub use find::Found;
pub use holder::Holder;
pub use info::{
    ANSWER_MAX_BYTES, Area, DeviceInfo, IommuInfo, IovaRange, RegionInfo, WindowError, window_areas,
};
pub use iova::IovaSpace;
pub use irq::VfioIrq;
pub use irqs::{IrqIndex, IrqInfo};
pub use kernel::{Kernel, Linux, Window};
pub use memory::VfioMapper;
pub use reset::Reset;
pub use settings::{VfioSettings, Way};

use std::fmt;
use std::io;
use std::sync::Arc;

use qhca_irq::plan::Mode;
use qhca_regs::{Bar, Vector};

use crate::env::{Backend, MonotonicClock, Notice, PioMapping, ResetKind};
use crate::sys::EventFd;
use irq::Notices;
use kernel::Calls;
use open::Opened;
use session::Session;

/// The register window of a card. Clones share the mapping, which stays until the last is dropped; once the card was
/// given back it reads as all ones.
pub struct VfioBar<W: Window = crate::sys::MappedWindow> {
    window: Arc<W>,
}

impl<W: Window> Clone for VfioBar<W> {
    fn clone(&self) -> Self {
        Self { window: self.window.clone() }
    }
}

impl<W: Window> Bar for VfioBar<W> {
    #[inline]
    fn read(&self, offset: u32) -> u64 {
        self.window.bar().read(offset)
    }

    #[inline]
    fn write(&self, offset: u32, value: u64) {
        self.window.bar().write(offset, value);
    }

    #[inline]
    fn doorbell(&self, offset: u32, value: u64) {
        self.window.bar().doorbell(offset, value);
    }

    #[inline]
    fn burst(&self, offset: u32, dwords: &[u32]) {
        self.window.bar().burst(offset, dwords);
    }
}

impl<W: Window> fmt::Debug for VfioBar<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VfioBar").finish_non_exhaustive()
    }
}

/// A card behind VFIO, opened.
pub struct VfioDevice<K: Kernel = Linux> {
    session: Arc<Session<K>>,
    mapper: VfioMapper<K>,
    window: Arc<K::Window>,
    clock: MonotonicClock,
    name: String,
    settings: VfioSettings,
    /// What hears the vectors that were granted.
    events: Vec<Arc<EventFd>>,
    mode: Mode,
    notices: Arc<Notices>,
    /// Somebody waits for interrupts, and hears notices there.
    is_heard: bool,
    last_reset: Reset,
    /// Device control, from before the chip was reset by its own register.
    control_before: Option<u16>,
}

impl VfioDevice {
    /// Opens the card at `address`, and resets it.
    ///
    /// # Errors
    /// [`VfioError`]: what is missing, who has it, what the kernel refused; [`VfioError::remedy`] says what mends it.
    pub fn open(address: PciAddress, settings: VfioSettings) -> Result<Self, VfioError> {
        Self::open_on(Linux, address, settings)
    }

    /// Finds the card at `address` and opens nothing.
    ///
    /// # Errors
    /// [`VfioError`]: there is no such function, or another driver has it.
    pub fn find(address: PciAddress) -> Result<Found, VfioError> {
        find::find(&Calls::new(Linux), address)
    }
}

impl<K: Kernel> VfioDevice<K> {
    /// The same on any kernel.
    pub(crate) fn open_on(kernel: K, address: PciAddress, settings: VfioSettings) -> Result<Self, VfioError> {
        let calls = Calls::new(kernel);
        let found = find::find(&calls, address)?;
        let mapped = Opened::open(calls, found, &settings)?.set_iommu()?.bind()?.map()?;
        let iommu = mapped.bound.iommu.clone();
        let session = Arc::new(Session::new(mapped));
        if session.is_noiommu() {
            log::warn!("{address}: no IOMMU: no DMA, and the kernel is tainted");
        }
        let last_reset = session.reset()?;
        let window = session.window().ok_or(VfioError::Released)?;
        let mapper = VfioMapper::new(session.clone(), &iommu);
        let notices = Arc::new(listen_to_notices(&session)?);
        Ok(Self {
            session,
            mapper,
            window,
            clock: MonotonicClock::new(),
            name: address.to_string(),
            settings,
            events: Vec::new(),
            mode: Mode::Intx,
            notices,
            is_heard: false,
            last_reset,
            control_before: None,
        })
    }

    /// Where the card is, and by what it was opened.
    pub fn found(&self) -> &Found {
        &self.session.found
    }

    /// By which nodes it was opened.
    pub fn way(&self) -> Way {
        self.session.way()
    }

    /// The last reset that the kernel did for it: how far it reached, and how long it took.
    pub fn last_reset(&self) -> Reset {
        self.last_reset
    }

    /// The kind of interrupts and how many vectors were granted last.
    pub fn granted(&self) -> (Mode, usize) {
        (self.mode, self.events.len())
    }

    /// Fires vector `vector` as if the card had: what is on the way from the kernel to whoever listens is tried without
    /// the card.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn fire(&self, vector: Vector) -> Result<(), VfioError> {
        self.session.fire(IrqIndex::of(self.mode), vector.index() as u32)
    }

    /// Where the granted vectors go.
    pub fn vector_places(&self) -> Vec<VectorPlace> {
        affinity::places(&self.session.calls, self.session.address())
    }

    /// Sends the granted vectors to the CPUs `cpus` in turn, first to first.
    ///
    /// # Errors
    /// [`PinError`]: not allowed, or no such CPU.
    pub fn pin_vectors(&self, cpus: &[usize]) -> Result<(), PinError> {
        affinity::pin(&self.session.calls, self.session.address(), cpus)
    }

    fn take_vectors(&mut self, mode: Mode, wanted: usize) -> Result<usize, VfioError> {
        let refused = |why| VfioError::Answer { command: Command::IrqInfo, why };
        if self.settings.mode.is_some_and(|only| only != mode) {
            return Err(refused("was not asked for: the device's name says which interrupts are used"));
        }
        let index = IrqIndex::of(mode);
        let most = self.settings.vectors_max.unwrap_or(Vector::COUNT);
        let usable = self.session.irq_info(index)?.usable(wanted, most);
        if usable == 0 {
            return Err(refused("says that there are no such interrupts"));
        }
        self.release_vectors()?;
        // Fewer vectors may be free in this machine than the card has; the kernel then says how many.
        let mut count = usable;
        loop {
            let events = (0..count).map(|_| self.session.calls.event()).collect::<io::Result<Vec<_>>>();
            let events = events.map_err(|source| VfioError::Call {
                call: "eventfd",
                on: format!("{count} vectors"),
                source,
            })?;
            let fds: Vec<_> = events.iter().map(|event| Some(event.number())).collect();
            match self.session.enable_irqs(index, &fds)? as usize {
                0 => {
                    (self.events, self.mode) = (events, mode);
                    return Ok(count);
                }
                fewer if fewer < count => count = fewer,
                _ => {
                    return Err(refused(
                        "contradicts itself: as many vectors as were asked for are too many",
                    ));
                }
            }
        }
    }

    /// Switches the vectors off that were granted: kinds exclude each other, and older kernels add none to those that
    /// are on.
    fn release_vectors(&mut self) -> Result<(), VfioError> {
        if !self.events.is_empty() {
            self.session.disable_irqs(IrqIndex::of(self.mode))?;
            self.events.clear();
        }
        Ok(())
    }

    /// Writes the granted vectors into the card's table again.
    fn connect_again(&mut self) -> Result<(), VfioError> {
        if self.events.is_empty() {
            return Ok(());
        }
        let index = IrqIndex::of(self.mode);
        let fds: Vec<_> = self.events.iter().map(|event| Some(event.number())).collect();
        self.session.disable_irqs(index)?;
        self.session.enable_irqs(index, &fds).map(|_fewer| ())
    }

    /// Gives the card its place on the bus again, and what the kernel does not know that it forgot.
    fn restore(&mut self) -> Result<(), VfioError> {
        self.session.enable()?;
        if let Some(control) = self.control_before.take() {
            self.session.set_device_control(control)?;
        }
        self.connect_again()
    }
}

/// Connects what the kernel says of the card itself. A kernel or a card without these says nothing.
fn listen_to_notices<K: Kernel>(session: &Session<K>) -> Result<Notices, VfioError> {
    let mut lines = Vec::new();
    for (index, notice) in [(IrqIndex::Req, Notice::WantedBack), (IrqIndex::Err, Notice::BusError)] {
        // Plain PCI cards have no error interrupt, and older kernels no request: they answer with an error.
        if !session.irq_info(index).is_ok_and(|info| info.eventfd && info.count > 0) {
            continue;
        }
        let event = session.calls.event();
        let event = event.map_err(|source| VfioError::Call {
            call: "eventfd",
            on: index.name().to_owned(),
            source,
        })?;
        match session.enable_irqs(index, &[Some(event.number())]) {
            Ok(_) => lines.push((notice, event)),
            Err(error) => log::debug!("{}: {error}", session.address()),
        }
    }
    Ok(Notices::new(lines))
}

impl<K: Kernel> Backend for VfioDevice<K> {
    type Bar = VfioBar<K::Window>;
    type Mapper = VfioMapper<K>;
    type Irq = VfioIrq;
    type Clock = MonotonicClock;

    fn bar(&self) -> Self::Bar {
        VfioBar { window: self.window.clone() }
    }

    fn mapper(&self) -> Self::Mapper {
        self.mapper.clone()
    }

    fn clock(&self) -> MonotonicClock {
        self.clock
    }

    fn name(&self) -> String {
        self.name.clone()
    }

    fn grant_vectors(&mut self, mode: Mode, wanted: usize) -> io::Result<usize> {
        Ok(self.take_vectors(mode, wanted)?)
    }

    fn unmask_line(&mut self) {
        match self.session.unmask_line() {
            Ok(()) | Err(VfioError::Released) => {}
            Err(error) => log::warn!("{}: the interrupt line stays masked: {error}", self.name),
        }
    }

    fn pio_mapping(&self) -> Option<PioMapping> {
        Some(PioMapping::Uncached)
    }

    fn irq_source(&mut self, vectors: &[Vector]) -> io::Result<VfioIrq> {
        let line = |vector: &Vector| {
            let event = self.events.get(vector.index()).ok_or_else(|| {
                let refused = format!("{}: {vector} was not granted, {} were", self.name, self.events.len());
                io::Error::new(io::ErrorKind::InvalidInput, refused)
            })?;
            Ok((*vector, event.clone()))
        };
        let lines = vectors.iter().map(line).collect::<io::Result<Vec<_>>>()?;
        let source = VfioIrq::new(lines, self.notices.clone(), self.clock)?;
        self.is_heard = true;
        Ok(source)
    }

    fn reset(&mut self) -> io::Result<ResetKind> {
        self.last_reset = self.session.reset()?;
        Ok(self.last_reset.kind)
    }

    fn raise_read_request(&mut self, code: u8) -> io::Result<Option<u32>> {
        Ok(self.session.raise_read_request(code)?)
    }

    fn before_chip_reset(&mut self) -> io::Result<()> {
        log::warn!(
            "{}: the chip drops off the bus; a root port with DPC or surprise-down handling may remove the device",
            self.name
        );
        self.control_before = self.session.device_control()?;
        Ok(self.release_vectors()?)
    }

    fn restore_after_chip_reset(&mut self) -> io::Result<()> {
        Ok(self.restore()?)
    }

    fn notice(&mut self) -> Option<Notice> {
        if !self.is_heard {
            self.notices.look();
        }
        self.notices.take()
    }

    fn give_back(&mut self) {
        self.session.give_back();
    }
}

impl<K: Kernel> Drop for VfioDevice<K> {
    /// Memory and windows that are still around do not keep the card.
    fn drop(&mut self) {
        self.session.give_back();
    }
}

impl<K: Kernel> fmt::Debug for VfioDevice<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VfioDevice({}, {} {} vectors)", self.name, self.events.len(), self.mode)
    }
}
