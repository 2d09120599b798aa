//! Heartbeat: the two ends of a link ask each other, now and then, whether somebody is still there.
//!
//! ```text
//!   port  -- heartbeat with HRTBT_GUID -->  far end
//!         <-- answer -----------------------           IBCStatusB.LinkRoundTripLatency
//!         (no answer for Timing::heartbeat)            IBCStatusB.heartbeat_timed_out, link down
//! ```
//!
//! Light alone says nothing about the logic behind it: a far end that hangs keeps its link up until the heartbeat is
//! missed. The single heartbeats are not modelled. A far end whose own heartbeat is switched off does not answer
//! (F-760), and one that hangs is told of by [`Chip::set_far_end`]; what would follow from that follows (F-435).

use super::wrong::WrongChip;
use super::{Chip, Host, PeerState};
use qhca_regs::map::port;
use qhca_regs::{Duration, Instant, Port};

/// One tick of `LinkRoundTripLatency` (F-436).
const TICK_NS: u64 = 4;
const LATENCY_MAX: u64 = (1 << 26) - 1;
/// `heartbeat_crosstalk`: one bit a lane.
const ALL_LANES: u8 = 0xF;

/// How the far end of a cable takes heartbeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FarEnd {
    /// Whether it answers.
    pub answers: bool,
    /// From a heartbeat to its answer.
    pub round_trip: Duration,
}

impl Default for FarEnd {
    fn default() -> Self {
        Self { answers: true, round_trip: Duration::ZERO }
    }
}

/// One port's heartbeat.
pub(super) struct Heartbeat {
    control: port::IbcCtrlB,
    far: FarEnd,
    /// Whether the peer's heartbeat is switched off, once the peer is up and has said so.
    mute: Option<bool>,
    /// Whether the link was up when last looked at, and whether the far end has answered since it came up.
    up: bool,
    heard: bool,
    due: Option<Instant>,
    timed_out: bool,
    crosstalk: u8,
    latency_ticks: u32,
}

impl Heartbeat {
    /// A port with the reset value of `IBCCtrlB`.
    pub(super) fn new(control_b: u64) -> Self {
        Self {
            control: port::IbcCtrlB(control_b),
            far: FarEnd::default(),
            mute: None,
            up: false,
            heard: false,
            due: None,
            timed_out: false,
            crosstalk: 0,
            latency_ticks: 0,
        }
    }

    /// The chip's part is forgotten; the cable's stays.
    pub(super) fn after_reset(&self, control_b: u64) -> Self {
        Self { far: self.far, mute: self.mute, ..Self::new(control_b) }
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.due
    }

    fn is_on(&self) -> bool {
        self.control.hrtbt_enb() || self.control.hrtbt_auto()
    }

    fn is_answered(&self) -> bool {
        self.far.answers && self.mute != Some(true)
    }

    /// With `HRTBT_AUTO` a far end that never answered is not missed: it may not know heartbeats. Nor is one whose
    /// silence is told already.
    fn is_missed(&self) -> bool {
        let watched = self.up && self.is_on() && !self.timed_out;
        watched && !self.is_answered() && (self.heard || !self.control.hrtbt_auto())
    }

    fn measure(&mut self) {
        self.latency_ticks = (self.far.round_trip.as_nanos() / TICK_NS).min(LATENCY_MAX) as u32;
    }
}

impl Chip {
    /// Tells how the far end of `port`'s cable takes heartbeats from now on.
    pub fn set_far_end(&mut self, port: Port, far: FarEnd, now: Instant) {
        let heartbeat = &mut self.heartbeats[port.index()];
        heartbeat.far = far;
        heartbeat.heard |= heartbeat.is_answered() && heartbeat.up;
        self.watch_heartbeat(port, now);
    }

    /// The peer of `port` shows itself. One that is mute from its first moment in LinkUp was never heard, though this
    /// port may have been up before it.
    pub(super) fn hear_peer(&mut self, port: Port, peer: PeerState, now: Instant) {
        let heartbeat = &mut self.heartbeats[port.index()];
        let mute = peer.is_up().then_some(peer == PeerState::UpMute);
        if heartbeat.mute.is_none() && mute == Some(true) {
            heartbeat.heard = false;
        }
        heartbeat.mute = mute;
        heartbeat.heard |= heartbeat.is_answered() && heartbeat.up;
        self.watch_heartbeat(port, now);
    }

