//! Which contexts and send buffers are lent to whom.
//!
//! A context or a sender is lent to an owner, who may drop it at any time, on any thread, before or after the device.
//! Dropping only leaves a note: the control side takes the memory from the chip when it next comes by, and keeps it for
//! the next owner. So memory is never freed while the chip may write to it, in whatever order things are dropped.
//!
//! ```text
//!   free ── open: program the chip ──► lent ── owner drops: a note ──► returned ── withdraw ──► free
//! ```

use std::fmt;
use std::sync::Arc;

use qhca_irq::ContextSet;
use qhca_regs::{Bar, Buffer, Ctxt, Port};

use crate::contexts::{ContextShare, Owner, Split};
use crate::control::Controls;
use crate::dma::DmaRegion;
use crate::env::{DmaMapper, MapError};
use crate::rx::{
    Context, ContextMemory, ContextSetup, EagerShape, Expected, ProgramError, QueueShape, ShapeError,
    program, withdraw,
};
use crate::shared::DeviceShared;
use crate::tx::sdma::SdmaHome;
use crate::tx::{Pool, SendControl, Sender, avail_image};

/// What `RcvAvailTimeOut` holds of a context that was just opened (F-208).
pub const FIRST_TIMEOUT: u16 = 375;
/// The slot of the kernel's sender; user senders have their context's number.
const KERNEL_SENDER: u32 = 31;

/// Which context is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// This one, whose port is fixed.
    Kernel(Ctxt),
    /// Any user context, on this port.
    User(Port),
}

/// Why a context or a sender was not lent.
#[derive(Debug)]
#[non_exhaustive]
pub enum LendError {
    /// All of them are lent. One that is dropped can be had again.
    AllInUse {
        /// Lent.
        in_use: usize,
        /// There are.
        total: usize,
    },
    /// This context is lent already.
    InUse {
        /// The context.
        ctxt: Ctxt,
    },
    /// The device's configuration has no such context.
    NoSuchContext {
        /// The context.
        ctxt: Ctxt,
    },
    /// The port is not in use on this device.
    NoSuchPort {
        /// The port.
        port: Port,
    },
    /// The kernel's sender is lent already.
    SenderInUse,
    /// The options ask for a shape that cannot be had.
    Shape(ShapeError),
    /// There is no memory for it.
    Map(MapError),
    /// The chip could not be told.
    Program(ProgramError),
    /// The system refused a descriptor to wait with.
    System(std::io::Error),
    /// The device is closed, has failed or is gone.
    Gone,
}

impl fmt::Display for LendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AllInUse { in_use, total } => {
                write!(f, "{in_use} of {total} contexts in use: close one, or give more with cfgctxts")
            }
            Self::InUse { ctxt } => write!(f, "{ctxt} is in use already"),
            Self::NoSuchContext { ctxt } => {
                write!(f, "{ctxt} is not part of this configuration (cfgctxts, krcvqs)")
            }
            Self::NoSuchPort { port } => write!(f, "{port} is not in use on this device"),
            Self::SenderInUse => f.write_str("the device's own send buffers are in use already"),
            Self::Shape(_) => f.write_str("the options ask for receive queues that the chip cannot have"),
            Self::Map(_) => f.write_str("no memory for a receive context"),
            Self::Program(_) => f.write_str("the chip could not be told of a receive context"),
            Self::System(error) => write!(f, "no descriptor to wait for a context with: {error}"),
            Self::Gone => f.write_str("the device is closed or no longer usable"),
        }
    }
}

impl std::error::Error for LendError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Shape(error) => Some(error),
            Self::Map(error) => Some(error),
            Self::Program(error) => Some(error),
            Self::System(error) => Some(error),
            _ => None,
        }
    }
}

/// One context of the configuration.
struct Slot {
    share: ContextShare,
    /// Kept from owner to owner.
    memory: Option<ContextMemory>,
    /// The port it receives from while it is lent.
    lent_to: Option<Port>,
    /// Its owner's bound pages, while it is lent.
    expected: Option<Expected>,
}

/// All contexts and senders of a device.
pub struct Slots {
    split: Split,
    slots: Vec<Slot>,
    senders_lent: u32,
    avail: DmaRegion,
    send: Arc<SendControl>,
    shared: Arc<DeviceShared>,
    /// Where the queues of the send DMA engines are while no sender has them.
    sdma: [Option<Arc<SdmaHome>>; 2],
}

impl Slots {
    /// The slots of a chip that was split so, none lent. The chip writes its avail words to `avail`.
    pub fn new(split: Split, avail: DmaRegion, send: Arc<SendControl>, shared: Arc<DeviceShared>) -> Self {
        let slots = split.contexts.iter().cloned();
        let slots = slots.map(|share| Slot { share, memory: None, lent_to: None, expected: None }).collect();
        Self { split, slots, senders_lent: 0, avail, send, shared, sdma: [None, None] }
    }

