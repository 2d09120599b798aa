//! A card that is held: every request that is made of it, until it is given back.
//!
//! What needs the card shares one [`Session`]: the back end, the mapper, each mapping's lease. Giving back is done once,
//! in the one order that is right, whoever still has a lease or a window; they find afterwards that there is nothing to
//! undo, and a window that reads all ones (B129, B132).
//!
//! ```text
//!   interrupts off ─► bus master off ─► reset ─► every mapping out of the IOMMU ─► window retired
//!                  ─► device closed ─► group out of its container ─► group, container closed
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::address::PciAddress;
use super::bytes::request;
use super::command::Command;
use super::config::{COMMAND, COMMAND_MASTER, COMMAND_MEMORY, PCI_ID};
use super::error::VfioError;
use super::find::Found;
use super::irqs::{self, IrqIndex, IrqInfo};
use super::kernel::{Calls, Kernel};
use super::open::{Config, Mapped, Route, refused};
use super::reset::{self, Reset};
use super::settings::Way;
use crate::dma::DmaMemory;

/// What is held. Dropped in the order of its fields.
pub(super) struct Live<K: Kernel> {
    pub(super) window: Arc<K::Window>,
    pub(super) device: K::Fd,
    pub(super) route: Route<K>,
    /// What the device reaches: first address and length.
    maps: BTreeMap<u64, u64>,
    /// Kinds of interrupts that are on.
    on: Vec<IrqIndex>,
}

/// A card that is held, or was.
pub(super) struct Session<K: Kernel> {
    pub(super) calls: Calls<K>,
    pub(super) found: Found,
    pub(super) can_reset: bool,
    way: Way,
    config: Config,
    live: Mutex<Option<Live<K>>>,
}

impl<K: Kernel> Session<K> {
    /// Holds the card that `mapped` is.
    pub(super) fn new(mapped: Mapped<K>) -> Self {
        let Mapped { window, bound, info, config } = mapped;
        let (calls, device, route, found) = (bound.calls, bound.device, bound.route, bound.found);
        let live = Live { window: Arc::new(window), device, route, maps: BTreeMap::new(), on: Vec::new() };
        let way = if matches!(live.route, Route::Own { .. }) { Way::Own } else { Way::Group };
        Self { calls, found, can_reset: info.can_reset, way, config, live: Mutex::new(Some(live)) }
    }

    pub(super) fn address(&self) -> PciAddress {
        self.found.address
    }

    /// A panic of one thread does not keep the others from giving the card back.
    fn lock(&self) -> MutexGuard<'_, Option<Live<K>>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something with the card, if it is still held.
    pub(super) fn with<T>(
        &self,
        act: impl FnOnce(&mut Live<K>) -> Result<T, VfioError>,
    ) -> Result<T, VfioError> {
        self.lock().as_mut().map_or(Err(VfioError::Released), act)
    }

    /// The register window; `None` once the card was given back.
    pub(super) fn window(&self) -> Option<Arc<K::Window>> {
        self.lock().as_ref().map(|live| live.window.clone())
    }

    /// By which nodes the card is held, or was.
    pub(super) fn way(&self) -> Way {
        self.way
    }

    /// Whether the card has no IOMMU behind it.
    pub(super) fn is_noiommu(&self) -> bool {
        self.lock().as_ref().is_some_and(|live| matches!(live.route, Route::NoIommu { .. }))
    }

    fn read_config(&self, live: &Live<K>, at: u16, bytes: &mut [u8]) -> Result<(), VfioError> {
        let from = self.config.offset + u64::from(at);
        self.calls.read_at(&live.device, bytes, from).map_err(|source| VfioError::Call {
            call: "pread",
            on: format!("{}, configuration {at:#x}", self.address()),
            source,
        })
    }

    fn write_config(&self, live: &Live<K>, at: u16, bytes: &[u8]) -> Result<(), VfioError> {
        let to = self.config.offset + u64::from(at);
        self.calls.write_at(&live.device, bytes, to).map_err(|source| VfioError::Call {
            call: "pwrite",
            on: format!("{}, configuration {at:#x}", self.address()),
            source,
        })
    }

    fn config_half(&self, live: &Live<K>, at: u16) -> Result<u16, VfioError> {
        let mut bytes = [0; 2];
        self.read_config(live, at, &mut bytes)?;
        Ok(u16::from_le_bytes(bytes))
    }

    /// Whether the function still answers on its bus as the chip does.
    fn answers(&self, live: &Live<K>) -> bool {
        let mut id = [0; 4];
        self.read_config(live, 0, &mut id).is_ok() && u32::from_le_bytes(id) == PCI_ID
    }

