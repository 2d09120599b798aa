//! A port's link: training with the other end of the cable, the states above it, and the commands that move them.
//!
//! ```text
//!              DISABLE                      both ends want a link
//!   Disabled <--------- any     Poll/Sleep ----------------------> Cfg... --> LinkUp = INIT
//!       '--- POLL, SLEEP -->         ^                                          | ARMED command
//!                                    '---- light lost, DOWN, IBLinkEn 0 ---- ARMED --> ACTIVE
//! ```
//!
//! A port rests in polling or sleep; both answer a peer that wants a link (F-380). Training passes through the
//! configuration states, one [`Timing::training_step`](super::Timing) each, and ends in LinkUp, link state INIT.
//! Commands are the fields `LinkInitCmd` and `LinkCmd` of `IBCCtrlA`: they act once, after
//! [`Timing::link_command`](super::Timing), and read back as 0; one that the state does not allow is ignored and
//! counted (F-381). `IBLinkEn` 0 and a reset in `IBPCSConfig` take the link down for as long as they last; a reset that
//! begins raises statusValidNoEop (F-761).

use super::account::Account;
use super::negotiate::{Agreed, DDR, Offer, QDR, agree};
use super::wrong::{WrongChip, WrongSet};
use super::{Chip, Host, PeerState};
use qhca_regs::map::{counter, port};
use qhca_regs::status::{HwErrBits, PortErrBits};
use qhca_regs::{Duration, Instant, Port};

/// Link states as `IBCStatusA` codes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum State {
    Down = 0,
    Init = 1,
    Armed = 2,
    Active = 3,
}

/// Training states as `IBCStatusA` codes them; those that this model passes through.
mod training {
    pub(super) const DISABLED: u8 = 0x00;
    pub(super) const LINK_UP: u8 = 0x01;
    pub(super) const POLL_ACTIVE: u8 = 0x02;
    pub(super) const SLEEP_QUIET: u8 = 0x05;
    /// From the first sight of the peer to LinkUp.
    pub(super) const STEPS: [u8; 5] = [
        0x08, // CfgDebounce
        0x09, // CfgRcvfCfg
        0x0A, // CfgWaitRmt
        0x10, // CfgEnh
        0x0B, // CfgIdle
    ];
}

/// What a packet may be long while `MaxPktLen` is 0: 4 KiB of payload and headers (F-382).
const HARDWARE_MAX_DWORDS: u16 = 1057;

/// A command as `IBCCtrlA` gives it.
#[derive(Clone, Copy)]
struct Command {
    init: u8,
    link: u8,
}

/// One port's link.
pub(super) struct Link {
    /// Speeds that the board brings out; none if the port is absent.
    board_speeds: u8,
    control: port::IbcCtrlA,
    control_b: port::IbcCtrlB,
    in_reset: bool,
    disabled: bool,
    sleeps: bool,
    mode: port::IbncModeCtrl,
    /// False while the port ends in an empty cage.
    wired: bool,
    peer: PeerState,
    /// What the peer has offered last.
    peer_offer: Option<Offer>,
    training: u8,
    state: State,
    /// What the link runs at, while it is up.
    agreed: Option<Agreed>,
    wrong: WrongSet,
    /// Next step of training, and when it is due.
    step: usize,
    step_at: Option<Instant>,
    command: Option<(Instant, Command)>,
}

impl Link {
    /// A port with the speeds of its board and the reset value of `IBCCtrlB`; `wired` unless its cage is empty.
    pub(super) fn new(board_speeds: u8, control_b: u64, wired: bool, wrong: WrongSet) -> Self {
        Self {
            board_speeds,
            control: port::IbcCtrlA::default(),
            control_b: port::IbcCtrlB(control_b),
            in_reset: true,
            disabled: false,
            sleeps: false,
            mode: port::IbncModeCtrl::default(),
            wired,
            peer: PeerState::Silent,
            peer_offer: None,
            training: training::POLL_ACTIVE,
            state: State::Down,
            agreed: None,
            wrong,
            step: 0,
            step_at: None,
            command: None,
        }
    }

