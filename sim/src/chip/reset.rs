//! Reset: the chip vanishes from the bus and comes back with every register at its reset value.
//!
//! ```text
//!   Control.SyncReset := 1                                     Timing::reset later
//!        |-- reads give all ones, writes go nowhere, no DMA, no interrupt, no light --|-- as after power-on
//!            configuration space: BARs and command register lost                          ErrStatus.ResetNegated
//!                                                                                         if nobody had asked for it
//! ```
//!
//! What is not the chip's survives: the EEPROM, the cable modules, what the cables show. So do the account of drops and
//! the log, which are the model's own. The configuration space is kept by whoever serves the function: it looks at
//! [`Chip::resets`] and clears what the chip has forgotten (F-425).

use super::account::Drop;
use super::wrong::WrongChip;
use super::{Ahb, Chip, Counters, Errors, Gpio, Host, Receiver, Sdma, Sender, Store};
use qhca_regs::map::{device, port};
use qhca_regs::status::ErrBits;
use qhca_regs::{Instant, Port};

/// A reset that is going on.
#[derive(Clone, Copy)]
pub(super) struct Resetting {
    until: Instant,
    /// Nobody had asked for it.
    by_itself: bool,
}

impl Chip {
    /// How often the chip was reset since it was made. With each reset it forgets what its configuration space held:
    /// BARs, command register, the switches of MSI-X.
    pub fn resets(&self) -> u64 {
        self.resets
    }

    /// Whether the chip answers on the bus at `now`: it does not while it is pulled out or resets.
    pub fn answers(&self, now: Instant) -> bool {
        self.present && self.resetting.is_none_or(|reset| reset.until <= now)
    }

    /// Resets the function from outside, at once: the chip is as after power-on.
    pub fn reset(&mut self, now: Instant, host: &mut impl Host) {
        self.resets += 1;
        self.forget(now, host);
        self.resetting = None;
        self.answers = self.present;
    }

    /// The chip resets without being asked, as a supply that drops out makes it: it vanishes, comes back, and says so
    /// in `ResetNegated` (F-426).
    pub fn reset_by_itself(&mut self, now: Instant, host: &mut impl Host) {
        self.start_reset(true, now, host);
    }

    pub(super) fn start_reset(&mut self, by_itself: bool, now: Instant, host: &mut impl Host) {
        self.resets += 1;
        self.forget(now, host);
        self.resetting = Some(Resetting { until: now + self.config.timing.reset, by_itself });
        self.answers = false;
    }

    pub(super) fn reset_deadline(&self) -> Option<Instant> {
        self.resetting.map(|reset| reset.until)
    }

    /// Comes back from a reset that is over at `now`; returns whether the chip answers.
    #[cold]
    pub(super) fn comes_back(&mut self, now: Instant, host: &mut impl Host) -> bool {
        if let Some(reset) = self.resetting.filter(|reset| reset.until <= now) {
            self.resetting = None;
            self.answers = self.present;
            if reset.by_itself {
                self.raise_err(ErrBits::RESET_NEGATED, reset.until, host);
            }
        }
        self.answers
    }