    /// Lets the function answer to memory accesses, and reach memory. To a card that had lost its place on the bus the
    /// kernel gives it back at this write (F-823); reading back makes sure that it has.
    pub(super) fn enable(&self) -> Result<(), VfioError> {
        self.with(|live| {
            let bits = COMMAND_MEMORY | COMMAND_MASTER;
            let wanted = self.config_half(live, COMMAND)? | bits;
            self.write_config(live, COMMAND, &wanted.to_le_bytes())?;
            match self.config_half(live, COMMAND)? {
                u16::MAX => {
                    Err(VfioError::NoAnswer { address: self.address(), what: "the command register" })
                }
                seen if seen & bits == bits => Ok(()),
                seen => Err(VfioError::CommandRefused { wanted, seen }),
            }
        })
    }

    /// Keeps the function from reaching memory.
    fn master_off(&self, live: &Live<K>) -> Result<(), VfioError> {
        let command = self.config_half(live, COMMAND)? & !COMMAND_MASTER;
        self.write_config(live, COMMAND, &command.to_le_bytes())?;
        self.config_half(live, COMMAND).map(|_read_back| ())
    }

    /// Device control of PCI Express: payload and read request sizes. `None` if the card has no such capability.
    pub(super) fn device_control(&self) -> Result<Option<u16>, VfioError> {
        let Some(pcie) = self.config.head.pcie else { return Ok(None) };
        self.with(|live| self.config_half(live, u16::from(pcie) + DEVICE_CONTROL).map(Some))
    }

    /// Sets it. The kernel takes the read request size and ignores the payload's (F-824).
    pub(super) fn set_device_control(&self, control: u16) -> Result<(), VfioError> {
        let Some(pcie) = self.config.head.pcie else { return Ok(()) };
        self.with(|live| self.write_config(live, u16::from(pcie) + DEVICE_CONTROL, &control.to_le_bytes()))
    }

    /// Raises the read request size to `128 << code` bytes if it is smaller; what it is then. `None` if the card has no
    /// PCI Express capability.
    pub(super) fn raise_read_request(&self, code: u8) -> Result<Option<u32>, VfioError> {
        let field = |control: u16| control >> READ_REQUEST_SHIFT & 7;
        let Some(before) = self.device_control()? else { return Ok(None) };
        let wanted = u16::from(code).min(READ_REQUEST_MAX);
        if wanted > field(before) {
            let others = before & !(7 << READ_REQUEST_SHIFT);
            self.set_device_control(others | wanted << READ_REQUEST_SHIFT)?;
        }
        Ok(self.device_control()?.map(|control| 128 << field(control)))
    }

    /// Resets the function, or its bus if that reaches nobody else; then lets it answer and reach memory again.
    pub(super) fn reset(&self) -> Result<Reset, VfioError> {
        let reset = self.with(|live| reset::pull(self, live))?;
        self.enable()?;
        Ok(reset)
    }

    /// What the kernel says of one kind of interrupts.
    pub(super) fn irq_info(&self, index: IrqIndex) -> Result<IrqInfo, VfioError> {
        self.with(|live| {
            let command = Command::IrqInfo;
            let mut bytes = IrqInfo::ask(index);
            let on = format!("{}, {}", self.address(), index.name());
            self.calls.request_bytes(&live.device, command, &mut bytes).map_err(refused(command, on))?;
            IrqInfo::parse(&bytes).ok_or(VfioError::Answer { command, why: "is cut short" })
        })
    }

    /// Enables `index` with these descriptors, all in one request. Gives 0, or how many vectors there would be if there
    /// are fewer; nothing is enabled then.
    pub(super) fn enable_irqs(&self, index: IrqIndex, fds: &[Option<i32>]) -> Result<u32, VfioError> {
        let Some(mut bytes) = irqs::enable(index, fds) else { return Ok(0) };
        self.with(|live| {
            let short = self.set_irqs(live, index, &mut bytes)?;
            if short == 0 && !live.on.contains(&index) {
                live.on.push(index);
            }
            Ok(short)
        })
    }

    /// Switches `index` off.
    pub(super) fn disable_irqs(&self, index: IrqIndex) -> Result<(), VfioError> {
        self.with(|live| self.switch_off(live, index))
    }

    fn switch_off(&self, live: &mut Live<K>, index: IrqIndex) -> Result<(), VfioError> {
        self.set_irqs(live, index, &mut irqs::disable(index))?;
        live.on.retain(|on| *on != index);
        Ok(())
    }

    /// Lets the interrupt line fire again.
    pub(super) fn unmask_line(&self) -> Result<(), VfioError> {
        self.with(|live| self.set_irqs(live, IrqIndex::Intx, &mut irqs::unmask_line()).map(|_zero| ()))
    }

    /// Fires a vector as if the card had.
    pub(super) fn fire(&self, index: IrqIndex, vector: u32) -> Result<(), VfioError> {
        self.with(|live| self.set_irqs(live, index, &mut irqs::fire(index, vector)).map(|_zero| ()))
    }