    /// The port after a reset of the chip: cage and peer are all that it keeps.
    pub(super) fn after_reset(&self, control_b: u64) -> Self {
        let fresh = Self::new(self.board_speeds, control_b, self.wired, self.wrong);
        Self { peer: self.peer, peer_offer: self.peer_offer, ..fresh }
    }

    /// Whether packets of this kind are received.
    #[inline]
    pub(super) fn takes(&self, vl15: bool) -> bool {
        self.state >= if vl15 { State::Init } else { State::Armed }
    }

    /// Whether packets of this kind are sent.
    #[inline]
    pub(super) fn sends(&self, vl15: bool) -> bool {
        self.state >= if vl15 { State::Init } else { State::Active }
    }

    /// Data lanes that run.
    #[inline]
    pub(super) fn lanes(&self) -> u8 {
        self.control.num_v_lane() + 1
    }

    /// Whether training has ended in LinkUp.
    pub(super) fn is_up(&self) -> bool {
        self.training == training::LINK_UP
    }

    /// The longest packet, dwords with ICRC.
    #[inline]
    pub(super) fn max_dwords(&self) -> u16 {
        match self.control.max_pkt_len() {
            0 => HARDWARE_MAX_DWORDS,
            dwords => dwords,
        }
    }

    pub(super) fn flow_period(&self) -> u8 {
        self.control.flow_ctrl_period()
    }

    pub(super) fn is_looped(&self) -> bool {
        self.control.loopback()
    }

    /// The DLID filter: off, or a mask and a value (F-383). Multicast and permissive LIDs pass.
    pub(super) fn filters_out(&self, dlid: u16) -> bool {
        let (own, mask) = (self.control_b.ib_dlid(), self.control_b.ib_dlid_mask());
        self.control_b.ib_enable_filt_dpkt() && dlid < 0xC000 && dlid & mask != own & mask
    }

    /// How long a packet takes on the line.
    pub(super) fn time_of(&self, dwords: u16) -> Duration {
        let ns_per_dword = match self.agreed.map(|agreed| agreed.speed) {
            Some(QDR) => 1,
            Some(DDR) => 2,
            _ => 4,
        };
        let lanes = if self.agreed.is_none_or(|agreed| agreed.wide) { 1 } else { 4 };
        Duration::from_nanos(u64::from(dwords) * ns_per_dword * lanes)
    }

    /// What the port offers the other end.
    fn offer(&self) -> Offer {
        Offer::from_registers(self.control_b, self.mode, self.board_speeds)
    }

    /// Whether the port wants a link at all.
    fn is_able(&self) -> bool {
        self.control.ib_link_en() && !self.in_reset && !self.disabled && self.offer().speeds != 0
    }

    /// What the port shows the other end.
    fn shown(&self) -> PeerState {
        match self.training {
            _ if !self.is_able() || !self.wired => PeerState::Silent,
            training::LINK_UP if self.control_b.hrtbt_enb() || self.control_b.hrtbt_auto() => PeerState::Up,
            training::LINK_UP => PeerState::UpMute,
            _ => PeerState::Training(self.offer()),
        }
    }

    /// What both ends could agree on now.
    fn common(&self) -> Option<Agreed> {
        let peer = match (self.is_looped(), self.peer) {
            (true, _) => self.offer(),
            (false, PeerState::Training(offer)) => offer,
            (false, _) => self.peer_offer.unwrap_or_else(|| self.offer()),
        };
        let peer = Offer { scrambles: self.peer_scrambles(peer), ..peer };
        let mut agreed = agree(self.offer(), peer)?;
        if self.wrong.has(WrongChip::SpeedNotHonoured) {
            agreed.speed = agree(Offer::of_speeds(self.board_speeds), Offer::ALL)?.speed;
        }
        agreed.wide |= self.wrong.has(WrongChip::WidthNotHonoured);
        Some(agreed)
    }

    fn peer_scrambles(&self, peer: Offer) -> bool {
        let mode = self.mode;
        mode.scramble_cap_remote_force() || peer.scrambles && !mode.scramble_cap_remote_mask()
    }

    fn sees_peer(&self) -> bool {
        self.is_looped() || self.wired && self.peer != PeerState::Silent
    }

