//! A world: chips on their hosts, the cables between them, and one time for all.
//!
//! ```text
//!        node 0                    cable                  node 1
//!   ┌──────────────┐   A ───────────────────────▶ B   ┌──────────────┐
//!   │ HostMemory   │      packets and light, in order │ HostMemory   │
//!   │ Chip ─ port 0│◀─────────────────────────────────│ Chip ─ port 0│
//!   │      ─ port 1│                                  │      ─ port 1│
//!   └──────────────┘                                  └──────────────┘
//!     registers: read / write / burst at a time        advance_to(now), next_deadline()
//! ```
//!
//! Everything that happens has a time, and whatever is asked at a time first lets happen all that is due by then. What
//! is due at one instant happens in a fixed order: faults, cables as they were laid, chips as they were added. The same
//! calls at the same times under the same seed give the same world, bit for bit.
//!
//! A world knows no clock and no thread: [`backend`](crate::backend) turns one with real time and threads, the
//! laboratory with virtual time.

use crate::chip::{Chip, Config, FarEnd, Host, Injection, IntMode, PeerState};
use crate::fabric::crc::Crcs;
use crate::fabric::{Arrival, Cable, CableConfig, LineFaults, Side};
use crate::faults::{Fault, FaultPlan};
use crate::host::{HostMemory, IrqFaults};
use crate::vtime::{Distribution, Seed};
use qhca_regs::{Instant, Port};

/// A chip in a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(usize);

/// A cable in a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CableId(usize);

impl NodeId {
    /// The node's rank, from 0 in the order of adding.
    pub const fn index(self) -> usize {
        self.0
    }
}

/// Where a port's cable leads.
#[derive(Clone, Copy)]
struct Plug {
    cable: usize,
    side: Side,
}

/// What a chip of a world may be plugged into.
pub trait WorldHost: Host {
    /// A planned fault of the interrupt lines; hosts that cannot lose interrupts ignore it.
    fn set_irq_faults(&mut self, _: IrqFaults) {}
}

struct Node<H> {
    chip: Chip,
    host: H,
    plugs: [Option<Plug>; 2],
    /// What each port last showed its cable.
    shown: [PeerState; 2],
    /// What each port last saw.
    seen: [PeerState; 2],
    /// When the chip wants to be called next, as it said after the last call.
    due: Instant,
    /// Whether somebody has had the chip in hand since then.
    stale: bool,
}

impl<H> Node<H> {
    #[inline]
    fn due(&self) -> Instant {
        if self.stale { self.ask() } else { self.due }
    }

    #[inline]
    fn ask(&self) -> Instant {
        self.chip.next_deadline().unwrap_or(Instant::MAX)
    }

    /// Asks the chip when it wants to be called next.
    #[inline]
    fn refresh(&mut self) {
        self.due = self.ask();
        self.stale = false;
    }
}

struct Laid {
    cable: Cable,
    ends: [(usize, Port); 2],
}

/// Chips, cables, time.
///
/// Its chips' hosts are of kind `H`: memory of this process, or another's (the vfio-user server).
pub struct World<H = HostMemory> {
    now: Instant,
    seed: Seed,
    crcs: Option<Crcs>,
    nodes: Vec<Node<H>>,
    cables: Vec<Laid>,
    plan: FaultPlan,
}

/// Bus addresses of a node's first mapping: each node has its own region, so that no address is good in two.
const IOVA_PER_NODE: u64 = 1 << 34;

/// More steps than this at one instant mean that something asks to be called again at once, for ever.
const MAX_STEPS_AT_ONCE: u32 = 1 << 24;

impl World {
    /// Adds a chip on memory of this process.
    pub fn add(&mut self, config: Config) -> NodeId {
        let id = self.nodes.len();
        let first_iova = (id as u64 + 1) * IOVA_PER_NODE;
        let host = HostMemory::new(self.seed, &format!("node {id}"), first_iova);
        self.add_on(config, host)
    }
}

impl<H: WorldHost> World<H> {
    /// An empty world. With `crc`, check sums are computed and checked on every cable.
    pub fn new(seed: Seed, crc: bool) -> Self {
        Self {
            now: Instant::ZERO,
            seed,
            crcs: crc.then(Crcs::new),
            nodes: Vec::new(),
            cables: Vec::new(),
            plan: FaultPlan::none(),
        }
    }

    /// Adds a chip that is plugged into `host`.
    pub fn add_on(&mut self, config: Config, host: H) -> NodeId {
        let id = self.nodes.len();
        let (plugs, silent) = ([None; 2], [PeerState::Silent; 2]);
        let (shown, seen) = (silent, silent);
        let chip = Chip::new(config);
        self.nodes.push(Node { chip, host, plugs, shown, seen, due: Instant::MAX, stale: true });
        NodeId(id)
    }

