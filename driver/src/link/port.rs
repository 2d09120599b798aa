//! One port's link: what is wanted of it, and the commands that get it there.
//!
//! The chip trains a link by itself once the port is on; from then on it waits to be armed and made active. In a
//! subnet a manager does that with packets. Without one, the driver does it on both ends, each for itself, with LIDs
//! that the user has given ([`Goal::Active`]).
//!
//! Every command has a deadline within which the chip must show the state. A link that is only *looked for* has none:
//! a cable may be plugged in next week.
//!
//! Source: F-132, F-139, F-140.

use super::command::{Command, refusal};
use super::setup::{self, PortSetup};
use super::state::{LinkStatus, Logical, Physical, Speed};
use super::{LidAssignment, LinkError};
use crate::control::separate;
use crate::ports::Speeds;
use qhca_regs::map::counter;
use qhca_regs::map::port::{self, IbcCtrlA, IbcCtrlB, IbcStatusB};
use qhca_regs::{Bar, Duration, GONE, Instant, Port, RegValue};
use std::collections::VecDeque;

/// How long the chip may take to show the state that a command asks for.
///
/// TIMEOUT: the stock driver waits as long (F-132); commands take effect within some 20 µs.
pub const COMMAND_WITHIN: Duration = Duration::from_millis(10);
/// How often a command is repeated when its deadline passes.
pub const COMMAND_ATTEMPTS: u32 = 3;

/// What is wanted of a link, for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Goal {
    /// Switched off.
    Disabled,
    /// On; whoever manages the subnet takes it further than Init.
    Up,
    /// On, and armed by this driver.
    Armed,
    /// On, and made active by this driver.
    Active,
}

/// How many lanes a link may have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Width {
    /// One.
    X1 = 0,
    /// Four.
    #[default]
    X4 = 1,
    /// As many as both ends have: four, else one.
    Auto = 3,
}

/// Whether a port sends heartbeats.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Heartbeat {
    /// No.
    Off,
    /// Yes, and a far end that does not answer takes the link down.
    On,
    /// Yes, if the far end knows them.
    #[default]
    Auto,
}

/// What was chosen of a link: speeds, width, heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choices(IbcCtrlB);

/// What happened to a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LinkChange {
    /// Both ends have trained.
    Up {
        /// Speed agreed on.
        speed: Speed,
        /// Lanes agreed on.
        lanes: u32,
    },
    /// The link was up and is no longer; sends on it are to be cancelled.
    Down,
    /// Data flows.
    Active,
    /// A command was repeated in vain.
    CommandFailed {
        /// The command.
        command: Command,
        /// The states shown instead.
        status: LinkStatus,
        /// How long they were watched.
        waited: Duration,
    },
}

/// A command whose effect is waited for.
#[derive(Clone, Copy, Debug)]
struct Pending {
    command: Command,
    since: Instant,
    deadline: Instant,
    attempts: u32,
}

/// The link of one port.
#[derive(Clone, Debug)]
pub struct PortLink {
    port: Port,
    /// `IBCCtrlA` without commands.
    ctrl_a: IbcCtrlA,
    ctrl_b: IbcCtrlB,
    goal: Goal,
    status: LinkStatus,
    is_up: bool,
    is_active: bool,
    pending: Option<Pending>,
    lid: LidAssignment,
    /// The chip's count of lost links at the last loss, and losses that it did not count.
    downs_seen: u64,
    downs_missed: u64,
    /// What has happened and was not asked for yet, oldest first.
    changes: VecDeque<LinkChange>,
}

/// Changes kept for the caller; the oldest makes room.
const MAX_CHANGES: usize = 16;

impl PortLink {
    /// The link of the port in `setup`, not yet touched.
    pub fn new(setup: &PortSetup) -> Self {
        Self {
            port: setup.port,
            ctrl_a: setup::ctrl_a(setup),
            ctrl_b: IbcCtrlB(0),
            goal: Goal::Disabled,
            status: LinkStatus::new(port::IbcStatusA(0)),
            is_up: false,
            is_active: false,
            pending: None,
            lid: LidAssignment::NONE,
            downs_seen: 0,
            downs_missed: 0,
            changes: VecDeque::new(),
        }
    }

