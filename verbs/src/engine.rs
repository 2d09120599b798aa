//! The engine: everything that one port's verbs consist of, turned by whoever owns it.
//!
//! ```text
//!   post_send, post_recv ─►┌────────┐─► transmit(wire, now)      packets out, as many as there is room for
//!   on_packet(words, ...) ─►│ Engine │─► poll_cq, poll_event      what became of it
//!   on_timeout(now) ───────►└────────┘─► next_timeout             when it wants to be turned again
//! ```
//!
//! It belongs to one thread at a time and takes no lock. An application with several threads has an engine for each,
//! on receive contexts of their own.

mod objects;

use qhca_regs::{Instant, Lid};
use std::fmt;

use crate::counters::{Counters, Drop};
use crate::event::Event;
use crate::ids::QpNumber;
use crate::mem::Payload;
use crate::out::Wire;
use crate::qp::{ModifyError, Qp, QpAttr, QpCounts, QpInit, QpState, Step};
use crate::shared::{Config, Port, Shared, pkeys_match};
use crate::wc::Wc;
use crate::wire::{Gid, Headers, Operation, Service};
use crate::wr::{BadRequest, PostError, RecvWr, SendWr};

/// Packets that a queue pair sends before the next has its turn.
const QUANTUM: usize = 16;
/// Members of one multicast group at most.
const GROUP_MAX: usize = 16;
/// Queue pairs whose numbers are reserved: 0 and 1.
const SPECIAL: usize = 2;

/// Why a queue pair or shared receive queue could not be made or destroyed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum QpError {
    /// There are as many as there can be.
    TooMany {
        /// How many.
        max: u32,
    },
    /// No protection domain, completion queue or shared receive queue of this name, or of another domain.
    NoSuchPart(&'static str),
    /// The special queue pair exists, or the number is none of a special one.
    Special(QpNumber),
    /// There is none.
    NoSuchQp(QpNumber),
    /// A size that is not possible.
    Size {
        /// Which.
        what: &'static str,
        /// What was asked for.
        asked: u32,
        /// What is possible.
        max: u32,
    },
    /// Others use it.
    Busy {
        /// How many.
        users: u32,
    },
    /// The group is full, or the queue pair is no datagram queue pair.
    Group,
}

impl fmt::Display for QpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooMany { max } => write!(f, "all {max} are in use: destroy one"),
            Self::NoSuchPart(part) => write!(f, "there is no such {part} here"),
            Self::Special(qp) => write!(f, "{qp} exists already, or is not 0 or 1"),
            Self::NoSuchQp(qp) => write!(f, "there is no {qp}"),
            Self::Size { what, asked, max } => write!(f, "{what} of {asked}: at most {max} is possible"),
            Self::Busy { users } => write!(f, "{users} queue pairs use it: destroy them first"),
            Self::Group => {
                f.write_str("the group has all members that it can have, or this is no datagram queue pair")
            }
        }
    }
}

impl std::error::Error for QpError {}

/// Most work requests that a queue can hold.
pub const QUEUE_DEPTH_MAX: u32 = 0x3FFF;

struct Group {
    gid: Gid,
    lid: Lid,
    members: Vec<QpNumber>,
}

struct Place {
    generation: u32,
    qp: Option<Box<Qp>>,
}

/// The verbs of one port, for one thread.
pub struct Engine {
    shared: Shared,
    places: Vec<Place>,
    free: std::collections::VecDeque<u32>,
    pds: Vec<bool>,
    groups: Vec<Group>,
}

impl Engine {
    /// An engine for `port`.
    pub fn new(config: Config, port: Port) -> Self {
        let special = || Place { generation: 0, qp: None };
        Self {
            shared: Shared::new(config, port),
            places: (0..SPECIAL).map(|_| special()).collect(),
            free: std::collections::VecDeque::new(),
            pds: Vec::new(),
            groups: Vec::new(),
        }
    }

    /// The port as the engine takes it to be.
    pub fn port(&self) -> &Port {
        &self.shared.port
    }

    /// Changes what the engine knows of its port: a LID, P_Keys. Connections keep what they were made with until they
    /// are modified.
    pub fn port_mut(&mut self) -> &mut Port {
        &mut self.shared.port
    }

    /// What has been counted.
    pub fn counters(&self) -> &Counters {
        &self.shared.counters
    }

    /// Events that were lost because nobody asked for them.
    pub fn events_lost(&self) -> u64 {
        self.shared.events.lost()
    }

    // ---- queue pairs ----

