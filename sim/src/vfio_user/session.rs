//! One client's conversation: requests in, effects on the chip, replies out.
//!
//! Writes are answered before they are carried out, as a posted write is: what the chip does in consequence may need
//! the client's memory, and a client that waits for our answer cannot give it.

use super::Options;
use super::client::{ClientHost, SharedLink};
use super::config::{ConfigSpace, Effect};
use super::link::{Ended, Link, Message};
use super::memory::RANGES_MAX;
use super::sys::FDS_MAX;
use super::trace::Trace;
use crate::chip::IntMode;
use crate::world::{NodeId, World};
use qhca_regs::{BAR_LEN_BYTES, Instant};
use qhca_vfu::{
    Capabilities, Command, DeviceInfo, Header, IrqAction, IrqData, IrqInfo, Kind, ParseError, RegionAccess,
    RegionInfo, Reply, Request, SetIrqs, Version, XFER_MAX_BYTES, error_reply, irq, region,
};
use std::cell::RefCell;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::rc::Rc;

const EINVAL: u32 = libc::EINVAL as u32;

/// A connected client.
pub(super) struct Session {
    link: SharedLink,
    node: NodeId,
    config: ConfigSpace,
    options: Options,
    negotiated: bool,
    /// Messages served since somebody asked.
    served: u64,
    /// Whether the last of them had an answer.
    answered: bool,
    /// Resets of the chip that its configuration space has followed.
    resets: u64,
    /// What was agreed on.
    transfer_max_bytes: u32,
}

/// What a request is carried out on.
pub(super) struct Stage<'a> {
    pub(super) world: &'a mut World<ClientHost>,
    pub(super) trace: &'a mut Trace,
    pub(super) now: Instant,
}

/// Result of a request: a reply, or the number that refuses it.
type Answer = Result<Vec<u8>, u32>;

impl Session {
    /// Begins with a client that has just connected: the chip is as after power-on.
    pub(super) fn new(
        socket: UnixStream,
        node: NodeId,
        options: Options,
        stage: &mut Stage<'_>,
    ) -> std::io::Result<Self> {
        let link = Rc::new(RefCell::new(Link::new(socket, options.answer_within)?));
        let host = stage.world.host_mut(node);
        host.attach(Rc::clone(&link));
        let config = ConfigSpace::new(options.config, host.vectors() as u16);
        stage.world.reset(node, stage.now);
        let resets = stage.world.chip(node).resets();
        Ok(Self {
            link,
            node,
            config,
            options,
            negotiated: false,
            served: 0,
            answered: false,
            resets,
            transfer_max_bytes: 0,
        })
    }

    /// The descriptor to wait for.
    pub(super) fn raw_fd(&self) -> RawFd {
        self.link.borrow().fd().as_raw_fd()
    }