    /// Sets the port up and leaves it switched off. Returns whether the credits read back.
    ///
    /// # Errors
    /// [`LinkError::Gone`].
    ///
    /// Source: F-135 to F-138 (qib_7322_bringup_serdes), without the SerDes tuning (F-133).
    pub fn bring_up(&mut self, setup: &PortSetup, bar: &impl Bar) -> Result<bool, LinkError> {
        let p = self.port;
        port::IBC_CTRL_A.port(p).write(bar, self.ctrl_a.with_ib_link_en(false));
        separate(bar);
        setup::reset_transmitter(p, bar);
        setup::reset_physical_layer(p, self.ctrl_a, bar);
        let ctrl_b = port::IBC_CTRL_B.port(p);
        self.ctrl_b = setup::ctrl_b(ctrl_b.read(bar), setup.speeds);
        ctrl_b.write(bar, self.ctrl_b);
        separate(bar);
        setup::write_heartbeat(setup, bar);
        let credits_held = setup::write_credits(setup, bar);
        self.ctrl_a = self.ctrl_a.with_num_v_lane(setup.lanes - 1).with_ib_link_en(true);
        port::IBC_CTRL_A.port(p).write(bar, self.ctrl_a);
        separate(bar);
        self.command(Command::Disable, bar);
        self.downs_seen = counter::IB_LINK_DOWNED_CNT.port(p).read(bar);
        self.read_status(bar)?;
        Ok(credits_held)
    }

    /// The port.
    pub const fn port(&self) -> Port {
        self.port
    }

    /// What is wanted.
    pub const fn goal(&self) -> Goal {
        self.goal
    }

    /// The last status read.
    pub const fn status(&self) -> LinkStatus {
        self.status
    }

    /// The LID in use.
    pub const fn lid(&self) -> LidAssignment {
        self.lid
    }

    /// Whether the port talks to itself.
    pub fn is_loopback(&self) -> bool {
        self.ctrl_a.loopback()
    }

    /// Lost links that the chip's counter missed.
    pub const fn downs_missed(&self) -> u64 {
        self.downs_missed
    }

    /// Changes what is wanted, and gives the first command towards it.
    ///
    /// Needs no LID and no subnet manager, whatever the port's state.
    ///
    /// # Errors
    /// [`LinkError::Gone`].
    pub fn set_goal(&mut self, goal: Goal, bar: &impl Bar, now: Instant) -> Result<(), LinkError> {
        let was = core::mem::replace(&mut self.goal, goal);
        self.pending = None;
        self.read_status(bar)?;
        match goal {
            Goal::Disabled => {
                // The data sheet's order: the physical layer is reset before the link is told to stay down.
                setup::reset_physical_layer(self.port, self.ctrl_a, bar);
                self.give(Command::Disable, bar, now);
            }
            _ if was == Goal::Disabled || self.status.physical() == Physical::Disabled => {
                self.give(Command::Poll, bar, now);
            }
            _ => self.pursue(bar, now),
        }
        Ok(())
    }

    /// Gives one command now, whatever is wanted for good.
    ///
    /// # Errors
    /// [`LinkError::Forbidden`] says why the state does not allow it; [`LinkError::Gone`].
    pub fn give_now(&mut self, command: Command, bar: &impl Bar, now: Instant) -> Result<(), LinkError> {
        let status = self.read_status(bar)?;
        let state = status.logical();
        if let Some(reason) = refusal(state, command) {
            return Err(LinkError::Forbidden { state, command, reason });
        }
        if command == Command::Disable {
            return self.set_goal(Goal::Disabled, bar, now);
        }
        if command == Command::Poll && self.goal == Goal::Disabled {
            self.goal = Goal::Up;
        }
        self.give(command, bar, now);
        Ok(())
    }

    /// Gives the port its LID: the checks of what it sends, and the filter of what it receives, are told (F-140).
    pub fn set_lid(&mut self, lid: LidAssignment, bar: &impl Bar) {
        let (base, mask) = (lid.base().0, lid.mask());
        self.lid = lid;
        self.ctrl_b = self.ctrl_b.with_ib_dlid(base).with_ib_dlid_mask(mask);
        port::IBC_CTRL_B.port(self.port).write(bar, self.ctrl_b);
        separate(bar);
        let assign = port::SendIbslidAssign(0).with_send_ibslid_assign_15_0(base & mask);
        port::SEND_IBSLID_ASSIGN.port(self.port).write(bar, assign);
        port::SEND_IBSLID_MASK
            .port(self.port)
            .write(bar, port::SendIbslidMask(0).with_send_ibslid_mask_15_0(mask));
    }

