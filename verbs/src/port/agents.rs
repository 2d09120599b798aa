//! QP 0 and QP 1 of a port, and who answers on them.
//!
//! ```text
//!   QP 0 ─► subnet agent, micro manager ──┐
//!   QP 1 ─► performance agent ────────────┼─► answers, by the queue pair that the question came to
//!           what is an answer itself ─────┴─► whoever asked (take_answer)
//! ```
//!
//! MADs lie in slots of one piece of registered memory: for each queue pair so many to receive into, each with the 40
//! bytes of a GRH before it, and so many to send from. When every slot to send from is taken an answer is dropped and
//! counted: whoever asked asks again.

use std::collections::VecDeque;
use std::sync::Arc;

use qhca_driver::dma::DmaMemory;
use qhca_driver::link::{Command, Goal, LidAssignment, Logical};
use qhca_regs::{Duration, Instant, Lid, Port};

use super::control::{PortControl, counts_of, show_link};
use super::{PortError, PortSetup};
use crate::engine::Engine;
use crate::ids::{CqId, QpNumber};
use crate::mem::{Access, MemoryRegion};
use crate::mgmt::{Identity, MicroSm, Performance, PortAttributes, SubnetAgent, Wish};
use crate::psn::Psn;
use crate::qp::QpInit;
use crate::wc::{Sender, Wc, WcStatus};
use crate::wire::mad::{MAD_BYTES, Mad, Method};
use crate::wire::{Gid, Grh, Service};
use crate::wr::{AddressVector, Destination, RecvWr, SendOp, SendWr};

/// The key of QP 1 everywhere.
pub const GENERAL_SERVICES_QKEY: u32 = 0x8001_0000;
/// MADs that each of the two queue pairs can hold in either direction.
const SLOTS: usize = 16;
/// Bytes of a slot: a GRH and a MAD, on a line of the cache.
const SLOT_BYTES: usize = 320;
/// Answers that nobody has taken.
const ANSWERS_MAX: usize = 64;
/// Transactions of ours beside those of the micro manager, which count from 1.
const FIRST_TRANSACTION: u64 = 1 << 32;
/// How often the link's state is looked at when nothing comes.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Local steps of the micro manager in one turn at most: two ports, three goals, read and write.
const LOCAL_STEPS: usize = 16;

/// Whom a MAD goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MadTo {
    /// Along the path that it names itself: subnet management only.
    Path,
    /// Subnet management of the port with this LID.
    Subnet(Lid),
    /// General services of the port with this LID.
    General(Lid),
}

/// What the agents have counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct AgentCounts {
    /// MADs that came.
    pub received: u64,
    /// MADs that went out.
    pub sent: u64,
    /// MADs for which no slot was free.
    pub no_slot: u64,
    /// Answers that nobody took in time.
    pub unclaimed: u64,
    /// Commands of a subnet manager that the link refused.
    pub refused: u64,
}

/// The agents of one port.
pub(super) struct Agents {
    subnet: SubnetAgent,
    performance: Performance,
    manager: MicroSm,
    memory: Arc<DmaMemory>,
    region: MemoryRegion,
    cq: CqId,
    /// Free slots to send from, as bits; of QP 0 and QP 1.
    free: [u32; 2],
    last_state: Option<Logical>,
    answers: VecDeque<Mad>,
    transaction: u64,
    counts: AgentCounts,
    due: Instant,
}