    /// Lends the queue of `port`'s send DMA engine with the device's own sender from now on. The port's large send
    /// buffers are the engine's then (F-118).
    pub fn add_sdma(&mut self, port: Port, home: Arc<SdmaHome>) {
        self.sdma[port.index()] = Some(home);
    }

    /// The split.
    pub fn split(&self) -> &Split {
        &self.split
    }

    /// The contexts that are lent.
    pub fn lent(&self) -> ContextSet {
        self.slots.iter().filter(|slot| slot.lent_to.is_some()).map(|slot| slot.share.ctxt).collect()
    }

    /// Lends a context: allocates its memory if this is the first time, and tells the chip.
    ///
    /// # Errors
    /// [`LendError`]; nothing is lent then.
    pub fn lend_context(
        &mut self,
        wanted: Wanted,
        mapper: &mut impl DmaMapper,
        controls: &mut Controls,
        bar: &impl Bar,
    ) -> Result<Context, LendError> {
        if !self.shared.is_open() {
            return Err(LendError::Gone);
        }
        self.reclaim(controls, bar);
        let (at, port) = self.find(wanted)?;
        let memory = match self.slots[at].memory.clone() {
            Some(memory) => memory,
            None => self.allocate(at, mapper)?,
        };
        memory.clear_queue();
        let ctxt = self.slots[at].share.ctxt;
        program(ctxt, port, &memory, FIRST_TIMEOUT, controls, bar).map_err(LendError::Program)?;
        if self.slots[at].share.owner == Owner::User {
            // One switch for the device, which stays on (F-251).
            controls.update_rcv(bar, |rcv| rcv.with_tid_flow_enable(true));
        }
        let expected = Expected::new(ctxt);
        self.slots[at].lent_to = Some(port);
        self.slots[at].expected = Some(expected.clone());
        let setup = ContextSetup { ctxt, port, memory, shared: self.shared.clone(), timeout: FIRST_TIMEOUT };
        Ok(Context::new(setup).with_expected(expected))
    }

    /// The slot for `wanted`, and the port it is to receive from.
    fn find(&self, wanted: Wanted) -> Result<(usize, Port), LendError> {
        match wanted {
            Wanted::Kernel(ctxt) => {
                let at = self.slots.iter().position(|slot| slot.share.ctxt == ctxt);
                let at = at.ok_or(LendError::NoSuchContext { ctxt })?;
                match (self.slots[at].share.owner, self.slots[at].lent_to) {
                    (Owner::Kernel(port), None) => Ok((at, port)),
                    (Owner::Kernel(_), Some(_)) => Err(LendError::InUse { ctxt }),
                    (Owner::User, _) => Err(LendError::NoSuchContext { ctxt }),
                }
            }
            Wanted::User(port) if !self.split.ports.has(port) => Err(LendError::NoSuchPort { port }),
            Wanted::User(port) => {
                let users = || self.slots.iter().filter(|slot| slot.share.owner == Owner::User);
                let in_use = users().filter(|slot| slot.lent_to.is_some()).count();
                let free = self
                    .slots
                    .iter()
                    .position(|slot| slot.share.owner == Owner::User && slot.lent_to.is_none());
                free.map(|at| (at, port)).ok_or(LendError::AllInUse { in_use, total: users().count() })
            }
        }
    }

    fn allocate(&mut self, at: usize, mapper: &mut impl DmaMapper) -> Result<ContextMemory, LendError> {
        let share = &self.slots[at].share;
        let queue = QueueShape::new(self.split.hdr_entries, self.split.hdr_entry_dwords);
        let count = share.eager.end.saturating_sub(share.eager.start);
        let eager = EagerShape::new(share.eager.start, count, self.split.eager_buffer_bytes);
        let (queue, eager) = (queue.map_err(LendError::Shape)?, eager.map_err(LendError::Shape)?);
        let memory = ContextMemory::allocate(mapper, queue, eager).map_err(LendError::Map)?;
        self.slots[at].memory = Some(memory.clone());
        Ok(memory)
    }