    /// Makes the port talk to itself, without a cable, or stops that. The link trains anew when it is told to.
    ///
    /// Source: F-229 (qib_7322_set_loopback, without its doubly shifted heartbeat mask).
    pub fn set_loopback(&mut self, on: bool, bar: &impl Bar) {
        self.ctrl_a = self.ctrl_a.with_loopback(on);
        port::IBC_CTRL_A.port(self.port).write(bar, self.ctrl_a);
        separate(bar);
    }

    /// Sets which widths and speeds the link may have. It keeps what it has until it trains anew.
    ///
    /// Source: F-137.
    pub fn set_rates(&mut self, speeds: Speeds, width: Width, bar: &impl Bar) {
        let dlid = (self.ctrl_b.ib_dlid(), self.ctrl_b.ib_dlid_mask());
        let heartbeat = (self.ctrl_b.hrtbt_enb(), self.ctrl_b.hrtbt_auto());
        self.ctrl_b = setup::ctrl_b(self.ctrl_b, speeds)
            .with_ib_num_channels(width as u8)
            .with_ib_dlid(dlid.0)
            .with_ib_dlid_mask(dlid.1)
            .with_hrtbt_enb(heartbeat.0)
            .with_hrtbt_auto(heartbeat.1);
        port::IBC_CTRL_B.port(self.port).write(bar, self.ctrl_b);
        separate(bar);
    }

    /// Sets whether the port sends heartbeats, whose loss takes the link down.
    ///
    /// Source: F-244.
    pub fn set_heartbeat(&mut self, heartbeat: Heartbeat, bar: &impl Bar) {
        let (enabled, auto) = match heartbeat {
            Heartbeat::Off => (false, false),
            Heartbeat::On => (true, false),
            Heartbeat::Auto => (true, true),
        };
        self.ctrl_b = self.ctrl_b.with_hrtbt_enb(enabled).with_hrtbt_auto(auto);
        port::IBC_CTRL_B.port(self.port).write(bar, self.ctrl_b);
        separate(bar);
    }

    /// Speeds, width and heartbeat as they were chosen, to be [`choose`](Self::choose)n again after a reset.
    pub fn choices(&self) -> Choices {
        Choices(self.ctrl_b)
    }

    /// Makes the same choices as another link of the port has made.
    pub fn choose(&mut self, choices: Choices, bar: &impl Bar) {
        let dlid = (self.ctrl_b.ib_dlid(), self.ctrl_b.ib_dlid_mask());
        self.ctrl_b = choices.0.with_ib_dlid(dlid.0).with_ib_dlid_mask(dlid.1);
        port::IBC_CTRL_B.port(self.port).write(bar, self.ctrl_b);
        separate(bar);
    }

    /// The chip says that the link's status changed, or the caller wants to know: reads it and acts.
    ///
    /// # Errors
    /// [`LinkError::Gone`].
    ///
    /// Source: F-139 (qib_handle_e_ibstatuschanged, qib_7322_ib_updown).
    pub fn on_status_change(&mut self, bar: &impl Bar, now: Instant) -> Result<(), LinkError> {
        let status = self.read_status(bar)?;
        self.settle_pending();
        self.judge(status, bar);
        if self.pending.is_none() {
            self.pursue(bar, now);
        }
        Ok(())
    }

    /// What has happened, oldest first, until `None`.
    pub fn poll_change(&mut self) -> Option<LinkChange> {
        self.changes.pop_front()
    }

    fn note(&mut self, change: LinkChange) {
        if self.changes.len() == MAX_CHANGES {
            self.changes.pop_front();
        }
        self.changes.push_back(change);
    }

    /// A deadline of [`poll_timeout`](Self::poll_timeout) has passed.
    ///
    /// # Errors
    /// [`LinkError::Gone`].
    pub fn on_timeout(&mut self, bar: &impl Bar, now: Instant) -> Result<(), LinkError> {
        let Some(Pending { command, since, deadline, attempts }) = self.pending else { return Ok(()) };
        if now < deadline {
            return Ok(());
        }
        // The interrupt may have been lost: look before judging.
        self.on_status_change(bar, now)?;
        if self.pending.is_none_or(|pending| (pending.command, pending.since) != (command, since)) {
            return Ok(());
        }
        if attempts < COMMAND_ATTEMPTS && refusal(self.status.logical(), command).is_none() {
            let deadline = now + COMMAND_WITHIN;
            self.pending = Some(Pending { command, since, deadline, attempts: attempts + 1 });
            self.command(command, bar);
        } else {
            self.pending = None;
            self.note(LinkChange::CommandFailed { command, status: self.status, waited: now.since(since) });
        }
        Ok(())
    }