impl Agents {
    /// Makes QP 0 and QP 1 and posts their receives.
    pub(super) fn new(
        engine: &mut Engine,
        identity: Identity,
        attributes: PortAttributes,
        setup: &PortSetup,
        now: Instant,
    ) -> Result<Self, PortError> {
        let pd = engine.allocate_pd();
        let bytes = 4 * SLOTS * SLOT_BYTES;
        let memory = Arc::new(DmaMemory::new(bytes).map_err(PortError::Memory)?);
        let region =
            engine.register(pd, &memory, 0, bytes, Access::LOCAL_WRITE).map_err(PortError::Register)?;
        let cq = engine.create_cq(4 * SLOTS as u32).map_err(PortError::Cq)?;
        let depth = SLOTS as u32;
        let init = QpInit { max_send: depth, max_recv: depth, ..QpInit::new(Service::Ud, pd, cq) };
        let manager = MicroSm::new(setup.manager, identity.port_guid, setup.manager_priority);
        let performance = Performance::new(identity.port);
        let agents = Self {
            subnet: SubnetAgent::new(identity, attributes),
            performance,
            manager,
            memory,
            region,
            cq,
            free: [(1 << SLOTS) - 1; 2],
            last_state: None,
            answers: VecDeque::new(),
            transaction: FIRST_TRANSACTION,
            counts: AgentCounts::default(),
            due: now,
        };
        for (qp, qkey) in
            [(QpNumber::SUBNET_MANAGEMENT, 0), (QpNumber::GENERAL_SERVICES, GENERAL_SERVICES_QKEY)]
        {
            engine.create_special_qp(qp, &init).map_err(PortError::Qp)?;
            engine.open_datagrams(qp, qkey, Psn::new(0), now).map_err(PortError::Modify)?;
            for slot in 0..SLOTS {
                agents.post_receive(engine, qp, slot, now)?;
            }
        }
        Ok(agents)
    }

    pub(super) fn counts(&self) -> AgentCounts {
        self.counts
    }

    pub(super) fn attributes(&self) -> &PortAttributes {
        &self.subnet.port
    }

    pub(super) fn due(&self) -> Instant {
        self.due
    }

    pub(super) fn manager(&self) -> &MicroSm {
        &self.manager
    }

    /// Whether a MAD waits.
    #[inline]
    pub(super) fn has_mads(&self, engine: &mut Engine) -> bool {
        engine.cq(self.cq).is_some_and(|cq| !cq.is_empty())
    }

    /// Where in the memory a slot is: the receives of QP 0, then of QP 1, then what they send.
    fn slot_at(qp: QpNumber, slot: usize, sends: bool) -> usize {
        let row = qp.get() as usize & 1 | usize::from(sends) << 1;
        (row * SLOTS + slot) * SLOT_BYTES
    }

    fn post_receive(
        &self,
        engine: &mut Engine,
        qp: QpNumber,
        slot: usize,
        now: Instant,
    ) -> Result<(), PortError> {
        let at = Self::slot_at(qp, slot, false) as u64;
        let list = [self.region.sge(at, (Grh::BYTES + MAD_BYTES) as u32)];
        let wr = RecvWr { wr_id: slot as u64, sges: &list };
        engine.post_recv(qp, &wr, now).map_err(PortError::Post)
    }

    /// Takes what came, does what is due, carries out what was asked for.
    pub(super) fn turn(&mut self, engine: &mut Engine, control: &impl PortControl, port: Port, now: Instant) {
        self.look_at_link(control, port);
        let mut wcs = [Wc::EMPTY; SLOTS];
        loop {
            let count = engine.poll_cq(self.cq, &mut wcs);
            for wc in &wcs[..count] {
                self.on_completion(engine, wc, control, port, now);
            }
            if count < wcs.len() {
                break;
            }
        }
        self.manage(engine, now);
        self.carry_out(engine, control, port);
        let manager = self.manager.next().filter(|_| self.is_linked()).map(|next| next.max(now));
        let look = now + LOOK_EVERY;
        self.due = manager.map_or(look, |next| next.min(look));
    }

    fn is_linked(&self) -> bool {
        self.last_state.is_some_and(Logical::is_linked)
    }

    /// Takes the link's state over when it has changed. In between the agent's own idea holds: a manager's next
    /// request may come before the chip has followed the last.
    fn look_at_link(&mut self, control: &impl PortControl, port: Port) {
        let Some(status) = control.status(port) else { return };
        show_link(&mut self.subnet.port, status);
        let state = status.logical();
        if self.last_state != Some(state) {
            self.last_state = Some(state);
            self.subnet.port.state = state.ibta_code();
        }
    }