    /// Everything in the chip goes back to its reset value; what was under way in it is lost.
    fn forget(&mut self, now: Instant, host: &mut impl Host) {
        for port in Port::ALL {
            let lost = self.send.queued(port) + self.recv.port(port).held_packets();
            (0..lost).for_each(|_| self.account.drop(port, Drop::Reset));
        }
        let kept = self.store.get(device::RCV_HDR_CNT.offset());
        self.store = Store::new(self.config.board);
        self.int.reset(host);
        self.err = Errors::new();
        self.counters = Counters::new();
        self.ahb = Ahb::new();
        for port in Port::ALL {
            let control_b = self.store.get(port::IBC_CTRL_B.port(port).offset());
            let link = &mut self.links[port.index()];
            *link = link.after_reset(control_b);
            self.credits[port.index()].restart();
            self.samplers[port.index()] = Default::default();
            let heartbeat = &mut self.heartbeats[port.index()];
            *heartbeat = heartbeat.after_reset(control_b);
        }
        self.recv = Receiver::new(self.recv.is_single_port());
        self.send = Sender::new();
        self.sdma = Sdma::new();
        self.looped.clear();
        self.frozen = false;
        self.gpio = Gpio::new(Port::ALL.map(|port| self.twsi.is_present(port)));
        self.follow_pins(now, host);
        if self.config.wrong.has(WrongChip::ResetKeepsRegister) {
            self.store.set(device::RCV_HDR_CNT.offset(), kept);
            self.write_rcv_geometry();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::Bench;
    use super::super::{IntMode, PeerState};
    use super::*;
    use qhca_regs::map::user;
    use qhca_regs::status::IntBits;
    use qhca_regs::{Access, Buffer, Duration, GONE};

    const P: Port = Port::P0;

    fn sync_reset(bench: &mut Bench) {
        bench.write(device::CONTROL.offset(), device::Control::default().with_sync_reset(true).0);
    }

    /// Everything that can be read, but for what follows the outside world.
    fn all_registers(bench: &mut Bench) -> Vec<(u32, u64)> {
        let placed: Vec<_> =
            qhca_regs::map::all().filter(|placed| placed.info.access != Access::Wo).collect();
        placed.into_iter().map(|placed| (placed.offset, bench.read(placed.offset))).collect()
    }

    #[test]
    fn chip_vanishes_for_the_set_time_and_returns_with_every_reset_value() {
        let mut bench = Bench::new();
        let fresh = all_registers(&mut bench);
        bench.activate(P);
        bench.write(device::INT_MASK.offset(), u64::MAX);
        let placed: Vec<_> = qhca_regs::map::all().map(|placed| placed.offset).collect();
        for offset in placed.into_iter().filter(|&offset| offset != device::CONTROL.offset()) {
            bench.write(offset, 0x0123_4567_89AB_CDEF);
        }
        assert_ne!(all_registers(&mut bench), fresh);
        sync_reset(&mut bench);
        assert_eq!((bench.read(device::REVISION.offset()), bench.chip.resets()), (GONE, 1));
        bench.write(device::SCRATCH.offset(), 7);
        assert!(!bench.chip.answers(bench.now));
        let whole = bench.chip.config().timing.reset;
        bench.pass(Duration::from_nanos(whole.as_nanos() - 1));
        assert_eq!(bench.read(device::SCRATCH.offset()), GONE);
        bench.pass(Duration::from_nanos(1));
        assert!(bench.chip.answers(bench.now));
        assert_eq!(all_registers(&mut bench), fresh);
    }

    #[test]
    fn reset_ends_by_the_clock_even_if_nobody_lets_time_pass() {
        let mut bench = Bench::new();
        sync_reset(&mut bench);
        assert_eq!(bench.chip.next_deadline(), Some(bench.now + bench.chip.config().timing.reset));
        bench.now += bench.chip.config().timing.reset;
        assert_ne!(bench.read(device::REVISION.offset()), GONE);
    }

    #[test]
    fn link_goes_dark_and_trains_again_when_it_is_set_up_again() {
        let mut bench = Bench::new();
        bench.activate(P);
        sync_reset(&mut bench);
        assert_eq!(bench.chip.own_link(P), PeerState::Silent);
        bench.settle();
        assert_eq!(bench.chip.own_link(P), PeerState::Silent);
        bench.activate(P);
    }

    #[test]
    fn packets_under_way_are_lost_and_counted_and_nothing_touches_memory() {
        let mut bench = Bench::new();
        bench.activate(P);
        bench.write(port::SEND_CTRL.port(P).offset(), 0);
        let words = [9 - 1, 0, 0x0100_0200, 0x0200_0800, 0x24, 0, 0x0700_0000, 0x11, 0x22];
        bench.burst(Buffer::new(0).expect("exists").offset(), &words);
        bench.host.writes.clear();
        sync_reset(&mut bench);
        bench.settle();
        assert_eq!(bench.chip.account().dropped(P, Drop::Reset), 1);
        assert!(bench.chip.take_outgoing(P).is_none() && bench.host.writes.is_empty());
    }

    /// B44: a line that stays high over a reset interrupts for ever.
    #[test]
    fn legacy_line_falls_with_the_reset() {
        let mut bench = Bench::new();
        bench.set_int_mode(IntMode::Intx);
        bench.write(device::INT_MASK.offset(), u64::MAX);
        bench.raise(IntBits::RCV_AVAIL0);
        assert_eq!(bench.host.line, Some(true));
        sync_reset(&mut bench);
        assert_eq!(bench.host.line, Some(false));
    }

    #[test]
    fn only_a_reset_that_nobody_asked_for_is_told() {
        let mut bench = Bench::new();
        sync_reset(&mut bench);
        bench.settle();
        assert_eq!(bench.read(device::ERR_STATUS.offset()), 0);
        bench.chip.reset_by_itself(bench.now, &mut bench.host);
        assert_eq!(bench.read(device::ERR_STATUS.offset()), GONE);
        bench.settle();
        assert_eq!(bench.read(device::ERR_STATUS.offset()), ErrBits::RESET_NEGATED.bits());
    }

    #[test]
    fn card_pulled_during_its_reset_stays_away() {
        let mut bench = Bench::new();
        sync_reset(&mut bench);
        bench.chip.set_present(false);
        bench.settle();
        assert_eq!(bench.read(device::REVISION.offset()), GONE);
        bench.chip.set_present(true);
        assert_ne!(bench.read(device::REVISION.offset()), GONE);
    }

    #[test]
    fn reset_from_outside_takes_no_time() {
        let mut bench = Bench::new();
        bench.write(user::RCV_HDR_HEAD.index(0).offset(), 32);
        bench.write(device::SCRATCH.offset(), 1);
        bench.chip.reset(bench.now, &mut bench.host);
        assert_eq!(bench.read(device::SCRATCH.offset()), 0);
        assert_eq!(bench.read(user::RCV_HDR_HEAD.index(0).offset()), 0);
        assert_eq!(bench.chip.resets(), 1);
    }
}