    /// Makes a queue pair, in RESET.
    ///
    /// # Errors
    /// [`QpError`].
    pub fn create_qp(&mut self, init: &QpInit) -> Result<QpNumber, QpError> {
        self.check_parts(init)?;
        let max = self.shared.config.max_qps;
        let index = if self.free.len() < 64 && self.places.len() < max as usize + SPECIAL {
            self.places.push(Place { generation: 0, qp: None });
            self.places.len() as u32 - 1
        } else {
            self.free.pop_front().ok_or(QpError::TooMany { max })?
        };
        let number = number_of(self.shared.config.qpn_place, index);
        Ok(self.place_qp(number, index, init))
    }

    /// Makes QP 0 or QP 1.
    ///
    /// # Errors
    /// [`QpError::Special`] if it exists.
    pub fn create_special_qp(&mut self, number: QpNumber, init: &QpInit) -> Result<(), QpError> {
        self.check_parts(init)?;
        let is_free =
            self.places[..SPECIAL].get(number.get() as usize).is_some_and(|place| place.qp.is_none());
        if !is_free || init.service != Service::Ud {
            return Err(QpError::Special(number));
        }
        self.place_qp(number, number.get(), init);
        Ok(())
    }

    fn check_parts(&self, init: &QpInit) -> Result<(), QpError> {
        if !self.has_pd(init.pd) {
            return Err(QpError::NoSuchPart("protection domain"));
        }
        for cq in [init.send_cq, init.recv_cq] {
            self.shared.cqs.get(cq.0).ok_or(QpError::NoSuchPart("completion queue"))?;
        }
        if let Some(srq) = init.srq {
            let srq = self.shared.srqs.get(srq.0).filter(|srq| srq.pd == init.pd);
            srq.ok_or(QpError::NoSuchPart("shared receive queue"))?;
        }
        check_depth("send queue", init.max_send)?;
        check_depth("receive queue", init.max_recv)
    }

    fn place_qp(&mut self, number: QpNumber, index: u32, init: &QpInit) -> QpNumber {
        let shared = &mut self.shared;
        let mut srq_sges = 0;
        for cq in [init.send_cq, init.recv_cq] {
            if let Some(cq) = shared.cqs.get_mut(cq.0) {
                cq.users += 1;
            }
        }
        if let Some(srq) = init.srq.and_then(|srq| shared.srqs.get_mut(srq.0)) {
            srq.users += 1;
            srq_sges = srq.queue.max_sges;
        }
        let place = &mut self.places[index as usize];
        place.generation = place.generation.wrapping_add(1);
        place.qp = Some(Box::new(Qp::new(number, index, place.generation, init, srq_sges)));
        let count = self.places.len();
        shared.ready.reserve(count.saturating_sub(shared.ready.len()));
        shared.timers.reserve(count);
        number
    }

    /// Changes a queue pair.
    ///
    /// # Errors
    /// [`ModifyError`]; the queue pair is as it was.
    pub fn modify_qp(&mut self, qp: QpNumber, attr: &QpAttr, now: Instant) -> Result<(), ModifyError> {
        let qp = find(&mut self.places, &self.shared.config, qp).ok_or(ModifyError::NoSuchQp(qp))?;
        qp.modify(&mut self.shared, attr, now)?;
        self.settle(now);
        Ok(())
    }

    /// Destroys a queue pair. What waits is forgotten, and so are its completions that nobody has polled.
    ///
    /// # Errors
    /// [`QpError::NoSuchQp`].
    pub fn destroy_qp(&mut self, number: QpNumber) -> Result<(), QpError> {
        let index = index_of(&self.shared.config, number);
        let place = self
            .places
            .get_mut(index)
            .filter(|place| place.qp.as_ref().is_some_and(|qp| qp.number == number));
        let qp = place.and_then(|place| place.qp.take()).ok_or(QpError::NoSuchQp(number))?;
        for cq in [qp.send_cq, qp.recv_cq] {
            if let Some(cq) = self.shared.cqs.get_mut(cq.0) {
                cq.users -= 1;
                cq.forget(|wc| wc.qp == number);
            }
        }
        if let Some(srq) = qp.srq.and_then(|srq| self.shared.srqs.get_mut(srq.0)) {
            srq.users -= 1;
        }
        self.groups.iter_mut().for_each(|group| group.members.retain(|member| *member != number));
        self.groups.retain(|group| !group.members.is_empty());
        if index >= SPECIAL {
            self.free.push_back(index as u32);
        }
        Ok(())
    }