    fn resting_code(&self) -> u8 {
        match (self.disabled, self.sleeps) {
            (true, _) => training::DISABLED,
            (false, true) => training::SLEEP_QUIET,
            (false, false) => training::POLL_ACTIVE,
        }
    }

    /// `IBCStatusA` but for the credits of the lanes.
    pub(super) fn status(&self) -> u64 {
        let up = self.training == training::LINK_UP;
        let agreed = self.agreed.filter(|_| up);
        let runs_at = |speed| agreed.is_some_and(|agreed| agreed.speed == speed);
        let remote = self.peer_offer.filter(|_| up).is_some_and(|offer| self.peer_scrambles(offer));
        let status = port::IbcStatusA::default()
            .with_link_training_state(self.training)
            .with_link_state(self.state as u8)
            .with_link_speed_active(runs_at(DDR))
            .with_link_speed_qdr(runs_at(QDR))
            .with_link_width_active(agreed.is_some_and(|agreed| agreed.wide))
            .with_scramble_en(agreed.is_some_and(|agreed| agreed.scrambled))
            .with_scramble_cap_remote(remote)
            .with_tx_ready(!self.in_reset);
        status.0
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        match (self.step_at, self.command.map(|(at, _)| at)) {
            (Some(a), Some(b)) => Some(std::cmp::min(a, b)),
            (a, b) => a.or(b),
        }
    }

    /// Moves the states as `command` says; returns whether the link must go down.
    fn obey(&mut self, command: Command, direct_active: bool, account: &mut Account) -> bool {
        match (command.init, command.link) {
            (1..=3, _) => {
                self.disabled = command.init == 1;
                self.sleeps = command.init == 3;
                return true;
            }
            (0, 1) => {
                self.disabled = false;
                self.sleeps = self.control.link_down_default_state();
                return true;
            }
            (0, 2) if self.state >= State::Init => self.state = State::Armed,
            (0, 3) if self.state >= State::Armed || direct_active && self.state == State::Init => {
                self.state = State::Active;
            }
            _ => account.link_commands_ignored += 1,
        }
        false
    }
}

impl Chip {
    pub(super) fn write_ibc_ctrl_a(&mut self, port: Port, value: u64, now: Instant, host: &mut impl Host) {
        let written = port::IbcCtrlA(value);
        let command = Command { init: written.link_init_cmd(), link: written.link_cmd() };
        let kept = written.with_link_init_cmd(0).with_link_cmd(0);
        self.store.set(port::IBC_CTRL_A.port(port).offset(), kept.0);
        let link = &mut self.links[port.index()];
        let looped = link.is_looped();
        link.control = kept;
        if looped != kept.loopback() {
            self.take_down(port, false, now, host);
        }
        if command.init != 0 || command.link != 0 {
            if let Some((_, earlier)) = self.links[port.index()].command.take() {
                self.obey(port, earlier, now, host);
            }
            self.links[port.index()].command = Some((now + self.config.timing.link_command, command));
        }
        self.look_at_link(port, now, host);
    }

    pub(super) fn write_ibc_ctrl_b(&mut self, port: Port, value: u64, now: Instant, host: &mut impl Host) {
        self.links[port.index()].control_b = port::IbcCtrlB(value);
        self.look_at_link(port, now, host);
    }

    pub(super) fn write_ibnc_mode(&mut self, port: Port, value: u64, now: Instant, host: &mut impl Host) {
        self.links[port.index()].mode = port::IbncModeCtrl(value);
        self.look_at_link(port, now, host);
    }

    /// A cable module has come into the cage of `port`, or gone from it.
    pub(super) fn set_wired(&mut self, port: Port, wired: bool, now: Instant, host: &mut impl Host) {
        if self.links[port.index()].wired != wired {
            self.links[port.index()].wired = wired;
            self.look_at_link(port, now, host);
        }
    }

