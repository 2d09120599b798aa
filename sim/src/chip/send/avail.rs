//! Which send buffers are free: two bits a buffer, in the chip and copied to host memory.
//!
//! ```text
//!   qword n/32     ... | busy | check | busy | check |      bits 2(n mod 32) + 1, 2(n mod 32)
//! ```
//!
//! Check toggles when a buffer is taken, busy is set from then until its packet has left or was disarmed. The image goes
//! to `SendBufAvailAddr` when `SendBufAvailUpd` is switched on, when `AvailUpdThld` buffers have become free since the
//! last time, and with every free buffer while `SendIntBufAvail` is on (F-360).

use super::super::wrong::WrongChip;
use super::super::{Chip, Host};
use qhca_regs::layout::AvailWords;
use qhca_regs::map::device;
use qhca_regs::status::IntBits;
use qhca_regs::{Buffer, Instant};

/// Bytes of the image padded to a line (`SendBufAvailPad64Byte`).
const PADDED_QWORDS: usize = 8;

/// See the chapter's head.
pub(super) struct Avail {
    image: AvailWords,
    updates: bool,
    interrupts: bool,
    padded: bool,
    threshold: u8,
    /// Buffers that became free since the last copy.
    freed: u8,
    iova: u64,
}

impl Avail {
    pub(super) fn new() -> Self {
        Self {
            image: AvailWords([0; AvailWords::LEN_QWORDS]),
            updates: false,
            interrupts: false,
            padded: false,
            threshold: 0,
            freed: 0,
            iova: 0,
        }
    }

    /// Marks `buffer` as taken.
    pub(super) fn take(&mut self, buffer: Buffer, toggles: bool) {
        let mut state = self.image.state(buffer);
        state.check ^= toggles;
        state.busy = true;
        self.image.set(buffer, state);
    }

    fn free(&mut self, buffer: Buffer) {
        let mut state = self.image.state(buffer);
        state.busy = false;
        self.image.set(buffer, state);
    }

    pub(super) fn is_busy(&self, buffer: Buffer) -> bool {
        self.image.state(buffer).busy
    }

    fn any_free(&self) -> bool {
        (0..Buffer::SMALL + Buffer::LARGE).filter_map(Buffer::new).any(|buffer| !self.is_busy(buffer))
    }
}

impl Chip {
    /// One qword of the image, as software reads it from the chip.
    pub(in super::super) fn read_avail(&self, offset: u32) -> u64 {
        let index = (offset - qhca_regs::map::area::SEND_BUF_AVAIL.index(0).offset()) / 8;
        self.send.avail.image.0.get(index as usize).copied().unwrap_or(0)
    }

    pub(in super::super) fn avail_upd_count(&self) -> u64 {
        device::AvailUpdCount::default().with_avail_upd_count(self.send.avail.freed & 0x1F).0
    }

    pub(in super::super) fn write_avail_addr(&mut self, value: u64) {
        self.send.avail.iova = value;
    }

    /// The part of `SendCtrl` that concerns the image.
    pub(super) fn control_avail(&mut self, control: device::SendCtrl, now: Instant, host: &mut impl Host) {
        let avail = &mut self.send.avail;
        let updates_on = control.send_buf_avail_upd() && !avail.updates;
        let interrupts_on = control.send_int_buf_avail() && !avail.interrupts;
        avail.updates = control.send_buf_avail_upd();
        avail.interrupts = control.send_int_buf_avail();
        avail.threshold = control.avail_upd_thld();
        avail.padded = control.send_buf_avail_pad64_byte();
        if updates_on || interrupts_on {
            self.copy_avail(host);
        }
        if interrupts_on && self.send.avail.any_free() {
            self.raise(IntBits::SEND_BUF_AVAIL, now, host);
        }
    }

    /// `buffer` holds no packet any more.
    pub(super) fn free_buffer(&mut self, buffer: Buffer, now: Instant, host: &mut impl Host) {
        if self.config.wrong.has(WrongChip::AvailBusyStuck) {
            return;
        }
        self.sdma.buffer_freed(buffer);
        let avail = &mut self.send.avail;
        avail.free(buffer);
        avail.freed = avail.freed.saturating_add(1);
        let interrupts = avail.interrupts;
        if interrupts || avail.freed >= avail.threshold {
            self.copy_avail(host);
        }
        if interrupts {
            self.raise(IntBits::SEND_BUF_AVAIL, now, host);
        }
    }

    /// Copies the image to host memory, if that is switched on.
    fn copy_avail(&mut self, host: &mut impl Host) {
        let avail = &mut self.send.avail;
        if !avail.updates || self.frozen {
            return;
        }
        avail.freed = 0;
        let len = if avail.padded { PADDED_QWORDS } else { AvailWords::LEN_QWORDS };
        let qwords = avail.image.0.iter().copied().chain([0; PADDED_QWORDS]).take(len);
        let refused = qwords
            .enumerate()
            .filter(|&(n, qword)| host.dma_publish(avail.iova + 8 * n as u64, qword).is_err())
            .count();
        self.account.dma_refused += refused as u64;
    }
}