    /// When [`on_timeout`](Self::on_timeout) wants to be called.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.pending.map(|pending| pending.deadline)
    }

    fn read_status(&mut self, bar: &impl Bar) -> Result<LinkStatus, LinkError> {
        let raw = port::IBC_STATUS_A.port(self.port).read(bar);
        if raw.raw() == GONE {
            return Err(LinkError::Gone { port: self.port });
        }
        self.status = LinkStatus::new(raw);
        Ok(self.status)
    }

    /// Forgets the pending command once its effect shows.
    fn settle_pending(&mut self) {
        let (logical, physical) = (self.status.logical(), self.status.physical());
        let reached = |command| match command {
            Command::Disable => physical == Physical::Disabled,
            Command::Arm => matches!(logical, Logical::Armed | Logical::Active | Logical::ActiveDefer),
            Command::Activate => logical.carries_data(),
            Command::Down | Command::Poll | Command::Sleep => physical != Physical::Disabled,
        };
        self.pending = self.pending.filter(|pending| !reached(pending.command));
    }

    /// Up, down or active, compared with what was known. Recovery is neither.
    fn judge(&mut self, status: LinkStatus, bar: &impl Bar) {
        if self.is_up && status.physical().is_down() {
            self.is_up = false;
            self.is_active = false;
            self.on_down(bar);
            self.note(LinkChange::Down);
        }
        if !self.is_up && status.is_up() {
            self.is_up = true;
            self.note(LinkChange::Up { speed: status.speed(), lanes: status.lanes() });
        }
        let is_active = self.is_up && status.logical().carries_data();
        if is_active && !self.is_active {
            self.note(LinkChange::Active);
        }
        self.is_active = is_active;
    }

    /// A link that was up is lost: forget its heartbeat, start the physical layer afresh.
    fn on_down(&mut self, bar: &impl Bar) {
        let p = self.port;
        let heartbeat = IbcStatusB(0).with_heartbeat_crosstalk(0xF).with_heartbeat_timed_out(true);
        port::IBC_STATUS_B.port(p).clear(bar, heartbeat);
        setup::reset_transmitter(p, bar);
        if self.goal != Goal::Disabled {
            setup::reset_physical_layer(p, self.ctrl_a, bar);
        }
        let downs = counter::IB_LINK_DOWNED_CNT.port(p).read(bar);
        if downs == self.downs_seen {
            self.downs_missed += 1;
        }
        self.downs_seen = downs;
    }

    /// Takes the next step towards the goal, if the state has one.
    fn pursue(&mut self, bar: &impl Bar, now: Instant) {
        let (logical, physical) = (self.status.logical(), self.status.physical());
        let next = match (self.goal, physical, logical) {
            (Goal::Disabled, Physical::Disabled, _) => None,
            (Goal::Disabled, ..) => Some(Command::Disable),
            (_, Physical::Disabled, _) => Some(Command::Poll),
            (Goal::Armed | Goal::Active, Physical::LinkUp, Logical::Init) => Some(Command::Arm),
            (Goal::Active, Physical::LinkUp, Logical::Armed) => Some(Command::Activate),
            _ => None,
        };
        if let Some(command) = next {
            self.give(command, bar, now);
        }
    }

    /// Gives a command and waits for its effect.
    fn give(&mut self, command: Command, bar: &impl Bar, now: Instant) {
        self.pending = Some(Pending { command, since: now, deadline: now + COMMAND_WITHIN, attempts: 1 });
        self.command(command, bar);
    }

    /// Writes a command. It acts once, and the shadow never holds it.
    fn command(&mut self, command: Command, bar: &impl Bar) {
        let takes_down = !matches!(command, Command::Arm | Command::Activate);
        if takes_down {
            // The next change is to interrupt.
            self.ctrl_a = self.ctrl_a.with_ib_stat_int_reduction_en(false);
        }
        port::IBC_CTRL_A.port(self.port).write(bar, command.put_in(self.ctrl_a));
        separate(bar);
    }
}
