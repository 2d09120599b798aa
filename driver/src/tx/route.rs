//! Which way a packet takes: programmed I/O or send DMA, and how its outcome is learned.
//!
//! Programmed I/O costs the processor the copy and needs a free send buffer; send DMA costs the chip two trips to
//! memory. So short packets go by the first and long ones, for which the small buffers have no room, by the second.
//! When no send buffer is free a short packet goes by send DMA too.
//!
//! Packets of one sender on one port keep their order: once one has gone by send DMA, the next ones follow it until
//! the engine has nothing in flight. The other way round the chip sends what was launched before it fetches what is
//! submitted after (F-237, a guess); whoever cannot rely on that names the way in [`Frame::path`](super::Frame).

use std::sync::Arc;

use qhca_regs::{Bar, Buffer, Port};

use super::frame::{Frame, Lane, Path};
use super::pio::{Sender, SubmitError, pbc_of, wire_dwords};
use super::sdma::{FlushReason, NotQueued, Phase, SdmaHome, SdmaQueue, SendId, SendOutcome};
use crate::shared::DeviceState;

/// What took a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Submitted {
    /// This send buffer. It is free again when the packet has left; nothing more is told.
    Pio(Buffer),
    /// The port's send DMA engine, under this number.
    Sdma(SendId),
}

/// A queue and where it belongs.
pub(super) struct SdmaSide {
    pub(super) queue: SdmaQueue,
    home: Arc<SdmaHome>,
}

impl SdmaSide {
    /// Takes the queue from its home, if it is there.
    pub(super) fn from_home(home: &Arc<SdmaHome>) -> Option<Self> {
        Some(Self { queue: home.take()?, home: home.clone() })
    }

    /// Brings the queue home. A flush that was asked for meanwhile is answered.
    pub(super) fn bring_home(mut self) {
        self.queue.disown();
        self.home.put(self.queue);
        self.home.answer_if_asked();
    }
}

impl Sender {
    /// Everything that is not a short plain packet by programmed I/O.
    #[cold]
    pub(super) fn submit_elsewise(
        &mut self,
        bar: &impl Bar,
        frame: &Frame<'_>,
        written: usize,
    ) -> Result<Submitted, SubmitError> {
        self.check(frame, written)?;
        if self.shared.word() != self.known {
            self.look_what_changed()?;
        }
        match (frame.lane(), frame.path()) {
            (Lane::Management, _) | (_, Path::Pio) => self.submit_by_pio(bar, frame, written),
            (Lane::Vl(_), Path::Sdma) => self.submit_by_sdma(bar, frame, written),
            (Lane::Vl(_), Path::Auto) => self.submit_by_either(bar, frame, written),
        }
    }

    fn submit_by_either(
        &mut self,
        bar: &impl Bar,
        frame: &Frame<'_>,
        written: usize,
    ) -> Result<Submitted, SubmitError> {
        let long = written > self.sdma_above_dwords;
        let fits = written <= self.largest_dwords;
        if long || self.follows_sdma(bar, frame.port) {
            match self.submit_by_sdma(bar, frame, written) {
                Err(SubmitError::SdmaStopped { .. }) if fits => {}
                result => return result,
            }
        }
        match self.submit_by_pio(bar, frame, written) {
            Err(SubmitError::WouldBlock) => match self.submit_by_sdma(bar, frame, written) {
                Err(SubmitError::SdmaStopped { .. }) => Err(SubmitError::WouldBlock),
                result => result,
            },
            result => result,
        }
    }

    /// Whether packets of `port` are still in the hands of its engine, so that the next must follow them.
    fn follows_sdma(&mut self, bar: &impl Bar, port: Port) -> bool {
        if let Some(side) = &mut self.sdma[port.index()] {
            self.answered |= side.queue.look(bar);
        }
        let in_flight =
            |side: &Option<SdmaSide>| side.as_ref().is_some_and(|side| side.queue.in_flight() > 0);
        if !self.sdma.iter().any(in_flight) {
            self.pio_limit_dwords = self.sdma_above_dwords.min(self.largest_dwords);
        }
        in_flight(&self.sdma[port.index()])
    }

