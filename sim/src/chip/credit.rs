//! Credits: how much a port may send on each data lane before the other end has made room.
//!
//! ```text
//!   sender                                   receiver
//!   sent  = credits used so far       --->   received = what came
//!   limit = what the peer allows     <---    received - held + RxMaxCreditVL
//! ```
//!
//! Both counts run on for ever (modulo 2^32 here, 2^12 on the wire) and travel in a [`FlowUpdate`]. The receiver takes
//! `sent` as what has come, so that a packet lost on the cable costs nothing for long. A cable that carries no updates
//! leaves its sender unlimited (F-370). VL15 has no credits. `RxCreditVL` registers take effect when `CREDIT_CHANGE` of
//! `IB_SDTEST_IF_TX` goes from 0 to 1 (F-486).

use super::recv::CREDIT_BYTES;
use super::{Chip, Host};
use qhca_regs::map::{counter, port};
use qhca_regs::{Duration, Instant, Port};

const LANES: usize = 8;

/// What one end of a link tells the other about its credits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowUpdate {
    /// Credits that the teller has used on each lane, ever.
    pub sent: [u32; LANES],
    /// Up to which count the other end may go.
    pub limit: [u32; LANES],
}

/// The credits of one port.
#[derive(Clone, Copy, Default)]
pub(super) struct Credits {
    sent: [u32; LANES],
    received: [u32; LANES],
    /// Credits that the port grants on each lane: the registers' values at the last credit change.
    granted: [u32; LANES],
    /// Credits that a leaking chip has lost.
    leaked: [u32; LANES],
    credit_change: bool,
    /// `None` until the cable carries updates.
    limit: Option<[u32; LANES]>,
    told: FlowUpdate,
    told_at: Option<Instant>,
}

impl Credits {
    /// Whether `needs` more may be sent on `lane`.
    #[inline]
    pub(super) fn allow(&self, lane: usize, needs: usize) -> bool {
        match &self.limit {
            None => true,
            Some(limit) => limit[lane].wrapping_sub(self.sent[lane]) as i32 >= needs as i32,
        }
    }

    #[inline]
    pub(super) fn spend(&mut self, lane: usize, needs: usize) {
        self.sent[lane] = self.sent[lane].wrapping_add(needs as u32);
    }

    /// A packet came on `lane`; VL15 has no credits.
    #[inline]
    pub(super) fn arrive(&mut self, lane: usize, needs: usize, leaks: bool) {
        if let Some(received) = self.received.get_mut(lane) {
            *received = received.wrapping_add(needs as u32);
            self.leaked[lane] += u32::from(leaks);
        }
    }

    /// A link that goes down forgets both counts; whoever has heard updates waits for a new one.
    pub(super) fn restart(&mut self) {
        let limit = self.limit.map(|_| [0; LANES]);
        let Self { granted, credit_change, .. } = *self;
        *self = Self { limit, granted, credit_change, ..Self::default() };
    }
}

/// 128 ns, the unit of `FlowCtrlPeriod`.
const PERIOD_UNIT: Duration = Duration::from_nanos(128);

impl Chip {
    /// What `port` has to tell the other end about its credits: something if that has changed, at most once in a
    /// `FlowCtrlPeriod`. A cable that carries credits asks after every call that moved packets.
    pub fn flow_update(&mut self, port: Port, now: Instant) -> Option<FlowUpdate> {
        let told_at = self.credits[port.index()].told_at;
        // Asked for after every packet: the cheap reasons to say nothing come first.
        let early = told_at.is_some_and(|at| now < at + self.flow_period(port));
        if early || !self.links[port.index()].takes(true) || told_at.is_some() && !self.has_news(port) {
            return None;
        }
        let update = self.flow_now(port);
        let credits = &mut self.credits[port.index()];
        credits.told = update;
        credits.told_at = Some(now);
        self.counters.bump_port(counter::TX_FLOW_PKT_CNT, port, 1);
        Some(update)
    }

    fn flow_now(&self, port: Port) -> FlowUpdate {
        let limit = std::array::from_fn(|lane| self.limit_now(port, lane));
        FlowUpdate { sent: self.credits[port.index()].sent, limit }
    }

    #[inline]
    fn limit_now(&self, port: Port, lane: usize) -> u32 {
        let credits = &self.credits[port.index()];
        let taken = self.recv.port(port).held_credits_of(lane) as u32 + credits.leaked[lane];
        credits.received[lane].wrapping_add(credits.granted[lane].saturating_sub(taken))
    }

    /// `IB_SDTEST_IF_TX`: takes over the credits that software has written.
    pub(super) fn write_sdtest_tx(&mut self, port: Port, value: u64) {
        let change = port::IbSdtestIfTx(value).credit_change();
        let registers = port::RX_CREDIT_VL.port(port);
        let granted = std::array::from_fn(|lane| {
            let register = self.store.get(registers.index(lane as u32).offset());
            port::RxCreditVl(register).rx_max_credit_vl().into()
        });
        let credits = &mut self.credits[port.index()];
        if change && !credits.credit_change {
            credits.granted = granted;
        }
        credits.credit_change = change;
    }

    /// `IBCStatusA`, with a bit for each lane that runs and may send.
    pub(super) fn ibc_status_a(&self, port: Port) -> u64 {
        let link = &self.links[port.index()];
        let may_send = |lane: &usize| link.is_up() && self.credits[port.index()].allow(*lane, 1);
        let lanes = (0..usize::from(link.lanes())).filter(may_send);
        link.status() | lanes.fold(0, |bits, lane| bits | 1 << (32 + lane))
    }

    /// Whether [`flow_now`](Self::flow_now) differs from what was told last. Under load the first lane settles it.
    #[inline]
    fn has_news(&self, port: Port) -> bool {
        let Credits { sent, told, .. } = &self.credits[port.index()];
        *sent != told.sent || (0..LANES).any(|lane| self.limit_now(port, lane) != told.limit[lane])
    }

    fn flow_period(&self, port: Port) -> Duration {
        PERIOD_UNIT.times(u64::from(self.links[port.index()].flow_period()))
    }

    /// The other end of `port`'s cable tells about its credits.
    pub fn take_flow_update(&mut self, port: Port, update: FlowUpdate, now: Instant, host: &mut impl Host) {
        let credits = &mut self.credits[port.index()];
        credits.limit = Some(update.limit);
        credits.received = update.sent;
        self.counters.bump_port(counter::RX_FLOW_PKT_CNT, port, 1);
        self.pump(port, now, host);
        if self.sdma.wants_turn() {
            self.turn_engines(now, host);
        }
    }

    /// When [`flow_update`](Self::flow_update) would have something to tell, on a cable that carries credits.
    pub(super) fn flow_deadline(&self, port: Port) -> Option<Instant> {
        let credits = &self.credits[port.index()];
        credits.limit?;
        let told_at = credits.told_at?;
        self.has_news(port).then(|| told_at + self.flow_period(port))
    }

    /// `RxCreditVL` as it reads: the maximum that was written, and what waiting packets consume, in half credits.
    pub(super) fn read_rx_credit(&self, port: Port, offset: u32) -> u64 {
        let lane = (offset / 8 % 8) as usize;
        let consumed = self.recv.port(port).held_credits_of(lane) * (CREDIT_BYTES / 32);
        let value = port::RxCreditVl(self.store.get(offset));
        value.with_rx_bufr_consumed_vl(consumed.min(0xFFF) as u16).0
    }
}