    pub(super) fn write_heartbeat_control(&mut self, port: Port, value: u64, now: Instant) {
        let control = port::IbcCtrlB(value);
        let heartbeat = &mut self.heartbeats[port.index()];
        let asked = control.hrtbt_req() && !heartbeat.control.hrtbt_req();
        heartbeat.control = control;
        if asked && heartbeat.up {
            match heartbeat.is_answered() {
                true => heartbeat.measure(),
                false => heartbeat.timed_out = true,
            }
        }
        self.watch_heartbeat(port, now);
    }

    /// The link of `port` has changed.
    pub(super) fn follow_heartbeat(&mut self, port: Port, is_up: bool, is_looped: bool, now: Instant) {
        let heartbeat = &mut self.heartbeats[port.index()];
        if is_up && !heartbeat.up && heartbeat.is_on() {
            heartbeat.heard = heartbeat.is_answered();
            heartbeat.measure();
            // A port that hears itself takes its own heartbeat for another's.
            heartbeat.crosstalk = if is_looped { ALL_LANES } else { 0 };
        }
        heartbeat.up = is_up;
        self.watch_heartbeat(port, now);
    }

    fn watch_heartbeat(&mut self, port: Port, now: Instant) {
        let timeout = self.config.timing.heartbeat;
        let heartbeat = &mut self.heartbeats[port.index()];
        heartbeat.due = match heartbeat.is_missed() {
            true => heartbeat.due.or(Some(now + timeout)),
            false => None,
        };
    }

    pub(super) fn advance_heartbeat(&mut self, port: Port, now: Instant, host: &mut impl Host) {
        let Some(at) = self.heartbeats[port.index()].due.filter(|&at| at <= now) else { return };
        self.heartbeats[port.index()].due = None;
        if !self.config.wrong.has(WrongChip::HeartbeatSilent) {
            self.heartbeats[port.index()].timed_out = true;
            self.lose_link(port, at, host);
        }
    }

    /// `IBCStatusB`.
    pub(super) fn read_ibc_status_b(&self, port: Port) -> u64 {
        let heartbeat = &self.heartbeats[port.index()];
        port::IbcStatusB(self.store.get(port::IBC_STATUS_B.port(port).offset()))
            .with_heartbeat_timed_out(heartbeat.timed_out)
            .with_heartbeat_crosstalk(heartbeat.crosstalk)
            .with_link_round_trip_latency(heartbeat.latency_ticks)
            .0
    }

    /// Both heartbeat verdicts are cleared by writing ones.
    pub(super) fn write_ibc_status_b(&mut self, port: Port, value: u64, now: Instant) {
        let value = port::IbcStatusB(value);
        let heartbeat = &mut self.heartbeats[port.index()];
        heartbeat.timed_out &= !value.heartbeat_timed_out();
        heartbeat.crosstalk &= !value.heartbeat_crosstalk();
        self.watch_heartbeat(port, now);
    }
}

#[cfg(test)]
mod tests {
    use super::super::Offer;
    use super::super::tests::Bench;
    use super::*;
    use qhca_regs::map::port::{IbcStatusA, IbcStatusB};

    const P: Port = Port::P0;
    const SILENT: FarEnd = FarEnd { answers: false, round_trip: Duration::ZERO };

    fn control(bench: &mut Bench, change: impl Fn(port::IbcCtrlB) -> port::IbcCtrlB) {
        let reset = port::IbcCtrlB(0x305FF).with_hrtbt_enb(false).with_hrtbt_auto(false);
        bench.write(port::IBC_CTRL_B.port(P).offset(), change(reset).0);
    }

    fn status(bench: &mut Bench) -> IbcStatusB {
        IbcStatusB(bench.read(port::IBC_STATUS_B.port(P).offset()))
    }

    fn link_state(bench: &mut Bench) -> u8 {
        IbcStatusA(bench.read(port::IBC_STATUS_A.port(P).offset())).link_state()
    }

    fn far_end(bench: &mut Bench, far: FarEnd) {
        bench.chip.set_far_end(P, far, bench.now);
    }

    fn up(change: impl Fn(port::IbcCtrlB) -> port::IbcCtrlB) -> Bench {
        let mut bench = Bench::new();
        control(&mut bench, change);
        bench.activate(P);
        bench
    }