    /// Lays a cable from `a` to `b`, which may be one and the same port: a loopback plug. A port that already has a
    /// cable gives it up, and so does the port at that one's other end.
    pub fn connect(&mut self, a: (NodeId, Port), b: (NodeId, Port), config: CableConfig) -> CableId {
        let id = self.cables.len();
        let cable = Cable::new(config, self.seed, &format!("cable {id}"));
        self.cables.push(Laid { cable, ends: [(a.0.0, a.1), (b.0.0, b.1)] });
        self.lay(CableId(id));
        CableId(id)
    }

    /// Lays a cable once more that gave way to another. It is as it was: its length, its faults.
    pub fn lay(&mut self, cable: CableId) {
        let ends = self.cables[cable.0].ends;
        for (side, (node, port)) in Side::BOTH.into_iter().zip(ends).rev() {
            if let Some(old) = self.nodes[node].plugs[port.index()].filter(|plug| plug.cable != cable.0) {
                self.take_up(CableId(old.cable));
            }
            self.nodes[node].plugs[port.index()] = Some(Plug { cable: cable.0, side });
            self.nodes[node].shown[port.index()] = PeerState::Silent;
        }
        self.replug(cable);
    }

    /// Pulls a cable and takes it away: neither of its ports has one then.
    fn take_up(&mut self, cable: CableId) {
        self.unplug(cable);
        for (node, port) in self.cables[cable.0].ends {
            let plug = &mut self.nodes[node].plugs[port.index()];
            *plug = plug.filter(|plug| plug.cable != cable.0);
        }
    }

    /// Pulls a cable: what is in flight is lost, both ends see darkness.
    pub fn unplug(&mut self, cable: CableId) {
        let cut = self.cables[cable.0].cable.disconnect();
        let ends = self.cables[cable.0].ends;
        for packet in cut {
            self.nodes[ends[0].0].chip.recycle(packet);
        }
        for (node, port) in ends {
            self.see(node, port, PeerState::Silent);
            self.nodes[node].shown[port.index()] = PeerState::Silent;
        }
    }

    /// Plugs a pulled cable in again.
    pub fn replug(&mut self, cable: CableId) {
        self.cables[cable.0].cable.connect();
        for (node, port) in self.cables[cable.0].ends {
            self.announce(node, port);
        }
    }

    /// Changes what goes wrong with packets that enter `cable` at `from`.
    pub fn set_line_faults(&mut self, cable: CableId, from: Side, faults: LineFaults) {
        self.cables[cable.0].cable.set_faults(from, faults);
    }

    /// Changes how long `cable` is, in time.
    pub fn set_delay(&mut self, cable: CableId, delay: Distribution) {
        self.cables[cable.0].cable.set_delay(delay);
    }

    /// What is to go wrong from now on, in place of what was planned before.
    pub fn set_faults(&mut self, plan: FaultPlan) {
        self.plan = plan;
    }