    /// Calls `with` with the descriptor to wait for.
    pub(super) fn with_fd<T>(&self, with: impl FnOnce(BorrowedFd<'_>) -> T) -> T {
        with(self.link.borrow().fd())
    }

    /// Whether messages wait that no descriptor announces.
    pub(super) fn has_waiting(&self) -> bool {
        self.link.borrow().has_waiting()
    }

    /// Serves up to `budget` messages; false when none is left.
    ///
    /// # Errors
    /// [`Ended`] when the client has gone or cannot be understood any more.
    pub(super) fn serve(&mut self, budget: usize, stage: &mut Stage<'_>) -> Result<bool, Ended> {
        for _ in 0..budget {
            let next = self.link.borrow_mut().next()?;
            let Some(message) = next else { return Ok(false) };
            self.served += 1;
            self.answered = !message.header.no_reply;
            self.handle(message, stage)?;
            self.flush(stage);
        }
        Ok(true)
    }

    /// How many messages were served since the last call.
    pub(super) fn take_served(&mut self) -> u64 {
        std::mem::take(&mut self.served)
    }

    /// Whether the client has just had an answer.
    pub(super) fn has_answered(&self) -> bool {
        self.answered
    }

    /// Sends what the chip wrote to memory that only the client can reach.
    pub(super) fn flush(&self, stage: &mut Stage<'_>) {
        let host = stage.world.host_mut(self.node);
        if host.has_held() {
            host.flush();
        }
    }

    /// The client has gone: nothing of it stays.
    pub(super) fn end(self, stage: &mut Stage<'_>) {
        stage.world.host_mut(self.node).detach();
        stage.world.reset(self.node, stage.now);
    }

    fn reply(&self, header: &Header, answer: Answer) -> Result<(), Ended> {
        let message = match answer {
            Ok(message) => message,
            Err(errno) => error_reply(header, errno),
        };
        if header.no_reply {
            return Ok(());
        }
        Ok(self.link.borrow_mut().send(&message)?)
    }

    /// A chip that was reset has forgotten what its configuration space held (F-425).
    fn follow_resets(&mut self, stage: &mut Stage<'_>) {
        let resets = stage.world.chip(self.node).resets();
        if resets != std::mem::replace(&mut self.resets, resets) {
            self.config.reset();
            stage.world.host_mut(self.node).set_bus_master(self.config.bus_master());
        }
    }

    /// Whether the function answers on the bus.
    fn answers(&self, stage: &Stage<'_>) -> bool {
        stage.world.chip(self.node).answers(stage.now)
    }

    fn handle(&mut self, message: Message, stage: &mut Stage<'_>) -> Result<(), Ended> {
        self.follow_resets(stage);
        let Message { header, payload, fds } = message;
        if header.kind == Kind::Reply {
            // An answer that came after its deadline; whoever asked has given up.
            return Ok(());
        }
        let request = match Command::from_number(header.command).and_then(|c| Request::parse(c, &payload)) {
            Ok(request) => request,
            Err(error) => return self.refuse(&header, &error),
        };
        if !self.negotiated && !matches!(request, Request::Version(_)) {
            log::warn!("client command {} before VERSION", header.command);
            return self.reply(&header, Err(EINVAL));
        }
        match request {
            Request::RegionWrite(at, data) => self.write(&header, at, data, stage),
            Request::RegionWriteMulti(writes) => {
                let bad = writes.iter().any(|write| {
                    check(write.at, self.transfer_max_bytes).and_then(|()| check_write(write.at)).is_err()
                });
                let answer = if bad {
                    Err(EINVAL)
                } else {
                    Ok(Reply::WrittenMulti(writes.len() as u64).build(&header))
                };
                self.reply(&header, answer)?;
                for write in writes.iter().filter(|_| !bad) {
                    let data = write.data.get(..write.at.len_bytes as usize).unwrap_or(&write.data);
                    self.carry_out(write.at, data, stage);
                }
                Ok(())
            }
            request => {
                let answer = self.answer(&header, request, fds, stage);
                self.reply(&header, answer)
            }
        }
    }

    fn refuse(&self, header: &Header, error: &ParseError) -> Result<(), Ended> {
        log::warn!("client command {} (message {:#06x}) refused: {error}", header.command, header.id);
        self.reply(header, Err(error.errno()))
    }

    fn answer(
        &mut self,
        header: &Header,
        request: Request<'_>,
        fds: Vec<OwnedFd>,
        stage: &mut Stage<'_>,
    ) -> Answer {
        let reply = match request {
            Request::Version(version) => Reply::Version(self.negotiate(&version)?),
            Request::DmaMap(map) => {
                let mut fds = fds.into_iter();
                let memory = &mut stage.world.host_mut(self.node).memory;
                memory.map(&map, fds.next()).map_err(|refusal| refusal.errno())?;
                Reply::Done
            }
            Request::DmaUnmap(unmap) => {
                stage.world.host_mut(self.node).memory.unmap(&unmap);
                Reply::Unmapped(unmap)
            }
            Request::DeviceInfo => {
                Reply::DeviceInfo(DeviceInfo { can_reset: true, regions: region::COUNT, irqs: irq::COUNT })
            }
            Request::RegionInfo { index, argsz } => Reply::RegionInfo(region_info(index)?, argsz),
            Request::IrqInfo { index } => {
                Reply::IrqInfo(irq_info(index, stage.world.host(self.node).vectors())?)
            }
            Request::SetIrqs(set) => {
                self.set_irqs(&set, fds, stage)?;
                Reply::Done
            }
            Request::RegionRead(at) => {
                let data = self.read(at, stage)?;
                return Ok(Reply::Read(at, &data).build(header));
            }
            Request::DeviceReset => {
                self.reset(stage);
                Reply::Done
            }
            Request::RegionIoFds { .. } => return Err(libc::ENOTSUP as u32),
            // `handle` takes writes itself.
            Request::RegionWrite(..) | Request::RegionWriteMulti(_) => return Err(EINVAL),
        };
        Ok(reply.build(header))
    }

    fn negotiate(&mut self, theirs: &Version) -> Result<Version, u32> {
        let ours = Capabilities {
            max_msg_fds: FDS_MAX as u32,
            max_data_xfer_size: self.options.transfer_max_bytes.clamp(8, XFER_MAX_BYTES),
            max_dma_maps: RANGES_MAX,
            pgsizes: 4096,
            write_multiple: true,
        };
        let answer = theirs.answer(ours).map_err(|error| error.errno())?;
        self.negotiated = true;
        self.transfer_max_bytes = answer.capabilities.max_data_xfer_size;
        Ok(answer)
    }

    fn set_irqs(&mut self, set: &SetIrqs<'_>, fds: Vec<OwnedFd>, stage: &mut Stage<'_>) -> Result<(), u32> {
        let (node, now) = (self.node, stage.now);
        let vectors = stage.world.host(node).vectors();
        let (msix, room) = match set.index {
            irq::MSIX => (true, vectors),
            irq::INTX => (false, 1),
            // Neither an error nor a request-back is ever signalled; connecting to them is allowed and has no effect.
            irq::ERR | irq::REQ if set.start + set.count <= 1 => return Ok(()),
            irq::MSI if set.is_disable() => return Ok(()),
            _ => return Err(EINVAL),
        };
        let (start, count) = (set.start as usize, set.count as usize);
        if start + count > room {
            return Err(EINVAL);
        }
        if set.is_disable() {
            stage.world.host_mut(node).disconnect(msix);
            stage.world.set_int_mode(node, IntMode::Intx, now);
            return Ok(());
        }
        let selected: Vec<bool> = match set.data {
            IrqData::Bool(bytes) => bytes.iter().map(|byte| *byte != 0).collect(),
            IrqData::None | IrqData::Eventfd => vec![true; count],
        };
        let host = stage.world.host_mut(node);
        match (set.action, set.data) {
            (IrqAction::Trigger, IrqData::Eventfd) => {
                if fds.len() > count {
                    return Err(EINVAL);
                }
                let connects = !fds.is_empty();
                host.connect(msix, start, count, fds);
                if msix && connects {
                    stage.world.set_int_mode(node, IntMode::Msix, now);
                }
            }
            (IrqAction::Trigger, _) => host.trigger(msix, start, &selected),
            (IrqAction::Mask, IrqData::None | IrqData::Bool(_)) => {
                host.set_masked(msix, start, &selected, true)
            }
            (IrqAction::Unmask, IrqData::None | IrqData::Bool(_)) => {
                host.set_masked(msix, start, &selected, false)
            }
            (IrqAction::Mask | IrqAction::Unmask, IrqData::Eventfd) => return Err(libc::ENOTSUP as u32),
        }
        Ok(())
    }

    fn read(&mut self, at: RegionAccess, stage: &mut Stage<'_>) -> Result<Vec<u8>, u32> {
        check(at, self.transfer_max_bytes)?;
        let mut data = vec![0; at.len_bytes as usize];
        if at.region == region::CONFIG {
            match self.answers(stage) {
                true => {
                    self.config.set_interrupt_status(stage.world.host(self.node).wants_line());
                    self.config.read(at.offset as usize, &mut data);
                }
                false => data.fill(0xFF),
            }
            return Ok(data);
        }
        let mut offset = at.offset as u32;
        let mut rest = &mut data[..];
        while !rest.is_empty() {
            // Each piece is as wide as its alignment and what is left allow.
            let width = if offset.is_multiple_of(8) && rest.len() >= 8 { 8 } else { 4 };
            let (piece, later) = rest.split_at_mut(width.min(rest.len()));
            let value = match width {
                8 => stage.world.read(self.node, offset, stage.now),
                _ => u64::from(stage.world.read32(self.node, offset & !3, stage.now)) >> (8 * (offset & 3)),
            };
            stage.trace.read(stage.now, offset, piece.len(), value);
            piece.copy_from_slice(&value.to_le_bytes()[..piece.len()]);
            offset += piece.len() as u32;
            rest = later;
        }
        Ok(data)
    }

    fn write(
        &mut self,
        header: &Header,
        at: RegionAccess,
        data: &[u8],
        stage: &mut Stage<'_>,
    ) -> Result<(), Ended> {
        if let Err(errno) = check(at, self.transfer_max_bytes).and_then(|()| check_write(at)) {
            return self.reply(header, Err(errno));
        }
        self.reply(header, Ok(Reply::Written(at).build(header)))?;
        self.carry_out(at, data, stage);
        Ok(())
    }

    /// Carries out a write that has been checked.
    fn carry_out(&mut self, at: RegionAccess, data: &[u8], stage: &mut Stage<'_>) {
        if at.region == region::CONFIG {
            if !self.answers(stage) {
                return;
            }
            let effect = self.config.write(at.offset as usize, data);
            if effect == Effect::FunctionReset {
                stage.world.reset(self.node, stage.now);
                self.resets = stage.world.chip(self.node).resets();
            }
            stage.world.host_mut(self.node).set_bus_master(self.config.bus_master());
            return;
        }
        let mut offset = at.offset as u32;
        let mut rest = data;
        while !rest.is_empty() {
            let width = if offset.is_multiple_of(8) && rest.len() >= 8 { 8 } else { 4.min(rest.len()) };
            let (piece, later) = rest.split_at(width);
            let value = piece.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte));
            stage.trace.write(stage.now, offset, width, value);
            match width {
                8 => stage.world.write(self.node, offset, value, stage.now),
                _ => stage.world.write32(self.node, offset, value as u32, stage.now),
            }
            offset += width as u32;
            rest = later;
        }
    }

    fn reset(&mut self, stage: &mut Stage<'_>) {
        self.config.reset();
        let host = stage.world.host_mut(self.node);
        host.set_bus_master(false);
        stage.world.reset(self.node, stage.now);
        self.resets = stage.world.chip(self.node).resets();
        log::info!("device reset by the client ({})", self.options.name);
    }
}