    fn submit_by_sdma(
        &mut self,
        bar: &impl Bar,
        frame: &Frame<'_>,
        written: usize,
    ) -> Result<Submitted, SubmitError> {
        let port = frame.port;
        let Some(side) = &mut self.sdma[port.index()] else { return Err(SubmitError::SdmaStopped { port }) };
        let wire_dwords = wire_dwords(written);
        match side.queue.try_submit(bar, pbc_of(frame, wire_dwords), frame) {
            Ok(id) => {
                // The next packets go the same way until this one has left.
                self.pio_limit_dwords = 0;
                self.counts.packets += 1;
                self.counts.by_sdma += 1;
                self.counts.dwords += u64::from(wire_dwords);
                Ok(Submitted::Sdma(id))
            }
            Err(NotQueued::NotRunning) => {
                self.answered |= side.queue.look(bar);
                Err(SubmitError::SdmaStopped { port })
            }
            Err(NotQueued::Full) => {
                self.counts.would_block += 1;
                Err(SubmitError::WouldBlock)
            }
        }
    }

    /// Hands out the outcomes of sends by DMA that have one, oldest first for each port; says how many. Only sends of
    /// ports whose outcomes are tracked ([`track_outcomes`](Self::track_outcomes)) have one to hand out.
    pub fn reap(&mut self, bar: &impl Bar, mut sink: impl FnMut(Port, SendId, SendOutcome)) -> usize {
        let state = self.shared.state();
        let mut reaped = 0;
        for side in self.sdma.iter_mut().flatten() {
            let port = side.queue.port();
            self.answered |= side.queue.look_or_abandon(state, bar);
            reaped += side.queue.reap(|id, outcome| sink(port, id, outcome));
        }
        reaped
    }

    /// Keeps the outcome of every send by DMA until it is reaped, or no longer. Sends whose outcomes were not reaped
    /// take up room: with tracking on, a sender that never reaps is full one day.
    pub fn track_outcomes(&mut self, on: bool) {
        self.sdma.iter_mut().flatten().for_each(|side| side.queue.track(on));
    }

    /// Sends packets of more than `dwords`, control word included, by send DMA. At first that is what a small send
    /// buffer holds. Packets that no send buffer holds go by send DMA whatever this says.
    pub fn set_sdma_above(&mut self, dwords: usize) {
        self.sdma_above_dwords = dwords;
        self.pio_limit_dwords = self.pio_limit_dwords.min(dwords);
        if self.sdma_in_flight() == 0 {
            self.pio_limit_dwords = dwords.min(self.largest_dwords);
        }
    }

    /// Sends by DMA that have no outcome yet, as far as is known.
    pub fn sdma_in_flight(&self) -> usize {
        self.sdma.iter().flatten().map(|side| side.queue.in_flight()).sum()
    }

    /// The send DMA queue of `port`, for its counts.
    pub fn sdma_queue(&self, port: Port) -> Option<&SdmaQueue> {
        self.sdma[port.index()].as_ref().map(|side| &side.queue)
    }

    /// Whether the control side waits for what was done here since the last call: then it should be woken.
    pub fn take_answered(&mut self) -> bool {
        std::mem::take(&mut self.answered)
    }
}

impl SdmaQueue {
    /// As [`look`](SdmaQueue::look), for a device in `state`: no register of one that is not open is touched.
    fn look_or_abandon(&mut self, state: DeviceState, bar: &impl Bar) -> bool {
        match state {
            DeviceState::Open => self.look(bar),
            DeviceState::Resetting => false,
            // What a device that was not silenced yet may still read is not given up: closing it settles the rest.
            DeviceState::Closed | DeviceState::Failed if self.shared().phase() != Phase::Off => false,
            DeviceState::Closed | DeviceState::Failed => self.look(bar),
            DeviceState::Gone => {
                self.abandon(FlushReason::Gone);
                false
            }
        }
    }
}