    #[test]
    fn far_end_that_stops_answering_takes_the_link_down_after_the_timeout() {
        let mut bench = up(|c| c.with_hrtbt_enb(true).with_hrtbt_auto(true));
        let timeout = bench.chip.config().timing.heartbeat;
        far_end(&mut bench, SILENT);
        bench.pass(Duration::from_nanos(timeout.as_nanos() - 1));
        assert_eq!((link_state(&mut bench), status(&mut bench).heartbeat_timed_out()), (3, false));
        bench.pass(Duration::from_nanos(1));
        assert_eq!((link_state(&mut bench), status(&mut bench).heartbeat_timed_out()), (0, true));
        bench.write(port::IBC_STATUS_B.port(P).offset(), IbcStatusB(0).with_heartbeat_timed_out(true).0);
        assert!(!status(&mut bench).heartbeat_timed_out());
    }

    #[test]
    fn answer_in_time_keeps_the_link() {
        let mut bench = up(|c| c.with_hrtbt_enb(true));
        far_end(&mut bench, SILENT);
        bench.pass(Duration::from_nanos(bench.chip.config().timing.heartbeat.as_nanos() / 2));
        far_end(&mut bench, FarEnd::default());
        bench.settle();
        assert_eq!(link_state(&mut bench), 3);
    }

    #[test]
    fn without_heartbeat_or_with_a_far_end_that_never_answered_nothing_is_missed() {
        let mut bench = up(|c| c);
        far_end(&mut bench, SILENT);
        bench.settle();
        assert_eq!(link_state(&mut bench), 3);
        let mut bench = Bench::new();
        far_end(&mut bench, SILENT);
        control(&mut bench, |c| c.with_hrtbt_auto(true));
        bench.activate(P);
        bench.settle();
        assert_eq!(link_state(&mut bench), 3);
    }

    #[test]
    fn peer_whose_heartbeat_is_off_does_not_answer_and_is_missed_unless_it_never_did() {
        for (auto, missed) in [(false, true), (true, false)] {
            let mut bench = up(|c| c.with_hrtbt_enb(true).with_hrtbt_auto(auto));
            bench.peer(P, PeerState::Silent);
            bench.peer(P, PeerState::Training(Offer::ALL));
            bench.settle();
            bench.peer(P, PeerState::UpMute);
            bench.settle();
            assert_eq!(status(&mut bench).heartbeat_timed_out(), missed, "mute from the start, auto {auto}");
        }
        let mut bench = up(|c| c.with_hrtbt_enb(true).with_hrtbt_auto(true));
        bench.peer(P, PeerState::UpMute);
        bench.settle();
        assert!(status(&mut bench).heartbeat_timed_out(), "heard, then mute");
    }

    #[test]
    fn port_shows_whether_its_heartbeat_is_on() {
        let mut bench = up(|c| c);
        assert_eq!(bench.chip.own_link(P), PeerState::UpMute);
        control(&mut bench, |c| c.with_hrtbt_auto(true));
        assert_eq!(bench.chip.own_link(P), PeerState::Up);
    }

    #[test]
    fn round_trip_is_measured_when_the_link_comes_up_and_on_request() {
        let mut bench = Bench::new();
        let far = |ns| FarEnd { answers: true, round_trip: Duration::from_nanos(ns) };
        far_end(&mut bench, far(400));
        control(&mut bench, |c| c.with_hrtbt_enb(true));
        bench.activate(P);
        assert_eq!(status(&mut bench).link_round_trip_latency(), 100);
        far_end(&mut bench, far(800));
        assert_eq!(status(&mut bench).link_round_trip_latency(), 100);
        control(&mut bench, |c| c.with_hrtbt_enb(true).with_hrtbt_req(true));
        assert_eq!(status(&mut bench).link_round_trip_latency(), 200);
    }

    #[test]
    fn looped_port_hears_its_own_heartbeat_as_crosstalk() {
        let mut bench = Bench::new();
        control(&mut bench, |c| c.with_hrtbt_enb(true));
        bench.write(port::IBPCS_CONFIG.port(P).offset(), 0);
        let looped = port::IbcCtrlA::default().with_ib_link_en(true).with_loopback(true);
        bench.write(port::IBC_CTRL_A.port(P).offset(), looped.0);
        bench.settle();
        assert_eq!((link_state(&mut bench), status(&mut bench).heartbeat_crosstalk()), (1, ALL_LANES));
    }
}