    /// The state of a queue pair.
    pub fn qp_state(&self, number: QpNumber) -> Option<QpState> {
        self.qp(number).map(|qp| qp.state)
    }

    /// What a queue pair has counted.
    pub fn qp_counts(&self, number: QpNumber) -> Option<QpCounts> {
        self.qp(number).map(|qp| qp.counts)
    }

    /// Whether a queue pair has nothing posted that is not complete, and nothing to say.
    pub fn is_idle(&self, number: QpNumber) -> bool {
        self.qp(number).is_none_or(|qp| qp.sq.is_empty() && !qp.resp.has_output())
    }

    /// The service of a queue pair.
    pub fn service_of(&self, number: QpNumber) -> Option<Service> {
        self.qp(number).map(|qp| qp.service)
    }

    fn qp(&self, number: QpNumber) -> Option<&Qp> {
        let place = self.places.get(index_of(&self.shared.config, number))?;
        place.qp.as_deref().filter(|qp| qp.number == number)
    }

    /// Says in one line what a completion means: queue pair, peer, operation, status and likely cause.
    pub fn explain(&self, wc: &Wc) -> String {
        let operation = wc.detail.opcode;
        match self.qp(wc.qp) {
            Some(qp) if qp.service != Service::Ud => {
                format!("{wc} ({operation} to {} at LID {})", qp.set.dest_qp, qp.set.address.dlid.0)
            }
            _ => format!("{wc} ({operation})"),
        }
    }

    /// Posts a send.
    ///
    /// # Errors
    /// [`PostError`]; nothing was done.
    #[inline]
    pub fn post_send(&mut self, qp: QpNumber, wr: &SendWr<'_>, now: Instant) -> Result<(), PostError> {
        let qp = find(&mut self.places, &self.shared.config, qp).ok_or(PostError::NoSuchQueue)?;
        qp.post_send(&mut self.shared, wr, now)
    }

