//! Expected packets: their payload goes where the sender says, into the page of a TID.
//!
//! ```text
//!   KD header   TID, offset, flags        TID array of the context: 512 entries, address and size
//!                 |     '-------------------> page + 4 * offset  <- payload
//!                 '--> entry [TID] ----------'
//!   flow in order, HDRSUPP asked for and allowed, nothing wrong  ->  no entry in the header queue
//! ```
//!
//! The flow is asked first; a packet that it turns away does not reach the page. A TID of 512 and more, an invalid entry
//! or an offset beyond the page is a TID error and the payload is lost; what does not fit is cut, with a LEN error
//! (F-346, F-474). A packet with the INTR flag always has its entry (F-475).

use super::super::account::Drop;
use super::super::wrong::WrongChip;
use super::super::{Chip, Host};
use super::flow::{Leniency, Verdict};
use super::place::{Arrival, Landing, Outcome, add_error};
use super::steer::Kd;
use qhca_regs::Instant;
use qhca_regs::layout::tid_flow::FlowPsn;
use qhca_regs::layout::{KdFlags, PacketType, Rhf, RhfErrors, Slot};
use qhca_regs::map::{area, counter};
use qhca_regs::status::{ErrBits, IntBits, PortErrBits};

/// Where the payload of an expected packet may go.
struct Page {
    iova: u64,
    room_bytes: usize,
}

impl Chip {
    /// Takes an expected packet for `tid`.
    pub(super) fn place_expected(
        &mut self,
        arrival: &Arrival,
        tid: u16,
        kd: Kd,
        now: Instant,
        host: &mut impl Host,
    ) -> Outcome {
        let wrong = self.config.wrong;
        let psn = FlowPsn::parse(arrival.psn());
        let lenient = Leniency {
            generation: wrong.has(WrongChip::FlowGenerationUnchecked),
            sequence: wrong.has(WrongChip::FlowSequenceUnchecked),
        };
        let verdict = self.recv.flows.judge(arrival.ctxt, psn, lenient);
        let page = self.page_of(arrival, tid, kd.offset_dwords);
        let (header, payload) = arrival.bytes.split_at(arrival.route.header_bytes);
        let fits = page.as_ref().is_some_and(|page| payload.len() <= page.room_bytes);
        let whole = fits && arrival.meta.icrc_ok;
        let urgent = kd.flags.contains(KdFlags::INTR);
        let suppressed = verdict == Verdict::InOrder { may_suppress: true }
            && kd.flags.contains(KdFlags::HDR_SUPP)
            && !wrong.has(WrongChip::HeaderSuppressionIgnored)
            && whole
            && !urgent;
        if !suppressed && let Some(outcome) = self.refuse_if_full(arrival, now, host) {
            return outcome;
        }
        self.recv.flows.settle(arrival.ctxt, psn, verdict, whole);
        let landing = self.expected_landing(arrival, verdict, page, now, host);
        if suppressed {
            self.write_suppressed(arrival, payload, landing, host);
            return Outcome::Gone;
        }
        self.write_packet(arrival, header, payload, landing, host);
        if urgent {
            self.raise(IntBits::rcv_urg(arrival.ctxt), now, host);
        }
        self.check_avail(arrival.ctxt, now, host);
        Outcome::Gone
    }

    /// Turns the packet away if its header queue is full: dropped, or held back.
    pub(super) fn refuse_if_full(
        &mut self,
        arrival: &Arrival,
        now: Instant,
        host: &mut impl Host,
    ) -> Option<Outcome> {
        let ctxt = arrival.ctxt;
        if !self.recv.queues[ctxt.index()].is_full(self.recv.geometry)
            || self.config.wrong.has(WrongChip::HeaderFullOverwrites)
        {
            return None;
        }
        if self.recv.dont_drop >> ctxt.index() & 1 != 0 {
            return Some(Outcome::Stalls);
        }
        self.overflow(arrival, Drop::HeaderFull, ErrBits::RCV_HDR_FULL_ERR, now, host);
        Some(Outcome::Gone)
    }

    /// The page of `tid`, from the offset on; `None` if there is none.
    fn page_of(&self, arrival: &Arrival, tid: u16, offset_dwords: u16) -> Option<Page> {
        let array = area::RCV_TID_ARRAY.ctxt(arrival.ctxt);
        let entry = match u32::from(tid) {
            tid if tid < array.len() => self.store.get(array.index(tid).offset()),
            _ => 0,
        };
        let Slot::Buffer(buffer) = Slot::parse(area::RcvArrayEntry(entry)) else { return None };
        let offset = match self.config.wrong.has(WrongChip::TidOffsetIgnored) {
            true => 0,
            false => 4 * usize::from(offset_dwords),
        };
        let room_bytes = buffer.size().bytes().checked_sub(offset).filter(|&room| room > 0)?;
        Some(Page { iova: buffer.iova() + offset as u64, room_bytes })
    }

    /// What the entry says, and where the payload goes.
    fn expected_landing(
        &mut self,
        arrival: &Arrival,
        verdict: Verdict,
        page: Option<Page>,
        now: Instant,
        host: &mut impl Host,
    ) -> Landing {
        let rhf = add_error(arrival.rhf(self), verdict.errors()).with_kind(PacketType::Expected);
        if !verdict.keeps() {
            self.account.drop(arrival.port, Drop::FlowMismatch);
            self.counters.bump(counter::RX_TID_FLOW_DROP_CNT, 1);
            return Landing::nowhere(rhf);
        }
        match page {
            Some(page) => Landing { rhf, iova: Some(page.iova), room_bytes: page.room_bytes },
            None => {
                self.account.drop(arrival.port, Drop::InvalidTid);
                self.counters.bump(counter::RX_TID_VALID_ERR_CNT, 1);
                self.raise_port_err(arrival.port, PortErrBits::RCV_BAD_TID_ERR, now, host);
                Landing::nowhere(add_error(rhf, RhfErrors::TID))
            }
        }
    }

    /// A packet in order that asked for no entry: only its payload is seen.
    fn write_suppressed(
        &mut self,
        arrival: &Arrival,
        payload: &[u8],
        landing: Landing,
        host: &mut impl Host,
    ) {
        let mut refused = 0;
        let _: Rhf = self.write_payload(arrival.port, payload, &landing, &mut refused, host);
        self.account.dma_refused += refused;
        match refused {
            0 => self.account.suppressed[arrival.port.index()] += 1,
            _ => self.account.drop(arrival.port, Drop::DmaRefused),
        }
    }
}