/// Whether an access lies in a region we have, and is no longer than was agreed on.
fn check(at: RegionAccess, longest_bytes: u32) -> Result<(), u32> {
    let len = match at.region {
        region::BAR0 => u64::from(BAR_LEN_BYTES),
        region::CONFIG => ConfigSpace::LEN_BYTES as u64,
        _ => return Err(EINVAL),
    };
    let end = at.offset.checked_add(u64::from(at.len_bytes)).ok_or(EINVAL)?;
    if end > len || at.len_bytes == 0 || at.len_bytes > longest_bytes { Err(EINVAL) } else { Ok(()) }
}

/// Whether a write has a width that the chip's registers take: whole aligned dwords.
fn check_write(at: RegionAccess) -> Result<(), u32> {
    let whole = at.offset.is_multiple_of(4) && at.len_bytes.is_multiple_of(4);
    if at.region == region::BAR0 && !whole { Err(EINVAL) } else { Ok(()) }
}

fn region_info(index: u32) -> Result<RegionInfo, u32> {
    let (readable, writable) = (true, true);
    match index {
        region::BAR0 => {
            let len_bytes = u64::from(BAR_LEN_BYTES);
            Ok(RegionInfo { index, readable, writable, len_bytes, ..RegionInfo::default() })
        }
        region::CONFIG => {
            let len_bytes = ConfigSpace::LEN_BYTES as u64;
            Ok(RegionInfo { index, readable, writable, len_bytes, ..RegionInfo::default() })
        }
        _ if index < region::COUNT => Ok(RegionInfo { index, ..RegionInfo::default() }),
        _ => Err(EINVAL),
    }
}

fn irq_info(index: u32, vectors: usize) -> Result<IrqInfo, u32> {
    let none =
        IrqInfo { index, count: 0, eventfd: false, maskable: false, automasked: false, noresize: false };
    match index {
        irq::INTX => Ok(IrqInfo { count: 1, eventfd: true, maskable: true, automasked: true, ..none }),
        irq::MSIX => Ok(IrqInfo { count: vectors as u32, eventfd: true, noresize: false, ..none }),
        irq::ERR | irq::REQ => Ok(IrqInfo { count: 1, eventfd: true, ..none }),
        irq::MSI => Ok(none),
        _ => Err(EINVAL),
    }
}