    /// Posts a list of sends, in order, up to the first that is refused.
    ///
    /// # Errors
    /// [`BadRequest`] names it.
    pub fn post_sends(&mut self, qp: QpNumber, list: &[SendWr<'_>], now: Instant) -> Result<(), BadRequest> {
        for (index, wr) in list.iter().enumerate() {
            self.post_send(qp, wr, now).map_err(|why| BadRequest { index, why })?;
        }
        Ok(())
    }

    /// Posts a receive.
    ///
    /// # Errors
    /// [`PostError`]; nothing was done.
    #[inline]
    pub fn post_recv(&mut self, qp: QpNumber, wr: &RecvWr<'_>, now: Instant) -> Result<(), PostError> {
        let qp = find(&mut self.places, &self.shared.config, qp).ok_or(PostError::NoSuchQueue)?;
        qp.post_recv(&mut self.shared, wr, now)
    }

    /// Posts a list of receives, in order, up to the first that is refused.
    ///
    /// # Errors
    /// [`BadRequest`] names it.
    pub fn post_recvs(&mut self, qp: QpNumber, list: &[RecvWr<'_>], now: Instant) -> Result<(), BadRequest> {
        for (index, wr) in list.iter().enumerate() {
            self.post_recv(qp, wr, now).map_err(|why| BadRequest { index, why })?;
        }
        Ok(())
    }

    /// Attaches a datagram queue pair to a multicast group.
    ///
    /// # Errors
    /// [`QpError`].
    pub fn attach_multicast(&mut self, qp: QpNumber, gid: Gid, lid: Lid) -> Result<(), QpError> {
        let service = self.qp(qp).ok_or(QpError::NoSuchQp(qp))?.service;
        if service != Service::Ud || !gid.is_multicast() {
            return Err(QpError::Group);
        }
        let at = self.groups.iter().position(|group| group.gid == gid && group.lid == lid);
        let at = at.unwrap_or_else(|| {
            self.groups.push(Group { gid, lid, members: Vec::new() });
            self.groups.len() - 1
        });
        let members = &mut self.groups[at].members;
        if members.contains(&qp) {
            return Ok(());
        }
        if members.len() >= GROUP_MAX {
            return Err(QpError::Group);
        }
        members.push(qp);
        Ok(())
    }

    /// Detaches a queue pair from a multicast group.
    ///
    /// # Errors
    /// [`QpError::Group`] if it is no member.
    pub fn detach_multicast(&mut self, qp: QpNumber, gid: Gid, lid: Lid) -> Result<(), QpError> {
        let group = self.groups.iter_mut().find(|group| group.gid == gid && group.lid == lid);
        let members = &mut group.ok_or(QpError::Group)?.members;
        let at = members.iter().position(|member| *member == qp).ok_or(QpError::Group)?;
        members.remove(at);
        self.groups.retain(|group| !group.members.is_empty());
        Ok(())
    }

    // ---- packets, time, events ----

    /// Takes a packet: its headers as words in the processor's order, and the rest of it.
    ///
    /// Words after the headers are taken for payload if `payload` is empty.
    #[inline]
    pub fn on_packet(&mut self, words: &[u32], payload: Payload<'_>, now: Instant) {
        self.shared.counters.packets_received += 1;
        let Ok(h) = Headers::parse(words, payload.len() / 4) else {
            return self.shared.counters.drop_for(Drop::Malformed);
        };
        if h.rest().is_empty() {
            return self.dispatch(&h, &payload, now);
        }
        self.on_packet_in_one_piece(&h, &payload, now);
    }

    /// The payload stands behind the headers.
    #[cold]
    fn on_packet_in_one_piece(&mut self, h: &Headers<'_>, payload: &Payload<'_>, now: Instant) {
        if !payload.is_empty() {
            return self.shared.counters.drop_for(Drop::Malformed);
        }
        let bytes: Vec<u8> = h.rest().iter().flat_map(|word| word.to_be_bytes()).collect();
        self.dispatch(h, &Payload::Bytes(&bytes), now);
    }

    #[inline]
    fn dispatch(&mut self, h: &Headers<'_>, payload: &Payload<'_>, now: Instant) {
        let shared = &mut self.shared;
        if h.bth.dest_qp == QpNumber::MULTICAST {
            return self.dispatch_multicast(h, payload, now);
        }
        if !shared.port.owns(h.lrh.dlid) && h.lrh.dlid != Lid::PERMISSIVE {
            return shared.counters.drop_for(Drop::NotOurLid);
        }
        let Some(qp) = find(&mut self.places, &shared.config, h.bth.dest_qp) else {
            return shared.counters.drop_for(Drop::NoSuchQp);
        };
        deliver(qp, shared, h, payload, now);
        if !self.shared.dead_cqs.is_empty() {
            self.settle(now);
        }
    }

    #[cold]
    fn dispatch_multicast(&mut self, h: &Headers<'_>, payload: &Payload<'_>, now: Instant) {
        let Self { shared, places, groups, .. } = self;
        let dgid = h.grh().map(|grh| grh.dgid);
        let group = groups.iter().find(|group| Some(group.gid) == dgid && group.lid == h.lrh.dlid);
        let (Some(group), Service::Ud) = (group, h.meaning.service) else {
            return shared.counters.drop_for(Drop::NoMember);
        };
        let from_us = shared.port.owns(h.lrh.slid);
        let source = h.deth().map(|deth| deth.src_qp);
        for member in &group.members {
            let Some(qp) = find(places, &shared.config, *member) else { continue };
            let own = from_us && source == Some(qp.number);
            if !(own && qp.block_own_multicast) {
                deliver(qp, shared, h, payload, now);
            }
        }
        self.settle(now);
    }

    /// Sends what can be sent, at most `budget` packets; returns how many went out. Fewer than `budget` means that
    /// nothing more can be sent, or that `wire` has no room.
    #[inline]
    pub fn transmit(&mut self, wire: &mut impl Wire, now: Instant, budget: usize) -> usize {
        let mut sent = 0;
        // Once the wire is full only those that talk to this port itself go on, and each is looked at once.
        let mut looks_left = usize::MAX;
        while sent < budget && looks_left > 0 {
            if !self.shared.looped.is_empty() {
                self.take_looped(now);
            }
            let Some(index) = self.shared.ready.pop_front() else { break };
            let Some(qp) = self.places[index as usize].qp.as_deref_mut() else { continue };
            if looks_left != usize::MAX && !qp.template.to_self {
                self.shared.ready.push_back(index);
                looks_left -= 1;
                continue;
            }
            qp.scheduled = false;
            let quantum = QUANTUM.min(budget - sent);
            let mut step = Step::Sent;
            for _ in 0..quantum {
                step = qp.send_one(&mut self.shared, wire, now);
                if step != Step::Sent {
                    break;
                }
                sent += 1;
            }
            if step != Step::Idle {
                self.shared.schedule(index, &mut qp.scheduled);
            }
            if step == Step::Full && !qp.template.to_self {
                looks_left = looks_left.min(self.shared.ready.len());
            }
        }
        if !self.shared.dead_cqs.is_empty() {
            self.settle(now);
        }
        sent
    }

    /// Takes in the packets that went to ourselves.
    #[cold]
    fn take_looped(&mut self, now: Instant) {
        for _ in 0..self.shared.looped.len() {
            let Some(packet) = self.shared.looped.pop_front() else { break };
            self.on_packet(&packet.header, Payload::Bytes(&packet.payload), now);
            self.shared.spare.push(packet);
        }
    }

    /// Whether something is ready to be sent.
    #[inline]
    pub fn has_output(&self) -> bool {
        !self.shared.ready.is_empty() || !self.shared.looped.is_empty()
    }

    /// When [`on_timeout`](Self::on_timeout) is due; `None` if nothing is.
    pub fn next_timeout(&self) -> Option<Instant> {
        self.shared.timers.next()
    }

    /// Does what is due by `now`.
    pub fn on_timeout(&mut self, now: Instant) {
        // Each round takes one entry and puts back at most one, which is later than `now`.
        for _ in 0..self.shared.timers.len() {
            let Some(due) = self.shared.timers.pop_due(now) else { break };
            let place = self.places.get_mut(due.index as usize);
            let Some(qp) = place.and_then(|place| place.qp.as_deref_mut()) else { continue };
            if qp.generation == due.generation {
                qp.on_timer(&mut self.shared, due.kind, now);
            }
        }
        self.settle(now);
    }

    /// What happened, oldest first.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.shared.events.pop()
    }

    /// Whether an event waits.
    #[inline]
    pub fn has_events(&self) -> bool {
        !self.shared.events.is_empty()
    }

    /// Queue pairs whose completion queue overflowed go to the error state.
    fn settle(&mut self, now: Instant) {
        while let Some(cq) = self.shared.dead_cqs.pop() {
            for place in &mut self.places {
                if let Some(qp) = place.qp.as_deref_mut()
                    && (qp.send_cq == cq || qp.recv_cq == cq)
                {
                    qp.fail(&mut self.shared, Some(Event::QpFatal(qp.number)), now);
                }
            }
        }
    }

    #[cfg(test)]
    pub(crate) fn shared_mut(&mut self) -> &mut Shared {
        &mut self.shared
    }
}

/// Gives a queue pair a packet that bears its number.
#[inline]
fn deliver(qp: &mut Qp, sh: &mut Shared, h: &Headers<'_>, payload: &Payload<'_>, now: Instant) {
    if !qp.state.receives() {
        return sh.counters.drop_for(Drop::QpState);
    }
    if h.meaning.service != qp.service {
        return sh.counters.drop_for(Drop::WrongService);
    }
    if qp.number != QpNumber::SUBNET_MANAGEMENT && !pkeys_match(qp.pkey, h.bth.pkey) {
        return sh.counters.drop_for(Drop::PKey);
    }
    if qp.service == Service::Ud {
        return qp.on_datagram(sh, h, payload, now);
    }
    if !qp.is_peer(h.lrh.slid) {
        return sh.counters.drop_for(Drop::WrongSource);
    }
    match (qp.service, h.meaning.operation) {
        (Service::Uc, _) => qp.on_unreliable(sh, h, payload, now),
        (_, Operation::ReadResponse | Operation::Acknowledge | Operation::AtomicAcknowledge) => {
            qp.on_answer(sh, h, payload, now);
        }
        _ => qp.on_request(sh, h, payload, now),
    }
}

fn check_depth(what: &'static str, asked: u32) -> Result<(), QpError> {
    if asked <= QUEUE_DEPTH_MAX { Ok(()) } else { Err(QpError::Size { what, asked, max: QUEUE_DEPTH_MAX }) }
}

/// The number of the queue pair at `index`: with a place in the chip's map, bits 5 to 1 of it are that place.
fn number_of(place: Option<u8>, index: u32) -> QpNumber {
    QpNumber::new(match place {
        None => index,
        Some(place) => (index >> 1) << 6 | u32::from(place & 31) << 1 | index & 1,
    })
}

/// Where the queue pair of this number is, if it is ours.
#[inline]
fn index_of(config: &Config, number: QpNumber) -> usize {
    let number = number.get();
    match config.qpn_place {
        Some(_) if number >= SPECIAL as u32 => (number >> 6 << 1 | number & 1) as usize,
        _ => number as usize,
    }
}

#[inline]
fn find<'a>(places: &'a mut [Place], config: &Config, number: QpNumber) -> Option<&'a mut Qp> {
    let place = places.get_mut(index_of(config, number))?;
    place.qp.as_deref_mut().filter(|qp| qp.number == number)
}