    pub(super) fn write_pcs_config(&mut self, port: Port, value: u64, now: Instant, host: &mut impl Host) {
        let config = port::IbpcsConfig(value);
        let in_reset = config.tx_rx_reset() || config.xcv_treset() || config.xcv_rreset();
        let was = std::mem::replace(&mut self.links[port.index()].in_reset, in_reset);
        if in_reset && !was {
            self.raise_hw_err(HwErrBits::STATUS_VALID_NO_EOP, now, host);
        }
        self.look_at_link(port, now, host);
    }

    /// What the other end of `port`'s cable shows from now on.
    pub fn peer_link(&mut self, port: Port, peer: PeerState, now: Instant, host: &mut impl Host) {
        let link = &mut self.links[port.index()];
        let fell = link.peer.is_up() && !peer.is_up();
        link.peer = peer;
        if let PeerState::Training(offer) = peer {
            link.peer_offer = Some(offer);
        }
        let falls = fell && link.training == training::LINK_UP && !link.is_looped();
        self.hear_peer(port, peer, now);
        if falls {
            self.take_down(port, true, now, host);
        }
        self.look_at_link(port, now, host);
        if self.sdma.wants_turn() {
            self.turn_engines(now, host);
        }
    }

    /// What `port` shows the other end of its cable.
    pub fn own_link(&self, port: Port) -> PeerState {
        self.links[port.index()].shown()
    }

    /// Starts, goes on with or ends training as the port and its peer stand now.
    fn look_at_link(&mut self, port: Port, now: Instant, host: &mut impl Host) {
        let link = &self.links[port.index()];
        let resting = link.step_at.is_none() && link.training != training::LINK_UP;
        if !link.is_able() {
            return self.take_down(port, false, now, host);
        }
        if !link.sees_peer() || link.common().is_none() {
            if !resting {
                self.take_down(port, true, now, host);
            }
            return;
        }
        if resting && !self.config.wrong.has(WrongChip::LinkStaysDown) {
            let link = &mut self.links[port.index()];
            link.step = 0;
            link.step_at = Some(now + self.config.timing.training_step);
        }
    }

    /// Ends training or link. `lost` if the other end is the reason, not a command.
    fn take_down(&mut self, port: Port, lost: bool, now: Instant, host: &mut impl Host) {
        let link = &mut self.links[port.index()];
        let was_up = link.state != State::Down;
        link.step_at = None;
        if lost && was_up {
            link.sleeps = link.control.link_down_default_state();
        }
        let code = link.resting_code();
        self.enter(port, code, State::Down, now, host);
        if was_up {
            self.credits[port.index()].restart();
            if lost {
                self.counters.bump_port(counter::IB_LINK_DOWNED_CNT, port, 1);
                self.raise_port_err(port, PortErrBits::RCV_IB_LOST_LINK_ERR, now, host);
            }
            self.pump(port, now, host);
        }
    }

    /// The link of `port` is lost though the light is still there.
    pub(super) fn lose_link(&mut self, port: Port, now: Instant, host: &mut impl Host) {
        self.take_down(port, true, now, host);
        self.look_at_link(port, now, host);
    }

    /// Shows new states, and says so: `IBStatIntReductionEn` hides what happens below INIT (F-384).
    fn enter(&mut self, port: Port, training: u8, state: State, now: Instant, host: &mut impl Host) {
        let link = &mut self.links[port.index()];
        if (link.training, link.state) == (training, state) {
            return;
        }
        let hidden =
            link.control.ib_stat_int_reduction_en() && link.state == State::Down && state == State::Down;
        link.training = training;
        link.state = state;
        let is_looped = link.is_looped();
        self.follow_heartbeat(port, state != State::Down, is_looped, now);
        self.counters.bump_port(counter::IB_STATUS_CHANGE_CNT, port, 1);
        if !hidden && !self.config.wrong.has(WrongChip::LinkChangeSilent) {
            self.raise_port_err(port, PortErrBits::IB_STATUS_CHANGED, now, host);
        }
    }

    fn obey(&mut self, port: Port, command: Command, now: Instant, host: &mut impl Host) {
        let direct = self.config.wrong.has(WrongChip::ActiveWithoutArmed);
        let link = &mut self.links[port.index()];
        let before = link.state;
        if link.obey(command, direct, &mut self.account) {
            self.take_down(port, false, now, host);
            return self.look_at_link(port, now, host);
        }
        let (training, state) = (link.training, link.state);
        link.state = before;
        self.enter(port, training, state, now, host);
        self.pump(port, now, host);
    }