    fn on_completion(
        &mut self,
        engine: &mut Engine,
        wc: &Wc,
        control: &impl PortControl,
        port: Port,
        now: Instant,
    ) {
        const SENT: u64 = 1 << 32;
        let slot = (wc.wr_id & 0xFF) as usize;
        if wc.wr_id & SENT != 0 {
            self.free[wc.qp.get() as usize & 1] |= 1 << slot;
            return;
        }
        if wc.status != WcStatus::Success {
            return;
        }
        let mut bytes = [0; MAD_BYTES];
        self.memory.copy_out(Self::slot_at(wc.qp, slot, false) + Grh::BYTES, &mut bytes);
        let sender = wc.detail().map(|detail| detail.sender).unwrap_or_default();
        // The receive was just used, so there is room for it.
        if self.post_receive(engine, wc.qp, slot, now).is_err() {
            self.counts.no_slot += 1;
        }
        self.counts.received += 1;
        let mad = Mad(bytes);
        if let Some(answer) = self.answer(&mad, wc.qp, control, port, now) {
            self.send(engine, wc.qp, &answer, back_to(sender), now);
        }
    }

    /// The answer to a MAD, if it gets one.
    fn answer(
        &mut self,
        mad: &Mad,
        qp: QpNumber,
        control: &impl PortControl,
        port: Port,
        now: Instant,
    ) -> Option<Mad> {
        if mad.method() == Method::GetResponse {
            self.take_in(mad, now);
            return None;
        }
        if qp == QpNumber::SUBNET_MANAGEMENT {
            return self.manager.answer(mad).or_else(|| self.subnet.process(mad));
        }
        let counts = control.read_counters().map(|counters| counts_of(&counters, port));
        self.performance.process(mad, &counts.unwrap_or_default())
    }

    /// An answer: to the micro manager, or to somebody of this process.
    fn take_in(&mut self, mad: &Mad, now: Instant) {
        if mad.transaction() < FIRST_TRANSACTION {
            return self.manager.on_answer(mad, now);
        }
        if self.answers.len() >= ANSWERS_MAX {
            self.answers.pop_front();
            self.counts.unclaimed += 1;
        }
        self.answers.push_back(mad.clone());
    }

    /// The answer to the transaction, once it is there.
    pub(super) fn take_answer(&mut self, transaction: u64) -> Option<Mad> {
        let at = self.answers.iter().position(|mad| mad.transaction() == transaction)?;
        self.answers.remove(at)
    }

    /// A transaction that no other MAD of this port has.
    pub(super) fn next_transaction(&mut self) -> u64 {
        self.transaction += 1;
        self.transaction
    }

    /// Sends a MAD of this process, or answers it at once if it goes no hop.
    pub(super) fn ask(
        &mut self,
        engine: &mut Engine,
        (mad, to): (&Mad, MadTo),
        control: &impl PortControl,
        port: Port,
        now: Instant,
    ) {
        let (qp, lid) = match to {
            MadTo::Path => (QpNumber::SUBNET_MANAGEMENT, Lid::PERMISSIVE),
            MadTo::Subnet(lid) => (QpNumber::SUBNET_MANAGEMENT, lid),
            MadTo::General(lid) => (QpNumber::GENERAL_SERVICES, lid),
        };
        let is_ours = match to {
            MadTo::Path => mad.hops().1 == 0,
            MadTo::Subnet(lid) | MadTo::General(lid) => engine.port().owns(lid),
        };
        if is_ours {
            self.look_at_link(control, port);
            if let Some(answer) = self.answer(mad, qp, control, port, now) {
                self.take_in(&answer, now);
            }
            return self.carry_out(engine, control, port);
        }
        let address = AddressVector { dlid: lid, ..AddressVector::default() };
        let to = Destination { address, qp, qkey: GENERAL_SERVICES_QKEY };
        self.send(engine, qp, mad, to, now);
    }