    fn set_irqs(&self, live: &Live<K>, index: IrqIndex, bytes: &mut [u8]) -> Result<u32, VfioError> {
        let [flags, start, count] = [1, 3, 4].map(|place| super::bytes::word(bytes, place));
        self.calls.request_bytes(&live.device, Command::SetIrqs, bytes).map_err(|source| {
            let on = format!(
                "{}, {}, flags {flags:#x}, start {start}, count {count}",
                self.address(),
                index.name()
            );
            VfioError::Call { call: Command::SetIrqs.name(), on, source }
        })
    }

    /// Lets the card reach `memory` from `iova` on.
    pub(super) fn map(&self, memory: &DmaMemory, iova: u64) -> Result<(), VfioError> {
        let len = memory.len_bytes() as u64;
        self.with(|live| {
            let (command, mapped) = match &live.route {
                Route::Group { container, .. } => {
                    (Command::MapDma, self.calls.map_type1(container, memory, iova))
                }
                Route::Own { iommufd, ioas } => {
                    (Command::IoasMap, self.calls.map_ioas(iommufd, *ioas, memory, iova))
                }
                Route::NoIommu { .. } => return Err(VfioError::NoIommuRefused { address: self.address() }),
            };
            mapped.map_err(refused(command, format!("{len} bytes at bus address {iova:#x}")))?;
            live.maps.insert(iova, len);
            Ok(())
        })
    }

    /// Takes memory from the card. Nothing to do for a card that was given back.
    pub(super) fn unmap(&self, iova: u64) -> Result<(), VfioError> {
        match self.lock().as_mut() {
            Some(live) => self.unmap_live(live, iova),
            None => Ok(()),
        }
    }

    fn unmap_live(&self, live: &mut Live<K>, iova: u64) -> Result<(), VfioError> {
        let Some(len) = live.maps.remove(&iova) else { return Ok(()) };
        let halves = |value: u64| [value as u32, (value >> 32) as u32];
        let ([at_low, at_high], [len_low, len_high]) = (halves(iova), halves(len));
        let (fd, command, second) = match &live.route {
            Route::Group { container, .. } => (container, Command::UnmapDma, 0),
            Route::Own { iommufd, ioas } => (iommufd, Command::IoasUnmap, *ioas),
            Route::NoIommu { .. } => return Ok(()),
        };
        let mut bytes = request(&[second, at_low, at_high, len_low, len_high]);
        self.calls
            .request_bytes(fd, command, &mut bytes)
            .map(|_zero| ())
            .map_err(refused(command, format!("{len} bytes at bus address {iova:#x}")))
    }

    /// How many mappings there are.
    pub(super) fn maps(&self) -> usize {
        self.lock().as_ref().map_or(0, |live| live.maps.len())
    }

    /// Gives the card back, in the order that the module shows. What fails on the way is told and passed over: the rest
    /// is done all the same. A second call does nothing.
    pub(super) fn give_back(&self) {
        let Some(mut live) = self.lock().take() else { return };
        let told = |what: &str, result: Result<(), VfioError>| {
            if let Err(error) = result {
                log::warn!("{}: giving the card back: {what}: {error}", self.address());
            }
        };
        for index in live.on.clone() {
            told("interrupts off", self.switch_off(&mut live, index));
        }
        // A card that was pulled is not asked to reset: the kernel would wait for its answer.
        if self.answers(&live) {
            told("bus master off", self.master_off(&live));
            told("reset", reset::pull(self, &mut live).map(|_reset| ()));
        }
        for iova in live.maps.keys().copied().collect::<Vec<_>>() {
            told("memory out of the IOMMU", self.unmap_live(&mut live, iova));
        }
        let retired = self.calls.retire(&live.window);
        told(
            "window",
            retired.map_err(|source| VfioError::Call { call: "mremap", on: "BAR 0".into(), source }),
        );
        let Live { window, device, route, .. } = live;
        drop(window);
        if let Route::Own { .. } = route {
            let detached = self.calls.request_bytes(&device, Command::DetachPt, &mut request(&[0]));
            told(
                "address space",
                detached.map(|_zero| ()).map_err(refused(Command::DetachPt, self.address())),
            );
        }
        drop(device);
        if let Route::Group { group, .. } | Route::NoIommu { group, .. } = &route {
            let unset = self.calls.request_value(group, Command::UnsetContainer, 0);
            let on = self.address();
            told("group", unset.map(|_zero| ()).map_err(refused(Command::UnsetContainer, on)));
        }
        drop(route);
        log::debug!("{}: given back", self.address());
    }
}

/// Offset of device control in the PCI Express capability.
const DEVICE_CONTROL: u16 = 8;
/// Where the read request size stands in it, and the largest code that is defined: 4096 bytes.
const READ_REQUEST_SHIFT: u16 = 12;
const READ_REQUEST_MAX: u16 = 5;

impl<K: Kernel> Drop for Session<K> {
    fn drop(&mut self) {
        self.give_back();
    }
}

impl<K: Kernel> fmt::Debug for Session<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Session({}, {} mappings)", self.address(), self.maps())
    }
}