    /// Lends the device's own send buffers: the small ones that no open user context has, the large ones that no send
    /// DMA engine has, and the management buffers of the ports in use; and the engines' queues.
    ///
    /// # Errors
    /// [`LendError::SenderInUse`], [`LendError::Gone`].
    pub fn lend_sender(&mut self) -> Result<Sender, LendError> {
        let users = self.lent();
        let small = self.split.kernel_small_buffers(|ctxt| users.contains(ctxt));
        let own = self.split.large_buffers.iter().zip(&self.sdma).filter(|(_, engine)| engine.is_none());
        let large = own.flat_map(|(buffers, _)| buffers.clone()).filter_map(Buffer::new);
        let management = self.split.ports.iter().map(Buffer::vl15);
        let buffers: Vec<Buffer> = small.into_iter().chain(large).chain(management).collect();
        let mut sender = self.lend_pool(KERNEL_SENDER, buffers)?;
        for (port, home) in Port::ALL.into_iter().zip(&self.sdma) {
            if let Some(home) = home {
                sender.take_sdma(port, home);
            }
        }
        Ok(sender)
    }

    /// Lends the send buffers of user context `ctxt`, which must be open.
    ///
    /// # Errors
    /// [`LendError`]: no such context, or its buffers are lent.
    pub fn lend_user_sender(&mut self, ctxt: Ctxt) -> Result<Sender, LendError> {
        let slot = self.slots.iter().find(|slot| slot.share.ctxt == ctxt && slot.lent_to.is_some());
        let share = &slot.ok_or(LendError::NoSuchContext { ctxt })?.share;
        // The kernel's sender took what nobody had claimed when it was lent.
        if self.senders_lent & 1 << KERNEL_SENDER != 0 && !share.buffers.is_empty() {
            return Err(LendError::SenderInUse);
        }
        let buffers = share.buffers.clone().filter_map(Buffer::new).collect();
        self.lend_pool(ctxt.index() as u32, buffers)
    }

    fn lend_pool(&mut self, slot: u32, buffers: Vec<Buffer>) -> Result<Sender, LendError> {
        if !self.shared.is_open() {
            return Err(LendError::Gone);
        }
        self.senders_lent &= !self.shared.take_senders_returned();
        if self.senders_lent & 1 << slot != 0 {
            return Err(LendError::SenderInUse);
        }
        self.senders_lent |= 1 << slot;
        let pool = Pool::new(buffers, &avail_image(&self.avail));
        Ok(Sender::of_slot(slot, pool, self.avail.clone(), self.send.clone(), self.shared.clone()))
    }

    /// Takes the memory of contexts that were dropped from the chip. Touches nothing if there are none.
    pub fn reclaim(&mut self, controls: &mut Controls, bar: &impl Bar) {
        let returned = self.shared.take_contexts_returned();
        for slot in self.slots.iter_mut().filter(|slot| returned.contains(slot.share.ctxt)) {
            slot.withdraw(controls, bar);
        }
    }

    /// Tells a chip that was reset of the contexts that are lent: their memory, their bound pages.
    ///
    /// # Errors
    /// [`ProgramError`]: the chip does not answer.
    pub fn reprogram(&mut self, controls: &mut Controls, bar: &impl Bar) -> Result<(), ProgramError> {
        if self.slots.iter().any(|slot| slot.share.owner == Owner::User && slot.lent_to.is_some()) {
            controls.update_rcv(bar, |rcv| rcv.with_tid_flow_enable(true));
        }
        for slot in &self.slots {
            if let (Some(port), Some(memory)) = (slot.lent_to, &slot.memory) {
                memory.clear_queue();
                program(slot.share.ctxt, port, memory, FIRST_TIMEOUT, controls, bar)?;
                if let Some(expected) = &slot.expected {
                    expected.rebind(bar);
                }
            }
        }
        Ok(())
    }

    /// Where the chip writes its avail words.
    pub fn avail(&self) -> &DmaRegion {
        &self.avail
    }

    /// Takes all memory from the chip, lent or not: the device is closing.
    pub fn withdraw_all(&mut self, controls: &mut Controls, bar: &impl Bar) {
        for slot in &mut self.slots {
            slot.withdraw(controls, bar);
        }
    }
}