    fn send(&mut self, engine: &mut Engine, qp: QpNumber, mad: &Mad, to: Destination, now: Instant) {
        const SENT: u64 = 1 << 32;
        let free = &mut self.free[qp.get() as usize & 1];
        if *free == 0 {
            self.counts.no_slot += 1;
            return;
        }
        let slot = free.trailing_zeros() as usize;
        let at = Self::slot_at(qp, slot, true);
        self.memory.copy_in(at, &mad.0);
        let list = [self.region.sge(at as u64, MAD_BYTES as u32)];
        let wr = SendWr { to: Some(to), ..SendWr::new(SENT | slot as u64, SendOp::Send, &list) };
        match engine.post_send(qp, &wr, now) {
            Ok(()) => {
                *free &= !(1 << slot);
                self.counts.sent += 1;
            }
            Err(error) => {
                self.counts.no_slot += 1;
                log::debug!("a MAD was not sent: {error}");
            }
        }
    }

    /// The micro manager's turn.
    fn manage(&mut self, engine: &mut Engine, now: Instant) {
        if !self.is_linked() {
            return;
        }
        for _ in 0..LOCAL_STEPS {
            let Some(mad) = self.manager.poll(now) else { return };
            if mad.hops().1 > 0 {
                let address = AddressVector { dlid: Lid::PERMISSIVE, ..AddressVector::default() };
                let to = Destination { address, qp: QpNumber::SUBNET_MANAGEMENT, qkey: 0 };
                return self.send(engine, QpNumber::SUBNET_MANAGEMENT, &mad, to, now);
            }
            if let Some(answer) = self.subnet.process(&mad) {
                self.manager.on_answer(&answer, now);
            }
        }
    }

    /// Does on the link, and in the engine, what a manager has set.
    fn carry_out(&mut self, engine: &mut Engine, control: &impl PortControl, port: Port) {
        for wish in self.subnet.take_wishes() {
            let attributes = &self.subnet.port;
            let done = match wish {
                Wish::Lid(lid, lmc) => {
                    (engine.port_mut().lid, engine.port_mut().lmc) = (lid, lmc);
                    LidAssignment::new(lid, lmc).and_then(|lid| control.assign(port, lid))
                }
                Wish::State(state) => match command_of(state) {
                    Some(command) => control.command(port, command),
                    None => Ok(()),
                },
                Wish::PhysicalState(1) => control.command(port, Command::Sleep),
                Wish::PhysicalState(2) => control.command(port, Command::Poll),
                Wish::PhysicalState(_) => control.want(port, Goal::Disabled),
                Wish::Mtu(code) => {
                    if let Some(mtu) = crate::qp::Mtu::from_code(code) {
                        engine.port_mut().mtu = mtu;
                    }
                    Ok(())
                }
                Wish::PKeys => {
                    engine.port_mut().pkeys.clone_from(&attributes.pkeys);
                    Ok(())
                }
                Wish::ServiceLevels => {
                    engine.port_mut().vl_of_sl = attributes.vl_of_sl;
                    Ok(())
                }
                // The lanes' number and order and the rates stay as the driver's options have them.
                Wish::Lanes(_) | Wish::Arbitration | Wish::Link => Ok(()),
            };
            if let Err(error) = done {
                log::debug!("{port}: a subnet manager asked for {wish:?}: {error}");
                self.counts.refused += 1;
                // What the link does not do is not shown.
                self.last_state = None;
            }
        }
        let gid = Gid::new(self.subnet.port.prefix, self.subnet.port_guid());
        if engine.port().gids.first() != Some(&gid) {
            engine.port_mut().gids = vec![gid];
        }
    }
}

/// The command that takes a link to a state of PortInfo.
fn command_of(state: u8) -> Option<Command> {
    match state {
        1 => Some(Command::Down),
        3 => Some(Command::Arm),
        4 => Some(Command::Activate),
        _ => None,
    }
}

/// The way back to whoever sent a MAD.
fn back_to(sender: Sender) -> Destination {
    let address = AddressVector { dlid: sender.lid, sl: sender.sl, ..AddressVector::default() };
    Destination { address, qp: sender.qp, qkey: GENERAL_SERVICES_QKEY }
}