    /// The time up to which everything has happened.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// The nodes, in the order of adding.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> + use<H> {
        (0..self.nodes.len()).map(NodeId)
    }

    /// The chip of `node`.
    pub fn chip(&self, node: NodeId) -> &Chip {
        &self.nodes[node.0].chip
    }

    /// The chip of `node` and its host, for what has no time: records, modes, the account.
    pub fn chip_mut(&mut self, node: NodeId) -> (&mut Chip, &mut H) {
        let node = &mut self.nodes[node.0];
        node.stale = true;
        (&mut node.chip, &mut node.host)
    }

    /// The host of `node`.
    pub fn host(&self, node: NodeId) -> &H {
        &self.nodes[node.0].host
    }

    /// The host of `node`, to map memory and take interrupts.
    pub fn host_mut(&mut self, node: NodeId) -> &mut H {
        &mut self.nodes[node.0].host
    }

    /// The cable `cable`.
    pub fn cable(&self, cable: CableId) -> &Cable {
        &self.cables[cable.0].cable
    }

    /// The cables, in the order in which they were laid; those that gave way to others included.
    pub fn cables(&self) -> impl Iterator<Item = CableId> + use<H> {
        (0..self.cables.len()).map(CableId)
    }

    /// The cable of a port, and which of its ends sits there.
    pub fn cable_at(&self, node: NodeId, port: Port) -> Option<(CableId, Side)> {
        self.nodes[node.0].plugs[port.index()].map(|plug| (CableId(plug.cable), plug.side))
    }

    /// Where the ends of `cable` are, or were.
    pub fn cable_ends(&self, cable: CableId) -> [(NodeId, Port); 2] {
        self.cables[cable.0].ends.map(|(node, port)| (NodeId(node), port))
    }

    /// Something happens to the chip of `node` from outside.
    pub fn act(&mut self, node: NodeId, now: Instant, what: impl FnOnce(&mut Chip, Instant, &mut H)) {
        self.touch(node.0, now, what);
    }

    /// Software on `node` reads a register.
    #[inline]
    pub fn read(&mut self, node: NodeId, offset: u32, now: Instant) -> u64 {
        self.advance_to(now);
        let now = self.now;
        let node = &mut self.nodes[node.0];
        node.chip.read(offset, now, &mut node.host)
    }

    /// Software on `node` writes a register.
    #[inline]
    pub fn write(&mut self, node: NodeId, offset: u32, value: u64, now: Instant) {
        self.touch(node.0, now, |chip, now, host| chip.write(offset, value, now, host));
    }

    /// Software on `node` reads half a register.
    pub fn read32(&mut self, node: NodeId, offset: u32, now: Instant) -> u32 {
        self.advance_to(now);
        let now = self.now;
        let node = &mut self.nodes[node.0];
        node.chip.read32(offset, now, &mut node.host)
    }

    /// Software on `node` writes half a register, or one dword of a send buffer.
    pub fn write32(&mut self, node: NodeId, offset: u32, value: u32, now: Instant) {
        self.touch(node.0, now, |chip, now, host| chip.write32(offset, value, now, host));
    }

    /// The host of `node` has switched message interrupts on or off.
    pub fn set_int_mode(&mut self, node: NodeId, mode: IntMode, now: Instant) {
        self.touch(node.0, now, |chip, now, host| chip.set_int_mode(mode, now, host));
    }

    /// Software on `node` streams dwords to a send buffer.
    #[inline]
    pub fn burst(&mut self, node: NodeId, offset: u32, dwords: &[u32], now: Instant) {
        self.touch(node.0, now, |chip, now, host| chip.write_burst(offset, dwords, now, host));
    }

    /// Raises error bits on `node` as a fault would.
    pub fn inject(&mut self, node: NodeId, injection: Injection, now: Instant) {
        self.touch(node.0, now, |chip, now, host| chip.inject(injection, now, host));
    }

    /// Tells `node` how the far end of `port`'s cable takes heartbeats: one that hangs does not answer.
    pub fn set_far_end(&mut self, node: NodeId, port: Port, far: FarEnd, now: Instant) {
        self.touch(node.0, now, |chip, now, _| chip.set_far_end(port, far, now));
    }

    /// Pulls the card of `node` out of its slot, or plugs it in again.
    pub fn set_present(&mut self, node: NodeId, present: bool, now: Instant) {
        self.touch(node.0, now, |chip, _, _| chip.set_present(present));
    }

    /// Resets the function of `node` through its configuration space: the chip is as after power-on. Mapped memory
    /// and interrupt lines are the host's and stay.
    pub fn reset(&mut self, node: NodeId, now: Instant) {
        self.touch(node.0, now, |chip, now, host| chip.reset(now, host));
    }

    /// When something happens next without software's doing.
    pub fn next_deadline(&self) -> Option<Instant> {
        Some(self.next_due()).filter(|due| *due != Instant::MAX)
    }

    #[inline]
    fn next_due(&self) -> Instant {
        let mut due = self.plan.next_at().unwrap_or(Instant::MAX);
        for laid in &self.cables {
            due = due.min(laid.cable.next_arrival());
        }
        for node in &self.nodes {
            due = due.min(node.due());
        }
        due
    }

    /// Lets everything happen that is due by `now`, each thing at its own time. Time that has passed already is taken
    /// as now.
    ///
    /// PANIC: a chip that asks to be called again at the same instant for ever is a fault of the model's; going on
    /// would hang the caller instead.
    #[inline]
    pub fn advance_to(&mut self, now: Instant) {
        let mut steps_at_once = 0;
        loop {
            let due = self.next_due();
            if due > now || due == Instant::MAX {
                break;
            }
            steps_at_once = if due > self.now { 0 } else { steps_at_once + 1 };
            assert!(steps_at_once < MAX_STEPS_AT_ONCE, "the model asks for {due} again and again");
            self.now = self.now.max(due);
            self.step();
        }
        self.now = self.now.max(now);
    }

    /// Lets happen what is due at `self.now`.
    fn step(&mut self) {
        while let Some(fault) = self.plan.pop_due(self.now) {
            self.strike(fault);
        }
        for cable in 0..self.cables.len() {
            for from in Side::BOTH {
                self.arrive(cable, from);
            }
        }
        for node in 0..self.nodes.len() {
            if self.nodes[node].due() <= self.now {
                self.touch_now(node, |chip, now, host| chip.advance(now, host));
                self.tell_credits(node);
            }
        }
    }

    /// Hands over what has arrived by now on one direction of a cable.
    fn arrive(&mut self, cable: usize, from: Side) {
        let laid = &self.cables[cable];
        let (sender, _) = laid.ends[from.index()];
        let (node, port) = laid.ends[from.other().index()];
        while let Some(arrival) = self.cables[cable].cable.receive(from, self.now, self.crcs.as_ref()) {
            match arrival {
                Arrival::Light(light) => self.see(node, port, light),
                Arrival::Credits(update) => {
                    self.touch_now(node, |chip, now, host| chip.take_flow_update(port, update, now, host));
                }
                Arrival::Packet(packet) => {
                    self.touch_now(node, |chip, now, host| {
                        chip.deliver(port, &packet.bytes, packet.meta, now, host)
                    });
                    self.nodes[sender].chip.recycle(packet);
                    self.tell_credits(node);
                }
            }
        }
    }

    /// Lets one planned fault happen.
    fn strike(&mut self, fault: Fault) {
        match fault {
            Fault::Inject(node, injection) => {
                self.touch_now(node.0, |chip, now, host| chip.inject(injection, now, host));
            }
            Fault::Pull(cable) => self.unplug(cable),
            Fault::Replug(cable) => self.replug(cable),
            Fault::Line(cable, from, faults) => self.set_line_faults(cable, from, faults),
            Fault::Irq(node, faults) => self.host_mut(node).set_irq_faults(faults),
            Fault::Remove(node) => self.touch_now(node.0, |chip, _, _| chip.set_present(false)),
            Fault::Return(node) => self.touch_now(node.0, |chip, _, _| chip.set_present(true)),
        }
    }

    /// Calls the chip of `node` at `now`, and carries on what comes of it.
    #[inline]
    fn touch(&mut self, node: usize, now: Instant, call: impl FnOnce(&mut Chip, Instant, &mut H)) {
        self.advance_to(now);
        self.touch_now(node, call);
    }

    #[inline]
    fn touch_now(&mut self, node: usize, call: impl FnOnce(&mut Chip, Instant, &mut H)) {
        let now = self.now;
        let Node { chip, host, .. } = &mut self.nodes[node];
        call(chip, now, host);
        self.carry_on(node);
    }

    /// Puts what the ports of `node` have to say on their cables.
    #[inline]
    fn carry_on(&mut self, node: usize) {
        for port in Port::ALL {
            self.announce(node, port);
            while let Some(packet) = self.nodes[node].chip.take_outgoing(port) {
                let refused = match self.nodes[node].plugs[port.index()] {
                    Some(Plug { cable, side }) => {
                        self.cables[cable].cable.send(side, packet, self.crcs.as_ref())
                    }
                    None => Some(packet),
                };
                if let Some(packet) = refused {
                    self.nodes[node].chip.recycle(packet);
                }
            }
        }
        self.nodes[node].refresh();
    }

    /// Lets the ports of `node` tell the other ends about their credits. Asked for after what may change them: packets
    /// that arrived, and time.
    #[inline]
    fn tell_credits(&mut self, node: usize) {
        for port in Port::ALL {
            if let Some(Plug { cable, side }) = self.nodes[node].plugs[port.index()]
                && self.cables[cable].cable.carries_credits()
                && let Some(update) = self.nodes[node].chip.flow_update(port, self.now)
            {
                self.cables[cable].cable.show(side, Arrival::Credits(update), self.now);
                self.nodes[node].refresh();
            }
        }
    }

    /// Shows the light of a port to its cable if it has changed.
    #[inline]
    fn announce(&mut self, node: usize, port: Port) {
        let this = &mut self.nodes[node];
        let light = this.chip.own_link(port);
        if light == this.shown[port.index()] {
            return;
        }
        if let Some(Plug { cable, side }) = this.plugs[port.index()]
            && self.cables[cable].cable.is_connected()
        {
            this.shown[port.index()] = light;
            self.cables[cable].cable.show(side, Arrival::Light(light), self.now);
        }
    }

    /// A port sees another light than before.
    fn see(&mut self, node: usize, port: Port, light: PeerState) {
        if self.nodes[node].seen[port.index()] != light {
            self.nodes[node].seen[port.index()] = light;
            self.touch_now(node, |chip, now, host| chip.peer_link(port, light, now, host));
        }
    }
}