impl Slot {
    fn withdraw(&mut self, controls: &mut Controls, bar: &impl Bar) {
        if let (Some(port), Some(memory)) = (self.lent_to.take(), &self.memory) {
            withdraw(self.share.ctxt, port, memory, controls, bar);
            if let Some(expected) = self.expected.take() {
                expected.withdraw(bar);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::Policy;
    use crate::ports::Ports;
    use crate::shared::DeviceState;
    use crate::testing::{PlainMapper, RecordingBar, shared};
    use qhca_regs::map::device::SendCtrl;

    struct Bench {
        slots: Slots,
        mapper: PlainMapper,
        controls: Controls,
        bar: RecordingBar,
    }

    fn share(index: usize, owner: Owner) -> ContextShare {
        let first = index as u32 * 16;
        let buffers = if owner == Owner::User { index * 4..index * 4 + 4 } else { 0..0 };
        ContextShare { ctxt: Ctxt::new(index).expect("a context"), owner, eager: first..first + 16, buffers }
    }

    fn bench() -> Bench {
        let users = (2..4).map(|index| share(index, Owner::User));
        let kernel = Port::ALL.map(|port| share(port.index(), Owner::Kernel(port)));
        let split = Split {
            ports: Ports::from_speed_mask(0x3F),
            cfg: crate::contexts::ContextCfg::Six,
            kernel_queues: 1,
            first_user: 2,
            contexts: kernel.into_iter().chain(users).collect(),
            hdr_entries: 64,
            hdr_entry_dwords: 32,
            hdr_dwords: 9,
            eager_buffer_bytes: 2048,
            large_buffers: [128..144, 144..160],
            avail_update_threshold: 8,
        };
        let mut mapper = PlainMapper::default();
        let avail = mapper.map(64).expect("memory");
        let send = Arc::new(SendControl::new(SendCtrl::default()));
        let slots = Slots::new(split, avail, send, shared(Policy::Guarded));
        Bench { slots, mapper, controls: Controls::new(), bar: RecordingBar::default() }
    }

    impl Bench {
        fn open(&mut self, wanted: Wanted) -> Result<Context, LendError> {
            self.slots.lend_context(wanted, &mut self.mapper, &mut self.controls, &self.bar)
        }
    }

    /// B17: one more than there are is refused at once and by number; after one close the next succeeds.
    #[test]
    fn one_context_too_many_is_refused_by_number_and_a_closed_one_can_be_had_again() {
        let mut bench = bench();
        let first = bench.open(Wanted::User(Port::P0)).expect("free");
        let _second = bench.open(Wanted::User(Port::P1)).expect("free");
        let refused = bench.open(Wanted::User(Port::P0)).err().expect("none is left");
        let text = "2 of 2 contexts in use: close one, or give more with cfgctxts";
        assert_eq!(refused.to_string(), text);
        let ctxt = first.ctxt();
        drop(first);
        assert_eq!(bench.open(Wanted::User(Port::P1)).expect("free again").ctxt(), ctxt);
    }

    #[test]
    fn kernel_context_is_lent_once_and_users_cannot_have_it() {
        let mut bench = bench();
        let kernel = Ctxt::new(0).expect("a context");
        let context = bench.open(Wanted::Kernel(kernel)).expect("free");
        assert_eq!(context.port(), Port::P0);
        assert!(matches!(bench.open(Wanted::Kernel(kernel)), Err(LendError::InUse { .. })));
        let user = Ctxt::new(2).expect("a context");
        assert!(matches!(bench.open(Wanted::Kernel(user)), Err(LendError::NoSuchContext { .. })));
    }

    #[test]
    fn memory_that_runs_out_lends_nothing_and_a_later_try_succeeds() {
        let mut bench = bench();
        for left in 0..2 {
            bench.mapper.left = left;
            assert!(matches!(bench.open(Wanted::User(Port::P0)), Err(LendError::Map(_))));
        }
        bench.mapper.left = 2;
        assert!(bench.open(Wanted::User(Port::P0)).is_ok());
    }

    #[test]
    fn buffers_are_lent_to_one_sender_at_a_time() {
        let mut bench = bench();
        let context = bench.open(Wanted::User(Port::P0)).expect("free");
        let user = bench.slots.lend_user_sender(context.ctxt()).expect("its own");
        let kernel = bench.slots.lend_sender().expect("the device's own");
        let owned = |sender: &mut Sender| sender.free_buffers();
        let (mut user, mut kernel) = (user, kernel);
        // All small ones but the open user's four, all large ones, two for management.
        assert_eq!((owned(&mut user), owned(&mut kernel)), (4, 124 + 32 + 2));
        assert!(matches!(bench.slots.lend_sender(), Err(LendError::SenderInUse)));
        drop(kernel);
        assert!(bench.slots.lend_sender().is_ok());
    }

    /// B19: what was lent may be dropped after the device, and the chip has been told to stop before.
    #[test]
    fn contexts_outlive_the_device_and_the_chip_writes_nothing_to_them() {
        let mut bench = bench();
        let context = bench.open(Wanted::User(Port::P0)).expect("free");
        bench.bar.take_log();
        bench.slots.shared.worsen(DeviceState::Closed);
        bench.slots.withdraw_all(&mut bench.controls, &bench.bar);
        let address = qhca_regs::map::device::RCV_HDR_ADDR.ctxt(context.ctxt()).offset();
        assert_eq!(bench.bar.writes_to(address), [0]);
        bench.bar.take_log();
        bench.slots.withdraw_all(&mut bench.controls, &bench.bar);
        drop(context);
        assert_eq!(bench.bar.take_log(), [], "the second time there is nothing to take");
        assert!(matches!(bench.open(Wanted::User(Port::P0)), Err(LendError::Gone)));
    }
}