    /// Takes the steps and commands that are due.
    pub(super) fn advance_link(&mut self, port: Port, now: Instant, host: &mut impl Host) {
        if let Some((at, command)) = self.links[port.index()].command
            && at <= now
        {
            self.links[port.index()].command = None;
            self.obey(port, command, at, host);
        }
        while let Some(at) = self.links[port.index()].step_at.filter(|&at| at <= now) {
            self.train(port, at, host);
        }
    }

    /// One step of training.
    fn train(&mut self, port: Port, at: Instant, host: &mut impl Host) {
        let link = &mut self.links[port.index()];
        let step = link.step;
        link.step += 1;
        match training::STEPS.get(step) {
            Some(&code) => {
                link.step_at = Some(at + self.config.timing.training_step);
                self.enter(port, code, State::Down, at, host);
            }
            None => {
                link.step_at = None;
                link.agreed = link.common();
                self.enter(port, training::LINK_UP, State::Init, at, host);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::Bench;
    use super::*;
    use qhca_regs::map::port::{IbcCtrlA, IbcStatusA};

    const P: Port = Port::P0;
    const CTRL_A: u32 = port::IBC_CTRL_A.port(P).offset();

    fn status(bench: &mut Bench) -> (u8, u8) {
        let status = IbcStatusA(bench.read(port::IBC_STATUS_A.port(P).offset()));
        (status.link_training_state(), status.link_state())
    }

    fn enabled() -> IbcCtrlA {
        IbcCtrlA::default().with_ib_link_en(true)
    }

    /// A port out of reset whose peer polls at all speeds.
    fn polling() -> Bench {
        let mut bench = Bench::new();
        bench.write(port::IBPCS_CONFIG.port(P).offset(), 0);
        bench.write(CTRL_A, enabled().0);
        bench.peer(P, PeerState::Training(Offer::ALL));
        bench
    }

    fn command(bench: &mut Bench, link: u8, init: u8) {
        bench.write(CTRL_A, enabled().with_link_cmd(link).with_link_init_cmd(init).0);
        bench.settle();
    }

    #[test]
    fn link_trains_only_while_both_ends_want_it() {
        let mut bench = polling();
        assert_eq!(status(&mut bench), (2, 0));
        bench.peer(P, PeerState::Silent);
        bench.settle();
        assert_eq!(status(&mut bench), (2, 0), "no peer");
        bench.peer(P, PeerState::Training(Offer::ALL));
        bench.settle();
        assert_eq!(status(&mut bench), (1, 1));
        let raw = IbcStatusA(bench.read(port::IBC_STATUS_A.port(P).offset()));
        assert!(raw.link_speed_qdr() && !raw.link_speed_active() && raw.link_width_active());
        bench.write(CTRL_A, 0);
        assert_eq!(status(&mut bench), (2, 0), "never up without IBLinkEn");
    }

    #[test]
    fn highest_common_speed_is_taken() {
        let mut bench = polling();
        bench.peer(P, PeerState::Training(Offer::of_speeds(3)));
        bench.settle();
        let raw = IbcStatusA(bench.read(port::IBC_STATUS_A.port(P).offset()));
        assert!(raw.link_speed_active() && !raw.link_speed_qdr());
    }

    #[test]
    fn active_is_reached_through_armed_only() {
        let mut bench = polling();
        bench.settle();
        command(&mut bench, 3, 0);
        assert_eq!(status(&mut bench), (1, 1), "ACTIVE from INIT is ignored");
        assert_eq!(bench.chip.account().link_commands_ignored, 1);
        command(&mut bench, 2, 0);
        assert_eq!(status(&mut bench), (1, 2));
        command(&mut bench, 3, 0);
        assert_eq!(status(&mut bench), (1, 3));
        command(&mut bench, 2, 0);
        assert_eq!(status(&mut bench), (1, 2), "ARMED from ACTIVE");
        assert_eq!(IbcCtrlA(bench.read(CTRL_A)).link_cmd(), 0, "commands do not stick");
    }

    #[test]
    fn disabled_port_stays_down_until_another_init_command() {
        let mut bench = polling();
        command(&mut bench, 0, 1);
        assert_eq!(status(&mut bench), (0, 0));
        bench.write(CTRL_A, 0);
        bench.write(CTRL_A, enabled().0);
        bench.settle();
        assert_eq!(status(&mut bench), (0, 0));
        assert_eq!(bench.chip.own_link(P), PeerState::Silent);
        command(&mut bench, 0, 3);
        assert_eq!(status(&mut bench), (1, 1), "SLEEP lets it train");
    }

    #[test]
    fn pulled_cable_is_counted_and_reported() {
        let mut bench = polling();
        bench.settle();
        bench.write(port::ERR_CLEAR.port(P).offset(), u64::MAX);
        bench.peer(P, PeerState::Silent);
        assert_eq!(status(&mut bench), (2, 0));
        let errors = PortErrBits::from_bits_retain(bench.read(port::ERR_STATUS.port(P).offset()));
        assert!(errors.contains(PortErrBits::IB_STATUS_CHANGED | PortErrBits::RCV_IB_LOST_LINK_ERR));
        assert_eq!(bench.read(counter::IB_LINK_DOWNED_CNT.port(P).offset()), 1);
    }

    /// Software masks the error for that long, and clears it (F-761).
    #[test]
    fn reset_of_the_physical_layer_takes_the_link_down_and_raises_a_false_error() {
        use qhca_regs::map::device::{HW_ERR_CLEAR, HW_ERR_STATUS};
        let mut bench = polling();
        bench.settle();
        assert_eq!(bench.read(HW_ERR_STATUS.offset()), 0, "the reset of power-on has no beginning");
        let false_error = HwErrBits::STATUS_VALID_NO_EOP.bits();
        for (value, raised) in [(7, false_error), (1, 0), (0, 0), (4, false_error)] {
            bench.write(port::IBPCS_CONFIG.port(P).offset(), value);
            assert_eq!(bench.read(HW_ERR_STATUS.offset()), raised, "after {value}");
            assert_eq!(status(&mut bench).1, 0, "no link after {value}");
            bench.write(HW_ERR_CLEAR.offset(), false_error);
        }
    }

    #[test]
    fn peer_that_starts_over_takes_the_link_down_and_up_again() {
        let mut bench = polling();
        bench.settle();
        bench.peer(P, PeerState::Up);
        bench.peer(P, PeerState::Training(Offer::ALL));
        assert_eq!(status(&mut bench).1, 0);
        bench.settle();
        assert_eq!(status(&mut bench), (1, 1));
    }

    #[test]
    fn reduction_hides_changes_below_init_but_not_init() {
        let mut bench = polling();
        bench.write(CTRL_A, enabled().with_ib_stat_int_reduction_en(true).0);
        bench.write(port::ERR_CLEAR.port(P).offset(), u64::MAX);
        bench.pass(Duration::from_micros(350));
        assert_eq!(bench.read(port::ERR_STATUS.port(P).offset()), 0);
        bench.settle();
        let changed = PortErrBits::IB_STATUS_CHANGED.bits();
        assert_eq!(bench.read(port::ERR_STATUS.port(P).offset()), changed);
    }

    #[test]
    fn loopback_comes_up_against_itself() {
        let mut bench = Bench::new();
        bench.write(port::IBPCS_CONFIG.port(P).offset(), 0);
        bench.write(CTRL_A, enabled().with_loopback(true).0);
        bench.settle();
        assert_eq!(status(&mut bench), (1, 1));
    }

    #[test]
    fn absent_port_never_trains() {
        let mut bench = Bench::on(super::super::Board::Qle7340);
        let p1 = Port::P1;
        bench.write(port::IBPCS_CONFIG.port(p1).offset(), 0);
        bench.write(port::IBC_CTRL_A.port(p1).offset(), enabled().0);
        bench.peer(p1, PeerState::Training(Offer::ALL));
        bench.settle();
        assert_eq!(bench.chip.own_link(p1), PeerState::Silent);
    }
}
